# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what users wait for, with what the collection adds to Slurm and to a login, and without it: 200 of each.

The hosts are those of the lab's scenario `containers`, as `molecule create` leaves them. GPUs are stand-ins. The two
states take turns, so that each has the same load of the machine.    usage: python waits.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path

from timed_role import playbook

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SSH_CONFIG = ROOT / ".lab/containers/ssh_config"
LOGIN = "front"
TURNS, ROUNDS = 8, 25
WITHOUT, WITH = "without", "with"
SSH = ["ssh", "-F", str(SSH_CONFIG), "-o", "ControlPath=none", "-o", "LogLevel=ERROR"]
ACCESS = {
    "ssh, a command": [*SSH, LOGIN, "true"],
    "ssh, a shell": [*SSH, "-tt", LOGIN, "bash -lic exit"],
}


def on_host(host: str, *arguments: str) -> str:
    """What waits_host.py prints on a host."""
    script = (HERE / "waits_host.py").read_bytes()
    argv = ["ssh", "-F", str(SSH_CONFIG), host, "sudo", "python3", "-", *arguments]
    return subprocess.run(argv, input=script, stdout=subprocess.PIPE, check=True).stdout.decode()


def logins(rounds: int) -> dict[str, list[float]]:
    """Seconds of new connections to the login host."""
    found: dict[str, list[float]] = {name: [] for name in ACCESS}
    for _round in range(rounds):
        for name, argv in ACCESS.items():
            begin = time.monotonic()
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            found[name].append(time.monotonic() - begin)
    return found


def shown(values: list[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    return f"{statistics.median(values) * 1000:8.1f} {statistics.quantiles(values, n=20)[18] * 1000:8.1f}"


def main() -> None:
    """Measure, and print a table."""
    containers = json.dumps({"slurm_containers": ["job_tools"]})
    playbook(str(SSH_CONFIG), "gpucluster.slurm.site", "-i", str(HERE / "waits.cluster.yml"), "-e", containers)
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(TURNS):
        for state in (WITHOUT, WITH) if turn % 2 else (WITH, WITHOUT):
            on_host(LOGIN, state)
            for name, values in (json.loads(on_host(LOGIN, "commands", str(ROUNDS))) | logins(ROUNDS)).items():
                found.setdefault(name, {}).setdefault(state, []).extend(values)
            print(f"turn {turn + 1} of {TURNS}, {state}", flush=True)
    on_host(LOGIN, WITH)
    print(f"{'milliseconds':20}{'without':>8} {'95 %':>8} {'with':>9} {'95 %':>8} {'ratio':>7}")
    for name, states in found.items():
        ratio = statistics.median(states[WITH]) / statistics.median(states[WITHOUT])
        print(f"{name:20}{shown(states[WITHOUT])}  {shown(states[WITH])} {ratio:7.2f}")


if __name__ == "__main__":
    main()
