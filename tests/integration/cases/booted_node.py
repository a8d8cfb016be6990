# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose faults a boot mends, as far as it would mend those of a machine.

What is in /run is gone with a boot: the kernel's messages, what the driver says, and a file for which a check of the
site hangs. What the driver says after a boot is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from faulty_node import CHECKS, HEALTH, NVIDIA_SMI, PLACE, SMI, FaultyNode, Work, command
from lab import container, podman
from reboots import write_stand_ins

CHECK = f"{CHECKS}/test-scratch"
LASTING = "/var/lib/test-node"
DROP_IN = "/etc/systemd/system/lab-boot.service.d/test-node.conf"
AT_BOOT = "/usr/local/sbin/test-node-boots"
BOOT_SECONDS = 20
"""How long a boot takes, apart from the container's own: slurmctld has written meanwhile that it has asked for it."""

SITE_CHECK = f"""\
#!/bin/sh
[ ! -e {PLACE}/hangs ] || sleep 1000
[ ! -e {LASTING}/no-scratch ] || {{ echo no scratch; exit 1; }}
"""

SCRIPT = f"""\
#!/bin/sh -e
mkdir -p {PLACE}
: >{PLACE}/kmsg
cp {LASTING}/driver.xml {PLACE}/
mount --bind {PLACE}/kmsg /dev/kmsg
mount -o remount,bind,ro /dev/kmsg
"""

END = f"""
systemctl start slurmd
umount -l /dev/kmsg
rm -rf {SMI} {CHECK} {LASTING} {PLACE} {AT_BOOT} {DROP_IN}
systemctl daemon-reload
test -c /dev/nvidia1 || mknod -m 666 /dev/nvidia1 c 195 1
{HEALTH} --close all
{HEALTH}
"""


class BootedNode(FaultyNode):
    """A node with stand-ins that are there after a boot as well."""

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The node has its stand-ins, and is well, in this block."""
        write_stand_ins(self.lab, self.name)
        self.run(f"mkdir -p {PLACE} {LASTING} {DROP_IN.rpartition('/')[0]}")
        self.write(AT_BOOT, SCRIPT, "755")
        self.write(DROP_IN, f"[Service]\nExecStart={AT_BOOT}\nExecStart=sleep {BOOT_SECONDS}\n")
        self.tell_driver("")
        LASTS(self)
        self.run(f"systemctl daemon-reload; {AT_BOOT}")
        self.write(SMI, NVIDIA_SMI, "755")
        self.write(CHECK, SITE_CHECK, "755")
        self.run(f"{HEALTH} --close all; {HEALTH}")
        try:
            yield
        finally:
            self.lab.wait_for(self.name, "echo =answers=", "=answers=")
            self.lab.host(self.name).run(END)
            self.lab.host(self.controllers.serving).run(f"scontrol update nodename={self.name} state=resume")


# -- what happens to a node, and what a person does about it ---------------------------------------------------------

LASTS: Work = command(f"cp {PLACE}/driver.xml {LASTING}/")
"""The driver says the same after a boot."""
CHECK_HANGS = command(f"touch {PLACE}/hangs")
CHECK_FAILS = command(f"touch {LASTING}/no-scratch")
CHECK_SUCCEEDS = command(f"rm {LASTING}/no-scratch")
LOSES_DEVICE = command("rm /dev/nvidia1")
IS_CHECKED = command(HEALTH)


def task_does_not_end(node: FaultyNode) -> None:
    """slurmctld drains the node as it does when a task does not end."""
    update = f"scontrol update nodename={node.name} state=drain reason='Kill task failed'"
    node.controllers.command(f"runuser -u slurm -- {update}")


def resets_itself(node: FaultyNode) -> None:
    """The watchdog of the machine resets it: all processes end at once."""
    podman("restart", "--time=0", container(node.name))


def person_lets_it_go_on(node: FaultyNode) -> None:
    """A person has mended the node, and wants it measured."""
    node.controllers.command(f"slurm-repair retry {node.name}")
