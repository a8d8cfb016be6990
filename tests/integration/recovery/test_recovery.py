# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups, what makes one bad, and the return of a database host, of a controller and of both, with running jobs.

The tests depend on each other and run in this order. A lost host is a container that was removed and made anew; it has
neither packages nor data. /home, which the hosts share, has the backup.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import ROOT, Lab, Run, container, podman, with_cluster

DATABASE, CONTROLLER, NODE = "rec-db", "rec-ctl", "rec-node1"
STATUS = "/var/lib/gpucluster-slurm/backup/status.json"
STATE = "/var/lib/slurm/slurmctld"
RECOVERY = ROOT / "docs/admin/recovery.md"
PASSWORD = "/etc/gpucluster-slurm/backup/password"


@pytest.fixture(scope="module")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with a copy of its cluster file and of its secrets, which the tests remove."""
    directory = tmp_path_factory.mktemp("site")
    own = with_cluster(lab, directory, lab.cluster)
    shutil.copytree(lab.inventory.parent / "secrets/recovery", directory / "secrets/recovery")
    (directory / "group_vars/slurm_cluster.yml").unlink()
    return own


def secrets(site: Lab) -> Path:
    return Path(site.inventory.parent, "secrets/recovery")


def backup(site: Lab, host: str, command: str = "run", rc: int = 0) -> dict[str, Any]:
    """The answer of slurm-backup."""
    output = site.command(host, f"slurm-backup {command}", rc)
    return dict(json.loads(output)) if rc == 0 else {"output": output}


def snapshots(site: Lab, part: str = "controller") -> list[str]:
    """The snapshots of a part in the repository, without those of the same day that retention has removed."""
    command = f"restic -r /home/backup --password-file {PASSWORD} snapshots --json --tag {part}"
    return [row["id"] for row in json.loads(site.command(DATABASE, command))]


def submit(site: Lab, script: str = "sleep 1", user: str = "root") -> int:
    """A job on the node; its id."""
    command = f"runuser -u {user} -- timeout 60 sbatch --parsable --mem=50 -D / -o /dev/null --wrap '{script}'"
    return int(site.command(CONTROLLER, command))


def submit_until(site: Lab, file: str) -> int:
    """A job that runs until there is a file in /home; its id."""
    job = submit(site, f"until test -e /home/{file}; do sleep 0.5; done")
    wait_for_state(site, job, "RUNNING")
    return job


def wait_for_state(site: Lab, job: int, wanted: str, seconds: int = 90) -> None:
    site.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --states=all --jobs={job} --format=%T", wanted, seconds)


def wait_for_record(site: Lab, job: int, wanted: str, seconds: int = 90) -> None:
    """Return when accounting has a job in a state."""
    site.wait_for(CONTROLLER, f"timeout 60 sacct --noheader -X -P --jobs={job} --format=state", wanted, seconds)


def lose(site: Lab, *hosts: str) -> None:
    """Remove hosts with all their data, and make them anew."""
    podman("rm", "--force", "--time=0", *map(container, hosts))
    for command in ("reset", "create"):
        molecule = ["molecule", command, "--scenario-name=recovery"]
        subprocess.run(
            molecule,
            cwd=ROOT,
            check=True,
            capture_output=True,
            env=os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml"},
        )
    for host in hosts:
        site.wait_for(host, "uname -n", host, 60)


def said(run: Run) -> str:
    """Everything that the tasks said."""
    return "\n".join(str(result.get("msg", "")) for _host, _task, result in run.results)


def timed(what: str, work: Any) -> Any:
    """The result of a function; its seconds are in the output of the test."""
    start = time.monotonic()
    result = work()
    print(f"measured: {what}: {time.monotonic() - start:.0f} s")
    return result


def test_the_first_run_makes_a_backup_and_the_second_changes_nothing(lab: Lab) -> None:
    for host, parts in ((DATABASE, ["database", "archive"]), (CONTROLLER, ["controller"])):
        status = json.loads(lab.command(host, f"cat {STATUS}"))
        assert status["error"] == ""
        assert status["succeeded"] > 0
        assert list(status["parts"]) == parts
        assert "active" in lab.command(host, "systemctl is-active slurm-backup.timer")
    before = snapshots(lab)
    run = lab.playbook("site", "--skip-tags", "validate")
    assert run.rc == 0, run.output[-3000:]
    assert run.changed == {}
    assert snapshots(lab) == before


def test_nobody_else_reads_the_key_or_the_copy_of_the_secrets(site: Lab) -> None:
    modes = site.command(CONTROLLER, "stat -c '%a %U %n' /etc/gpucluster-slurm/backup/*")
    assert {line.split()[0] for line in modes.splitlines()} == {"600"}, modes
    names = site.command(CONTROLLER, "tar -tf /etc/gpucluster-slurm/backup/control.tar").splitlines()
    assert {"cluster/recovery.cluster.yml", "secrets/munge.key", "secrets/slurmdbd_storage_pass"} <= {*names}


def test_the_timer_makes_a_backup(site: Lab) -> None:
    before = snapshots(site)
    site.command(CONTROLLER, "systemctl start slurm-backup.service")
    assert snapshots(site)[-1] not in before


TIMER = "/etc/systemd/system/slurm-backup.timer"


def with_times(site: Lab, directory: Path, times: str) -> Lab:
    """The lab with other times of the backup."""
    cluster = {**site.cluster, "backup": {**site.cluster["backup"], "times": times}}
    path = directory / site.inventory.name
    path.write_text(yaml.safe_dump(cluster))
    variables = {"slurm_secrets_dir": str(secrets(site))}
    (directory / "group_vars").mkdir()
    (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
    return Lab(site.scenario, path)


def test_a_bad_unit_of_an_earlier_run_is_repaired_by_one_run(site: Lab) -> None:
    site.command(CONTROLLER, f"sed -i s/^OnCalendar=.*/OnCalendar=nonsense/ {TIMER} && systemctl daemon-reload")
    assert site.command(CONTROLLER, "systemctl show -P LoadState slurm-backup.timer") == "bad-setting"
    run = site.playbook("site", "--tags", "backup")
    assert (run.rc, run.failed) == (0, {})
    assert site.command(CONTROLLER, "systemctl is-active slurm-backup.timer") == "active"
    # A run that was killed after it had written the right file.
    site.command(CONTROLLER, f"cp {TIMER} /root/timer; sed -i s/^OnCalendar=.*/OnCalendar=nonsense/ {TIMER}")
    site.command(CONTROLLER, f"systemctl daemon-reload && sleep 1 && cp /root/timer {TIMER}")
    assert site.command(CONTROLLER, "systemctl show -P LoadState slurm-backup.timer") == "bad-setting"
    check = site.playbook("site", "--check", "--tags", "backup")
    assert (check.rc, list(check.changed)) == (0, [CONTROLLER])
    run = site.playbook("site", "--tags", "backup")
    assert (run.rc, run.failed) == (0, {})
    assert site.command(CONTROLLER, "systemctl is-active slurm-backup.timer") == "active"
    assert site.playbook("site", "--tags", "backup").changed == {}


def test_a_host_refuses_times_before_it_replaces_its_unit(
    site: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control host without systemd, whose place is taken by a program that checks nothing."""
    program = tmp_path / "bin/systemd-analyze"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    before = site.command(CONTROLLER, f"cat {TIMER}")
    wrong = with_times(site, tmp_path, "02:00 Mars/Base")
    for arguments in (["--check"], []):
        run = wrong.playbook("site", "--tags", "backup", *arguments)
        assert run.rc != 0
        assert f"{TIMER} was not written, since systemd refuses it (cluster file, backup: times)" in str(run.failed)
        assert "OnCalendar=02:00 Mars/Base" in str(run.failed)
        assert site.command(CONTROLLER, f"cat {TIMER}") == before
        assert site.command(CONTROLLER, "systemctl is-active slurm-backup.timer") == "active"
    assert site.playbook("site", "--tags", "backup").changed == {}


