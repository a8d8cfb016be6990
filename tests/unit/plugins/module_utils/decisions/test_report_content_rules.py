# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of playbook report: what the page says of hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_CONF, KEPT_LIST
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import report_content
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import report_server
from plain_host import PlainHost, cluster
from report_programs import program

KEY = "/cluster/secrets/x/munge.key"
TIME = "2026-11-28T10:00:00+00:00"
BASE: dict[str, Any] = {
    "munge_key_file": KEY,
    "base_manage_hosts_file": True,
    "base_packages": ["chrony"],
    "base_extra_packages": [],
    "base_time_service": "chrony",
    "base_kernel_settings": {},
    "validate_report_dir": "/missing",
    "accept_report_dir": "/missing",
}
UPDATE = {
    "kind": "kernel",
    "state": "pending",
    "security": "yes",
    "installed": "6.1",
    "available": "6.2",
    "package": "l",
}


def run(**variables: Any) -> dict[str, PlainHost]:
    """A cluster whose hosts have answered and have told nothing by themselves."""
    hosts: dict[str, PlainHost] = cluster({KEY: b"key"}, **{**BASE, **variables})
    for host in hosts.values():
        host["__slurm_facts"].update(objections=[], stages=[], drift=[])
    return hosts


def texts(host: PlainHost, objections: tuple[str, ...] = ()) -> list[str]:
    """The differences of a host's own answer."""
    return [f"{what}: {text}" for what, text in report_content.own(host, objections)]


def of(found: dict[str, Any], name: str) -> list[str]:
    """The differences of a host in the data."""
    (row,) = [row for row in found["hosts"]["hosts"] if row["name"] == name]
    return [f"{each['what']}: {each['text']}" for each in row["differences"]]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"unheld": ["slurmd"]}, "packages: apt may change packages of Slurm, which are not held: slurmd"),
        ({"interrupted": True}, "packages: an installation of packages was interrupted"),
        ({"users": {"munge": 1}}, "ids: users of services are missing: slurm"),
        (
            {"directories": {"differ": {"/etc/munge": "root root 0755", "/etc/slurm": "missing"}, "refused": []}},
            "files: /etc/munge has another owner or mode: root root 0755",
        ),
        (
            {"directories": {"differ": {"/etc/slurm": "missing"}, "refused": []}},
            "files: /etc/slurm is missing",
        ),
        ({"part": "0" * 64}, "files: the cluster's part of /etc/hosts is different"),
        ({"clocks": {"chrony": False}}, "clock: no service synchronizes the clock"),
        ({"storage": "0" * 64}, "files: mounts, homes or exports are not those of the cluster file"),
        ({"firewall": "0" * 64}, "services: the rules of the firewall are not those of the cluster file"),
        (
            {"files": {report_server.SETTINGS: "0" * 64}},
            "services: the page about the cluster is still there, and the cluster file has it elsewhere",
        ),
    ],
)
def test_what_a_host_tells_of_itself(facts: dict[str, Any], text: str) -> None:
    assert text in texts(run()["n1"].say(**facts))


def test_packages_are_named_up_to_a_limit() -> None:
    host = run(base_packages=[f"p{number}" for number in range(9)])["n1"]
    (missing,) = [text for text in texts(host) if text.startswith("packages: packages are missing: ")]
    assert " and " in missing
    assert missing.endswith(" more")


def test_the_configuration_in_force_is_compared_on_controllers() -> None:
    text = "configuration: slurm.conf in force is not that of the cluster file"
    hosts = run()
    for name in ("head", "n1"):
        hosts[name].say(files={KEPT_CONF: "0" * 64, KEPT_LIST: "0" * 64})
    assert text in texts(hosts["head"])
    assert text not in texts(hosts["n1"])


def test_a_refused_host_has_no_other_difference() -> None:
    hosts = run()
    assert texts(hosts["n1"].say(interrupted=True), ("its name",)) == ["refused: site.yml refuses the host: its name"]
    hosts["n1"]["__slurm_facts"].update(objections=["its name"], drift=[("refused", "x")], clock_offset=100.0)
    assert of(report_content.found(hosts["head"], TIME), "n1") == ["refused: x"]


