# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what metrics cost: processor time of a controller, the number of series, memory and disk of Prometheus.

The controller is that of scenario slurm-26.05 after converge, with a second slurmctld (metrics_host.py). Prometheus
runs on this machine.    usage: python metrics.py [SSH_CONFIG HOST]
"""

from __future__ import annotations

import http.server
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.client.slurm_records import FIELD
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.series import Series
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics.metric_jobs import (
    RECORD,
    add_jobs,
    add_queue,
    read_jobs,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics.metric_nodes import (
    add_nodes,
    read_nodes,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics.slurm_metrics import (
    SDIAG,
    add_gpus,
    add_partitions,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODES, JOBS = 10_000, 50_000
SITE_NODES, PARTITIONS = 2_000, 4
HOURLY = 1_000
DAYS = 30
INTERVAL = 60
"""Seconds between two scrapes."""
PORT, PROMETHEUS = 19099, 19090


# -- the controller ----------------------------------------------------------------------------------------------------


def of_controller(ssh_config: str, host: str) -> dict[str, Any]:
    """The figures of metrics_host.py."""
    ssh = ["ssh", "-F", ssh_config, host, "sudo"]
    # In one text, the program is compiled at each start, which a host does once.
    texts = {
        "slurm-metrics": program_files.sent("programs.metrics.slurm_metrics").encode(),
        "metrics_host.py": (HERE / "metrics_host.py").read_bytes(),
    }
    for name, text in texts.items():
        subprocess.run([*ssh, "tee", f"/run/{name}"], input=text, stdout=subprocess.DEVNULL, check=True)
    command = [*ssh, "unshare", "--mount", "python3", "/run/metrics_host.py", "/run/slurm-metrics"]
    answer = subprocess.run([*command, str(NODES), str(JOBS)], stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, Any] = json.loads(answer)
    return figures


# -- the number of series ----------------------------------------------------------------------------------------------


def text_of_a_site() -> str:
    """The file of `slurm-metrics cluster --all` for the site. Jobs have no series of their own."""
    text = "".join(
        f"NodeName=gpu{number:04} CPUAlloc=64 CPUEfctv=128 CPUTot=128 Gres=gpu:h100:8 GresUsed=gpu:h100:4(IDX:0-3) "
        f"RealMemory=2000000 AllocMem=1000000 FreeMem=900000 State=MIXED Partitions=all,part{number % PARTITIONS}\n"
        for number in range(SITE_NODES)
    )
    job = FIELD.join(["RUNNING", "None", "all", "user", "account", "N/A", "1795817000", "8", "cpu=8,mem=9G"])
    nodes, jobs = read_nodes(text), read_jobs(f"{job}{RECORD}\n" * HOURLY)
    series = Series()
    for add in (add_jobs, add_queue):
        add(series, jobs)
    add_nodes(series, nodes)
    for add_both in (add_partitions, add_gpus):
        add_both(series, nodes, jobs)
    series.add_all("slurm_", dict.fromkeys(SDIAG.values(), 0))
    return series.text()


# -- Prometheus --------------------------------------------------------------------------------------------------------


def values(count: int) -> Callable[[], str]:
    """A function that returns a page with so many series, some of which change each time."""
    now = [random.randrange(1000) for _number in range(count)]

    def page() -> str:
        for number in range(0, count, 5):
            now[number] += random.randrange(-3, 4)
        return "".join(f'slurm_node_example{{node="gpu{number:07}"}} {value}\n' for number, value in enumerate(now))

    return page


@contextmanager
def served(page: Callable[[], str]) -> Iterator[None]:
    """A page at PORT."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, *_of_the_answer: Any) -> None:
            """Nothing is logged."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def memory(count: int, seconds: int) -> tuple[float, int]:
    """MiB of a Prometheus after some time of scrapes of so many series each 5 s, and its number of series."""
    with tempfile.TemporaryDirectory() as name, served(values(count)):
        config = Path(name, "prometheus.yml")
        config.write_text(
            "global: {scrape_interval: 5s}\n"
            f"scrape_configs: [{{job_name: x, static_configs: [{{targets: ['127.0.0.1:{PORT}']}}]}}]\n"
        )
        options = [
            f"--storage.tsdb.path={name}/data",
            f"--web.listen-address=127.0.0.1:{PROMETHEUS}",
            "--log.level=error",
        ]
        with subprocess.Popen(["prometheus", f"--config.file={config}", *options]) as process:
            try:
                time.sleep(seconds)
                lines = Path(f"/proc/{process.pid}/status").read_text().split("\n")
                used = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
                url = f"http://127.0.0.1:{PROMETHEUS}/api/v1/status/tsdb"
                with urllib.request.urlopen(url, timeout=30) as answer:
                    head = json.load(answer)["data"]["headStats"]["numSeries"]
            finally:
                process.terminate()
        return used / 1024, head


def bytes_of_a_sample(count: int = 2_000, hours: int = 4) -> float:
    """Bytes on disk of one sample in Prometheus' blocks, for values as those of `values` each INTERVAL."""
    with tempfile.TemporaryDirectory() as name:
        page, start = values(count), 1_700_000_000 // 7200 * 7200
        pages = [page().splitlines() for _number in range(hours * 3600 // INTERVAL)]
        with open(f"{name}/samples", "w", encoding="utf-8") as file:
            file.write("# TYPE slurm_node_example gauge\n")
            for number in range(count):
                file.writelines(f"{each[number]} {start + at * INTERVAL}\n" for at, each in enumerate(pages))
            file.write("# EOF\n")
        blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", f"{name}/samples", f"{name}/blocks"]
        subprocess.run(blocks, check=True, stdout=subprocess.DEVNULL)
        size = sum(path.stat().st_size for path in Path(name, "blocks").rglob("*") if path.is_file())
        return size / (count * len(pages))


# -- the figures -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Measure and print."""
    ssh_config, host = sys.argv[1:] or [str(ROOT / ".lab/slurm-26.05/ssh_config"), "ctl26"]
    figures = of_controller(ssh_config, host)
    print(f"{NODES} nodes, {JOBS} jobs: processor seconds of the command and of slurmctld, ratio to sinfo, series")
    base = sum(figures["sinfo"])
    for what, pair in figures.items():
        if isinstance(pair, list):
            series = figures.get(f"series of {what}", "")
            print(f"  {what:30} {pair[0]:6.2f} {pair[1]:6.2f} {sum(pair) / base:6.1f} {series}")
    text = text_of_a_site()
    count = sum(not line.startswith("#") for line in text.splitlines())
    print(f"{SITE_NODES} nodes, {PARTITIONS + 1} partitions: {count} series of Slurm")
    small, large = memory(1_000, 60), memory(200_000, 180)
    each = (large[0] - small[0]) * 1024 / (large[1] - small[1])
    print(f"Prometheus: {small[0]:.0f} MiB with {small[1]} series, {large[0]:.0f} with {large[1]}: {each:.1f} KiB each")
    sample = bytes_of_a_sample()
    disk = sample * 86400 / INTERVAL * DAYS
    print(f"  {sample:.2f} bytes of a sample; {disk / 1024:.0f} KiB for a series of {DAYS} days")
    print(f"  the site's series of Slurm: {count * each / 1024:.0f} MiB memory, {count * disk / 1024**3:.1f} GiB disk")


if __name__ == "__main__":
    main()
