# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that leave the cluster: the edits of the cluster file without them, and why some nodes cannot leave.

The values of the cluster file are edited here, and `plugin_utils/cluster_file.py` does the same to its text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..language.formatting import short, shown
from ..language.hostlist import expand, fold, without
from .keys import KEYS, hosts_in
from .model import DeclaredCluster, Document, ModelError, group_names
from .schema import unknown

OPTION = "remove_nodes"
"""The extra variable that names the nodes."""

Key = tuple["str | int", ...]
"""The keys and numbers that lead to a value of a file."""

SEARCHED = ("nodes", "partitions", "storage", "slurm_conf", "slurm_files", "accounting")
"""Keys whose values can name nodes."""

OTHER_NAMES = ("hardware", "name", "feature", "features", "path", "source", "type")
"""Keys there whose values are names of something else, in lower case."""

LISTS = ("nodes", "suspendexcnodes")
"""Parameters of slurm.conf whose value is a list of nodes, in lower case."""

# In a text, such as that of topology.conf or topology.yaml.
_LIST = re.compile(r"\bnodes\s*[=:]\s*[\"']?((?:[^\s\[\]\"';#,]|\[[^\[\]\s]*\]|,)+)", re.IGNORECASE)
_WORD = re.compile(r"(?:[^\s\[\]=:;\"'(){}]|\[[^\[\]\s]*\])+")


@dataclass(frozen=True)
class Edit:
    """A change of one value of the file."""

    key: Key
    pieces: tuple[tuple[str, str], ...] = ()
    """Parts of its text with what replaces them, in their order. Without any, the value is removed with its key."""


def key_name(key: Key) -> str:
    """A key as messages show it: `nodes[1].hosts`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def edits(file: str, data: Mapping[str, Any], names: Sequence[str], policy: Document | None = None) -> list[Edit]:
    """The edits of a valid cluster file after which no value names these nodes any more.

    policy: the file that has its policy for accounting. Raises ModelError if that needs a decision of a person.
    """
    leaving, found = dict.fromkeys(names), _Edits(file, policy.file if policy else "")
    found.refuse_servers(data, leaving)
    found.refuse_unknown(data, leaving)
    found.nodes(data, leaving)
    found.partitions(data, leaving)
    found.storage(data, leaving)
    found.addresses(("addresses",), data.get("addresses"), leaving, "give the nodes among these their address in nodes")
    machines = (data.get("machines") or {}).get("addresses")
    found.addresses(("machines", "addresses"), machines, leaving, "give those that stay an entry of their own")
    found.further_addresses(data, leaving)
    for key, value in _scalars(data.get("slurm_conf") or {}, ("slurm_conf",)):
        if str(key[-1]).lower() in LISTS:
            found.hostlist(key, value, leaving)
    for key, value in _scalars(data.get("slurm_files") or {}, ("slurm_files",)):
        found.text(key, str(value), leaving)
    found.refuse_others({**data, "accounting": policy.data} if policy else data, leaving)
    if found.problems:
        raise ModelError(found.problems)
    return found.edits


def nodes_of(data: Mapping[str, Any]) -> list[str]:
    """The nodes of a valid cluster file."""
    return [name for entry in data.get("nodes") or [] for name in expand(str(entry.get("hosts", "")))]


def apply_edits(data: Any, changes: Sequence[Edit]) -> Any:
    """The data of a file after edits."""
    result = copy.deepcopy(data)
    # The last entries of a list first, so that the numbers of the others stay.
    for edit in reversed(changes):
        *way, last = edit.key
        place = result
        for part in way:
            place = place[part]
        if edit.pieces:
            place[last] = replace_pieces(str(place[last]), edit.pieces)
        else:
            del place[last]
    return result


def replace_pieces(text: str, pieces: Sequence[tuple[str, str]]) -> str:
    """A text with its pieces replaced, in their order. Raises ValueError if it does not have one."""
    parts, place = [], 0
    for before, after in pieces:
        start = text.index(before, place)
        parts += [text[place:start], after]
        place = start + len(before)
    return "".join([*parts, text[place:]])


def describe_empty(partition: str, names: Sequence[str]) -> str:
    """The problem of a partition that would have no node."""
    return f"partition {partition} would have no node without {fold([*names])}: remove it or give it other nodes first"


def find_emptied(before: DeclaredCluster, after: DeclaredCluster) -> list[str]:
    """The partitions that have nodes before, and none afterwards, also because of node sets."""
    names = [str(partition["name"]) for partition in before.variables["slurm_partitions"]]
    groups = group_names("partition", names)
    return [name for name in names if before.groups[groups[name]] and not after.groups.get(groups[name])]


def _scalars(value: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    """All single values in a value, with their keys."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _scalars(item, (*key, str(name)))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _scalars(item, (*key, i))
    else:
        yield key, value


def _names_in(text: str) -> Iterator[str]:
    """The names in a text, those of hostlists expanded. A comment has none."""
    for line in text.split("\n"):
        for word in _WORD.findall(line.partition("#")[0]):
            yield from _names(word)


def _names(word: str) -> list[str]:
    """The names of a hostlist; none if it is no hostlist."""
    try:
        return expand(word)
    except ValueError:
        return []


def _places(hostlist: str, leaving: Collection[str]) -> set[int]:
    """The places of leaving nodes in a hostlist."""
    return {place for place, name in enumerate(_names(hostlist)) if name in leaving}


