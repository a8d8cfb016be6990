# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the newest generation of the defaults would change on a cluster (docs/design/defaults.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...cluster.keys import NEWEST_GENERATION
from ...configuration.conf_file import value_text
from ..known.run_host import RunHost
from . import defaults
from .default_records import OPTION, PARTITION, Default, Follows, Target


def shown_lines(host: RunHost) -> list[str]:
    """What a run shows of the newer defaults: each of them in check mode, else how many there are."""
    lines = differences(host)
    if not lines or host.check_mode:
        return lines
    return [
        f"{len(lines)} values of the collection have newer defaults than this cluster. site.yml --check shows them "
        f"with their reasons, and `defaults: {NEWEST_GENERATION}` in the cluster file accepts them"
    ]


def differences(host: RunHost) -> list[str]:
    """A line for each default that the newest generation changes on this cluster: both values, and the reason."""
    present = defaults.target(host, "")
    if present.generation >= NEWEST_GENERATION:
        return []
    newest = replace(present, generation=NEWEST_GENERATION)
    changed = {(row.file, row.key, _option(row, newest)): row for row in _newer_rows(present, newest)}
    lines = [_describe(row, present, newest) for row in changed.values()]
    return [*filter(None, lines)]


def _newer_rows(present: Target, newest: Target) -> Iterator[Default]:
    """The rows that only the newest generation has, without those that the site's own values replace."""
    for file in defaults.FILES:
        site = _site_values(present.host, file)
        options = defaults.joined_values(file, newest, site)
        for row in defaults.rows_for(file, newest):
            applies = row.value_for(newest) in options.get(row.key, ()) if row.place == OPTION else row.key not in site
            if row.generation > present.generation and applies:
                yield row


def _site_values(host: RunHost, file: str) -> Mapping[str, Any]:
    """The parameters of a file that the site sets itself."""
    owner = (
        host.of(host["slurm_database"])
        if file in (defaults.SLURMDBD, defaults.MARIADB) and host["slurm_database"]
        else host
    )
    given: Mapping[str, Any] = owner.get(defaults.FILES[file]) or {}
    return given


def _describe(row: Default, present: Target, newest: Target) -> str:
    """A line about a changed default; empty if both values are the same for this cluster."""
    before = [
        other
        for other in defaults.rows_for(row.file, present)
        if (other.key, _option(other, present)) == (row.key, _option(row, newest))
    ]
    old, new = _show(before[-1], present) if before else "", _show(row, newest)
    if old == new:
        return ""
    reason = f"{row.reason} ({row.source})"
    return f"{row.file} {row.key}: {old or 'not set'} -> {new or 'not set'} with defaults: {row.generation}. {reason}"


def _option(row: Default, target: Target) -> str:
    """The name of an option in a list of options; empty for a parameter with one value."""
    return _show(row, target).partition("=")[0] if row.place == OPTION else ""


def _show(row: Default, target: Target) -> str:
    """The value of a row as the file has it. MariaDB's follow from facts of its host, which are not known yet."""
    if row.file == defaults.MARIADB and isinstance(row.value, Follows):
        return row.value.text
    value = row.value_for(target)
    if row.place == PARTITION:
        return "; ".join(f"{text} (partition {name})" for name, text in value.items())
    return "" if value is None else value_text(value)
