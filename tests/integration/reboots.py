# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots of nodes that are containers.

A reboot is one of systemd: all processes end, and the container starts again. Stand-ins are the kernel's boot id, since
containers share one kernel, and slurmd -b, which reports a boot to slurmctld for the same reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, container, podman

BOOT = """
cat >/etc/systemd/system/lab-boot.service <<'END'
[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=sh -c 'cat /proc/sys/kernel/random/uuid >/run/boot_id'
ExecStart=mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
[Install]
WantedBy=sysinit.target
END
cat >/etc/systemd/system/slurmd.service.d/lab-boot.conf <<END
[Service]
Environment="SLURMD_OPTIONS=--conf-server $1 -b"
END
systemctl daemon-reload
systemctl enable --quiet lab-boot
"""

REBOOTED = 129
"""Exit status of a container whose systemd has rebooted: SIGHUP, by reboot(2) in a PID namespace."""


def write_stand_ins(lab: Lab, node: str) -> None:
    """Write the stand-ins for the kernel, which are there from the next boot on."""
    servers = ",".join(f"{name}:6817" for name in expand(lab.cluster["controllers"]))
    lab.script(node, f"sh -es {servers}", BOOT.encode())


def has_rebooted(node: str) -> bool:
    """Whether the systemd of a container has rebooted, and the container has not started again."""
    ended = podman("ps", "--all", "--filter=status=exited", "--format={{.Names}} {{.ExitCode}}").split("\n")
    return f"{container(node)} {REBOOTED}" in ended


def wait_for_reboot(node: str, seconds: int = 60) -> None:
    """Return when a node has rebooted; AssertionError after `seconds`."""
    until = time.monotonic() + seconds
    while not has_rebooted(node):
        assert time.monotonic() < until, f"{node} has not rebooted within {seconds} s"
        time.sleep(0.5)


@contextmanager
def power(*nodes: str) -> Iterator[list[str]]:
    """Start these containers again after their systemd has rebooted, as a machine would; the nodes that have booted."""
    booted: list[str] = []
    off = threading.Event()

    def watch() -> None:
        while not off.wait(0.5):
            for node in nodes:
                if has_rebooted(node):
                    podman("start", container(node))
                    booted.append(node)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield booted
    finally:
        off.set()
        watcher.join()
