# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Slurm's files: the reconfigure or restarts that they need, and the jobs that they end."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    ConfigurationChange,
    changes,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.times import (
    ENDS_JOBS,
    LEAST,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import find
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import (
    TRAITS,
    JobPlacement,
    parts_daemons,
    read_at_start,
    remedy,
    removed_nodes,
    steps,
    table,
    without_reach,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import fold
from slurm_confs import OLD, edited

JOBS = [
    JobPlacement("7", "gpu", frozenset({"n1", "n2"}), True),
    JobPlacement("8", "gpu", frozenset({"n2"}), False),
    JobPlacement("9", "old,gpu", frozenset(), False),
]


@pytest.mark.parametrize(
    ("replacements", "ends"),
    [
        ([("KillWait=30", "KillWait=60")], ()),
        ([("Weight=3", "Weight=4")], ()),
        ([("=1000", "=900")], ()),
        ([("CoresPerSocket=4", "CoresPerSocket=8")], ("7", "8")),
        ([("Gres=gpu:2", "Gres=gpu:1")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[2-4] NodeAddr=10.0.0.[2-4]")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]")], ()),
        ([("PartitionName=old Nodes=n5\n", "")], ("9",)),
        ([("Nodes=n[1-4] Default", "Nodes=n[3-4] Default")], ()),
        ([("ClusterName=demo", "ClusterName=other")], ("7", "8")),
        ([("KillWait=30", "ProctrackType=proctrack/linuxproc")], ("7", "8")),
    ],
)
def test_jobs_that_a_change_would_end(replacements: list[tuple[str, str]], ends: tuple[str, ...]) -> None:
    found = steps(edited(*replacements), JOBS, "24.11.5")
    assert {number for step in found for number in step.ends} == set(ends)


ON_NODES = "NodeName=n[1-2] Gres=gpu:2\nNodeName=c1 State=CLOUD Gres=gpu:2\n"


@pytest.mark.parametrize(
    ("managed", "cloud", "ends"),
    [
        ([], False, {"gres.conf n1 Name": (), "cgroup.conf CgroupPlugin": ()}),
        (["n2"], False, {"gres.conf n1 Name": (), "cgroup.conf CgroupPlugin": ("7", "8")}),
        (["n1"], False, {"gres.conf n1 Name": ("7",), "cgroup.conf CgroupPlugin": ("7", "8")}),
        ([], True, {"gres.conf n1 Name": (), "cgroup.conf CgroupPlugin": ("7", "8")}),
    ],
)
def test_a_change_ends_no_job_on_nodes_that_read_their_own_files(
    managed: list[str], cloud: bool, ends: dict[str, tuple[str, ...]]
) -> None:
    """The first change of a cluster that is taken over: the controller gets what its nodes have already."""
    conf = ON_NODES if cloud else ON_NODES.partition("NodeName=c1")[0]
    gres = "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\n"
    old = read({"slurm.conf": conf})
    new = read({"slurm.conf": conf, "gres.conf": gres, "cgroup.conf": "CgroupPlugin=cgroup/v1\n"})
    found = steps(changes(old, new), JOBS, "24.11.5")
    assert {step.what: step.ends for step in found} == {
        "gres.conf n1 Name": ("7",),
        "cgroup.conf CgroupPlugin": ("7", "8"),
    }
    reached = without_reach(found, old, new, managed)
    assert {step.what: step.ends for step in reached} == ends
    assert all(step.needs.reconfigure for step in reached)


def test_a_pending_job_that_asks_for_a_removed_node_by_name_ends() -> None:
    jobs = [JobPlacement("10", "gpu", frozenset(), False, required=frozenset({"n4", "n1"}))]
    removed = edited(("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]"))
    assert [number for step in steps(removed, jobs, "24.11.5") for number in step.ends] == ["10"]
    assert not [step for step in steps(edited(("Weight=3", "Weight=4")), jobs, "24.11.5") if step.ends]


@pytest.mark.parametrize(
    ("name", "version", "needs", "ends"),
    [
        ("topology.conf", "22.05.8", "reconfigure", ()),
        ("topology.yaml", "25.05.1", "reconfigure", ()),
        ("job_submit.lua", "22.05.8", "reconfigure", ()),
        ("mpi.conf", "22.05.8", "restart slurmctld, slurmd", ()),
        ("mpi.conf", "24.11.5", "reconfigure", ()),
        ("prolog.sh", "24.11.5", "reconfigure", ()),
        # What running jobs have mounted would be lost.
        ("job_container.conf", "24.11.5", "reconfigure, no job on these nodes", ("7", "8")),
        ("namespace.yaml", "26.05.3", "reconfigure, no job on these nodes", ("7", "8")),
    ],
)
def test_files_of_the_site(name: str, version: str, needs: str, ends: tuple[str, ...]) -> None:
    text = {
        "topology.conf": "SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n2\n",
        "mpi.conf": "PMIxDebug=1\n",
        "job_container.conf": "NodeName=n1 BasePath=/a\nNodeName=n2 BasePath=/b\n",
    }.get(name, 'function = "\n')  # nobody reads it line by line
    added = steps(changes(read({}), read({name: text})), JOBS, version)
    assert {(step.action, step.ends) for step in added} == {(needs, ends)}
    removed = steps(changes(read({name: text}), read({})), JOBS, version)
    assert [(step.what, step.action) for step in removed] == [(step.what, step.action) for step in added]
    assert {step.what for step in added} == {
        "topology.conf": {"topology.conf SwitchName=s1", "topology.conf SwitchName=s2"},
        "mpi.conf": {"mpi.conf PMIxDebug"},
        "job_container.conf": {"job_container.conf NodeName=n1", "job_container.conf NodeName=n2"},
    }.get(name, {name})


@pytest.mark.parametrize(
    ("before", "after", "version", "ends"),
    [
        ("", "PrologFlags=Contain", "24.11.5", ("1", "3")),
        ("", "PrologFlags=Contain", "22.05.8", ("1", "3")),
        ("PrologFlags=Serial", "PrologFlags=Serial,X11", "24.11.5", ("1", "3")),
        ("PrologFlags=Alloc", "PrologFlags=Contain", "24.11.5", ()),
        ("PrologFlags=Contain", "", "24.11.5", ()),
        ("", "PrologFlags=DeferBatch", "24.11.5", ()),
        ("", "PrologFlags=DeferBatch", "26.05.3", ("1", "3")),
    ],
)
def test_jobs_whose_prolog_was_not_run_at_their_allocation(
    before: str, after: str, version: str, ends: tuple[str, ...]
) -> None:
    # srun: error: Task launch for StepId=9.0 failed on node n2: Job prolog failed
    jobs = [
        JobPlacement("1", "gpu", frozenset({"n1", "n2"}), False),
        JobPlacement("2", "gpu", frozenset({"n1"}), False),
        JobPlacement("3", "gpu", frozenset({"n1"}), False, frozenset({"interactive"})),
        JobPlacement("4", "gpu", frozenset(), False, frozenset({"interactive"})),
    ]
    old, new = (read({"slurm.conf": f"{text}\n"}) for text in (before, after))
    assert [step.ends for step in steps(changes(old, new), jobs, version, new)] == [ends]


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ("", "JobContainerType=job_container/tmpfs", {"7", "8"}),
        ("JobContainerType=job_container/tmpfs", "", {"7", "8"}),
        ("NamespaceType=namespace/tmpfs", "NamespaceType=namespace/linux", {"7", "8"}),
        ("JobContainerType=job_container/tmpfs", "NamespaceType=namespace/linux", {"7", "8"}),
        # Another name of the same parameter, as after an upgrade.
        ("JobContainerType=job_container/tmpfs", "NamespaceType=namespace/tmpfs", set()),
    ],
)
def test_further_steps_of_running_jobs_need_the_same_tmp(before: str, after: str, ends: set[str]) -> None:
    old, new = (read({"slurm.conf": f"{text}\n"}) for text in (before, after))
    found = steps(changes(old, new), JOBS, "26.05.3", new)
    assert {number for step in found for number in step.ends} == ends


