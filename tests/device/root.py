# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian root in which Slurm runs: it is unpacked, gets the machine's GPUs, and runs commands.

The caller has namespaces of its own (`check`), so mounts and daemons end with it.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import Machine
from steps import Answer, StepError, Steps

COLLECTION = Path(__file__).parents[2]
ARCHIVE = COLLECTION / ".cache/device/root.tar.xz"
NODE = "gpu01"
LIBRARIES = "/usr/local/lib/nvidia"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
INSIDE = "/collection/tests/device/inside.py"


class Root:
    """A directory with a Debian system.

    Args:
        steps: runs and logs commands.
        path: an empty directory.
    """

    def __init__(self, steps: Steps, path: Path) -> None:
        self.steps = steps
        self.path = path

    def unpack(self) -> None:
        """Unpack the archive. Raises StepError without one."""
        if not ARCHIVE.exists():
            raise StepError(f"{ARCHIVE.relative_to(COLLECTION)} is missing; tests/device/build makes it")
        # Users of jobs look up paths below it.
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tarfile.open(ARCHIVE, "r:xz") as archive:
            # Owners and modes as they are: newer releases of Python would change them.
            archive.extraction_filter = lambda member, _path: member
            archive.extractall(self.path, numeric_owner=True)

    def mount(self, machine: Machine) -> None:
        """Mount the kernel's file systems, the checkout and what the machine has for its GPUs."""
        for arguments in (
            ["-t", "proc", "proc", self.path / "proc"],
            ["--rbind", "/sys", self.path / "sys"],
            ["-t", "tmpfs", "-o", "mode=755", "tmpfs", self.path / "dev"],
            ["-t", "tmpfs", "-o", "mode=755", "tmpfs", self.path / "run"],
        ):
            self.steps.answer(["mount", *arguments])
        for name in ("pts", "shm"):
            (self.path / "dev" / name).mkdir()
        self.steps.answer(["mount", "-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts", self.path / "dev/pts"])
        self.steps.answer(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", self.path / "dev/shm"])
        (self.path / "dev/ptmx").symlink_to("pts/ptmx")
        (self.path / "dev/fd").symlink_to("/proc/self/fd")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            self.bind(f"/dev/{name}", f"/dev/{name}")
        if Path("/dev/kmsg").exists():
            self.bind("/dev/kmsg", "/dev/kmsg")
        self.bind(str(COLLECTION), "/collection")
        self.steps.answer(["mount", "-o", "remount,bind,ro", self.inner("/collection")])
        for path in machine.libraries:
            self.bind(os.path.realpath(path), f"{LIBRARIES}/{Path(path).name}")
        for path in machine.devices:
            self.bind(path, f"/dev/{path.rpartition('/dev/')[2]}")
        if machine.nvidia_smi:
            self.bind(os.path.realpath(machine.nvidia_smi), "/usr/bin/nvidia-smi")
        if machine.driver_files:
            self.bind(machine.driver_files, "/proc/driver")
        for library in sorted(Path(machine.cublas).glob("libcublas*.so.*")) if machine.cublas else []:
            self.bind(os.path.realpath(library), f"/opt/cublas/{library.name}")
        self.write("/etc/ld.so.conf.d/nvidia.conf", f"{LIBRARIES}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost {NODE}\n")
        self.answer("ldconfig")

    def mount_machine(self, target: str, *shown: str) -> None:
        """Show the machine's files below a directory of the root, with these directories at the root's top among them.

        The kernel's file systems there are those of the root, as in a container.
        """
        place = self.inner(target)
        place.mkdir(parents=True)
        self.steps.answer(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place])
        # The root itself lies in the machine's /tmp.
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o1777)
        own = {path: self.inner(path) for path in ("/dev", "/proc", "/sys", *shown)}
        others = {entry.path: Path(entry.path) for entry in os.scandir("/") if entry.path not in {*own, "/tmp"}}
        for path, source in {**others, **own}.items():
            inner = place / path.lstrip("/")
            if source.is_symlink():
                inner.symlink_to(os.readlink(source))
            elif source.is_dir():
                inner.mkdir()
                self.steps.answer(["mount", "--rbind", source, inner])

    def bind(self, source: str, target: str) -> None:
        """Show a file or directory of the machine at a path of the root."""
        place = self.inner(target)
        if os.path.isdir(source):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        self.steps.answer(["mount", "--bind", source, place])

    def inner(self, path: str) -> Path:
        """The path of a file of the root, as the machine sees it."""
        return self.path / path.lstrip("/")

    def write(self, path: str, content: str, mode: int = 0o644, owner: str = "root") -> None:
        """Write a file in the root."""
        file = self.inner(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(mode)
        if owner != "root":
            self.answer("chown", f"{owner}:", path)

    def read(self, path: str) -> str:
        """The content of a file of the root; empty without one."""
        try:
            return self.inner(path).read_text(errors="replace")
        except OSError:
            return ""

    def command_line(self, command: Sequence[str], user: str = "root") -> list[str]:
        """The command line that runs a command in the root."""
        environment = ["env", "-i", f"PATH={PATH}", "LC_ALL=C.UTF-8", "SLURM_TIME_FORMAT=standard", "HOME=/tmp"]
        # chroot(1) of GNU and of busybox take these options; the groups are those of the user.
        other = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return ["chroot", str(self.path), *environment, *other, *command]

    def run(self, *command: str, user: str = "root", seconds: float = 20, stdin: str = "") -> Answer:
        """Run a command in the root, and return its answer."""
        return self.steps.command(self.command_line(command, user), seconds, stdin)

    def answer(self, *command: str, user: str = "root", seconds: float = 20, stdin: str = "") -> str:
        """The output of a command in the root that has to succeed; otherwise the step fails with its message."""
        answer = self.run(*command, user=user, seconds=seconds, stdin=stdin)
        if answer.status:
            raise StepError(f"{command[0]}: {answer.message}")
        output: str = answer.output
        return output

    def collection(self, *arguments: str, stdin: Any = None, seconds: float = 30) -> Any:
        """What the collection's code says in the root (inside.py), from and to JSON."""
        answer = self.run("python3", INSIDE, *arguments, stdin=json.dumps(stdin), seconds=seconds)
        if answer.status:
            raise StepError(f"inside.py {arguments[0]}: {answer.message}")
        return json.loads(answer.output)
