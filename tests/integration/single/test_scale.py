# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real daemons with the files that the collection renders for many nodes, next to the cluster that runs on the host."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.tests.benchmark import large
from lab import ROOT, Lab
from plays import play, task

THERE = "/var/lib/gpucluster-scale"
ENVIRONMENT = f"SLURM_CONF={THERE}/slurm.conf timeout 60"

SETTINGS: dict[str, Any] = {
    "StateSaveLocation": f"{THERE}/state",
    "SlurmdSpoolDir": f"{THERE}/spool/%n",
    "SlurmctldPidFile": f"{THERE}/slurmctld.pid",
    "SlurmdPidFile": f"{THERE}/%n.pid",
    "SlurmctldLogFile": f"{THERE}/slurmctld.log",
    "SlurmdLogFile": f"{THERE}/%n.log",
    "JobCompLoc": f"{THERE}/jobs",
    "SlurmctldPort": 16817,
    "SlurmdPort": 16818,
    # The daemons of 50 nodes share the host's cgroups with the cluster that runs there.
    "ProctrackType": "proctrack/pgid",
    "TaskPlugin": None,
    "JobAcctGatherType": None,
    # A job would have a second slurmstepd on each node, and 50 nodes more threads than a container may have.
    "PrologFlags": None,
    # The program checks the host's own node.
    "HealthCheckProgram": None,
}
"""Files and ports apart from those of the cluster that runs on the host."""

GRES = {
    "t4": "gpu:t4:4",
    "v100": "gpu:v100:4",
    "a100": "gpu:a100:8",
    "shards": "gpu:l40s:4,shard:32",
    "two-types": "gpu:a40:2,gpu:a16:4",
    "h100": "gpu:h100:8",
    "h100-mig": "gpu:h100:6,gpu:h100_80gb_hbm3_1g.10gb:14",
    "b200": "gpu:b200:8",
}
"""The GRES that Slurm has to show for the kinds of machines in tests/benchmark/large.py."""


def render(cluster: dict[str, Any], directory: Path) -> dict[str, str]:
    """Render slurm.conf and gres.conf of a cluster whose controller is the host of the scenario."""
    cluster |= {"controllers": "single", "addresses": {"single": "127.0.0.1"}, "slurm_conf": SETTINGS}
    for key in ("database", "login"):
        cluster.pop(key, None)
    file = directory / "scale.cluster.yml"
    file.write_text(yaml.dump(cluster))
    subprocess.run(
        ["ansible-playbook", "tests/benchmark/slurm_conf.yml", "-i", file, "-e", f"directory={directory}"],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        check=True,
    )
    return {name: (directory / name).read_text() for name in ("slurm.conf", "gres.conf")}


@pytest.fixture(scope="module", name="large_files")
def files_of_10000_nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a cluster with 10,000 nodes; all their addresses are those of the machine itself."""
    files = render(large.cluster(10_000, network=127), tmp_path_factory.mktemp("large"))
    return files | {"cgroup.conf": "CgroupPlugin=disabled\n"}


def send(lab: Lab, files: dict[str, str]) -> None:
    """Write files to the directory on the host."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    argv = ["ssh", "-F", lab.ssh_config, "single", "sudo", "tar", "-C", THERE, "--no-same-owner", "-x"]
    subprocess.run(argv, input=archive.getvalue(), check=True)


@pytest.fixture
def slurmctld(lab: Lab) -> Iterator[str]:
    """The command that starts a slurmctld with the files in the directory; everything is removed afterwards."""
    lab.command("single", f"install -d -o slurm -m 755 {THERE} {THERE}/state && mkdir {THERE}/spool")
    unit = "systemd-run --quiet --collect --unit=scale-slurmctld --uid=slurm -p KillSignal=SIGKILL"
    yield f"{unit} slurmctld -D -f {THERE}/slurm.conf"
    lab.command("single", f"systemctl stop 'scale-*'; rm -r {THERE}")
    lab.wait_for(
        "single", "test -z \"$(systemctl list-units --all --plain --no-legend 'scale-*')\" && echo none", "none"
    )


