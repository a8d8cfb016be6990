# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball of the collection, built in a used checkout, holds tracked files only, and no secret."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
MADE = {"FILES.json", "MANIFEST.json"}
"""Files that the build adds."""
LEFT_BEHIND = (
    "inventory/demo/secrets/demo/munge.key",
    "inventory/demo/secrets/demo/slurmdbd_storage_pass",
    "inventory/demo/report/demo/validation.json",
    "inventory/demo/demo.hardware.yml",
    "molecule/containers/inventory/secrets/containers/munge.key",
    "secrets/lab/munge.key",
    "report/lab/validation.xml",
    "lab.hardware.yml",
    "runner/artifacts/1/stdout",
    ".lab/id_ed25519",
    ".cache/test/times.json",
    ".venv/bin/activate",
    ".venv-new/bin/activate",
    "plugins/modules/__pycache__/slurm_node.cpython-311.pyc",
    "gpucluster-slurm-0.0.1.tar.gz",
)
"""Files that runs and tests leave in a checkout."""


def tracked() -> set[str]:
    """The files of this checkout that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


@pytest.fixture(name="tarball", scope="module")
def files_of_the_tarball(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files and links in a tarball that was built in a used checkout."""
    checkout, output = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("output")
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    for name in LEFT_BEHIND:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("secret")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    build = [str(word) for word in (galaxy, "collection", "build", checkout, "--output-path", output)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = output.iterdir()
    with tarfile.open(path) as tar:
        return {member.name for member in tar if not member.isdir()}


def test_it_holds_nothing_that_is_not_tracked(tarball: set[str]) -> None:
    assert tarball - tracked() - MADE == set()


def test_it_holds_what_the_readme_names(tarball: set[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    named = {link.partition("#")[0].rstrip("/") for link in re.findall(r"\]\(([^):]+)\)", readme)}
    folders = {str(parent) for name in tarball for parent in Path(name).parents}
    assert len(named) > 10
    assert named - tarball - folders == set()
    # `make demo` and ansible-runner's directory need these.
    assert {"Makefile", "ansible.cfg", "requirements.lock", "runner/project/ansible.cfg"} <= tarball


def test_it_lacks_nothing_that_is_tracked_but_the_developers_own(tarball: set[str]) -> None:
    left_out = {name for name in tracked() - tarball if not name.startswith((".ci/", ".github/"))}
    assert left_out == {"galaxy.yml"}
