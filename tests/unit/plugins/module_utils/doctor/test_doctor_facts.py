# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of doctor: what is read from the output of programs and from files."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.action.host_clock import offset
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import scontrol
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import records
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import (
    controller_facts,
    daemon_facts,
    ended_reservations,
    node_facts,
    runaway_jobs,
    slurmd_question,
    slurmdbd_queue,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.evidence import (
    DaemonState,
    NodeFacts,
    ServerAnswer,
    SlurmNode,
    complete,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import Process
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts.mountinfo import Mount
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import result_errors

pytestmark = pytest.mark.once

SHOWN = """\
Id=slurmd.service
LoadState=loaded
ActiveState=failed
UnitFileState=enabled
Result=exit-code
ActiveExitTimestampMonotonic=940000000

Id=sackd.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
Result=success

Id=mariadb.service
LoadState=loaded
ActiveState=active
UnitFileState=disabled
Result=success
ActiveExitTimestampMonotonic=940000000

Id=slurmdbd.service
LoadState=masked
ActiveState=inactive
UnitFileState=masked
Result=success
"""


def test_units() -> None:
    assert daemon_facts.read_units(SHOWN, now=1000.0) == {
        "slurmd": DaemonState("failed", True, "exit-code", down_seconds=60.0),
        "mariadb": DaemonState("active", False, "success", down_seconds=0.0),
        "slurmdbd": DaemonState("inactive", False, "success", down_seconds=0.0, masked=True),
    }
    never = SHOWN.replace("=940000000", "=0")  # since the boot
    assert daemon_facts.read_units(never, now=1000.0)["slurmd"].down_seconds == 0.0


def test_errors_of_a_log() -> None:
    text = """\
[2026-11-23T10:00:00.100] error: an old one
[2026-11-24T10:00:00.100] slurmd version 24.11.5 started
[2026-11-24T10:00:01.100] CPUs=2 Boards=1
[2026-11-24T10:00:02.100] error: twice
[2026-11-24T10:00:03.100] error: once
[2026-11-24T10:00:04.100] error: twice
"""
    assert daemon_facts.find_errors(text) == ["error: an old one", "error: once", "error: twice"]


def test_attempts_to_resolve_a_name_do_not_fill_the_errors_of_a_log() -> None:
    attempt = "slurmd: error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known: No error, attempt number"
    reason = "slurmd: error: _establish_configuration: failed to load configs. Retrying in 10 seconds."
    text = "\n".join([reason, *(f"{attempt} {number}" for number in range(10, -10, -1))])
    assert daemon_facts.find_errors(text) == [
        "error: _establish_configuration: failed to load configs. Retrying in 10 seconds.",
        "error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known",
    ]


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("[2026-11-24T10:00:00.100] error: x", "error: x"),
        ("[2026-11-24T10:00:00.100] [12.batch] error: x", "error: x"),
        ("slurmd: fatal: x", "fatal: x"),
        ("munged: Error: x", "Error: x"),
    ],
)
def test_the_time_of_a_line_is_left_out(line: str, bare: str) -> None:
    assert daemon_facts.strip_prefixes(line) == bare


def test_a_long_log_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_facts, "TAIL", 10)
    (tmp_path / "log").write_text("a" * 100 + "the end")
    assert daemon_facts.read_tail(str(tmp_path / "log")) == "aaathe end"
    assert daemon_facts.read_tail(str(tmp_path / "none")) == ""


