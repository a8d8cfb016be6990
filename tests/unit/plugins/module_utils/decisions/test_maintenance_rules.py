# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role maintenance."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import maintenance
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import report_collector
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_maintenance
from plain_host import GROUPS, PlainHost, cluster

ROLE = Path(__file__).parents[5] / "roles/maintenance"
FOUND: dict[str, Any] = {
    "window": {
        "start": 1796108400,
        "end": 1796137200,
        "start_time": "2026-12-01T08:00:00",
        "end_time": "2026-12-01T16:00:00",
        "start_shown": "Tue 2026-12-01 08:00 CET (07:00 UTC)",
        "end_shown": "Tue 2026-12-01 16:00 CET (15:00 UTC)",
    },
    "begun": False,
    "running": {"count": 0, "jobs": []},
    "waiting": {"count": 0, "jobs": []},
    "table": ["No running job reaches into it, and no queued job waits for its end."],
}


def host(groups: dict[str, list[str]] | None = None, **variables: Any) -> PlainHost:
    """The controller, before the reservation is made."""
    given = {
        "maintenance_start": "2026-12-01T08:00",
        "maintenance_hours": "8",
        "maintenance_nodes": "ALL",
        "maintenance_message": "",
        "maintenance_users": [],
        "maintenance_mail": True,
        "maintenance_end": False,
        "groups": {**GROUPS, "slurm_needs_maintenance": ["head", "login"], **(groups or {})},
        "__maintenance_found": FOUND,
    }
    found: PlainHost = cluster(**{**given, **variables})["head"]
    return found


def test_good_options_have_no_errors() -> None:
    assert maintenance.errors(host()) == []
    assert (
        maintenance.errors(host(maintenance_hours=0.5, maintenance_nodes="n[1-2]", maintenance_users=["alice"])) == []
    )
    assert maintenance.errors(host(maintenance_start="2026-12-01T08:00+01:00", maintenance_message="a\nb ä")) == []
    assert maintenance.errors(host(maintenance_start="", maintenance_hours=0, maintenance_end="true")) == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"maintenance_start": ""}, "maintenance_start: missing, allowed: a date and time such as"),
        ({"maintenance_start": "now+2hours"}, "maintenance_start: found 'now+2hours', allowed: a date and time"),
        ({"maintenance_hours": 0}, "maintenance_hours: missing or 0, allowed: a number of hours"),
        ({"maintenance_hours": "-1"}, "maintenance_hours: found -1, allowed: a number of hours"),
        ({"maintenance_nodes": "n[1-3]"}, "maintenance_nodes: found n3, allowed: ALL or nodes of the cluster"),
        (
            {"maintenance_nodes": "N1"},
            "maintenance_nodes: found N1, allowed: ALL or nodes of the cluster, did you mean",
        ),
        ({"maintenance_nodes": "n[1-"}, "maintenance_nodes: found 'n[1-': bad hostlist"),
        ({"maintenance_nodes": ""}, "maintenance_nodes: found nothing, allowed: ALL or a hostlist"),
        ({"maintenance_message": "a\x1b[2J"}, "maintenance_message: found"),
        ({"maintenance_message": "a\n" * 11}, "maintenance_message: found"),
        (
            {"maintenance_message": "New", "_raw_params": "switches"},
            "-e: found 'switches' without a name, since Ansible",
        ),
        ({"maintenance_users": ["a b"]}, "maintenance_users: found 'a b', allowed:"),
        ({"maintenance_end": "true"}, "maintenance_end: found true, together with maintenance_start"),
        (
            {"slurm_accounting_reservations": [{"name": "gpucluster_maintenance"}]},
            "accounting.reservations: found gpucluster_maintenance",
        ),
    ],
)
def test_each_bad_option_has_one_error(variables: dict[str, Any], words: str) -> None:
    (error,) = maintenance.errors(host(**variables))
    assert error.startswith(words)


