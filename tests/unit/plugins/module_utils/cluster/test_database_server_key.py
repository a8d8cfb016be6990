# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `database_server` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import database_server_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

LEAST = {"host": "db.x.org"}
DEFAULTS = {"port": 3306, "user": "slurm", "name": "slurm_acct_db"}


def checked(found: Any, database: str = "head") -> tuple[database_server_key.DatabaseServerKey, list[str]]:
    """The valid part, and the problems."""
    problems: list[str] = []
    return database_server_key.check(Checker("my.cluster.yml", problems), found, database), problems


def contradictions(key: Any, slurmdbd_conf: Any, settings: Any) -> list[str]:
    """The problems with the variables of roles."""
    problems: list[str] = []
    database_server_key.check_others(Checker("", problems), key, slurmdbd_conf, settings)
    return problems


@pytest.mark.parametrize("given", [{}, {"port": 3307, "user": "s", "name": "n", "ca": "files/ca.pem"}])
def test_defaults(given: dict[str, Any]) -> None:
    value = {**DEFAULTS, **LEAST, **given}
    assert checked(LEAST | given) == (value, [])
    assert checked(value) == (value, [])  # as the variable has it
    assert checked({"host": "2001:db8::1"})[1] == []


def test_a_site_without_the_key_has_mariadb_of_the_collection() -> None:
    assert checked({}, "") == ({}, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"port": 1}, "my.cluster.yml: database_server.host: missing"),
        ({"host": "head"}, "database_server.host: found 'head', allowed: another host than that of slurmdbd"),
        ({"host": "localhost"}, "without this key, the collection installs MariaDB there"),
        ({"host": "db x"}, "database_server.host: found 'db x', allowed: the name or the address of a server"),
        (LEAST | {"port": 70000}, "database_server.port: found 70000, allowed: a whole number from 1 to 65535"),
        (LEAST | {"user": "a'b"}, "database_server.user: found"),
        (
            LEAST | {"ca": "../ca.pem"},
            "database_server.ca: found '../ca.pem', allowed: a file next to the cluster file",
        ),
        (LEAST | {"nam": "x"}, "database_server.nam: unknown key, did you mean 'name'?"),
        (LEAST | {"password": "secret"}, "database_server.password: is not a key of the cluster file: put it into the"),
        ("db.x.org", "database_server: found 'db.x.org', allowed: a mapping with host"),
    ],
)
def test_each_mistake_is_one_error_with_what_is_allowed(found: Any, problem: str) -> None:
    (message,) = checked(found)[1]
    assert problem in message
    assert "secret" not in message.replace("slurm_secrets_dir", "")


def test_it_needs_a_host_of_slurmdbd() -> None:
    assert checked(LEAST, "")[1] == ["my.cluster.yml: database_server: needs the key database, the host of slurmdbd"]


def test_what_names_another_server_is_refused() -> None:
    key = {**DEFAULTS, **LEAST}
    assert contradictions(key, {"purgejobafter": "1month", "StorageBackupHost": "db2.x.org"}, {}) == []
    (message,) = contradictions(key, {"storagehost": "db2.x.org"}, {})
    assert message == "slurmdbd_conf.StorageHost: is derived from slurm_database_server.host: remove it"
    (message,) = contradictions(key, {}, {"max_connections": 5})
    assert message.startswith(
        "mariadb_settings: is for MariaDB of the collection, which slurm_database_server replaces"
    )
    (message,) = contradictions({}, {"StorageHost": "db.x.org"}, {"max_connections": 5})
    assert message.startswith(
        "slurmdbd_conf.StorageHost: found 'db.x.org', allowed: localhost; the key database_server"
    )
    assert contradictions({}, {"StorageHost": "localhost"}, {"max_connections": 5}) == []
