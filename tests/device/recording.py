# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records what a machine with a GPU says of itself, as material for fixtures of unit tests.

One archive, recording.tar.gz: `commands` has the output of each command, `tree` the files of /proc and /sys. What
identifies the machine is replaced (anonymous.py).
"""

from __future__ import annotations

import io
import os
import re
import socket
import stat
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from anonymous import identifiers
from machine import Machine
from steps import AbsentError, StepError, Steps

NVIDIA_SMI = (
    "",
    "-L",
    "-q",
    "-q -x",
    "-q -d MEMORY,UTILIZATION,ECC,TEMPERATURE,POWER,CLOCK,COMPUTE,PIDS,PERFORMANCE,PAGE_RETIREMENT,ROW_REMAPPER",
    "--version",
    "--help",
    "--help-query-gpu",
    "--help-query-compute-apps",
    "--help-query-remapped-rows",
    "--help-query-retired-pages",
    "--query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid --format=csv",
    "--query-remapped-rows=gpu_bus_id,gpu_uuid,remapped_rows.correctable,remapped_rows.uncorrectable,"
    "remapped_rows.pending,remapped_rows.failure --format=csv",
    "--query-retired-pages=gpu_uuid,retired_pages.address,retired_pages.cause --format=csv",
    # The very commands of the collection's modules and health checks.
    "--query-gpu=index,pci.bus_id,memory.total --format=csv,noheader,nounits",
    "--query-gpu=index,name,mig.mode.current,mig.mode.pending --format=csv,noheader",
    "--query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv,noheader",
    "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure --format=csv,noheader",
    "topo -m",
    "topo -mp",
    "topo -p2p r",
    "topo -p2p n",
    "nvlink -s",
    "nvlink -c",
    "nvlink -e",
    "mig -lgip",
    "mig -lcip",
    "mig -lgi",
    "mig -lci",
    "dmon -c 1",
    "pmon -c 1",
    "-i 99 -q",
    "--query-gpu=no_such_field --format=csv",
)
"""Arguments of nvidia-smi. None of them changes anything. The last two are answers to wrong questions."""

COMMANDS = (
    "uname -a",
    "lscpu",
    "lsmod",
    "lspci -nnk",
    "lspci -vvv -d 10de:",
    "mount",
    "ldconfig -p",
    "dmesg",
    "numactl --hardware",
    "ip -details link",
    "modinfo nvidia",
    "nvcc --version",
    "systemd-detect-virt",
    "ls -lR /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-modeset /dev/nvidia-caps",
    "ls -l /dev",
    "ls -lR /usr/local/nvidia",
    "find /sys/fs/cgroup -maxdepth 2",
)
"""Other commands; most machines lack some of them."""

TREES = (
    "/etc/os-release",
    "/etc/nvidia-container-runtime",
    "/etc/ld.so.conf.d",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/driver/nvidia-caps",
    "/proc/driver/nvidia-nvswitch",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/self/cgroup",
    "/proc/self/mounts",
    "/proc/self/status",
    "/proc/1/comm",
    "/proc/version",
    "/sys/class/infiniband",
    "/sys/class/drm",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/devices/virtual/dmi/id",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/cgroup.subtree_control",
    "/sys/hypervisor",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
)
"""Files and directories."""
PCI = Path("/sys/bus/pci/devices")
HIDDEN = re.compile(
    r"/(serial|serial_number|unique_id|product_uuid|.*_serial|rom|resource\d+(_wc)?|config|vpd|uevent_helper|keys)$"
)
"""Files that identify a machine, are large, or have a meaning for the kernel when they are read."""
LARGEST = 64 * 1024
"""Bytes that are kept of a file."""
MOST_FILES = 20_000
"""Files that are kept of all trees."""
SECONDS = 90
"""The time of all questions to nvidia-smi, which takes a second or two for each."""


class Recording:
    """The archive while it is written."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.path = steps.out / "recording.tar.gz"
        self.files = 0
        self._archive = tarfile.open(self.path, "w:gz")  # noqa: SIM115 - closed by close()

    def add(self, name: str, text: str) -> None:
        """Add a file."""
        content = self.steps.names.replaced(text).encode(errors="replace")
        member = tarfile.TarInfo(self.steps.names.replaced(name))
        member.size = len(content)
        self._archive.addfile(member, io.BytesIO(content))
        self.files += 1

    def add_link(self, name: str, target: str) -> None:
        """Add a link as a link."""
        member = tarfile.TarInfo(self.steps.names.replaced(name))
        member.type, member.linkname = tarfile.SYMTYPE, self.steps.names.replaced(target)
        self._archive.addfile(member)
        self.files += 1

    def command(self, command_line: list[str], name: str, seconds: float = 15) -> int:
        """Add the output of a command. Returns its exit status."""
        answer = self.steps.command(command_line, seconds)
        errors = f"\n[errors]\n{answer.errors}" if answer.errors else ""
        self.add(f"commands/{name}", f"{answer.output}{errors}\n[status {answer.status}]\n")
        status: int = answer.status
        return status

    def tree(self, path: str) -> None:
        """Add a file, or what a link leads to, or all files below a directory, where links stay links."""
        for file in walk(path):
            if self.files >= MOST_FILES:
                return
            text = content(file) if file == path or not os.path.islink(file) else None
            if text is not None:
                self.add(f"tree{file}", text)
            elif os.path.islink(file):
                self.add_link(f"tree{file}", os.readlink(file))

    def close(self) -> None:
        """End the archive."""
        self._archive.close()


