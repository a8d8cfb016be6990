# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of nodes that are containers, and what mends them.

Stand-ins are the kernel's messages (a file over /dev/kmsg, since that of a container is the machine's), its boot id,
nvidia-smi, and the port of a network adapter. slurmd starts the health check by itself, and the timers of the
controllers the rounds.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lab import Lab
from network_port import CLASS, set_port, with_port

HEALTH = "/usr/local/sbin/slurm-health"
SETTINGS = "/etc/gpucluster-slurm/health.json"
CHECKS = "/etc/gpucluster-slurm/health.d"
SMI = "/usr/local/bin/nvidia-smi"
PLACE = "/run/test-node"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
DATA = "/test-data"
"""A file system that the health check wants."""
RESERVATION = "mending"
UNUSED_PORT = 9

NVIDIA_SMI = f"""\
#!/bin/sh
case $1 in
  -L) printf 'GPU 0: H100 (UUID: GPU-0)\\nGPU 1: H100 (UUID: GPU-1)\\n' ;;
  -q) cat {PLACE}/driver.xml ;;
esac
"""

BEGIN = f"""
mkdir -p {PLACE} {DATA}
: >{PLACE}/kmsg
cat {BOOT_ID} >{PLACE}/boot_id
mount --bind {PLACE}/kmsg /dev/kmsg
mount -o remount,bind,ro /dev/kmsg
mount --bind {PLACE}/boot_id {BOOT_ID}
mount -t tmpfs data {DATA}
"""

END = f"""
rm -f {SMI} {CHECKS}/test-scratch
if grep -q '^full /tmp ' /proc/mounts; then umount -l /tmp; fi
for place in /dev/kmsg {BOOT_ID} {DATA}; do umount -l $place; done
test -c /dev/nvidia1 || mknod -m 666 /dev/nvidia1 c 195 1
rm -rf {PLACE} {DATA}
systemctl start slurmd
{HEALTH} --close all
{HEALTH}
"""


@dataclass
class Controllers:
    """Two controllers, and which of them serves."""

    lab: Lab
    first: str
    second: str
    serving: str

    def command(self, command: str) -> None:
        """Run a command on the controller that serves, as soon as it does."""
        self.lab.wait_for(self.serving, f"timeout 60 {command} && echo =done=", "=done=", 300)


