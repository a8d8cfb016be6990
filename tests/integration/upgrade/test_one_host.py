# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml and restore.yml where one host is controller, database host and compute node, with backups of both
releases. The tests are in this order, and each needs those before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab import ROOT, Lab, Run

HOST = "up-one"
DAEMONS = ("slurmdbd", "slurmctld", "slurmd")
KEPT = "/var/lib/gpucluster-slurm/upgrade"
STATE = "/var/lib/slurm/slurmctld"
GO = "/home/one-go"
REPOSITORY = "/home/one-backup"
STATUS = "/var/lib/gpucluster-slurm/backup/status.json"
RENEWS = "Make a backup of a new release of Slurm"


@pytest.fixture(scope="module", name="one")
def one_host() -> Lab:
    """The cluster of one host."""
    return Lab("upgrade", Path(ROOT, "molecule/upgrade/inventory/one.cluster.yml"))


@pytest.fixture(scope="module", name="number")
def job_until_the_end(one: Lab) -> str:
    """The number of a job on the new cluster, which lasts until the last test."""
    run = one.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    one.command(HOST, f"touch {GO}")
    wrapped = f"srun sh -c 'while test -e {GO}; do sleep 1; done'"
    number = str(one.command(HOST, f'timeout 60 sbatch --parsable -D / -o /dev/null --wrap "{wrapped}"'))
    job_runs(one, number)
    one.command(HOST, f"slurm-backup run && cp -a {REPOSITORY} {REPOSITORY}-24.11")
    return number


def job_runs(one: Lab, number: str) -> None:
    """The job has its three slurmstepds, and slurmctld and slurmdbd know it as running."""
    one.wait_for(HOST, f"timeout 60 squeue -h -j {number} -o %T", "RUNNING", 60)
    one.wait_for(HOST, f"timeout 60 sacct -n -X -j {number} -o state", "RUNNING", 60)
    # One for what joins the job (PrologFlags=Contain), one for the script, and one for its step, which begins later.
    one.wait_for(HOST, "pgrep -c slurmstepd", "3", 60)


def versions(one: Lab) -> set[str]:
    """The versions of the daemons that run."""
    shown = "for daemon in {}; do /proc/$(systemctl show -P MainPID $daemon)/exe -V; done"
    return {line.split()[-1] for line in one.command(HOST, shown.format(" ".join(DAEMONS))).split("\n")}


def saved_releases(one: Lab) -> dict[str, str]:
    """The release of the newest backup of each part."""
    parts = json.loads(one.command(HOST, "slurm-backup look"))["backups"]
    return {part: saved["slurm"].rpartition(".")[0] for part, saved in parts.items()}


def tables_release(one: Lab) -> str:
    """The release whose columns the database has."""
    columns = one.command(HOST, "mariadb -Ne 'SHOW COLUMNS FROM slurm_acct_db.one_job_table' | cut -f1").split()
    assert "qos_req" in columns
    return "26.05" if "sluid" in columns else "24.11"


def said(run: Run) -> str:
    """Everything that the tasks said."""
    return "\n".join(str(result.get("msg", "")) for _host, _task, result in run.results)


def test_check_mode_names_each_change_once(one: Lab, number: str) -> None:
    job_runs(one, number)
    run = one.playbook("upgrade", "--check", "--diff", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    tasks = run.changed[HOST]
    assert len([task for task in tasks if "Change Slurm's packages" in task]) == 1
    assert versions(one) == {"24.11.5"}


def test_a_killed_upgrade_is_continued(one: Lab, number: str) -> None:
    live = one.start("upgrade", "--skip-tags=validate")
    live.wait_for_task("slurmdbd : Apply slurmdbd's configuration")
    live.kill()
    run = one.playbook("upgrade", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert {version.rpartition(".")[0] for version in versions(one)} == {"26.05"}
    job_runs(one, number)
    # The copy is that of the previous slurmctld, although the host has a part in three stages. After its first word,
    # the state has the version of the protocol (dump_all_job_state).
    protocol = "od -An -t x1 -j 21 -N 2"
    assert one.command(HOST, f"tar -xOf {KEPT}/StateSaveLocation-before-*.tar ./job_state | {protocol}") == "2a 00"
    # slurmctld writes its state when something changes.
    one.command(HOST, f"timeout 60 scontrol update JobId={number} Comment=upgraded")
    one.wait_for(HOST, f"{protocol} {STATE}/job_state", "2d 00", 60)
    assert len(one.command(HOST, f"ls {KEPT}").split()) == 2
    assert {*saved_releases(one).values()} == {"26.05"}
    again = one.playbook("upgrade", "--skip-tags=validate")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})


