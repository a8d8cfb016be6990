# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmdbd."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages, slurmdbd
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.daemon_records import options_digest
from plain_host import DATABASE_SERVER, PlainHost, cluster

PASSWORD = "/cluster/secrets/x/slurmdbd_storage_pass"
KEY = "/cluster/secrets/x/munge.key"


def database(files: dict[str, bytes] | None = None, **variables: Any) -> PlainHost:
    """The host of the database."""
    given = {PASSWORD: b"se#cret\n"} if files is None else files
    return cluster(given, **{"slurmdbd_conf": {}, "slurmdbd_storage_pass_file": PASSWORD} | variables)["head"]


@pytest.mark.parametrize(
    ("slurm_conf", "expected"),
    [
        ({}, None),
        ({"CommunicationParameters": None}, None),
        ({"CommunicationParameters": "NoAddrCache"}, None),
        ({"CommunicationParameters": "NoAddrCache,EnableIPv6"}, "EnableIPv6"),
        ({"CommunicationParameters": ["enableipv6", "DisableIPv4"]}, "enableipv6,DisableIPv4"),
    ],
)
def test_slurmdbd_uses_the_versions_of_ip_of_the_other_daemons(
    slurm_conf: dict[str, Any], expected: str | None
) -> None:
    """It has a file of its own (`src/slurmdbd/read_config.c`)."""
    assert slurmdbd.default_values(database(slurm_conf=slurm_conf)).get("CommunicationParameters") == expected


def test_values_of_the_site_win() -> None:
    host = database(slurmdbd_conf={"purgejobafter": "1month", "StorageLoc": "mine"}, slurm_profile="strict")
    text = slurmdbd.conf(host)
    assert "PurgeJobAfter=1month" in text
    assert "StorageLoc=mine" in text
    assert "PrivateData=accounts,events,jobs,reservations,usage,users" in text
    assert "Include" not in text, "the template has it"
    assert "/etc/slurm/slurmdbd_storage.conf" in text
    assert (slurmdbd.database(host).name, slurmdbd.database(host).user) == ("mine", "slurm")


def test_a_database_server_of_others() -> None:
    server = {**DATABASE_SERVER, "ca": "files/ca.pem"}
    files = {PASSWORD: b"se#cret\n", "/cluster/files/ca.pem": b"PEM"}
    host = database(files, slurm_database_server=server)
    text = slurmdbd.conf(host)
    wanted = {"Host": "db.x.org", "Port": "3307", "User": "slurm", "Loc": "acct"}
    assert all(f"Storage{key}={value}" in text for key, value in wanted.items())
    assert "StorageParameters=SSL_CA=/etc/gpucluster-slurm/database-ca.pem" in text
    given = {**DATABASE_SERVER, "password": "se#cret", "ca": "PEM", "convert": False}
    assert vars(slurmdbd.server(host)) == given
    assert slurmdbd.unit_files(host)[1]["restart"], "slurmdbd reads the certificate when it starts"
    assert host_packages.installed_packages(host, "mariadb") == ["mariadb-client"]
    assert "StorageParameters" not in slurmdbd.conf(database(slurm_database_server=DATABASE_SERVER))


@pytest.mark.parametrize(
    ("variables", "new"),
    [
        ({}, False),
        ({"__slurmdbd_database": {"changed": True}}, True),
        ({"slurm_database_server": DATABASE_SERVER, "__slurmdbd_server": {"release": ""}}, True),
        ({"slurm_database_server": DATABASE_SERVER, "__slurmdbd_server": {"release": "24.11"}}, False),
        ({"slurm_database_server": DATABASE_SERVER}, False),
    ],
)
def test_a_database_without_tables_is_new(variables: dict[str, Any], new: bool) -> None:
    assert slurmdbd.has_new_database(database(**variables)) is new


def test_the_next_release_has_its_own_directory_of_pid_files() -> None:
    host = database(__slurm_upgrade_plan={"to": "24.11.5-4", "release": "24.11"}).say(slurm_version="22.05.8")
    assert "PidFile=/run/slurmdbd.pid" in slurmdbd.conf(host)
    assert "PidFile=/run/slurmdbd/slurmdbd.pid" in slurmdbd.conf(host, "24.11")
    assert not slurmdbd.has_next_release(host)
    host.say(packages={"slurm-wlm-basic-plugins": "24.11.5-4"})
    assert slurmdbd.has_next_release(host)


def test_the_file_with_the_password_is_as_slurm_reads_it() -> None:
    host = database()
    assert slurmdbd.database(host).password == "se#cret"
    (secret,) = slurmdbd.configuration(host).secrets.items()
    assert secret[0] == "slurmdbd_storage.conf"
    assert base64.b64decode(secret[1]) == b"StoragePass=se\\#cret\n"
    assert slurmdbd.present_password(host.set(__slurmdbd_present={"content": secret[1]})) == "se#cret"


def test_a_host_without_slurmdbd_has_no_password() -> None:
    assert slurmdbd.present_password(database(__slurmdbd_present={"failed": True})) == ""


def test_the_password_may_be_missing_in_check_mode_only() -> None:
    with pytest.raises(ValueError, match="slurmdbd_storage_pass is missing"):
        slurmdbd.configuration(database({}))
    assert slurmdbd.database(database({}, ansible_check_mode=True)).password == ""


def test_a_configuration_is_compared_again_without_the_munge_key() -> None:
    """Without the key, a checksum that the host keeps would tell something about the password."""
    for files, unchanged in (({PASSWORD: b"x", KEY: b"key"}, True), ({PASSWORD: b"x"}, False)):
        host = database(files)
        records = {"slurmdbd": slurmdbd.service(host).digest, "slurmdbd_config": slurmdbd.configuration(host).digest}
        assert slurmdbd.configuration(host.say(applied=records)).unchanged is unchanged


@pytest.mark.parametrize("missing", ["slurmdbd", "slurmdbd_config"])
def test_a_configuration_is_compared_again_without_a_record(missing: str) -> None:
    host = database({PASSWORD: b"x", KEY: b"key"})
    records = {"slurmdbd": slurmdbd.service(host).digest, "slurmdbd_config": slurmdbd.configuration(host).digest}
    host.say(applied={name: digest for name, digest in records.items() if name != missing})
    assert not slurmdbd.configuration(host).unchanged


def test_slurmdbd_is_compared_unless_it_is_as_the_last_run_has_left_it() -> None:
    host = database()
    assert slurmdbd.service(host).wanted
    host.say(applied={"slurmdbd": options_digest(slurmdbd.unit_files(host))})
    assert not slurmdbd.service(host).wanted
    host.set(group_names=["slurm_needs_preparation"])
    assert slurmdbd.service(host).wanted


def test_a_check_does_not_compare_a_slurmdbd_that_the_run_would_start() -> None:
    host = database(__slurmdbd_config={"actions": ["start"]})
    assert slurmdbd.service(host).wanted
    assert not slurmdbd.service(host.set(ansible_check_mode=True)).wanted


@pytest.mark.parametrize(
    ("variables", "allowed"),
    [
        ({}, False),
        ({"__slurm_upgrades": True}, True),
        ({"backup_convert": True}, True),
        ({"backup_convert": False}, False),
    ],
)
def test_an_upgrade_or_an_accepted_restore_converts_a_database(variables: dict[str, Any], allowed: bool) -> None:
    assert slurmdbd.may_convert(database(**variables)) == allowed
