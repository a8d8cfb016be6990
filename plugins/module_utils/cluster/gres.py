# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of generic resources: find in the cluster file what Slurm would refuse, ignore or drain a node for.

The rules are those of gres.conf(5) and of `src/interfaces/gres.c`; each names its place there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..configuration.conf_file import value_text
from ..configuration.parameters import SHARED_GRES
from ..language.formatting import shown
from ..language.hostlist import expand, fold
from . import schema
from .machine_types import gres_names
from .schema import GresEntry, MachineType, NodeEntry

Problem = tuple[int, str, str]
"""The index of an entry, its key, and the problem."""

MAX_FILES = 1024
"""Most devices of one name on a node (`MAX_GRES_BITMAP`)."""


def check_machine(checker: schema.Checker, key: str, machine: MachineType) -> list[GresEntry]:
    """Check the generic resources of a machine type, whose other keys are checked already, and return them.

    None if one of them is not a valid entry: then the others cannot be checked.
    """
    before = len(checker.problems)
    found = [checker.check(schema.GRES, f"{key}[{i}]", value) for i, value in enumerate(machine["gres"])]
    if len(checker.problems) > before:
        return []
    for rule in (_keys, _counts, _alike, _devices, _shares, _cores):
        for i, name, what in rule(found, machine):
            checker.problem(f"{key}[{i}].{name}", what)
    return found


def check_own(checker: schema.Checker, key: str, machine: MachineType) -> None:
    """Check that no name is in `gres` and in the type's own Gres, which would count it twice."""
    own = {text.partition(":")[0].strip() for text in value_text(machine.get("Gres", "")).strip('"').split(",")}
    for name in sorted(own & {gres["name"] for gres in machine.get("gres", [])}):
        checker.problem(f"{key}.Gres", f"found '{name}', which is in gres too: leave one of the two out")


def check_types(checker: schema.Checker, slurm_conf: Mapping[str, Any], hardware: Mapping[str, Any]) -> None:
    """Check that GresTypes has all names, if a site sets it: slurmctld leaves out the others (`gres_name_filter`)."""
    given = next((value for key, value in slurm_conf.items() if key.lower() == "grestypes"), None)
    if given is None:
        return
    types = {name.strip() for name in value_text(given).strip('"').split(",")}
    missing = sorted(set().union(*map(gres_names, hardware.values())) - types)
    if missing:
        what = f"allowed: with {', '.join(missing)}, which are gres of the hardware"
        checker.problem("slurm_conf.GresTypes", f"found {shown(given)}, {what}")


def check_cluster(checker: schema.Checker, nodes: list[NodeEntry], hardware: dict[str, MachineType]) -> None:
    """Check the generic resources of all nodes together."""
    _clouds(checker, nodes, hardware)
    _files_everywhere(checker, hardware)


def _clouds(checker: schema.Checker, nodes: list[NodeEntry], hardware: dict[str, MachineType]) -> None:
    """Nodes of a cloud have no AutoDetect, since the controller must know them (`gres_g_node_config_load`)."""
    for i, node in enumerate(nodes):
        entries = hardware.get(node.get("hardware", ""), {}).get("gres", [])
        state = str(node.get("State", "")).upper()
        if state.startswith("CLOUD") and any("autodetect" in gres for gres in entries):
            what = "Slurm detects nothing on nodes of a cloud: give the gres of their hardware a file"
            checker.problem(f"nodes[{i}].State", f"found '{node['State']}', {what}")


def _files_everywhere(checker: schema.Checker, hardware: dict[str, MachineType]) -> None:
    """A name has files on all nodes or on none (gres.conf(5), File). GPUs always do, and their shares have theirs."""
    first: dict[str, tuple[str, bool]] = {}
    for machine, keys in hardware.items():
        for i, gres in enumerate(keys.get("gres", [])):
            name = gres["name"]
            other, has = first.setdefault(name, (machine, "file" in gres))
            if name not in ("gpu", *SHARED_GRES) and other != machine and has != ("file" in gres):
                see = checker.key(f"hardware.{other}")
                what = f"either all or none of the '{name}' of a cluster have 'file', see {see}"
                checker.problem(f"hardware.{machine}.gres[{i}].file", what)


