# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `database_server` of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from ..configuration.parameter_values import LIMITS, LOCAL
from ..language.formatting import shown
from .schema import Checker, file_name, kind_of, text, up_to

DERIVED = {
    "StorageHost": "host",
    "StorageLoc": "name",
    "StorageParameters": "ca",
    "StoragePort": "port",
    "StorageUser": "user",
}
"""Parameters of slurmdbd.conf that follow from the key, and from which part."""

SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def server(value: Any) -> str:
    """The name or address of a server."""
    if not SERVER.fullmatch(text(value)):
        raise ValueError("allowed: the name or the address of a server, such as db.example.org")
    return text(value)


def identifier(value: Any) -> str:
    """The name of a user or of a database, as the statements of a database administrator have it."""
    if not IDENTIFIER.fullmatch(text(value)):
        raise ValueError("allowed: up to 64 letters, digits, _ and -")
    return text(value)


class DatabaseServerKey(TypedDict, total=False):
    """The value of the key; the variable has all of it but `ca`, or is empty."""

    host: Annotated[str, server, "required"]
    port: Annotated[int, up_to(LIMITS["u16"])]
    user: Annotated[str, identifier]
    name: Annotated[str, identifier]
    ca: Annotated[str, file_name]


DATABASE_SERVER = kind_of(DatabaseServerKey)


def check(checker: Checker, found: Any, database: str) -> DatabaseServerKey:
    """The checked value of the key, with every default except `ca`. database: the host of slurmdbd."""
    if not found:
        return {}
    found = checker.without_password("database_server", found, "slurmdbd_storage_pass")
    given = checker.check(DATABASE_SERVER, "database_server", found)
    if not database:
        checker.problem("database_server", "needs the key database, the host of slurmdbd")
    elif given.get("host") in (database, *LOCAL):
        what = f"found {shown(given['host'])}, allowed: another host than that of slurmdbd"
        checker.problem("database_server.host", f"{what}; without this key, the collection installs MariaDB there")
    return {"port": 3306, "user": "slurm", "name": "slurm_acct_db", **given} if "host" in given else given


def check_others(checker: Checker, key: DatabaseServerKey, slurmdbd_conf: Mapping[str, Any], settings: Any) -> None:
    """Refuse what names another server, or the settings of MariaDB that nobody reads. settings: mariadb_settings."""
    given = {str(name).lower(): value for name, value in slurmdbd_conf.items() if value is not None}
    if key:
        for name, part in DERIVED.items():
            if name.lower() in given:
                what = f"is derived from {checker.key('database_server')}.{part}: remove it"
                checker.problem(f"slurmdbd_conf.{name}", what)
        if settings:
            what = f"is for MariaDB of the collection, which {checker.key('database_server')} replaces: remove one"
            checker.problem("mariadb_settings", what)
    elif given.get("storagehost", LOCAL[0]) not in LOCAL:
        what = f"found {shown(given['storagehost'])}, allowed: localhost; the key database_server names another server"
        checker.problem("slurmdbd_conf.StorageHost", what)