def test_a_setting_that_mariadb_does_not_know_leaves_the_database_as_it_is(site: Lab) -> None:
    started = site.command(DATABASE, "systemctl show -P ActiveEnterTimestamp mariadb")
    for setting, message in (
        ("max_conections: 100", "unknown variable"),
        ("innodb_buffer_pool_size: nonsense", "Unknown suffix"),
    ):
        for arguments in (["--check"], []):
            variables = f"{{mariadb_settings: {{{setting}}}}}"
            run = site.playbook("site", "--tags", "database", "-e", variables, *arguments)
            assert run.rc != 0
            assert "was not written, since mariadbd refuses it (variable mariadb_settings)" in str(run.failed)
            assert message in str(run.failed)
    assert site.command(DATABASE, "systemctl show -P ActiveEnterTimestamp mariadb") == started
    assert site.command(DATABASE, "grep -c max_con /etc/mysql/mariadb.conf.d/zz-gpucluster-slurm.cnf", rc=1) == "0"


def test_a_state_is_saved_while_slurmctld_is_down(site: Lab) -> None:
    before = snapshots(site)
    site.command(CONTROLLER, "systemctl stop slurmctld")
    try:
        backup(site, CONTROLLER)
    finally:
        site.command(CONTROLLER, "systemctl start slurmctld")
    assert snapshots(site)[-1] not in before
    site.wait_until_idle(CONTROLLER, NODE)


