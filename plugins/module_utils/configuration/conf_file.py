# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's configuration files as data, and the differences between two versions of them.

Order, blanks, comments and continued lines do not matter: two files with the same settings do not differ.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..language.formatting import message, shown
from ..language.hostlist import expand, fold
from .node_sets import NodeSet

Pairs = tuple[tuple[str, str], ...]
"""Keys and values of a line, in order."""

# parse_config.c: a key, perhaps an operator, a value that is quoted or has no blanks. Blanks are those of ASCII.
_PAIR = re.compile(r'([\w.]+)\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))(?:\s+|$)', re.ASCII)
# Two backslashes are one that is meant, a single one escapes the next character (`_strip_comments`,
# `_strip_continuation` and `_strip_escapes` there, the same in all releases).
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*\Z", re.ASCII)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE | re.ASCII)
_BLANKS = " \t\n\v\f\r"
"""Blanks of C (isspace(3)). Python takes more characters for blanks, and for ends of lines, such as U+2028."""
_DEFAULT = "DEFAULT"


class ConfigurationError(ValueError):
    """A line that Slurm's parser would not accept."""


@dataclass(frozen=True)
class ConfigurationChange:
    """A difference of one key."""

    file: str
    """The table of parameters that the key is in: a file, NodeName or PartitionName."""
    subject: str
    """The nodes (a hostlist) or the partition; empty for a parameter of the whole file."""
    key: str
    before: str | None
    after: str | None
    """The values; None if it is missing. The value of NodeName and PartitionName is the subject itself."""


@dataclass
class Configuration:
    """The settings in a set of files."""

    settings: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Key as it is spelled and value, by file and key in small letters; a line of plugstack.conf by its plugin.

    A file that is no file of Key=value has its own name as key, and a digest as value.
    """
    nodes: dict[str, Pairs] = field(default_factory=dict)
    partitions: dict[str, Pairs] = field(default_factory=dict)
    gres: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The lines of gres.conf by node; those for all nodes have the name ''."""
    overruled: dict[tuple[str, str], Pairs] = field(default_factory=dict)
    """Names that Slurm does not read, each with the name that it reads in its place, by NodeName or PartitionName and
    the text of the line's first value."""

    @property
    def node_sets(self) -> list[NodeSet]:
        """The node sets, in the order of the file."""
        return [
            NodeSet.of(pair.partition("=")[::2] for pair in re.split(r"\s+(?=\w+=)", f"{spelled} {text}".strip()))
            for (file, key), (spelled, text) in self.settings.items()
            if file == "slurm.conf" and key.startswith("nodeset ")
        ]


def lines(file: str, text: str) -> Iterator[Pairs]:
    """The lines of a file, comments and empty ones left out, continued ones joined.

    Raises:
        ConfigurationError: names the file, the line and its text.
    """
    return (pairs for _number, pairs in numbered_lines(file, text))


