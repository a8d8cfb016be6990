# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account files of a host as a plan wants them, and what contradicts the plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.accounts import (
    Lowest,
    PeopleRecord,
    conflicts,
    differences,
    edited,
    fingerprint,
    homes_to_check,
    lowest,
    new_texts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.plan import PeoplePlan, PlanError, read_plan

BARE = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nlp:x:7:7::/var/spool/lpd:/usr/sbin/nologin\n"
    "eve:x:1001:1001:Eve \udcff,,,:/home/eve:/bin/sh\n",
    "shadow": "root:!:20000:0:99999:7:::\nlp:*:20000:0:99999:7:::\neve:$6$eve:20000:0:99999:7:::\n",
    "group": "root:x:0:\nlp:x:7:\neve:x:1001:\naudio:x:29:eve\n",
    "gshadow": "root:*::\nlp:*::\neve:!::\naudio:*::eve\n",
}
ALICE = {"name": "alice", "uid": 5001, "full_name": "Alice Example", "groups": ["vision"], "keys": ["ssh-ed25519 AAAA"]}
BOB = {"name": "bob", "uid": 5002}
VISION = {"name": "vision", "gid": 6001}


def plan(*users: dict[str, Any], groups: Any = (VISION,)) -> PeoplePlan:
    """A plan with these users."""
    return read_plan(json.dumps({"source": "list", "groups": list(groups), "users": users}))


def found(*users: dict[str, Any], record: PeopleRecord | None = None, texts: Any = None, **more: Any) -> list[str]:
    """The conflicts of a plan with these users."""
    return conflicts(plan(*users, **more), texts or applied(ALICE), record or PeopleRecord(), Lowest(), {})


