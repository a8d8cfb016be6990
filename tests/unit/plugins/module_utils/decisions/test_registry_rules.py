# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role registry."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import nginx, registry
from certificates import pair, write_pair
from plain_host import PlainHost, cluster

DEFAULTS = {
    "registry_name": "login",
    "registry_port": 5000,
    "registry_tls": True,
    "registry_certificate": "",
    "registry_key": "",
    "registry_ca": "",
}
FILES = {"/tls.crt": b"# \xff\n" + pair()[0], "/tls.key": pair()[1], "/ca.crt": pair("authority")[0]}
TLS: dict[str, Any] = {"registry_certificate": "/tls.crt", "registry_key": "/tls.key", "registry_ca": "/ca.crt"}


def host(files: dict[str, bytes] | None = None, **options: Any) -> PlainHost:
    """The host of the registry with these options."""
    return cluster(files, **{**DEFAULTS, **options})["login"]


def test_a_registry_with_tls_needs_its_files() -> None:
    assert registry.SERVER_ROLE.objections(host()) == [
        "registry_certificate: found nothing, allowed: a file next to the cluster file or below its directory, or an "
        "absolute path; or registry_tls: false for a registry without TLS",
        "registry_key: found nothing, allowed: a file next to the cluster file or below its directory, or an absolute "
        "path",
    ]
    for off in (False, "false", "no"):
        assert registry.SERVER_ROLE.objections(host(registry_tls=off)) == []


def test_files_must_be_files(tmp_path: Path) -> None:
    found = registry.SERVER_ROLE.objections(
        host(registry_certificate=str(tmp_path), registry_key="/missing", registry_ca=str(tmp_path))
    )
    assert [text.partition(", ")[0] for text in found] == [
        f"registry_certificate: found {tmp_path}",
        "registry_key: found /missing",
        f"registry_ca: found {tmp_path}",
    ]


@pytest.mark.parametrize(("mode", "shown"), [(0o600, ""), (0o400, ""), (0o640, "640"), (0o4600, "4600")])
def test_only_its_owner_may_read_the_key(tmp_path: Path, mode: int, shown: str) -> None:
    key = tmp_path / "tls.key"
    write_pair(tmp_path)
    key.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(key)
    objection = f"registry_key: found {link} with mode {shown}, allowed: 600 or 400"
    found = registry.SERVER_ROLE.objections(host(registry_certificate=f"{tmp_path}/tls.crt", registry_key=str(link)))
    assert found == ([objection] if shown else [])


def test_the_address_has_the_scheme() -> None:
    assert registry.url(host()) == "https://login:5000"
    assert registry.url(host(registry_tls=False, registry_name="images", registry_port=80)) == "http://images:80"


def test_nginx_listens_with_ipv6_where_the_registry_has_such_an_address() -> None:
    assert nginx.listening(host(), "registry", "login") == "5000"
    addresses = [{"hosts": "login", "address": "10.0.0.1"}, {"hosts": "n1", "address": "fd00::2"}]
    assert nginx.listening(host(slurm_addresses=addresses), "registry", "login") == "5000"
    addresses.append({"hosts": "login", "address": "fd00::1"})
    assert nginx.listening(host(slurm_addresses=addresses), "registry", "login") == "[::]:5000 ipv6only=off"


def test_the_key_is_a_secret_with_its_bytes() -> None:
    certificate, key, front = registry.front_files(host(FILES, **TLS))
    assert front["path"] == "/etc/nginx/conf.d/gpucluster-registry.conf"
    assert certificate["content"].encode(errors="surrogateescape") == FILES["/tls.crt"]
    assert (base64.b64decode(key["secret"]), key["mode"]) == (FILES["/tls.key"], "0400")
    assert len(registry.front_files(host(FILES, **TLS, registry_tls=False))) == 1


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"registry_certificate: /tls\.crt is missing"):
        registry.front_files(host(**TLS))


def test_the_password_of_the_upstream_is_a_secret() -> None:
    secrets = {file["path"] for file in registry.files(host()) if "secret" in file}
    assert secrets == {"/etc/docker/registry/upstream.env"}


def test_hosts_get_the_certificate_of_the_authority() -> None:
    assert registry.authority_file(host(FILES, **TLS)) == {
        "path": registry.TRUSTED,
        "content": FILES["/ca.crt"].decode(),
    }


def test_check_mode_has_nothing_to_compare_without_the_registry() -> None:
    assert host_packages.lacks_package(host(), "registry")
    assert not host_packages.lacks_package(host().say(packages={"docker-registry": "2.8"}), "registry")


def test_the_registry_has_the_name_of_its_images() -> None:
    assert registry.prefix(host()) == "login:5000"
    assert registry.prefix(host(registry_port=443)) == "login"
    assert registry.prefix(host(registry_port="443", registry_tls=False)) == "login:443"


def test_administrators_of_the_cluster_change_all_images() -> None:
    *_modules, program, unit = registry.auth_files(host(slurm_access={"administrators": ["ops", "wheel"]}))
    assert (program["path"], program["mode"]) == ("/usr/local/lib/gpucluster-slurm/slurm-registry-auth", "0755")
    assert "('administrators', ['ops', 'wheel'])" in unit["content"]
    assert "('administrators', [])" in registry.auth_files(host())[-1]["content"]
