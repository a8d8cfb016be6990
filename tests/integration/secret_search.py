# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search for secrets where they must not be: processes, files and journals of hosts, files of the control host."""

from __future__ import annotations

import base64
import json
import os
import shlex
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from lab import ROOT, Lab

PIECE = 48
"""Bytes of a long secret that are searched for: a program may print a part of it."""

FILES = (Path.home() / ".ansible", Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), ROOT)
"""Where a run could leave files on the control host."""

KEPT = {
    "/etc/munge/munge.key": "400",
    "/etc/slurm/slurmdbd_storage.conf": "600",
    "/var/lib/gpucluster-slurm/good/slurmdbd_storage.conf": "600",
}
"""The files of the head that have secrets, with their modes; other hosts have the first alone."""

LEFT_OUT = (".venv", ".venv-new", ".git", ".cache", "node_modules")


def parts(secret: bytes) -> set[bytes]:
    """A short secret, or parts of a long one."""
    middle = len(secret) // 2
    return {secret[:PIECE], secret[middle : middle + PIECE]} if len(secret) > PIECE else {secret.strip()}


def forms(*secrets: bytes) -> list[bytes]:
    """What is searched for: parts of the secrets, as programs would print them."""
    found = []
    for part in {part for secret in secrets for part in parts(secret)}:
        as_json = json.dumps(part.decode("latin-1"))[1:-1].encode()
        found += [part, part.hex().encode(), repr(part)[2:-1].encode(), as_json, base64.b64encode(part)[:-4]]
        # The letters of a text in base64 depend on what is before it.
        found += [base64.b64encode(b"x" * before + part)[4:-4] for before in (1, 2)]
    return list(dict.fromkeys(found))


class Processes(threading.Thread):
    """Arguments and environments of all processes of this machine, and so of its containers, five times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.known: set[tuple[str, bytes]] = set()
        self.seen: set[bytes] = set()
        self.over = threading.Event()
        self.rounds = 0

    def __enter__(self) -> Processes:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        """Look until the block ends."""
        while not self.over.wait(0.2):
            self.rounds += 1
            for number in filter(str.isdecimal, os.listdir("/proc")):
                self.look(number)

    def look(self, number: str) -> None:
        """Keep what a process shows."""
        with suppress(OSError):  # it has ended
            arguments = Path(f"/proc/{number}/cmdline").read_bytes()
            if arguments and (number, arguments) not in self.known:
                self.known.add((number, arguments))
                self.seen |= {arguments, Path(f"/proc/{number}/environ").read_bytes()}

    def with_any(self, patterns: Iterable[bytes]) -> list[bytes]:
        """The first bytes of those with a pattern."""
        found = list(patterns)
        return [text[:60] for text in self.seen if any(pattern in text for pattern in found)]


def changed_files(since: float, *more: Path) -> Iterator[Path]:
    """The files of the control host that have changed since a time, where a run could leave any."""
    for top in (*FILES, *more):
        for directory, directories, names in os.walk(top):
            directories[:] = [name for name in directories if name not in LEFT_OUT]
            for name in names:
                path = Path(directory, name)
                try:
                    if path.is_file() and not path.is_symlink() and path.stat().st_ctime >= since:
                        yield path
                except OSError:
                    continue  # it was removed meanwhile


def control_files(patterns: Iterable[bytes], since: float, *more: Path) -> list[Path]:
    """Those of them with a pattern."""
    searched, found = list(patterns), []
    for path in changed_files(since, *more):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if any(pattern in content for pattern in searched):
            found.append(path)
    return found


ON_HOST = """
import base64, json, os, stat, subprocess, sys
wanted, since = json.load(sys.stdin)
wanted = [base64.b64decode(text) for text in wanted]
found = {}
for top, directories, names in os.walk("/"):
    directories[:] = [name for name in directories if os.path.join(top, name) not in ("/proc", "/sys")]
    for name in names:
        path = os.path.join(top, name)
        try:
            state = os.lstat(path)
            if not stat.S_ISREG(state.st_mode) or state.st_ctime < since or state.st_size > 64 << 20:
                continue
            content = open(path, "rb").read()
        except OSError:
            continue
        if any(text in content for text in wanted):
            found[path] = oct(state.st_mode & 0o777)[2:]
journal = subprocess.run(["journalctl", "--no-pager", "--output=export"], stdout=subprocess.PIPE).stdout
if any(text in journal for text in wanted):
    found["journal"] = ""
print(json.dumps(found))
"""


def on_host(lab: Lab, host: str, patterns: Iterable[bytes], since: float) -> dict[str, str]:
    """Files of a host that have changed since a time and have a pattern, with their modes, and `journal`.

    The patterns go by standard input, so that the search does not find itself in a process list or a log of sudo.
    """
    given = json.dumps([[base64.b64encode(pattern).decode() for pattern in patterns], since])
    return dict(json.loads(lab.script(host, f"exec python3 -c {shlex.quote(ON_HOST)}", given.encode())))


def now() -> float:
    """The time from which files count as changed: clocks of the kernel's files are a little late."""
    return time.time() - 0.1
