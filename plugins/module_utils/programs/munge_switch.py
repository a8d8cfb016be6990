# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Gives munged of this host another key, at the same time as on all other hosts of the cluster.

    stage                  writes the next key, which it reads in base64, and shows the state
    state                  the checksums of the keys, and how the last switch ended, as JSON
    arm --at T ...         a unit of systemd for the switch
    switch --at T ...      what this unit runs

The stopped slurmctld of all controllers is the sign for the other hosts. A host whose requests the controllers refuse
has the wrong one of both keys, and takes the other. So no host depends on the control host after it was armed, and a
host that was armed without the controllers changes nothing. A standby whose first controller has lost its power stays
one, or becomes one again at once: it takes over SlurmctldTimeout after its start.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..client.commands import run
from ..client.munge_credentials import DECODE
from ..host import replacing
from ..host.json_files import read_record
from ..language.errors import CollectionError

UNIT = "gpucluster-munge-switch"
RECORD = Path("/run/gpucluster-munge-switch.json")
KEYS = Path("/etc/munge")
SECONDS = 90
"""The time limit of commands of systemd."""

OPEN, CLOSED, SILENT = "open", "closed", "silent"
ACCEPTED, REFUSED, NO_ANSWER = "accepted", "refused", "no answer"


class SwitchError(CollectionError):
    """Why this host has not switched."""


@dataclass
class SwitchedHost:
    """This host; a test gives it another directory, other programs and shorter times."""

    keys: Path = KEYS
    record: Path = RECORD
    controllers: list[tuple[str, int]] = field(default_factory=list)
    """slurmctld's addresses; empty on a host that cannot reach them."""
    is_controller: bool = False
    is_standby: bool = False
    """Whether it is a controller other than the first one."""
    proves: bool = False
    """Whether this host has Slurm's commands, and asks slurmctld whether the key is right."""
    quiet: float = 1.0
    """Seconds for messages under way, between the end of slurmctld and the new key."""
    gap: float = 5.0
    """Seconds in which the other hosts change their key, before slurmctld starts."""
    stop: float = 40.0
    """Seconds in which all controllers have to stop. A controller waits less for the others, since it has stopped."""
    wait: float = 300.0
    """Seconds for an answer of the controllers with the new key."""
    ask: float = 6.0
    """Seconds between its questions before the switch, since thousands of hosts may ask."""
    pause: float = 0.3
    lead: float = 10.0
    """Seconds that a standby gives the first controller to start."""
    dead: float = 5.0
    """Seconds without an answer, after which a controller counts as lost."""

    @property
    def present(self) -> Path:
        """The key that munged has."""
        return self.keys / "munge.key"

    @property
    def next(self) -> Path:
        """The staged key."""
        return self.keys / "munge.key.next"

    @property
    def previous(self) -> Path:
        """The key before the switch."""
        return self.keys / "munge.key.previous"


# -- this host's programs ---------------------------------------------------------------------------------------------


def must(*command: str, stdin: str = "") -> str:
    """The output of a command that must not fail. Raises SwitchError."""
    answer = run(command, stdin, SECONDS)
    if answer.status:
        raise SwitchError(f"{' '.join(command)}: {answer.message[-300:]}")
    return answer.output


def begin(action: str, unit: str) -> str:
    """Start or restart a unit, however often it was started before: this may have reached its limit of starts.

    Returns: why it failed; empty if it did not.
    """
    run(["systemctl", "reset-failed", unit])
    try:
        must("systemctl", action, unit)
    except SwitchError as error:
        return str(error)
    return ""


def port(address: tuple[str, int], seconds: float = 3) -> str:
    """Whether a program listens there. A host that does not answer may be busy, so it says nothing."""
    try:
        with socket.create_connection(address, seconds):
            return OPEN
    except ConnectionRefusedError:
        return CLOSED
    except OSError:
        return SILENT


def answer(seconds: float = 30) -> str:
    """Whether slurmctld opens a credential of this host's munged. Without a slurmctld, sinfo tries for long."""
    found = run(["sinfo", "--noheader", "--format=%P"], seconds=seconds)
    if not found.status:
        return ACCEPTED
    return REFUSED if "authentication" in found.message.lower() else NO_ANSWER


