# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_client."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages, slurm_client
from plain_host import cluster


@pytest.mark.parametrize(("name", "expected"), [("login", True), ("head", False), ("n1", False)])
def test_sackd_runs_on_hosts_without_another_daemon(name: str, expected: bool) -> None:
    host = cluster()[name]
    assert slurm_client.wants_sackd(host) is expected
    assert not slurm_client.wants_copy(host)


def test_a_release_without_sackd_gets_a_copy_of_the_files() -> None:
    host = cluster()["login"].say(slurm_version="23.02.3")
    assert (slurm_client.wants_sackd(host), slurm_client.wants_copy(host)) == (False, True)
    assert host_packages.lacks_package(host, "slurm_client")
    assert not host_packages.lacks_package(host.say(packages={"slurm-client": "1"}), "slurm_client")


def test_sackd_is_left_alone_if_it_is_as_the_last_run_has_left_it() -> None:
    host = cluster(slurm_controllers=["head", "n1"])["login"]
    before = slurm_client.service(host)
    assert before.servers == ["head:6817", "n1:6817"]
    assert not before.unchanged
    host.say(applied={"sackd": before.digest})
    assert slurm_client.service(host).unchanged
    assert not slurm_client.service(host.set(slurm_controllers=["head"])).unchanged
