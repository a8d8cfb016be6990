# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""slurm-gpu-metrics: writes series about this node's GPUs and their jobs into a file that node-exporter reads.

A timer starts it each 30 s. It asks the driver with two calls, puts right which job has which GPU, and asks no daemon
of Slurm. With the argument `sample` it runs all the time, and counts for how long the GPUs of jobs are in use.
docs/design/gpu_use.md has its files and series.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...host.locks import LockError, locked
from ...host.replacing import replace
from ...language.series import Series
from . import gpu_driver, gpu_jobs
from .gpu_calls import DriverCalls, GpuState, GpuUse
from .gpu_driver import DriverGpu, DriverInstance, add_processes, query_amd, query_nvidia, read_use, read_xids
from .gpu_jobs import RecordedJob, changed_at, holders, renew_devices, repair_map

TEXTFILE = "/var/lib/prometheus/node-exporter/gpu.prom"

RUN_SECONDS = 15.0
"""Until a run gives up, as another one holds the lock while nvidia-smi works for it."""

SAMPLE_SECONDS = 5.0
"""Each such span of time is measured by one sample at a random time in it."""
SAMPLE_MOST = 60.0
SAMPLE_CALLS = 10
"""A span is at least this many times as long as the last call of nvidia-smi, so that calls take little of the time."""
RECENT_SECONDS = 60.0
"""Values in percent are the mean of samples of so long, which is the time between two scrapes."""
ENDED_SECONDS = 100.0
"""So long a job that has ended keeps its seconds in the file, so that Prometheus has the last ones."""

HELP = {
    "DCGM_FI_DEV_GPU_TEMP": "Temperature of the GPU in degrees Celsius.",
    "DCGM_FI_DEV_POWER_USAGE": "Power in W.",
    "DCGM_FI_DEV_SM_CLOCK": "Clock of the multiprocessors in MHz.",
    "DCGM_FI_DEV_GPU_UTIL": "Time in which a kernel ran, in percent.",
    "DCGM_FI_DEV_FB_USED": "Memory in use in MiB.",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "Corrected errors of memory since the driver was loaded.",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "Uncorrected errors of memory since the driver was loaded.",
    "DCGM_FI_DEV_XID_ERRORS": "The last Xid in the messages of the kernel since boot, 0 without one.",
    "slurm_job_utilization_gpu": "Time in which a kernel ran on a GPU of the job, in percent.",
    "slurm_job_memory_usage_gpu": "Memory in use on a GPU of the job, in bytes.",
    "slurm_job_memory_total_gpu": "Memory of a GPU of the job, in bytes.",
    "slurm_job_power_gpu": "Power of a GPU of the job in mW.",
    "gpucluster_job_gpu_share": "1 for a GPU of the job, or 1/n while n jobs have the GPU.",
    "gpucluster_job_gpu_busy_seconds_total": "Seconds in which a kernel ran on a GPU of the job, by samples.",
    "gpucluster_job_gpu_measured_seconds_total": "Seconds of the job on the GPU that samples have measured.",
    "gpucluster_job_gpu_errors": "Errors (Xids) of a GPU while the job had it alone.",
    "gpucluster_gpu_allocated": "1 for a GPU or MIG instance that a job has.",
    "gpucluster_gpu_jobs": "Jobs that have the GPU or MIG instance.",
    "gpucluster_gpu_processes": "Processes that compute on the GPU or MIG instance.",
    "gpucluster_gpu_slowed": "1 for a reason why the clocks are lower than they could be.",
    "gpucluster_gpu_query_failures_total": "Calls of the driver's programs that failed or took too long, since boot.",
    "gpucluster_gpu_query_hanging": "1 while a call that could not be killed keeps further ones from being made.",
    "gpucluster_gpu_query_seconds": "Time of the last call.",
}


# -- for how long GPUs are in use ------------------------------------------------------------------------------------


def sample() -> None:
    """Take a sample in each span of time, until this program is replaced."""
    program = Path(sys.argv[0])
    own, begin, length = changed_at(program), time.monotonic(), SAMPLE_SECONDS
    while changed_at(program) == own:
        time.sleep(max(0.0, begin + random.uniform(0, length) - time.monotonic()))
        following = locked_sample(length)
        end = begin + length
        time.sleep(max(0.0, end - time.monotonic()))
        # What a call has taken after the end of its span is not measured.
        begin, length = max(end, time.monotonic()), following