def test_the_reservation_is_in_words_of_slurm() -> None:
    assert maintenance.reservation(host(maintenance_users=["alice", "root"])) == maintenance.Reservation(
        "gpucluster_maintenance",
        "present",
        {
            "StartTime": "2026-12-01T08:00:00",
            "EndTime": "2026-12-01T16:00:00",
            "Nodes": "ALL",
            "Users": ["root", "alice"],
            "Flags": ["MAINT", "IGNORE_JOBS"],
        },
    )
    strict = maintenance.reservation(host(slurm_profile="strict", maintenance_nodes="n2,n1,n2"))
    assert (strict.parameters["Users"], strict.parameters["Nodes"]) == (["root", "slurm-check"], "n[1-2]")
    ended = maintenance.reservation(host(maintenance_end="true"))
    assert (ended.state, ended.parameters) == ("absent", {})


def test_the_first_controller_that_answers_is_asked() -> None:
    two: dict[str, Any] = {"slurm_controllers": ["head", "login"]}
    assert maintenance.controller(host(**two)) == "head"
    assert maintenance.controller(host({"slurm_needs_maintenance": ["login"]}, **two)) == "login"
    assert maintenance.controller(host({"slurm_needs_maintenance": []}, **two)) == ""
    assert maintenance.controller(host({"slurm_needs_maintenance": ["login"]})) == ""


def test_mails_are_sent_if_the_cluster_has_them_and_nobody_switches_them_off() -> None:
    mail = {"relay": "a:25", "sender": "slurm@a.example", "domain": "b.example", "tls": "none"}
    assert not maintenance.sends(host())
    assert maintenance.sends(host(slurm_mail=mail))
    assert not maintenance.sends(host(slurm_mail=mail, maintenance_mail="false"))
    assert maintenance.mail_options(host(slurm_mail=mail))["domain"] == "b.example"
    assert maintenance.mail_options(host(slurm_mail=mail, maintenance_mail=False))["sender"] == ""


# -- the message -----------------------------------------------------------------------------------------------------


def script(start: int, end: int, message: str = "", zone: str = "Europe/Berlin") -> str:
    """What the script of the message shows at a login."""
    found = host(maintenance_message=message, slurm_cluster_name="hpc")
    found.set(__maintenance_found={**FOUND, "window": {**FOUND["window"], "start": start, "end": end}})

    def text(role: str, template: str, **variables: Any) -> str:
        assert role == "maintenance"
        environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
        return environment.from_string((ROLE / "templates" / template).read_text()).render(variables)

    found.text = text
    file = maintenance.message_script(found)
    assert file["mode"] == "0755"
    environment = {"PATH": os.environ["PATH"], "TZ": zone}
    run = subprocess.run(["sh"], input=file["content"], env=environment, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return run.stdout


def test_the_message_has_the_times_of_the_host_and_utc() -> None:
    shown = script(4_000_000_000, 4_000_028_800, "New switches")
    assert shown.split("\n") == [
        "",
        "Maintenance of the cluster hpc",
        "  From:  Tue 2096-10-02 09:06 CEST (2096-10-02 07:06 UTC)",
        "  Until: Tue 2096-10-02 17:06 CEST (2096-10-02 15:06 UTC)",
        "  Nodes: all",
        "  New switches",
        "",
        "",
    ]


def test_the_message_is_silent_after_the_end() -> None:
    now = int(time.time())
    assert script(now - 20, now - 10) == ""
    assert "Until" in script(now - 20, now + 60)


@pytest.mark.parametrize("text", ['it\'s $(touch /tmp/x) `id` "$HOME" \\n %s', "-e; exit 1", "*", "a\n\n  b", "学習"])
def test_no_text_is_a_command(text: str) -> None:
    assert "\n".join(f"  {line}" for line in text.split("\n")) in script(4_000_000_000, 4_000_028_800, text)


# -- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "report", "paths"),
    [
        ("head", {}, [maintenance.NOTE_FILE]),
        ("login", {}, [maintenance.MESSAGE_FILE]),
        ("login", {"host": "login"}, [maintenance.MESSAGE_FILE, maintenance.NOTE_FILE]),
        ("n1", {"host": "login"}, []),
    ],
)
def test_the_message_is_where_users_log_in_and_where_the_page_is_made(
    name: str, report: dict[str, str], paths: list[str]
) -> None:
    text = 'It\'s "new"\n<b>'
    found = host(slurm_report=report, maintenance_message=text).of(name)
    assert maintenance.message_paths(found) == paths
    files = {file["path"]: file["content"] for file in maintenance.message_files(found)}
    assert [*files] == paths
    if maintenance.NOTE_FILE in files:
        note = json.loads(files[maintenance.NOTE_FILE])
        assert note == {"name": "gpucluster_maintenance", "message": text}


