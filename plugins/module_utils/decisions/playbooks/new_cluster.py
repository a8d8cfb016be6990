# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role new_cluster: what it refuses, and the first cluster file from what was found on hosts.

The hosts are those of any inventory: they have no variables of a cluster.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ...language.hostlist import fold
from ...nodes import first_cluster_file
from ..known import registered
from ..known.platform_tables import DISTRIBUTIONS
from ..known.run_host import RunHost
from ..known.shipped_files import ROLES, role_file

RESULTS = (
    "ansible_host",
    registered.NEW_CLUSTER_FACTS.name,
    registered.NEW_CLUSTER_PROCESSES.name,
    registered.NEW_CLUSTER_ADDRESSES.name,
)
"""What is known about a host: its address in the inventory, and the registered results of the tasks in gather.yml."""

USER = re.compile("[a-z_][a-z0-9_.-]*")

VARIABLES = "group_vars/slurm_cluster.yml"

CONNECTION = re.compile(r"ansible_(?:user|port|password|connection|python_interpreter|(?:become|ssh)_(?!host_key)\w+)")
"""Variables of an inventory by which Ansible reaches a host, and which a cluster file does not have."""


SCHEMA = str((ROLES / "slurm/files/cluster.schema.json").resolve())
"""The schema of cluster files, by which an editor checks them."""


def inventory_hosts(host: RunHost) -> list[str]:
    """All hosts of the inventory but the control host, in its order."""
    return [name for name in host.members("all") if name != "localhost"]


def known(host: RunHost, name: str, results: tuple[str, ...]) -> dict[str, Any]:
    """Those of these results that a host has."""
    other = host.of(name)
    return {result: other[result] for result in results if result in other}


def choices(host: RunHost) -> dict[str, Any]:
    """The name of the cluster, the hosts that were chosen for its parts, and the directory of several controllers."""
    names = ("name", *first_cluster_file.PARTS, first_cluster_file.STATE_DIRECTORY)
    return {name: host[f"new_cluster_{name}"] for name in names}


def file(host: RunHost) -> str:
    """The path of the cluster file."""
    return f"{host['new_cluster_dir']}/{host['new_cluster_name']}.cluster.yml"


def connection(host: RunHost) -> tuple[dict[str, Any], list[str]]:
    """How Ansible reaches all hosts alike, as variables; and the names of those that are left to a person.

    These differ between the hosts, are secret, or have a template. The user is the one of the new hosts, since the
    command line or ssh's own configuration may have named them.
    """
    hosts = [host.of(name) for name in inventory_hosts(host)]
    found: dict[str, list[Any]] = {}
    for one in hosts:
        user = str(registered.NEW_CLUSTER_USER.seen(one).get("stdout", ""))
        values = {"ansible_user": user} if USER.fullmatch(user) else {}
        values |= {name: one[name] for name in one if CONNECTION.fullmatch(name)}
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    alike = {
        name: values[0]
        for name, values in found.items()
        if values == values[:1] * len(hosts) and not re.search("pass|{{", f"{name} {values[0]}")
    }
    return alike, sorted({*found} - {*alike})


def settings(host: RunHost) -> dict[str, str]:
    """Texts of the files that runs need next to the cluster file, by their names there."""
    alike, _left = connection(host)
    lines = [
        "---",
        "# How Ansible reaches the hosts.",
        *(f"{name}: {json.dumps(alike[name])}" for name in sorted(alike)),
    ]
    return {
        "ansible.cfg": role_file("new_cluster", "ansible.cfg"),
        ".gitignore": role_file("new_cluster", "gitignore"),
        VARIABLES: "\n".join([*lines, ""]),
    }


def reached_by_name(host: RunHost) -> list[str]:
    """Hosts to which ssh has connected by a name. Later runs connect to the addresses of the cluster file."""
    names = []
    for name in inventory_hosts(host):
        one = host.of(name)
        has_answered = registered.NEW_CLUSTER_ADDRESSES.seen(one).get("stdout")
        used = str(one.get("ansible_host") or name)
        if has_answered and one.get("ansible_connection", "ssh") == "ssh" and not first_cluster_file.ip_version(used):
            names.append(name)
    return names


def next_commands(host: RunHost, path: str = "") -> list[str]:
    """What a person does with a cluster file that was written from an inventory of hosts, in lines."""
    path = path or file(host)
    _alike, names = connection(host)
    named = reached_by_name(host)
    place = f"{os.path.dirname(path)}/{VARIABLES}"
    return [
        f"Read {path}, then:",
        *(
            [f"Write {', '.join(names)} of your inventory into {place}: the cluster file has none of them."]
            * bool(names)
        ),
        *(
            [
                f"See that ssh knows {fold(named)} by address too, since runs connect to the addresses of the file and "
                "this run used names; or remove the file and give `new` the addresses (-i ADDRESS,ADDRESS,)."
            ]
            * bool(named)
        ),
        f"ansible-playbook gpucluster.slurm.site -i {path} --check --diff",
        f"ansible-playbook gpucluster.slurm.site -i {path}",
    ]


def objections(host: RunHost) -> list[str]:
    """Why no cluster file can be written, before any host is reached."""
    found = first_cluster_file.choice_errors(
        choices(host),
        inventory_hosts(host),
        [name for name in host if name.startswith("new_cluster_")],
        host.argument_options("new_cluster"),
    )
    path, directory = file(host), str(host["new_cluster_dir"])
    if os.path.exists(path):
        found.append(f"{path} exists already and is not overwritten; set another new_cluster_name or new_cluster_dir")
    if not os.path.isdir(directory):
        found.append(f"new_cluster_dir: {directory} is not a directory")
    return found


def result(host: RunHost) -> dict[str, Any]:
    """What was found on the hosts, and the cluster that they make."""
    hosts = inventory_hosts(host)
    found = {name: known(host, name, RESULTS) for name in hosts}
    return first_cluster_file.new_cluster(found, hosts, choices(host), DISTRIBUTIONS)
