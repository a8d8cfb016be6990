# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a YAML file for the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from math import isfinite
from typing import Any

import yaml
from ansible.module_utils.common.yaml import SafeLoader

from ..module_utils.cluster.model import Document, ModelError
from ..module_utils.language.formatting import KEY, OR_TEXT, READ_AS, message, short, shown

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
_BOOLEANS = ("true", "false", "yes", "no")
"""Those that are booleans to Slurm as well (`s_p_handle_boolean`); to it, `OFF` is a text, as in PreemptMode."""

_OPEN = (0, 0)

_ENTITY = re.compile(r"(?:accounting: )?((?:qos|account|user) [^: ]+)")
"""How the problem of an entry of the policy for accounting begins: `account physics`."""
_ENTRIES = re.compile(r"(?:accounting\.)?(?:(qos)|(user)s|(account)s(?:\[[0-9]+\]\.accounts)*)")
"""A list of such entries."""

_LAST_PART = re.compile(r"(?:\[[0-9]+\]|\.[^.\[]*)$")
"""The last part of a key: `[1]` or `.MaxTime`."""
_TYPESET = re.compile("[\u201c\u201d\u2018\u2019\u00ab\u00bb]")
_HAS_LINE = re.compile(r"[^:]*: line [0-9?]+: ")
_OF_BLOCKS = re.compile(r"expected (?:key|'-' indicator)|not allowed in this context")
"""Problems of YAML that a wrong indentation causes."""
_NO_SPACE = re.compile(r"\s*(?:- )?\w+:\w")


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
        return Document(file, loader.construct_document(root) if root else None, nodes.problems, nodes.texts)
    except yaml.YAMLError as error:
        raise ModelError([f"{file}: {_unreadable(error, text)}"]) from None
    finally:
        loader.dispose()


def located(problems: Sequence[str], texts: Mapping[str, bytes]) -> list[str]:
    """Problems of files (`FILE: KEY: ...`) with the line of each key, or else of the one that would have it.

    texts: those of the files, by name. Only a run that ends at these problems looks for lines. A file that `read` has
    refused has them already, and could not be read here either.
    """
    without = {problem.partition(": ")[0] for problem in problems if not _HAS_LINE.match(problem)}
    lines = {file: _key_lines(text) for file, text in texts.items() if file in without}
    return [_located(problem, lines) for problem in problems]


def _located(problem: str, lines: Mapping[str, Mapping[str, int]]) -> str:
    file, _colon, rest = problem.partition(": ")
    entity = _ENTITY.match(rest)
    key = entity[1] if entity and entity[1] in lines.get(file, {}) else rest.partition(": ")[0]
    while key and key not in lines.get(file, {}):
        key = _LAST_PART.sub("", key) if _LAST_PART.search(key) else ""
    return f"{file}: line {lines[file][key]}: {rest}" if key else problem


def _key_lines(text: bytes) -> dict[str, int]:
    """The line of each key of a file; that of the last one, where it is given twice."""
    found: dict[str, int] = {}
    with suppress(yaml.YAMLError):  # a file that YAML cannot read has no keys: its message names the line itself
        _add_lines(yaml.compose(text, Loader=SafeLoader), "", found, set())
    return found


def _add_lines(node: yaml.Node | None, key: str, found: dict[str, int], seen: set[int]) -> None:
    """Add the lines of the keys in a node, each node once: an alias is the node that it names."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            child = f"{key}.{name.value}" if key else str(name.value)
            found[child] = name.start_mark.line + 1
            _add_lines(value, child, found, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found[f"{key}[{index}]"] = value.start_mark.line + 1
            if entity := _entity(key, value):
                found.setdefault(entity, value.start_mark.line + 1)
            _add_lines(value, f"{key}[{index}]", found, seen)


def _entity(key: str, value: yaml.Node) -> str:
    """An entry of a list of the policy as messages name it: `account physics`; empty for another value."""
    match = _ENTRIES.fullmatch(key)
    if isinstance(value, yaml.MappingNode):
        value = next((found for name, found in value.value if name.value == "name"), value)
    return (
        f"{match[match.lastindex or 0]} {value.value.lower()}" if match and isinstance(value, yaml.ScalarNode) else ""
    )


def _unreadable(error: yaml.YAMLError, text: bytes) -> str:
    """The message for a text that is no YAML, without the file."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text[: error.position].count(b"\n") + 1
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return f"line {line}: cannot be read as YAML: found the character #x{character:02x}: {error.reason}"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if not mark:
        return message(f"cannot be read as YAML: {problem or error}")
    place, hint = mark.line + 1, _hint(str(problem), text.decode().split("\n"), mark.line)
    return message(f"line {place}: cannot be read as YAML: {problem or error}{hint}")