# -- the keys ---------------------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """The checksum of a file; empty without one."""
    try:
        return hashlib.sha256(replacing.read(str(path))).hexdigest()
    except FileNotFoundError:
        return ""


def copy(source: Path, target: Path) -> None:
    """A copy with the same owner and mode, complete or not there."""
    write(target, *replacing.read_with_status(str(source)))


def write(target: Path, content: bytes, found: os.stat_result) -> None:
    """A file with the owner and the mode of another one, also on a host that loses its power now."""
    ids = (found.st_uid, found.st_gid)
    replacing.replace(str(target), content, stat.S_IMODE(found.st_mode), ids, synced=True)


def stage(host: SwitchedHost, content: bytes) -> None:
    """Write the next key next to the present one."""
    write(host.next, content, replacing.read_with_status(str(host.present))[1])


def restart() -> None:
    """Let munged read its key, and prove that it opens its own credentials."""
    if failure := begin("restart", "munge"):
        raise SwitchError(failure)
    must(*DECODE, stdin=must("munge", "--no-input"))


def take_next(host: SwitchedHost) -> None:
    """The staged key becomes the present one. If munged does not take it, the present one comes back."""
    if not host.next.exists():
        raise SwitchError(f"{host.next} is missing")
    copy(host.present, host.previous)
    copy(host.next, host.present)
    try:
        restart()
    except SwitchError:
        take_previous(host)
        raise


def take_previous(host: SwitchedHost) -> None:
    """The key before the switch comes back."""
    copy(host.previous, host.present)
    restart()


# -- the switch -------------------------------------------------------------------------------------------------------


def until(seconds: float, pause: float) -> Iterator[None]:
    """Repeat for some time, at least once."""
    end = time.monotonic() + seconds
    while True:
        yield
        if time.monotonic() > end:
            return
        time.sleep(pause)


def wait_for_controllers(host: SwitchedHost) -> None:
    """Return when all slurmctld have stopped, or when they serve with the other key: then this host is late."""
    if not host.controllers:
        return
    asked = answered = time.monotonic()
    for _try in until(host.stop / 2 if host.is_controller else host.stop, host.pause):
        ports = {port(address) for address in host.controllers}
        if ports == {CLOSED}:
            return
        now = time.monotonic()
        answered = answered if SILENT in ports else now
        lost = now - answered > host.dead
        if host.is_controller and lost:
            break  # a controller without power does not stop, and this one has to take over
        if asks(host, ports, lost) and now - asked > host.ask:
            asked = now
            if answer(10) == REFUSED:
                return
    raise SwitchError("not all controllers have stopped slurmctld, so this host keeps its key")


def asks(host: SwitchedHost, ports: set[str], lost: bool) -> bool:
    """Whether a host that waits asks slurmctld: where it listens, or where all that are not lost do.

    sinfo would wait for one that is away, and the host would not see the others stop.
    """
    return host.proves and not host.is_controller and (ports == {OPEN} or (lost and ports == {OPEN, SILENT}))


def check_first(host: SwitchedHost) -> None:
    """A standby stops only while the first controller runs.

    If that has lost its power, all hosts keep their key, and the standby takes over as at any other time.
    """
    if port(host.controllers[0]) != OPEN:
        raise SwitchError("slurmctld of the first controller does not answer, so this host keeps its key")


def wait_for_standbys(host: SwitchedHost) -> None:
    """The first controller stops last: a command that meets a standby alone asks again after 60 s only.

    That is half of SlurmctldTimeout (slurm_send_recv_controller_msg in src/common/slurm_protocol_api.c).
    """
    for _try in until(host.stop / 2, host.pause):
        if all(port(address) == CLOSED for address in host.controllers[1:]):
            return
    raise SwitchError("another controller has not stopped slurmctld, so this one goes on with its key")


def wait_for_first(host: SwitchedHost) -> None:
    """Wait some seconds for the first controller, which starts first for the same reason, unless it is lost."""
    for _try in until(host.lead, host.pause):
        if port(host.controllers[0]) != CLOSED:
            return