def test_a_backup_on_demand_is_proved_by_counting(site: Lab) -> None:
    job = submit(site)
    wait_for_record(site, job, "COMPLETED")
    before = snapshots(site)
    check = site.playbook("backup", "--check")
    assert check.rc == 0, check.output[-3000:]
    assert "would save the database slurm_acct_db" in said(check)
    assert snapshots(site) == before
    run = timed("backup.yml with verification", lambda: site.playbook("backup", "-e", "backup_verify=true"))
    assert run.rc == 0, run.output[-3000:]
    assert snapshots(site)[-1] not in before
    results = {result["host"]: result for result in _stats(run)["slurm_backup"]}
    (counts,) = results[DATABASE]["verified"]
    assert counts["restored"]["recovery_job_table"] == counts["live"]["recovery_job_table"] >= 1
    assert results[CONTROLLER]["verified"][0]["next_job_id"] > job
    databases = site.command(DATABASE, "mariadb -BNe 'show databases'").split()
    assert "slurm_acct_db_verify" not in databases
    print(results)


def _stats(run: Run) -> dict[str, Any]:
    """The statistics of a run by set_stats."""
    (stats,) = [result for _host, task, result in run.results if task.endswith("Return the backups")]
    return dict(stats["ansible_stats"]["data"])


def test_a_proof_finds_a_dump_that_has_lost_rows(site: Lab) -> None:
    status = json.loads(site.command(DATABASE, f"cat {STATUS}"))
    for bound in status["parts"]["database"]["counts"]:
        bound["recovery_job_table"] += 1
    site.script(DATABASE, f"cp -p {STATUS} {STATUS}.kept; cat >{STATUS}", json.dumps(status).encode())
    result = site.host(DATABASE).run("slurm-backup verify")
    site.command(DATABASE, f"mv {STATUS}.kept {STATUS}")
    assert result.rc == 1
    assert "recovery_job_table has" in result.stderr


