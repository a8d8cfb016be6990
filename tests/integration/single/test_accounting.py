# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounting as data on a real slurmdbd, and what it does to real jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_cluster

EMPTY: tuple[str, dict[str, Any], bool] = (
    "slurm_accounting",
    {"limits": {"MaxSubmitJobs": None}, "purge": True},
    False,
)
FIRST = "gpucluster.slurm.slurmctld : Make the QOS that partitions name"
APPLY = "gpucluster.slurm.slurm_accounting : Apply the policy"


@pytest.fixture(scope="module", name="host")
def the_host(lab: Lab) -> str:
    """The machine that is everything."""
    return str(yaml.safe_load(lab.inventory.read_text())["controllers"])


@pytest.fixture(scope="module", autouse=True)
def nothing_before_and_after(lab: Lab, host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No policy and no limits."""
    directory = tmp_path_factory.mktemp("empty")
    tasks(lab, directory, EMPTY)
    yield
    # What tests that failed have left, too.
    lab.host(host).run("scontrol delete ReservationName=course")
    lab.command(host, "scancel --user=alice; scancel --user=admin; scancel --user=root")
    lab.wait_for(host, 'jobs=$(squeue --noheader) && test -z "$jobs" && echo none', "none")
    restored = lab.playbook("site", "--tags=controller")
    (emptied,) = tasks(lab, directory, EMPTY)
    assert (emptied["kept"], restored.rc, restored.failed) == ([], 0, {})


def tasks(lab: Lab, directory: Path, *wanted: tuple[str, dict[str, Any], bool]) -> list[dict[str, Any]]:
    """The results of modules, each with its arguments and whether it only checks. A task may fail."""
    play = {
        "hosts": "slurm_controller",
        "become": True,
        "gather_facts": False,
        "tasks": [
            # A refusal is a result too: the tests judge it, and the tasks after it are theirs.
            {"name": f"{i}", f"gpucluster.slurm.{module}": arguments, "check_mode": check, "ignore_errors": True}
            for i, (module, arguments, check) in enumerate(wanted)
        ],
    }
    path = directory / "play.yml"
    path.write_text(json.dumps([play]))
    run = lab.playbook(str(path), "--diff")
    assert run.rc == 0, run.output
    return [result for _host, _task, result in run.results]


# -- each module -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "there", "changed", "differs", "shown"),
    [
        (
            "slurm_qos",
            {"name": "fast", "limits": {"Priority": 10, "MaxWall": "1-0"}},
            {"name": "fast", "limits": {"Priority": 20, "MaxWall": "24:00:00", "Flags": ["NoReserve"]}},
            {("qos fast Priority", "10", "20"), ("qos fast Flags", "", "NoReserve")},
            "sacctmgr -nP show qos fast format=Name,Priority",
        ),
        (
            "slurm_account",
            {"name": "lasers", "description": "Lasers", "limits": {"GrpTRES": "cpu=4,mem=1G", "Fairshare": 3}},
            {"name": "lasers", "organization": "Optics", "limits": {"GrpTRES": {"mem": 1024}, "Fairshare": 3}},
            {
                ("account lasers GrpTRES", "cpu=4,mem=1024", "mem=1024"),
                ("account lasers Organization", "lasers", "optics"),
            },
            "sacctmgr -nP show account lasers format=Account",
        ),
        (
            "slurm_user",
            {"name": "carol", "default_account": "root", "limits": {"MaxJobs": 2}},
            {"name": "carol", "admin_level": "Operator", "limits": {"MaxJobs": None, "MaxWall": "2:00:00"}},
            {
                ("user carol AdminLevel", "None", "Operator"),
                ("user carol in root MaxJobs", "2", ""),
                ("user carol in root MaxWall", "", "02:00:00"),
            },
            "sacctmgr -nP show user carol format=User",
        ),
        (
            "slurm_cluster",
            {"name": "elsewhere", "limits": {"GrpTRES": "cpu=100"}},
            {"name": "elsewhere", "limits": {"GrpTRES": "cpu=200"}},
            {("cluster elsewhere GrpTRES", "cpu=100", "cpu=200")},
            "sacctmgr -nP show cluster elsewhere format=Cluster",
        ),
        (
            "slurm_reservation",
            {
                "name": "course",
                "parameters": {"StartTime": "now+1hour", "Duration": 60, "Nodes": "ALL", "Users": "alice"},
            },
            {"name": "course", "parameters": {"Duration": "02:00:00", "Users": ["root", "alice"], "Flags": "FLEX"}},
            {
                ("reservation course Duration", "01:00:00", "02:00:00"),
                ("reservation course Users", "alice", "alice,root"),
                ("reservation course Flags", "", "FLEX"),
            },
            "scontrol show reservation | grep -o ReservationName=course",
        ),
    ],
    ids=["qos", "account", "user", "cluster", "reservation"],
)
def test_module(
    lab: Lab,
    host: str,
    module: str,
    there: dict[str, Any],
    changed: dict[str, Any],
    differs: set[tuple[str, str, str]],
    shown: str,
    tmp_path: Path,
) -> None:
    """Made, changed, removed: each checked, done, and not done again."""
    absent = {"name": there["name"], "state": "absent"}
    plans = []
    for arguments, is_there in ((there, True), (changed, True), (absent, False)):
        check, done, again = tasks(lab, tmp_path, *((module, arguments, check) for check in (True, False, False)))
        assert [result["changed"] for result in (check, done, again)] == [True, True, False]
        assert (check["plan"], check["diff"]) == (done["plan"], done["diff"])
        assert bool(lab.host(host).run(shown).stdout) == is_there
        plans.append(done["plan"])
    assert {(change["what"], change["before"], change["after"]) for change in plans[1]} == differs


def test_nodes_are_drained_and_taken_back_by_those_who_drained_them(lab: Lab, host: str, tmp_path: Path) -> None:
    drain = {"name": host, "state": "drain", "reason": "new DIMMs"}
    another = {"name": host, "state": "resume", "reason": "bad fan"}
    resume = {"name": host, "state": "resume", "reason": "new DIMMs"}
    wanted = [(drain, True), (drain, False), (drain, False), (another, False), (resume, True), (resume, False)]
    found = tasks(lab, tmp_path, *(("slurm_node", arguments, check) for arguments, check in [*wanted, (resume, False)]))
    assert [result["changed"] for result in found] == [True, True, False, False, True, True, False]
    assert "drain" not in lab.command(host, f"sinfo -h -n {host} -o %T")


# -- a policy --------------------------------------------------------------------------------------------------------

POLICY: dict[str, Any] = {
    "limits": {"MaxSubmitJobs": 5000},
    "qos": [{"name": "normal"}, {"name": "urgent", "Priority": 100, "Preempt": ["normal"]}],
    "accounts": [
        {"name": "science", "QOS": ["normal", "urgent"], "accounts": [{"name": "physics"}, {"name": "biology"}]},
    ],
    "users": [{"name": "alice", "DefaultAccount": "physics"}, {"name": "bob", "accounts": ["biology", "physics"]}],
}


def test_check_predicts_what_is_done_and_nothing_is_left(lab: Lab, host: str, tmp_path: Path) -> None:
    moved = {
        "qos": [{"name": "normal", "MaxWall": "1-0"}],
        "accounts": [{"name": "biology", "accounts": [{"name": "physics", "GrpTRES": "cpu=8"}]}],
        "users": [{"name": "alice", "DefaultAccount": "biology", "MaxJobs": 4}],
    }
    for policy in (POLICY, moved, POLICY, {}):
        arguments = {**policy, "purge": True}
        modes = (True, False, False)
        check, done, again = tasks(lab, tmp_path, *(("slurm_accounting", arguments, mode) for mode in modes))
        assert check["changed"], policy
        assert (check["plan"], check["diff"], check["table"]) == (done["plan"], done["diff"], done["table"])
        assert (again["changed"], again["plan"]) == (False, [])
    assert lab.command(host, "sacctmgr -nP show account format=Account") == "root"


def test_what_there_is_can_be_kept_as_a_policy(lab: Lab, tmp_path: Path) -> None:
    info = tasks(lab, tmp_path, ("slurm_accounting", POLICY, False), ("slurm_accounting_info", {}, False))[-1]
    (again,) = tasks(lab, tmp_path, ("slurm_accounting", {**info["policy"], "purge": True}, False))
    assert (again["changed"], again["kept"]) == (False, [])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            {"accounts": [{"name": "a", "Parent": "b"}, {"name": "b", "Parent": "a"}], "users": [{"name": "u"}]},
            ["account a: is in itself: a in b in a", "user u: has no account"],
        ),
        (
            {"qos": [{"name": "new"}], "accounts": [{"name": "a", "Parent": "scince", "QOS": "ugent"}]},
            ["'scince' is unknown, did you mean 'science'?", "'ugent' is unknown, did you mean 'urgent'?"],
        ),
        ({"qos": [{"name": "new"}, {"name": "x", "GrpTRES": "gres/gup=1"}]}, ["qos x: GrpTRES: 'gres/gup' is unknown"]),
    ],
    ids=["circle", "names", "resource"],
)
def test_a_wrong_policy_changes_nothing(
    lab: Lab, host: str, policy: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    everything = "sacctmgr -nP show qos; sacctmgr -nP show associations"
    before = lab.command(host, everything)
    (result,) = tasks(lab, tmp_path, ("slurm_accounting", policy, False))
    assert [word for word in words if word not in result["msg"]] == []
    assert lab.command(host, everything) == before


def test_what_slurm_refuses_is_told_with_its_words(lab: Lab, tmp_path: Path) -> None:
    """A default that is not among the QOS: Slurm knows that, not the policy."""
    user = {"name": "alice", "DefaultAccount": "physics", "QOS": ["normal"], "DefaultQOS": "urgent"}
    (result,) = tasks(lab, tmp_path, ("slurm_accounting", {"users": [user]}, False))
    assert "sacctmgr modify user where name=alice" in result["msg"]
    assert "default qos" in result["msg"].lower()


# -- real jobs -------------------------------------------------------------------------------------------------------

ACCOUNTING = {
    **POLICY,
    "qos": [*POLICY["qos"], {"name": "whole", "MaxSubmitJobsPerUser": 1000}],
    "reservations": [
        {"name": "past", "StartTime": "2026-01-01T00:00:00", "Duration": 60, "Nodes": "ALL", "Users": ["root"]},
        {"name": "future", "StartTime": "2046-01-01T00:00:00", "Duration": 60, "Nodes": "ALL", "Users": ["root"]},
    ],
    "users": [
        {"name": "alice", "DefaultAccount": "physics", "Fairshare": 10},
        {"name": "admin", "DefaultAccount": "physics", "Fairshare": 10},
    ],
}


def site(lab: Lab, directory: Path, *arguments: str) -> Run:
    """The stages that a policy in the cluster file needs."""
    cluster = {**yaml.safe_load(lab.inventory.read_text()), "accounting": ACCOUNTING}
    # Only some may use the partition, whose QOS slurmctld must know when it reads the file.
    cluster["partitions"][0] |= {"AllowAccounts": ["physics"], "QOS": "whole"}
    cluster["slurm_conf"] = {"PriorityCalcPeriod": 1, "SchedulerParameters": ["bf_interval=5", "sched_interval=5"]}
    return with_cluster(lab, directory, cluster).playbook(
        "site", "--tags=controller,policy,validate", "--diff", *arguments
    )


@pytest.fixture(scope="module", name="policy")
def policy_in_the_cluster_file(lab: Lab, host: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Limits hold, as the check has said, and a second run changes nothing."""
    directory = tmp_path_factory.mktemp("accounting")
    tasks(lab, directory, EMPTY)
    runs = [site(lab, directory, *arguments) for arguments in (["--check"], [], [])]
    assert [(run.rc, run.failed) for run in runs] == [(0, {})] * 3
    check, done = ({*planned(run)} for run in runs[:2])
    assert check == done != set()
    assert runs[2].changed == {}
    assert lab.command(host, "scontrol -o show reservation | cut -d' ' -f1") == "ReservationName=future"
    lab.command(host, "scontrol delete ReservationName=future")


def planned(run: Run) -> Iterator[tuple[Any, ...]]:
    """What a run has planned for accounting. In a check a QOS of a partition is new twice: at first, and with all."""
    for _host, task, result in run.results:
        if task in (FIRST, APPLY):
            yield from (tuple(change.values()) for change in result["plan"])


def submit(lab: Lab, host: str, user: str, *options: str, seconds: int = 600) -> str:
    """The number of a job."""
    words = " ".join(["--output=/dev/null", "--chdir=/", *options])
    return str(lab.command(host, f"runuser -u {user} -- sbatch --parsable {words} --wrap 'sleep {seconds}'"))


def end(lab: Lab, host: str, *jobs: str) -> None:
    """Cancel jobs, and wait until they are gone."""
    lab.command(host, f"scancel {' '.join(jobs)}")
    lab.wait_for(
        host,
        f"left=$(squeue -h -t PD,R,CG -o %A) && ! echo \"$left\" | grep -qxE '{'|'.join(jobs)}' && echo gone",
        "gone",
    )


@pytest.mark.usefixtures("policy")
def test_a_user_without_an_account_is_refused(lab: Lab, host: str) -> None:
    refused = lab.host(host).run("runuser -u nobody -- sbatch --chdir=/ --wrap true")
    assert refused.rc == 1
    assert "Invalid account or account/partition combination specified" in refused.stderr


@pytest.mark.usefixtures("policy")
def test_who_is_over_a_limit_waits(lab: Lab, host: str, tmp_path: Path) -> None:
    limited = {"name": "physics", "limits": {"GrpTRES": {"cpu": 1}}}
    free = {"name": "physics", "limits": {"GrpTRES": None}}
    tasks(lab, tmp_path, ("slurm_account", limited, False))
    first, second = submit(lab, host, "alice"), submit(lab, host, "admin")
    lab.wait_for(host, f"squeue -h -j {first} -o %T", "RUNNING")
    lab.wait_for(host, f"squeue -h -j {second} -o '%T %r'", "PENDING AssocGrpCpuLimit")
    tasks(lab, tmp_path, ("slurm_account", free, False))
    lab.wait_for(host, f"squeue -h -j {second} -o %T", "RUNNING")
    end(lab, host, first, second)


@pytest.mark.usefixtures("policy")
def test_what_has_jobs_is_not_removed(lab: Lab, host: str, tmp_path: Path) -> None:
    job = submit(lab, host, "alice")
    purge = ("slurm_accounting", {"purge": True}, True)
    removed, kept = tasks(lab, tmp_path, ("slurm_user", {"name": "alice", "state": "absent"}, False), purge)
    assert removed["msg"] == f"user alice: has jobs {job}"
    assert kept["kept"] == [f"{what}: has jobs {job}" for what in ("account science", "account physics", "user alice")]
    end(lab, host, job)


@pytest.mark.usefixtures("policy")
def test_a_qos_preempts_another_one_whose_job_is_requeued(lab: Lab, host: str) -> None:
    low = submit(lab, host, "alice", "--exclusive")
    lab.wait_for(host, f"squeue -h -j {low} -o %T", "RUNNING")
    high = submit(lab, host, "admin", "--exclusive", "--qos=urgent")
    lab.wait_for(host, f"squeue -h -j {high} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {low} -o %T") == "PENDING"
    assert "Restarts=1" in lab.command(host, f"scontrol show job {low}")
    end(lab, host, low, high)


@pytest.mark.usefixtures("policy")
def test_the_lighter_user_comes_first(lab: Lab, host: str) -> None:
    lab.command(host, "sacctmgr -i modify user where name=alice,admin account=physics set RawUsage=0")
    used = submit(lab, host, "alice", "--exclusive", seconds=5)
    lab.wait_for(host, f"squeue -h -j {used} 2>/dev/null | wc -l", "0")
    share = "sshare -nP -u alice,admin -A physics -o User,FairShare | grep '^ *a' | sort -t'|' -k2 -n | tail -1"
    lab.wait_for(host, share, "admin", seconds=150)
    all_of_it = submit(lab, host, "root", "--exclusive", "--account=physics")
    lab.wait_for(host, f"squeue -h -j {all_of_it} -o %T", "RUNNING")
    heavier = submit(lab, host, "alice", "--exclusive")
    lighter = submit(lab, host, "admin", "--exclusive")
    end(lab, host, all_of_it)
    lab.wait_for(host, f"squeue -h -j {lighter} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {heavier} -o '%T %r'") in ("PENDING Priority", "PENDING Resources")
    end(lab, host, heavier, lighter)


@pytest.mark.usefixtures("policy")
def test_a_reservation_keeps_others_out(lab: Lab, host: str, tmp_path: Path) -> None:
    parameters = {"StartTime": "now", "Duration": "60", "Nodes": "ALL", "Users": ["admin"], "Flags": ["IGNORE_JOBS"]}
    tasks(lab, tmp_path, ("slurm_reservation", {"name": "course", "parameters": parameters}, False))
    outside, inside = submit(lab, host, "alice"), submit(lab, host, "admin", "--reservation=course")
    lab.wait_for(host, f"squeue -h -j {inside} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {outside} -o %T") == "PENDING"
    refused = lab.host(host).run("runuser -u alice -- sbatch --chdir=/ --reservation=course --wrap true")
    assert "denied" in refused.stderr.lower()
    end(lab, host, inside)
    tasks(lab, tmp_path, ("slurm_reservation", {"name": "course", "state": "absent"}, False))
    lab.wait_for(host, f"squeue -h -j {outside} -o %T", "RUNNING")
    end(lab, host, outside)


@pytest.mark.usefixtures("policy")
def test_hold_release_requeue_and_begin(lab: Lab, host: str) -> None:
    job = submit(lab, host, "alice", "--begin=now+1hour")
    lab.wait_for(host, f"squeue -h -j {job} -o '%T %r'", "PENDING BeginTime")
    lab.command(host, f"scontrol hold {job} && scontrol update JobId={job} StartTime=now")
    lab.wait_for(host, f"squeue -h -j {job} -o '%T %r'", "PENDING JobHeldAdmin")
    lab.command(host, f"scontrol release {job}")
    lab.wait_for(host, f"squeue -h -j {job} -o %T", "RUNNING")
    lab.command(host, f"scontrol requeue {job}")
    lab.wait_for(host, f"scontrol show job {job}", "Restarts=1")
    end(lab, host, job)


@pytest.mark.usefixtures("policy")
def test_an_array_runs_as_many_at_once_as_it_may(lab: Lab, host: str) -> None:
    job = submit(lab, host, "alice", "--array=0-3%1")
    lab.wait_for(host, f"squeue -h -r -j {job} -o '%T %r'", "PENDING JobArrayTaskLimit")
    assert lab.command(host, f"squeue -h -r -t R -j {job} | wc -l") == "1"
    end(lab, host, job)
