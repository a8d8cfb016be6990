# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounting as data on a real slurmdbd, and its effect on real jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster
from plays import Results, Task, configuration, each_mode, modes, play, shell, task

CONFIG = "gpucluster.slurm.slurmctld : Apply Slurm's configuration"
RESERVATIONS = "gpucluster.slurm.slurm_accounting : Make reservations"
FIRST = "gpucluster.slurm.slurmctld : Add the accounts, users and QOS that slurm.conf needs"
APPLY = "gpucluster.slurm.slurm_accounting : Apply the policy"
# Users of the operating system whose jobs belong to one test only.
HEAVIER, LIGHTER = "games", "news"
EVERYTHING = "sacctmgr -nP show qos; sacctmgr -nP show associations"


@pytest.fixture(scope="module", name="host")
def the_host(lab: Lab) -> str:
    """The machine that is controller, database and node."""
    return str(lab.controller)


def empty(name: str) -> Task:
    """A task that removes all of the policy and its limits."""
    return task(name, "slurm_accounting", {"limits": {"MaxSubmitJobs": None}, "purge": True})


# -- each module -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    """An object that a module creates, changes and removes. Its name is in the arguments."""

    module: str
    there: dict[str, Any]
    changed: dict[str, Any]
    differs: set[tuple[str, str, str]]
    """The differences of the change: the setting, its value before and its value after."""
    shown: str
    """A command that prints something if the object exists."""

    @property
    def states(self) -> list[tuple[dict[str, Any], bool]]:
        """The arguments of each state, and whether the object exists then."""
        return [(self.there, True), (self.changed, True), ({"name": self.there["name"], "state": "absent"}, False)]


THINGS = {
    "qos": Thing(
        "slurm_qos",
        {"name": "fast", "limits": {"Priority": 10, "MaxWall": "1-0"}},
        {"name": "fast", "limits": {"Priority": 20, "MaxWall": "24:00:00", "Flags": ["NoReserve"]}},
        {("qos fast Priority", "10", "20"), ("qos fast Flags", "", "NoReserve")},
        "sacctmgr -nP show qos fast format=Name,Priority",
    ),
    "account": Thing(
        "slurm_account",
        {
            "name": "lasers",
            "description": "Lasers",
            "limits": {"GrpTRES": "cpu=4,mem=1G", "Fairshare": 3, "Coordinators": ["root"]},
        },
        {
            "name": "lasers",
            "organization": "Optics",
            "limits": {"GrpTRES": {"mem": 1024}, "Fairshare": 3, "Coordinators": []},
        },
        {
            ("account lasers Coordinators", "root", ""),
            ("account lasers GrpTRES", "cpu=4,mem=1024", "mem=1024"),
            ("account lasers Organization", "lasers", "optics"),
        },
        "sacctmgr -nP show account lasers format=Account",
    ),
    "user": Thing(
        "slurm_user",
        {"name": "carol", "default_account": "root", "limits": {"MaxJobs": 2, "WCKeys": ["grant1", "grant2"]}},
        {
            "name": "carol",
            "admin_level": "Operator",
            "limits": {"MaxJobs": None, "MaxWall": "2:00:00", "WCKeys": ["grant2"]},
        },
        {
            ("user carol WCKeys", "grant1,grant2", "grant2"),
            ("user carol AdminLevel", "None", "Operator"),
            ("user carol in root MaxJobs", "2", ""),
            ("user carol in root MaxWall", "", "02:00:00"),
        },
        "sacctmgr -nP show user carol format=User",
    ),
    "cluster": Thing(
        "slurm_cluster",
        {"name": "elsewhere", "limits": {"GrpTRES": "cpu=100"}},
        {"name": "elsewhere", "limits": {"GrpTRES": "cpu=200"}},
        {("cluster elsewhere GrpTRES", "cpu=100", "cpu=200")},
        "sacctmgr -nP show cluster elsewhere format=Cluster",
    ),
    "reservation": Thing(
        "slurm_reservation",
        {"name": "course", "parameters": {"StartTime": "now+1hour", "Duration": 60, "Nodes": "ALL", "Users": "alice"}},
        {"name": "course", "parameters": {"Duration": "02:00:00", "Users": ["root", "alice"], "Flags": "FLEX"}},
        {
            ("reservation course Duration", "01:00:00", "02:00:00"),
            ("reservation course Users", "alice", "alice,root"),
            ("reservation course Flags", "", "FLEX"),
        },
        "scontrol show reservation | grep -o ReservationName=course",
    ),
}


