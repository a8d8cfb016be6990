# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each of two controllers is away, lost, restored and upgraded under load, and who serves afterwards.

The tests need each other and run in this order. `under_load.py` has the jobs, the last test shows that each ran once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab import Lab, Run, with_cluster
from under_load import (
    BOTH,
    DATABASE,
    FIRST,
    FIRST_SERVES,
    LOGIN,
    MORE,
    NODE,
    OLDER,
    RESTART,
    SECOND,
    SECOND_SERVES,
    SERIAL,
    STATE,
    away,
    each_job_ran_once,
    has_said,
    job_runs,
    jobs_of_alice,
    lose,
    offer_the_next_release,
    outage,
    serves,
    site,
    start_load,
    stop_load,
    succeeded,
    with_conf,
)


@pytest.fixture(scope="module", name="job", autouse=True)
def load_of_alice(lab: Lab) -> Iterator[str]:
    """A job that runs until the last test, and alice, who submits others."""
    with jobs_of_alice(lab) as job:
        yield job


def roll(lab: Lab, directory: Path, controller: str) -> Run:
    """A rolling change with one controller, of all nodes but that of the long job, for which it would wait."""
    lab.command(NODE, "rm -f /tmp/rolled")
    (directory / "roll.yml").write_text("- name: Touch\n  ansible.builtin.command: {cmd: touch /tmp/rolled}\n")
    run = site(lab, "-e", "rolling_tasks=roll.yml", f"--limit={controller},{NODE}", playbook="rolling")
    assert lab.command(NODE, "ls /tmp/rolled") == "/tmp/rolled"
    return run


def test_a_second_run_changes_nothing_and_says_who_serves(lab: Lab) -> None:
    # Each controller reaches the other one through its firewall.
    assert {lab.command(host, "timeout 60 scontrol ping") for host in (FIRST, SECOND, LOGIN)} == {BOTH}
    run = site(lab)
    succeeded(run, FIRST_SERVES)
    assert run.changed == {}
    records = {lab.command(host, f"cat {SERIAL}") for host in (FIRST, SECOND)}
    assert records == {lab.command(SECOND, f"cat {STATE}/gpucluster-slurm-serial")}
    for host in (FIRST, SECOND):
        assert "ExecCondition" in lab.command(host, "systemctl show slurmctld")


def test_a_standby_that_a_run_restarts_takes_over_at_once(lab: Lab, job: str, tmp_path: Path) -> None:
    """The primary is away. Its return with older files is that of the next test."""
    stop_load(lab)
    with away(lab, FIRST):
        start_load(lab)
        with outage(lab, "a takeover by itself"):
            serves(lab, SECOND)
        with outage(lab, "a standby that a run restarts"):
            run = site(with_conf(lab, tmp_path, **RESTART))
        assert (run.rc, run.stats[FIRST]["unreachable"]) == (4, 1), run.output[-3000:]
        has_said(run, SECOND_SERVES)
        assert "MaxJobCount             = 9000" in lab.command(LOGIN, "timeout 60 scontrol show config")
        job_runs(lab, job)
        run = roll(with_conf(lab, tmp_path, **RESTART), tmp_path, SECOND)
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        has_said(run, SECOND_SERVES)


def test_a_primary_that_returns_does_not_take_control_with_older_files(lab: Lab, job: str, tmp_path: Path) -> None:
    assert lab.command(FIRST, "systemctl is-active slurmctld", 3) == "inactive"
    assert OLDER in lab.command(FIRST, "journalctl --no-pager --unit=slurmctld --lines=20")
    assert lab.command(FIRST, "systemctl start slurmctld; systemctl show -P Result slurmctld") == "exec-condition"
    serves(lab, SECOND)
    doctor = lab.playbook("doctor")
    assert "its files are older than those in force" in doctor.output
    changed = with_conf(lab, tmp_path, **RESTART)
    with outage(lab, "a primary that returns"):
        succeeded(site(changed), FIRST_SERVES)
    serves(lab, FIRST)
    assert "MaxJobCount             = 9000" in lab.command(LOGIN, "timeout 60 scontrol show config")
    job_runs(lab, job)


def test_a_standby_that_was_away_gets_the_files_as_well(lab: Lab, tmp_path: Path) -> None:
    with away(lab, SECOND):
        run = site(with_conf(lab, tmp_path, MaxJobCount=9100))
        assert (run.rc, [*run.failed]) == (4, [SECOND])
        assert f"The controller {FIRST} serves; slurmctld does not answer on {SECOND}" in run.output
        run = roll(with_conf(lab, tmp_path, MaxJobCount=9100), tmp_path, FIRST)
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        has_said(run, f"The controller {FIRST} serves")
    assert OLDER in lab.command(SECOND, "journalctl --no-pager --unit=slurmctld --lines=20")
    succeeded(site(with_conf(lab, tmp_path, MaxJobCount=9100)), FIRST_SERVES)
    succeeded(site(lab), FIRST_SERVES)


