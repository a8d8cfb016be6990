# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import ConfigurationError
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.cross_checks import cross_check, whole
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions import slurm_files
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import TemplatedHost
from ansible_collections.gpucluster.slurm.tests.benchmark.large import cluster

ROOT = Path(__file__).parents[5]
EXAMPLES = sorted(ROOT.glob("inventory/*/*.cluster.yml"))

# Some of what Debian 13 installs.
INSTALLED = frozenset(
    (
        *(f"accounting_storage_{name}" for name in ("mysql", "slurmdbd")),
        *(f"auth_{name}" for name in ("munge", "none", "slurm")),
        *(f"cred_{name}" for name in ("munge", "none")),
        *(f"jobacct_gather_{name}" for name in ("cgroup", "linux")),
        *(f"jobcomp_{name}" for name in ("filetxt", "script")),
        *(f"mpi_{name}" for name in ("pmi2", "pmix", "pmix_v5")),
        *(f"sched_{name}" for name in ("backfill", "builtin")),
        *(f"select_{name}" for name in ("cons_tres", "linear")),
        "job_submit_lua",
        "mcs_user",
        *(f"preempt_{name}" for name in ("partition_prio", "qos")),
        *(f"priority_{name}" for name in ("basic", "multifactor")),
    )
)

NODES = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2]\n"
PARTITION = "PartitionName=p Nodes=ALL\n"
GPU = "GresTypes=gpu\nNodeName=n[1-2] NodeAddr=10.0.0.[1-2] Gres="


def verdict(
    slurm_conf: str,
    there: Mapping[str, str] | None = None,
    plugins: frozenset[str] | None = None,
    unresolved: tuple[str, ...] = (),
    started_as: str = "root",
    unwritable: tuple[tuple[str, str], ...] = (),
    version: str = "24.11.5",
    **files: str,
) -> tuple[list[str], list[str]]:
    """The refused and the ignored settings; `gres_conf=` is the text of gres.conf."""
    texts = {"slurm.conf": slurm_conf, **{name.replace("_", "."): text for name, text in files.items()}}
    accounts = {"root": "root", "0": "root", "slurm": "slurm", "64030": "slurm", "munge": "munge", "nobody": "nobody"}
    host = Host(
        (there or {}).get,
        lambda _plugin_dir: plugins,
        {*unresolved}.intersection,
        account=accounts.get,
        started_as={"slurmctld": started_as}.get,
        writes=lambda account, path: (account, path) not in unwritable,
    )
    texts, refusals, remarks = whole(texts, host)
    if refusals:
        return refusals, remarks
    refusals, more = cross_check(texts, host, version)
    return refusals, remarks + more


def refused(slurm_conf: str, **others: Any) -> str:
    """The only refused setting; nothing is ignored."""
    (text,), ignored = verdict(slurm_conf, **others)
    assert ignored == []
    return text


def ignored(slurm_conf: str, **others: Any) -> str:
    """The only ignored setting; nothing is refused."""
    refusals, (text,) = verdict(slurm_conf, **others)
    assert refusals == []
    return text


def right(slurm_conf: str, **others: Any) -> bool:
    """Whether nothing is refused and nothing is ignored."""
    return verdict(slurm_conf, **others) == ([], [])


# -- what the collection itself writes -------------------------------------------------------------------------------


def written(path: Path) -> dict[str, str]:
    """The files that the role slurmctld writes for a cluster file."""
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(path)])
    manager = VariableManager(loader, inventory)
    variables = manager.get_vars(host=inventory.get_host(inventory.groups["slurm_controller"].get_hosts()[0].name))
    variables["hostvars"] = HostVars(inventory, manager, loader)
    defaults = loader.load_from_file(str(ROOT / "roles/slurm/defaults/main.yml"), trusted_as_template=True)
    variables = {**defaults, **variables}
    host = TemplatedHost(variables, Templar(loader, variables=variables), loader)
    return slurm_files.files(host, "24.11") | dict.fromkeys(("slurm-prolog", "slurm-epilog"), "#!/bin/bash\n")


def quiet(files: dict[str, str]) -> bool:
    """Whether nothing is refused or ignored on a host that has exactly the plugins and files that are named."""
    return cross_check(files, Host(files.get, lambda _plugin_dir: INSTALLED, set[str]().intersection), "24.11.5") == (
        [],
        [],
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.parent.name for path in EXAMPLES])
def test_nothing_is_wrong_with_the_files_of_the_collection(path: Path) -> None:
    assert quiet(written(path))


def test_ten_thousand_nodes(tmp_path: Path) -> None:
    path = tmp_path / "large.cluster.yml"
    path.write_text(yaml.safe_dump(cluster(10000)))
    files = written(path)
    assert quiet(files)
    wrong = files["slurm.conf"].replace("Nodes=t4-[0000-", "Nodes=t4-9999,t4-[0000-")
    assert not quiet({**files, "slurm.conf": wrong})


