# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of waits.py that runs on the hosts, as root.

usage: waits_host.py with|without      on the login host, which is the controller: apply or remove what is added
       waits_host.py commands ROUNDS   on the login host: print seconds of commands of users, by name, as JSON
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SLURM_CONF = Path("/etc/slurm/slurm.conf")
PLUGSTACK = SLURM_CONF.with_name("plugstack.conf")
ADDED = re.compile(
    r"^(Prolog|Epilog|TaskProlog|TaskEpilog|PrologFlags|HealthCheck\w+|JobContainerType|NamespaceType)=.*\n",
    re.MULTILINE,
)
"""Parameters of slurm.conf whose programs or plugins run for each job or on each node."""

LOGIN_FILES = ("/etc/ssh/sshd_config.d/10-gpucluster-*.conf", "/etc/profile.d/gpucluster-*.sh")
COMMANDS = {
    "srun": ["srun", "--nodes=1", "--gres=gpu:1", "true"],
    "srun of two nodes": ["srun", "--nodes=2", "true"],
    "sbatch": ["sbatch", "--output=/dev/null", "--wrap=true"],
    "sinfo": ["sinfo"],
    "gpus": ["gpus"],
}
BASE = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
USER = "alice"


def add(added: bool) -> None:
    """Apply what the collection adds to Slurm and to a login, or remove it, until all nodes take jobs."""
    for file in (SLURM_CONF, PLUGSTACK):
        kept = file.with_name(f"{file.name}.kept")
        if file.exists() and not kept.exists():
            shutil.copy2(file, kept)
        if kept.exists():
            text = kept.read_text()
            file.write_text(text if added else "" if file == PLUGSTACK else ADDED.sub("", text))
    for pattern in LOGIN_FILES:
        for path in Path("/").glob(pattern[1:] + ("" if not added else ".kept")):
            path.rename(path.with_suffix("") if added else f"{path}.kept")
    subprocess.run(["systemctl", "reload", "ssh"], check=True)
    subprocess.run(["scontrol", "reconfigure"], env=BASE, check=True)
    wait_for(["sinfo", "--noheader", "--format=%T"], "idle")


def wait_for(command: Sequence[str], wanted: str) -> None:
    """Wait until a command prints nothing else."""
    until = time.monotonic() + 120
    # A variable such as SQUEUE_STATES of the host would change what is printed.
    while (found := subprocess.check_output(command, env=BASE, text=True).strip()) != wanted:
        assert time.monotonic() < until, found
        time.sleep(0.1)


def seconds(command: Sequence[str], environment: Mapping[str, str], user: str | None = None) -> float:
    """How long a command takes."""
    begin = time.monotonic()
    subprocess.run(
        command, env=environment, user=user, group=user, extra_groups=[], cwd="/", check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - begin


def of_commands(rounds: int) -> dict[str, list[float]]:
    """Seconds of each command of a user. The first round is no part of them."""
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):
        for name, command in COMMANDS.items():
            wait_for(["squeue", "--noheader"], "")
            found[name].append(seconds(command, BASE | {"HOME": "/", "USER": USER}, USER))
        if number == 0:
            for values in found.values():
                values.clear()
    return found


def main(action: str, rounds: str = "0") -> None:
    """Do one action."""
    if action in ("with", "without"):
        add(action == "with")
    else:
        print(json.dumps(of_commands(int(rounds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
