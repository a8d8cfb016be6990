# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stream of short jobs over all nodes, and a ledger that they write themselves in /home, which the hosts share.

Seven of eight jobs want one node each, in turn: they wait for a node that is out of service, so that they start there
as soon as anything lets them. Two of three allow a requeue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lab import Lab

NAME = "stream"
USER, UID = "alice", 4711
WORK = f"/home/{NAME}"
SECONDS = 45
"""How long a job takes: long enough that repair finds jobs that cannot go on, and requeues them."""
PAUSE = 4
"""Seconds between two jobs."""
LOST_SECONDS = 15
"""What a killed slurmctld has done within ten seconds before its end is lost, as no file has it. Five more for hosts
that are busy."""
END_SECONDS = 30
"""How long a job that has ended may take to be none on its node."""

JOB = f"""\
#!/bin/sh
echo "start $SLURM_JOB_ID $(hostname) $SLURM_JOB_START_TIME $(date +%s)" >>ledger
sleep {SECONDS}
echo "end $SLURM_JOB_ID $(hostname) $SLURM_JOB_START_TIME $(date +%s)" >>ledger
"""

# A line for each job that slurmctld took: when, its number, and whether it allows a requeue.
LOAD = f"""\
number=0
until [ -e stop ]; do
    number=$((number + 1)); place=$((number % 8)); requeue=requeue; node=
    [ $((number % 3)) -gt 0 ] || requeue=no-requeue
    [ $place -eq 0 ] || node=--nodelist=$(echo $NODES | cut -d ' ' -f $place)
    job=$(timeout 100 sbatch --parsable --$requeue $node --mem=20 -o /dev/null -J {NAME} job 2>>errors) &&
        echo "$(date +%s) $job $requeue" >>submitted
    sleep {PAUSE}
done
"""


class TakenJob(NamedTuple):
    """A job that slurmctld took."""

    when: int
    number: int
    requeues: bool


class JobStart(NamedTuple):
    """A start of a job, as the job has written it."""

    number: int
    node: str
    given: int
    """When slurmctld gave it the node."""
    began: int
    """When its script began."""


class Outage(NamedTuple):
    """A time in which a node has a fault. Times are seconds since 1970."""

    node: str
    finding: str
    began: float
    opened: float
    """When its case began."""
    proven: float
    """When it was measured, or a person had mended it."""
    is_urgent: bool
    """Whether its jobs cannot go on."""
    reset: float = 0.0
    """When the node was reset by itself; 0 if it was not."""


@dataclass
class Ledger:
    """What the jobs have written."""

    jobs: Sequence[TakenJob]
    starts: Mapping[int, list[JobStart]] = field(default_factory=dict)
    """By job."""
    ends: Mapping[int, list[int]] = field(default_factory=dict)
    """When a job has ended, by job."""

    def within(self, outages: Iterable[Outage]) -> list[tuple[JobStart, Outage]]:
        """The jobs that slurmctld has given a node between the beginning of its case and the proof."""
        starts = [start for several in self.starts.values() for start in several]
        return [
            (start, outage)
            for outage in outages
            for start in starts
            if start.node == outage.node and outage.opened < start.given < outage.proven
        ]

    def changed_at(self, killed: float) -> set[int]:
        """The jobs that were submitted, began or ended just before slurmctld was killed."""
        times = [(job.when, job.number) for job in self.jobs]
        times += [(when, start.number) for several in self.starts.values() for start in several for when in start[2:]]
        times += [(when, number) for number, several in self.ends.items() for when in several]
        return {number for when, number in times if killed - LOST_SECONDS <= when <= killed + 1}

    def lost(self, outages: Sequence[Outage]) -> tuple[dict[int, str], int]:
        """What is wrong with jobs, by their numbers, and how many were lost as Slurm loses them.

        Each job has ended once. It has begun once, or else on nodes whose jobs could not go on, if it allows a requeue.
        One that allows none ends with a node that is reset.
        """
        wrong, lost = dict[int, str](), 0
        for job in self.jobs:
            starts, ends = self.starts.get(job.number, []), self.ends.get(job.number, [])
            if not job.requeues and len(starts) == 1 and not ends and _was_reset(starts[0], outages):
                lost += 1
            elif len(ends) != 1 or not starts:
                wrong[job.number] = f"{job}: {len(ends)} ends, {starts}"
            elif len(starts) > 1 and not (job.requeues and all(_could_not_go_on(one, outages) for one in starts[:-1])):
                wrong[job.number] = f"{job}: began again without need, {starts}"
        return wrong, lost


def _was_reset(start: JobStart, outages: Iterable[Outage]) -> bool:
    """Whether the node of a job was reset while it ran."""
    return any(one.node == start.node and start.given <= one.reset <= start.began + SECONDS + 1 for one in outages)


def _could_not_go_on(start: JobStart, outages: Iterable[Outage]) -> bool:
    """Whether a job was on a node with a fault for which jobs are requeued, or that was reset."""
    latest = start.began + SECONDS + END_SECONDS
    return any(one.node == start.node and one.is_urgent and one.began <= latest < one.proven for one in outages)


@dataclass(frozen=True)
class JobStream:
    """The jobs of a user, submitted on a host."""

    lab: Lab
    host: str

    def start(self, hosts: Sequence[str]) -> None:
        """Submit from now on. hosts: all that need the user."""
        for name in hosts:
            self.lab.command(name, f"id {USER} 2>/dev/null || useradd --uid {UID} --no-create-home {USER}")
        self.lab.command(self.host, f"rm -rf {WORK}; install --directory --owner={USER} {WORK}")
        for name, text in (("job", JOB), ("load", LOAD)):
            self.lab.script(self.host, f"cat >{WORK}/{name}", text.encode())
        nodes = " ".join(self.lab.nodes)
        unit = f"systemd-run --quiet --collect --unit={NAME} --uid={USER} --working-directory={WORK}"
        self.lab.command(self.host, f"{unit} --setenv=NODES='{nodes}' sh load")

    def stop(self) -> None:
        """Submit no more."""
        self.lab.host(self.host).run(f"touch {WORK}/stop; while systemctl is-active --quiet {NAME}; do sleep 1; done")

    def finish(self, seconds: int) -> Ledger:
        """Submit no more, wait for all jobs, and read what they have written."""
        self.stop()
        left = f"found=$(timeout 60 squeue --noheader --name={NAME} --format=%i) && echo =$found="
        self.lab.wait_for(self.host, left, "==", seconds)
        print(self.lab.command(self.host, f"cd {WORK} && sort errors | uniq -c"))
        rows = [line.split() for line in self.lab.command(self.host, f"cat {WORK}/submitted").splitlines()]
        jobs = [TakenJob(int(when), int(number), requeue == "requeue") for when, number, requeue in rows]
        starts: dict[int, list[JobStart]] = defaultdict(list)
        ends: dict[int, list[int]] = defaultdict(list)
        for line in self.lab.command(self.host, f"cat {WORK}/ledger").splitlines():
            what, number, node, given, when = line.split()
            if what == "start":
                starts[int(number)].append(JobStart(int(number), node, int(given), int(when)))
            else:
                ends[int(number)].append(int(when))
        return Ledger(jobs, starts, ends)
