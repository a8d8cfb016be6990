# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release of this checkout, made in a clone: what is refused, the files, and the collection that they install.

The address of the repository is an example's. `make release` asks galaxy-importer, so a release that is made has been
taken by it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
REPOSITORY = "https://example.org/gpucluster/slurm"
NAME = "gpucluster-slurm-1.0.0"
FILES = [f"{NAME}.cdx.json", f"{NAME}.sha256", f"{NAME}.tar.gz"]


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command with the collection's tools in its PATH."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    names = {f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def git(clone: Path, *words: str) -> str:
    """What git answers."""
    answer = run("git", *words, cwd=clone)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def release(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "tests/tools/release", *words, cwd=clone)


def commit_fragment(clone: Path, text: str) -> None:
    """Commit one fragment of the changelog."""
    (clone / "changelogs/fragments").mkdir(exist_ok=True)
    (clone / "changelogs/fragments/next.yml").write_text(text)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "A change")


def state(clone: Path) -> str:
    """What a release changes."""
    return git(clone, "log", "--format=%H") + git(clone, "tag") + git(clone, "status", "--porcelain", "--ignored")


@pytest.fixture(name="clone", scope="module")
def clone_of_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of the checkout, also those that are not committed yet."""
    clone = tmp_path_factory.mktemp("clone")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name, follow_symlinks=False)
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "The checkout")
    return clone


@pytest.fixture(name="released", scope="module")
def clone_with_a_release(clone: Path) -> Path:
    """The clone with release 1.0.0."""
    made = release(clone, "1.0.0", REPOSITORY)
    assert made.returncode == 0, made.stderr
    return clone


@pytest.fixture(name="installed", scope="module")
def collections_with_the_release(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections in which ansible-galaxy has installed the tarball."""
    folder = tmp_path_factory.mktemp("collections")
    made = run(
        *("ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", folder, f"{NAME}.tar.gz"),
        cwd=released,
        ANSIBLE_COLLECTIONS_PATH=str(folder),
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1.0.0"], "REPOSITORY: missing, and galaxy.yml has none of an earlier release; allowed: "),
        (["1.0.0", "http://example.org/x"], "REPOSITORY: found 'http://example.org/x'; allowed: "),
        (["1.0.0", f"{REPOSITORY}.git"], f"REPOSITORY: found '{REPOSITORY}.git'; allowed: "),
        (["1.0.0", f"{REPOSITORY}/"], f"REPOSITORY: found '{REPOSITORY}/'; allowed: "),
        (["", REPOSITORY], "VERSION: found '', allowed: three numbers, such as make release VERSION=1.2.3"),
        (["v1.0.0", REPOSITORY], "VERSION: found 'v1.0.0', allowed: three numbers, such as make release VERSION=1.2.3"),
        (["0.0.1", REPOSITORY], "version 0.0.1 is lower than 0.1.0 in galaxy.yml"),
    ],
)
def test_it_is_refused_and_changes_nothing(clone: Path, words: list[str], expected: str) -> None:
    before = state(clone)
    refused = release(clone, *words)
    assert refused.returncode == 1
    assert refused.stderr.startswith(expected)
    assert len(refused.stderr.splitlines()) == 1
    assert state(clone) == before


def test_changes_that_are_not_committed_are_refused(clone: Path) -> None:
    (clone / "stray").touch()
    refused = release(clone, "1.0.0", REPOSITORY)
    (clone / "stray").unlink()
    assert refused.returncode == 1
    assert refused.stderr == "the tree has changes that are not committed (git status)\n"


def test_what_galaxy_importer_refuses_is_not_released(clone: Path) -> None:
    """A tag that Galaxy does not allow."""
    before = state(clone)
    galaxy = clone / "galaxy.yml"
    galaxy.write_text(galaxy.read_text().replace("  - hpc\n", "  - high-performance\n"))
    git(clone, "commit", "--quiet", "--all", "--message", "A wrong tag")
    refused = release(clone, "1.0.0", REPOSITORY)
    git(clone, "reset", "--quiet", "--hard", "HEAD~1")
    assert refused.returncode == 1
    assert f"galaxy-importer refuses {NAME}.tar.gz:" in refused.stderr
    assert "Invalid collection metadata" in refused.stderr
    assert state(clone) == before


def test_the_release_is_one_commit_with_a_tag_and_three_files(released: Path) -> None:
    assert git(released, "log", "--format=%s").splitlines() == ["Release 1.0.0", "The checkout"]
    assert git(released, "cat-file", "-t", "1.0.0") == "tag\n"
    assert git(released, "rev-parse", "1.0.0^{commit}") == git(released, "rev-parse", "HEAD")
    assert git(released, "status", "--porcelain") == ""
    assert sorted(path.name for path in released.glob("gpucluster-slurm-*")) == FILES
    changelog = yaml.safe_load((released / "changelogs/changelog.yaml").read_text())
    assert list(changelog["releases"]) == ["1.0.0"]
    assert "v1.0.0\n======\n" in (released / "CHANGELOG.rst").read_text()
    assert not (released / "changelogs/fragments").exists()