def test_slurmctld_has_10000_nodes(lab: Lab, slurmctld: str, large_files: dict[str, str]) -> None:
    send(lab, large_files)
    lab.command("single", slurmctld)
    lab.wait_for("single", f"{ENVIRONMENT} scontrol ping", "is UP")

    expected = {}
    cluster = large.cluster(10_000, network=127)
    for entry in cluster["nodes"]:
        kind = entry["hardware"].removesuffix("-half")
        machine = cluster["hardware"][entry["hardware"]]
        cpus = machine["sockets"] * machine["cores_per_socket"] * machine["threads_per_core"]
        for name, address in zip(expand(entry["hosts"]), expand(entry["address"]), strict=True):
            expected[name] = [
                address,
                str(cpus),
                str(machine["real_memory"]),
                GRES.get(kind, "(null)"),
                str(entry.get("Weight", machine.get("Weight", 1))),
                ",".join(entry.get("Features", ["(null)"])),
            ]
    assert len(expected) == 10_000
    output = lab.command(
        "single", f"{ENVIRONMENT} sinfo --noheader --Node --partition=all --format='%N|%o|%c|%m|%G|%w|%f'"
    )
    assert {name: fields for name, *fields in (line.split("|") for line in output.splitlines())} == expected
    assert len(output.splitlines()) == 10_000


@pytest.mark.usefixtures("slurmctld")
def test_a_change_of_10000_nodes_is_planned(lab: Lab, large_files: dict[str, str], tmp_path: Path) -> None:
    """The schema, Slurm's parser and a second slurmctld check it. Another cluster's last good files are hidden."""
    send(lab, large_files)
    text = large_files["slurm.conf"].splitlines()
    nodes = [line for line in text if line.startswith("NodeName=")][-1]
    text[text.index(nodes)] += " TmpDisk=77"
    wanted = {"directory": THERE, "files": large_files | {"slurm.conf": "\n".join([*text, "KillWait=99"])}}
    lab.command("single", f"mkdir {THERE}/good && mount --bind {THERE}/good /var/lib/gpucluster-slurm/good")
    try:
        result = play(lab, tmp_path, task("plan", "slurm_config", wanted, check=True))["plan"]
    finally:
        lab.command("single", "umount /var/lib/gpucluster-slurm/good")
    assert not result.get("failed"), result["msg"]
    assert {step["what"] for step in result["plan"]} == {f"{nodes.split()[0]} TmpDisk", "slurm.conf KillWait"}


def test_50_slurmd_on_one_host(lab: Lab, slurmctld: str, tmp_path: Path) -> None:
    names = [f"n{number:02d}" for number in range(1, 51)]
    machine = {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 100}
    node = {"hosts": "n[01-50]", "hardware": "tiny", "address": "127.0.1.[1-50]", "Port": "[17001-17050]"}
    files = render(
        {
            "plugin": "gpucluster.slurm.cluster",
            "name": "fifty",
            "hardware": {"tiny": machine},
            "nodes": [node],
            "partitions": [{"name": "all", "nodes": "ALL", "default": True}],
        },
        tmp_path,
    )
    # In a cluster file a node is a host, so it has no NodeHostname; the test adds it.
    files["slurm.conf"] = files["slurm.conf"].replace("NodeName=n[01-50] ", "NodeName=n[01-50] NodeHostname=single ")
    send(lab, files | {"cgroup.conf": "CgroupPlugin=disabled\n"})
    lab.command("single", slurmctld)
    lab.wait_for("single", f"{ENVIRONMENT} scontrol ping", "is UP")
    start = f"for name in {' '.join(names)}; do slurmd -D -N $name -f {THERE}/slurm.conf & done; wait"
    # A daemon has about ten threads; a unit may have 15 % of what the container may.
    unit = "systemd-run --quiet --collect --unit=scale-slurmd -p TasksMax=infinity -p KillSignal=SIGKILL"
    lab.command("single", f"{unit} sh -c '{start}'")
    lab.wait_for("single", f"{ENVIRONMENT} sinfo --noheader --format=%T/%D", "idle/50")
    answers = lab.command("single", f"{ENVIRONMENT} srun -N50 sh -c 'echo $SLURMD_NODENAME $(hostname)'")
    assert sorted(answers.splitlines()) == [f"{name} single" for name in names]
