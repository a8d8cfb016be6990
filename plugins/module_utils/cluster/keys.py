# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of the cluster file's keys: a record for each top-level key (docs/design/new-key.md).

It imports nothing, so that everything that follows from a key can read it. Rules about the value of a key are in the
other modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Plain = Literal["text", "choice", "number", "flag", "texts"]
Value = Literal[Plain, "cluster_name", "generation", "host", "hostlist", "mapping", "mapping_or_file", "list", "any"]
"""What the value of a key is; `schema.py` has the function that checks it."""

WITH_RULES = ("mapping", "mapping_or_file", "list", "any")
"""Values whose content needs a rule (`key_rules.py`)."""

ANSIBLE_TYPES: Mapping[str, str] = {
    "number": "int",
    "flag": "bool",
    "texts": "list",
    "generation": "int",
    "mapping": "dict",
    "mapping_or_file": "raw",
    "list": "list",
    "any": "raw",
}
"""Ansible's type of an option with such a value; all others are `str`."""

SLURM_HOSTS = ("controllers", "database", "login", "compute")
"""The hosts with commands or daemons of Slurm: all of them ask slurmctld, and slurmdbd for accounting."""

PLUGIN = "gpucluster.slurm.cluster"

PROFILES = ("standard", "strict")
"""Values of the key `profile`, the usual one first (`decisions/known/whole_cluster.py`)."""

NEWEST_GENERATION = 2
"""The last generation of the defaults (docs/design/defaults.md)."""


def hosts_in(value: Any) -> Any:
    """The hosts in the value of a key that names servers: the value itself, or its key `host`."""
    return value.get("host") or "" if isinstance(value, Mapping) else value


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each in one line."""
    return [" ".join(part.split()) for part in text.split("\n\n")]


@dataclass(frozen=True)
class KeyVariable:
    """The shared variable of a key, with its default and its documentation in role slurm."""

    name: str
    description: str = ""
    """In Ansible's markup, with an empty line between paragraphs. Without it, the first paragraph of the key's."""
    default: Any = None
    """If it is not that of the key."""
    type: str = ""
    """Ansible's type, if it is not that of the key."""
    elements: str = ""
    """Ansible's type of the elements of a list, if it is not that of the key."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The argument spec of its elements."""
    grows: bool = False
    """Whether it grows with the cluster, so that only the controllers have its value."""
    of_site: bool = False
    """Whether a cluster file without the key leaves it to group_vars."""


@dataclass(frozen=True)
class KeyPort:
    """A port on which the hosts of a key listen for other hosts."""

    variable: str
    """The variable of the role that sets the port."""
    clients: tuple[str, ...]
    """Who may connect: names of groups of hosts in `firewall_plans.py`."""


@dataclass(frozen=True)
class ClusterKey:
    """A top-level key of the cluster file."""

    name: str
    value: Value
    description: str
    """In Ansible's markup, with an empty line between paragraphs."""
    meaning: str = ""
    """Its row in docs/admin/cluster-file.md, in Markdown. A key without one is in the row of the next key."""
    required: bool = False
    default: Any = None
    version_added: str = ""
    choices: tuple[str, ...] = ()
    variable: KeyVariable | None = None
    group: str = ""
    """The group of the hosts that the key names, a child of slurm_cluster."""
    roles: tuple[str, ...] = ()
    """Roles with variables: they run on the hosts of the group, or else on hosts of the whole cluster."""
    port: KeyPort | None = None
    removal: str = ""
    """What a person does before a host of the key can be removed from the cluster."""

    @property
    def type(self) -> str:
        """Ansible's type of the option."""
        return ANSIBLE_TYPES.get(self.value, "str")

    @property
    def elements(self) -> str:
        """Ansible's type of the elements of a list."""
        return "str" if self.value == "texts" else "dict"

    @property
    def allowed(self) -> list[str]:
        """The choices, for Ansible also the default if that is an empty text: the key is not there."""
        return [*([""] if self.choices and self.default == "" else []), *self.choices]

    @property
    def variable_default(self) -> Any:
        """The default of its variable; None: the variable is required."""
        own = self.variable.default if self.variable else None
        return self.default if own is None else own


