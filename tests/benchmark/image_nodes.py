#!/usr/bin/env python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long hosts take from their start to a job on all of them: copies of an image, and bare hosts with site.yml.

usage: .venv/bin/python tests/benchmark/image_nodes.py [NODES]

NODES: how many, 1 to 10; 5 without it. It makes the hosts of scenario image and removes them at the end. The cluster
has its controller before. All is measured in one run, so that the ratios hold on a busy machine as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

INTEGRATION = Path(__file__).parents[1] / "integration"
sys.path[:0] = [str(INTEGRATION), str(INTEGRATION / "image")]
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

from images import IMAGE, SSH_OPTIONS, bare_image, bare_tree, boot, cluster_key, power_off  # noqa: E402
from lab import ROOT, Lab, Run, podman, with_cluster  # noqa: E402

KEYS = ("plugin", "name", "defaults", "controllers", "addresses", "hardware", "partitions", "access")
"""Keys of the scenario's cluster file that the benchmark keeps: its subject is the start of nodes.

storage is left out: the health check would drain the nodes for the scratch of 8 MiB, which is the TmpFS.
"""

UNTIL_SSH = "until systemctl is-active --quiet ssh.service 2>/dev/null; do sleep 0.2; done"


def timed(what: str, work: Callable[[], object]) -> float:
    """Print the seconds that some work takes, and return them."""
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    print(f"{what:40} {seconds:6.1f} s", flush=True)
    return seconds


def succeed(run: Run) -> None:
    """Raises SystemExit if a run has failed."""
    if run.rc:
        sys.exit(f"the run has failed: {run.failed}\n{run.output[-2000:]}")


def molecule(action: str) -> None:
    """Let molecule do something with the hosts of the scenario."""
    environment = {**os.environ, "MOLECULE_GLOB": "molecule/*/molecule.yml", "ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg"}
    subprocess.run(["molecule", action, "-s", "image"], cwd=ROOT, env=environment, check=True, capture_output=True)


def run_job(lab: Lab) -> None:
    """Wait until all nodes are in service, and run a job on all of them."""
    for node in lab.nodes:
        lab.wait_until_idle(lab.controller, node, 600)
    lab.command(lab.controller, f"timeout 180 srun -N{len(lab.nodes)} hostname")


def start_copies(lab: Lab) -> None:
    """From the image to the job."""
    for node in lab.nodes:
        boot(lab, IMAGE, node, cluster_key(lab))
    run_job(lab)


def start_bare(lab: Lab) -> None:
    """From bare hosts to the job."""
    for node in lab.nodes:
        podman("exec", boot(lab, bare_image(lab), node, b""), "sh", "-c", UNTIL_SSH)
    succeed(lab.playbook("site", "--skip-tags=validate", *SSH_OPTIONS))
    run_job(lab)


def measure(lab: Lab) -> None:
    """Measure and print."""
    count = len(lab.nodes)
    timed("the controller", lambda: succeed(lab.playbook("site", f"--limit={lab.controller}", "--skip-tags=validate")))
    with bare_tree(lab, lab.nodes[0]) as tree:
        build = timed("build of the image", lambda: succeed(tree.build()))
        tree.commit(IMAGE)
    copies = timed(f"{count} copies of the image", lambda: start_copies(lab))
    power_off(*lab.nodes)
    bare = timed(f"{count} bare hosts with site.yml", lambda: start_bare(lab))
    print(f"ratio of bare hosts to copies            {bare / copies:6.1f}")
    print(f"ratio of bare hosts to build and copies  {bare / (build + copies):6.1f}")


def main(count: int) -> None:
    """Make the hosts, measure, and remove the hosts."""
    lab = Lab("image")
    cluster = {key: lab.cluster[key] for key in KEYS}
    cluster["addresses"] = {lab.controller: lab.cluster["addresses"][lab.controller]}
    cluster["nodes"] = [
        {"hosts": f"img-node[1-{count}]", "address": f"10.213.7.[101-{100 + count}]", "hardware": "box"}
    ]
    try:
        for action in ("destroy", "create"):
            molecule(action)
        with TemporaryDirectory() as directory:
            measure(with_cluster(lab, Path(directory), cluster))
    finally:
        power_off(*(f"img-node{number}" for number in range(1, count + 1)))
        podman("rmi", "--force", "--ignore", IMAGE)
        molecule("destroy")


if __name__ == "__main__":
    arguments = sys.argv[1:] or ["5"]
    if len(arguments) != 1 or arguments[0] not in map(str, range(1, 11)):
        sys.exit((__doc__ or "").strip())
    main(int(arguments[0]))
