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
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold

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

LOOKED_AT = re.compile(r"/[A-Za-z0-9+._/@%:~,*?!\[\]-]+")
"""Paths that a host is asked for. Other ones, such as those with blanks, are not looked for."""

PACKAGED = re.compile(r"/(etc|opt|s?bin|usr(?!/local))/")
"""Paths at which packages have files; /usr/local has none (Debian policy, 9.1.2)."""


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


def programs(slurm_conf: Mapping[str, Any], groups: Collection[str], installed: Collection[str] = ()) -> list[str]:
    """The full paths of the programs that a host must have. A path may be a pattern of glob(3).

    Args:
        slurm_conf: parameters of slurm.conf.
        groups: the host's groups.
        installed: paths that the run itself installs. They are left out.
    """
    paths = {path for _key, path in _named(slurm_conf, groups) if LOOKED_AT.fullmatch(path)}
    return sorted(paths.difference(installed))


def program_errors(
    slurm_conf: Mapping[str, Any], looked: Mapping[str, Mapping[str, str]], unprepared: Iterable[str] = ()
) -> list[str]:
    """The programs that Slurm could not run, a line for each.

    Args:
        slurm_conf: parameters of slurm.conf.
        looked: the programs that cannot run, with the reason, by host (`slurm_host.programs`).
        unprepared: hosts that get packages in this run. A package may bring a program.
    """
    named = dict.fromkeys(_named(slurm_conf, PROGRAMS))
    errors = [
        f"slurm.conf {key}: found {path!r}, allowed: a full path, since Slurm runs no other"
        for key, path in named
        if not path.startswith("/") and key not in FILES_OF_SLURMCTLD
    ]
    waiting = {*unprepared}
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, missing in looked.items():
        for path, reason in missing.items():
            if not (host in waiting and PACKAGED.match(path)):
                hosts.setdefault((path, reason), []).append(host)
    return errors + [
        f"slurm.conf {key}: {path} {reason} on {fold(names)}"
        for (path, reason), names in hosts.items()
        for key in [", ".join(key for key, of_it in named if of_it == path)]
        if key
    ]
