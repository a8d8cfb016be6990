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
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.equivalence import (
    Values,
    asked,
    autodetect,
    resources,
    values_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.generic_resources import count_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import SHARED_GRES
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold


class Resources(NamedTuple):
    """The generic resources of a machine type."""

    entries: list[dict[str, Any]]
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
    words = [word.strip() for word in value.split(",") if word.strip()]
    names = [*dict.fromkeys(resource.name for resource in asked(value))]
    parsed = [(text, values_of(text)) for text in texts]
    method = autodetect(values for _text, values in parsed)
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
    return resources(wanted, mine) == resources(render.gres_value(made) or "", render.machine_records(made))


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
