# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of slurm.conf and the other files of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import slurm_conf as lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import (
    defaults,
    slurm_conf_values,
    slurm_files,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.defaults import recommended
from plain_host import PlainHost, cluster

SCRIPT = [{"name": "a", "script": "#!/bin/sh\n"}]


def head(**variables: Any) -> PlainHost:
    """The controller of a cluster with these variables."""
    return cluster(**variables)["head"]


def parameters(host: PlainHost, release: str = "24.11") -> dict[str, str]:
    """The parameters of slurm.conf before the nodes, as Slurm reads them."""
    text = lines(*slurm_conf_values.layers(host, release))
    return {name: value for name, _equals, value in (line.partition("=") for line in text.splitlines())}


def programs(host: PlainHost) -> dict[str, Any]:
    """The programs of jobs that the collection adds to those of the site."""
    joined = defaults.joined_values(defaults.SLURM, defaults.target(host, "24.11"), host["slurm_conf"])
    return {name: value for name, value in joined.items() if name in defaults.PROGRAMS}


def test_a_site_overrides_every_default_but_configless_mode() -> None:
    own = {"killwait": 60, "RebootProgram": None, "SlurmctldParameters": ["idle_on_node_suspend"]}
    found = parameters(head(slurm_conf=own))
    assert found["KillWait"] == "60"
    assert "RebootProgram" not in found
    assert found["SlurmctldParameters"] == "enable_configless,idle_on_node_suspend"


def test_a_site_overrides_a_profile_which_adds_its_options() -> None:
    found = parameters(head(slurm_profile="strict", slurm_conf={"DisableRootJobs": False}))
    assert found["DisableRootJobs"] == "NO"
    assert found["SlurmctldParameters"] == "enable_configless,disable_triggers"
    assert parameters(head(slurm_profile="strict"), "23.02")["SlurmctldParameters"] == "enable_configless"


def test_an_option_is_there_once_in_any_case() -> None:
    found = parameters(head(slurm_conf={"SlurmctldParameters": "Enable_Configless,a,A"}))
    assert found["SlurmctldParameters"] == "enable_configless,a"


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, "MEMLOCK"), ({"PropagateResourceLimits": "NONE"}, None)],
)
def test_one_parameter_says_which_limits_a_job_has(own: dict[str, str], expected: str | None) -> None:
    assert parameters(head(slurm_conf=own)).get("PropagateResourceLimitsExcept") == expected


@pytest.mark.parametrize(
    ("mail", "program"),
    [({}, "/usr/bin/true"), ({"relay": "m:25"}, "/usr/local/lib/gpucluster-slurm/mail")],
)
def test_no_mail_program_is_called_without_a_relay(mail: dict[str, str], program: str) -> None:
    assert parameters(head(slurm_mail=mail))["MailProg"] == program


def test_a_policy_is_enforced_where_there_is_a_database() -> None:
    qos = [{"name": "normal"}, {"name": "urgent", "Preempt": ["normal"]}]
    found = parameters(head(slurm_accounting_qos=qos))
    assert found["AccountingStorageEnforce"] == "associations,limits,qos,safe"
    assert (found["PreemptType"], found["PreemptMode"]) == ("preempt/qos", "REQUEUE")
    assert "PreemptType" not in parameters(head(slurm_accounting_qos=qos[:1]))
    assert "AccountingStorageEnforce" not in parameters(head())
    alone = parameters(head(slurm_accounting_qos=qos, slurm_database=""))
    assert not {"AccountingStorageEnforce", "AccountingStorageType", "PriorityType"} & {*alone}


def test_programs_of_a_site_come_before_those_of_the_collection() -> None:
    own = "/usr/local/lib/gpucluster-slurm"
    assert programs(head(slurm_conf={"Prolog": "/a", "Epilog": None}, slurm_epilogs=SCRIPT)) == {
        "Epilog": ["slurm-epilog"]
    }
    assert programs(head(slurm_conf={"Prolog": "/a"}, slurm_prologs=SCRIPT, slurm_containers=["enroot"])) == {
        "Prolog": ["/a", f"{own}/enroot-prolog", "slurm-prolog"],
        "Epilog": [f"{own}/enroot-epilog"],
    }


