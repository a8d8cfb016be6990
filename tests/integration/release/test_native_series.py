# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of `slurm-metrics cluster --all` on this release of Slurm, against what Slurm's commands say, and against
slurmctld's own series where it has them.

The program runs with settings, a lock and a directory of this test, also where the cluster has the key `monitoring`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from lab import ROOT, Lab
from sent_programs import sent_metrics

PROMETHEUS = ROOT / "roles/slurm_metrics/templates/prometheus.yml.j2"
PLACE = "/run/test-native-series"
FETCH = """
import urllib.request
for path in ("jobs", "nodes", "partitions", "scheduler", "jobs-users-accts"):
    print(urllib.request.urlopen(f"http://localhost:6817/metrics/{path}", timeout=20).read().decode())
"""

Values = dict[str, float]

OWN = (
    r"slurm_(controller_|ping_|dbd_agent_|metrics_|node_drain_since_|node_not_|last_job_start_|queue_|scheduler_|cpus_)"
    r"|slurm_(partition_)?jobs_could_start|slurm_gpus_|slurm_partition_nodes_shown_idle"
    r"|slurm_nodes_(alloc|comp|down|drain|err|fail|idle|maint|mix|resv)$"
)
"""Series that slurmctld has not, or not with this meaning."""

MOVING = {"slurm_server_thread_cnt"}
"""Values that the question itself changes."""

USERS = re.compile(r"slurm_(user|account)_jobs(|_pending|_running|_suspended|_cpus_alloc|_memory_alloc|_gpus_alloc)\{")


@pytest.fixture(scope="module", name="head")
def controller(lab: Lab) -> Iterator[str]:
    """The controller, with the program, and with series of slurmctld itself."""
    host = lab.controller
    name = host.partition(".")[0]
    state = lab.command(host, "scontrol show config | sed -n 's/^StateSaveLocation *= //p'")
    settings = {"controllers": [name], "state_directory": state, "all": False, "users_and_accounts": True}
    lab.script(host, f"mkdir -p {PLACE}; cat >{PLACE}/program", sent_metrics(PLACE))
    lab.script(host, f"cat >{PLACE}/metrics.json", json.dumps(settings).encode())
    with lab.configuration_kept():
        if has_series(lab):
            lab.command(host, "echo MetricsType=metrics/openmetrics >>/etc/slurm/slurm.conf")
            lab.command(host, "systemctl restart slurmctld")
            for node in lab.nodes:
                lab.wait_until_idle(host, node)
        yield host
    lab.command(host, f"rm -r {PLACE}")


def has_series(lab: Lab) -> bool:
    """Whether slurmctld of this release has series itself."""
    return bool(lab.release > "25.11")


@pytest.fixture(scope="module", name="load")
def jobs_and_a_drained_node(lab: Lab, head: str) -> Iterator[str]:
    """Jobs that run, wait, are held and have ended, and a node that is drained under a job; its name."""
    node = lab.nodes[-1]
    batch = "sbatch --parsable --output=/dev/null --mem=100"
    gpus = "--gres=gpu:1 " if "gpu" in lab.command(head, f"sinfo -hn {node} -o %G") else ""
    jobs = [
        lab.command(head, f"{batch} -n1 {gpus}-w {node} --wrap 'sleep 900'"),
        lab.command(head, f"{batch} -n2 -w {head} --wrap 'sleep 900'"),
    ]
    for job in jobs:
        lab.wait_for(head, f"squeue -h -j {job} -o %T", "RUNNING")
    jobs += [
        lab.command(head, f"{batch} -n2 -w {head} --array=1-30 --wrap true"),
        lab.command(head, f"{batch} --hold --array=1-7:2,20%2 --wrap true"),
        lab.command(head, f"{batch} -n2 -w {head} --begin=now+2hours --wrap true"),
    ]
    lab.command(head, f"scontrol update nodename={node} state=drain reason='he said \"no\" \\ State=IDLE'")
    try:
        # Prolog and epilog are over, and nothing starts any more.
        lab.wait_for(head, "squeue -h --states=CF,CG | wc -l", "0")
        lab.wait_for(head, f"squeue -h -j {jobs[2]} -o %r", "Resources")
        yield node
    finally:
        lab.host(head).run(f"scancel {' '.join(jobs)}; scontrol update nodename={node} state=resume")


def run(lab: Lab, head: str, *arguments: str) -> Values:
    """The series that the program writes."""
    lab.command(head, f"python3 {PLACE}/program cluster {' '.join(arguments)}")
    return parse(lab.command(head, f"cat {PLACE}/slurm.prom"))


def parse(text: str) -> Values:
    """Values by name and labels."""
    rows = (line.rpartition(" ") for line in text.split("\n") if line and not line.startswith("#"))
    return {name: float(value) for name, _space, value in rows}


def of_slurmctld(lab: Lab, head: str) -> Values:
    """The series on the pages of slurmctld itself."""
    return parse(lab.script(head, "python3 -", FETCH.encode()).decode())


