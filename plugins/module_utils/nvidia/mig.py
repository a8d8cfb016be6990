# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG: the present and the wanted instances of a host's GPUs, and the nvidia-smi commands for the changes.

The rules are those of NVIDIA's MIG user guide: instances are gone after a boot; a GPU whose mode was changed may wait
for a reset ("pending"); an instance must have no compute instances before it is destroyed. This file needs Python's own
library alone, since hosts have a copy of it, with which they make the instances when they boot (role nvidia_mig).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

QUERY = ("--query-gpu=index,name,mig.mode.current,mig.mode.pending", "--format=csv,noheader")
LIST = ("-L",)
INSTANCES = ("mig", "-lgi")
NONE = re.compile(r"No (GPU instances|MIG-enabled devices) found")
"""The message with which nvidia-smi fails if there are no instances."""
COMMAND = 120
"""Seconds that a command may take: a reset takes many."""
_PROFILE = re.compile(r"([1-7]c\.)?[1-7]g\.\S+")
MAX_GPUS = 1024
"""Most GPUs of a host (`MAX_GRES_BITMAP` in Slurm)."""
ROUNDS = 6
"""Most looks at the GPUs; a change of mode, a reset and new instances need four."""

Command = tuple[str, ...]
"""The words after nvidia-smi."""
Run = Callable[[Command], tuple[int, str]]
"""Runs nvidia-smi; gives its exit status and all that it printed."""
Profiles = tuple[str, ...]
"""The instances of a GPU, sorted; without any, MIG is off."""


class MigError(ValueError):
    """A layout that the GPUs cannot have, or a command that failed, with its message."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi shows it."""

    index: int
    name: str
    enabled: bool
    """Whether MIG is on."""
    pending: bool
    """Whether it will be after a reset."""
    capable: bool
    """Whether it can be."""
    instances: Profiles = ()
    """Its GPU instances."""
    devices: Profiles = ()
    """The instances that programs can use: GPU instances with their compute instances."""

    def has(self, wanted: Profiles) -> bool:
        """Whether it is as wanted."""
        return self == self.given(wanted)

    def given(self, wanted: Profiles) -> Gpu:
        """Its wanted state."""
        mode = bool(wanted)
        return replace(self, enabled=mode, pending=mode, instances=wanted, devices=wanted)

    def is_a(self, kind: str, mig: bool) -> bool:
        """Whether a type of Gres is part of the name that Slurm gives it (`_get_system_gpu_list_nvml`)."""
        name = self.name.lower().replace(" ", "_")
        return kind.lower() in (name.partition("-")[0] if mig else name)

    @property
    def shown(self) -> str:
        """Its layout in words."""
        return " ".join(self.devices) or ("MIG without instances" if self.enabled else "MIG off")


def parse(query: str, listing: str, instances: str) -> list[Gpu]:
    """The GPUs, from what nvidia-smi prints for QUERY, LIST and INSTANCES."""
    devices: dict[int, list[str]] = {}
    made: dict[int, list[str]] = {}
    index = -1
    for line in listing.split("\n"):
        gpu, device = re.match(r"GPU (\d+):", line), re.match(r"\s+MIG (\S+)\s+Device\s", line)
        index = int(gpu[1]) if gpu else index
        if device:
            devices.setdefault(index, []).append(device[1])
    for place, profile in re.findall(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+\d+\s+\d+:\d+", instances, re.MULTILINE):
        made.setdefault(int(place), []).append(profile)
    found = []
    for line in query.split("\n"):
        words = [word.strip() for word in line.split(",")]
        if len(words) == 4 and words[0].isdigit():
            place = int(words[0])
            found.append(
                Gpu(
                    place,
                    words[1],
                    enabled=words[2] == "Enabled",
                    pending=words[3] == "Enabled",
                    capable=words[2] in ("Enabled", "Disabled"),
                    instances=tuple(sorted(made.get(place, []))),
                    devices=tuple(sorted(devices.get(place, []))),
                )
            )
    return found


def layouts(gres: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, Profiles]]:
    """The layouts that a machine type declares: type, how many GPUs, instances of each.

    None if no GPU has the key `mig`: then no layout is declared. Other GPUs of a machine with layouts are whole. Raises
    MigError for profiles that leave a part of their GPU instance unused.
    """
    entries = []
    for entry in gres:
        if not isinstance(entry.get("name"), str):
            raise MigError(f"gres: found {dict(entry)!r}, allowed: a name, and what else the entry has")
        if entry["name"] == "gpu":
            entries.append(entry)
    if not any("mig" in entry for entry in entries):
        return []
    found = []
    for entry in entries:
        mig = entry.get("mig") or {}
        if not isinstance(mig, Mapping) or not all(_PROFILE.fullmatch(str(name)) for name in mig):
            raise MigError(f"mig: found {mig!r}, allowed: numbers of instances by profile, such as 1g.10gb: 7")
        profiles = [name for name, count in mig.items() for _instance in range(_number("mig", count, 7))]
        parts = [name for name in profiles if re.match(r"\dc\.", name)]
        if parts:
            raise MigError(f"mig: found {parts[0]}, allowed: whole GPU instances such as {parts[0].partition('.')[2]}")
        count = 1 if entry.get("count") is None else _number("count", entry["count"], MAX_GPUS)
        found.append((str(entry.get("type") or ""), count, tuple(sorted(profiles))))
    return found