@pytest.mark.parametrize(
    ("monitoring", "gres", "release", "has_map"),
    [
        ({"host": "mon1"}, [{"name": "gpu", "count": 2}], "24.11", True),
        ({"host": "mon1"}, [{"name": "gpu", "count": 2}], "22.05", False),
        ({"host": "mon1"}, [], "24.11", False),
        ({}, [{"name": "gpu", "count": 2}], "24.11", False),
        (None, [{"name": "gpu", "count": 2}], "24.11", False),
    ],
)
def test_prologs_and_epilogs_note_which_job_has_which_gpus(
    monitoring: dict[str, str] | None, gres: list[dict[str, Any]], release: str, has_map: bool
) -> None:
    """Slurm before 23.11 sends no prologs."""
    more = {} if monitoring is None else {"slurm_monitoring": monitoring}
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000, "gres": gres}
    host = head(slurm_hardware_types={"m": machine}, **more)
    joined = defaults.joined_values(defaults.SLURM, defaults.target(host, release), host["slurm_conf"])
    files = slurm_files.files(host, release)
    for stage in ("prolog", "epilog"):
        assert joined.get(stage.capitalize()) == (["slurm-" + stage] if has_map else None)
        assert (f"slurm-{stage}" in files) == has_map
        assert "('gpu_map', True)" in files.get(f"slurm-{stage}", "('gpu_map', True)")
    # The map never fails a prolog.
    assert "nohold_on_prolog_fail" not in str(joined.get("SchedulerParameters"))


@pytest.mark.parametrize("more", [{"slurm_containers": ["enroot"]}, {"slurm_conf": {"epilog": "/a"}}])
def test_a_release_that_runs_one_prolog_keeps_that_of_others(more: dict[str, Any]) -> None:
    """Slurm 23.11 runs the last one alone."""
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}
    types = {"m": {**machine, "gres": [{"name": "gpu", "count": 2}]}}
    found = {
        (release, bool(other)): "slurm-prolog"
        in slurm_files.files(head(slurm_monitoring={"host": "m"}, slurm_hardware_types=types, **other), release)
        for release in ("23.11", "24.05")
        for other in ({}, more)
    }
    assert found == {("23.11", False): True, ("23.11", True): False, ("24.05", False): True, ("24.05", True): True}


@pytest.mark.parametrize(
    ("more", "release", "moments"),
    [
        ({}, "24.11", ["prolog", "epilog"]),
        ({}, "22.05", []),
        ({"slurm_defaults": 1}, "24.11", []),
        ({"slurm_health_at_jobs": ["epilog"]}, "24.11", ["epilog"]),
        ({"slurm_health_at_jobs": []}, "24.11", []),
        ({"slurm_conf": {"HealthCheckProgram": "/usr/sbin/nhc"}}, "24.11", []),
        ({"slurm_prologs": SCRIPT, "slurm_monitoring": {"host": "m"}}, "24.11", ["prolog", "epilog"]),
    ],
)
def test_the_health_check_sees_the_gpus_of_jobs(more: dict[str, Any], release: str, moments: list[str]) -> None:
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}
    types = {"m": {**machine, "gres": [{"name": "gpu", "count": 2}]}}
    host = head(**{"slurm_hardware_types": types, "slurm_defaults": 2, **more})
    joined = defaults.joined_values(defaults.SLURM, defaults.target(host, release), host["slurm_conf"])
    files = slurm_files.files(host, release)
    for stage in ("prolog", "epilog"):
        text = files.get(f"slurm-{stage}", "('health', '')")
        assert ("('health', '/usr/local/sbin/slurm-health')" in text) == (stage in moments)
        assert joined.get(stage.capitalize()) == ([f"slurm-{stage}"] if f"slurm-{stage}" in files else None)
    nohold = str(joined.get("SchedulerParameters")).count("nohold_on_prolog_fail")
    assert nohold == int("prolog" in moments)


def test_scripts_alone_bring_no_map() -> None:
    assert "('gpu_map', False)" in slurm_files.files(head(slurm_prologs=SCRIPT), "24.11")["slurm-prolog"]


def test_a_job_whose_prolog_fails_starts_elsewhere() -> None:
    found = parameters(head(slurm_prologs=SCRIPT, slurm_conf={"SchedulerParameters": "bf_continue"}))
    assert found["SchedulerParameters"] == "bf_continue,nohold_on_prolog_fail"
    assert "SchedulerParameters" not in parameters(head())


@pytest.mark.parametrize(
    ("release", "pid", "container"),
    [
        ("23.02", "/run/slurmctld.pid", "JobContainerType"),
        ("24.11", "/run/slurmctld/slurmctld.pid", "JobContainerType"),
        ("26.05", "/run/slurmctld/slurmctld.pid", "NamespaceType"),
        ("", "/run/slurmctld/slurmctld.pid", "NamespaceType"),
    ],
)
def test_the_release_that_reads_the_file_decides(release: str, pid: str, container: str) -> None:
    found = parameters(head(slurm_private_tmp="/scratch"), release)
    assert found["SlurmctldPidFile"] == pid
    assert container in found


