# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which job of a node has which of its GPUs: the map that slurm-prolog, slurm-epilog and slurm-gpu-metrics write."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...host.locks import locked
from ...host.replacing import replace
from ...language.hostlist import expand
from . import gpu_driver
from .gpu_calls import DriverCalls, GpuState, read
from .gpu_driver import DriverGpu

RUN = Path("/run/gpucluster-slurm")
"""What a reboot removes. slurm-prolog and slurm-epilog (role slurmctld) have the same paths."""
CONFIGURATIONS = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
"""slurmd's slurm.conf: what it has fetched, or else the file of the host."""

SLURMD_SECONDS = 30.0
"""For `slurmd -G`: NVML starts all GPUs of a node whose driver keeps none started."""
SLURMD_PAUSE = 600.0
"""Until slurmd is asked again after an answer that was of no use."""
LOCK_SECONDS = 5.0
START_SECONDS = 20.0
"""Until slurmd has started the external step, which follows the prolog."""
KEPT_SECONDS = 86400.0
"""Until data of a job without steps is removed. Its epilog was lost."""

NAME = re.compile(r"\d+(\.\d+)?")
"""A name in the map: a GPU, or a GPU instance of it."""


@dataclass
class RecordedJob:
    """A job of this node, as its prolog has recorded it."""

    number: str
    values: dict[str, str]
    changed: int
    """When the prolog has written it, in ns."""
    ended: float = math.inf
    """When its epilog ran, in seconds since 1970."""

    @property
    def names(self) -> list[str]:
        """Its GPUs in the map; empty while only slurmd's places are known."""
        return self.values.get("names", "").split()

    def had(self, gpu: str, when: float) -> bool:
        """Whether it had a GPU of the map at a time, in seconds since 1970."""
        start = float(self.values.get("start") or self.changed / 1e9)
        return gpu in self.names and start <= when <= self.ended

    def labels(self, gpu: str) -> dict[str, str]:
        """Of its series about a GPU."""
        own = {key: self.values.get(key, "") for key in ("user", "account", "partition")}
        return {**own, "slurmjobid": self.number, "gpu": gpu}


def parse_gres(output: str) -> list[list[str]]:
    """The device files of each GPU in slurmd's order, from what `slurmd -G` prints."""
    devices = []
    for count, text in re.findall(r"Gres Name=gpu .*?Count=(\d+) .*?File=(\S+)", output):
        try:
            files = expand(text)
        except ValueError:
            return []
        # A MIG instance has several files, and is one GPU for Slurm.
        devices += [[file] for file in files] if len(files) == int(count) else [files]
    return [files for files in devices if files]


def name_of(files: Sequence[str], gpus: Iterable[DriverGpu]) -> str:
    """The name in the map of a GPU that has these device files; empty if the driver does not show it."""
    gpu = next((gpu for gpu in gpus if f"/dev/{gpu.device}" == files[0]), None)
    if gpu is None or len(files) == 1:
        return gpu.name if gpu else ""
    minors = {file.rpartition("nvidia-cap")[2] for file in files[1:]}
    # Slurm's NVML plugin reads the same file (`_nvml_get_mig_minor_numbers`).
    text = read(gpu_driver.ROOT / "proc/driver/nvidia-caps/mig-minors")
    for number_of_gpu, instance, minor in re.findall(r"^gpu(\d+)/gi(\d+)/access (\d+)$", text, re.MULTILINE):
        if gpu.device == f"nvidia{number_of_gpu}" and minor in minors:
            return f"{gpu.name}.{instance}"
    return ""


def renew_devices(gpus: Sequence[DriverGpu], calls: DriverCalls, state: GpuState) -> None:
    """Write gpu-devices anew if slurmd can have read other files since. Its time is that of the newest of them."""
    configuration = next((path for path in map(Path, CONFIGURATIONS) if path.exists()), None)
    if configuration is None:
        return
    sources = [configuration, configuration.parent / "gres.conf", RUN / "gpus-changed"]
    newest = max(changed_at(path) for path in sources)
    if changed_at(RUN / "gpu-devices") >= newest or time.time() < state.slurmd_after:
        return
    answer = calls.run("slurmd", ["slurmd", "-G", "-f", str(configuration)], SLURMD_SECONDS)
    devices = parse_gres(answer[1]) if answer and not answer[0] else []
    if not devices:
        calls.count_failure("slurmd")
        state.slurmd_after = time.time() + SLURMD_PAUSE
        return
    named = ((place, name_of(files, gpus), files) for place, files in enumerate(devices))
    text = "".join(f"{place} {name} {','.join(files)}\n" for place, name, files in named if name)
    replace(str(RUN / "gpu-devices"), text.encode())
    os.utime(RUN / "gpu-devices", ns=(newest, newest))


