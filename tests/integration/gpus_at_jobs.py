# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health check before and after jobs with GPUs, on any release of Slurm that has slurm-prolog and slurm-epilog.

The kernel's messages are a file that is mounted over /dev/kmsg, since that of a container is the machine's. nvidia-smi
is a stand-in in /usr/local/bin. slurmd does not run the checks meanwhile, as a process holds their lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lab import Lab

PROGRAM = "/usr/local/sbin/slurm-health"
KMSG = "/run/test-kmsg"
SMI = "/usr/local/bin/nvidia-smi"
HOLD = "systemd-run --quiet --collect --unit=test-no-checks flock /run/gpucluster-slurm/locks/health sleep 600"
FALLEN = "Xid (PCI:0000:3b:00): 79, pid=2, GPU has fallen off the bus."
FAULT = "Xid (PCI:0000:3b:00): 31, pid=2, MMU Fault"
LEFT = "<fb_memory_usage><used>9000 MiB</used></fb_memory_usage><processes></processes>"


class GpuNode:
    """A node with GPUs and its jobs."""

    def __init__(self, lab: Lab, head: str, name: str) -> None:
        self.lab, self.head, self.name = lab, head, name

    def wait_for(self, state: str) -> None:
        """Return when the node has a state and a reason (all nodes are asked for, as in Lab.wait_until_idle)."""
        self.lab.wait_for(self.head, "sinfo -h -N -o '=%N %T %E=' | tr -d '*'", f"={self.name} {state}=")

    @contextmanager
    def kernel_says(self, text: str) -> Iterator[None]:
        """A message of the driver, of now, and no run of the checks by slurmd."""
        now = time.monotonic_ns() // 1000
        self.lab.command(self.name, "mkdir -p /run/gpucluster-slurm/locks")
        self.lab.script(
            self.name, f"cat >{KMSG} && mount --bind {KMSG} /dev/kmsg", f"3,1,{now},-;NVRM: {text}\n".encode()
        )
        self.lab.command(self.name, HOLD)
        try:
            yield
        finally:
            self.lab.command(self.name, "systemctl stop test-no-checks; umount /dev/kmsg")

    @contextmanager
    def driver_says(self, values: str) -> Iterator[None]:
        """A stand-in for the driver with two GPUs, the second of which has these values."""
        gpus = f'<gpu id="00000000:3B:00.0"/><gpu id="00000000:86:00.0">{values}</gpu>'
        script = (
            "#!/bin/sh\n"
            """test "$1" != -L || printf 'GPU 0: H100 (UUID: GPU-0)\\nGPU 1: H100 (UUID: GPU-1)\\n'\n"""
            f"""test "$1" != -q || echo '<nvidia_smi_log>{gpus}</nvidia_smi_log>'\n"""
        )
        self.lab.script(self.name, f"cat >{SMI}.new && chmod 755 {SMI}.new && mv {SMI}.new {SMI}", script.encode())
        try:
            yield
        finally:
            self.lab.command(self.name, f"rm {SMI}")

    def closed(self) -> None:
        """A person closes all findings, and the checks take the node back."""
        self.lab.command(self.name, f"{PROGRAM} --close all; {PROGRAM}")
        self.lab.wait_until_idle(self.head, self.name)


def see_a_broken_gpu_before_a_job(node: GpuNode) -> None:
    """A job of sbatch goes back to the queue and runs later, and one of srun ends."""
    submit = "sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap true"
    with node.kernel_says(FALLEN):
        job = node.lab.command(node.head, submit)
        show = f"scontrol --oneliner show job {job}"
        node.lab.wait_for(node.head, show, " Restarts=1 ")
        node.wait_for(f"drained health check xid-79: {FALLEN}")
        assert "Held" not in node.lab.wait_for(node.head, show, "JobState=PENDING")
    log = node.lab.command(node.name, "journalctl --quiet --no-pager --output=cat --identifier=slurm-prolog")
    assert f"job {job}: not started: health check xid-79: {FALLEN}" in log
    node.closed()
    node.lab.command(node.head, f"scontrol update jobid={job} starttime=now")  # by itself, after two minutes
    node.lab.wait_for(node.head, show, "JobState=COMPLETED")
    with node.kernel_says(FALLEN):
        done = node.lab.host(node.head).run("timeout 120 srun --gres=gpu:1 echo it has run")
        assert (done.rc != 0, done.stdout) == (True, ""), done
        node.wait_for(f"drained health check xid-79: {FALLEN}")
    node.closed()


def see_that_an_error_of_a_program_stops_nothing(node: GpuNode) -> None:
    """The next job runs after an error that was another program's."""
    with node.kernel_says(FAULT):
        assert node.lab.command(node.head, "timeout 120 srun --gres=gpu:1 echo it has run") == "it has run"
        node.lab.wait_until_idle(node.head, node.name)
    node.closed()


def see_what_a_job_has_left(node: GpuNode) -> None:
    """The job has its result, and the node gets no other one until the memory is free."""
    with node.driver_says(LEFT):
        assert node.lab.command(node.head, "timeout 120 srun --gres=gpu:1 echo it has run") == "it has run"
        reason = "health check gpu-memory-left: 9000 MiB without a process"
        node.wait_for(f"drained {reason}")
    with node.driver_says(""):
        node.closed()
