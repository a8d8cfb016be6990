# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the time to apply a university's accounting policy, compared with one call of sacctmgr for each user.

It uses the host of scenario `single` after converge, and removes all of its accounting.

    usage: python accounting.py [CLUSTER_FILE SSH_CONFIG]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from timed_role import applied

ROOT = Path(__file__).parents[2]
USERS, ACCOUNTS, QOS = 3000, 200, 10
SAMPLE = 60
"""Users that are added with one call each."""
EMPTY: dict[str, Any] = {"qos": [{"name": "normal"}]}
"""Only the QOS that Slurm itself creates, so purge removes the rest. The role does not accept a policy without data."""


def university() -> dict[str, Any]:
    """A policy: faculties with groups, users with one account or two, and limits of all kinds."""
    qos = [{"name": f"q{i}", "Priority": i * 10, "MaxTRESPerUser": {"cpu": 100 * (i + 1)}} for i in range(QOS)]
    faculties: list[dict[str, Any]] = [
        {"name": f"faculty{i}", "Fairshare": 10 + i, "QOS": ["normal", f"q{i}"], "accounts": []} for i in range(10)
    ]
    groups = ACCOUNTS - len(faculties)
    for i in range(groups):
        group = {"name": f"group{i:03}", "Description": f"Group {i}", "GrpTRES": {"cpu": 500 + i % 7}, "MaxJobs": 100}
        faculties[i % 10]["accounts"].append(group)
    users: list[dict[str, Any]] = [
        {"name": f"user{i:04}", "DefaultAccount": f"group{i % groups:03}", "Fairshare": 1 + i % 3} for i in range(USERS)
    ]
    for i, user in enumerate(users[::10]):
        user["accounts"] = [{"name": f"group{(10 * i + 1) % groups:03}", "MaxJobs": 5}]
    return {"qos": qos, "accounts": faculties, "users": users}


def policy_applied(inventory: str, ssh_config: str, policy: dict[str, Any]) -> tuple[float, bool]:
    """Seconds of a play that applies a policy, and whether it has changed anything."""
    variables = {f"slurm_accounting_{key}": value for key, value in {**policy, "purge": True}.items()}
    spent: tuple[float, bool] = applied(inventory, ssh_config, "slurm_controller", "slurm_accounting", variables)
    return spent


def one_by_one(ssh_config: str, host: str, number: int) -> float:
    """Seconds of one call for each of `number` users, in an account of their own."""
    script = "sacctmgr -iQ add account name=single0; "
    script += f"for i in $(seq {number}); do sacctmgr -iQ add user name=single$i account=single0 fairshare=2; done"
    start = time.monotonic()
    subprocess.run(["ssh", "-F", ssh_config, host, "sudo", "sh", "-c", f"'{script}'"], check=True, capture_output=True)
    return time.monotonic() - start


def main() -> None:
    """Measure and print."""
    inventory, ssh_config = sys.argv[1:] or [
        str(ROOT / "inventory/single/single.cluster.yml"),
        str(ROOT / ".lab/single/ssh_config"),
    ]
    host = yaml.safe_load(Path(inventory).read_text())["controllers"]
    policy = university()
    policy_applied(inventory, ssh_config, EMPTY)
    each = one_by_one(ssh_config, host, SAMPLE) / SAMPLE * (USERS + ACCOUNTS + QOS)
    policy_applied(inventory, ssh_config, EMPTY)
    print(f"{USERS} users, {ACCOUNTS} accounts, {QOS} QOS; a call of sacctmgr for each, from {SAMPLE}: {each:.0f} s")
    for what, wanted, changes in (
        ("on an empty database", policy, True),
        ("again, nothing to do", policy, False),
        (
            "with another limit for each user",
            {**policy, "users": [{**u, "MaxWall": 60} for u in policy["users"]]},
            True,
        ),
        ("all of it removed", EMPTY, True),
    ):
        seconds, changed = policy_applied(inventory, ssh_config, wanted)
        assert changed == changes, what
        print(f"{what}: {seconds:.1f} s, {each / seconds:.0f} times as fast")


if __name__ == "__main__":
    main()
