# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of slurm-metrics about nodes and jobs, against what sinfo and squeue say in the same moment.

Further nodes power up and down. They do not exist: the programs that would start and stop them are stand-ins that do
nothing. Each state is one that Slurm itself gives. All values of all rounds are compared, 500 and more.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from lab import Lab
from sent_programs import sent_metrics

PLACE = "/run/test-answers"

CLOUD = """
SuspendProgram=/bin/true
ResumeProgram=/bin/true
RebootProgram=/bin/true
SuspendTime=86400
ResumeTimeout=45
SuspendTimeout=30
NodeName=cloud[1-7] State=CLOUD CPUs=2 RealMemory=100
PartitionName=cloudy Nodes=cloud[1-7]
"""

OUTPUTS = {
    "nodes": "sinfo -haN -o '%P|%N|%T|%C|%E'",
    "gpus": "sinfo -haN -O 'NodeList:|,Gres:|,GresUsed:|'",
    "dead": "sinfo -haNd -o %N",
    "down": "sinfo -haN -t down -o %N",
    "off": "sinfo -haN -t powered_down -o %N",
    "drained": "SLURM_TIME_FORMAT=%s sinfo -haN -t drain -o '%N|%H'",
    "jobs": "squeue -har -t all -o '%i|%T'",
}

WORDS = {"allocated": "alloc", "completing": "comp", "down": "down", "drained": "drain", "draining": "drain"}
WORDS |= {"fail": "fail", "failing": "fail", "idle": "idle", "inval": "err", "maint": "maint", "mixed": "mix"}
WORDS |= {"reserved": "resv"}

SUFFIXES = {**dict.fromkeys("~#%!", "power"), "^": "reboot", "$": "maintenance"}

QUEUE = ("cancelled", "completed", "completing", "failed", "node_fail", "pending", "preempted", "suspended", "timeout")

Values = dict[str, float]


@dataclass
class Seen:
    """What the rounds have had."""

    compared: int = 0
    states: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def labelled(name: str, **labels: str) -> str:
    """The name of a series in the file."""
    shown = (f'{key}="{value}"'.replace("\\", r"\\") for key, value in labels.items())
    return f"{name}{{{','.join(shown)}}}"


def ask(lab: Lab) -> dict[str, list[list[str]]]:
    """The lines of each command, and their fields."""
    script = "; ".join(f"echo '== {name}'; {command}" for name, command in OUTPUTS.items())
    text = lab.script(lab.controller, f"export SLURM_BITSTR_LEN=0; {script}", b"").decode()
    parts = (part.partition("\n") for part in text.split("== ")[1:])
    return {name: [line.split("|") for line in lines.split("\n") if line] for name, _newline, lines in parts}


def measured(lab: Lab) -> Values:
    """What the program writes."""
    lab.command(lab.controller, f"python3 {PLACE}/program cluster --all")
    rows = (line.rpartition(" ") for line in lab.command(lab.controller, f"grep -v ^# {PLACE}/slurm.prom").split("\n"))
    return {name: float(number) for name, _space, number in rows}


def expected(answers: dict[str, list[list[str]]]) -> Values:
    """The values by the answers of Slurm alone."""
    nodes = {name: (state, cpus, reason) for _partition, name, state, cpus, reason in answers["nodes"]}
    word = {name: WORDS.get(state.rstrip("*~#!%$@^+-"), "") for name, (state, *_rest) in nodes.items()}
    found: Values = dict.fromkeys((f"slurm_nodes_{one}" for one in WORDS.values()), 0.0)
    found |= {f"slurm_nodes_{one}": float(count) for one, count in Counter(word.values()).items() if one}
    partitions = {(partition.rstrip("*"), name) for partition, name, *_rest in answers["nodes"]}
    for name in {partition for partition, _node in partitions}:
        idle = sum(word[node] == "idle" for partition, node in partitions if partition == name)
        found[labelled("slurm_partition_nodes_shown_idle", partition=name)] = idle
    for place, unit in enumerate(("alloc", "idle", "other", "total")):
        found[f"slurm_cpus_{unit}"] = sum(int(cpus.split("/")[place]) for _state, cpus, _reason in nodes.values())
    gpus = {name: [sum(map(int, re.findall(r":(\d+)(?:\(|,|$)", text))) for text in texts]
            for name, *texts, _end in answers["gpus"]}  # fmt: skip
    out = {name for (name, *_rest) in (*answers["down"], *answers["drained"])}
    found["slurm_gpus_total"] = sum(total for total, _used in gpus.values())
    found["slurm_gpus_alloc"] = sum(used for _total, used in gpus.values())
    found["slurm_gpus_other"] = sum(total - used for name, (total, used) in gpus.items() if name in out)
    jobs = Counter(state.lower() for _job, state in answers["jobs"])
    found |= {f"slurm_queue_{name}": float(jobs[name]) for name in QUEUE}
    found["slurm_queue_running"] = jobs["running"] + jobs["configuring"]
    return found | of_nodes(answers, nodes)


