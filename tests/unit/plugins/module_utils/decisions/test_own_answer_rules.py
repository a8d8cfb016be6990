# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which stages have work on a host, and why a host is refused, by its own answer."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import platform
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.unchanged_hosts import digest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preparation, requirements, stages
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.state_version import FILE, VERSION
from plain_host import PlainHost, cluster

BASE = {
    "base_packages": ["munge"],
    "base_extra_packages": [],
    "base_time_service": "systemd-timesyncd",
    "base_manage_hosts_file": True,
    "base_kernel_settings": {},
    "base_munge_user_id": 966,
}


def host(name: str = "n1", **variables: Any) -> PlainHost:
    """A host that has all that role base prepares."""
    found = cluster(**{**BASE, **variables})[name]
    texts = found.shared("digests")
    return found.say(
        packages={"munge": "1"},
        users={"munge": 966, "slurm": 64030},
        files={preparation.USERS_FILE: texts["users"], preparation.DIRECTORIES_FILE: texts["directories"]},
        part=texts["hosts"],
        clocks={"systemd-timesyncd": True},
        nvidia_gpus=0,
        state_version=VERSION,
    )


def test_a_prepared_host_needs_nothing() -> None:
    assert stages.stages(host()) == []
    assert requirements.objections(host()) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"packages": {}},
        {"users": {"munge": 966}},
        {"files": {}},
        {"part": "0" * 64},
        {"clocks": {}},
        {"clocks": {"systemd-timesyncd": False}},
        {"interrupted": True},
        {"state_version": 0},
        {"unheld": ["slurmd"]},
        {"directories": {"differ": {"/var/log/slurm": "root:root 0777"}, "refused": []}},
    ],
    ids=str,
)
def test_a_host_that_lacks_something_is_prepared(facts: dict[str, Any]) -> None:
    assert "preparation" in stages.stages(host().say(**facts))


def test_a_clock_that_something_else_synchronizes_stays() -> None:
    assert not host_packages.wants_time(host().say(clocks={"chrony": True}))
    assert not host_packages.wants_time(host().say(clocks={}, container="podman"))
    assert not host_packages.wants_time(host(base_time_service="").say(clocks={}))
    assert host_packages.time_packages(host().say(clocks={})) == ["systemd-timesyncd"]
    assert host_packages.time_packages(host().say(clocks={"systemd-timesyncd": False})) == []


def test_texts_switch_the_hosts_file_off() -> None:
    there = host(base_manage_hosts_file="no").say(part="0" * 64)
    assert stages.stages(there) == []
    assert [entry["path"] for entry in preparation.preparation(there).files] == [
        preparation.USERS_FILE,
        preparation.DIRECTORIES_FILE,
        FILE,
    ]


def test_files_of_packages_are_copied_where_they_are_missing() -> None:
    files = {"files": [{"file": "slurm-smd_25.11.2-1_amd64.deb"}]}
    there = host(slurm_packages=files, base_packages=["munge", "slurm-smd"])
    assert "copied_packages" in stages.stages(there)
    assert "copied_packages" not in stages.stages(there.say(packages={"munge": "1", "slurm-smd": "25.11.2-1"}))


@pytest.mark.parametrize(
    ("variables", "facts", "stage"),
    [
        ({"slurm_people": {"source": "list", "users": []}}, {}, "people"),
        ({}, {"nvidia_gpus": 1}, "driver"),
        ({"nvidia_driver_module_options": {"nvidia": {"x": 1}}}, {}, "driver"),
        ({"slurm_containers": ["apptainer"]}, {}, "containers"),
        ({"slurm_containers": ["apptainer"], "slurm_registry": "head"}, {}, "registry"),
        ({"slurm_containers": ["enroot", "pyxis"]}, {}, "container_plugins"),
        ({}, {"storage": "0" * 64}, "storage"),
        ({}, {"firewall": "0" * 64}, "firewall_rules"),
        ({}, {"ufw": ["22"]}, "firewall"),
    ],
)
def test_stages_of_a_node(variables: dict[str, Any], facts: dict[str, Any], stage: str) -> None:
    assert stage in stages.stages(host(**variables).say(**facts))
    assert stage not in stages.stages(host())


