# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_accounting."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_CONF
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import stages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import slurm_accounting
from plain_host import PlainHost, cluster

PARTITIONS = [
    {"name": "all", "nodes": "n[1-2]", "default": True},
    {"name": "physics", "nodes": "n1", "AllowAccounts": "Physics"},
    {"name": "other", "nodes": "n2", "AllowAccounts": "physics"},
]


def head(**variables: Any) -> PlainHost:
    """The controller of a cluster with these variables."""
    return cluster(**{"slurm_accounting_users": [], "slurm_partitions": PARTITIONS, **variables})["head"]


def test_the_user_of_the_jobs_gets_the_accounts_that_partitions_ask_for() -> None:
    assert slurm_accounting.users(head()) == [{"name": "root", "DefaultAccount": "root", "accounts": ["Physics"]}]
    assert slurm_accounting.users(head(slurm_partitions=PARTITIONS[:1])) == []


def test_a_user_of_the_policy_stays_as_it_is() -> None:
    given = [{"name": "root", "DefaultAccount": "x"}]
    assert slurm_accounting.users(head(slurm_accounting_users=given)) == given


def test_slurm_does_not_know_another_user_than_root() -> None:
    found = slurm_accounting.users(head(slurm_profile="strict", slurm_partitions=PARTITIONS[:1]))
    assert found == [{"name": "slurm-check", "DefaultAccount": "root", "accounts": []}]


def test_with_profile_strict_slurmdbd_knows_the_user_of_the_jobs() -> None:
    """Also without a policy, which is then never taken for one that removes everything."""
    strict = {"slurm_profile": "strict", "slurm_partitions": PARTITIONS[:1], "slurm_accounting_purge": "true"}
    host = head(**strict, slurm_database="head")
    assert slurm_accounting.is_applied(host)
    assert not slurm_accounting.purges(host)
    assert slurm_accounting.purges(head(**strict, slurm_accounting_qos=[{"name": "fair"}]))
    assert not slurm_accounting.is_applied(head(**strict, slurm_database=""))
    assert not slurm_accounting.is_applied(head(slurm_database="head"))


def test_an_empty_policy_is_none() -> None:
    assert not slurm_accounting.has_policy(head())
    assert slurm_accounting.has_policy(head(slurm_accounting_limits={"MaxWall": 1}))


def test_a_reservation_has_parameters_and_perhaps_a_state() -> None:
    given = [{"name": "a", "Nodes": "n1"}, {"name": "b", "state": "absent"}]
    assert slurm_accounting.reservations(head(slurm_accounting_reservations=given)) == [
        {"name": "a", "parameters": {"Nodes": "n1"}},
        {"name": "b", "parameters": {}, "state": "absent"},
    ]


def test_a_report_names_what_stays() -> None:
    assert slurm_accounting.report(head()) == []
    assert slurm_accounting.report(head(__slurm_accounting_run={"table": ["t"], "kept": ["k"]})) == [
        "This changes:",
        "t",
        "stays: k",
    ]


def test_a_report_has_what_was_added_before_slurm_conf() -> None:
    added = {"table": ["a"], "plan": [{"what": "account a"}]}
    host = head(__slurmctld_additions=added, __slurm_accounting_run={"table": ["t"], "refused": ["user u: no"]})
    assert slurm_accounting.report(host) == ["This changes:", "a", "t", "slurmctld would refuse: user u: no"]
    assert slurm_accounting.plan(host) == added["plan"]
    host = head(__slurmctld_additions=added, ansible_check_mode=True)
    assert (slurm_accounting.report(host), slurm_accounting.plan(host)) == ([], [])


def test_a_report_has_changed_limits_in_whole_nodes() -> None:
    machines = {"m": {"gres": [{"name": "gpu", "count": 8}]}}
    change = {"what": "account vision GrpTRES", "before": "", "after": "gres/gpu=8"}
    line = "account vision GrpTRES  - -> gres/gpu=8"
    answer = {"table": [line], "plan": [change]}
    host = head(slurm_hardware_types=machines, __slurm_accounting_run=answer)
    assert slurm_accounting.report(host) == [
        "This changes:",
        line,
        "in nodes: account vision: GrpTRES gres/gpu=8: 1 node of m (8 GPUs)",
    ]


def test_a_check_counts_a_change_in_the_stage_that_makes_it() -> None:
    """Stage controller adds what slurm.conf needs; the plan of the policy in check mode has this as well."""
    early, late = {"what": "account a", "before": None, "after": ""}, {"what": "qos b", "before": None, "after": ""}
    host = head(ansible_check_mode=True, __slurmctld_additions={"plan": [early]})
    assert not slurm_accounting.changes(host, {"changed": True, "plan": [early]})
    assert slurm_accounting.changes(host, {"changed": True, "plan": [early, late]})
    assert slurm_accounting.changes(head(), {"changed": True, "plan": [early]})
    assert not slurm_accounting.changes(head(), {"changed": False, "plan": []})
    assert not slurm_accounting.changes(host, {"failed": True, "msg": "no answer"})


def test_without_a_policy_a_check_asks_whom_a_change_of_slurm_conf_refuses() -> None:
    host = head(slurm_accounting_users=[], ansible_check_mode=True, slurmctld_cleaned_hosts="")
    assert not stages.needs_policy(host)  # a first configuration
    host.say(files={KEPT_CONF: "1"})
    assert stages.needs_policy(host)
    assert not stages.needs_policy(host.set(ansible_check_mode=False))
    assert not stages.needs_policy(host.set(ansible_check_mode=True, slurm_database=""))
