# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nvidia_mig."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import nvidia_mig
from plain_host import PlainHost, cluster

GPU = {"name": "gpu", "mig": {"1g.10gb": 7}}
HARDWARE = {
    "m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000, "gres": [GPU]},
    "plain": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000},
}


def hosts(gpus: dict[str, Any], **variables: Any) -> dict[str, PlainHost]:
    """A cluster whose node n2 has MIG instances like n1, and n1 has these differences."""
    found: dict[str, PlainHost] = cluster(slurm_hardware_types=HARDWARE, **variables)
    for name, host in found.items():
        host.set(__nvidia_mig_declared=nvidia_mig.declared(host))
        if name in ("n1", "n2"):
            host.set(__nvidia_mig_compared={"driver": True, "gpus": gpus if name == "n1" else {}})
        host.set(nvidia_mig_pending=["n1"] if gpus else [])
    return found


def test_only_hosts_whose_instances_differ_are_changed() -> None:
    cluster_hosts = hosts({"0": "MIG off"})
    assert nvidia_mig.hosts_with_mig(cluster_hosts["head"]) == ["n1", "n2"]
    assert nvidia_mig.pending(cluster_hosts["head"]) == ["n1"]
    assert nvidia_mig.gres(cluster_hosts["n1"]) == [GPU]
    assert nvidia_mig.gres(cluster_hosts["head"]) == []


def test_a_host_that_the_run_has_lost_is_left_out() -> None:
    assert nvidia_mig.hosts_with_mig(hosts({}, ansible_play_hosts=["head", "n2"])["n2"]) == ["n2"]


@pytest.mark.parametrize(("lines", "expected"), [(["n1", "n2"], ["n1"]), (["n2"], []), ([], [])])
def test_nodes_that_slurm_does_not_know_have_no_jobs(lines: list[str], expected: list[str]) -> None:
    host = hosts({"0": "MIG off"})["n1"].set(__nvidia_mig_slurm={"stdout_lines": lines})
    assert nvidia_mig.known(host) == expected


def test_the_service_is_not_compared_where_check_mode_has_not_made_the_instances() -> None:
    cluster_hosts = hosts({"0": "MIG off"}, ansible_check_mode=True)
    services = {name: nvidia_mig.makes_service(host) for name, host in cluster_hosts.items()}
    assert services == {"head": False, "login": False, "n1": False, "n2": True}
    assert nvidia_mig.makes_service(cluster_hosts["n1"].set(ansible_check_mode=False))
    without = cluster_hosts["n2"].set(__nvidia_mig_compared={"driver": False, "gpus": {}})
    assert not nvidia_mig.makes_service(without)


def test_check_mode_resumes_only_nodes_that_slurm_knows() -> None:
    host = hosts({})["n1"]
    assert nvidia_mig.resumes(host)
    host.set(ansible_check_mode=True, __nvidia_mig_slurm={"stdout_lines": ["n1"]})
    assert not nvidia_mig.resumes(host)
    assert nvidia_mig.resumes(host.set(__nvidia_mig_slurm={"stdout_lines": ["n1", "n2"]}))
    assert not nvidia_mig.resumes(host.set(nvidia_mig_pending=["n1"]))
    assert not nvidia_mig.resumes(host.set(__nvidia_mig_declared=[], ansible_check_mode=False))


def test_the_program_of_the_boot_finds_its_library_and_the_gpus() -> None:
    *library, program, settings, unit = nvidia_mig.files(hosts({})["n1"])
    assert "def set_layouts(" in next(file["content"] for file in library if file["path"].endswith("/mig.py"))
    assert (program["mode"], program["content"].split("\n")[0]) == ("0755", "#!/usr/bin/python3 -IB")
    assert not any(file["loaded"] for file in [*library, program])  # another version makes no instances anew
    assert json.loads(settings["content"]) == [GPU]
    assert f"ExecStart={program['path']}\n" in unit["content"]
