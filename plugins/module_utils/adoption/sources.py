# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a cluster that exists, with the files that they include, and where each line comes from."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    KEY_VALUE,
    Configuration,
    ConfigurationError,
    Pairs,
    add_lines,
    numbered_lines,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import message, shown

Files = Mapping[str, str]
"""Texts by name: a file beside slurm.conf by its name there, another one by its path."""


class AdoptionError(ValueError):
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
        AdoptionError: a line cannot be read, or an included file is missing or includes itself.
    """
    problems: list[str] = []
    found = [*_lines_of(files, name, (name,), problems)] if name in files else []
    if problems:
        raise AdoptionError(problems)
    return found


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
        AdoptionError: an included file is missing or includes itself.
    """
    if name not in KEY_VALUE:
        return files[name]
    parts = []
    for number, line in enumerate(re.split(r"(?<=\n)", files[name]), 1):
        match = _INCLUDE.fullmatch(line.rstrip("\n"))
        for other in included(files, name, match[1]) if match else ():
            if other not in files or other in (*path, name):
                raise AdoptionError([message(f"{name}: line {number}: Include: found {shown(other)}, not found")])
            parts.append(whole_text(files, other, (*path, name)))
        if not match:
            parts.append(line)
    return "".join(parts)


def other_files(files: Files) -> list[str]:
    """The files besides TRANSLATED that no other file includes."""
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
        AdoptionError: a list of hosts cannot be read.
    """
    result = Configuration()
    try:
        for name, found in lines.items():
            add_lines(result, name, (line.pairs for line in found))
    except ConfigurationError as error:
        raise AdoptionError([str(error)]) from None
    return result
