# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys `prologs`, `epilogs` and `private_tmp` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import job_scripts
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

TEXT = "#!/bin/sh\ntrue\n"
KNOWN = {"partitions": ["cpu", "gpu"], "hardware": ["n1-t4", "a3-mega"]}


def checked(*found: Any, **slurm_conf: Any) -> tuple[list[job_scripts.ScriptEntry], list[str]]:
    """The entries of `prologs`, and the problems."""
    problems: list[str] = []
    texts = {"own.sh": TEXT, "gone.sh": None, "binary": "\0ELF"}
    checker = Checker("my.cluster.yml", problems)
    return job_scripts.check(checker, "prologs", [*found], KNOWN, slurm_conf, texts), problems


def test_an_entry_with_every_key() -> None:
    entry = {
        "name": "tcpxo",
        "script": TEXT,
        "partitions": ["gpu"],
        "hardware": ["a3-mega"],
        "gpus": True,
        "min_nodes": 2,
        "time_limit": 900,
        "on_failure": "log",
        "environment": {"IMAGE": "a/b:v1", "NUMBER": 8},
    }
    assert checked(entry, {"name": "own", "file": "own.sh"}) == ([entry, {"name": "own", "script": TEXT}], [])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"script": TEXT}, "my.cluster.yml: prologs[0].name: missing"),
        ({"name": "a b", "script": TEXT}, "prologs[0].name: found 'a b', allowed: up to 31 lower case letters"),
        ({"name": "a"}, "prologs[0]: found no script, allowed: file or script"),
        ({"name": "a", "file": "own.sh", "script": TEXT}, "prologs[0]: found file and script, allowed: file or script"),
        (
            {"name": "a", "file": "gone.sh"},
            "prologs[0].file: found 'gone.sh', allowed: a file next to the cluster file, or an absolute path",
        ),
        ({"name": "a", "file": "binary"}, "prologs[0].file: 'binary': line 1: found a NUL, where slurmctld ends"),
        (
            {"name": "a", "script": "echo"},
            "prologs[0].script: found 'echo', line 1: found 'echo', which names no interpreter, allowed: #!",
        ),
        ({"name": "a", "script": TEXT, "min_node": 2}, "prologs[0].min_node: unknown key, did you mean 'min_nodes'?"),
        (
            {"name": "a", "script": TEXT, "min_nodes": 0},
            "prologs[0].min_nodes: found 0, allowed: a whole number from 1",
        ),
        ({"name": "a", "script": TEXT, "gpus": "yes"}, "prologs[0].gpus: found 'yes', allowed: true or false"),
        ({"name": "a", "script": TEXT, "partitions": ["gpi"]}, "prologs[0].partitions: found 'gpi', unknown name, did"),
        ({"name": "a", "script": TEXT, "hardware": ["a3"]}, "prologs[0].hardware: found 'a3', unknown name, "),
        ({"name": "a", "script": TEXT, "on_failure": "drian"}, "found 'drian', unknown value, did you mean 'drain'?"),
        ({"name": "a", "script": TEXT, "environment": {"A-B": "x"}}, "prologs[0].environment: found 'A-B', allowed"),
        ({"name": "a", "script": TEXT, "environment": {"LD_PRELOAD": "x"}}, "begin with neither SLURM nor LD_"),
        ({"name": "a", "script": TEXT, "environment": {"A": "x\ny"}}, "prologs[0].environment.A: found"),
        ("own.sh", "prologs[0]: found 'own.sh', allowed: a mapping with name, file, script"),
    ],
)
def test_each_mistake_is_one_error_with_what_is_allowed(entry: Any, problem: str) -> None:
    (message,) = checked(entry)[1]
    assert problem in message


def test_names_are_unique() -> None:
    (message,) = checked({"name": "a", "script": TEXT}, {"name": "a", "script": TEXT})[1]
    assert message == "my.cluster.yml: prologs[1].name: 'a' is defined twice, first in prologs[0]"


@pytest.mark.parametrize("parameter", ["PrologEpilogTimeout", "PrologTimeout"])
def test_slurm_waits_for_all_scripts(parameter: str) -> None:
    entries = [{"name": "a", "script": TEXT, "time_limit": 100}, {"name": "b", "script": TEXT}]
    (message,) = checked(*entries, **{parameter: 160})[1]
    assert (
        message
        == f"my.cluster.yml: slurm_conf.{parameter}: found 160, allowed: more than 160, the seconds of all prologs"
    )
    assert checked(*entries, **{parameter: 161})[1] == []
    assert checked(*entries, EpilogTimeout=1)[1] == []


