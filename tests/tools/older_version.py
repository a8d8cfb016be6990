# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the version that scenario update installs before this one.    usage: python tests/tools/older_version.py

It is the tag of the last release before this commit. Before the first release, it is the last commit before the
defaults had generations.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FIRST = "fd9eb57"
VERSION = "[0-9]*.[0-9]*.[0-9]*"
"""The form of a release's tag (gitglossary(7), pattern of git-describe)."""


class OlderVersionError(Exception):
    """Why there is no older version."""


def git(root: Path, *words: str) -> str:
    """What git answers; empty if it fails."""
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def last_release(root: Path) -> str:
    """The tag of the last release before this commit; empty without one."""
    return git(root, "describe", "--tags", "--abbrev=0", f"--match={VERSION}", "HEAD^")


def older_version(root: Path, first: str = FIRST) -> str:
    """The tag or commit. Raises OlderVersionError."""
    found = last_release(root) or first
    if git(root, "cat-file", "-t", f"{found}^{{commit}}") == "commit":
        return found
    way = "a clone with all commits (git fetch --unshallow --tags), not an archive"
    raise OlderVersionError(f"{root} has no commit {found}, which scenario update installs first; it needs {way}")


if __name__ == "__main__":
    try:
        print(older_version(Path(__file__).parents[2]))
    except OlderVersionError as error:
        sys.exit(str(error))
