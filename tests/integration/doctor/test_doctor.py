# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""doctor.yml on nodes that are broken in different ways at once, while a job runs on another node.

Each round breaks some nodes, asks doctor, and undoes the faults. Drains that Slurm gives only after minutes or to real
hardware are given by its user with the same reason. The tests run in this order.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import CLEARED
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run

CONTROLLER = "doc-ctl"
NODES = [f"doc-node{number}" for number in range(1, 7)]
BUSY = "doc-node6"
"""It is never broken; a job runs on it all the time."""

PROGRAM = """#!/bin/sh
test ! -e /root/{0}_fails || {{ echo "no scratch for the {0}" >&2; exit 1; }}
"""
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
KERNEL = """\
#!/bin/sh
case "$*" in
    *dmesg*) echo '{"__CURSOR": "c", "__MONOTONIC_TIMESTAMP": "1", "MESSAGE":' \
        '"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."}' ;;
    *) exec /usr/bin/journalctl "$@" ;;
esac
"""
VERSIONS = "Failed to initialize NVML: Driver/library version mismatch"

JOBS: list[int] = []
"""All jobs that were submitted."""


@dataclass(frozen=True)
class Fault:
    """A fault of a node.

    on_node, on_controller: shell commands that make it, in this order. seen: a part of the node's line in Slurm that
    shows that slurmctld has noticed it. undo_node, undo_controller: commands that undo it. causes: parts of
    doctor's messages, by cause.
    """

    node: str
    causes: Mapping[str, str]
    on_node: str = "true"
    undo_node: str = "true"
    on_controller: str = "true"
    undo_controller: str = "true"
    seen: str = ""


def by_slurm(number: int, reason: str) -> str:
    """A command that drains a node as Slurm does."""
    return f"runuser -u slurm -- scontrol update NodeName=doc-node{number} State=DRAIN Reason='{reason}'"


def by_root(number: int, reason: str) -> str:
    return f"scontrol update NodeName=doc-node{number} State=DRAIN Reason='{reason}'"


SILENT = "NOT_RESPONDING"
ORPHAN = (
    "d=/sys/fs/cgroup/freezer; test -d $d || d=/sys/fs/cgroup; d=$d/slurm/uid_0/job_999999/step_0; mkdir -p $d;"
    "systemd-run --quiet --unit=orphan sleep 3600; systemctl show orphan -P MainPID >$d/cgroup.procs"
)
SPOOL = "/var/lib/slurm/slurmd"

DAEMONS = (
    Fault("doc-node1", {"slurmd-stopped": "it was stopped"}, "systemctl stop slurmd", "systemctl start slurmd"),
    Fault(
        "doc-node2",
        {"munged": "munged does not run"},
        "systemctl stop munge",
        "systemctl start munge",
        seen=SILENT,
    ),
    Fault(
        "doc-node3",
        {"host-down": "the host does not answer"},
        # Nobody can log in to put the link back.
        "systemd-run --quiet --on-active=150 ip link set eth0 up; "
        "systemd-run --quiet --on-active=1 ip link set eth0 down",
        seen=SILENT,
    ),
    Fault(
        "doc-node4",
        {"slurmd-port-taken": "Address already in use"},
        "systemctl stop slurmd; systemd-run --quiet --unit=taker python3 -m http.server 6818; sleep 1;"
        "systemctl start slurmd --no-block",
        "systemctl stop taker; systemctl start slurmd",
        seen=SILENT,
    ),
    Fault(
        "doc-node5",
        {"slurmd-gres-file": "/dev/nvidia1", "gpu-files": "/dev/nvidia1"},
        "mv /dev/nvidia1 /dev/lost; systemctl restart slurmd --no-block",
        "mv /dev/lost /dev/nvidia1; systemctl restart slurmd",
    ),
)

