# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which job uses which GPU, and how much: on nodes whose GPUs are stand-ins (molecule/gpu-use/converge.yml).

Slurm, its cgroups and Prometheus are real. nvidia-smi is a stand-in with known loads. While 500 jobs come and go, those
of the fixture `load` run with these loads, so that the tests are in the order of this file.
"""

from __future__ import annotations

import json
import shlex
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from lab import ROOT, Lab

HEAD, WHOLE, PARTS = "gpu-ctl", "gpu-node1", "gpu-node2"
PROMETHEUS = "http://10.213.7.225:9090"
WATCH = Path(__file__).parent / "watch.py"
LOADS = "/run/nvidia-smi-stand-in-loads"
SMI = "/usr/local/bin/nvidia-smi"
MEASURE = "timeout 60 sh -c 'until slurm-gpu-metrics; do sleep 0.3; done'"
"""Writes the series of a node. The timer can be doing it."""
SCRAPED = 130
"""Seconds until Prometheus has a new value, and its rules have followed."""
LEAST = 200
"""Seconds that the jobs with known loads run at least."""

DEVICES = {
    WHOLE: {str(gpu): f"/dev/nvidia{minor}" for gpu, minor in enumerate((1, 0, 3, 2))},
    PARTS: {
        **{str(gpu): f"/dev/nvidia{minor}" for gpu, minor in enumerate((1, 0))},
        **{f"2.{instance}": f"/dev/nvidia-caps/nvidia-cap{20 + 2 * instance}" for instance in (1, 2)},
        **{f"3.{instance}": f"/dev/nvidia-caps/nvidia-cap{10 + 2 * instance}" for instance in (1, 2)},
    },
}
"""The device file of each GPU and MIG instance (molecule/gpu-use/files/driver.sh)."""

JOB = """#!/bin/bash
# Writes which GPUs this job can open, and keeps them for some seconds. usage: job SECONDS
LC_ALL=C
shopt -s nullglob
file=/run/gpu-truth/$SLURM_JOB_ID
mine=$$
for device in /dev/nvidia[0-9] /dev/nvidia-caps/*; do
    [[ $( { : <"$device"; } 2>&1 ) == *"not permitted"* ]] || mine+=" $device"
done
echo "$mine" >"$file.new" && mv "$file.new" "$file"
trap 'rm -f "$file"; exit' TERM
sleep "$1" & wait $!
rm -f "$file"
"""

XIDS = b"""
import subprocess, time
query = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
with open("/run/test-kmsg", "w") as file:
    for address in subprocess.check_output(query, text=True).split():
        print(f"4,1,{int(time.monotonic() * 1e6)},-;NVRM: Xid (PCI:{address[4:-2]}): 31, pid=1, MMU Fault", file=file)
subprocess.check_call(["mount", "--bind", "/run/test-kmsg", "/dev/kmsg"])
"""
"""The kernel's messages, for which a file stands in: each GPU has an error, also those that no job has."""

KINDS = (
    # Partition, generic resources, jobs, tasks of an array.
    ("all", "gpu:h100:1", 60, 1),
    ("all", "gpu:h100:1", 20, 10),
    ("all", "gpu:h100:2", 10, 1),
    ("all", "shard:1", 90, 1),
    ("all", "shard:1", 60, 20),
    ("all", "shard:2", 40, 1),
    ("instances", "gpu:a100_1g:1", 140, 1),
    ("instances", "gpu:a100_1g:1", 60, 20),
    ("instances", "gpu:a100_1g:2", 20, 1),
)
NUMBER = 500


def ask(expression: str) -> list[dict[str, Any]]:
    """The series of an expression that Prometheus has now."""
    query = urllib.parse.urlencode({"query": expression})
    with urlopen(f"{PROMETHEUS}/api/v1/query?{query}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def values(expression: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of an expression by some labels."""
    return {tuple(one["metric"].get(label, "") for label in labels): float(one["value"][1]) for one in ask(expression)}


def wait_for(condition: Callable[[], bool], seconds: int = SCRAPED) -> None:
    """Return when a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s"
        time.sleep(2)


def wait_for_progress(number: Callable[[], int], goal: int, seconds: int = 300) -> None:
    """Return when a number has fallen to a goal. It may take any time, as on a busy machine, but no step may."""
    least, until = number(), time.monotonic() + seconds
    while least > goal:
        time.sleep(2)
        now = number()
        if now < least:
            least, until = now, time.monotonic() + seconds
        assert time.monotonic() < until, f"{least} are left, as {seconds} s before"


def submit(lab: Lab, user: str, options: str, command: str) -> str:
    """Submit a job of a user, and return its number."""
    job = f"sbatch --parsable --output=/dev/null --chdir=/ --mem=30 {options} {command}"
    return str(lab.command(HEAD, f"runuser -u {user} -- {job}"))


@dataclass
class Load:
    """The jobs with known loads, by number."""

    busy: str
    """Of bob, with one GPU that is in use for 80 % of the time."""
    half: str
    """Of alice, with a GPU that is in use for 60 % of the time, and one on which there is no process."""
    began: float
    earlier: dict[tuple[str, str], dict[str, Any]]
    """The report of before."""


def report(lab: Lab) -> dict[str, Any]:
    """GPU hours of today and yesterday, since tests can run at midnight."""
    days = "--from $(date -d yesterday +%F) --to $(date +%F)"
    text = lab.command(HEAD, f"slurm-gpu-hours report {days} --by user,account,partition --json")
    found: dict[str, Any] = json.loads(text)
    return found


def rows_of(hours: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """GPU hours in the partition of the known loads, by user and account."""
    rows = [row for row in hours["rows"] if row["partition"] == "measured" and row["user"] != "root"]
    return {(row["user"], row["account"]): row for row in rows}


@pytest.fixture(scope="module", name="load")
def known_loads(lab: Lab) -> Iterator[Load]:
    """Jobs that run for some minutes. All GPUs of the first node have one load, so that it does not matter which GPU a
    job has."""
    lab.command(WHOLE, f"for gpu in 0 1 2 3; do echo $gpu 80 2; done >{LOADS}")
    lab.command(PARTS, f"echo 0 60 1 >{LOADS}")
    for host in (WHOLE, PARTS):
        lab.command(host, "mkdir -p -m 1777 /run/gpu-truth")
    lab.script(HEAD, "cat >/usr/local/bin/gpu-job && chmod 0755 /usr/local/bin/gpu-job", JOB.encode())
    # Both write when they begin and end by the clock of the node.
    now = "date +%s >>/home/known/$SLURM_JOB_ID"
    wrap = shlex.quote(f"{now}; while ! test -e /home/known/end; do sleep 1; done; {now}")
    lab.command(HEAD, "rm -rf /home/known; mkdir -m 1777 /home/known")
    earlier = rows_of(report(lab))
    load = Load(
        submit(lab, "bob", "-p measured --gres=gpu:h100:1", f"--wrap={wrap}"),
        submit(lab, "alice", "-p measured --gres=gpu:a100:2", f"--wrap={wrap}"),
        time.monotonic(),
        earlier,
    )
    for job in (load.busy, load.half):
        lab.wait_for(HEAD, f"squeue -h -j {job} -o %T", "RUNNING")
    lab.script(WHOLE, "python3 -", XIDS)
    yield load
    lab.command(WHOLE, "umount /dev/kmsg")
    lab.command(HEAD, f"scancel {load.busy} {load.half}; rm -rf /home/known")
    for host in (WHOLE, PARTS):
        lab.command(host, f"rm -rf {LOADS} /run/gpu-truth")


def start_watches(lab: Lab) -> None:
    """Start watch.py on the nodes."""
    for seed, node in enumerate((WHOLE, PARTS)):
        lab.script(node, "mkdir -p /run/gpu-watch && cat >/run/gpu-watch/watch.py", WATCH.read_bytes())
        gpus = " ".join(f"{gpu}={device}" for gpu, device in DEVICES[node].items())
        command = f"python3 /run/gpu-watch/watch.py {node} {seed} {gpus} >/run/gpu-watch/result 2>&1"
        lab.command(node, f"systemd-run --quiet --unit=gpu-watch sh -c {shlex.quote(command)}")


def results(lab: Lab) -> dict[str, dict[str, Any]]:
    """What the watches have found. They end."""
    found = {}
    for node in (WHOLE, PARTS):
        lab.command(node, "touch /run/gpu-watch/calm /run/gpu-watch/stop")
        lab.wait_for(node, "systemctl is-active gpu-watch || true", "inactive", 60)
        output = lab.command(node, "cat /run/gpu-watch/result; rm -r /run/gpu-watch")
        found[node] = json.loads(output.splitlines()[-1])
    return found


def left(lab: Lab) -> int:
    """The jobs without known loads that have not ended."""
    return int(lab.command(HEAD, "squeue -h -r -p all,instances -o %A | wc -l"))


def test_no_job_is_given_the_gpu_of_another_one(lab: Lab, load: Load) -> None:
    """500 jobs with GPUs, shards, MIG instances and arrays, some of which are cancelled, requeued and killed.

    The truth is what each job has written from the devices that it could open.
    """
    assert sum(number for _partition, _gres, number, _tasks in KINDS) == NUMBER
    start_watches(lab)
    try:
        lines = []
        for partition, gres, number, tasks in KINDS:
            array = f"--array=1-{tasks}" if tasks > 1 else ""
            options = f"-p {partition} --gres={gres} --mem=30 --time=2 --requeue --output=/dev/null --chdir=/ {array}"
            command = f"sbatch {options} /usr/local/bin/gpu-job $((3 + number % 2))"
            lines.append(
                f"number=0; while [ $number -lt {number // tasks} ]; do number=$((number + 1)); {command}; done"
            )
        both = " &\n".join(f"({line})" for line in lines)
        lab.command(HEAD, f"runuser -u alice -- sh -c {shlex.quote(both + ' & wait')} >/dev/null")
        wait_for_progress(lambda: left(lab), NUMBER // 2 - 1)
        for node in (WHOLE, PARTS):
            lab.command(node, "touch /run/gpu-watch/calm")
        # A requeued job waits for two minutes.
        wait_for_progress(lambda: left(lab), 0)
    finally:
        lab.command(HEAD, "scancel -p all; scancel -p instances")
        found = results(lab)
        # Also after a failure, so that the next tests see their own jobs alone.
        lab.wait_for(HEAD, "squeue -h -p all,instances | wc -l", "0")
    print(json.dumps(found, indent=1))
    for node, result in found.items():
        assert result["wrong"] == [], node
    total = sum((Counter(result["counts"]) for result in found.values()), Counter())
    # That it was compared, and disturbed.
    assert total["series_compared"] > 100
    assert total["map_compared"] > 100
    for kind in ("cancelled", "requeued", "slurmstepd_killed", "slurm-prolog_killed", "slurm-epilog_killed"):
        assert total[kind] > 0, kind
    jobs = {WHOLE: load.busy, PARTS: load.half}
    for node, job in jobs.items():
        lab.command(node, MEASURE)
        left_over = lab.command(node, "sort -u /run/gpucluster-slurm/gpu-jobs/*").split()
        assert left_over == [job]


def test_series_have_the_load_and_the_job(lab: Lab, load: Load) -> None:
    """Also those of a GPU that is allocated, and on which there is no process."""
    job = f'slurmjobid=~"{load.busy}|{load.half}"'
    labels = ("slurmjobid", "user", "account", "partition", "shared")
    wait_for(lambda: len(values(f"slurm_job_utilization_gpu{{{job}}}", "instance", "gpu")) == 3)
    found = values(f"sum by ({','.join(labels)}) (slurm_job_utilization_gpu{{{job}}})", *labels)
    assert found == {
        (load.busy, "bob", "biology", "measured", "0"): 80,
        (load.half, "alice", "physics", "measured", "0"): 60,
    }
    of_alice = values(f'slurm_job_utilization_gpu{{slurmjobid="{load.half}"}}', "gpu")
    assert of_alice == {("0",): 60, ("1",): 0}
    idle = "gpucluster_gpu_allocated == 1 and on (instance, gpu) gpucluster_gpu_processes == 0"
    wait_for(lambda: [one["metric"]["gpu"] for one in ask(idle)] == ["1"])
    seconds = {
        kind: values(f"gpucluster_job_gpu_{kind}_seconds_total{{{job}}}", "slurmjobid", "gpu")
        for kind in ("busy", "measured")
    }
    shares = {place: seconds["busy"][place] / seconds["measured"][place] for place in seconds["measured"]}
    # Seconds have three decimals.
    assert sorted(shares.values()) == [0, pytest.approx(0.6, abs=1e-4), pytest.approx(0.8, abs=1e-4)]
    own = f'slurmjobid="{load.half}"'
    assert values(f"slurm_job_power_gpu{{{own}}}", "gpu") == {("0",): 438220, ("1",): 78220}
    assert values(f"slurm_job_memory_usage_gpu{{{own}}}", "gpu") == {("0",): 500 * 1024**2, ("1",): 0}
    seen = json.loads(lab.command(HEAD, "runuser -u alice -- gpus --json"))["jobs"]
    assert {(job["job"], gpu["type"]): gpu["count"] for job in seen for gpu in job["gpus"]} == {
        (load.busy, "h100"): 1,
        (load.half, "a100"): 2,
    }
    assert lab.command(HEAD, f"squeue -h -j {load.half} -o %T") == "RUNNING"


def test_gpu_hours_are_right(lab: Lab, load: Load) -> None:
    """Within 2 % of what the jobs have written, and of the loads."""
    time.sleep(max(0, load.began + LEAST - time.monotonic()))
    lab.command(HEAD, "touch /home/known/end")
    for job in (load.busy, load.half):
        lab.wait_for(HEAD, f"sacct -n -X -j {job} -o State", "COMPLETED", 60)
    expected = {}
    for user, job, gpus, share in (("bob", load.busy, 1, 0.8), ("alice", load.half, 2, 0.3)):
        first, last = map(int, lab.command(HEAD, f"cat /home/known/{job}").split())
        expected[user] = (gpus * (last - first) / 3600, share)
    assert report(lab)["jobs_with_parts"] > 0
    rows = rows_of(report(lab))
    assert {*rows} == {("alice", "physics"), ("bob", "biology")}
    for key, row in rows.items():
        hours, share = expected[key[0]]
        # Earlier jobs on these hosts had the same loads.
        earlier = load.earlier[key]["allocated_hours"] if key in load.earlier else 0
        print(row, earlier, hours, share)
        assert row["allocated_hours"] - earlier == pytest.approx(hours, rel=0.02)
        measured = row["allocated_hours"] - row["unmeasured_hours"]
        assert row["used_hours"] == pytest.approx(measured * share, rel=0.02)
        # A job can have been scraped before its first sample.
        assert row["unmeasured_hours"] <= 0.25 * row["allocated_hours"]


def test_the_line_of_a_job(lab: Lab, load: Load) -> None:
    """The timer writes it, and jobstats shows it."""
    line = f"sacct -n -X -P -j {load.half} -o AdminComment"
    said = lab.wait_for(HEAD, line, "gpus: ", 300)
    print(said)
    assert said.startswith("gpus: used 30 % of ")
    assert " on 2 GPUs (NVIDIA A100-SXM4-40GB), memory 0 of 80 GiB" in said
    jobstats = "runuser -u alice -- jobstats"
    shown = lab.command(HEAD, f"{jobstats} {load.half}")
    assert said.removeprefix("gpus: ") in shown
    assert "errors" not in said
    lab.wait_for(HEAD, f"sacct -n -X -P -j {load.busy} -o AdminComment", "errors of the GPUs: Xid 31 (", 60)
    answer = json.loads(lab.command(HEAD, f"{jobstats} --json {load.half}"))
    assert said.removeprefix("gpus: ") in json.dumps(answer)


@pytest.fixture(name="hanging")
def an_nvidia_smi_that_hangs(lab: Lab) -> Iterator[str]:
    """The stand-in of the first node hangs: it can be killed, until /run/unkillable exists."""
    freezer = "/sys/fs/cgroup/freezer/stand-in"
    text = f"""#!/bin/sh
test ! -e /run/unkillable || {{ echo $$ >{freezer}/tasks; echo FROZEN >{freezer}/freezer.state; }}
sleep 1000
"""
    lab.command(WHOLE, f"cp -p {SMI} {SMI}.kept")
    lab.script(WHOLE, f"cat >{SMI}", text.encode())
    yield freezer
    lab.command(WHOLE, f"rm -f /run/unkillable; mv {SMI}.kept {SMI}")
    lab.host(WHOLE).run(f"echo THAWED >{freezer}/freezer.state; sleep 1; rmdir {freezer}")
    lab.command(WHOLE, MEASURE)


def failing() -> bool:
    """Whether the expression of the alert has the node."""
    rules = yaml.safe_load((ROOT / "roles/slurm_metrics/files/rules/alerts.yml").read_text())
    (expression,) = (
        rule["expr"]
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "GpuclusterGpuQueryFails"
    )
    return any(one["metric"]["instance"].startswith((WHOLE, "10.213.7.226")) for one in ask(expression))


def count_smis(lab: Lab) -> int:
    """The processes of nvidia-smi on the first node that the program has left. Health checks have others."""
    # A call has ten seconds.
    return int(lab.command(WHOLE, f"sleep 12; pgrep --older 11 -c -f '^/bin/sh {SMI} --query-gpu=index' || true"))


def failures(lab: Lab) -> dict[str, float]:
    """The failed calls that the program has counted, and whether one hangs."""
    text = lab.command(WHOLE, "grep ^gpucluster_gpu_query_ /var/lib/prometheus/node-exporter/gpu.prom")
    return {name: float(number) for name, number in (line.rsplit(" ", 1) for line in text.splitlines())}


def test_an_nvidia_smi_that_hangs_is_given_up_on(lab: Lab, hanging: str) -> None:
    """One that can be killed is killed and counted. Of those that cannot, there is never a second one."""
    counter = 'gpucluster_gpu_query_failures_total{query="gpu"}'
    before = failures(lab)[counter]
    for _run in range(6):
        lab.command(WHOLE, MEASURE)
    after = failures(lab)
    assert after[counter] >= before + 6
    assert after["gpucluster_gpu_query_hanging"] == 0
    assert count_smis(lab) == 0
    wait_for(failing, 2 * SCRAPED)
    if lab.host(WHOLE).run(f"mkdir {hanging}").rc:
        pytest.skip("without the freezer of cgroup v1, no process can be made that cannot be killed")
    lab.command(WHOLE, f"touch /run/unkillable; {MEASURE}")
    assert failures(lab)["gpucluster_gpu_query_hanging"] == 1
    for _run in range(5):
        lab.command(WHOLE, MEASURE)
    assert count_smis(lab) == 1
    wait_for(lambda: any(value for value in values("gpucluster_gpu_query_hanging", "instance").values()))
    assert failing()
    # When it has ended, nvidia-smi is asked again.
    lab.command(WHOLE, f"rm /run/unkillable; echo THAWED >{hanging}/freezer.state")
    lab.command(WHOLE, f"mv {SMI} {SMI}.hangs; cp -p {SMI}.kept {SMI}; rm {SMI}.hangs; sleep 1")
    lab.command(WHOLE, MEASURE)
    assert failures(lab)["gpucluster_gpu_query_hanging"] == 0
