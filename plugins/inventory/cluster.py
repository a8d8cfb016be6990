# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin: a cluster file becomes groups and variables. The model checks and resolves the file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
short_description: Read a Slurm cluster from a cluster file
version_added: 0.1.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - Reads one file that describes a Slurm cluster. Its name ends in C(cluster.yml) or C(cluster.yaml).
  - Creates the group C(slurm_cluster) with the children C(slurm_compute) and one for each key that names servers, such
    as C(slurm_controller), C(slurm_database), C(slurm_login) and C(slurm_registry), a group C(hardware_NAME) for each
    machine type and C(partition_NAME) for each partition. In these names, characters other than letters, digits and
    underscores become underscores. If two names become equal by this, the second gets one more underscore at its end.
  - Sets the variables that the roles of this collection share (C(slurm_cluster_name), C(slurm_nodes) and so on) on the
    group C(slurm_cluster), and C(ansible_host) on hosts with an address. C(group_vars) and C(host_vars) next to the
    file win over them as always.
  - The variables that grow with the cluster, such as C(slurm_nodes), C(slurm_people) and C(slurm_storage), are set on
    the group C(slurm_controller), and C(slurm_cluster) has templates that refer to them. So every host can use them,
    but C(ansible-inventory --list) shows their values for the controllers only.
  - The extra variable C(remove_nodes), a hostlist, leaves nodes out, as if the file did not have them. They are in the
    group C(slurm_leaving) and in no other one. It is for the playbook C(gpucluster.slurm.remove_nodes).
  - The whole file is checked before any host is contacted. All problems are reported in one error. Each has a line with
    the key, the found value, the allowed values and the nearest valid key.
  - All hosts and addresses are Slurm's hostlists, such as V(compute[01-16]).
  - Slurm's parameters keep Slurm's spelling; their values are text, numbers, booleans (C(YES) and C(NO)), or lists
    (joined by commas).
  - Values are used literally. Templates are evaluated only in the options of the fragment C(constructed). To compute a
    value, set the variable in C(group_vars).
extends_documentation_fragment:
  - constructed
  - gpucluster.slurm.cluster_file
"""

EXAMPLES = r"""
# demo.cluster.yml
plugin: gpucluster.slurm.cluster
name: hpc-demo-cluster

controllers: head
database: head
login: login1
hardware:
  e2-standard-4: {sockets: 1, cores_per_socket: 2, threads_per_core: 2, real_memory: 15990}
  n1-t4:
    sockets: 1
    cores_per_socket: 1
    threads_per_core: 1
    real_memory: 3661
    gres: [{name: gpu, type: t4, file: "/dev/nvidia[0-1]"}]
nodes:
  - {hosts: head, hardware: e2-standard-4, address: 10.182.0.4}
  - {hosts: "compute[01-02]", hardware: n1-t4, address: "10.182.0.[2-3]"}
partitions:
  - {name: cpu, nodes: head, default: true}
  - {name: gpu, nodes: "compute[01-02]", MaxTime: "2-00:00:00", AllowAccounts: [vision]}
addresses: {login1: 10.182.0.9}
accounting:
  qos: [{name: urgent, Priority: 100, Preempt: [normal], MaxTRESPerUser: {gres/gpu: 2}}]
  accounts:
    - {name: vision, Fairshare: 30, accounts: [{name: detection, GrpTRES: {gres/gpu: 4}}]}
    - {name: speech, Fairshare: 10, QOS: [normal, urgent]}
  users:
    - {name: alice, DefaultAccount: detection, accounts: [speech]}
slurm_conf: {UnkillableStepTimeout: 240}