def test_a_file_system_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path)
    assert daemon_facts.find_full([str(tmp_path), "/nonexistent"]) == []
    full = os.statvfs_result((free.f_bsize, free.f_frsize, 100, 0, 0, *free[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    assert daemon_facts.find_full([str(tmp_path)]) == [f"{tmp_path} has no space left"]


CONFIG = """\
Configuration data as of 2026-11-24T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
SLURM_CONF              = /etc/slurm/slurm.conf
SlurmctldHost[0]        = head
SlurmctldHost[1]        = spare(10.0.0.3)
SlurmctldLogFile        = (null)
SlurmdPort              = 6818
SlurmUser               = slurm(64030)
"""


def test_parameters() -> None:
    found = controller_facts.read_settings(CONFIG)
    assert found["slurmctldhost"] == "head spare(10.0.0.3)"
    assert found["slurmuser"] == "slurm(64030)"
    assert "slurmctldlogfile" not in found
    assert controller_facts.read_settings("# x=1\nSlurmUser=slurm # who\n") == {"slurmuser": "slurm"}


LINE = (
    "NodeName=n{} Arch=x86_64 CPUTot=64 Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.{} NodeHostName=n{} Version=24.11.5 "
    "RealMemory=1000 State={} ThreadsPerCore=1 BootTime=2026-11-24T10:00:00{}\n"
)


def test_nodes() -> None:
    (record,) = records(LINE.format(1, 1, 1, "DOWN*+DRAIN", " Reason=Not responding [slurm@2026-11-24T11:00:00]"))
    found = controller_facts.read_node(
        record, {"slurmctldparameters": "node_reg_mem_percent=90", "slurmdport": "7000-7010"}
    )
    assert found.states == ("DOWN", "DRAIN", "NOT_RESPONDING")
    assert (found.reason, found.user, found.since) == ("Not responding", "slurm", "2026-11-24T11:00:00")
    assert (found.address, found.port, found.cpus, found.real_memory, found.gpus) == ("10.0.0.1", 7000, 64, 900, 8)
    assert found.sick
    assert controller_facts.read_node(record, {"slurmdparameters": "config_overrides"}).cpus == 1


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("", 0),
        ("gpu", 1),
        ("gpu:4", 4),
        ("gpu:t4:2(S:0),gpu:h100:4,shard:16", 6),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7", 0),
    ],
)
def test_gpus(gres: str, count: int) -> None:
    assert controller_facts.count_gpus(gres) == count


def test_device_files() -> None:
    conf = "NodeName=n[1-2] Name=gpu Type=t4 File=/dev/nvidia[0-1]\nName=nic File=/dev/mlx\n"
    assert controller_facts.find_device_files(conf, "n1") == ("/dev/mlx", "/dev/nvidia0", "/dev/nvidia1")
    assert controller_facts.find_device_files(conf, "n3") == ("/dev/mlx",)
    assert controller_facts.find_device_files("nonsense", "n1") == ()


def test_jobs_and_log_lines_by_node() -> None:
    assert controller_facts.group_jobs_by_node("12|n[1-2]\n13|n1\n14|\n") == {"n1": ["12", "13"], "n2": ["12"]}
    log = """\
[2026-11-24T10:00:00.000] error: Nodes n[1-2] not responding
[2026-11-24T10:00:01.000] error: Node n1 appears to have a different slurm.conf than the slurmctld.
[2026-11-24T10:00:02.000] Node n2 now responding
[2026-11-24T10:00:03.000] error: nothing about any of them
"""
    found = controller_facts.group_log_by_node(log, {"n1": "2026-11-24T09:00:00"})
    assert found["n2"] == ["error: Nodes n[1-2] not responding"]
    assert len(found["n1"]) == 2
    # slurmd has started again since.
    assert len(controller_facts.group_log_by_node(log, {"n1": "2026-11-24T11:00:00"})["n1"]) == 1


def test_sick_nodes_are_few() -> None:
    states = {1: "IDLE", 2: "ALLOCATED", 3: "IDLE+CLOUD+POWERED_DOWN", 4: "IDLE", 5: "MIXED+DRAIN", 6: "IDLE"}
    lines = "".join(LINE.format(i, i, i, state, "") for i, state in states.items())
    asked: list[str] = []
    connected: list[str] = []

    def connect(address: str, _port: int, _seconds: float) -> str:
        connected.append(address)
        return "Connection refused" if address == "10.0.0.2" else ""

    def ask(nodes: Sequence[SlurmNode], _settings: controller_facts.Settings) -> dict[str, str]:
        asked.extend(each.name for each in nodes)
        return {each.name: "timed out" for each in nodes if each.name in ("n2", "n6")}

    log = {"n4": ["error: Node n4 appears to have a different slurm.conf"], "n6": ["error: Nodes n6 not responding"]}
    found = controller_facts.find_sick_nodes(records(lines), controller_facts.DEFAULTS, "", log, connect, ask)
    assert {each.name: each.unanswered for each in found} == {"n2": "", "n4": "", "n5": "", "n6": "timed out"}
    assert asked == ["n1", "n2", "n4", "n6"]
    assert sorted(connected) == ["10.0.0.2", "10.0.0.5", "10.0.0.6"], "a slurmd that answers gets no empty connection"
    assert found[0].closed == "Connection refused"
    assert found[0].addresses == ("10.0.0.2",)


def test_if_no_slurmd_answers_the_question_may_be_at_fault() -> None:
    lines = "".join(LINE.format(i, i, i, "IDLE", "") for i in (1, 2))

    def connect(address: str, _port: int, _seconds: float) -> str:
        return "No route to host" if address == "10.0.0.2" else ""

    def ask(nodes: Sequence[SlurmNode], _settings: controller_facts.Settings) -> dict[str, str]:
        return {each.name: "timed out" for each in nodes}

    log = {"n1": ["error: Nodes n1 not responding"], "n2": ["error: Nodes n2 not responding"]}
    (found,) = controller_facts.find_sick_nodes(records(lines), controller_facts.DEFAULTS, "", log, connect, ask)
    assert (found.name, found.closed, found.unanswered) == ("n2", "No route to host", "")
    assert found.log == ("error: Nodes n2 not responding",)


NO_ANSWER = """\
scontrol: error: slurm_slurmd_info: Zero Bytes were transmitted or received
slurm_load_slurmd_status: Zero Bytes were transmitted or received
"""
"""Of a slurmd without munged (Slurm 22.05)."""


def test_each_slurmd_is_asked_by_a_configuration_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user who can do nothing in Slurm: the node gets a credential of the one who asks."""
    confs = []

    def run(command: Sequence[str], seconds: float, conf: str) -> Answer:
        assert [*command[:2], *command[-3:]] == ["setpriv", "--reuid=65534", "scontrol", "show", "slurmd"]
        assert seconds < 60
        assert Path(conf).stat().st_mode & 0o777 == 0o644
        confs.append(Path(conf).read_text())
        return Answer(1, "", NO_ANSWER) if "NodeAddr=10.0.0.2\n" in confs[-1] else Answer(0, "Active Steps = NONE", "")

    monkeypatch.setattr(slurmd_question, "run", run)
    monkeypatch.setattr(socket, "gethostname", lambda: "head.example.org")
    settings = {"authtype": "auth/munge", "authinfo": "socket=/run/x", "slurmdport": "6818", "prolog": "/x"}
    nodes = [SlurmNode("n1", address="10.0.0.1"), SlurmNode("n2", address="10.0.0.2", port=7000)]
    assert slurmd_question.ask_slurmds(nodes, settings) == {"n2": "Zero Bytes were transmitted or received"}
    assert sorted(confs)[1].split("\n") == [
        *("AuthType=auth/munge", "AuthInfo=socket=/run/x", "SlurmctldHost=head", "SlurmdPort=7000"),
        *("MessageTimeout=10", "NodeName=head NodeAddr=10.0.0.2", ""),
    ]
    assert slurmd_question.ask_slurmds([], settings) == {}


@pytest.mark.parametrize(
    ("database", "slurmctld", "queues", "found"),
    [
        (Answer(0, "7\n12\n9\n9.batch\n", ""), Answer(0, "9\n", ""), ("0",), ["7", "12"]),
        (Answer(0, "9\n", ""), Answer(0, "9\n10\n", ""), ("0",), []),
        (Answer(0, "7\n", ""), Answer(1, "", "no answer"), ("0",), []),
        (Answer(1, "7\n", "no answer"), Answer(0, "", ""), ("0",), []),
        (Answer(0, "7\n", ""), Answer(0, "", ""), ("3", "4", "0"), ["7"]),
        (Answer(0, "7\n", ""), Answer(0, "", ""), ("3",), []),
        (Answer(0, "7\n", ""), Answer(0, "", ""), ("30",), []),
    ],
)
def test_runaway_jobs(
    monkeypatch: pytest.MonkeyPatch, database: Answer, slurmctld: Answer, queues: tuple[str, ...], found: list[str]
) -> None:
    """Not while records of slurmctld are on their way to slurmdbd, and not if one of the two gives no answer."""
    sdiag = iter([Answer(0, f"Server thread count: 1\nDBD Agent queue size: {queue}\n\n", "") for queue in queues])
    answers = {"sacct": database, "squeue": slurmctld}
    monkeypatch.setattr(runaway_jobs, "run", lambda command, **_: answers[command[0]])
    monkeypatch.setattr(slurmdbd_queue, "run", lambda *_, **__: next(sdiag))
    monkeypatch.setattr(slurmdbd_queue, "PAUSES", (0,) * len(queues))
    assert runaway_jobs.find_runaway_jobs(slurmdbd_queue.count_waiting()) == found


def test_without_an_answer_of_sdiag_nobody_knows_whether_messages_wait() -> None:
    assert slurmdbd_queue.read_waiting("sdiag: error: Unable to contact slurm controller") is None
    assert runaway_jobs.find_runaway_jobs(None) == []


FULL_QUEUE = """\
[2026-11-27T14:41:22.809] error: agent queue filling (5000), MaxDBDMsgs=10000, RESTART SLURMDBD NOW
[2026-11-27T14:41:30.020] accounting_storage/slurmdbd: _max_dbd_msg_action: purge 92 step records
[2026-11-27T14:41:30.021] accounting_storage/slurmdbd: _max_dbd_msg_action: purge 0 step records
"""
"""Of Slurm 24.11."""


def test_messages_that_slurmctld_has_discarded() -> None:
    discarded = "[2026-11-27T14:41:36.799] error: agent queue is full (10000), discarding DBD_JOB_START:1425 request"
    earlier = "[2026-11-27T14:41:30.030] accounting_storage/slurmdbd: purge 7 job start records"  # until 24.05
    for line in (discarded, earlier):
        assert slurmdbd_queue.find_discarded(f"{FULL_QUEUE}{line}\nother\n") == line
    assert "purge 92 step records" in slurmdbd_queue.find_discarded(FULL_QUEUE)
    assert slurmdbd_queue.find_discarded(FULL_QUEUE.replace("92", "0")) == ""


def test_mounts_that_are_missing() -> None:
    points = {path: Mount(1, 0, "0:1", "/", path, "ext4", "x") for path in ("/", "/home")}
    fstab = "/dev/sda / ext4 defaults 0 1\nsrv:/h /home nfs nofail 0 0\nsrv:/d /data nfs defaults 0 0 # x\n"
    fstab += "/dev/sdb /spare ext4 noauto 0 0\n/dev/sdc none swap sw 0 0\n"
    units = ["[Mount]\nWhat=srv:/s\nWhere=/scratch\n", "[Mount]\nWhere=/home\n"]
    assert node_facts.find_unmounted(points, fstab, units) == ["/data", "/scratch"]


@pytest.mark.parametrize(
    ("status", "listing", "found"),
    [
        (127, "", ("", None)),
        (0, "GPU 0: Tesla T4 (UUID: x)\nGPU 1: Tesla T4 (UUID: y)\n", ("", 2)),
        (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550", ("Failed", 0)),
    ],
)
def test_nvidia(status: int, listing: str, found: tuple[str, int | None]) -> None:
    error, count = node_facts.read_nvidia_smi(status, listing)
    assert (error[:6], count) == found


def test_own_addresses() -> None:
    trie = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
"""
    six = (
        "00000000000000000000000000000001 01 80 10 80       lo\nfe80000000000000505400fffe000001 02 40 20 80     eth0\n"
    )
    assert node_facts.read_addresses(trie, six) == ["10.0.0.7", "fe80::5054:ff:fe00:1"]


def test_patterns_of_paths() -> None:
    assert node_facts.substitute("/var/log/slurmd.%n.log", {"%n": "n1"}) == "/var/log/slurmd.n1.log"


def test_a_slurmd_of_a_user_tells_no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {5: Process("slurmd", 1, (5001,) * 4, ""), 9: Process("slurmd", 1, (0,) * 4, "")}
    files = {"/proc/5/cmdline": "slurmd\0-f\0/home/x/slurm.conf\0", "/proc/9/cmdline": "slurmd\0-f\0/opt/slurm.conf\0"}
    monkeypatch.setattr(node_facts, "processes", lambda: shown)
    monkeypatch.setattr(node_facts, "read_text", files.__getitem__)
    assert node_facts._find_conf("/var/spool/slurmd") == "/opt/slurm.conf"


def test_processes_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = "0::/system.slice/slurmstepd.scope"
    root, user = (0,) * 4, (5001,) * 4
    shown = {
        1: Process("systemd", 0, root, "0::/init.scope\n4:freezer:/"),
        20: Process("slurmstepd", 1, root, f"{scope}/sEKNKTV3WPV500/step_0/slurm", True, "slurmstepd: [11.0]"),
        21: Process("python", 20, user, f"{scope}/sEKNKTV3WPV500/step_0/user/task_0"),
        22: Process("sleep", 1, user, "4:freezer:/slurm/uid_5001/job_12/step_0"),
        23: Process("sleep", 1, user, f"{scope}/sEKNKTV3WPV501/step_0/user/task_0"),
        24: Process("slurmstepd", 1, root, "0::/system.slice/slurmd.service", True, "slurmstepd: [13.batch]"),
        30: Process("slurmstepd", 1, user, f"0::/user.slice{scope}/job_99/step_0", False),
    }
    monkeypatch.setattr(node_facts, "processes", lambda: shown)
    lost = "sleep 23 of job sEKNKTV3WPV501"
    assert node_facts.find_left(["11", "13"]) == ["sleep 22 of job 12", lost]
    assert sorted(node_facts.find_left(["12"])) == [
        "python 21 of job 11",
        lost,
        "slurmstepd 20 of job 11",
        "slurmstepd 24 of job 13",
    ]


@pytest.mark.parametrize(("told", "ahead"), [(100.0, 0.0), (105.0, 0.0), (110.0, 0.0), (90.0, -10.0), (1310.0, 1200.0)])
def test_a_clock_is_measured_from_outside(told: float, ahead: float) -> None:
    """The host has told its time at some moment between the beginning and the end of the task."""
    assert offset(told, 100.0, 110.0) == ahead


def as_json(answer: NodeFacts | ServerAnswer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(answer)))
    return found