@pytest.mark.parametrize(("release", "shared"), [("22.05", False), ("23.02", True), ("", True)])
def test_a_job_with_its_own_tmp_sees_what_autofs_mounts(release: str, shared: bool) -> None:
    storage = [{"path": "/home", "type": "autofs"}]
    host = head(slurm_private_tmp="/scratch", slurm_storage=storage)
    assert ("Shared=true" in slurm_files.files(host, release)["job_container.conf"]) is shared
    assert "Shared" not in slurm_files.files(head(slurm_private_tmp="/scratch"), release)["job_container.conf"]
    assert "job_container.conf" not in slurm_files.files(head(slurm_storage=storage), release)


def test_an_upgrade_has_the_files_of_the_next_release() -> None:
    host = head(slurm_private_tmp="/scratch")
    assert "NamespaceType" in slurm_files.files(host, "26.05")["slurm.conf"]
    assert "JobContainerType" in slurm_files.files(host)["slurm.conf"]


def test_controllers_have_their_addresses() -> None:
    host = head(slurm_controllers=["head", "n1"], slurm_addresses=[{"hosts": "head", "address": "10.0.0.1"}])
    assert slurm_conf_values.controllers(host) == ["head(10.0.0.1)", "n1"]


def test_a_qos_that_a_partition_names_is_made_before() -> None:
    partitions = [{"name": "all", "nodes": "n[1-2]", "qos": "big"}]
    assert "qos=big" in slurm_conf_values.text_with_qos(head(slurm_partitions=partitions))
    assert slurm_conf_values.text_with_qos(head(slurm_partitions=partitions, slurm_database="")) == ""


def test_the_resources_that_slurm_will_track() -> None:
    assert slurm_conf_values.tracked_resources(head()) == []
    own = {"accountingstoragetres": ["gres/gpu", "gres/gpu:H100", "license/x"]}
    expected = ["gres/gpu", "gres/gpu:h100", "license/x", "gres/gpumem", "gres/gpuutil"]
    assert slurm_conf_values.tracked_resources(head(slurm_conf=own)) == expected


def test_a_file_of_the_site_replaces_that_of_the_collection() -> None:
    host = head(slurm_files={"gres.conf": "own\n", "topology.conf": "x\n"}, slurm_epilogs=SCRIPT)
    found = slurm_files.files(host)
    assert [*found] == ["cgroup.conf", "gres.conf", "plugstack.conf", "slurm.conf", "slurm-epilog", "topology.conf"]
    assert found["gres.conf"] == "own\n"
    assert [copy["name"] for copy in slurm_files.copies(host)] == ["plugstack.conf", "slurm.conf", "topology.conf"]
    assert slurm_files.stale_copies(host) == ["/etc/slurm/cli_filter.lua"]


def test_files_are_listed_by_name_whatever_their_order() -> None:
    digest = slurm_files.checksum("a")
    assert slurm_files.listed({"b": "a", "B": "a"}) == f"{digest} B\n{digest} b"


def test_the_line_of_pyxis_is_optional_until_a_container_has_run() -> None:
    hosts = cluster(slurm_containers=["pyxis"], slurm_plugstack=[{"plugin": "/a.so"}])
    line = slurm_files.spank_plugins(hosts["head"])[1]
    assert line["required"]
    assert line["arguments"] == ["runtime_path=/var/lib/pyxis"]
    assert not slurm_files.spank_plugins(hosts["head"].set(pyxis_required="no"))[1]["required"]
    recorded = {"/var/lib/gpucluster-slurm/spank_pyxis.so.line.before": "0" * 64}
    host = cluster(slurm_containers=["pyxis"], pyxis_arguments=["runtime_path=/x"])["head"].say(files=recorded)
    assert slurm_files.pyxis_is_unverified(host)
    assert slurm_files.pyxis_arguments(host) == ["runtime_path=/x"]
    assert not slurm_files.pyxis_is_unverified(host.set(ansible_check_mode=True))


def test_the_run_that_changes_pyxis_knows_more_than_the_record() -> None:
    hosts = cluster(slurm_containers=["pyxis"])
    hosts["head"].set(groups={**hosts["head"]["groups"], "slurm_needs_container_plugins": ["n1", "n2"]})
    assert not slurm_files.pyxis_is_unverified(hosts["head"])
    hosts["n2"].set(__pyxis_record={"unproven": True})
    assert slurm_files.pyxis_is_unverified(hosts["head"])


def test_a_cluster_that_is_taken_over_sees_values_that_all_clusters_have() -> None:
    found = recommended(head())
    assert found["slurm.conf"]["KillWait"] == 30
    assert found["slurm.conf"]["StateSaveLocation"] is None
    assert found["cgroup.conf"]["ConstrainDevices"] is True
