# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware that Slurm would refuse is refused before anything changes; Slurm accepts the hardware of discover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lab import Lab, with_cluster, with_hardware
from network_port import with_port

HOSTS = ("head", "login1", "compute01", "compute02")


@pytest.fixture(scope="module", name="memory")
def memory_that_is_present(lab: Lab) -> int:
    """The memory of a node in MiB, as slurmd counts it."""
    return int(lab.command("compute01", "slurmd -C").partition("RealMemory=")[2].split()[0])


@pytest.fixture(name="untouched")
def nothing_has_changed(lab: Lab) -> Iterator[None]:
    """Check that no file in the configuration and software directories of a host is newer than the test."""
    for host in HOSTS:
        lab.command(host, "touch /run/before")
    yield
    for host in HOSTS:
        changed = lab.command(host, "find /etc /usr /opt /var/lib/dpkg /var/lib/slurm -xdev -type f -newer /run/before")
        assert [line for line in changed.splitlines() if "/var/lib/slurm/" not in line] == []


@pytest.mark.usefixtures("untouched")
def test_what_slurm_would_refuse_is_refused_before(lab: Lab, memory: int, tmp_path: Path) -> None:
    gpus = [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-3]"}]
    wrong = {"real_memory": memory + 1, "sockets": 64, "gres": gpus}
    run = with_hardware(lab, tmp_path, "compute01", wrong).playbook("site")
    assert run.rc == 2
    assert run.changed == {}
    (message,) = (message for messages in run.failed.values() for message in messages)
    shape = lab.command("compute01", "slurmd -C")
    cpus = int(shape.partition("CPUs=")[2].split()[0])
    for expected in (
        f"compute01 would become INVAL: RealMemory {memory + 1} configured, {memory} present; "
        f"lower it to {memory} or run discover",
        f"compute01 would become INVAL: CPUs 128 (64 x 2 x 1 sockets x cores x threads) configured, {cpus} (",
        "compute01: slurmd would not start: /dev/nvidia[2-3] configured, /dev/nvidia[0-1] present",
    ):
        assert expected in message
    assert "compute02" not in message


def test_slurm_agrees(lab: Lab, memory: int, tmp_path: Path) -> None:
    """Slurm, too, refuses one MiB too much. The test of measured hardware, below, shows that it accepts one less."""
    too_much = with_hardware(lab, tmp_path, "compute02", {"real_memory": memory + 1})
    run = too_much.playbook("site", "--tags=controller", "--skip-tags=preflight")
    low = f"Low RealMemory (reported:{memory} < 100.00% of configured:{memory + 1})"
    assert f"Slurm no longer accepts compute02: {low}" in str(run.failed["head"])
    assert "Rolled back: the old files are in force again." in str(run.failed["head"])
    lab.wait_until_idle("head", "compute02")


@pytest.fixture(name="detected", scope="module")
def cluster_whose_hardware_is_to_be_measured(
    lab: Lab, memory: int, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lab, Path]:
    """The cluster, and its hardware file: compute01 declares all of its memory, compute02 has to be measured."""
    (entry,) = lab.cluster["nodes"]
    container = lab.cluster["hardware"][entry["hardware"]]
    cluster = {
        **lab.cluster,
        "hardware": {**lab.cluster["hardware"], "exact": {**container, "real_memory": memory}},
        "nodes": [
            {"hosts": "compute01", "hardware": "exact", "address": "10.213.7.21"},
            {"hosts": "compute02", "hardware": "detected", "address": "10.213.7.22"},
        ],
    }
    directory = tmp_path_factory.mktemp("detected")
    return with_cluster(lab, directory, cluster), directory / "demo.hardware.yml"


@pytest.mark.usefixtures("untouched")
def test_hardware_is_discovered(lab: Lab, memory: int, detected: tuple[Lab, Path]) -> None:
    site, file = detected
    refused = site.playbook("site", "--tags=preflight")
    assert "the hardware of compute02 is not known yet: run gpucluster.slurm.discover" in str(refused.failed)

    plan = site.playbook("discover", "--check", "--diff")
    assert plan.rc == 0
    assert not file.exists()
    with with_port(lab, "compute01"), with_port(lab, "compute02"):
        run = site.playbook("discover")
    assert (run.rc, [*run.changed.values()]) == (0, [["gpucluster.slurm.hardware : Write the hardware file"]])
    text = file.read_text()
    hardware = yaml.safe_load(text)
    (name,) = hardware["hardware"]
    assert hardware["nodes"] == [{"hosts": "compute[01-02]", "hardware": name}]
    machine = hardware["hardware"][name]
    assert memory * 0.99 < machine["real_memory"] <= memory
    assert machine["fabric"] == {"ports": [{"device": "mlx5_0", "link": "InfiniBand", "rate": 400}]}
    line = "NodeName=compute02 CPUs=%(cpus)d Boards=1 SocketsPerBoard=%(sockets)d CoresPerSocket=%(cores_per_socket)d "
    cpus = machine["sockets"] * machine["cores_per_socket"] * machine["threads_per_core"]
    assert line % {**machine, "cpus": cpus} in lab.command("compute02", "slurmd -C")

    # Run discover again: on one node, and with a node that cannot be reached.
    away = file.parent / "host_vars/compute02.yml"
    away.parent.mkdir()
    with with_port(lab, "compute01"):
        assert site.playbook("discover", "--limit=compute01").changed == {}
        away.write_text("ansible_host: 10.213.7.99\nansible_ssh_timeout: 3\n")
        run = site.playbook("discover")
        away.unlink()
    assert (run.rc, run.changed) == (4, {})
    assert "Hosts that were not measured keep their entry: compute02" in run.output
    assert file.read_text() == text


def test_nodes_with_measured_hardware_run_jobs(lab: Lab, memory: int, detected: tuple[Lab, Path]) -> None:
    site, file = detected
    (machine,) = yaml.safe_load(file.read_text())["hardware"].values()
    with lab.configuration_kept():
        run = site.playbook("site", "--tags=controller")
        assert (run.rc, run.failed) == (0, {})
        for node, present in (("compute01", memory), ("compute02", machine["real_memory"])):
            lab.wait_for("head", f"sinfo -h -N -n {node} -o '%T %m'", f"idle {present}")
        job = f"timeout 180 srun -w compute02 --mem={machine['real_memory'] - 100} hostname"
        assert lab.command("login1", job) == "compute02"
    lab.wait_for("head", "sinfo -h -N -n compute02 -o '%T %m %G'", "idle 2000 gpu:h100:2")
    # Where slurmd reads the lines of nodes only at its start, that run has restarted it and recorded the measured ones.
    run = lab.playbook("site", "--tags=compute", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
