# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role mariadb."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import mariadb
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import MARIADB_SOCKET
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.default_values import buffer_pool_mib
from plain_host import PlainHost, cluster


def database(**variables: Any) -> PlainHost:
    """The host of the database."""
    return cluster(**{"mariadb_settings": {}} | variables)["head"]


@pytest.mark.parametrize(
    ("memory", "size"),
    [(100, 128), (1900, 512), (2000, 512), (8100, 2048), (8300, 2048), (257_000, 64_512), (257_600, 64_512)],
)
def test_a_quarter_of_the_memory(memory: int, size: int) -> None:
    """A kernel update changes MemTotal a little, and the database must not restart for it."""
    assert buffer_pool_mib(memory) == size


def test_settings_of_the_site_win_and_are_written_as_mariadb_reads_them() -> None:
    host = database(mariadb_settings={"max_allowed_packet": "1G", "skip_name_resolve": True, "init_connect": "a#b"})
    lines = host.text("mariadb", "slurm.cnf.j2", lines={**dict.fromkeys(mariadb.settings(host))})
    assert lines.index("innodb_lock_wait_timeout") < lines.index("skip_name_resolve")
    (file,) = mariadb.service(host).files
    assert file["path"] == mariadb.FILE
    for text in ("'max_allowed_packet': '1G'", "'skip_name_resolve': 'ON'", "'init_connect': '\"a#b\"'"):
        assert text in file["content"]


def test_mariadb_is_left_alone_if_it_is_as_the_last_run_has_left_it() -> None:
    host = database()
    assert not mariadb.service(host).unchanged
    host.say(applied={"mariadb": mariadb.service(host).digest})
    assert mariadb.service(host).unchanged
    assert not mariadb.service(host.set(mariadb_settings={"max_connections": 200})).unchanged


def test_a_host_that_this_run_has_prepared_is_compared() -> None:
    host = database()
    host.say(applied={"mariadb": mariadb.service(host).digest})
    assert not mariadb.service(host.set(group_names=["slurm_needs_preparation"])).unchanged


def test_a_check_asks_mariadb_only_if_it_is_there_and_runs() -> None:
    host = database().say(packages={}, paths={MARIADB_SOCKET: "mysql:mysql 0777"})
    assert mariadb.can_be_asked(host)
    host.set(ansible_check_mode=True)
    assert not mariadb.can_be_asked(host)
    assert mariadb.can_be_asked(host.say(packages={"mariadb-server": "1"}))
    assert not mariadb.can_be_asked(host.say(paths={})), "it is installed, and does not run"


def test_variables_have_the_names_that_mariadb_shows() -> None:
    """Where another file has won, the names are compared."""
    host = database(mariadb_settings={"loose-x-y": 1})
    assert {"bind_address", "innodb_snapshot_isolation", "x_y"} <= {*mariadb.variables(host)}
    query = mariadb.questions(host)[-1]
    assert "'max_allowed_packet', 'bind_address', 'innodb_snapshot_isolation', 'x_y')" in query
    assert query.endswith(f"<> '{mariadb.FILE}'")


def test_answers_belong_to_their_questions() -> None:
    rows: list[list[dict[str, str]]] = [[] for _question in mariadb.QUESTIONS]
    host = database(__mariadb_read={"rows": rows})
    nothing = mariadb.findings(host)
    assert (nothing.insecure_users, nothing.test_databases, nothing.growth) == ([], [], [])
    rows[:] = [[{"user": "", "host": "h"}], [{"name": "test"}], *([{"message": text}] for text in "abcd")]
    found = mariadb.findings(host.set(__mariadb_read={"rows": rows}))
    assert found.insecure_users == [{"user": "", "host": "h"}]
    assert found.test_databases == ["test"]
    assert (found.powerful_users, found.growth, found.overridden) == (["a"], ["b", "c"], ["d"])
