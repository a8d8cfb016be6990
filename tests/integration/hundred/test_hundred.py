# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook on a hundred hosts, with faults, dead and slow hosts, and under a stream of jobs.

The tests run in this order. Device files stand in for GPUs and MIG instances.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand, fold
from lab import ROOT, Lab, container, podman
from measured import changed, content, measured
from security_updates import LEDGER, check_ledger

CONTROLLERS, LOGIN = ("big-ctl1", "big-ctl2"), "big-login"
CONTROLLER = CONTROLLERS[0]
ADDED = {"hosts": "big-cpu[39-48]", "hardware": "cpu", "address": "10.213.6.[139-148]"}
WITHOUT_JOBS = "--skip-tags=validate"
MIG = expand("big-gpu[29-32]")
DRIVER = ROOT / "molecule/gpu-use/files/driver.sh"
NVIDIA_SMI = ROOT / "tests/integration/stand_in/nvidia_smi.py"

FAULTS = {
    "big-cpu01": ("systemctl stop slurmd", "systemctl start slurmd", "slurmd-stopped"),
    "big-cpu02": ("systemctl disable --quiet --now slurmd", "systemctl enable --quiet --now slurmd", "slurmd-stopped"),
    "big-cpu03": ("systemctl stop munge", "systemctl start munge; systemctl restart slurmd", "munged"),
    "big-cpu04": (
        "cp -p /etc/munge/munge.key /root; head -c 1024 /dev/urandom >/etc/munge/munge.key; systemctl restart munge",
        "cp -p /root/munge.key /etc/munge/munge.key; systemctl restart munge; systemctl restart slurmd",
        "munge-key",
    ),
    "big-cpu05": (
        "systemctl stop slurmd; systemd-run --quiet --unit=taker python3 -m http.server 6818; sleep 1;"
        "systemctl start slurmd --no-block",
        "systemctl stop taker; systemctl restart slurmd",
        "slurmd-port-taken",
    ),
    "big-cpu06": (
        "hostname another-name; systemctl restart slurmd --no-block",
        "hostname big-cpu06; systemctl restart slurmd",
        "slurmd-host-name",
    ),
    "big-cpu07": ("systemctl kill --signal=STOP slurmd", "systemctl kill --signal=CONT slurmd", "silent"),
    "big-gpu01": (
        "mv /dev/nvidia1 /dev/lost; systemctl restart slurmd --no-block",
        "mv /dev/lost /dev/nvidia1; systemctl restart slurmd",
        "gpu-files",
    ),
}
"""By node: commands that break it and that mend it, and the cause that doctor has to find."""

DRAINS = {
    "big-fat01": ("root", "bad DIMM", "person"),
    "big-fat02": ("slurm", "Kill task failed", "kill-task-failed"),
    "big-fat03": ("slurm", "batch job complete failure", "batch-failure"),
    "big-fat04": ("root", "health check gpu: missing", "health-check"),
}
"""By node: who drains it, with which reason, and the cause that doctor has to find."""

SLOW = "#!/bin/sh\nsleep 2\n"
"""sshd runs it before each command (sshd(8), /etc/ssh/sshrc)."""

SILENT = "big-fat16"
DEAD, SLOW_HOSTS = expand("big-cpu[11-15]"), expand("big-gpu[05-24]")

MARK = """---
- name: Leave a mark
  ansible.builtin.shell: date +%s >>/root/rolled
  changed_when: true
"""

STREAM = f"""
while test -e /run/stream; do
  timeout 60 sbatch --parsable -D / -o /dev/null --time=2 \\
    --wrap 'echo "start $SLURM_JOB_ID" >>{LEDGER}; sleep 2; echo "end $SLURM_JOB_ID" >>{LEDGER}'
  sleep 2
done >/root/jobs
""".encode()


def reason(lab: Lab, node: str) -> str:
    return str(lab.command(LOGIN, f"timeout 60 scontrol show node {node} | sed -n 's/.*Reason=//p'"))


def all_are_idle(lab: Lab) -> None:
    lab.wait_for(LOGIN, "timeout 60 sinfo -h -p all -o %T=%D | xargs", "idle=86", 120)


def run_on_all(lab: Lab) -> None:
    """A job of all nodes."""
    assert lab.command(LOGIN, "timeout 300 srun --nodes=86 hostname | sort -u | wc -l") == "86"


@pytest.fixture(scope="module", autouse=True)
def _mig(lab: Lab) -> None:
    """Stand-ins for the MIG instances of some nodes, as their driver shows them."""
    for node in MIG:
        lab.script(node, "cat >/usr/local/lib/nvidia_smi.py", NVIDIA_SMI.read_bytes())
        lab.script(node, "sh -s mig", DRIVER.read_bytes())