def test_all_hosts_are_there_also_those_that_were_not_reached() -> None:
    hosts = run()
    del hosts["n2"]["__slurm_facts"]["ansible_facts"]
    hosts["n1"]["__slurm_facts"]["drift"] = [("files", "x")]
    found = report_content.found(hosts["head"], TIME)
    assert found["hosts"]["checked"] == TIME
    assert {row["name"]: row["reached"] for row in found["hosts"]["hosts"]} == {
        "head": True,
        "login": True,
        "n1": True,
        "n2": False,
    }
    assert "files: x" in of(found, "n1")
    assert of(found, "n2") == []


def test_clocks_are_compared() -> None:
    hosts = run()
    hosts["n1"]["__slurm_facts"]["clock_offset"] = 100.0
    (text,) = [text for text in of(report_content.found(hosts["head"], TIME), "n1") if text.startswith("clock")]
    assert text.startswith("clock: the clock is 100 s ahead of that of head")


def test_services_are_those_that_site_yml_would_compare() -> None:
    found = of(report_content.found(run()["head"], TIME), "login")
    assert any(text.startswith("services: munge is not known to be as site.yml has left it") for text in found)


def test_what_was_not_booted_is_a_difference_and_no_update() -> None:
    hosts = run()
    waits = {**UPDATE, "state": "not booted"}
    driver = {**UPDATE, "kind": "nvidia", "state": "not booted", "installed": "550", "available": "560"}
    hosts["n1"].set(__slurm_updates={"updates": [waits, driver, {**UPDATE, "state": "none"}]})
    found = report_content.found(hosts["head"], TIME)
    assert [text for text in of(found, "n1") if "booted" in text] == [
        "kernel: the newest one is not booted: 6.1 -> 6.2",
        "driver: the newest one is not booted: 550 -> 560",
    ]
    assert found["updates"] == []


def test_updates_are_folded() -> None:
    hosts = run()
    assert report_content.pending(hosts["head"]) is None
    for name in ("n1", "n2"):
        hosts[name].set(__slurm_updates={"updates": [UPDATE, {**UPDATE, "state": "held", "kind": "munge"}]})
    same = {"security": "yes", "from": "6.1", "to": "6.2", "hosts": "n[1-2]"}
    assert report_content.pending(hosts["head"]) == [
        {"what": "kernel", "held": False, **same},
        {"what": "munge", "held": True, **same},
    ]


def test_versions_are_folded() -> None:
    hosts = run()
    for name in ("head", "n1", "n2"):
        release = "24.11.5" if name != "n2" else "24.11.4"
        hosts[name].say(slurm={"installed": release, "candidate": "", "state_protocol": 0}, packages={"munge": "0.5"})
    found = [(row["what"], row["version"], row["hosts"]) for row in report_content.versions(hosts["head"])]
    assert ("Slurm", "24.11.5", "head,n1") in found
    assert ("Slurm", "24.11.4", "n2") in found
    assert ("munge", "0.5", "head,n[1-2]") in found
    assert ("distribution", "debian 13", "head,login,n[1-2]") in found


def test_backups_are_those_of_the_hosts_that_save() -> None:
    hosts = run(slurm_backup={"target": "/b", "max_age": 48})
    hosts["head"].say(backup="the last good backup is 99 hours old, and 48 are allowed")
    assert report_content.backups(hosts["head"]) == [
        {
            "host": "head",
            "finished": None,
            "ok": False,
            "text": "the last good backup is 99 hours old, and 48 are allowed",
        }
    ]
    assert report_content.backups(run()["head"]) == []


def test_the_last_validation_of_this_control_host(tmp_path: Path) -> None:
    host = run(validate_report_dir=str(tmp_path))["head"]
    assert report_content.validation(host) is None
    result = {"ok": False, "passed": 3, "failed": 1, "waiting": 0, "jobs": []}
    (tmp_path / "validation.json").write_text(json.dumps(result))
    found = report_content.validation(host)
    assert found
    assert {key: found[key] for key in ("ok", "passed", "failed", "waiting")} == {
        key: result[key] for key in ("ok", "passed", "failed", "waiting")
    }
    assert report_content.left_by_validate(host, result, TIME)["finished"] == TIME
    (tmp_path / "validation.json").write_text("[]")
    assert report_content.validation(host) is None


