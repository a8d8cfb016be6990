# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""maintenance.yml with real jobs, real logins and a real mail server: announced, changed, killed, begun and ended.

The tests depend on each other and run in this order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email import message_from_string, policy
from typing import Any

import pytest
from lab import Lab, Run
from relay import CONTROLLER, MAILDIR, RELAY, mail_server

NAME = "gpucluster_maintenance"
MESSAGE = "/etc/update-motd.d/60-gpucluster-maintenance"
RECORD = "/var/lib/gpucluster-slurm/maintenance.json"
FIRST = "prep-node1"
LOGIN_KEY = """
rm -f /root/mary /root/mary.pub
ssh-keygen -q -t ed25519 -N '' -f /root/mary
install -d -o mary -g mary -m 700 ~mary/.ssh
install -o mary -g mary -m 600 /root/mary.pub ~mary/.ssh/authorized_keys
"""
"""Lets root of the controller log in as mary, a user for this test besides alice."""
TEXT = "New switches; it's $(touch /tmp/executed)"


@pytest.fixture(scope="module", autouse=True)
def _site(lab: Lab) -> Iterator[None]:
    """The mail server, a user who logs in, and no maintenance before and after."""
    with mail_server(lab):
        lab.command(CONTROLLER, "id mary || useradd --create-home --shell /bin/sh mary")
        number = lab.command(CONTROLLER, "id -u mary")  # the same on all hosts of a cluster
        for host in (FIRST, RELAY):
            lab.command(host, f"id mary || useradd --create-home --uid {number} mary")
        lab.command(CONTROLLER, LOGIN_KEY)
        lab.command(RELAY, f"rm -f {MAILDIR}/new/*")
        yield
        lab.command(CONTROLLER, "scancel --user=alice; scancel --user=mary")
        lab.command(CONTROLLER, f"scontrol delete ReservationName={NAME} || true")
        lab.command(CONTROLLER, f"rm -f {MESSAGE} {RECORD}")


def submit(lab: Lab, user: str, options: str, command: str) -> str:
    """Submit a job of a user, and return its number."""
    sbatch = f"sbatch --parsable --output=/dev/null {options} --wrap '{command}'"
    return str(lab.command(CONTROLLER, f"cd /tmp && runuser -u {user} -- timeout 60 {sbatch}"))


def state(lab: Lab, job: str) -> str:
    shown = lab.command(CONTROLLER, f"timeout 60 scontrol show job {job} | grep -o 'JobState=[A-Z]*'")
    return str(shown).partition("=")[2]


def local_time(lab: Lab, when: str) -> str:
    """A time by the clock of the controller, as the option maintenance_start has it."""
    return str(lab.command(CONTROLLER, f"date --date='{when}' +%Y-%m-%dT%H:%M:%S"))


def options(start: str, hours: float = 2, message: str = TEXT, **more: Any) -> tuple[str, str]:
    """The options of a run."""
    given = {"maintenance_start": start, "maintenance_hours": hours, "maintenance_message": message, **more}
    return "--extra-vars", json.dumps(given)


def done(run: Run) -> dict[str, Any]:
    """The result of a run that has ended well."""
    assert run.rc == 0, run.failed
    (found,) = (
        result["ansible_stats"]["data"]["slurm_maintenance"]
        for _host, _task, result in run.results
        if "slurm_maintenance" in result.get("ansible_stats", {}).get("data", {})
    )
    return dict(found)


def reservation(lab: Lab) -> dict[str, str]:
    """The reservation as Slurm shows it; empty without one."""
    text = lab.command(CONTROLLER, "timeout 60 scontrol --oneliner show reservation")
    (line,) = [line for line in text.split("\n") if f"={NAME} " in line] or [""]
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def shown_at_login(lab: Lab) -> str:
    """What mary sees when she logs in with a terminal."""
    ssh = "ssh -tt -i /root/mary -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null mary@localhost"
    return str(lab.command(CONTROLLER, f"echo exit | timeout 30 {ssh} 2>&1"))