def _number(key: str, value: Any, highest: int) -> int:
    """A whole number from 1. Raises MigError."""
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,4}", str(value)) or not 0 < int(value) <= highest:
        raise MigError(f"{key}: found {value!r}, allowed: a whole number from 1 to {highest}")
    return int(value)


def assign(gpus: Sequence[Gpu], wanted: Iterable[Sequence[Any]]) -> dict[int, Profiles]:
    """The instances of each GPU, by index, so that as few GPUs as possible change; those of no layout are left out.

    Raises MigError where there are too few GPUs of a type, or they cannot have instances.
    """
    result: dict[int, Profiles] = {}
    open_ones = [(str(kind), tuple(profiles)) for kind, count, profiles in wanted for _gpu in range(count)]
    for exact in (True, False):
        for kind, profiles in list(open_ones):
            for gpu in gpus:
                fits = gpu.is_a(kind, bool(profiles)) and (gpu.capable or not profiles)
                if gpu.index not in result and fits and (gpu.has(profiles) or not exact):
                    result[gpu.index] = profiles
                    open_ones.remove((kind, profiles))
                    break
    if open_ones:
        kind, profiles = open_ones[0]
        there = ", ".join(f"{gpu.index}: {gpu.name}{'' if gpu.capable else ' (no MIG)'}" for gpu in gpus) or "none"
        what = f"with {' '.join(profiles)}" if profiles else "without MIG"
        raise MigError(f"{len(open_ones)} GPUs '{kind}' {what} are declared but missing; GPUs: {there}")
    return dict(sorted(result.items()))


def _size(profile: str) -> tuple[int, str]:
    """The order in which GPU instances are created: the largest first, since small ones could take their places."""
    return -int(profile[0]), profile


def commands(gpu: Gpu, wanted: Profiles) -> Iterator[Command]:
    """The commands that can be run now to reach the wanted state of a GPU; further ones follow from a later look."""
    index = str(gpu.index)
    if gpu.has(wanted):
        return
    if gpu.enabled and gpu.instances and (gpu.instances, gpu.devices) != (wanted, wanted):
        if gpu.devices:
            yield ("mig", "-i", index, "-dci")
        yield ("mig", "-i", index, "-dgi")
    if gpu.pending != bool(wanted):
        yield ("-i", index, "-mig", "1" if wanted else "0")
    elif gpu.enabled != bool(wanted):
        yield ("-i", index, "--gpu-reset")
    elif wanted:
        yield ("mig", "-i", index, "-cgi", ",".join(sorted(wanted, key=_size)), "-C")


def look(run: Run) -> list[Gpu]:
    """The GPUs of the host. Raises MigError with nvidia-smi's message."""
    outputs = []
    for command in (QUERY, LIST, INSTANCES):
        status, output = run(command)
        if status and not (command == INSTANCES and NONE.search(output)):
            raise MigError(f"nvidia-smi {' '.join(command)}: {output.strip() or f'exit status {status}'}")
        outputs.append(output)
    gpus = parse(*outputs)
    if not gpus and outputs[0].strip():
        found = outputs[0].strip().split("\n")[0]
        raise MigError(f"nvidia-smi {' '.join(QUERY)}: found {found!r}, which is not understood")
    return gpus


def set_layouts(run: Run, wanted: Sequence[Sequence[Any]], change: bool = True) -> tuple[list[Gpu], list[Gpu]]:
    """Create the wanted instances. No program may be using the GPUs.

    Args:
        run: runs nvidia-smi.
        wanted: layouts, as `layouts` gives them.
        change: whether to do so, or only to tell.

    Returns:
        The GPUs that are not as wanted, before and after; the same where nothing is to be done.

    Raises:
        MigError: the layouts do not fit, or a command failed, or it did not do what it says.
    """
    before = look(run)
    goal = assign(before, wanted)
    wrong = [gpu for gpu in before if gpu.index in goal and not gpu.has(goal[gpu.index])]
    if not change:
        return wrong, [gpu.given(goal[gpu.index]) for gpu in wrong]
    now = before
    for _round in range(ROUNDS):
        todo = [command for gpu in now if gpu.index in goal for command in commands(gpu, goal[gpu.index])]
        if not todo:
            break
        for command in todo:
            status, output = run(command)
            if status:
                raise MigError(f"nvidia-smi {' '.join(command)}: {output.strip() or f'exit status {status}'}")
        now = look(run)
    still = [gpu for gpu in now if gpu.index in goal and not gpu.has(goal[gpu.index])]
    if still:
        shown = ", ".join(f"GPU {gpu.index}: {gpu.shown}" for gpu in still)
        raise MigError(f"nvidia-smi reported no error, but the GPUs do not have the wanted instances: {shown}")
    places = {gpu.index for gpu in wrong}
    return wrong, [gpu for gpu in now if gpu.index in places]
