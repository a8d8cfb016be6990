# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conversion of slurmdbd's database without a database; tests/integration/upgrade shows the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import conversion
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.conversion import (
    STARTED,
    ConversionError,
    Database,
    conversion_conf,
    needed_mib,
)
from programs import StandIn

CONF = """\
# Managed
ArchiveDir=/var/lib/slurm/archive
ArchiveJobs=yes
DbdHost=db
DbdPort=7000
LogFile=/var/log/slurm/slurmdbd.log
PurgeJobAfter=24month
SlurmUser=slurm
StorageLoc=slurm_acct_db
StorageUser=slurm
Include /etc/slurm/slurmdbd_storage.conf
"""


def test_a_slurmdbd_that_converts_purges_nothing_and_has_its_own_files() -> None:
    assert conversion_conf(CONF, "scratch", "/tmp/x") == (
        "DbdPort=7000\n"
        "SlurmUser=slurm\n"
        "StorageUser=slurm\n"
        "Include /etc/slurm/slurmdbd_storage.conf\n"
        "DbdHost=localhost\n"
        "PidFile=/tmp/x/slurmdbd.pid\n"
        "StorageLoc=scratch\n"
    )


def test_the_dump_and_the_copy_need_room() -> None:
    assert needed_mib(1000, same=False) == {"dump": 1064, "copy": 2064}
    assert needed_mib(1000, same=True) == {"dump": 3128, "copy": 3128}


@pytest.mark.parametrize("name", ["", "a`b", "a b", "a;b", "ä"])
def test_names_that_would_leave_their_quotes_are_refused(name: str) -> None:
    with pytest.raises(ConversionError, match="allowed: letters, digits, _ and -"):
        Database(name, "slurm", "/run/mysqld/mysqld.sock")
    with pytest.raises(ConversionError):
        Database("slurm_acct_db", name, "/run/mysqld/mysqld.sock")


def test_the_message_of_a_slurmdbd_that_has_converted() -> None:
    assert STARTED.search("slurmdbd: slurmdbd version 26.05.1 started")
    assert not STARTED.search("slurmdbd: error: slurmdbd version mismatch")


@pytest.mark.parametrize("work", ["load", "drop"])
def test_a_database_is_dropped_after_the_statements_of_a_killed_slurmdbd(
    work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB goes on with ALTER TABLE after its client has died, and DROP DATABASE would wait for it."""
    said: list[str] = []

    def run(command: Sequence[str], stdin: str = "", **_limit: float) -> Answer:
        said.append(stdin or command[-1])
        return Answer(0, "41\n42\n" if "processlist" in stdin else "0", "")

    monkeypatch.setattr(conversion, "run", run)
    dump = tmp_path / "dump.sql"
    dump.touch()
    database = Database("acct", "slurm", "/s")
    if work == "load":
        database.load(str(dump), "acct")
    else:
        database.drop("acct")
    assert said[0].endswith("WHERE db = 'acct' AND user = 'slurm'")
    assert said[1:3] == ["KILL 41", "KILL 42"]
    assert said[3].startswith("DROP DATABASE IF EXISTS `acct`")


def test_a_dump_keeps_the_character_set_of_the_database(tmp_path: Path, stand_in: StandIn) -> None:
    own = "ALTER DATABASE CHARACTER SET latin1 COLLATE latin1_swedish_ci;"
    dump = tmp_path / "dump.sql"
    stand_in("mariadb", f"echo '{own}'")
    stand_in("mariadb-dump", "echo 'CREATE TABLE t'")
    Database("acct", "slurm", "/s").dump(str(dump))
    assert dump.read_text() == f"{own}\nCREATE TABLE t\n"
    assert dump.stat().st_mode & 0o777 == 0o600
