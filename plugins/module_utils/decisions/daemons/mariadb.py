# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role mariadb."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...formats.written import written
from ..known import registered
from ..known.daemon_records import ServiceOptions, is_unchanged, options_digest
from ..known.host_paths import MARIADB_SOCKET
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..values import defaults
from .host_packages import lacks_package

FILE = f"/etc/mysql/mariadb.conf.d/{defaults.MARIADB}"
"""MariaDB reads the files of this directory in the order of their names, and the last value wins."""

PREVIOUS_FILE = "/etc/mysql/mariadb.conf.d/90-gpucluster-slurm.cnf"
"""The previous name, which lost to a file such as 99-site.cnf."""

LOCAL = "('localhost', '127.0.0.1', '::1')"

QUESTIONS = {
    # Roles are rows of mysql.user with is_role.
    "insecure_users": (
        "SELECT user AS user, host AS host FROM mysql.user "
        f"WHERE is_role = 'N' AND (user = '' OR (user = 'root' AND host NOT IN {LOCAL}))"
    ),
    "test_databases": "SELECT schema_name AS name FROM information_schema.schemata WHERE schema_name = 'test'",
    "powerful_users": (
        "SELECT CONCAT(user, '@', host) AS message FROM mysql.user "
        f"WHERE is_role = 'N' AND super_priv = 'Y' AND user NOT IN ('', 'root') AND host NOT IN {LOCAL}"
    ),
    # Such a database reads from the disk.
    "large": (
        "SELECT CONCAT('database ', table_schema, ' has ', ROUND(SUM(data_length + index_length) / 1048576), "
        "' MiB, more than innodb_buffer_pool_size (', ROUND(@@innodb_buffer_pool_size / 1048576), ' MiB)') AS message "
        "FROM information_schema.tables "
        "WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') "
        "GROUP BY table_schema HAVING SUM(data_length + index_length) > @@innodb_buffer_pool_size"
    ),
    # A slow query makes users of sacct wait, and slurmdbd.
    "slow": (
        "SELECT CONCAT(slow.variable_value, ' queries took longer than ', ROUND(@@long_query_time), ' s in the ', "
        "CEILING(uptime.variable_value / 3600), ' hours since MariaDB started') AS message "
        "FROM information_schema.global_status AS slow JOIN information_schema.global_status AS uptime "
        "WHERE slow.variable_name = 'SLOW_QUERIES' AND uptime.variable_name = 'UPTIME' "
        "AND slow.variable_value > 10 AND slow.variable_value > uptime.variable_value / 3600"
    ),
    "overridden": (
        "SELECT CONCAT(LOWER(variable_name), ' is ', global_value, ', from ', "
        "COALESCE(global_value_path, 'the command line')) AS message "
        "FROM information_schema.system_variables WHERE variable_name IN ('{variables}') "
        f"AND global_value_origin IN ('CONFIG', 'COMMAND-LINE') AND COALESCE(global_value_path, '') <> '{FILE}'"
    ),
}
"""What should have no result. Each column has an alias, since mysql.user is a view from MariaDB 10.4 on, and names its
columns User and Host in every result."""


@dataclass(frozen=True)
class MariadbFindings:
    """The answers to the questions."""

    insecure_users: list[dict[str, str]]
    """Each with user and host."""
    test_databases: list[str]
    powerful_users: list[str]
    growth: list[str]
    overridden: list[str]
    file: str
    """The file that they override."""


def settings(host: RunHost) -> dict[str, Any]:
    """The settings that Slurm's documentation asks for, and those of the site.

    https://slurm.schedmd.com/accounting.html#slurm-accounting-configuration-before-build
    """
    own = defaults.values(defaults.MARIADB, defaults.target(host, ""))
    return {**own, **host["mariadb_settings"]}


def service(host: RunHost) -> ServiceOptions:
    """How MariaDB runs on this host."""
    lines = {key: written(value, "mariadb") for key, value in settings(host).items()}
    files: list[HostFile] = [{"path": FILE, "content": host.text("mariadb", "slurm.cnf.j2", lines=lines)}]
    digest = options_digest([files, PREVIOUS_FILE])
    return ServiceOptions(files, digest, [PREVIOUS_FILE], unchanged=is_unchanged(host, "mariadb", digest))


def can_be_asked(host: RunHost) -> bool:
    """Whether modules can ask MariaDB: in check mode, it may not be there or not run yet."""
    return not host.check_mode or (MARIADB_SOCKET in host.facts["paths"] and not lacks_package(host, "mariadb"))


def variables(host: RunHost) -> list[str]:
    """Names of the system variables of the settings, as MariaDB shows them in any letter case."""
    return [re.sub("^loose[-_]", "", key).replace("-", "_") for key in settings(host)]


def questions(host: RunHost) -> list[str]:
    """The queries for what should have no result."""
    names = "', '".join(variables(host))
    return [query.replace("{variables}", names) for query in QUESTIONS.values()]


def findings(host: RunHost) -> MariadbFindings:
    """What the queries have found."""
    rows = dict(zip(QUESTIONS, registered.MARIADB_READ.of(host)["rows"], strict=True))

    def messages(*names: str) -> list[str]:
        return [row["message"] for name in names for row in rows[name]]

    return MariadbFindings(
        insecure_users=rows["insecure_users"],
        test_databases=[row["name"] for row in rows["test_databases"]],
        powerful_users=messages("powerful_users"),
        growth=messages("large", "slow"),
        overridden=messages("overridden"),
        file=FILE,
    )
