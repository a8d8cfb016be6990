# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from plain_host import PlainHost, cluster

OPTIONS: dict[str, Any] = {
    "slurm_health_checks": ["disk", "munge"],
    "slurm_health_own_checks": {},
    "slurm_health_limit": 20,
    "slurm_health_mounts": [],
    "slurm_health_disk_free": 512,
    "slurm_health_shared_percent": 5,
    "slurm_health_xids": [46, 48],
}


def nodes(files: dict[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """Hosts of a play with the nodes."""
    hosts: dict[str, PlainHost] = cluster(files, **OPTIONS | {"ansible_play_hosts": ["n1", "n2"]} | variables)
    return hosts


@pytest.mark.parametrize(
    ("slurm_conf", "expected"),
    [
        ({}, True),
        ({"HealthCheckProgram": "/usr/local/sbin/slurm-health"}, True),
        ({"HealthCheckProgram": "/usr/sbin/nhc"}, False),
        ({"HealthCheckProgram": None}, False),
    ],
)
def test_a_site_can_have_another_program(slurm_conf: dict[str, Any], expected: bool) -> None:
    host = nodes(slurm_conf=slurm_conf)["n1"]
    assert slurm_health.is_used(host) is expected
    assert bool(slurm_health.digests(host)) is expected


def test_names_that_the_program_would_not_run() -> None:
    host = nodes(slurm_health_own_checks={"site-1": "a", "my check": "b", "x.sh": "c"})["n1"]
    (objection,) = slurm_health.objections(host)
    assert objection.startswith("slurm_health_own_checks: found my check, x.sh, allowed as names: ")
    assert slurm_health.objections(nodes()["n1"]) == []


def test_each_file_has_the_mark_or_is_in_the_library() -> None:
    for file in slurm_health.files(nodes()["n1"]):
        if file["path"].startswith(program_files.library_directory("slurm-health")):
            continue
        first, second = file["content"].split("\n")[:2]
        assert first.startswith("#!")
        assert second == slurm_health.MARK


def test_a_check_of_the_site_replaces_one_of_the_role_and_may_be_any_program() -> None:
    own = {"disk": "/cluster/disk", "ib": "/cluster/ib"}
    host = nodes({"/cluster/disk": b"#!/bin/sh\n", "/cluster/ib": b"\x7fELF\xff"}, slurm_health_own_checks=own)["n1"]
    found = {Path(file["path"]).name: file["content"] for file in slurm_health.files(host)}
    assert [*found][-4:] == ["slurm-health", "munge", "disk", "ib"]
    assert found["disk"] == f"#!/bin/sh\n\n{slurm_health.MARK}\n"
    assert found["ib"].encode("utf-8", "surrogateescape") == b"\x7fELF\xff\n" + f"{slurm_health.MARK}\n".encode()


def test_a_check_that_the_control_host_lacks() -> None:
    host = nodes(slurm_health_own_checks={"ib": "/cluster/ib"})["n1"]
    with pytest.raises(ValueError, match=r"slurm_health_own_checks\.ib: /cluster/ib is missing"):
        slurm_health.files(host)


def test_directories_with_a_pattern_are_not_examined() -> None:
    conf = {"SlurmdSpoolDir": "/spool/%n", "TmpFS": "/scratch"}
    assert slurm_health.writable(nodes(slurm_conf=conf)["n1"]) == ["/scratch"]
    assert slurm_health.writable(nodes()["n1"]) == ["/var/lib/slurm/slurmd", "/tmp"]


def test_settings_of_a_host() -> None:
    host = nodes(slurm_health_mounts=["/a", "/b"])["n1"]
    file = slurm_health.settings(host, slurm_health.environments(host)["n1"])
    found = json.loads(file["content"])
    assert found["limit"] == 20
    assert found["environment"]["HEALTH_MEMORY"] == "2000"
    assert found["environment"]["HEALTH_MOUNTS"] == "/a /b"
    assert (found["xids"], found["built_in"]) == ([46, 48], [])


def test_variables_that_a_host_has_for_itself_change_its_digest_alone() -> None:
    hosts = nodes()
    before = slurm_health.digests(hosts["n1"])
    assert before["n1"] == before["n2"]
    hosts["n2"].set(slurm_health_limit=30, other=1)
    after = slurm_health.digests(hosts["n1"])
    assert after["n1"] == before["n1"]
    assert after["n2"] != before["n2"]


def test_hosts_with_other_checks_have_work() -> None:
    host = nodes()["n1"]
    wanted = slurm_health.digests(host)
    records = {"n1": {"slurm_health": wanted["n1"]}, "n2": {}, "head": {}}
    assert slurm_health.hosts_with_work(host, records) == ["n2"]
    other = nodes(slurm_conf={"HealthCheckProgram": "/usr/sbin/nhc"})["n1"]
    assert slurm_health.hosts_with_work(other, records) == []
