# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The part of notebook that runs in its job. sbatch sends it to the node, so nothing has to be installed there.

It imports nothing of the collection. notebook adds a line that calls serve().
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

END = 10
"""Seconds that a program has to end, of those that Slurm gives the job (KillWait, 30 by default)."""


def private(file: Path) -> TextIO:
    """An empty file for its user alone."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8")


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Write a file of a job."""
    with private(file) as stream:
        json.dump(content, stream)


def serve(directory: Path) -> int:
    """Run the program in the job, tell when it listens, and remove its socket at the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    wanted = json.loads((directory / "plan").read_text(encoding="utf-8"))
    if not wanted["command"]:
        write(directory / "state", {"ready": True})
        while True:
            signal.pause()
    port = free_port() if any("{port}" in word for word in wanted["command"]) else 0
    path = directory / "socket"
    words = [word.replace("{socket}", str(path)).replace("{port}", str(port)) for word in wanted["command"]]
    own = tempfile.mkdtemp(prefix="notebook-")  # for the sockets of kernels, whose paths would be too long in a home
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": own}
    if wanted["token"]:
        environment["JUPYTER_TOKEN"] = wanted["token"]
    child = subprocess.Popen([*container(wanted["image"]), *words], env=environment)
    try:
        while child.poll() is None and not listens(port or path):
            time.sleep(0.5)
        if child.poll() is None:
            write(directory / "state", {"ready": True, "port": port})
        return child.wait()
    finally:
        child.terminate()
        try:
            child.wait(END)
        except subprocess.TimeoutExpired:
            child.kill()
        path.unlink(missing_ok=True)
        shutil.rmtree(own, ignore_errors=True)


def container(image: str) -> list[str]:
    """The command before the program for a container of pyxis, in which home and directory are where they are here."""
    if not image:
        return []
    here, cpus = Path.cwd(), os.environ.get("SLURM_CPUS_PER_TASK", "")
    mounts = ",".join(f"{path}:{path}" for path in dict.fromkeys([Path.home(), here]))
    options = [f"--container-image={image}", f"--container-mounts={mounts}", f"--container-workdir={here}"]
    return ["srun", "--ntasks=1", *([f"--cpus-per-task={cpus}"] if cpus else []), "--no-container-remap-root", *options]


def free_port() -> int:
    """A port of this host that no program has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(place: int | Path) -> bool:
    """Whether a program listens on a port of this host, or on a socket."""
    family, address = (
        (socket.AF_UNIX, str(place)) if isinstance(place, Path) else (socket.AF_INET, ("127.0.0.1", place))
    )
    with socket.socket(family) as client:
        return client.connect_ex(address) == 0
