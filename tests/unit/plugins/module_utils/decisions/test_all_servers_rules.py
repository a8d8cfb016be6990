# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What servers have in common."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import (
    all_servers,
    nginx,
    report_server,
    rest,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers.server import NOTHING
from plain_host import PlainHost, cluster

REST = {"host": "login", "clients": [], "max_token_lifespan": 3600}
PAGE = {"host": "login", "readers": [], "password_file": "", "proxy": {}, "administrators": []}


def login(**variables: object) -> PlainHost:
    """The login host of a cluster with these keys."""
    return cluster(slurmrestd_tls=False, slurm_report_tls=False, registry_tls=False, **variables)["login"]


def test_a_host_is_asked_for_the_files_of_its_own_servers_alone() -> None:
    host = login(slurm_rest=REST).set(slurmrestd_tls=True, registry_tls=True)
    assert preflight.server_objections(host) == []
    found = preflight.server_objections(host.set(group_names=[*host["group_names"], "slurm_rest"]))
    assert [text.partition(":")[0] for text in found] == ["slurmrestd_certificate", "slurmrestd_key"]
    found = preflight.server_objections(host.set(group_names=["slurm_cluster", "slurm_registry"]))
    assert [text.partition(":")[0] for text in found] == ["registry_certificate", "registry_key"]


def test_services_start_in_their_order() -> None:
    host = login(slurm_rest=REST, slurm_report=PAGE)
    assert all_servers.services(host, "slurmrestd") == ["slurmrestd", "slurm-rest-auth", "nginx"]
    assert all_servers.services(host, "slurm_report") == ["slurm-report.timer", "nginx"]
    registry = ["docker-registry", "slurm-registry-auth", "nginx", "gpucluster-registry-clean.timer"]
    assert all_servers.services(host, "registry") == registry


def test_check_mode_leaves_out_an_nginx_that_a_registry_has_not_yet() -> None:
    host = login(ansible_check_mode=True)
    assert "nginx" not in all_servers.services(host, "registry")
    assert "nginx" in all_servers.services(host.say(packages={"nginx": "1"}), "registry")


@pytest.mark.parametrize("role", all_servers.SERVERS)
def test_a_host_with_nothing_of_a_server_loses_nothing(role: str) -> None:
    assert all_servers.removal(login(), role) == NOTHING
    assert not all_servers.loses_something(login(), role)


def test_a_server_leaves_an_nginx_that_goes_on() -> None:
    left = {rest.FRONT_CONF: "0" * 64, nginx.RECORD: "0" * 64}
    assert all_servers.removal(login(slurm_report=PAGE).say(files=left), "slurmrestd").kept == {
        "nginx": rest.FRONT_CONF
    }
    assert all_servers.removal(login().say(files=left), "slurmrestd").kept == {}


def test_the_host_of_the_page_loses_the_old_program_alone() -> None:
    old = f"{report_server.OLD_PROGRAM}/__main__.py"
    host = login(slurm_report=PAGE).say(files={old: "0" * 64, report_server.FRONT_CONF: "0" * 64})
    removal = all_servers.removal(host, "slurm_report")
    assert (removal.directories, removal.files, removal.kept) == ([report_server.OLD_PROGRAM], [], {})