KEYS = (
    ClusterKey(
        "plugin",
        "choice",
        "The name of this plugin.",
        meaning="always `gpucluster.slurm.cluster`",
        required=True,
        choices=(PLUGIN,),
    ),
    ClusterKey(
        "name",
        "cluster_name",
        "The name of the cluster, in lower case.",
        meaning="the name of the cluster: lower case letters, digits, `.`, `-` and `_`",
        required=True,
        variable=KeyVariable("slurm_cluster_name"),
    ),
    ClusterKey(
        "controllers",
        "hostlist",
        """
        A hostlist. The first host is the primary controller, the next ones take over from it.

        Several controllers need C(StateSaveLocation) in O(slurm_conf), an absolute path on a file system that
        all of them mount. Each run checks that they share this directory (role
        P(gpucluster.slurm.slurmctld#role)).
        """,
        meaning="a hostlist; the first host is the primary controller, the others are standbys",
        required=True,
        variable=KeyVariable(
            "slurm_controllers",
            "Host names of the controllers. The first is primary, the next ones take over.",
            default="{{ groups['slurm_controller'] | default([]) }}",
            type="list",
            elements="str",
        ),
        group="slurm_controller",
        roles=("slurmctld",),
        removal="take it out of this key first, which needs another host, and run site.yml",
    ),
    ClusterKey(
        "database",
        "host",
        "The host of MariaDB and slurmdbd. Without it the cluster has no accounting.",
        meaning="the host of MariaDB and slurmdbd; a cluster without it has no accounting",
        variable=KeyVariable(
            "slurm_database",
            default="{{ groups['slurm_database'] | default([]) | first | default('') }}",
        ),
        group="slurm_database",
        roles=("mariadb", "slurmdbd"),
        removal="move the database first: restore a backup on another host (docs/admin/recovery.md)",
    ),
    ClusterKey(
        "database_server",
        "mapping",
        """
        A server of MariaDB or MySQL that others run, for slurmdbd on the host C(database), with these keys.
        Without it, the collection installs MariaDB there.

        C(host), the name or the address of the server.

        C(port), its port; the default is 3306.

        C(user), the user with all rights on the database; the default is V(slurm). The password is in the file
        C(slurmdbd_storage_pass) of C(slurm_secrets_dir), which may be encrypted with ansible-vault.

        C(name), the name of the database; the default is V(slurm_acct_db).

        C(ca), a file next to this file with the certificate that has signed that of the server. With it, the
        connection has TLS.
        """,
        meaning="a [database server that others run](accounting.md#a-database-server-of-others)",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_database_server"),
    ),
    ClusterKey(
        "login",
        "hostlist",
        "A hostlist of the login nodes, which have the client commands.",
        meaning="a hostlist of the hosts with the client commands",
        group="slurm_login",
        roles=("slurm_client",),
        removal="remove it from this key first, and run site.yml",
    ),
    ClusterKey(
        "registry",
        "host",
        "The host of a registry of container images, as role C(registry) documents it.",
        meaning="the host of a [registry of container images](../../roles/registry/README.md)",
        variable=KeyVariable(
            "slurm_registry",
            default="{{ groups['slurm_registry'] | default([]) | first | default('') }}",
        ),
        group="slurm_registry",
        roles=("registry",),
        port=KeyPort("registry_port", SLURM_HOSTS),
        removal="give another host the registry first, and run site.yml",
    ),
    ClusterKey(
        "monitoring",
        "any",
        """
        The host that measures the cluster with Prometheus, or a mapping with these keys. Without it, nothing is
        measured.

        C(host), the host of Prometheus and alertmanager.

        C(retention), how long Prometheus keeps values, such as V(30d), the default.

        C(readers), addresses, networks and names in DNS that may open node-exporter, Prometheus and alertmanager, also
        without O(firewall). By default only hosts of the cluster that need them may.

        C(receivers), a file next to this file with the C(route) and the C(receivers) of alertmanager. Without it,
        alerts are sent to nobody.

        C(users_and_accounts), whether there are values for each user and account; the default is V(false).

        C(targets_only), V(true) for a site with its own Prometheus. The hosts have the exporters, and the control
        host has the files for Prometheus next to this file, in C(my.monitoring) for C(my.cluster.yml). It excludes
        C(host), C(retention) and C(receivers).
        """,
        meaning="[metrics, alerts and dashboards](monitoring.md): the host of Prometheus, or a mapping",
        version_added="0.2.0",
        variable=KeyVariable("slurm_monitoring", default={}, type="dict"),
        group="slurm_monitoring",
        roles=("slurm_metrics",),
        removal="give another host the monitoring first, and run site.yml",
    ),
    ClusterKey(
        "report",
        "any",
        """
        The host that serves a page about the cluster, or a mapping with these keys: a controller or a login host. The
        playbook C(gpucluster.slurm.report) writes the page without this key.

        C(host), the host.

        C(readers), addresses, networks and names in DNS outside of the cluster that may open the page, where
        O(firewall) is there.

        C(password_file), a file next to this file with the users and their passwords, as htpasswd(1) writes it, mode
        0600. Then both pages need a login.

        C(proxy), a proxy of the site that knows the users, in place of C(password_file): its C(address), from which
        alone requests are taken, and the C(header) in which it names the user.

        C(administrators), users of C(password_file) or C(proxy) who may open the page for administrators. Without
        them it is not served.

        C(dashboards), the address of dashboards of the site, to which the page for administrators has a link.
        """,
        meaning="[a page about the cluster](report.md): the host that serves it, or a mapping",
        version_added="0.2.0",
        variable=KeyVariable("slurm_report", default={}, type="dict"),
        group="slurm_report",
        roles=("slurm_report",),
        port=KeyPort("slurm_report_port", ("controllers", "login")),
        removal="give another host the page first, and run site.yml",
    ),
    ClusterKey(
        "rest",
        "any",
        """
        The host of slurmrestd, by which programs speak to Slurm over HTTPS with tokens of their users, or a mapping
        with these keys: a controller or a login host.

        C(host), the host.

        C(clients), addresses, networks and names in DNS outside of the cluster from which programs come, where
        O(firewall) is there.

        C(max_token_lifespan), the longest life of a token that users make, in seconds; the default is V(86400).
        """,
        meaning="[Slurm's REST interface](rest.md) for programs: the host of slurmrestd, or a mapping",
        version_added="0.2.0",
        variable=KeyVariable("slurm_rest", default={}, type="dict"),
        group="slurm_rest",
        roles=("slurmrestd",),
        port=KeyPort("slurmrestd_port", ("controllers", "login", "compute")),
        removal="give another host the key rest first, and run site.yml",
    ),
    ClusterKey(
        "unmanaged",
        "hostlist",
        """
        A hostlist of nodes that Slurm has and that no play changes, such as nodes of a cluster that is taken
        over one by one (playbook C(gpucluster.slurm.adopt)). They are not in the group C(slurm_compute).

        Nodes with C(State=CLOUD) or C(State=FUTURE) are left alone without this key.
        """,
        meaning="""
        a hostlist of nodes that Slurm has and that no playbook changes, such as those of a cluster that is
        [taken over](adopt.md) one by one. Nodes with `State: CLOUD` or `FUTURE` are left alone without it
        """,
        removal="no playbook changes such a node: remove it from this key, and take it over with site.yml first",
    ),
    ClusterKey(
        "taken_over",
        "list",
        """
        Keys of this file, such as C(slurm_conf.StateSaveLocation), with a value that a new cluster could not have and
        with which this one ran when it was taken over (playbook C(gpucluster.slurm.adopt), which writes this list).

        Each run warns about them, and the value stays. Without the key in this list, the value is refused.
        """,
        meaning="""
        keys with values [that a new cluster could not have](adopt.md#values-that-a-new-cluster-could-not-have), which
        stay since the cluster was taken over with them; each run warns about them
        """,
        version_added="0.2.0",
        variable=KeyVariable("slurm_taken_over", default=[], elements="str"),
    ),
    ClusterKey(
        "hardware",
        "mapping",
        """
        Machine types by name.

        Each has C(sockets) (of all boards), C(cores_per_socket), C(threads_per_core) and C(real_memory) (MiB),
        optionally C(boards), C(tmp_disk) (MiB), C(cpus), C(gres), C(fabric), and any parameter of a C(NodeName)
        line.

        C(cpus), the CPUs that Slurm counts, if they are the cores or the sockets. By default they are all
        threads.

        C(gres) is a list of generic resources. Each entry has a C(name), C(gpu) or another one, and optionally:

        C(type), the type that jobs request, such as V(h100). On a machine, either all entries with the same
        C(name) have a type, or none.

        C(file), the device files, a hostlist. GPUs need it, or C(autodetect).

        C(count), their number. By default the number of files in C(file), or 1 without C(file).

        C(cores), Slurm's indexes of the nearest cores, such as V(0-55). From Slurm 24.11 on they must be all
        cores of a socket or of several sockets, from 25.11 on those of one socket or of the whole machine.

        C(links), the connections of one device to all devices, such as V([-1, 16]).

        C(flags), a list out of C(CountOnly), C(explicit), C(one_sharing), C(all_sharing), C(nvidia_gpu_env),
        C(amd_gpu_env), C(intel_gpu_env), C(opencl_env) and C(no_gpu_env). The flags of a C(gpu) must include an
        environment, since Slurm sets none if there are other flags.

        C(autodetect), the method by which Slurm finds the GPUs of a node and their files, cores and links,
        C(nvml), C(nvidia) (Slurm 24.11 or later), C(rsmi) (GPUs of AMD) or C(nrt). C(oneapi) is refused, since
        no machine with GPUs of Intel has been seen. C(type) and C(count) are the GPUs that must be found. The
        type is a part of the detected name, such as V(h100) of C(nvidia_h100_80gb_hbm3). Not for nodes with
        C(State=CLOUD).

        C(mig), the layout of each GPU of the entry, a mapping of profiles to numbers of instances, such as
        V({1g.10gb: 7}), with C(autodetect=nvml). C(count) is the number of GPUs, not of instances.

        Slurm counts MIG instances by the type C(TYPE_PROFILE). Their C(type) must be the end of the GPU's name,
        or the end of the part before the first hyphen of the name, as V(a100) for C(NVIDIA A100-SXM4-80GB), but
        V(h100_80gb_hbm3) for C(NVIDIA H100 80GB HBM3). Slurm 22.05 names a profile by the rounded size of its
        memory, V(3g.39gb) for C(3g.40gb).

        C(shard) and C(mps) are shares of the machine's GPUs. A machine can have one of the two. They have a
        C(count), distributed over all GPUs, or over those in C(file), and optionally C(flags).

        C(Gres), generic resources that C(gres) cannot express, such as V(lustre:no_consume:500G), is added to
        the C(Gres) of the C(NodeName) line as it is. The collection does not measure or validate them.

        C(gres_conf), their lines of C(gres.conf) as they are, without C(NodeName), such as V([Name=nic
        Count=2]).

        C(fabric) has C(ports), a list of the ports of network adapters that are connected. The health check
        drains a node that lacks one. Each entry has C(device), a hostlist of adapters in C(/sys/class/infiniband)
        such as V(mlx5_[0-3]), optionally C(port), by default 1, and C(link), V(InfiniBand) or V(Ethernet), and
        C(rate) in Gb/s.
        """,
        meaning="machine types by name, see [hardware](hardware.md)",
        default={},
        variable=KeyVariable(
            "slurm_hardware_types",
            """
            Machine types by name, with C(sockets), C(cores_per_socket), C(threads_per_core), C(real_memory)
            (MiB) and C(gres).
            """,
            grows=True,
        ),
    ),
    ClusterKey(
        "nodes",
        "list",
        """
        The compute nodes, a list of entries with C(hosts) (a hostlist), C(hardware) (a machine type),
        optionally C(address) (a hostlist of the same length), and any parameter of a C(NodeName) line.

        An IPv6 address needs V(EnableIPv6) in C(CommunicationParameters) of O(slurm_conf). Several nodes can
        have one address if they have a C(Port).

        The hardware V(detected) is measured and kept next to this file, in C(my.hardware.yml) for
        C(my.cluster.yml), which has the keys C(hardware) and C(nodes) of this file. Until the measurement, the
        hosts are in the inventory, but have no node lines.
        """,
        meaning="the compute nodes: hosts, machine type, addresses, and any parameter of a `NodeName` line",
        required=True,
        variable=KeyVariable(
            "slurm_nodes",
            """
            Slurm's nodes, a list of mappings with C(hosts) (a hostlist), C(hardware), C(address) and any
            C(NodeName) parameter.
            """,
            default=[],
            grows=True,
        ),
    ),
    ClusterKey(
        "partitions",
        "list",
        """
        A list of entries with C(name), C(nodes), optionally C(default) (a boolean, true for one of them), and
        any parameter of a C(PartitionName) line.

        C(nodes) is V(ALL), or a list of hosts of O(nodes), of node sets (C(NodeSet) in O(slurm_conf)) and of
        Slurm's functions, such as V(switch{s1}). It can be empty. A host is in the group of the partition, and
        is validated, unless only slurmctld knows that it belongs to the partition, as it does for a switch and
        for dynamic nodes.
        """,
        meaning="the partitions: name, nodes, and any parameter of a `PartitionName` line",
        required=True,
        variable=KeyVariable(
            "slurm_partitions",
            """
            Partitions, a list of mappings with C(name), C(nodes) (a hostlist, which can have node sets of
            C(slurm_conf) and Slurm's functions, or C(ALL)), C(default) and any C(PartitionName) parameter.
            """,
            default=[],
            grows=True,
        ),
    ),
    ClusterKey(
        "addresses",
        "mapping",
        "Addresses of hosts that are in no entry of O(nodes), a mapping of hostlists to hostlists of the same length.",
        meaning="the addresses of hosts that are not compute nodes",
        default={},
        variable=KeyVariable(
            "slurm_addresses",
            "Addresses of the hosts, a list of mappings with the hostlists C(hosts) and C(address).",
            default=[],
            type="list",
            grows=True,
        ),
    ),
    ClusterKey(
        "further_addresses",
        "list",
        """
        Further names of hosts with their IP addresses, such as those of InfiniBand, and the one of a login host
        outside of the cluster. A list of entries with the hostlists C(hosts), C(names) and C(address) of the same
        length.

        They are in C(/etc/hosts) and among the known hosts of ssh. The firewall takes the addresses for those of
        the hosts.
        """,
        meaning="further names of hosts with [addresses of their own](#several-addresses), such as those of InfiniBand",
        default=[],
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_further_addresses",
            """
            Further names of hosts with their addresses, a list of mappings with the hostlists C(hosts), C(names) and
            C(address).
            """,
            grows=True,
        ),
    ),
    ClusterKey(
        "packages",
        "any",
        """
        Where Slurm's packages come from. V(distribution) installs those of Debian or Ubuntu, V(schedmd) those
        of SchedMD from a repository that the hosts already have.

        A mapping with C(repository) and C(key) adds this repository with SchedMD's packages. C(repository) is
        its URL, suite and components, as in sources.list(5). C(key) is a file in ASCII armor, or a mapping with
        C(url) and C(sha256).

        A mapping with C(files) installs these packages of SchedMD. Each entry has C(url) and C(sha256), or
        C(file). The files keep their names, such as C(slurm-smd_25.11.2-1_amd64.deb), and have one version and
        one architecture.

        Paths are relative to the directory of this file. The packages are held (C(apt-mark hold)), and a host that has
        Slurm from another source is refused.
        """,
        meaning="[where Slurm's packages come from](#slurms-packages)",
        default="distribution",
        variable=KeyVariable("slurm_packages"),
    ),
    ClusterKey(
        "users",
        "list",
        """
        The people of the cluster, who have the same ids on every host. A list of entries with C(name) and
        C(uid), and optionally the following keys.

        C(gid), the primary group, by default the uid. Its name is that of a group of people, or else that of
        the user.

        C(groups), a list of further groups of people.

        C(full_name), C(home) (by default C(/home/NAME)) and C(shell) (by default C(/bin/bash)).

        C(keys), a list of public SSH keys, lines of C(authorized_keys) with or without options.

        C(state), V(present) (the default), V(suspended) or V(absent).

        C(jobs), whether the jobs of a suspended user V(stay) (the default) or V(end).

        C(account), C(accounts) and C(limits), which make an entry of C(users) in O(accounting), C(account) its
        C(DefaultAccount) and C(limits) a mapping of its limits.

        The groups of people are the list O(groups) of entries with C(name) and C(gid). A mapping of that name
        is Ansible's own option for groups of hosts; a file has one of both.
        """,
        version_added="0.2.0",
    ),
    ClusterKey(
        "people",
        "any",
        """
        Where the people are instead of in O(users).

        The name of a CSV file next to this file, such as V(people.csv), has the users. The first line names the
        columns, which are the keys of O(users). Values of a list are separated by semicolons, and the column of
        a limit is C(limits.NAME), such as C(limits.MaxJobs). The groups are still in O(groups).

        The name of a YAML file, such as V(people.yml), has a mapping with C(groups) and C(users).

        V(directory) says that hosts know the people of LDAP or AD already. Nothing is created then.
        """,
        meaning="""
        the [people](people.md), who have the same ids on every host: two lists (`users`, `groups`), or the
        file that has them, or `directory`
        """,
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_people",
            """
            The people of the cluster with every key, as the inventory plugin
            P(gpucluster.slurm.cluster#inventory) or the filter P(gpucluster.slurm.people#filter) makes it.
            If empty, the accounts of people are not the collection's.

            C(source) is V(list), or V(directory) for a site whose hosts know the people of LDAP or AD.
            C(groups) is a list of mappings with C(name) and C(gid). C(users) is a list of mappings with
            C(name), C(uid), C(gid), C(groups), C(full_name), C(home), C(shell), C(keys), C(state) and
            C(jobs).
            """,
            default={},
            type="dict",
            grows=True,
        ),
        roles=("people",),
    ),
    ClusterKey(
        "storage",
        "list",
        """
        The file systems that hosts mount, a list of entries with C(path) and C(type), any type of mount(8) such
        as V(nfs), V(lustre), V(xfs), V(tmpfs) or V(gcsfuse).

        C(source) is what is mounted, such as V(nas.example.org:/vol/home). Instead, C(server) names a host of
        this cluster, which exports C(export) by NFS; the default is the same directory as C(path).

        C(hosts) is a hostlist of those that mount it, which can have the names V(all) (the default), V(login),
        V(compute) and V(controllers). C(options) are those of mount(8).

        C(packages) brings the file system, a list of entries with C(name), with C(url) and C(sha256), or with
        C(file).

        With C(homes), the homes of the users below C(path) are created once. With C(scratch), C(path) is Slurm's
        C(TmpFS).

        With the type V(autofs), which has C(path) and C(hosts) only, the automounter of the site mounts there.
        """,
        meaning="the file systems that hosts mount, with [homes, shared data and scratch](storage.md)",
        default=[],
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_storage",
            """
            File systems that hosts mount, the directories that hosts export, and where homes and scratch
            are. Roles P(gpucluster.slurm.storage#role) and P(gpucluster.slurm.nfs_server#role) document
            them.
            """,
            grows=True,
            options={
                "path": {
                    "type": "path",
                    "required": True,
                    "description": "Directory on which it is mounted.",
                },
                "type": {
                    "type": "str",
                    "required": True,
                    "description": """
                    Type of the file system, such as V(nfs), V(lustre), V(xfs), V(tmpfs) or
                    V(gcsfuse).
                    """,
                },
                "source": {
                    "type": "str",
                    "description": "What is mounted, such as V(nas.example.org:/vol/home) or V(/dev/nvme0n1).",
                },
                "server": {
                    "type": "str",
                    "description": "Host of this cluster that exports it, instead of C(source).",
                },
                "export": {
                    "type": "path",
                    "description": "Directory on the C(server). The default is C(path).",
                },
                "options": {
                    "type": "list",
                    "elements": "str",
                    "description": "Options of mount(8).",
                },
                "hosts": {
                    "type": "str",
                    "description": """
                    Hosts that mount it, a hostlist, which can have V(all) (the default), V(login),
                    V(compute) and V(controllers).
                    """,
                },
                "packages": {
                    "type": "list",
                    "elements": "dict",
                    "description": """
                    Packages that bring the file system, each a C(name) in a repository, a C(url)
                    with its C(sha256), or a C(file) on the control host, relative to
                    O(slurm_cluster_dir).
                    """,
                },
                "homes": {
                    "type": "bool",
                    "description": "Whether the homes of users are created here.",
                },
                "scratch": {
                    "type": "bool",
                    "description": "Whether this is C(TmpFS) of slurm.conf.",
                },
            },
        ),
        roles=("storage", "nfs_server"),
    ),
    ClusterKey(
        "accounting",
        "mapping_or_file",
        """
        The policy for accounting, with C(limits) of the cluster, C(qos), C(accounts), C(users), C(reservations)
        and C(purge), as role C(slurm_accounting) documents them. It needs a O(database). With a database,
        slurmctld enforces limits. C(gpu_hours), a number, can stand wherever C(GrpTRESMins) can.
        The people of C(groups), a list of names in O(groups) in an account, are users of the account.

        The name of a YAML file next to this file, such as V(accounting.yml), has the same keys.
        """,
        meaning="the policy for [accounts, users and limits](accounting.md), or the YAML file that has it",
        default={},
        roles=("slurm_accounting",),
    ),
    ClusterKey(
        "access",
        "mapping",
        """
        Who may log in where, with these keys. Without it, nobody's access is changed.

        C(administrators), a list of groups whose members may log in everywhere.

        C(compute), who else may log in to hosts that are compute nodes only, V(job) (users with a job there,
        the default), V(administrators) (nobody else) or V(all). It does not concern hosts that are also login
        hosts, controllers or the database. V(job) needs C(PrologFlags) with C(contain), C(proctrack/cgroup) and
        C(task/cgroup), as they are without O(slurm_conf).

        C(between_nodes), V(host_based) (users come from login hosts and compute nodes to compute nodes without
        a key) or V(none) (the default). V(host_based) needs the IP address of each of these hosts.

        C(login_limits), limits of the processes of each user on login hosts, C(MemoryMax), C(MemoryHigh),
        C(TasksMax), C(CPUQuota), C(CPUWeight) and C(IOWeight), as in systemd.resource-control(5). On a login
        host that is also a compute node, a controller or the database, they are halved.
        """,
        meaning="[who may log in where](access.md), ssh between nodes, limits on login hosts",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_access"),
        roles=("access",),
    ),
    ClusterKey(
        "backup",
        "mapping",
        """
        Where and when the cluster is saved, with these keys. Without it, no backup is made.

        C(target), a repository of restic, such as V(/srv/backup), a directory that the database host and the
        controllers mount, or V(sftp:user@host:/srv/backup).

        C(times), a calendar event as in systemd.time(7); the default is V(daily).

        C(keep), how many backups stay by interval, C(last), C(hourly), C(daily), C(weekly), C(monthly) and
        C(yearly). The default is 7 daily, 5 weekly and 12 monthly ones.

        C(max_age), the hours after which a run reports the last backup as old; the default is 48.
        """,
        meaning="[where and when the cluster is saved](recovery.md)",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_backup"),
        roles=("backup",),
    ),
    ClusterKey(
        "repair",
        "mapping",
        """
        Cases of nodes that fail, with these keys.

        C(mode), V(observe), V(reboot) or V(full). With V(observe) a case has the evidence of a node that fails, and
        says what would mend it; nothing is done to nodes or in Slurm. With V(reboot) nodes are also drained, booted,
        measured and returned; jobs that cannot go on are requeued. With V(full) nodes also reset their GPUs, mount
        file systems again and make room, and with the key C(machines) they are switched off and on.

        C(mail), the address that gets a mail when a case opens, needs a person, or ends. It needs the key C(mail).

        C(quiet_hours), hours of the day in which nothing begins, such as V(22-6).

        C(least_nodes), how many nodes stay in service, by partition.
        """,
        meaning="[cases of nodes that fail](repair.md)",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_repair"),
        roles=("slurm_repair",),
    ),
    ClusterKey(
        "machines",
        "mapping",
        """
        How the controllers start, stop and ask the machines of nodes (C(slurm-machine)), with these keys.

        C(by), V(ipmi), V(redfish), or V(program) for a program of the site.

        C(address), the address of the BMC of a node, such as V({host}-bmc), with V({host}) in the place of the name of
        the node. A port may follow. V(ipmi) and V(redfish) need it.

        C(addresses), addresses of single nodes, which have another one.

        C(user), the name with which the controllers log in to a BMC, which V(ipmi) and V(redfish) need. The password is
        in the file C(machines_password) of C(slurm_secrets_dir), which may be encrypted with ansible-vault.

        C(ca), a file next to this file with the certificates that V(redfish) trusts. Without it, these are those of
        the system.

        C(verify), V(false) if V(redfish) checks no certificates; the default is V(true).

        C(program), a script next to this file, which the controllers call with V(start), V(stop) or V(state), and the
        name of a node. With V(state) it prints V(on) or V(off).
        """,
        meaning="[how machines are started and stopped](machines.md)",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_machines"),
    ),
    ClusterKey(
        "mail",
        "mapping",
        """
        Where mails about jobs (C(--mail-type)) go, with these keys. Without it, Slurm sends no mail.

        C(relay), a mail server, optionally with its port, such as V(mail.example.org:587).

        C(sender), the address that mails come from.

        C(domain), the domain of users whose address Slurm does not know; the default is that of C(sender).

        C(tls), V(none), V(starttls) or V(tls); the default is V(none), and V(starttls) with C(user).

        C(user), the name with which the controllers log in to the relay. The password is in the file
        C(mail_password) of C(slurm_secrets_dir), which may be encrypted with ansible-vault.
        """,
        meaning="[the relay for mails about jobs](prologs.md#mail)",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_mail"),
    ),
    ClusterKey(
        "prologs",
        "list",
        """
        Scripts that run as root on each node of a job before it starts, a list in their order. They need Slurm
        23.11 or later, which sends them to the nodes.

        C(name) is in the log and in the reason of a drained node. C(file) is a script next to this file;
        C(script) is its text instead.

        The script runs for jobs that meet all of these conditions. C(partitions) and C(hardware) are lists of
        names, C(gpus) is whether the job has GPUs on the node, and C(min_nodes) is the least number of nodes of
        the job.

        C(time_limit) are the seconds after which the script is ended; the default is 60.

        C(on_failure) is V(drain) (the default), which drains the node with the name of the script as the reason
        and requeues the job, or V(log), which goes on.

        C(environment) are variables of the script, which are no secret.
        """,
        default=[],
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_prologs",
            """
            Scripts that run on each node of a job before it starts, as the key C(prologs) of the cluster
            file (inventory plugin P(gpucluster.slurm.cluster#inventory)), but with C(script), the text, and
            without C(file).
            """,
            grows=True,
        ),
    ),
    ClusterKey(
        "epilogs",
        "list",
        """
        Scripts that run as root on each node of a job after it has ended, with the keys of O(prologs).

        All of them run, also after one that has failed.
        """,
        meaning="[scripts before and after each job](prologs.md#prologs-and-epilogs) on its nodes",
        default=[],
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_epilogs",
            "Scripts that run on each node of a job after it has ended, as C(slurm_prologs).",
            grows=True,
        ),
    ),
    ClusterKey(
        "private_tmp",
        "text",
        """
        A directory on the compute nodes, such as V(/local/jobs), in which each job gets a C(/tmp) of its own.
        The job also has C(/dev/shm) of its own. Both are removed when the job ends.
        """,
        meaning="[a `/tmp` for each job](prologs.md#a-private-tmp), in this directory of the nodes",
        version_added="0.2.0",
        variable=KeyVariable("slurm_private_tmp", default=""),
    ),
    ClusterKey(
        "profile",
        "choice",
        """
        V(strict) has the defaults that a security officer asks for. No jobs of root, users see their own jobs
        and accounts only, and the daemons of Slurm use the addresses of the cluster only.

        With V(standard) the defaults are those that are convenient.
        """,
        meaning="`strict` has [the defaults that a security officer asks for](strict.md)",
        default="standard",
        version_added="0.2.0",
        choices=PROFILES,
        variable=KeyVariable("slurm_profile"),
    ),
    ClusterKey(
        "defaults",
        "generation",
        """
        The generation of the collection's own values for parameters of Slurm. A release of the collection can have a
        new generation, and a cluster keeps its values until this number is raised.

        C(site.yml --check) shows the parameters that the newest generation changes, with the reasons.
        """,
        meaning="the generation of [the collection's values](defaults.md); without it 1",
        default=1,
        version_added="0.2.0",
        variable=KeyVariable("slurm_defaults"),
    ),
    ClusterKey(
        "firewall",
        "mapping",
        """
        The firewall of all hosts, with these keys. Without it, the collection loads no firewall.

        C(ssh), from which addresses, networks and names in DNS people and the control host come by ssh, such as
        V([10.0.0.0/8, admin.example.org]), or V([any]). It is required. C(ssh_port) is the port of sshd; the default
        is 22.

        C(compute_networks), networks in which only compute nodes have addresses besides those in this file, such
        as those of InfiniBand. Compute nodes speak freely with each other.

        C(open), further services of hosts, a list of entries with C(hosts) (a hostlist, which can have V(all),
        V(login), V(compute) and V(controllers)), C(ports), C(protocol) (V(tcp), the default, or V(udp)), and
        C(from), a list of the same names, of addresses, networks and names in DNS, or V(any).

        Each run resolves names on the control host, also those of hosts without an IP address in this file. All of
        their addresses are let in.
        """,
        meaning="[who may connect to which port](firewall.md) of the hosts",
        default={},
        version_added="0.2.0",
        variable=KeyVariable("slurm_firewall"),
        roles=("firewall",),
    ),
    ClusterKey(
        "slurm_conf",
        "mapping",
        """
        Any parameters of C(slurm.conf) that are not derived from other keys of this file.

        They replace the values that this collection sets; V(null) removes a parameter.
        """,
        default={},
        variable=KeyVariable(
            "slurm_conf",
            """
            Parameters of slurm.conf. They win over the collection's own values; V(null) removes one.
            Several controllers need C(StateSaveLocation), an absolute path on a file system that all of
            them mount (role P(gpucluster.slurm.slurmctld#role)).
            """,
        ),
    ),
    ClusterKey(
        "cgroup_conf",
        "mapping",
        "Any parameters of C(cgroup.conf), as in O(slurm_conf).",
        meaning="any parameter of slurm.conf and of cgroup.conf, instead of [the collection's values](defaults.md)",
        default={},
        variable=KeyVariable(
            "slurm_cgroup_conf",
            "Parameters of cgroup.conf. They win over the collection's own values; V(null) removes one.",
        ),
    ),
    ClusterKey(
        "slurm_files",
        "mapping",
        """
        Further files of Slurm, a mapping of names to texts. Names are those that Slurm knows, such as
        C(topology.conf), C(job_submit.lua) and C(mpi.conf), and those of a C(Prolog) or C(Epilog) in
        O(slurm_conf) without a path, which Slurm 23.11 and later sends to the nodes.

        The controllers have the files, and slurmctld sends them to the other hosts. A file that leaves the
        mapping leaves the hosts.

        To keep a text in a file of its own, set the variable in C(group_vars) with a lookup.
        """,
        meaning="[further files of Slurm](configuration.md#further-files), such as topology.conf and job_submit.lua",
        default={},
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_files",
            """
            Further files of Slurm next to slurm.conf, a mapping of names to texts, as in the cluster file
            (inventory plugin P(gpucluster.slurm.cluster#inventory)).

            A lookup keeps a text in a file of its own, such as the lookup C(ansible.builtin.file) of
            C(job_submit.lua) in O(slurm_cluster_dir).
            """,
            grows=True,
        ),
    ),
    ClusterKey(
        "plugstack",
        "list",
        """
        SPANK plugins, a list with an entry for each line of C(plugstack.conf), in their order. It is the
        variable C(slurm_plugstack) of role P(gpucluster.slurm.slurm#role).

        C(plugin) is the path of the plugin, or its name in Slurm's C(PluginDir).

        C(arguments) is a list of its arguments.

        C(required), whether jobs fail without the plugin; the default is V(false).

        The site installs the plugins itself on login hosts and compute nodes.
        """,
        meaning="""
        SPANK plugins, one entry for each line of plugstack.conf: `{plugin: PATH, arguments: [...], required:
        BOOL}`
        """,
        version_added="0.2.0",
        variable=KeyVariable(
            "slurm_plugstack",
            """
            SPANK plugins, one entry for each line of plugstack.conf, in their order. The controllers have
            the file and the other hosts fetch it. The site must install the plugins themselves on login
            hosts and compute nodes. Role P(gpucluster.slurm.pyxis#role) adds its own line.
            """,
            default=[],
            of_site=True,
            options={
                "plugin": {
                    "type": "str",
                    "required": True,
                    "description": "Path of the plugin, or its name in Slurm's C(PluginDir).",
                },
                "arguments": {
                    "type": "list",
                    "elements": "str",
                    "default": [],
                    "description": "Arguments of the plugin, such as C(runtime_path=/run/pyxis).",
                },
                "required": {
                    "type": "bool",
                    "default": False,
                    "description": """
                    Whether jobs fail without the plugin. If V(true), a plugin that is missing or
                    was built for another release ends every job and prevents the start of slurmd.
                    If V(false), commands print an error and jobs run.
                    """,
                },
            },
        ),
    ),
)
"""All keys, in the order of the documentation. Those of Ansible's fragment `constructed` are not among them."""

SERVERS = tuple(key for key in KEYS if key.group)
"""The keys that name servers."""

ROLES = tuple(role for key in KEYS for role in key.roles)
"""The roles that belong to a key."""
