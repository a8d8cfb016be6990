# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of an image: what its host is not asked, which stages it has, and which options are refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import (
    host_packages,
    slurm_client,
    slurmd,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import kernel, munge
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import containers, image
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import image_build
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import (
    comparison,
    preflight,
    questions,
    requirements,
    stages,
)
from plain_host import PlainHost, cluster

KEY = "/cluster/secrets/x/munge.key"
BASE: dict[str, Any] = {"base_packages": [], "base_extra_packages": [], "base_time_service": ""}
SCRATCH = [{"path": "/scratch", "type": "tmpfs", "source": "tmpfs", "hosts": "compute"}]


def built(name: str = "n1", **variables: Any) -> PlainHost:
    """The host of an image, alone in its play, as no daemon has ever run there."""
    play = {"ansible_play_hosts": [name], "ansible_play_hosts_all": [name]}
    hosts = cluster(munge_key_file=KEY, **{**BASE, **play, **variables})
    host = hosts[name].set(slurm_image="build").say(applied={}, clocks={}, container="podman", hostname="builder")
    host.facts["slurm"] |= {"installed": "", "candidate": "24.11.5-4"}
    return host


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("n1", ""),
        ("login", ""),
        ("", "found nothing, allowed: a compute node or login host of the inventory, such as -e image_of=n1"),
        ("logim", "found logim, allowed: a compute node or login host of the inventory; did you mean 'login'?"),
        ("slurm_compute", "found slurm_compute, allowed: a compute node or login host"),
        ("head", "head is a controller or the database host, whose state is no part of an image"),
    ],
)
def test_an_image_is_of_a_node_or_login_host(name: str, error: str) -> None:
    host = cluster(image_of=name)["head"]
    found = image_build.errors(host)
    assert len(found) == bool(error)
    assert error in "".join(found)


def test_a_limit_without_the_host_is_refused() -> None:
    hosts = cluster(image_of="n1", ansible_play_hosts_all=["n2"])
    assert "--limit: leaves out n1" in image_build.errors(hosts["n2"])[0]


def test_the_variable_is_refused_for_a_whole_cluster() -> None:
    host = cluster(ansible_version={"major": 2, "minor": 19, "full": "2.19.0"})["head"]
    assert not any("slurm_image" in text for text in preflight.objections(host))
    assert any("slurm_image: found build" in text for text in preflight.objections(host.set(slurm_image="build")))


def test_the_host_is_not_asked_about_its_hardware_and_its_cluster() -> None:
    running = cluster(**BASE)["n1"]
    assert questions.questions(running)["hardware"]
    asked = questions.questions(built())
    assert not asked["hardware"]
    assert not asked["serving_controller"]
    assert asked["policy_users"] == asked["directory_users"] == asked["programs"] == []


def test_the_name_of_the_machine_that_builds_is_no_error() -> None:
    host = built()
    assert not [text for text in requirements.objections(host) if "host name" in text]
    assert [text for text in requirements.objections(host.set(slurm_image="")) if "host name" in text]


def test_no_other_host_is_asked_for_the_release_or_the_nodes() -> None:
    host = built()
    host["__slurm_facts"].update(objections=[], stages=[], clock_offset=400.0)
    compared = comparison.compare(host)
    assert compared.open_questions == []
    assert compared.stop == ""
    assert compared.refused == {}
    assert comparison.compare(host.set(slurm_image="")).open_questions


def test_stages_that_measure_or_need_the_cluster_have_no_work() -> None:
    host = built(slurm_storage=SCRATCH)
    host.say(people="old", firewall="old", ufw=["22"])
    found = stages.stages(host)
    assert {*found} <= {*image.STAGES}
    assert "storage" in found


def test_settings_of_the_kernel_that_builds_are_not_judged() -> None:
    host = built(base_kernel_settings={"vm.nr_hugepages": 5}).say(container="none", kernel={})
    assert kernel.kernel(host) == kernel.Kernel("", [], [])
    host.say(namespaces={"max_user_namespaces": 0, "unprivileged_userns_clone": 0})
    host.facts["namespaces"]["apparmor_restrict_unprivileged_userns"] = 1
    assert containers.kernel_objections(host) == []
    assert not containers.needs_profile(host, "enroot")
    host.set(slurm_image="")
    assert containers.kernel_objections(host)
    assert containers.needs_profile(host, "enroot")


def test_an_image_has_no_key_and_asks_for_none() -> None:
    assert munge.service(built()).files == []


def test_the_time_service_is_installed_also_where_a_container_builds() -> None:
    host = built()
    host.set(base_time_service="systemd-timesyncd")
    assert host_packages.wants_time(host)
    assert not host_packages.wants_time(host.say(clocks={"chrony": False}))


def test_nothing_is_asked_of_a_controller() -> None:
    assert slurmd.asks_for_values(cluster()["n1"])
    assert not slurmd.asks_for_values(built())
    old = built("login").say(slurm_version="22.05.8-4", distribution="debian 12")
    assert not slurm_client.wants_copy(old)
    assert slurm_client.wants_copy(old.set(slurm_image=""))


def test_the_list_names_what_the_cluster_file_asks_for_and_the_image_lacks() -> None:
    plain = "\n".join(image_build.report(built()))
    assert "munge key" in plain
    assert "registration" in plain
    assert "MIG" not in plain
    assert "firewall" not in plain
    assert "mounted" in "\n".join(image_build.report(built(slurm_storage=SCRATCH)))
    assert "mounted" not in "\n".join(image_build.report(built("login", slurm_storage=SCRATCH)))
    full = built(slurm_people={"users": [], "groups": []}, slurm_firewall={"ssh": ["10.0.0.0/8"]})
    text = "\n".join(image_build.report(full))
    assert all(word in text for word in ("people", "the firewall"))
    assert "registration" not in "\n".join(image_build.report(built("login")))
    assert image_build.result(full)["left"] == image_build.left(full)


def test_the_host_of_prometheus_gets_its_files_by_site_yml() -> None:
    assert not image.is_measured(built())
    monitoring = {"host": "login", "users_and_accounts": False}
    assert image.is_measured(built(slurm_monitoring=monitoring))
    login = built("login", slurm_monitoring=monitoring)
    assert not image.is_measured(login)
    assert "what the host serves: monitoring" in "\n".join(image_build.report(login))
