# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what a user waits for, with what this collection adds to Slurm and without it, in one run.

The cluster is that of scenario `containers` after converge. Without the additions, slurm.conf has no prolog, epilog and
health check, and there is no SPANK plugin. Both configurations take turns.
usage: python waits.py SSH_CONFIG HOST [ROUNDS]
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys

USER = "alice"
TURNS = 4

COMMANDS = {
    "sinfo": "sinfo --noheader",
    "gpus": "gpus",
    "sbatch": "sbatch --quiet --output=/dev/null --wrap true",
    "srun": "srun --quiet true",
    "srun, one GPU": "srun --quiet --partition=gpu --gres=gpu:1 true",
    # The next one waits for the epilog of this one.
    "srun, a whole node": "srun --quiet --partition=gpu --exclusive true",
}

LOOP = """
import json, subprocess, sys, time
commands, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
taken = {name: [] for name in commands}
for name, command in commands.items():
    for _round in range(rounds):
        begin = time.perf_counter()
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
        taken[name].append((time.perf_counter() - begin) * 1000)
    subprocess.run("scancel --user=$USER; while squeue --noheader --me | grep -q .; do sleep 0.2; done", shell=True)
print(json.dumps(taken))
"""

KEYS = "Prolog|Epilog|PrologFlags|PrologSlurmctld|EpilogSlurmctld|TaskProlog|TaskEpilog|HealthCheck[A-Za-z]*"
WITHOUT = f"""set -eu
mkdir /root/kept
cp -a /etc/slurm/slurm.conf /root/kept
sed -E -i '/^({KEYS})=/d' /etc/slurm/slurm.conf
if test -e /etc/slurm/plugstack.conf; then mv /etc/slurm/plugstack.conf /root/kept; fi
"""
WITH = "cp -a /root/kept/* /etc/slurm; rm -r /root/kept"
APPLY = "timeout 60 scontrol reconfigure; sleep 3; timeout 60 srun --nodes=2 true"


def remote(ssh_config: str, host: str, command: str, data: str = "") -> str:
    """The output of a command of root on the host."""
    words = ["ssh", "-F", ssh_config, host, f"sudo sh -c {shlex.quote(command)}"]
    return subprocess.run(words, input=data, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Measure, and print a table."""
    ssh_config, host, rounds = (*sys.argv[1:], "200")[:3]
    each = int(rounds) // (TURNS // 2)
    loop = f"cd /; runuser -u {USER} -- env USER={USER} python3 - {shlex.quote(json.dumps(COMMANDS))} {each}"
    taken: dict[bool, dict[str, list[float]]] = {added: {name: [] for name in COMMANDS} for added in (True, False)}
    for turn in range(TURNS):
        added = turn % 2 == 0
        if not added:
            remote(ssh_config, host, WITHOUT)
        try:
            remote(ssh_config, host, APPLY)
            for name, values in json.loads(remote(ssh_config, host, loop, LOOP)).items():
                taken[added][name] += values
        finally:
            if not added:
                remote(ssh_config, host, f"{WITH}; {APPLY}")
    print(f"{'milliseconds, medians':24} {'with':>8} {'without':>8} {'ratio':>7} {'99th percentile':>16}")
    for name in COMMANDS:
        medians = [statistics.median(taken[added][name]) for added in (True, False)]
        last = [statistics.quantiles(taken[added][name], n=100)[98] for added in (True, False)]
        print(f"{name:24} {medians[0]:8.1f} {medians[1]:8.1f} {medians[0] / medians[1]:7.2f} {last[0] / last[1]:16.2f}")


if __name__ == "__main__":
    main()
