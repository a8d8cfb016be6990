# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic resources of a node: what its Gres and its lines of gres.conf mean, and as entries of a machine type.

What an entry cannot express, or would express otherwise, is kept in Slurm's notation (`Gres` and `gres_conf` of a
machine type): entries are only used if the lines that are rendered from them mean the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..cluster import gres, render, schema
from ..configuration.equivalence import Values, asked, autodetect, resources, values_of
from ..configuration.generic_resources import Gres, count_of
from ..configuration.parameters import SHARED_GRES
from ..language.hostlist import expand, fold
from .cluster_files import Entry


class Resources(NamedTuple):
    """The generic resources of a machine type."""

    entries: list[Entry]
    text: str
    """Those that entries cannot express, as in Gres."""
    texts: list[str]
    """Their lines of gres.conf."""


def express(value: str, texts: tuple[str, ...], machine: Mapping[str, Any]) -> Resources:
    """The generic resources of a node for its machine type.

    Args:
        value, texts: Gres of the node, and its lines of gres.conf (`lines_for`).
        machine: the other keys of the machine type.
    """
    declared = _Declared(value, [_Line(text, values_of(text)) for text in texts], machine)
    names = [*dict.fromkeys(resource.name for resource in asked(value))]
    expressed = _find_expressible(declared, names)
    kept = [name for name in names if name not in expressed]
    return Resources(
        declared.entries_of(expressed),
        declared.value_of(kept),
        [line.text for line in declared.lines_of(kept) if declared.method or {*line.values} != {"autodetect"}],
    )


class _Line(NamedTuple):
    """A line of gres.conf."""

    text: str
    values: Values


@dataclass(frozen=True)
class _Declared:
    """Gres of a node, its lines of gres.conf, and the other keys of its machine type."""

    value: str
    lines: list[_Line]
    machine: Mapping[str, Any]

    @cached_property
    def method(self) -> str:
        """The method of AutoDetect."""
        return autodetect(line.values for line in self.lines)

    def value_of(self, names: Collection[str]) -> str:
        """The part of Gres that has these names."""
        parts = (part.strip() for part in self.value.split(","))
        return ",".join(part for part in parts if part and part.partition(":")[0] in names)

    def lines_of(self, names: Collection[str]) -> list[_Line]:
        """The lines that have these names; one without a name is about GPUs."""
        return [line for line in self.lines if line.values.get("name", "gpu") in names]

    def entries_of(self, names: Iterable[str]) -> list[Entry]:
        """The entries for these names, as far as there can be any."""
        return [entry for name in names for entry in _make_entries(self, name)]

    def is_expressed(self, names: list[str]) -> bool:
        """Whether the model accepts the entries of these names, and they mean the same."""
        entries = self.entries_of(names)
        if {entry["name"] for entry in entries} != {*names}:
            return False
        problems: list[str] = []
        machine = {**self.machine, "gres": entries}
        gres.check_machine(schema.Checker("", problems), "gres", {**machine})
        if problems:
            return False
        before = resources(self.value_of(names), [line.text for line in self.lines_of(names)])
        return before == resources(render.gres_value(machine) or "", render.machine_records(machine))


def _find_expressible(declared: _Declared, names: list[str]) -> list[str]:
    """The names whose entries mean the same.

    Shares need their GPUs. Other names are tried one by one, so that one that cannot be expressed leaves the others.
    """
    gpus = [name for name in names if name in ("gpu", *SHARED_GRES)]
    expressed: list[str] = []
    for group in [gpus, *([name] for name in names if name not in gpus)]:
        if declared.is_expressed(group):
            expressed += group
        elif "gpu" in group and declared.is_expressed(["gpu"]):
            expressed.append("gpu")
    return expressed if declared.is_expressed(expressed) else []


def _make_entries(declared: _Declared, name: str) -> Iterator[Entry]:
    """The entries for a name; none if there cannot be any."""
    wanted = [resource for resource in asked(declared.value) if resource.name == name]
    lines = [line.values for line in declared.lines if line.values.get("name") == name]
    if any(resource.no_consume for resource in wanted) or _have(lines, "multiplefiles"):
        return
    detect = {"autodetect": declared.method} if name == "gpu" and declared.method else {}
    entries: Iterable[Entry] = ()
    if name in SHARED_GRES:
        entries = _make_shares(wanted, lines)
    elif _have(lines, "file"):
        entries = _make_devices(wanted, lines)
    elif name != "gpu" or detect:
        entries = _make_counts(wanted, lines)
    yield from ({"name": name, **entry, **detect} for entry in entries)


def _make_shares(wanted: list[Gres], lines: list[Values]) -> Iterator[Entry]:
    """An entry for each line of a name that is a share of GPUs."""
    for values in lines or ({},):
        number = count_of(values["count"]) if "count" in values else sum(resource.number for resource in wanted)
        yield {"count": number, **_others(values, ("file", "flags"))}


def _make_devices(wanted: list[Gres], lines: list[Values]) -> Iterator[Entry]:
    """An entry for device files with the same parameters. Links are those of one line."""
    typed = any(resource.kind for resource in wanted)
    devices: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for values in lines:
        kind = {"type": values["type"]} if typed and "type" in values else {}
        own_file = {"file": values.get("file")} if "links" in values else {}
        parameters = {**kind, **_others(values, ("cores", "links", "flags")), **own_file}
        devices.setdefault((*parameters.items(),), []).extend(expand(values.get("file", "")))
    for place, files in devices.items():
        yield {**dict(place), **({"file": fold(files)} if files else {})}


def _make_counts(wanted: list[Gres], lines: list[Values]) -> Iterator[Entry]:
    """An entry for each type, with the number that Gres has."""
    flags = next((_others(values, ("flags",)) for values in lines if "flags" in values), {})
    counts: dict[str, int] = {}
    for resource in wanted:
        counts[resource.kind] = counts.get(resource.kind, 0) + resource.number
    for kind, number in counts.items():
        yield {**({"type": kind} if kind else {}), "count": number, **flags}


def _have(lines: list[Values], key: str) -> bool:
    """Whether a line has a parameter."""
    return any(key in values for values in lines)


def _others(values: Values, keys: Iterable[str]) -> Entry:
    """Some parameters of a line, as the keys of an entry."""
    return {key: values[key] for key in keys if key in values}