# -- nodes and partitions --------------------------------------------------------------------------------------------


def test_nodes_and_partitions_that_go_together() -> None:
    sets = "NodeSet=fast Nodes=n1\nNodeSet=big Feature=big\n"
    assert right(NODES + sets + "PartitionName=p Nodes=fast,n2 Default=YES\nPartitionName=q Nodes=big Alternate=p\n")
    assert right(
        NODES + 'NodeSet=all Nodes=ALL\nPartitionName=p Nodes=all\nPartitionName=q\nPartitionName=r Nodes=""\n'
    )
    assert right(NODES)
    by_feature = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Feature=a,big\nNodeSet=big Feature=big\n"
    functions = by_feature + "PartitionName=p Nodes=big,feature{a}\nPartitionName=q Nodes=switch{s1,s2},n1\n"
    assert right(functions)
    assert verdict(functions, version="24.05.8")[0][0] == (
        "slurm.conf: PartitionName=p: Nodes: found 'feature{a}', allowed: nodes and nodesets; "
        "Slurm 24.05 has no functions, 24.11 and later do"
    )


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # fatal: Invalid node names in partition p
        (
            "PartitionName=p Nodes=n[2-4]",
            "PartitionName=p: Nodes: found 'n[3-4]', allowed: nodes of slurm.conf",
        ),
        ("PartitionName=p Nodes=ALL,n1", "PartitionName=p: Nodes: found 'ALL', allowed: nodes of slurm.conf"),
        (
            "PartitionName=p Nodes=N1",
            "PartitionName=p: Nodes: found 'N1', allowed: nodes of slurm.conf, did you mean 'n1'?",
        ),
        (
            "NodeSet=fast Nodes=n1\nPartitionName=p Nodes=fats",
            "PartitionName=p: Nodes: found 'fats', allowed: nodes and nodesets of slurm.conf, did you mean 'fast'?",
        ),
        (
            "NodeSet=s Nodes=n1,m9\nPartitionName=p Nodes=s",
            "PartitionName=p: Nodes: found 'm9', allowed: nodes and nodesets of slurm.conf",
        ),
        # A nodeset that is in another one, but before it.
        (
            "NodeSet=inner Nodes=n1\nNodeSet=outer Nodes=inner\nPartitionName=p Nodes=outer",
            "PartitionName=p: Nodes: found 'inner', allowed: nodes and nodesets of slurm.conf",
        ),
        # fatal: Duplicated NodeName n2 in the config file
        ("NodeName=n2 NodeAddr=10.0.0.9", "NodeName: found 'n2' more than once, allowed: one line for each"),
        # fatal: duplicate entry for partition p
        (PARTITION * 2, "PartitionName: found 'p' more than once, allowed: one line for each"),
    ],
)
def test_nodes_and_partitions_that_slurmctld_refuses(lines: str, what: str) -> None:
    assert refused(f"{NODES}{lines}\n").removeprefix("slurm.conf: ") == what


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            "PartitionName=p Default=YES\nPartitionName=q Default=YES",
            "PartitionName=p: Default: found on p, q, allowed: one; Slurm takes the last, 'q'",
        ),
        (
            "PartitionName=main\nPartitionName=q Alternate=mian",
            "PartitionName=q: Alternate: found 'mian', allowed: main, q, did you mean 'main'?",
        ),
        ("DownNodes=n[2-3] State=DOWN", "DownNodes: found 'n3', allowed: nodes of slurm.conf"),
    ],
)
def test_nodes_and_partitions_that_slurmctld_ignores(lines: str, what: str) -> None:
    assert ignored(f"{NODES}{lines}\n").removeprefix("slurm.conf: ") == what


def test_nodes_of_the_topology_that_do_not_exist() -> None:
    # error: WARNING: Invalid hostnames in switch configuration: n9
    topology = "SwitchName=s1 Nodes=n1,n9\nSwitchName=s2 Nodes=n2\nSwitchName=top Switches=s[1-2]\n"
    found = verdict("NodeName=n[1-2] NodeAddr=10.0.0.[1-2]\n", topology_conf=topology)
    assert found == ([], ["topology.conf: SwitchName=s1: Nodes: found 'n9', allowed: nodes of slurm.conf"])


# -- addresses and ports ---------------------------------------------------------------------------------------------


