# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of role slurmctld that Slurm starts for jobs: slurm-prolog and slurm-epilog, with stand-ins for scontrol and
logger, and the message of MailProg. Scenario prologs has the real ones."""

from __future__ import annotations

import os
import subprocess
from email import message_from_bytes, policy
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains, environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.job_scripts import job_scripts
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import kernel_findings
from programs import StandIn, load

pytestmark = pytest.mark.once

CANDIDATE = kernel_findings.CANDIDATE.pattern.replace("/", r"\/")
TEMPLATES = Path(__file__).parents[2] / "roles/slurmctld/templates"
NODES = [{"hosts": "gpu[008-011]", "hardware": "fast"}, {"hosts": "cpu1", "hardware": "slow"}]
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_GPUS": "0,1",
    "SLURMD_NODENAME": "gpu010",
}


@pytest.fixture(autouse=True)
def _programs(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("scontrol", f'for word; do echo "$word"; done >>{tmp_path}/scontrol')
    stand_in("logger", f'shift 2; if test $# -gt 0; then shift; echo "$*"; else cat; fi >>{tmp_path}/log')


def run(tmp_path: Path, stage: str, entries: list[dict[str, Any]], health: str = "", **job: str | None) -> int:
    """Run the program of a stage for a job; return its exit status. The variables of `job` are None to be missing."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((TEMPLATES / "job_script.sh.j2").read_text())
    text = template.render(
        stage=stage, scripts=job_scripts(entries, NODES), gpu_map=False, health=health, candidate=CANDIDATE
    )
    text = text.replace("--kill-after=1 20", "--kill-after=1 1")
    text = text.replace("/run/gpucluster-slurm/kernel-seen", f"{tmp_path}/kernel-seen")
    for path, own in (("/var/lib/gpucluster-slurm", f"{tmp_path}/lib"), ("PATH=", f"PATH={os.environ['PATH']}:")):
        assert path in text
        text = text.replace(path, own)
    variables = {key: value for key, value in {**os.environ, **JOB, **job}.items() if value is not None}
    return subprocess.run(["bash", "-c", text], env=variables, check=False).returncode


def script(tmp_path: Path, name: str, words: str = "true", **keys: Any) -> dict[str, Any]:
    """An entry whose script notes that it runs, and then runs these words."""
    return {"name": name, "script": f"#!/bin/sh\necho {name} >>{tmp_path}/ran\n{words}\n", **keys}