def test_the_next_run_makes_the_backup_that_an_upgrade_has_not_made(one: Lab, number: str) -> None:
    """It was killed before, or its backup has failed."""
    one.command(HOST, f"""sed -i 's/"slurm": "26[^"]*"/"slurm": "24.11.5-4"/' {STATUS}""")
    one.command(HOST, f"mv {REPOSITORY} {REPOSITORY}-away")
    run = one.playbook("site", "--tags=backup")
    one.command(HOST, f"rm -rf {REPOSITORY}; mv {REPOSITORY}-away {REPOSITORY}")
    (failed,) = run.failed[HOST]
    assert "has no repository of restic" in failed
    assert "Everything else of this run is done. Run the playbook gpucluster.slurm.backup" in failed
    run = one.playbook("site", "--tags=backup")
    assert (run.rc, run.failed) == (0, {})
    assert [RENEWS in task for task in run.changed[HOST]] == [True]
    run = one.playbook("site", "--tags=backup")
    assert (run.rc, run.failed, run.changed) == (0, {}, {})
    job_runs(one, number)


def test_a_backup_of_the_previous_release_is_converted_only_if_that_is_accepted(one: Lab, number: str) -> None:
    """All hosts have 26.05 already, and the database is lost before it was saved."""
    one.command(HOST, f"mv {REPOSITORY} {REPOSITORY}-26.05 && cp -a {REPOSITORY}-24.11 {REPOSITORY}")
    one.command(HOST, "systemctl stop slurmdbd && mariadb -e 'DROP DATABASE slurm_acct_db'")
    for arguments in (["--check"], []):
        run = one.playbook("restore", "--skip-tags=validate", *arguments)
        assert run.rc != 0
        assert "is one of Slurm 24.11.5-" in str(run.failed)
        assert f"{HOST} has 26.05." in str(run.failed)
        assert "Give the host packages of Slurm 24.11" in str(run.failed)
        assert run.changed == {}
        assert "slurm_acct_db" not in one.command(HOST, "mariadb -Ne 'SHOW DATABASES'")
    run = one.playbook("restore", "--skip-tags=validate", "-e", "backup_convert=true")
    one.command(HOST, f"rm -rf {REPOSITORY}; mv {REPOSITORY}-26.05 {REPOSITORY}")
    assert (run.rc, run.failed) == (0, {})
    assert "converts the database slurm_acct_db of Slurm 24.11" in said(run)
    assert tables_release(one) == "26.05"
    dump = one.command(HOST, f"ls {KEPT}/slurm_acct_db-before-26.05.?.sql")
    counted = f"grep -c 'CREATE TABLE `one_job_table`' {dump}; grep -c '`sluid`' {dump}"
    assert one.command(HOST, counted, 1).split() == ["1", "0"]
    job_runs(one, number)


def test_only_an_upgrade_converts_a_database_that_somebody_has_loaded(one: Lab, number: str) -> None:
    before = one.command(HOST, f"ls {KEPT}/slurm_acct_db-before-26.05.*-*.sql")
    new = "DROP DATABASE slurm_acct_db; CREATE DATABASE slurm_acct_db"
    one.command(HOST, f"systemctl stop slurmdbd && mariadb -e '{new}' && mariadb slurm_acct_db <{before}")
    for arguments in (["--check"], []):
        run = one.playbook("site", "--skip-tags=validate", *arguments)
        assert run.rc != 0
        assert "The database slurm_acct_db was not changed. It is one of Slurm 24.11" in str(run.failed)
        assert "Run gpucluster.slurm.upgrade" in str(run.failed)
        assert tables_release(one) == "24.11"
    run = one.playbook("upgrade", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert "converts the database slurm_acct_db of Slurm 24.11" in said(run)
    assert tables_release(one) == "26.05"
    job_runs(one, number)


def test_database_and_state_come_back_together(one: Lab, number: str) -> None:
    one.command(HOST, "slurm-backup run")
    one.command(HOST, f"systemctl stop slurmctld slurmdbd && find {STATE} -mindepth 1 -delete")
    one.command(HOST, "mariadb -e 'DROP DATABASE slurm_acct_db'")
    run = one.playbook("restore", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    job_runs(one, number)
    one.command(HOST, f"rm {GO}")
    shown = f"timeout 60 sacct -nPX -o state,exitcode -j {number}"
    one.wait_for(HOST, shown, "COMPLETED|0:0", 120)
    later = one.command(HOST, "timeout 60 sbatch --parsable -D / -o /dev/null --wrap true")
    assert int(later) > int(number)
    one.wait_for(HOST, f"timeout 60 sacct -nPX -o state -j {later}", "COMPLETED", 120)
    again = one.playbook("site", "--skip-tags=validate")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})
