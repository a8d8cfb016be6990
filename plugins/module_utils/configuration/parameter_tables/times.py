# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times after which slurmctld ends jobs, so that a change to a shorter time can end jobs that run.

Jobs of a node end when it is set down: if its last answer is older than SlurmdTimeout (`ping_nodes` in
`src/slurmctld/ping_nodes.c`), or if it has not booted within ResumeTimeout (`check_node_timers` in `node_mgr.c`,
`_do_power_work` in `power_save.c`). Others end by `job_time_limit` in `job_mgr.c` (OverTimeLimit, InactiveLimit,
ResvOverRun), and if their node does not know their script after BatchStartTimeout (`_purge_missing_jobs` there).

These end no job that runs: MaxTime of a partition (`_valid_job_part`, `job_limits_check` and `select_nodes` compare it
with jobs that have not started; `job_time_limit` obeys the end that a job has had since its start), KillWait (jobs that
end already), UnkillableStepTimeout (drains nodes, `src/slurmd/slurmstepd/step_terminate_monitor.c`), SlurmctldTimeout
(another controller takes over with the state of all jobs), the timeouts of prologs and epilogs (those that start
later), HealthCheckInterval and EnforcePartLimits. Preemption ends jobs for other jobs, by the rules of a site, whatever
is changed: a priority, a QOS or PreemptExemptTime; it is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LEAST: Mapping[str, tuple[int, str, int]] = {
    "messagetimeout": (1, "TCPTimeout", 2),
    "slurmdtimeout": (3, "MessageTimeout", 10),
    "unkillablesteptimeout": (5, "MessageTimeout", 10),
}
"""The least that a time of slurm.conf should be: a multiple of another one, whose default follows.

MessageTimeout is the limit of the answer to one message, TCPTimeout that of its connection. slurmctld checks nodes at
most each third of SlurmdTimeout, asks those of which it has not heard for that long, and sets a node down at the check
after the one at which its last answer is older than SlurmdTimeout. So a slurmd that answers within a third is never set
down; one that answers no more is set down earlier, with any shorter time. Since 24.05, Slurm names the least
UnkillableStepTimeout in the log (`_validate_and_set_defaults` in `src/common/read_config.c`): with less, nodes are
drained because of steps that end late.
"""


class EndingTime(NamedTuple):
    """A time after which slurmctld ends jobs."""

    jobs: str
    """The jobs that a shorter time can end:

    all of those that run, or those that are `configuring` (their nodes boot), `interactive` (without a script),
    `overdue` (past their time limit), `reserved` (in a reservation), `starting` (for less than the old time).
    """
    default: int
    """The time in force if a file does not have it."""
    endless: str = "UNLIMITED"
    """The value without a limit."""
    releases: str = ""
    """The releases in which it ends them, as in the other tables; empty: all."""


ENDS_JOBS: Mapping[str, Mapping[str, EndingTime]] = {
    "slurm.conf": {
        "batchstarttimeout": EndingTime("starting", 10),
        # A reconfigure that starts slurmctld anew counts the time from then on (`job_mgr_load_job_state`), and commands
        # that answer slurmctld are never inactive.
        "inactivelimit": EndingTime("interactive", 0, "0", "-23.02"),
        "messagetimeout": EndingTime("running", 10),
        "overtimelimit": EndingTime("overdue", 0),
        "resumetimeout": EndingTime("configuring", 60),
        "resvoverrun": EndingTime("reserved", 0),
        "slurmdtimeout": EndingTime("running", 300, "0"),
    },
    "PartitionName": {"overtimelimit": EndingTime("overdue", 0), "resumetimeout": EndingTime("configuring", 60)},
}
"""By file and key. Those of LEAST end jobs only below their least time."""