def job(number: str, seconds: int = 1000, *traits: str) -> JobPlacement:
    """A job that runs in partition gpu."""
    return JobPlacement(number, "gpu", frozenset({"n1"}), False, frozenset(traits), seconds)


LATE = [
    job("1", 15),
    job("2", 1000, "interactive"),
    job("3", 1000, "overdue"),
    job("4", 1000, "reserved"),
    job("5", 1000, "configuring"),
    JobPlacement("6", "old", frozenset({"n5"}), False, frozenset({"overdue", "configuring"}), 1000),
    JobPlacement("7", "gpu", frozenset(), False),
]
ALL = "1-6"


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        # Lost nodes: a slurmd has a third of the time to answer.
        ("SlurmdTimeout=300", "SlurmdTimeout=1", ALL),
        ("SlurmdTimeout=300", "SlurmdTimeout=29", ALL),
        ("SlurmdTimeout=300", "SlurmdTimeout=0x1", ALL),
        ("SlurmdTimeout=300", "SlurmdTimeout=infinite", ""),
        ("SlurmdTimeout=300", "SlurmdTimeout=30", ""),
        ("SlurmdTimeout=600", "SlurmdTimeout=300", ""),
        ("SlurmdTimeout=0", "SlurmdTimeout=300", ""),
        ("SlurmdTimeout=0", "SlurmdTimeout=5", ALL),
        ("SlurmdTimeout=300", "SlurmdTimeout=0", ""),
        ("SlurmdTimeout=1", "SlurmdTimeout=5", ""),
        ("", "SlurmdTimeout=5", ALL),
        ("SlurmdTimeout=5", "", ""),
        ("MessageTimeout=50\nSlurmdTimeout=300", "MessageTimeout=50\nSlurmdTimeout=149", ALL),
        ("SlurmdTimeout=300", "SlurmdTimeout=300\nMessageTimeout=150", ""),
        ("", "MessageTimeout=1", ALL),
        ("", "MessageTimeout=2", ""),
        ("MessageTimeout=100", "MessageTimeout=5", ""),
        # Jobs that have used more time than they have by the new value.
        ("OverTimeLimit=10", "OverTimeLimit=5", "3,6"),
        ("OverTimeLimit=UNLIMITED", "OverTimeLimit=60", "3,6"),
        ("OverTimeLimit=10", "", "3,6"),
        ("OverTimeLimit=5", "OverTimeLimit=UNLIMITED", ""),
        ("ResvOverRun=60", "ResvOverRun=30", "4"),
        ("ResumeTimeout=600", "ResumeTimeout=60", "5-6"),
        ("", "BatchStartTimeout=5", "1"),
        ("BatchStartTimeout=1200", "BatchStartTimeout=10", ALL),
        # No job that runs.
        ("KillWait=30", "KillWait=0", ""),
        ("", "UnkillableStepTimeout=1", ""),
        ("SlurmctldTimeout=120", "SlurmctldTimeout=1", ""),
        ("", "PrologEpilogTimeout=1", ""),
        ("", "HealthCheckInterval=1", ""),
        ("PreemptExemptTime=1-0", "PreemptExemptTime=1", ""),
        ("InactiveLimit=0", "InactiveLimit=60", ""),
        # A word that is no number is refused elsewhere.
        ("SlurmdTimeout=300", "SlurmdTimeout=soon", ""),
    ],
)
def test_jobs_that_a_shorter_time_can_end(before: str, after: str, ends: str) -> None:
    old, new = (read({"slurm.conf": f"{text}\n"}) for text in (before, after))
    found = steps(changes(old, new), LATE, "24.11.5", new)
    assert ",".join(fold_jobs(step.ends) for step in found if step.ends) == ends


