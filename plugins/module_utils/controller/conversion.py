# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmdbd's database and its conversion by the slurmdbd of another release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping

from ..client.commands import run
from ..configuration.conf_file import lines, value_text
from ..configuration.upgrade import database_release
from ..host.files import File, write
from ..language.errors import CollectionError
from .release_overlay import wrap_command
from .trial_start import cause

UNIT = "gpucluster-slurm-conversion"
"""The transient unit that converts, so that a run that was killed leaves nothing that the next run does not find."""

STARTED = re.compile(r"slurmdbd version \S+ started")
"""slurmdbd's message when its tables are converted (main in src/slurmdbd/slurmdbd.c)."""

HOURS = 24 * 3600
"""Seconds for a dump and for loading it."""

COLUMNS = """\
SELECT DISTINCT column_name FROM information_schema.columns
WHERE table_schema = '{name}' AND table_name REGEXP '_(job|assoc)_table$';
"""
"""The query for the columns that tell the release of a database."""

OTHERWISE = re.compile(r"(archive|purge)|(dbdhost|dbdaddr|dbdbackuphost|logfile|pidfile|storageloc|storagebackuphost)$")
"""Parameters that a slurmdbd that only converts has otherwise, in small letters."""


class ConversionError(CollectionError):
    """Why a database is not converted."""


def conversion_conf(text: str, database: str, directory: str) -> str:
    """slurmdbd.conf of a slurmdbd that converts a database: it moves nothing to an archive, and logs to its output."""
    kept = [
        " ".join(f"{key}={value_text(value)}" for key, value in pairs)
        if pairs[0][0] != "Include"
        else f"Include {pairs[0][1]}"
        for pairs in lines("slurmdbd.conf", text)
        if not OTHERWISE.match(pairs[0][0].lower())
    ]
    added = ["DbdHost=localhost", f"PidFile={directory}/slurmdbd.pid", f"StorageLoc={database}"]
    return "\n".join([*kept, *added]) + "\n"


def needed_mib(size: int, same: bool) -> Mapping[str, int]:
    """MiB that must be free for the dump, and for the copy of the database that is converted (`size`: MiB).

    A table that is converted is there twice. `same`: both are in one file system.
    """
    dump, copy = size + 64, 2 * size + 64
    return {"dump": dump + copy, "copy": dump + copy} if same else {"dump": dump, "copy": copy}


