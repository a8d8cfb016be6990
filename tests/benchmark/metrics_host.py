# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of metrics.py that runs on a controller, in a mount namespace of its own: a second slurmctld with many nodes
and jobs, and the processor time of questions to it. It prints a JSON object.

    usage: unshare --mount python3 metrics_host.py SLURM_METRICS NODES JOBS
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PORT = 6917
TOGETHER = 100
"""Components of one heterogeneous job, each of which is a job of its own. Slurm takes at most 128."""
ROUNDS = 3
TEXTFILES = "/var/lib/prometheus/node-exporter"
PATHS = ("jobs", "nodes", "partitions", "scheduler")

SETTINGS = {
    "state_directory": "",
    "all": False,
    "users_and_accounts": False,
    "daemons": ["slurmctld", "munge"],
    "keys": {"munge": "/etc/munge/munge.key"},
    "backup": None,
}

# slurmctld sends messages to nodes, which are not there, unless they are powered down.
CONF = """
ClusterName=many
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort=6999
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
MetricsType=metrics/openmetrics
MaxJobCount=100000
SuspendTime=60
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
NodeName=node[00001-{nodes:05}] NodeAddr=127.0.0.1 CPUs=128 RealMemory=1000000 Gres=gpu:8 State=CLOUD
PartitionName=all Nodes=ALL Default=YES
PartitionName=half Nodes=node[00001-{half:05}]
"""


def start(directory: Path, nodes: int) -> subprocess.Popen[bytes]:
    """A slurmctld whose slurm.conf is that of this namespace."""
    host = os.uname().nodename.partition(".")[0]
    (directory / "state").mkdir()
    text = CONF.format(host=host, port=PORT, directory=directory, nodes=nodes, half=nodes // 2)
    for name, content in {
        "/etc/slurm/slurm.conf": text,
        "/etc/slurm/gres.conf": "Name=gpu Count=8\n",
        "/etc/gpucluster-slurm/metrics.json": json.dumps({**SETTINGS, "controllers": [host]}),
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
        own = directory / Path(name).name
        own.write_text(content)
        subprocess.run(["mount", "--bind", own, name], check=True)
    Path(TEXTFILES).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", TEXTFILES], check=True)
    subprocess.run(["chown", "-R", "slurm:", directory], check=True)
    directory.chmod(0o755)
    process = subprocess.Popen(["slurmctld", "-D"], stderr=subprocess.DEVNULL)
    while subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode:
        time.sleep(0.5)
    return process


def submit(jobs: int) -> None:
    """Submit held jobs."""
    one = ["-n1", "--mem=100", "--hold", "-o/dev/null"]
    parts = [word for _number in range(TOGETHER) for word in (":", *one)][1:]
    script = "/tmp/many.sh"
    Path(script).write_text("#!/bin/sh\n")
    for _number in range(jobs // TOGETHER):
        subprocess.run(["sbatch", "--quiet", *parts, script], check=True, stdout=subprocess.DEVNULL)


def of_process(number: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_children() -> float:
    """Processor seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(slurmctld: int, *command: str) -> tuple[float, float]:
    """Processor seconds of a command and of slurmctld meanwhile: the least of some rounds."""
    rounds = []
    for _number in range(ROUNDS):
        before = of_children(), of_process(slurmctld)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rounds.append((of_children() - before[0], of_process(slurmctld) - before[1]))
    return min(rounds, key=sum)


def main() -> None:
    """Measure and print."""
    program, nodes, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with tempfile.TemporaryDirectory() as name:
        process = start(Path(name), nodes)
        try:
            begin = time.monotonic()
            submit(jobs)
            figures: dict[str, object] = {"seconds of submission": time.monotonic() - begin}
            figures["sinfo"] = measure(process.pid, "sinfo")
            figures["squeue"] = measure(process.pid, "squeue")
            figures["slurm-metrics cluster --all"] = measure(process.pid, "python3", program, "cluster", "--all")
            figures["slurm-metrics host"] = measure(process.pid, "python3", program, "host")
            figures["slurm-metrics cluster"] = measure(process.pid, "python3", program, "cluster")
            scrape = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/metrics/%s', timeout=60).read()"
            for path in PATHS:
                figures[path] = measure(process.pid, "python3", "-c", scrape % path)
                url = f"http://127.0.0.1:{PORT}/metrics/{path}"
                with urllib.request.urlopen(url, timeout=60) as answer:
                    text = answer.read().decode()
                figures[f"series of {path}"] = sum(line[:1] not in ("#", "") for line in text.split("\n"))
            print(json.dumps(figures))
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
