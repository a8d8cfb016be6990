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
  - Creates the groups C(slurm_cluster) with the children C(slurm_controller), C(slurm_database), C(slurm_login),
    C(slurm_registry) and C(slurm_compute), a group C(hardware_NAME) for each machine type and C(partition_NAME) for
    each partition. In these names, characters other than letters, digits and underscores become underscores. If two
    names become equal by this, the second gets one more underscore at its end.
  - Sets the variables that the roles of this collection share (C(slurm_cluster_name), C(slurm_nodes) and so on) on the
    group C(slurm_cluster), and C(ansible_host) on hosts with an address. C(group_vars) and C(host_vars) beside the file
    win over them as always.
  - The variables that grow with the cluster (C(slurm_addresses), C(slurm_epilogs), C(slurm_files),
    C(slurm_hardware_types), C(slurm_nodes), C(slurm_partitions), C(slurm_prologs) and C(slurm_storage)) are set on the
    group C(slurm_controller), and C(slurm_cluster) has templates that refer to them. So every host can use them, but
    C(ansible-inventory --list) shows their values for the controllers only.
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
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [gpucluster.slurm.cluster]
  name:
    description: The name of the cluster, in lower case.
    type: str
    required: true
  controllers:
    description:
      - A hostlist. The first host is the primary controller, the next ones take over from it.
      - Several controllers need C(StateSaveLocation) in O(slurm_conf), an absolute path on a file system that all of
        them mount. Each run proves that they share this directory (role P(gpucluster.slurm.slurmctld#role)).
    type: str
    required: true
  database:
    description: The host of MariaDB and slurmdbd. Without it the cluster has no accounting.
    type: str
  login:
    description: A hostlist of the login nodes, which have the client commands.
    type: str
  unmanaged:
    description:
      - A hostlist of nodes that Slurm has and that no play changes, such as nodes of a cluster that is taken over one
        by one (playbook C(gpucluster.slurm.adopt)). They are not in the group C(slurm_compute).
      - Nodes with C(State=CLOUD) or C(State=FUTURE) are left alone without this key.
    type: str
  registry:
    description: The host of a registry of container images, as role C(registry) documents it.
    type: str
  hardware:
    description:
      - Machine types by name.
      - Each has C(sockets) (of all boards), C(cores_per_socket), C(threads_per_core) and C(real_memory) (MiB),
        optionally C(boards), C(tmp_disk) (MiB), C(cpus), C(gres), and any parameter of a C(NodeName) line.
      - C(cpus), the CPUs that Slurm counts, if they are the cores or the sockets. By default they are all threads.
      - "C(gres) is a list of generic resources. Each entry has a C(name), C(gpu) or another one, and optionally:"
      - C(type), the type that jobs request, such as V(h100). On a machine, either all entries with the same C(name)
        have a type, or none.
      - C(file), the device files, a hostlist. GPUs need it, or C(autodetect).
      - C(count), their number. By default the number of files in C(file), or 1 without C(file).
      - C(cores), Slurm's indexes of the nearest cores, such as V(0-55). From Slurm 24.11 on they must be all cores of a
        socket or of several sockets, from 25.11 on those of one socket or of the whole machine.
      - C(links), the connections of one device to all devices, such as V([-1, 16]).
      - C(flags), a list out of C(CountOnly), C(explicit), C(one_sharing), C(all_sharing), C(nvidia_gpu_env),
        C(amd_gpu_env), C(intel_gpu_env), C(opencl_env) and C(no_gpu_env). The flags of a C(gpu) must include an
        environment, since Slurm sets none if there are other flags.
      - C(autodetect), the method by which Slurm finds the GPUs of a node and their files, cores and links, C(nvml),
        C(nvidia) (Slurm 24.11 or later), C(rsmi), C(oneapi) or C(nrt). C(type) and C(count) are the GPUs that must be
        found. The type is a part of the detected name, such as V(h100) of C(nvidia_h100_80gb_hbm3). Not for nodes with
        C(State=CLOUD).
      - "C(mig), the layout of each GPU of the entry, a mapping of profiles to numbers of instances, such as V({1g.10gb:
        7}), with C(autodetect=nvml). C(count) is the number of GPUs, not of instances."
      - Slurm counts MIG instances by the type C(TYPE_PROFILE). Their C(type) must be the end of the GPU's name, or the
        end of the part before the first hyphen of the name, as V(a100) for C(NVIDIA A100-SXM4-80GB), but
        V(h100_80gb_hbm3) for C(NVIDIA H100 80GB HBM3). Slurm 22.05 names a profile by the rounded size of its memory,
        V(3g.39gb) for C(3g.40gb).
      - C(shard) and C(mps) are shares of the machine's GPUs. A machine can have one of the two. They have a C(count),
        distributed over all GPUs, or over those in C(file), and optionally C(flags).
      - C(Gres), generic resources that C(gres) cannot express, such as V(lustre:no_consume:500G), is added to the
        C(Gres) of the C(NodeName) line as it is. The collection does not measure or validate them.
      - C(gres_conf), their lines of C(gres.conf) as they are, without C(NodeName), such as V([Name=nic Count=2]).
    type: dict
    default: {}
  nodes:
    description:
      - The compute nodes, a list of entries with C(hosts) (a hostlist), C(hardware) (a machine type), optionally
        C(address) (a hostlist of the same length), and any parameter of a C(NodeName) line.
      - An IPv6 address needs V(EnableIPv6) in C(CommunicationParameters) of O(slurm_conf). Several nodes can have one
        address if they have a C(Port).
      - The hardware V(detected) is measured and kept beside this file, in C(my.hardware.yml) for C(my.cluster.yml),
        which has the keys C(hardware) and C(nodes) of this file. Until the measurement, the hosts are in the inventory,
        but have no node lines.
    type: list
    elements: dict
    required: true
  partitions:
    description:
      - A list of entries with C(name), C(nodes), optionally C(default) (a boolean, true for one of them), and any
        parameter of a C(PartitionName) line.
      - C(nodes) is V(ALL), or a list of hosts of O(nodes), of node sets (C(NodeSet) in O(slurm_conf)) and of Slurm's
        functions, such as V(switch{s1}). It can be empty. A host is in the group of the partition, and is validated,
        unless only slurmctld knows that it belongs to the partition, as it does for a switch and for dynamic nodes.
    type: list
    elements: dict
    required: true
  addresses:
    description:
      - Addresses of hosts that are in no entry of O(nodes), a mapping of hostlists to hostlists of the same length.
    type: dict
    default: {}
  packages:
    description:
      - Where Slurm's packages come from. V(distribution) installs those of Debian or Ubuntu, V(schedmd) those of
        SchedMD from a repository that the hosts already have.
      - "A mapping with C(repository) and C(key) adds this repository with SchedMD's packages. C(repository) is its URL,
        suite and components, as in sources.list(5). C(key) is a file in ASCII armor, or a mapping with C(url) and
        C(sha256)."
      - "A mapping with C(files) installs these packages of SchedMD. Each entry has C(url) and C(sha256), or C(file).
        The files keep their names, such as C(slurm-smd_25.11.2-1_amd64.deb), and have one version and one
        architecture."
      - Paths are relative to the directory of this file.
    type: raw
    default: distribution
  users:
    description:
      - The people of the cluster, who have the same ids on every host. A list of entries with C(name) and C(uid), and
        optionally the following keys.
      - C(gid), the primary group, by default the uid. Its name is that of a group of people, or else that of the user.
      - C(groups), a list of further groups of people.
      - C(full_name), C(home) (by default C(/home/NAME)) and C(shell) (by default C(/bin/bash)).
      - C(keys), a list of public SSH keys, lines of C(authorized_keys) with or without options.
      - C(state), V(present) (the default), V(suspended) or V(absent).
      - C(jobs), whether the jobs of a suspended user V(stay) (the default) or V(end).
      - C(account), C(accounts) and C(limits), which make an entry of C(users) in O(accounting), C(account) its
        C(DefaultAccount) and C(limits) a mapping of its limits.
      - The groups of people are the list O(groups) of entries with C(name) and C(gid). A mapping of that name is
        Ansible's own option for groups of hosts; a file has one of both.
    type: list
    elements: dict
    version_added: 0.2.0
  people:
    description:
      - Where the people are instead of in O(users).
      - The name of a CSV file beside this file, such as V(people.csv), has the users. The first line names the columns,
        which are the keys of O(users). Values of a list are separated by semicolons, and the column of a limit is
        C(limits.NAME), such as C(limits.MaxJobs). The groups are still in O(groups).
      - The name of a YAML file, such as V(people.yml), has a mapping with C(groups) and C(users).
      - V(directory) says that hosts know the people of LDAP or AD already. Nothing is created then.
    type: raw
    version_added: 0.2.0
  storage:
    description:
      - The file systems that hosts mount, a list of entries with C(path) and C(type), any type of mount(8) such as
        V(nfs), V(lustre), V(xfs), V(tmpfs) or V(gcsfuse).
      - C(source) is what is mounted, such as V(nas.example.org:/vol/home). Instead, C(server) names a host of this
        cluster, which exports C(export) by NFS; the default is the same directory as C(path).
      - C(hosts) is a hostlist of those that mount it, which can have the words V(all) (the default), V(login),
        V(compute) and V(controllers). C(options) are those of mount(8).
      - C(packages) brings the file system, a list of entries with C(name), with C(url) and C(sha256), or with C(file).
      - With C(homes), the homes of the users below C(path) are made once. With C(scratch), C(path) is Slurm's
        C(TmpFS).
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
  access:
    description:
      - Who may log in where, with these keys. Without it, nobody's access is changed.
      - C(administrators), a list of groups whose members may log in everywhere.
      - C(compute), who else may log in to hosts that are compute nodes only, V(job) (users with a job there, the
        default), V(administrators) (nobody else) or V(all). It does not concern hosts that are also login hosts,
        controllers or the database. V(job) needs C(PrologFlags) with C(contain), C(proctrack/cgroup) and
        C(task/cgroup), as they are without O(slurm_conf).
      - C(between_nodes), V(host_based) (users come from login hosts and compute nodes to compute nodes without a key)
        or V(none) (the default). V(host_based) needs the IP address of each of these hosts.
      - C(login_limits), limits of the processes of each user on login hosts, C(MemoryMax), C(MemoryHigh), C(TasksMax),
        C(CPUQuota), C(CPUWeight) and C(IOWeight), as in systemd.resource-control(5). On a login host that is also a
        compute node, a controller or the database, they are halved.
    type: dict
    default: {}
    version_added: 0.2.0
  backup:
    description:
      - Where and when the cluster is saved, with these keys. Without it, no backup is made.
      - C(target), a repository of restic, such as V(/srv/backup), a directory that the database host and the
        controllers mount, or V(sftp:user@host:/srv/backup).
      - C(times), a calendar event as in systemd.time(7); the default is V(daily).
      - C(keep), how many backups stay by interval, C(last), C(hourly), C(daily), C(weekly), C(monthly) and C(yearly).
        The default is 7 daily, 5 weekly and 12 monthly ones.
      - C(max_age), the hours after which a run reports the last backup as old; the default is 48.
    type: dict
    default: {}
    version_added: 0.2.0
  mail:
    description:
      - Where mails about jobs (C(--mail-type)) go, with these keys. Without it, Slurm sends no mail.
      - C(relay), a mail server, optionally with its port, such as V(mail.example.org:587).
      - C(sender), the address that mails come from.
      - C(domain), the domain of users whose address Slurm does not know; the default is that of C(sender).
      - C(tls), V(none), V(starttls) or V(tls); the default is V(none), and V(starttls) with C(user).
      - C(user), the name with which the controllers log in to the relay. The password is in the file C(mail_password)
        of C(slurm_secrets_dir), which may be encrypted with ansible-vault.
    type: dict
    default: {}
    version_added: 0.2.0
  prologs:
    description:
      - Scripts that run as root on each node of a job before it starts, a list in their order. They need Slurm 23.11 or
        later, which sends them to the nodes.
      - C(name) is in the log and in the reason of a drained node. C(file) is a script beside this file; C(script) is
        its text instead.
      - The script runs for jobs that meet all of these conditions. C(partitions) and C(hardware) are lists of names,
        C(gpus) is whether the job has GPUs on the node, and C(min_nodes) is the least number of nodes of the job.
      - C(time_limit) are the seconds after which the script is ended; the default is 60.
      - C(on_failure) is V(drain) (the default), which drains the node with the name of the script as the reason and
        requeues the job, or V(log), which goes on.
      - C(environment) are variables of the script, which are no secret.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
  epilogs:
    description:
      - Scripts that run as root on each node of a job after it has ended, with the keys of O(prologs).
      - All of them run, also after one that has failed.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
  private_tmp:
    description:
      - A directory on the compute nodes, such as V(/local/jobs), in which each job gets a C(/tmp) of its own. The job
        also has C(/dev/shm) of its own. Both are removed when the job ends.
    type: str
    version_added: 0.2.0
  profile:
    description:
      - V(strict) has the defaults that a security officer asks for. No jobs of root, users see their own jobs and
        accounts only, and the daemons of Slurm use the addresses of the cluster only.
      - With V(standard) the defaults are those that are convenient.
    type: str
    choices: [standard, strict]
    default: standard
    version_added: 0.2.0
  defaults:
    description:
      - The generation of the collection's own values for parameters of Slurm. A release of the collection can have
        a new generation, and a cluster keeps its values until this number is raised.
      - C(site.yml --check) shows the parameters that the newest generation changes, with the reasons.
    type: int
    default: 1
    version_added: 0.2.0
  firewall:
    description:
      - The firewall of all hosts, with these keys. Without it, the collection loads no firewall.
      - C(ssh), from which addresses and networks people and the control host come by ssh, such as V([10.0.0.0/8]), or
        V([any]). It is required. C(ssh_port) is the port of sshd; the default is 22.
      - C(compute_networks), networks in which only compute nodes have addresses beside those in this file, such as
        those of InfiniBand. Compute nodes speak freely with each other.
      - C(open), further services of hosts, a list of entries with C(hosts) (a hostlist, which can have V(all),
        V(login), V(compute) and V(controllers)), C(ports), C(protocol) (V(tcp), the default, or V(udp)), and C(from),
        a list of the same words, of addresses and networks, or V(any).
      - Each host needs its IP address in this file, in O(nodes) or O(addresses).
    type: dict
    default: {}
    version_added: 0.2.0
  accounting:
    description:
      - The policy for accounting, with C(limits) of the cluster, C(qos), C(accounts), C(users), C(reservations) and
        C(purge), as role C(slurm_accounting) documents them. It needs a O(database). With a database, slurmctld
        enforces limits.
    type: dict
    default: {}
  slurm_conf:
    description:
      - Any parameters of C(slurm.conf) that are not derived from other keys of this file.
      - They replace the values that this collection sets; V(null) removes a parameter.
    type: dict
    default: {}
  cgroup_conf:
    description: Any parameters of C(cgroup.conf), as in O(slurm_conf).
    type: dict
    default: {}
  slurm_files:
    description:
      - Further files of Slurm, a mapping of names to texts. Names are those that Slurm knows, such as
        C(topology.conf), C(job_submit.lua) and C(mpi.conf), and those of a C(Prolog) or C(Epilog) in O(slurm_conf)
        without a path, which Slurm 23.11 and later sends to the nodes.
      - The controllers have the files, and slurmctld sends them to the other hosts. A file that leaves the mapping
        leaves the hosts.
      - To keep a text in a file of its own, set the variable in C(group_vars) with a lookup.
    type: dict
    default: {}
    version_added: 0.2.0
  plugstack:
    description:
      - SPANK plugins, a list with an entry for each line of C(plugstack.conf), in their order. It is the variable
        C(slurm_plugstack) of role P(gpucluster.slurm.slurm#role).
      - C(plugin) is the path of the plugin, or its name in Slurm's C(PluginDir).
      - C(arguments) is a list of its arguments.
      - C(required), whether jobs fail without the plugin; the default is V(false).
      - The site installs the plugins itself on login hosts and compute nodes.
    type: list
    elements: dict
    version_added: 0.2.0
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

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.template import trust_as_template
from ansible.vars.plugins import get_vars_from_path
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import job_scripts
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.leaving import OPTION, edits, emptied, empty
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    SLURM_GROUPS,
    DeclaredCluster,
    Document,
    ModelError,
    hardware_file,
    load,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import file_error
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.people import (
    Table,
    files,
    is_table,
    read_table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import message, shown
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.cluster_file import edited
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import read

GROWING = (
    "slurm_addresses",
    "slurm_epilogs",
    "slurm_files",
    "slurm_hardware_types",
    "slurm_nodes",
    "slurm_partitions",
    "slurm_people",
    "slurm_prologs",
    "slurm_storage",
)
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
        """Whether the file is named as a cluster file."""
        return super().verify_file(path) and path.endswith(("cluster.yml", "cluster.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Fill the inventory from a cluster file."""
        super().parse(inventory, loader, path, cache)
        measured = hardware_file(path)
        try:
            document = self._document(path)
            others = (
                self._measured(path, measured),
                {name: self._beside(path, name) for name in files(document.data)},
                {name: self._text(path, name) for name in job_scripts.files(document.data)},
            )
            cluster = whole = load(document, *others)
            leaving = self._leaving()
            if leaving is not None:
                cluster = load(self._without(path, document, leaving), *others)
                if partitions := emptied(whole, cluster):
                    raise ModelError([f"{document.file}: {empty(name, leaving)}" for name in partitions])
        except ModelError as error:
            # Ansible shows the message of an exception several times, and each plugin that it tries adds its own.
            # So the problems are shown here, once.
            self.display.error(f"The cluster file is not valid:\n{error}", wrap_text=False)
            raise AnsibleParserError(f"{path}: {len(error.problems)} problem(s), named above") from None
        self._populate(cluster, path)
        if leaving is not None:
            self._set_aside(leaving, whole, path)
        people = {"groups"} if isinstance(document.data.get("groups"), list) else set()  # not Ansible's groups of hosts
        if document.data.keys() & {"compose", "groups", "keyed_groups"} - people:
            # Read again by Ansible, which marks their values as templates.
            options = loader.load_from_file(path, cache="none", trusted_as_template=True)
            self.set_options(direct={key: value for key, value in options.items() if key not in people})
            self._construct(cluster)

    def _leaving(self) -> list[str] | None:
        """The nodes that the playbook remove_nodes is to remove; None in a run of another playbook."""
        found = (self._vars or {}).get(OPTION)
        try:
            return None if found is None else expand(str(found))
        except ValueError as error:
            raise ModelError([f"{OPTION}: {error}"]) from None

    def _without(self, path: str, document: Document, names: list[str]) -> Document:
        """The cluster file without these nodes, edited as the playbook would write it."""
        text = self.loader.get_text_file_contents(path).encode().decode()  # YAML's parser takes no subclass of str
        changes = edits(document.file, document.data, names)
        return read(document.file, edited(document.file, text, changes).encode())

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

    def _beside(self, path: str, name: str) -> Document | Table:
        """A file that the cluster file names as that of its people."""
        file = str(Path(path).parent / name)
        if error := file_error(str(Path(path).parent), name):
            raise ModelError([message(f"{Path(path).name}: people: found {shown(name)}, {error}")])
        return read_table(name, self.loader.get_text_file_contents(file)) if is_table(name) else self._document(file)

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

    def _construct(self, cluster: DeclaredCluster) -> None:
        """Add what the templates of the file ask for, host by host."""
        compose, groups, keyed_groups, strict = map(self.get_option, ("compose", "groups", "keyed_groups", "strict"))
        for host in dict.fromkeys(host for hosts in cluster.groups.values() for host in hosts):
            variables: dict[str, Any] = {**cluster.variables, **self.inventory.get_host(host).get_vars()}
            self._set_composite_vars(compose, variables, host, strict)
            variables.update(self.inventory.get_host(host).get_vars())
            self._add_host_to_composed_groups(groups, variables, host, strict, fetch_hostvars=False)
            self._add_host_to_keyed_groups(keyed_groups, variables, host, strict, fetch_hostvars=False)
