# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a cluster that is translated: its lines, with the places of nodes and partitions, and the comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..cluster import schema
from ..configuration import parameters
from ..configuration.conf_file import by_order_of_names, table_of
from ..configuration.sources import TRANSLATED, Files, SourceError, SourceLine, configuration_of, source_lines
from ..language.formatting import shown
from ..language.hostlist import expand, fold
from .comments import LEFT_OUT, Comment

Entry = dict[str, Any]
"""A mapping of the cluster file: an entry of a list, the parameters of one of Slurm's files, or all of it."""


class ClusterFiles:
    """The files of a cluster, and the comments about what becomes of them.

    Raises:
        SourceError: a file cannot be read, or slurm.conf has no lines.
    """

    def __init__(self, files: Files, version: str) -> None:
        self.files = files
        self.version = version
        self.comments: list[Comment] = []
        self.lines = {name: source_lines(files, name) for name in TRANSLATED}
        if not self.lines["slurm.conf"]:
            raise SourceError(["slurm.conf: missing, or it has no lines"])
        self.says = configuration_of(self.lines)
        self.of_nodes: dict[str, SourceLine] = {}
        self.of_partitions: dict[str, SourceLine] = {}
        self._of_defaults: list[SourceLine] = []
        self._find_places()
        self._comment_on_names()

    def add_comment(
        self, effect: str, line: SourceLine | str, key: str, why: str, table: str, subject: str = ""
    ) -> None:
        """Add a comment."""
        self.comments.append(Comment(effect, str(line), table, subject, key, why))

    def find_name(
        self, table: str, key: str, value: Any, line: SourceLine, kind: schema.Kind[Any], subject: str = ""
    ) -> str | None:
        """The name of a parameter in Slurm's spelling; None, with a comment, if it cannot be in the cluster file.

        Args:
            table, key, value: the parameter.
            line: the line that gives it.
            kind: what the cluster file has in the place of its table.
            subject: the node or partition; empty for a parameter of the whole file.
        """
        parameter = parameters.find(table, key)
        if parameter is None:
            self.add_comment(LEFT_OUT, line, key, "Slurm has no such parameter", table, subject)
            return None
        why = parameters.unread(table, key, self.version) or _refused(kind, parameter.name, value)
        if why:
            self.add_comment(LEFT_OUT, line, parameter.name, why, table, subject)
            return None
        return parameter.name

    def find_place(self, line: SourceLine, key: str) -> SourceLine:
        """The line that gives a node or a partition a parameter: its own, or the last DEFAULT before it that has it."""
        lines = self.lines["slurm.conf"]
        earlier = lines[: lines.index(line)]
        given = [
            other
            for other in self._of_defaults
            if other.pairs[0][0].lower() == line.pairs[0][0].lower() and other in earlier
        ]
        return next(
            (place for place in (line, *reversed(given)) if key.lower() in (name.lower() for name, _ in place.pairs)),
            line,
        )

    def _find_places(self) -> None:
        """The lines of nodes and partitions. Of two lines for one of them, Slurm refuses to start with the second."""
        for line in self.lines["slurm.conf"]:
            kind, name = table_of("slurm.conf", line.pairs), line.pairs[0][1]
            if name.upper() == "DEFAULT":
                self._of_defaults.append(line)
            elif kind == "NodeName":
                again = [host for host in expand(name) if host in self.of_nodes]
                if again:
                    first = self.of_nodes[again[0]]
                    self.add_comment(LEFT_OUT, first, "NodeName", f"it is there again in {line}", kind, fold(again))
                self.of_nodes.update(dict.fromkeys(expand(name), line))
            elif kind == "PartitionName":
                if name in self.of_partitions:
                    first = self.of_partitions[name]
                    self.add_comment(LEFT_OUT, first, "PartitionName", f"it is there again in {line}", kind, name)
                self.of_partitions[name] = line

    def _comment_on_names(self) -> None:
        """Comments on parameters in the place of which Slurm reads another name of them."""
        for (kind, subject), names in self.says.overruled.items():
            line = self.of_partitions[subject] if kind == "PartitionName" else self.of_nodes[expand(subject)[0]]
            for key, first in names:
                self.add_comment(LEFT_OUT, self.find_place(line, key), key, f"Slurm uses {first}", kind, subject)
        for line in self.lines["gres.conf"]:
            for key, first in by_order_of_names("gres.conf", line.pairs)[1]:
                self.add_comment(LEFT_OUT, line, key, f"Slurm uses {first}", "gres.conf")


def plain_value(value: Any) -> Any:
    """A value for YAML: a number where the text is one that is written in the same way."""
    if isinstance(value, list):
        return [plain_value(element) for element in value]
    if isinstance(value, dict):
        return {key: plain_value(element) for key, element in value.items()}
    return int(value) if isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,14}", value) else value


def find_error(typed: Callable[[Any], Any], value: Any) -> str:
    """Why a type refuses a value; empty if it does not."""
    try:
        typed(value)
    except ValueError as error:
        return f"found {shown(value)}, {error}"
    return ""


def _refused(kind: schema.Kind[Any], name: str, value: Any) -> str:
    """Why the cluster file cannot have a parameter with this value; empty if it can."""
    if name not in kind.types:
        keys = kind.derived.get(name)
        return f"it is derived from {keys}" if keys else "the cluster file has no such key"
    return find_error(kind.types[name], value)