def test_a_dump_that_fails_makes_no_snapshot(site: Lab) -> None:
    before = snapshots(site, "database")
    script = "#!/bin/sh\n/usr/bin/mariadb-dump \"$@\" | head -c 20000\necho 'table is broken' >&2\nexit 2\n"
    site.script(DATABASE, "cat >/usr/local/bin/mariadb-dump; chmod 755 /usr/local/bin/mariadb-dump", script.encode())
    try:
        result = site.host(DATABASE).run("slurm-backup run")
    finally:
        site.command(DATABASE, "rm /usr/local/bin/mariadb-dump")
    assert result.rc == 1
    assert "database: mariadb-dump: table is broken" in result.stderr
    assert snapshots(site, "database") == before
    run = site.playbook("site", "--tags", "backup")
    assert run.rc != 0
    (failed,) = run.failed[DATABASE]
    assert "table is broken" in failed
    assert "gpucluster.slurm.backup" in failed
    assert CONTROLLER not in run.failed
    backup(site, DATABASE)


def test_an_old_backup_is_an_error_of_the_next_run(site: Lab) -> None:
    status = json.loads(site.command(CONTROLLER, f"cat {STATUS}"))
    status["succeeded"] -= 100 * 3600
    site.script(
        CONTROLLER,
        f"touch -d '200 hours ago' /etc/gpucluster-slurm/backup/*; cat >{STATUS}",
        json.dumps(status).encode(),
    )
    run = site.playbook("validate")
    assert run.rc != 0
    assert "the last good backup is 100 hours old, and 48 are allowed" in run.failed[CONTROLLER][0]
    assert any("Run the jobs" in task for _host, task, _result in run.results), "the run does its work"
    backup(site, CONTROLLER)
    assert site.playbook("site", "--tags", "backup").rc == 0


def test_a_lost_target_and_a_wrong_key_are_one_error_each(site: Lab) -> None:
    site.command(DATABASE, "mv /home/backup /home/elsewhere")
    try:
        lost = site.host(DATABASE).run("slurm-backup run")
    finally:
        site.command(DATABASE, "rm -rf /home/backup; mv /home/elsewhere /home/backup")
    assert lost.rc == 1
    assert "/home/backup has no repository of restic; it had backups until" in lost.stderr
    site.command(DATABASE, f"cp -p {PASSWORD} {PASSWORD}.kept; echo wrong >{PASSWORD}")
    wrong = site.host(DATABASE).run("slurm-backup run")
    site.command(DATABASE, f"mv {PASSWORD}.kept {PASSWORD}")
    assert wrong.rc == 1
    assert "wrong password" in wrong.stderr
    assert len(wrong.stderr.strip().splitlines()) == 1
    backup(site, DATABASE)


def test_nothing_is_overwritten(site: Lab) -> None:
    run = site.playbook("restore")
    assert run.rc != 0
    assert "Nothing is lost" in str(run.failed)
    assert not any(
        "database back" in task or "slurmctld back" in task for tasks in run.changed.values() for task in tasks
    )