@pytest.fixture(scope="module", name="grown")
def lab_with_ten_more(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with ten more nodes."""
    return changed(lab, tmp_path_factory.mktemp("grown"), nodes=[*lab.cluster["nodes"], ADDED])


@pytest.fixture(scope="module", name="whole")
def lab_with_all_keys(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with another person, the page, monitoring and backups."""
    return changed(
        lab,
        tmp_path_factory.mktemp("whole"),
        users=[{"name": "kim", "uid": 7001, "account": "science"}],
        report=LOGIN,
        monitoring={"host": "big-db", "readers": ["10.213.7.1"]},
        backup={"target": "/home/big-backup"},
    )


@contextmanager
def stream(lab: Lab) -> Iterator[None]:
    """Submit a short job every two seconds. At the end, each of them has begun once and has ended once."""
    start = f"rm -f {LEDGER}; touch /run/stream; cat >/root/stream; systemd-run --unit=stream sh /root/stream"
    lab.script(LOGIN, start, STREAM)
    yield
    lab.command(LOGIN, "rm /run/stream")
    lab.wait_for(LOGIN, "systemctl is-active stream", "inactive", 90)
    lab.wait_for(LOGIN, "timeout 60 squeue -h -o %i | wc -l | sed 's/.*/=&=/'", "=0=", 300)
    jobs = lab.command(LOGIN, "cat /root/jobs").split()
    assert len(jobs) > 10
    check_ledger(lab, LOGIN, jobs)
    print(f"measured: {len(jobs)} jobs, each has begun once and has ended once")


def test_a_hundred_hosts_become_a_cluster(lab: Lab) -> None:
    measured(lab, "site on 90 hosts, packages in the image", "site", WITHOUT_JOBS).succeeded()
    run_on_all(lab)
    assert lab.command(LOGIN, "timeout 60 srun -w big-gpu29 --gres=gpu:a100_1g:4 true && echo ran") == "ran"


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    run = measured(lab, "site again, nothing to do", "site", WITHOUT_JOBS)
    run.succeeded()
    assert run.changed == set()


def test_the_check_of_a_value(lab: Lab, tmp_path: Path) -> None:
    other = changed(lab, tmp_path, slurm_conf={**lab.cluster["slurm_conf"], "KillWait": 45})
    run = measured(other, "site --check --diff, a value of slurm.conf", "site", WITHOUT_JOBS, "--check", "--diff")
    run.succeeded()
    assert run.changed == {*CONTROLLERS}
    assert "KillWait=45" in run.output


def test_ten_nodes_join_and_leave(grown: Lab) -> None:
    measured(grown, "site, ten more nodes", "site", WITHOUT_JOBS).succeeded()
    assert "big-cpu48" in grown.command(LOGIN, "timeout 60 sinfo -h -N -o %N")
    names = "remove_nodes=big-cpu[39-48]"
    measured(grown, "remove_nodes of ten", "remove_nodes", "-e", names, "-e", "remove_nodes_write=true").succeeded()
    assert "big-cpu48" not in grown.command(LOGIN, "timeout 60 sinfo -h -N -o %N")
    assert "big-cpu48" not in str(content(grown)["nodes"])


def test_doctor_of_a_healthy_cluster(lab: Lab) -> None:
    run = measured(lab, "doctor, healthy cluster", "doctor")
    run.succeeded()
    assert run.changed == set()
    assert run.artifacts["slurm_doctor"]["findings"] == []


def test_doctor_finds_twelve_faults_at_once(lab: Lab, tmp_path: Path) -> None:
    for node, (broken, _mended, _cause) in FAULTS.items():
        lab.command(node, f"{{ {broken}; }} >/dev/null")
    for node, (user, text, _cause) in DRAINS.items():
        drain = f"scontrol update NodeName={node} State=DRAIN Reason='{text}'"
        lab.command(CONTROLLER, f"timeout 60 runuser -u {user} -- {drain}")
    run = measured(lab, "doctor, twelve faults", "doctor", "-e", f"doctor_report={tmp_path}/report.json")
    found: dict[str, set[str]] = {}
    for finding in json.loads((tmp_path / "report.json").read_text())["findings"]:
        for host in expand(finding["hosts"]):
            found.setdefault(host, set()).add(finding["cause"])
    for node, (_broken, mended, _cause) in FAULTS.items():
        lab.command(node, f"{{ {mended}; }} >/dev/null")
    for node in DRAINS:
        lab.command(CONTROLLER, f"timeout 60 scontrol update NodeName={node} State=RESUME")
    lab.command(CONTROLLER, f"timeout 60 scontrol update NodeName={fold([*FAULTS])} State=RESUME; true")
    run.succeeded()
    wanted = {node: cause for node, (*_rest, cause) in {**FAULTS, **DRAINS}.items()}
    assert found.keys() == wanted.keys()
    assert {node: cause for node, cause in wanted.items() if cause not in found[node]} == {}
    all_are_idle(lab)


def test_dead_slow_and_silent_hosts_hold_nobody_up(lab: Lab, whole: Lab) -> None:
    podman("stop", "--time=0", *map(container, DEAD))
    for host in SLOW_HOSTS:
        lab.script(host, "cat >/etc/ssh/sshrc", SLOW.encode())
    run = measured(
        whole,
        "site with all keys: 5 hosts dead, 20 slow, one goes silent",
        "site",
        WITHOUT_JOBS,
        when={"people": lambda: podman("pause", container(SILENT))},
    )
    podman("unpause", container(SILENT))
    podman("start", *map(container, DEAD))
    assert run.lost == {*DEAD, SILENT}
    for host in SLOW_HOSTS:
        lab.command(host, "rm /etc/ssh/sshrc")
    for host in {*whole.hosts} - {*DEAD, SILENT}:
        assert lab.command(host, "id -u kim") == "7001"
    measured(whole, "site, the six hosts are back", "site", WITHOUT_JOBS).succeeded()
    run = measured(whole, "site again, all keys, nothing to do", "site", WITHOUT_JOBS)
    run.succeeded()
    assert run.changed == set()
    all_are_idle(lab)


def hosts_with_metrics() -> int:
    """How many hosts Prometheus reaches."""
    query = urlencode({"query": 'count(up{job="node"} == 1)'})
    with urlopen(f"http://10.213.6.13:9090/api/v1/query?{query}", timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def test_the_page_the_metrics_and_a_backup(whole: Lab) -> None:
    measured(whole, "report", "report").succeeded()
    assert "big-gpu32" in (whole.inventory.parent / "report/hundred/index.html").read_text()
    until = time.monotonic() + 180
    while (count := hosts_with_metrics()) != 90:
        assert time.monotonic() < until, f"Prometheus reaches {count} hosts"
        time.sleep(5)
    run = measured(whole, "backup", "backup")
    run.succeeded()
    assert {result["host"] for result in run.artifacts["slurm_backup"]} == {*CONTROLLERS, "big-db"}


def test_acceptance_of_sixteen_nodes(whole: Lab) -> None:
    nodes = expand("big-fat[01-16]")
    limit = f"--limit={','.join((CONTROLLER, *nodes))}"
    run = measured(whole, "accept of 16 nodes, level quick", "accept", limit, "-e", "accept_level=quick")
    found = json.loads((whole.inventory.parent / "report/hundred/acceptance.json").read_text())
    # All nodes share two processors, so that some are much slower than others: those are named.
    assert found["errors"] == [], run.output[-3000:]
    assert found["measured"] == nodes
    all_are_idle(whole)


def test_no_job_is_lost(whole: Lab, tmp_path: Path) -> None:
    """Under another munge key, a rolling change of all nodes, and Slurm 26.05."""
    (tmp_path / "tasks.yml").write_text(MARK)
    with stream(whole):
        measured(whole, "rotate_keys of munge", "rotate_keys", "-e", "rotate=munge").succeeded()
        rolling = ("-e", f"rolling_tasks={tmp_path}/tasks.yml", "-e", "rolling_budget=10%")
        measured(whole, "rolling over all nodes, a budget of 10 %", "rolling", *rolling).succeeded()
        for node in whole.nodes:
            assert len(whole.command(node, "cat /root/rolled").split()) == 1, node
        measured(whole, "upgrade to 26.05", "upgrade", WITHOUT_JOBS).succeeded()
        assert "26.05" in whole.command(LOGIN, "timeout 60 scontrol show config | grep SLURM_VERSION")
        # From release 25.11 on slurmctld has series of its own, for which its configuration and Prometheus' change.
        run = measured(whole, "site with 26.05", "site", WITHOUT_JOBS)
        run.succeeded()
        assert run.changed <= {*CONTROLLERS, "big-db"}
        run = measured(whole, "site again with 26.05, nothing to do", "site", WITHOUT_JOBS)
        run.succeeded()
        assert run.changed == set()
    run_on_all(whole)
