# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health check of role slurm_health: running checks, and the commands for slurmctld."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import seen_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.gpu_findings import read_report
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.kernel_messages import KernelMessage
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import node_treatments
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.node_treatments import TreatmentState
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.report_transport import (
    ClosedFindings,
    NodeOrder,
    ReportReply,
    Sent,
)
from programs import ROLES, load

pytestmark = pytest.mark.once


@pytest.fixture(scope="module", name="health")
def program() -> ModuleType:
    """The program."""
    module: ModuleType = load("health_check")
    return module


def write(directory: Path, **checks: str) -> str:
    """A directory with checks, shell scripts."""
    for name, script in checks.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return str(directory)


def run_checks(health: ModuleType, directory: str, limit: float, hung: Any) -> tuple[dict[str, str], Any]:
    """The errors of the checks in a directory, and the checks that were left behind."""
    results, left = health.run_checks(health.checks_of(directory), ENVIRONMENT, limit, hung)
    return {name: result.error for name, result in results.items() if result.error}, left


ENVIRONMENT = {"PATH": os.environ["PATH"], "WANTED": "two words"}


def test_checks_and_their_words(health: ModuleType, tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        well="echo all is well",
        silent="exit 3",
        wordy="echo first; echo last  one >&2; echo; exit 1",
        told='test "$WANTED" = "two words"',
        killed="kill -9 $$",
    )
    assert run_checks(health, directory, 30, {}) == (
        {"killed": "exit status -9", "silent": "exit status 3", "wordy": "last one"},
        {},
    )


def test_what_is_no_check(health: ModuleType, tmp_path: Path) -> None:
    directory = write(tmp_path, off="exit 1", **{"gpu.bak": "exit 1", "gpu~": "exit 1", "strange": "exit 0"})
    (tmp_path / "off").chmod(0o644)
    (tmp_path / "folder").mkdir()
    (tmp_path / "strange").write_text("#!/no/such/shell\n")
    wrong, hung = run_checks(health, directory, 30, {})
    assert (wrong, hung) == ({"strange": "cannot be run: No such file or directory"}, {})
    assert run_checks(health, str(tmp_path / "missing"), 30, {}) == ({}, {})