def mails(lab: Lab) -> dict[str, tuple[str, str]]:
    """Subject and text of the mails since the last call, by user; one for each."""
    names = lab.command(RELAY, f"ls {MAILDIR}/new 2>/dev/null || true").split()
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        text = lab.script(RELAY, f"cat {MAILDIR}/new/{name}", b"").decode()
        mail = message_from_string(text, policy=policy.default)
        user = str(mail["To"]).removesuffix("@cluster.example")
        assert user not in found, f"two mails to {user}"
        found[user] = str(mail["Subject"]), mail.get_content()
    lab.command(RELAY, f"rm -f {MAILDIR}/new/*")
    return found


JOBS: dict[str, str] = {}
"""The jobs of these tests by their name."""


def test_an_announcement_tells_jobs_users_and_logins(lab: Lab) -> None:
    JOBS["runs into it"] = submit(lab, "alice", f"-w {FIRST} -n1 --time=1-0", "sleep 3600")
    lab.wait_for(CONTROLLER, "timeout 60 squeue -h -t R -o =%i=", f"={JOBS['runs into it']}=", 60)
    start = local_time(lab, "+3 hours")
    checked = lab.playbook("maintenance", *options(start), "--check", "--diff")
    assert done(checked)["sent"] == ["alice"]
    assert (reservation(lab), mails(lab)) == ({}, {})
    assert MESSAGE not in lab.command(CONTROLLER, "ls -d /etc/update-motd.d/*")

    found = done(lab.playbook("maintenance", *options(start)))
    assert (found["state"], found["sent"], found["missing"]) == ("planned", ["alice"], [])
    assert [job["job"] for job in found["running"]["jobs"]] == [JOBS["runs into it"]]
    kept = reservation(lab)
    assert (kept["StartTime"], kept["Duration"], kept["Users"]) == (start, "02:00:00", "root")
    assert {"MAINT", "IGNORE_JOBS"} <= {*kept["Flags"].split(",")}
    ((user, (subject, text)),) = mails(lab).items()
    assert (user, subject.startswith("maintenance of the cluster prologs")) == ("alice", True)
    assert TEXT in text
    assert f"save their state before: {JOBS['runs into it']}." in text
    login = shown_at_login(lab)
    assert "Maintenance of the cluster prologs" in login
    assert TEXT in login
    lab.command(CONTROLLER, "test ! -e /tmp/executed")

    again = lab.playbook("maintenance", *options(start))
    assert (again.changed, done(again)["sent"], mails(lab)) == ({}, [], {})


def test_a_job_that_fits_runs_and_one_that_does_not_waits(lab: Lab) -> None:
    """The user who has come since gets a mail, and the other one none."""
    JOBS["does not fit"] = submit(lab, "mary", f"-w {RELAY} -n1 --time=1-0", "sleep 1")
    fits = submit(lab, "mary", f"-w {RELAY} -n1 --time=10", "sleep 1")
    lab.wait_for(CONTROLLER, f"timeout 60 scontrol show job {fits}", "JobState=COMPLETED", 90)
    assert state(lab, JOBS["does not fit"]) == "PENDING"
    found = done(lab.playbook("maintenance", *options(reservation(lab)["StartTime"])))
    assert [job["job"] for job in found["waiting"]["jobs"]] == [JOBS["does not fit"]]
    ((user, (_subject, text)),) = mails(lab).items()
    assert user == "mary"
    assert f"they can start before: {JOBS['does not fit']}." in text


def test_bad_values_are_refused_before_anything_changes(lab: Lab) -> None:
    before = reservation(lab)
    for wanted, words in (
        (options("2020-01-01T08:00"), "allowed: a time to come"),
        (options(before["StartTime"], hours=0), "maintenance_hours: missing or 0, allowed"),
        (options(before["StartTime"], maintenance_nodes="prep-node[1-3]"), "maintenance_nodes: found prep-node3"),
    ):
        run = lab.playbook("maintenance", *wanted)
        assert run.rc != 0
        assert words in run.output
        assert run.changed == {}
    assert (reservation(lab), mails(lab)) == (before, {})


def test_site_leaves_it_as_it_is(lab: Lab) -> None:
    before = reservation(lab)
    run = lab.playbook("site", "--tags=controller,policy,login")
    assert run.rc == 0, run.failed
    assert reservation(lab) == before
    assert "Maintenance of the cluster" in shown_at_login(lab)