def test_a_fact_that_nobody_asks_for_or_that_no_record_has_is_an_error_of_the_code() -> None:
    state = asdict(DaemonState())
    assert complete(DaemonState, **state) == DaemonState()
    with pytest.raises(TypeError, match="unknown"):
        complete(DaemonState, **state, unknown=1)
    del state["masked"]
    with pytest.raises(TypeError, match="DaemonState has facts that nobody has asked for: masked"):
        complete(DaemonState, **state)


def test_the_facts_about_this_host_have_the_form_of_an_answer() -> None:
    asked = node_facts.HostQuestions(
        "n1", 6818, ["localhost"], 1, "nobody", "/var/spool/slurmd", "", "/tmp", ["/dev/null"], 0, [], ""
    )
    answer = {"changed": False, "time": 1.5, "clock_offset": 0.0, **as_json(node_facts.gather(asked))}
    assert result_errors("slurm_doctor_node_info", answer, {}) == []
    assert answer["missing_files"] == []
    assert answer["closed"] == {"localhost": "Connection refused"}


def test_the_facts_about_a_server_have_the_form_of_an_answer() -> None:
    gathered = as_json(controller_facts.gather(True, {}, 0))
    answer = {"changed": False, "time": 1.5, "clock_offset": 0.0, **gathered, "old_keys": {"munge": 402}}
    assert result_errors("slurm_doctor_info", answer, {}) == []
    assert not answer["cluster"]["answers"]