def test_nodes_without_an_address_make_slurmctld_wait() -> None:
    # error: getaddrinfo() failed: Name or service not known, attempt number -4, and so on
    assert verdict("NodeName=n[1-3]\nNodeName=m1 NodeAddr=gone\n", unresolved=("n2", "n3", "gone")) == (
        [
            "slurm.conf: NodeName: found 'n[2-3],gone', allowed: names that have an address on this host; "
            "give these nodes a NodeAddr"
        ],
        [],
    )
    # error: slurm_set_addr: Unable to resolve "m1", after five seconds in which squeue has no answer
    dotted = "NodeName=m1.example.org NodeAddr=10.0.0.1\nNodeName=m2.example.org NodeAddr=10.0.0.2\n"
    assert verdict(dotted, unresolved=("m1",)) == (
        [],
        [
            "slurm.conf: NodeName: found 'm1.example.org', allowed: names whose part before the first dot has an "
            "address on this host, too; slurmctld answers an srun there, and stands still while it looks for 'm1'"
        ],
    )


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=n2 State=CLOUD",
        "NodeName=n2 State=FUTURE",
        "NodeName=n2 NodeAddr=10.0.0.1",
        "NodeName=n2 NodeAddr=fe80::2",
    ],
)
def test_nodes_that_need_no_name(line: str) -> None:
    assert verdict(f"{line}\n", unresolved=("n2", "10.0.0.1", "fe80::2")) == ([], [])


def test_two_nodes_at_one_address() -> None:
    what = "NodeAddr: found '10.0.0.1' port 6818, which n1 has, allowed: one of its own; one is down"
    assert ignored("NodeName=n[1-2] NodeAddr=10.0.0.1\n") == f"slurm.conf: NodeName=n2: {what}"
    assert right("NodeName=n[1-2] NodeAddr=10.0.0.1 Port=[7001-7002]\n")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # slurmd: fatal: Unable to bind listen port (7817): Address already in use
        ("SlurmctldPort=7000\nSlurmdPort=7000", "SlurmdPort: found '7000' on n1, where SlurmctldPort is 7000"),
        (
            "SlurmctldPort=7000-7003\nSlurmdPort=7002",
            "SlurmdPort: found '7002' on n1, where SlurmctldPort is 7000-7003",
        ),
        ("SlurmdPort=6817", "SlurmdPort: found '6817' on n1, where SlurmctldPort is 6817"),
        (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=n1\nAccountingStoragePort=6818",
            "SlurmdPort: found '6818' on n1, where AccountingStoragePort is 6818",
        ),
        (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\nAccountingStoragePort=6817",
            "AccountingStoragePort: found '6817' on n1, where SlurmctldPort is 6817",
        ),
        # Every host has sshd, and srun can take any port of its range on any host.
        ("SlurmdPort=22", "SlurmdPort: found '22' on 10.0.0.1, where ssh is 22"),
        ("SrunPortRange=6800-6817", "SrunPortRange: found '6800-6817' on n1, where SlurmctldPort is 6817"),
    ],
)
def test_daemons_of_a_host_with_one_port(lines: str, what: str) -> None:
    assert refused(f"SlurmctldHost=n1\n{lines}\n{NODES}") == f"slurm.conf: {what}, allowed: another port"


def test_daemons_of_different_hosts_may_have_one_port() -> None:
    assert right(f"SlurmctldHost=head\nSlurmctldPort=7000\nSlurmdPort=7000\n{NODES}")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("60000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-50000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-70000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-60004", "5 ports, allowed: 8 or more, which one srun on all nodes needs"),
    ],
)
def test_ports_of_srun(value: str, what: str) -> None:
    hundred = "NodeName=n[1-100] NodeAddr=10.0.0.[1-100]\n"
    found = f"slurm.conf: SrunPortRange: found '{value}', {what}"
    assert ignored(f"SlurmctldHost=head\nSrunPortRange={value}\n{hundred}") == found


def test_a_range_for_srun_that_is_large_enough() -> None:
    assert right("SrunPortRange=60000-60007\nNodeName=n[1-100] NodeAddr=10.0.0.[1-100]\n")


# -- users -----------------------------------------------------------------------------------------------------------

STATE = "StateSaveLocation=/var/lib/slurm/slurmctld\n"


@pytest.mark.parametrize(
    ("line", "started_as", "what"),
    [
        # error: Invalid user for SlurmUser slrum, ignored; fatal: Unable to process configuration file
        ("SlurmUser=slrum", "slurm", "SlurmUser: found 'slrum', allowed: a user of this host"),
        # fatal: Failed to set GID; fatal: Can not set uid
        ("SlurmUser=munge", "slurm", "SlurmUser: found 'munge', allowed: slurm, the user of slurmctld.service"),
        ("SlurmUser=root", "slurm", "SlurmUser: found 'root', allowed: slurm, the user of slurmctld.service"),
        # fatal: You are running slurmd as something other than user nobody(65534)
        ("SlurmUser=slurm\nSlurmdUser=nobody", "root", "SlurmdUser: found 'nobody', allowed: root, the user of slurmd"),
        ("SlurmUser=slurm\nSlurmdUser=rot", "root", "SlurmdUser: found 'rot', allowed: root, the user of slurmd"),
        # fatal: Incorrect permissions on state save loc: /var/lib/slurm/slurmctld
        (
            "SlurmUser=munge",
            "root",
            "StateSaveLocation: found '/var/lib/slurm/slurmctld', allowed: a directory that SlurmUser 'munge' can"
            " write",
        ),
    ],
)
def test_users_as_which_a_daemon_does_not_start(line: str, started_as: str, what: str) -> None:
    unwritable = (("munge", "/var/lib/slurm/slurmctld"),)
    found = refused(f"{STATE}{line}\n", started_as=started_as, unwritable=unwritable)
    assert found == f"slurm.conf: {what}"


