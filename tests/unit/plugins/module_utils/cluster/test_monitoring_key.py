# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `monitoring` of the cluster file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import monitoring_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import named_file_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

FULL = {
    "host": "mon1",
    "retention": "1y6w",
    "readers": ["10.0.0.0/8", "10.1.2.3"],
    "receivers": "alertmanager.yml",
    "users_and_accounts": True,
    "targets_only": False,
}
FILE: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "hardware": {"m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}},
    "nodes": [{"hosts": "n[1-2]", "hardware": "m"}],
    "partitions": [{"name": "all", "nodes": "ALL"}],
}


def checked(found: Any, **slurm_conf: Any) -> tuple[monitoring_key.MonitoringKey, list[str]]:
    """The checked value, and the problems."""
    problems: list[str] = []
    return monitoring_key.check(Checker("my.cluster.yml", problems), found, slurm_conf), problems


def test_a_host_is_a_mapping_with_all_defaults() -> None:
    value, problems = checked("mon1")
    assert problems == []
    assert value == {
        "host": "mon1",
        "retention": "30d",
        "readers": [],
        "receivers": "",
        "users_and_accounts": False,
        "targets_only": False,
    }
    assert checked({"host": "mon1"}) == (value, [])


def test_a_checked_value_is_checked_as_a_variable_without_a_change() -> None:
    for found in (FULL, "mon1", {"targets_only": True, "users_and_accounts": True, "readers": ["10.0.0.1"]}):
        value, problems = checked(found)
        assert problems == []
        assert checked(value) == (value, [])
    assert checked(FULL)[0] == FULL


@pytest.mark.parametrize("found", [None, {}, ""])
def test_a_site_without_the_key_is_not_measured(found: Any) -> None:
    assert checked(found, MetricsType="metrics/openmetrics") == ({}, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ("mon[1-2]", "monitoring.host: found 'mon[1-2]', allowed: the name of one host"),
        (["mon1"], "monitoring: found ['mon1'], allowed: a host, or a mapping with host, retention, readers"),
        ({"retention": "30d"}, "monitoring.host: missing, allowed: the host of Prometheus, or targets_only: true"),
        ({"host": "a", "retention": "30"}, "monitoring.retention: found '30', allowed: how long Prometheus keeps"),
        ({"host": "a", "retention": "0d"}, "monitoring.retention: found '0d', allowed: how long Prometheus keeps"),
        ({"host": "a", "retention": "300y"}, "monitoring.retention: found '300y', allowed: how long Prometheus keeps"),
        ({"host": "a", "retention": "1d1y"}, "monitoring.retention: found '1d1y', allowed: how long Prometheus keeps"),
        ({"host": "a", "retention": 30}, "monitoring.retention: found 30, allowed: how long Prometheus keeps"),
        ({"host": "a", "readers": ["lan"]}, "monitoring.readers: found ['lan'], 'lan' is no address or network"),
        ({"host": "a", "readers": "10.0.0.0/8"}, "monitoring.readers: found '10.0.0.0/8', allowed: a list"),
        ({"host": "a", "receivers": "../a.yml"}, "monitoring.receivers: found '../a.yml', allowed: a file next to"),
        ({"host": "a", "users_and_accounts": "yes"}, "monitoring.users_and_accounts: found 'yes', allowed: true or"),
        ({"hots": "a"}, "monitoring.hots: unknown key, did you mean 'host'?"),
        ({"targets_only": True, "host": "a"}, "monitoring.host: found 'a', but targets_only installs no Prometheus"),
        ({"targets_only": True, "retention": "1d"}, "monitoring.retention: found '1d', but targets_only"),
        ({"targets_only": True, "receivers": "a.yml"}, "monitoring.receivers: found 'a.yml', but targets_only"),
    ],
)
def test_each_error_is_one_with_the_key_and_what_is_allowed(found: Any, problem: str) -> None:
    value, problems = checked(found)
    assert value == {}
    assert [text for text in problems if text.startswith(f"my.cluster.yml: {problem}")] == problems != []


@pytest.mark.parametrize("parameter", monitoring_key.DERIVED)
def test_parameters_of_slurm_conf_follow_from_the_key(parameter: str) -> None:
    text = f"my.cluster.yml: slurm_conf.{parameter}: is derived from monitoring: remove one of them"
    assert checked("mon1", **{parameter.lower(): "x"}) == ({}, [text])
    assert checked("mon1", **{parameter: None})[1] == []


def test_the_host_is_one_of_the_cluster_with_a_group_and_an_address() -> None:
    data = {**FILE, "monitoring": "mon1", "addresses": {"mon1": "10.0.0.9"}}
    cluster = load(Document("my.cluster.yml", data))
    assert cluster.groups["slurm_monitoring"] == ["mon1"]
    assert cluster.addresses == {"mon1": "10.0.0.9"}
    assert cluster.variables["slurm_monitoring"]["host"] == "mon1"
    assert load(Document("my.cluster.yml", FILE)).variables["slurm_monitoring"] == {}


def test_an_address_of_no_host_is_refused_with_targets_only() -> None:
    data = {**FILE, "monitoring": {"targets_only": True}, "addresses": {"mon1": "10.0.0.9"}}
    with pytest.raises(ModelError, match="mon1"):
        load(Document("my.cluster.yml", data))


def test_the_ports_are_taken() -> None:
    conf = {"SlurmctldPort": 9100}
    with pytest.raises(ModelError, match=r"found '9100' on head, where SlurmctldPort is 9100"):
        load(Document("my.cluster.yml", {**FILE, "monitoring": "n1", "slurm_conf": conf}))
    load(Document("my.cluster.yml", {**FILE, "slurm_conf": conf}))


def test_the_file_of_receivers_must_exist(tmp_path: Path) -> None:
    variables = {"slurm_monitoring": {"receivers": "alertmanager.yml"}}
    assert named_file_errors(variables, str(tmp_path)) == [
        "slurm_monitoring.receivers: found 'alertmanager.yml', which does not exist, allowed: a file next to the "
        "cluster file or below its directory, or an absolute path"
    ]
    (tmp_path / "alertmanager.yml").write_text("route: {}\n")
    assert named_file_errors(variables, str(tmp_path)) == []
