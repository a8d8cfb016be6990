# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters, files and plugins of Slurm in the cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..configuration.conf_file import lines, unreadable
from ..configuration.parameters import FILES, SITE_FILES
from ..configuration.spank import plugstack_lines
from ..formats.characters import one_line
from ..formats.directory_purposes import OF_SLURM, directory_error
from ..formats.file_values import logrotate_path
from ..language.formatting import shown
from ..language.hostlist import expand
from . import job_scripts, schema
from .programs import sent_scripts
from .schema import Checker, PlugstackEntry, Settings, unknown


def check_settings(checker: Checker, kind: schema.Kind[Settings], key: str, found: Settings) -> Settings:
    """Slurm's parameters as they were given. None is kept, since it removes a parameter that the collection sets."""
    checker.check(kind, key, found)
    for name in found:
        # The validator does not see a key without a value.
        if found[name] is None and name not in kind.spec:
            checker.check(kind, key, {name: ""})
    return found


def check_state_location(checker: Checker, slurm_conf: Mapping[str, Any], controllers: int) -> None:
    """Check StateSaveLocation, and the form of all paths that daemons write.

    Slurm's own StateSaveLocation is on the disk of each controller; controllers: how many there are.
    """
    path = slurm_conf.get("StateSaveLocation")
    if path is None and controllers > 1:
        what = "share their state, so name a directory that all of them mount"
        checker.problem("slurm_conf.StateSaveLocation", f"missing: {controllers} controllers {what}")
    check_paths(checker, "slurm_conf", slurm_conf, OF_SLURM)


def check_paths(checker: Checker, key: str, settings: Mapping[str, Any], purposes: Mapping[str, str]) -> None:
    """Check paths that daemons write.

    Slurm takes a relative one from wherever the daemon was started, so nobody knows where the state of jobs is.
    """
    for name, purpose in purposes.items():
        path = settings.get(name)
        if _readable(path) and (error := directory_error(str(path), purpose)):
            lost = purpose in ("state", "spool") and not str(path).startswith("/")
            report = checker.problem if lost else checker.problem_of_new
            report(f"{key}.{name}", f"found {shown(path)}, {error}")


def _readable(value: Any) -> bool:
    """Whether a file of Slurm can have a value, so that its meaning is to be checked. The rest has been named."""
    return value is not None and not isinstance(value, bool) and not unreadable(str(value))


def check_log_of_jobs(checker: Checker, slurm_conf: Mapping[str, Any]) -> None:
    """Check JobCompLoc, which logrotate reads as well where it is a file. Other plugins take a name or an address."""
    if not _readable(slurm_conf.get("JobCompLoc", "")):
        return
    path = str(slurm_conf.get("JobCompLoc", ""))
    is_file = str(slurm_conf.get("JobCompType", "")).endswith("filetxt")
    if is_file and (error := directory_error(path, "log")):
        checker.problem_of_new("slurm_conf.JobCompLoc", f"found {shown(path)}, {error}")
    elif path.startswith("/"):
        try:
            logrotate_path(path)
        except ValueError as error:
            checker.problem("slurm_conf.JobCompLoc", str(error))


def check_files(checker: Checker, found: dict[str, str], slurm_conf: Mapping[str, Any]) -> dict[str, str]:
    """Files with slurm.conf: those that Slurm finds by their names, and a Prolog or Epilog without a path."""
    scripts = sent_scripts(slurm_conf)
    known = [*SITE_FILES, *scripts]
    for name, text in found.items():
        key = f"slurm_files.{name}"
        if name in schema.OWN_FILES:
            checker.problem(key, f"is derived from {checker.key(schema.OWN_FILES[name])}: set that")
        elif name not in known:
            others = "scripts that Prolog and Epilog of slurm_conf name without a path"
            checker.problem(key, unknown("file", str(name), known, f"{', '.join(SITE_FILES)}, {others}"))
        elif not isinstance(text, str):
            checker.problem(key, f"found {shown(text)}, allowed: the text of the file")
        elif name in scripts:
            try:
                job_scripts.script(text)
            except ValueError as error:
                checker.problem(key, str(error))
        elif "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            checker.problem(key, f"line {line}: found a NUL, where Slurm ends the text, allowed: a text without it")
        elif name == "topology.conf":
            _check_hostlists(checker, key, text)
    return found


def _check_hostlists(checker: Checker, key: str, text: str) -> None:
    """The hostlists of topology.conf: with a wrong one, slurmctld does not start."""
    try:
        for name, value in (pair for pairs in lines("topology.conf", text) for pair in pairs):
            parameter = FILES["topology.conf"].get(name.lower())
            if parameter and parameter.value == "hosts":
                expand(value)
    except ValueError as error:
        checker.problem(key, str(error).removeprefix("topology.conf: "))


def check_plugstack(checker: Checker, found: list[Any]) -> list[PlugstackEntry]:
    """The SPANK plugins."""
    entries = [checker.check(schema.PLUGSTACK, f"plugstack[{i}]", entry) for i, entry in enumerate(found)]
    try:
        for entry in entries:
            for part in (entry.get("plugin", ""), *entry.get("arguments", ())):
                one_line(part)
        plugstack_lines(entry for entry in entries if "plugin" in entry)
    except ValueError as error:
        checker.problem("plugstack", str(error))
    return entries
