# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that slurm_config keeps on a host: the last good ones, the previous ones, and those of another origin."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

from ..configuration.conf_file import read
from ..host.files import File, write
from ..host.script_checks import content_of
from . import removed_hosts
from .controller_host import text
from .daemons import FAILED

KEPT = "/var/lib/gpucluster-slurm"
GOOD = f"{KEPT}/good"
HOSTS = removed_hosts.HOSTS
PREVIOUS = f"{KEPT}/former"
FOUND = f"{KEPT}/found"
"""Slurm's files of a cluster of another origin, as they were before the collection wrote its own."""
READ_AT_START = f"{KEPT}/slurmd"
"""The settings that slurmd reads from the files in force only when it starts."""
SLURMCTLD_FILES = ("cgroup.conf", "gres.conf", "plugstack.conf", "slurm.conf")
FILES = f"{KEPT}/files"
"""The names of slurmctld's files in GOOD, each with its checksum."""
PROGRAMS = f"{KEPT}/programs"
"""The programs in force that can drain nodes. The time of the file is that of their last change."""
NODES = "nodes"
"""Name of the file in PREVIOUS with the nodes that were up before the change."""


def read_texts(directory: str, names: Sequence[str]) -> dict[str, str]:
    """The texts of those of the files that are in a directory."""
    texts = {name: text(os.path.join(directory, name)) for name in names}
    return {name: content for name, content in texts.items() if content is not None}


def read_good_texts(directory: str, names: Sequence[str]) -> dict[str, str]:
    """The last good texts of files, and those in the directory of files of which no good one is kept."""
    return read_texts(directory, names) | read_texts(GOOD, names)


def list_records() -> list[str]:
    """The paths of what is kept about slurmctld, apart from its files."""
    return [FILES, PROGRAMS, READ_AT_START, HOSTS, PREVIOUS]


def read_recorded_names() -> list[str]:
    """The names of slurmctld's files in GOOD, which also has the files of slurmdbd."""
    list_of_files = text(FILES)
    if list_of_files is None:  # the last run was one of version 0.1
        return [name for name in SLURMCTLD_FILES if os.path.exists(os.path.join(GOOD, name))]
    return [line.partition(" ")[2] for line in list_of_files.split("\n")]


def list_files(texts: Mapping[str, str]) -> str:
    """The checksum and the name of each file, as FILES has them."""
    return "\n".join(f"{sha256(content_of(texts[name])).hexdigest()} {name}" for name in sorted(texts))


def keep_good_files(texts: Mapping[str, str], at_start: str | None) -> None:
    """Keep the files as the last good ones, and the settings that each slurmd reads from them when it starts."""
    os.makedirs(GOOD, mode=0o700, exist_ok=True)
    kept = [File(os.path.join(GOOD, name), content_of(text), mode=0o600) for name, text in texts.items()]
    gone: set[str] = set()
    if at_start is not None:
        settings = read(texts).settings
        programs = "\n".join("=".join(settings.get(("slurm.conf", key), (key, ""))) for key in FAILED)
        kept += [File(READ_AT_START, at_start.encode()), File(PROGRAMS, programs.encode())]
        kept += [File(FILES, list_files(texts).encode())]
        gone = {*read_recorded_names()} - texts.keys()
    write(kept)
    remove_files(GOOD, gone)


def remove_files(directory: str, names: Iterable[str]) -> None:
    """Remove files of a directory, if they are there."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))


def find_program_time() -> float:
    """When the programs in force that can drain nodes came in force, in seconds since the epoch; 0 if not known."""
    times = [os.stat(path).st_mtime for path in (PROGRAMS, f"{GOOD}/slurm.conf") if os.path.exists(path)]
    return times[0] if times else 0


def copy_owned(source: str, target: str) -> None:
    """Copy a file with its owner: slurmdbd refuses a slurmdbd.conf of somebody else."""
    shutil.copy2(source, target, follow_symlinks=False)
    owner = os.lstat(source)
    os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)


def keep_found(directory: str) -> None:
    """Keep the files of a cluster of another origin before they are replaced, for the day when it is given back."""
    if not os.path.exists(FOUND):
        os.makedirs(KEPT, mode=0o755, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as part:
            whole = os.path.join(part, "found")
            shutil.copytree(directory, whole, symlinks=True, copy_function=copy_owned)
            os.chmod(whole, 0o700)  # slurmdbd.conf has a password
            os.rename(whole, FOUND)


def keep_previous_files(texts: Mapping[str, str], nodes: Sequence[str]) -> None:
    """Keep the files that a change replaces, and the nodes that were up; those before an unconfirmed change stay."""
    if not os.path.isdir(PREVIOUS):
        shutil.rmtree(f"{PREVIOUS}.new", ignore_errors=True)  # only a run that was killed has left one
        os.makedirs(f"{PREVIOUS}.new", mode=0o700)
        kept = {**texts, NODES: "\n".join(nodes)}
        write([File(f"{PREVIOUS}.new/{name}", content_of(text), mode=0o600) for name, text in kept.items()])
        os.rename(f"{PREVIOUS}.new", PREVIOUS)


def remove_previous_files() -> None:
    """Remove the previous files. Their directory gets another name first, so that it is never there in part."""
    shutil.rmtree(f"{PREVIOUS}.old", ignore_errors=True)  # only a run that was killed has left one
    if os.path.isdir(PREVIOUS):
        os.rename(PREVIOUS, f"{PREVIOUS}.old")
        shutil.rmtree(f"{PREVIOUS}.old")


def read_previous_files() -> tuple[dict[str, str], list[str]]:
    """The files that were in force before an unconfirmed change, and the nodes that were up; both empty without one."""
    texts = read_texts(PREVIOUS, os.listdir(PREVIOUS) if os.path.isdir(PREVIOUS) else [])
    return texts, texts.pop(NODES, "").split()