def told(found: PlainHost, **result: Any) -> PlainHost:
    """The controller, after the login host has answered."""
    found.of("login").set(__maintenance_message={"changed": True, **result})
    return found


def test_the_result_names_what_was_done_and_what_is_missing() -> None:
    found = told(host(__maintenance_mails={"sent": ["alice"], "unsent": {"bob": "no relay"}}))
    assert maintenance.result(found) == {
        "state": "planned",
        "start": "2026-12-01T07:00:00Z",
        "end": "2026-12-01T15:00:00Z",
        "nodes": "ALL",
        "running": FOUND["running"],
        "waiting": FOUND["waiting"],
        "messages": ["login"],
        "sent": ["alice"],
        "unsent": {"bob": "no relay"},
        "missing": [],
    }
    lines = maintenance.report(found)
    assert "  from Tue 2026-12-01 08:00 CET (07:00 UTC)" in lines
    assert "Message at logins: login" in lines
    assert lines[-3:] == ["Mails sent: 1", "Mails not sent: 1; the next run tries again", "  bob: no relay"]


def test_the_report_says_which_alerts_are_silent() -> None:
    assert not {*maintenance.SILENT} & {*maintenance.report(told(host()))}
    assert {*maintenance.SILENT} <= {*maintenance.report(told(host(slurm_monitoring={"host": "head"})))}
    ended = told(host(slurm_monitoring={"host": "head"}, maintenance_end="true"))
    assert not {*maintenance.SILENT} & {*maintenance.report(ended)}


def test_a_check_says_that_nothing_is_changed() -> None:
    assert (
        maintenance.report(told(host(ansible_check_mode=True)))[0] == "This run changes nothing (--check). Without it:"
    )


@pytest.mark.parametrize("answer", [None, {"failed": True}, {"unreachable": True}])
def test_a_login_host_without_the_message_is_missing(answer: dict[str, Any] | None) -> None:
    found = host() if answer is None else told(host(), **answer)
    assert maintenance.result(found)["missing"] == ["login"]
    assert maintenance.report(found)[-1].startswith("Not done on login, not reached or left out: run the same command")


def test_a_controller_that_is_away_is_missing() -> None:
    found = told(host({"slurm_needs_maintenance": ["login"]}, slurm_controllers=["head", "login"]))
    assert maintenance.result(found)["missing"] == ["head"]


def test_the_states_of_a_maintenance() -> None:
    assert maintenance.state(host()) == "planned"
    assert maintenance.state(host(__maintenance_found={**FOUND, "begun": True})) == "active"
    ended = told(host(maintenance_end="true"))
    assert maintenance.state(ended) == "ended"
    assert maintenance.result(ended)["messages"] == []
    assert maintenance.report(ended) == [
        "The maintenance from Tue 2026-12-01 08:00 CET (07:00 UTC) to Tue 2026-12-01 16:00 CET (15:00 UTC) is ended."
    ]
    nothing = told(host(maintenance_end="true", __maintenance_found={**FOUND, "window": {}}))
    assert maintenance.report(nothing) == ["Slurm has no reservation of a maintenance."]
    assert maintenance.result(nothing)["start"] is None


def test_the_message_for_the_page_is_not_the_record_of_mails() -> None:
    """Both in one file, each run sent all mails again."""
    assert str(report_collector.MAINTENANCE) == maintenance.NOTE_FILE != slurm_maintenance.RECORD
