# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what 50 clients of Slurm's REST interface do to each other, to `sinfo` and to slurmctld.

The cluster has the key `rest`, as scenario rest has it while tests/integration/rest runs; the user has no other jobs.
Of ten requests of a client, five read the jobs, four the nodes, and one submits a job that is held, which it cancels.

usage: python rest.py SSH_CONFIG CONTROLLER HOST URL CERTIFICATE VERSION [--user USER] [--clients N] [--seconds N]
                      [--jobs N] [--pause SECONDS]
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

DAEMONS = ("slurmctld", "slurmdbd", "mariadbd", "slurmrestd", "nginx", "slurm-rest-auth")

# Processor seconds of each daemon on a host, and the elapsed seconds of sinfo, once a second.
USED = """
import glob, json, os
used = {}
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        name, _sign, rest = open(path).read().partition("(")[2].rpartition(")")
    except OSError:
        continue
    fields = rest.split()
    used[name] = used.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
print(json.dumps(used))
"""
SINFO = """
import json, subprocess, time
took, end = [], time.monotonic() + {seconds}
while (begin := time.monotonic()) < end:
    subprocess.run(["timeout", "60", "sinfo"], stdout=subprocess.DEVNULL, check=True)
    took.append(time.monotonic() - begin)
    time.sleep(max(0, 1 - took[-1]))
print(json.dumps(took))
"""


@dataclass
class Answers:
    """The elapsed seconds of all requests by their kind, and what went wrong."""

    took: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, seconds: float, error: str) -> None:
        """Count a request."""
        with self.lock:
            self.took.setdefault(kind, []).append(seconds)
            if error:
                self.errors[error] = self.errors.get(error, 0) + 1


class Client:
    """One client, which keeps its connection."""

    def __init__(self, options: argparse.Namespace, token: str, answers: Answers) -> None:
        self.options, self.token, self.answers = options, token, answers
        self.connection = self._connection()

    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.options.certificate)
        return http.client.HTTPSConnection(urlsplit(self.options.url).netloc, timeout=60, context=context)

    def ask(self, kind: str, method: str, path: str, body: Any = None) -> Any:
        """Ask; the answer's JSON, or nothing if something went wrong."""
        begin, error, found = time.monotonic(), "", None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            data = None if body is None else json.dumps(body)
            self.connection.request(method, f"/slurm/{self.options.version}/{path}", data, headers)
            answer = self.connection.getresponse()
            text = answer.read()
            error = "" if answer.status == 200 else f"{answer.status} {text[:200]!r}"
            found = None if error else json.loads(text)
        except (OSError, http.client.HTTPException) as problem:
            error = type(problem).__name__
            self.connection.close()
            self.connection = self._connection()
        self.answers.add(kind, time.monotonic() - begin, error)
        return found

    def submit(self) -> Any:
        """Submit a job that is held."""
        job = {"name": "load", "hold": True, "current_working_directory": "/tmp", "environment": ["PATH=/bin"]}
        return self.ask("submit", "POST", "job/submit", {"job": {**job, "script": "#!/bin/sh\ntrue\n"}})

    def work(self, end: float) -> None:
        """Ask until the end."""
        turn = 0
        while time.monotonic() < end:
            if turn % 10 == 0 and (said := self.submit()):
                self.ask("cancel", "DELETE", f"job/{said['job_id']}")
            elif turn % 2:
                self.ask("jobs", "GET", "jobs/")
            else:
                self.ask("nodes", "GET", "nodes/")
            turn += 1
            time.sleep(self.options.pause)


def on_host(options: argparse.Namespace, host: str, *command: str, data: str = "") -> str:
    """The output of a command that runs as root."""
    ssh = ["ssh", "-F", options.ssh_config, host, "sudo", *command]
    return subprocess.run(ssh, input=data, stdout=subprocess.PIPE, text=True, check=True).stdout


def used(options: argparse.Namespace) -> dict[str, float]:
    """Processor seconds of the daemons until now."""
    found: dict[str, float] = {}
    for host in (options.controller, options.host):
        for name, seconds in json.loads(on_host(options, host, "python3", "-", data=USED)).items():
            found[name] = found.get(name, 0) + seconds
    return found


def sinfo(options: argparse.Namespace, seconds: float) -> list[float]:
    """The elapsed seconds of sinfo on the controller, once a second."""
    program = SINFO.format(seconds=seconds)
    return list(json.loads(on_host(options, options.controller, "python3", "-", data=program)))


def shown(name: str, took: list[float]) -> str:
    """Median and 95 % of times in milliseconds."""
    ordered = sorted(took)
    high = ordered[int(0.95 * (len(ordered) - 1))]
    return f"{name:10} {len(took):6}   median {statistics.median(took) * 1000:7.0f} ms   95 % {high * 1000:7.0f} ms"


def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    life = int(options.seconds) + 1200
    said = on_host(options, options.controller, "scontrol", "token", f"username={options.user}", f"lifespan={life}")
    token, answers = said.strip().removeprefix("SLURM_JWT="), Answers()
    first = Client(options, token, Answers())
    for _number in range(options.jobs):
        first.submit()
    before, idle = sinfo(options, 15), used(options)
    end = time.monotonic() + options.seconds
    threads = [
        threading.Thread(target=Client(options, token, answers).work, args=(end,)) for _n in range(options.clients)
    ]
    for thread in threads:
        thread.start()
    during = sinfo(options, options.seconds)
    for thread in threads:
        thread.join()
    after_load = used(options)
    after = sinfo(options, 15)
    on_host(options, options.controller, "scancel", f"--user={options.user}")
    print(f"{options.clients} clients, {options.seconds} s, {options.jobs} jobs, a pause of {options.pause} s")
    for kind, took in sorted(answers.took.items()):
        print(shown(kind, took))
    total = sum(map(len, answers.took.values()))
    print(f"{total / options.seconds:.1f} requests each second; errors: {answers.errors or 'none'}")
    for name, took in (("before", before), ("with load", during), ("after", after)):
        print("sinfo,", shown(name, took))
    print(f"sinfo, ratio of the medians: {statistics.median(during) / statistics.median(before + after):.2f}")
    for name in DAEMONS:
        share = (after_load.get(name, 0) - idle.get(name, 0)) / options.seconds
        print(f"{name:16} {100 * share:5.1f} % of one core")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("ssh_config", "controller", "host", "url", "certificate", "version"):
        parser.add_argument(argument)
    parser.add_argument("--user", default="alice")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--pause", type=float, default=1)
    main(parser.parse_args())