NETWORK = (
    Fault(
        "doc-node1",
        {"slurmd-port-closed": "slurmd listens on port 6818"},
        "iptables -I INPUT -p tcp --dport 6818 -j DROP",
        "iptables -D INPUT -p tcp --dport 6818 -j DROP",
    ),
    Fault(
        "doc-node2",
        {"slurmd-no-configuration": "config", "slurmctld-port-closed": "doc-ctl"},
        "iptables -I OUTPUT -p tcp --dport 6817 -j REJECT; systemctl restart slurmd --no-block",
        "iptables -D OUTPUT -p tcp --dport 6817 -j REJECT; systemctl restart slurmd",
        seen=SILENT,
    ),
    Fault(
        "doc-node3",
        {"munge-key": "another key than the controller"},
        "cp -p /etc/munge/munge.key /root/munge.key; head -c 1024 /dev/urandom >/etc/munge/munge.key; "
        "systemctl restart munge",
        "cp -p /root/munge.key /etc/munge/munge.key; systemctl restart munge",
        seen=SILENT,
    ),
    Fault(
        "doc-node4",
        {"clock": "s behind the controller's"},
        # sudo does not work with the library, so that it is for munged and Python alone.
        "mkdir -p /etc/systemd/system/munge.service.d; "
        f"printf '[Service]\\nEnvironment=LD_PRELOAD={FAKETIME} FAKETIME=-20m\\n' "
        ">/etc/systemd/system/munge.service.d/clock.conf; systemctl daemon-reload; systemctl restart munge; "
        "p=$(readlink -f /usr/bin/python3); mv $p $p.real; "
        f"printf '#!/bin/sh\\nLD_PRELOAD={FAKETIME} FAKETIME=-20m exec '$p'.real \"$@\"\\n' >$p; chmod 755 $p",
        "p=$(readlink -f /usr/bin/python3); mv $p.real $p; rm /etc/systemd/system/munge.service.d/clock.conf; "
        "systemctl daemon-reload; systemctl restart munge",
        seen=SILENT,
    ),
    Fault(
        "doc-node5",
        {"slurmd-no-configuration": "slurmd does not start", "controller-unknown": "doc-ctl"},
        # slurmd resolves the name for some seconds before it says why it does not start.
        "cp /etc/hosts /root/hosts; sed '/doc-ctl/d' /root/hosts >/etc/hosts; systemctl restart slurmd --no-block; "
        "timeout 60 sh -c 'until journalctl -u slurmd -n 30 -o cat | grep -q \"failed to load\"; do sleep 1; done'",
        "cat /root/hosts >/etc/hosts; systemctl restart slurmd",
        seen=SILENT,
    ),
)

DRAINS = (
    Fault(
        "doc-node1",
        {"kill-task-failed": "no process of an ended job is left"},
        on_controller=by_slurm(1, "Kill task failed"),
    ),
    Fault(
        "doc-node2",
        {"processes-left": "of job 999999"},
        on_node=ORPHAN,
        undo_node="systemctl stop orphan",
        on_controller=by_slurm(2, "Kill task failed"),
    ),
    Fault("doc-node3", {"person": "drained by root (bad DIMM)"}, on_controller=by_root(3, "bad DIMM")),
    Fault(
        "doc-node4",
        {"prolog-error": "prolog"},
        "touch /root/prolog_fails",
        "rm /root/prolog_fails",
        "JOB doc-node4",
        seen="Prolog error",
    ),
    Fault(
        "doc-node5",
        {"memory": "of 99999999 MiB of RealMemory"},
        on_controller="sed -i '/^NodeName=doc-node5/s/RealMemory=2000/RealMemory=99999999/' /etc/slurm/slurm.conf; "
        "scontrol reconfigure",
        undo_controller="sed -i s/RealMemory=99999999/RealMemory=2000/ /etc/slurm/slurm.conf; scontrol reconfigure",
        seen="Low RealMemory",
    ),
)

