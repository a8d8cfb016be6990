# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the page of 2,000 nodes and 50,000 jobs, of which 10,000 run: its making, its size, and Chromium with it.

usage: python report_page.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/unit"))

import report_data  # noqa: E402
from browser import Browser, find_program  # noqa: E402

MAKE = """
import json, resource, sys, time
from pathlib import Path
started, begun = time.monotonic(), time.process_time()
data = json.loads(Path(sys.argv[1]).read_text())
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_page as page
page.write_pages(data, Path(sys.argv[2]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([time.monotonic() - started, time.process_time() - begun, peak]))
"""
OPENED = """
new Promise((done) => setTimeout(() => {
  const [opened] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByType("paint").find((entry) => entry.name === "first-contentful-paint");
  done([opened.loadEventEnd, paint?.startTime ?? null]);
}, 300))
"""


def made(data: Path, directory: Path) -> list[float]:
    """Seconds, processor seconds and MiB of a process that reads the data and writes both pages."""
    command = [sys.executable, "-c", MAKE, str(data), str(directory)]
    found: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def opened(browser: Browser, file: Path, **look: Any) -> list[float | None]:
    """Milliseconds: from the start to the end of the load event, to the first paint, and of the main thread."""
    browser.look(**look)
    browser.open(file)
    times: list[float | None] = browser.ask(OPENED)
    metrics = {metric["name"]: metric["value"] for metric in browser.call("Performance.getMetrics")["metrics"]}
    return [*times, 1000 * metrics["ThreadTime"]]


def shown(values: list[float | None], unit: str) -> str:
    """The median and all values."""
    known = [value for value in values if value is not None]
    digits = 0 if unit != "s" else 2
    texts = ", ".join(f"{value:.{digits}f}" for value in known)
    return f"{median(known):.{digits}f} {unit} ({texts})" if known else "not measured"


def main(rounds: int) -> None:
    """Print what was measured."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = directory / "data.json"
        data.write_text(json.dumps(report_data.large()))
        print(f"data         {data.stat().st_size / 2**20:.1f} MiB")
        found = [made(data, directory) for _round in range(rounds)]
        for title, values, unit in zip(("elapsed", "processor", "memory"), zip(*found), ("s", "s", "MiB")):
            print(f"{title:12} {shown(list(values), unit)}")
        for file in ("index.html", "admin.html"):
            print(f"{file:12} {(directory / file).stat().st_size / 2**20:.2f} MiB")
        program = find_program()
        if program is None:
            sys.exit("there is no Chromium")
        with Browser(program, directory / "profile") as browser:
            browser.call("Performance.enable", timeDomain="threadTicks")
            looks: dict[str, dict[str, Any]] = {"desktop": {}, "phone": {"width": 360, "height": 740, "touch": True}}
            for title, look in looks.items():
                rows = [opened(browser, directory / "admin.html", **look) for _round in range(rounds)]
                for what, column in zip(("load event", "first paint", "processor"), zip(*rows)):
                    print(f"{title:12} {what} {shown(list(column), 'ms')}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
