# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The command slurm-report: `collect` prints the data, `pages` makes pages from them, `update` does both for nginx."""

from __future__ import annotations

import argparse
import base64
import binascii
import fcntl
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..host import replacing
from ..language.errors import CollectionError
from . import report_collector
from .report_pages.report_page import write_pages

PAGES = Path("/var/lib/gpucluster-slurm/report-pages")
"""The directory that nginx serves."""

SERVED = {"index.html": "index.html", "admin.html": "admin/index.html"}
"""Where nginx has each page."""

MOST_BYTES = 2**29
"""Of unpacked data. A host may send less packed data than that, and must not fill the memory of the control host."""


class PagesError(CollectionError):
    """Why there are no pages, in one line."""


def unpack(text: str) -> str:
    """The text of packed data.

    Raises:
        PagesError: it is no packed data, or too much.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = unpacker.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise PagesError(f"neither JSON nor packed data: {error}") from error
    if not unpacker.eof:
        raise PagesError(f"the data are incomplete, or more than {MOST_BYTES >> 20} MiB")
    return content.decode(errors="replace")


def read_data(path: Path | None, hosts: Path | None) -> report_collector.Row:
    """The data of a file, or of standard input, with what report.yml has found on the hosts.

    Raises:
        PagesError: a file is missing or has something else.
    """
    data = _read(path)
    if data.get("version") != report_collector.VERSION:
        raise PagesError(
            f"{path or 'standard input'}: the version is {data.get('version')!r}, allowed: {report_collector.VERSION}"
        )
    if hosts:
        report_collector.add_hosts(data, _read(hosts))
    data["missing"] = [row for row in data.get("missing") or [] if data.get(row.get("part")) is None]
    return data


def _read(path: Path | None) -> report_collector.Row:
    try:
        text = (path.read_text(encoding="utf-8") if path else sys.stdin.read()).strip()
        found = json.loads(text if text.startswith("{") else unpack(text))
    except (OSError, ValueError, PagesError) as error:
        raise PagesError(f"{path or 'standard input'}: {error}") from error
    if not isinstance(found, dict):
        raise PagesError(f"{path or 'standard input'}: found no object of JSON")
    return found


@contextmanager
def alone() -> Iterator[bool]:
    """Whether no other run goes on. Root alone can open the directory, so nobody else can hold its lock."""
    directory = os.open(report_collector.STATE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(directory)


def serve(made: Path) -> None:
    """Replace the pages that nginx serves, each of them at once.

    Their group is nginx's: that of this process as a service, and that of the page before if a person runs it.
    """
    for name, place in SERVED.items():
        target, group = PAGES / place, -1
        with suppress(FileNotFoundError):
            group = target.lstat().st_gid
        replacing.replace(str(target), (made / name).read_bytes(), 0o640, (-1, group))


def summary(data: report_collector.Row) -> report_collector.Row:
    """How much the pages have, and what they lack."""
    counts = {part: None if data.get(part) is None else len(data[part]) for part in ("nodes", "jobs", "drains")}
    return {**counts, "missing": data["missing"]}


def update() -> int:
    """Collect the data, and replace the pages. Returns the exit status."""
    settings = {**report_collector.read_settings(None), "keep": True}
    with alone() as first:
        if not first:
            print("another run makes the pages")
            return 0
        data = report_collector.collect(settings, report_collector.STATE / "hosts.json")
        with tempfile.TemporaryDirectory() as made:
            write_pages(data, Path(made))
            serve(Path(made))
    for row in data["missing"]:
        print(f"{row['part']}: {row['why']}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    if given[:1] == ["collect"]:
        return report_collector.main(given[1:])
    parser = argparse.ArgumentParser(prog="slurm-report", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("collect", help="print the data as JSON (slurm-report collect --help)", add_help=False)
    pages = commands.add_parser("pages", help="write index.html and admin.html")
    pages.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="what `collect` has printed; - for standard input"
    )
    pages.add_argument("--hosts", type=Path, metavar="FILE", help="what the playbook report has found on the hosts")
    pages.add_argument("--output", type=Path, required=True, metavar="DIR", help="a directory")
    commands.add_parser("update", help="collect the data, and replace the pages that nginx serves")
    options = parser.parse_args(given)
    try:
        if options.command == "update":
            return update()
        os.umask(0o077)
        data = read_data(None if str(options.data) == "-" else options.data, options.hosts)
        write_pages(data, options.output)
        # The page for administrators has what others may not see.
        for name, mode in (("index.html", 0o644), ("admin.html", 0o600)):
            (options.output / name).chmod(mode)
        print(json.dumps(summary(data)))
    except (CollectionError, OSError) as error:
        print(f"slurm-report: {error}", file=sys.stderr)
        return 1
    return 0