FILES = (
    Fault(
        "doc-node1",
        {"rolling": "rolling: failed: x", "not-mounted": "/data"},
        "cp /etc/fstab /root/fstab; echo 'nowhere:/data /data nfs defaults 0 0' >>/etc/fstab",
        "cp /root/fstab /etc/fstab",
        by_root(1, "gpucluster.slurm rolling: failed: x"),
    ),
    Fault("doc-node2", {"health-check": "gpu: missing"}, on_controller=by_root(2, "health check gpu: missing")),
    Fault(
        "doc-node3",
        {"full": "has no space left"},
        f"mount -t tmpfs -o size=64k none {SPOOL}; dd if=/dev/zero of={SPOOL}/fill bs=4k count=99 2>/dev/null; true",
        f"umount {SPOOL}",
        "JOB doc-node3",
        seen="DRAIN",
    ),
    Fault(
        "doc-node4",
        {"epilog-error": "Epilog error"},
        "touch /root/epilog_fails",
        "rm /root/epilog_fails",
        "JOB doc-node4",
        seen="Epilog error",
    ),
    Fault(
        "doc-node5",
        {"nvidia-versions": "version mismatch", "xid": "fallen off the bus"},
        f"printf '#!/bin/sh\\necho \"{VERSIONS}\"; exit 18\\n' >/usr/local/sbin/nvidia-smi; "
        f"cat >/usr/local/sbin/journalctl <<'END'\n{KERNEL}END\nchmod 755 /usr/local/sbin/*",
        "rm /usr/local/sbin/nvidia-smi /usr/local/sbin/journalctl; slurm-health --close all",
        by_slurm(5, "Kill task failed"),
    ),
)

IDENTITY = (
    Fault(
        "doc-node1",
        {"slurmd-stopped": "does not start at boot"},
        "systemctl disable --quiet --now slurmd",
        "systemctl enable --quiet --now slurmd",
    ),
    Fault(
        "doc-node2",
        {"user-ids": "has the id 64999"},
        "usermod -u 64999 slurm; systemctl restart slurmd",
        "usermod -u $(stat -c %u /home/slurm_uid) slurm; systemctl restart slurmd",
        seen=SILENT,
    ),
    Fault(
        "doc-node3",
        {"slurm-conf": "another slurm.conf"},
        "cp /run/slurm/conf/slurm.conf /etc/slurm/own.conf; echo KillWait=31 >>/etc/slurm/own.conf; "
        "printf '[Service]\\nEnvironment=\"SLURMD_OPTIONS=-f /etc/slurm/own.conf\"\\n' "
        ">/etc/systemd/system/slurmd.service.d/zz-own.conf; systemctl daemon-reload; systemctl restart slurmd",
        "rm /etc/slurm/own.conf /etc/systemd/system/slurmd.service.d/zz-own.conf; systemctl daemon-reload; "
        "systemctl restart slurmd",
    ),
    Fault(
        "doc-node4",
        {"wrong-address": "the controller resolves the node to 10.213.7.199, which is not an address of the host"},
        on_controller="scontrol update NodeName=doc-node4 NodeAddr=10.213.7.199",
        undo_controller="scontrol update NodeName=doc-node4 NodeAddr=10.213.7.164",
    ),
    Fault(
        "doc-node5",
        {"rebooted": "Node unexpectedly rebooted"},
        "systemctl stop slurmd; slurmd --conf-server doc-ctl:6817 -b; sleep 3; pkill -x slurmd; sleep 1; "
        "systemctl start slurmd",
        seen="unexpectedly rebooted",
    ),
)

HOSTS = (
    Fault(
        "doc-node1",
        {"slurmd-host-name": "slurmd does not start"},
        "hostname another-name; systemctl restart slurmd --no-block",
        "hostname doc-node1; systemctl restart slurmd",
        seen=SILENT,
    ),
    Fault("doc-node2", {"batch-failure": "batch job"}, on_controller=by_slurm(2, "batch job complete failure")),
    Fault(
        "doc-node3",
        {"ssh-refused": "the host is up, but ssh fails"},
        # Connections that are open would serve Ansible, too.
        "systemd-run --quiet --on-active=1 sh -c 'systemctl stop ssh; pkill sshd; sleep 150; systemctl start ssh'",
        on_controller=by_slurm(3, "Kill task failed"),
    ),
    Fault(
        "doc-node5",
        {"cpus": "of 64 CPUs"},
        on_controller="sed -i '/^NodeName=doc-node5/s/CoresPerSocket=2/CoresPerSocket=64/' /etc/slurm/slurm.conf; "
        "scontrol reconfigure",
        undo_controller="sed -i s/CoresPerSocket=64/CoresPerSocket=2/ /etc/slurm/slurm.conf; scontrol reconfigure",
        seen="Low socket",
    ),
    Fault(
        "doc-node4",
        # It comes last: a slurmd that is stopped misses a change of slurm.conf. All processes are stopped, because the
        # change before lets slurmd start itself anew, and the new one may not be systemd's main process yet.
        {"silent": "slurmctld has no answer"},
        "systemctl kill --signal=STOP slurmd",
        "systemctl kill --signal=CONT slurmd",
        seen=SILENT,
    ),
)
ROUNDS = {
    "daemons": DAEMONS,
    "network": NETWORK,
    "drains": DRAINS,
    "files": FILES,
    "identity": IDENTITY,
    "hosts": HOSTS,
}