def numbered_lines(file: str, text: str, name: str = "") -> Iterator[tuple[int, Pairs]]:
    """The lines of a file, each with its number, a continued one with that of its beginning.

    name: of the file for messages, where it is one that `file` includes.

    Raises:
        ConfigurationError: names the file, the line and its text.
    """
    if file == "plugstack.conf":  # no file of Key=value and no escapes (`_plugin_stack_parse_line` in spank.c)
        for number, line in enumerate(text.split("\n"), 1):
            content = line.partition("#")[0].strip(_BLANKS)
            if content:
                word, _blank, rest = content.replace("\t", " ").partition(" ")
                yield number, ((word, rest.strip(_BLANKS)),)
        return
    for number, line in _joined(text):
        line = line.strip(_BLANKS)
        included = _INCLUDE.fullmatch(line)
        if included:
            yield number, (("Include", included[1]),)
        elif line:
            yield number, _pairs(name or file, number, line)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments and escapes, each with its number.

    A line that ends in an odd number of backslashes goes on in the next one (`_get_next_line` in parse_config.c).
    """
    start = 1
    parts: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        part = _COMMENT.sub(r"\1", raw)
        start = start if parts else number
        goes_on = _CONTINUED.search(part)
        parts.append(part[: goes_on.end(1)] if goes_on else part)
        if not goes_on:
            yield start, _ESCAPED.sub(r"\1", "".join(parts))
            parts = []
    if parts:  # the text ends where its last line would go on
        yield start, _ESCAPED.sub(r"\1", "".join(parts))


def _pairs(file: str, number: int, line: str) -> Pairs:
    """The pairs of a line."""
    pairs, place = [], 0
    while place < len(line):
        match = _PAIR.match(line, place)
        if not match:
            raise ConfigurationError(f"{file}: line {number}: found {shown(line[place:])}, allowed: Key=value")
        pairs.append((match[1], match[2] if match[3] is None else match[3]))
        place = match.end()
    return tuple(pairs)


NAMED_LINES = {"job_container.conf": ("nodename",), "topology.conf": ("blockname", "ringname", "switchname")}
"""Files with lines of several parameters, by the first keys of these lines; the same key is in many of them."""

KEY_VALUE = (
    "acct_gather.conf",
    "cgroup.conf",
    "gres.conf",
    "mpi.conf",
    "plugstack.conf",
    "slurm.conf",
    "slurmdbd.conf",
    *NAMED_LINES,
)
"""Files that are read line by line; another one, such as a script, changes as a whole."""


def read(files: Mapping[str, str]) -> Configuration:
    """The settings of files, given by name and text.

    Raises:
        ConfigurationError: a line, or a hostlist in it, cannot be read.
    """
    result = Configuration()
    for file, text in files.items():
        if file not in KEY_VALUE:
            digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
            result.settings[file, file] = (file, f"sha256 {digest[:12]}")
        else:
            add_lines(result, file, lines(file, text))
    return result


def add_lines(result: Configuration, file: str, found: Iterable[Pairs]) -> None:
    """Take in the lines of one of the files KEY_VALUE, in their order.

    Raises:
        ConfigurationError: a line, or a hostlist in it, cannot be read.
    """
    defaults: dict[str, Pairs] = {}
    pairs: Pairs = ()
    try:
        for pairs in found:
            _add(result, file, pairs, defaults)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(message(f"{file}: {'='.join(pairs[0])}: {error}")) from None


_LINES = {"nodename": "NodeName", "partitionname": "PartitionName", "downnodes": "DownNodes", "nodeset": "NodeSet"}
"""Lines of slurm.conf that have parameters of their own, by their first key."""


def table_of(file: str, pairs: Pairs) -> str:
    """The table of parameters for a line: its file, or the kind of line in slurm.conf."""
    return _LINES.get(pairs[0][0].lower(), file) if file == "slurm.conf" else file


def _add(result: Configuration, file: str, pairs: Pairs, defaults: dict[str, Pairs]) -> None:
    """Take in a line; `defaults` are those that lines named DEFAULT have set so far. Raises ValueError."""
    kind, (key, value) = table_of(file, pairs), pairs[0]
    if kind in ("NodeName", "PartitionName"):
        _add_nodes_or_partition(result, kind, pairs, defaults)
    elif kind != file:
        result.settings[file, f"{kind} {value}".lower()] = (f"{kind}={value}", _text(pairs[1:]))
    elif key.lower() in NAMED_LINES.get(file, ()):
        result.settings[file, f"{key}={value}".lower()] = (f"{key}={value}", _text(pairs[1:]))
    elif file == "plugstack.conf":
        word, plugin, *arguments = (*key.split(), *value.split(), "")
        result.settings[file, plugin] = (f"{word}={plugin}", " ".join([word, *arguments]).strip())
    elif file == "gres.conf":
        _add_gres(result, pairs)
    else:
        _add_parameters(result, file, pairs)


def _add_nodes_or_partition(result: Configuration, kind: str, pairs: Pairs, defaults: dict[str, Pairs]) -> None:
    """Take in the nodes or the partition of a line, or its defaults for the lines that follow. Raises ValueError."""
    name, inherited = pairs[0][1], defaults.get(kind, ())
    if name.upper() == _DEFAULT:
        defaults[kind] = _over(inherited, pairs[1:])
        return
    inherited = tuple(pair for pair in inherited if pair[0].lower() not in _NOT_INHERITED[kind])
    settings, overruled = by_order_of_names(kind, _over(_without_features(inherited, pairs[1:]), pairs[1:]))
    if overruled:
        result.overruled[kind, name] = overruled
    if kind == "NodeName":
        _add_nodes(result, name, settings)
        return
    for key, nodes in settings:
        if key.lower() == "nodes" and "[" in nodes:
            expand(nodes)
    result.partitions[name] = settings


def _add_gres(result: Configuration, pairs: Pairs) -> None:
    """Take in a line of gres.conf, for its nodes or for all of them. Raises ValueError."""
    hosts = next((value for key, value in pairs if key.lower() == "nodename"), None)
    read_pairs, _overruled = by_order_of_names("gres.conf", pairs)
    text = _text(pair for pair in read_pairs if pair[0].lower() != "nodename")
    for node in [""] if hosts is None else expand(hosts):
        result.gres[node] = (*result.gres.get(node, ()), text)


def _add_parameters(result: Configuration, file: str, pairs: Pairs) -> None:
    """Take in the parameters of a line, of which each replaces an earlier value or is added to it."""
    for key, value in pairs:
        before = result.settings.get((file, key.lower()), ("", ""))[1]
        several = before and key.lower() in _SEVERAL
        result.settings[file, key.lower()] = (key, f"{before} {value}" if several else value)


_NOT_INHERITED = {
    "NodeName": ("gresconf",),
    "PartitionName": (
        "disablerootjobs",
        "exclusivetopo",
        "exclusiveuser",
        "powerdownonidle",
        "selecttypeparameters",
        "suspendtime",
    ),
}
"""Parameters that Slurm takes from a line itself alone, not from a line DEFAULT (`_parse_nodename` and
`_parse_partitionname` in `src/common/read_config.c`, the same in all releases)."""

_SEVERAL = {"slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "include"}
"""Keys of which each value has a line of its own."""


def _add_nodes(result: Configuration, hosts: str, settings: Pairs) -> None:
    """Nodes of a line. Equal ones share their settings, so that they are compared once; addresses are their own."""
    names = expand(hosts)
    if not names:
        raise ValueError("allowed: a hostlist such as compute[01-16]")
    addresses = [pair for pair in settings if pair[0].lower() in ("nodeaddr", "nodehostname", "port")]
    shared = tuple(sorted((pair for pair in settings if pair not in addresses), key=lambda pair: pair[0].lower()))
    columns = [(key, _column(key, values)) for key, values in addresses if values or key.lower() != "port"]
    for i, name in enumerate(names):
        mine = tuple((key, values[i] if len(values) == len(names) else values[0]) for key, values in columns)
        result.nodes[name] = (*shared, *mine) if mine else shared


def _column(key: str, values: str) -> list[str]:
    """Addresses, names or ports of a line, one for each node or one for all (`expand_nodeline_info` in node_conf.c).

    An empty Port is none, an empty address is fatal.
    """
    elements = expand(f"[{values}]" if key.lower() == "port" and values[0] != "[" else values)
    if not elements:
        raise ValueError(f"{key}: found {values!r}, allowed: a hostlist")
    return elements


def _over(defaults: Pairs, pairs: Pairs) -> Pairs:
    """Pairs over defaults."""
    given = {key.lower() for key, value in pairs}
    return (*(pair for pair in defaults if pair[0].lower() not in given), *pairs)


_FEATURES = {"feature", "features"}


def _without_features(defaults: Pairs, pairs: Pairs) -> Pairs:
    """Defaults without their features where a line has its own, by either name (`_parse_nodename`)."""
    own = _FEATURES & {key.lower() for key, value in pairs}
    return tuple(pair for pair in defaults if not own or pair[0].lower() not in _FEATURES)


_READ_FIRST: Mapping[str, Mapping[str, str]] = {
    "NodeName": {"procs": "cpus", "features": "feature", "sockets": "socketsperboard"},
    "PartitionName": {"prioritytier": "priority", "priorityjobfactor": "priority", "shared": "oversubscribe"},
    "gres.conf": {"cpus": "cores", "files": "file", "links": "link"},
}
"""Names of parameters, each with the name that Slurm reads in its place if a line or its DEFAULT has both: CPUs of a
DEFAULT count before Procs of the line (`_parse_nodename` and `_parse_partitionname` in `src/common/read_config.c`,
`_parse_gres_config` in `src/interfaces/gres.c`, the same from 22.05 to 26.05)."""


def by_order_of_names(table: str, pairs: Pairs) -> tuple[Pairs, Pairs]:
    """The pairs of a line that Slurm reads, and the other names, each with the one that Slurm reads in its place."""
    order, names = _READ_FIRST[table], {key.lower(): key for key, _value in pairs}
    overruled = tuple((name, names[order[key]]) for key, name in names.items() if order.get(key) in names)
    unread = {name.lower() for name, _first in overruled}
    return tuple(pair for pair in pairs if pair[0].lower() not in unread), overruled


def _text(pairs: Iterator[tuple[str, str]] | Pairs) -> str:
    """Pairs as a line."""
    return " ".join(f"{key}={value}" for key, value in pairs)


def value_text(value: Any) -> str:
    """A value as Slurm's parser reads it (`src/common/parse_config.c`).

    Booleans are YES or NO, lists are joined by commas. A backslash escapes, and an odd number of them at the end of a
    line continues it. A `#` starts a comment even in quotes, a value with blanks is quoted and cannot hold a quote.
    """
    if isinstance(value, bool):
        return "YES" if value else "NO"
    elements = value if isinstance(value, (list, tuple)) else [value]
    # YAML reads words such as `on` as booleans: in a list, they were names.
    if not all(isinstance(element, (str, int, float)) and not isinstance(element, bool) for element in elements):
        raise ValueError(f"{value!r} is not a valid value in a Slurm configuration: write each element in quotes")
    text = ",".join(map(str, elements))
    if reason := unreadable(text):
        raise ValueError(f"{shown(text)} is not a valid value in a Slurm configuration: it {reason}")
    text = text.replace("\\", "\\\\").replace("#", "\\#")
    return f'"{text}"' if _has_blank(text) else text


def _has_blank(text: str) -> bool:
    """Whether a value needs quotes."""
    return not text or any(character.isspace() for character in text)


def unreadable(text: str) -> str:
    """Why Slurm's parser cannot read a text as the value of a parameter, such as `has a quote`; empty if it can."""
    if re.search(r"[\n\r\0]", text):
        return "has more than one line"
    if re.search("[\ud800-\udfff]", text):
        return "has a byte that is not UTF-8"
    if '"' in text and (_has_blank(text) or text.startswith('"')):
        return "has quotes and would have to be quoted"
    return ""


