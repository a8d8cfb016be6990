# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_job with stand-ins for Slurm's commands, each with a list of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_job

AT = "2026-11-21T13:16:25"
WITH_ACCOUNTING = "AccountingStorageType   = accounting_storage/slurmdbd\n"
WITHOUT_ACCOUNTING = "AccountingStorageType   = (null)\n"


class Slurm:
    """Answers for each command, in order; the last one is repeated. A number stands for exit status 1 and no answer."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers: dict[str, list[Any]] = {
            "scontrol": [WITHOUT_ACCOUNTING],
            "scancel": [""],
            "sinfo": [""],
            **answers,
        }
        self.calls: list[list[str]] = []
        self.scripts: list[str] = []

    def run(self, arguments: list[str], stdin: str = "") -> Answer:
        """Stand in for `slurm_job.run`."""
        self.calls.append(arguments)
        self.scripts += [stdin] if stdin else []
        answers = self.answers[arguments[0]]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if arguments[0] in ("sbatch", "runuser") and "error" in str(answer):
            return Answer(1, "", str(answer))
        return Answer(1, "", "no contact") if isinstance(answer, int) else Answer(0, answer, "")

    def called(self, command: str) -> list[list[str]]:
        """How a command was called."""
        return [call[1:] for call in self.calls if call[0] == command]


def squeue(
    job_id: int, state: str, *, task: str = "N/A", code: str = "0:0", nodes: str = "n1", reason: str = "None"
) -> str:
    return f"{job_id}|{task}|{state}|{code}|0:01|{AT}|{nodes}|{reason}|\n"


def run_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slurm: Slurm, **params: Any
) -> dict[str, Any]:
    """Run the module to its end, and return its result."""
    monkeypatch.setattr(slurm_job, "run", slurm.run)
    monkeypatch.setattr(slurm_job, "SUBMITTERS", 1)
    with patch_module_args({"poll": 0, **params}), pytest.raises(SystemExit):
        slurm_job.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda slurm, **params: run_module(monkeypatch, capsys, slurm, **params)


def test_one_job(module: Any) -> None:
    slurm = Slurm(sbatch=["1\n"], squeue=[squeue(1, "PENDING"), squeue(1, "RUNNING"), squeue(1, "COMPLETED")])
    result = module(slurm, command="hostname", partition="gpu")
    assert (result["changed"], result.get("failed", False), result["accounting"]) == (True, False, False)
    assert result["jobs"] == [
        {
            "name": "ansible",
            "job_id": 1,
            "partition": "gpu",
            "status": "passed",
            "ok": True,
            "state": "COMPLETED",
            "expected": "COMPLETED",
            "exit_code": "0:0",
            "nodes": "n1",
            "elapsed": 1,
            "reason": "",
            "node_states": {},
            "message": "",
        }
    ]
    assert slurm.called("sbatch") == [["--parsable", "--job-name=ansible", "--output=/dev/null", "--partition=gpu"]]
    assert slurm.scripts == ["#!/bin/sh\nhostname\n"]
    assert slurm.called("scancel") == []


def test_what_holds_for_all_jobs_and_what_one_says(module: Any) -> None:
    slurm = Slurm(sbatch=["1\n", "2\n"], squeue=[squeue(1, "COMPLETED") + squeue(2, "COMPLETED")])
    common = {"command": "hostname", "partition": "gpu", "options": {"requeue": True}}
    module(
        slurm, **common, jobs=[{"name": "a"}, {"name": "b", "script": "#!/bin/bash\n", "options": {"exclusive": True}}]
    )
    assert slurm.called("sbatch") == [
        ["--parsable", "--job-name=a", "--output=/dev/null", "--partition=gpu", "--requeue"],
        ["--parsable", "--job-name=b", "--output=/dev/null", "--partition=gpu", "--requeue", "--exclusive"],
    ]
    assert slurm.scripts == ["#!/bin/sh\nhostname\n", "#!/bin/bash\n"]


def test_two_thousand_jobs_are_one_squeue_a_poll(module: Any) -> None:
    numbers = range(1, 2001)
    polls = ["".join(squeue(number, state) for number in numbers) for state in ("RUNNING", "COMPLETED")]
    slurm = Slurm(sbatch=[str(number) for number in numbers], squeue=polls)
    result = module(slurm, command="true", jobs=[{"name": str(number)} for number in numbers])
    assert result["msg"] == "all jobs ended as expected"
    assert len(slurm.called("squeue")) == 2


def test_accounting_has_the_last_word_once_it_knows_all(module: Any) -> None:
    slurm = Slurm(
        scontrol=[WITH_ACCOUNTING],
        sbatch=["1\n", "2\n"],
        squeue=[squeue(1, "COMPLETED") + squeue(2, "OUT_OF_MEMORY", code="0:125", reason="OutOfMemory")],
        sacct=[
            f"1|RUNNING|0:0|0|{AT}|n1\n",
            f"1|COMPLETED|0:0|3|{AT}|n1\n",
            f"2|OUT_OF_MEMORY|0:125|4|{AT}|n1\n",
        ],
    )
    result = module(slurm, command="true", jobs=[{}, {"expect": "OUT_OF_MEMORY", "expect_reason": "^OutOfMemory$"}])
    assert [(job["ok"], job["elapsed"]) for job in result["jobs"]] == [(True, 3), (True, 4)]
    assert [call[call.index("--jobs") + 1] for call in slurm.called("sacct")] == ["1,2", "1,2", "2"]


def test_a_job_that_accounting_does_not_show_has_failed(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_job, "ACCOUNTING_LAG", 0)
    slurm = Slurm(scontrol=[WITH_ACCOUNTING], sbatch=["1\n"], squeue=[squeue(1, "COMPLETED")], sacct=[""])
    result = module(slurm, command="true")
    assert result["failed"]
    assert result["msg"] == (
        "1 of 1 jobs did not end as expected. ansible: COMPLETED, but sacct does not show its end within 0 s"
    )


def test_a_job_is_cancelled_once_it_runs(module: Any) -> None:
    slurm = Slurm(
        sbatch=["1\n"], squeue=[squeue(1, state) for state in ("PENDING", "RUNNING", "COMPLETING", "CANCELLED")]
    )
    result = module(slurm, command="sleep 300", cancel_when="running", expect="CANCELLED")
    assert result["jobs"][0]["ok"]
    assert slurm.called("scancel") == [["1"]]


def test_a_refused_job(module: Any) -> None:
    slurm = Slurm(sbatch=["sbatch: error: Batch job submission failed: Node count specification invalid\n"])
    refused = module(slurm, command="true", expect="REFUSED", expect_reason="Node count")
    assert (refused["changed"], refused["jobs"][0]["ok"], refused["jobs"][0]["job_id"]) == (False, True, 0)
    unwanted = module(slurm, command="true", name="large")
    assert unwanted["failed"]
    assert unwanted["msg"] == (
        "1 of 1 jobs did not end as expected. large: REFUSED, expected COMPLETED: Node count specification invalid"
    )


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        ("", "passed", ""),
        ("sbatch: error: Requested nodes are busy\n", "passed", ""),
        (
            "sbatch: error: Batch job submission failed: Invalid qos specification\n",
            "failed",
            "REFUSED, expected ACCEPTED: Invalid qos specification",
        ),
    ],
)
def test_slurm_is_asked_about_a_job_of_another_user(
    module: Any, monkeypatch: pytest.MonkeyPatch, said: str, status: str, message: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("pwd.getpwnam", {"alice": "alice"}.__getitem__)
    jobs = [{"name": f"account/{user}", "user": user, "account": "vision"} for user in ("alice", "nobody-here")]
    slurm = Slurm(runuser=[said])
    found = module(slurm, command="true", expect="ACCEPTED", jobs=jobs)
    assert [(job["name"], job["status"], job["message"]) for job in found["jobs"]] == [
        ("account/alice", status, message)
    ]
    (asked,) = slurm.called("runuser")
    assert asked[:5] == ["-u", "alice", "--", "sbatch", "--parsable"]
    assert {"--account=vision", "--test-only"} < {*asked}
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert module(slurm, command="true", expect="ACCEPTED", jobs=jobs)["jobs"] == []


def test_when_time_is_up_own_jobs_are_cancelled_and_nodes_named(module: Any) -> None:
    reason = "ReqNodeNotAvail, May be reserved for other job"
    poll = (
        squeue(1, "PENDING", nodes="", reason=reason)
        + squeue(2, "RUNNING")
        + squeue(3, "FAILED")
        + squeue(7, "RUNNING")
    )
    nodes = "n1|mixed|Unknown|none\nn2|drained|root|bad DIMM\n"
    slurm = Slurm(sbatch=["1\n", "2\n", "3\n"], squeue=[poll], sinfo=[nodes])
    result = module(slurm, command="true", timeout=0, jobs=[{"nodelist": "n[1-2]"}, {}, {"expect": "FAILED"}])
    assert result["failed"]
    assert [(job["status"], job["message"]) for job in result["jobs"]] == [
        ("waiting", f"has not started in 0 s: {reason}; n1 is mixed; n2 is drained by a person (bad DIMM)"),
        ("failed", "has not ended in 0 s: RUNNING on n1"),
        ("passed", ""),
    ]
    assert result["jobs"][0]["node_states"] == {"n1": "mixed", "n2": "drained by a person (bad DIMM)"}
    assert slurm.called("scancel") == [["1", "2"]]


@pytest.mark.parametrize(
    ("state", "reason", "nodes", "stops"),
    [
        ("PENDING", "Resources", "n1|allocated|Unknown|none\n", True),
        ("PENDING", "ReqNodeNotAvail, May be reserved for other job", "n1|mixed|Unknown|none\n", True),
        ("PENDING", "Resources", "n1|drained|root|bad DIMM\n", True),
        ("PENDING", "Resources", "n1|drained|root|health check disk: full\n", False),
        ("PENDING", "Nodes required for job are DOWN, DRAINED or reserved", "n1|down*|slurm|Not responding\n", False),
        ("PENDING", "None", "n1|idle|Unknown|none\n", False),
        ("RUNNING", "None", "n1|allocated|Unknown|none\n", False),
    ],
)
def test_a_busy_cluster_is_not_waited_for(module: Any, state: str, reason: str, nodes: str, stops: bool) -> None:
    """A job that has no nodes of its own stops the module only if its reason names others."""
    poll = squeue(1, state, nodes="", reason=reason) + squeue(2, "PENDING", nodes="", reason="Priority")
    slurm = Slurm(
        sbatch=["1\n", "2\n"], squeue=[poll, poll, squeue(1, "COMPLETED") + squeue(2, "COMPLETED")], sinfo=[nodes]
    )
    result = module(slurm, command="true", busy_timeout=0, jobs=[{"nodelist": "n1"}, {}])
    assert [job["status"] for job in result["jobs"]] == (["waiting"] * 2 if stops else ["passed"] * 2)
    assert slurm.called("scancel") == ([["1", "2"]] if stops else [])
    patient = Slurm(
        sbatch=["1\n", "2\n"], squeue=[poll, squeue(1, "COMPLETED") + squeue(2, "COMPLETED")], sinfo=[nodes]
    )
    assert all(job["ok"] for job in module(patient, command="true", jobs=[{"nodelist": "n1"}, {}])["jobs"])


def test_a_controller_that_restarts_is_no_news(module: Any) -> None:
    slurm = Slurm(sbatch=["1\n"], squeue=[1, squeue(1, "RUNNING"), 1, squeue(1, "COMPLETED")])
    assert module(slurm, command="true")["jobs"][0]["ok"]


def test_jobs_of_which_nothing_was_heard_are_cancelled(module: Any) -> None:
    slurm = Slurm(sbatch=["1\n"], squeue=[1])
    result = module(slurm, command="true", timeout=0)
    assert result["jobs"][0]["message"] == "has not started in 0 s: squeue gave no answer"
    assert slurm.called("scancel") == [["1"]]


def test_at_most_ten_jobs_are_named(module: Any) -> None:
    slurm = Slurm(sbatch=["sbatch: error: no\n"])
    message = module(slurm, command="true", jobs=[{}] * 12)["msg"]
    assert message.startswith("12 of 12 jobs did not end as expected. ansible: REFUSED, expected COMPLETED: no; ")
    assert message.endswith("; and 2 more")


def test_no_controller_is_an_error_before_anything_is_submitted(module: Any) -> None:
    slurm = Slurm(scontrol=[1], sbatch=["1\n"])
    result = module(slurm, command="true")
    assert (result["failed"], result["msg"]) == (True, "Slurm does not answer: no contact")
    assert slurm.called("sbatch") == []


@pytest.mark.parametrize("params", [{}, {"command": "true", "script": "#!/bin/sh\n"}, {"jobs": [{"name": "ansible"}]}])
def test_a_job_without_one_thing_to_run_is_an_error(module: Any, params: dict[str, Any]) -> None:
    slurm = Slurm(sbatch=["1\n"])
    result = module(slurm, **params)
    assert (result["failed"], result["msg"]) == (True, "job 'ansible' needs either command or script")
    assert slurm.calls == []


def test_check_mode_submits_nothing(module: Any) -> None:
    slurm = Slurm(sbatch=["1\n"])
    result = module(slurm, jobs=[{"command": "true"}, {"command": "true"}], _ansible_check_mode=True)
    assert (result["changed"], result["jobs"], result["msg"]) == (True, [], "2 jobs would be submitted")
    assert slurm.calls == []
