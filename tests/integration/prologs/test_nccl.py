# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NCCL test of guide 003 (docs/admin/acceptance.md): its three commands, by a user, with the scripts, prologs and
GPUs of inventory/a3mega on two nodes of the lab.

Stand-ins, since there is no GPU and no image of NVIDIA: docker, enroot and pyxis; nodes with 16 CPUs by Slurm's
configuration alone; MPICH and stand_in/nccl-tests for NCCL, CUDA and nccl-tests. The bytes and the times are real.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import accept
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.accept import gpu_measurements
from lab import ROOT, Lab, with_cluster
from plain_host import cluster as plain_cluster

CONTROLLER = "prep-ctl"
NODES = ("prep-node1", "prep-node2")
A3MEGA = ROOT / "inventory/a3mega"
STAND_IN = ROOT / "tests/integration/stand_in"
PLUGIN = "/usr/local/lib/stand-in-pyxis.so"
DIRECTORY = "/home/alice/nccl"
PACKAGES = "gcc libc6-dev make mpich libmpich-dev libslurm-dev"
PAGE = ROOT / "docs/admin/acceptance.md"


def example() -> dict[str, Any]:
    """The cluster file of inventory/a3mega."""
    return dict(yaml.safe_load((A3MEGA / "a3mega.cluster.yml").read_text()))


def a3mega(lab: Lab, directory: Path) -> Lab:
    """The lab's cluster with the GPUs, the partition, the prologs and the epilogs of the example."""
    found, lab_cluster = example(), lab.cluster
    for script in ("tcpxo-start.sh", "tcpxo-stop.sh"):
        (directory / script).symlink_to(A3MEGA / script)
    (machine,), (partition,) = found["hardware"].values(), found["partitions"]
    gres = [{key: value for key, value in entry.items() if key != "cores"} for entry in machine["gres"]]
    cpus = {"sockets": 1, "cores_per_socket": 16, "threads_per_core": 1, "real_memory": 2000}
    controller, nodes = lab_cluster["nodes"]
    cluster = lab_cluster | {
        "hardware": lab_cluster["hardware"] | {"a3-megagpu-8g": {**cpus, "gres": gres}},
        "nodes": [controller, nodes | {"hardware": "a3-megagpu-8g"}],
        "partitions": [*lab_cluster["partitions"], partition | {"nodes": nodes["hosts"], "default": False}],
        "prologs": found["prologs"],
        "epilogs": found["epilogs"],
        "slurm_conf": {"SlurmdParameters": "config_overrides"},
    }
    return with_cluster(lab, directory, cluster, slurm_plugstack=[{"plugin": PLUGIN}])


def equip(lab: Lab, node: str) -> None:
    """What a node needs besides Slurm: compilers and an MPI instead of the image, and the stand-ins."""
    install = f"DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends {PACKAGES}"
    lab.command(node, f"apt-get -qq update && {install} >/dev/null 2>&1")
    docker = b"#!/usr/bin/python3\n" + (STAND_IN / "docker.py").read_bytes()
    lab.script(node, "install -m 0755 /dev/stdin /usr/local/bin/docker", docker)
    lab.command(node, "rm -rf /var/lib/tcpxo /var/log/stand-in-docker")


@pytest.fixture(scope="module", name="site", autouse=True)
def _site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The cluster as A3 Mega's, for the tests of this module."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: equip(lab, node), NODES))
    gcc = "cd $(mktemp -d) && cat >pyxis.c && gcc -shared -fPIC pyxis.c -o pyxis.so && cat pyxis.so && rm -r $PWD"
    library = lab.script(NODES[0], gcc, (STAND_IN / "pyxis.c").read_bytes())
    for host in (CONTROLLER, *NODES):
        lab.script(host, f"cat >{PLUGIN}", library)
    lab.script(CONTROLLER, "install -m 0755 /dev/stdin /usr/local/bin/enroot", (STAND_IN / "enroot").read_bytes())
    lab.command(CONTROLLER, f"rm -rf {DIRECTORY}; install -d -o alice {DIRECTORY} {DIRECTORY}/nccl-tests")
    files = [*A3MEGA.glob("*-nccl-tests.sh"), *(STAND_IN / "nccl-tests").iterdir()]
    for path in files:
        name = path.name if path.suffix == ".sh" else f"nccl-tests/{path.name}"
        lab.script(CONTROLLER, f"install -o alice -m 0644 /dev/stdin {DIRECTORY}/{name}", path.read_bytes())
    site = a3mega(lab, tmp_path_factory.mktemp("a3mega"))
    run = site.playbook("site", "--tags=controller,compute")
    assert (run.rc, run.failed) == (0, {})
    yield site
    lab.command(CONTROLLER, "scancel --user=alice")
    lab.wait_for(CONTROLLER, "timeout 60 squeue -h | wc -l", "0", 60)
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    for host in (CONTROLLER, *NODES):
        lab.command(host, f"rm -rf /nccl {PLUGIN} /usr/local/bin/docker /usr/local/bin/enroot {DIRECTORY}")


def as_alice(lab: Lab, command: str) -> str:
    """The output of a command that a user gives on the login host, in the directory of the test."""
    words = f"runuser -u alice -- env --chdir={DIRECTORY} timeout 300 bash -c {shlex.quote(command)}"
    return str(lab.command(CONTROLLER, words))


