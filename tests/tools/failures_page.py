# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/admin/failures.md from the table of failures.    usage: python tests/tools/failures_page.py [--check]

Each row has a test that shows it; tests/unit/test_failures_page.py looks it up. With --check nothing is written, and
the exit status is 1 if the page is not current.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from generated_files import run

PAGE = Path(__file__).parents[2] / "docs/admin/failures.md"

HEAD = """# Failures of daemons, hosts and disks: what users see

<!-- `make docs` writes this page from tests/tools/failures_page.py -->

Running jobs continue, unless a row says otherwise. [doctor](doctor.md) names the cause and the remedy. A daemon that
was killed or has crashed starts again after some seconds. `SlurmctldTimeout` is 120 s and `SlurmdTimeout` 300 s by
default.

After "Socket timed out" or "Connection reset by peer", slurmctld may have obeyed a command, or do so later: look with
`squeue` before you submit a job again. After "Unable to contact slurm controller" nothing was done.

| Failure | Users see | Lost | Until | What to do |
|---|---|---|---|---|
"""

FAULTS = "tests/integration/faults/test_failures.py::test_a_failure_of_a_daemon_or_disk"
DOCTOR = "tests/integration/doctor/test_doctor.py::test_each_fault_is_named_and_nothing_is_changed"
TWO = "tests/integration/default/test_two_controllers.py"
AWAY = "tests/integration/faults/test_database_away.py"
LOST = "tests/integration/rotation/test_lost_controllers.py"
HARD_STOP = "[the last seconds](recovery.md#what-a-hard-stop-of-a-controller-loses) if it was killed"


class Failure(NamedTuple):
    """A row of the page. tests: the tests that show it, which the page leaves out, as pytest names them."""

    failure: str
    users_see: str
    lost: str
    how_long: str
    remedy: str
    tests: tuple[str, ...]


