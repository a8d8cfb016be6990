# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic resources of a node: what its Gres and its lines of gres.conf mean, and as entries of a machine type.

What an entry cannot express, or would express otherwise, is kept in Slurm's words (`Gres` and `gres_conf` of a machine
type): entries are only used if the lines that are rendered from them mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import gres, render, schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.generic_resources import (
    Gres,
    count_of,
    gres_of_node,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import SHARED_GRES
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold

Values = Mapping[str, str]
"""The parameters of a line of gres.conf, by key in small letters."""

_NAMES = {"files": "file", "cpus": "cores", "link": "links"}
"""Other names of parameters (`_gres_options` in `src/interfaces/gres.c`)."""


class Resources(NamedTuple):
    """The generic resources of a machine type."""

    entries: list[dict[str, Any]]
    text: str
    """Those that entries cannot express, as in Gres."""
    texts: list[str]
    """Their lines of gres.conf."""


def lines_for(value: str, own: Iterable[str], everywhere: Iterable[str]) -> tuple[str, ...]:
    """The lines of gres.conf that matter to a node: those with a name in its Gres, and AutoDetect if it has GPUs.

    Args:
        value: Gres of the node.
        own, everywhere: the lines of gres.conf for this node and for all nodes, without NodeName.
    """
    names = {resource.name for resource in asked(value)}
    found = []
    for text in (*everywhere, *own):
        values = _values(text)
        if values["name"] in names if "name" in values else "gpu" in names:
            found.append(text)
    return tuple(found)


def asked(value: str) -> list[Gres]:
    """The generic resources of a node; a count of 0 is none."""
    return [resource for resource in gres_of_node(value) if resource.number]


def meaning(value: str, texts: Iterable[str]) -> frozenset[tuple[Any, ...]]:
    """What Gres and lines of gres.conf mean together, so that two descriptions can be compared.

    Devices are counted one by one. Slurm ignores a Type where Gres has none, and knows from Gres how many there are
    where a line has no File, or where there is no line (`_merge_gres2` in `src/interfaces/gres.c`).
    """
    found: set[tuple[Any, ...]] = set()
    counts: dict[tuple[str, str, bool], int] = {}
    for resource in asked(value):
        key = (resource.name, resource.kind, resource.no_consume)
        counts[key] = counts.get(key, 0) + resource.number
    found |= {("gres", *key, number) for key, number in counts.items()}
    typed = {name for name, kind, _no_consume in counts if kind}
    parsed = [*map(_values, texts)]
    method = _autodetect(parsed)
    if method and "gpu" in {name for name, *_rest in counts}:
        found.add(("autodetect", method))
    for values in parsed:
        name = values.get("name", "")
        kind = values.get("type", "") if name in typed else ""
        flags = frozenset(filter(None, values.get("flags", "").lower().split(",")))
        others = (values.get("cores"), values.get("links"), flags)
        if not name:
            continue
        if "file" in values and name not in SHARED_GRES:
            found |= {("device", name, kind, file, *others) for file in expand(values["file"])}
        elif name in SHARED_GRES:
            files = tuple(expand(values.get("file", "")))
            found.add(("share", name, files, count_of(values.get("count", "1")), *others))
        elif flags or any(others[:2]):
            found.add(("line", name, kind, count_of(values.get("count", "1")), *others))
    for name, kind, _no_consume in counts:
        if name in SHARED_GRES and not kind and name not in (values.get("name") for values in parsed):
            found.add(("share", name, (), counts[name, kind, _no_consume], None, None, frozenset()))
    return frozenset(found)


def _values(text: str) -> dict[str, str]:
    """The parameters of a line."""
    (pairs,) = lines("gres.conf", text)
    return {_NAMES.get(key.lower(), key.lower()): value for key, value in pairs}


def _autodetect(parsed: Iterable[Values]) -> str:
    """The method of AutoDetect, that of the last line that has one."""
    methods = [values["autodetect"].lower() for values in parsed if "autodetect" in values]
    return methods[-1] if methods and methods[-1] != "off" else ""


def express(value: str, texts: tuple[str, ...], machine: Mapping[str, Any]) -> Resources:
    """The generic resources of a node for its machine type.

    Args:
        value, texts: Gres of the node, and its lines of gres.conf (`lines_for`).
        machine: the other keys of the machine type.
    """
    words = [word.strip() for word in value.split(",") if word.strip()]
    names = [*dict.fromkeys(resource.name for resource in asked(value))]
    parsed = [(text, _values(text)) for text in texts]
    method = _autodetect(values for _text, values in parsed)
    # Shares need their GPUs. Other names are tried one by one, so that one that cannot be expressed leaves the others.
    gpus = [name for name in names if name in ("gpu", *SHARED_GRES)]
    expressed: list[str] = []
    for some in [gpus, *([name] for name in names if name not in gpus)]:
        if _right(value, parsed, some, method, machine):
            expressed += some
        elif "gpu" in some and _right(value, parsed, ["gpu"], method, machine):
            expressed.append("gpu")
    if not _right(value, parsed, expressed, method, machine):
        expressed = []
    kept = [name for name in names if name not in expressed]
    return Resources(
        [entry for name in expressed for entry in _entries(name, value, parsed, method)],
        ",".join(word for word in words if word.partition(":")[0] in kept),
        [
            text
            for text, values in parsed
            if values.get("name", "gpu") in kept and (method or {*values} != {"autodetect"})
        ],
    )


def _right(
    value: str, parsed: list[tuple[str, dict[str, str]]], names: list[str], method: str, machine: Mapping[str, Any]
) -> bool:
    """Whether the model accepts the entries of these names, and they mean the same."""
    entries = [entry for name in names for entry in _entries(name, value, parsed, method)]
    if {entry["name"] for entry in entries} != {*names}:
        return False
    problems: list[str] = []
    gres.check_machine(schema.Checker("", problems), "gres", {**machine, "gres": entries})
    if problems:
        return False
    made = {**machine, "gres": entries}
    wanted = ",".join(word for word in value.split(",") if word.strip().partition(":")[0] in names)
    mine = [text for text, values in parsed if values.get("name", "gpu") in names]
    return meaning(wanted, mine) == meaning(render.gres_value(made) or "", render.machine_records(made))


def _entries(name: str, value: str, parsed: list[tuple[str, dict[str, str]]], method: str) -> Iterator[dict[str, Any]]:
    """The entries for a name; none if there cannot be any."""
    wanted = [resource for resource in asked(value) if resource.name == name]
    mine = [values for _text, values in parsed if values.get("name") == name]
    if any(resource.no_consume for resource in wanted) or any("multiplefiles" in values for values in mine):
        return
    typed = any(resource.kind for resource in wanted)
    detect = {"autodetect": method} if name == "gpu" and method else {}
    if name in SHARED_GRES:
        for values in mine or ({},):
            number = count_of(values["count"]) if "count" in values else sum(gres.number for gres in wanted)
            yield {"name": name, "count": number, **_others(values, ("file", "flags"))}
    elif any("file" in values for values in mine):
        merged: dict[tuple[tuple[str, Any], ...], list[str]] = {}
        for values in mine:
            kind = {"type": values["type"]} if typed and "type" in values else {}
            key = (*kind.items(), *_others(values, ("cores", "links", "flags")).items())
            files = expand(values.get("file", ""))
            place = (*key, ("file", values.get("file"))) if "links" in values else key
            merged.setdefault(place, []).extend(files)
        for key, files in merged.items():
            yield {"name": name, **dict(key), **({"file": fold(files)} if files else {}), **detect}
    elif name != "gpu" or detect:
        flags = next((_others(values, ("flags",)) for values in mine if "flags" in values), {})
        counts: dict[str, int] = {}
        for resource in wanted:
            counts[resource.kind] = counts.get(resource.kind, 0) + resource.number
        for kind_name, number in counts.items():
            yield {"name": name, **({"type": kind_name} if kind_name else {}), "count": number, **flags, **detect}


def _others(values: Values, keys: Iterable[str]) -> dict[str, Any]:
    """Some parameters of a line, as the keys of an entry."""
    return {key: values[key] for key in keys if key in values}
