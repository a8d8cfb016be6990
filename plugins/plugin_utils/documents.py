# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a YAML file for the model."""

from __future__ import annotations

from math import isfinite

import yaml
from ansible.module_utils.common.yaml import SafeLoader
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.formatting import KEY, message, short, shown

DEPTH = 32
"""How deep the values of a file may be nested; libyaml ends the process at some ten thousands."""

VALUES = 500_000
"""Values of a file, those of an alias counted wherever it is used: a policy for 30,000 users has as many."""

DIGITS = 100
"""Characters of a value that is no text; Python refuses to show numbers of some thousand digits."""

_YAML = "tag:yaml.org,2002:"
_SCALARS = {
    f"{_YAML}{tag}": name
    for tag, name in {
        "str": "a text",
        "null": "null",
        "bool": "a boolean",
        "int": "a number",
        "float": "a number",
        "timestamp": "a date",
        "merge": "a merge key",
    }.items()
}
_OPEN = (0, 0)


def read(file: str, text: bytes) -> Document:
    """Read the text of a file. Mistakes that YAML accepts without a message are problems here.

    Raises ModelError for a text that is no YAML, or that stands for more than memory or time would allow.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ModelError([f"{file}: line {line}: is not in UTF-8, allowed: a file in UTF-8"]) from None
    try:
        loader = SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise ModelError([f"{file}: {_unreadable(error, text)}"]) from None
    try:
        _check_nesting(file, text)
        root = loader.get_single_node()
        nodes = _Nodes(file, loader)
        if root:
            nodes.measure(root, "")
        if nodes.refused:
            raise ModelError(nodes.refused)
        return Document(file, loader.construct_document(root) if root else None, nodes.problems)
    except yaml.YAMLError as error:
        raise ModelError([f"{file}: {_unreadable(error, text)}"]) from None
    finally:
        loader.dispose()


def _unreadable(error: yaml.YAMLError, text: bytes) -> str:
    """The message for a text that is no YAML, without the file."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text[: error.position].count(b"\n") + 1
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return f"line {line}: cannot be read as YAML: found the character #x{character:02x}: {error.reason}"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return message(f"line {mark.line + 1 if mark else '?'}: cannot be read as YAML: {problem or error}")


def _check_nesting(file: str, text: bytes) -> None:
    """Refuse values that are nested too deep, before YAML's composer, which calls itself for each level."""
    depth = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else "?"
                raise ModelError([f"{file}: line {line}: values are nested too deep, allowed: up to {DEPTH} levels"])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Nodes:
    """Goes through the nodes of a document, each once, and records their mistakes."""

    def __init__(self, file: str, loader: SafeLoader) -> None:
        self.file = file
        self.loader = loader
        self.problems: list[tuple[str, str]] = []
        """Mistakes that YAML accepts, as (key, problem): keys that are given twice, of which YAML uses the last, times
        that it reads as numbers (1:00:00 is 3600), and numbers that are others than they seem (010 is 8)."""
        self.refused: list[str] = []
        """Values that YAML does not accept, a message for each."""
        self._sizes: dict[int, tuple[int, int]] = {}

    def measure(self, node: yaml.Node, key: str) -> tuple[int, int]:
        """The number of values that a node stands for, and their depth; an alias is the node that it names.

        Raises ModelError for too many or too deep ones.
        """
        size = self._sizes.get(id(node))
        if size is _OPEN:
            raise ModelError([self._message(node, key, "is in itself by an alias")])
        if size is None:
            self._sizes[id(node)] = _OPEN
            inner = [self.measure(child, name) for child, name in self._children(node, key)]
            size = 1 + sum(values for values, _depth in inner), 1 + max((depth for _values, depth in inner), default=0)
            self._sizes[id(node)] = size
            if size[0] > VALUES:
                what = f"it is {size[0]} values with those of its aliases, allowed: up to {VALUES}"
                raise ModelError([self._message(node, key, what)])
            if size[1] > DEPTH + 1:
                what = f"values are nested too deep by aliases, allowed: up to {DEPTH} levels"
                raise ModelError([self._message(node, key, what)])
        return size

    def _children(self, node: yaml.Node, key: str) -> list[tuple[yaml.Node, str]]:
        """The values in a node, with their keys; a scalar has none."""
        if isinstance(node, yaml.ScalarNode):
            self._scalar(node, key)
            return []
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
            return self._of_mapping(node, key)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
            return [(value, f"{key}[{index}]") for index, value in enumerate(node.value)]
        self.refused.append(self._message(node, key, f"found the tag {shown(node.tag)}, allowed: no tag"))
        return []

    def _of_mapping(self, node: yaml.MappingNode, key: str) -> list[tuple[yaml.Node, str]]:
        """The values of a mapping, with their keys."""
        lines: dict[str, int] = {}
        values = []
        for name, value in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                self.refused.append(self._message(name, key, "found a list or a mapping as key, allowed: a text"))
                continue
            child = f"{key}.{name.value}" if key else str(name.value)
            self._scalar(name, child)
            if name.value in lines:
                self.problems.append((child, f"is given twice, in lines {lines[name.value]} and {line}"))
            lines[name.value] = line
            values.append((value, child))
        return values

    def _scalar(self, node: yaml.ScalarNode, key: str) -> None:
        """Read a value as YAML does, whose errors name neither the key nor always the line."""
        found = f"found {shown(node.value)}"
        if node.tag not in _SCALARS:
            what = f"{found} with the tag {shown(node.tag)}, allowed: no tag; write a text in quotes"
            self.refused.append(self._message(node, key, what))
        elif node.tag == f"{_YAML}str" or node.tag == f"{_YAML}merge":
            return
        elif len(node.value) > DIGITS:
            self.refused.append(self._message(node, key, f"{found}, allowed: numbers of up to {DIGITS} digits"))
        elif ":" in node.value and node.tag in (f"{_YAML}int", f"{_YAML}float"):
            what = f"found {node.value}, which YAML reads as a number to the base 60: write it in quotes"
            self.problems.append((key, what))
        else:
            try:
                self._number(node, key, self.loader.construct_object(node))
            except (ValueError, LookupError, AttributeError, TypeError, OverflowError, yaml.YAMLError):
                what = f"{found}, which YAML takes for {_SCALARS[node.tag]} and cannot read: write it in quotes"
                self.refused.append(self._message(node, key, what))

    def _number(self, node: yaml.ScalarNode, key: str, value: object) -> None:
        """Record a number that is not what it seems: a name 010 would be 8."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or str(value) == node.value:
            return
        if isinstance(value, float) and not isfinite(value):
            what = f"found {shown(node.value)}, allowed: a number, or a text in quotes"
            self.refused.append(self._message(node, key, what))
        else:
            what = f"found {node.value}, which YAML reads as the number {value}"
            self.problems.append((key, f"{what}: write {value}, or a text in quotes"))

    def _message(self, node: yaml.Node, key: str, what: str) -> str:
        """The message of a problem with a node."""
        place = f"{self.file}: line {node.start_mark.line + 1}"
        return message(f"{place}: {f'{short(key, KEY)}: ' if key else ''}{what}")
