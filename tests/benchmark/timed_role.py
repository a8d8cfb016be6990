# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seconds of a playbook, and of a play with one role, for the benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def environment(ssh_config: str) -> dict[str, str]:
    """The environment of a command of Ansible that connects as a file for ssh says, and prints its results as JSON."""
    return os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_SSH_COMMON_ARGS": f"-F {ssh_config}",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json",
    }


def recap(output: str) -> dict[str, dict[str, int]]:
    """The recap by host in the output of ansible-playbook."""
    stats: dict[str, dict[str, int]] = json.loads(output[output.index("{") :])["stats"]
    return stats


def playbook(ssh_config: str, *arguments: str) -> tuple[float, dict[str, dict[str, int]]]:
    """Seconds of a run of ansible-playbook, and its recap by host."""
    argv = ["ansible-playbook", *arguments]
    start = time.monotonic()
    output = subprocess.run(argv, env=environment(ssh_config), check=True, capture_output=True, text=True).stdout
    return time.monotonic() - start, recap(output)


def applied(inventory: str, ssh_config: str, hosts: str, role: str, variables: dict[str, Any]) -> tuple[float, bool]:
    """Seconds of a play that runs a role of the collection on hosts, and whether it has changed anything."""
    play = {"hosts": hosts, "become": True, "gather_facts": False, "roles": [{"role": f"gpucluster.slurm.{role}"}]}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "play.yml").write_text(json.dumps([play]))
        (Path(directory) / "variables.json").write_text(json.dumps(variables))
        arguments = (f"{directory}/play.yml", "-i", inventory, "-e", f"@{directory}/variables.json")
        seconds, recap = playbook(ssh_config, *arguments)
    (stats,) = recap.values()
    return seconds, stats["changed"] > 0
