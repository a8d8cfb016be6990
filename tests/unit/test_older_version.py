# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version that scenario update installs first, in repositories with and without releases."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
WHO = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]


@pytest.fixture(name="tool")
def module_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("older_version")


def git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *WHO, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(name="root")
def repository(tmp_path: Path) -> Path:
    """A repository with three commits."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    for number in range(3):
        git(root, "commit", "--quiet", "--allow-empty", "--message", f"Commit {number}")
    return root


def test_before_a_release_it_is_the_first_commit_with_such_a_cluster(tool: Any, root: Path) -> None:
    first = git(root, "rev-parse", "HEAD~2")
    git(root, "tag", "a-tag-of-another-kind", "HEAD~1")
    assert tool.older_version(root, first) == first


def test_it_is_the_last_release_before_this_commit(tool: Any, root: Path) -> None:
    git(root, "tag", "0.1.0", "HEAD~2")
    git(root, "tag", "0.2.0", "HEAD~1")
    assert tool.older_version(root, "absent") == "0.2.0"
    # The release itself is compared with the one before it.
    git(root, "tag", "0.3.0", "HEAD")
    assert tool.older_version(root, "absent") == "0.2.0"


def test_a_shallow_clone_says_what_it_lacks(tool: Any, root: Path, tmp_path: Path) -> None:
    first = git(root, "rev-parse", "HEAD~2")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{root}", str(tmp_path / "clone"))
    with pytest.raises(tool.OlderVersionError, match=rf"has no commit {first}, .*git fetch --unshallow --tags"):
        tool.older_version(tmp_path / "clone", first)