def changed_at(path: Path) -> int:
    """When a file was changed, in ns; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def read_devices() -> dict[str, str]:
    """The names in the map by slurmd's places."""
    rows = (line.split() for line in read(RUN / "gpu-devices").split("\n"))
    return {row[0]: row[1] for row in rows if len(row) == 3}


def running_jobs() -> set[str]:
    """The jobs that have a slurmstepd here. It listens at a socket of root; slurmd's directory can be of SlurmUser."""
    found: set[str] = set()
    for path, job in re.findall(
        r"^\S+ \S+ \S+ 00010000 \S+ \S+ +\d+ (/.+/[^/\n]+_(\d+)\.\d+(?:\.\d+)?)$",
        read(gpu_driver.ROOT / "proc/net/unix"),
        re.MULTILINE,
    ):
        with suppress(OSError):
            if os.lstat(path).st_uid == os.geteuid() and not os.stat(os.path.dirname(path)).st_mode & 0o022:
                found.add(job)
    return found


def read_values(path: Path) -> dict[str, str]:
    """What the prolog has recorded of a job."""
    return dict(line.split("=", 1) for line in read(path).split("\n") if "=" in line)


def load_jobs() -> list[RecordedJob]:
    """The jobs that have GPUs, by what their prologs have recorded, without those that have ended without an epilog.

    slurmd starts a step for each job right after the prolog, so that a job without one is gone. Its data stays for
    some time, since without `PrologFlags=contain` an allocation may have steps later.
    """
    jobs: list[RecordedJob] = []
    running, now = running_jobs(), time.time()
    for path in sorted((RUN / "gpu-job-data").glob("[0-9]*")):
        changed = changed_at(path)
        age = now - changed / 1e9
        if path.name in running or 0 <= age < START_SECONDS:
            job = RecordedJob(path.name, read_values(path), changed)
            if job.values.get("gpus"):
                jobs.append(job)
        elif age >= KEPT_SECONDS:
            path.unlink(missing_ok=True)
    return jobs


def ended_jobs(seconds: float) -> list[RecordedJob]:
    """The jobs that have ended within so many seconds. What their epilogs have left of others is removed."""
    found = []
    for path in (RUN / "gpu-job-ended").glob("[0-9]*"):
        with suppress(OSError):
            status = path.stat()
            if 0 <= time.time() - status.st_ctime < seconds:
                found.append(RecordedJob(path.name, read_values(path), status.st_mtime_ns, status.st_ctime))
            else:
                path.unlink()
    return found


def repair_map() -> dict[str, list[RecordedJob]]:
    """Put right which job has which GPU, and return it: the jobs by the name of the GPU."""
    devices = read_devices()
    with locked("gpus", LOCK_SECONDS):
        found: dict[str, list[RecordedJob]] = {name: [] for name in devices.values()}
        for job in load_jobs():
            added = [devices[place] for place in job.values["gpus"].split(",") if place in devices]
            if not job.names and added:
                job.values["names"] = " ".join(dict.fromkeys(added))
                path = RUN / "gpu-job-data" / job.number
                text = "".join(f"{key}={value}\n" for key, value in job.values.items())
                replace(str(path), text.encode(), 0o600)
                os.utime(path, ns=(job.changed, job.changed))
            for name in filter(NAME.fullmatch, job.names):
                found.setdefault(name, []).append(job)
        directory = RUN / "gpu-jobs"
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in {path.name for path in directory.glob("[0-9]*")} | {name for name in found if found[name]}:
            text = "".join(f"{job.number}\n" for job in found.get(name, []))
            if read(directory / name) != text:
                replace(str(directory / name), text.encode())
    return found


def holders() -> dict[str, list[RecordedJob]]:
    """The jobs of each GPU that is allocated, without MIG instances, which have no utilization."""
    found = {}
    for path in (RUN / "gpu-jobs").glob("[0-9]*"):
        numbers = [number for number in read(path).split() if path.name.isdecimal() and number.isdecimal()]
        jobs = [RecordedJob(number, read_values(RUN / "gpu-job-data" / number), 0) for number in numbers]
        # An epilog removes the values first.
        if present := [job for job in jobs if job.values]:
            found[path.name] = present
    return found