def submit(lab: Lab, command: str) -> tuple[str, str]:
    """Submit a script with sbatch; return the final state and the output of the job."""
    (job,) = re.findall(r"\d+", as_alice(lab, command))
    ended = lab.wait_for(CONTROLLER, f"grep 'JobId={job} ' /var/log/slurm/job_completions", "JobState=", 240)
    (state,) = re.findall(r"JobState=(\S+)", ended)
    return state, as_alice(lab, f"cat slurm-{job}.out")


@pytest.fixture(scope="module", name="table")
def _table(site: Lab) -> str:
    """The output of the guide's third command, after the first two as the page has them."""
    image, *scripts = re.findall("^(?:enroot import|sbatch) .*$", PAGE.read_text(), re.MULTILINE)
    as_alice(site, image)
    for script in scripts:
        state, output = submit(site, script)
        assert state == "COMPLETED", output
    return output


def verdict(table: str) -> list[str]:
    """What accept.yml says of two nodes of the example whose job has printed this table."""
    size, bandwidth = gpu_measurements.read_nccl_tests(table)
    found = example()
    pair = expand(found["nodes"][0]["hosts"])[:2]
    where = {"nodes": pair, "gpu": None, "size": size, "hardware": "a3-megagpu-8g", "driver": "", "image": ""}
    result = {"test": "all_gather_pair", "value": bandwidth, "unit": "GB/s", "text": "", "job": 1, "time": 1, **where}
    job = {"task": f"1/pair/{'+'.join(pair)}", "job": 1, "nodes": fold(pair), "text": json.dumps(result), "why": ""}
    host = plain_cluster(
        slurm_hardware_types=found["hardware"],
        slurm_nodes=found["nodes"],
        slurm_partitions=found["partitions"],
        accept_level="medium",
        __accept_names=pair,
        __accept_begun={"outputs": [job], "left": {}},
    )["n1"]
    return list(accept.table(host))


def test_the_guides_commands_run_on_two_nodes_with_its_variables(site: Lab, table: str) -> None:
    environment = example()["prologs"][0]["environment"]
    for node in NODES:
        for name in (name for name in environment if name.startswith("NCCL_")):
            assert f"# {node} {name}={environment[name]}\n" in table
        log = [json.loads(line) for line in site.command(node, "cat /var/log/stand-in-docker").splitlines()]
        (daemon,) = [words for words in log if environment["TCPXO_DAEMON_IMAGE"] in words]
        assert daemon[-3:] == environment["TCPXO_DAEMON_ARGUMENTS"].split()
    assert "by MPI, between 16 tasks" in table
    assert "# Out of bounds values : 0 OK" in table
    assert [int(size) for size in re.findall(r"^ *0: +(\d+) .* float ", table, re.MULTILINE)] == [
        8 * 2**20 << step for step in range(11)
    ]


def test_the_table_is_read_and_compared_with_the_published_figure(table: str) -> None:
    """The lab's network is slow for 16 GPUs. The guide's own table, which the page shows, is as it should be."""
    said = "a3-[0-1]: NCCL's bus bandwidth of all_gather on two nodes: "
    (slow,) = [line for line in verdict(table) if line.startswith("a3-")]
    assert slow.startswith(said)
    assert "GB/s, under 179.2 of GoogleCloudPlatform/cluster-toolkit, examples/gke-a3-megagpu (188.7 GB/s)" in slow
    assert "Nothing is slow or broken." in verdict(PAGE.read_text())


LESS = {
    "a variable": ("/export NCCL_FASTRAK_IFNAME/d", "NCCL_FASTRAK_IFNAME: found ''"),
    "the profile of the plugin": ("/nccl-env-profile/d", "NCCL_PROFILE_OF: found ''"),
    "the libraries": ("/export LD_LIBRARY_PATH/d", "libnccl-net.so in LD_LIBRARY_PATH: found ''"),
    "the mount": ("s,/var/lib/tcpxo/lib64:/var/lib/tcpxo/lib64.,,", "mount of /var/lib/tcpxo/lib64: found"),
    "the receive daemon": ("s/nodes=2/nodes=1/", "the receive daemon of the job: found 'none on this node'"),
    "a GPU for each task": ("s/gpus-per-node=8/gpus-per-node=4/", "/dev/nvidia4: found 'Operation not permitted'"),
    "MPI": ("s/mpi=pmi2/mpi=none/", "tasks of MPI: found 'a program for each task of Slurm'"),
}
"""By what a job lacks: the change of the script by sed, and the error."""


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("change", "missing"), LESS.values(), ids=LESS)
def test_the_job_fails_without(site: Lab, change: str, missing: str) -> None:
    """So all of it is there because of the script and the prolog, and the job that ran had it."""
    as_alice(site, f"sed {shlex.quote(change)} run-nccl-tests.sh >less.sh; ! cmp -s run-nccl-tests.sh less.sh")
    state, output = submit(site, "sbatch less.sh")
    assert state == "FAILED"
    assert f"stand-in for nccl-tests: {missing}" in output


def test_the_profile_of_the_prolog_sets_what_the_guide_sets(site: Lab) -> None:
    script = (A3MEGA / "run-nccl-tests.sh").read_text()
    lines = re.findall(r"^ *((?:NCCL_LIB_DIR=|export ).*?);?$", script.replace("\\$", "$"), re.MULTILINE)
    assert len(lines) == 6
    guide, profile = (
        as_alice(site, f"srun -p a3mega -N 2 env -i bash -c {shlex.quote(f'{commands}; env')}").splitlines()
        for commands in ("; ".join(lines), ". /var/lib/tcpxo/profile.sh")
    )
    assert sorted(guide) == sorted(profile)
    assert sum(line.startswith(("NCCL_", "LD_LIBRARY_PATH=")) for line in guide) == 2 * len(lines)