# Other generic resources, each the gres of a machine type.
# Slurm finds 8 GPUs:
#   gres: [{name: gpu, type: h100, count: 8, autodetect: nvml}]
# Six whole GPUs, and two with 7 MIG instances each, requested as gpu:h100 and gpu:h100_80gb_hbm3_1g.10gb:
#   gres:
#     - {name: gpu, type: h100, count: 6, autodetect: nvml}
#     - {name: gpu, type: h100_80gb_hbm3, count: 2, autodetect: nvml, mig: {1g.10gb: 7}}
# Two GPUs of which jobs can request eighths:
#   gres: [{name: gpu, type: t4, file: "/dev/nvidia[0-1]"}, {name: shard, count: 16}]

# Groups of your own. Here: one for all compute nodes by name, and one for each rack (gpu-1-07 is in rack_1).
groups:
  gpu_nodes: "'compute' in inventory_hostname"
keyed_groups:
  - prefix: rack
    key: inventory_hostname.split('-')[1] | default('none')
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ansible.errors import AnsibleParserError, ExitCode
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.template import trust_as_template
from ansible.vars.plugins import get_vars_from_path

from ..module_utils.cluster import deprecated_names, job_scripts
from ..module_utils.cluster.keys import KEYS
from ..module_utils.cluster.model import SLURM_GROUPS, DeclaredCluster, Document, ModelError, hardware_file, load
from ..module_utils.cluster.named_files import file_error
from ..module_utils.cluster.people_key import Table, files, is_table, read_table
from ..module_utils.cluster.policy_checks import file_of
from ..module_utils.cluster.removal import OPTION, describe_empty, edits, find_emptied
from ..module_utils.language.formatting import limited, message, shown
from ..module_utils.language.hostlist import expand
from ..plugin_utils.cluster_file import edited
from ..plugin_utils.documents import located, read
from ..plugin_utils.inventory_sources import SUFFIXES, UNSET, explain, is_misnamed, is_of_collection

GROWING = frozenset(key.variable.name for key in KEYS if key.variable and key.variable.grows)
"""Variables that grow with the cluster. Written out for each host, as `ansible-inventory --list` does with all that a
host has, they would make it grow with the square of the hosts. So the controllers have them, and the others the way.
"""

LEAVING = "slurm_leaving"
"""The group of the nodes that the playbook remove_nodes removes. They are no hosts of the cluster any more."""