def test_users_have_a_registry_only_where_the_cluster_has_one() -> None:
    assert "registry" not in stages.stages(host(slurm_containers=["enroot", "pyxis"]))
    assert "registry" not in stages.stages(host(slurm_registry="head"))


def test_a_container_has_no_driver_of_its_own() -> None:
    assert "driver" not in stages.stages(host().say(nvidia_gpus=1, container="podman"))
    assert "driver" not in stages.stages(host("login").say(nvidia_gpus=1))
    assert "driver" not in stages.stages(host(nvidia_driver_manage="false").say(nvidia_gpus=1))


def test_a_node_of_other_hands_shows_its_files() -> None:
    there = host()
    files = {**there.facts["files"], "/etc/slurm/slurm.conf": digest("x")}
    assert "node_files" in stages.stages(there.say(files=files))
    settings = {"/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf": digest("y")}
    assert "node_files" not in stages.stages(there.say(files={**files, **settings}))


@pytest.mark.parametrize(
    ("clusters", "read"),
    [
        ({"found": [], "daemons": []}, False),  # packages in the image alone
        ({"found": [], "daemons": ["slurmd"]}, True),
        ({"found": [{"name": "a", "file": "/opt/slurm.conf", "by": "slurmd"}], "daemons": []}, True),
    ],
)
def test_own_files_of_a_node_are_read_where_slurmd_reads_them(clusters: dict[str, Any], read: bool) -> None:
    there = host().say(packages={"munge": "1", "slurmd": "24"}, clusters=clusters)
    assert ("node_files" in stages.stages(there)) == read


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"hostname": "other.example.org"}, "the host name is other.example.org, and the name in the inventory is n1"),
        (
            {"users": {"munge": 966, "slurm": 1}},
            "the user slurm has id 1 here and 64030 in this cluster (slurm_user_id)",
        ),
        (
            {"users": {"munge": 966}, "taken_ids": {"slurm": ["the group old has id 64030"]}},
            "the group old has id 64030 here, and the user slurm and its group have 64030 in this cluster",
        ),
        ({"other_addresses": {"head": "127.0.1.1"}}, "/etc/hosts has a line 127.0.1.1 head, and in this cluster"),
        ({"directories": {"differ": {}, "refused": ["a", "b"]}}, "a; b"),
        ({"free_mib": {"/var/log/slurm": 63, "/x": 64}}, "in /var/log/slurm 63 MiB are free, allowed: 64 or more"),
        ({"read_only": ["/etc", "/usr"]}, "/etc, /usr: the file system is read-only, and the run writes there"),
    ],
)
def test_unsuitable_hosts_are_told_why(facts: dict[str, Any], text: str) -> None:
    addresses = [{"hosts": "head", "address": "10.0.0.1"}]
    (objection,) = requirements.objections(host(slurm_addresses=addresses).say(**facts))
    assert text in objection


def test_lines_of_the_hosts_file_for_further_names() -> None:
    addresses = [{"hosts": "head", "address": "head.example.org"}]
    further = [{"hosts": "n1", "names": "n1-ib", "address": address} for address in ("10.1.0.1", "2001:db8::1")]
    there = host(slurm_addresses=addresses, slurm_further_addresses=further)
    assert requirements.objections(there.say(other_addresses={"head": "10.0.0.1", "n1-ib": "10.1.0.1"})) == []
    (objection,) = requirements.objections(there.say(other_addresses={"n1-ib": "10.9.9.9"}))
    assert objection.startswith("/etc/hosts has a line 10.9.9.9 n1-ib, and in this cluster the address is 10.1.0.1, 2")


@pytest.mark.parametrize("owner", ["slurm", "root", ""])
def test_the_files_of_a_cluster_are_not_given_to_another_slurm_user(owner: str) -> None:
    """Without this, everything of slurm would be a stranger's, to be removed."""
    differ = {"/var/lib/slurm": f"{owner}:{owner} 0755"} if owner else {}
    there = host(slurm_conf={"SlurmUser": "munge"}).say(directories={"differ": differ, "refused": ["remove it"]})
    (objection,) = requirements.objections(there)
    if owner == "slurm":
        assert objection.startswith("slurm_conf.SlurmUser: found 'munge', and /var/lib/slurm of this host belongs to")
        assert "remove" not in objection
    else:
        assert objection == "remove it"


def test_a_name_may_have_a_domain() -> None:
    assert requirements.objections(host().say(hostname="n1.example.org")) == []