def fold_jobs(numbers: tuple[str, ...]) -> str:
    """Numbers of jobs, folded as in the plan."""
    return fold([*numbers]).strip("[]")


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ("MaxTime=10:00", "MaxTime=1", ""),
        ("OverTimeLimit=10", "OverTimeLimit=5", "3"),
        ("OverTimeLimit=10", "", "3"),
        ("", "OverTimeLimit=5", "3"),
        ("", "OverTimeLimit=8", ""),
        ("ResumeTimeout=100", "ResumeTimeout=20", "5"),
    ],
)
def test_jobs_that_a_shorter_time_of_a_partition_can_end(before: str, after: str, ends: str) -> None:
    conf = "OverTimeLimit=7\nPartitionName=gpu Nodes=n1 {}\nPartitionName=old Nodes=n5\n"
    old, new = (read({"slurm.conf": conf.format(text)}) for text in (before, after))
    found = steps(changes(old, new), LATE, "24.11.5", new)
    assert ",".join(fold_jobs(step.ends) for step in found if step.ends) == ends


def test_the_times_are_parameters_of_slurm() -> None:
    assert all(find(file, key) for file, times in ENDS_JOBS.items() for key in times)
    assert all(find("slurm.conf", name) for key, (_factor, other, _default) in LEAST.items() for name in (key, other))
    assert {time.jobs for times in ENDS_JOBS.values() for time in times.values()} <= {*TRAITS, "running", "starting"}


