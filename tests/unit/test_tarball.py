# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball of the collection, built in a used checkout: what is in it, what is not, and what the collection needs.

It holds tracked files only, no secret, and nothing that only developers need.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
MADE = {"FILES.json", "MANIFEST.json"}
"""Files that the build adds."""
DEVELOPERS = {
    *(".ci", ".config", ".editorconfig", ".github", ".gitignore", ".pre-commit-config.yaml", ".yamllint"),
    *("Makefile", "molecule", "pyproject.toml", "requirements.in", "requirements.lock", "tests"),
}
"""Files and folders that the repository alone has: the tests and their lab, and the tools of developers."""
PROJECTS = {"yaml": "PyYAML"}
"""The project of a Python package."""
LINK = re.compile(r"\]\(([^)\s:#]+)[^)\s:]*\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
CALLABLE = {"meta", "playbooks", "plugins", "roles"}
"""The folders that plugins, roles and playbooks may use, by the rules of the Ansible package."""
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
    "gpucluster-slurm-0.0.1.cdx.json",
    "gpucluster-slurm-0.0.1.sha256",
)
"""Files that runs and tests leave in a checkout."""


def tracked() -> set[str]:
    """The files of this checkout that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


def packages(kind: str) -> set[str]:
    """The Python packages that plugins of a kind import, without the standard library, ansible-core and its Jinja2.

    What programs import is on their hosts, and so is what the room `machines` does, which programs alone use.
    """
    of_hosts = {"programs", "machines"}
    paths = (path for path in (ROOT / "plugins" / kind).rglob("*.py") if not of_hosts.intersection(path.parts))
    trees = [ast.parse(path.read_text()) for path in paths]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return (
        {name.partition(".")[0] for name in names}
        - sys.stdlib_module_names
        - {"ansible", "ansible_collections", "jinja2"}
    )


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


def test_its_documents_link_to_files_in_it(tarball: set[str]) -> None:
    there = tarball | {str(folder) for name in tarball for folder in Path(name).parents}
    documents = [ROOT / name for name in tarball if name.endswith(".md")]
    links = {
        (str(path.relative_to(ROOT)), os.path.relpath(path.parent / link, ROOT))
        for path in documents
        for link in LINK.findall(CODE.sub("", path.read_text()))
    }
    assert len(links) > 300
    assert [(path, link) for path, link in sorted(links) if link not in there] == []


def test_it_holds_what_the_documents_offer(tarball: set[str]) -> None:
    """A site copies ansible.cfg, ansible-runner's directory links to it, and editors read the schema."""
    assert {"ansible.cfg", "runner/project/ansible.cfg", "inventory/cluster.schema.json"} <= tarball


def test_it_lacks_nothing_that_is_tracked_but_the_developers_own(tarball: set[str]) -> None:
    left_out = {name.partition("/")[0] for name in tracked() - tarball}
    assert left_out == {"galaxy.yml", *DEVELOPERS}
    assert {name for name in tarball if name.partition("/")[0] in DEVELOPERS} == set()


def test_plugins_name_no_file_outside_of_the_folders_that_they_may_use() -> None:
    """Ansible removes no other folder, but packagers may."""
    named = {
        name
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        for name in re.findall(r'\bCOLLECTION / "(\w+)', path.read_text())
    }
    assert {"plugins", "roles"} <= named <= CALLABLE


def test_modules_need_no_python_package() -> None:
    assert packages("modules") == set()


def test_the_control_host_needs_the_packages_of_requirements_txt() -> None:
    needed = packages(".")
    listed = re.findall(r"^(\w+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert sorted(PROJECTS[name] for name in needed) == listed


def test_ansible_builder_finds_what_an_execution_environment_needs(tmp_path: Path) -> None:
    (tmp_path / "ansible_collections/gpucluster").mkdir(parents=True)
    (tmp_path / "ansible_collections/gpucluster/slurm").symlink_to(ROOT)
    builder = Path(sys.executable).with_name("ansible-builder")
    said = subprocess.run([builder, "introspect", tmp_path], capture_output=True, text=True, check=True).stdout
    found = yaml.safe_load(said)
    assert found["python"] == []  # it leaves out PyYAML, which each environment has
    assert [line.partition("  #")[0] for line in found["system"]] == [
        "openssh-clients [platform:rpm]",
        "openssh-client [platform:dpkg]",
    ]
