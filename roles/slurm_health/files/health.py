# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's HealthCheckProgram: runs every check of a directory, drains the node if one fails, resumes what it drained.

A check is an executable file. Its name is what the reason of a drained node calls it; its exit status is 0 if all is
well, else the last line that it printed says what is wrong. All checks run at the same time, each in a process group of
its own, so that together they take no longer than the limit. One that does not end is killed and left behind, since
the kernel may not let go of it (a hung mount, a driver); it is not started again before it is gone.

slurmctld is asked only when something is wrong, when it has just got well, and once after a boot.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Any

PREFIX = "health check "
"""What the reasons of this program begin with: a node with another reason is somebody else's."""
APPENDED = " : "
"""What Slurm puts between a node's reason and its own (`set_node_reason` in `src/slurmctld/node_mgr.c`): then the node
is no longer ours alone."""
SILENT = "Not responding"
"""What the reasons begin with that Slurm gives nodes that do not answer; they are the only ones that it replaces."""
CLEARED = f"{SILENT} (cleared by the health check)"
"""What a node is resumed with. A reason outlives that where there are jobs or no database, and were it still ours, we
would resume what Slurm drains later (`_drain_node` there)."""
DIRECTORY = "/etc/gpucluster-slurm/health.d"
SETTINGS = "/etc/gpucluster-slurm/health.json"
STATE = "/run/gpucluster-slurm/health.json"
"""What the last run found. It is gone after a boot, as it must be: slurmctld is asked then."""
NAME = re.compile(r"[A-Za-z0-9_-]+")
"""Names of checks, as run-parts(8) takes them: what editors and package managers leave behind is no check."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCONTROL = 15
"""Seconds that slurmctld has for an answer. slurmd waits 60 s for this program (`run_script_health_check`)."""
REASON = 200
"""Most letters of a reason."""

Hung = dict[str, list[int]]
"""Checks that did not end, by name: the process and the moment it started, in ticks since boot."""


def started(pid: int) -> int:
    """When a process started, in ticks since boot (proc(5), stat); 0 if there is none, or only its remains."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def last_line(output: IO[bytes]) -> str:
    """The last line that a check printed."""
    output.seek(0)
    lines = output.read().decode(errors="replace").split("\n")
    return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")


def start(path: str, output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a check in a process group of its own. Raises OSError where it cannot be run."""
    return subprocess.Popen(
        [path],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=dict(environment),
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit status of a check; None if it has not ended by then (time.monotonic)."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def run_checks(directory: str, environment: Mapping[str, str], limit: float, hung: Hung) -> tuple[dict[str, str], Hung]:
    """Run the checks of a directory, all at once.

    Args:
        directory: where they are; one that is not there has none.
        environment: what they get to know.
        limit: seconds that they have.
        hung: those that an earlier run has left behind.

    Returns:
        What is wrong, by the name of the check, and which were left behind.
    """
    names = sorted(filter(NAME.fullmatch, os.listdir(directory))) if os.path.isdir(directory) else []
    # 0 is one that ended just when it was given up.
    left = {name: where for name, where in hung.items() if where[1] and started(where[0]) == where[1]}
    wrong = {name: "still hangs" for name in left if name in names}
    deadline = time.monotonic() + limit
    with ExitStack() as files:
        running = []
        for name in names:
            path = os.path.join(directory, name)
            if name in left or not os.path.isfile(path) or not os.access(path, os.X_OK):
                continue
            output = files.enter_context(tempfile.TemporaryFile(dir="/run"))
            try:
                running.append((name, start(path, output, environment), output))
            except OSError as error:
                wrong[name] = f"cannot be run: {error.strerror}"
        for name, process, output in running:
            status = ended(process, deadline)
            if status is None:
                wrong[name] = f"no answer in {limit:g} s"
                left[name] = [process.pid, started(process.pid)]
                os.killpg(process.pid, signal.SIGKILL)
            elif status:
                wrong[name] = last_line(output) or f"exit status {status}"
    return dict(sorted(wrong.items())), left


def reason_for(wrong: Mapping[str, str]) -> str:
    """The reason of a drained node: the checks that failed and what they said. Quotes and controls are left out."""
    text = PREFIX + "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return re.sub(r"[^ -!#-&(-~]", "", text.replace(APPENDED, ": "))[:REASON].rstrip()


def action(node: str, reason: str) -> list[str]:
    """What has to be told to scontrol: the words after the node's name; none if all is as it should be.

    A node that somebody else has drained or set down keeps its state and its reason; one that is down because it does
    not answer is drained, so that it has no job when it is back.

    Args:
        node: what `scontrol --oneliner show node` says of it.
        reason: why it has to be drained, or an empty text.
    """
    state = re.search(r"\bState=(\S+)", node)
    flags = set(re.split(r"[^A-Z_]+", state[1])) if state else set()
    found = re.search(r"\bReason=(.*?)(?= \[[^\]@]*@|$)", node)
    given = found[1] if found else ""
    ours = given.startswith(PREFIX) and APPENDED not in given
    drained = "DRAIN" in flags
    if not reason:
        return ["State=RESUME", f"Reason={CLEARED}"] if drained and ours else []
    if drained or "DOWN" in flags:
        free = ours or (not drained and (not given or given.startswith(SILENT)))
        return [] if not free or (drained and given == reason) else ["State=DRAIN", f"Reason={reason}"]
    return ["State=DRAIN", f"Reason={reason}"]


def scontrol(*words: str) -> str:
    """What a command says. Raises OSError with the words of one that fails or does not end."""
    try:
        done = subprocess.run(
            ["scontrol", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SCONTROL,
            check=False,
            env={**os.environ, "PATH": PATH, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"scontrol {words[0]}: no answer in {SCONTROL} s") from None
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        raise OSError(f"scontrol {' '.join(words)}: {output.strip()}")
    return output


def read(path: str) -> dict[str, Any]:
    """A mapping in a file of JSON; empty without one, or where a run was killed while it wrote it."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def examine() -> int:
    """Run the checks and tell slurmctld. Gives the exit status, which slurmd logs: 1 if something is wrong."""
    settings, before = read(SETTINGS), read(STATE)
    environment = {"PATH": PATH, "LC_ALL": "C", **settings.get("environment", {})}
    wrong, hung = run_checks(DIRECTORY, environment, float(settings.get("limit", 20)), before.get("hung", {}))
    reason = reason_for(wrong) if wrong else ""
    for name, what in wrong.items():
        print(f"{name}: {what}")
    known = before.get("well", False)
    try:
        if reason or not known:
            name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
            words = action(scontrol("--oneliner", "show", "node", name), reason)
            if words:
                scontrol("update", f"NodeName={name}", *words)
        known = not reason
    except OSError as error:
        # slurmctld does not answer: the next run asks again.
        print(error)
        known = False
    with open(STATE, "w", encoding="utf-8") as file:
        json.dump({"well": known, "hung": hung}, file)
    return 1 if wrong else 0


def main() -> int:
    """Examine the node, one run after the other: an administrator may start this while slurmd does."""
    os.makedirs(os.path.dirname(STATE), exist_ok=True)
    with open(f"{STATE}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return examine()


if __name__ == "__main__":
    sys.exit(main())
