# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of Slurm's parameters. tests/tools/check_parameters checks its facts against real releases."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables import choices
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.releases import RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import Span, check_value
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import (
    FILES,
    FOREIGN,
    IGNORED,
    REFUSED,
    Needs,
    find,
    needs,
    problems,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.language import spelling

TABLES = "ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables"
MODULES = (
    *("acct_gather_conf", "cgroup_conf", "gres_conf", "job_container_conf", "mpi_conf", "plugstack_conf"),
    *("slurm_conf", "slurmdbd_conf", "topology_conf"),
)
LINES = [
    (f"{module}.{name}", line)
    for module in MODULES
    for name, text in vars(import_module(f"{TABLES}.{module}")).items()
    if name.isupper()
    for line in text.strip().splitlines()
]
RESTART = Needs(False, ("slurmctld", "slurmd"), "")
RECONFIGURE = Needs(True, (), "")


def test_no_key_is_twice() -> None:
    """Slurm compares names without case, so that two spellings of one name would be two parameters here."""
    names = [(table, line.split()[0].lower()) for table, line in LINES]
    assert len(set(names)) == len(names) == sum(map(len, FILES.values()))


def test_tables_are_sorted() -> None:
    for table in FILES.values():
        assert list(table) == sorted(table)


def test_lines_have_three_or_four_columns() -> None:
    assert [line for table, line in LINES if len(re.split(r"\s{2,}", line)) not in (3, 4)] == []


@pytest.mark.parametrize("file", FILES)
def test_lines_are_understood(file: str) -> None:
    changes = ("client", "reconfigure", "nodes", "cluster", "slurmctld", "slurmd", "daemons")
    for parameter in FILES[file].values():
        for release in RELEASES:
            list(check_value(parameter.value, "1", release))  # raises for an unknown kind or set
        assert parameter.change.rstrip("!") in (*changes, "slurmdbd"), parameter
        for span in (parameter.defunct, parameter.refused):
            assert span is None or any(release in span and release in parameter.releases for release in RELEASES)


@pytest.mark.parametrize(
    ("kind", "sets"), [(kind, getattr(choices, kind)) for kind in ("CHOICES", "FLAGS", "HINTS", "PLUGINS")]
)
def test_words_are_there_once_and_used(kind: str, sets: dict[str, str]) -> None:
    used = {p.value for table in FILES.values() for p in table.values()}
    name = {"CHOICES": "one", "FLAGS": "flags", "HINTS": "hints", "PLUGINS": "plugins?"}[kind]
    for key, text in sets.items():
        spelled = [word.partition("{")[0].lower() for word in text.split()]
        assert len(set(spelled)) == len(spelled), key
        assert any(re.fullmatch(f"{name} {key}", value) for value in used), key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("22.05", "26.05")),
        ("23.02+", ("23.02", "26.05")),
        ("-24.11", ("22.05", "24.11")),
        ("23.11-24.11", ("23.11", "24.11")),
        ("23.02.1+", ("23.02", "26.05")),
    ],
)
def test_releases(text: str, expected: tuple[str, str]) -> None:
    span = Span.parse(text)
    assert (span.first, span.last) == expected


@pytest.mark.parametrize("text", ["24.11-23.02", "23.02", "23.03+", "23.02.+", "later"])
def test_releases_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="are no releases"):
        Span.parse(text)


@pytest.mark.parametrize(
    ("version", "release"), [("22.05.8", "22.05"), ("24.11", "24.11"), ("24.8.1", "24.05"), ("27.05.0", "26.05")]
)
def test_release_of(version: str, release: str) -> None:
    assert parameters.release_of(version) == release


@pytest.mark.parametrize("version", ["21.08.8", "new", ""])
def test_release_of_what_is_too_old_or_none(version: str) -> None:
    with pytest.raises(ValueError, match=r"known: 22\.05 and later"):
        parameters.release_of(version)


