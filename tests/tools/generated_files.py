# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that programs of `make docs` write, and that `make doc-lint` compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def update(files: Mapping[Path, str], check: bool) -> int:
    """Write each file whose text is not current, or with `check` name it; the exit status is 1 if one was named."""
    outdated = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in outdated:
        print(f"{path}: {'is not current, run `make docs`' if check else 'written'}")
        if not check:
            path.write_text(files[path])
    return int(check and bool(outdated))


def run(files: Mapping[Path, str]) -> None:
    """The end of a program whose one option is --check."""
    sys.exit(update(files, sys.argv[1:] == ["--check"]))
