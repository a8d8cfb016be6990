# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Slurm's HealthCheckProgram: runs every check of a directory, drains the node if one fails, resumes what it drained.

A check is an executable file. The reason of a drained node has the name of the check. The exit status of a check is 0
if all is well; otherwise the last line of its output is the error. All checks run at the same time, each in its own
process group, so that together they take no longer than the limit. A check that does not end in time is killed and left
behind, since the kernel may not be able to end it (a hung mount, a driver). It is not started again before it has gone.

The program asks slurmctld only if a check fails, after the checks succeed again, and once after a boot.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from ..client.commands import CommandError, output
from ..client.drains import APPENDED, HEALTH
from ..client.scontrol import reason_of, records
from ..host import replacing
from ..host.json_files import read_record
from ..host.locks import locked

SILENT = "Not responding"
"""Beginning of Slurm's reasons for nodes that do not answer. Slurm replaces only these reasons."""
CLEARED = f"{SILENT} (cleared by the health check)"
"""Reason that a resumed node gets. A reason stays after the resume if there are jobs or no database. If it were still
the reason of this program, the program would resume a node that Slurm drains later (`_drain_node` there)."""
DIRECTORY = "/etc/gpucluster-slurm/health.d"
SETTINGS = "/etc/gpucluster-slurm/health.json"
STATE = "/run/gpucluster-slurm/health.json"
"""Results of the last run. A boot removes the file, and then the program asks slurmctld."""
NAME = re.compile(r"[A-Za-z0-9_-]+")
"""Names of checks, as in run-parts(8). Files that editors and package managers leave behind are no checks."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SLURMD = 60
"""Seconds after which slurmd ends this program (`run_script_health_check`)."""
SCONTROL = 15
"""Time limit in seconds for an answer of slurmctld."""
REASON = 200
"""Maximum length of a reason, in characters."""
LIMIT = 20.0
"""Default time limit in seconds of all checks together."""

Hung = dict[str, list[Any]]
"""Checks that did not end, by name: the process, the moment it started, in ticks since boot, and its last line."""


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


def with_words(error: str, words: str) -> str:
    """An error of a check that hangs, with its last line, which tells where."""
    return f"{error}: {words}" if words else error


def start(path: str, output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a check in its own process group. Raises OSError if it cannot be run."""
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
        directory: directory of the checks; a missing directory has no checks.
        environment: environment variables of the checks.
        limit: time limit in seconds.
        hung: checks that an earlier run has left behind.

    Returns:
        The errors by the name of the check, and the checks that were left behind.
    """
    names = sorted(filter(NAME.fullmatch, os.listdir(directory))) if os.path.isdir(directory) else []
    # A start of 0 is a check that ended just when it was killed.
    left = {name: where for name, where in hung.items() if where[1] and started(where[0]) == where[1]}
    wrong = {name: with_words("still hangs", "".join(left[name][2:])) for name in left if name in names}
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
                said = last_line(output)
                wrong[name] = with_words(f"no answer in {limit:g} s", said)
                left[name] = [process.pid, started(process.pid), said]
                os.killpg(process.pid, signal.SIGKILL)
            elif status:
                wrong[name] = last_line(output) or f"exit status {status}"
    return dict(sorted(wrong.items())), left


def reason_for(wrong: Mapping[str, str]) -> str:
    """The reason of a drained node: the failed checks and their errors, without quotes and control characters."""
    text = HEALTH + "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return re.sub(r"[^ -!#-&(-~]", "", text.replace(APPENDED, ": "))[:REASON].rstrip()


def action(node: str, reason: str) -> list[str]:
    """The words for `scontrol update` after the node's name; none if the node is as it should be.

    A node that somebody else has drained or set down keeps its state and its reason. A node that is down because it
    does not answer is drained, so that it gets no job when it is back.

    Args:
        node: output of `scontrol --oneliner show node`.
        reason: the reason to drain the node, or an empty text.
    """
    found = next(iter(records(node)), {})
    flags = set(re.split(r"[^A-Z_]+", found.get("State", "")))
    given = reason_of(found).text
    ours = given.startswith(HEALTH) and APPENDED not in given
    drained = "DRAIN" in flags
    if not reason:
        return ["State=RESUME", f"Reason={CLEARED}"] if drained and ours else []
    if drained or "DOWN" in flags:
        free = ours or (not drained and (not given or given.startswith(SILENT)))
        return [] if not free or (drained and given == reason) else ["State=DRAIN", f"Reason={reason}"]
    return ["State=DRAIN", f"Reason={reason}"]


def scontrol(*words: str) -> str:
    """The output of a scontrol command. Raises CommandError if it fails, or if it does not end in time."""
    return output(["scontrol", *words], seconds=SCONTROL)


def own_node() -> str:
    """The name of this node, for a person who runs the checks: slurmd passes it on. Raises CommandError without one."""
    names = scontrol("show", "aliases").split()
    if not names:
        raise CommandError("this host is no node of Slurm")
    return names[0]


def examine() -> int:
    """Run the checks and update the node. Returns the exit status, which slurmd logs: 1 if a check fails."""
    settings, before = read_record(SETTINGS), read_record(STATE)
    environment = {"PATH": PATH, "LC_ALL": "C", **settings.get("environment", {})}
    wrong, hung = run_checks(DIRECTORY, environment, float(settings.get("limit", LIMIT)), before.get("hung", {}))
    reason = reason_for(wrong) if wrong else ""
    for name, what in wrong.items():
        print(f"{name}: {what}")
    known = before.get("well", False)
    try:
        if reason or not known:
            name = os.environ.get("SLURMD_NODENAME") or own_node()
            words = action(scontrol("--oneliner", "show", "node", name), reason)
            if words:
                scontrol("update", f"NodeName={name}", *words)
        known = not reason
    except CommandError as error:
        # slurmctld does not answer: the next run asks again.
        print(error)
        known = False
    replacing.replace(STATE, json.dumps({"well": known, "hung": hung}).encode(), 0o600)
    return 1 if wrong else 0


@contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Wait for another run of this program. A run that has not ended after `seconds` is named, and not waited for.

    A broken node must be drained, whoever holds the lock.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked("health", seconds))
        except OSError as error:
            print(error)
        yield


def waiting(limit: float) -> float:
    """How long to wait for another run, in seconds, with this limit of the checks.

    The checks of the other run have ended by then, so that none runs twice at the same time. What is left is enough for
    the own checks and an answer of slurmctld before slurmd ends this program.
    """
    return max(0.0, min(limit + 2, SLURMD - SCONTROL - limit))


def main() -> int:
    """Examine the node. Two runs at a time are prevented, since an administrator may start one while slurmd's runs."""
    os.umask(0o022)  # that of a person who runs it may be any, and other programs use the directory
    os.makedirs(os.path.dirname(STATE), mode=0o755, exist_ok=True)
    with alone(waiting(float(read_record(SETTINGS).get("limit", LIMIT)))):
        return examine()
