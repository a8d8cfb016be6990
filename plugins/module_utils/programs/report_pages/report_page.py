# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the page from its data: index.html for everybody, admin.html for administrators.

docs/design/report.md of the collection has the data. All texts in them are those of users and hosts: each is made
visible and short where it is read (texts.py), Jinja2 escapes it, and the Content-Security-Policy of the page allows no
other style and script than its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

try:
    import jinja2
except ImportError:  # The host of the page has it; one that lacks it only stores this file.
    jinja2 = None  # type: ignore[assignment]

from ...host.replacing import replace
from . import report_texts as texts
from .acceptance_table import Acceptance, acceptance_check, acceptance_of
from .node_tables import LEVELS, Grid, ends_of_types, grid_of, read_node, reasons_of_nodes
from .plots import HEIGHT, HIGH, WIDE
from .queue_tables import Queue, queue_of, read_job, rest_of, uses_of_nodes
from .repair_tables import CASES, OpenCase, cases_check, cases_of
from .report_privacy import Private, for_everybody, private
from .report_texts import Time, number_of, records_of, text_of, time_of
from .upkeep_tables import (
    ALERTS,
    Alert,
    Backup,
    Controller,
    Drain,
    Drift,
    Gap,
    Link,
    Maintenance,
    PageCheck,
    PendingUpdate,
    Validation,
    Version,
    alerts_check,
    alerts_of,
    backup_check,
    backups_of,
    controllers_of,
    drains_of,
    drift_check,
    drift_of,
    gaps_of,
    links_of,
    maintenance_of,
    updates_check,
    updates_of,
    validation_check,
    validation_of,
    versions_of,
)
from .usage_tables import UsageTables, usage_of

HERE = Path(__file__).parent

DRAINS = 100
"""Reasons of drained nodes that are listed."""

KNOWN = ("nodes", "jobs", "drains", "updates")
"""Lists that are known to be empty if they are; null means that they could not be had."""

OLD_AFTER = 3
"""Intervals after which a page is old."""

OLD_AFTER_DAY = 86400
"""Seconds after which a page is old that nothing makes again."""


class Page(NamedTuple):
    """All that a page shows. hidden: what PrivateData hides on it. old_after: seconds.

    is_measured: whether there is a Prometheus to ask for alerts. has_cases: whether the host of the page keeps cases.
    """

    admin: bool
    cluster: str
    release: str
    made: Time
    old_after: int
    hidden: Private
    missing: Sequence[Gap]
    missing_parts: frozenset[str]
    maintenance: Sequence[Maintenance]
    controllers: Sequence[Controller]
    checks: Sequence[PageCheck]
    nodes: Grid
    queue: Queue
    drains: Sequence[Drain]
    drains_note: str
    usage: UsageTables | None
    drift: Drift | None
    versions: Sequence[Version]
    updates: Sequence[PendingUpdate]
    acceptance: Acceptance | None
    validation: Validation | None
    backups: Sequence[Backup]
    is_measured: bool
    alerts: Sequence[Alert]
    alerts_note: str
    has_cases: bool
    cases: Sequence[OpenCase]
    cases_note: str
    links: Sequence[Link]


def page_of(data: Mapping[str, Any], admin: bool) -> Page:
    """The content of one page. data: already without what its readers may not see."""
    made = time_of(data, "made")
    missing = gaps_of(data)
    parts = frozenset(gap.part for gap in missing) | {key for key in KNOWN if data.get(key) is None}
    jobs = [job for job in (read_job(record, made) for record in records_of(data, "jobs")) if job]
    nodes = [read_node(node) for node in records_of(data, "nodes")]
    drains = drains_of(data, made)
    drift, updates = drift_of(data, made), updates_of(data)
    acceptance, validation, backups = acceptance_of(data, made), validation_of(data, made), backups_of(data, made)
    alerts, cases, links = alerts_of(data, made), cases_of(data, made), links_of(data)
    is_measured = data.get("alerts") is not None or "alerts" in parts
    has_cases = data.get("cases") is not None or "cases" in parts
    checks = [
        *([alerts_check(alerts, "alerts" in parts)] if is_measured else []),
        *([cases_check(cases, "cases" in parts)] if has_cases else []),
        drift_check(drift),
        updates_check(updates, "updates" in parts),
        acceptance_check(acceptance),
        validation_check(validation),
        backup_check(backups),
    ]
    return Page(
        admin=admin,
        cluster=text_of(data, "cluster") or "cluster",
        release=text_of(data, "release", 24),
        made=made,
        old_after=int(OLD_AFTER * (number_of(data, "interval") or 0)) or OLD_AFTER_DAY,
        hidden=Private() if admin else private(data),
        missing=missing,
        missing_parts=parts,
        maintenance=maintenance_of(data, made),
        controllers=controllers_of(data),
        checks=checks if admin else [],
        nodes=grid_of(
            nodes,
            uses_of_nodes(jobs, [node.name for node in nodes]),
            reasons_of_nodes(records_of(data, "drains")),
            ends_of_types(jobs, nodes),
            made,
        ),
        queue=queue_of(jobs),
        drains=drains[:DRAINS],
        drains_note=rest_of(len(drains), DRAINS, "reason"),
        usage=usage_of(data["usage"]) if isinstance(data.get("usage"), Mapping) else None,
        drift=drift,
        versions=versions_of(data),
        updates=updates,
        acceptance=acceptance,
        validation=validation,
        backups=backups,
        is_measured=is_measured,
        alerts=alerts[:ALERTS],
        alerts_note=rest_of(len(alerts), ALERTS, "alert"),
        has_cases=has_cases,
        cases=cases[:CASES],
        cases_note=rest_of(len(cases), CASES, "case"),
        links=links,
    )


def _hash(text: str) -> str:
    """A text's hash as a Content-Security-Policy has it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> tuple[jinja2.Template, str, str]:
    """The template, the style and the script, which are those of all pages."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {name: getattr(texts, name) for name in ("number", "hours", "plural", "short")}
    environment.filters.update(filters)
    style, script = ((HERE / name).read_text("utf-8") for name in ("style.css", "page.js"))
    return environment.get_template("page.html.j2"), style, script


def render(page: Page) -> str:
    """A page as HTML."""
    template, style, script = _template()
    return template.render(
        page=page,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        levels=LEVELS,
        plot_height=HEIGHT,
        curve_width=WIDE,
        curve_height=HIGH,
        nothing=texts.NOTHING,
    )


def write_pages(data: Mapping[str, Any], directory: Path) -> None:
    """Write index.html for everybody (mode 0644) and admin.html for administrators (mode 0640).

    data: as docs/design/report.md has it. OSError: a file cannot be written; the old one stays.
    """
    for name, text, mode in (
        ("index.html", render(page_of(for_everybody(data), admin=False)), 0o644),
        ("admin.html", render(page_of(data, admin=True)), 0o640),
    ):
        replace(str(directory.resolve() / name), text.encode(), mode)
