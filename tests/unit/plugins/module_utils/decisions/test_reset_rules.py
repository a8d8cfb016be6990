# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role reset: which hosts are reset, and what goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import reset
from plain_host import PlainHost, cluster

OPTIONS: dict[str, Any] = {"reset_hosts": "all", "reset_also": "", "reset_backup": True}


def hosts(**variables: Any) -> dict[str, PlainHost]:
    found: dict[str, PlainHost] = cluster(**{**OPTIONS, **variables})
    return found


def test_all_hosts_or_those_that_are_named() -> None:
    names = reset.hosts(hosts()["head"])
    assert {"head", "n1"} <= {*names}
    assert reset.hosts(hosts(reset_hosts="n[1-2]")["head"]) == ["n1", "n2"]
    assert reset.errors(hosts()["head"]) == reset.errors(hosts(reset_hosts="n1")["head"]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_hosts": ""}, "reset_hosts: missing, allowed: all, or hosts of the cluster: "),
        ({"reset_hosts": "n[1-"}, "reset_hosts: found 'n[1-': "),
        ({"reset_hosts": "m1"}, "reset_hosts: found 'm1', "),
        ({"reset_hosts": "head"}, "reset_hosts: found head, which "),
        ({"reset_also": "data,hoems"}, "reset_also: found 'hoems', unknown part, did you mean 'homes'?"),
        ({"reset_also": "homes"}, "reset_also: found homes without people"),
        (
            {"reset_also": "database", "slurm_database_server": {"host": "db"}},
            "reset_also: found database, which others run",
        ),
        ({"reset_also": "data, database"}, "reset_also: found database, and there is no last backup"),
    ],
)
def test_wrong_options_have_one_error(options: dict[str, Any], message: str) -> None:
    (found,) = reset.errors(hosts(**options)["head"])
    assert message in found


def test_a_limit_that_leaves_hosts_out_is_refused() -> None:
    host = hosts(ansible_play_hosts=["head"])["head"]
    assert any(error.startswith("--limit: leaves out ") for error in reset.errors(host))


def test_data_goes_only_if_it_is_named() -> None:
    conf = {"StateSaveLocation": "/var/spool", "SlurmdSpoolDir": "/var/spool/slurmd.%n"}
    kept = reset.cleanup(hosts(slurm_conf=conf)["n1"])
    assert "/etc/slurm" in kept.directories
    assert not [path for path in kept.directories if path.startswith(("/var/lib/slurm", "/var/log", "/var/spool"))]
    assert "mariadb-*" in kept.kept_packages
    named = reset.cleanup(hosts(slurm_conf=conf, reset_also="data,database")["n1"])
    assert {"/var/lib/slurm", "/var/log/slurm"} <= {*named.directories}
    assert not {"/var/spool", "/var/spool/slurmd.%n", "/var/log"} & {*named.directories}
    assert named.kept_packages == []
    assert "/var/lib/prometheus" not in named.directories


def test_the_series_go_from_the_host_that_has_them() -> None:
    host = hosts(reset_also="data")["head"]
    host.set(group_names=["slurm_controller", "slurm_monitoring"])
    assert "/var/lib/prometheus" in reset.cleanup(host).directories


def test_mariadb_stays_for_databases_of_others() -> None:
    host = hosts(reset_also="database", slurm_database="head")["head"]
    host.set(__reset_databases={"stdout_lines": ["mysql", "slurm_acct_db", "wiki"]})
    assert reset.has_database(host)
    assert reset.drop_statements(host).startswith("DROP DATABASE `slurm_acct_db`;")
    assert "mariadb-*" in reset.cleanup(host).kept_packages
    host.set(__reset_databases={"stdout_lines": ["mysql", "slurm_acct_db"]})
    assert reset.cleanup(host).kept_packages == []


def test_a_host_that_was_taken_over_keeps_slurm() -> None:
    host = hosts()["n1"]
    host.set(__reset_found={"stat": {"exists": True}})
    kept = reset.cleanup(host)
    assert kept.services == []
    assert "/etc/munge/munge.key" not in kept.secrets
    assert not {"/etc/slurm", "/var/lib/gpucluster-slurm"} & {*kept.directories}


def test_accounts_go_by_the_plan_that_made_them() -> None:
    people = {"users": [{"name": "carol", "uid": 5001}], "groups": []}
    assert reset.people_plan(hosts(slurm_people=people)["n1"]) == ""
    plan = json.loads(reset.people_plan(hosts(slurm_people=people, reset_also="people")["n1"]))
    assert plan == {"users": [{"name": "carol", "uid": 5001, "state": "absent"}], "groups": []}


def test_nodes_of_a_cluster_that_goes_on_are_drained() -> None:
    command = reset.drain_command(hosts(reset_hosts="n[1-2]")["head"])
    assert command[:4] == ["scontrol", "update", "NodeName=n[1-2]", "State=DRAIN"]
    assert reset.drain_command(hosts()["head"]) == []


@pytest.mark.parametrize(
    ("removed", "makes", "lacks"),
    [
        (["slurmctld.service", "/usr/local/sbin/slurm-backup"], True, False),
        (["slurmctld.service"], False, True),  # site has not run since the key is there
        (["/etc/slurm"], False, False),  # a killed run has cleaned the host
    ],
)
def test_a_host_with_state_makes_a_last_backup(removed: list[str], makes: bool, lacks: bool) -> None:
    host = hosts()["head"]
    host.set(group_names=["slurm_reset_backup"], __reset_cleanup={"plan": [{"what": what} for what in removed]})
    assert (reset.makes_backup(host), reset.lacks_backup(host)) == (makes, lacks)