@pytest.mark.parametrize(
    ("line", "started_as"),
    [("SlurmUser=slurm", "slurm"), ("SlurmUser=64030", "slurm"), ("SlurmUser=slurm\nSlurmdUser=root", "root")],
)
def test_users_as_which_the_daemons_start(line: str, started_as: str) -> None:
    assert right(f"{STATE}{line}\n", started_as=started_as)


# -- plugins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what"),
    [
        # fatal: failed to initialize auth plugin
        (
            "AuthType=auth/mung",
            "AuthType: found 'auth/mung', which is not installed, allowed: munge, none, slurm, did you mean 'munge'?",
        ),
        # fatal: failed to initialize mcs plugin, after slurmctld has said that it runs
        (
            "MCSPlugin=mcs/usr",
            "MCSPlugin: found 'mcs/usr', which is not installed, allowed: none, user, did you mean 'user'?",
        ),
        ("JobSubmitPlugins=lua,tru", "JobSubmitPlugins: found 'tru', which is not installed, allowed: lua"),
        (
            "JobCompType=jobcomp/elasticsearch",
            "JobCompType: found 'jobcomp/elasticsearch', which is not installed, allowed: filetxt, none, script",
        ),
        (
            "SwitchType=switch/hpe_slingshot",
            "SwitchType: found 'switch/hpe_slingshot', which is not installed, allowed: none",
        ),
        # srun: error: Couldn't find the specified plugin name for mpi/pmix_v9
        (
            "MpiDefault=pmix_v9",
            "MpiDefault: found 'pmix_v9', which is not installed, allowed: none, pmi2, pmix, pmix_v5, did you mean"
            " 'pmix_v5'?",
        ),
        # fatal: Can't find plugin for priority/none, and likewise
        (
            "PriorityType=priority/none",
            "PriorityType: found 'priority/none', which is not installed, allowed: basic, multifactor",
        ),
        ("SchedulerType=none", "SchedulerType: found 'none', which is not installed, allowed: backfill, builtin"),
        ("PrEpPlugins=none", "PrEpPlugins: found 'none', which is not installed, allowed: nothing"),
        ("JobSubmitPlugins=lua,none", "JobSubmitPlugins: found 'none', which is not installed, allowed: lua"),
        ("BurstBufferType=none", "BurstBufferType: found 'none', which is not installed, allowed: nothing"),
        ("NodeFeaturesPlugins=none", "NodeFeaturesPlugins: found 'none', which is not installed, allowed: nothing"),
        ("CertmgrType=none", "CertmgrType: found 'none', which is not installed, allowed: nothing"),
        (
            "SelectType=select/none",
            "SelectType: found 'select/none', which is not installed, allowed: cons_tres, linear",
        ),
    ],
)
def test_plugins_that_are_not_installed(line: str, what: str) -> None:
    assert verdict(f"{line}\n", plugins=INSTALLED) == ([f"slurm.conf: {what}"], [])


@pytest.mark.parametrize(
    "line",
    [
        "AuthType=auth/slurm\nCredType=cred/slurm",
        "AuthType=auth/slurm\nCredType=auth/slurm",
        "CredType=munge",
        "JobSubmitPlugins=job_submit/lua",
        "PreemptType=preempt/none",
        "TopologyPlugin=topology/default",
        "JobCompType=jobcomp/none",
        "MCSPlugin=mcs/none",
        "AccountingStorageType=accounting_storage/none",
        "MpiDefault=none",
        "MpiDefault=pmix_v5",
        # Clients and slurmd load these: a site's own are where it wants them, Slurm's may have a package of their own.
        "TaskPlugin=task/own",
        "ProctrackType=proctrack/own",
        "MpiDefault=own",
        "CliFilterPlugins=own",
        "TaskPlugin=task/affinity,task/cgroup",
    ],
)
def test_plugins_that_slurmctld_does_not_miss(line: str) -> None:
    assert verdict(f"{line}\n", plugins=INSTALLED) == ([], [])


@pytest.mark.parametrize(
    ("line", "version", "accepted"),
    [
        ("JobCompType=jobcomp/None", "23.11.0", True),
        ("JobCompType=jobcomp/None", "23.02.7", False),
        ("PreemptType=preempt/None", "26.05.5", False),  # `xstrcmp`
    ],
)
def test_no_plugin_in_other_letters(line: str, version: str, accepted: bool) -> None:
    assert bool(verdict(f"{line}\n", plugins=INSTALLED, version=version)[0]) != accepted


def test_plugins_are_not_checked_where_the_installed_ones_are_not_known() -> None:
    assert right("AuthType=auth/mung\n")


