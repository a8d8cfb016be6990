# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port of soft-RoCE in a virtual machine: the kernel's own files of a port that goes down, comes back and disappears.

rdma_rxe of Debian's kernel makes the port over a veth. The health check runs there without Slurm. Without KVM the
machine is emulated, and the test takes three minutes, of which two are for the packages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = Path(__file__).parent / "check.sh"
COLLECTION = "usr/lib/python3/dist-packages/ansible_collections/gpucluster/slurm"
PACKAGES = "python3,iproute2,kmod,linux-image-amd64"
SETTINGS = '{"built_in": ["ports"], "environment": {"HEALTH_PORTS": "rxe0/1=Ethernet:10"}}'
SECONDS = 1200


@pytest.fixture(scope="module", name="console")
def what_the_machine_says(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The console of a machine that has run the check, without colours."""
    directory = tmp_path_factory.mktemp("machine")
    root = directory / "root"
    paths = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    options = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", *paths, f"--include={PACKAGES}"]
    subprocess.run(["mmdebstrap", *options, "trixie", str(root)], check=True)
    shutil.copytree(ROOT / "plugins", root / COLLECTION / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "etc/gpucluster-slurm").mkdir()
    (root / "etc/gpucluster-slurm/health.json").write_text(SETTINGS)
    shutil.copy2(CHECK, root / "check")
    (kernel,), (initrd,) = (root.glob(f"boot/{name}-*") for name in ("vmlinuz", "initrd.img"))
    for file in (kernel, initrd):
        file.rename(directory / file.name)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, directory / "disk", "1G"], check=True)
    shutil.rmtree(root)
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", "1024", "-kernel", f"{directory}/{kernel.name}", "-initrd", f"{directory}/{initrd.name}"]
    command += ["-append", "root=/dev/vda rw console=ttyS0 init=/check quiet"]
    command += ["-drive", f"if=virtio,format=raw,file={directory}/disk", "-nic", "none"]
    command += ["-display", "none", "-serial", f"file:{directory}/console", "-no-reboot"]
    subprocess.run(command, check=True, timeout=SECONDS)
    return re.sub(r"\x1b\[[0-9;]*m", "", (directory / "console").read_text(errors="replace"))


def said(console: str, step: str) -> list[str]:
    """The lines of a step that say how the port is, with the exit status of each run."""
    shown = [line.strip() for line in console.split("\n")]
    end = [number for number, line in enumerate(shown) if line.startswith(f"{step}: status")]
    begin = max([number for number, line in enumerate(shown[: end[0]]) if ": status" in line], default=-1)
    return [line for line in shown[begin + 1 : end[-1] + 1] if re.match(rf"port-|{step}: ", line)]


def test_the_kernel_has_the_files_that_are_read(console: str) -> None:
    assert re.findall(r"setup: (.*)", console) == [
        "link_layer Ethernet",
        "state 4: ACTIVE",
        "phys_state 5: LinkUp",
        "rate 10 Gb/sec (1X FDR10)",
    ]
    assert "the end" in console


def test_a_port_that_is_up_and_one_that_loses_packets_are_well(console: str) -> None:
    """A lossy network beyond the link is no fault of the port."""
    assert said(console, "up") == ["up: status 0"]
    assert said(console, "loss") == ["loss: status 0"] * 2


def test_a_port_that_goes_down_is_found_in_the_second_run_until_it_is_back(console: str) -> None:
    assert said(console, "down") == ["down: status 0", "port-down: rxe0/1 is DOWN (Polling)", "down: status 1"]
    assert said(console, "again") == ["again: status 0"]


def test_a_port_that_disappears_is_found(console: str) -> None:
    assert said(console, "gone") == ["gone: status 0", "port-missing: rxe0/1 is not there", "gone: status 1"]
    listed = [line for line in console.split("\n") if "  port-" in line]
    assert len(listed) == 2
    assert "port-down rxe0/1 (closed: the port is as it should be; shared, action: person)" in listed[0]
    assert "port-missing rxe0/1 (drains the node; node, action: reboot)" in listed[1]
