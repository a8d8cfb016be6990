# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes that have broken clusters, each by site.yml on a cluster with a job on each node.

A change is refused, applied without harm, or put back. After each of them both jobs still run, every node takes a new
job, and accounting answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, with_cluster

HEAD = "fault-head"
NODES = ("fault01", "fault02")
AS_IT_IS = (
    "sha256sum /etc/slurm/*.conf /var/lib/gpucluster-slurm/good/*; pidof slurmctld slurmdbd; "
    "squeue -h -t PENDING,RUNNING,SUSPENDED -o '%i %T %r'"  # what the test before has run may still be completing
)

Cluster = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A change of the cluster file, or of the controller itself.

    make: changes the content of the cluster file. message: a part of the run's error; empty if the run succeeds.
    untouched: whether no file of the controller and no daemon may change; a change that is put back restarts daemons.
    by_hand: a command on the controller that precedes the run. variables: variables next to the cluster file.
    """

    make: Callable[[Cluster], object]
    message: str = ""
    untouched: bool = True
    by_hand: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)


def conf(**values: Any) -> Callable[[Cluster], object]:
    """A change of slurm.conf."""
    return lambda cluster: cluster.setdefault("slurm_conf", {}).update(values)


def node(**values: Any) -> Callable[[Cluster], object]:
    """A change of the line of the second node."""
    return lambda cluster: cluster["nodes"][1].update(values)


def partition(**values: Any) -> Callable[[Cluster], object]:
    """A change of the partition."""
    return lambda cluster: cluster["partitions"][0].update(values)


NOWHERE = "/nonexistent"
TAKEN_PORT = 7777
CHANGES: dict[str, Change] = {
    "nodes have a second to answer": Change(conf(SlurmdTimeout=1), "ENDS JOBS"),
    # Slurm logs an error and goes on; the run has a warning.
    "a step has less time to end than a message": Change(conf(UnkillableStepTimeout=10), untouched=False),
    "no prolog": Change(conf(Prolog=NOWHERE), NOWHERE),
    "no epilog": Change(conf(Epilog=NOWHERE), NOWHERE),
    "no prolog of tasks": Change(conf(TaskProlog=NOWHERE), NOWHERE),
    "no health check": Change(conf(HealthCheckProgram=NOWHERE, HealthCheckInterval=60), NOWHERE),
    "slurmdbd on the port of slurmctld": Change(conf(), "6817", variables={"slurmdbd_conf": {"DbdPort": 6817}}),
    "slurmd on the port of ssh": Change(conf(SlurmdPort=22), "22"),
    "one slurmd on the port of ssh": Change(node(Port=22), "22"),
    "a port that another program has": Change(conf(SlurmdPort=TAKEN_PORT), str(TAKEN_PORT), untouched=False),
    "slurmd without rights": Change(conf(SlurmdUser="nobody"), "nobody", untouched=False),
    "no such plugin for MPI": Change(conf(MpiDefault="pmix_v9"), "pmix_v9"),
    "none for PrEpPlugins": Change(conf(PrEpPlugins="none"), "PrEpPlugins"),
    "none for SchedulerType": Change(conf(SchedulerType="none"), "SchedulerType"),
    "none for PriorityType": Change(conf(PriorityType="none"), "PriorityType"),
    "none for JobSubmitPlugins": Change(conf(JobSubmitPlugins="none"), "JobSubmitPlugins"),
    "none for BurstBufferType": Change(conf(BurstBufferType="none"), "BurstBufferType"),
    "none for NodeFeaturesPlugins": Change(conf(NodeFeaturesPlugins="none"), "NodeFeaturesPlugins"),
    "slurmctld as another user": Change(conf(SlurmUser="munge"), "SlurmUser"),
    "no time for any job": Change(partition(MaxTime=0), "MaxTime"),
    "node UP": Change(node(State="UP"), "State"),
    "node PLANNED": Change(node(State="PLANNED"), "State"),
    "node FUTURE+DRAIN": Change(node(State="FUTURE+DRAIN"), "State"),
    "node bogus": Change(node(State="bogus"), "bogus"),
    # It is part of the name, as in other programs; Slurm goes on without such a partition, and the run has a warning.
    "a backslash at the end": Change(partition(Alternate="a\\"), untouched=False),
    "a port of slurmdbd on which nothing listens": Change(conf(AccountingStoragePort=1), "AccountingStoragePort"),
    "an edit by hand, and no kept state": Change(
        lambda cluster: cluster,
        untouched=False,
        by_hand="rm -r /var/lib/gpucluster-slurm/good; sed -i 's/Nodes=ALL/Nodes=fault01/' /etc/slurm/slurm.conf",
    ),
    "a good change": Change(conf(KillWait=31), untouched=False),
}


@pytest.fixture(scope="module", name="jobs")
def jobs_on_both_nodes(lab: Lab) -> Iterator[list[str]]:
    """The numbers of two jobs that no change may end. A program on one node listens on a port of its own."""
    lab.command(NODES[1], f"systemd-run --quiet python3 -m http.server {TAKEN_PORT}")
    submit = "sbatch --parsable --nodelist={} --output=/dev/null --wrap 'sleep 7200'"
    jobs = [lab.command(HEAD, submit.format(name)) for name in NODES]
    for job in jobs:
        lab.wait_for(HEAD, f"squeue -h -j {job} -o %T", "RUNNING")
    yield jobs
    lab.command(HEAD, "scancel --user=root")


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_breaks_a_cluster(lab: Lab, jobs: list[str], tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    cluster = deepcopy(lab.cluster)
    change.make(cluster)
    if change.by_hand:
        lab.command(HEAD, change.by_hand)
    before = lab.command(HEAD, AS_IT_IS)

    run = with_cluster(lab, tmp_path, cluster, **change.variables).playbook("site", "--skip-tags=validate")

    failures = [message for messages in run.failed.values() for message in messages]
    assert bool(run.rc) == bool(change.message), run.output[-3000:]
    if change.message:
        text = "\n".join(failures) or run.output
        assert change.message in text, run.output[-3000:]
    if change.untouched:
        assert lab.command(HEAD, AS_IT_IS) == before
    alive = f"squeue -h -t RUNNING -j {','.join(jobs)} -o %i | sort"
    assert lab.command(HEAD, alive).split() == sorted(jobs)
    states = "sacct -nPX -j {} -o State".format(",".join(jobs))
    assert lab.command(HEAD, states).split() == ["RUNNING"] * len(jobs)
    assert lab.command(HEAD, "timeout 120 srun -N2 hostname | sort").split() == list(NODES)
    assert lab.command(HEAD, "sinfo -h -R") == ""