def test_a_reconfigure_before_23_11_forgets_no_inactivity() -> None:
    old, new = (read({"slurm.conf": f"InactiveLimit={value}\n"}) for value in (0, 60))
    assert [step.ends for step in steps(changes(old, new), LATE, "22.05.8", new)] == [("2",)]


def test_the_plan_says_from_when_on_a_time_ends_no_job() -> None:
    old, new = (read({"slurm.conf": f"SlurmdTimeout={value}\n"}) for value in (300, 1))
    assert table(steps(changes(old, new), LATE, "24.11.5", new)) == [
        "slurm.conf SlurmdTimeout  300 -> 1  reconfigure, ends no job from 30 on  ENDS JOBS [1-6]"
    ]


@pytest.mark.parametrize(
    ("replacements", "helps"),
    [
        (
            [("PartitionName=old Nodes=n5\n", "")],
            "let no job into the partition (scontrol update PartitionName=old State=DRAIN) and wait for its jobs, or "
            "move those that are pending (scontrol update JobId=JOB Partition=OTHER)",
        ),
        ([("Gres=gpu:2", "Gres=gpu:1")], "drain n[1-4] and wait for these jobs"),
        (
            [("n[1-4] NodeAddr=10.0.0.[1-4]", "n[3-4] NodeAddr=10.0.0.[3-4]")],
            "drain n[1-2] and wait for these jobs (one that is pending asks for a node by name: scontrol update "
            "JobId=JOB ReqNodeList=)",
        ),
        ([("ClusterName=demo", "ClusterName=other")], "drain all nodes and wait for these jobs"),
        ([("KillWait=30", "SlurmdTimeout=1")], "set SlurmdTimeout to 30 at least, or wait for these jobs"),
    ],
)
def test_what_helps_is_said_for_the_kind_of_change(replacements: list[tuple[str, str]], helps: str) -> None:
    found = steps(edited(*replacements), [*JOBS, *LATE], "24.11.5")
    assert remedy(found) == helps


def test_what_helps_is_said_once_for_each_kind_of_change() -> None:
    old = read({"slurm.conf": "OverTimeLimit=9\n" + OLD})
    new = read({"slurm.conf": "OverTimeLimit=5\n" + OLD.replace("Gres=gpu:2", "Gres=gpu:1 CoresPerSocket=8")})
    assert remedy(steps(changes(old, new), [*JOBS, *LATE], "24.11.5", new)) == (
        "keep the longer OverTimeLimit, or wait for these jobs; drain n[1-4] and wait for these jobs"
    )