def value_in(text: str, file: str, key: str) -> str:
    """The last value of a parameter in the text of a file without lines of several parameters; empty without one.

    Raises:
        ConfigurationError: names the file, the line and its text.
    """
    values = [value for pairs in lines(file, text) for name, value in pairs if name.lower() == key.lower()]
    return values[-1] if values else ""


def changes(old: Configuration, new: Configuration) -> list[ConfigurationChange]:
    """The differences of two configurations: parameters, nodes, partitions, generic resources."""
    return [*_settings(old, new), *_nodes(old, new), *_partitions(old, new), *_gres(old, new)]


def _settings(old: Configuration, new: Configuration) -> Iterator[ConfigurationChange]:
    """Parameters that are changed, added or removed."""
    for place in dict.fromkeys([*new.settings, *old.settings]):
        before, after = old.settings.get(place), new.settings.get(place)
        if (before and before[1]) != (after and after[1]):
            key = (after or before or ("", ""))[0]
            yield ConfigurationChange(place[0], "", key, before and before[1], after and after[1])


def _nodes(old: Configuration, new: Configuration) -> Iterator[ConfigurationChange]:
    """Nodes that are added, removed, or have other settings. Equal changes of several nodes are one change."""
    gone = [name for name in old.nodes if name not in new.nodes]
    added = [name for name in new.nodes if name not in old.nodes]
    if gone:
        yield ConfigurationChange("NodeName", fold(gone), "NodeName", fold(gone), None)
    if added:
        yield ConfigurationChange("NodeName", fold(added), "NodeName", None, fold(added))
    # Nodes of a line share their settings: each two of them are compared once.
    compared: dict[tuple[Pairs, Pairs], list[str]] = {}
    for name, settings in new.nodes.items():
        before = old.nodes.get(name)
        if before is not None and before != settings:
            compared.setdefault((before, settings), []).append(name)
    names_by_change: dict[tuple[str, str | None, str | None], list[str]] = {}
    for (before, settings), names in compared.items():
        for difference in _different(before, settings):
            names_by_change.setdefault(difference, []).extend(names)
    for (key, was, becomes), names in names_by_change.items():
        yield ConfigurationChange("NodeName", fold(names), key, was, becomes)