def locked_sample(length: float) -> float:
    """Take a sample, unless another run holds the lock. Returns how long the next span is to be."""
    try:
        with locked("gpu-metrics", RUN_SECONDS):
            return take_sample(length)
    except LockError as error:
        print(error, file=sys.stderr)
        return SAMPLE_SECONDS


def take_sample(length: float) -> float:
    """Count one sample for a span of time. Returns how long the next span is to be."""
    state = GpuState.load(gpu_jobs.RUN / "gpu-state.json")
    held, started = holders(), time.monotonic()
    # Without a job nobody asks the driver, which would start all GPUs where it keeps none started.
    values = read_use(DriverCalls(state, Series())) if held else {}
    took = time.monotonic() - started
    count(state, held, values, length, started)
    state.save(gpu_jobs.RUN / "gpu-state.json")
    return span_after(took)


def span_after(took: float) -> float:
    """How long a span is after a call that took so many seconds."""
    return min(SAMPLE_MOST, max(SAMPLE_SECONDS, SAMPLE_CALLS * took))


def count(
    state: GpuState, held: Mapping[str, Sequence[RecordedJob]], values: Mapping[str, float], length: float, now: float
) -> None:
    """Count a sample for the jobs that have GPUs now. A GPU without a value is not measured, which is not 0."""
    for gpu, jobs in held.items():
        for job in jobs:
            key, start = f"{job.number} {gpu}", job.values.get("start", "")
            if key not in state.use or state.use[key]["start"] != start:
                state.use[key] = GpuUse(
                    labels=job.labels(gpu), start=start, since=now, busy=0.0, measured=0.0, seen=now
                )
            use = state.use[key]
            use["seen"] = now
            if gpu in values:
                use["busy"] += length * values[gpu] / 100
                use["measured"] += length
    for gpu in {*state.recent, *values}:
        samples = [(now, values[gpu])] if gpu in values else []
        state.recent[gpu] = [one for one in state.recent.get(gpu, []) if now - one[0] < RECENT_SECONDS] + samples
    state.use = {key: use for key, use in state.use.items() if now - use["seen"] < ENDED_SECONDS}


def mean_of(state: GpuState, gpu: str, job: str = "") -> float | None:
    """The mean of the recent samples of a GPU, or of those since a job has it; None without one."""
    since = time.monotonic() - RECENT_SECONDS
    if job:
        use = state.use.get(f"{job} {gpu}")
        since = max(since, use["since"] if use else math.inf)
    values = [value for when, value in state.recent.get(gpu, []) if when >= since]
    return round(sum(values) / len(values), 1) if values else None


def add_use(series: Series, state: GpuState) -> None:
    """Add the seconds of jobs."""
    for use in state.use.values():
        series.add("gpucluster_job_gpu_busy_seconds_total", round(use["busy"], 3), **use["labels"])
        series.add("gpucluster_job_gpu_measured_seconds_total", round(use["measured"], 3), **use["labels"])


# -- series ----------------------------------------------------------------------------------------------------------


def add_gpus(
    series: Series, gpus: Sequence[DriverGpu], jobs: Mapping[str, Sequence[RecordedJob]], state: GpuState
) -> None:
    """Add what the driver says of GPUs and MIG instances."""
    for gpu in gpus:
        labels = {**gpu.labels, **hpc_job(jobs.get(gpu.name, []))}
        mean = mean_of(state, gpu.name)
        values = gpu.values if mean is None else {**gpu.values, "GPU_UTIL": mean}
        for name, value in values.items():
            # Instances have the memory of their GPU, so that a sum counts it once.
            if name != "FB_USED" or not gpu.instances:
                series.add(f"DCGM_FI_DEV_{name}", value, **labels)
        if gpu.address:
            xid = state.xids.get(gpu.address.partition(".")[0], 0)
            series.add("DCGM_FI_DEV_XID_ERRORS", xid, **labels)
        for reason in gpu.slowed:
            series.add("gpucluster_gpu_slowed", 1, gpu=gpu.name, reason=reason)
        for instance in gpu.instances:
            own = {"GPU_I_ID": instance.number, **hpc_job(jobs.get(instance.name, []))}
            series.add("DCGM_FI_DEV_FB_USED", instance.used, **gpu.labels, **own)


def hpc_job(jobs: Sequence[RecordedJob]) -> dict[str, str]:
    """The label with the jobs of a GPU, as dcgm-exporter names it; none for a free GPU."""
    return {"hpc_job": ",".join(job.number for job in jobs)} if jobs else {}


