# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of defaults."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import NEWEST_GENERATION
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import partition_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import slurm_conf as lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import mariadb
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import SRUN_PORTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import (
    defaults,
    generations,
    slurm_conf_values,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.default_records import (
    ALWAYS,
    FIRST,
    LAST,
    OPTION,
    PARTITION,
    SET,
    Default,
)
from plain_host import cluster

OF_SLURM = [row for row in defaults.DEFAULTS if row.file != defaults.MARIADB]


def test_each_row_has_a_reason_and_a_source() -> None:
    assert [row.key for row in defaults.DEFAULTS if not (row.reason.endswith((".", ";")) and row.source)] == []
    assert {row.place for row in defaults.DEFAULTS} <= {SET, FIRST, LAST, OPTION, PARTITION}


@pytest.mark.parametrize("row", OF_SLURM, ids=lambda row: f"{row.file} {row.key}")
def test_slurm_knows_each_parameter(row: Default) -> None:
    place = "PartitionName" if row.place == PARTITION else row.file
    assert parameters.find(place, row.key) is not None


def test_a_parameter_is_written_in_one_way() -> None:
    spelled = {(row.file, row.key.lower()): row.key for row in defaults.DEFAULTS}
    assert [row.key for row in defaults.DEFAULTS if spelled[row.file, row.key.lower()] != row.key] == []


def test_a_generation_follows_the_one_that_it_replaces() -> None:
    known: dict[tuple[str, str], int] = {}
    for row in defaults.DEFAULTS:
        assert row.generation >= known.get((row.file, row.key), 1)
        known[row.file, row.key] = row.generation


def test_an_adopted_cluster_keeps_paths_of_its_own() -> None:
    found = defaults.fixed(defaults.SLURM)
    assert found["SlurmdLogFile"] is None
    assert found["KillWait"] == 30
    assert "PriorityType" not in found
    assert {row.key for row in defaults.DEFAULTS if row.of_collection and row.when is not ALWAYS} == set()


def parameters_of(release: str = "24.11", **variables: Any) -> dict[str, str]:
    """The parameters of slurm.conf before the nodes, as Slurm reads them."""
    text = lines(*slurm_conf_values.layers(cluster(**variables)["head"], release))
    return {name: value for name, _equals, value in (line.partition("=") for line in text.splitlines())}


def test_the_schema_knows_the_newest_generation() -> None:
    assert max(row.generation for row in defaults.DEFAULTS) == NEWEST_GENERATION


def test_a_cluster_keeps_its_generation() -> None:
    assert "ResumeTimeout" not in parameters_of()
    assert parameters_of(slurm_defaults=2)["ResumeTimeout"] == "600"
    assert parameters_of(slurm_defaults=2, slurm_conf={"resumetimeout": 90})["ResumeTimeout"] == "90"


def test_a_node_that_slurm_does_not_reboot_needs_no_time_for_it() -> None:
    assert "ResumeTimeout" not in parameters_of(slurm_defaults=2, slurm_conf={"rebootprogram": None})


def test_the_newest_generation_is_shown_with_both_values_and_the_reason() -> None:
    (line,) = [line for line in generations.differences(cluster()["head"]) if "ResumeTimeout" in line]
    assert line.startswith("slurm.conf ResumeTimeout: not set -> 600 with defaults: 2. With Slurm's 60 s, a server")
    own = cluster(slurm_conf={"ResumeTimeout": 90})["head"]
    assert [line for line in generations.differences(own) if "ResumeTimeout" in line] == []
    assert generations.differences(cluster(slurm_defaults=2)["head"]) == []


CPU: dict[str, Any] = {"sockets": 2, "cores_per_socket": 64, "threads_per_core": 1, "real_memory": 1048576}
GPU_CLUSTER: dict[str, Any] = {
    "slurm_defaults": 2,
    "slurm_hardware_types": {
        "cpu": CPU,
        "h100": {**CPU, "gres": [{"name": "gpu", "type": "h100", "count": 8}, {"name": "shard", "count": 16}]},
        "mig": {**CPU, "gres": [{"name": "gpu", "type": "a100", "count": 2, "mig": {"1g.5gb": 7}}]},
        "unused": {**CPU, "gres": [{"name": "gpu", "type": "t4", "count": 1}]},
    },
    "slurm_nodes": [{"hosts": "n1", "hardware": "h100"}, {"hosts": "n2", "hardware": "cpu"}],
    "slurm_partitions": [{"name": "gpu", "nodes": "n1"}, {"name": "cpu", "nodes": "n2", "Default": True}],
}


def partition_texts(**variables: Any) -> list[str]:
    """The partitions in slurm.conf."""
    host = cluster(**GPU_CLUSTER | variables)["head"]
    partitions = defaults.with_defaults(host["slurm_partitions"], defaults.target(host, "24.11"))
    return partition_lines(partitions, host["slurm_nodes"], host["slurm_hardware_types"], {}).splitlines()


def test_types_of_gpus_are_tracked_so_that_a_limit_can_name_them() -> None:
    assert parameters_of(**GPU_CLUSTER | {"slurm_defaults": 1})["AccountingStorageTRES"] == "gres/gpu"
    assert parameters_of(**GPU_CLUSTER)["AccountingStorageTRES"] == "gres/gpu,gres/gpu:h100,gres/shard"
    instances = {"slurm_nodes": [{"hosts": "n1", "hardware": "mig"}]}
    assert parameters_of(**GPU_CLUSTER | instances)["AccountingStorageTRES"] == "gres/gpu,gres/gpu:a100_1g.5gb"
    assert "AccountingStorageTRES" not in parameters_of(**GPU_CLUSTER | {"slurm_database": ""})


def test_a_gpu_is_charged_as_its_share_of_the_node() -> None:
    """A whole node has 128 CPUs, 1024 GiB and 8 GPUs: each of them is charged as 128."""
    gpu, cpu = partition_texts()
    assert gpu == "PartitionName=gpu Nodes=n1 TRESBillingWeights=CPU=1,Mem=0.125G,GRES/gpu=16"
    assert "TRESBillingWeights" not in cpu
    assert parameters_of(**GPU_CLUSTER)["PriorityFlags"] == "MAX_TRES"
    own = {"slurm_conf": {"PriorityFlags": "CALCULATE_RUNNING"}}
    assert parameters_of(**GPU_CLUSTER | own)["PriorityFlags"] == "CALCULATE_RUNNING,MAX_TRES"


@pytest.mark.parametrize(
    "variables",
    [
        {"slurm_defaults": 1},
        {"slurm_database": ""},
        {"slurm_conf": {"AccountingStorageTRES": "license/x"}},
        {"slurm_partitions": [{"name": "gpu", "nodes": "n1", "tresbillingweights": "CPU=2"}]},
        {"slurm_partitions": [{"name": "cpu", "nodes": "n2"}]},
    ],
)
def test_weights_are_left_to_a_site_that_has_its_own(variables: dict[str, Any]) -> None:
    assert not [line for line in partition_texts(**variables) if "TRESBillingWeights" in line]
    assert "PriorityFlags" not in parameters_of(**GPU_CLUSTER | variables)


def test_the_factor_of_a_partition_has_a_weight() -> None:
    factor = {"slurm_partitions": [{"name": "gpu", "nodes": "n1", "PriorityJobFactor": 10}]}
    assert parameters_of(**GPU_CLUSTER | factor)["PriorityWeightPartition"] == "10000"
    assert "PriorityWeightPartition" not in parameters_of(**GPU_CLUSTER)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (["60", "1-0"], None),
        (["60", "2-0"], "bf_window=2880,bf_resolution=120"),
        ([None], "bf_window=10080,bf_resolution=420"),
        (["UNLIMITED", "14-0"], "bf_window=20160,bf_resolution=840"),
        (["90-0"], "bf_window=43200,bf_resolution=1800"),
    ],
)
def test_the_scheduler_plans_as_far_as_jobs_run(limits: list[str | None], expected: str | None) -> None:
    partitions = [
        {"name": f"p{number}", "nodes": "n1", **({"MaxTime": limit} if limit else {})}
        for number, limit in enumerate(limits)
    ]
    found = parameters_of(slurm_defaults=2, slurm_partitions=partitions)
    assert found.get("SchedulerParameters") == expected