def test_nodes_are_removed_by_either_controller(lab: Lab, job: str, tmp_path: Path) -> None:
    """With both controllers, and with the primary away, which has the node in its files when it returns."""
    more = {
        **lab.cluster,
        "nodes": [*lab.cluster["nodes"], {"hosts": MORE, "hardware": "container", "address": "10.213.7.196"}],
    }
    larger = with_cluster(lab, tmp_path, more)
    for controllers, said in ((f"{FIRST},{SECOND}", FIRST_SERVES), (SECOND, SECOND_SERVES)):
        run = site(larger)
        succeeded(run, FIRST_SERVES)
        lab.wait_until_idle(LOGIN, MORE)
        with ExitStack() as stack:
            if controllers == SECOND:
                stop_load(lab)
                stack.enter_context(away(lab, FIRST))
                start_load(lab)
                serves(lab, SECOND)
            run = site(larger, "-e", f"remove_nodes={MORE}", playbook="remove_nodes")
            assert run.rc == (0 if controllers != SECOND else 4), run.output[-3000:]
            has_said(run, said)
            assert MORE not in lab.command(LOGIN, "timeout 60 sinfo --noheader --Node --format=%N")
            assert lab.command(MORE, "systemctl is-enabled slurmd", 1) == "disabled"
    succeeded(site(lab), FIRST_SERVES)
    assert MORE not in lab.command(LOGIN, "timeout 60 sinfo --noheader --Node --format=%N")
    again = site(lab)
    succeeded(again, FIRST_SERVES)
    assert again.changed == {}
    job_runs(lab, job)


def test_the_disk_of_the_primary_is_lost_while_the_standby_serves(lab: Lab, job: str) -> None:
    """The state is alive in /home: restore.yml leaves it, and site.yml makes the host anew."""
    lab.command(FIRST, "slurm-backup run")
    stop_load(lab)
    lose(lab, FIRST)
    start_load(lab)
    serves(lab, SECOND)
    time.sleep(10)  # jobs that the backup does not have
    before = lab.command(SECOND, f"ls -i {STATE}/clustername")
    run = lab.playbook("restore")
    assert run.rc != 0
    assert re.search(f"Nothing is lost: {DATABASE} has the database, two-ctl[12] has the state", str(run.failed))
    assert lab.command(SECOND, f"ls -i {STATE}/clustername") == before
    succeeded(site(lab), FIRST_SERVES)
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


def test_both_controllers_the_database_and_the_state_are_lost(lab: Lab, job: str) -> None:
    """The restore makes the first one anew, with the state of the backup, and the second one as its standby. The
    directory of the state, which outlives the hosts, belongs to the id of slurm, whom the bare hosts do not know."""
    stop_load(lab)
    for host in (FIRST, DATABASE):
        lab.command(host, "slurm-backup run")
    lose(lab, FIRST, SECOND, DATABASE)
    lab.command(LOGIN, f"find {STATE} -mindepth 1 -delete")
    run = site(lab, playbook="restore")
    succeeded(run, FIRST_SERVES)
    assert "the state of slurmctld is back" in run.output
    assert "the database is back" in run.output
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)
    start_load(lab)


def test_an_upgrade_while_the_primary_is_away(lab: Lab, job: str) -> None:
    """Its slurmctld of the previous release could not read the state: it would take control and end."""
    stop_load(lab)
    offer_the_next_release(lab)
    with away(lab, FIRST):
        start_load(lab)
        serves(lab, SECOND)
        with outage(lab, "an upgrade"):
            run = site(lab, playbook="upgrade")
        assert (run.rc, run.stats[FIRST]["unreachable"]) == (4, 1), run.output[-3000:]
        assert f"{FIRST} was not reached, and its slurmctld does not start with the previous release" in run.output
        has_said(run, SECOND_SERVES)
        assert "26.05" in lab.command(SECOND, "slurmctld -V")
        job_runs(lab, job)
    assert lab.command(FIRST, "systemctl is-active slurmctld", 3) == "inactive"
    assert OLDER in lab.command(FIRST, "journalctl --no-pager --unit=slurmctld --lines=20")
    serves(lab, SECOND)
    refused = site(lab)
    assert refused.rc != 0
    assert "run gpucluster.slurm.upgrade" in str(refused.failed)
    with outage(lab, "a primary that returns"):
        succeeded(site(lab, playbook="upgrade"), FIRST_SERVES)
    assert "26.05" in lab.command(FIRST, "slurmctld -V")
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


def test_a_host_that_is_taken_out_of_the_controllers_stops_its_slurmctld(lab: Lab, tmp_path: Path) -> None:
    """It was the primary: the other one starts as the only controller when it has stopped."""
    stop_load(lab)
    alone = {**lab.cluster, "controllers": SECOND, "login": f"{LOGIN},{FIRST}"}
    run = site(with_cluster(lab, tmp_path, alone))
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert lab.command(FIRST, "systemctl is-enabled slurmctld", 1) == "disabled"
    lab.command(FIRST, "test -e /etc/slurm/slurm.conf", 1)
    assert f"Slurmctld(primary) at {SECOND} is UP" in lab.command(FIRST, "timeout 60 scontrol ping")


def test_each_job_ran_once(lab: Lab, job: str) -> None:
    each_job_ran_once(lab, job, 100)
