# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a node while jobs come and go: compares which job has which GPU with what the jobs themselves have written.

It takes samples until the file STOP exists. Between them, until the file CALM exists, it cancels and requeues jobs, and
kills slurmstepd, prologs and epilogs. The last line of its output is a JSON object.

    usage: watch.py NODE SEED GPU=DEVICE...
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

RUN = Path("/run/gpucluster-slurm")
TRUTH = Path("/run/gpu-truth")
CALM, STOP = Path("/run/gpu-watch/calm"), Path("/run/gpu-watch/stop")
PROGRAM, TEXTFILE = "/usr/local/sbin/slurm-gpu-metrics", Path("/var/lib/prometheus/node-exporter/gpu.prom")
ACTIVE = ("RUNNING", "COMPLETING")
START_SECONDS = 20
"""So long a job has its GPUs without a slurmstepd, since that starts after the prolog (docs/design/gpu_use.md)."""
LEAST = 3.0
"""Seconds that a job takes at least, so that one cannot come and go within a sample that is shorter."""


class Watch:
    """The samples of a node."""

    def __init__(self, node: str, gpus: dict[str, str]) -> None:
        self.node = node
        self.by_device = {device: gpu for gpu, device in gpus.items()}
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.killed: set[str] = set()
        self.seen: set[str] = set()
        self.epilogs: dict[str, float] = {}
        """When the epilog of a job was killed, which may have been before its first command."""

    def states(self) -> dict[str, str]:
        """The states of the jobs that Slurm has now.

        Without -r, squeue hides a requeued task that completes in the pending rest of its array
        (`_combine_pending_array_tasks` in `src/squeue/print.c`).
        """
        output = self.slurm("squeue", "-h", "-r", "-o", "%A %T")
        return dict(line.split() for line in output.split("\n") if line)

    def slurm(self, *command: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(["timeout", "60", *command], capture_output=True, text=True, check=False).stdout

    def truth(self) -> dict[str, tuple[str, frozenset[str]]]:
        """The process and the GPUs of each job that runs, by what it has written itself."""
        found = {}
        for path in TRUTH.glob("[0-9]*"):
            words = read(path).split()
            if path.suffix or not words or "slurm_script" not in read(cmdline(int(words[0]))):
                continue
            gpus = (self.by_device[device] for device in words[1:] if device in self.by_device)
            found[path.name] = words[0], frozenset(gpus)
        return found

    def devices(self, job: str, process: str) -> list[str]:
        """What the cgroups of a job's process let it open, from the innermost one, and what Slurm says of the job."""
        found = re.search(r"^\d+:devices:(/.*)$", read(Path(f"/proc/{process}/cgroup")), re.M)
        lines = []
        place = Path(f"/sys/fs/cgroup/devices{found[1] if found else '/'}")
        while place.name != "devices":
            lines.append(f"{place.name}: {' '.join(read(place / 'devices.list').splitlines())}")
            place = place.parent
        ages = {path.name: time.time() - path.stat().st_mtime for path in TRUTH.glob(f"{job}*")}
        return [*lines, str(ages), self.slurm("scontrol", "--oneliner", "--details", "show", "job", job)]

    def report(self, kind: str, job: str, *values: object) -> None:
        """Note what is wrong."""
        self.counts[kind] += 1
        self.wrong.append(f"{kind} {job}: {values}")

    def sample(self) -> None:
        """Compare once: the series, then the map."""
        begin, states, before = time.monotonic(), self.states(), self.truth()
        while (done := subprocess.run([PROGRAM], capture_output=True, text=True, check=False)).returncode:
            # The timer can have started it at the same time.
            if "gpu-metrics" not in done.stderr:
                self.report("program", "-", done.stderr)
                break
            time.sleep(0.2)
        series = holders(
            re.findall(r'^gpucluster_job_gpu_share\{.*slurmjobid="(\d+)",gpu="([^"]+)"', read(TEXTFILE), re.M)
        )
        between = self.truth()
        directory = RUN / "gpu-jobs"
        in_map = holders((job, path.name) for path in directory.glob("[0-9]*") for job in read(path).split())
        after, states_after = self.truth(), self.states()
        short = time.monotonic() - begin < LEAST
        self.counts["samples"] += 1
        self.seen |= {*before, *after}
        for name, found, first, second in (("series", series, before, between), ("map", in_map, between, after)):
            for job, gpus in found.items():
                self.counts[f"{name}_attributions"] += len(gpus)
                pair = states.get(job, ""), states_after.get(job, "")
                if job in first and first[job] == second.get(job):
                    self.counts[f"{name}_compared"] += len(gpus)
                    if gpus != first[job][1]:
                        self.report(
                            f"{name}_wrong", job, sorted(gpus), first[job], pair, self.devices(job, first[job][0])
                        )
                elif begin < self.epilogs.get(job, -START_SECONDS) + START_SECONDS:
                    self.counts[f"{name}_late"] += 1
                elif short and job not in {*before, *between, *after} and not any(state in ACTIVE for state in pair):
                    self.report(f"{name}_gone", job, sorted(gpus), pair, read(RUN / "gpu-job-data" / job))
            for job in {*first} - self.killed:
                if first[job] == second.get(job) and states.get(job) == states_after.get(job) == "RUNNING":
                    self.counts[f"{name}_expected"] += 1
                    if job not in found:
                        self.report(f"{name}_missing", job, first[job], read(RUN / "gpu-job-data" / job))

    def disturb(self) -> None:
        """Sometimes end a job, or a process of Slurm."""
        running = [job for job in self.truth() if job not in self.killed]
        chance = random.random()
        if chance < 0.12:
            self.kill_script("slurm-prolog" if chance < 0.07 else "slurm-epilog")
        elif not running or chance > 0.5:
            return
        elif chance < 0.25:
            self.counts["cancelled"] += 1
            self.slurm("scancel", random.choice(running))
        elif chance < 0.4:
            self.counts["requeued"] += 1
            self.slurm("scontrol", "requeue", random.choice(running))
        else:
            job = random.choice(running)
            self.killed.add(job)
            for process in processes(f"slurmstepd: [{job}."):
                self.counts["slurmstepd_killed"] += 1
                kill(process)
            time.sleep(random.random())
            self.slurm("scancel", job)
            clear(job)

    def kill_script(self, name: str) -> None:
        """Kill a prolog or epilog that waits for the lock of the map. Slurm drains the node, and holds the job."""
        with open(RUN / "locks/gpus", "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                if found := processes(f"/{name}"):
                    time.sleep(0.3)  # now it waits
                    for process in found:
                        job = re.search("SLURM_JOB_ID=([0-9]+)", read(Path(f"/proc/{process}/environ")))
                        if job and name == "slurm-epilog":
                            self.epilogs[job[1]] = time.monotonic()
                        self.counts[f"{name}_killed"] += 1
                        kill(process)
                    break
                time.sleep(0.05)

    def resume(self) -> None:
        """Give the node and the held jobs back."""
        if "drain" in self.slurm("sinfo", "-h", "-n", self.node, "-o", "%T"):
            self.slurm("scontrol", "update", f"nodename={self.node}", "state=resume")
        for line in self.slurm("squeue", "-h", "-r", "-t", "PD", "-o", "%A %r").split("\n"):
            if "held" in line.lower():
                self.slurm("scontrol", "release", line.split()[0])


def read(path: Path) -> str:
    """The text of a file; empty if it is gone."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def cmdline(process: int) -> Path:
    """The file with the command of a process."""
    return Path(f"/proc/{process}/cmdline")


def processes(text: str) -> list[int]:
    """The processes whose command has this text."""
    found = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [process for process in found if process != os.getpid() and text in read(cmdline(process))]


def kill(process: int) -> None:
    """Kill a process that may have ended."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def clear(job: str) -> None:
    """Remove the cgroups that a killed slurmstepd has left, and end the processes in them.

    Slurm uses them again if the job is requeued. With cgroup v1, what it then allows for the job does not reach a
    cgroup of a step that is there already, so that the job could not open the GPUs of its second run.
    """
    for place in Path("/sys/fs/cgroup").glob(f"*/slurm*/uid_*/job_{job}"):
        places = [*sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True), place]
        for _attempt in range(20):
            for process in {int(number) for path in places for number in read(path / "cgroup.procs").split()}:
                kill(process)
            for path in places:
                with suppress(OSError):
                    path.rmdir()
            if not place.exists():
                break
            time.sleep(0.1)


def holders(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The GPUs of each job."""
    found: dict[str, set[str]] = {}
    for job, gpu in pairs:
        found.setdefault(job, set()).add(gpu)
    return found


def main() -> None:
    """Watch and print."""
    node, seed, *gpus = sys.argv[1:]
    random.seed(int(seed))
    watch = Watch(node, dict(gpu.split("=") for gpu in gpus))
    while not STOP.exists():
        watch.sample()
        watch.resume()
        if not CALM.exists():
            watch.disturb()
        time.sleep(random.uniform(0.2, 1))
    watch.resume()
    print(json.dumps({"counts": watch.counts, "wrong": watch.wrong, "seen": len(watch.seen)}))


if __name__ == "__main__":
    main()
