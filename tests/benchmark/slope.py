# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what one more compute node costs the control host: the slope between a small and a larger cluster.

A cost is the processor time of a command of Ansible with all of its children, ssh and the connections that ssh keeps
open included. Each command makes its connections anew, as a run after a pause does. What does not depend on the number
of nodes, such as the start of Ansible, is in both clusters and cancels out. `ansible -m ping` of the same hosts is the
reference, and the ratios to it are of the same round. The result has medians of the rounds.

In each round, both clusters are created with a cluster file of their own, as two sites would have them: a run of the
larger one with `--limit` would still read and check all of its nodes. The hosts are containers of the lab whose image
holds the packages. All nodes are equal, so that each cluster file has one range of them.

usage: python slope.py [--nodes SMALL LARGE] [--rounds ROUNDS]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from timed_role import environment, recap

ROOT = Path(__file__).parents[2]
SCENARIO = "slope"
SSH_CONFIG = ROOT / ".lab" / SCENARIO / "ssh_config"
PREFIX = f"gpucluster-{SCENARIO}-"
"""Beginning of the names of the containers."""
HEAD, FIRST_NODE, MOST_NODES = 98, 100, 30
"""The last numbers of the addresses of the controller and of the first node, which no scenario of the lab uses, and the
number of nodes for which this holds.
"""
WATCHES = 5
"""Instances of inotify that systemd of a host has open as root while somebody is logged in, counted on the lab's hosts.
The kernel allows a number of them for all containers together (fs.inotify.max_user_instances).
"""
PR_SET_CHILD_SUBREAPER = 36
"""Number of an operation of prctl(2) (linux/prctl.h): processes whose parent has ended become children of this one."""


class Cost(NamedTuple):
    """Of one cluster, seconds of processor time of each command, and tasks of the converged run by host."""

    seconds: dict[str, float]
    tasks: dict[str, int]


def node_name(number: int) -> str:
    """The name of a node; numbers begin with 1."""
    return f"compute{number:02}"


def cluster(nodes: int) -> dict[str, Any]:
    """The data of a cluster file with accounting on the controller, and with a number of equal nodes."""
    names = f"compute[01-{nodes:02}]"
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "slope",
        "controllers": "head",
        "database": "head",
        "hardware": {
            "gpu-container": {
                "sockets": 1,
                "cores_per_socket": 2,
                "threads_per_core": 1,
                "real_memory": 2000,
                "gres": [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-1]"}],
            }
        },
        "nodes": [
            {
                "hosts": names,
                "hardware": "gpu-container",
                "address": f"10.213.7.[{FIRST_NODE}-{FIRST_NODE + nodes - 1}]",
            }
        ],
        "partitions": [{"name": "gpu", "nodes": names, "default": True}],
        "addresses": {"head": f"10.213.7.{HEAD}"},
    }


def run_lab(playbook: str, nodes: int) -> None:
    """Make or remove the containers of the controller and of a number of nodes with a playbook of the lab."""
    hosts: list[dict[str, Any]] = [{"name": "head", "address": f"10.213.7.{HEAD}"}]
    hosts += [
        {"name": node_name(number), "address": f"10.213.7.{FIRST_NODE + number - 1}", "gpus": 2}
        for number in range(1, nodes + 1)
    ]
    platforms = [{**host, "image": "trixie-packages"} for host in hosts]
    variables = {
        "molecule_yml": {"platforms": platforms},
        "lab_prefix": PREFIX,
        "ansible_python_interpreter": sys.executable,
    }
    file = str(ROOT / "molecule/shared" / playbook)
    argv = ["ansible-playbook", file, "-i", "localhost,", "-e", json.dumps(variables)]
    environ = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_DISPLAY_FAILED_STDERR": "true",
        "MOLECULE_SCENARIO_NAME": SCENARIO,
    }
    subprocess.run(argv, env=environ, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def bare_cluster(nodes: int) -> Iterator[Path]:
    """A cluster file whose hosts are bare and exist until the end of the context."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "slope.cluster.yml"
        file.write_text(json.dumps(cluster(nodes)))
        try:
            run_lab("create.yml", nodes)
            yield file
        finally:
            run_lab("destroy.yml", nodes)


def children() -> list[int]:
    """The processes whose parent is this one."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Become the parent of processes whose parent ends in this context, and end them all with it.

    These are the ssh processes that keep connections open. The system counts their time when their parent has waited
    for their end. Outside of the context, the monitors of containers lose their parents, and must live.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for pid in children():
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def spend(*argv: str | Path) -> tuple[float, str]:
    """Run a command of Ansible; return its processor time in seconds, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory() as sockets, adopt_orphans():
        environ = environment(str(SSH_CONFIG)) | {"ANSIBLE_SSH_CONTROL_PATH_DIR": sockets}
        output = subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, output


def measure(nodes: int) -> Cost:
    """The costs of a cluster of a number of nodes, from bare hosts."""
    with bare_cluster(nodes) as file:
        site = ("ansible-playbook", "gpucluster.slurm.site", "-i", file, "--skip-tags=validate")
        seconds = {"site.yml, bare hosts": spend(*site)[0]}
        seconds["site.yml, again, nothing to do"], output = spend(*site)
        for module in ("ping", "setup"):
            seconds[f"ansible -m {module}"] = spend("ansible", "all", "-i", file, "-m", module)[0]
    print(f"{nodes} nodes:", "   ".join(f"{name} {spent:.2f} s" for name, spent in seconds.items()), flush=True)
    stats = recap(output)
    assert all(host["changed"] == 0 for host in stats.values()), stats
    return Cost(seconds, {host: counts["ok"] for host, counts in stats.items()})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what one more compute node costs the control host.")
    parser.add_argument("--nodes", type=int, nargs=2, default=[4, 16], metavar=("SMALL", "LARGE"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    small, large = options.nodes
    allowed = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    most = min(MOST_NODES, allowed // WATCHES - 1)
    if not 0 < small < large <= most or options.rounds < 1:
        parser.error(
            f"LARGE is more than SMALL and at most {most}, and there is at least one round (there are {MOST_NODES} "
            f"addresses, fs.inotify.max_user_instances is {allowed}, and a host takes {WATCHES})"
        )
    # A benchmark that is ended removes its containers, as after an error.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rounds = [(measure(small), measure(large)) for _round in range(options.rounds)]

    print(f"Processor time of the control host, {small} and {large} nodes, and for each further node")
    slopes = [{name: (b.seconds[name] - a.seconds[name]) / (large - small) for name in a.seconds} for a, b in rounds]
    for name in ("ansible -m ping", "ansible -m setup", "site.yml, again, nothing to do", "site.yml, bare hosts"):
        totals = [median(cost.seconds[name] for cost in costs) for costs in zip(*rounds, strict=True)]
        pings = [slope[name] / slope["ansible -m ping"] for slope in slopes]
        print(
            f"{name:<32} {totals[0]:5.1f} s {totals[1]:5.1f} s   {median(slope[name] for slope in slopes):6.3f} s   "
            f"{median(pings):5.2f} pings   of {' '.join(f'{ratio:.2f}' for ratio in pings)}"
        )
    few, many = (cost.tasks for cost in rounds[-1])
    print(
        f"Tasks of a run with nothing to do: {many[node_name(large)]} on the last node, {sum(many.values())} in all; "
        f"for each further node {(sum(many.values()) - sum(few.values())) / (large - small):.2f}"
    )


if __name__ == "__main__":
    main()