def things() -> Iterator[Task]:
    """Create, change and remove each object, and check each time whether it exists."""
    for name, thing in THINGS.items():
        for number, (arguments, _is_there) in enumerate(thing.states):
            yield from each_mode(f"{name} {number}", thing.module, arguments)
            yield shell(f"{name} {number}, shown", thing.shown)


@pytest.mark.parametrize("name", THINGS)
def test_module(results: Results, name: str) -> None:
    """Created, changed, removed: each in check mode, for real, and a second time without a change."""
    for number, (_arguments, is_there) in enumerate(THINGS[name].states):
        check, done, again = modes(results, f"{name} {number}")
        assert [result["changed"] for result in (check, done, again)] == [True, True, False]
        assert (check["plan"], check["diff"], again["plan"]) == (done["plan"], done["diff"], [])
        assert bool(results[f"{name} {number}, shown"]["stdout"]) == is_there
    plan = results[f"{name} 1, done"]["plan"]
    assert {(change["what"], change["before"], change["after"]) for change in plan} == THINGS[name].differs


def drains(host: str) -> Iterator[Task]:
    """Drain the node, try to resume it with the reason of somebody else, and resume it with its own reason."""
    yield from each_mode("drain", "slurm_node", {"name": host, "state": "drain", "reason": "new DIMMs"})
    yield task("resume by another", "slurm_node", {"name": host, "state": "resume", "reason": "bad fan"})
    yield shell("state after another", f"sinfo -h -n {host} -o %T")
    yield from each_mode("resume", "slurm_node", {"name": host, "state": "resume", "reason": "new DIMMs"})
    yield shell("state after resume", f"sinfo -h -n {host} -o %T")


def test_nodes_are_drained_and_taken_back_by_those_who_drained_them(results: Results) -> None:
    another = results["resume by another"]
    for name in ("drain", "resume"):
        assert [result["changed"] for result in modes(results, name)] == [True, True, False]
        assert not any("failed" in result for result in modes(results, name))
    assert (another["changed"], "failed" in another) == (False, False)
    assert "drain" in results["state after another"]["stdout"]
    assert "drain" not in results["state after resume"]["stdout"]


# -- a policy --------------------------------------------------------------------------------------------------------

POLICY: dict[str, Any] = {
    "limits": {"MaxSubmitJobs": 5000},
    "qos": [{"name": "normal"}, {"name": "urgent", "Priority": 100, "Preempt": ["normal"]}],
    "accounts": [
        {"name": "science", "QOS": ["normal", "urgent"], "accounts": [{"name": "physics"}, {"name": "biology"}]},
    ],
    "users": [{"name": "alice", "DefaultAccount": "physics"}, {"name": "bob", "accounts": ["biology", "physics"]}],
}
MOVED: dict[str, Any] = {
    "qos": [{"name": "normal", "MaxWall": "1-0"}],
    "accounts": [{"name": "biology", "accounts": [{"name": "physics", "GrpTRES": "cpu=8"}]}],
    "users": [{"name": "alice", "DefaultAccount": "biology", "MaxJobs": 4}],
}
POLICIES = [POLICY, MOVED, POLICY, {}]

WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "circle": (
        {"accounts": [{"name": "a", "Parent": "b"}, {"name": "b", "Parent": "a"}], "users": [{"name": "u"}]},
        ["account a: is its own ancestor: a in b in a", "user u: has no account"],
    ),
    "names": (
        {"qos": [{"name": "new"}], "accounts": [{"name": "a", "Parent": "scince", "QOS": "ugent"}]},
        ["'scince' is unknown, did you mean 'science'?", "'ugent' is unknown, did you mean 'urgent'?"],
    ),
    "resource": (
        {"qos": [{"name": "new"}, {"name": "x", "GrpTRES": "gres/gup=1"}]},
        ["qos x: GrpTRES: 'gres/gup' is unknown"],
    ),
}


