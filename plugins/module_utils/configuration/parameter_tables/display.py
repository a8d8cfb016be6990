# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How slurmctld shows what it has in force, by release (`scontrol show config`, `show node`, `show partition`).

Keys are in small letters, as Slurm compares them. That these are right, real releases show:
`tests/tools/check_drift`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .choices import BOOLEANS

NOT_COMPARED: Mapping[str, frozenset[str]] = {
    "slurm.conf": frozenset(("jobcomppass",)),
    "NodeName": frozenset(("cpuspeclist", "reason", "socketsperboard", "state")),
    "PartitionName": frozenset(("state",)),
}
"""Parameters that Slurm shows as something else than they were set to, or changes by itself."""

SHOWN_AS: Mapping[str, Mapping[str, str]] = {
    "slurm.conf": {
        "acctgatherinfinibandtype": "acctgatherinterconnecttype",
        "cryptotype": "credtype",
        "defcpupergpu": "jobdefaults",
        "defmempergpu": "jobdefaults",
        "sbcastparameters": "bcastparameters",
    },
    "NodeName": {"cpus": "cputot", "feature": "availablefeatures", "features": "availablefeatures", "procs": "cputot"},
    "PartitionName": {"defcpupergpu": "jobdefaults", "defmempergpu": "jobdefaults", "shared": "oversubscribe"},
}
"""Parameters that are shown with another key."""

RIVALS = {
    "allowaccounts": "denyaccounts",
    "allowqos": "denyqos",
    "bcastparameters": "sbcastparameters",
    "defmempernode": "defmempercpu",
    "maxmempernode": "maxmempercpu",
    "propagateresourcelimitsexcept": "propagateresourcelimits",
}
"""Slurm obeys one of the two, and shows that one: the first, if a file has both."""

SHOWN_TOGETHER = {
    "epilogtimeout": "prologepilogtimeout",
    "jobcontainertype": "namespacetype",
    "prologtimeout": "prologepilogtimeout",
}
"""What releases show of these that do not show themselves."""

IF_NOT_SHOWN: Mapping[str, Mapping[str, str]] = {
    "slurm.conf": dict.fromkeys(("epilog", "epilogslurmctld", "prolog", "prologslurmctld", "selecttypeparameters"), ""),
    "NodeName": {
        **dict.fromkeys(("bcastaddr", "cpubind", "parameters", "topology"), ""),
        **dict.fromkeys(("corespeccount", "memspeclimit", "restrictedcorespergpu"), "0"),
    },
    "PartitionName": {
        **dict.fromkeys(("alternate", "cpubind", "denyaccounts", "denyqos", "topology", "tresbillingweights"), ""),
        **dict.fromkeys(("allowaccounts", "allowqos"), "ALL"),
    },
}
"""What it means that these are not shown."""

IF_NOT_SAID: Mapping[str, Mapping[str, str]] = {
    "cgroup.conf": {  # `_init_slurm_cgroup_conf` in `src/interfaces/cgroup.c`
        "allowedramspace": "100",
        "allowedswapspace": "0",
        "cgroupmountpoint": "/sys/fs/cgroup",
        "cgroupplugin": "autodetect",
        "maxrampercent": "100",
        "maxswappercent": "100",
        "minramspace": "30",
        "systemdtimeout": "1000",
    },
    "NodeName": {"features": "", "gres": "", "realmemory": "1", "tmpdisk": "0", "weight": "1"},
    "PartitionName": {
        "allowgroups": "ALL",
        "allocnodes": "ALL",
        "denyaccounts": "",
        "denyqos": "",
        "gracetime": "0",
        "hidden": "NO",
        "lln": "NO",
        "maxnodes": "UNLIMITED",
        "maxtime": "UNLIMITED",
        "reqresv": "NO",
        "rootonly": "NO",
    },
}
"""The values in force if a line of the file, or the file, does not have these parameters."""

COMPARED_AS = {
    "accountingstoragetres": "tres",
    "allocnodes": "hosts",
    "allowaccounts": "names",
    "allowgroups": "names",
    "allowqos": "names",
    "denyaccounts": "names",
    "denyqos": "names",
    "features": "names",
    "grestypes": "names",
    "jobrequeue": "truth",
    "overtimelimit": "u16",
    "port": "u16",
    "suspendtime": "u32",
}
"""Parameters that are compared as another kind than in the tables of parameters."""