def test_a_serving_controller_names_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.uname().nodename
    outputs = {
        ("scontrol", "ping"): f"Slurmctld(primary) at {name} is UP",
        ("scontrol", "show", "config"): CONFIG,
        ("scontrol", "--oneliner", "show", "node"): LINE.format(1, 1, 1, "IDLE+DRAIN", " Reason=x [a@2026]"),
        tuple(controller_facts.SQUEUE): "12|n1\n",
    }
    monkeypatch.setattr(controller_facts, "run", lambda command, **_: Answer(0, outputs.get(tuple(command), ""), ""))
    monkeypatch.setattr(controller_facts, "output", lambda command: outputs[tuple(command)])
    monkeypatch.setattr(scontrol, "output", lambda command: outputs[tuple(command)])
    monkeypatch.setattr(scontrol, "serving", lambda: name)
    monkeypatch.setattr(controller_facts, "CONNECT", 0.05)
    answer = {"changed": False, "time": 1.5, "clock_offset": 0.0, **as_json(controller_facts.gather(True, {}, 0))}
    assert result_errors("slurm_doctor_info", answer, {}) == []
    assert [node["name"] for node in answer["nodes"]] == ["n1"]
    assert answer["nodes"][0]["jobs"] == ["12"]
    assert answer["node_options"]["slurm_user"] == "slurm"


def test_secrets_are_old_by_the_time_of_their_files(tmp_path: Path) -> None:
    for name, days in (("old", 90.1), ("new", 89.9)):
        (tmp_path / name).write_text("x")
        when = time.time() - days * 86400
        os.utime(tmp_path / name, (when, when))
    keys = {name: str(tmp_path / name) for name in ("old", "new", "none")}
    assert daemon_facts.find_old(keys, 90) == {"old": 90}
    assert daemon_facts.find_old(keys, 0) == {}


def test_jobs_that_waited_for_a_reservation_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of Slurm 24.11. Job 9 was released: its state is the same, and it waits as any job."""
    listing = "7|Reservation course was deleted\n8|Reservation course was deleted\n9|Priority\n"
    monkeypatch.setattr(ended_reservations, "run", lambda _command: Answer(0, listing, ""))
    assert ended_reservations.find_held_jobs() == {"course": ["7", "8"]}