def test_settings_that_the_kernel_does_not_have() -> None:
    (objection,) = requirements.objections(host(base_kernel_settings={"net.x": 1}))
    assert objection.startswith("base_kernel_settings: found net.x, allowed:")


@pytest.mark.parametrize(
    ("method", "packages"),
    [("nvml", ["slurm-wlm-nvml-plugin"]), ("rsmi", ["slurm-wlm-rsmi-plugin"]), ("nvidia", []), (None, [])],
)
def test_the_package_that_finds_gpus_of_a_vendor(method: str | None, packages: list[str]) -> None:
    gres = [{"name": "gpu", **({"autodetect": method} if method else {"file": "/dev/nvidia0"})}]
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000, "gres": gres}
    nodes = [{"hosts": "n1", "hardware": "m"}]
    there = host("n1", slurm_hardware_types={"m": machine}, slurm_nodes=nodes)
    assert platform.plugins(there) == packages


def test_an_old_slurm_finds_no_gpu_and_sends_no_script() -> None:
    gres = [{"name": "gpu", "autodetect": "nvidia"}]
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000, "gres": gres}
    script = [{"name": "a", "script": "#!/bin/sh\n"}]
    there = host("head", slurm_hardware_types={"m": machine}, slurm_prologs=script).say(slurm_version="22.05.8")
    first, second = requirements.objections(there)
    assert first == "Slurm 22.05 knows autodetect nvml, oneapi, rsmi, and the machine types have nvidia"
    assert second.startswith("Slurm 22.05 does not send prologs and epilogs")


IMEX: dict[str, Any] = {"nvidia_driver_imex_nodes": "n[1-2]", "slurm_conf": {"SwitchType": "switch/nvidia_imex"}}
CHANNEL: dict[str, Any] = {
    "nvidia_driver_module_options": {"nvidia": "NVreg_EnableStreamMemOPs=1 NVreg_CreateImexChannel0=1"}
}


def imex_counts(parameters: str, of_driver: str) -> dict[str, Any]:
    """Variables of a domain with the numbers of channels of Slurm and of the driver."""
    options = {"nvidia": f"NVreg_ImexChannelCount={of_driver}"} if of_driver else {}
    conf = {**IMEX["slurm_conf"], "SwitchParameters": parameters}
    return {**IMEX, "slurm_conf": conf, "nvidia_driver_module_options": options}


@pytest.mark.parametrize(
    ("variables", "channels", "beginnings"),
    [
        (IMEX, True, []),
        (IMEX, None, []),  # this run installs the driver
        (IMEX, False, ["NVIDIA's driver has no IMEX channels"]),
        ({**IMEX, "slurm_conf": {"SwitchType": "switch/none"}}, False, []),
        ({**IMEX, "slurm_conf": {**IMEX["slurm_conf"], "SwitchParameters": "imex_dev_major=511"}}, False, []),
        ({**IMEX, "nvidia_driver_imex_nodes": ""}, False, []),  # a node outside of a domain
        ({**IMEX, **CHANNEL}, True, ["nvidia_driver_module_options has NVreg_CreateImexChannel0"]),
        ({**CHANNEL, "nvidia_driver_imex_nodes": "n[1-2]"}, True, []),
        (imex_counts("imex_channel_count=1", ""), True, ["slurm_conf: SwitchParameters: found imex_channel_count=1, "]),
        (imex_counts("imex_channel_count=", ""), True, ["slurm_conf: SwitchParameters: found imex_channel_count=0, "]),
        (imex_counts("imex_channel_count=2", ""), True, []),
        (
            imex_counts("", "64"),
            True,
            ["nvidia_driver_module_options: found NVreg_ImexChannelCount=64, and Slurm gives"],
        ),
        (imex_counts("imex_channel_count=64,imex_dev_major=511", "64"), True, []),
        (imex_counts("imex_channel_count=4096", "4096"), True, []),
    ],
)
def test_no_job_of_a_domain_runs_without_a_channel(
    variables: dict[str, Any], channels: bool | None, beginnings: list[str]
) -> None:
    found = requirements.objections(host(**variables).say(imex_channels=channels))
    assert [text[: len(beginning)] for text, beginning in zip(found, beginnings, strict=True)] == beginnings
