# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits the text of a cluster file: only the values that change, so that comments, order and layout stay.

A library that writes YAML would lay out the whole file anew, or be one more requirement of each control host. The
edited text is read again, and must have the data that the edits give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import yaml
from ansible.module_utils.common.yaml import SafeLoader

from ..module_utils.cluster.model import ModelError
from ..module_utils.cluster.removal import Edit, apply_edits, key_name, replace_pieces
from .documents import read

Place = tuple[int, int, str]
"""Where a text begins and ends that is replaced by another one."""


def edited(file: str, text: str, changes: Sequence[Edit]) -> str:
    """The text of a file after edits. Raises ModelError if it cannot be edited."""
    # A valid cluster file is not empty.
    root = cast("yaml.Node", yaml.compose(text, Loader=SafeLoader))
    result = text
    # An alias is edited once, where its anchor is.
    for start, end, new in sorted({_place(file, text, root, edit) for edit in changes}, reverse=True):
        result = result[:start] + new + result[end:]
    try:
        right = read(file, result.encode()).data == apply_edits(read(file, text.encode()).data, changes)
    except ModelError:
        right = False
    if not right:
        raise ModelError([f"{file}: cannot be edited without a change of other values: {_by_hand(changes)}"])
    return result


def _by_hand(changes: Sequence[Edit]) -> str:
    """What a person has to change."""
    return "change it by hand: " + ", ".join(key_name(edit.key) for edit in changes)


def _place(file: str, text: str, root: yaml.Node, edit: Edit) -> Place:
    """Where an edit changes the text. Raises ModelError if the text says the value in another way."""
    *way, last = edit.key
    parent = root
    for part in way:
        parent = _child(parent, part)[1]
    first, node = _child(parent, last)
    if not edit.pieces:
        around = cast("yaml.CollectionNode", parent)  # the entry was found in it
        return (*(_flow(around, first, node) if around.flow_style else _block(text, around, first, node)), "")
    start, end = node.start_mark.index, node.end_mark.index
    try:
        return start, end, replace_pieces(text[start:end], edit.pieces)
    except ValueError:
        where = f"line {node.start_mark.line + 1}: {key_name(edit.key)}"
        raise ModelError([f"{file}: {where}: cannot be edited: {_by_hand([edit])}"]) from None


def _child(parent: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node]:
    """An entry of a list or mapping: where it begins, which is the key in a mapping, and its value.

    Raises ModelError if a merge key (`<<`) or an alias brings it.
    """
    if isinstance(parent, yaml.SequenceNode) and isinstance(part, int):
        return parent.value[part], parent.value[part]
    for key, value in parent.value if isinstance(parent, yaml.MappingNode) else ():
        if key.value == str(part):
            return key, value
    raise ModelError([f"line {parent.start_mark.line + 1}: {part} comes from a merge key: change it by hand"])


def _end(node: yaml.Node) -> int:
    """Where a value ends, without the comments and empty lines after it, which YAML counts among a block."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _block(text: str, parent: yaml.Node, first: yaml.Node, node: yaml.Node) -> tuple[int, int]:
    """The lines of an entry of a block; of a list, from its dash."""
    start = first.start_mark.index
    if isinstance(parent, yaml.SequenceNode):
        start = text.rindex("-", 0, start)
    begin = text.rfind("\n", 0, start) + 1
    end = _end(node)
    newline = text.find("\n", end - 1 if text[end - 1 : end] == "\n" else end)
    # The first entry of a block that begins behind something else, as in `- - a`, is left to a person: the check of
    # the result refuses it.
    return begin, len(text) if newline < 0 else newline + 1


def _flow(parent: yaml.CollectionNode, first: yaml.Node, node: yaml.Node) -> tuple[int, int]:
    """An entry within brackets or braces, with a comma."""
    entries = [entry if isinstance(entry, tuple) else (entry, entry) for entry in parent.value]
    place = next(i for i, entry in enumerate(entries) if entry[0] is first)
    if place + 1 < len(entries):
        return first.start_mark.index, entries[place + 1][0].start_mark.index
    start = entries[place - 1][1].end_mark.index if place else first.start_mark.index
    return start, int(node.end_mark.index)