def walk(path: str) -> Iterator[str]:
    """The files and links at and below a path, in order."""
    if os.path.islink(path) or not os.path.isdir(path):
        if os.path.lexists(path):
            yield path
        return
    for place, directories, files in os.walk(path):
        links = [name for name in directories if os.path.islink(f"{place}/{name}")]
        directories[:] = sorted(name for name in directories if name not in links)
        yield from (f"{place}/{name}" for name in sorted(files + links))


def content(path: str) -> str | None:
    """The content of a small readable file; None for one that is not kept."""
    try:
        # A file that may only be written starts something in the kernel, such as a reset.
        mode = os.stat(path).st_mode
        if HIDDEN.search(path) or not stat.S_ISREG(mode) or not mode & 0o444:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            pieces, size = [], 0
            # The kernel gives some files in pieces, such as /proc/cpuinfo.
            while size < LARGEST and (piece := os.read(descriptor, LARGEST - size)):
                pieces.append(piece)
                size += len(piece)
            return b"".join(pieces).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return None


def fields(help_text: str) -> list[str]:
    """The fields that `nvidia-smi --help-query-gpu` describes: "uuid" or "gpu_uuid"; the first name of each."""
    found = re.findall(r'^"([a-z][\w.]*)"', help_text, re.MULTILINE)
    return list(dict.fromkeys(found))


def accepted(steps: Steps, machine: Machine, known: list[str]) -> list[str]:
    """The fields without those that nvidia-smi refuses although it describes them: it names the first of these."""
    for _attempt in range(10):
        answer = steps.command([machine.nvidia_smi, f"--query-gpu={','.join(known)}", "--format=csv"])
        refused = re.search(r'Field "([^"]+)" is not a valid field', answer.output + answer.errors)
        if not refused or refused[1] not in known:
            break
        known = [name for name in known if name != refused[1]]
    return known


def gpu_directories() -> list[str]:
    """The PCI directories of NVIDIA's devices."""
    devices = sorted(PCI.iterdir()) if PCI.is_dir() else []
    return [os.path.realpath(path) for path in devices if (content(f"{path}/vendor") or "").strip() == "0x10de"]


def file_name(command_line: str) -> str:
    """A name for the output of a command: letters, digits, points and hyphens."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", command_line).strip("-")[:80].rstrip("-.") or "plain"


def learn_names(steps: Steps, machine: Machine) -> None:
    """Know the identifiers of this machine before anything of it is written."""
    steps.names.learn({socket.gethostname(), os.uname().nodename})
    for path in ("/sys/devices/virtual/dmi/id/product_serial", "/etc/machine-id"):
        steps.names.learn({(content(path) or "").strip()})
    if machine.nvidia_smi:
        # Before they are known, the log would show them. The recording has this answer.
        answer = steps.command([machine.nvidia_smi, "-q", "-x"], 40, logged=False)
        steps.names.learn(identifiers(answer.output))


def record(steps: Steps, machine: Machine) -> str:
    """Write the archive. Returns a line about what is in it."""
    recording = Recording(steps)
    asked = answered = 0
    try:
        for command in COMMANDS:
            recording.command(command.split(), file_name(command))
        for path in TREES:
            recording.tree(path)
        for path in gpu_directories():
            recording.tree(path)
            recording.add_link(f"tree{PCI}/{os.path.basename(path)}", os.path.relpath(path, PCI))
        if not machine.nvidia_smi:
            raise AbsentError(f"{recording.files} files, no nvidia-smi")
        end = time.monotonic() + SECONDS
        for arguments in NVIDIA_SMI:
            if time.monotonic() > end:
                raise StepError(f"nvidia-smi was asked {asked} of {len(NVIDIA_SMI)} questions in {SECONDS} s")
            asked += 1
            status = recording.command([machine.nvidia_smi, *arguments.split()], f"nvidia-smi/{file_name(arguments)}")
            answered += status == 0
        known = fields(steps.command([machine.nvidia_smi, "--help-query-gpu"]).output)
        if known:
            known = accepted(steps, machine, known)
            query = [machine.nvidia_smi, f"--query-gpu={','.join(known)}", "--format=csv"]
            asked += 1
            answered += recording.command(query, "nvidia-smi/query-gpu-all-fields") == 0
    finally:
        recording.close()
    size = recording.path.stat().st_size
    return (
        f"{recording.files} files, {size / 1024:.0f} KiB, {answered} of {asked} questions to nvidia-smi answered, "
        f"{len(known)} fields of --query-gpu"
    )
