# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""500 nodes with a slurmd each, then 2,000 nodes, with 20,000 jobs: what the collection asks and changes.

Each of five hosts has a hundred slurmds (slurmd@.service). The other 1,500 nodes have none. The tests run in this
order. Each prints lines "measured", for docs/design/benchmarks.md; no test asserts a time, but the ratio of two.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand, fold
from lab import Lab, Run, with_cluster
from sent_programs import sent_metrics

HERE = Path(__file__).parent
HEAD, RACKS = "th-head", [f"th-rack{number}" for number in range(1, 6)]
NODES, ALL_NODES = expand("th-node[0001-0500]"), expand("th-node[0001-2000]")
ADDED = {"hosts": "th-node[0501-2000]", "hardware": "gpu", "address": "10.214.[6-20].[1-100]"}
GPUS = 4
"""Of a node."""

LARGE, SMALL = 100, 100
"""Running jobs with four nodes, and with one; together they have all GPUs of 500 nodes."""
TOGETHER, HETEROGENEOUS = 100, 160
"""Components of a heterogeneous job, each of which is a job for Slurm's commands, and the number of such jobs."""
ARRAYS, TASKS = 4, 1000
WAITING = TOGETHER * HETEROGENEOUS + ARRAYS * TASKS

FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf")

MEASURED, PYTHON = "/usr/local/bin/measured", "/usr/local/bin/measured-python"
PLACE = "/run/thousand"
"""The directory of the programs and of what they write."""
METRICS = {
    "state_directory": "",
    "all": False,
    "users_and_accounts": False,
    "daemons": [],
    "keys": {},
    "backup": None,
    "controllers": [HEAD],
}

SUBMIT = f"""
cd /tmp
printf '#!/bin/sh\\nhostname >>/tmp/hosts\\nexec sleep 86400\\n' >job.sh
options='--quiet --output=/dev/null --mem=100'
for number in $(seq {LARGE}); do sbatch $options --nodes=4 --gpus-per-node={GPUS} job.sh; done
for number in $(seq {SMALL}); do sbatch $options --nodes=1 --gpus-per-node={GPUS} job.sh; done
one='-n1 --mem=100 --gpus=1 --output=/dev/null'
many=$one
for number in $(seq 2 {TOGETHER}); do many="$many : $one"; done
for number in $(seq {ARRAYS}); do sbatch $options --gpus=1 --array=1-{TASKS} job.sh; done
for number in $(seq {HETEROGENEOUS}); do sbatch --quiet $many job.sh; done
"""


# -- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What a command has used (`counted.py`): processor time in seconds, memory in MiB."""

    seconds: float
    processor: float
    memory: float
    slurmctld_processor: float
    slurmctld_memory: float
    questions: dict[str, int]


Found = dict[str, dict[int, Figures]]
"""The last figures by what was measured, and by the number of nodes."""


@pytest.fixture(scope="module", name="found")
def figures_found() -> Found:
    return {}


def note(lab: Lab, found: Found, what: str, size: int) -> None:
    """Print the figures of the last command, and keep them."""
    figures = Figures(**json.loads(lab.command(HEAD, "cat /run/measured.json")))
    print(
        f"measured: {what}, {size} nodes: {figures.seconds:.1f} s, processor {figures.processor:.2f} s and slurmctld "
        f"{figures.slurmctld_processor:.2f} s, memory {figures.memory:.0f} MiB and slurmctld "
        f"{figures.slurmctld_memory:.0f} MiB, {figures.questions}"
    )
    found.setdefault(what, {})[size] = figures


