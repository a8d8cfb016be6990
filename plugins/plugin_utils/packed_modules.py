# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that ansible-core has packed, kept from one run to the next.

ansible-core packs each module anew in each run, from up to 140 files. It looks for a packed one in a directory of the
run first (`ansiballz_cache` in executor/module_common.py); a release that looks elsewhere packs them as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

KEPT = ("ansible.modules.", "ansible_collections.gpucluster.slurm.")
"""How the names of packed modules start that are kept. Those of ansible.legacy may be of any playbook."""

STATES = 3
"""How many states of ansible-core and the collection have a directory. The oldest ones are removed."""


def sources(folders: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of each file in Python in these folders and below."""
    for folder in folders:
        for path, _folders, names in os.walk(folder, followlinks=True):
            for name in names:
                file = os.path.join(path, name)
                # An editor's lock is a link to nothing.
                if name.endswith(".py") and os.path.exists(file):
                    found = os.stat(file)
                    yield file, found.st_size, found.st_mtime_ns


def state(folders: Iterable[Path]) -> str:
    """A name for the state of what modules are packed from."""
    return hashlib.sha256(repr(sorted(sources(folders))).encode()).hexdigest()[:16]


def is_private(folder: Path) -> bool:
    """Whether this user alone can write into a folder: what is kept there is run by root on all hosts."""
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def packed(folder: Path) -> Iterator[Path]:
    """The packed modules in a folder that are kept."""
    return (file for file in folder.glob("ansible*") if file.name.startswith(KEPT) and file.suffix != ".lock")


def copy(file: Path, folder: Path) -> None:
    """Copy a file into a folder, where it appears as a whole, also if the disk is full or the power fails."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as new:
        new.write(file.read_bytes())
        new.flush()
        os.fsync(new.fileno())
    os.replace(new.name, folder / file.name)


def give(store: Path, run: Path) -> None:
    """Give a run the packed modules of a store, which need not exist. Both are on one file system."""
    if store.is_dir() and is_private(store) and is_private(store.parent):
        run.mkdir(mode=0o700, exist_ok=True)
        for file in packed(store):
            os.link(file, run / file.name)


def keep(run: Path, store: Path) -> None:
    """Keep the packed modules of a run that a store lacks. Several runs may end at once."""
    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    store.mkdir(mode=0o700, exist_ok=True)
    if not (is_private(store) and is_private(store.parent)):
        return
    for file in packed(run):
        if not (store / file.name).exists():
            copy(file, store)
    for old in sorted(store.parent.iterdir(), key=os.path.getmtime)[:-STATES]:
        shutil.rmtree(old, ignore_errors=True)