def of_nodes(answers: dict[str, list[list[str]]], nodes: dict[str, tuple[str, str, str]]) -> Values:
    """The series of each node that is out of service."""
    found: Values = {}
    dead, down, off = ({name for (name,) in answers[part]} for part in ("dead", "down", "off"))
    since = dict(answers["drained"])
    for name, (state, _cpus, reason) in nodes.items():
        why = "maintenance" if state.startswith("maint") else SUFFIXES.get(state[-1], "")
        if state.startswith("fail") and name in off:
            why = "power"  # sinfo has no sign for it then
        if reason == "ResumeTimeout reached" and name in down:
            why = ""
        if why:
            found[labelled("slurm_node_planned_outage", node=name, why=why)] = 1
        if name in since:
            found[labelled("slurm_node_drain_since_seconds", node=name)] = int(since[name])
        if why not in ("power", "reboot"):
            if name in dead:
                found[labelled("slurm_node_not_responding", node=name)] = 1
            if name in down:
                found[labelled("slurm_node_down", node=name, reason=reason)] = 1
    return found


def without_cause(values: Values) -> Values:
    """The same without the label `cause`, which Slurm does not have."""
    return {re.sub(r',cause="[^"]*"', "", name): value for name, value in values.items()}


NODES = ("slurm_node_planned_outage{", "slurm_node_drain_since_", "slurm_node_not_responding{", "slurm_node_down{")


def compare(lab: Lab, seen: Seen, what: str) -> None:
    """Compare all values, when Slurm says the same before and after the program has run."""
    for _attempt in range(30):
        before = ask(lab)
        found = without_cause(measured(lab))
        if ask(lab) == before:
            break
    else:
        pytest.fail(f"{what}: Slurm's answers change all the time")
    wanted = expected(before)
    seen.states |= {state for _partition, _node, state, *_rest in before["nodes"]}
    own = {name: value for name, value in found.items() if name in wanted or name.startswith(NODES)}
    seen.compared += len(wanted.keys() | own.keys())
    for name in sorted(wanted.keys() | own.keys()):
        if wanted.get(name) != own.get(name):
            seen.wrong.append(f"{what}: {name}: Slurm {wanted.get(name)}, slurm-metrics {own.get(name)}")


@pytest.fixture(scope="module", name="node")
def cluster_with_further_nodes(lab: Lab) -> Iterator[str]:
    """A node of the lab, in a cluster that has nodes of a cloud as well, and the program with settings of this test."""
    head, node = lab.controller, lab.nodes[-1]
    name = head.partition(".")[0]
    state = lab.command(head, "scontrol show config | sed -n 's/^StateSaveLocation *= //p'")
    controllers = lab.command(head, "scontrol show config | sed -n 's/^SlurmctldHost.*= //p' | sed 's/(.*//'").split()
    settings = {"controllers": controllers, "state_directory": state, "all": True, "users_and_accounts": False}
    assert controllers[0] == name
    lab.script(head, f"mkdir -p {PLACE}; cat >{PLACE}/program", sent_metrics(PLACE))
    lab.script(head, f"cat >{PLACE}/metrics.json", json.dumps(settings).encode())
    with lab.configuration_kept():
        # slurmd has to know the stand-in of RebootProgram.
        conf = "/etc/slurm/slurm.conf"
        lab.script(head, f"sed -i '/^RebootProgram=/Id' {conf}; cat >>{conf}", CLOUD.encode())
        lab.command(head, "systemctl restart slurmctld")
        lab.wait_until_idle(head, node)
        lab.command(head, "scontrol reconfigure")
        lab.wait_until_idle(head, node)
        try:
            yield node.partition(".")[0] if lab.release < "23" else node
        finally:
            lab.host(head).run("scancel -u root; scontrol delete reservation=answers; rm -r " + PLACE)
            lab.host(head).run(f"scontrol update nodename={node} state=resume")


