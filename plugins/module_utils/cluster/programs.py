# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that slurm.conf names, and the hosts on which Slurm runs them.

Slurm accepts a path without a file. Then the first job drains its node (Prolog, Epilog), tasks fail (TaskProlog), or a
daemon only writes a line into its log (HealthCheckProgram).

Sources: `run_command` in `src/common/run_command.c` wants the full path of an executable file and gives it no arguments
of the configuration. `_script_list_create` in `src/plugins/prep/script/prep_script_slurmd.c` takes Prolog and Epilog
for patterns of glob(3), and fails if a pattern matches nothing. `_rpc_reboot` in `src/slurmd/slurmd/req.c` gives
RebootProgram to a shell. A Prolog or Epilog with a relative path is a file of slurmctld (`controller/cross_checks`).
`scripts` has what a program must be for execve(2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..host.script_checks import NO_INTERPRETER, ScriptError, check_script, content_of, interpreter, missing_path
from ..language.hostlist import fold

PROGRAMS = {
    "slurm_compute": (
        "Epilog",
        "HealthCheckProgram",
        "Prolog",
        "RebootProgram",
        "TaskEpilog",
        "TaskProlog",
        "UnkillableStepProgram",
    ),
    "slurm_controller": (
        "EpilogSlurmctld",
        "JobCompPassScript",
        "MailProg",
        "PrologSlurmctld",
        "ResumeFailProgram",
        "ResumeProgram",
        "ResvEpilog",
        "ResvProlog",
        "SlurmctldPrimaryOffProg",
        "SlurmctldPrimaryOnProg",
        "SuspendProgram",
    ),
    "slurm_login": ("SrunEpilog", "SrunProlog"),
}
"""Parameters by the group of the hosts on which Slurm runs the program."""

FILES_OF_SLURMCTLD = ("Epilog", "Prolog")
"""Parameters whose program slurmctld sends to the nodes if the path is relative."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_CHECKED = re.compile(r"/[A-Za-z0-9+._/@%:~,*?!\[\]-]+")
"""Paths that are checked on a host. Other ones, such as those with blanks, are not."""

PACKAGED = re.compile(r"/(etc|opt|s?bin|usr(?!/local))/|[^/]*$")
"""Paths at which packages have files; /usr/local has none (Debian policy, 9.1.2). A name without a path is found in
these directories."""

_BY_NAME = re.compile(r"[A-Za-z0-9+._-]+")
"""Interpreters that /usr/bin/env finds in PATH."""


def _named(slurm_conf: Mapping[str, Any], groups: Collection[str]) -> Iterator[tuple[str, str]]:
    """The parameters that name a program for hosts of these groups, with the path."""
    values = {str(key).lower(): value for key, value in slurm_conf.items()}
    for group, keys in PROGRAMS.items():
        for key in keys if group in groups else ():
            value = values.get(key.lower())
            for path in value if isinstance(value, (list, tuple)) else [value]:
                text = str(path or "").strip()
                if key == "RebootProgram":  # a shell separates the arguments, and finds a name without a path
                    text = text.partition(" ")[0] if "/" in text else ""
                if text and text.lower() != "none":
                    yield key, text


def sent_scripts(slurm_conf: Mapping[str, Any]) -> list[str]:
    """The names of a Prolog or Epilog without a path: files that slurmctld sends to the nodes."""
    named = _named(slurm_conf, ["slurm_compute"])
    return [path for key, path in named if key in FILES_OF_SLURMCTLD and _FILE.fullmatch(path)]


def site_scripts(
    slurm_conf: Mapping[str, Any],
    slurm_files: Mapping[str, Any],
    prologs: Iterable[Mapping[str, Any]],
    epilogs: Iterable[Mapping[str, Any]],
    health_checks: Mapping[str, str],
) -> dict[str, str]:
    """The scripts of a site that run on the nodes, by the names that messages have for them.

    Args:
        slurm_conf: parameters of slurm.conf, which name the scripts among `slurm_files`.
        slurm_files: texts by name.
        prologs: entries with name and script.
        epilogs: the same.
        health_checks: the texts of the site's own health checks, by name.
    """
    found = {f"slurm_files.{name}": slurm_files[name] for name in sent_scripts(slurm_conf) if name in slurm_files}
    for key, entries in (("prologs", prologs), ("epilogs", epilogs)):
        found |= {f"{key}: {entry['name']}": entry["script"] for entry in entries}
    return found | {f"slurm_health_own_checks.{name}": check for name, check in health_checks.items()}


def script_errors(scripts: Mapping[str, str]) -> list[str]:
    """The scripts that no host could run, a line for each. This host checks them before it knows the others.

    Args:
        scripts: those of `site_scripts`.
    """
    return [f"{name}: {reason}" for name, script in scripts.items() if (reason := _elsewhere(script))]


def _elsewhere(script: str) -> str:
    """Why no host could run a script; empty if one could."""
    try:
        check_script(content_of(script), elsewhere=True)
    except ScriptError as error:
        return str(error)
    return ""


def _interpreters(scripts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The programs that read each script. The variables of the cluster have been checked before."""
    found = {}
    for name, script in scripts.items():
        with suppress(ScriptError):
            found[name] = interpreter(content_of(script)).needed
    return found


def programs(
    slurm_conf: Mapping[str, Any],
    groups: Collection[str],
    installed: Collection[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> list[str]:
    """The full paths of the programs that a host must have. A path may be a pattern of glob(3).

    Args:
        slurm_conf: parameters of slurm.conf.
        groups: the host's groups.
        installed: paths that the run itself installs. They are left out.
        scripts: those of `site_scripts`. Compute nodes must have their interpreters, by path or by name.
    """
    paths = {path for _key, path in _named(slurm_conf, groups) if _CHECKED.fullmatch(path)}
    for needed in _interpreters(scripts or {}).values() if "slurm_compute" in groups else ():
        paths |= {path for path in needed if _CHECKED.fullmatch(path) or _BY_NAME.fullmatch(path)}
    return sorted(paths.difference(installed))


class ProgramError(NamedTuple):
    """A program or script that Slurm could not run."""

    text: str
    what: str
    """The parameter with its value, such as `slurm.conf Prolog: /opt/prolog`, or the script."""
    hosts: list[str]
    """The hosts without it; none if its value is wrong everywhere."""


def program_errors(
    slurm_conf: Mapping[str, Any],
    facts_of: Mapping[str, Mapping[str, Any]],
    unprepared: Iterable[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> list[ProgramError]:
    """The programs and scripts that Slurm could not run.

    Args:
        slurm_conf: parameters of slurm.conf.
        facts_of: the facts `slurm_host` by host: their `programs` and `scripts` that cannot run, with the reason.
        unprepared: hosts that get packages in this run. A package may bring a program.
        scripts: those of `site_scripts`.
    """
    named = dict.fromkeys(_named(slurm_conf, PROGRAMS))
    errors = [
        ProgramError(
            f"slurm.conf {key}: found {path!r}, allowed: a full path, since Slurm runs no other",
            f"slurm.conf {key}",
            [],
        )
        for key, path in named
        if not path.startswith("/") and key not in FILES_OF_SLURMCTLD
    ]
    waiting = {*unprepared}
    interpreters = _interpreters(scripts or {})
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, facts in facts_of.items():
        for failure in _find_failures(facts, host in waiting, named, interpreters):
            hosts.setdefault(failure, []).append(host)
    for (what, reason), names in hosts.items():
        # A reason that names a line is a sentence of its own.
        on = f"on {fold(names)}"
        text = f"{what} {on}, {reason}" if reason.startswith("line ") else f"{what} {reason} {on}"
        errors.append(ProgramError(text, what, names))
    return errors


def _find_failures(
    facts: Mapping[str, Any],
    gets_packages: bool,
    named: Collection[tuple[str, str]],
    interpreters: Mapping[str, Collection[str]],
) -> Iterator[tuple[str, str]]:
    """What Slurm could not run on a host by its facts, each with the reason.

    named: parameters of slurm.conf with their programs. interpreters: the programs that scripts need.
    """
    for path, reason in facts["programs"].items():
        absent = missing_path(path, reason)
        if gets_packages and absent and PACKAGED.match(absent):
            continue
        keys = [key for key, program in named if program == path]
        if NO_INTERPRETER in reason:  # a shell starts RebootProgram, and runs a text without an interpreter
            keys = [key for key in keys if key != "RebootProgram"]
        if keys:
            yield f"slurm.conf {', '.join(keys)}: {path}", reason
        for name, paths in interpreters.items():
            if path in paths:
                yield f"{name}: its interpreter {path}", reason
    for name, reason in facts["scripts"].items():
        if name in interpreters:
            yield name, reason
