# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of the kernel since boot: those of the journal, and those that the kernel itself still has.

The kernel keeps few of them, in a ring that other messages fill. The journal keeps more, but may be full, rotated or
not running. Both have the same time of a message, so that one that both have counts once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..client.commands import run
from ..language.errors import CollectionError

ROOT = Path("/")
"""The root directory."""

JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--output=json", "--all")
JOURNAL_SECONDS = 10
RECORD_BYTES = 8192
"""The longest record of /dev/kmsg (`PRINTK_MESSAGE_MAX` is less)."""


class KernelMessagesError(CollectionError):
    """The kernel's messages cannot be read, as by a user of a job."""


class KernelMessage(NamedTuple):
    """A message of the kernel."""

    microseconds: int
    """When it was written, since boot."""
    text: str


def read_kernel_messages() -> list[KernelMessage]:
    """The messages since boot, in the order of their times. Raises KernelMessagesError if nothing can be read."""
    answer = run(journal_command(), seconds=JOURNAL_SECONDS)
    journal = parse_journal(answer.output)[0] if not answer.status else []
    try:
        return merged(read_ring(), journal)
    except OSError as error:
        if answer.status:
            raise KernelMessagesError(f"/dev/kmsg: {error.strerror}; journalctl: {answer.message}") from error
        return journal


def read_boot_id() -> str:
    """The kernel's name of this boot (random(4)); empty if it cannot be read."""
    with suppress(OSError):
        return (ROOT / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def merged(ring: Iterable[KernelMessage], journal: Iterable[KernelMessage]) -> list[KernelMessage]:
    """The messages of both, each once, in the order of their times."""
    return sorted({*ring, *journal})


def read_ring(root: Path = ROOT) -> list[KernelMessage]:
    """What the kernel still has (Documentation/ABI/testing/dev-kmsg). Raises OSError."""
    file = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return [*filter(None, map(parse_ring, _lines(file)))]
    finally:
        os.close(file)


def _lines(file: int) -> Iterator[bytes]:
    """The lines of /dev/kmsg: each read is a message, and lines about it."""
    while True:
        try:
            record = os.read(file, RECORD_BYTES)
        except BrokenPipeError:  # the kernel has overwritten the next one
            continue
        except OSError:  # there are no more
            return
        if not record:
            return
        yield from record.split(b"\n")


def one_line(text: str) -> str:
    """A message in one line; a few have several, which /dev/kmsg writes as `\\x0a`."""
    return text.replace("\\x0a", " ").replace("\n", " ")


def parse_ring(record: bytes) -> KernelMessage | None:
    """A line such as `3,1234,987654321,-;NVRM: Xid ...`; None for one that is no message of the kernel."""
    head, _semicolon, text = record.decode(errors="replace").partition(";")
    fields = head.split(",")
    if len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit() or int(fields[0]) >> 3:
        return None
    return KernelMessage(int(fields[2]), one_line(text))


def journal_command(cursor: str = "") -> list[str]:
    """The command that prints the journal's messages of the kernel, those after a place of it (journalctl(1))."""
    return [*JOURNAL, *([f"--after-cursor={cursor}"] if cursor else [])]


def parse_journal(output: str) -> tuple[list[KernelMessage], str]:
    """The messages that this command prints, and the place of the last one. A line that is cut off is left out."""
    messages, cursor = list[KernelMessage](), ""
    for line in output.split("\n"):
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            when = int(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"])
            if int(entry.get("SYSLOG_FACILITY", 0)):  # written by a program
                continue
            text = entry["MESSAGE"]
            # journald gives a text that is not UTF-8 as a list of bytes.
            text = bytes(text).decode(errors="replace") if isinstance(text, list) else str(text)
            messages.append(KernelMessage(when, one_line(text)))
            cursor = str(entry["__CURSOR"])
    return messages, cursor