def set_state(lab: Lab, node: str, state: str, reason: str = "") -> None:
    """Give a node a state."""
    lab.command(lab.controller, f"scontrol update nodename={node} state={state} {reason and f'reason={reason!r}'}")


@pytest.mark.rare  # 2 minutes; unit tests compare the recorded answers of each release
def test_each_value_is_what_slurm_says(lab: Lab, node: str) -> None:
    """From one state to the next, each time all values."""
    head, seen = lab.controller, Seen()
    batch = "sbatch --parsable --output=/dev/null --mem=20 -n1"

    def job(options: str, command: str = "sleep 900") -> str:
        return str(lab.command(head, f"{batch} {options} --wrap '{command}'"))

    def reserve(flags: str) -> None:
        lab.host(head).run("scontrol delete reservation=answers")
        lab.command(
            head, f"scontrol create reservation=answers nodes={node} users=root starttime=now duration=60 flags={flags}"
        )
        lab.wait_for(head, "scontrol show reservation answers | grep -o State=ACTIVE", "State=ACTIVE")

    def wait_for_state(name: str, state: str) -> None:
        lab.wait_for(head, "sinfo -haN -o =%N=%T=", f"={name}={state}=")

    compare(lab, seen, "all idle, the cloud off")
    set_state(lab, "cloud1", "drain", "bad fan")
    set_state(lab, "cloud2", "down", "power \\ supply [a@b]")
    set_state(lab, "cloud3", "fail", "old")
    compare(lab, seen, "drained, down, fail")
    job("-p cloudy -w cloud4")
    lab.wait_for(head, "squeue -h -w cloud4 -o %T", "CONFIGURING")
    compare(lab, seen, "a node powers up")
    running = job(f"-w {node}", "sleep 900")
    lab.wait_for(head, f"squeue -h -j {running} -o %T", "RUNNING")
    compare(lab, seen, "a job runs")
    set_state(lab, node, "drain", "cables")
    compare(lab, seen, "a node drains")
    waiting = job(f"-w {node} --array=1-30")
    held = job(f"--hold --array=1-7:2,20%2 -w {node}")
    compare(lab, seen, "arrays wait")
    cancelled = job(f"--hold --array=1-10 -w {node}")
    lab.command(head, f"scancel {cancelled}")
    compare(lab, seen, "an array is cancelled")
    lab.command(head, f"scancel {waiting}_[5-9] {held}_20")
    compare(lab, seen, "some tasks of arrays are cancelled")
    lab.command(head, f"scontrol suspend {running}")
    compare(lab, seen, "a job is suspended")
    lab.command(head, f"scancel {running} {waiting} {held}")
    wait_for_state(node, "drained")
    compare(lab, seen, "a node is drained, and all jobs are cancelled")
    set_state(lab, node, "resume")
    reserve("IGNORE_JOBS")
    wait_for_state(node, "reserved")
    compare(lab, seen, "a node is reserved")
    reserve("MAINT,IGNORE_JOBS")
    wait_for_state(node, "maint")
    compare(lab, seen, "a node is in maintenance")
    set_state(lab, node, "drain", "cables")
    compare(lab, seen, "in maintenance and drained")
    set_state(lab, node, "resume")
    set_state(lab, node, "down", "new disk")
    compare(lab, seen, "in maintenance and down")
    set_state(lab, node, "resume")
    job(f"-w {node} --reservation=answers", "false")
    lab.wait_for(head, "squeue -h -t failed -o %T | sort -u", "FAILED")
    compare(lab, seen, "in maintenance, a job has failed")
    lab.wait_for(head, "scontrol delete reservation=answers && echo deleted", "deleted")
    wait_for_state("cloud4", "down~")
    compare(lab, seen, "a node did not power up")
    set_state(lab, "cloud5", "power_up")
    compare(lab, seen, "a node powers up without a job")
    set_state(lab, "cloud5", "power_down_force")
    compare(lab, seen, "a node powers down")
    lab.command(head, f"scontrol reboot nextstate=resume {node}")
    wait_for_state(node, "reboot^")
    compare(lab, seen, "a node reboots by order")
    wait_for_state(node, "down")
    compare(lab, seen, "a node did not come back")
    print(f"Slurm {lab.release}: compared {seen.compared} values in the states {', '.join(sorted(seen.states))}")
    assert seen.wrong == []
    assert seen.compared >= 500
    assert {
        "idle~",
        "drained~",
        "draining",
        "reserved",
        "maint",
        "drained$",
        "down$",
        "reboot^",
        "down~",
    } <= seen.states
