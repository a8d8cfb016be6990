# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role validate: its jobs, and what it says of them."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import validate
from plain_host import PlainHost, cluster

PASSED = {
    "name": "all/n1",
    "job_id": 7,
    "partition": "all",
    "status": "passed",
    "state": "COMPLETED",
    "expected": "COMPLETED",
    "exit_code": "0:0",
    "nodes": "n1",
    "elapsed": 1,
    "reason": "",
    "node_states": {},
    "message": "",
}
BUSY = {**PASSED, "name": "all/n2", "status": "waiting", "state": "PENDING", "reason": "Resources",
        "node_states": {"n2": "allocated"}, "message": "waits: Resources"}  # fmt: skip
DRAINED = {**BUSY, "node_states": {"n2": "drained by Slurm (Kill task failed)"}}
ROLE = {"validate_mpi": "", "validate_may_wait": ["busy"], "validate_report_dir": "/report"}
FETCH = {"name": "fetch", "min_nodes": 2}


def host_with(**variables: Any) -> PlainHost:
    head: PlainHost = cluster(**{**ROLE, **variables})["head"]
    return head


def after(*jobs: dict[str, Any], **variables: Any) -> PlainHost:
    """A host on which these jobs have ended."""
    return host_with(__validate_run={"jobs": [*jobs], "accounting": True}, **variables)


def test_the_profile_decides_who_submits_jobs() -> None:
    assert validate.user(host_with()) == "root"
    assert validate.user(host_with(slurm_profile="strict")) == "slurm-check"


def test_an_mpi_compiler_adds_a_job() -> None:
    names = [job["name"] for job in validate.jobs(host_with())]
    assert names == ["all/n1", "all/n2", "array", "cancelled", "out-of-memory", "refused"]
    *others, mpi = validate.jobs(host_with(validate_mpi="/opt/mpi/bin/mpicc"))
    assert [job["name"] for job in others] == names
    assert mpi["name"] == "mpi"
    assert mpi["script"] == "validate/mpi.sh.j2 [('compiler', '/opt/mpi/bin/mpicc')]"


def test_how_long_jobs_wait_for_others() -> None:
    assert validate.busy_timeout(host_with(validate_timeout=300)) == 45
    assert validate.busy_timeout(host_with(validate_timeout="30")) == 30
    assert validate.busy_timeout(host_with(validate_timeout=300, validate_may_wait=["unavailable"])) == 300


def test_a_job_may_wait_for_a_busy_node() -> None:
    host = after(PASSED, BUSY)
    assert validate.result(host)["ok"]
    assert validate.failure(host) == ""
    assert not validate.result(after(BUSY, validate_may_wait=[]))["ok"]


def test_a_failure_names_the_jobs_and_the_remedies() -> None:
    said = validate.failure(after(PASSED, DRAINED))
    assert said.startswith("These jobs did not end as expected: all/n2. The table above and /report say why. n2: ")
    assert said.endswith(validate.DOCTOR)
    assert validate.failure(after(DRAINED, validate_may_wait=["unavailable"])) == ""


def test_a_node_that_a_person_drained_does_not_fail_a_restore() -> None:
    by_a_person = {**BUSY, "node_states": {"n2": "drained by a person (broken fan)"}}
    assert validate.failure(after(PASSED, by_a_person)) != ""
    groups = {"slurm_restores": ["head"]}
    assert validate.failure(after(PASSED, by_a_person, groups=groups)) == ""
    assert validate.failure(after(PASSED, DRAINED, groups=groups)) != ""


def test_jobs_without_a_record_in_accounting_are_a_failure_where_there_is_a_database() -> None:
    unrecorded = {"__validate_run": {"jobs": [PASSED], "accounting": False}}
    assert validate.failure(host_with(**unrecorded)) == validate.NO_RECORDS
    assert validate.failure(host_with(**unrecorded, slurm_database="")) == ""


def test_a_failure_without_a_known_cause_needs_no_doctor() -> None:
    said = validate.failure(after({**PASSED, "status": "failed", "message": "exit code 1"}))
    assert said == "These jobs did not end as expected: all/n1. The table above and /report say why."


def test_the_prologs_run_on_as_many_nodes_as_they_want() -> None:
    host = host_with(slurm_prologs=[FETCH])
    assert [(job["nodelist"], job["nodes"]) for job in validate.warm_up_jobs(host)] == [("n[1-2]", "2")]
    assert validate.cold_nodes(host) == "No node"


def test_nodes_without_a_prolog_stay_cold() -> None:
    for prologs in ([], [{**FETCH, "min_nodes": 3}]):
        host = host_with(slurm_prologs=prologs, __validate_run={"skipped": True})
        assert validate.warm_up_jobs(host) == []
        assert validate.cold_nodes(host) == "n[1-2]"
        assert validate.warm_up_failures(host) == []
        assert validate.warm_up_result(host)["ok"]


def test_check_mode_names_the_jobs() -> None:
    wanted = {"slurm_prologs": [FETCH], "__validate_run": {"changed": False}}
    assert validate.warm_up_table(host_with(ansible_check_mode=True, **wanted)) == ["warm-up/n[1-2]"]
    (heading, line) = validate.warm_up_table(after(PASSED))
    assert heading.startswith("job ")
    assert line.startswith("all/n1 ")


def test_a_prolog_that_has_not_run_is_a_failure() -> None:
    """Also if its job waits for a busy node."""
    host = after(PASSED, BUSY)
    assert validate.warm_up_failures(host) == ["waits: Resources"]
    assert not validate.warm_up_result(host)["ok"]


def test_the_table_has_the_jobs_to_look_at() -> None:
    """A converged cluster of 2,000 nodes has as many jobs that passed."""
    host = after(PASSED, {**PASSED, "name": "all/n3"}, DRAINED)
    head, job, count = validate.table(host)
    assert head.split()[:2] == ["job", "partition"]
    assert job.split()[0] == "all/n2"
    assert count == "2 of 3 jobs passed, as /report/validation.json has them"
    assert validate.table(after(PASSED)) == ["1 of 1 jobs passed, as /report/validation.json has them"]
    assert len(validate.table(after(DRAINED))) == 2
    assert validate.table(after()) == []


def test_slurm_is_asked_as_a_user_of_each_account() -> None:
    closed = {"MaxJobs": 0, "MaxSubmitJobs": 0, "GrpSubmitJobs": 0}
    policy = {
        "accounts": ["vision", "lang", "empty", "closed"],
        "users": [
            {"name": "alice", "accounts": ["Vision", {"name": "lang", "partition": "gpu"}]},
            {"name": "bob", "accounts": ["vision", "lang"]},
            {"name": "carol", "accounts": ["closed"], **closed},
        ],
    }
    partitions = [
        {"name": "fast", "nodes": "n1", "AllowQos": "high"},
        {"name": "own", "nodes": "n1", "AllowAccounts": "lang"},
        {"name": "all", "nodes": "n1"},
    ]
    found = validate.account_jobs(policy, partitions)
    assert [(job["name"], job["user"], job["partition"]) for job in found] == [
        ("account/vision", "alice", "all"),
        ("account/lang", "bob", "own"),
    ]
    assert validate.account_jobs(policy, partitions[:1]) == []
    assert validate.account_jobs({}, partitions) == []