# -- limits that no job, or no node, can meet -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("MaxTime=0", "MaxTime: found '0', allowed: a time, or UNLIMITED"),
        ("MaxTime=00:00:00", "MaxTime: found '00:00:00', allowed: a time, or UNLIMITED"),
        ("MaxNodes=0", "MaxNodes: found '0', allowed: 1 or more, or UNLIMITED"),
        ("MaxCPUsPerNode=0", "MaxCPUsPerNode: found '0', allowed: 1 or more, or UNLIMITED"),
        ("MaxCPUsPerSocket=0", "MaxCPUsPerSocket: found '0', allowed: 1 or more, or UNLIMITED"),
    ],
)
def test_limits_of_a_partition_that_allow_no_job(setting: str, what: str) -> None:
    for lines in (
        f"{NODES}PartitionName=p Nodes=ALL {setting}\n",
        f"{NODES}PartitionName=DEFAULT {setting}\nPartitionName=p Nodes=ALL\n",
    ):
        assert refused(lines) == (
            f"slurm.conf: PartitionName=p: {what}; no job could start, for which there is State=DOWN"
        )


@pytest.mark.parametrize("setting", ["MaxTime=0:30", "MaxTime=UNLIMITED", "MaxTime=-1", "MaxNodes=1", "DefaultTime=0"])
def test_limits_of_a_partition_that_allow_jobs(setting: str) -> None:
    assert right(f"{NODES}PartitionName=p Nodes=ALL {setting}\n")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            "SlurmdTimeout=29",
            "SlurmdTimeout: found '29', allowed: 30 or more, 3 x MessageTimeout: nodes are set down with their jobs if"
            " they answer later",
        ),
        (
            "MessageTimeout=60\nUnkillableStepTimeout=240",
            "UnkillableStepTimeout: found '240', allowed: 300 or more, 5 x MessageTimeout: nodes are drained if a step"
            " ends late",
        ),
        (
            "MessageTimeout=1",
            "MessageTimeout: found '1', allowed: 2 or more, the TCPTimeout: messages fail before their connection does",
        ),
    ],
)
def test_times_that_are_short_for_other_times(settings: str, what: str) -> None:
    assert ignored(f"{settings}\n") == f"slurm.conf: {what}"


@pytest.mark.parametrize(
    "settings", ["SlurmdTimeout=0", "SlurmdTimeout=30", "SlurmdTimeout=INFINITE", "UnkillableStepTimeout=50"]
)
def test_times_that_are_long_enough(settings: str) -> None:
    assert right(f"{settings}\n")


# -- includes --------------------------------------------------------------------------------------------------------


def test_included_files_are_part_of_the_file() -> None:
    conf = "ClusterName=Demo\nInclude nodes.conf\ninclude %c.conf # partitions\n"
    there = {"nodes.conf": NODES, "demo.conf": "PartitionName=p Nodes=n3\n"}
    assert [text.partition(", ")[0] for text in verdict(conf, there)[0]] == [
        "slurm.conf: PartitionName=p: Nodes: found 'n3'"
    ]
    assert verdict(conf, {**there, "demo.conf": PARTITION}) == ([], [])
    assert right(conf, nodes_conf=NODES, demo_conf=PARTITION)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # error: cannot stat file, retrying in 1sec up to 60sec
        ("nodes.conf", "which is not there or includes itself"),
        ("slurm.conf", "which is not there or includes itself"),
        # fatal: Unable to process configuration file
        ("conf.d/*.conf", "Slurm knows no wildcards"),
    ],
)
def test_includes_that_slurm_does_not_read(name: str, why: str) -> None:
    found = verdict(f"Include {name}\nPartitionName=p Nodes=n1\n", {"slurm.conf": ""})
    assert found == ([f"slurm.conf: Include: found '{name}', {why}, allowed: one file beside it"], [])


def test_configless_hosts_do_not_get_included_files_with_a_path() -> None:
    conf = "SlurmctldParameters=enable_configless\nInclude /srv/nodes.conf\n"
    what = "which configless hosts do not get, allowed: the name of a file beside slurm.conf"
    assert verdict(conf, {"/srv/nodes.conf": NODES}) == (
        [],
        [f"slurm.conf: Include: found '/srv/nodes.conf', {what}"],
    )


def test_an_included_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes\.conf: line 2: found 'rubbish'"):
        verdict("Include nodes.conf\n", {"nodes.conf": f"{NODES}rubbish\n"})


# -- accounting ------------------------------------------------------------------------------------------------------