@pytest.mark.parametrize(
    ("file", "key", "value", "version"),
    [
        ("slurm.conf", "killwait", "0x1e", "24.11"),
        ("slurm.conf", "KillWait", "UNLIMITED", "24.11"),
        ("slurm.conf", "DefMemPerCPU", "4k", "24.11"),
        ("slurm.conf", "UsePAM", "Down", "24.11"),
        ("slurm.conf", "SlurmctldPort", "6817-6820", "24.11"),
        ("slurm.conf", "PriorityMaxAge", "7-0", "24.11"),
        ("slurm.conf", "PrologFlags", "contain,x11", "22.05"),
        ("slurm.conf", "PropagateResourceLimitsExcept", "RLIMIT_MEMLOCK,CORE", "24.11"),
        ("slurm.conf", "SchedulerParameters", "bf_interval=60,DEFER", "24.11"),
        ("slurm.conf", "SlurmdParameters", "config_overrides", "22.05"),
        ("slurm.conf", "MpiDefault", "pmix_v5", "24.11"),
        ("slurm.conf", "TaskPlugin", "task/affinity,cgroup", "24.11"),
        ("slurm.conf", "TopologyPlugin", "topology/default", "26.05"),
        ("slurm.conf", "JobAcctGatherParams", "overmemorykill,UsePss", "26.05"),
        ("slurm.conf", "JobCompType", "jobcomp/None", "24.11"),
        ("slurm.conf", "SbcastParameters", "send_libs", "26.05"),
        ("PartitionName", "OverSubscribe", "FORCE:2", "24.11"),
        *(
            ("NodeName", "State", value, "24.11")
            for value in (
                "unknown",
                "DOWN",
                "idle",
                "ALLOCATED",
                "MIXED",
                "FUTURE",
                "CLOUD+DRAIN",
                "DRAINED",
                "FAILING",
            )
        ),
        ("NodeName", "State", "EXTERNAL", "25.05"),
        ("DownNodes", "State", "Drain", "24.11"),
        ("PartitionName", "State", "inactive", "24.11"),
        ("PartitionName", "State", "DRAINING", "24.11"),  # compared with xstrncasecmp
        ("cgroup.conf", "EnableControllers", "yes", "23.02"),
        ("cgroup.conf", "EnableControllers", "yes", "23.02.1"),
        ("cgroup.conf", "EnableControllers", "yes", "23.11.0"),
        ("cgroup.conf", "CgroupJobIdPaths", "yes", "26.05.2"),
        ("cgroup.conf", "AllowedRAMSpace", "98.5", "24.11"),
        ("slurmdbd.conf", "PurgeJobAfter", "12mo", "24.11"),
        ("plugstack.conf", "required", "/usr/lib/spank_pyxis.so runtime_path=/run", "24.11"),
    ],
)
def test_good_values(file: str, key: str, value: str, version: str) -> None:
    assert problems(file, [(key, value)], version) == []


