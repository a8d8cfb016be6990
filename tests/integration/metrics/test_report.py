# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key report and the playbook: who gets which page, what is on them, a killed run, removal.

The tests depend on each other and run in this order, on a cluster without the key. The last one puts everything back.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_cluster

HOST, NODE, OTHER = "met-ctl1", "met-node1", "met-ctl2"
ADDRESS, PROXY = "10.213.7.210", "10.213.7.211"
ROLE = "gpucluster.slurm.slurm_report"
READERS = ["10.213.7.1"]
"""The machine of the tests."""

USERS = {"alice": "pass-word-of-alice", "bob": "pass-word-of-bob"}
WITH_USERS = {"host": HOST, "readers": READERS, "password_file": "report.users", "administrators": ["alice"]}
STATE, PAGES = "/var/lib/gpucluster-slurm/report", "/var/lib/gpucluster-slurm/report-pages"
MARKUP = "<b>x</b>"
"""A name of a job that would be markup."""


@pytest.fixture(name="directory", scope="module")
def of_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the cluster file, with users and a certificate."""
    found = tmp_path_factory.mktemp("report")
    lines = []
    for name, password in USERS.items():
        command = ["openssl", "passwd", "-apr1", "-stdin"]
        done = subprocess.run(command, input=password, capture_output=True, text=True, check=True)
        lines.append(f"{name}:{done.stdout.strip()}\n")
    (found / "report.users").write_text("".join(lines))
    (found / "report.users").chmod(0o600)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST},IP:{ADDRESS}"]
    files = ["-keyout", str(found / "tls.key"), "-out", str(found / "tls.crt")]
    subprocess.run([*command, *names, *files], capture_output=True, check=True)
    (found / "tls.key").chmod(0o600)
    return found


@pytest.fixture(name="site", scope="module")
def with_key(lab: Lab, directory: Path) -> Callable[..., Lab]:
    """The lab with a value of the key, and other parameters of slurm.conf."""

    def changed(report: Any, **slurm_conf: Any) -> Lab:
        cluster = yaml.safe_load(lab.inventory.read_text())
        cluster["slurm_conf"] |= slurm_conf
        if report is not None:
            cluster["report"] = report
        tls = {"slurm_report_certificate": str(directory / "tls.crt"), "slurm_report_key": str(directory / "tls.key")}
        return with_cluster(lab, directory, cluster, **tls)

    return changed


def run(lab: Lab, *arguments: str) -> Run:
    """Run site.yml without the jobs at its end; it must succeed."""
    done = lab.playbook("site", "--skip-tags=validate,backup", *arguments)
    assert done.rc == 0, done.failed or done.output[-3000:]
    return done


AS_PROXY = """
import ssl, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"X-Remote-User": sys.argv[2]} if sys.argv[2] else {})
try:
    print(urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
"""Prints the status that a host gets which names a user as the proxy does. usage: URL USER"""


WITH_OWN_CERTIFICATE = """
import ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/etc/gpucluster-slurm/report/tls.crt")
try:
    print(urllib.request.urlopen(sys.argv[1], context=context, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
"""Prints the status of a page, with the certificate of this host checked. usage: URL"""


def get(directory: Path, path: str, user: str = "", password: str = "") -> tuple[int, str]:
    """The status and the text that nginx answers, with its certificate checked."""
    command = ["curl", "--silent", "--max-time", "20", "--cacert", str(directory / "tls.crt")]
    # Not on the command line, where others would see it.
    given = f'user = "{user}:{password or USERS[user]}"\n' if user else ""
    command += ["--write-out", "\n%{http_code}", "--config", "-", f"https://{ADDRESS}{path}"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    text, _newline, status = done.stdout.rpartition("\n")
    return int(status), text


def update(lab: Lab) -> None:
    """Make the pages now."""
    lab.command(HOST, "systemctl start slurm-report.service")


def test_check_mode_predicts_an_installation(lab: Lab, site: Callable[..., Lab]) -> None:
    done = run(site(WITH_USERS), "--check")
    assert HOST in done.changed
    assert lab.command(HOST, f"ls {PAGES}", 2) == ""


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"host": NODE}, "allowed: a controller or a login host"),
        ({"host": HOST, "password_file": "missing.users"}, "slurm_report.password_file"),
        ({"host": HOST, "administrators": ["alice"]}, "report.administrators"),
        ({**WITH_USERS, "administrators": ["carol"]}, "carol is not in"),
    ],
)
def test_mistakes_are_told_before_anything_is_changed(site: Callable[..., Lab], key: Any, message: str) -> None:
    done = site(key).playbook("site", "--skip-tags=validate,backup")
    assert done.rc != 0
    assert message in done.output
    assert done.changed == {}


def test_a_killed_run_is_completed(site: Callable[..., Lab], directory: Path) -> None:
    live = site(WITH_USERS).start("site", "--skip-tags=validate,backup")
    live.wait_for_task("slurm_report : Run the services")
    time.sleep(1)
    live.kill()
    done = run(site(WITH_USERS))
    assert {*done.changed} <= {HOST}
    assert get(directory, "/", "alice")[0] == 200


def test_a_second_run_changes_nothing(site: Callable[..., Lab]) -> None:
    assert run(site(WITH_USERS)).changed == {}
    assert run(site(WITH_USERS), "--check", "--diff").changed == {}


def test_who_gets_which_page(lab: Lab, directory: Path) -> None:
    assert get(directory, "/")[0] == 401
    assert get(directory, "/", "bob", "wrong")[0] == 401
    assert get(directory, "/", "bob")[0] == 200
    assert get(directory, "/admin/")[0] == 401
    assert get(directory, "/admin/", "bob")[0] == 401
    assert get(directory, "/admin/", "alice")[0] == 200
    for path in ("/admin/index.html", "/index.html", "/..%2freport/usage.json", "/other"):
        assert get(directory, path, "alice")[0] in (400, 404)
    # Another host of the cluster is none of the readers.
    command = f"curl --insecure --silent --max-time 5 https://{ADDRESS}/"
    assert lab.host(NODE).run(f"{command} || exit 9").rc == 9
    modes = lab.command(HOST, f"stat --format '%a %U %G' {STATE} {PAGES}/index.html {PAGES}/admin/index.html")
    assert modes.split("\n")[:3] == ["700 root root", "640 root www-data", "640 root www-data"]
    access = lab.command(HOST, "sh -c 'cd /etc/gpucluster-slurm/report && stat --format \"%a %U\" users tls.key'")
    assert access.split() == ["400", "www-data", "400", "root"]


def test_the_timer_goes_on(lab: Lab) -> None:
    assert lab.command(HOST, "systemctl is-active slurm-report.timer").strip() == "active"
    lab.command(HOST, f"rm {PAGES}/index.html")
    lab.wait_for(HOST, f"ls {PAGES}", "index.html", 330)


def test_the_collected_data_are_those_of_slurm(lab: Lab) -> None:
    data = json.loads(lab.command(HOST, "slurm-report collect"))
    assert data["cluster"] == "metrics"
    assert [(row["name"], row["serves"]) for row in data["controllers"]] == [(HOST, True), (OTHER, False)]
    assert [row["name"] for row in data["nodes"]] == [NODE]
    assert [row["part"] for row in data["missing"] if row["part"] in ("nodes", "jobs", "usage")] == []
    assert len(data["usage"]["days"]) == 30


def test_drains_have_doctors_words_and_names_are_no_markup(lab: Lab, directory: Path) -> None:
    lab.command(HOST, f"sbatch --job-name '{MARKUP}' --hold --wrap true")
    lab.command(HOST, f"scontrol update NodeName={NODE} State=DRAIN Reason='fan <i>broken</i>'")
    try:
        update(lab)
        _status, text = get(directory, "/admin/", "alice")
        assert "Ask who has drained it" in text
        assert "fan &lt;i&gt;broken&lt;/i&gt;" in text
        assert MARKUP not in text
    finally:
        lab.command(HOST, f"scontrol update NodeName={NODE} State=RESUME")
        lab.command(HOST, f"scancel --name '{MARKUP}'")


def test_what_is_different_on_a_host_is_on_the_page(
    lab: Lab, site: Callable[..., Lab], directory: Path, tmp_path: Path
) -> None:
    lab.command(NODE, "apt-mark unhold slurmd")
    try:
        done = site(WITH_USERS).playbook("report", "-e", f"slurm_report_dir={tmp_path}")
        assert done.rc == 0, done.output[-3000:]
        assert done.changed == {}
        assert "which are not held" in (tmp_path / "admin.html").read_text()
        assert (tmp_path / "admin.html").stat().st_mode & 0o077 == 0
        left = json.loads(lab.command(HOST, f"cat {STATE}/hosts.json"))
        (node,) = [row for row in left["hosts"]["hosts"] if row["name"] == NODE]
        assert "packages" in [row["what"] for row in node["differences"]]
        update(lab)
        assert "which are not held" in get(directory, "/admin/", "alice")[1]
    finally:
        lab.command(NODE, "apt-mark hold slurmd")
    site(WITH_USERS).playbook("report", "-e", f"slurm_report_dir={tmp_path}")
    left = json.loads(lab.command(HOST, f"cat {STATE}/hosts.json"))
    assert [row for row in left["hosts"]["hosts"] if row["differences"]] == []


def test_a_host_that_does_not_answer_is_named(lab: Lab, site: Callable[..., Lab], tmp_path: Path) -> None:
    changed = site(WITH_USERS)
    (changed.inventory.parent / "host_vars").mkdir(exist_ok=True)
    own = changed.inventory.parent / "host_vars" / f"{NODE}.yml"
    own.write_text("ansible_port: 1\n")
    try:
        done = changed.playbook("report", "-e", f"slurm_report_dir={tmp_path}")
    finally:
        own.unlink()
    assert f"{NODE}: not reached" in done.output
    left = json.loads((tmp_path / "hosts.json").read_text())
    assert {row["name"]: row["reached"] for row in left["hosts"]["hosts"]}[NODE] is False
    assert lab.command(HOST, f"ls {STATE}/hosts.json")


def test_validate_leaves_its_result(lab: Lab, site: Callable[..., Lab], directory: Path) -> None:
    done = site(WITH_USERS).playbook("validate", "--skip-tags=backup")
    assert done.rc == 0, done.output[-3000:]
    left = json.loads(lab.command(HOST, f"cat {STATE}/validation.json"))
    assert left["ok"]
    update(lab)
    data = json.loads(lab.command(HOST, "slurm-report collect"))
    assert data["validation"] == left
    assert get(directory, "/", "bob")[0] == 200


def test_accept_leaves_its_result(lab: Lab, site: Callable[..., Lab], directory: Path) -> None:
    """Twice, so that there is a trend. One node has no peers, and so nothing is named."""
    for count in (1, 2):
        done = site(WITH_USERS).playbook("accept")
        assert done.rc == 0, done.output[-3000:]
        left = json.loads(lab.command(HOST, f"cat {STATE}/acceptance.json"))["runs"]
        assert len(left) == count
    assert lab.command(HOST, f"stat -c '%a %U' {STATE}/acceptance.json") == "600 root"
    assert {"stream", "disk_write_local"} <= {row["test"] for row in left[0]["values"]}
    update(lab)
    assert json.loads(lab.command(HOST, "slurm-report collect"))["acceptance"] == left
    text = get(directory, "/admin/", "alice")[1]
    assert "memory bandwidth (STREAM Triad)" in text
    assert "against the run before" in text
    assert "STREAM" not in get(directory, "/", "bob")[1]


def test_private_data_are_for_administrators(lab: Lab, site: Callable[..., Lab], directory: Path) -> None:
    run(site(WITH_USERS, PrivateData="jobs,users,usage,accounts"))
    lab.command(HOST, "sbatch --job-name hidden-job --hold --wrap true")
    try:
        update(lab)
        assert "hidden-job" not in get(directory, "/", "bob")[1]
        assert "hidden-job" in get(directory, "/admin/", "alice")[1]
    finally:
        lab.command(HOST, "scancel --name hidden-job")
        run(site(WITH_USERS))


def test_without_slurmctld_the_page_says_so(lab: Lab, directory: Path) -> None:
    for host in (OTHER, HOST):
        lab.command(host, "systemctl stop slurmctld")
    try:
        update(lab)
        status, text = get(directory, "/admin/", "alice")
        assert status == 200
        assert "slurmctld does not answer" in text
    finally:
        for host in (HOST, OTHER):
            lab.command(host, "systemctl start slurmctld")
        lab.wait_until_idle(HOST, NODE)


def test_a_proxy_names_the_users(lab: Lab, site: Callable[..., Lab]) -> None:
    key = {"host": HOST, "proxy": {"address": PROXY, "header": "X-Remote-User"}, "administrators": ["alice"]}
    run(site(key))

    def ask(path: str, user: str, host: str = OTHER) -> str:
        answer = lab.script(host, f"python3 - https://{ADDRESS}{path} '{user}'", AS_PROXY.encode())
        return str(answer.decode().strip())

    asked = [ask("/", "bob"), ask("/admin/", "bob"), ask("/admin/", "alice"), ask("/", "")]
    assert asked == ["200", "403", "200", "403"]
    assert ask("/admin/", "alice", HOST) == "403"
    # The host of the page has users, who would open the page for administrators from here.
    wrong = {**key, "proxy": {"address": ADDRESS, "header": "X-Remote-User"}}
    refused = site(wrong).playbook("site", "--tags=report")
    assert refused.changed == {}
    assert f"the address of {HOST}, whose users could give themselves any name" in str(refused.failed)
    assert lab.command(HOST, "ls /etc/gpucluster-slurm/report").split() == ["tls.crt", "tls.key"]
    assert run(site(key)).changed == {}


def test_without_users_nobody_gets_the_page_for_administrators(site: Callable[..., Lab], directory: Path) -> None:
    run(site({"host": HOST, "readers": READERS}))
    assert get(directory, "/")[0] == 200
    assert get(directory, "/admin/")[0] == 403


def test_the_shortest_form_makes_its_own_certificate_once(lab: Lab, tmp_path: Path) -> None:
    """It has no readers on other hosts, so the host itself asks."""
    cluster = yaml.safe_load(lab.inventory.read_text()) | {"report": HOST}
    lab.command(HOST, "rm -f /etc/gpucluster-slurm/report/tls.crt /etc/gpucluster-slurm/report/tls.key")
    short = with_cluster(lab, tmp_path, cluster)
    assert HOST in run(short).changed
    said = lab.script(HOST, f"python3 - https://{HOST}/admin/", WITH_OWN_CERTIFICATE.encode()).decode()
    assert said.strip() == "403", "the certificate names the host; nobody gets the page for administrators"
    assert run(short).changed == {}


def test_the_removal_takes_everything(lab: Lab, site: Callable[..., Lab]) -> None:
    without = site(None)
    assert HOST in run(without, "--check").changed
    assert lab.command(HOST, f"ls {PAGES}").split() == ["admin", "index.html"]
    run(without)
    paths = f"{STATE} {PAGES} /etc/gpucluster-slurm/report* /usr/local/sbin/slurm-report /etc/nginx/conf.d/gpucluster-*"
    paths += " /etc/systemd/system/slurm-report* /usr/local/lib/gpucluster-slurm/library/slurm-report"
    assert lab.command(HOST, f"sh -c 'ls -d {paths} 2>/dev/null || true'") == ""
    assert lab.command(HOST, "sh -c 'systemctl list-units --all --no-legend \"slurm-report*\"'") == ""
    states = lab.command(HOST, "dpkg-query --show --showformat='${db:Status-Status}\\n' nginx || true")
    assert {*states.split()} <= {"not-installed"}
    assert run(without).changed == {}


def test_the_playbook_needs_no_key(lab: Lab, tmp_path: Path) -> None:
    done = lab.playbook("report", "-e", f"slurm_report_dir={tmp_path}", "--limit", f"{HOST},{NODE}")
    assert done.rc == 0, done.output[-3000:]
    assert done.changed == {}
    assert "metrics" in (tmp_path / "index.html").read_text()
    assert run(lab).changed == {}