SLURMDBD = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\n"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # fatal: slurmdbd is required to run with TRES gres/gpu
        (
            "GresTypes=gpu\nAccountingStorageTRES=CPU,gres/gpu",
            "found 'gres/gpu', which needs AccountingStorageType=accounting_storage/slurmdbd, "
            "allowed: billing, cpu, energy, fs/disk, mem, node, pages, vmem",
        ),
        # fatal: Unknown tres type 'gers/gpu'
        (
            SLURMDBD + "AccountingStorageTRES=gers/gpu",
            "found 'gers/gpu', allowed: billing, cpu, energy, fs/disk, mem, node, pages, vmem, bb/, fs/, gres/, ic/, "
            "license/, did you mean 'gres/'?",
        ),
    ],
)
def test_resources_that_slurmctld_does_not_count(lines: str, what: str) -> None:
    assert refused(f"{lines}\n") == f"slurm.conf: AccountingStorageTRES: {what}"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            SLURMDBD + "GresTypes=gpu\nAccountingStorageTRES=gres/gpu,gres/gpuutil,gres/gup",
            "AccountingStorageTRES: found 'gres/gup', allowed: gres/gpu, did you mean 'gpu'?",
        ),
        (
            "AccountingStorageEnforce=limits",
            "AccountingStorageEnforce: found 'limits', allowed: with AccountingStorageType=accounting_storage/slurmdbd",
        ),
        (
            "PriorityType=priority/multifactor\nPriorityWeightFairshare=100\nPriorityWeightAge=0",
            "PriorityWeightFairshare: found '100', allowed: with AccountingStorageType=accounting_storage/slurmdbd",
        ),
        (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost: missing: Slurm uses localhost",
        ),
    ],
)
def test_accounting_that_does_nothing(lines: str, what: str) -> None:
    assert ignored(f"{lines}\n") == f"slurm.conf: {what}"


def test_accounting_that_works() -> None:
    more = "AccountingStorageEnforce=limits\nAccountingStorageTRES=gres/gpu:h100,license/x,fs/lustre\nGresTypes=gpu\n"
    assert right(f"{SLURMDBD}{more}PriorityWeightAge=1\n")
    assert right("AccountingStorageTRES=CPU,Mem,FS/Disk\n")


# -- memory and cores ------------------------------------------------------------------------------------------------

RESERVE = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] RealMemory=1000 MemSpecLimit=100 CoreSpecCount=1\n"
CGROUP = "ConstrainCores=yes\nConstrainRAMSpace=yes\n"


def test_reserves_that_are_enforced() -> None:
    conf = f"TaskPlugin=task/affinity,task/cgroup\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1\n{RESERVE}"
    assert right(conf, cgroup_conf=CGROUP)


def test_reserves_that_nothing_enforces() -> None:
    without = "nothing keeps jobs from it without TaskPlugin=task/cgroup and"
    assert verdict(RESERVE) == (
        [],
        [
            f"slurm.conf: NodeName=n[1-2]: MemSpecLimit: {without} ConstrainRAMSpace in cgroup.conf",
            f"slurm.conf: NodeName=n[1-2]: CoreSpecCount: {without} ConstrainCores in cgroup.conf",
        ],
    )


def test_limits_without_their_plugin() -> None:
    what = "cgroup.conf: ConstrainDevices: found 'YES', allowed: with TaskPlugin=task/cgroup"
    assert ignored("TaskPlugin=task/affinity\n", cgroup_conf="ConstrainDevices=yes\nConstrainCores=no\n") == what


def test_memory_that_is_no_resource() -> None:
    conf = "TaskPlugin=task/cgroup\nSelectTypeParameters=CR_Core\nDefMemPerCPU=100\n"
    partitions = (
        "PartitionName=p DefMemPerNode=9\nPartitionName=q DefMemPerNode=9 SelectTypeParameters=CR_Core_Memory\n"
    )
    what = "but memory is no resource, allowed: with CR_Core_Memory, found 'CR_Core'"
    assert verdict(conf + partitions, cgroup_conf="ConstrainRAMSpace=yes\n") == (
        [],
        [
            f"slurm.conf: DefMemPerCPU: found '100', {what}",
            f"slurm.conf: PartitionName=p: DefMemPerNode: found '9', {what}",
            f"cgroup.conf: ConstrainRAMSpace: found 'YES', {what}",
        ],
    )


def test_memory_that_two_enforce() -> None:
    # fatal: Jobs memory is being constrained by both TaskPlugin cgroup and JobAcctGather plugin
    conf = "TaskPlugin=task/cgroup\nJobAcctGatherParams=OverMemoryKill\n"
    what = "found 'OverMemoryKill', allowed: without ConstrainRAMSpace and ConstrainSwapSpace in cgroup.conf"
    assert refused(conf, cgroup_conf=CGROUP) == f"slurm.conf: JobAcctGatherParams: {what}"


def test_words_that_only_look_like_another() -> None:
    """Slurm compares OverMemoryKill as a whole word, in any case; of TaskPlugin it looks for `cgroup`."""
    memory = "SelectTypeParameters=CR_Core_Memory\nTaskPlugin=affinity,cgroup\n"
    assert right(f"{memory}JobAcctGatherParams=NoOverMemoryKill,UsePss\n", cgroup_conf=CGROUP)
    assert "OverMemoryKill" in refused(f"{memory}JobAcctGatherParams=UsePss,overmemorykill\n", cgroup_conf=CGROUP)