def applied(*users: dict[str, Any], texts: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    """The texts after a plan with these users."""
    return new_texts(plan(*users, **more), texts or BARE)


def line(texts: dict[str, str], file: str, name: str) -> str:
    """The line of a name."""
    (one,) = [line for line in texts[file].split("\n") if line.startswith(f"{name}:")]
    return one


def test_new_users_and_groups_are_added_at_the_end() -> None:
    texts = applied(ALICE, BOB)
    added = {name: text.removeprefix(BARE[name]) for name, text in texts.items()}
    assert added == {
        "passwd": "alice:x:5001:5001:Alice Example:/home/alice:/bin/bash\nbob:x:5002:5002::/home/bob:/bin/bash\n",
        "shadow": "alice:*:::::::\nbob:*:::::::\n",
        "group": "vision:x:6001:alice\npeople:x:967:alice,bob\nalice:x:5001:\nbob:x:5002:\n",
        "gshadow": "vision:!::alice\npeople:!::alice,bob\nalice:!::\nbob:!::\n",
    }
    assert applied(ALICE, BOB, texts=texts) == texts


def test_the_primary_group_can_be_one_of_the_plan() -> None:
    texts = applied({**BOB, "gid": 6001})
    assert line(texts, "passwd", "bob").startswith("bob:x:5002:6001:")
    assert "bob:" not in texts["group"]


def test_a_host_without_gshadow_gets_none() -> None:
    assert applied(ALICE, texts={name: text for name, text in BARE.items() if name != "gshadow"}).keys() == {
        "passwd",
        "shadow",
        "group",
    }


@pytest.mark.parametrize(
    ("password", "suspended"),
    [("$6$hash", "!$6$hash"), ("!$6$hash", "!!$6$hash"), ("*", "!*"), ("!", "!!")],
)
def test_a_suspended_user_gets_the_password_back(password: str, suspended: str) -> None:
    before = applied(ALICE)
    before["shadow"] = before["shadow"].replace("alice:*:", f"alice:{password}:")
    barred = applied({**ALICE, "state": "suspended"}, texts=before)
    assert line(barred, "shadow", "alice") == f"alice:{suspended}::::::1:"
    assert applied({**ALICE, "state": "suspended"}, texts=barred) == barred
    assert applied(ALICE, texts=barred) == before


def test_no_way_back_leads_to_an_empty_password() -> None:
    before = applied(ALICE)
    before["shadow"] = before["shadow"].replace("alice:*::::::::".removesuffix(":"), "alice:!::::::1:")
    assert line(before, "shadow", "alice") == "alice:!::::::1:"
    assert line(applied(ALICE, texts=before), "shadow", "alice") == "alice:*:::::::"


def test_an_absent_user_leaves_nothing_but_the_home() -> None:
    before = applied(ALICE, BOB)
    before["group"] = before["group"].replace("audio:x:29:eve", "audio:x:29:eve,alice")
    gone = applied({**ALICE, "state": "absent"}, BOB, texts=before)
    assert not [text for text in gone.values() if "alice" in text]
    assert "audio:x:29:eve\n" in gone["group"]
    assert gone["group"].endswith("vision:x:6001:\npeople:x:967:bob\nbob:x:5002:\n")


def test_drift_is_repaired_and_the_rest_stays() -> None:
    wanted = applied(ALICE, BOB)
    drifted = {
        **wanted,
        "passwd": wanted["passwd"].replace("alice:x:5001", "alice:x:1234").replace("/bin/bash\nbob", "/bin/zsh\nbob"),
        "group": wanted["group"].replace("vision:x:6001:alice", "vision:x:6002:eve"),
    }
    after = applied(ALICE, BOB, texts=drifted)
    assert after["passwd"] == wanted["passwd"]
    assert line(after, "group", "vision") == "vision:x:6001:eve,alice"
    everything = PeopleRecord(users={"alice": 5001, "bob": 5002}, groups={"vision": 6001})
    assert found(ALICE, BOB, record=everything, texts=drifted) == []
    assert found(ALICE, BOB, texts=drifted) == [
        "user alice has uid 1234 here, and 5001 in the plan",
        "group vision has gid 6002 here, and 6001 in the plan",
    ]


def test_further_fields_of_the_full_name_are_the_users_own() -> None:
    before = applied(ALICE)
    before["passwd"] = before["passwd"].replace("Alice Example", "Alice E.,Room 7,,")
    assert ":Alice Example,Room 7,,:" in applied(ALICE, texts=before)["passwd"]


@pytest.mark.parametrize(
    ("users", "groups", "expected"),
    [
        ([BOB], [], []),
        ([{**ALICE, "uid": 5009}], [VISION], ["user alice has uid 5001 here, and 5009 in the plan"]),
        ([{"name": "bob", "uid": 1001, "gid": 5002}], [], ["uid 1001 of user bob belongs to user eve here"]),
        ([{"name": "bob", "uid": 5002, "gid": 1001}], [], ["gid 1001 of group bob belongs to group eve here"]),
        ([{"name": "lp", "uid": 5002}], [], ["user lp is a system user here, with uid 7"]),
        ([{"name": "lp", "uid": 7, "state": "absent"}], [], ["user lp is a system user here, with uid 7"]),
        (
            [{"name": "bob", "uid": 900, "gid": 5002}],
            [],
            ["uid 900 of user bob is reserved for the system: below 1000, or the id of nobody"],
        ),
        (
            [{"name": "bob", "uid": 65534, "gid": 5002}],
            [],
            ["uid 65534 of user bob is reserved for the system: below 1000, or the id of nobody"],
        ),
        (
            [],
            [{"name": "ops", "gid": 27}],
            ["gid 27 of group ops is reserved for the system: below 1000, or the id of nobody"],
        ),
        ([{**BOB, "home": "/home/eve"}], [], ["home /home/eve of user bob belongs to user eve here"]),
        ([], [{"name": "eve", "gid": 6009}], ["group eve has gid 1001 here, and 6009 in the plan"]),
        ([{**ALICE, "state": "absent"}, {**BOB, "uid": 5001}], [VISION], []),
    ],
)
def test_conflicts(users: list[dict[str, Any]], groups: list[dict[str, Any]], expected: list[str]) -> None:
    assert found(*users, groups=groups)[: len(expected) or 1] == expected


def test_homes_of_others_are_conflicts() -> None:
    owners = {"/home/alice": 2001}
    of_alice = plan(ALICE)
    assert conflicts(of_alice, BARE, PeopleRecord(), Lowest(), owners) == [
        "home /home/alice of user alice belongs to uid 2001 here"
    ]
    assert conflicts(of_alice, BARE, PeopleRecord(), Lowest(), {"/home/alice": 0}) == []
    assert homes_to_check(of_alice, BARE, PeopleRecord()) == ["/home/alice"]
    assert homes_to_check(of_alice, applied(ALICE), PeopleRecord(users={"alice": 5001})) == []


def test_a_taken_id_of_the_group_of_all_people_has_a_way_out() -> None:
    taken = {**BARE, "group": BARE["group"] + "docker:x:967:\n"}
    (said,) = conflicts(plan(BOB), taken, PeopleRecord(), Lowest(), {})
    assert said == "gid 967 of group people belongs to group docker here; give group people another gid in the plan"
    assert conflicts(plan(BOB, groups=[{"name": "people", "gid": 6000}]), taken, PeopleRecord(), Lowest(), {}) == []


def test_the_lowest_ids() -> None:
    assert lowest("# UID_MIN 5\nUID_MIN\t\t  500\nGID_MIN 600 # x\nSYS_UID_MIN 100\n") == Lowest(500, 600)
    assert lowest("") == Lowest(1000, 1000)


def test_differences_have_no_passwords() -> None:
    before = {name: text.replace("eve:x:", "eve:$1$old:") for name, text in BARE.items()}
    eve = {"name": "eve", "uid": 1001, "state": "suspended"}
    changes = differences(before, applied(eve, texts=before, groups=[]))
    names = ["group people", "group in gshadow people", "login of eve", "user eve"]
    assert [change["what"] for change in changes] == names
    assert "$" not in json.dumps(changes)


def test_lines_are_replaced_where_they_are() -> None:
    assert edited("a:1\nb:2\nb:3", {"b": "b:9", "c": "c:1", "d": None}) == "a:1\nb:9\nc:1\n"
    assert edited("a:1\n\n#b\n", {"a": None}) == "\n#b\n"
    assert edited("", {"a": "a:1"}) == "a:1\n"


def test_the_note_sees_what_the_plan_decides_and_nothing_else() -> None:
    texts = applied(ALICE, BOB)
    record = PeopleRecord(users={"alice": 5001, "bob": 5002}, groups={"vision": 6001, "people": 967}, absent=["carol"])
    before = fingerprint(record, texts, {})
    same = [
        ("shadow", "alice:*:", "alice:$6$new:"),
        ("passwd", "eve:x:1001", "eve:x:1002"),
        ("passwd", "Alice Example", "Alice Example,Room 7"),
        ("group", "vision:x:6001:alice", "vision:x:6001:eve,alice"),
    ]
    other = [
        ("passwd", "alice:x:5001", "alice:x:5003"),
        ("passwd", "/home/bob", "/home/rob"),
        ("shadow", "bob:*:::::::", "bob:!*::::::1:"),
        ("group", "vision:x:6001:alice", "vision:x:6001:"),
        ("group", "people:x:967:alice,bob", "people:x:967:bob"),
        ("gshadow", "people:!::alice,bob", "people:!::alice"),
        ("passwd", "bob:x:5002:5002", "carol:x:5005:5005::/home/carol:/bin/sh\nbob:x:5002:5002"),
    ]
    for changes, is_same in ((same, True), (other, False)):
        for file, old, new in changes:
            assert old in texts[file]
            assert (fingerprint(record, {**texts, file: texts[file].replace(old, new)}, {}) == before) is is_same, new
    assert fingerprint(record, texts, {"file": 1}) != before


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("[", "plan: "),
        ("[]", "plan: found [], allowed: a mapping with users and groups"),
        ({"users": {}}, "users: found {}, allowed: a list"),
        ({"users": [1]}, "users[0]: found 1, allowed: a mapping"),
        ({"users": [{"name": "alice"}]}, "users[0].uid: found None, allowed: a number"),
        ({"users": [{**BOB, "name": "../x"}]}, "users[0].name: found '../x'"),
        ({"users": [{**BOB, "full_name": "a:b"}]}, "users[0].full_name: found 'a:b'"),
        ({"users": [{**BOB, "shell": "/bin/sh\nroot::0:0"}]}, "users[0].shell: found"),
        ({"users": [{**BOB, "keys": ["a\nb"]}]}, "users[0].keys: found"),
        ({"users": [{**BOB, "state": "gone"}]}, "users[0].state: found 'gone', allowed: present, suspended, absent"),
        ({"users": [BOB, BOB]}, "users: two users have the name bob"),
        ({"users": [BOB, {**BOB, "name": "rob"}]}, "users: two users have the uid 5002"),
        ({"users": [{**BOB, "groups": ["x"]}]}, "users: bob is in the group x, which is not in the plan"),
        ({"users": [BOB], "groups": [{"name": "bob", "gid": 7000}]}, "users: gid 5002 of bob is in no group"),
        ({"groups": [VISION, VISION]}, "groups[1].name: vision is listed twice"),
    ],
)
def test_wrong_plans(data: Any, expected: str) -> None:
    with pytest.raises(PlanError) as error:
        read_plan(data if isinstance(data, str) else json.dumps(data))
    assert expected in str(error.value)