def submit(lab: Lab, node: str, command: str = "true") -> int:
    """A job on a node; its number."""
    command_line = f"timeout 60 sbatch --parsable -D / -o /dev/null -w {node} --time=120 --wrap '{command}'"
    JOBS.append(int(lab.command(CONTROLLER, command_line)))
    return JOBS[-1]


@pytest.fixture(scope="module", autouse=True)
def job_on_a_healthy_node(lab: Lab) -> Iterator[None]:
    """A job that no test may end. Prolog and epilog are programs that a file makes fail."""
    for node in NODES:
        for name in ("prolog", "epilog"):
            lab.script(
                node,
                f"cat >/usr/local/bin/lab-{name} && chmod 755 /usr/local/bin/lab-{name}",
                PROGRAM.format(name).encode(),
            )
    # The homes are shared by all hosts of the scenario.
    lab.command(CONTROLLER, "touch /home/slurm_uid; chown slurm /home/slurm_uid")
    lab.command(
        CONTROLLER,
        "for name in Prolog Epilog; do echo $name=/usr/local/bin/lab-$(echo $name | tr PE pe); done "
        ">>/etc/slurm/slurm.conf; timeout 60 scontrol reconfigure",
    )
    for node in ("doc-node1", "doc-node2", "doc-node4"):
        lab.command(node, "apt-get -qq update; apt-get -qq install --no-install-recommends iptables libfaketime")
    job = submit(lab, BUSY, "sleep 7200")
    lab.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
    yield
    assert lab.command(CONTROLLER, f"timeout 60 squeue -h -j {job} -o %T") == "RUNNING"
    restarts = lab.command(CONTROLLER, f"timeout 60 scontrol show job {job} | grep -o Restarts=.")
    assert restarts == "Restarts=0"
    # Every job is in the accounts, those of broken nodes as well.
    known = lab.command(CONTROLLER, f"timeout 60 sacct -nPX -o JobID -j {','.join(map(str, JOBS))} | sort -u").split()
    assert sorted(map(int, known)) == sorted(JOBS)
    lab.command(CONTROLLER, "timeout 60 scancel --user=root")


def make(lab: Lab, fault: Fault) -> None:
    """Break a node."""
    lab.command(fault.node, f"{{ {fault.on_node}; }} >/dev/null")
    if fault.on_controller.startswith("JOB "):
        submit(lab, fault.on_controller.removeprefix("JOB "))
    else:
        lab.command(CONTROLLER, f'export PATH=$PATH:/usr/sbin; timeout 60 sh -c "{fault.on_controller}"')


def undo(lab: Lab, fault: Fault) -> None:
    """Undo a fault, and return the node to service."""
    lab.wait_for(fault.node, "echo there", "there")
    lab.command(fault.node, f"{{ {fault.undo_node}; }} >/dev/null")
    lab.command(CONTROLLER, f'timeout 60 sh -c "{fault.undo_controller}"')
    held = [str(job) for job in JOBS[1:]]
    if held:
        lab.command(CONTROLLER, f"timeout 60 scancel {' '.join(held)}; true")
    # Slurm replaces no other reason of an earlier drain.
    resume = f"scontrol update NodeName={fault.node} State=RESUME Reason='{CLEARED}'"
    lab.wait_for(CONTROLLER, f"timeout 60 {resume}; timeout 60 sinfo -h -N -o =%N=%T=", f"={fault.node}=idle=")


def states(lab: Lab) -> str:
    """The states and reasons of all nodes. Whether a node answers can change meanwhile."""
    return str(lab.command(CONTROLLER, "timeout 60 sinfo -h -N -o '%N %T %E' | tr -d '*' | sort"))