def test_a_reserve_of_memory_that_is_no_resource() -> None:
    """slurmd keeps to MemSpecLimit (`_memory_spec_init`), but jobs may take all memory of the node."""
    reserve = RESERVE.replace(" CoreSpecCount=1", "")
    conf = f"TaskPlugin=task/cgroup\nSelectTypeParameters=CR_Core\n{reserve}"
    what = "found '100', but memory is no resource, allowed: with CR_Core_Memory, found 'CR_Core'"
    assert verdict(conf, cgroup_conf="ConstrainCores=yes\nConstrainSwapSpace=no\nConstrainRAMSpace=yes\n") == (
        [],
        [
            f"slurm.conf: NodeName=n[1-2]: MemSpecLimit: {what}",
            f"cgroup.conf: ConstrainRAMSpace: {what.replace('100', 'YES')}",
        ],
    )


# -- generic resources -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gres", "lines"),
    [
        ("gpu:2", "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]"),
        ("gpu:h100:2(S:0-1)", "NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-3"),
        ("gpu:a:1,gpu:b:1", "Name=gpu Type=a File=/dev/x\nName=gpu Type=b File=/dev/y"),
        ("gpu:no_consume:1", "NodeName=n[1-2] Name=gpu MultipleFiles=/dev/x,/dev/y"),
        ("gpu", "Name=gpu File=/dev/nvidia[0-7]"),
        ("gpu:8", "AutoDetect=nvml"),
        ("gpu:8", "NodeName=n[1-2] AutoDetect=nvidia"),
    ],
)
def test_generic_resources_that_go_together(gres: str, lines: str) -> None:
    assert right(f"{GPU}{gres}\n", gres_conf=f"{lines}\n")


def test_other_generic_resources_need_no_files() -> None:
    conf = (
        "GresTypes=gpu,shard,tape\nNodeName=n1 NodeAddr=10.0.0.1 Gres=gpu:2,shard:8,tape:2K\nNodeName=n2 NodeAddr=::2\n"
    )
    gpus = "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\nNodeName=n1 Name=shard Count=8\n"
    assert right(conf, gres_conf=gpus)
    assert right(conf, gres_conf=f"{gpus}Name=tape\n")


@pytest.mark.parametrize(
    ("gres", "lines", "what"),
    [
        # The node becomes INVAL: gres/gpu count reported lower than configured (2 < 3).
        ("gpu:3", "Name=gpu File=/dev/nvidia[0-1]", "found 'gpu:3', allowed: up to 2, the files in gres.conf"),
        ("gpu:2", "Name=gpu Count=2", "found 'gpu:2', allowed: up to 0, the files in gres.conf"),
        ("gpu:2", "AutoDetect=off", "found 'gpu:2', allowed: up to 0, the files in gres.conf"),
        (
            "gpu:h100:2",
            "Name=gpu Type=h1000 File=/dev/nvidia[0-1]",
            "found 'gpu:h100:2', allowed: up to 0, the files in gres.conf, did you mean 'h1000'?",
        ),
        # gres/gpu type (H100) reported but not configured
        (
            "gpu:h100:1",
            "Name=gpu Type=H100 File=/dev/nvidia0",
            "found 'gpu:h100:1', allowed: up to 0, the files in gres.conf, did you mean 'H100'?",
        ),
        ("gpu:h100:1", "Name=gpu File=/dev/nvidia0", "found 'gpu:h100:1', allowed: up to 0, the files in gres.conf"),
        # slurmd: fatal: Some gpu GRES in slurm.conf have a type while others do not
        (
            "gpu:1,gpu:a:1",
            "AutoDetect=nvml",
            "found 'gpu:1,gpu:a:1', allowed: all or none of the gpu with a type",
        ),
    ],
)
def test_generic_resources_that_slurm_refuses(gres: str, lines: str, what: str) -> None:
    assert refused(f"{GPU}{gres}\n", gres_conf=f"{lines}\n") == f"slurm.conf: NodeName=n[1-2]: Gres: {what}"


@pytest.mark.parametrize(
    ("gres", "lines", "what"),
    [
        (
            "gup:1",
            "",
            "slurm.conf: NodeName=n[1-2]: Gres: found 'gup', allowed: gpu, the GresTypes, did you mean 'gpu'?",
        ),
        (
            "gpu:2",
            "Name=gpu Type=t4 File=/dev/nvidia[0-1]",
            "gres.conf: NodeName=n[1-2]: Type: found 't4', allowed: where Gres in slurm.conf has a type, found 'gpu:2'",
        ),
        (
            "gpu:1",
            "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]",
            "gres.conf: NodeName=n[1-2]: Name: found 'gpu:2', allowed: up to 1, the Gres in slurm.conf",
        ),
        (
            "gpu:1",
            "Name=gpu File=/dev/nvidia0\nName=fpga File=/dev/x",
            "gres.conf: Name: found 'fpga', allowed: gpu, the GresTypes",
        ),
        (
            "gpu:1",
            "NodeName=n[1-3] Name=gpu File=/dev/nvidia0",
            "gres.conf: NodeName: found 'n3', allowed: nodes of slurm.conf",
        ),
    ],
)
def test_generic_resources_that_slurm_ignores(gres: str, lines: str, what: str) -> None:
    assert ignored(f"{GPU}{gres}\n", gres_conf=f"{lines}\n") == what