def test_a_restore_that_was_killed_after_its_data_are_back_is_continued(site: Lab) -> None:
    """It also ends what has ended before the loss."""
    done = submit_until(site, "done")
    backup(site, CONTROLLER)
    site.command(NODE, "touch /home/done")
    wait_for_record(site, done, "COMPLETED")
    site.command(CONTROLLER, f"systemctl stop slurmctld && find {STATE} -mindepth 1 -delete")
    live = site.start("restore", "--skip-tags=validate")
    live.wait_for_task("Put the state of slurmctld back")
    live.wait_for_task("Gather facts")  # that of site.yml
    live.kill()
    assert site.command(CONTROLLER, "systemctl is-active slurmctld", rc=3) == "inactive"
    run = site.playbook("restore", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert "an interrupted restore continues" in run.output
    assert "is UP" in site.command(CONTROLLER, "timeout 60 scontrol ping")
    wait_for_state(site, done, "CANCELLED")
    wait_for_record(site, done, "COMPLETED")
    site.command(NODE, "rm /home/done")
    assert "Nothing is lost" in str(site.playbook("restore").failed)


def test_a_lost_controller(site: Lab) -> None:
    """A job that the backup has goes on. One that has started since is named, and the restore is refused.

    One that has ended since does not come back, and its record stays as it was.
    """
    old = submit_until(site, "old")
    done = submit_until(site, "done")
    backup(site, CONTROLLER)
    new = submit_until(site, "new")
    site.command(NODE, "touch /home/done")
    wait_for_record(site, done, "COMPLETED")
    records = f"timeout 60 sacct --noheader -P --jobs={done} --format=jobid,state,end,exitcode,maxrss"
    before = site.command(CONTROLLER, records)
    lose(site, CONTROLLER)

    check = site.playbook("restore", "--check")
    assert check.rc != 0
    assert "Check mode ends here" in str(check.failed)
    refused = site.playbook("restore")
    assert refused.rc != 0
    assert f"{new} on {NODE}" in str(refused.failed)
    assert "backup_end_jobs=true" in str(refused.failed)
    assert f"{old} on" not in str(refused.failed)
    assert NODE not in refused.changed

    arguments = ("-e", "backup_end_jobs=true", "--skip-tags", "validate")
    live = site.start("restore", *arguments)
    live.wait_for_task("Put the state of slurmctld back")
    begun = f"until test -e {STATE}/.restoring; do sleep 0.05; done; pkill -KILL -f '[s]lurm-backup restore'"
    site.command(CONTROLLER, f"timeout 60 sh -c {shlex.quote(begun)}")
    live.kill()
    site.command(CONTROLLER, f"test -e {STATE}/.restoring -a ! -e {STATE}/clustername")

    run = timed("controller lost", lambda: site.playbook("restore", *arguments))
    assert run.rc == 0, run.output[-5000:]
    output = said(run)
    assert f"jobs submitted since the backup, of which the database has records and slurmctld has none: {new}" in output
    assert re.search(rf"slurmctld does not know .*: (\d+, )*{new}\b", output), output
    wait_for_state(site, old, "RUNNING")
    wait_for_state(site, done, "CANCELLED")
    assert site.command(CONTROLLER, records) == before
    site.wait_for(NODE, "pgrep -fc 'slurmstepd: .[0-9]+.batch' || true", "1", 60)
    after = submit(site)
    assert after > new
    site.command(NODE, "touch /home/old /home/new")
    wait_for_record(site, old, "COMPLETED")
    wait_for_record(site, after, "COMPLETED")
    second = site.playbook("site", "--skip-tags", "validate")
    assert second.rc == 0, second.output[-3000:]
    assert second.changed == {}
    site.command(NODE, "rm /home/old /home/new /home/done")


def test_a_lost_database_host(site: Lab) -> None:
    """Jobs go on without the database, and accounting works again. A job that ended meanwhile gets its record."""
    done = submit(site)
    wait_for_record(site, done, "COMPLETED")
    old = submit_until(site, "old")
    wait_for_record(site, old, "RUNNING")
    backup(site, DATABASE)
    lose(site, DATABASE)
    meanwhile = submit(site)
    run = timed("database lost", lambda: site.playbook("restore", "--skip-tags", "validate"))
    assert run.rc == 0, run.output[-5000:]
    wait_for_record(site, done, "COMPLETED")
    wait_for_record(site, meanwhile, "COMPLETED")
    wait_for_state(site, old, "RUNNING")
    site.command(NODE, "touch /home/old")
    wait_for_record(site, old, "COMPLETED")
    after = submit(site)
    wait_for_record(site, after, "COMPLETED")
    accounts = site.command(CONTROLLER, "timeout 60 sacctmgr -nP show account format=account").split()
    assert "science" in accounts
    second = site.playbook("site", "--skip-tags", "validate")
    assert second.rc == 0, second.output[-3000:]
    assert second.changed == {}
    site.command(NODE, "rm /home/old")


LEDGER, ACCEPTED = "/home/alice/ledger", "/home/alice/accepted"


def work(end: str) -> str:
    """The script of a job that writes its start and its end into the ledger, and ends when there is a file in /home."""
    return f"echo start $SLURM_JOB_ID >>{LEDGER}; until test -e /home/{end}; do sleep 0.5; done; " + (
        f"echo end $SLURM_JOB_ID >>{LEDGER}"
    )


def wait_for_end(site: Lab, job: int, seconds: int = 30) -> None:
    """Return when a job has written its end."""
    site.wait_for(NODE, f"grep -xc 'end {job}' {LEDGER} || true", "1", seconds)


def job_named(site: Lab, name: str) -> int:
    """The id of the job that runs with a name, such as one of srun, or a task of an array."""
    site.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --name={name} --states=RUNNING --format=%T", "RUNNING", 60)
    return int(site.command(CONTROLLER, f"timeout 60 squeue --noheader --name={name} --format=%A"))


def test_database_and_state_lost_under_a_stream_of_jobs(site: Lab) -> None:
    """No id is given twice and no job runs twice. What ended before the loss is ended, what only reports is no job.

    A person has drained the node, so that the jobs of the validation do not start.
    """
    site.command(NODE, f"rm -f {LEDGER} {ACCEPTED} /home/over /home/late /home/last; touch {LEDGER}")
    over, reports, goes_on = (submit(site, work(end)) for end in ("over", "late", "last"))
    site.command(CONTROLLER, f"systemd-run --quiet srun --mem=50 -J terminal sh -c '{work('over')}'")
    ends = "if test $SLURM_ARRAY_TASK_ID = 0; then END=over; else END=last; fi; "
    script = (ends + work("x")).replace("/home/x", "/home/$END")
    array = int(site.command(CONTROLLER, f"sbatch --parsable --array=0-1 --mem=50 -o /dev/null --wrap '{script}'"))
    for job in (over, reports, goes_on):
        wait_for_state(site, job, "RUNNING")
    site.wait_for(CONTROLLER, f"squeue --noheader --array --jobs={array} --format=%T | sort -u", "RUNNING", 60)
    terminal = job_named(site, "terminal")
    site.command(CONTROLLER, f"scontrol update nodename={NODE} state=drain reason='broken fan'")
    pending = submit(site, work("last"))
    backup(site, CONTROLLER)
    backup(site, DATABASE)

    site.command(CONTROLLER, f"scontrol hold {pending}; scontrol update nodename={NODE} state=resume")
    new = submit(site, work("late"))
    wait_for_state(site, new, "RUNNING")
    site.command(NODE, "touch /home/over")
    for name in (str(over), str(terminal), f"{array}_0"):
        command = f"timeout 60 sacct --noheader -X -P --jobs={name} --format=state"
        site.wait_for(CONTROLLER, command, "COMPLETED", 60)
    stream = f"while true; do sbatch --parsable --hold --mem=50 -o /dev/null --wrap true >>{ACCEPTED}; done"
    site.command(CONTROLLER, f"systemd-run --quiet sh -c '{stream}'")
    site.wait_for(NODE, f"test $(wc -l <{ACCEPTED}) -gt 20 && echo enough || true", "enough", 60)
    lose(site, DATABASE, CONTROLLER)
    site.command(NODE, "touch /home/late")
    for job in (reports, new):
        wait_for_end(site, job)
    accepted = [int(line) for line in site.command(NODE, f"cat {ACCEPTED}").split()]
    print(f"measured: {len(accepted)} jobs were accepted after the backup, {accepted[0]} to {accepted[-1]}")

    run = timed("both lost under a stream", lambda: site.playbook("restore", "-e", "validate_timeout=60"))
    assert (run.rc, run.failed) == (0, {}), run.output[-5000:]
    (shown,) = [result["msg"] for _host, task, result in run.results if task.endswith("Show what was restored")]
    drained = f"drained, without new jobs until they are resumed: {NODE} (broken fan)"
    assert shown[-1] == f"the restore is complete; {drained}"
    assert f"slurmstepd waits to report it: {new}" in str(shown), shown
    (ended,) = [line for line in shown if "are ended, and not requeued: " in line]
    assert {*ended.rpartition(": ")[2].split(", ")} == {str(over), str(terminal), f"{array}_0"}
    for name in (str(over), str(terminal), f"{array}_0"):
        record = f"timeout 60 sacct --noheader -X -P --jobs={name} --format=state,end"
        state, end = site.command(CONTROLLER, record).split("|")
        assert (state.split()[0], end != "Unknown") == ("CANCELLED", True), (name, state, end)
    wait_for_record(site, reports, "COMPLETED")
    wait_for_state(site, goes_on, "RUNNING")
    after = submit(site, work("last"))
    assert after > max(accepted) + 100_000 - len(accepted)
    refused = site.command(CONTROLLER, f"sbatch --dependency=afterok:{accepted[-1]} --wrap true 2>&1", rc=1)
    assert "dependency" in refused

    site.command(CONTROLLER, f"scontrol update nodename={NODE} state=resume")
    site.command(NODE, "touch /home/last")
    for job in (goes_on, pending, after):
        wait_for_record(site, job, "COMPLETED")
    site.wait_for(CONTROLLER, "squeue --noheader --array --states=RUNNING,PENDING,COMPLETING | wc -l", "0", 60)
    lines = site.command(NODE, f"cat {LEDGER}").splitlines()
    assert len(lines) == len({*lines}) == 2 * 9, lines
    site.command(NODE, f"rm {LEDGER} {ACCEPTED} /home/over /home/late /home/last")


def test_everything_lost_but_the_target_and_the_key(site: Lab, tmp_path: Path) -> None:
    """The cluster file comes back by the command in docs/admin/recovery.md, the secrets by the playbook."""
    old = submit_until(site, "old")
    backup(site, CONTROLLER)
    backup(site, DATABASE)
    key = (secrets(site) / "munge.key").read_bytes()
    kept = (secrets(site) / "backup_password").read_text()
    lose(site, DATABASE, CONTROLLER)
    shutil.rmtree(site.inventory.parent / "secrets")
    lost = site.inventory.read_text()
    site.inventory.unlink()

    without = Lab(site.scenario, _cluster_file_back(site, tmp_path, kept))
    assert without.inventory.read_text() == lost
    refused = without.playbook("restore")
    assert refused.rc != 0
    assert "backup_password is missing: put your copy of the key of the backup there" in str(refused.failed)

    secrets(without).mkdir(parents=True, mode=0o700)
    (secrets(without) / "backup_password").write_text(kept)
    run = timed("both lost", lambda: without.playbook("restore", "--skip-tags", "validate"))
    assert run.rc == 0, run.output[-5000:]
    assert (secrets(without) / "munge.key").read_bytes() == key
    assert (secrets(without) / "munge.key").stat().st_mode & 0o777 == 0o600
    wait_for_state(without, old, "RUNNING")
    without.command(NODE, "touch /home/old")
    wait_for_record(without, old, "COMPLETED")
    validated = without.playbook("validate")
    assert validated.rc == 0, validated.output[-3000:]


def _cluster_file_back(site: Lab, directory: Path, key: str) -> Path:
    """The cluster file from the backup, by the commands of the documentation, run on the node."""
    (commands,) = re.findall(r"```sh\n(# The cluster file.*?)```", RECOVERY.read_text(), re.DOTALL)
    script = commands.replace("/srv/backup", "/home/backup").replace("/root/backup_password", "/root/key")
    site.command(NODE, "which restic || apt-get install --yes -qq restic")
    site.script(NODE, "umask 077; cat >/root/key", key.encode())
    site.command(NODE, f"sh -ec {shlex.quote('mkdir -p /root/back; cd /root/back; ' + script)}")
    packed = site.script(NODE, "tar -C /root/back -c cluster; rm -r /root/back /root/key", b"")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=packed, check=True)
    return Path(directory, "cluster", site.inventory.name)
