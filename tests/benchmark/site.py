# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure site.yml as a ratio to a bare shell script (bare.sh) for the same three hosts: medians of 3 rounds.

A playbook with Ansible's own modules (plain.yml) makes the same cluster, to show what part of the time is Ansible's.
The hosts are the containers of the lab's scenario `default`, created again for each measurement.
usage: python site.py
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from timed_role import playbook

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SSH_CONFIG = ROOT / ".lab/default/ssh_config"
ROUNDS = 3


def bare_hosts() -> None:
    """Remove the lab's hosts and make them again, without the file that makes Ansible's modules faster there."""
    for action in ("destroy", "create"):
        subprocess.run(["molecule", action, "-s", "default"], cwd=ROOT, check=True, capture_output=True)
    for host in ("head", "compute01", "compute02"):
        remove = "sudo rm /usr/lib/python3/dist-packages/usercustomize.py"
        subprocess.run(["ssh", "-F", SSH_CONFIG, host, remove], check=True)


def bare_script() -> float:
    """Seconds of the bare script."""
    start = time.monotonic()
    subprocess.run([HERE / "bare.sh", SSH_CONFIG], check=True)
    return time.monotonic() - start


def plain() -> float:
    """Seconds of the playbook with Ansible's own modules."""
    with TemporaryDirectory() as tree:
        subprocess.run([HERE / "bare_files.sh", tree], check=True)
        archive = f"{tree}/etc.tar"
        subprocess.run(["tar", "-C", tree, "-cf", archive, "etc"], check=True)
        arguments = (str(HERE / "plain.yml"), "-i", "head,compute01,compute02", "-e", f"archive={archive}")
        seconds: float = playbook(str(SSH_CONFIG), *arguments)[0]
    return seconds


def site() -> tuple[float, dict[str, dict[str, int]]]:
    """Seconds of site.yml, which ends when the nodes are up, and Ansible's recap."""
    arguments = ("gpucluster.slurm.site", "-i", str(HERE / "bare.cluster.yml"), "--skip-tags=validate")
    result: tuple[float, dict[str, dict[str, int]]] = playbook(str(SSH_CONFIG), *arguments)
    return result


def job() -> float:
    """Seconds of a job on both nodes, which is also the last step of the bare script."""
    until = "until srun -N2 hostname 2>/dev/null; do sleep 0.2; done"
    argv = ["ssh", "-F", str(SSH_CONFIG), "head", f"sudo timeout 60 sh -c '{until}'"]
    start = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True)
    return time.monotonic() - start


def main() -> None:
    """Measure and print."""
    script, own, first, again = [], [], [], []
    for _round in range(ROUNDS):
        bare_hosts()
        script.append(bare_script())
        bare_hosts()
        own.append(plain() + job())
        bare_hosts()
        first.append(site()[0] + job())
        seconds, stats = site()
        assert all(host["changed"] == 0 for host in stats.values()), stats
        again.append(seconds)
    reference = median(script)
    for name, measured, limit in (
        ("bare script", script, ""),
        ("Ansible's own modules", own, ""),
        ("site.yml, bare hosts", first, "(at most 1.5)"),
        ("site.yml, again, nothing to do", again, "(at most 0.65)"),
    ):
        each = " ".join(f"{seconds:.1f}" for seconds in measured)
        print(f"{name:<32} {median(measured):5.1f} s   {median(measured) / reference:.2f}   {limit:<15} of {each}")


if __name__ == "__main__":
    main()
