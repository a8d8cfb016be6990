# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the time to give a host 3,000 users, compared with one call of useradd for each of them.

It uses the host of scenario `single` after converge, and removes the users again.

    usage: python people.py [CLUSTER_FILE SSH_CONFIG HOST]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from timed_role import applied

ROOT = Path(__file__).parents[2]
USERS, GROUPS = 3000, 200
SAMPLE = 60
"""Users that are added with one call each."""


def university(**values: Any) -> dict[str, Any]:
    """A plan: each user with a key and two groups. values: other values of every user."""
    groups = [{"name": f"bench{i:03}", "gid": 9000 + i} for i in range(GROUPS)]
    users = [
        {
            "name": f"bench{i:04}x",
            "uid": 20000 + i,
            "gid": 20000 + i,
            "groups": [f"bench{i % GROUPS:03}", f"bench{(7 * i + 1) % GROUPS:03}"],
            "full_name": f"User {i}",
            "home": f"/home/bench{i:04}x",
            "shell": "/bin/bash",
            "keys": [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{i:043} user{i}@laptop"],
            "state": "present",
            "jobs": "stay",
            **values,
        }
        for i in range(USERS)
    ]
    return {"source": "list", "groups": groups, "users": users}


def one_by_one(ssh_config: str, host: str, number: int) -> float:
    """Seconds of one call of useradd for each of `number` users."""
    script = f"for i in $(seq {number}); do useradd --uid $((30000 + i)) one$i; done"
    start = time.monotonic()
    subprocess.run(["ssh", "-F", ssh_config, host, "sudo", "sh", "-c", f"'{script}'"], check=True, capture_output=True)
    seconds = time.monotonic() - start
    script = f"for i in $(seq {number}); do userdel one$i; done"
    subprocess.run(["ssh", "-F", ssh_config, host, "sudo", "sh", "-c", f"'{script}'"], check=True, capture_output=True)
    return seconds


def main() -> None:
    """Measure and print."""
    inventory, ssh_config, host = sys.argv[1:] or [
        str(ROOT / "inventory/single/single.cluster.yml"),
        str(ROOT / ".lab/single/ssh_config"),
        "single",
    ]
    each = one_by_one(ssh_config, host, SAMPLE) / SAMPLE * USERS
    print(f"{USERS} users, {GROUPS} groups; a call of useradd for each user, from {SAMPLE}: {each:.0f} s")
    for what, plan, changes in (
        ("a bare host", university(), True),
        ("again, nothing to do", university(), False),
        ("with another shell for each user", university(shell="/bin/sh"), True),
        ("all of them removed", university(state="absent"), True),
    ):
        seconds, changed = applied(inventory, ssh_config, host, "people", {"slurm_people": plan})
        assert changed == changes, what
        print(f"{what}: {seconds:.1f} s, {each / seconds:.1f} times as fast")


if __name__ == "__main__":
    main()
