# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node does to mend itself for a case: it resets its GPUs, mounts file systems again, or makes room.

The node must be drained for this case, and without jobs. slurmd is stopped meanwhile, so that no job can start. After
that the node's processes are looked at once more, since a person may have returned the node before.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..client.commands import run
from ..client.drains import REPAIR
from ..client.scontrol import node_record, reason_of
from ..health import seen_findings
from ..health.finding_table import NONE, RESET
from ..host import replacing
from ..host.device_holders import DeviceHolder, device_holders
from ..host.job_processes import processes, served_jobs
from ..host.json_files import read_record
from ..language.errors import CollectionError
from .node_views import NodeTreated, node_view

STATE = "/run/gpucluster-slurm/treatment.json"
"""The last treatment since the boot."""

NVIDIA = "/dev/nvidia"
"""How the paths of NVIDIA's device files begin: those of GPUs, and of what connects them."""

RESETS = 3
"""How often a reset is tried. Programs that ask the driver for a moment, such as exporters, hinder it."""
PAUSE = 5.0
RESET_SECONDS = 300.0
MOUNT_SECONDS = 60.0
ANSWER_SECONDS = 10.0
"""How long a file system may take to answer."""


class NodeTreatmentError(CollectionError):
    """Why a treatment was not carried out, in one line."""


@dataclass(frozen=True)
class TreatmentState:
    """A treatment of this node."""

    key: str
    """Its case and its time (`repair/cases.treatment_key`)."""
    error: str = "it was ended before its time"
    """Why it was not carried out; empty if it was."""
    is_over: bool = False
    stopped: tuple[str, ...] = ()
    """The units that were stopped for it."""


def load_state() -> TreatmentState | None:
    """The last treatment since the boot; None without one."""
    content = read_record(STATE)
    try:
        return TreatmentState(**{**content, "stopped": tuple(content["stopped"])})
    except (TypeError, KeyError):
        return None


def keep_state(state: TreatmentState) -> None:
    """Keep the state of a treatment. Raises OSError."""
    replacing.replace(STATE, json.dumps(asdict(state)).encode(), 0o600)


def reported() -> NodeTreated | None:
    """What the controllers hear of the last treatment; None until it is over."""
    state = load_state()
    return NodeTreated(state.key, state.error) if state and state.is_over else None


def check_drained(node: str, number: int) -> None:
    """See that a node is drained for a case, and idle. Raises CollectionError otherwise."""
    record = node_record(node)
    view = node_view(record, None)
    reason = reason_of(record).text
    if not reason.startswith(f"{REPAIR}case {number}:"):
        raise NodeTreatmentError(f"the node is not drained for case {number}, found: {reason or 'no reason'}")
    if not view.is_quiet:
        raise NodeTreatmentError(f"its state is {record.get('State')}")


def check_no_jobs() -> None:
    """See that no job has a process on this node. Raises NodeTreatmentError otherwise."""
    if jobs := served_jobs(processes()):
        raise NodeTreatmentError(f"it has jobs: {', '.join(jobs)}")


def stop_units(units: Iterable[str], stopped: Callable[[str], None]) -> None:
    """Stop units. Raises NodeTreatmentError. stopped: gets each unit before it is stopped."""
    for unit in units:
        stopped(unit)
        answer = run(["systemctl", "stop", unit])
        if answer.status:
            raise NodeTreatmentError(f"{unit} does not stop: {answer.message}")


# -- GPUs ------------------------------------------------------------------------------------------------------------


def reset_gpus(stopped: Callable[[str], None], holders: Sequence[DeviceHolder] | None = None) -> None:
    """Reset all GPUs, also those of the same board that are well. Raises NodeTreatmentError.

    Services that have a GPU open are stopped. Processes of people are not ended.
    """
    modes = run(["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"], seconds=ANSWER_SECONDS)
    if "Enabled" in modes.output:
        raise NodeTreatmentError("a GPU has MIG instances")
    found = device_holders(NVIDIA) if holders is None else holders
    if others := [f"{one.pid} ({one.name})" for one in found if not one.service]:
        raise NodeTreatmentError(f"processes have a GPU open: {', '.join(others)}")
    stop_units(sorted({one.service for one in found}), stopped)
    begun = time.time()
    for _try in range(RESETS):
        # Without a device it resets all, with the NVSwitches between them.
        answer = run(["nvidia-smi", "--gpu-reset"], seconds=RESET_SECONDS)
        if not answer.status:
            break
        time.sleep(PAUSE)
    else:
        raise NodeTreatmentError(f"nvidia-smi --gpu-reset: {' '.join(answer.message.split())}")
    close_findings(begun)


def close_findings(until: float) -> None:
    """Close what a reset mends, up to a time. Of some findings the driver does not say that they are over."""
    record = seen_findings.load()
    names = {one.name for one in record.seen if one.of_gpu and one.action in (NONE, RESET)}
    record, _closed = seen_findings.close(record, names, "a reset of all GPUs", time.time(), until)
    for error in filter(None, (seen_findings.remember(record), seen_findings.keep(record))):
        print(error)


# -- file systems ----------------------------------------------------------------------------------------------------


def mount_again(directories: Iterable[str], mounted: Callable[[str], bool] = os.path.ismount) -> None:
    """Mount file systems again that are not mounted or do not answer. Raises NodeTreatmentError."""
    for directory in directories:
        if _answers(directory) and mounted(directory):
            continue
        # What still uses it keeps it: the node has no jobs.
        run(["umount", "--force", "--lazy", directory], seconds=MOUNT_SECONDS)
        unit = run(["systemd-escape", "--path", "--suffix=mount", directory]).output.strip()
        answer = run(["systemctl", "restart", unit], seconds=MOUNT_SECONDS)
        if answer.status:
            raise NodeTreatmentError(f"{directory} cannot be mounted: {answer.message}")


def health_mounts(environment: Mapping[str, str]) -> list[str]:
    """The mount points that the check `filesystems` sees, by its environment."""
    found = environment.get("HEALTH_MOUNTS", "").split()
    for unit in sorted(Path(environment.get("HEALTH_UNITS", "/nonexistent")).glob("*.target.wants/*.mount")):
        text = unit.read_text(encoding="utf-8")
        where = re.search(r"^Where=(.*)$", text, re.MULTILINE)
        if where and "(key storage)" in text:
            found.append(where[1])
    return [*dict.fromkeys(found)]


def _answers(directory: str) -> bool:
    return not run(["stat", "--file-system", directory], seconds=ANSWER_SECONDS).status


# -- room ------------------------------------------------------------------------------------------------------------


def make_room() -> None:
    """Remove what is old by the host's own rules (tmpfiles.d(5)). Raises NodeTreatmentError.

    slurmd, which starts afterwards, removes the private directories of jobs that have ended without it
    (`_restore_ns` in src/plugins/namespace/tmpfs/namespace_tmpfs.c).
    """
    answer = run(["systemd-tmpfiles", "--clean"], seconds=RESET_SECONDS)
    if answer.status:
        raise NodeTreatmentError(f"systemd-tmpfiles --clean: {' '.join(answer.message.split())}")
