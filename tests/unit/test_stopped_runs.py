# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on stand-ins for hosts: runs that stop, and the tasks that they have done until then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from standing_hosts import Hosts, honest


def cluster(**slurm_conf: Any) -> dict[str, Any]:
    """A cluster file with two compute nodes of one kind, and another one."""
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "hardware": {"a": machine},
        "nodes": [{"hosts": "n[1-2]", "hardware": "a"}, {"hosts": "n3", "hardware": "a", "Weight": 9}],
        "partitions": [{"name": "p", "nodes": "ALL", "default": True}],
        "slurm_conf": slurm_conf,
    }


def standing(names: list[str], **facts: Any) -> dict[str, Any]:
    """Honest hosts with other facts; they have the GPUs that the cluster file does not mention."""
    hosts = {name: honest(name) for name in names}
    for answers in hosts.values():
        answers["slurm_host_facts"]["ansible_facts"]["slurm_host"] |= facts
    return hosts


def test_a_missing_program_stops_the_run_before_any_change(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"])
    for name in ("n1", "n2"):
        hosts[name]["slurm_host_facts"]["ansible_facts"]["slurm_host"]["programs"] = {"/nonexistent": "is missing"}
    there = Hosts(tmp_path / "site", cluster(Prolog="/nonexistent"), hosts)
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig")
    assert "slurm.conf Prolog: /nonexistent is missing on n[1-2]" in run.stdout
    assert run.returncode != 0
    assert "/nonexistent" in there.asked("n3", "slurm_host_facts")
    assert "/nonexistent" not in there.asked("head", "slurm_host_facts")
    assert not there.asked("head", "slurm_packages")


def test_a_change_is_tried_on_one_node_of_each_kind(tmp_path: Path) -> None:
    """The slurmd of n1 does not start: the controller takes the change back, and n2 was never asked."""
    hosts = standing(["head", "n1", "n2", "n3"], packages={"slurmctld": "24.11.5-4", "slurmd": "24.11.5-4"})
    hosts["head"]["slurm_config"] |= {"unproven": ["n[1-2]", "n3"]}
    hosts["n1"]["slurm_service"] = {"failed": True, "msg": "service slurmd: bind: Address already in use"}
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--tags", "controller,compute", "--skip-tags", "mig")
    assert "The change is taken back, since slurmd does not come up with it. It was tried on n[1,3]" in run.stdout
    assert "n1: service slurmd: bind: Address already in use" in run.stdout
    assert run.returncode != 0
    assert '"state": "former"' in there.asked("head", "slurm_config")
    assert "slurmd.service" in there.asked("n3", "slurm_service")
    assert not there.asked("n2", "slurm_service")


def test_after_a_good_trial_the_other_nodes_follow_and_drained_nodes_are_named(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"], packages={"slurmctld": "24.11.5-4", "slurmd": "24.11.5-4"})
    hosts["head"]["slurm_config"] |= {"unproven": ["n[1-2]", "n3"]}
    states = ["n1 drained Prolog error", "n1 drained Prolog error", "n2 draining Prolog error", "n3 drained bad DIMM"]
    hosts["n1"]["command"] |= {"stdout": "\n".join(states)}  # it answers for the host that it delegates to
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--tags", "controller,compute", "--skip-tags", "mig")
    assert run.returncode == 0, run.stdout
    assert '"state": "proven"' in there.asked("head", "slurm_config")
    assert "slurmd.service" in there.asked("n2", "slurm_service")
    last = run.stdout.rpartition("PLAY [Compute nodes]")[2]
    assert last.count("Drained, without new jobs until they are resumed: ") == 1
    assert "n3 (bad DIMM); n[1-2] (Prolog error)" in last
