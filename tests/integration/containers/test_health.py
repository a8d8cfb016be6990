# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken nodes are drained with a reason, and taken back when they are well; nobody else's are.

slurmd runs the checks by itself, every ten seconds in this scenario, which one test waits for; the others start them.
The GPUs and network ports are stand-ins, and so are nvidia-smi and journalctl where a test puts them into
/usr/local/bin.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gpus_at_jobs
import pytest
from debs import Site
from gpus import NODE
from lab import Lab, Run
from measured_nodes import measure_a_drained_node
from network_port import DOWN, UP, set_port, with_port
from plays import Case, role

PROGRAM = "/usr/local/sbin/slurm-health"
CHECKS = "/etc/gpucluster-slurm/health.d"
KEPT = ["gpucluster.slurm.slurm_health : Install the health check"]

Install = Callable[[str, str], None]


def status(lab: Lab) -> str:
    """State and reason of the node. An asterisk says that slurmctld has yet to hear from it after it was resumed."""
    return str(lab.command("front", f"sinfo -h -N -p cpu -n {NODE} -o '%T %E'").replace("*", "", 1))


def checked(lab: Lab) -> str:
    """State and reason of the node after the checks have run once more."""
    lab.host(NODE).run(PROGRAM)
    return status(lab)


def resumed(lab: Lab) -> None:
    """Sees that the checks take the node back. Their reason for that is gone once slurmctld has heard from the node."""
    lab.command(NODE, PROGRAM)
    assert status(lab) in ("idle Not responding (cleared by the health check)", "idle none")


@pytest.fixture(autouse=True)
def well(lab: Lab) -> Iterator[None]:
    """The node is idle before each test, and well after it: slurmd by itself would take it back at its next check."""
    lab.wait_until_idle("front", NODE)
    yield
    lab.command(NODE, f"{PROGRAM} --close all; {PROGRAM}")


@pytest.fixture(name="install")
def files_that_are_removed_again(lab: Lab) -> Iterator[Install]:
    """Installs a program on the node, until the test ends."""
    paths = []

    def install(path: str, script: str) -> None:
        paths.append(path)
        quoted = shlex.quote(path)
        # In one step: slurmd may be about to run it.
        text = f"#!/bin/sh\n{script}\n".encode()
        lab.script(NODE, f"cat >{quoted}.new && chmod 755 {quoted}.new && mv {quoted}.new {quoted}", text)

    yield install
    for path in paths:
        lab.command(NODE, f"rm -f {path}")


def test_a_node_that_an_administrator_has_drained_stays_so(lab: Lab, install: Install) -> None:
    lab.command("front", f"scontrol update nodename={NODE} state=drain reason='new DIMMs'")
    try:
        # Well, broken, well again.
        assert checked(lab) == "drained new DIMMs"
        install(f"{CHECKS}/broken", "echo broken; exit 1")
        assert checked(lab) == "drained new DIMMs"
        lab.command(NODE, f"rm {CHECKS}/broken")
        assert checked(lab) == "drained new DIMMs"
        lab.command(NODE, "rm /run/gpucluster-slurm/health.json")  # as after a boot
        assert checked(lab) == "drained new DIMMs"
    finally:
        lab.command("front", f"scontrol update nodename={NODE} state=resume")


def test_a_node_that_an_administrator_takes_over_is_not_resumed(lab: Lab, install: Install) -> None:
    install(f"{CHECKS}/broken", "echo broken; exit 1")
    assert checked(lab) == "drained health check broken: broken"
    lab.command("front", f"scontrol update nodename={NODE} state=drain reason='sent back'")
    lab.command(NODE, f"rm {CHECKS}/broken")
    assert checked(lab) == "drained sent back"
    lab.command("front", f"scontrol update nodename={NODE} state=resume")


def test_a_node_that_was_drained_before_a_boot_is_resumed_after_it(lab: Lab, install: Install) -> None:
    install(f"{CHECKS}/broken", "exit 3")
    assert checked(lab) == "drained health check broken: exit status 3"
    lab.command(NODE, f"rm {CHECKS}/broken /run/gpucluster-slurm/health.json")
    resumed(lab)


def test_a_node_that_slurm_has_set_down_gets_no_job_while_it_is_broken(lab: Lab, install: Install) -> None:
    # In this order: slurmd may run the check at once, and what is drained is no longer free to be.
    lab.command("front", f"scontrol update nodename={NODE} state=down reason='Not responding'")
    install(f"{CHECKS}/broken", "echo broken; exit 1")
    assert checked(lab) == "drained health check broken: broken"
    lab.command(NODE, f"rm {CHECKS}/broken")
    resumed(lab)


