# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role adopt: refusals, what is written, munge's key, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import adopt
from plain_host import PlainHost, cluster

RESULT = {
    "cluster": {"name": "lab", "unmanaged": "n2"},
    "table": ["host", "ctl"],
    "errors": [],
    "unexplained": [],
    "remarks": ["remark"],
    "comments": ["comment"],
    "differences": ["difference"],
}


def inventory(directory: Path, **variables: Any) -> dict[str, PlainHost]:
    """The control host and two others, of which ctl runs slurmctld."""
    groups = {"all": ["localhost", "n1", "ctl"], "slurm_adopt_controller": ["ctl"]}
    own = {"groups": groups, "adopt_dir": str(directory), "adopt_controller": "", "adopt_conf": "", **variables}
    hosts = {name: PlainHost({"inventory_hostname": name, **own}) for name in groups["all"]}
    for host in hosts.values():
        host.hosts = hosts
    hosts["ctl"].set(__new_cluster_processes={"rc": 0, "stdout": "7 /usr/sbin/slurmctld -D"}, __adopt_result=RESULT)
    for name in ("n1", "ctl"):
        facts: dict[str, Any] = {"ansible_facts": {"slurm_host": {"paths": {}}}}
        hosts[name].set(__new_cluster_facts=facts)
    return hosts


def test_wrong_choices_are_refused_before_any_host_is_reached(tmp_path: Path) -> None:
    hosts = inventory(tmp_path / "no", adopt_controller="clt", adopt_config="x")
    variable, controller, directory = adopt.objections(hosts["localhost"])
    assert variable.startswith("adopt_config: unknown variable, did you mean 'adopt_conf'?")
    assert controller.startswith("adopt_controller: found 'clt', unknown host, did you mean 'ctl'?")
    assert directory == f"adopt_dir: {tmp_path}/no is not a directory"
    assert adopt.objections(inventory(tmp_path)["localhost"]) == []


def test_the_controller_is_found_by_its_daemon(tmp_path: Path) -> None:
    assert adopt.controller(inventory(tmp_path)["localhost"]) == "ctl"
    with pytest.raises(ValueError, match="slurmctld does not run on n1; it runs on ctl"):
        adopt.controller(inventory(tmp_path, adopt_controller="n1")["localhost"])


def test_the_cluster_file_comes_from_what_the_hosts_have_answered(tmp_path: Path) -> None:
    conf = "ClusterName=lab\nSlurmctldHost=ctl(10.0.0.1)\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    files = {"files": {"slurm.conf": conf}, "version": "24.11.5", "user_id": 64030, "package": "slurmctld", "drift": []}
    hosts = inventory(tmp_path)
    hosts["ctl"].set(__adopt_files=files)
    hosts["n1"].set(__new_cluster_processes={"rc": 0, "stdout": "8 /usr/sbin/slurmd --conf-server ctl"})
    found = adopt.result(hosts["ctl"])
    assert (found["errors"], found["unexplained"]) == ([], [])
    assert found["cluster"]["controllers"] == "ctl"
    assert "unmanaged" not in found["cluster"]
    assert found["unset"]["EnforcePartLimits"] == "ALL"


def test_the_accounting_of_the_cluster_is_read_though_the_database_has_others(tmp_path: Path) -> None:
    host = inventory(tmp_path)["ctl"]
    host.set(__adopt_files={"files": {"slurm.conf": "Include names\n", "names": "ClusterName=Lab\n"}})
    assert adopt.cluster_name(host) == "lab"
    host.set(__adopt_files={"files": {"slurm.conf": "NodeName=n1\n"}})
    assert adopt.cluster_name(host) == ""


def test_both_hosts_name_one_file_and_keep_one_that_is_there(tmp_path: Path) -> None:
    hosts = inventory(tmp_path)
    path = tmp_path / "lab.cluster.yml"
    assert adopt.file(hosts["localhost"]) == adopt.file(hosts["ctl"]) == str(path)
    assert adopt.result_errors(hosts["ctl"]) == []
    path.write_text("")
    (error,) = adopt.result_errors(hosts["ctl"])
    assert error == f"{path} exists already and is not overwritten; set another adopt_dir"


def test_a_person_and_a_program_get_the_same_messages(tmp_path: Path) -> None:
    host = inventory(tmp_path)["localhost"]
    assert adopt.lines(host) == ["host", "ctl", "", "remark", "comment", "difference"]
    assert adopt.statistics(host) == {
        "file": f"{tmp_path}/lab.cluster.yml",
        "unmanaged": "n2",
        "remarks": ["remark"],
        "comments": ["comment"],
        "differences": ["difference"],
    }


def test_a_file_that_would_mean_something_else_stops_the_run(tmp_path: Path) -> None:
    host = inventory(tmp_path)["ctl"]
    assert adopt.result_errors(host) == []
    host.set(__adopt_result={**RESULT, "errors": ["error"], "unexplained": ["other meaning"]})
    assert adopt.result_errors(host) == ["error", "other meaning"]


def test_a_key_that_is_there_is_compared(tmp_path: Path) -> None:
    host = inventory(tmp_path)["ctl"]
    assert adopt.compared_keys(host) == []
    key = tmp_path / "secrets/lab/munge.key"
    key.parent.mkdir(parents=True)
    key.write_text("k")
    there = {"host": "localhost", "path": str(key)}
    assert adopt.compared_keys(host) == [{"host": "ctl", "path": "/etc/munge/munge.key"}, there]


def test_a_host_gets_its_files_back_where_they_were() -> None:
    found = adopt.return_options(cluster()["n1"])
    assert found.restored == {"kept": "/var/lib/gpucluster-slurm/found", "path": "/etc/slurm"}
    assert "/etc/slurm/*.conf" in found.files
    assert {"/usr/local/sbin/slurm-health", "/etc/gpucluster-slurm/health.d/*"} <= {*found.files}
    assert found.secrets == ["/etc/gpucluster-slurm/health.json"]
    assert found.directories == [
        "/var/lib/gpucluster-slurm",
        "/run/gpucluster-slurm",
        "/var/cache/gpucluster-slurm",
    ]
    assert found.empty_directories[:2] == ["/etc/gpucluster-slurm/health.d", "/etc/gpucluster-slurm"]
    assert found.parts == [{"path": "/etc/hosts", "marker": "# {mark} gpucluster.slurm x"}]
