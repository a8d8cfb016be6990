# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role first_boot, and its units."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import first_boot
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.program_library import LIBRARY
from plain_host import PlainHost, cluster

ROLES = Path(__file__).parents[5] / "roles"


class Rendering(PlainHost):
    """A host whose templates are rendered."""

    def text(self, role: str, template: str, **variables: object) -> str:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(ROLES), trim_blocks=True, undefined=jinja2.StrictUndefined
        )
        return environment.get_template(f"{role}/templates/{template}").render(variables)


def files_of(name: str, **variables: object) -> dict[str, str]:
    """The files of a host by their path below the units, or else by their path, without the program's modules."""
    host = cluster(**variables)[name]
    files = first_boot.files(Rendering(host, host.files))
    return {
        file["path"].removeprefix("/etc/systemd/system/"): file["content"]
        for file in files
        if LIBRARY not in file["path"]
    }


@pytest.mark.parametrize(("name", "daemon"), [("n1", "slurmd"), ("login", "sackd"), ("head", "")])
def test_the_daemon_of_a_host(name: str, daemon: str) -> None:
    assert first_boot.daemon(cluster()[name]) == daemon


def test_a_login_host_without_sackd_has_no_daemon() -> None:
    assert first_boot.daemon(cluster()["login"].say(slurm_version="22.05.8")) == ""


@pytest.mark.parametrize(("name", "daemon"), [("n1", "slurmd"), ("login", "sackd")])
def test_munge_and_the_daemon_wait_for_the_first_boot(name: str, daemon: str) -> None:
    files = files_of(name)
    assert [*files][2:] == [
        "slurm-first-boot.service",
        "slurm-first-boot-check.service",
        "munge.service.d/gpucluster-first-boot.conf",
        f"{daemon}.service.d/gpucluster-first-boot.conf",
    ]
    service = files["slurm-first-boot.service"].split("\n")
    assert f"Before=munge.service {daemon}.service" in service
    assert f"Wants=network-online.target munge.service {daemon}.service slurm-first-boot-check.service" in service
    for unit in ("munge", daemon):
        text = files[f"{unit}.service.d/gpucluster-first-boot.conf"]
        assert "Requires=slurm-first-boot.service\nAfter=slurm-first-boot.service\n" in text
        assert ("EnvironmentFile=-/run/gpucluster-slurm/first-boot.env" in text) == (unit != "munge")


def test_a_host_without_a_daemon_has_munge_alone() -> None:
    files = files_of("head")
    assert [*files][2:] == ["slurm-first-boot.service", "munge.service.d/gpucluster-first-boot.conf"]
    assert "Before=munge.service\n" in files["slurm-first-boot.service"]


def test_the_settings_have_controllers_releases_and_the_command() -> None:
    conf = {"SlurmctldPort": "7000-7003"}
    files = files_of("n1", slurm_controllers=["a", "b"], slurm_conf=conf, first_boot_key_command=["vault", "read"])
    settings = json.loads(files["/etc/gpucluster-slurm/first-boot.json"])
    assert settings["servers"] == ["a:7000", "b:7000"]
    assert settings["port"] == 7000
    assert settings["tls"] is False
    assert settings["key_command"] == ["vault", "read"]
    assert settings["protocols"]["24.11"] == 10752
    assert settings["protocols"]["26.05"] == 11520
    assert settings["takes"]["24.11"] == ["23.02", "23.11", "24.05"]


def test_the_settings_tell_whether_controllers_use_tls() -> None:
    assert first_boot.settings(cluster(slurm_conf={"TLSType": "tls/s2n"})["n1"])["tls"] is True


def test_only_root_reads_the_settings() -> None:
    modes = {file["path"]: file.get("mode") for file in first_boot.files(cluster()["n1"])}
    assert modes[first_boot.SETTINGS] == "0600"
    assert modes[first_boot.PROGRAM] == "0755"
