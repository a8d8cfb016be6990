# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for sacct and sacctmgr over records in a file, and a real Prometheus with known values.

The stand-ins choose records as slurmdbd does (`as_mysql_jobacct_process.c`, and so seen with slurmdbd 22.05.8): the
number of an array is that of all its tasks, and of several runs of a job the newest one counts, with times or without.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RULES = Path(__file__).parents[2] / "roles/slurm_metrics/files/rules/gpus.yml"


class Accounting:
    """The records of slurmdbd."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.file, self.calls = directory / "records.json", directory / "calls"
        self.file.write_text("[]")
        self.calls.write_text("")
        for name in ("sacct", "sacctmgr"):
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {self.file} {name} "$@"\n')
            path.chmod(0o755)

    @property
    def records(self) -> list[dict[str, Any]]:
        """All of them."""
        found: list[dict[str, Any]] = json.loads(self.file.read_text())
        return found

    def add(self, number: int, start: int, end: int | None, tres: str, **more: Any) -> None:
        """Add a run of a job; without an end it still runs, with a start of 0 it waits.

        more: other values than usual, such as `name` for tasks of arrays, `eligible`, `comment`.
        """
        record: dict[str, Any] = {
            "name": str(number),
            "user": "ann",
            "account": "physics",
            "partition": "gpu",
            "comment": "",
        }
        record |= {"number": number, "start": start, "end": end or 0, "eligible": start - 5, "tres": tres, **more}
        record.setdefault("elapsed", (end or start) - start)
        self.file.write_text(json.dumps([*self.records, record]))

    def comments(self) -> dict[str, str]:
        """The AdminComment of each record, by name and start."""
        return {f"{record['name']} {record['start']}": record["comment"] for record in self.records}

    def count_calls(self, name: str) -> int:
        """How often a program was started."""
        return self.calls.read_text().split().count(name)


def _options(arguments: Iterable[str]) -> dict[str, str]:
    return dict(word.lstrip("-").split("=", 1) for word in arguments if "=" in word)


def _time(text: str) -> int:
    assert text.startswith("uts")
    return int(text[3:])


def _newest(records: Sequence[dict[str, Any]], job: str) -> list[dict[str, Any]]:
    found = {}
    for record in sorted(records, key=lambda record: record["eligible"]):
        array = record["name"].split("_")[0] if "_" in record["name"] else ""
        if record["name"] == job if re.search("[_+]", job) else job in (str(record["number"]), array):
            found[record["number"]] = record
    return [*found.values()]


def _show(records: Sequence[dict[str, Any]], options: Mapping[str, str]) -> None:
    if "jobs" in options:
        chosen = [record for job in options["jobs"].split(",") for record in _newest(records, job)]
    else:
        begin, end = _time(options["starttime"]), _time(options["endtime"])
        running = options["state"] == "R"
        chosen = [
            record
            for record in records
            if (
                record["start"] and record["start"] < end and (not record["end"] or record["end"] > begin)
                if running
                else record["end"] and begin <= record["end"] <= end
            )
        ]
    for record in chosen:
        values = [record["name"], record["number"], record["start"] or "Unknown", record["end"] or "Unknown"]
        values += [record[name] for name in ("elapsed", "user", "account", "partition", "tres", "comment")]
        print("|".join(map(str, values)))


def _modify(records: list[dict[str, Any]], options: Mapping[str, str]) -> list[dict[str, Any]]:
    changed = _newest(records, options["jobid"])
    for record in changed:
        record["comment"] = options["AdminComment"]
    print(" Modified jobs..." if changed else " Nothing modified")
    return records


def main() -> int:
    """Be sacct or sacctmgr. A file `slurmdbd-down` next to the records keeps both from answering."""
    file, program, *arguments = sys.argv[1:]
    path = Path(file)
    with open(path.with_name("calls"), "a", encoding="utf-8") as calls:
        calls.write(f"{program}\n")
    if path.with_name("slurmdbd-down").exists():
        print(f"{program}: error: slurmdbd does not answer", file=sys.stderr)
        return 1
    records, options = json.loads(path.read_text()), _options(arguments)
    if program == "sacct":
        _show(records, options)
    else:
        path.write_text(json.dumps(_modify(records, options)))
    return 0


# -- Prometheus ------------------------------------------------------------------------------------------------------

Values = Iterable[tuple[int, float]]
"""Times and values of a series."""


def minutes(start: int, end: int, value: float, phase: int = 17) -> list[tuple[int, float]]:
    """A value at each scrape in which a job was there."""
    first = start + (phase - start) % 60
    return [(when, value) for when in range(first, end, 60)]


def openmetrics(series: Mapping[str, Values]) -> str:
    """The text of series by their name with labels."""
    by_name: dict[str, list[str]] = {}
    for name, values in series.items():
        samples = by_name.setdefault(name.partition("{")[0], [])
        samples += [f"{name} {value} {when}\n" for when, value in values]
    parts = (f"# TYPE {name} gauge\n" + "".join(samples) for name, samples in by_name.items())
    return "".join(parts) + "# EOF\n"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _running(directory: Path) -> Iterator[str]:
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    (directory / "prometheus.yml").write_text("{}")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
            # Values that were put in have no end, which Prometheus notes when a scrape lacks a series.
            "--query.lookback-delta=60s",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        for _attempt in range(200):
            try:
                with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("Prometheus does not start")
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def prometheus(directory: Path, series: Mapping[str, Values], span: tuple[int, int] | None = None) -> Iterator[str]:
    """The address of a Prometheus that has these values, and those of the rules in a span of time."""
    blocks = ["promtool", "tsdb", "create-blocks-from"]
    (directory / "values").write_text(openmetrics(series))
    subprocess.run(
        [*blocks, "openmetrics", f"{directory}/values", f"{directory}/data"], check=True, stdout=subprocess.DEVNULL
    )
    if span:
        times = [f"--start={span[0]}", f"--end={span[1]}", "--eval-interval=60s", f"--output-dir={directory}/data"]
        # Each run takes what the rules before have left, so that rules follow from rules.
        for _run in range(2):
            with _running(directory) as address:
                subprocess.run(
                    [*blocks, "rules", *times, f"--url={address}", str(RULES)], check=True, stdout=subprocess.DEVNULL
                )
    with _running(directory) as address:
        yield address


if __name__ == "__main__":
    sys.exit(main())