@dataclass(frozen=True)
class Questions:
    """Commands and modules on the controller of a cluster with so many nodes."""

    lab: Lab
    found: Found
    directory: Path
    size: int

    def command(self, what: str, command: str) -> str:
        """The output of a command."""
        answer: str = self.lab.command(HEAD, f"cd / && timeout 300 {MEASURED} {command}")
        note(self.lab, self.found, what, self.size)
        return answer

    def module(self, what: str, name: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
        """The result of a module."""
        task = {"name": what, f"gpucluster.slurm.{name}": options, "check_mode": check}
        play = {"hosts": HEAD, "become": True, "gather_facts": False, "tasks": [task]}
        path = self.directory / "play.yml"
        path.write_text(json.dumps([{**play, "vars": {"ansible_python_interpreter": PYTHON}}]))
        run = self.lab.playbook(str(path))
        succeeded(run)
        note(self.lab, self.found, what, self.size)
        result: dict[str, Any] = next(result for _host, task_name, result in run.results if task_name == what)
        return result


@pytest.fixture(name="small")
def questions_to_500_nodes(lab: Lab, found: Found, tmp_path: Path) -> Questions:
    return Questions(lab, found, tmp_path, len(NODES))


@pytest.fixture(name="large")
def questions_to_2000_nodes(grown: Lab, found: Found, tmp_path: Path) -> Questions:
    return Questions(grown, found, tmp_path, len(ALL_NODES))


def site(lab: Lab, what: str, *arguments: str) -> Run:
    """Run site.yml on the hosts that are no nodes, and print what slurmctld has used."""
    begin = time.monotonic()
    run = lab.playbook("site", "--limit=!slurm_compute", "--skip-tags=validate", *arguments)
    print(f"measured: {what}: {time.monotonic() - begin:.0f} s, rc {run.rc}")
    succeeded(run)
    return run


def succeeded(run: Run) -> None:
    assert (run.rc, run.failed) == (0, {}), run.failed or run.output[-4000:]


# -- the nodes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def prepared(lab: Lab) -> None:
    """Addresses for nodes, which nobody else gets packets for, and the programs."""
    routes = [f"10.214.{number}.0/24" for number in range(1, len(RACKS) + 1)]
    address = lab.cluster["addresses"]
    via = dict(zip(expand("th-rack[1-5]"), expand(address["th-rack[1-5]"])))
    for host in (HEAD, *RACKS):
        # Hundreds of slurmds that ask the machine's name server at once for the name of an address would wait for it.
        commands = [": >/etc/resolv.conf", "ip route replace unreachable 10.214.0.0/16"]
        for rack, route in zip(RACKS, routes):
            own = f"local {route} dev lo" if rack == host else f"{route} via {via[rack]}"
            commands.append(f"ip route replace {own}")
        lab.command(host, " && ".join(commands))
    unit = (HERE / "slurmd@.service").read_bytes()
    for rack in RACKS:
        lab.script(rack, "cat >/etc/systemd/system/slurmd@.service && systemctl daemon-reload", unit)
    program = b"#!/usr/bin/python3\n" + (HERE / "counted.py").read_bytes()
    lab.script(HEAD, f"install -m 755 /dev/stdin {MEASURED}", program)
    python = f'#!/bin/sh\nexec {MEASURED} /usr/bin/python3 "$@"\n'
    lab.script(HEAD, f"install -m 755 /dev/stdin {PYTHON}", python.encode())
    lab.command(HEAD, f"install -d -m 755 {PLACE}")
    lab.script(HEAD, f"cat >{PLACE}/metrics.json", json.dumps(METRICS).encode())
    programs = {
        "slurm-metrics": sent_metrics(PLACE),
        "slurm-report": program_files.sent("programs.report_collector").encode(),
        "gpus": program_files.sent("programs.gpus").encode(),
    }
    for name, text in programs.items():
        lab.script(HEAD, f"cat >{PLACE}/{name}", text)


def rack_of(node: str) -> str:
    """The host of a node's slurmd."""
    return RACKS[NODES.index(node) // (len(NODES) // len(RACKS))]


def systemctl(lab: Lab, command: str, nodes: list[str]) -> None:
    """Give a command to the units of nodes."""
    for rack in RACKS:
        if units := [f"slurmd@{node}" for node in nodes if rack_of(node) == rack]:
            lab.command(rack, f"systemctl {command} {' '.join(units)}")


def counts(lab: Lab) -> dict[str, int]:
    """How many nodes have each state. One that backfill has planned for a job has a dash."""
    text = lab.command(HEAD, "timeout 60 sinfo --noheader --Node --partition=all --format=%T")
    return dict(Counter(state.rstrip("-") for state in text.split()))


def wait_for_counts(lab: Lab, seconds: int = 600, **wanted: int) -> None:
    """Return when so many nodes have these states, and none another one."""
    deadline = time.monotonic() + seconds
    while (now := counts(lab)) != wanted:
        assert time.monotonic() < deadline, f"{now}, not {wanted}"
        time.sleep(3)


def jobs(lab: Lab) -> dict[str, int]:
    """How many jobs have each state."""
    text = lab.command(HEAD, "timeout 60 squeue --all --array --noheader --format=%T | sort | uniq --count")
    return {state: int(number) for number, state in (line.split() for line in text.splitlines())}


@pytest.fixture(scope="module", name="grown")
def lab_with_2000_nodes(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with 1,500 nodes more."""
    nodes = [*lab.cluster["nodes"], ADDED]
    return with_cluster(lab, tmp_path_factory.mktemp("grown"), {**lab.cluster, "nodes": nodes})


# -- 500 nodes -------------------------------------------------------------------------------------------------------


def test_500_nodes_register(lab: Lab) -> None:
    site(lab, "site on the controller and five login hosts, 500 nodes")
    begin = time.monotonic()
    systemctl(lab, "start --no-block", NODES)
    wait_for_counts(lab, idle=len(NODES))
    print(f"measured: 500 slurmds, from their start until all are idle: {time.monotonic() - begin:.0f} s")


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    assert site(lab, "site again, nothing to do, 500 nodes").changed == {}


def test_jobs_fill_the_nodes(lab: Lab) -> None:
    begin = time.monotonic()
    lab.command(HEAD, "install -m 755 /dev/null /tmp/submit.sh")
    lab.script(HEAD, "cat >/tmp/submit.sh && runuser -u alice -- sh -eu /tmp/submit.sh", SUBMIT.encode())
    print(f"measured: submission of {WAITING} jobs: {time.monotonic() - begin:.0f} s")
    wait_for_counts(lab, mixed=len(NODES))
    assert jobs(lab) == {"PENDING": WAITING, "RUNNING": LARGE + SMALL}
    wanted = lab.command(HEAD, "timeout 60 squeue --all --noheader --states=RUNNING --format=%B").split()
    hosts = [host for rack in RACKS for host in lab.command(rack, "cat /tmp/hosts").split()]
    assert sorted(hosts) == sorted(wanted)


def test_questions_to_500_nodes(small: Questions) -> None:
    check_answers(small)


def check_answers(ask: Questions) -> None:
    """The answers of all that asks."""
    without_slurmd = ALL_NODES[len(NODES) : ask.size]
    ask.command("sinfo", "sinfo --Node")
    ask.command("squeue", "squeue --array")
    check_series(ask)
    report = json.loads(ask.command("slurm-report", f"python3 {PLACE}/slurm-report --settings '{{}}'"))
    assert [node["name"] for node in report["nodes"]] == ALL_NODES[: ask.size]
    assert sum(job["array_tasks"] for job in report["jobs"]) == WAITING + LARGE + SMALL
    gpus = json.loads(ask.command("gpus", f"runuser -u alice -- python3 {PLACE}/gpus --json"))
    (gpu_type,) = gpus["types"]
    wanted = {"total": GPUS * ask.size, "used": GPUS * len(NODES), "free": 0, "unavailable": GPUS * len(without_slurmd)}
    assert {name: gpu_type[name] for name in wanted} == wanted
    assert (len(gpus["jobs"]), len(gpus["waiting"])) == (LARGE + SMALL, TOGETHER * HETEROGENEOUS + ARRAYS)
    check_silent(ask, "slurm_doctor_info", dict.fromkeys(without_slurmd, "closed"))
    check_removal(ask)
    check_plan(ask)


def check_silent(ask: Questions, what: str, wanted: dict[str, str]) -> None:
    """Doctor finds the nodes without a slurmd that answers, and how that shows.

    It examines others because of a line in slurmctld's log. On a busy machine a slurmd can need more than doctor's ten
    seconds, so it may ask again.
    """
    for _attempt in range(5):
        doctor = ask.module(what, "slurm_doctor_info")
        nodes = {node["name"]: [how for how in ("closed", "unanswered") if node[how]] for node in doctor["nodes"]}
        found = {name: how[0] for name, how in nodes.items() if how}
        if found == wanted:
            break
    assert found == wanted


def check_series(ask: Questions) -> None:
    """The series about nodes, GPUs and jobs."""
    ask.command("slurm-metrics cluster --all", f"python3 {PLACE}/slurm-metrics cluster --all")
    lines = ask.lab.command(HEAD, f"cat {PLACE}/slurm.prom").splitlines()
    series = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert sum(name.startswith("slurm_node_cpus{") for name in series) == ask.size
    wanted = {
        "slurm_gpus_total": GPUS * ask.size,
        "slurm_gpus_alloc": GPUS * len(NODES),
        "slurm_queue_pending": WAITING,
        "slurm_queue_running": LARGE + SMALL,
    }
    assert {name: float(series[name]) for name in wanted} == wanted


def check_removal(ask: Questions) -> None:
    """Every second node leaves: those with jobs wait for them, and nothing is changed yet."""
    leaving = ALL_NODES[: ask.size : 2]
    result = ask.module("slurm_removal", "slurm_removal", step="begin", nodes=fold(leaving))
    assert (result["changed"], result["over"], result["ready"]) == (False, False, [])
    assert f"next      {fold(leaving)}: drained, so that no new job starts there" in result["table"]
    assert sum(line.startswith("waiting ") for line in result["table"]) == len(NODES) // 2


def check_plan(ask: Questions) -> None:
    """A change of all nodes that ends no job, and one that would end all jobs, which is refused."""
    files = {name: ask.lab.host(HEAD).file(f"/etc/slurm/{name}").content_string for name in FILES}
    weight = {**files, "slurm.conf": files["slurm.conf"].replace(" Gres=", " Weight=5 Gres=")}
    result = ask.module("slurm_config, another weight", "slurm_config", check=True, files=weight)
    assert [(step["what"], step["ends"]) for step in result["plan"]] == [
        (f"NodeName={fold(ALL_NODES[: ask.size])} Weight", [])
    ]
    cores = {**files, "slurm.conf": files["slurm.conf"].replace(" CoresPerSocket=32", " CoresPerSocket=16")}
    result = ask.module("slurm_config, other cores", "slurm_config", check=True, files=cores, end_jobs=True)
    assert len({job for step in result["plan"] for job in step["ends"]}) == LARGE + SMALL


def test_slurmds_that_do_not_answer_are_found(small: Questions) -> None:
    ended, hung = ["th-node0007", "th-node0250"], ["th-node0333", "th-node0499"]
    systemctl(small.lab, "stop", ended)
    systemctl(small.lab, "kill --signal=STOP", hung)
    wanted = {**dict.fromkeys(ended, "closed"), **dict.fromkeys(hung, "unanswered")}
    check_silent(small, "slurm_doctor_info, four without an answer", wanted)
    systemctl(small.lab, "start", ended)
    systemctl(small.lab, "kill --signal=CONT", hung)


def test_a_change_reaches_500_nodes(lab: Lab, tmp_path: Path) -> None:
    """The module waits for them, and jobs go on."""
    (entry,) = lab.cluster["nodes"]
    other = with_cluster(lab, tmp_path, {**lab.cluster, "nodes": [{**entry, "Weight": 5}]})
    assert {*site(other, "site, another weight of 500 nodes with jobs").changed} == {HEAD}
    assert counts(lab) == {"mixed": len(NODES)}
    assert jobs(lab) == {"PENDING": WAITING, "RUNNING": LARGE + SMALL}
    assert {*site(lab, "the same back").changed} == {HEAD}


# -- 2,000 nodes -----------------------------------------------------------------------------------------------------


def test_1500_nodes_more(grown: Lab) -> None:
    site(grown, "site, 1,500 nodes more")
    assert sum(counts(grown).values()) == len(ALL_NODES)
    assert jobs(grown) == {"PENDING": WAITING, "RUNNING": LARGE + SMALL}


def test_questions_to_2000_nodes(large: Questions) -> None:
    check_answers(large)


def test_drains_of_1000_nodes(large: Questions) -> None:
    """In one command, as hostlists without a range; after the deadline all of them return."""
    leaving = ALL_NODES[::2]
    deadline = (datetime.now() + timedelta(seconds=20)).isoformat(timespec="seconds")
    what = "slurm_removal, 1,000 drains"
    result = large.module(what, "slurm_removal", step="next", nodes=fold(leaving), deadline=deadline)
    assert (result["changed"], result["ok"]) == (True, False)
    assert sum(line.startswith("stays ") for line in result["table"]) == len(NODES) // 2
    log = large.lab.command(HEAD, "grep 'reason set to: gpucluster.slurm remove_nodes' /var/log/slurm/slurmctld.log")
    assert [line.split("node ")[1].split()[0] for line in log.splitlines()][-len(leaving) :] == leaving
    assert not {state for state in counts(large.lab) if state.startswith("drain")}


def test_nothing_grows_faster_than_the_nodes(found: Found) -> None:
    """Four times the nodes: as many questions, and at most six times the processor time and the memory.

    Doctor asks for the jobs, and about the ones that have ended, if a node is to be examined.
    """
    both = {what: [*figures.values()] for what, figures in found.items() if len(figures) == 2}
    assert len(both) == 9
    for what, (small, large) in both.items():
        assert sum(large.questions.values()) <= sum(small.questions.values()) + 2, what
        for name in ("processor", "slurmctld_processor", "memory", "slurmctld_memory"):
            before, after = getattr(small, name), getattr(large, name)
            assert after < 6 * before + 0.5, f"{what}: {name} {before} and {after}"