POLICY = "slurm_accounting_"
"""How the variables of a policy start, which grow with its users."""


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Cluster file -> model -> groups and variables."""

    NAME = "gpucluster.slurm.cluster"

    def verify_file(self, path: str) -> bool:
        """Whether the file is named as a cluster file. One with another name, and one that is missing, stop the run.

        Ansible would ask its other plugins, and show why each of them cannot read the file.
        """
        is_there = super().verify_file(path)
        if is_there and path.endswith(SUFFIXES):
            return True
        if path != UNSET and (not is_there or is_misnamed(path)):
            self._stop(explain([path]))
        return False

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Fill the inventory from a cluster file."""
        super().parse(inventory, loader, path, cache)
        measured = hardware_file(path)
        self._refuse_second(path, measured)
        try:
            document = self._with_new_names(self._document(path))
            policy = self._policy_file(path, file_of(document.data))
            others = (
                self._measured(path, measured),
                {name: self._people_file(path, name) for name in files(document.data)},
                {name: self._text(path, name) for name in job_scripts.files(document.data)},
                policy,
            )
            cluster = whole = load(document, *others)
            leaving = self._leaving()
            if leaving is not None:
                cluster = load(self._without(path, document, policy, leaving), *others)
                if partitions := find_emptied(whole, cluster):
                    raise ModelError([f"{document.file}: {describe_empty(name, leaving)}" for name in partitions])
        except ModelError as error:
            self._refuse(path, error.problems)
        self._populate(cluster, path)
        if leaving is not None:
            self._set_aside(leaving, whole, path)
            before = {name: value for name, value in whole.variables.items() if value != cluster.variables.get(name)}
            self.inventory.set_variable(LEAVING, "slurm_variables_before", before)
            self.inventory.set_variable(LEAVING, "slurm_groups_before", self._groups(whole))
        people = {"groups"} if isinstance(document.data.get("groups"), list) else set()  # not Ansible's groups of hosts
        if document.data.keys() & {"compose", "groups", "keyed_groups"} - people:
            # Read again by Ansible, which marks their values as templates.
            options = loader.load_from_file(path, cache="none", trusted_as_template=True)
            self.set_options(direct={key: value for key, value in options.items() if key not in people})
            self._construct(cluster)

    def _refuse_second(self, path: str, measured: str) -> None:
        """Refuse two clusters in one run: the groups would have the hosts of both, and the variables of the last."""
        group = self.inventory.groups.get("slurm_cluster")
        first = str(group.get_vars().get("slurm_hardware_file", "")) if group else ""
        if first and first != str(Path(measured).resolve()):
            other = re.sub(r"hardware(\.ya?ml)$", r"cluster\1", first)
            self._stop(f"Two cluster files in one run, {other} and {path}: name one of them with -i.")

    def _refuse(self, path: str, problems: list[str]) -> NoReturn:
        """Show what is wrong, once: Ansible would show the message of an exception several times."""
        files = {name: Path(path).parent / name for name in {problem.partition(": ")[0] for problem in problems}}
        texts = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        lines = "\n".join(limited(located(problems, texts)))
        text = f"The cluster file is not valid:\n{lines}"
        if is_of_collection(self.loader.get_text_file_contents(path)):
            self._stop(text)
        self.display.error(text, wrap_text=False)
        raise AnsibleParserError(f"{path}: {len(problems)} problem(s), named above")

    def _stop(self, text: str) -> NoReturn:
        """End the run. After an exception, Ansible asks its other plugins, and shows why each cannot read the file."""
        self.display.error(text, wrap_text=False)
        raise SystemExit(ExitCode.PARSER_ERROR)

    def _with_new_names(self, document: Document) -> Document:
        """The cluster file with the new names of keys, after a warning about each old one."""
        renamed = deprecated_names.with_new_names(
            document.data, deprecated_names.collection_version(), deprecated_names.OLD_NAMES
        )
        for key, text in renamed.warnings:
            self.display.warning(message(f"{document.file}: {key}: {text}"))
        return replace(document, data=renamed.data, problems=[*document.problems, *renamed.problems])

    def _leaving(self) -> list[str] | None:
        """The nodes that the playbook remove_nodes is to remove; None in a run of another playbook."""
        found = (self._vars or {}).get(OPTION)
        try:
            return None if found is None else expand(str(found))
        except ValueError as error:
            raise ModelError([f"{OPTION}: {error}"]) from None

    def _without(self, path: str, document: Document, policy: Document | None, names: list[str]) -> Document:
        """The cluster file without these nodes, edited as the playbook would write it."""
        text = self.loader.get_text_file_contents(path).encode().decode()  # YAML's parser takes no subclass of str
        changes = edits(document.file, document.data, names, policy)
        return self._with_new_names(read(document.file, edited(document.file, text, changes).encode()))

    def _set_aside(self, names: list[str], cluster: DeclaredCluster, path: str) -> None:
        """Put nodes that leave into a group of their own, with the variables that the cluster's hosts have."""
        self.inventory.add_group(LEAVING)
        group = self.inventory.groups["slurm_cluster"]
        # The connection to a host can need the site's variables for the group that it was in.
        given = get_vars_from_path(self.loader, str(Path(path).parent), [group], "task")
        for name, value in {**group.get_vars(), **given, "slurm_cluster_file": str(Path(path).resolve())}.items():
            self.inventory.set_variable(LEAVING, name, value)
        for host in names:
            self.inventory.add_host(host, group=LEAVING)
            if host in cluster.addresses:
                self.inventory.set_variable(host, "ansible_host", cluster.addresses[host])

    def _document(self, path: str) -> Document:
        """A file of the cluster, decrypted if need be."""
        return read(Path(path).name, self.loader.get_text_file_contents(path).encode(errors="surrogateescape"))

    def _measured(self, path: str, measured: str) -> Document | None:
        """The file of measured hardware, if there is one."""
        name = Path(measured).name
        if not Path(measured).exists():
            return None
        if error := file_error(str(Path(path).parent), name):
            raise ModelError([f"{name}: found a file, {error}"])
        return self._document(measured)

    def _people_file(self, path: str, name: str) -> Document | Table:
        """A file that the cluster file names as that of its people."""
        file = self._named_file(path, "people", name)
        return read_table(name, self.loader.get_text_file_contents(file)) if is_table(name) else self._document(file)

    def _policy_file(self, path: str, name: str) -> Document | None:
        """The file that the cluster file names as that of its policy for accounting, if it names one."""
        return self._document(self._named_file(path, "accounting", name)) if name else None

    def _named_file(self, path: str, key: str, name: str) -> str:
        """The path of a file that a key of the cluster file names."""
        if error := file_error(str(Path(path).parent), name):
            raise ModelError([message(f"{Path(path).name}: {key}: found {shown(name)}, {error}")])
        return str(Path(path).parent / name)

    def _text(self, path: str, name: str) -> str | ValueError:
        """The text of a script that the cluster file names, or why it cannot be read.

        Bytes that are not UTF-8, such as those of Latin-1, are surrogates in it.
        """
        if error := file_error(str(Path(path).parent), name):
            return ValueError(error)
        # Decrypted if need be, into a file that is removed below, or by Ansible at its end.
        real = self.loader.get_real_file(str(Path(path).parent / name))
        content = Path(real).read_bytes()
        self.loader.cleanup_tmp_file(real)
        return content.decode(errors="surrogateescape")

    def _populate(self, cluster: DeclaredCluster, path: str) -> None:
        """Put groups, hosts and variables into the inventory."""
        for group in ("slurm_cluster", *cluster.groups):
            self.inventory.add_group(group)
        # Not Ansible's inventory_dir, which is another one when several inventories are given.
        self.inventory.set_variable("slurm_cluster", "slurm_cluster_dir", str(Path(path).resolve().parent))
        self.inventory.set_variable("slurm_cluster", "slurm_hardware_file", str(Path(hardware_file(path)).resolve()))
        for name, value in cluster.variables.items():
            if name in GROWING or name.startswith(POLICY):
                self.inventory.set_variable("slurm_controller", name, value)
                value = trust_as_template(f"{{{{ hostvars[groups.slurm_controller | first].{name} }}}}")
            self.inventory.set_variable("slurm_cluster", name, value)
        for group, hosts in cluster.groups.items():
            if group in SLURM_GROUPS:
                self.inventory.add_child("slurm_cluster", group)
            for host in hosts:
                self.inventory.add_host(host, group=group)
        for host, address in cluster.addresses.items():
            self.inventory.set_variable(host, "ansible_host", address)

    @staticmethod
    def _groups(cluster: DeclaredCluster) -> dict[str, list[str]]:
        """The groups that have nodes, with their hosts in the order that Ansible gives them."""
        hosts = [host for group, found in cluster.groups.items() if group in SLURM_GROUPS for host in found]
        return {"slurm_cluster": [*dict.fromkeys(hosts)], "slurm_compute": cluster.groups["slurm_compute"]}

    def _construct(self, cluster: DeclaredCluster) -> None:
        """Add what the templates of the file ask for, host by host."""
        compose, groups, keyed_groups, strict = map(self.get_option, ("compose", "groups", "keyed_groups", "strict"))
        for host in dict.fromkeys(host for hosts in cluster.groups.values() for host in hosts):
            variables: dict[str, Any] = {**cluster.variables, **self.inventory.get_host(host).get_vars()}
            self._set_composite_vars(compose, variables, host, strict)
            variables.update(self.inventory.get_host(host).get_vars())
            self._add_host_to_composed_groups(groups, variables, host, strict, fetch_hostvars=False)
            self._add_host_to_keyed_groups(keyed_groups, variables, host, strict, fetch_hostvars=False)
