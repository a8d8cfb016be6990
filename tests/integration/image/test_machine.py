# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine boots an image with a kernel of its own, and gets its name and controllers as kernel arguments."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import addresses, archive, bare_tree, boot_files, cluster_key, power_off
from lab import Lab, container, podman

TAP = "lab-image"
EXTRACT = ["tar", "--extract", "--numeric-owner"]
PACKAGES = "linux-image-cloud-amd64 initramfs-tools"
MEMORY = "2304"  # MiB: more than the node has in the cluster file


@pytest.fixture(scope="module")
def disk(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system of a node's image, and its kernel next to it. What cloud-init would write is in it."""
    directory = tmp_path_factory.mktemp("disk")
    root = directory / "root"
    root.mkdir()
    run = lab.playbook("site", f"--limit={lab.controller}", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    with bare_tree(lab, lab.nodes[0]) as tree:
        tree.command(f"apt-get update && apt-get install --yes --no-install-recommends {PACKAGES}")
        tree.command("systemctl enable systemd-networkd")
        run = tree.build()
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        with subprocess.Popen(["podman", "export", tree.name], stdout=subprocess.PIPE) as export:
            subprocess.run([*EXTRACT, f"--directory={root}"], stdin=export.stdout, check=True)
    files = archive(boot_files(cluster_key(lab)))
    subprocess.run([*EXTRACT, f"--directory={root}/etc"], input=files, check=True)
    for name in ("vmlinuz", "initrd.img"):
        (kernel,) = (root / "boot").glob(f"{name}-*")
        kernel.rename(directory / name)
    image = directory / "disk"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, image, "4G"], check=True)
    subprocess.run(["rm", "--recursive", root], check=True)
    return image


def credential(name: str, text: str) -> str:
    """A kernel argument that gives systemd a credential (systemd.system-credentials(7))."""
    return f"systemd.set_credential_binary={name}:{base64.b64encode(text.encode()).decode()}"


@pytest.fixture
def machine(lab: Lab, disk: Path) -> Iterator[str]:
    """A machine that boots the image as the last node, on the network of the lab's containers; its name."""
    node = lab.nodes[-1]
    power_off(node)
    network = json.loads(podman("inspect", container(lab.controller)))[0]["NetworkSettings"]["Networks"]
    (lan,) = network.values()
    (bridge,) = {found["network_interface"] for found in json.loads(podman("network", "inspect", *network))}
    address = f"Address={addresses(lab)[node]}/{lan['IPPrefixLen']}\nGateway={lan['Gateway']}\n"
    arguments = [
        "root=/dev/vda",
        "rw",
        "console=ttyS0",
        f"systemd.hostname={node}",
        f"gpucluster.controllers={lab.controller}",
        credential("network.network.10-lab", f"[Match]\nType=ether\n[Network]\n{address}"),
    ]
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", MEMORY, "-kernel", f"{disk.parent}/vmlinuz", "-initrd", f"{disk.parent}/initrd.img"]
    command += ["-append", " ".join(arguments), "-drive", f"if=virtio,format=raw,cache=unsafe,file={disk}"]
    command += ["-netdev", f"tap,id=lan,ifname={TAP},script=no,downscript=no", "-device", "virtio-net-pci,netdev=lan"]
    command += ["-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{disk.parent}/console"]
    subprocess.run(["ip", "link", "delete", TAP], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"], check=True)
    try:
        subprocess.run(["ip", "link", "set", TAP, "master", bridge, "up"], check=True)
        with subprocess.Popen(command) as emulator:
            try:
                yield node
            finally:
                emulator.kill()
    finally:
        subprocess.run(["ip", "link", "delete", TAP], check=False)


def test_a_machine_boots_the_image_and_joins(lab: Lab, machine: str, disk: Path) -> None:
    try:
        lab.wait_until_idle(lab.controller, machine, 900)
    except AssertionError:
        pytest.fail((disk.parent / "console").read_text(errors="replace")[-6000:])
    shown = "hostname; uname -r; cat /proc/cmdline; stat -fc %T /sys/fs/cgroup"
    job = f"timeout 180 srun --nodelist={machine} sh -c '{shown}'"
    name, kernel, arguments, cgroups = lab.command(lab.controller, job).split("\n")
    assert name == machine
    assert kernel.endswith("cloud-amd64")
    assert f"gpucluster.controllers={lab.controller}" in arguments
    assert cgroups == "cgroup2fs"