def _keys(found: list[GresEntry], _machine: MachineType) -> Iterator[Problem]:
    """Keys that an entry cannot have, or must have, with the others."""
    for i, gres in enumerate(found):
        for key in ("autodetect", "mig"):
            if gres["name"] != "gpu" and key in gres:
                yield i, key, f"found on '{gres['name']}', allowed: on gpu"
        if gres["name"] in SHARED_GRES:
            for key in ("type", "cores", "links"):
                if key in gres:
                    yield i, key, f"'{gres['name']}' has that of its GPU: leave it out"
            if "count" not in gres:
                yield i, "count", f"missing: how many '{gres['name']}' there are, of all GPUs of the entry"
        elif gres["name"] == "gpu":
            yield from _gpu_keys(i, gres)


def _gpu_keys(i: int, gres: GresEntry) -> Iterator[Problem]:
    """Likewise for GPUs. Slurm drops those without a file (`_find_fileless_gres`); AutoDetect gives them one.

    It also finds cores and links: others drain the node, equal ones say nothing (gres.conf(5), AutoDetect). Only NVML
    knows MIG, and compares nothing else of it (doc/html/gres.shtml, MIG Management).
    """
    if "file" not in gres and "autodetect" not in gres:
        yield i, "file", "missing: the device files of the GPUs, or set autodetect"
    for key in ("cores", "links"):
        if "autodetect" in gres and key in gres:
            yield i, key, f"autodetect {gres['autodetect']} finds them: leave one of the two out"
    if "mig" not in gres:
        return
    if gres.get("autodetect") != "nvml":
        yield i, "autodetect", f"found {gres.get('autodetect', 'none')}, allowed with mig: nvml"
    if "file" in gres:
        yield i, "file", "the files of MIG instances are detected: set count, how many GPUs have this layout"
    if "type" not in gres:
        yield i, "type", "missing: the GPU's name in the types of its MIG instances, such as a100 in a100_1g.5gb"


def _counts(found: list[GresEntry], _machine: MachineType) -> Iterator[Problem]:
    """Check that counts agree with the files (`_parse_gres_config`, `_build_shared_list`, MAX_GRES_BITMAP)."""
    total: Counter[str] = Counter()
    for i, gres in enumerate(found):
        files = len(expand(gres.get("file", "")))
        count = gres.get("count", files)
        if files and gres["name"] in SHARED_GRES and count % files:
            yield i, "count", f"found {count}, allowed: a multiple of {files}, the files in '{gres['file']}'"
        elif files and gres["name"] not in SHARED_GRES and count != files:
            yield i, "count", f"found {count}, but '{gres['file']}' are {files} files"
        total[gres["name"]] += files
        if total[gres["name"]] > MAX_FILES:
            yield i, "file", f"found {total[gres['name']]} files of '{gres['name']}', allowed: up to {MAX_FILES}"
        if "links" in gres and files != 1:
            yield i, "links", f"found for {files} files, allowed: an entry for each file"


def _alike(found: list[GresEntry], _machine: MachineType) -> Iterator[Problem]:
    """Check the keys that either all entries of a name have, or none.

    Places: `_foreach_gres_conf`, `_foreach_rebuild_topo`, `_handle_local_autodetect`, `_parse_gres_config`.
    """
    first: dict[str, GresEntry] = {}
    for i, gres in enumerate(found):
        other = first.setdefault(gres["name"], gres)
        for key in ("type", "file", "cores"):
            if (key in gres) != (key in other) and not (key == "file" and _detected_only(gres, other)):
                yield i, key, f"either all or none of the '{gres['name']}' of a machine have '{key}'"
        for key in ("autodetect", "flags"):
            if gres.get(key) != other.get(key):
                first_one = shown(other.get(key)) if key in other else "none"
                yield i, key, f"all '{gres['name']}' of a machine have the same, the first has {first_one}"
        if gres is not other and not {"type", "file"} & {*gres}:
            yield i, "name", f"'{gres['name']}' is there already: give each a type or a file, or add up their counts"
        yield from _flags(i, gres)