def test_without_gres_conf_the_nodes_have_their_own() -> None:
    assert right(f"{GPU}gpu:8\n")
    assert right(f"{GPU}gpu:8\n", gres_conf="AutoDetect=nvml\n")
    assert verdict(f"{GPU}gpu:8\n", {"gres.conf": ""})[0] != []


def test_without_grestypes_there_are_no_generic_resources() -> None:
    what = "slurm.conf: NodeName=n1: Gres: found 'gpu', allowed: nothing, the GresTypes"
    assert ignored("NodeName=n1 NodeAddr=10.0.0.1 Gres=gpu:1\n") == what


MACHINE = (
    "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Sockets=4 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:1\nGresTypes=gpu\n"
)


@pytest.mark.parametrize(
    ("cores", "version", "allowed"),
    [
        ("0-1", "24.05.8", ""),
        ("0-1", "24.11.0", "all 4 cores of a socket, such as 0-3, with Slurm 24.11"),
        ("0-3", "24.11.5", ""),
        ("0-7", "25.05.3", ""),
        ("0-5", "25.05.3", "all 4 cores of a socket, such as 0-3, with Slurm 25.05"),
        ("0-3", "26.05.5", ""),
        ("4,5,6-7", "26.05.5", ""),
        ("0-15", "26.05.5", ""),
        ("0-7", "25.11.0", "all 4 cores of one socket, such as 0-3, or all cores, 0-15, with Slurm 25.11"),
        ("0-2", "26.05.5", "all 4 cores of one socket, such as 0-3, or all cores, 0-15, with Slurm 26.05"),
    ],
)
def test_cores_of_generic_resources_by_release(cores: str, version: str, allowed: str) -> None:
    found = verdict(MACHINE, gres_conf=f"NodeName=n[1-2] Name=gpu File=/dev/zero Cores={cores}\n", version=version)
    text = f"gres.conf: NodeName=n[1-2]: Cores: found {cores!r}, allowed: {allowed}"
    assert found == ([text] if allowed else [], [])


@pytest.mark.parametrize(
    "machine", ["Boards=2 SocketsPerBoard=1 CoresPerSocket=2", "CPUs=8 CoresPerSocket=2 ThreadsPerCore=2"]
)
def test_all_cores_of_two_sockets(machine: str) -> None:
    nodes = f"NodeName=n1 NodeAddr=10.0.0.1 {machine} Gres=gpu:1\nGresTypes=gpu\n"
    lines = "Name=gpu File=/dev/zero Cores=0-3\nName=mps Count=100 Cores=0\n"
    assert verdict(nodes, gres_conf=lines, version="26.05.5")[0] == []


def test_controllers_that_configless_hosts_do_not_reach() -> None:
    conf = "SlurmctldHost=head(fd00::1)\nCommunicationParameters=EnableIPv6\nSlurmctldParameters=enable_configless\n"
    what = "found 'fd00::1', allowed: an IPv4 address; configless hosts of Slurm 22.05 use no other"
    assert refused(conf, version="22.05.8") == f"slurm.conf: SlurmctldHost: {what}"
    assert right(conf, version="24.11.5")
    assert right(conf.replace("fd00::1", "10.0.0.9"), version="22.05.8")


def test_slurmctld_has_the_prologs_that_it_sends() -> None:
    """slurmctld does not report a file that it cannot send; the first job would drain its node."""
    conf = f"Prolog=first.sh\nProlog=/opt/second\nEpilog=epilog.sh\n{NODES}"
    refused, _remarks = verdict(conf, there={"first.sh": "#!/bin/sh\n"})
    assert refused == ["slurm.conf: Epilog: found 'epilog.sh', which is no file beside slurm.conf"]
    refused, _remarks = verdict(conf, there={"first.sh": "#!/bin/sh\n", "epilog.sh": "#!/bin/sh\n# \udcfc\nfi\n"})
    assert refused == ["slurm.conf: Epilog: found 'epilog.sh', line 3: sh -n: Syntax error: \"fi\" unexpected"]
    refused, _remarks = verdict(f"Prolog=first.sh\n{NODES}", there={"first.sh": "#!/bin/sh\n"}, version="22.05.8")
    what = "found 'first.sh', which Slurm 22.05 does not send to the nodes, allowed: a full path"
    assert refused == [f"slurm.conf: Prolog: {what}"]