def test_the_last_runs_of_accept_of_this_control_host() -> None:
    hosts = run()
    host = hosts["head"]
    assert report_content.acceptance(host) == []
    runs = [{"finished": TIME, "ok": True}]
    for text, found in ((json.dumps({"runs": runs}), runs), ("[]", []), ("{", []), ('{"runs": 7}', [])):
        host.files = {**host.files, "/missing/acceptance-runs.json": text.encode()}
        assert report_content.acceptance(host) == found
    assert report_content.found(host, TIME)["acceptance"] == []


# -- the playbook ------------------------------------------------------------------------------------------------------


def test_the_controller_that_serves_is_asked() -> None:
    hosts = run(slurm_controllers=["head", "login"])
    hosts["login"].say(serving_controller="login")
    assert report_content.serving(hosts["n1"]) == "login"
    assert json.loads(report_content.settings(hosts["n1"]))["host"] == "login"
    assert json.loads(report_content.settings(hosts["n1"]))["job_user"] == "root"
    strict = run(slurm_profile="strict")
    assert json.loads(report_content.settings(strict["n1"]))["job_user"] == "slurm-check"


def test_the_pages_are_made_by_the_modules_of_the_collection(tmp_path: Path) -> None:
    program_text = report_content.pages_program(run()["n1"])
    command = [sys.executable, "-Bc", program_text, "pages", "--data=-", f"--output={tmp_path}"]
    text = report_content.collected(run()["n1"], TIME)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["nodes"] is None
    assert (tmp_path / "admin.html").stat().st_mode & 0o777 == 0o600


def test_without_an_answer_the_page_says_why() -> None:
    hosts = run()
    hosts["head"].set(__slurm_report_collected={"rc": 0, "stdout": "H4sI"})
    assert report_content.collected(hosts["n1"], TIME) == "H4sI"
    for result, why in (
        ({}, "it was not reached"),
        ({"rc": 1, "stdout": "", "stderr": "Traceback\nKeyError: x\n"}, "KeyError: x"),
        ({"unreachable": True, "msg": "no route"}, "no route"),
    ):
        hosts["head"].set(__slurm_report_collected=result)
        data = json.loads(report_content.collected(hosts["n1"], TIME))
        assert (data["version"], data["made"]) == (1, TIME)
        assert {row["why"] for row in data["missing"]} == {f"head: {why}"}


def test_cases_are_missing_where_there_is_the_key_repair() -> None:
    keys: dict[str, dict[str, str]] = {"cases": {"mode": "observe"}, "": {}}
    for part, key in keys.items():
        host = run(slurm_repair=key)["n1"]
        assert json.loads(report_content.settings(host))["cases"] == bool(key)
        missing = json.loads(report_content.collected(host, TIME))["missing"]
        assert [row["part"] for row in missing if row["part"] == "cases"] == [part] * bool(part)


def test_the_host_of_the_key_gets_what_was_found_once_it_has_the_program() -> None:
    hosts = run(slurm_report={"host": "login"})
    assert not report_content.is_left(hosts["head"])
    hosts["login"].say(files={report_server.SETTINGS: "0" * 64})
    assert report_content.is_left(hosts["head"])
    del hosts["login"]["__slurm_facts"]["ansible_facts"]
    assert not report_content.is_left(hosts["head"])
    assert not report_content.is_left(run(slurm_report={})["head"])


def test_what_a_person_and_a_program_are_told() -> None:
    hosts = run(slurm_report={})
    rows = [
        {"name": name, "reached": name != "n3", "differences": [{"what": "files", "text": "x"}] if name != "n3" else []}
        for name in ("n1", "n2", "n3")
    ]
    compared = {"checked": TIME, "hosts": rows}
    assert report_content.lines(hosts["head"], compared, "a, b") == [
        "Pages: a, b",
        "n[1-2]: files: x",
        "n3: not reached",
    ]
    well = {"checked": TIME, "hosts": [{"name": "n1", "reached": True, "differences": []}]}
    assert report_content.lines(hosts["head"], well, "a")[1:] == ["All hosts are as the cluster file has them."]
    assert report_content.result(hosts["head"], compared) == {
        "checked": TIME,
        "hosts": 3,
        "reached": 2,
        "differences": {name: [{"what": "files", "text": "x"}] for name in ("n1", "n2")},
        "served": False,
    }


def test_the_parts_that_can_be_missing_are_those_of_the_program() -> None:
    assert program().PARTS == report_content.OF_SLURM
