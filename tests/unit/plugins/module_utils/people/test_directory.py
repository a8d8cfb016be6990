# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of a directory service: which hosts are asked, and what differs between them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.directory import (
    directory_differences,
    directory_hosts,
    ids_of,
)

SILENT = {"checksum": "", "unknown": None}
ULLA = "ulla:*:7001:7001:Ulla:/home/ulla:/bin/bash\n"
VEIT = "veit:*:7002:7000::/home/veit:/bin/bash\n"


def answer(checksum: str, unknown: int = 0) -> dict[str, Any]:
    """The fact of a host about its users."""
    return {"checksum": checksum, "unknown": unknown}


@pytest.mark.parametrize(
    ("answers", "hosts"),
    [
        ({}, []),
        ({"n1": answer("a"), "n2": answer("a")}, []),
        ({"n1": answer("a"), "n2": answer("b"), "n3": answer("a"), "n4": answer("b")}, ["n1", "n2"]),
        ({"n1": answer("a", 1), "n2": answer("a", 1)}, ["n1"]),
        ({"n1": answer("a"), "n2": SILENT, "n3": SILENT}, ["n1", "n2"]),
        ({"n1": SILENT, "n2": SILENT}, ["n1"]),
    ],
    ids=["no directory", "equal", "different", "users are unknown", "some are silent", "all are silent"],
)
def test_one_host_of_each_answer_is_asked(answers: dict[str, Any], hosts: list[str]) -> None:
    assert directory_hosts(answers) == hosts


def test_other_ids_are_one_conflict_of_the_user_with_all_hosts() -> None:
    answers = {"n1": answer("b"), "n2": answer("a"), "n3": answer("a"), "n4": answer("c"), "n5": answer("a")}
    other = ULLA.replace("7001:7001", "8001:8001")
    passwd = {"n1": other + VEIT, "n2": ULLA + VEIT, "n4": other.replace("ulla", "Ulla") + VEIT.replace("7000", "7009")}
    assert directory_differences(answers, passwd, ["Ulla", "veit"]) == {
        "conflicts": [
            "user ulla has uid 7001 and gid 7001 on n[2-3,5], and uid 8001 and gid 8001 on n[1,4]",
            "user veit has uid 7002 and gid 7000 on n[1-3,5], and uid 7002 and gid 7009 on n4",
        ],
        "remarks": [],
    }


def test_hosts_that_do_not_answer_and_unknown_users_are_no_conflict() -> None:
    answers = {"n1": answer("a"), "n2": SILENT, "n3": SILENT, "n4": answer("b", 1)}
    assert directory_differences(answers, {"n1": ULLA + VEIT, "n4": ULLA}, ["ulla", "veit"]) == {
        "conflicts": [],
        "remarks": [
            "n[2-3]: the directory did not answer, so ids were not compared",
            "n4: users of the policy who do not exist: veit",
        ],
    }


def test_only_lines_of_passwd_are_read() -> None:
    assert ids_of(f"{ULLA}x\nveit:*:many:7000::/:/\n+::::::\n") == {"ulla": "7001:7001"}