@pytest.mark.parametrize(
    ("file", "key", "value", "version", "effect", "text"),
    [
        ("slurm.conf", "KilWait", "30", "24.11", REFUSED, "did you mean 'KillWait'?"),
        ("slurm.conf", "Xyzzy", "30", "24.11", REFUSED, "unknown to Slurm"),
        ("slurm.conf", "KillWait", "65536", "24.11", REFUSED, "found '65536', allowed: a whole number from 0 to 65535"),
        ("slurm.conf", "KillWait", "4k", "24.11", REFUSED, "whole number"),
        ("slurm.conf", "KillWait", "09", "24.11", REFUSED, "whole number"),
        ("slurm.conf", "KillWait", "-1", "24.11", REFUSED, "whole number"),
        ("slurm.conf", "MaxJobCount", "0", "24.11", REFUSED, "from 1 to"),
        ("slurm.conf", "UsePAM", "on", "24.11", REFUSED, "allowed: YES or NO"),
        ("slurm.conf", "PriorityCalcPeriod", "0", "24.11", REFUSED, "at least 1"),
        ("slurm.conf", "SlurmctldPort", "6820-6817", "24.11", REFUSED, "6817-6820"),
        ("slurm.conf", "HashPlugin", "hash/k12", "22.05", REFUSED, "Slurm 22.05 does not have it, 24.05 and later do"),
        ("slurm.conf", "SlurmctldPlugstack", "x", "24.11", REFUSED, "22.05 does"),
        ("slurm.conf", "FastSchedule", "2", "24.11", REFUSED, "use SlurmdParameters=config_overrides"),
        ("slurm.conf", "PowerPlugin", "power/none", "24.11", IGNORED, "Slurm 24.11 ignores it: remove it"),
        ("slurm.conf", "PrologFlags", "Contian", "24.11", REFUSED, "'Contian' is unknown, did you mean 'Contain'?"),
        ("slurm.conf", "PrologFlags", "RunInJob", "22.05", REFUSED, "22.05 does not know 'RunInJob', 24.05 and later"),
        ("slurm.conf", "SelectTypeParameters", "CR_Core,other_cons_res", "23.11.4", REFUSED, "22.05 to 23.02 do"),
        ("cgroup.conf", "CgroupPlugin", "disabled", "23.11.4", FOREIGN, "24.05 and later do"),
        ("slurm.conf", "PropagateResourceLimits", "core", "24.11", REFUSED, "did you mean 'CORE'?"),
        ("slurm.conf", "SlurmdDebug", "loud", "24.11", REFUSED, "quiet, fatal"),
        ("slurm.conf", "SlurmctldParameters", "enable_configles", "24.11", IGNORED, "'enable_configless'?"),
        ("slurm.conf", "SlurmctldParameters", "enable_stepmgr", "22.05", IGNORED, "24.05 and later"),
        (
            "slurm.conf",
            "JobAcctGatherParams",
            "NoOverMemoryKill",
            "24.11",
            IGNORED,
            "'NoOverMemoryKill' is unknown, all",
        ),
        ("slurm.conf", "HealthCheckNodeState", "NOTIDLE", "24.11", IGNORED, "'NOTIDLE' is unknown"),
        (
            "slurm.conf",
            "PriorityFlags",
            "FAIR_TREE",
            "24.11",
            IGNORED,
            "'FAIR_TREE' is unknown, allowed: ACCRUE_ALWAYS",
        ),
        ("slurm.conf", "SelectType", "select/cons_res", "24.11", FOREIGN, "22.05 to 23.02 do"),
        ("slurm.conf", "JobSubmitPlugins", "lua,ours", "24.11", FOREIGN, "does not come with 'ours'"),
        *(
            ("NodeName", "State", value, "24.11", REFUSED, "allowed: ALLOCATED, CLOUD, DOWN, DRAIN, FAIL, FUTURE, IDLE")
            for value in ("UP", "PLANNED", "POWERED_DOWN", "FUTURE+DRAIN", "bogus", "EXTERNAL", "")
        ),
        ("NodeName", "State", "FUTUR", "26.05", REFUSED, "did you mean 'FUTURE'?"),
        ("DownNodes", "State", "UP", "24.11", IGNORED, "allowed: ALLOCATED, CLOUD"),
        ("PartitionName", "State", "PLANNED", "24.11", REFUSED, "allowed: DOWN, DRAIN, INACTIVE, UP"),
        ("NodeName", "GresConf", "x", "24.11", REFUSED, "25.11 and later"),
        ("cgroup.conf", "TaskAffinity", "yes", "24.11", REFUSED, "unknown"),
        ("cgroup.conf", "CgroupReleaseAgentDir", "/x", "24.11", REFUSED, "refuses"),
        (
            "cgroup.conf",
            "EnableControllers",
            "yes",
            "23.02.0",
            REFUSED,
            "Slurm 23.02.0 does not have it, 23.02.1 and later",
        ),
        (
            "cgroup.conf",
            "CgroupJobIdPaths",
            "yes",
            "26.05.1",
            REFUSED,
            "Slurm 26.05.1 does not have it, 26.05.2 and later",
        ),
        (
            "cgroup.conf",
            "CgroupJobIdPaths",
            "yes",
            "25.11.7",
            REFUSED,
            "Slurm 25.11 does not have it, 26.05.2 and later",
        ),
        ("cgroup.conf", "AllowedRAMSpace", "all", "24.11", REFUSED, "number"),
        ("slurmdbd.conf", "PurgeJobAfter", "1year", "24.11", REFUSED, "12months"),
    ],
)
def test_problems(file: str, key: str, value: str, version: str, effect: str, text: str) -> None:
    (problem,) = problems(file, [(key, value)], version)
    assert problem.key.lower() == key.lower()
    assert problem.effect == effect
    assert text in problem.text


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("KillWait", "x", "a whole number"),
        ("PrologFlags", "Contain,RunInJob", ""),
        ("PrologFlags", "RunInJobs", "'RunInJobs' is unknown"),
        ("GetEnvTimeout", "x", ""),  # later releases do not read it
        ("TLSType", "tls/ours", ""),
    ],
)
def test_what_every_release_refuses(key: str, value: str, allowed: str) -> None:
    found = parameters.refused_everywhere("slurm.conf", key, value)
    assert allowed in found
    assert bool(allowed) == bool(found)