def ran(tmp_path: Path) -> list[str]:
    """The names of the scripts that have run."""
    path = tmp_path / "ran"
    return path.read_text().split() if path.exists() else []


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmd runs it as root")
@pytest.mark.parametrize("owner", [0, 65534])
def test_nobody_else_can_replace_the_scripts_of_a_job(tmp_path: Path, owner: int) -> None:
    """A person has opened the directory between two runs of the playbook."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib").chmod(0o777)
    os.chown(tmp_path / "lib", owner, owner)
    assert run(tmp_path, "prolog", [script(tmp_path, "one", f"stat -c '%u %a' {tmp_path}/lib >>{tmp_path}/ran")]) == 0
    assert ran(tmp_path) == ["one", "0", "755"]


@pytest.mark.parametrize(
    ("condition", "job", "runs"),
    [
        ({}, {}, True),
        ({"partitions": ["cpu", "gpu"]}, {}, True),
        ({"partitions": ["gp", "gpu2"]}, {}, False),
        ({"min_nodes": 2}, {}, True),
        ({"min_nodes": 3}, {}, False),
        ({"gpus": True}, {}, True),
        ({"gpus": False}, {}, False),
        ({"gpus": True}, {"SLURM_JOB_GPUS": None}, False),
        ({"hardware": ["fast"]}, {}, True),
        ({"hardware": ["fast"]}, {"SLURMD_NODENAME": "gpu008"}, True),
        ({"hardware": ["fast"]}, {"SLURMD_NODENAME": "gpu012"}, False),
        ({"hardware": ["fast"]}, {"SLURMD_NODENAME": "gpu10"}, False),
        ({"hardware": ["fast"]}, {"SLURMD_NODENAME": "gpu010-old"}, False),
        ({"hardware": ["slow"]}, {}, False),
        ({"hardware": ["slow", "fast"]}, {"SLURMD_NODENAME": "cpu1"}, True),
        ({"hardware": ["fast"], "min_nodes": 3}, {}, False),
    ],
)
@pytest.mark.parametrize("stage", ["prolog", "epilog"])
def test_conditions(tmp_path: Path, stage: str, condition: dict[str, Any], job: dict[str, str], runs: bool) -> None:
    assert run(tmp_path, stage, [script(tmp_path, "one", **condition)], **job) == 0
    assert ran(tmp_path) == ["one"] * runs
    assert not (tmp_path / "scontrol").exists()
    assert [*(tmp_path / "lib").iterdir()] == []


def test_an_epilog_runs_where_slurm_does_not_answer_its_condition(tmp_path: Path) -> None:
    entries = [script(tmp_path, "one", min_nodes=3, partitions=["none"])]
    assert run(tmp_path, "epilog", entries, SLURM_JOB_NUM_NODES=None, SLURM_JOB_PARTITION=None) == 0
    assert ran(tmp_path) == ["one"]


@pytest.mark.parametrize(("stage", "runs"), [("prolog", ["a", "b"]), ("epilog", ["a", "b", "c"])])
def test_a_failure_drains_the_node_with_the_name_of_the_script(tmp_path: Path, stage: str, runs: list[str]) -> None:
    """Later prologs do not run. All epilogs run, since they clean the node."""
    words = "echo first; printf 'the \"disk\" is\\tgone \\033[2J'; exit 3"
    entries = [script(tmp_path, "a"), script(tmp_path, "b", words), script(tmp_path, "c")]
    assert run(tmp_path, stage, entries) == 1
    assert ran(tmp_path) == runs
    reason = f"reason={stage.capitalize()} error: b ended with 3: the disk isgone [2J (job 7)"
    asked = (tmp_path / "scontrol").read_text().splitlines()
    assert asked == ["--oneliner", "show", "node", "gpu010", "update", "nodename=gpu010", "state=drain", reason]
    log = (tmp_path / "log").read_text()
    assert "job 7: a: done\n" in log
    assert "job 7: b: first\n" in log


@pytest.mark.parametrize(
    ("node", "keeps"),
    [
        (f"State=MIXED+DRAIN Reason={drains.REPAIR}xid-79 [root@1]", True),
        (f"State=IDLE*+COMPLETING+DRAIN+NOT_RESPONDING Reason={drains.REPAIR}xid-79 [root@1]", True),
        (f"State=MIXED Reason={drains.REPAIR}xid-79 [root@1]", False),
        ("State=MIXED+DRAIN Reason=health check xid-79: x [root@1]", False),
        ("State=MIXED", False),
    ],
)
def test_a_node_in_treatment_keeps_the_reason_of_repair(
    tmp_path: Path, stand_in: StandIn, node: str, keeps: bool
) -> None:
    """Otherwise repair would not know it as its own any more. Slurm keeps the reason as well."""
    answer = f"test $1 = update && echo $* >>{tmp_path}/updates || echo 'NodeName=gpu010 {node}'"
    stand_in("scontrol", answer)
    assert run(tmp_path, "epilog", [script(tmp_path, "a", "exit 3")]) == 1
    assert (tmp_path / "updates").exists() != keeps
    assert "job 7: a ended with 3" in (tmp_path / "log").read_text()


def test_a_failure_that_is_only_logged(tmp_path: Path) -> None:
    assert run(tmp_path, "prolog", [script(tmp_path, "a", "exit 4", on_failure="log"), script(tmp_path, "b")]) == 0
    assert ran(tmp_path) == ["a", "b"]
    assert not (tmp_path / "scontrol").exists()
    assert "job 7: a ended with 4, which is only logged" in (tmp_path / "log").read_text()


def test_a_script_has_a_time_limit(tmp_path: Path) -> None:
    assert run(tmp_path, "prolog", [script(tmp_path, "a", "sleep 60", time_limit=1)]) == 1
    assert "reason=Prolog error: a took longer than 1 s (job 7)" in (tmp_path / "scontrol").read_text()


def test_a_script_has_its_environment_and_its_own_interpreter(tmp_path: Path) -> None:
    text = f"#!/usr/bin/env python3\nimport os\nopen({str(tmp_path / 'ran')!r}, 'w').write(os.environ['A'])"
    entry = {"name": "own", "script": text, "environment": {"A": "it's $HOME"}}
    assert run(tmp_path, "prolog", [entry]) == 0
    assert (tmp_path / "ran").read_text() == "it's $HOME"


def test_a_program_that_a_script_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    assert run(tmp_path, "prolog", [script(tmp_path, "a", "setsid sleep 30 &", time_limit=10)]) == 0
    assert "took longer" not in (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def mail() -> ModuleType:
    """The program that sends mails."""
    module: ModuleType = load("job_mail")
    return module


def test_a_mail(mail: ModuleType) -> None:
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "学習\nBcc: x", "SLURM_JOB_STATE": "COMPLETED", "HOME": "/"}
    found = mail.message("Job 7\r\nBcc: x@y.z 学習", "alice@x.org", "slurm@x.org", variables)
    assert (found["From"], found["To"], found["Bcc"]) == ("slurm@x.org", "alice@x.org", None)
    assert found["Subject"] == "Job 7  Bcc: x@y.z 学習"
    assert found.get_content() == "Job:         7\nName:        学習 Bcc: x\nState:       COMPLETED\n"
    assert bytes(found).isascii()


def test_a_mail_is_sent(
    mail: ModuleType,
    stand_in: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "msmtprc").write_text("from slurm@x.org\n")
    monkeypatch.setattr(mail, "MSMTPRC", str(tmp_path / "msmtprc"))
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])
    monkeypatch.setattr("sys.argv", ["mail", "-s", "Job 7 学習", "alice@x.org"])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    stand_in("msmtp", f'echo "$@" >{tmp_path}/words; cat >{tmp_path}/sent; echo no relay >&2; exit 75')
    assert mail.main() == 75
    assert (tmp_path / "words").read_text() == f"--file={tmp_path}/msmtprc -- alice@x.org\n"
    sent = message_from_bytes((tmp_path / "sent").read_bytes(), policy=policy.default)
    assert (sent["Subject"], sent.get_content()) == ("Job 7 学習", "Job:         7\n")
    assert capsys.readouterr().err == "no relay\n"


def test_the_mail_about_the_end_of_a_job_names_jobstats(mail: ModuleType) -> None:
    ended = {"SLURM_JOB_ID": "7", "SLURM_JOB_EXIT_CODE2": "0:0"}
    hint = mail.hint_in(f"{mail.MARK}defaults\n", ended)
    text = mail.message("Job 7", "a@x.org", "slurm@x.org", ended, hint).get_content()
    assert text == "Job:         7\nExit status: 0:0\n\nWhat it used: jobstats 7\n"
    assert mail.hint_in("defaults\n", ended) == ""
    assert mail.hint_in(f"{mail.MARK}defaults\n", {"SLURM_JOB_ID": "7"}) == ""


def test_a_mail_without_variables_has_its_subject(mail: ModuleType) -> None:
    assert mail.message("Test", "a@x.org", "slurm@x.org", {}).get_content() == "Test\n"


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({"tls": "none"}, ["port 25"]),
        ({"tls": "starttls", "user": "u"}, ["tls on", "tls_starttls on", "tls_trust_file system", "auth on", "user u"]),
        ({"tls": "tls"}, ["tls on", "tls_starttls off"]),
    ],
)
def test_the_sender_is_in_the_settings_of_msmtp(mail: ModuleType, more: dict[str, str], lines: list[str]) -> None:
    environment = jinja2.Environment(trim_blocks=True)
    template = environment.from_string((TEMPLATES / "msmtprc.j2").read_text())
    given = {"sender": "slurm@x.org", **more}
    text = template.render(host="m", port=25, slurm_mail=given, password_file="/p", jobstats=True)
    assert mail.MARK in text
    assert mail.sender_in(text) == "slurm@x.org"
    assert {*lines} <= {*text.splitlines()}
    assert ("tls on" in text) == (more["tls"] != "none")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param("exit 0", 0, [], id="well"),
        pytest.param("echo xid-79; exit 3", 1, ["job 7: not started: xid-79"], id="broken"),
        pytest.param("echo Traceback; echo No module; exit 1", 0, ["job 7: started without a check"], id="fails"),
        pytest.param("sleep 100", 0, ["job 7: started without a check"], id="hangs"),
    ],
)
def test_a_node_with_broken_gpus_starts_no_job(
    tmp_path: Path, stand_in: StandIn, words: str, status: int, said: list[str]
) -> None:
    stand_in("dmesg", "echo '[   17.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=2'")
    health = tmp_path / "slurm-health"
    health.write_text(f"#!/bin/sh\n{words}\n")
    health.chmod(0o755)
    found = run(tmp_path, "prolog", [script(tmp_path, "one")], str(health))
    log = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
    shown = [line for line in log if "started" in line]
    assert (found, ran(tmp_path)) == (status, [] if status else ["one"])
    assert len(shown) == len(said)
    assert all(line.startswith(begin) for line, begin in zip(shown, said, strict=True))


def test_what_a_job_has_left_is_logged_and_fails_no_epilog(tmp_path: Path) -> None:
    health = tmp_path / "slurm-health"
    health.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/ran\necho left\nexit 1\n')
    health.chmod(0o755)
    assert run(tmp_path, "epilog", [script(tmp_path, "one")], str(health)) == 0
    assert ran(tmp_path) == ["one", "--after-job"]
    assert (tmp_path / "log").read_text().splitlines()[-1] == "job 7: left"


def test_jobs_without_gpus_do_not_wait_for_the_health_check(tmp_path: Path) -> None:
    for stage in ("prolog", "epilog"):
        assert run(tmp_path, stage, [script(tmp_path, stage)], "/bin/false", SLURM_JOB_GPUS=None) == 0
    assert ran(tmp_path) == ["prolog", "epilog"]


@pytest.mark.parametrize(
    ("lines", "since", "starts"),
    [
        pytest.param("[    0.000000] Linux version", "", False, id="nothing"),
        pytest.param("[   17.000001] NVRM: Xid (PCI:0000:3b:00): 79", "", True, id="never-seen"),
        pytest.param("[   17.000001] NVRM: Xid (PCI:0000:3b:00): 79", "17.000001", False, id="seen"),
        pytest.param("[  117.000001] md/raid1:md0: Disk failure on sda", "17.000001", True, id="newer"),
        pytest.param("[12345.678901] veth1a2b: entered promiscuous mode", "17.000001", False, id="noise"),
    ],
)
def test_the_health_check_starts_for_news_of_the_kernel_alone(
    tmp_path: Path, stand_in: StandIn, lines: str, since: str, starts: bool
) -> None:
    """Since it takes a tenth of a second, after which srun waits a second longer."""
    stand_in("dmesg", f"echo '{lines}'")
    if since:
        (tmp_path / "kernel-seen").write_text(since)
    health = tmp_path / "slurm-health"
    health.write_text(f"#!/bin/sh\necho started >>{tmp_path}/ran\n")
    health.chmod(0o755)
    assert run(tmp_path, "prolog", [script(tmp_path, "one")], str(health)) == 0
    assert ran(tmp_path) == (["started", "one"] if starts else ["one"])