def doctor(lab: Lab, directory: Path, *arguments: str) -> tuple[Run, dict[str, dict[str, dict[str, Any]]]]:
    """A run of doctor that has succeeded, and its findings by host and cause."""
    report = directory / "report.json"
    run = lab.playbook("doctor", "-e", f"doctor_report={report}", *arguments)
    assert run.rc == 0, run.failed or run.output[-3000:]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for finding in json.loads(report.read_text())["findings"]:
        for name in expand(finding["hosts"]):
            found.setdefault(name, {})[finding["cause"]] = finding
    return run, found


def looked_at(run: Run) -> list[str]:
    """The nodes on which the run had a task."""
    return sorted(host for host, task, _result in run.results if "Gather facts of the node" in task)


def asked_of_nodes(run: Run) -> set[str]:
    """The tasks on nodes. The options are checked on the control host."""
    tasks = {
        task.rpartition(" : ")[2]
        for host, task, result in run.results
        if host.startswith("doc-node") and not result.get("skipped")
    }
    return tasks - {"Check --limit, --tags and -e"}


def test_a_well_cluster_costs_its_nodes_no_task(lab: Lab, tmp_path: Path) -> None:
    """But the one about their packages, which can be left out."""
    before = states(lab)
    run, found = doctor(lab, tmp_path, "-e", "doctor_updates=false")
    assert asked_of_nodes(run) == set()
    said = [
        str(result["msg"]) for _host, _task, result in run.results if "All nodes and daemons" in str(result.get("msg"))
    ]
    assert said
    assert "update" not in "".join(said)
    run, found = doctor(lab, tmp_path)
    assert asked_of_nodes(run) == {"Gather pending updates of packages"}
    assert found == {}
    assert "All nodes and daemons are well." in run.output
    assert looked_at(run) == []
    assert run.changed == {}
    assert states(lab) == before


@pytest.mark.parametrize("name", ROUNDS)
def test_each_fault_is_named_and_nothing_is_changed(lab: Lab, tmp_path: Path, name: str) -> None:
    faults: Sequence[Fault] = ROUNDS[name]
    with ExitStack() as stack:
        for fault in faults:
            stack.callback(undo, lab, fault)
            make(lab, fault)
        for fault in faults:
            if fault.seen:
                lab.wait_for(CONTROLLER, f"timeout 60 scontrol -o show node {fault.node}", fault.seen)
        if name == "identity":
            lab.wait_for(CONTROLLER, "cat /var/log/slurm/slurmctld.log", "doc-node3 appears to have a different")
        run, found = doctor(lab, tmp_path)
        said = {node: {cause: one["words"] for cause, one in causes.items()} for node, causes in found.items()}
        print(json.dumps(said, indent=1))
        assert looked_at(run) == sorted(fault.node for fault in faults)
        assert run.changed == {}
        for fault in faults:
            assert {*said.get(fault.node, {})} == {*fault.causes}, said
            for cause, message in fault.causes.items():
                assert message in said[fault.node][cause]
                assert found[fault.node][cause]["remedy"] in run.output
        assert BUSY not in said


def test_safe_repairs_are_shown_and_then_made(lab: Lab, tmp_path: Path) -> None:
    stopped = DAEMONS[0]
    faults = [
        Fault("doc-node1", {}, stopped.on_node, stopped.undo_node),
        *DRAINS[1:3],
        Fault("doc-node4", {}, on_controller=by_slurm(4, "Kill task failed")),
        Fault("doc-node5", {}, on_controller=by_slurm(5, "SlurmdSpoolDir is full")),
    ]
    with ExitStack() as stack:
        for fault in faults:
            stack.callback(undo, lab, fault)
            make(lab, fault)
        before = states(lab)
        run, found = doctor(lab, tmp_path, "--check", "-e", "doctor_repair=true")
        assert states(lab) == before
        assert {*run.changed} == {"doc-ctl", "doc-node1"}, found
        assert "a run without --check does this" in run.output
        assert not lab.host("doc-node1").service("slurmd").is_running

        run, found = doctor(lab, tmp_path, "-e", "doctor_repair=true")
        assert {*run.changed} == {"doc-ctl", "doc-node1"}
        repairs = {node: one["repair"] for node, causes in found.items() for one in causes.values()}
        assert repairs == {
            "doc-node1": "start slurmd",
            "doc-node2": "",
            "doc-node3": "",
            "doc-node4": "resume",
            "doc-node5": "resume",
        }
        for node in ("doc-node1", "doc-node4", "doc-node5"):
            lab.wait_until_idle(CONTROLLER, node)
        after = states(lab)
        assert "doc-node2 drained Kill task failed" in after
        assert "doc-node3 drained bad DIMM" in after

        run, found = doctor(lab, tmp_path, "-e", "doctor_repair=true")
        assert run.changed == {}
        assert {*found} == {"doc-node2", "doc-node3"}


