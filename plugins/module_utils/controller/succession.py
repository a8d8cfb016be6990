# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several controllers may take control: the one that served last, and those that have the files in force.

All of them share StateSaveLocation. slurmctld writes there which controller serves, and slurm_config the serial number
of the files in force.
"""

from __future__ import annotations

import os
import pwd
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ..host.timeout_call import Answer
from .state_save_location import StateDirectoryError, as_user

HEARTBEAT = "heartbeat"
"""The file of StateSaveLocation that the serving slurmctld writes every SlurmctldTimeout / 4 seconds, 30 at most."""

SERIAL = "/var/lib/gpucluster-slurm/serial"
"""The serial number of the files in force that this controller has, and the version of its slurmctld."""

SHARED_SERIAL = "gpucluster-slurm-serial"
"""The same of the controller that serves, in StateSaveLocation."""


# -- who served last -------------------------------------------------------------------------------------------------


def find_last_index(heartbeat: bytes) -> int | None:
    """The place in SlurmctldHost of the controller that wrote a heartbeat; None if it is none.

    It is the time and the place, each with 64 bits (`_heartbeat_thread` in `src/slurmctld/heartbeat.c`).
    """
    return int(struct.unpack(">QQ", heartbeat)[1]) if len(heartbeat) == 16 else None


def may_take_over(own: int, last: int | None, connecting: Iterable[int]) -> bool:
    """Whether a standby may take control without waiting for SlurmctldTimeout, by the places in SlurmctldHost.

    If it served last, no other controller has changed the state since. It must not ask while one before it takes
    connections: `scontrol takeover` would end the slurmctld there (`_shutdown_primary_controller` in
    `src/slurmctld/backup.c`).

    Args:
        own: its place. last: that of the controller that served last, if it is known.
        connecting: those of the controllers whose slurmctld takes connections.
    """
    return own > 0 and last == own and not any(place < own for place in connecting)


def find_ahead(before: Sequence[str], after: Sequence[str], here: str) -> list[str]:
    """The controllers that a change puts before the one that serves, which is `here`.

    As their standby it would wait for a heartbeat, and they have never served (`run_backup` in
    `src/slurmctld/backup.c`).

    Args:
        before, after: the controllers in the order of SlurmctldHost.
    """
    if here not in before or here not in after:
        return []
    known = before[: before.index(here)]
    return [name for name in after[: after.index(here)] if name not in known]


# -- whose files are in force ----------------------------------------------------------------------------------------


def serial_of(text: str) -> int:
    """The serial number in a record; 0 if there is none."""
    number = text.partition(" ")[0].strip()
    return int(number) if number.isdecimal() else 0


def next_record(own: str, shared: str, version: str, *, changes: bool) -> str:
    """The record of a controller that puts files in force.

    The number rises with each change of the files or of the release, so that a controller which was away has a lower
    one. The controller that a run has chosen gets the highest one that there was: its files are those in force.
    """
    latest = max(own, shared, key=serial_of).strip()
    number = serial_of(latest)
    same = number > 0 and latest == f"{number} {version}" and not changes
    return latest if same else f"{number + 1} {version}"


# -- StateSaveLocation, as the user of slurmctld ---------------------------------------------------------------------


def read_state_file(directory: str, name: str, user: str) -> bytes:
    """A small file of StateSaveLocation; empty if it cannot be read."""
    place = os.path.join(directory, name)

    def read() -> Answer:
        with open(place, "rb") as file:
            return {"content": file.read(64).hex()}

    with suppress(StateDirectoryError):
        return bytes.fromhex(_run_as(user, read)["content"])
    return b""


def write_state_file(directory: str, name: str, user: str, text: str) -> None:
    """Replace a small file of StateSaveLocation, which everybody can read: a server of NFS may take root for nobody.

    Raises:
        StateDirectoryError: the user cannot write it.
    """
    place, content = os.path.join(directory, name), text.encode()

    def write() -> Answer:
        with suppress(FileNotFoundError):  # one that a killed run has left
            os.unlink(f"{place}.new")
        descriptor = os.open(f"{place}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.fchmod(descriptor, 0o644)
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(f"{place}.new", place)
        return {}

    _run_as(user, write)


def _run_as(user: str, work: Callable[[], Answer]) -> Answer:
    """The result of `work` with the rights of SlurmUser."""
    try:
        number = int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise StateDirectoryError(f"user {user} does not exist") from None
    return as_user(number, work)