def policies() -> Iterator[Task]:
    """Apply one policy after the other, keep one as Slurm returns it, and try wrong ones."""
    for number, policy in enumerate(POLICIES):
        yield from each_mode(f"policy {number}", "slurm_accounting", {**policy, "purge": True})
    yield shell("accounts", "sacctmgr -nP show account format=Account")

    yield task("policy", "slurm_accounting", POLICY)
    yield task("what there is", "slurm_accounting_info", {}, register="there")
    kept = {key: f"{{{{ there.policy.{key} }}}}" for key in POLICY}
    yield task("what there is, kept", "slurm_accounting", {**kept, "purge": True})

    yield shell("before wrong policies", EVERYTHING)
    for name, (policy, _words) in WRONG.items():
        yield task(f"wrong {name}", "slurm_accounting", policy)
    yield shell("after wrong policies", EVERYTHING)
    # A default that is not among the QOS: only Slurm knows that, the policy does not show it.
    user = {"name": "alice", "DefaultAccount": "physics", "QOS": ["normal"], "DefaultQOS": "urgent"}
    yield task("refused by Slurm", "slurm_accounting", {"users": [user]})


# -- two clusters in one database ------------------------------------------------------------------------------------

OTHER_CLUSTER = """
set -e
sacctmgr -iQ add cluster other
sacctmgr -iQ add qos theirs,of_a_partition
sacctmgr -iQ modify qos theirs set MaxWall=60
sacctmgr -iQ add account lab2 cluster=other description='their lab' organization=them
sacctmgr -iQ modify account lab2 cluster=other set qos+=theirs
sacctmgr -iQ add account shared cluster=other,single description='of both' organization=both
sacctmgr -iQ add account only,a_b cluster=single
sacctmgr -iQ add user carol,u-v account=lab2 cluster=other
sacctmgr -iQ modify user carol set adminlevel=operator
sacctmgr -iQ add user dave account=shared cluster=other,single
sacctmgr -iQ add user eve,frank account=only cluster=single
sacctmgr -iQ add user u_v account=a_b cluster=single
sacctmgr -iQ add coordinator account=shared name=frank
# Those whom the policy names, so that only the purge is between the two runs.
sacctmgr -iQ add account lab1 cluster=single description=new
sacctmgr -iQ add user carol account=lab1 cluster=single
"""
OF_OTHER_CLUSTER = (
    "sacctmgr -nP show qos; sacctmgr -nP show account withcoord; sacctmgr -nP show associations cluster=other;"
    # The only user who is in no other cluster, and whom nothing keeps.
    " sacctmgr -nP show user withcoord format=User,Admin,Coordinators | grep -v '^eve|'"
)
NO_OTHER_CLUSTER = """
sacctmgr -iQ delete cluster other
sacctmgr -iQ delete user carol,dave,frank,u-v,u_v
sacctmgr -iQ delete account lab1,lab2,shared,only,a_b
sacctmgr -iQ delete qos theirs,of_a_partition
"""
ONE_LAB: dict[str, Any] = {
    "cluster": "single",
    "accounts": [{"name": "lab1", "Description": "new"}],
    "users": [{"name": "carol", "DefaultAccount": "lab1"}],
    "purge": True,
}
FROM_ONE_CLUSTER = ["user eve,dave  gone", "account shared  gone"]
FOR_OTHER_CLUSTER = {
    "qos theirs: account lab2 of cluster other has it",
    "qos of_a_partition: a partition of cluster other may name it, which the database does not know",
    "user frank: is coordinator of account shared, which is in cluster other",
    "account only: user frank stays in it",
    "user u_v: Slurm would remove u-v with it",
    "account a_b: user u_v stays in it",
    "user carol: keeps AdminLevel Operator, which holds in all clusters of the database",
}


def two_clusters() -> Iterator[Task]:
    """Purge one of two clusters, and try to remove what the other one needs."""
    yield empty("nothing of one cluster")
    yield shell("another cluster", OTHER_CLUSTER)
    yield shell("other cluster before", OF_OTHER_CLUSTER)
    yield from each_mode("one cluster", "slurm_accounting", ONE_LAB)
    yield task("their QOS", "slurm_qos", {"cluster": "single", "name": "theirs", "state": "absent"})
    yield shell("other cluster after", OF_OTHER_CLUSTER)
    yield shell("no other cluster", NO_OTHER_CLUSTER)