def test_files_of_a_cluster_file() -> None:
    file = {"prologs": [{"file": "b"}, {"script": TEXT}, 3], "epilogs": [{"file": "a"}, {"file": "b"}, {"file": 1}]}
    assert job_scripts.files(file) == ["a", "b"]
    assert job_scripts.files({"prologs": "b"}) == job_scripts.files(None) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("squeue -j $SLURM_JOB_ID", "squeue"),
        ("/usr/bin/scontrol update x\nx=$(sacctmgr show)", "sacctmgr, scontrol"),
        ("nodes=$(scontrol show hostnames $SLURM_JOB_NODELIST)", ""),
        ("# srun is not used\nmysrun; srun-like; echo a.srun", ""),
        ("echo '#'; srun hostname", "srun"),
    ],
)
def test_scripts_that_ask_slurmctld_are_named(text: str, named: str) -> None:
    warnings = job_scripts.script_warnings([{"name": "a", "script": f"#!/bin/sh\n{text}\n"}], [{"name": "b"}])
    assert len(warnings) == bool(named)
    assert all(f"prologs: the script a names {named}. " in warning for warning in warnings)


def test_the_program_s_parts() -> None:
    nodes = [
        {"hosts": "gpu[1-12],gpu014,head", "hardware": "a3-mega"},
        {"hosts": "cpu[01-02]", "hardware": "n1-t4"},
    ]
    entries: list[dict[str, Any]] = [
        {"name": "all", "script": "#!/bin/sh\nEND_OF_ALL"},
        {
            "name": "some",
            "script": TEXT,
            "partitions": ["gpu", "cpu"],
            "hardware": ["a3-mega"],
            "gpus": False,
            "min_nodes": 2,
            "environment": {"A": "it's"},
            "on_failure": "log",
            "time_limit": 5,
        },
    ]
    assert job_scripts.job_scripts(entries, nodes) == [
        {
            "name": "all",
            "condition": "",
            "arguments": "all 60 drain",
            "script": "#!/bin/sh\nEND_OF_ALL\n",
            "end": "END_OF_ALL_",
        },
        {
            "name": "some",
            "condition": "in_partition gpu cpu && has_nodes 2 && ! has_gpus"
            " && on_node gpu 1 9 gpu 10 12 gpu 014 014 head '' ''",
            "arguments": """some 5 log 'A=it'"'"'s'""",
            "script": TEXT,
            "end": "END_OF_SOME",
        },
    ]


def test_a_machine_type_without_nodes_has_no_script() -> None:
    (part,) = job_scripts.job_scripts([{"name": "a", "script": TEXT, "hardware": ["a3-mega"]}], [])
    assert part["condition"] == "on_node"


def private_tmp(found: Any, files: dict[str, str] | None = None, **slurm_conf: Any) -> list[str]:
    """The problems of `private_tmp`."""
    problems: list[str] = []
    job_scripts.check_private_tmp(Checker("my.cluster.yml", problems), found, slurm_conf, files or {})
    return problems


@pytest.mark.parametrize("flags", [{}, {"PrologFlags": "Contain,X11"}, {"PrologFlags": ["Alloc", "contain"]}])
def test_a_private_tmp(flags: dict[str, Any]) -> None:
    assert private_tmp("/local/jobs", **flags) == []
    assert private_tmp(None, JobContainerType="job_container/tmpfs") == []


@pytest.mark.parametrize(
    ("problems", "problem"),
    [
        (private_tmp("local"), "private_tmp: found 'local', allowed: a directory of its own"),
        (
            private_tmp("/tmp/jobs"),
            "private_tmp: found '/tmp/jobs', which all programs of a host have, and which is emptied, allowed",
        ),
        (private_tmp("/local/../x"), "private_tmp: found '/local/../x', allowed"),
        (private_tmp("/local"), "private_tmp: found '/local', allowed"),
        (private_tmp("/local/j", NamespaceType="namespace/linux"), "slurm_conf.NamespaceType: is derived from"),
        (private_tmp("/local/j", {"job_container.conf": ""}), "slurm_files.job_container.conf: is derived from"),
        (private_tmp("/local/j", PrologFlags="Alloc"), "slurm_conf.PrologFlags: found 'Alloc', allowed: with contain"),
    ],
)
def test_a_private_tmp_that_cannot_be(problems: list[str], problem: str) -> None:
    (message,) = problems
    assert problem in message


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#!/bin/bash\r\nexit 0\r\n", "line 1: found '#!/bin/bash\\r', which ends with a carriage return"),
        ("#!/bin/bash\nif true; then\n", "line 3: bash -n: syntax error: unexpected end of file"),
    ],
)
def test_a_script_that_cannot_run_is_refused(script: str, problem: str) -> None:
    (message,) = checked({"name": "a", "script": script})[1]
    assert problem in message