def test_the_tarball_has_the_upgrade_notes(released: Path) -> None:
    with tarfile.open(released / f"{NAME}.tar.gz") as tar:
        (page,) = (tar.extractfile(member) for member in tar if member.name == "docs/admin/upgrade-notes.md")
        text = page.read().decode() if page else ""
    assert "\n## 1.0.0\n\n### To do before the first run\n" in text
    assert "\n### What the first run changes\n" in text
    assert "- `/var/lib/gpucluster-slurm/version` - on all hosts" in text
    tool = (sys.executable, "tests/tools/upgrade_notes.py")
    assert run(*tool, "--check", cwd=released).returncode == 0
    assert run(*tool, "", "1.0.0", cwd=released).stdout in text
    assert run(*tool, "1.0.0", "", cwd=released).stdout == "## Not released\n\nNothing to do.\n"


def test_the_files_that_it_writes_pass_the_linters(released: Path) -> None:
    linted = run("yamllint", "--strict", "changelogs", "galaxy.yml", cwd=released)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_links_follow_from_the_repository(released: Path) -> None:
    with tarfile.open(released / f"{NAME}.tar.gz") as tar:
        content = tar.extractfile("MANIFEST.json")
        assert content
        about = json.load(content)["collection_info"]
    links = {name: about[name] for name in ("version", "repository", "documentation", "homepage", "issues")}
    assert links == {
        "version": "1.0.0",
        "repository": REPOSITORY,
        "documentation": f"{REPOSITORY}/blob/1.0.0/README.md",
        "homepage": REPOSITORY,
        "issues": f"{REPOSITORY}/issues",
    }


def test_the_checksums_are_those_of_the_files(released: Path) -> None:
    checked = run("sha256sum", "--strict", "--check", f"{NAME}.sha256", cwd=released)
    assert checked.stdout.splitlines() == [f"{NAME}.tar.gz: OK", f"{NAME}.cdx.json: OK"]


def test_anybody_can_build_the_same_tarball_from_the_tag(released: Path, tmp_path: Path) -> None:
    """In another folder, with another umask."""
    git(tmp_path, "clone", "--quiet", str(released), "elsewhere")
    build = "umask 077; exec python tests/tools/tarball.py 1.0.0 .."
    assert run("sh", "-c", build, cwd=tmp_path / "elsewhere").returncode == 0
    built = [(path / f"{NAME}.tar.gz").read_bytes() for path in (released, tmp_path)]
    assert hashlib.sha256(built[0]).hexdigest() == hashlib.sha256(built[1]).hexdigest()


def test_the_sbom_names_the_tarball_and_what_it_needs(released: Path) -> None:
    text = (released / f"{NAME}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    sbom = json.loads(text)
    about = sbom["metadata"]["component"]
    assert (sbom["bomFormat"], about["name"], about["version"]) == ("CycloneDX", "gpucluster.slurm", "1.0.0")
    assert about["hashes"][0]["content"] in (released / f"{NAME}.sha256").read_text()
    needed = {one["purl"]: one["scope"] for one in sbom["components"]}
    assert needed["pkg:pypi/ansible-core"] == "required"
    assert needed["pkg:deb/debian/slurmctld"] == "optional"
    (core,) = [one for one in sbom["components"] if one["name"] == "ansible-core"]
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())
    assert core["properties"] == [{"name": "gpucluster:accepted", "value": runtime["requires_ansible"]}]


def test_it_works_with_the_folders_alone_that_a_collection_may_use(installed: Path) -> None:
    """By the rules of the Ansible package, all other folders can be removed."""
    collection = installed / "ansible_collections/gpucluster/slurm"
    for path in collection.iterdir():
        if path.is_dir() and path.name not in ("meta", "playbooks", "plugins", "roles"):
            shutil.rmtree(path)
    (installed / "ansible.cfg").touch()
    shutil.copy(ROOT / "inventory/demo/demo.cluster.yml", installed)
    variables = {"ANSIBLE_COLLECTIONS_PATH": str(installed), "ANSIBLE_CONFIG": str(installed / "ansible.cfg")}
    inventory = ("-i", "demo.cluster.yml")
    checked = run("ansible-playbook", "gpucluster.slurm.site", *inventory, "--syntax-check", cwd=installed, **variables)
    assert (checked.returncode, checked.stderr) == (0, "")
    message = "msg={{ lookup('gpucluster.slurm.decision', 'new_cluster.SCHEMA') }}"
    asked = run("ansible", "localhost", *inventory, "-m", "debug", "-a", message, cwd=installed, **variables)
    (schema,) = re.findall(r'"msg": "(.*)"', asked.stdout)
    assert Path(schema) == collection / "roles/slurm/files/cluster.schema.json"
    assert Path(schema).is_file()


def test_a_version_is_released_once(released: Path) -> None:
    assert release(released, "1.0.0").stderr == "the tag 1.0.0 is there already\n"
    git(released, "tag", "--delete", "1.0.0")
    assert release(released, "1.0.0").stderr == "version 1.0.0 is not higher than 1.0.0, which is released\n"


def test_a_step_that_fails_leaves_the_branch_as_it_was(released: Path) -> None:
    commit_fragment(released, "nonsense: [x]\n")
    before = state(released)
    failed = release(released, "1.0.1")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "The branch is as it was.")
    assert state(released) == before
    assert len(git(released, "worktree", "list").splitlines()) == 1


def test_the_next_release_keeps_the_repository(released: Path) -> None:
    commit_fragment(released, "bugfixes: [A fix.]\n")
    made = release(released, "1.0.1")
    assert made.returncode == 0, made.stderr
    galaxy = yaml.safe_load((released / "galaxy.yml").read_text())
    assert galaxy["repository"] == REPOSITORY
    assert galaxy["documentation"] == f"{REPOSITORY}/blob/1.0.1/README.md"
