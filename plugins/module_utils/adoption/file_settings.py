# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of a whole file of a cluster that is translated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..cluster import schema
from ..configuration import parameters
from ..configuration.conf_file import table_of
from ..configuration.meaning import PATHS, one_spelling
from ..configuration.parameter_tables.slurm_defaults import SLURM_DEFAULTS
from ..configuration.sources import SourceError, SourceLine
from ..language.formatting import shown
from .cluster_files import ClusterFiles, Entry, plain_value
from .comments import LEFT_OUT
from .controllers import CONTROLLER_KEYS


def translate_settings(source: ClusterFiles, file: str, kind: schema.Kind[Any]) -> Entry:
    """The parameters of a file, in its order, by name in Slurm's spelling."""
    given: dict[str, tuple[SourceLine, Any]] = {}
    for line in source.lines[file]:
        for key, value in _read_pairs(source, file, line):
            name = source.find_name(file, key, value, line, kind)
            if not name:
                continue
            if name in given and name in parameters.REPEATED:
                before = given[name][1]
                value = [*(before if isinstance(before, list) else [before]), value]
            elif name in given:
                source.add_comment(
                    LEFT_OUT, given[name][0], name, f"{line} sets it again, and Slurm uses the last", file
                )
            given[name] = (line, value)
    _refuse_relative(given)
    return {name: plain_value(value) for name, (_line, value) in given.items()}


def _refuse_relative(given: Mapping[str, tuple[SourceLine, Any]]) -> None:
    """Raises SourceError for a directory of state that depends on where a daemon was started."""
    daemons = {"StateSaveLocation": "slurmctld", "SlurmdSpoolDir": "slurmd"}
    problems = [
        f"{given[name][0]}: {name}: found {shown(given[name][1])}, which is below the directory in which {daemon} was "
        "started, so that a restart could lose all jobs, allowed: an absolute path. Write that of the directory in use "
        f"(readlink /proc/$(pidof -s {daemon})/cwd shows where {daemon} is now), restart {daemon}, and run again"
        for name, daemon in daemons.items()
        if name in given and not given[name][1].startswith("/")
    ]
    if problems:
        raise SourceError(problems)


def _read_pairs(source: ClusterFiles, file: str, line: SourceLine) -> list[tuple[str, Any]]:
    """The parameters of a line that are of the whole file, without those that name the cluster and its controllers."""
    first = line.pairs[0][0].lower()
    if table_of(file, line.pairs) in ("NodeName", "PartitionName"):
        return []
    if first == "frontendname":
        source.add_comment(LEFT_OUT, line, "FrontendName", "the collection does not support front ends", file)
        return []
    table = next((name for name in parameters.LINES if name.lower() == first), None)
    if table and file == "slurm.conf":
        values = _read_line_of_table(source, table, line)
        return [(table, values)] if values else []
    return [(key, _write_paths(file, key, value)) for key, value in line.pairs if key.lower() not in CONTROLLER_KEYS]


def _write_paths(file: str, key: str, value: str) -> str:
    """A value with a path in the spelling of the cluster file; what Slurm does not know stays as it is."""
    parameter = parameters.find(file, key)
    return one_spelling(value) if parameter and parameter.value in PATHS else value


def _read_line_of_table(source: ClusterFiles, table: str, line: SourceLine) -> Entry:
    """A line with parameters of its own, such as NodeSet=; empty if there is nothing left of it."""
    values: Entry = {}
    for key, value in line.pairs:
        parameter = parameters.find(table, key)
        if parameter is None:
            source.add_comment(LEFT_OUT, line, key, "Slurm has no such parameter", "slurm.conf")
        elif why := parameters.unread(table, key, source.version):
            source.add_comment(LEFT_OUT, line, key, why, "slurm.conf")
        else:
            values[parameter.name] = value
    return values if table in values else {}


def unset_defaults(conf: Entry, names: Iterable[str]) -> list[str]:
    """Take away what the collection would set and the cluster does not have; returns these parameters."""
    unset = [name for name in names if name not in conf]
    for name in unset:
        conf[name] = SLURM_DEFAULTS.get(name)
    return unset
