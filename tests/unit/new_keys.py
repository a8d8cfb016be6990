# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A value for each key of the cluster file that an administrator can add to a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import KEYS, ClusterKey

SCRIPT = [{"name": "disk", "script": "#!/bin/sh\nexit 0\n"}]
PEOPLE = {
    "groups": [{"name": "ops", "gid": 4200}],
    "users": [{"name": "zoe", "uid": 4100, "groups": ["ops"], "account": "vision"}],
}
ACCOUNTING = {
    "qos": [{"name": "fair"}, {"name": "urgent", "Priority": 100}],
    "accounts": [{"name": "science", "accounts": [{"name": "vision"}]}],
    "users": [{"name": "alice", "DefaultAccount": "vision"}],
}


def plain_value(key: ClusterKey) -> Any:
    """Another value of a plain key than its default; None for other keys."""
    values = {"text": "a text", "number": 4711, "flag": not key.default, "texts": ["a", "b"]}
    return key.choices[-1] if key.choices else values.get(key.value)


def added_keys(head: str, login: str, nodes: str) -> dict[str, dict[str, Any]]:
    """The keys that go with a key, by its name, for a cluster with these hosts. `people` excludes `users`."""
    return {
        **{key.name: {key.name: plain_value(key)} for key in KEYS if plain_value(key) is not None and not key.required},
        "further_addresses": {
            "further_addresses": [{"hosts": login, "names": "login.cluster.example", "address": "192.0.2.7"}]
        },
        "registry": {"registry": login},
        "users": PEOPLE,
        "people": {"people": "directory"},
        "storage": {
            "storage": [
                {"path": "/srv/homes", "type": "nfs", "server": head, "homes": True},
                {"path": "/srv/scratch", "type": "tmpfs", "hosts": nodes, "scratch": True},
            ]
        },
        "accounting": {"accounting": ACCOUNTING},
        "access": {**PEOPLE, "access": {"administrators": ["ops", "admin"], "between_nodes": "host_based"}},
        "backup": {"backup": {"target": "/srv/backup"}},
        "repair": {"repair": {"mode": "observe"}},
        "machines": {"machines": {"by": "program", "program": str(Path(__file__).parent / "machine_program")}},
        "database_server": {"database_server": {"host": "db.example.org"}},
        "mail": {"mail": {"relay": login, "sender": "slurm@cluster.example"}},
        "monitoring": {"monitoring": {"host": login, "users_and_accounts": True}},
        "report": {"report": login},
        "rest": {"rest": {"host": login}},
        "prologs": {"prologs": SCRIPT},
        "epilogs": {"epilogs": SCRIPT},
        "private_tmp": {"private_tmp": "/srv/jobs"},
        "firewall": {"firewall": {"ssh": ["10.213.7.1"]}},
        "slurm_conf": {"slurm_conf": {"KillWait": 44}},
        "cgroup_conf": {"cgroup_conf": {"ConstrainSwapSpace": True}},
        "slurm_files": {"slurm_files": {"job_submit.lua": "return slurm.SUCCESS\n"}},
        "plugstack": {"plugstack": [{"plugin": "/usr/local/lib/site.so"}]},
    }


ADDED = added_keys("head", "login1", "compute")
# The kernel of the lab need not have nfsd, without which a host that exports is refused. Scenario machines has it.
ADDED["storage"]["storage"][0] = {"path": "/srv/homes", "type": "nfs", "source": "nas:/srv/homes", "homes": True}

VARIABLES = {
    "registry_tls": False,
    "slurm_report_tls": False,
    "slurmrestd_tls": False,
    "slurm_no_new_privileges": False,
}
"""A registry and a page without a certificate; the profile strict with ssh between nodes."""

IN_EVERY_FILE = {"plugin", "name", "controllers", "hardware", "nodes", "partitions", "addresses"}
ELSEWHERE = {
    "database": "prologs: its cluster has none",
    "login": "prologs: its cluster has none besides the controller",
    "defaults": "update",
    "packages": "upgrade, and scenarios with SchedMD's packages",
    "unmanaged": "adopt",
    "taken_over": "adopt",
}
"""Keys that scenario default does not try, with the scenario that does."""

UNKNOWN = {key.name for key in KEYS} ^ {*ADDED, *IN_EVERY_FILE, *ELSEWHERE}
assert not UNKNOWN, f"keys without a value here, or values without a key: {UNKNOWN}"

ALONE = ("people", "database_server")
"""Keys that others exclude: `users`, and MariaDB on a host of the cluster."""

ALL = {name: value for key, keys in ADDED.items() if key not in ALONE for name, value in keys.items()}

CASES = [
    pytest.param(ALL, id="all"),
    *(pytest.param(keys, id=key, marks=pytest.mark.rare) for key, keys in ADDED.items() if key != "database_server"),
]
"""Each key takes a run, so that all of them at once are tried more often. A check asks a database server, so that
test_database_server.py of scenario default tries this key."""