def test_with_a_limit_other_nodes_are_left_out(lab: Lab, tmp_path: Path) -> None:
    faults = [Fault(f"doc-node{number}", {}, on_controller=by_root(number, "bad DIMM")) for number in (1, 2)]
    with ExitStack() as stack:
        for fault in faults:
            stack.callback(undo, lab, fault)
            make(lab, fault)
        run, found = doctor(lab, tmp_path, "--limit=doc-ctl,doc-node1")
        assert {*found} == {"doc-node1"}
        assert looked_at(run) == ["doc-node1"]


def test_a_limit_without_controllers_is_refused(lab: Lab) -> None:
    run = lab.playbook("doctor", "--limit=doc-node1")
    assert run.rc != 0
    assert "--limit: leaves out doc-ctl, and doctor.yml would do nothing without it." in run.output


def test_munged_that_has_just_stopped_is_named_at_once(lab: Lab, tmp_path: Path) -> None:
    """Slurm still has the node as idle. The node on which a job runs answers."""
    lab.wait_until_idle(CONTROLLER, "doc-node1")
    try:
        lab.command("doc-node1", "systemctl stop munge")
        run, found = doctor(lab, tmp_path)
        assert looked_at(run) == ["doc-node1"]
        assert "munged does not run" in found["doc-node1"]["munged"]["words"]
        assert run.changed == {}
    finally:
        lab.command("doc-node1", "systemctl start munge slurmd")
        lab.wait_until_idle(CONTROLLER, "doc-node1")
    assert doctor(lab, tmp_path)[1] == {}


LOST_JOB = """
CREATE TEMPORARY TABLE lost SELECT * FROM doctor_job_table ORDER BY job_db_inx DESC LIMIT 1;
UPDATE lost SET job_db_inx = job_db_inx + 1000000, id_job = 999999, state = 1, time_end = 0,
  time_start = UNIX_TIMESTAMP() - 60;
INSERT INTO doctor_job_table SELECT * FROM lost;
"""
"""A job that slurmctld does not know, as one that runs."""


def test_a_job_that_only_the_database_has_is_named(lab: Lab, tmp_path: Path) -> None:
    ended = "timeout 60 sacct -anPX -j 999999 -o state"
    try:
        lab.command(CONTROLLER, f"mariadb slurm_acct_db <<'E'{LOST_JOB}E")
        run, found = doctor(lab, tmp_path)
        assert {*found} == {CONTROLLER}
        assert found[CONTROLLER]["runaway-jobs"]["words"].endswith("does not know them: 999999")
        assert lab.command(CONTROLLER, ended) == "RUNNING"
        assert run.changed == {}
        lab.command(CONTROLLER, "echo y | timeout 60 sacctmgr show runawayjobs")
        assert lab.command(CONTROLLER, ended) == "COMPLETED"
        assert doctor(lab, tmp_path)[1] == {}
    finally:
        lab.command(CONTROLLER, "mariadb slurm_acct_db -e 'DELETE FROM doctor_job_table WHERE id_job = 999999'")


def test_a_failure_of_validate_has_the_same_words(lab: Lab) -> None:
    fault = Fault("doc-node1", {}, on_controller=by_slurm(1, "Kill task failed"))
    with ExitStack() as stack:
        stack.callback(undo, lab, fault)
        make(lab, fault)
        run = lab.playbook("validate", "-e", "validate_timeout=40")
        assert run.rc != 0
        assert "doc-node1: Processes of a job did not end in time" in str(run.failed)


