# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for unit tests of decisions: plain variables instead of Ansible's, and names instead of rendered texts.

Options of roles that are on or off are texts, as the command line gives them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import keys
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import shared
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import known_variables
from standing_hosts import honest
from switches import as_given

ROLES = Path(__file__).parents[2] / "roles"

CLUSTER: dict[str, Any] = {
    **{key.variable.name: "" if key.value == "host" else key.variable_default for key in keys.KEYS if key.variable},
    "slurm_cluster_name": "x",
    "slurm_cluster_dir": "/cluster",
    "slurm_secrets_dir": "/cluster/secrets/x",
    "slurm_secrets_command": [],
    "slurm_controllers": ["head"],
    "slurm_database": "head",
    "slurm_hardware_types": {"m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}},
    "slurm_nodes": [{"hosts": "n[1-2]", "hardware": "m"}],
    "slurm_partitions": [{"name": "all", "nodes": "n[1-2]"}],
    "slurm_containers": [],
    "slurm_job_user_id": 965,
    "slurm_no_new_privileges": False,
    "slurm_secret_max_age": 365,
    "slurm_user_id": 64030,
    "slurm_take_over": False,
    "slurm_image": "",
}
DATABASE_SERVER = {"host": "db.x.org", "port": 3307, "user": "slurm", "name": "acct"}
"""The variable slurm_database_server of a site with a server of its own."""

GROUPS = {
    "all": ["head", "login", "n1", "n2"],
    "slurm_cluster": ["head", "login", "n1", "n2"],
    "slurm_controller": ["head"],
    "slurm_database": ["head"],
    "slurm_login": ["login"],
    "slurm_compute": ["n1", "n2"],
}


class PlainHost(RunHost):
    """A host with these variables. Hosts of one cluster share `hosts`."""

    def __init__(self, variables: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> None:
        self._variables = dict(variables)
        self.files = files or {}
        self.printed: dict[str, bytes] = {}
        """What commands of the control host print, by their last argument; others fail."""
        self.asked: list[list[str]] = []
        self.resolved: dict[str, list[str]] = {}
        """The IP addresses of names."""
        self.writes = False
        self.called = ["gpucluster.slurm.site"]
        self.given: frozenset[str] = frozenset()
        self.hosts: dict[str, PlainHost] = {self.name: self}

    def __getitem__(self, name: str) -> Any:
        return as_given(name, self._variables[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def of(self, name: str) -> PlainHost:
        """Another host of the cluster."""
        return self.hosts[name]

    def text(self, role: str, template: str, **variables: Any) -> str:
        """A stand-in for the text that a run would render."""
        return f"{role}/{template} {sorted(variables.items())}"

    def content(self, path: str) -> bytes | None:
        """One of the files that the test has given."""
        return self.files.get(path)

    def output(self, command: Sequence[str], directory: str) -> bytes:
        """What the test has given for the command."""
        assert directory == self["slurm_cluster_dir"]
        self.asked.append([*command])
        if command[-1] not in self.printed:
            raise ValueError("ended with 1: no such entry")
        return self.printed[command[-1]]

    def resolve(self, names: Sequence[str]) -> dict[str, list[str]]:
        """What the test has given for names."""
        return {name: self.resolved.get(name, []) for name in names}

    @property
    def writes_arguments(self) -> bool:
        """As the test has set it."""
        return self.writes

    def option(self, role: str, name: str) -> Any:
        """A variable, or the default of the role if that is no template."""
        if name in self._variables:
            return self[name]
        return as_given(name, yaml.safe_load((ROLES / role / "defaults/main.yml").read_text())[name])

    def extended(self, **variables: Any) -> PlainHost:
        """The same host with further variables, which all hosts reached from it have."""
        hosts = {name: PlainHost({**host, **variables}, host.files) for name, host in self.hosts.items()}
        for host in hosts.values():
            host.hosts = hosts
        return hosts[self.name]

    def shared(self, name: str) -> Any:
        """What a function of decisions/run/shared.py says for all hosts of the cluster."""
        return getattr(shared, name)(self)

    def argument_options(self, role: str) -> dict[str, Any]:
        """The options in the argument spec of a role, by name."""
        specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())
        return dict(specs["argument_specs"]["main"]["options"])

    @property
    def known_variables(self) -> frozenset[str]:
        """The names of the options of all roles."""
        return known_variables()

    @property
    def given_variables(self) -> frozenset[str]:
        """As the test has set them."""
        return self.given

    @property
    def playbooks(self) -> list[str]:
        """The playbooks on the command line."""
        return self.called

    @property
    def no_inventory(self) -> str:
        """As a run without -i has it."""
        return "no inventory is given"

    def set(self, **variables: Any) -> PlainHost:
        """Set variables of this host; return it."""
        self._variables |= variables
        return self

    def say(self, **facts: Any) -> PlainHost:
        """Set facts that this host has said; return it."""
        dict.update(self.facts, facts)
        return self


def cluster(files: Mapping[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """The hosts of a small cluster, all with an honest answer: head, login, n1 and n2."""
    hosts = {}
    for name in GROUPS["all"]:
        own = {
            "inventory_hostname": name,
            "groups": GROUPS,
            "group_names": sorted(group for group, members in GROUPS.items() if name in members and group != "all"),
            "ansible_play_hosts": GROUPS["all"],
            "ansible_play_hosts_all": GROUPS["all"],
            "ansible_check_mode": False,
            "ansible_run_tags": ["all"],
            "__slurm_facts": honest(name)["slurm_host_facts"],
        }
        hosts[name] = PlainHost(copy.deepcopy(CLUSTER | own | variables), files)
    for host in hosts.values():
        host.hosts = hosts
    return hosts
