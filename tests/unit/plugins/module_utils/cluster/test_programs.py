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
    script_errors,
    site_scripts,
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
        if parameter.value == "path" and not any(part in parameter.name for part in others)
    }
    assert paths - {key for keys in PROGRAMS.values() for key in keys} == set()


def error_texts(*arguments: Any, **options: Any) -> list[str]:
    """The texts of program_errors."""
    return [error.text for error in program_errors(*arguments, **options)]


def facts_of(programs: dict[str, dict[str, str]], scripts: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The facts about hosts, with the programs that each of them cannot run."""
    return {host: {"programs": found, "scripts": scripts or {}} for host, found in programs.items()}


def test_programs_that_hosts_lack_are_named_once() -> None:
    missing = {"/opt/site/last": "is missing"}
    lacking = {"n1": missing, "n2": missing, "n10": missing | {"/usr/sbin/reboot": "is not executable"}, "head": {}}
    assert error_texts(CONF, facts_of(lacking)) == [
        "slurm.conf Prolog: /opt/site/last is missing on n[1-2,10]",
        "slurm.conf RebootProgram: /usr/sbin/reboot is not executable on n10",
    ]


def test_programs_that_cannot_run_are_named_with_their_line() -> None:
    reason = "line 1: found '#!/bin/bash\\r', which ends with a carriage return"
    facts = facts_of({"n1": {"/opt/site/last": reason}, "n2": {"/opt/site/last": reason}})
    assert error_texts(CONF, facts) == [f"slurm.conf Prolog: /opt/site/last on n[1-2], {reason}"]


def test_a_shell_starts_the_reboot_program() -> None:
    conf = {"RebootProgram": "/opt/a", "TaskProlog": "/opt/a"}
    reason = "line 1: found 'reboot', which names no interpreter, allowed: ..."
    assert error_texts(conf, facts_of({"n1": {"/opt/a": reason}})) == [f"slurm.conf TaskProlog: /opt/a on n1, {reason}"]


def test_packages_of_the_run_may_bring_a_program() -> None:
    conf = {"TaskProlog": "/usr/bin/tool", "TaskEpilog": "/usr/local/bin/tool"}
    facts = facts_of({"n1": {"/usr/bin/tool": "is missing", "/usr/local/bin/tool": "is missing"}})
    assert error_texts(conf, facts, ["n1"]) == ["slurm.conf TaskEpilog: /usr/local/bin/tool is missing on n1"]


def test_packages_of_the_run_may_bring_an_interpreter_and_repair_nothing() -> None:
    conf = {"Prolog": "/opt/a", "Epilog": "/opt/b"}
    needs, wrong = "needs /usr/bin/zsh, which is missing", "line 3: bash -n: syntax error"
    facts = facts_of({"n1": {"/opt/a": needs, "/opt/b": wrong}})
    assert error_texts(conf, facts, ["n1"]) == [f"slurm.conf Epilog: /opt/b on n1, {wrong}"]
    assert error_texts(conf, facts)[:1] == [f"slurm.conf Prolog: /opt/a {needs} on n1"]


SCRIPTS = {"prologs: disk": "#!/usr/bin/env zsh\n", "slurm_files.p.sh": "#!/opt/perl\n", "epilogs: none": "none"}


def test_nodes_have_the_interpreters_of_scripts() -> None:
    assert programs({}, ["slurm_compute"], (), SCRIPTS) == ["/opt/perl", "/usr/bin/env", "zsh"]
    assert programs({}, ["slurm_controller"], (), SCRIPTS) == []
    facts = facts_of({"n1": {"zsh": "is missing", "/opt/perl": "is missing"}}, {"prologs: disk": "line 2: x", "y": "z"})
    assert error_texts({}, facts, scripts=SCRIPTS) == [
        "prologs: disk: its interpreter zsh is missing on n1",
        "slurm_files.p.sh: its interpreter /opt/perl is missing on n1",
        "prologs: disk on n1, line 2: x",
    ]
    assert error_texts({}, facts, ["n1"], SCRIPTS) == ["prologs: disk on n1, line 2: x"]


def test_the_scripts_of_a_site() -> None:
    conf = {"prolog": ["p.sh", "/opt/x"], "Epilog": "none"}
    files = {"p.sh": "a", "topology.conf": "b"}
    prologs, epilogs = [{"name": "disk", "script": "c"}], [{"name": "disk", "script": "d"}]
    assert site_scripts(conf, files, prologs, epilogs, {"ib": "e"}) == {
        "slurm_files.p.sh": "a",
        "prologs: disk": "c",
        "epilogs: disk": "d",
        "slurm_health_own_checks.ib": "e",
    }
    (error,) = script_errors({"a": "#!/bin/sh\n", "b": "#!/bin/sh\r\n"})
    assert error.startswith("b: line 1: found '#!/bin/sh\\r', which ends with a carriage return")


def test_other_paths_that_a_host_answers_are_not_shown() -> None:
    assert error_texts(CONF, facts_of({"n1": {"/etc/shadow": "is missing"}}, {"x": "is missing"})) == []


@pytest.mark.parametrize("key", ["HealthCheckProgram", "TaskProlog", "PrologSlurmctld", "SrunProlog"])
def test_a_relative_path_is_refused(key: str) -> None:
    """Slurm runs a Prolog or Epilog that its controller has next to slurm.conf, and a RebootProgram by its name."""
    errors = error_texts({key: "check.sh", "Prolog": "prolog.sh", "RebootProgram": "reboot"}, {})
    assert errors == [f"slurm.conf {key}: found 'check.sh', allowed: a full path, since Slurm runs no other"]
