# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on stand-ins for hosts: what stops a run, and what it has done until then."""

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
