# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of slurmdbd in MariaDB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from . import backup_host
from .backup_host import BackupError, output_of
from .restic_repository import DUMP, Repository, piped


def different_counts(restored: Mapping[str, int], bounds: Sequence[Mapping[str, int]]) -> list[str]:
    """Tables of a restored database with another number of rows than the live one had before and after the dump."""
    wrong = []
    for table in sorted({*restored, *(table for bound in bounds for table in bound)}):
        allowed = [bound.get(table, 0) for bound in bounds]
        if not min(allowed) <= restored.get(table, 0) <= max(allowed):
            span = f"{min(allowed)} to {max(allowed)}" if min(allowed) != max(allowed) else str(allowed[0])
            wrong.append(f"{table} has {restored.get(table, 0)} rows, and the live one had {span}")
    return wrong


def rows_in_words(found: Mapping[str, int]) -> str:
    """Numbers of rows by table."""
    return ", ".join(f"{table} {rows}" for table, rows in sorted(found.items()))


def is_of_others() -> bool:
    """Whether others run the database server: slurmdbd's user may use its own database alone, which they restore."""
    return backup_host.CLIENT.exists()


def client(program: str) -> list[str]:
    """A program of MariaDB: as root of this host, or as slurmdbd's user of a server of others."""
    return [program, *([f"--defaults-extra-file={backup_host.CLIENT}"] if is_of_others() else [])]


def sql(query: str) -> list[list[str]]:
    """The rows of a query."""
    rows = output_of([*client("mariadb"), "--batch", "--skip-column-names", f"--execute={query}"])
    return [line.split("\t") for line in rows.split("\n") if line]


def tables(database: str) -> list[str]:
    """The tables of a database; nothing where there is none."""
    query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"
    return [row[0] for row in sql(query)]


def counts(database: str) -> dict[str, int]:
    """The rows of the tables that people miss first: clusters, accounts, users, associations, jobs and steps."""
    wanted = re.compile(r"(cluster|acct|user|qos)_table|.+_(assoc|job|step)_table")
    found = {}
    for table in filter(wanted.fullmatch, tables(database)):
        ((number,),) = sql(f"SELECT COUNT(*) FROM `{database}`.`{table}`")
        found[table] = int(number)
    return found


def load_database(repository: Repository, snapshot: str, database: str) -> None:
    """Load a dump into a new database of this name; one that a killed run has left is removed first."""
    sql(f"DROP DATABASE IF EXISTS `{database}`; CREATE DATABASE `{database}`")
    piped(["restic", "dump", snapshot, f"/{DUMP}"], ["mariadb", database], repository.environment)


def has_database(name: str) -> bool:
    """Whether this host has tables of slurmdbd, also if MariaDB does not run."""
    try:
        return bool(tables(name))
    except BackupError:
        return any((backup_host.DATADIR / name).glob("*.ibd"))