def test_a_run_that_is_killed_is_completed_by_the_next(lab: Lab) -> None:
    """Killed after the change of the reservation: message and mails are those of before, until the next run."""
    start = local_time(lab, "+4 hours")
    run = lab.start("maintenance", *options(start, message="Other switches"))
    run.wait_for_task("Change the message at logins")
    run.kill()
    assert reservation(lab)["StartTime"] == start
    found = done(lab.playbook("maintenance", *options(start, message="Other switches")))
    assert found["missing"] == []
    assert "Other switches" in shown_at_login(lab)
    told = mails(lab)
    assert {*told} <= {"alice", "mary"}
    assert all(subject.startswith("Changed: ") for subject, _text in told.values())
    assert lab.playbook("maintenance", *options(start, message="Other switches")).changed == {}
    assert mails(lab) == {}


def test_a_relay_that_is_away_is_named_and_fails_nothing(lab: Lab) -> None:
    start = reservation(lab)["StartTime"]
    lab.command(RELAY, "systemctl kill --signal=STOP mail-server")
    try:
        found = done(lab.playbook("maintenance", *options(start, message="A third text")))
    finally:
        lab.command(RELAY, "systemctl kill --signal=CONT mail-server")
    assert {*found["unsent"]} == {"alice", "mary"}
    assert "A third text" in shown_at_login(lab)
    time.sleep(2)
    mails(lab)  # what the server has taken from clients that had left
    assert done(lab.playbook("maintenance", *options(start, message="A third text")))["sent"] == ["alice", "mary"]
    mails(lab)


def test_running_jobs_outlive_the_start_and_the_length_can_change(lab: Lab) -> None:
    seconds = 60
    start = local_time(lab, f"+{seconds} seconds")
    done(lab.playbook("maintenance", *options(start)))
    assert {*mails(lab)} == {"alice", "mary"}
    lab.wait_for(CONTROLLER, "timeout 60 scontrol show reservation", "State=ACTIVE", 2 * seconds)
    assert state(lab, JOBS["runs into it"]) == "RUNNING"
    found = done(lab.playbook("maintenance", *options(start, hours=3)))
    assert (found["state"], reservation(lab)["Duration"]) == ("active", "03:00:00")
    refused = lab.playbook("maintenance", *options(local_time(lab, "+1 day")))
    assert refused.rc != 0
    assert f"Give maintenance_start={start.removesuffix(':00')}" in refused.output
    assert {*mails(lab)} == {"alice", "mary"}


def test_the_end_removes_everything_and_jobs_start(lab: Lab) -> None:
    found = done(lab.playbook("maintenance", "--extra-vars", "maintenance_end=true"))
    assert (found["state"], found["sent"]) == ("ended", ["alice", "mary"])
    assert reservation(lab) == {}
    assert "Maintenance of the cluster" not in shown_at_login(lab)
    assert {user: subject.partition(":")[0] for user, (subject, _text) in mails(lab).items()} == {
        "alice": "Ended",
        "mary": "Ended",
    }
    lab.command(CONTROLLER, f"test ! -e {MESSAGE} && test ! -e {RECORD}")
    lab.wait_for(CONTROLLER, f"timeout 60 scontrol show job {JOBS['does not fit']}", "JobState=COMPLETED", 120)
    assert state(lab, JOBS["runs into it"]) == "RUNNING"
    again = lab.playbook("maintenance", "--extra-vars", "maintenance_end=true")
    assert (again.changed, done(again)["state"], mails(lab)) == ({}, "none", {})


def test_a_message_is_silent_after_its_end_without_another_run(lab: Lab) -> None:
    done(lab.playbook("maintenance", *options(local_time(lab, "+1 hour"))))
    script = lab.command(CONTROLLER, f"cat {MESSAGE}")
    end = next(word for line in script.split("\n") if "-lt" in line for word in line.split() if word.isdigit())
    lab.script(CONTROLLER, f"cat >{MESSAGE}", script.replace(end, "1000000000").encode())
    assert "Maintenance of the cluster" not in shown_at_login(lab)
    repaired = lab.playbook("maintenance", *options(reservation(lab)["StartTime"]))
    assert "Write the message" in json.dumps(repaired.changed)
    assert "Maintenance of the cluster" in shown_at_login(lab)
    assert done(lab.playbook("maintenance", "--extra-vars", "maintenance_end=true"))["state"] == "ended"
