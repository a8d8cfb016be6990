# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a cluster that exists, with the files that they include, and where each line comes from."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..language.formatting import message, shown
from .conf_file import KEY_VALUE, Configuration, ConfigurationError, Pairs, add_lines, numbered_lines
from .parameters import SITE_FILES

Files = Mapping[str, str]
"""Texts by name: a file next to slurm.conf by its name there, another one by its path."""


class SourceError(ValueError):
    """What Slurm would not read either, a line each: `FILE: line N: KEY: found VALUE, allowed: VALUES`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SourceLine(NamedTuple):
    """A line of a file."""

    file: str
    number: int
    pairs: Pairs

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


TRANSLATED = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf")
"""The files that become keys of the cluster file; other ones are kept as they are."""

_CLUSTER_NAME = re.compile(r"^\s*ClusterName\s*=\s*\"?([^\s\"#]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*(#.*)?", re.IGNORECASE)


def source_lines(files: Files, name: str) -> list[SourceLine]:
    """The lines of a file in Slurm's order: those of an included file are in the place of the line that includes it.

    Args:
        files: all texts.
        name: one of KEY_VALUE. Without such a file there are no lines.

    Raises:
        SourceError: a line cannot be read, or an included file is missing or includes itself.
    """
    problems: list[str] = []
    lines = [*_lines_of(files, name, (name,), problems)] if name in files else []
    if problems:
        raise SourceError(problems)
    return lines


def _lines_of(files: Files, kind: str, path: tuple[str, ...], problems: list[str]) -> Iterator[SourceLine]:
    """The lines of the last file of a path of files, each of which includes the next."""
    file = path[-1]
    lines = numbered_lines(kind, files[file], file)
    while True:
        try:
            number, pairs = next(lines)
        except StopIteration:
            return
        except ConfigurationError as error:
            problems.append(str(error))
            return
        if pairs[0][0].lower() != "include":
            yield SourceLine(file, number, pairs)
            continue
        names = included(files, kind, pairs[0][1])
        for name in names:
            if name not in files or name in path:
                why = "which includes itself" if name in path else "which was not found"
                problems.append(message(f"{file}: line {number}: Include: found {shown(name)}, {why}"))
            else:
                yield from _lines_of(files, kind, (*path, name), problems)


def included(files: Files, kind: str, name: str) -> list[str]:
    """The files that an Include names.

    `%c` is the name of the cluster (`_parse_for_format` in `src/common/parse_config.c`). In plugstack.conf the name is
    a pattern of glob(3), which may match nothing (`_spank_stack_load` in `src/common/spank.c`).
    """
    if kind == "plugstack.conf":
        return sorted(fnmatch.filter(files, name))
    cluster = _CLUSTER_NAME.search(files.get("slurm.conf", ""))
    return [name.replace("%c", cluster[1].lower() if cluster else "%c")]


def whole_text(files: Files, name: str, path: tuple[str, ...] = ()) -> str:
    """The text of a file, with the texts of the files that it includes, for one that is kept as it is.

    Raises:
        SourceError: an included file is missing or includes itself.
    """
    kind = (*path, name)[0]
    if kind not in KEY_VALUE:
        return files[name]
    parts = []
    for number, line in enumerate(re.split(r"(?<=\n)", files[name]), 1):
        match = _INCLUDE.fullmatch(line.rstrip("\n"))
        for other in included(files, kind, match[1]) if match else ():
            if other not in files or other in (*path, name):
                raise SourceError([message(f"{name}: line {number}: Include: found {shown(other)}, not found")])
            parts.append(whole_text(files, other, (*path, name)))
        if not match:
            parts.append(line)
    return "".join(parts)


def other_files(files: Files) -> list[str]:
    """The files other than TRANSLATED that no other file includes."""
    waiting = [(name, name) for name in files if name in KEY_VALUE]
    within: set[str] = set()
    while waiting:
        kind, name = waiting.pop()
        for line in files[name].split("\n"):
            match = _INCLUDE.fullmatch(line)
            for other in included(files, kind, match[1]) if match else ():
                if other in files and other not in within:
                    within.add(other)
                    waiting.append((kind, other))
    return [name for name in files if name not in TRANSLATED and name not in within]


def configuration_of(lines: Mapping[str, list[SourceLine]]) -> Configuration:
    """The settings of files, given by the lines of each.

    Raises:
        SourceError: a list of hosts cannot be read.
    """
    result = Configuration()
    try:
        for name, found in lines.items():
            add_lines(result, name, (line.pairs for line in found))
    except ConfigurationError as error:
        raise SourceError([str(error)]) from None
    return result


def read_files(conf: Path) -> dict[str, str]:
    """The files of a cluster on this host: slurm.conf, those that Slurm finds next to it, and all that they include.

    Programs that Prolog and Epilog name without a path are next to slurm.conf too. slurmdbd.conf, which has a password,
    is none of them.

    Raises:
        SourceError: slurm.conf cannot be read as Slurm's, or an included file is missing.
        OSError: a file that is there cannot be read.
    """
    files = {"slurm.conf": _text(conf)}
    _read_included(conf.parent, "slurm.conf", "slurm.conf", files)
    programs = {
        value
        for line in source_lines(files, "slurm.conf")
        for key, value in line.pairs
        if key.lower() in ("prolog", "epilog") and "/" not in value
    }
    others = {*KEY_VALUE, *SITE_FILES} - {"slurm.conf", "slurmdbd.conf"}
    for name in sorted({*others, *programs}):
        if (conf.parent / name).is_file():
            files[name] = _text(conf.parent / name)
            if name in KEY_VALUE:
                _read_included(conf.parent, name, name, files)
    return files


def _read_included(directory: Path, kind: str, name: str, files: dict[str, str]) -> None:
    """Read the files that a file includes, and those that these include. A missing one is named when it is used."""
    for line in files[name].split("\n"):
        match = _INCLUDE.fullmatch(line)
        if not match:
            continue
        if kind == "plugstack.conf":
            # `/` keeps an absolute pattern as it is.
            paths = [path for path in glob.glob(str(directory / match[1])) if os.path.isfile(path)]
            names = paths if match[1].startswith("/") else [os.path.relpath(path, directory) for path in paths]
        else:
            names = [other for other in included(files, kind, match[1]) if (directory / other).is_file()]
        for other in names:
            if other not in files:
                files[other] = _text(directory / other)
                _read_included(directory, kind, other, files)


def _text(path: Path) -> str:
    """The text of a file. Slurm takes any bytes, and comments of some are older than UTF-8."""
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")
