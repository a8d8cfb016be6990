#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database
short_description: Databases and users of the MariaDB on this host
description:
  - Asks MariaDB by its own client, as root through the socket. No package of Python is needed.
  - A password is neither on a command line nor in a statement. MariaDB gets its hash (C(mysql_native_password)).
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_database]
"""

EXAMPLES = r"""
- name: Create the database
  gpucluster.slurm.slurm_database: {name: slurm_acct_db}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.controller.mariadb_client import (
    LOCAL,
    Mariadb,
    account,
    identifier,
    password_hash,
    surplus,
    wanted_grant,
)
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import DatabaseResult

Change = tuple[str, str, str]
"""What is there before and after it, as the diff has them, and the statement."""


def database_changes(mariadb: Mariadb, name: str) -> list[Change]:
    """What makes the database."""
    if mariadb.has_database(name):
        return []
    return [("", f"database {name}\n", f"CREATE DATABASE {identifier(name)}")]


def user_changes(mariadb: Mariadb, user: str, password: str, name: str) -> list[Change]:
    """What gives the user this password, and the rights to the database alone."""
    shown, who = f"user {user}@{LOCAL}", account(user, LOCAL)
    by_hash = f"IDENTIFIED BY PASSWORD '{password_hash(password)}'"
    found = []
    if not mariadb.has_user(user, LOCAL):
        found.append(("", f"{shown}\n", f"CREATE USER {who} {by_hash}"))
    elif not mariadb.takes(user, password):
        found.append((f"{shown}, another password\n", f"{shown}\n", f"ALTER USER {who} {by_hash}"))
    grants = mariadb.grants(user)
    if not any(grant.startswith(wanted_grant(name)) for grant in grants):
        found.append(("", f"{shown}: all rights to {name}\n", f"{wanted_grant(name)}{who}"))
    return found + [(f"{shown}: {more}\n", "", f"REVOKE {more} FROM {who}") for more in surplus(grants, name)]


def plan(module: AnsibleModule, mariadb: Mariadb) -> list[Change]:
    """All changes, in order."""
    params = module.params
    surplus_databases = [name for name in params["absent_databases"] if mariadb.has_database(name)]
    found = [(f"database {name}\n", "", f"DROP DATABASE {identifier(name)}") for name in surplus_databases]
    for one in params["absent_users"]:
        if mariadb.has_user(one["user"], one["host"]):
            shown = f"user '{one['user']}'@'{one['host']}'\n"
            found.append((shown, "", f"DROP USER {account(one['user'], one['host'])}"))
    if params["name"]:
        found += database_changes(mariadb, params["name"])
    if params["user"]:
        found += user_changes(mariadb, params["user"], params["password"], params["name"])
    return found


def change(module: AnsibleModule) -> DatabaseResult:
    """Make the changes, and answer the queries. Raises MariadbError."""
    mariadb = Mariadb(module.params["socket"])
    changes = plan(module, mariadb)
    if not module.check_mode:
        for _before, _after, statement in changes:
            mariadb.ask(statement)
    return {
        "changed": bool(changes),
        "rows": [mariadb.ask(query) for query in module.params["queries"]],
        "diff": [{"before": before, "after": after} for before, after, _statement in changes],
    }


ARGUMENTS = {
    "socket": option("MariaDB's socket.", "path", default="/run/mysqld/mysqld.sock"),
    "name": option("A database to make, if it does not exist."),
    "user": option(
        "The user who has all rights to the database O(name) and no others, and logs in on this host alone."
    ),
    "password": option("The password of O(user).", no_log=True),
    "absent_databases": several("Databases to remove, with their content."),
    "absent_users": several(
        "Users to remove.",
        "dict",
        options={
            "user": option("Name of the user; empty for the anonymous one.", required=True),
            "host": option("From where the user comes.", required=True),
        },
    ),
    "queries": several(
        "Queries, each with a name for every column. They are asked in check mode as well, and change nothing."
    ),
}


def main() -> None:
    run_module(change, ARGUMENTS, required_together=[("user", "password")], required_by={"user": "name"})


if __name__ == "__main__":
    main()