def prove(host: SwitchedHost) -> None:
    """Ask slurmctld. It refuses this host only if it has the other key: then that one comes back.

    Without an answer nothing is known, so the key stays; the next run of rotate_keys.yml compares.
    """
    refusals = 0
    for _try in until(host.wait, host.pause):
        found = answer()
        if found == ACCEPTED:
            return
        refusals = refusals + 1 if found == REFUSED else 0
        if refusals > 9:
            take_previous(host)
            raise SwitchError("the controllers refused the new key, so the previous one is back")
    raise SwitchError("the controllers did not answer after the switch")


def switch(host: SwitchedHost, at: float) -> None:
    """Change the key at this time."""
    time.sleep(max(0.0, at - time.time()))
    if host.is_controller:
        if host.is_standby:
            check_first(host)
        else:
            wait_for_standbys(host)
        must("systemctl", "stop", "slurmctld")
    try:
        wait_for_controllers(host)
        time.sleep(host.quiet)
        take_next(host)
        if host.is_controller:
            time.sleep(host.gap)
        if host.is_standby:
            wait_for_first(host)
    finally:
        failure = begin("start", "slurmctld") if host.is_controller else ""
    if failure:
        raise SwitchError(failure)
    if host.proves:
        prove(host)


def arm(host: SwitchedHost, at: float, arguments: list[str]) -> None:
    """Start the unit that switches. A controller whose program is killed starts slurmctld all the same."""
    run(["systemctl", "stop", UNIT], seconds=SECONDS)
    run(["systemctl", "reset-failed", UNIT])
    replacing.remove(str(host.record))
    steps = ("-/usr/bin/systemctl reset-failed slurmctld", "/usr/bin/systemctl start slurmctld")
    after = [f"--property=ExecStopPost={step}" for step in steps] if host.is_controller else []
    program = [sys.executable, os.path.abspath(sys.argv[0]), "switch", f"--at={at}", *arguments]
    must("systemd-run", f"--unit={UNIT}", "--collect", "--quiet", *after, *program)


def state(host: SwitchedHost) -> dict[str, object]:
    """What is known of the keys of this host."""
    found: dict[str, object] = {name: digest(getattr(host, name)) for name in ("present", "next", "previous")}
    active = run(["systemctl", "is-active", UNIT]).output.strip()
    found["armed"] = active in ("active", "activating", "deactivating")
    return {**found, "error": None, **read_record(str(host.record))}


def address(text: str) -> tuple[str, int]:
    """HOST:PORT."""
    name, _colon, number = text.rpartition(":")
    return name.strip("[]"), int(number)


def main() -> int:
    """Run one of the steps."""
    os.umask(0o077)
    parser = argparse.ArgumentParser(description="gives munged another key")
    parser.add_argument("step", choices=("stage", "state", "arm", "switch"))
    parser.add_argument("--at", type=float, default=0.0)
    parser.add_argument("--controller", action="append", default=[], type=address)
    parser.add_argument("--is-controller", action="store_true")
    parser.add_argument("--is-standby", action="store_true")
    parser.add_argument("--proves", action="store_true")
    parser.add_argument("--gap", type=float, default=SwitchedHost.gap)
    given = parser.parse_args()
    host = SwitchedHost(
        controllers=given.controller,
        is_controller=given.is_controller,
        is_standby=given.is_standby,
        proves=given.proves,
        gap=given.gap,
    )
    if given.step == "stage":
        stage(host, base64.b64decode(sys.stdin.read().strip(), validate=True))
    if given.step in ("stage", "state"):
        print(json.dumps(state(host)))
    elif given.step == "arm":
        arm(host, given.at, [text for text in sys.argv[2:] if not text.startswith("--at")])
    else:
        error = ""
        try:
            switch(host, given.at)
        except (SwitchError, OSError) as problem:
            error = str(problem)
        replacing.replace(str(host.record), json.dumps({"error": error}).encode(), 0o600)
        return 1 if error else 0
    return 0