def test_a_check_that_hangs_is_ended_with_its_children(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = write(tmp_path, hung="sleep 1000 & echo $! >child; wait".replace("child", str(tmp_path / "child.pid")))
    ended = health.ended

    def ended_after_the_check_is_on_its_way(process: Any, deadline: float) -> int | None:
        # However loaded the host is; this ends, or the test does not.
        while not (tmp_path / "child.pid").exists() or not (tmp_path / "child.pid").read_text().endswith("\n"):
            os.sched_yield()
        status: int | None = ended(process, deadline)
        return status

    monkeypatch.setattr(health, "ended", ended_after_the_check_is_on_its_way)
    wrong, hung = run_checks(health, directory, 0.1, {})
    assert wrong == {"hung": "no answer in 0.1 s"}
    assert list(hung) == ["hung"]
    child = int((tmp_path / "child.pid").read_text())
    # Killed is not gone; this ends, or the test does not.
    while health.started(child) or health.started(hung["hung"][0]):
        os.sched_yield()


def test_a_check_that_hangs_tells_where(health: ModuleType, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "said")
    directory = write(tmp_path, hung=f"echo /data; echo /data >{tmp_path}/said; sleep 1000")
    reader = subprocess.Popen(["cat", str(tmp_path / "said")], stdout=subprocess.PIPE)
    wrong, hung = run_checks(health, directory, 5, {})
    assert reader.communicate()[0] == b"/data\n"
    assert wrong == {"hung": "no answer in 5 s: /data"}
    pid, since, path = hung["hung"]
    while health.started(pid):  # killed is not gone; this ends, or the test does not
        os.sched_yield()
    assert path == "/data"
    here = {"hung": [os.getpid(), health.started(os.getpid()), path]}
    assert run_checks(health, directory, 5, here)[0] == {"hung": "still hangs: /data"}
    assert since > 0


def test_what_still_hangs_is_not_started_again(health: ModuleType, tmp_path: Path) -> None:
    directory = write(tmp_path, hung=f"touch {tmp_path}/again", gone="exit 0", ended="exit 0")
    here = {"hung": [os.getpid(), health.started(os.getpid())], "gone": [os.getpid(), 1], "ended": [2**22 + 1, 0]}
    wrong, hung = run_checks(health, directory, 30, here)
    assert wrong == {"hung": "still hangs"}
    assert hung == {"hung": here["hung"]}
    assert not (tmp_path / "again").exists()


NODE = "NodeName=gpu01 Arch=x86_64 State={} Partitions=gpu BootTime=2026-11-21T12:00:00 {}\n"
BROKEN = "health check gpu: 1 of 2 GPUs"
DRAIN = ["State=DRAIN", f"Reason={BROKEN}"]
RESUME = ["State=RESUME", "Reason=Not responding (cleared by the health check)"]


@pytest.mark.parametrize(
    ("state", "given", "reason", "command"),
    [
        pytest.param("IDLE", "", "", [], id="well"),
        pytest.param("MIXED", "", BROKEN, DRAIN, id="broken"),
        pytest.param("IDLE", "health check gpu: old", BROKEN, DRAIN, id="broken-again"),
        pytest.param("IDLE+DRAIN", BROKEN, BROKEN, [], id="still-broken"),
        pytest.param("MIXED+DRAIN", "health check disk: full", BROKEN, DRAIN, id="otherwise-broken"),
        pytest.param("IDLE+DRAIN", BROKEN, "", RESUME, id="well-again"),
        pytest.param("ALLOCATED+DRAIN", BROKEN, "", RESUME, id="well-again-with-a-job"),
        pytest.param("IDLE*+DRAIN", "new DIMMs", "", [], id="an-administrators"),
        pytest.param("IDLE+DRAIN", "new DIMMs", BROKEN, [], id="an-administrators-broken"),
        pytest.param("IDLE+DRAIN", f"{BROKEN} : Kill task failed", "", [], id="slurms-too"),
        pytest.param("IDLE+DRAIN", f"{BROKEN} : Kill task failed", BROKEN, [], id="slurms-too-broken"),
        pytest.param("DOWN+DRAIN", f"{BROKEN} : Not responding", "", RESUME, id="died-and-well-again"),
        pytest.param("DOWN+DRAIN", f"{BROKEN} : Not responding : x", "", [], id="died-and-taken"),
        pytest.param("DOWN*", "Not responding", BROKEN, DRAIN, id="silent"),
        pytest.param("DOWN", "burnt", BROKEN, [], id="set-down"),
        pytest.param("DOWN+DRAIN", BROKEN, "", RESUME, id="silent-and-well-again"),
        pytest.param("IDLE+DRAIN", f"{BROKEN} [a@5]", f"{BROKEN} [a@5]", [], id="looks-like-a-user"),
    ],
)
def test_what_slurmctld_is_told(health: ModuleType, state: str, given: str, reason: str, command: list[str]) -> None:
    shown = f"Reason={given} [root@2026-11-21T12:00:00] Comment=a [b@c]" if given else ""
    assert health.action(NODE.format(state, shown), reason) == command


def test_reasons(health: ModuleType) -> None:
    wrong = {"disk": '/tmp : it\'s "full"\x1b', "gpu": "1 of 2 GPUs"}
    assert health.reason_for(wrong) == "health check disk: /tmp: its full; gpu: 1 of 2 GPUs"
    assert len(health.reason_for({"long": "x" * 1000})) == 200


def keep_findings(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Keep the record of findings in a directory of the test."""
    monkeypatch.setattr(seen_findings, "LASTING_FILE", str(root / "lib/findings.json"))
    monkeypatch.setattr(seen_findings, "VOLATILE_FILE", str(root / "run/findings.json"))


def run(health: ModuleType, monkeypatch: pytest.MonkeyPatch, root: Path, script: str) -> list[str]:
    """Run the whole program with one check and a stand-in for scontrol. Returns the arguments of scontrol."""
    for name, path in (
        ("DIRECTORY", "checks"),
        ("SETTINGS", "settings.json"),
        ("STATE", "run/state.json"),
        ("KERNEL_SEEN", "run/kernel-seen"),
    ):
        monkeypatch.setattr(health, name, str(root / path))
    keep_findings(monkeypatch, root)
    monkeypatch.setattr(locks, "LOCKS", str(root / "run/locks"))
    (root / "checks").mkdir(exist_ok=True)
    write(root / "checks", check=script)
    told: list[str] = []

    def scontrol(*arguments: str, seconds: float = 15) -> str:
        assert seconds <= health.SCONTROL
        told.append(" ".join(arguments))
        return (root / "node").read_text()

    monkeypatch.setattr(health, "scontrol", scontrol)
    monkeypatch.setenv("SLURMD_NODENAME", "gpu01")
    health.main([])
    return told


def test_slurmctld_is_asked_only_when_it_has_to_be(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node, show = tmp_path / "node", "--oneliner show node gpu01"
    node.write_text(NODE.format("IDLE", ""))
    assert run(health, monkeypatch, tmp_path, "exit 0") == [show]  # the first run after a boot
    assert run(health, monkeypatch, tmp_path, "exit 0") == []
    drain = "update NodeName=gpu01 State=DRAIN Reason=health check check: exit status 1"
    assert run(health, monkeypatch, tmp_path, "exit 1") == [show, drain]
    node.write_text(NODE.format("IDLE+DRAIN", "Reason=health check check: exit status 1 [root@now]"))
    assert run(health, monkeypatch, tmp_path, "exit 1") == [show]
    resume = f"update NodeName=gpu01 {' '.join(RESUME)}"
    assert run(health, monkeypatch, tmp_path, "exit 0") == [show, resume]
    assert run(health, monkeypatch, tmp_path, "exit 0") == []


@pytest.mark.parametrize(("limit", "seconds"), [(20, 22), (1, 3), (40, 5), (60, 0)])
def test_a_run_that_waits_ends_before_slurmd_ends_it(health: ModuleType, limit: float, seconds: float) -> None:
    assert health.waiting(limit) == seconds
    assert limit > 45 or seconds + limit + health.SCONTROL <= health.SLURMD


def test_a_broken_node_is_drained_although_another_process_holds_the_lock(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node").write_text(NODE.format("IDLE", ""))
    (tmp_path / "settings.json").write_text('{"limit": 5}')
    monkeypatch.setattr(health, "waiting", lambda limit: limit / 50)
    (tmp_path / "run/locks").mkdir(parents=True)
    lock = tmp_path / "run/locks/health"
    hold = ["sh", "-c", f"exec 9>>{lock}; flock 9; exec sh -c 'echo; read x'"]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        told = run(health, monkeypatch, tmp_path, "exit 1")
        other.terminate()
    assert told[1] == "update NodeName=gpu01 State=DRAIN Reason=health check check: exit status 1"
    said = capsys.readouterr().out.splitlines()
    held_by = f"process {other.pid} (sh -c echo; read x)"
    assert f"lock health: held by {held_by}, for more than 0.1 s; run this again when it has ended" in said


def test_a_slurmctld_that_does_not_answer_is_asked_again(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "node").write_text(NODE.format("IDLE", ""))
    real = health.scontrol
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", str(tmp_path))
    with pytest.raises(CommandError, match="scontrol"):
        real("show", "node", "gpu01")
    monkeypatch.setattr(health, "STATE", str(tmp_path / "run/state.json"))
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "run/locks"))
    monkeypatch.setattr(health, "DIRECTORY", str(tmp_path / "checks"))
    keep_findings(monkeypatch, tmp_path)
    assert health.main([]) == 0
    assert json.loads((tmp_path / "run/state.json").read_text()) == {"well": False, "hung": {}, "reported": ""}


def test_what_checks_get_to_know() -> None:
    shape: dict[str, Any] = {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 1000}
    hardware: dict[str, dict[str, Any]] = {
        "files": {**shape, "gres": [{"name": "gpu", "type": "t4", "file": "/dev/nvidia[0-1]"}, {"name": "nic"}]},
        "mig": {
            **shape,
            "gres": [
                {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"},
                {"name": "gpu", "type": "h100_80gb", "count": 2, "autodetect": "nvml", "mig": {"1g.10gb": 4}},
            ],
        },
        "amd": {**shape, "gres": [{"name": "gpu", "file": "/dev/dri/renderD128"}]},
        "none": shape,
    }
    nodes = [{"hosts": f"{name}[1-2]", "hardware": name} for name in hardware]
    found = health_environment(nodes, hardware, {"SlurmctldParameters": "node_reg_mem_percent=90"})
    assert {host: [*values.values()] for host, values in found.items() if host.endswith("2")} == {
        "files2": ["/dev/nvidia0 /dev/nvidia1", "2", "0", "900"],
        "mig2": ["", "8", "8", "900"],
        "amd2": ["/dev/dri/renderD128", "0", "0", "900"],
        "none2": ["", "0", "0", "900"],
    }


def of_role(health: ModuleType, tmp_path: Path, check: str, tool: str, words: str, **variables: str) -> dict[str, str]:
    """What a check of the role finds with a stand-in for the tool that it asks."""
    for path, text in (("checks", (ROLES / "slurm_health/files/checks" / check).read_text()), ("bin", words)):
        file = tmp_path / path / (check if path == "checks" else tool)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **variables}
    results = health.run_checks(health.checks_of(str(tmp_path / "checks")), environment, 30, {})[0]
    return {name: result.error for name, result in results.items() if result.error}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param("0A0B0C0D,10.0.0.1,3,1.7,0.000012,0.1,0.1,1,0,0,0,0,64,Normal", "", id="well"),
        pytest.param("0A,ntp,3,1.7,-3.100000,0,0,1,0,0,0,0,64,Normal", "-3.100000 s off the time servers", id="slow"),
        pytest.param("0A,ntp,3,1.7,1.500000,0,0,1,0,0,0,0,64,Normal", "1.500000 s off the time servers", id="fast"),
        pytest.param("00000000,,0,0.0,9.000000,0,0,0,0,0,0,1,0,Not synchronised", "", id="no-servers"),
        pytest.param("506 Cannot talk to daemon", "", id="no-daemon"),
    ],
)
def test_a_clock_that_is_off(health: ModuleType, tmp_path: Path, answer: str, error: str) -> None:
    words = f"#!/bin/sh\ntest \"$*\" = '-c tracking' && echo '{answer}'\n"
    assert of_role(health, tmp_path, "clock", "chronyc", words) == ({"clock": error} if error else {})


def test_a_disk_that_says_that_it_fails(health: ModuleType, tmp_path: Path) -> None:
    """The status has other bits, such as those of a device that cannot be opened, or of old errors in its log."""
    words = "#!/bin/sh\ncase $* in *nvme1n1) exit 72 ;; *nvme1c0n1) exit 8 ;; esac\nexit 198\n"
    found = {"smart": "/dev/nvme1n1 says that it fails (smartctl --all)"}
    disks = "/sys/block/sd* /sys/block/nvme0n1 /sys/block/nvme1c0n1"
    assert of_role(health, tmp_path, "smart", "smartctl", words, HEALTH_DISKS=disks) == {}
    assert of_role(health, tmp_path, "smart", "smartctl", words, HEALTH_DISKS=f"{disks} /sys/block/nvme1n1") == found


@pytest.mark.parametrize(
    ("enabled", "answer", "error"),
    [
        pytest.param(0, "READY", "", id="well"),
        pytest.param(0, "WAITING_FOR_PEERS", "nvidia-imex is not ready: WAITING_FOR_PEERS", id="waits"),
        pytest.param(0, "", "nvidia-imex is not ready: ", id="no-answer"),
        # github.com/NVIDIA/NVSentinel/issues/1471: a node with NVSwitches of its own, and no domain.
        pytest.param(1, "UNAVAILABLE", "", id="no-domain"),
    ],
)
def test_a_domain_without_its_daemon(health: ModuleType, tmp_path: Path, enabled: int, answer: str, error: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\nexit {enabled}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    words = f"#!/bin/sh\ntest \"$*\" = -q && echo '{answer}'\n"
    found = {"imex": error.strip()} if error else {}
    assert of_role(health, tmp_path, "imex", "nvidia-imex-ctl", words) == found


def test_mounts_of_the_key_storage_are_those_that_a_boot_starts(health: ModuleType, tmp_path: Path) -> None:
    """A run that removes a mount disables its unit first, so that the node is not drained for it."""
    checks, units = tmp_path / "checks", tmp_path / "units"
    checks.mkdir()
    (checks / "filesystems").write_text((ROLES / "slurm_health/files/checks/filesystems").read_text())
    (checks / "filesystems").chmod(0o755)
    (units / "remote-fs.target.wants").mkdir(parents=True)
    link = units / "remote-fs.target.wants" / r"srv-my\x2dhomes.mount"

    def wrong(mounts: str = "") -> dict[str, str]:
        environment = {"PATH": os.environ["PATH"], "HEALTH_MOUNTS": mounts, "HEALTH_UNITS": str(units)}
        results = health.run_checks(health.checks_of(str(checks)), environment, 30, {})[0]
        return {name: result.error for name, result in results.items() if result.error}

    assert wrong() == {}
    assert wrong("/no/such/mount") == {"filesystems": "/no/such/mount is not mounted"}
    unit = units / link.name
    mark = "# Managed by gpucluster.slurm (key storage): changes here are overwritten.\n"
    unit.write_text(f"{mark}[Mount]\nWhere=/srv/my-homes\nOptions=ro,nofail\n")
    assert wrong("/proc") == {}, "the unit is not enabled"
    link.symlink_to(unit)
    assert wrong("/proc") == {"filesystems": "/srv/my-homes is not mounted"}
    unit.write_text(f"{mark}[Mount]\nWhere=/proc\nOptions=rw,nofail\n")
    assert wrong() == {}
    unit.write_text("[Mount]\nWhere=/srv/my-homes\n")
    assert wrong() == {}, "the unit is not of this collection"


# -- what the program sees itself --------------------------------------------------------------------------------------

XML = (ROLES.parent / "tests/unit/recorded/h200/nvidia-smi/q-x").read_text().rpartition("</nvidia_smi_log>")
REPORT = "".join(XML[:2])
FALLEN = "NVRM: Xid (PCI:0000:00:06): 79, pid=2, GPU has fallen off the bus."


@pytest.fixture(name="node")
def programs_of_a_node(health: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory with stand-ins for journalctl and nvidia-smi, which print the files `journal` and `smi` there."""
    (tmp_path / "bin").mkdir()
    for name, file in (("journalctl", "journal"), ("nvidia-smi", "smi")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{file}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "journal").write_text("")
    (tmp_path / "smi").write_text(REPORT)
    (tmp_path / "node").write_text(NODE.format("IDLE", ""))
    settings = {"limit": 20, "environment": {"HEALTH_GPUS": "1"}, "built_in": ["gpu_errors", "kernel"], "xids": []}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    monkeypatch.setattr(health, "PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(health, "read_ring", list)
    return tmp_path


def said_by_kernel(*lines: str) -> str:
    """Lines of `journalctl --output=json`, written now."""
    now = int(time.monotonic() * 1e6)
    entries = (
        {"MESSAGE": line, "__MONOTONIC_TIMESTAMP": str(now + place), "__CURSOR": f"c{place}"}
        for place, line in enumerate(lines)
    )
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def test_an_xid_drains_until_a_person_closes_it(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node / "smi").write_text(REPORT.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>N/A<"))
    (node / "journal").write_text(said_by_kernel("booted", FALLEN))
    reason = "health check xid-79: Xid (PCI:0000:00:06): 79, pid=2, GPU has fallen off the bus."
    assert run(health, monkeypatch, node, "exit 0")[1] == f"update NodeName=gpu01 State=DRAIN Reason={reason}"
    (node / "journal").write_text("")
    (node / "node").write_text(NODE.format("IDLE+DRAIN", f"Reason={reason} [root@now]"))
    assert run(health, monkeypatch, node, "exit 0")[1:] == []
    assert health.main(["--list"]) == 0
    assert "xid-79 0000:00:06 (drains the node; node, action: reboot" in capsys.readouterr().out
    assert health.main(["--close", "xid-97"]) == 1
    assert health.main(["--close", "xid-79"]) == 0
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 {' '.join(RESUME)}"]
    assert health.main(["--clear"]) == 2


def test_a_node_whose_disk_does_not_answer_is_drained(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node / "journal").write_text(said_by_kernel("nvme nvme0: Disabling device after reset failure: -19"))
    written = seen_findings._written

    def hangs(path: str, record: seen_findings.FindingRecord) -> str:
        if path == seen_findings.LASTING_FILE:
            time.sleep(1000)
        return str(written(path, record))

    monkeypatch.setattr(seen_findings, "_written", hangs)
    monkeypatch.setattr(seen_findings, "DISK_SECONDS", 0.2)
    (told,) = run(health, monkeypatch, node, "exit 0")[1:]
    assert told.startswith("update NodeName=gpu01 State=DRAIN Reason=health check disk-lost: nvme nvme0: ")
    assert "lib/findings.json: no answer within 0.2 s" in capsys.readouterr().out
    # What has begun to write stays behind, so that it is tried once.
    run(health, monkeypatch, node, "exit 0")
    assert "no answer within" not in capsys.readouterr().out


def test_a_driver_that_fails_is_a_reason(health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path) -> None:
    (node / "bin/nvidia-smi").write_text("#!/bin/sh\necho 'Unable to determine the device handle'; exit 15\n")
    reason = "health check gpu_errors: Unable to determine the device handle"
    assert run(health, monkeypatch, node, "exit 0")[1] == f"update NodeName=gpu01 State=DRAIN Reason={reason}"


NVLINKS = """\
GPU 0: NVIDIA H200 (UUID: {uuid})
\t Link 0: Replay Errors: 0
\t Link 17: Recovery Errors: {errors}
"""


def test_errors_of_a_link_between_gpus_are_a_reason(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    (gpu,) = read_report(REPORT).gpus
    program = f"#!/bin/sh\ncase $1 in nvlink) cat {node}/links ;; *) cat {node}/smi ;; esac\n"
    (node / "bin/nvidia-smi").write_text(program)
    settings = json.loads((node / "settings.json").read_text())
    (node / "settings.json").write_text(json.dumps({**settings, "environment": {"HEALTH_GPUS": "8"}}))
    for errors in (4, 6):
        (node / "links").write_text(NVLINKS.format(uuid=gpu.uuid, errors=errors))
        assert run(health, monkeypatch, node, "exit 0")[1:] == []
    (node / "links").write_text(NVLINKS.format(uuid=gpu.uuid, errors=7))
    reason = "health check nvlink-errors: in an hour link 17: 3 Recovery Errors"
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 State=DRAIN Reason={reason}"]


def test_the_controllers_are_told_what_has_changed(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """munge and the connection are stand-ins."""
    sent: list[Any] = []
    errors: list[str] = []
    monkeypatch.setattr(health, "seal", lambda text, reader: f"{reader} {text}")

    reply = [ReportReply()]

    def send(sealed: str, hosts: list[str], port: int) -> Sent:
        sent.append((sealed, hosts, port))
        return Sent(errors, reply[0])

    monkeypatch.setattr(health, "send", send)
    settings = json.loads((node / "settings.json").read_text())
    repair = {"controllers": ["head", "head2"], "port": 6830, "reader": "slurm", "treats": False}
    (node / "settings.json").write_text(json.dumps({**settings, "repair": repair}))
    (node / "smi").write_text(REPORT.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>N/A<"))
    for _run in range(2):
        run(health, monkeypatch, node, "exit 0")
    ((sealed, hosts, port),) = sent
    first, _newline, text = sealed.partition("\n")
    assert (first, hosts, port) == ("slurm gpu01", ["head", "head2"], 6830)
    assert json.loads(text) | {"checked": 0} == {
        "node": "gpu01",
        "checked": 0,
        "wrong": {},
        "evidence": None,
        "treated": None,
    }
    # Evidence is sent until it is accepted; then the controllers are asked what a person has closed.
    (node / "journal").write_text(said_by_kernel(FALLEN))
    errors.append("head:6830: Connection refused")
    run(health, monkeypatch, node, "exit 0")
    assert "no report to the controllers: head:6830: Connection refused" in capsys.readouterr().out
    errors.clear()
    for _run in range(2):
        run(health, monkeypatch, node, "exit 0")
    contents = [json.loads(each[0].partition("\n")[2]) for each in sent[1:]]
    assert [[*content["wrong"]] for content in contents] == [["xid-79"]] * 3
    assert [bool(content["evidence"]) for content in contents] == [True, True, False]
    assert contents[1]["evidence"]["gpus"][0]["serial"] == "1234567890123"
    assert "pid=2" in contents[1]["evidence"]["findings"][0]["lines"][0]
    (node / "journal").write_text("")
    (node / "node").write_text(NODE.format("IDLE+DRAIN", "Reason=health check xid-79: x [root@now]"))
    # What was closed before it was seen is another one.
    for when, why in ((time.time() - 1000, ""), (time.time(), "by slurm-repair")):
        reply[0] = ReportReply(closed=ClosedFindings(when, ["xid-79"]))
        run(health, monkeypatch, node, "exit 0")
        assert [one.closed for one in seen_findings.load().seen] == [why]
    reply[0] = ReportReply()
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 {' '.join(RESUME)}"]


def test_a_node_that_repair_has_is_not_resumed(health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path) -> None:
    """munge and the connection are stand-ins."""
    answers = [Sent(["head:6830: Connection refused"]), Sent([], ReportReply(keeps=True)), Sent([])]
    monkeypatch.setattr(health, "seal", lambda text, _reader: text)
    monkeypatch.setattr(health, "send", lambda _sealed, _hosts, _port: answers.pop(0))
    settings = json.loads((node / "settings.json").read_text())
    repair = {"controllers": ["head"], "port": 6830, "reader": "slurm", "treats": True}
    (node / "settings.json").write_text(json.dumps({**settings, "repair": repair}))
    (node / "node").write_text(NODE.format("IDLE+DRAIN", "Reason=health check disk: full [root@now]"))
    assert run(health, monkeypatch, node, "exit 0") == []
    assert run(health, monkeypatch, node, "exit 0") == []
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 {' '.join(RESUME)}"]
    # It is well, and nobody is asked any more.
    assert run(health, monkeypatch, node, "exit 0") == []
    assert answers == []


def test_a_node_begins_what_it_is_asked_for(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """munge, the connection and the program that mends the node are stand-ins."""
    treatment, sent = node / "slurm-treatment", list[dict[str, Any]]()
    treatment.write_text(f'#!/bin/sh\necho "$*" >>{node}/begun\n')
    treatment.chmod(0o755)
    monkeypatch.setattr(health, "PROGRAM", str(treatment))
    monkeypatch.setattr(node_treatments, "STATE", str(node / "treatment.json"))
    monkeypatch.setattr(health, "seal", lambda text, _reader: text.partition("\n")[2])

    def send(sealed: str, _hosts: list[str], _port: int) -> Sent:
        sent.append(json.loads(sealed))
        return Sent([], ReportReply(keeps=True, order=NodeOrder("reset", "12-1796000000")))

    monkeypatch.setattr(health, "send", send)
    settings = json.loads((node / "settings.json").read_text())
    repair = {"controllers": ["head"], "port": 6830, "reader": "slurm", "treats": True}
    (node / "settings.json").write_text(json.dumps({**settings, "repair": repair}))
    run(health, monkeypatch, node, "echo full; exit 1")
    assert (node / "begun").read_text() == "begin reset 12-1796000000\n"
    treatment.write_text("#!/bin/sh\necho no bus; exit 1\n")
    for is_over in (False, True):
        node_treatments.keep_state(TreatmentState("12-1796000000", "no reset", is_over))
        run(health, monkeypatch, node, "echo full; exit 1")
    assert [content["treated"] for content in sent] == [None, None, {"key": "12-1796000000", "error": "no reset"}]
    assert "no bus" in capsys.readouterr().out


def test_the_text_for_a_vendor(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node / "smi").write_text(REPORT.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>N/A<"))
    (node / "journal").write_text(said_by_kernel(FALLEN))
    run(health, monkeypatch, node, "exit 0")
    capsys.readouterr()
    assert health.main(["--vendor"]) == 0
    text = capsys.readouterr().out
    assert f"Node {os.uname().nodename}: " in text
    assert "GPU 0000:00:06: NVIDIA H200, serial number 1234567890123, part 692-2G520-0282-000" in text
    assert "xid-79 0000:00:06: " in text
    assert "    Xid (PCI:0000:00:06): 79, pid=2, GPU has fallen off the bus.\n" in text
    (node / "bin/nvidia-smi").write_text("#!/bin/sh\nexit 15\n")
    assert health.main(["--vendor"]) == 0
    assert "driver unknown" in capsys.readouterr().out


@pytest.mark.parametrize("status", [1, 127])
def test_a_journal_that_cannot_be_read_is_no_reason(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, status: int
) -> None:
    (node / "bin/journalctl").write_text(f"#!/bin/sh\necho No journal files were found.; exit {status}\n")
    assert run(health, monkeypatch, node, "exit 0")[1:] == []
    assert seen_findings.load().cursor == ""


def test_a_check_of_the_site_replaces_one_of_the_program(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    (node / "checks").mkdir()
    write(node / "checks", gpu_errors="exit 0")
    (node / "journal").write_text(said_by_kernel(FALLEN))
    assert run(health, monkeypatch, node, "exit 0")[1:] == []
    write(node / "checks", kernel="echo own; exit 1")
    reason = "health check kernel: own"
    assert run(health, monkeypatch, node, "exit 0")[1] == f"update NodeName=gpu01 State=DRAIN Reason={reason}"


SHARED = {"filesystems": "no answer in 20 s: /home"}


@pytest.mark.parametrize(
    ("wrong", "reasons", "others"),
    [
        pytest.param(SHARED, 2 * ["filesystems: /home is not mounted"], 0, id="few"),
        pytest.param(SHARED, 3 * ["filesystems: no answer in 20 s: /home"], 3, id="enough"),
        pytest.param(SHARED, 3 * ["disk: /tmp has 3 MiB free"], 0, id="another-one"),
        pytest.param({**SHARED, "disk": "full"}, 9 * ["filesystems: /home is not mounted"], 0, id="its-own-as-well"),
        pytest.param({"gpu": "1 of 2 GPUs"}, 9 * ["gpu: 1 of 2 GPUs"], 0, id="of-the-node"),
        pytest.param(
            {"gpu": "nvidia-smi, exit status 18: Driver/library version mismatch"},
            4 * ["gpu: nvidia-smi, exit status 18: Driver/library version mismatch"],
            4,
            id="an-update",
        ),
    ],
)
def test_what_nodes_share_drains_few_of_them(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], reasons: list[str], others: int
) -> None:
    lines = [f"n{number} health check {reason}" for number, reason in enumerate(reasons)]
    lines += [f"n{number} none" for number in range(len(lines), 50)]
    monkeypatch.setattr(health, "sinfo", lambda *_words: "\n".join(lines + lines[:3]) + "\n")
    assert health.nodes_with(wrong, 5) == others


# -- before and after a job --------------------------------------------------------------------------------------------

STRAY = """<processes><process_info><pid>71</pid><type>C</type><process_name>python</process_name>
<used_memory>9000 MiB</used_memory></process_info></processes>"""
LEFT = "<fb_memory_usage><used>9000 MiB</used></fb_memory_usage><processes></processes>"


def at_job(health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, moment: str) -> tuple[int, list[str]]:
    """The exit status of the program before or after a job, and what it has told slurmctld."""
    statuses: list[int] = []
    main = health.main

    def with_word(_words: list[str]) -> None:
        statuses.append(main([f"--{moment}-job"]))

    with monkeypatch.context() as patched:
        patched.setattr(health, "main", with_word)
        patched.setattr(health, "FREED_SECONDS", 0.0)
        told = run(health, monkeypatch, node, "exit 1")
    return statuses[0], told


def of_gpu(values: str) -> str:
    """An answer of the driver with one GPU."""
    return f'<nvidia_smi_log><gpu id="00000000:00:06.0">{values}</gpu></nvidia_smi_log>'


def test_a_node_with_a_broken_gpu_starts_no_job(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    assert at_job(health, monkeypatch, node, "before") == (0, [])
    assert not (node / "run/findings.json").exists()
    (node / "smi").write_text(REPORT.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>N/A<"))
    monkeypatch.setattr(health, "read_ring", lambda: [KernelMessage(int(time.monotonic() * 1e6), FALLEN)])
    reason = "health check xid-79: Xid (PCI:0000:00:06): 79, pid=2, GPU has fallen off the bus."
    told = ["--oneliner show node gpu01", f"update NodeName=gpu01 State=DRAIN Reason={reason}"]
    assert at_job(health, monkeypatch, node, "before") == (3, told)
    assert float((node / "run/kernel-seen").read_text()) <= time.monotonic()
    # It stays, although the message goes away, until a person closes it; then the node is resumed.
    monkeypatch.setattr(health, "read_ring", list)
    (node / "node").write_text(NODE.format("IDLE+DRAIN", f"Reason={reason} [root@now]"))
    assert at_job(health, monkeypatch, node, "before") == (3, told[:1])
    assert health.main(["--close", "xid-79"]) == 0
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 {' '.join(RESUME)}"]


def test_an_error_of_the_last_job_starts_the_next_one(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    message = "NVRM: Xid (PCI:0000:00:06): 31, pid=2, MMU Fault"
    monkeypatch.setattr(health, "read_ring", lambda: [KernelMessage(int(time.monotonic() * 1e6), message)])
    assert at_job(health, monkeypatch, node, "before") == (0, [])


def test_what_a_job_leaves_on_a_gpu(health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path) -> None:
    assert at_job(health, monkeypatch, node, "after") == (0, [])
    (node / "smi").write_text(of_gpu(LEFT))
    reason = "health check gpu-memory-left: 9000 MiB without a process"
    told = ["--oneliner show node gpu01", f"update NodeName=gpu01 State=DRAIN Reason={reason}"]
    assert at_job(health, monkeypatch, node, "after") == (0, told)
    # It drains until the driver no longer says it, and the next run of the checks asks for the node's state.
    (node / "node").write_text(NODE.format("IDLE+DRAIN", f"Reason={reason} [root@now]"))
    assert run(health, monkeypatch, node, "exit 0") == told[:1]
    (node / "smi").write_text(of_gpu(""))
    assert run(health, monkeypatch, node, "exit 0")[1:] == [f"update NodeName=gpu01 {' '.join(RESUME)}"]


def test_memory_that_is_freed_a_moment_later_drains_nothing(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    (node / "smi").write_text(of_gpu(LEFT))
    (node / "bin/nvidia-smi").write_text(f"#!/bin/sh\ncat {node}/smi; echo '{of_gpu('')}' >{node}/smi\n")
    assert at_job(health, monkeypatch, node, "after") == (0, [])


def test_a_process_of_no_job_is_listed(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node / "smi").write_text(of_gpu(STRAY))
    (node / "bin/nvidia-smi").write_text(f"#!/bin/sh\necho asked >>{node}/asked\ncat {node}/smi\n")
    monkeypatch.setattr(health, "strays", lambda pids: [*pids])
    assert at_job(health, monkeypatch, node, "after") == (0, [])
    assert (node / "asked").read_text().split() == ["asked", "asked"]
    assert at_job(health, monkeypatch, node, "after") == (0, [])
    assert (node / "asked").read_text().split() == ["asked", "asked", "asked"]
    health.main(["--list"])
    assert "gpu-process-left 0000:00:06 (does not drain; node, action: person" in capsys.readouterr().out


def test_a_driver_that_hangs_after_a_job_is_asked_once(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, node: Path
) -> None:
    (node / "bin/nvidia-smi").write_text(f"#!/bin/sh\necho asked >>{node}/asked\nexec sleep 1000\n")
    monkeypatch.setattr(health, "DRIVER_SECONDS", 0.5)
    monkeypatch.setattr(health, "started", lambda _pid: 7)  # it cannot be ended
    assert at_job(health, monkeypatch, node, "after") == (0, [])
    assert at_job(health, monkeypatch, node, "after") == (0, [])
    assert (node / "asked").read_text() == "asked\n"
    reason = "health check gpu_errors: still hangs"
    assert run(health, monkeypatch, node, "exit 0")[1] == f"update NodeName=gpu01 State=DRAIN Reason={reason}"


@pytest.mark.parametrize("words", [["--before-job", "all"], ["--close"], ["--list", "all"], ["--after"]])
def test_wrong_words(health: ModuleType, words: list[str]) -> None:
    assert health.main(words) == 2
