# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that programs import, on a host.

Programs that one task writes share a library. There is a directory for each content, `LIBRARY/NAME/DIGEST`. A program
is a starter of a few lines that names its directory: its replacement is the change from one version to the other, and a
program that runs never mixes two.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable

from ..client.commands import run

LIBRARY = "/usr/local/lib/gpucluster-slurm/library"

_COMPILE = """
import sys
from py_compile import PycInvalidationMode, compile

for path in sys.argv[1:]:
    compile(path, doraise=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
"""
"""The source is compared by its hash: the times of files are those of a run, or of an image."""


def directory_of(text: str) -> str:
    """The directory of a library that a path or the text of a starter names; empty without one."""
    found = re.search(rf"{LIBRARY}/[\w-]+/[0-9a-f]{{12}}(?=[/\"])", text)
    return found[0] if found else ""


def compile_modules(paths: Iterable[str]) -> None:
    """Compile modules for the Python of the programs, which is not always that of this process.

    A program starts without that as well, later.
    """
    modules = [path for path in paths if path.endswith(".py")]
    run(["/usr/bin/python3", "-ISB", "-c", _COMPILE, *modules])


def remove_library(program: str) -> None:
    """Remove the library of the program at a path, if it has one, before the program is removed. Raises OSError."""
    with open(program, encoding="utf-8", errors="replace") as file:
        directory = directory_of(file.read(1024))
    if directory:
        shutil.rmtree(os.path.dirname(directory), ignore_errors=True)


def remove_others(present: set[str], before: set[str]) -> None:
    """Remove the directories of earlier contents.

    Args:
        present: the directories in use from now on.
        before: those that were in use until now. A program that starts at this moment may still import from them; one
            that runs has imported everything.
    """
    for library in {os.path.dirname(directory) for directory in present}:
        for name in os.listdir(library):
            directory = os.path.join(library, name)
            if directory not in present | before and directory_of(f"{directory}/") == directory:
                shutil.rmtree(directory, ignore_errors=True)
