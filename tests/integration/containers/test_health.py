# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken nodes are drained with a reason, and taken back when they are well; nobody else's are.

slurmd runs the checks by itself, every ten seconds in this scenario, which one test waits for; the others start them.
The GPUs are stand-ins, and so are nvidia-smi and dmesg where a test puts them into /usr/local/bin.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from debs import Site
from gpus import NODE
from lab import Lab, Run
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
    lab.command(NODE, PROGRAM)


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


@pytest.mark.parametrize(
    ("nvidia_smi", "dmesg", "reason"),
    [
        pytest.param(
            "",
            "[  77.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=2, GPU has fallen off the bus.",
            "Xid (PCI:0000:3b:00): 79, pid=2, GPU has fallen off the bus.",
            id="xid",
        ),
        pytest.param(
            'case $1 in *ecc*) printf "0, 0\n1, 3\n" ;; esac', "", "uncorrected ECC errors (GPU, count): 1, 3", id="ecc"
        ),
        pytest.param(
            'case $1 in *rows*) echo "00000000:18:00.0, Yes, No" ;; esac',
            "",
            "rows of memory to remap (GPU, pending, failed): 00000000:18:00.0, Yes, No",
            id="rows",
        ),
    ],
)
def test_errors_of_a_gpu_drain_its_node(lab: Lab, install: Install, nvidia_smi: str, dmesg: str, reason: str) -> None:
    install("/usr/local/bin/dmesg", f"echo '{dmesg}'")
    install("/usr/local/bin/nvidia-smi", f"{LIST}\n{nvidia_smi}")
    assert checked(lab) == f"drained health check gpu_errors: {reason}"


def test_errors_that_programs_cause_drain_nothing(lab: Lab, install: Install) -> None:
    install("/usr/local/bin/dmesg", "echo '[  77.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=2, MMU Fault'")
    install("/usr/local/bin/nvidia-smi", f'{LIST}\ncase $1 in *ecc*) echo "0, [N/A]" ;; esac')
    assert checked(lab).startswith("idle ")


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