def test_a_check_that_hangs_is_a_reason(lab: Lab, install: Install) -> None:
    settings = lab.command(NODE, "cat /etc/gpucluster-slurm/health.json")
    short = settings.replace('"limit": 20', '"limit": 2')
    assert short != settings
    lab.script(NODE, "cat >/etc/gpucluster-slurm/health.json", short.encode())
    try:
        install(f"{CHECKS}/hung", "sleep 1000")
        assert checked(lab) == "drained health check hung: no answer in 2 s"
    finally:
        lab.script(NODE, "cat >/etc/gpucluster-slurm/health.json", settings.encode())


@pytest.fixture(name="port")
def a_port_of_the_machine_type(lab: Lab) -> Iterator[None]:
    """The machine type has a port, until the test ends, and the node an adapter, which is a stand-in."""
    settings = lab.command(NODE, "cat /etc/gpucluster-slurm/health.json")
    content = json.loads(settings)
    content["environment"]["HEALTH_PORTS"] = "mlx5_0/1=InfiniBand:400"
    with with_port(lab, NODE):
        lab.script(NODE, "cat >/etc/gpucluster-slurm/health.json", json.dumps(content).encode())
        yield
        lab.script(NODE, "cat >/etc/gpucluster-slurm/health.json", settings.encode())


@pytest.mark.usefixtures("port")
def test_a_port_without_a_link_drains_the_node_until_it_is_up(lab: Lab) -> None:
    lab.command(NODE, PROGRAM)
    set_port(lab, NODE, DOWN)
    lab.host(NODE).run(PROGRAM)  # one run is not enough
    assert checked(lab) == "drained health check port-down: mlx5_0/1 is DOWN (Polling)"
    set_port(lab, NODE, UP)
    resumed(lab)


@pytest.mark.usefixtures("port")
def test_a_port_that_flaps_drains_the_node_until_a_person_has_closed_it(lab: Lab) -> None:
    lab.command(NODE, PROGRAM)
    set_port(lab, NODE, {"counters/link_downed": "3"})
    reason = "drained health check port-flaps: mlx5_0/1 has lost its link 3 times in an hour"
    assert checked(lab) == reason
    assert checked(lab) == reason
    lab.command(NODE, f"{PROGRAM} --close port-flaps")
    resumed(lab)