def _hint(problem: str, lines: Sequence[str], at: int) -> str:
    """What is probably wrong in a line that YAML cannot read, or in the line before it, where a mistake often is."""
    for number in (at, at - 1):
        line = lines[number] if 0 <= number < len(lines) else ""
        name = "this line" if number == at else f"line {number + 1}"
        if "\t" in line[: len(line) - len(line.lstrip())] or line.lstrip(" ").startswith("\t"):
            return f"; {name} is indented with a tab: write spaces"
        if "\t" in line:
            return f"; {name} has a tab: write a space"
        if _TYPESET.search(line):
            return f"; {name} has typographic quotes: write \" or '"
        if _NO_SPACE.match(line):
            return f"; {name} has no space after the colon"
    return f"; is line {at} or {at + 1} indented differently from its neighbours?" if _OF_BLOCKS.search(problem) else ""


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
        """Mistakes that YAML accepts, as (key, problem): keys that are given twice, of which YAML uses the last, and
        values that are others than their text (1:00:00 is 3600, 010 is 8, OFF is false)."""
        self.texts: dict[str, str] = {}
        """The texts of booleans, and of the values among `problems`, by key."""
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
            self._scalar(name, child, is_key=True)
            if name.value in lines:
                self.problems.append((child, f"is given twice, in lines {lines[name.value]} and {line}"))
            lines[name.value] = line
            values.append((value, child))
        return values

    def _scalar(self, node: yaml.ScalarNode, key: str, *, is_key: bool = False) -> None:
        """Read a value as YAML does, whose errors name neither the key nor always the line."""
        found = f"found {shown(node.value)}"
        if node.tag not in _SCALARS:
            what = f"{found} with the tag {shown(node.tag)}, allowed: no tag; write a text in quotes"
            self.refused.append(self._message(node, key, what))
        elif node.tag == f"{_YAML}str" or node.tag == f"{_YAML}merge":
            return
        elif len(node.value) > DIGITS:
            self.refused.append(self._message(node, key, f"{found}, allowed: numbers of up to {DIGITS} digits"))
        else:
            try:
                self._compare(node, key, self.loader.construct_object(node), is_key=is_key)
            except (ValueError, LookupError, AttributeError, TypeError, OverflowError, yaml.YAMLError):
                what = f"{found}, which YAML takes for {_SCALARS[node.tag]} and cannot read: write it in quotes"
                self.refused.append(self._message(node, key, what))

    def _compare(self, node: yaml.ScalarNode, key: str, value: Any, *, is_key: bool) -> None:
        """Record a value that is another one than its text: a name 010 would be 8."""
        if isinstance(value, float) and not isfinite(value):
            what = f"found {shown(node.value)}, allowed: a number, or a text in quotes"
            self.refused.append(self._message(node, key, what))
            return
        if not is_key and (isinstance(value, bool) or not _is_as_written(node.value, value, is_key=False)):
            self.texts[key] = node.value
        if not _is_as_written(node.value, value, is_key=is_key):
            what = _name_value(node.value, value, is_key=is_key)
            self.problems.append((key, f"found {node.value}{READ_AS}{what}"))

    def _message(self, node: yaml.Node, key: str, what: str) -> str:
        """The message of a problem with a node."""
        place = f"{self.file}: line {node.start_mark.line + 1}"
        return message(f"{place}: {f'{short(key, KEY)}: ' if key else ''}{what}")


def _is_as_written(text: str, value: Any, *, is_key: bool) -> bool:
    """Whether a value that YAML takes for no text is what its text says. A key is always meant as a text."""
    if value is None:
        return not is_key and text in ("", "~", "null")
    if isinstance(value, bool):
        return not is_key and text.lower() in _BOOLEANS
    if isinstance(value, date):
        return bool(value.isoformat() == text.replace(" ", "T"))
    return str(value) == text


def _name_value(text: str, value: Any, *, is_key: bool) -> str:
    """The value that YAML reads in place of a text, and how to write what was meant."""
    if isinstance(value, date):
        return f"the date {value.isoformat()}: write it in quotes"
    if value is None or isinstance(value, bool):
        name = "null" if value is None else str(value).lower()
        return f"{name}: write {'it in quotes' if is_key else f'{name}{OR_TEXT}'}"
    if ":" in text:
        return "a number to the base 60: write it in quotes"
    return f"the number {value}: write {value}{OR_TEXT}"