def _different(old: Pairs, new: Pairs) -> Iterator[tuple[str, str | None, str | None]]:
    """Keys with their values before and after."""
    before = {key.lower(): (key, value) for key, value in old}
    after = {key.lower(): (key, value) for key, value in new}
    for name in dict.fromkeys([*after, *before]):
        was, becomes = before.get(name, (name, None)), after.get(name, (name, None))
        if was[1] != becomes[1]:
            yield after.get(name, was)[0], was[1], becomes[1]


def _partitions(old: Configuration, new: Configuration) -> Iterator[ConfigurationChange]:
    """Partitions that are added, removed, or have other settings."""
    for name in dict.fromkeys([*new.partitions, *old.partitions]):
        before, after = old.partitions.get(name), new.partitions.get(name)
        if before is None or after is None:
            yield ConfigurationChange(
                "PartitionName",
                name,
                "PartitionName",
                None if before is None else name,
                None if after is None else name,
            )
            continue
        for key, was, becomes in _different(before, after):
            yield ConfigurationChange("PartitionName", name, key, was, becomes)


def _gres(old: Configuration, new: Configuration) -> Iterator[ConfigurationChange]:
    """Lines of gres.conf of nodes that are in both configurations.

    Lines of other nodes are added and removed with them.
    """
    names_by_change: dict[tuple[str | None, str | None], list[str]] = {}
    for name in dict.fromkeys([*new.gres, *old.gres]):
        before, after = old.gres.get(name), new.gres.get(name)
        if before != after and (not name or (name in old.nodes and name in new.nodes)):
            pair = ("; ".join(before) if before else None, "; ".join(after) if after else None)
            names_by_change.setdefault(pair, []).append(name)
    for (was, becomes), names in names_by_change.items():
        yield ConfigurationChange("gres.conf", fold(names) if names != [""] else "", "Name", was, becomes)