def count(lab: Lab, head: str, command: str) -> int:
    """The number of lines of a command."""
    return int(lab.command(head, f"{command} | wc -l"))


def test_series_are_what_the_commands_say(lab: Lab, head: str, load: str) -> None:
    found = run(lab, head, "--all")
    assert found["slurm_metrics_cluster_success"] == 1
    assert found[f'slurm_controller_serving{{controller="{head.partition(".")[0]}",place="0"}}'] == 1
    assert found["slurm_jobs_pending"] == count(lab, head, "squeue -har --states=pending")
    for state in ("running", "completed", "failed", "cancelled"):
        assert found[f"slurm_jobs_{state}"] == count(lab, head, f"squeue -ha --states={state}"), state
    assert found["slurm_jobs_pending"] >= 36
    assert found["slurm_jobs_hold"] == 5
    assert found["slurm_jobs_could_start"] == 30
    assert found["slurm_nodes"] == count(lab, head, "sinfo -hN -o %N | sort -u")
    assert found["slurm_nodes_draining"] == count(lab, head, "sinfo -hN -o %N --states=draining | sort -u") == 1
    allocated = lab.command(head, f"sinfo -hn {load} -O CPUsState:30").partition("/")[0]
    assert found[f'slurm_node_cpus_alloc{{node="{load}"}}'] == int(allocated)
    since = lab.command(head, f"SLURM_TIME_FORMAT=%s sinfo -hn {load} -o %H")
    assert found[f'slurm_node_drain_since_seconds{{node="{load}",cause="person"}}'] == int(since)
    start = lab.command(head, "SLURM_TIME_FORMAT=%s squeue -h --states=R,CD,F -o %S | sort -n | tail -1")
    assert found["slurm_last_job_start_seconds"] == int(start)
    limit = lab.command(head, "scontrol show config | sed -n 's/^MaxDBDMsgs *= //p'")
    assert found["slurm_dbd_agent_queue_limit"] == int(limit)


def test_promtool_reads_the_file(lab: Lab, head: str, load: str) -> None:
    """The reason of the drained node has quotes and a backslash."""
    run(lab, head, "--all")
    text = lab.command(head, f"cat {PLACE}/slurm.prom")
    assert load in text
    check = subprocess.run(
        ["promtool", "check", "metrics"], input=f"{text}\n", text=True, capture_output=True, check=False
    )
    # It also finds names that do not follow Prometheus' advice, such as Slurm's: status 3.
    assert check.returncode in (0, 3), check.stderr
    assert lab.command(head, f"stat -c %a {PLACE}/slurm.prom") == "644"


def test_slurmctld_itself_has_the_same_series(lab: Lab, head: str, load: str) -> None:
    if not has_series(lab):
        pytest.skip("slurmctld of this release has no series")
    own, native = run(lab, head, "--all"), of_slurmctld(lab, head)
    assert own[f'slurm_node_cpus_alloc{{node="{load}"}}'] == 1
    both = {name for name in own if not re.match(OWN, name)} - MOVING
    assert both - set(native) == set()
    assert {name: (own[name], native[name]) for name in both if own[name] != native[name]} == {}
    assert {name for name in native if USERS.match(name)} == {name for name in own if USERS.match(name)}
    assert len(both) > 150


def test_only_what_slurmctld_has_not(lab: Lab, head: str) -> None:
    """Without --all, and GPUs before 26.05."""
    found = {name.partition("{")[0] for name in run(lab, head) if not USERS.match(name)}
    gpus = {name for name in found if "gpus" in name and not name.startswith("slurm_gpus_")}
    assert all(re.match(OWN, name) for name in found - gpus)
    assert bool(gpus) == (lab.release < "26.05")


def test_prometheus_takes_each_name_from_one_of_them(lab: Lab, head: str) -> None:
    """What both have is what it drops of slurmctld's. It does not read the page of users and accounts."""
    if not has_series(lab):
        pytest.skip("slurmctld of this release has no series")
    (dropped,) = re.findall(r"regex: (\S+), action: drop", PROMETHEUS.read_text())
    own, native = (
        {name.partition("{")[0] for name in found if not USERS.match(name)}
        for found in (run(lab, head), of_slurmctld(lab, head))
    )
    assert own & native == {name for name in native if re.fullmatch(dropped, name)} != set()


def test_a_slurmctld_that_hangs(lab: Lab, head: str) -> None:
    """The file has no old values."""
    lab.command(head, "kill -STOP $(pidof slurmctld)")
    try:
        result = lab.host(head).run(f"timeout 60 python3 {PLACE}/program cluster --all")
        found = parse(lab.command(head, f"cat {PLACE}/slurm.prom"))
    finally:
        lab.command(head, "kill -CONT $(pidof slurmctld)")
    assert result.rc == 1
    assert {name.partition("{")[0]: value for name, value in found.items() if "seconds" not in name} == {
        "slurm_controller_serving": 0,
        "slurm_metrics_cluster_success": 0,
    }
