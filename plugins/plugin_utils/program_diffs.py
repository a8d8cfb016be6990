# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diffs of the collection's own programs, of which one line is shown: an administrator decides about settings."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from ..module_utils.decisions.known.program_files import PACKAGE, program_of
from ..module_utils.decisions.known.shipped_files import COLLECTION, ROLES

MODULES = COLLECTION / "plugins/module_utils"
"""Hosts get some of them, which programs import."""


def _body(text: str) -> str:
    """A text without its first line if that names an interpreter, since roles write a line of their own after it."""
    first, _newline, rest = text.partition("\n")
    return (rest if first.startswith("#!") else text).strip("\n")


@cache
def _own_files() -> dict[str, str]:
    """The texts that hosts get as they are, by the name of the file in this collection."""
    paths = [path for path in sorted(ROLES.glob("*/files/**/*")) if path.is_file()]
    paths += [path for path in sorted(MODULES.rglob("*")) if path.is_file()]
    # Python may have left compiled files there, which are no text.
    texts = {path: path.read_bytes().decode(errors="replace") for path in paths if path.suffix != ".pyc"}
    return {path.relative_to(COLLECTION).as_posix(): _body(text) for path, text in texts.items()}


def own_file(text: str) -> str:
    """The file of this collection that a text of a host is made of, by its name here; empty if it is no such text.

    It may begin with lines that a role has put before it. A starter, or a program that is sent, is made of its module.
    """
    if module := program_of(text):
        return (MODULES / module).relative_to(COLLECTION).as_posix()
    end = text.rstrip("\n")
    return next((name for name, body in _own_files().items() if body and end.endswith(body)), "")


def _counted(before: str, after: str) -> str:
    """How many lines of a text are new or other ones."""
    old, new = before.split("\n"), after.rstrip("\n").split("\n")
    if not before:
        return f"new, {len(new)} lines"
    same = sum(block.size for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    return f"{len(new) - same} of {len(new)} lines changed"


def _library_of(diff: Any) -> str:
    """The directory of a library of programs, for the diff of one of its modules; empty for another diff."""
    if not isinstance(diff, Mapping) or not isinstance(diff.get("after"), str) or not own_file(diff["after"]):
        return ""
    directory, package, _path = str(diff.get("after_header", "")).partition(f"/{PACKAGE}/")
    return directory if package else ""


def _library_line(directory: str, diffs: list[Any]) -> dict[str, str]:
    """The diff of the modules of a library, which are all new: another content has another directory."""
    lines = sum(len(diff["after"].rstrip("\n").split("\n")) for diff in diffs)
    line = f"{directory}: {len(diffs)} modules of gpucluster.slurm, {lines} lines (-v shows them)\n"
    return {"before_header": directory, "after_header": directory, "prepared": line}


def shortened(diff: Any) -> Any:
    """A diff, or the list of diffs of several files, with one line in the place of a program of this collection."""
    if isinstance(diff, list):
        found: list[Any] = []
        for directory, group in groupby(diff, _library_of):
            diffs = [*group]
            found += [_library_line(directory, diffs)] if directory else map(shortened, diffs)
        return found
    if not isinstance(diff, Mapping) or not isinstance(diff.get("after"), str) or not (name := own_file(diff["after"])):
        return diff
    path = str(diff.get("after_header", ""))
    count = _counted(str(diff.get("before") or ""), diff["after"])
    kept = {key: value for key, value in diff.items() if key not in ("before", "after")}
    return {**kept, "prepared": f"{path}: {PurePosixPath(name).name} of gpucluster.slurm, {count} (-v shows them)\n"}
