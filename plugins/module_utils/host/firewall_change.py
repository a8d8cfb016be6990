# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's table of nftables on a host, and a timer that takes a change of it back unless it is confirmed.

New rules are in the kernel and in a file of their own until they are confirmed. A boot loads the file of confirmed
rules only. Whoever renames the file of new rules first, the confirmation or the timer, decides.
"""

from __future__ import annotations

import hashlib
import json
import os
import re

from ..client.commands import run
from . import access_change
from .access_change import UnconfirmedError
from .files import File, FileError, write
from .json_files import Record, read_record

NFT = "/usr/sbin/nft"
TABLE = ("inet", "gpucluster_slurm")
UNIT = "gpucluster-slurm-firewall.service"
UNITS = "/etc/systemd/system"
TIMER = "gpucluster-slurm-firewall-undo"

RULES = "/etc/gpucluster-slurm/firewall.nft"
_COUNTED = re.compile(r"^\tset counted_\w+ \{\n(?:\t\t.*\n)*\t\}\n", re.MULTILINE)
"""Sets of the table that hold the present connections (`rules.nft.j2`)."""

RECORD = "/var/lib/gpucluster-slurm/firewall"
PENDING = f"{RECORD}.new"
"""The digest of rules that are not confirmed yet."""

INCOMPLETE = "incomplete"
"""The state of a host that has something to do."""

SECONDS = access_change.SECONDS


def new_rules() -> str:
    """The file of rules that are not confirmed yet."""
    return f"{RULES}.new"


def table_checksum() -> str:
    """A checksum of the table in the kernel, without what it counts; empty without a table."""
    answer = run([NFT, "--stateless", "list", "table", *TABLE])
    return hashlib.sha256(_COUNTED.sub("", answer.output).encode()).hexdigest() if answer.status == 0 else ""


def enabled() -> bool:
    """Whether a boot loads the rules."""
    return os.path.islink(f"{UNITS}/sysinit.target.wants/{UNIT}")


def _checksum(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def state() -> str:
    """The digest of the plan that holds on this host, INCOMPLETE if not all of it does; empty without a firewall."""
    record = read_record(RECORD)
    if not record:
        left = (RECORD, PENDING, RULES, new_rules(), f"{UNITS}/{UNIT}")
        return INCOMPLETE if any(map(os.path.exists, left)) else ""
    holds = (
        not os.path.exists(new_rules())
        and record.get("files") == {path: _checksum(path) for path in (RULES, f"{UNITS}/{UNIT}")}
        and enabled()
        and record.get("listed") == table_checksum()
    )
    return str(record.get("plan")) if holds else INCOMPLETE


def _nft(*arguments: str) -> None:
    """Run nft. Raises FileError with its message."""
    answer = run([NFT, *arguments])
    if answer.status:
        raise FileError(f"nft {' '.join(arguments)}: {answer.message}")


def _systemctl(*arguments: str) -> None:
    """Run systemctl. Raises FileError with its message."""
    answer = run(["systemctl", "--quiet", *arguments])
    if answer.status:
        raise FileError(f"systemctl {' '.join(arguments)}: {answer.message}")


def undo_script() -> str:
    """The commands that take back rules that are not confirmed: the confirmed ones come back, or there is no table."""
    undone, table = f"{RULES}.undone", " ".join(TABLE)
    return (
        f"mv -T {new_rules()} {undone} || exit 0; "
        f"if [ -e {RULES} ]; then {NFT} -f {RULES}; else {NFT} delete table {table}; fi; "
        f"rm -f {undone} {PENDING}"
    )


def apply(text: str, digest: str) -> None:
    """Put rules into force. The timer runs before they are, and nft has read them before that.

    Raises FileError, OSError.
    """
    write([File(PENDING, json.dumps({"plan": digest}).encode()), File(new_rules(), text.encode(), mode=0o600)])
    try:
        access_change.start_timer(TIMER, ["/bin/sh", "-c", undo_script()])
        _nft("--file", new_rules())
    except FileError:
        restore()
        raise


def restore() -> None:
    """Restore the rules before those that are not confirmed, unless the timer has done so. Raises FileError."""
    if os.path.exists(new_rules()):
        answer = run(["/bin/sh", "-c", undo_script()])
        if answer.status:
            raise FileError(answer.message)
    access_change.stop_timer(TIMER)


def confirm() -> None:
    """Keep rules that a new connection has confirmed.

    Raises UnconfirmedError if the timer was faster, FileError, OSError.
    """
    try:
        os.rename(new_rules(), RULES)
    except FileNotFoundError:
        raise UnconfirmedError(
            f"the host has restored the previous rules, since no new connection confirmed the change within "
            f"{SECONDS} s",
            put_back=True,
        ) from None
    access_change.stop_timer(TIMER)
    keep(str(read_record(PENDING).get("plan", "")))


def keep(digest: str) -> None:
    """Let a boot load the rules, and record what holds now. Raises FileError, OSError."""
    _systemctl("daemon-reload")
    _systemctl("enable", UNIT)
    # It loads the same rules again in one transaction, so that systemd knows the unit as active.
    _systemctl("reload-or-restart", UNIT)
    files = {path: _checksum(path) for path in (RULES, f"{UNITS}/{UNIT}")}
    record: Record = {"plan": digest, "files": files, "listed": table_checksum()}
    write([File(RECORD, f"{json.dumps(record, indent=1, sort_keys=True)}\n".encode())])
    if os.path.exists(PENDING):
        os.unlink(PENDING)


def remove() -> None:
    """Remove the table, its unit and its files; the record is the last one. Raises FileError, OSError."""
    access_change.stop_timer(TIMER)
    if os.path.exists(f"{UNITS}/{UNIT}"):
        _systemctl("disable", "--now", UNIT)
    if table_checksum():
        _nft("delete", "table", *TABLE)
    for path in (f"{UNITS}/{UNIT}", new_rules(), RULES, PENDING, RECORD):
        if os.path.exists(path):
            os.unlink(path)
    _systemctl("daemon-reload")
