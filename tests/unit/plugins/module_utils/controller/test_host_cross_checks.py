# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule about users, plugins and programs, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

import pytest
from cross_check_verdicts import INSTALLED, NODES, refused, right, verdict

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


@pytest.mark.parametrize(
    ("line", "coming", "accepted"),
    [
        ("AuthAltTypes=auth/jwt", "", False),
        ("AuthAltTypes=auth/jwt,auth/munge", "", False),
        ("AuthAltTypes=auth/jwt", "auth_jwt", True),
        ("AuthAltTypes=auth/jwt", "serializer_json", False),
        ("AuthAltTypes=auth/munge", "", True),
        ("JobCompType=jobcomp/elasticsearch", "jobcomp_elasticsearch", True),
        ("AcctGatherProfileType=acct_gather_profile/hdf5", "", False),
        ("AcctGatherProfileType=acct_gather_profile/hdf5", "acct_gather_profile_hdf5", True),
        ("AcctGatherEnergyType=acct_gather_energy/ipmi", "", False),
        ("AcctGatherInterconnectType=acct_gather_interconnect/ofed", "", False),
        ("HashPlugin=hash/sha3", "", False),
        ("TopologyPlugin=topology/block", "", False),
        ("PrioritySiteFactorPlugin=site_factor/own", "", False),
        ("JobSubmitPlugins=require_timelimit", "", False),
    ],
)
def test_plugins_are_installed_or_come_with_a_package_of_this_run(line: str, coming: str, accepted: bool) -> None:
    found, _remarks = verdict(f"{line}\n", plugins=INSTALLED, coming=frozenset(filter(None, [coming])))
    assert (found == []) is accepted


# -- programs --------------------------------------------------------------------------------------------------------


def test_slurmctld_has_the_prologs_that_it_sends() -> None:
    """slurmctld does not report a file that it cannot send; the first job would drain its node."""
    conf = f"Prolog=first.sh\nProlog=/opt/second\nEpilog=epilog.sh\n{NODES}"
    refused, _ignored = verdict(conf, there={"first.sh": "#!/bin/sh\n"})
    assert refused == ["slurm.conf: Epilog: found 'epilog.sh', which is no file next to slurm.conf"]
    refused, _ignored = verdict(conf, there={"first.sh": "#!/bin/sh\n", "epilog.sh": "#!/bin/sh\n# \udcfc\nfi\n"})
    assert refused == ["slurm.conf: Epilog: found 'epilog.sh', line 3: sh -n: Syntax error: \"fi\" unexpected"]
    refused, _ignored = verdict(f"Prolog=first.sh\n{NODES}", there={"first.sh": "#!/bin/sh\n"}, version="22.05.8")
    what = "found 'first.sh', which Slurm 22.05 does not send to the nodes, allowed: a full path"
    assert refused == [f"slurm.conf: Prolog: {what}"]
