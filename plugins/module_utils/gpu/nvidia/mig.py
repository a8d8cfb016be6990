# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG: the present and the wanted instances of a host's GPUs, and the nvidia-smi commands for the changes.

The rules are those of NVIDIA's MIG user guide: instances are gone after a boot; a GPU whose mode was changed may wait
for a reset ("pending"); an instance must have no compute instances before it is destroyed.
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
Layout = tuple[str, int, Profiles]
"""A layout that a machine type declares: type of the GPUs, how many, the instances of each."""


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

    def can_have(self, kind: str, wanted: Profiles) -> bool:
        """Whether it is of a type and can have these instances."""
        return self.is_a(kind, bool(wanted)) and (self.capable or not wanted)

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


def layouts(gres: Iterable[Mapping[str, Any]]) -> list[Layout]:
    """The layouts that a machine type declares.

    None if no GPU has the key `mig`: then no layout is declared. Other GPUs of a machine with layouts are whole. Raises
    MigError for profiles that leave a part of their GPU instance unused.
    """
    gpus = []
    for entry in gres:
        if not isinstance(entry.get("name"), str):
            raise MigError(f"gres: found {dict(entry)!r}, allowed: a name, and what else the entry has")
        if entry["name"] == "gpu":
            gpus.append(entry)
    declared = any("mig" in entry for entry in gpus)
    return [_read_layout(entry) for entry in gpus] if declared else []


def _read_layout(entry: Mapping[str, Any]) -> Layout:
    """The layout of the GPUs of an entry of gres. Raises MigError."""
    mig = entry.get("mig") or {}
    if not isinstance(mig, Mapping) or not all(_PROFILE.fullmatch(str(name)) for name in mig):
        raise MigError(f"mig: found {mig!r}, allowed: numbers of instances by profile, such as 1g.10gb: 7")
    profiles = [name for name, count in mig.items() for _instance in range(_number("mig", count, 7))]
    parts = [name for name in profiles if re.match(r"\dc\.", name)]
    if parts:
        raise MigError(f"mig: found {parts[0]}, allowed: whole GPU instances such as {parts[0].partition('.')[2]}")
    count = 1 if entry.get("count") is None else _number("count", entry["count"], MAX_GPUS)
    return str(entry.get("type") or ""), count, tuple(sorted(profiles))


def _number(key: str, value: Any, highest: int) -> int:
    """A whole number from 1. Raises MigError."""
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,4}", str(value)) or not 0 < int(value) <= highest:
        raise MigError(f"{key}: found {value!r}, allowed: a whole number from 1 to {highest}")
    return int(value)


def assign(gpus: Sequence[Gpu], wanted: Iterable[Layout]) -> dict[int, Profiles]:
    """The instances of each GPU, by index, so that as few GPUs as possible change; those of no layout are left out.

    Raises MigError where there are too few GPUs of a type, or they cannot have instances.
    """
    unassigned = [(str(kind), tuple(profiles)) for kind, count, profiles in wanted for _gpu in range(count)]
    goal: dict[int, Profiles] = {}
    for as_it_is in (True, False):
        for kind, profiles in [*unassigned]:
            fitting = (gpu for gpu in gpus if gpu.index not in goal and gpu.can_have(kind, profiles))
            gpu = next((gpu for gpu in fitting if gpu.has(profiles) or not as_it_is), None)
            if gpu:
                goal[gpu.index] = profiles
                unassigned.remove((kind, profiles))
    if unassigned:
        raise MigError(_describe_lack(gpus, *unassigned[0], len(unassigned)))
    return dict(sorted(goal.items()))


def _describe_lack(gpus: Sequence[Gpu], kind: str, profiles: Profiles, number: int) -> str:
    """The message for a number of GPUs that are declared and that the host does not have."""
    present = ", ".join(f"{gpu.index}: {gpu.name}{'' if gpu.capable else ' (no MIG)'}" for gpu in gpus) or "none"
    what = f"with {' '.join(profiles)}" if profiles else "without MIG"
    return f"{number} GPUs '{kind}' {what} are declared but missing; GPUs: {present}"


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
            raise _failure(command, status, output)
        outputs.append(output)
    gpus = parse(*outputs)
    if not gpus and outputs[0].strip():
        found = outputs[0].strip().split("\n")[0]
        raise MigError(f"nvidia-smi {' '.join(QUERY)}: found {found!r}, which is not understood")
    return gpus


def _failure(command: Command, status: int, output: str) -> MigError:
    """The error for a command that failed."""
    return MigError(f"nvidia-smi {' '.join(command)}: {output.strip() or f'exit status {status}'}")


def _find_wrong(gpus: Iterable[Gpu], goal: Mapping[int, Profiles]) -> list[Gpu]:
    """The GPUs that are not as wanted."""
    return [gpu for gpu in gpus if gpu.index in goal and not gpu.has(goal[gpu.index])]


def _change_gpus(run: Run, gpus: list[Gpu], goal: Mapping[int, Profiles]) -> list[Gpu]:
    """Run commands until there are none for the wanted instances, and return the GPUs of the last look.

    Raises MigError with the message of a command that failed.
    """
    for _round in range(ROUNDS):
        todo = [command for gpu in gpus if gpu.index in goal for command in commands(gpu, goal[gpu.index])]
        if not todo:
            break
        for command in todo:
            status, output = run(command)
            if status:
                raise _failure(command, status, output)
        gpus = look(run)
    return gpus


def set_layouts(run: Run, wanted: Iterable[Layout], change: bool = True) -> tuple[list[Gpu], list[Gpu]]:
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
    wrong = _find_wrong(before, goal)
    if not change:
        return wrong, [gpu.given(goal[gpu.index]) for gpu in wrong]
    after = _change_gpus(run, before, goal)
    if still_wrong := _find_wrong(after, goal):
        shown = ", ".join(f"GPU {gpu.index}: {gpu.shown}" for gpu in still_wrong)
        raise MigError(f"nvidia-smi reported no error, but the GPUs do not have the wanted instances: {shown}")
    changed = {gpu.index for gpu in wrong}
    return wrong, [gpu for gpu in after if gpu.index in changed]
