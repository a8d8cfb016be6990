# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/changed and its map, which choose the stages of `make test-changed`."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests/tools"


def git(directory: Path, *arguments: str) -> str:
    """The output of git."""
    names = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    return subprocess.run(
        ["git", "-C", directory, *names, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def change_map(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that reads the map."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("change_map")


@pytest.fixture
def rules(change_map: Any) -> list[Any]:
    """The rules of the map, without the last one, which is for new paths."""
    every: list[Any] = change_map.read_map(change_map.MAP.read_text())
    return every[:-1]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """The paths that git tracks, and that are there."""
    return [path for path in git(ROOT, "ls-files", "-z").split("\0") if path and (ROOT / path).exists()]


def test_each_path_has_a_pattern(rules: list[Any], tracked: list[str]) -> None:
    assert [path for path in tracked if not any(rule.matches(path) for rule in rules)] == []


def test_each_pattern_decides_for_a_path(change_map: Any, rules: list[Any], tracked: list[str]) -> None:
    deciding = {change_map.decide(path, rules) for path in tracked if any(rule.matches(path) for rule in rules)}
    assert [rule.pattern for rule in rules if rule not in deciding] == []


def test_each_stage_exists_and_has_a_lane(rules: list[Any]) -> None:
    stages = {stage for rule in rules for stage in rule.stages}
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    scenarios = {f"molecule-{path.parent.name}" for path in ROOT.glob("molecule/*/molecule.yml")}
    assert stages - targets - scenarios == set()
    lanes = set(re.findall(r"[\w.-]+", " ".join(re.findall(r"^\w+-lanes := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE))))
    assert stages - lanes == set()


def test_patterns(change_map: Any) -> None:
    def matches(pattern: str, path: str) -> bool:
        return bool(change_map.Rule(pattern, []).matches(path))

    assert matches("*.md", "README.md")
    assert not matches("*.md", "docs/testing.md")
    assert matches("docs/**", "docs/a/b.md")
    assert matches("a/**/b", "a/b")
    assert matches("a/**/b", "a/c/d/b")
    assert not matches("a.b", "a-b")
    assert matches("a?b", "a-b")


def test_groups_and_the_first_match(change_map: Any) -> None:
    text = "{groups: {everything: both other, both: one two}, paths: {a/b: two both, 'a/*': other}}"
    rules = change_map.read_map(text)
    assert change_map.decide("a/b", rules).stages == ("two", "one")
    assert change_map.decide("a/c", rules).stages == ("other",)
    assert change_map.decide("new", rules).stages == ("one", "two", "other")


def test_paths_that_differ_choose_stages(tmp_path: Path) -> None:
    def changed(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOLS / "changed"), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    git(tmp_path, "init", "--quiet")
    assert changed().returncode == 1
    for name in ("LICENSE", ".yamllint"):
        (tmp_path / name).write_text("first\n")
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "--quiet", "--message", name)
    assert changed().stdout == "lint\n"
    assert changed("HEAD").stdout == "\n"
    (tmp_path / "LICENSE").unlink()
    (tmp_path / "README.md").write_text("new\n")
    result = changed("HEAD")
    assert set(result.stdout.split()) == {"unit", "sanity", "doc-lint", "site"}
    assert "  LICENSE  (LICENSE): sanity\n  README.md  (*.md): unit sanity doc-lint site\n" in result.stderr
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert set(changed().stdout.split()) == {"lint", "unit", "sanity", "doc-lint", "site"}
    assert "No such" not in result.stderr
    result = changed("nothing")
    assert (result.returncode, "BASE=" in result.stderr) == (1, True)
