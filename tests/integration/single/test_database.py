# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role mariadb on a database that somebody has opened: with users, with the test database, and with other files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from lab import Lab, Run

CONF = "/etc/mysql/mariadb.conf.d"
OPEN = """
CREATE USER ''@'localhost'; CREATE USER ''@'%'; CREATE USER root@'%' IDENTIFIED BY 'x'; CREATE DATABASE test;
CREATE ROLE auditors; CREATE USER app@'%' IDENTIFIED BY 'x';
CREATE USER dba@'%' IDENTIFIED BY 'x'; GRANT ALL ON *.* TO dba@'%' WITH GRANT OPTION;
"""
SLOW = "SET SESSION long_query_time = 0; " + "SELECT 1; " * 20
LARGE = f"""
CREATE DATABASE large; CREATE TABLE large.kept (content LONGBLOB);
INSERT INTO large.kept VALUES {", ".join(["(REPEAT('x', 1048576))"] * 10)}; ANALYZE TABLE large.kept;
"""
CLOSE = "DROP DATABASE large; DROP ROLE auditors; DROP USER app@'%'; DROP USER dba@'%';"


@pytest.fixture(scope="module", name="repaired")
def run_of_the_role(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run of role mariadb, on an open database whose files set one value before and one after the role's file."""
    host = lab.cluster["database"]
    lab.script(host, "mariadb", OPEN.encode())
    lab.script(
        host,
        f"cd {CONF} && cat >99-site.cnf && "
        "printf '[mariadb]\ninnodb-lock-wait-timeout = 51\ninnodb-buffer-pool-size = 6M\n' >zzz-site.cnf",
        b"[mysqld]\nbind-address = 0.0.0.0\n",
    )
    lab.command(host, "systemctl restart mariadb")
    lab.script(host, "mariadb", (LARGE + SLOW).encode())
    play = {"hosts": "slurm_database", "become": True, "gather_facts": False}
    path = tmp_path_factory.mktemp("mariadb") / "play.yml"
    path.write_text(json.dumps([play | {"roles": ["gpucluster.slurm.mariadb"]}]))
    yield lab.playbook(str(path))
    lab.script(host, "mariadb", CLOSE.encode())
    lab.command(host, f"rm {CONF}/99-site.cnf {CONF}/zzz-site.cnf && systemctl restart mariadb")


def test_users_and_the_test_database_are_removed(lab: Lab, repaired: Run) -> None:
    host = lab.cluster["database"]
    users = lab.command(host, "mariadb -NBe \"SELECT CONCAT(user, '@', host) FROM mysql.user ORDER BY 1\"").split()
    kept = {"app@%", "auditors@", "dba@%"}
    assert {user for user in users if not user.endswith("@localhost")} == kept, repaired.output
    assert "@localhost" not in users
    assert "test" not in lab.command(host, "mariadb -NBe 'SHOW DATABASES'").split()


def test_a_user_with_all_rights_from_anywhere_is_shown(repaired: Run) -> None:
    said = [
        result["msg"] for _host, name, result in repaired.results if name.endswith("with all rights from elsewhere")
    ]
    assert len(said) == 1
    assert "who may log in from other hosts: dba@%. " in said[0]


def test_a_database_that_outgrows_its_memory_and_slow_queries_are_shown(repaired: Run) -> None:
    said = [result["msg"] for _host, name, result in repaired.results if "Show growth that needs a change" in name]
    assert len(said) == 1
    assert re.search(r"database large has \d+ MiB, more than innodb_buffer_pool_size \(\d+ MiB\); ", said[0])
    assert re.search(r"\d+ queries took longer than 10 s in the 1 hours since MariaDB started", said[0])


def test_a_file_that_is_read_before_the_roles_own_does_not_open_the_port(lab: Lab, repaired: Run) -> None:
    show = "mariadb -NBe 'SELECT @@bind_address'"
    assert lab.command(lab.cluster["database"], show) == "127.0.0.1", repaired.output


def test_a_file_that_is_read_later_is_named(lab: Lab, repaired: Run) -> None:
    (failed,) = repaired.failed[lab.cluster["database"]]
    assert f"innodb_lock_wait_timeout is 51, from {CONF}/zzz-site.cnf" in failed
    assert "Remove the line there" in failed
    assert "bind_address" not in failed
