#!/usr/bin/env python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long ten hosts take from their start to a job on all of them: copies of an image, and bare hosts with site.yml.

usage: MOLECULE_SCENARIO_NAME=image tests/benchmark/image_nodes.py, after `molecule create -s image`. The cluster has
its controller before. Both are measured in one run, and the build of the image as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTEGRATION = Path(__file__).parents[1] / "integration"
sys.path[:0] = [str(INTEGRATION), str(INTEGRATION / "image")]

from images import NODES, bare_image, bare_tree, boot, cluster_key, power_off  # noqa: E402
from lab import Lab, Run, podman  # noqa: E402

UNTIL_SSH = "until systemctl is-active --quiet ssh.service; do sleep 0.2; done"
IMAGE = "localhost/gpucluster-lab-node-image"


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the seconds that a block takes."""
    began = time.monotonic()
    yield
    print(f"{what:40} {time.monotonic() - began:6.1f} s", flush=True)


def succeed(run: Run) -> None:
    """Raises SystemExit if a run has failed."""
    if run.rc:
        sys.exit(f"the run has failed: {run.failed}")


def main() -> None:
    """Measure and print."""
    lab = Lab("image")
    succeed(lab.playbook("site", f"--limit={lab.controller}", "--skip-tags=validate"))
    job = f"timeout 180 srun -N{len(lab.nodes)} hostname"
    try:
        with bare_tree(lab, lab.nodes[0]) as tree:
            with timed("build of the image"):
                succeed(tree.build())
            tree.commit(IMAGE)
        with timed("copies of the image"):
            for node in lab.nodes:
                boot(lab, IMAGE, node, cluster_key(lab))
            for node in lab.nodes:
                lab.wait_until_idle(lab.controller, node)
            lab.command(lab.controller, job)
        power_off(*lab.nodes)
        with timed("bare hosts and site.yml"):
            for node in lab.nodes:
                podman("exec", boot(lab, bare_image(lab), node, b""), "sh", "-c", UNTIL_SSH)
            succeed(lab.playbook("site", "--skip-tags=validate", *NODES))
            for node in lab.nodes:
                lab.wait_until_idle(lab.controller, node)
            lab.command(lab.controller, job)
    finally:
        power_off(*lab.nodes)
        podman("rmi", "--force", IMAGE)


if __name__ == "__main__":
    main()
