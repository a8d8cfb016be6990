# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine without state boots an image with a kernel of its own: an overlay in memory over a read-only disk.

It gets its name and its controllers as kernel arguments; its address is in the image, which a site has from DHCP.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from images import IMAGE, Tree, addresses, archive, boot_files, cluster_key, power_off
from lab import Lab, container, podman

TAP = "lab-image"
EXTRACT = ["tar", "--extract", "--numeric-owner"]
NETWORK = {"multi-user": "systemd-networkd.service", "network-online": "systemd-networkd-wait-online.service"}
"""Services of systemd, which no container needs, by the target that wants them."""
MEMORY = "2304"  # MiB: more than the node has in the cluster file
BREAK = (
    "mkdir /run/broken && mount -o loop,errors=remount-ro /srv/broken /run/broken && "
    "echo broken >/sys/fs/ext4/loop0/trigger_fs_error; /usr/local/sbin/slurm-health"
)
"""A file system in which the kernel finds an error, and a run of the health check, whose status tells that it fails."""


@pytest.fixture(scope="module")
def disk(lab: Lab, node: Tree, image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system of a node's image, and its kernel next to it. What cloud-init would write is in it."""
    assert image == IMAGE
    directory = tmp_path_factory.mktemp("disk")
    root = directory / "root"
    root.mkdir()
    with subprocess.Popen(["podman", "export", node.name], stdout=subprocess.PIPE) as export:
        subprocess.run([*EXTRACT, f"--directory={root}"], stdin=export.stdout, check=True)
    own = lan(lab)
    address = f"Address={addresses(lab)[lab.nodes[-1]]}/{own['IPPrefixLen']}\nGateway={own['Gateway']}\n"
    (root / "etc/systemd/network/10-lab.network").write_text(f"[Match]\nType=ether\n[Network]\n{address}")
    for target, unit in NETWORK.items():
        wants = root / f"etc/systemd/system/{target}.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
    files = archive(boot_files(cluster_key(lab)))
    subprocess.run([*EXTRACT, f"--directory={root}/etc"], input=files, check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", root / "srv/broken", "16M"], check=True)
    for name in ("vmlinuz", "initrd.img"):
        (kernel,) = (root / "boot").glob(f"{name}-*")
        kernel.rename(directory / name)
    file = directory / "disk"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, file, "4G"], check=True)
    subprocess.run(["rm", "--recursive", root], check=True)
    return file


def lan(lab: Lab) -> dict[str, Any]:
    """The controller's part of the network of the lab's containers."""
    networks = json.loads(podman("inspect", container(lab.controller)))[0]["NetworkSettings"]["Networks"]
    (found,) = networks.values()
    return dict(found)


@contextmanager
def booted(lab: Lab, disk: Path, node: str) -> Iterator[Path]:
    """A machine that boots the image, on the network of the lab's containers; what it writes to its console.

    Its root is an overlay in memory, and the disk cannot be written.
    """
    (network,) = json.loads(podman("network", "inspect", lan(lab)["NetworkID"]))
    arguments = [
        "root=/dev/vda",  # without "ro", which overlayroot takes for the overlay
        "overlayroot=tmpfs",
        "console=ttyS0",
        f"systemd.hostname={node}",
        f"gpucluster.controllers={lab.controller}",
    ]
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", MEMORY, "-kernel", f"{disk.parent}/vmlinuz", "-initrd", f"{disk.parent}/initrd.img"]
    command += ["-append", " ".join(arguments), "-drive", f"if=virtio,format=raw,readonly=on,file={disk}"]
    command += ["-netdev", f"tap,id=lan,ifname={TAP},script=no,downscript=no", "-device", "virtio-net-pci,netdev=lan"]
    command += ["-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{disk.parent}/console"]
    subprocess.run(["ip", "link", "delete", TAP], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"], check=True)
    try:
        subprocess.run(["ip", "link", "set", TAP, "master", network["network_interface"], "up"], check=True)
        with subprocess.Popen(command) as emulator:
            try:
                yield disk.parent / "console"
            finally:
                emulator.kill()
    finally:
        subprocess.run(["ip", "link", "delete", TAP], check=False)


def test_a_machine_without_state_joins_at_each_boot(lab: Lab, disk: Path) -> None:
    """Power is lost between the boots, and nothing outlives them: the disk cannot be written."""
    node, jobs = lab.nodes[-1], []
    power_off(node)
    shown = (
        "hostname; uname -r; cat /proc/cmdline; stat -fc %T /sys/fs/cgroup; findmnt -no FSTYPE /; cat /run/noted-jobs"
    )
    job = f"timeout 180 srun --nodelist={node} sh -c 'echo $SLURM_JOB_ID; test -e /run/health-check-ran; {shown}'"
    for _boot in range(2):
        with booted(lab, disk, node) as console:
            try:
                lab.wait_until_idle(lab.controller, node, 900)
                number, name, kernel, arguments, cgroups, root, noted = lab.command(lab.controller, job).split("\n")
                lab.wait_until_idle(lab.controller, node)  # else the next boot ends the job, with its epilog
                found = lab.host(lab.controller).run(f"timeout 180 srun --nodelist={node} sh -c '{BREAK}'")
                reason = lab.command(lab.controller, f"sinfo -hN -n {node} -o %E | sort -u")
            except AssertionError as error:
                pytest.fail(f"{error}\n{console.read_text(errors='replace')[-6000:]}")
        assert (name, cgroups, root) == (node, "cgroup2fs", "overlay")
        assert kernel.endswith("cloud-amd64")
        assert f"gpucluster.controllers={lab.controller}" in arguments
        assert noted == number  # by the prolog; earlier jobs are not there
        jobs.append(number)
        # What the kernel itself says, in /dev/kmsg and in the journal.
        read_only = "filesystem-read-only: EXT4-fs (loop0): Remounting filesystem read-only"
        assert (found.rc, found.stdout, reason) == (1, f"{read_only}\n", f"health check {read_only}")
        # Slurm would notice the loss of power only after a while, and start a job there. A boot mends the file system,
        # so that the node is well again.
        lab.command(lab.controller, f"scontrol update nodename={node} state=resume")
        lab.command(lab.controller, f"scontrol update nodename={node} state=down reason=power")
    for number in jobs:
        lab.wait_for(lab.controller, f"sacct --jobs={number} -XnP -o NodeList,State", f"{node}|COMPLETED")