def test_validate_names_a_busy_node_and_does_not_wait_for_it(lab: Lab) -> None:
    """Its reason is "ReqNodeNotAvail, May be reserved for other job", as a partition that goes first waits for it."""
    batch = "timeout 60 sbatch --parsable --output=/dev/null --exclusive --nodelist=doc-node1"
    jobs = []
    lab.command(CONTROLLER, "timeout 60 scontrol create PartitionName=upper Nodes=doc-node1 PriorityTier=10")
    try:
        jobs.append(lab.command(CONTROLLER, f"{batch} --wrap='sleep 900'"))
        lab.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {jobs[0]} -o %T", "RUNNING")
        jobs.append(lab.command(CONTROLLER, f"{batch} --partition=upper --wrap=true"))
        begin = time.monotonic()
        run = lab.playbook("validate")
        assert run.rc == 0, run.failed
        assert time.monotonic() - begin < 200
        assert re.search(r"/doc-node1 .* busy ", run.output)
    finally:
        lab.command(CONTROLLER, f"timeout 60 scancel {' '.join(jobs)}")
        lab.wait_until_idle(CONTROLLER, "doc-node1")
        lab.command(CONTROLLER, "timeout 60 scontrol delete PartitionName=upper")


@pytest.mark.parametrize(
    ("stop", "start", "causes"),
    [
        ("systemctl stop mariadb", "systemctl start mariadb slurmdbd", {"database-down": "mariadb does not run"}),
        ("systemctl stop slurmdbd", "systemctl start slurmdbd", {"slurmdbd-down": "slurmdbd does not run"}),
        (
            "systemctl stop slurmdbd; systemctl mask slurmdbd",
            "systemctl unmask slurmdbd; systemctl start slurmdbd",
            {"server-masked": "masked, so that nothing starts it: slurmdbd"},
        ),
        (
            "systemctl stop slurmctld; systemd-run --quiet --unit=taker python3 -m http.server 6817; sleep 1; "
            "systemctl start slurmctld --no-block; sleep 3",
            "systemctl stop taker; systemctl restart slurmctld",
            {"slurmctld-down": "Another process has the daemon's port"},
        ),
    ],
)
def test_faults_of_the_servers(lab: Lab, tmp_path: Path, stop: str, start: str, causes: dict[str, str]) -> None:
    lab.command(CONTROLLER, stop)
    try:
        run, found = doctor(lab, tmp_path)
        print(json.dumps(found, indent=1))
        for cause, message in causes.items():
            assert message in found[CONTROLLER][cause]["words"]
        assert run.changed == {}
    finally:
        lab.command(CONTROLLER, start)
        lab.wait_for(CONTROLLER, "timeout 60 scontrol ping", "UP")
        lab.wait_for(CONTROLLER, "timeout 60 sacctmgr -nP show cluster format=cluster", "doctor")
        # A slurmctld that has just started has no answers yet, and doctor names the nodes as silent.
        for node in NODES[:-1]:
            lab.wait_until_idle(CONTROLLER, node)
    assert doctor(lab, tmp_path)[1] == {}


def test_jobs_of_an_ended_reservation(lab: Lab, tmp_path: Path) -> None:
    """Slurm removes the reservation at its end, and holds the jobs that have not started."""
    reserve = "ReservationName=short StartTime=now Duration=1 Users=root Nodes=doc-node1"
    lab.command(CONTROLLER, f"timeout 60 scontrol create reservation {reserve}")
    batch = "timeout 60 sbatch --parsable --output=/dev/null --begin=now+1hour --reservation=short --wrap=true"
    job = lab.command(CONTROLLER, batch)
    try:
        lab.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {job} -o %T", "RESV_DEL_HOLD")
        _run, found = doctor(lab, tmp_path)
        assert found[CONTROLLER]["reservation-ended"]["words"].endswith(f"has ended: short: {job}")
        lab.command(CONTROLLER, f"timeout 60 scontrol release {job}")
        assert doctor(lab, tmp_path)[1] == {}
    finally:
        lab.command(CONTROLLER, f"timeout 60 scancel {job}")