class FaultyNode:
    """A node with stand-ins, through which it fails."""

    def __init__(self, lab: Lab, controllers: Controllers, name: str) -> None:
        self.lab, self.controllers, self.name = lab, controllers, name
        self.gpus_replaced = 0

    def run(self, command: str) -> str:
        """Run a command on the node."""
        return str(self.lab.command(self.name, command))

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """Write a file in one step: a check may read it at any time."""
        script = f"cat >{path}.new && chmod {mode} {path}.new && mv {path}.new {path}"
        self.lab.script(self.name, script, text.encode())

    def tell_kernel(self, *lines: str) -> None:
        """Add messages of the kernel, of now."""
        now = time.monotonic_ns() // 1000
        records = [f"3,{now + place},{now + place},-;{line}\n" for place, line in enumerate(lines)]
        self.lab.script(self.name, f"cat >>{PLACE}/kmsg", "".join(records).encode())

    def tell_driver(self, values: str) -> None:
        """Let the driver say this of the second GPU."""
        number = f"16500000{self.gpus_replaced:05}"
        second = f"<uuid>GPU-{self.name}-{number}</uuid><serial>{number}</serial>{values}"
        gpus = f'<gpu id="00000000:3B:00.0"></gpu><gpu id="00000000:86:00.0">{second}</gpu>'
        version = "<driver_version>580.95.05</driver_version>"
        self.write(f"{PLACE}/driver.xml", f"<nvidia_smi_log>{version}{gpus}</nvidia_smi_log>\n")

    def change_settings(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the settings of the health check."""
        content = json.loads(self.run(f"cat {SETTINGS}"))
        change(content)
        self.write(SETTINGS, json.dumps(content))

    def report_to(self, port: int) -> None:
        """Let the reports of the health check go to another port of the controllers."""

        def change(content: dict[str, Any]) -> None:
            content["repair"]["port"] = port

        self.change_settings(change)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The node has its stand-ins, and is well, in this block."""
        settings = self.run(f"cat {SETTINGS}")
        self.run(BEGIN)
        self.tell_driver("")
        self.write(SMI, NVIDIA_SMI, "755")
        self.run(f"{HEALTH} --close all; {HEALTH}")
        try:
            yield
        finally:
            self.write(SETTINGS, settings)
            self.lab.host(self.name).run(END)
            self.lab.host(self.controllers.serving).run(f"scontrol update nodename={self.name} state=resume")


@contextmanager
def with_file_system(node: FaultyNode) -> Iterator[None]:
    """The health check of a node wants a file system, which is there."""

    def change(content: dict[str, Any]) -> None:
        content["environment"]["HEALTH_MOUNTS"] = DATA

    node.change_settings(change)
    yield


@contextmanager
def with_adapter(node: FaultyNode) -> Iterator[None]:
    """The machine type of a node has a port, which is there and up."""

    def change(content: dict[str, Any]) -> None:
        content["environment"]["HEALTH_PORTS"] = "mlx5_0/1=InfiniBand:400"

    with with_port(node.lab, node.name):
        node.change_settings(change)
        yield


# -- what happens to a node, and what mends it -----------------------------------------------------------------------

Work = Callable[[FaultyNode], None]


def in_order(*works: Work) -> Work:
    """Several things, one after another."""

    def work(node: FaultyNode) -> None:
        for each in works:
            each(node)

    return work


def nothing(_node: FaultyNode) -> None:
    """Nothing is needed."""


def kernel_says(*lines: str) -> Work:
    """The kernel writes messages."""
    return lambda node: node.tell_kernel(*lines)


def driver_says(values: str) -> Work:
    """The driver says this of a GPU, from now on."""
    return lambda node: node.tell_driver(values)


def command(words: str) -> Work:
    """A command on the node."""

    def work(node: FaultyNode) -> None:
        node.run(words)

    return work


def scontrol(words: str) -> Work:
    """A command of an administrator, with `{node}`."""

    def work(node: FaultyNode) -> None:
        node.controllers.command(f"scontrol {words.format(node=node.name)}")

    return work


def check_says(script: str) -> Work:
    """A check of the site does this, from now on."""
    return lambda node: node.write(f"{CHECKS}/test-scratch", f"#!/bin/sh\n{script}\n", "755")


def port_has(**files: str) -> Work:
    """Files of the port have these values, from now on. A `counter_` stands for the directory of counters."""
    named = {name.replace("counter_", "counters/"): value for name, value in files.items()}
    return lambda node: set_port(node.lab, node.name, named)


def boots(node: FaultyNode) -> None:
    """The node has booted, as far as the health check sees it."""
    node.run(
        f": >{PLACE}/kmsg; cat /proc/sys/kernel/random/uuid >{PLACE}/boot_id; "
        "rm -f /run/gpucluster-slurm/findings.json /run/gpucluster-slurm/health.json"
    )


def gpu_is_replaced(node: FaultyNode) -> None:
    """The second GPU is another one, which is well."""
    node.gpus_replaced += 1
    node.tell_driver("")


def person_closes_finding(name: str) -> Work:
    """A person has mended a finding, and says so on the node."""
    return command(f"{HEALTH} --close {name}")


def person_closes_case(node: FaultyNode) -> None:
    """A person has mended the node, and says so on the controller."""
    node.controllers.command(f"slurm-repair close {node.name}")


def dies_after_its_drain(*lines: str) -> Work:
    """The health check drains the node, which dies before its report has come to the controllers."""

    def work(node: FaultyNode) -> None:
        node.report_to(UNUSED_PORT)
        node.tell_kernel(*lines)
        reason = f"sinfo --noheader --Node --nodes={node.name} --format={shlex.quote('%T %E')}"
        node.lab.wait_for(node.controllers.serving, reason, "drained health check ", 300)
        node.run("systemctl stop slurmd")

    return work


def is_alive_again(port: int) -> Work:
    """The node answers again, and a person has mended it. port: that of the reports."""

    def work(node: FaultyNode) -> None:
        node.run(f"{HEALTH} --close all")
        node.report_to(port)
        node.run("systemctl start slurmd")

    return work


PERSON_DRAINS = scontrol("update nodename={node} state=drain reason='new DIMMs'")
PERSON_RESUMES = scontrol("update nodename={node} state=resume")
RESERVED = scontrol(
    f"create reservation reservationname={RESERVATION} starttime=now duration=120 users=root flags=maint,ignore_jobs "
    "nodes={node}"
)
NOT_RESERVED = scontrol(f"delete reservationname={RESERVATION}")
ADAPTER_IS_GONE = command("umount -l /sys/class")
ADAPTER_IS_BACK = command(f"mount -t overlay overlay -o lowerdir={CLASS}:/sys/class /sys/class")