def test_nodes_that_are_removed() -> None:
    found = steps(edited(("n[5-6]", "n[6-7]"), ("KillWait=30", "")), [], "24.11.5")
    assert removed_nodes(found) == {"n5"}


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize(
    "replacement",
    [
        ("KillWait=30", "KillWait=60"),
        ("KillWait=30", "SlurmdPort=7000"),
        ("KillWait=30", "TaskPlugin=task/affinity"),
        ("n[5-6]", "n[5-7]"),
        ("Weight=3", "Weight=4"),
        ("Weight=3", "Port=7000"),
        ("RealMemory=2000", "RealMemory=2001"),
        ("PartitionName=old", "NodeSet=some Nodes=n1\nPartitionName=old"),
    ],
)
def test_what_slurmd_reads_at_its_start_changes_when_it_is_to_be_restarted(
    replacement: tuple[str, str], version: str
) -> None:
    old, new = (read({"slurm.conf": text}) for text in (OLD, OLD.replace(*replacement)))
    restart = any("slurmd" in step.needs.restart for step in steps(changes(old, new), [], version))
    assert restart == (read_at_start(old, "slurmd", version) != read_at_start(new, "slurmd", version))


def test_what_slurmd_reads_at_its_start_is_what_an_administrator_knows() -> None:
    found = read_at_start(read({"slurm.conf": OLD + "SlurmdPort=7000\nKillWait=1\n"}), "slurmd", "24.11.5")
    assert found.splitlines() == ["ClusterName=demo", "SlurmdPort=7000"]


@pytest.mark.parametrize(("key", "expected"), [("SlurmdPort", True), ("KillWait", False), ("TaskPlugin", False)])
def test_daemons_that_do_not_understand_each_other_for_a_while(key: str, expected: bool) -> None:
    assert parts_daemons(steps([ConfigurationChange("slurm.conf", "", key, "1", "2")], [], "24.11.5")) is expected


def test_table() -> None:
    found = steps(edited(("KillWait=30", "KillWait=60"), ("Gres=gpu:2", "Gres=gpu:1")), JOBS, "24.11.5")
    assert table(found) == [
        "slurm.conf KillWait   30 -> 60        reconfigure",
        "NodeName=n[1-4] Gres  gpu:2 -> gpu:1  reconfigure, no job on these nodes  ENDS JOBS 7",
    ]


def test_a_new_file_is_one_line() -> None:
    """As slurm.conf on a host where another role had written plugstack.conf before."""
    files = {"slurm.conf": OLD, "plugstack.conf": "optional a.so\n"}
    found = steps(changes(read({"plugstack.conf": "optional b.so\n"}), read(files)), [], "24.11.5")
    lines = [" ".join(line.split()) for line in table(found, ["slurm.conf"])]
    assert len(lines) == 3 < len(table(found))
    assert lines[0].startswith("slurm.conf a new file restart ")
    assert lines[1:] == [
        "plugstack.conf optional=a.so (none) -> optional reconfigure",
        "plugstack.conf optional=b.so optional -> (none) reconfigure",
    ]
    running = [job for job in JOBS if job.nodes]
    removed = steps(changes(read(files), read({"slurm.conf": "ClusterName=x\n"})), running, "24.11.5")
    assert table(removed, ["slurm.conf"]) == table(removed), "only what is new is folded"


def test_lines_of_plugstack_conf_are_compared_by_their_plugin() -> None:
    old = read({"plugstack.conf": "# plugins\ninclude /etc/slurm/plugstack.conf.d/*.conf\noptional a.so x=1\n"})
    new = read({"plugstack.conf": "required  a.so  x=1 y\noptional b.so  # new\n"})
    assert [" ".join(line.split()) for line in table(steps(changes(old, new), [], "24.11"))] == [
        "plugstack.conf required=a.so optional x=1 -> required x=1 y reconfigure",
        "plugstack.conf optional=b.so (none) -> optional reconfigure",
        "plugstack.conf include=/etc/slurm/plugstack.conf.d/*.conf include -> (none) reconfigure",
    ]
    assert {step.needs.restart for step in steps(changes(old, new), [], "22.05")} == {("slurmd",)}