def test_a_parameter_that_is_there_twice() -> None:
    values = [("KillWait", "30"), ("killwait", "31"), ("Prolog", "/a"), ("Prolog", "/b")]
    (problem,) = problems("slurm.conf", values, "24.11")
    assert (problem.key, problem.effect) == ("killwait", IGNORED)


def test_several_prologs_where_slurm_runs_the_last_alone() -> None:
    values = [("Prolog", "/a"), ("Prolog", "/b"), ("SlurmctldHost", "a"), ("SlurmctldHost", "b")]
    assert problems("slurm.conf", values, "24.05") == []
    (problem,) = problems("slurm.conf", values, "23.11")
    assert (problem.key, problem.effect) == ("Prolog", REFUSED)


@pytest.mark.parametrize(
    ("file", "key", "version", "expected"),
    [
        ("slurm.conf", "killwait", "22.05", RECONFIGURE),
        ("slurm.conf", "SelectTypeParameters", "22.05.8", Needs(False, ("slurmctld",), "")),
        ("slurm.conf", "SelectTypeParameters", "24.11.5", RECONFIGURE),
        ("slurm.conf", "GresTypes", "23.02", RESTART),
        ("slurm.conf", "GresTypes", "23.11", RECONFIGURE),
        ("slurm.conf", "SlurmdPort", "26.05", RESTART),
        ("slurm.conf", "SlurmctldPort", "22.05", Needs(False, ("slurmdbd", "slurmctld", "slurmd"), "cluster")),
        ("slurm.conf", "MaxArraySize", "22.05", Needs(False, ("slurmctld",), "")),
        ("slurm.conf", "SlurmdLogFile", "22.05", Needs(False, ("slurmd",), "")),
        ("slurm.conf", "SlurmdPidFile", "24.11", RECONFIGURE),
        ("slurm.conf", "SlurmdSpoolDir", "24.11", Needs(True, (), "nodes")),
        ("slurm.conf", "StateSaveLocation", "24.11", Needs(False, ("slurmdbd", "slurmctld", "slurmd"), "cluster")),
        ("slurm.conf", "SrunProlog", "24.11", Needs(False, (), "")),
        ("NodeName", "CPUs", "22.05", Needs(False, ("slurmctld", "slurmd"), "nodes")),
        ("NodeName", "CPUs", "24.11", Needs(True, (), "nodes")),
        ("NodeName", "Weight", "22.05", RECONFIGURE),
        ("slurmdbd.conf", "StoragePass", "24.11", Needs(False, ("slurmdbd",), "")),
        ("slurm.conf", "NoSuchKey", "24.11", RESTART),
    ],
)
def test_needs(file: str, key: str, version: str, expected: Needs) -> None:
    assert needs(file, key, version) == expected


def test_repeated_keys_are_keys() -> None:
    assert parameters.LINES <= parameters.REPEATED <= parameters.SLURM_CONF
    assert all(find("slurm.conf", key) for key in parameters.REPEATED)


def test_what_the_model_makes_is_a_parameter() -> None:
    assert set(schema.HARDWARE.derived) <= parameters.NODE
    assert set(schema.NODE.derived) <= parameters.NODE
    assert set(schema.PARTITION.derived) - {"Default", "Nodes"} == set()
    assert set(schema.SLURM_CONF.derived) <= parameters.SLURM_CONF


@pytest.mark.parametrize(
    ("name", "expected"),
    [("KilWait", "KillWait"), ("KILLWAIT", "KillWait"), ("SlurmctlPort", "SlurmctldPort"), ("xyz", None)],
)
def test_nearest(name: str, expected: str | None) -> None:
    assert spelling.nearest(name, parameters.SLURM_CONF) == expected


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("FAIR_TREE", ["NO_FAIR_TREE"], None),
        ("no_fair_tree2", ["NO_FAIR_TREE"], "NO_FAIR_TREE"),
        ("NoOverMemoryKill", ["OverMemoryKill"], None),
        ("disable_user_top", ["enable_user_top"], None),
        ("NoShare", ["NoShared"], "NoShared"),
        ("Shared", ["NoShared", "Share"], "Share"),
    ],
)
def test_the_opposite_is_not_meant(name: str, known: list[str], expected: str | None) -> None:
    assert spelling.nearest(name, known) == expected
