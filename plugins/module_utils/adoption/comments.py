# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comments about what the cluster file of a cluster that exists does not say as its files do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..language.hostlist import expand

LEFT_OUT = "left out"
"""It is not in the cluster file."""
KEPT = "kept"
"""It is in the cluster file as it is, and the collection does not manage it."""
CHANGED = "changed"
"""The cluster file says it otherwise."""


@dataclass(frozen=True)
class Comment:
    """What became of a parameter that the cluster file does not say in the same way."""

    effect: str
    """LEFT_OUT, KEPT or CHANGED."""
    place: str
    """Its file and line, `slurm.conf:12`."""
    table: str
    """The table of parameters that it is in: a file, NodeName or PartitionName."""
    subject: str
    """The nodes (a hostlist) or the partition; empty for a parameter of the whole file."""
    key: str
    why: str

    def __str__(self) -> str:
        subject = f"{self.table}={self.subject} " if self.subject else ""
        return f"{self.place}: {subject}{self.key}: {self.effect}: {self.why}"


def merge_comments(comments: Iterable[Comment]) -> list[Comment]:
    """Comments that differ in the node or partition alone become one."""
    subjects: dict[Comment, list[str]] = {}
    for comment in comments:
        subjects.setdefault(replace(comment, subject=""), []).append(comment.subject)
    return [
        replace(comment, subject=",".join(filter(None, dict.fromkeys(names)))) for comment, names in subjects.items()
    ]


def find_explanations(comments: Iterable[Comment], table: str, subject: str, key: str) -> Iterator[Comment]:
    """Why a parameter is not in the cluster file, or not as it was. subject: a node or a partition, or empty."""
    for comment in comments:
        if comment.effect == KEPT:
            continue
        same = not comment.subject or comment.subject == subject or subject in _hosts(comment.subject)
        if comment.table == table and same and comment.key.lower() in (key.lower(), table.lower()):
            yield comment


def _hosts(text: str) -> list[str]:
    """The names of a hostlist, or the text itself."""
    try:
        return expand(text)
    except ValueError:
        return [text]
