# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/stalest, which runs the stages of `make test-all` that are longest not run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
MAKEFILE = """\
.RECIPEPREFIX = >
old new failed never:
> @test $@ != never
"""
RAN = """\
failed                   2026-11-20  abc         failed     9
new                      2026-11-28  abc         passed     3
old                      2026-01-01  abc         passed    12
"""


@pytest.fixture(name="checkout")
def a_checkout(tmp_path: Path) -> Path:
    (tmp_path / "tests/tools").mkdir(parents=True)
    for name in ("stages", "stalest"):
        shutil.copy(ROOT / "tests/tools" / name, tmp_path / "tests/tools")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "tests/ran.txt").write_text(RAN)
    (tmp_path / ".gitignore").write_text(".cache\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path


def run(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The tool, for four stages."""
    command = [sys.executable, str(checkout / "tests/tools/stalest"), *options, "old new", "failed", "never@5"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def test_the_stalest_run_and_have_new_lines(checkout: Path) -> None:
    """One that never ran, or has failed, comes before one that passed long ago."""
    told = run(checkout, "--number", "3")
    assert told.returncode == 1, "never fails"
    lines = {line.split()[0]: line.split()[1:] for line in (checkout / "tests/ran.txt").read_text().splitlines()}
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=checkout, capture_output=True, text=True)
    today = [date.today().isoformat(), commit.stdout.strip()]
    assert lines == {
        "failed": [*today, "passed", "0"],
        "never": [*today, "failed", "0"],
        "new": ["2026-11-28", "abc", "passed", "3"],
        "old": [*today, "passed", "0"],
    }


def test_named_stages_run_and_a_changed_checkout_shows(checkout: Path) -> None:
    (checkout / "Makefile").write_text(f"{MAKEFILE}# changed\n")
    assert run(checkout, "--only", "old").returncode == 0
    lines = (checkout / "tests/ran.txt").read_text().splitlines()
    assert [line.split()[1] == date.today().isoformat() for line in lines] == [False, False, True]
    assert lines[2].split()[2].endswith("+")


def test_old_ones_are_named(checkout: Path) -> None:
    told = run(checkout, "--old")
    assert told.returncode == 0
    assert told.stdout.startswith("not passed for two weeks, of 4 stages: old, ")
    assert "failed, never" in told.stdout