def test_a_purge_leaves_the_other_cluster_of_the_database_alone(results: Results) -> None:
    assert "failed" not in results["another cluster"]
    before, after = (results[f"other cluster {when}"]["stdout"] for when in ("before", "after"))
    assert after == before != ""


def test_a_purge_names_what_stays_for_another_cluster(results: Results) -> None:
    check, done, again = modes(results, "one cluster")
    assert (check["table"], done["table"], again["table"]) == (FROM_ONE_CLUSTER, FROM_ONE_CLUSTER, [])
    assert (
        {*check["kept"]}
        == {*done["kept"]}
        == FOR_OTHER_CLUSTER
        | {
            "account shared: in cluster other",
            "user dave: in cluster other",
        }
    )
    assert {*again["kept"]} == FOR_OTHER_CLUSTER
    assert results["their QOS"]["msg"] == "qos theirs: account lab2 of cluster other has it"


@pytest.fixture(scope="module", name="results")
def results_of_one_play(lab: Lab, host: str, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of all tasks here, which begin and end without a policy."""
    tasks = [empty("nothing before"), *things(), *drains(host), *policies(), *two_clusters(), empty("nothing after")]
    return play(lab, tmp_path_factory.mktemp("modules"), *tasks)


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_check_predicts_what_is_done(results: Results, number: int) -> None:
    check, done, again = modes(results, f"policy {number}")
    assert check["changed"]
    assert (check["plan"], check["diff"], check["table"]) == (done["plan"], done["diff"], done["table"])
    assert (again["changed"], again["plan"]) == (False, [])


def test_nothing_is_left_of_a_policy(results: Results) -> None:
    assert results["accounts"]["stdout"] == "root"


def test_what_there_is_can_be_kept_as_a_policy(results: Results) -> None:
    assert {*results["what there is"]["policy"]} == {*POLICY}
    assert results["policy"]["changed"]
    kept = results["what there is, kept"]
    assert (kept["changed"], kept["kept"]) == (False, [])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_changes_nothing(results: Results, name: str) -> None:
    _policy, parts = WRONG[name]
    assert [word for word in parts if word not in results[f"wrong {name}"]["msg"]] == []
    assert results["after wrong policies"]["stdout"] == results["before wrong policies"]["stdout"] != ""


def test_what_slurm_refuses_is_told_with_its_words(results: Results) -> None:
    message = results["refused by Slurm"]["msg"]
    assert "sacctmgr modify user where name=alice" in message
    assert "default qos" in message.lower()


# -- real jobs -------------------------------------------------------------------------------------------------------

ACCOUNTING = {
    **POLICY,
    "qos": [*POLICY["qos"], {"name": "whole", "MaxSubmitJobsPerUser": 1000}],
    "accounts": [
        {
            "name": "science",
            "QOS": ["normal", "urgent"],
            "accounts": [{"name": "physics"}, {"name": "biology"}, {"name": "chemistry", "GrpTRES": {"cpu": 1}}],
        },
    ],
    "reservations": [
        {"name": "past", "StartTime": "2026-01-01T00:00:00", "Duration": 60, "Nodes": "ALL", "Users": ["root"]},
        {"name": "future", "StartTime": "2046-01-01T00:00:00", "Duration": 60, "Nodes": "ALL", "Users": ["root"]},
    ],
    "users": [
        {"name": name, "DefaultAccount": "physics", "accounts": ["physics", "chemistry"], "Fairshare": 10}
        for name in ("alice", "admin", HEAVIER, LIGHTER)
    ],
}


@pytest.fixture(scope="module", name="policy")
def policy_in_the_cluster_file(
    lab: Lab, host: str, results: Results, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Run]]:
    """The results of check mode, a run and the next run with a policy in the cluster file.

    The next run has all stages except validation, because the run before has shown that validation changes nothing.
    """
    assert results["nothing after"]["kept"] == []
    files = configuration(lab, host)
    (partition,) = lab.cluster["partitions"]
    cluster = {
        **lab.cluster,
        "accounting": ACCOUNTING,
        # Only some accounts can use the partition. slurmctld must know its QOS when it reads the file.
        "partitions": [{**partition, "AllowAccounts": ["physics", "chemistry"], "QOS": "whole"}],
        "slurm_conf": {"PriorityCalcPeriod": 1, "SchedulerParameters": ["bf_interval=5", "sched_interval=5"]},
    }
    directory = tmp_path_factory.mktemp("accounting")
    site = with_cluster(lab, directory, cluster)
    stages = "--tags=controller,policy,validate"
    try:
        runs = [site.playbook("site", "--diff", stages, *mode) for mode in (["--check"], [])]
        sbatch(lab, host, HEAVIER, seconds=2)
        yield [*runs, site.playbook("site", "--diff", "--skip-tags=validate")]
    finally:
        # A failed test can leave these behind.
        lab.host(host).run("scontrol delete ReservationName=future; scontrol delete ReservationName=course")
        restored = play(lab, directory, task("files", "slurm_config", {"files": files}), empty("nothing after jobs"))
    assert (restored["files"].get("failed"), restored["nothing after jobs"]["kept"]) == (None, [])


def sbatch(lab: Lab, host: str, user: str, *options: str, seconds: int = 600) -> str:
    """Submit a job of a user, and return its number. It has to end before the future reservation begins."""
    arguments = " ".join(["--output=/dev/null", "--chdir=/", "--time=60", *options])
    return str(lab.command(host, f"runuser -u {user} -- sbatch --parsable {arguments} --wrap 'sleep {seconds}'"))


def planned(run: Run) -> Iterator[tuple[Any, ...]]:
    """The accounting changes that a run has planned. Check mode plans those that slurm.conf needs twice."""
    for _host, name, result in run.results:
        if name in (FIRST, APPLY):
            yield from (tuple(change.values()) for change in result["plan"])


def test_a_run_does_what_its_check_has_said(lab: Lab, host: str, policy: list[Run]) -> None:
    assert [(run.rc, run.failed) for run in policy] == [(0, {})] * 3
    check, done, _again = policy
    assert {*planned(check)} == {*planned(done)} != set()
    assert done.changed == {host: [FIRST, CONFIG, APPLY, RESERVATIONS]}
    assert check.changed == done.changed
    assert lab.command(host, "scontrol -o show reservation | cut -d' ' -f1") == "ReservationName=future"


def test_the_next_run_changes_nothing(policy: list[Run]) -> None:
    assert policy[-1].changed == {}


@pytest.mark.parametrize("number", range(3), ids=["check", "run", "next run"])
def test_a_run_warns_of_nothing(policy: list[Run], number: int) -> None:
    assert policy[number].warnings == []


@pytest.fixture(name="submit")
def submitter(lab: Lab, host: str, policy: list[Run]) -> Iterator[Callable[..., str]]:
    """A function that submits a job of a user and returns its number. All jobs are cancelled after a test."""
    assert policy[-1].rc == 0
    yield partial(sbatch, lab, host)
    lab.command(host, "scancel --account=physics; scancel --account=chemistry")
    lab.wait_for(host, 'jobs=$(squeue --noheader) && test -z "$jobs" && echo none', "none")


@pytest.mark.usefixtures("policy")
def test_a_user_without_an_account_is_refused(lab: Lab, host: str) -> None:
    refused = lab.host(host).run("runuser -u nobody -- sbatch --chdir=/ --wrap true")
    assert refused.rc == 1
    assert "Invalid account or account/partition combination specified" in refused.stderr


def test_who_is_over_a_limit_waits(lab: Lab, host: str, submit: Callable[..., str], tmp_path: Path) -> None:
    first, second = (submit(user, "--account=chemistry") for user in ("alice", "admin"))
    lab.wait_for(host, f"squeue -h -j {first} -o %T", "RUNNING")
    lab.wait_for(host, f"squeue -h -j {second} -o '%T %r'", "PENDING AssocGrpCpuLimit")
    play(lab, tmp_path, task("free", "slurm_account", {"name": "chemistry", "limits": {"GrpTRES": None}}))
    lab.wait_for(host, f"squeue -h -j {second} -o %T", "RUNNING")


def test_what_has_jobs_is_not_removed(lab: Lab, submit: Callable[..., str], tmp_path: Path) -> None:
    job = submit("alice")
    found = play(
        lab,
        tmp_path,
        task("remove", "slurm_user", {"name": "alice", "state": "absent"}),
        task("purge", "slurm_accounting", {"purge": True}, check=True),
    )
    assert found["remove"]["msg"] == f"user alice: has jobs {job}"
    assert sorted(found["purge"]["kept"]) == [
        "account chemistry: user alice stays in it",
        f"account science,physics: has jobs {job}",
        f"user alice: has jobs {job}",
    ]


def test_a_qos_preempts_another_one_whose_job_is_requeued(lab: Lab, host: str, submit: Callable[..., str]) -> None:
    low = submit("alice", "--exclusive")
    lab.wait_for(host, f"squeue -h -j {low} -o %T", "RUNNING")
    high = submit("admin", "--exclusive", "--qos=urgent")
    lab.wait_for(host, f"squeue -h -j {high} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {low} -o %T") == "PENDING"
    assert "Restarts=1" in lab.command(host, f"scontrol show job {low}")


def test_a_reservation_keeps_others_out(lab: Lab, host: str, submit: Callable[..., str], tmp_path: Path) -> None:
    parameters = {"StartTime": "now", "Duration": "60", "Nodes": "ALL", "Users": ["admin"], "Flags": ["IGNORE_JOBS"]}
    play(lab, tmp_path, task("reserve", "slurm_reservation", {"name": "course", "parameters": parameters}))
    outside, inside = submit("alice"), submit("admin", "--reservation=course")
    lab.wait_for(host, f"squeue -h -j {inside} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {outside} -o %T") == "PENDING"
    refused = lab.host(host).run("runuser -u alice -- sbatch --chdir=/ --reservation=course --wrap true")
    assert "denied" in refused.stderr.lower()
    lab.command(host, f"scancel {inside}")
    # One with a job is not deleted.
    lab.wait_for(host, "scontrol delete ReservationName=course && echo deleted", "deleted")
    lab.wait_for(host, f"squeue -h -j {outside} -o %T", "RUNNING")


def test_hold_release_requeue_and_begin(lab: Lab, host: str, submit: Callable[..., str]) -> None:
    job = submit("alice", "--begin=now+1hour")
    lab.wait_for(host, f"squeue -h -j {job} -o '%T %r'", "PENDING BeginTime")
    lab.command(host, f"scontrol hold {job} && scontrol update JobId={job} StartTime=now")
    lab.wait_for(host, f"squeue -h -j {job} -o '%T %r'", "PENDING JobHeldAdmin")
    lab.command(host, f"scontrol release {job}")
    lab.wait_for(host, f"squeue -h -j {job} -o %T", "RUNNING")
    lab.command(host, f"scontrol requeue {job}")
    lab.wait_for(host, f"scontrol show job {job}", "Restarts=1")


def test_an_array_runs_as_many_at_once_as_it_may(lab: Lab, host: str, submit: Callable[..., str]) -> None:
    job = submit("alice", "--array=0-3%1")
    lab.wait_for(host, f"squeue -h -r -j {job} -o '%T %r'", "PENDING JobArrayTaskLimit")
    assert lab.command(host, f"squeue -h -r -t R -j {job} | wc -l") == "1"


def test_the_lighter_user_comes_first(lab: Lab, host: str, submit: Callable[..., str]) -> None:
    """This test is last: HEAVIER has run a job before, and slurmctld computes fair share once a minute.

    Until then both have the same, and the job that came first is first.
    """
    shares = f"sshare -nP -u {HEAVIER},{LIGHTER} -A physics -o FairShare | grep . | sort -u | wc -l"
    lab.wait_for(host, shares, "2")
    all_of_it = submit("root", "--exclusive", "--account=physics")
    lab.wait_for(host, f"squeue -h -j {all_of_it} -o %T", "RUNNING")
    heavier = submit(HEAVIER, "--exclusive")
    lighter = submit(LIGHTER, "--exclusive")
    lab.command(host, f"scancel {all_of_it}")
    lab.wait_for(host, f"squeue -h -j {lighter} -o %T", "RUNNING")
    assert lab.command(host, f"squeue -h -j {heavier} -o '%T %r'") in ("PENDING Priority", "PENDING Resources")
