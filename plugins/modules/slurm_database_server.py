#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database_server
short_description: Check that slurmdbd can use a database server that the collection does not manage
description:
  - Runs on the host of slurmdbd. It logs in to the server, and fails with the statements for a database administrator
    if the server refuses the user, or if the user lacks rights on the database. A host without MariaDB's client is not
    checked.
  - Where slurmdbd is installed, it refuses a database of a later release, and one that slurmdbd would convert.
  - It changes nothing.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_database_server]
"""

EXAMPLES = r"""
- name: Check the database server
  gpucluster.slurm.slurm_database_server:
    host: db.example.org
    port: 3306
    user: slurm
    password: "{{ password }}"
    name: slurm_acct_db
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.configuration.release_order import PACKAGE_SOURCE
from ..module_utils.configuration.upgrade import database_release, parts, tables_release
from ..module_utils.controller.daemons import ConfigError, Slurmdbd, refuse_later
from ..module_utils.controller.database_server import CLIENT, Connection, DatabaseAccount, inspect
from ..module_utils.formats.written import mariadb_client_options
from ..module_utils.host.files import write_new
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, switch

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import DatabaseServerResult

SLURMDBD = "/usr/sbin/slurmdbd"


def client_options(params: Params, directory: str) -> str:
    """Write the options of MariaDB's client; the path of the file."""
    ca = f"{directory}/ca.pem" if params["ca"] else ""
    if ca:
        write_new(ca, params["ca"].encode(), 0o600)
    write_new(f"{directory}/client.cnf", mariadb_client_options(params, params["password"], ca).encode(), 0o600)
    return f"{directory}/client.cnf"


def check(module: AnsibleModule) -> DatabaseServerResult:
    """The module's result. Raises UnusableDatabaseError, ConfigError."""
    params = module.params
    if not shutil.which(CLIENT):
        return {"changed": False, "release": ""}
    server = DatabaseAccount(params["host"], params["port"], params["user"], params["name"], bool(params["ca"]))
    with tempfile.TemporaryDirectory() as directory:
        found = inspect(Connection(server, client_options(params, directory)))
    release = database_release(found[1:])
    if os.path.exists(SLURMDBD):
        version = Slurmdbd(module).version()
        refuse_later(version, params["name"], found)
        if release and release < tables_release(parts(version)[0]) and not params["convert"]:
            raise ConfigError(
                f"The database {params['name']} of {server.host} was not changed. It is one of Slurm {release}, and "
                f"slurmdbd {version} would convert it when it starts. To keep the release: "
                f"{PACKAGE_SOURCE.format(release=release)}. To convert it: let its administrator save it, and run "
                "again with -e backup_convert=true"
            )
    return {"changed": False, "release": release}


ARGUMENTS = {
    "host": option("Name or address of the server.", required=True),
    "port": option("Its port.", "int", required=True),
    "user": option("The user of slurmdbd.", required=True),
    "password": option("Its password.", required=True, no_log=True),
    "name": option("Name of the database.", required=True),
    "ca": option(
        "Certificates in PEM form, one of which has signed that of the server. Without them, there is no TLS.",
        default="",
    ),
    "convert": switch("Whether slurmdbd may convert the database of an earlier release."),
}


def main() -> None:
    run_module(check, ARGUMENTS)


if __name__ == "__main__":
    main()
