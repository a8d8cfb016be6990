# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of scenario image: one image of a node with everything that a node can have, for most of the tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from images import CERTIFICATE, IMAGE, KERNEL, Tree, bare_tree
from lab import Lab, container, podman, with_cluster
from stand_ins import Workshop


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The scenario, whose cluster has all that there is for containers in addition to its own cluster file."""
    lab = Lab("image")
    directory, workshop = tmp_path_factory.mktemp("cluster"), Workshop.open(lab, tmp_path_factory.mktemp("workshop"))
    shutil.copytree(lab.inventory.parent, directory, ignore=shutil.ignore_patterns("secrets"), dirs_exist_ok=True)
    subprocess.run(CERTIFICATE.split(), cwd=directory, check=True)
    variables = yaml.safe_load((directory / "group_vars/slurm_cluster.yml").read_text())
    variables |= {
        "slurm_containers": ["apptainer", "enroot", "pyxis", "job_tools"],
        "enroot_packages": [{"file": str(workshop.enroot())}],
        "pyxis_packages": {"24.11": {"file": str(workshop.pyxis())}},
        "registry_tls": True,
        "registry_name": lab.controller,
        "registry_key": str(directory / "key.pem"),
        "registry_certificate": str(directory / "certificate.pem"),
        "registry_ca": str(directory / "certificate.pem"),
    }
    return with_cluster(lab, directory, lab.cluster, **variables)


@pytest.fixture(scope="session")
def node(lab: Lab) -> Iterator[Tree]:
    """The tree of the first node, with a kernel. The first build is killed when the packages are there, the second one
    ends. It is the image IMAGE as well, before a test changes it."""
    with bare_tree(lab, lab.nodes[0]) as tree:
        tree.command(f"apt-get update && apt-get install --yes --no-install-recommends {KERNEL}")
        killed = tree.start()
        killed.wait_for_task("Configure slurmd")
        killed.kill()
        run = tree.build()
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        tree.commit(IMAGE)
        yield tree
    podman("rmi", "--force", IMAGE)


@pytest.fixture(scope="session")
def controller(lab: Lab) -> str:
    """The controller, which the cluster has before it has any node."""
    run = lab.playbook("site", f"--limit={lab.controller}", "--skip-tags=validate,containers")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    return str(lab.controller)


@pytest.fixture(scope="session")
def image(node: Tree, controller: str) -> str:
    """The image of the nodes, in a cluster with its controller.

    The controller is no login host, so it has no plugin of pyxis, without which no srun runs there: the tests have one.
    """
    directory = "/usr/local/lib/gpucluster-slurm"
    podman("exec", container(controller), "mkdir", "--parents", directory)
    podman("cp", f"{node.name}:{directory}/spank_pyxis.so", f"{container(controller)}:{directory}/")
    return str(IMAGE)