_OF_SHARED_GRES = ("enforce_binding_gres", "ll_shared_gres", "multiple_sharing_gres_pj", "one_task_per_sharing_gres")
_PRIVATE = "account,event,job,node,partition,reservation,usage,user"
ALIASES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "AccountingStorageEnforce": {"22.05": {"1": "associations", "2": "limits", "all": "limits,qos,safe,wckeys"}},
    "CpuBind": {
        "22.05": {
            "core": "cores",
            "ldom": "ldoms",
            "no": "unbound",
            "none": "unbound",
            "socket": "sockets",
            "thread": "threads",
            "v": "verbose",
        }
    },
    "DebugFlags": {
        "22.05": {
            "elasticsearch": "jobcomp",
            "jag": "jobaccountgather",
            "net": "network",
            "netraw": "networkraw",
            "powersave": "power",
            "task": "",
            "trigger": "triggers",
            "workq": "workqueue",
        },
        "24.11": {"workq": "conmgr", "workqueue": "conmgr"},
        "25.11": {"jobcontainer": "namespace"},
        "26.05": {"threads": "thread", "workq": "thread", "workqueue": "thread"},
    },
    "EnforcePartLimits": {"22.05": {**dict.fromkeys(BOOLEANS[:4], "any"), **dict.fromkeys(BOOLEANS[4:], "no")}},
    "Exclusive": {"22.05": {"none": "no"}},
    "LogTimeFormat": {
        "23.11": {"iso8601_ms": "iso8601"},  # a mistake of Slurm, which is also what it writes into its logs
        "23.11.5": {"iso8601_ms": "iso8601_ms"},
        "25.05": {"format_stderr": ""},
    },
    "OverSubscribe": {"22.05": {"yes": "yes:4", "force": "force:4", "yes:1": "no"}},
    "PartitionPreemptMode": {"22.05": {"cluster": "", "off": "", "on": "suspend"}, "24.11": {"gang": ""}},
    "PreemptMode": {"22.05": {"cluster": "off", "on": "suspend"}},
    "PrivateData": {"22.05": {"all": f"{_PRIVATE},cloud"}, "23.02": {"all": _PRIVATE}},
    "SelectTypeParameters": {
        "22.05": {"cr_allocate_full_socket": "", **dict.fromkeys(_OF_SHARED_GRES, "")},
        "24.05.4": {word: word for word in _OF_SHARED_GRES},
    },
    "TaskPluginParam": {
        "22.05": {"autobind=none": "", "none": "unbound", "slurmdoffspec": ""},
        "24.11": {"slurmdoffspec": "slurmdoffspec"},
    },
}
IMPLIED = {
    "AccountingStorageEnforce": {
        "limits": "associations",
        "nojobs": "nosteps",
        "qos": "associations",
        "safe": "limits",
        "wckeys": "associations",
    },
    "DebugFlags": {"tls": "audittls"},
    "HealthCheckNodeState": {"any": "alloc idle mixed nondrained_idle"},
    "PriorityFlags": {
        "depth_oblivious": "no_fair_tree",
        "no_normal_all": "no_normal_assoc no_normal_part no_normal_qos no_normal_tres",
    },
    "PrologFlags": {
        **dict.fromkeys(("contain", "deferbatch", "forcerequeueonfail", "nohold", "serial"), "alloc"),
        **dict.fromkeys(("runinjob", "x11"), "contain"),
    },
}
"""Words of a set that are shown as others, by the release or patch release that began with it, and words that come with
others."""

PARSED = (
    "AccountingStoreFlags",
    "CpuBind",
    "HealthCheckNodeState",
    "LogTimeFormat",
    "PartitionPreemptMode",
    "PriorityFlags",
    "PrivateData",
    "ReconfigFlags",
)
"""Sets of which Slurm keeps what it knows; of the other ones that it does not check it keeps the text."""

OF_PLUGINS = ("certgenparameters", "certmgrparameters", "prioritysitefactorparameters", "tlsparameters")
"""Parameters that are shown only with a plugin that obeys them."""