def test_what_nvidia_smi_says_of_a_broken_driver_is_the_reason(lab: Lab, install: Install) -> None:
    install("/usr/local/bin/nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    message = "Failed to initialize NVML: Driver/library version mismatch"
    assert checked(lab) == f"drained health check gpu: nvidia-smi, exit status 18: {message}"


def test_a_gpu_that_nvidia_smi_does_not_find_is_missed(lab: Lab, install: Install) -> None:
    install(
        "/usr/local/bin/nvidia-smi",
        "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)'",
    )
    assert checked(lab) == "drained health check gpu: 1 of 2 GPUs"


LIST = """test "$1" != -L || printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\nGPU 1: NVIDIA H100 (UUID: GPU-1)\n'"""
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=2, GPU has fallen off the bus."


def driver(values: str) -> str:
    """A stand-in for nvidia-smi with two GPUs, the second of which has these values in `nvidia-smi -q -x`."""
    gpus = f'<gpu id="00000000:3B:00.0"/><gpu id="00000000:86:00.0">{values}</gpu>'
    return f"{LIST}\ntest \"$1\" != -q || echo '<nvidia_smi_log>{gpus}</nvidia_smi_log>'"


def journal(line: str) -> str:
    """A stand-in for journalctl, which has one message of the kernel, of now."""
    now = time.monotonic_ns() // 1000
    entry = json.dumps({"MESSAGE": line, "__MONOTONIC_TIMESTAMP": str(now), "__CURSOR": "c"})
    return f'case "$*" in *dmesg*) echo \'{entry}\' ;; *) exec /usr/bin/journalctl "$@" ;; esac'


@pytest.mark.parametrize(
    ("values", "line", "reason"),
    [
        pytest.param("", FALLEN, f"xid-79: {FALLEN.removeprefix('NVRM: ')}", id="xid"),
        pytest.param(
            "<ecc_errors><volatile><sram_uncorrectable>3</sram_uncorrectable></volatile></ecc_errors>",
            "",
            "gpu-ecc: uncorrected errors: sram_uncorrectable 3",
            id="ecc",
        ),
        pytest.param(
            "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>",
            "",
            "gpu-rows-pending: rows of memory wait for a reset",
            id="rows",
        ),
        pytest.param(
            "", "EDAC MC0: 1 UE memory read error", "memory-uncorrected: EDAC MC0: 1 UE memory read error", id="host"
        ),
    ],
)
def test_errors_drain_their_node(lab: Lab, install: Install, values: str, line: str, reason: str) -> None:
    install("/usr/local/bin/journalctl", journal(line))
    install("/usr/local/bin/nvidia-smi", driver(values))
    assert checked(lab) == f"drained health check {reason}"


def test_an_xid_that_has_scrolled_away_keeps_the_node_drained_until_a_person_closes_it(
    lab: Lab, install: Install
) -> None:
    install("/usr/local/bin/nvidia-smi", driver(""))
    install("/usr/local/bin/journalctl", journal(FALLEN))
    reason = f"drained health check xid-79: {FALLEN.removeprefix('NVRM: ')}"
    assert checked(lab) == reason
    install("/usr/local/bin/journalctl", "true")
    assert checked(lab) == reason
    lab.command(NODE, "rm /run/gpucluster-slurm/findings.json")
    assert checked(lab) == reason
    shown = lab.command(NODE, f"{PROGRAM} --list")
    assert "xid-79 0000:3b:00 (drains the node; node, action: reboot" in shown
    assert lab.command(NODE, f"{PROGRAM} --close xid-79") == "closed: xid-79 0000:3b:00"
    resumed(lab)


def cases(lab: Lab) -> list[list[str]]:
    """The open cases after two rounds, by their columns."""
    for _round in range(3):
        lab.command("front", "slurm-repair round")
    lines = lab.command("front", "slurm-repair list").split("\n")[1:]
    return [line.split(maxsplit=6) for line in lines]


def test_a_node_that_fails_has_a_case_with_its_evidence(lab: Lab, install: Install) -> None:
    """Mode observe: the health check drains and returns the node, and repair says what would mend it."""
    assert cases(lab) == []
    install("/usr/local/bin/nvidia-smi", driver("<serial>1650000000001</serial>"))
    lost = FALLEN.replace("3b:00", "86:00")
    install("/usr/local/bin/journalctl", journal(lost))
    assert checked(lab).startswith("drained health check xid-79: ")
    ((number, node, _day, _time, state, finding, following),) = cases(lab)
    assert (node, state, finding, following) == (NODE, "saved", "xid-79", "drain (reboot)")
    text = lab.command("front", f"slurm-repair show {NODE}")
    for words in (f"Node {NODE}: ", "GPU 0000:86:00: ", "serial number 1650000000001", lost.removeprefix("NVRM: ")):
        assert words in text
    assert status(lab).startswith("drained health check xid-79: "), "nothing was done"
    found = lab.command("front", "cd /var/lib/slurm/slurmctld/repair && find . -type f -printf '%m %u %P\\n' | sort")
    assert {line.rpartition(" ")[0] for line in found.split("\n")} == {"600 slurm"}
    assert f"cases/{number}.json" in found
    assert lab.host(NODE).run("cat /var/lib/slurm/slurmctld/repair").rc != 0
    install("/usr/local/bin/journalctl", "true")
    lab.command(NODE, f"{PROGRAM} --close all")
    resumed(lab)
    assert cases(lab) == []
    assert "the finding has ended, and the node is in service" in lab.command("front", f"slurm-repair show {number}")


def test_a_drained_node_is_measured_without_a_control_host(lab: Lab) -> None:
    said = measure_a_drained_node(lab, "front", NODE)
    assert said.endswith(f"{NODE}: passed\n"), said
    resumed(lab)


def test_a_person_closes_a_case_and_its_finding_with_one_command(lab: Lab, install: Install) -> None:
    install("/usr/local/bin/nvidia-smi", driver(""))
    install("/usr/local/bin/journalctl", journal(FALLEN))
    assert checked(lab).startswith("drained health check xid-79: ")
    assert len(cases(lab)) == 1
    install("/usr/local/bin/journalctl", "true")
    assert "closed" in lab.command("front", f"slurm-repair close {NODE}")
    assert checked(lab).startswith("drained health check xid-79: "), "the node learns of it after this check"
    resumed(lab)
    assert "closed: by slurm-repair" in lab.command(NODE, f"{PROGRAM} --list")
    assert cases(lab) == []


def test_only_root_of_the_node_is_believed(lab: Lab) -> None:
    """A user of the node and another host have the key of munge as well."""
    report = json.dumps({"node": NODE, "checked": time.time(), "wrong": {"xid-79": "lost"}, "evidence": None})
    sealed = f"printf '%s\\n%s' {NODE} {shlex.quote(report)} | munge --restrict-uid=slurm"
    talk = f"{{ {sealed}; sleep 1; }} | timeout 10 bash -c 'exec 3<>/dev/tcp/front/6830; cat >&3; head -n 1 <&3'"
    as_alice = lab.command(NODE, f"runuser -u alice -- bash -c {shlex.quote(talk)}")
    assert as_alice.startswith("found user ")
    assert "of another host" in lab.command("box02" if NODE != "box02" else "box01", f"bash -c {shlex.quote(talk)}")
    assert lab.command(NODE, f"bash -c {shlex.quote(talk)}").startswith("accepted")
    lab.command(NODE, "rm -f /run/gpucluster-slurm/health.json")
    lab.command(NODE, PROGRAM)
    cases(lab)


def test_errors_that_programs_cause_drain_nothing(lab: Lab, install: Install) -> None:
    install("/usr/local/bin/journalctl", journal("NVRM: Xid (PCI:0000:3b:00): 31, pid=2, MMU Fault"))
    install("/usr/local/bin/nvidia-smi", driver("<serial>N/A</serial>"))
    assert checked(lab).startswith("idle ")
    assert "xid-31 0000:3b:00 (does not drain; job" in lab.command(NODE, f"{PROGRAM} --list")


def test_munge_that_does_not_work_is_noticed(lab: Lab) -> None:
    # slurmctld cannot be told then: it sees by itself that the node does not answer.
    lab.command(NODE, "systemctl stop munge")
    try:
        assert "munge: " in lab.command(NODE, PROGRAM, rc=1)
    finally:
        lab.command(NODE, "systemctl start munge")
        # slurmctld does not ask a node again for SlurmdTimeout / 3 that has not answered: the node speaks.
        lab.command(NODE, "systemctl restart slurmd")
        lab.host("front").run(f"scontrol update nodename={NODE} state=resume")  # refused where it is not needed


def test_nothing_is_asked_of_slurmctld_while_all_is_well(lab: Lab, install: Install) -> None:
    assert checked(lab).startswith("idle ")
    install("/usr/local/bin/scontrol", "echo asked >&2; exit 1")
    assert lab.command(NODE, PROGRAM) == ""


@pytest.fixture
def own_checks(lab: Lab, tmp_path: Path) -> Iterator[dict[str, Run]]:
    """The role with checks of the site's own, in check mode and for good; afterwards they are gone again."""
    own = tmp_path / "scratch"
    own.write_text("#!/bin/sh\ntest -d /scratch || { echo no scratch; exit 1; }\n")
    variables = {"slurm_health_own_checks": {"scratch": str(own)}, "slurm_health_mounts": ["/home", "/data"]}
    cases = {
        "check": Case(NODE, [role("slurm_health", check=True)], variables),
        "run": Case(NODE, [role("slurm_health")], variables),
    }
    yield Site(lab).cases(tmp_path, cases)
    lab.host(NODE).run("umount /data; rmdir /data /scratch")
    gone = Site(lab).cases(tmp_path, {"gone": Case(NODE, [role("slurm_health")])})["gone"]
    assert gone.changed == {NODE: KEPT}
    assert lab.host(NODE).run(f"test -e {CHECKS}/scratch").rc == 1


def test_a_site_has_checks_of_its_own(lab: Lab, own_checks: dict[str, Run]) -> None:
    assert {name: run.changed for name, run in own_checks.items()} == {"check": {NODE: KEPT}, "run": {NODE: KEPT}}
    assert checked(lab) == "drained health check filesystems: /data is not mounted; scratch: no scratch"
    lab.command(NODE, "mkdir -p /data /scratch; mount -t tmpfs -o ro data /data")
    assert checked(lab) == "drained health check filesystems: /data is read-only"
    lab.command(NODE, "mount -o remount,rw /data")
    resumed(lab)


@pytest.mark.parametrize(
    "see",
    [
        gpus_at_jobs.see_a_broken_gpu_before_a_job,
        gpus_at_jobs.see_that_an_error_of_a_program_stops_nothing,
        gpus_at_jobs.see_what_a_job_has_left,
    ],
)
def test_gpus_are_seen_before_and_after_a_job(lab: Lab, see: Callable[[gpus_at_jobs.GpuNode], None]) -> None:
    see(gpus_at_jobs.GpuNode(lab, "front", NODE))


# The last one: Slurm shows a node for seconds as mixed whose job has ended.
def test_a_node_whose_gpu_has_vanished_is_drained_and_keeps_its_job_until_it_is_back(lab: Lab, running: str) -> None:
    lab.command(NODE, "rm /dev/nvidia1")
    try:
        show = f"sinfo -h -N -p cpu -n {NODE} -o '%T %E'"
        assert lab.wait_for("front", show, "drain") == "draining health check gpu: missing: /dev/nvidia1"
        assert lab.command("front", f"squeue -h -j {running} -o %T") == "RUNNING"
    finally:
        lab.command(NODE, f"mknod -m 666 /dev/nvidia1 c 195 1; {PROGRAM}")
    lab.wait_for("front", f"sinfo -h -N -p cpu -n {NODE} -o %T | grep -cE '^(mixed|allocated)$'", "1")
    assert lab.command("front", f"squeue -h -j {running} -o %T") == "RUNNING"
