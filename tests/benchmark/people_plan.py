# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what 3,000 and 10,000 people of the cluster file cost the control host, compared with none.

All times are processor times, so other work on the machine hardly changes them.    usage: python people_plan.py
"""

from __future__ import annotations

import base64
import csv
import os
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SIZES = (3_000, 10_000)
GUIDE = yaml.safe_load((ROOT / "inventory/guide/guide.cluster.yml").read_text())
GROUPS = [{"name": "vision", "gid": 6001}, {"name": "speech", "gid": 6002}]


def seconds(*argv: str | Path) -> float:
    """Seconds of processor time of a command of Ansible."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def users(number: int) -> list[dict[str, Any]]:
    """Users as a site has them, each with a key, two groups, and an account with a limit."""
    kind = b"ssh-ed25519"
    data = [
        len(kind).to_bytes(4, "big") + kind + (32).to_bytes(4, "big") + i.to_bytes(32, "big") for i in range(number)
    ]
    return [
        {
            "name": f"user{i}",
            "uid": 70000 + i,
            "full_name": f"User Number {i}",
            "groups": ["vision", "speech"],
            "keys": [f"{kind.decode()} {base64.b64encode(data[i]).decode()} user{i}@laptop"],
            "account": "vision",
            "limits": {"MaxJobs": 100},
        }
        for i in range(number)
    ]


def write_csv(file: Path, people: list[dict[str, Any]]) -> None:
    """Users as a CSV file."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*list(people[0])[:-1], "limits.MaxJobs"])
        for user in people:
            values = [";".join(value) if isinstance(value, list) else value for value in user.values()]
            writer.writerow([*values[:-1], user["limits"]["MaxJobs"]])


def measured(cluster: dict[str, Any], directory: Path) -> tuple[float, float]:
    """Seconds of the inventory plugin, with the start of Ansible, and of preflight."""
    file = directory / "my.cluster.yml"
    file.write_text(yaml.safe_dump({**GUIDE, **cluster}, sort_keys=False))
    inventory = seconds("ansible-inventory", "--host", "compute01", "-i", file)
    return inventory, seconds("ansible-playbook", ROOT / "playbooks/stages/preflight.yml", "-i", file)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        none = measured({}, directory)
        print(f"  {'none':34} inventory {none[0]:6.2f} s        preflight {none[1]:6.2f} s", flush=True)
        for size in SIZES:
            people = users(size)
            write_csv(directory / "people.csv", people)
            (directory / "people.yml").write_text(yaml.safe_dump({"groups": GROUPS, "users": people}))
            policy = [{"name": user["name"], "DefaultAccount": "vision", **user["limits"]} for user in people]
            forms: dict[str, dict[str, Any]] = {
                "in accounting.users alone": {"accounting": {**GUIDE["accounting"], "users": policy}},
                "people, CSV": {"groups": GROUPS, "people": "people.csv"},
                "people, YAML": {"people": "people.yml"},
            }
            for what, cluster in forms.items():
                some = measured(cluster, directory)
                figures = " ".join(
                    f"{of} {spent:6.2f} s ({spent / least:4.1f})"
                    for of, spent, least in zip(("inventory", "preflight"), some, none)
                )
                print(f"  {f'{size} {what}':34} {figures}", flush=True)


if __name__ == "__main__":
    main()