class Database:
    """MariaDB's database of slurmdbd on this host, reached by root through the socket."""

    def __init__(self, name: str, user: str, socket: str) -> None:
        if not re.fullmatch(r"[\w-]+", name, re.ASCII) or not re.fullmatch(r"[\w.-]+", user, re.ASCII):
            raise ConversionError(
                f"StorageLoc, StorageUser: found '{name}', '{user}', allowed: letters, digits, _ and -"
            )
        self.name, self.user, self.socket = name, user, f"--socket={socket}"

    def ask(self, question: str) -> str:
        """MariaDB's answer. Raises ConversionError."""
        answer = run(["mariadb", self.socket, "--batch", "--skip-column-names"], stdin=question, seconds=600)
        if answer.status:
            raise ConversionError(f"MariaDB did not answer the query: {answer.message}")
        return answer.output.strip()

    def check_room(self, directory: str) -> int:
        """MiB of the database. Raises ConversionError unless there is room for its dump and its copy."""
        size = int(
            self.ask(
                "SELECT CEILING(COALESCE(SUM(data_length + index_length), 0) / 1048576) "
                f"FROM information_schema.tables WHERE table_schema = '{self.name}'"
            )
        )
        places = {"dump": directory, "copy": self.ask("SELECT @@datadir")}
        needed = needed_mib(size, len({os.stat(path).st_dev for path in places.values()}) == 1)
        for what, path in places.items():
            free = shutil.disk_usage(path).free >> 20
            if free < needed[what]:
                raise ConversionError(
                    f"{path}: the upgrade needs {needed[what]} MiB for a dump and a copy of database {self.name} "
                    f"({size} MiB), and {free} MiB are free"
                )
        return size

    def release(self) -> str:
        """The release whose tables the database has; empty without any. Raises ConversionError."""
        return database_release(self.ask(COLUMNS.format(name=self.name)).split())

    def dump(self, path: str) -> None:
        """Write the database to a file for root, which is never there in part. Raises ConversionError.

        mariadb-dump leaves out the database's own character set, which tables get that are created later.
        """
        statement = self.ask(
            "SELECT CONCAT('ALTER DATABASE CHARACTER SET ', default_character_set_name, "
            "' COLLATE ', default_collation_name, ';') "
            f"FROM information_schema.schemata WHERE schema_name = '{self.name}'"
        )
        script = (
            'umask 077; { echo "$4" && mariadb-dump "$1" --single-transaction --quick --routines "$2"; } >"$3.new" '
            '&& mv "$3.new" "$3"'
        )
        answer = run(["sh", "-c", script, "sh", self.socket, self.name, path, statement], seconds=HOURS)
        if answer.status:
            raise ConversionError(f"mariadb-dump could not dump database {self.name}: {answer.message}")

    def load(self, path: str, name: str) -> None:
        """Create a database from a dump. Raises ConversionError."""
        if not os.path.exists(path):
            raise ConversionError(f"The dump {path} does not exist, so database {name} cannot be restored")
        self.disconnect(name)
        self.ask(f"DROP DATABASE IF EXISTS `{name}`; CREATE DATABASE `{name}`")
        answer = run(["sh", "-c", 'exec mariadb "$1" "$2" <"$3"', "sh", self.socket, name, path], seconds=HOURS)
        if answer.status:
            raise ConversionError(f"MariaDB could not load the dump {path} into database {name}: {answer.message}")

    def disconnect(self, name: str) -> None:
        """End the statements of a slurmdbd that was killed. Raises ConversionError.

        MariaDB goes on with ALTER TABLE after its client has died, and would not drop the database until that ends.
        """
        where = f"db = '{name}' AND user = '{self.user}'"
        for number in self.ask(f"SELECT id FROM information_schema.processlist WHERE {where}").split():
            # A connection may have ended meanwhile.
            run(["mariadb", self.socket, "--execute", f"KILL {number}"])

    def allow(self, name: str, allowed: bool) -> None:
        """Give the user of slurmdbd a database, or take it back. Raises ConversionError."""
        where = name.replace("_", r"\_")
        verb, to = ("GRANT", "TO") if allowed else ("REVOKE", "FROM")
        self.ask(f"{verb} ALL ON `{where}`.* {to} '{self.user}'@'localhost'")

    def drop(self, name: str) -> None:
        """Remove a scratch database, and what it needs. Raises ConversionError."""
        self.disconnect(name)
        self.ask(f"DROP DATABASE IF EXISTS `{name}`")
        where = name.replace("_", r"\\_")
        if self.ask(f"SELECT COUNT(*) FROM mysql.db WHERE db = '{where}' AND user = '{self.user}'") != "0":
            self.allow(name, False)


def end_conversion() -> None:
    """End a conversion of a run that was killed."""
    run(["systemctl", "stop", UNIT], seconds=900)
    run(["systemctl", "reset-failed", UNIT])


def convert(unpacked: str, conf: str, database: str, user: str) -> int:
    """Let the unpacked slurmdbd convert a database, in a network of its own, where nobody reaches it.

    Returns the seconds that it took. Raises ConversionError with slurmdbd's message, OverlayError.
    """
    end_conversion()
    with tempfile.TemporaryDirectory(prefix="gpucluster-slurm-conversion-") as directory:
        path = os.path.join(directory, "slurmdbd.conf")
        write([File(path, conversion_conf(conf, database, directory).encode(), owner=user, mode=0o600)])
        shutil.chown(directory, user, user)
        service = ["systemd-run", f"--unit={UNIT}", "--quiet", "--collect", "--wait", "--pipe"]
        service += ["--property=PrivateNetwork=yes", "--property=TimeoutStopSec=600"]
        service += [f"--setenv=SLURM_CONF={directory}/slurm.conf", "--setenv=LC_ALL=C.UTF-8"]
        began, said = time.monotonic(), list[str]()
        with subprocess.Popen(  # pylint: disable=ansible-bad-function
            [*service, *wrap_command(unpacked, ["slurmdbd", "-D"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                said.append(re.sub(r"^\[\S+\] |^slurmdbd: ", "", line.strip()))
                if STARTED.search(line):
                    seconds = round(time.monotonic() - began)
                    end_conversion()
                    return seconds
    raise ConversionError(f"the new slurmdbd does not convert database {database}: {cause(said)}")
