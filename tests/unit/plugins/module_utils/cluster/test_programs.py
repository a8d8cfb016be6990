# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that slurm.conf names, on the hosts that run them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.programs import (
    PROGRAMS,
    program_errors,
    programs,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters

CONF: dict[str, Any] = {
    "prolog": ["/opt/site/prolog.d/*", "/opt/site/last"],
    "Epilog": "epilog.sh",
    "HealthCheckProgram": "/usr/local/sbin/slurm-health",
    "RebootProgram": "/usr/sbin/reboot --force",
    "MailProg": None,
    "PrologSlurmctld": "/opt/site/prolog",
    "SrunProlog": "/opt/site/srun",
    "SrunEpilog": "None",
    "KillWait": 30,
}


@pytest.mark.parametrize(
    ("group", "paths"),
    [
        ("slurm_compute", ["/opt/site/last", "/opt/site/prolog.d/*", "/usr/sbin/reboot"]),
        ("slurm_controller", ["/opt/site/prolog"]),
        ("slurm_login", ["/opt/site/srun"]),
        ("slurm_registry", []),
    ],
)
def test_a_host_has_the_programs_that_slurm_runs_there(group: str, paths: list[str]) -> None:
    assert programs(CONF, ["slurm_cluster", group], ["/usr/local/sbin/slurm-health"]) == paths


def test_every_program_of_the_tables_has_a_place() -> None:
    """A new release may bring another one. The other paths are no programs."""
    others = ("Config", "Certificate", "Dir", "File", "Info", "Key", "Loc", "TmpFS")
    paths = {
        parameter.name
        for parameter in parameters.FILES["slurm.conf"].values()
        if parameter.value == "path" and not any(word in parameter.name for word in others)
    }
    assert paths - {key for keys in PROGRAMS.values() for key in keys} == set()


def test_programs_that_hosts_lack_are_named_once() -> None:
    missing = {"/opt/site/last": "is missing"}
    looked = {"n1": missing, "n2": missing, "n10": missing | {"/usr/sbin/reboot": "is not executable"}, "head": {}}
    assert program_errors(CONF, looked) == [
        "slurm.conf Prolog: /opt/site/last is missing on n[1-2,10]",
        "slurm.conf RebootProgram: /usr/sbin/reboot is not executable on n10",
    ]


def test_packages_of_the_run_may_bring_a_program() -> None:
    conf = {"TaskProlog": "/usr/bin/tool", "TaskEpilog": "/usr/local/bin/tool"}
    looked = {"n1": {"/usr/bin/tool": "is missing", "/usr/local/bin/tool": "is missing"}}
    assert program_errors(conf, looked, ["n1"]) == ["slurm.conf TaskEpilog: /usr/local/bin/tool is missing on n1"]


def test_other_paths_that_a_host_answers_are_not_shown() -> None:
    assert program_errors(CONF, {"n1": {"/etc/shadow": "is missing"}}) == []


@pytest.mark.parametrize("key", ["HealthCheckProgram", "TaskProlog", "PrologSlurmctld", "SrunProlog"])
def test_a_relative_path_is_refused(key: str) -> None:
    """Slurm runs a Prolog or Epilog that its controller has beside slurm.conf, and a RebootProgram by its name."""
    errors = program_errors({key: "check.sh", "Prolog": "prolog.sh", "RebootProgram": "reboot"}, {})
    assert errors == [f"slurm.conf {key}: found 'check.sh', allowed: a full path, since Slurm runs no other"]