def test_an_option_of_the_site_wins_and_the_others_stay() -> None:
    own = {"SchedulerParameters": "bf_continue,BF_Window=100", "LaunchParameters": None}
    found = parameters_of(slurm_defaults=2, slurm_conf=own)
    assert found["SchedulerParameters"] == "bf_continue,BF_Window=100,bf_resolution=420"
    assert "LaunchParameters" not in found
    assert parameters_of(slurm_defaults=2)["LaunchParameters"] == "use_interactive_step"
    assert "LaunchParameters" not in parameters_of()


@pytest.mark.parametrize(("nodes", "expected"), [(1, None), (16, ("30000", "3001")), (1000, ("200000", "20001"))])
def test_a_large_cluster_takes_more_jobs(nodes: int, expected: tuple[str, str] | None) -> None:
    large = {"slurm_nodes": [{"hosts": f"n[1-{nodes}]", "hardware": "cpu"}]}
    found = parameters_of(**GPU_CLUSTER | large)
    assert (found.get("MaxJobCount"), found.get("MaxArraySize")) == (expected or (None, None))


def test_the_size_of_arrays_is_left_to_a_site_that_limits_jobs() -> None:
    large = {"slurm_nodes": [{"hosts": "n[1-99]", "hardware": "cpu"}], "slurm_conf": {"MaxJobCount": 5000}}
    assert "MaxArraySize" not in parameters_of(**GPU_CLUSTER | large)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "100000"),
        ({"slurm_conf": {"MaxJobCount": 40000}}, "100000"),
        ({"slurm_conf": {"MaxJobCount": 50000}}, None),
        ({"slurm_conf": {"MaxJobCount": None}, "slurm_nodes": [{"hosts": "n[1-99]", "hardware": "cpu"}]}, "100000"),
        ({"slurm_nodes": [{"hosts": "n[1-99]", "hardware": "cpu"}]}, None),
        ({"slurm_conf": {"MaxDBDMsgs": 20000}}, "20000"),
        ({"slurm_database": ""}, None),
        ({"slurm_defaults": 1}, None),
    ],
)
def test_messages_wait_for_slurmdbd_in_numbers_that_slurm_itself_would_allow_or_more(
    variables: dict[str, Any], expected: str | None
) -> None:
    """Slurm's own number is twice MaxJobCount, and four for each node."""
    assert parameters_of(**GPU_CLUSTER | variables).get("MaxDBDMsgs") == expected