FAILURES = (
    Failure(
        "slurmctld, one controller",
        'each command fails: "Unable to contact slurm controller". No job starts',
        HARD_STOP,
        "it runs",
        "`systemctl start slurmctld`",
        (f"{FAULTS}[slurmctld]", "tests/integration/single/test_single.py::test_daemons_that_are_killed_start_again"),
    ),
    Failure(
        "slurmctld or the host of the primary, with a standby",
        "commands wait, then continue",
        HARD_STOP,
        "the takeover: `SlurmctldTimeout`, a third more at most",
        "start or boot it at any time: it [takes control back](controllers.md). After a boot, run `site`",
        (
            f"{TWO}::test_the_primary_comes_back_with_every_change",
            f"{TWO}::test_an_outage_of_the_primary",
            f"{LOST}::test_a_primary_that_returns",
            f"{LOST}::test_power_is_lost_while_the_switch_is_armed",
        ),
    ),
    Failure(
        "slurmdbd",
        "`sacct`, `sacctmgr` and `sreport` fail. Jobs start and end, with the limits and shares of before",
        "nothing up to `MaxDBDMsgs` messages (7 for a job, 2 for each srun in it); all of them, if slurmctld is killed",
        "it runs",
        "start it; `messages-waiting` of doctor has the time that is left",
        (
            f"{AWAY}::test_below_the_limit_no_record_is_lost",
            f"{AWAY}::test_above_the_limit_the_loss_is_named",
        ),
    ),
    Failure(
        "MariaDB",
        'as slurmdbd: "Problem talking to the database"',
        "as slurmdbd",
        "it runs",
        "start it, and slurmdbd",
        (f"{FAULTS}[MariaDB]", f"{FAULTS}[jobs without MariaDB]"),
    ),
    Failure(
        "slurmd, or munged of a node",
        "after `SlurmdTimeout`, the node is down, and its jobs are requeued or end as NODE_FAIL",
        "nothing within `SlurmdTimeout`",
        "it runs",
        "`doctor_repair=true` starts it",
        (
            f"{FAULTS}[slurmd]",
            f"{FAULTS}[munged of a node]",
            "tests/integration/doctor/test_doctor.py::test_munged_that_has_just_stopped_is_named_at_once",
        ),
    ),
    Failure(
        "munged of the controller",
        'each command fails: "Munge encode failed" or "authentication error". No job starts',
        "nothing",
        "it runs",
        "`systemctl start munge`",
        (f"{FAULTS}[munged of the controller]",),
    ),
    Failure(
        "host of the only controller",
        "as slurmctld",
        "the last seconds; the time since the backup if its disk is lost",
        "it boots, or is [restored](recovery.md#restore)",
        "boot it; if its disk is lost, run `restore`, never `site`",
        ("tests/integration/recovery/test_recovery.py::test_a_lost_controller",),
    ),
    Failure(
        "host of the database",
        "as slurmdbd",
        "nothing up to `MaxDBDMsgs`; records since the backup if its disk is lost",
        "it boots, or is restored",
        "boot it; if its disk is lost, run `restore`",
        ("tests/integration/recovery/test_recovery.py::test_a_lost_database_host",),
    ),
    Failure(
        "login host",
        "their sessions end. Jobs of srun continue without output until their time limit",
        "what srun prints",
        "it boots",
        "`scancel` such jobs; `site` installs a lost host",
        ("tests/integration/faults/test_failures.py::test_a_lost_login_host",),
    ),
    Failure(
        "compute node",
        "batch jobs run again from their beginning, srun and salloc end as NODE_FAIL",
        "what these jobs have not written",
        "jobs run again after `SlurmdTimeout` and 2 minutes",
        "repair it; resume it if it has booted within `SlurmdTimeout`",
        ("tests/integration/faults/test_failures.py::test_a_lost_node",),
    ),
    Failure(
        "full disk of `StateSaveLocation`",
        'sbatch fails: "I/O error writing script/environment to file"',
        "all later changes, if slurmctld ends before there is room",
        "there is room",
        "make room; **do not stop slurmctld before**",
        (f"{FAULTS}[full StateSaveLocation]",),
    ),
    Failure(
        "full disk of `SlurmdSpoolDir`",
        "the node is drained; the next job there waits in the queue",
        "nothing",
        "there is room and the node is resumed",
        "make room; `doctor_repair=true` resumes it",
        (f"{DOCTOR}[files]",),
    ),
    Failure(
        "full `/tmp` of a node",
        'programs fail: "No space left on device". Below `slurm_health_disk_free` the node is drained',
        "what these programs wanted to write",
        "there is room",
        "make room; the health check resumes the node",
        ("tests/integration/faults/test_failures.py::test_a_full_tmp_of_a_node",),
    ),
    Failure(
        "full disk of the database",
        'sacct lacks what is new ("The table is full" in the log of slurmdbd)',
        "nothing up to `MaxDBDMsgs`",
        "there is room",
        "make room; let slurmdbd [keep less](accounting.md#how-long-records-stay)",
        (f"{FAULTS}[full disk of the database]",),
    ),
    Failure(
        "network between node and controller",
        "after `SlurmdTimeout`, the node is down and its batch jobs run again elsewhere, **while the first run may "
        "still write files**",
        "nothing within `SlurmdTimeout`",
        "up to `SlurmdTimeout` / 3 after it is back",
        "repair it",
        (
            "tests/integration/faults/test_failures.py::test_a_network_that_is_away_for_less_than_slurmd_timeout",
            f"{DOCTOR}[network]",
        ),
    ),
    Failure(
        "name service (sssd, LDAP)",
        "logins fail or hang. Jobs also start on a node that does not know their users",
        "nothing",
        "it answers",
        "repair it; site.yml runs without it",
        (
            "tests/integration/people/test_directory.py::test_a_user_whom_a_host_does_not_know_is_named",
            "tests/integration/people/test_directory.py::test_a_directory_that_does_not_answer_stops_no_run",
        ),
    ),
    Failure(
        "file server of homes or data",
        "nodes are drained; programs wait with `hard` mounts, and fail to write with `soft` ones",
        "with `soft`, what was being written",
        "it answers; the health check then resumes the nodes",
        "repair it; reboot a node with a stale mount",
        (
            "tests/integration/people/test_storage.py::test_a_hung_mount_blocks_neither_the_run_nor_the_health_check",
            "tests/integration/people/test_access.py::test_a_home_that_does_not_answer_delays_the_message_by_two_seconds",
        ),
    ),
    Failure(
        "registry",
        "images are not pulled; jobs that need none continue",
        "nothing",
        "it runs",
        "start it; for a full disk, delete images",
        (
            "tests/integration/containers/test_registry.py::test_a_registry_that_is_away_is_told_and_plain_jobs_go_on",
            "tests/integration/containers/test_registry.py"
            "::test_a_full_disk_of_the_registry_is_told_and_plain_jobs_go_on",
        ),
    ),
    Failure(
        "clock of a host",
        "as munged, from 5 minutes on",
        "nothing within `SlurmdTimeout`",
        "it is right",
        "correct it and its synchronization",
        (f"{DOCTOR}[network]",),
    ),
    Failure(
        "control host",
        "nothing",
        "nothing ([killed runs](killed-runs.md))",
        "the next run",
        "run the playbook again; [the backup](recovery.md#restore) has what the host had",
        ("tests/integration/default/test_bare_hosts.py::test_the_next_run_finishes_what_was_left",),
    ),
)


def row(failure: Failure) -> str:
    """A line of the table."""
    *cells, _tests = failure
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def page() -> str:
    """The text of the page."""
    return HEAD + "\n".join(map(row, FAILURES)) + "\n"


if __name__ == "__main__":
    run({PAGE: page()})