def _detected_only(gres: GresEntry, other: GresEntry) -> bool:
    """Whether one of two is made of MIG instances and has no line in gres.conf, which may then have files elsewhere."""
    return "mig" in {**gres, **other} and "flags" not in gres


def _flags(i: int, gres: GresEntry) -> Iterator[Problem]:
    """Find flags that exclude each other, or have no effect (gres.conf(5), Flags).

    Any flag of a GPU takes away the environment that it sets without one (`_parse_gres_config`), CUDA_VISIBLE_DEVICES.
    """
    flags = {*gres.get("flags", ())}
    sharing, environment = flags & {*schema.SHARING}, flags & {*schema.GPU_ENVIRONMENT}
    if sharing and gres["name"] not in SHARED_GRES:
        yield (
            i,
            "flags",
            f"found {', '.join(sorted(sharing))} on '{gres['name']}', allowed: on {' and '.join(SHARED_GRES)}",
        )
    if len(sharing) > 1 or ("no_gpu_env" in flags and environment):
        yield i, "flags", f"found {', '.join(gres['flags'])}, which exclude each other"
    if gres["name"] == "gpu" and flags and not environment and "no_gpu_env" not in flags:
        allowed = ", ".join([*schema.GPU_ENVIRONMENT, "no_gpu_env"])
        yield (
            i,
            "flags",
            f"found {', '.join(gres['flags'])}, which leaves jobs no CUDA_VISIBLE_DEVICES: add one of {allowed}",
        )


def _devices(found: list[GresEntry], _machine: MachineType) -> Iterator[Problem]:
    """Find device files that are in two entries of a name; a GPU and its shares have the same files."""
    seen: set[tuple[str, str]] = set()
    for i, gres in enumerate(found):
        name = gres["name"] if gres["name"] in SHARED_GRES else ""
        files = [(name, file) for file in expand(gres.get("file", ""))]
        twice = [file for name, file in files if (name, file) in seen]
        if twice:
            yield i, "file", f"{fold(twice)} is in another entry already"
        seen.update(files)


def _shares(found: list[GresEntry], _machine: MachineType) -> Iterator[Problem]:
    """Shares are of GPUs (`_merge_lists` in `src/plugins/gres/common/gres_c_s.c`), and of one kind on a node.

    Slurm ties the GPUs to one kind of shares (`gres_init_node_config`), and would give them away twice to another.
    """
    gpus = [gres for gres in found if gres["name"] == "gpu"]
    files = {file for gres in gpus for file in expand(gres.get("file", ""))}
    shared = [(i, gres) for i, gres in enumerate(found) if gres["name"] in SHARED_GRES]
    for i, gres in shared:
        if not gpus:
            yield i, "name", f"found '{gres['name']}', which is part of a GPU: add the gpu"
        if gres["name"] != shared[0][1]["name"]:
            yield (
                i,
                "name",
                f"found '{gres['name']}' with '{shared[0][1]['name']}', allowed: one of them on a machine",
            )
        strange = [file for file in expand(gres.get("file", "")) if file not in files]
        if gpus and strange:
            yield i, "file", f"found {fold(strange)}, allowed: the files of the gpu, or none for all GPUs alike"


def _cores(found: list[GresEntry], machine: MachineType) -> Iterator[Problem]:
    """Find cores that the machine lacks.

    Whether they may be a part of a socket depends on the release, which the cross-checks of the files know.
    """
    if "sockets" not in machine or "cores_per_socket" not in machine:
        return
    last = machine["sockets"] * machine["cores_per_socket"] - 1
    for i, gres in enumerate(found):
        if "cores" in gres and max(map(int, expand(f"[{gres['cores']}]"))) > last:
            yield i, "cores", f"found '{gres['cores']}', allowed: 0-{last}"