def test_a_full_queue_ends_no_slurmctld_unless_the_site_wants_it() -> None:
    discards, ends = "max_dbd_msg_action=discard", "max_dbd_msg_action=exit"
    assert parameters_of(slurm_defaults=2)["SlurmctldParameters"] == f"enable_configless,{discards}"
    own = {"SlurmctldParameters": ends}
    assert parameters_of(slurm_defaults=2, slurm_conf=own)["SlurmctldParameters"] == f"enable_configless,{ends}"
    without = (parameters_of(), parameters_of(slurm_defaults=2, slurm_database=""))
    assert [found["SlurmctldParameters"] for found in without] == ["enable_configless"] * 2


def test_values_of_generation_2() -> None:
    old, new = parameters_of(), parameters_of(slurm_defaults=2)
    assert (old["EnforcePartLimits"], new["EnforcePartLimits"]) == ("ALL", "ANY")
    assert (old["SrunPortRange"], new["SrunPortRange"]) == ("60001-63000", "61000-63000")
    assert (old["JobCompType"], new.get("JobCompType"), new.get("JobCompLoc")) == ("jobcomp/filetxt", None, None)
    assert parameters_of(slurm_defaults=2, slurm_database="")["JobCompType"] == "jobcomp/filetxt"
    listed = parameters_of(slurm_defaults=2, slurm_conf={"JobCompType": "jobcomp/filetxt"})
    assert listed["JobCompLoc"] == "/var/log/slurm/job_completions"


def test_ports_of_srun_are_among_those_that_firewalls_open() -> None:
    first, last = map(int, SRUN_PORTS.split("-"))
    ranges = [row.value for row in defaults.DEFAULTS if row.key == "SrunPortRange"]
    assert all(first <= int(low) and int(high) <= last for low, high in (found.split("-") for found in ranges))


@pytest.mark.parametrize(("memory", "size"), [(1000, "96M"), (64000, "4096M")])
def test_the_log_of_innodb_is_a_quarter_of_its_memory(memory: int, size: str) -> None:
    host = cluster(slurm_defaults=2, mariadb_settings={})["head"].say(memory_mib=memory)
    assert mariadb.settings(host)["innodb_log_file_size"] == size
    assert mariadb.settings(host.set(slurm_defaults=1))["innodb_log_file_size"] == "64M"


def test_an_ordinary_run_shows_the_number_of_newer_defaults() -> None:
    (line,) = generations.shown_lines(cluster()["head"])
    assert line.startswith(f"{len(generations.differences(cluster()['head']))} values of the collection have newer")
    checked = cluster(ansible_check_mode=True)["head"]
    assert generations.shown_lines(checked) == generations.differences(checked)
    assert generations.shown_lines(cluster(slurm_defaults=2)["head"]) == []


def test_an_option_that_the_site_has_is_no_difference() -> None:
    own = {"SchedulerParameters": "bf_window=100,bf_resolution=60", "LaunchParameters": None}
    shown = " ".join(generations.differences(cluster(slurm_conf=own)["head"]))
    assert "SchedulerParameters" not in shown
    assert "LaunchParameters" not in shown


def test_all_changes_of_the_newest_generation_are_shown() -> None:
    host = cluster(**GPU_CLUSTER | {"slurm_defaults": 1})["head"]
    changed = [line.partition(":")[0] for line in generations.differences(host)]
    assert changed == [
        "slurm.conf SrunPortRange",
        "slurm.conf ResumeTimeout",
        "slurm.conf EnforcePartLimits",
        "slurm.conf JobCompType",
        "slurm.conf JobCompLoc",
        "slurm.conf MaxDBDMsgs",
        "slurm.conf AccountingStorageTRES",
        "slurm.conf PriorityFlags",
        "slurm.conf TRESBillingWeights",
        "slurm.conf Prolog",
        "slurm.conf Epilog",
        "slurm.conf SchedulerParameters",
        "slurm.conf SchedulerParameters",
        "slurm.conf SchedulerParameters",
        "slurm.conf LaunchParameters",
        "slurm.conf SlurmctldParameters",
        "zz-gpucluster-slurm.cnf innodb_log_file_size",
    ]