class _Edits:
    """Collects the edits of a file, and the reasons against them."""

    def __init__(self, file: str, policy_file: str) -> None:
        self.file = file
        self.policy_file = policy_file
        self.edits: list[Edit] = []
        self.problems: list[str] = []
        self.servers: set[str] = set()
        """Leaving hosts that serve the cluster."""

    def problem(self, key: Key, what: str) -> None:
        """Record why the nodes cannot leave."""
        file, way = (self.policy_file, key[1:]) if self.policy_file and key[0] == "accounting" else (self.file, key)
        self.problems.append(f"{file}: {key_name(way)}: {what}")

    def refuse_servers(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Refuse hosts that the cluster needs for more than jobs."""
        for key in (key for key in KEYS if key.removal):
            serving = [name for name in expand(str(hosts_in(data.get(key.name) or ""))) if name in leaving]
            if serving:
                self.problem((key.name,), f"{fold(serving)} cannot leave the cluster: {key.removal}")
            self.servers.update(serving)

    def refuse_unknown(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Refuse names that are no nodes."""
        known = nodes_of(data)
        if not leaving:
            self.problems.append(f"{OPTION}: found no name, allowed: nodes of {self.file}: {short(fold(known))}")
        for name in leaving:
            if name not in known and name not in self.servers:
                what = unknown("node", name, known, f"nodes of {self.file}: {short(fold(known))}")
                self.problems.append(f"{OPTION}: found {shown(name)}, {what}")

    def hostlist(self, key: Key, found: Any, leaving: Collection[str]) -> None:
        """Edit a list of nodes, which can have other names as well."""
        text = str(found or "")
        if places := _places(text, leaving):
            self.edits.append(Edit(key, ((text, without(text, places)),)))

    def nodes(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Edit the entries of nodes, with their addresses; remove those whose hosts all leave."""
        if self._entries("nodes", data, leaving):
            self.problem(("nodes",), f"{fold([*leaving])} cannot leave the cluster, which would have no node")

    def _entries(self, part: str, data: Mapping[str, Any], leaving: Collection[str]) -> bool:
        """Edit entries with `hosts`, and with hostlists of the same length; whether none would be left."""
        entries = data.get(part) or []
        gone = 0
        for i, entry in enumerate(entries):
            hosts = str(entry.get("hosts", ""))
            places = _places(hosts, leaving)
            if places and len(places) == len(expand(hosts)):
                self.edits.append(Edit((part, i)))
                gone += 1
            elif places:
                for key in ("hosts", "names", "address"):
                    if entry.get(key):
                        text = str(entry[key])
                        self.edits.append(Edit((part, i, key), ((text, without(text, places)),)))
        return bool(entries) and gone == len(entries)

    def further_addresses(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Edit the further addresses of nodes."""
        before = len(self.edits)
        if self._entries("further_addresses", data, leaving):
            self.edits[before:] = [Edit(("further_addresses",))]

    def partitions(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Edit the nodes of partitions."""
        for i, partition in enumerate(data.get("partitions") or []):
            names = _names(str(partition.get("nodes") or ""))
            if names and all(name in leaving for name in names):
                self.problem(("partitions", i), describe_empty(str(partition.get("name")), names))
            else:
                self.hostlist(("partitions", i, "nodes"), partition.get("nodes"), leaving)

    def storage(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Edit the hosts that mount file systems. A server cannot leave."""
        for i, entry in enumerate(data.get("storage") or []):
            if entry.get("server") in leaving:
                what = f"{entry['server']} cannot leave the cluster: move its files to another server first"
                self.problem(("storage", i, "server"), what)
            hosts = str(entry.get("hosts") or "")
            if hosts and all(name in leaving for name in expand(hosts)):
                what = f"no other host mounts {entry.get('path')}: remove this entry first, and run site.yml"
                self.problem(("storage", i, "hosts"), what)
            else:
                self.hostlist(("storage", i, "hosts"), hosts, leaving)

    def addresses(self, key: Key, value: Mapping[str, Any] | None, leaving: Collection[str], remedy: str) -> None:
        """Remove addresses of nodes. remedy: what a person does with an entry whose nodes leave in part."""
        found = value or {}
        keys = [hosts for hosts in found if any(name in leaving for name in expand(str(hosts)))]
        for hosts in keys:
            if not all(name in leaving for name in expand(str(hosts))):
                self.problem((*key, str(hosts)), remedy)
        if keys and len(keys) == len(found):
            self.edits.append(Edit(key))
        else:
            self.edits += [Edit((*key, hosts)) for hosts in keys]

    def text(self, key: Key, text: str, leaving: Collection[str]) -> None:
        """Edit the lists of nodes in a text."""
        pieces = []
        for match in _LIST.finditer(text):
            if places := _places(match[1], leaving):
                left = match[0][: match.start(1) - match.start()] + without(match[1], places)
                pieces.append((match[0], left))
        if pieces:
            self.edits.append(Edit(key, tuple(pieces)))

    def refuse_others(self, data: Mapping[str, Any], leaving: Collection[str]) -> None:
        """Refuse names in values that are not edited, and lists that would be empty."""
        after = apply_edits(data, self.edits)
        for edit in self.edits:
            if edit.key[0] in ("slurm_conf", "slurm_files") and any(
                not new or new[-1] in "=:\"' " for _old, new in edit.pieces
            ):
                self.problem(edit.key, f"a list would be empty without {fold([*leaving])}: change this first")
        for part in SEARCHED:
            for key, value in _scalars(after.get(part) or {}, (part,)):
                # Of a policy, only reservations name nodes.
                other = part == "accounting" and key[1:2] != ("reservations",)
                if other or str(key[-1]).lower() in OTHER_NAMES:
                    continue
                if strange := sorted({*_names_in(str(value))} & {*leaving}):
                    self.problem(key, f"{fold(strange)} is named here: change this first, and run site.yml")
