# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of sick nodes: each from the evidence that a real fault leaves."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import causes as causes_of_nodes
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import diagnosis, server_causes
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.causes import (
    MEASURE,
    MEASURED,
    OWNED,
    SAID,
    UNKNOWN,
    Case,
    by_reason,
    causes,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.evidence import (
    NO_FACTS,
    NOT_IN_INVENTORY,
    ClusterEvidence,
    ClusterFacts,
    DaemonState,
    HostEvidence,
    NodeFacts,
    ServerFacts,
    SlurmNode,
)

pytestmark = pytest.mark.once

CLUSTER = ClusterEvidence(
    serving="head",
    controllers={"head": True},
    version="24.11.5",
    slurm_uid=64030,
    slurm_conf="c0ffee",
    cgroup_plugin="autodetect",
    proctrack="proctrack/cgroup",
    return_to_service="1",
)
REFUSED = "Connection refused"
DEAD = DaemonState("failed", True, "signal")


def node(*states: str, reason: str = "", user: str = "", **more: Any) -> SlurmNode:
    given = {"address": "n1", "addresses": ("10.0.0.1",), **more}
    return SlurmNode("n1", states or ("IDLE",), reason, user or ("slurm" if reason else ""), **given)


def host(**more: Any) -> HostEvidence:
    given = {"version": "24.11.5", "slurm_uid": 64030, "slurm_conf": "c0ffee", "addresses": ("10.0.0.1",)}
    return HostEvidence(**{**given, "cgroup": "v2", **more})


def failed(*log: str) -> HostEvidence:
    """A host whose slurmd does not start."""
    return host(slurmd=DaemonState("failed", True, "exit-code", log), listens=False)


def drained(reason: str, user: str = "slurm", **more: Any) -> SlurmNode:
    return node("IDLE", "DRAIN", reason=reason, user=user, **more)


DOWN = node("DOWN", "NOT_RESPONDING", reason="Not responding", closed=REFUSED)
OPEN = node("DOWN", "NOT_RESPONDING", reason="Not responding")
"""slurmd's port takes connections."""
INVALID = ("IDLE", "DRAIN", "INVALID_REG")

# Name of the test: the node, its host, the cause, and a part of its text.
CASES: dict[str, tuple[SlurmNode, HostEvidence, str, str]] = {
    "host down": (
        node("DOWN", "NOT_RESPONDING", reason="Not responding", closed="timed out"),
        HostEvidence(unreached="Failed to connect to the host via ssh: connect to host n1 port 22: No route to host"),
        "host-down",
        "No route to host",
    ),
    "ssh refused": (DOWN, HostEvidence(unreached="Permission denied (publickey)"), "ssh-refused", "Permission denied"),
    "ssh refused while slurmd answers": (
        drained("Kill task failed"),
        HostEvidence(unreached="ssh: Connection timed out"),
        "ssh-refused",
        "the host is up",
    ),
    "not in the inventory": (DOWN, HostEvidence(unreached=NOT_IN_INVENTORY), "not-in-inventory", "inventory"),
    "Python is broken": (DOWN, HostEvidence(unreached=f"{NO_FACTS}no python3"), "look-failed", "no python3"),
    "munged dead": (OPEN, host(munge=DEAD), "munged", "munged does not run (it was killed)"),
    "a masked slurmd": (
        DOWN,
        host(slurmd=DaemonState("inactive", False, masked=True), listens=False),
        "masked",
        "masked, so that nothing starts it: slurmd",
    ),
    "munged stopped for good": (OPEN, host(munge=DaemonState("inactive", False)), "munged", "does not start at boot"),
    "another munge key": (OPEN, host(munge_error="unmunge: Error: Invalid credential"), "munge-key", "another key"),
    "credential expired": (
        OPEN,
        host(munge_error="unmunge: Error: Expired credential", clock_offset=1200.0),
        "clock",
        "1200 s ahead of the controller's; munge: unmunge: Error: Expired credential",
    ),
    "credential rewound": (
        OPEN,
        host(munge_error="unmunge: Error: Rewound credential", clock_offset=-900.0),
        "clock",
        "900 s behind",
    ),
    "clock off, and munge does not mind yet": (OPEN, host(clock_offset=45.0), "clock", "45 s ahead"),
    "munge fails otherwise": (
        OPEN,
        host(munge_error="Socket communication error"),
        "munge-error",
        "munged refuses the controller's credential: Socket communication error",
    ),
    "slurmd: port taken": (
        DOWN,
        failed("fatal: Unable to bind listen port (6818): Address already in use"),
        "slurmd-port-taken",
        "Unable to bind listen port (6818)",
    ),
    "slurmd: host name": (
        DOWN,
        failed("fatal: Unable to determine this slurmd's NodeName"),
        "slurmd-host-name",
        "NodeName",
    ),
    "slurmd: cgroup namespace": (
        DOWN,
        failed("error: cgroup namespace 'freezer' not mounted. aborting"),
        "slurmd-cgroup-plugin",
        "freezer",
    ),
    "slurmd: cgroup v1 where v2 is": (
        DOWN,
        failed("error: cannot create cgroup context for cgroup/v1"),
        "slurmd-cgroup-plugin",
        "cgroup/v1",
    ),
    "slurmd: device file of gres.conf": (
        DOWN,
        failed("fatal: can't stat gres.conf file /dev/nvidia1: No such file or directory"),
        "slurmd-gres-file",
        "/dev/nvidia1",
    ),
    "slurmd: plugin of another release": (
        DOWN,
        failed("error: spank: Failed to open /usr/lib/spank_pyxis.so: incompatible Slurm plugin version (24.5.0)"),
        "slurmd-plugin",
        "spank_pyxis",
    ),
    "slurmd: incompatible release": (
        DOWN,
        failed("error: Unable to register: Incompatible versions of client and server code"),
        "slurmd-version",
        "Incompatible versions",
    ),
    "slurmd: disk full": (
        DOWN,
        failed("fatal: mkdir(/var/spool/slurmd): No space left on device"),
        "slurmd-disk-full",
        "No space left",
    ),
    "slurmd: no SlurmUser": (
        DOWN,
        failed("error: Invalid user for SlurmUser slurm, ignored"),
        "slurmd-slurm-user",
        "SlurmUser",
    ),
    "slurmd: no configuration": (
        DOWN,
        failed("fatal: Could not establish a configuration source"),
        "slurmd-no-configuration",
        "configuration source",
    ),
    "slurmd: no address of the controller": (
        DOWN,
        failed(
            "error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known: No error, attempt number 5",
            "error: _xgetaddrinfo: getaddrinfo(ctl9:6817) failed: Name or service not known",
            'error: slurm_set_addr: Unable to resolve "ctl9"',
        ),
        "slurmd-no-configuration",
        "ctl9",
    ),
    # The lines of the next attempt to start are those of every name.
    "slurmd: another host name, while it tries again": (
        DOWN,
        failed(
            "error: _xgetaddrinfo: getaddrinfo(other:(null)) failed: Name or service not known",
            "fatal: Unable to determine this slurmd's NodeName",
            "error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known: No error, attempt number -3",
        ),
        "slurmd-host-name",
        "this slurmd's NodeName",
    ),
    "slurmd: configuration refused": (
        DOWN,
        failed("error: Parsing error at unrecognized key: SlurmdPrt"),
        "slurmd-configuration",
        "SlurmdPrt",
    ),
    "slurmd: munge": (
        DOWN,
        failed("error: Munge encode failed: Failed to access /run/munge/munge.socket.2"),
        "slurmd-munge",
        "Munge encode failed",
    ),
    "the newest line counts": (
        DOWN,
        failed("error: Munge encode failed: x", "fatal: Unable to bind listen port (6818): Address already in use"),
        "slurmd-port-taken",
        "bind",
    ),
    "slurmd fails for an unknown reason": (DOWN, failed("fatal: something new"), "slurmd-failed", "something new"),
    "slurmd starts again and again": (
        DOWN,
        host(slurmd=DaemonState("activating", True, "success"), listens=False),
        "slurmd-failed",
        "no reason",
    ),
    "slurmd killed": (DOWN, host(slurmd=DEAD, listens=False), "slurmd-stopped", "it was killed"),
    "slurmd stopped, with old errors in its log": (
        DOWN,
        host(slurmd=DaemonState("inactive", True, "success", ("fatal: No space left on device",)), listens=False),
        "slurmd-stopped",
        "slurmd does not run (it was stopped)",
    ),
    "slurmd killed for memory": (
        DOWN,
        host(slurmd=DaemonState("failed", True, "oom-kill"), listens=False),
        "slurmd-stopped",
        "killed it for memory",
    ),
    "slurmd dead before slurmctld has noticed": (
        node("ALLOCATED", closed=REFUSED),
        host(slurmd=DaemonState("inactive"), listens=False),
        "slurmd-stopped",
        "it was stopped",
    ),
    "slurmd not installed": (DOWN, host(slurmd=DaemonState(""), listens=False), "slurmd-stopped", "not installed"),
    "slurmd without a port": (DOWN, host(listens=False), "slurmd-deaf", "does not listen"),
    "no address": (node("DOWN", closed="unknown", addresses=()), host(), "no-address", "cannot resolve n1"),
    "wrong address": (
        node("DOWN", closed="timed out", addresses=("10.0.0.9",)),
        host(),
        "wrong-address",
        "the controller resolves the node to 10.0.0.9, which is not an address of the host",
    ),
    "the host does not know the controller": (OPEN, host(unresolved=("head",)), "controller-unknown", "head"),
    "firewall before slurmd": (
        node("DOWN", "NOT_RESPONDING", reason="Not responding", closed="timed out"),
        host(),
        "slurmd-port-closed",
        "slurmd listens on port 6818",
    ),
    "firewall before slurmctld": (
        node("DOWN", reason="Not responding"),
        host(closed={"head": "timed out"}),
        "slurmctld-port-closed",
        "head timed out",
    ),
    "slurmd newer than slurmctld": (OPEN, host(version="26.05.1"), "slurmd-newer", "26.05.1 is newer"),
    "another slurm.conf": (
        node(log=("error: Node n1 appears to have a different slurm.conf than the slurmctld.",)),
        host(slurm_conf="badf00d"),
        "slurm-conf",
        "another slurm.conf",
    ),
    "other ids": (OPEN, host(slurm_uid=992), "user-ids", "has the id 992, and 64030"),
    "no SlurmUser": (OPEN, host(slurm_uid=None), "user-ids", "the host has no user slurm"),
    "less memory": (
        node(*INVALID, reason="Low RealMemory (reported:1000 < 100.00% of configured:2000)", real_memory=2000),
        host(memory=1000),
        "memory",
        "1000 of 2000 MiB",
    ),
    "fewer CPUs": (
        node(*INVALID, reason="Low socket*core*thread count", cpus=64),
        host(cpus=32),
        "cpus",
        "32 of 64 CPUs",
    ),
    "driver and library": (
        node(*INVALID, reason="gres/gpu count reported lower than configured (0 < 8)", gpus=8),
        host(nvidia_error="Failed to initialize NVML: Driver/library version mismatch"),
        "nvidia-versions",
        "version mismatch",
    ),
    "driver not loaded": (
        node(*INVALID, reason="gres/gpu count reported lower than configured (0 < 8)", gpus=8),
        host(nvidia_error="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        "nvidia-driver",
        "couldn't communicate",
    ),
    "a GPU is lost": (
        node(*INVALID, reason="gres/gpu count reported lower than configured (7 < 8)", gpus=8),
        host(nvidia_gpus=7),
        "gpu-lost",
        "7 of 8 GPUs",
    ),
    "device file is missing": (
        node(*INVALID, reason="gres/gpu count reported lower than configured (1 < 2)", gpus=2),
        host(missing_files=("/dev/nvidia1",)),
        "gpu-files",
        "/dev/nvidia1",
    ),
    "Xid": (drained("Kill task failed", gpus=8), host(xids=("Xid (PCI:0000:3b:00): 79",)), "xid", "79"),
    "spool full": (drained("SlurmdSpoolDir is full"), host(full=("/var/spool has no space left",)), "full", "/var"),
    "mount missing": (
        drained("Prolog error"),
        host(unmounted=("/data",)),
        "not-mounted",
        "file systems are not mounted: /data",
    ),
    "mount hangs": (drained("Kill task failed"), host(hanging=("/home (no answer)",)), "mount-hangs", "/home"),
    "Kill task failed, and the process is there": (
        drained("Kill task failed"),
        host(left=("python 4711 of job 12",)),
        "processes-left",
        "python 4711 of job 12",
    ),
    "Kill task failed, and nothing is left": (
        drained("Kill task failed"),
        host(),
        "kill-task-failed",
        "no process of an ended job is left",
    ),
    "prolog": (
        drained("Prolog error"),
        host(slurmd=DaemonState(log=("error: prolog failed: rc:256 output:no /scratch",))),
        "prolog-error",
        "no /scratch",
    ),
    "prolog or epilog": (drained("Prolog/Epilog failure"), host(), "prolog-error", "Prolog/Epilog failure"),
    "epilog": (drained("Epilog error"), host(), "epilog-error", "Epilog error"),
    "batch": (drained("batch job complete failure"), host(), "batch-failure", "batch job"),
    "duplicate": (drained("Duplicate jobid"), host(), "duplicate-jobid", "Duplicate"),
    "spool was full": (drained("SlurmdSpoolDir is full"), host(), "spool-was-full", "space now"),
    "memory is back": (
        drained("Low RealMemory (reported:1000 < 100.00% of configured:2000)", real_memory=2000),
        host(memory=2000),
        "registered-since",
        "registered with enough",
    ),
    "GPUs are back": (
        drained("gres/gpu count reported lower than configured (0 < 2)"),
        host(),
        "registered-since",
        "gres/gpu count",
    ),
    "INVAL for a reason that no fact shows": (
        node("INVAL", "DRAIN", reason="gres/gpu count reported lower than configured (0 < 2)"),
        host(),
        "refused",
        "gres/gpu count",
    ),
    "rebooted": (
        node("DOWN", reason="Node unexpectedly rebooted", user="slurm"),
        host(booted="2026-11-24T10:00:00"),
        "rebooted",
        "it booted at 2026-11-24T10:00:00",
    ),
    "reboot timed out": (node("DOWN", reason="reboot timed out"), host(), "reboot-timeout", "timed out"),
    "power saving gave up": (node("DOWN", reason="ResumeTimeout reached"), host(), "reboot-timeout", "ResumeTimeout"),
    "reboot waits": (drained("Reboot ASAP", "alice"), host(), "reboot-waits", "Reboot ASAP"),
    "features": (drained("Reported active features (a) are not a superset"), host(), "features", "features"),
    "silent": (node("IDLE", "NOT_RESPONDING"), host(), "silent", "no answer"),
    "a node in service that does not answer": (
        node("IDLE", unanswered="Socket timed out"),
        host(),
        "silent",
        "no answer from it (Socket timed out)",
    ),
    "a node in service without munged": (
        node("IDLE", unanswered="Zero Bytes were transmitted or received"),
        host(munge=DEAD),
        "munged",
        "munged does not run",
    ),
    "rebooted, with the reason of an earlier drain": (
        node(
            "DOWN", reason="bad DIMM", user="slurm", log=("Node n1 unexpectedly rebooted boot_time=1 last response=0",)
        ),
        host(),
        "rebooted",
        "Node unexpectedly rebooted",
    ),
    "back": (node("DOWN", reason="Not responding", user="slurm"), host(), "back", "answers again"),
    "a person": (drained("bad DIMM", "alice"), host(), "person", "drained by alice (bad DIMM)"),
    "a network port": (
        drained("health check port-down: mlx5_0/1 is DOWN (Polling)", "root"),
        host(),
        "cable",
        "mlx5_0/1 is DOWN (Polling)",
    ),
    "the health check": (drained("health check gpu: missing", "root"), host(), "health-check", "gpu: missing"),
    "rolling": (drained("gpucluster.slurm rolling: failed: x", "root"), host(), "rolling", "failed: x"),
    "accept": (drained("gpucluster.slurm accept: stream 59 GB/s", "root"), host(), "accept", "stream 59 GB/s"),
    "repair": (drained("gpucluster.slurm repair: xid-79", "root"), host(), "repair", "xid-79"),
    "MIG": (drained("gpucluster.slurm: other MIG instances", "root"), host(), "mig", "MIG"),
    "the driver": (drained("gpucluster.slurm: NVIDIA driver", "root"), host(), "driver", "NVIDIA driver"),
    "down with the reason of an earlier drain": (
        node("DOWN", reason="SlurmdSpoolDir is full"),
        host(),
        "unknown",
        "SlurmdSpoolDir is full",
    ),
    "unknown": (drained("something that Slurm says"), host(), "unknown", "something that Slurm says"),
}
OTHER_CLUSTERS = {
    "cgroup v1 is wanted": (
        ClusterEvidence(cgroup_plugin="cgroup/v1"),
        OPEN,
        host(cgroup="v2"),
        "cgroup-version",
        "v1",
    ),
    "no cgroups": (
        ClusterEvidence(proctrack="proctrack/linuxproc"),
        drained("Kill task failed"),
        host(),
        "kill-task-failed-untracked",
        "Kill task failed",
    ),
}


def found(case: Case) -> dict[str, str]:
    return {cause.name: text for cause, text in causes(case)}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named(name: str) -> None:
    patient, facts, cause, text = CASES[name]
    assert patient.sick
    said = found(Case(patient, facts, CLUSTER))
    assert [*said] == [cause]
    assert text in said[cause]


@pytest.mark.parametrize("name", OTHER_CLUSTERS)
def test_a_fault_of_another_cluster_is_named(name: str) -> None:
    cluster, patient, facts, cause, text = OTHER_CLUSTERS[name]
    said = found(Case(patient, facts, cluster))
    assert [*said] == [cause]
    assert text in said[cause]


def test_each_cause_has_a_case() -> None:
    shown = {cause for *_rest, cause, _text in [*CASES.values(), *OTHER_CLUSTERS.values()]}
    rows = {cause.name for cause in (*OWNED, *MEASURED, *SAID, UNKNOWN)}
    assert rows == shown
    assert len(rows) >= 50


def test_each_fact_is_tested_by_a_cause() -> None:
    texts = [Path(str(module.__file__)).read_text() for module in (causes_of_nodes, server_causes, diagnosis)]
    used = {*re.findall(r"\.(\w+)", "".join(texts))}
    facts = {each.name for kind in (NodeFacts, ServerFacts, ClusterFacts) for each in fields(kind)}
    assert facts - used == {"answers"}, "facts that no cause tests"  # the playbook does


@pytest.mark.parametrize(
    "states",
    [
        ("FUTURE",),
        ("IDLE", "CLOUD", "POWERED_DOWN"),
        ("DOWN", "CLOUD", "POWERING_UP", "NOT_RESPONDING"),
        ("DOWN", "REBOOT_ISSUED", "NOT_RESPONDING"),
    ],
)
def test_a_node_that_need_not_answer_is_left_alone(states: tuple[str, ...]) -> None:
    assert not node(*states, closed="timed out").sick


def test_a_well_node_has_no_cause() -> None:
    assert not node().sick
    assert not node("MIXED", "MAINTENANCE").sick
    assert found(Case(node(), host(), CLUSTER)) == {}
    assert found(Case(node(log=("error: Node n1 appears to have a different slurm.conf",)), host(), CLUSTER)) == {}


def test_several_faults_are_all_named() -> None:
    said = found(Case(DOWN, host(munge=DEAD, slurmd=DEAD, listens=False, full=("/tmp is full",)), CLUSTER))
    assert [*said] == ["full", "munged", "slurmd-stopped"]


def test_a_fault_on_a_node_of_a_person_is_named_with_the_person() -> None:
    assert [*found(Case(drained("bad DIMM", "alice"), host(memory=0), CLUSTER))] == ["person", "memory"]


def test_the_clock_is_compared_with_that_of_the_controller() -> None:
    wrong = ClusterEvidence(clock_offset=600.0)
    assert found(Case(OPEN, HostEvidence(clock_offset=600.0, addresses=("10.0.0.1",)), wrong)).get("clock") is None
    assert "600 s behind" in found(Case(OPEN, HostEvidence(addresses=("10.0.0.1",)), wrong))["clock"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "slurmd answers again, and ReturnToService is 0"),
        ("1", "slurmd answers again, and has not registered yet (ReturnToService is 1)"),
        ("", "slurmd answers again, and has not registered yet"),
    ],
)
def test_a_node_that_answers_again_has_the_value_of_the_cluster(value: str, text: str) -> None:
    case = Case(node("DOWN", reason="Not responding"), host(), replace(CLUSTER, return_to_service=value))
    assert [evidence for _cause, evidence in causes(case)] == [text]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Low RealMemory (reported:1000 < 100.00% of configured:2000)", "refused"),
        ("gres/gpu count reported lower than configured (1 < 2)", "refused"),
        ("Reboot ASAP", "reboot-waits"),
        ("ResumeTimeout reached", "reboot-timeout"),
        ("Not responding", "unknown"),
    ],
)
def test_a_reason_alone_tells_a_cause(reason: str, cause: str) -> None:
    """Only some reasons are those of a refused registration."""
    assert by_reason(reason, "Slurm").name == cause


def test_a_node_with_a_fault_of_hardware_is_measured_after_the_repair() -> None:
    """doctor itself resumes none of these."""
    measured = [cause for cause in (*MEASURED, *OWNED, *SAID) if MEASURE in cause.remedy]
    assert [cause.name for cause in measured] == ["gpu-lost", "xid", "health-check", "accept"]
    assert not any(cause.repair for cause in measured)


@pytest.mark.parametrize("user", ["root", "slurm", "alice"])
@pytest.mark.parametrize("beginning", [*drains.OWNERS, *drains.OF_SLURM, *drains.CAUSES, "bad fan"])
def test_the_reason_alone_tells_the_same_cause(beginning: str, user: str) -> None:
    """On hosts, programs have no more than the reason."""
    reason = f"{beginning}: more"
    assert drains.cause(reason, user) == by_reason(reason, drains.owner(reason, user)).name


def test_a_drain_without_a_reason_has_no_known_cause() -> None:
    assert drains.cause("", "root") == "unknown"