def add_jobs(
    series: Series, gpus: Sequence[DriverGpu], jobs: Mapping[str, Sequence[RecordedJob]], state: GpuState
) -> None:
    """Add who has which GPU, and what the job of a GPU makes of it."""
    whole = {gpu.name: gpu for gpu in gpus if not gpu.mig}
    instances = {instance.name: instance for gpu in gpus for instance in gpu.instances}
    for name in sorted({*jobs, *whole, *instances}, key=lambda name: [int(part) for part in name.split(".")]):
        holders = jobs.get(name, [])
        series.add("gpucluster_gpu_allocated", bool(holders), gpu=name)
        series.add("gpucluster_gpu_jobs", len(holders), gpu=name)
        place = whole.get(name) or instances.get(name)
        if place is not None:
            series.add("gpucluster_gpu_processes", place.processes, gpu=name)
        for job in holders:
            labels = job.labels(name)
            series.add("gpucluster_job_gpu_share", 1 / len(holders), **labels)
            if place is not None:
                add_job(series, place, labels, len(holders) > 1, mean_of(state, name, job.number))


def add_job(
    series: Series, place: DriverGpu | DriverInstance, labels: Mapping[str, str], shared: bool, mean: float | None
) -> None:
    """Add what the driver says of a GPU or MIG instance of a job, and the mean of the job's samples if there is one."""
    values, model = (
        (place.values, place.model) if isinstance(place, DriverGpu) else ({"FB_USED": place.used}, place.gpu.model)
    )
    own = {**labels, "gpu_type": model, "shared": str(int(shared))}
    used, power = values.get("FB_USED"), values.get("POWER_USAGE")
    series.add("slurm_job_utilization_gpu", values.get("GPU_UTIL") if mean is None else mean, **own)
    series.add("slurm_job_memory_usage_gpu", used and round(used * 1024**2), **own)
    series.add("slurm_job_memory_total_gpu", place.memory and round(place.memory * 1024**2), **own)
    series.add("slurm_job_power_gpu", power and round(power * 1000), **own)


def add_errors(series: Series, gpus: Sequence[DriverGpu], jobs: Iterable[RecordedJob], state: GpuState) -> None:
    """Add the Xids of the GPUs of jobs. A GPU that several jobs had at the time, or with MIG, says nothing of a job."""
    known, boot = [*jobs], time.time() - time.monotonic()
    counts: dict[tuple[str, str, int], int] = {}
    by_number = {job.number: job for job in known}
    for when, address, number in state.xid_log:
        for gpu in gpus:
            holders = [job for job in known if job.had(gpu.name, boot + when / 1e6)]
            if gpu.address.partition(".")[0] == address and not gpu.mig and len(holders) == 1:
                key = holders[0].number, gpu.name, number
                counts[key] = counts.get(key, 0) + 1
    for (job, name, number), count in counts.items():
        series.add("gpucluster_job_gpu_errors", count, xid=str(number), **by_number[job].labels(name))


def collect() -> None:
    """Write the file anew."""
    state = GpuState.load(gpu_jobs.RUN / "gpu-state.json")
    series = Series(HELP)
    calls = DriverCalls(state, series)
    # A machine with both has a graphics part of AMD's in its CPU.
    gpus = [] if (gpu_driver.ROOT / "proc/driver/nvidia").exists() else query_amd()
    if not gpus:
        gpus = query_nvidia(calls, state)
        if gpus:
            add_processes(gpus, calls)
        read_xids(state)
    if gpus:
        renew_devices(gpus, calls, state)
    add_use(series, state)
    try:
        jobs = repair_map()
    except LockError as error:
        # The series of GPUs are right without jobs. Whether a GPU is allocated is not known now.
        print(error, file=sys.stderr)
        add_gpus(series, gpus, {}, state)
    else:
        add_gpus(series, gpus, jobs, state)
        add_jobs(series, gpus, jobs, state)
        running = {job.number: job for holders in jobs.values() for job in holders}
        add_errors(series, gpus, [*running.values(), *gpu_jobs.ended_jobs(ENDED_SECONDS)], state)
    for query in ("gpu", "processes", "slurmd", "use"):
        series.add("gpucluster_gpu_query_failures_total", state.failures.get(query, 0), query=query)
    series.add("gpucluster_gpu_query_hanging", calls.hangs())
    replace(TEXTFILE, series.text().encode())
    state.save(gpu_jobs.RUN / "gpu-state.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    os.umask(0o022)  # that of a person may be any
    try:
        if "sample" in (sys.argv[1:] if arguments is None else arguments):
            sample()
        else:
            with locked("gpu-metrics", RUN_SECONDS):
                collect()
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
