# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The people of a cluster file: every form of the list, every rule, and the users of the policy that follow from it."""

from __future__ import annotations

import base64
import copy
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.filter.slurm import FILTERS
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import read as read_policy
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    DeclaredCluster,
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.people_key import Table, files, read_table
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import read

IDS = "allowed: 1000 to 60000 and 65536 to 4294967293"
NAMES = "allowed: up to 32 small letters, digits, '_' and '-', a letter or '_' first, such as alice"
GROUPS = [{"name": "vision", "gid": 6001}, {"name": "ocean", "gid": 6002}]
ACCOUNTING = {"accounts": [{"name": "vision", "accounts": ["detection"]}, "ocean"]}


def key(number: int = 1, kind: str = "ssh-ed25519", more: tuple[bytes, ...] = ()) -> str:
    """A public key."""
    fields = (kind.encode(), number.to_bytes(32, "big"), *more)
    data = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return f"{kind} {base64.b64encode(data).decode()} user{number}@laptop"


def user(name: str = "alice", uid: Any = 5001, **keys: Any) -> dict[str, Any]:
    """A user."""
    return {"name": name, "uid": uid, **keys}


def cluster(people: Any, **keys: Any) -> dict[str, Any]:
    """A cluster file with these people."""
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "database": "head",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "n1", "hardware": "a"}],
        "partitions": [{"name": "p", "nodes": "ALL"}],
        "accounting": ACCOUNTING,
        **(people if isinstance(people, dict) else {"people": people}),
        **keys,
    }


def loaded(people: Any, texts: dict[str, str] | None = None, **keys: Any) -> DeclaredCluster:
    """A cluster file with these people; texts: those of the files next to it."""
    data = cluster(people, **keys)
    contents: dict[str, Document | Table] = {
        name: read_table(name, text) if name.endswith("csv") else read(name, text.encode())
        for name, text in (texts or {}).items()
    }
    assert files(data) == [*contents]
    return load(Document("x.cluster.yml", data), None, contents)


def problems(people: Any, texts: dict[str, str] | None = None, **keys: Any) -> list[str]:
    """What is wrong with them."""
    with pytest.raises(ModelError) as error:
        loaded(people, texts, **keys)
    return error.value.problems


def of_users(*users: dict[str, Any], groups: Any = None, **keys: Any) -> list[str]:
    """What is wrong with users, without the name of the file."""
    people = {"groups": groups or GROUPS, "users": [*users]}
    return [problem.removeprefix("x.cluster.yml: ") for problem in problems(people, **keys)]


# -- forms -----------------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    found = loaded({"groups": GROUPS, "users": [user()]}).variables["slurm_people"]
    assert found == {
        "source": "list",
        "groups": GROUPS,
        "users": [
            {
                "name": "alice",
                "uid": 5001,
                "gid": 5001,
                "groups": [],
                "full_name": "",
                "home": "/home/alice",
                "shell": "/bin/bash",
                "keys": [],
                "state": "present",
                "jobs": "stay",
            }
        ],
    }


FULL = {
    "name": "bob",
    "uid": 70000,
    "gid": 6002,
    "groups": ["vision"],
    "full_name": "Bob Früh",
    "home": "/data/home/bob",
    "shell": "/usr/bin/zsh",
    "keys": [key(1), f'from="10.0.0.0/8,!10.0.0.1",restrict {key(2)}'],
    "state": "suspended",
    "jobs": "end",
}


def test_all_keys() -> None:
    assert loaded({"groups": GROUPS, "users": [FULL]}).variables["slurm_people"]["users"] == [FULL]


def test_no_people() -> None:
    assert loaded(None).variables["slurm_people"] == {}
    assert "slurm_accounting_users" not in loaded(None).variables


def test_directory() -> None:
    assert loaded("directory").variables["slurm_people"] == {"source": "directory", "groups": [], "users": []}


def test_yaml_file() -> None:
    text = "groups: [{name: vision, gid: 6001}]\nusers: [{name: alice, uid: 5001, groups: [vision], account: ocean}]\n"
    found = loaded("people.yml", {"people.yml": text}).variables
    assert found["slurm_people"]["users"][0]["groups"] == ["vision"]
    assert found["slurm_accounting_users"][0]["DefaultAccount"] == "ocean"


CSV = f"""\
\ufeffuid,name,full_name,groups,keys,state,account,accounts,limits.MaxJobs,limits.grptres
5001,alice,"Example; Alice",vision; ocean,{key(1)} ; {key(2)},,vision,ocean;detection,10,"cpu=8,mem=1G"

5002,bob,,,,suspended,,,,
,,,,,,,,,
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_csv_file(ends: str) -> None:
    found = loaded({"people": "people.csv", "groups": GROUPS}, {"people.csv": CSV.replace("\n", ends)}).variables
    assert found["slurm_people"]["groups"] == GROUPS
    alice, bob = found["slurm_people"]["users"]
    assert (alice["uid"], alice["groups"], alice["keys"]) == (5001, ["vision", "ocean"], [key(1), key(2)])
    assert (alice["full_name"], alice["state"], bob["state"]) == ("Example; Alice", "present", "suspended")
    assert found["slurm_accounting_users"] == [
        {
            "name": "alice",
            "DefaultAccount": "vision",
            "accounts": ["ocean", "detection"],
            "MaxJobs": "10",
            "GrpTRES": "cpu=8,mem=1G",
            "MaxSubmitJobs": -1,
            "GrpSubmitJobs": -1,
        }
    ]


def test_csv_file_of_users_alone() -> None:
    found = loaded("people.csv", {"people.csv": "name,uid\nalice,5001\n"}).variables["slurm_people"]
    assert (found["groups"], found["users"][0]["name"]) == ([], "alice")


def test_one_of_both() -> None:
    texts = {"people.csv": "name,uid\nbob,5002\n"}
    what = "found with people: {}, which has the {} already, allowed: one of both"
    assert problems({"people": "people.csv", "users": [user()]}, texts) == [
        "x.cluster.yml: users: " + what.format("'people.csv'", "users")
    ]
    for people, texts in (("directory", {}), ("people.yml", {"people.yml": "users: []"})):
        assert problems({"people": people, "groups": GROUPS, "users": [user()]}, texts) == [
            f"x.cluster.yml: {key}: " + what.format(repr(people), key) for key in ("groups", "users")
        ]


def test_groups_of_hosts_are_no_people() -> None:
    assert loaded({"groups": {"gpus": "true"}}).variables["slurm_people"] == {}


def test_problems_of_a_yaml_file() -> None:
    text = "users:\n- {name: alice, uid: 5001, uid: 5002}\n- {name: bob, uid: 12, stat: absent}\n"
    assert problems("people.yml", {"people.yml": text}) == [
        "people.yml: users[0].uid: is given twice, in lines 2 and 2",
        f"people.yml: users[1].stat: unknown key, did you mean 'state'? allowed: {', '.join(USER_KEYS)}",
        f"people.yml: users[1].uid: found 12, {IDS}",
    ]
    for text in ("", "[]", "users"):
        (problem,) = problems("people.yml", {"people.yml": text})
        assert "allowed: a mapping with groups and users" in problem
    (problem,) = problems("people.yml", {"people.yml": "users: people.csv"})
    assert problem == "people.yml: users: found 'people.csv', allowed: a list"


USER_KEYS = (
    *("name", "uid", "gid", "groups", "full_name", "home", "shell", "keys", "state", "jobs"),
    *("account", "accounts", "limits"),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "name,uid,groups\nalice,5001,\nbob,99,\ncarol,x,\nd.e,5004,\n",
            [
                f"line 3: uid: found 99, {IDS}",
                f"line 4: uid: found 'x', {IDS}",
                f"line 5: name: found 'd.e', {NAMES}",
            ],
        ),
        (
            'name,uid,full_name\n\n"bob",5002,"a\nb"\neve,5002,\n',
            [
                "line 3: full_name: found 'a\\nb', allowed: a text of one line without ':' and ','",
                "line 5: uid: found 5002, the uid of bob (line 3), allowed: another uid",
            ],
        ),
        (
            "name,uid,sshkeys\nalice,5001,\n",
            [
                "line 1: found 'sshkeys', unknown column, did you mean 'keys'? allowed: "
                + ", ".join([*USER_KEYS[:-1], "limits.NAME"])
            ],
        ),
        ("name,name,uid\na,b,5001\n", ["line 1: found the column name twice"]),
        (
            "name,nam,nam,uid\na,b,c,5001\n",
            [
                "line 1: found 'nam', unknown column, did you mean 'name'? allowed: "
                + ", ".join([*USER_KEYS[:-1], "limits.NAME"])
            ],
        ),
        ("name,uid,limits.MaxJobs,limits.MaxJobs\na,5001,1,2\n", ["line 1: found the column limits.MaxJobs twice"]),
        ("name,groups\nalice,\n", ["line 1: the column uid is missing"]),
        ("", ["line 1: the column name is missing", "line 1: the column uid is missing"]),
        (
            "name,uid,limits.MaxJbos\nalice,5001,1\n",
            ["line 1: limits.MaxJbos: unknown to Slurm, did you mean 'MaxJobs'?"],
        ),
        (
            "name,uid\nalice,5001,vision\n",
            ["line 2: found 3 values, allowed: 2, one for each column; a value with ',' is in double quotes"],
        ),
        ('name,uid\n"alice"x,5001\n', ["line 2: cannot be read as CSV: ',' expected after '\"'"]),
        ("name,uid\nalice,\udcff\n", ["line 2: is not in UTF-8, allowed: a file in UTF-8"]),
    ],
)
def test_problems_of_a_csv_file(text: str, expected: list[str]) -> None:
    assert problems("people.csv", {"people.csv": text}) == [f"people.csv: {problem}" for problem in expected]


def test_a_csv_file_with_semicolons_between_its_columns() -> None:
    first = problems("people.csv", {"people.csv": "name;uid\nalice;5001\n"})[0]
    assert first.startswith("people.csv: line 1: found 'name;uid', columns are separated by ',': unknown column")


@pytest.mark.parametrize("people", ["people.txt", 1, [], [user()], "", True])
def test_other_forms(people: Any) -> None:
    allowed = "allowed: a file such as people.csv or people.yml, or directory"
    assert problems(people) == [f"x.cluster.yml: people: found {people!r}, {allowed}"]


def test_other_lists() -> None:
    assert problems({"users": "people.txt", "groups": 1}) == [
        "x.cluster.yml: users: found 'people.txt', allowed: a list",
        "x.cluster.yml: groups: found 1, allowed: a list of groups with name and gid, or Ansible's mapping of groups "
        "of hosts",
    ]


# -- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "_a", "a-b_1", "a" * 32])
def test_names(name: str) -> None:
    assert loaded({"users": [user(name)]}).variables["slurm_people"]["users"][0]["name"] == name


@pytest.mark.parametrize(
    "name", ["Alice", "a.b", "1a", "-a", "a" * 33, "a b", "ä", "a\n", "", "a$", "a:b", "{{ a }}x", 7]
)
def test_wrong_names(name: Any) -> None:
    assert of_users(user(name))[0].startswith(f"users[0].name: found {name!r}, ")
    assert of_users(groups=[{"name": name, "gid": 6001}])[0].startswith(f"groups[0].name: found {name!r}, ")


@pytest.mark.parametrize("name", ["root", "nobody", "slurm", "munge", "people"])
def test_names_of_others(name: str) -> None:
    what = "allowed: any other name, since every host has this one for something else"
    assert of_users(user(name)) == [f"users[0].name: found {name!r}, {what}"]


@pytest.mark.parametrize("number", [1000, 60000, 65536, 1234567890, 2**32 - 3])
def test_ids(number: int) -> None:
    loaded({"groups": [{"name": "b", "gid": number}], "users": [user(uid=number, gid=number)]})


@pytest.mark.parametrize(
    "number", [0, 999, 60001, 64030, 65534, 65535, 2**32 - 2, 2**32 - 1, -1, 1.5, True, "5001", None]
)
def test_wrong_ids(number: Any) -> None:
    expected = "missing" if number is None else f"found {number!r}, {IDS}"
    assert of_users(user(uid=number)) == [f"users[0].uid: {expected}"]
    assert of_users(groups=[{"name": "b", "gid": number}]) == [f"groups[0].gid: {expected}"]
    if number is not None:
        assert of_users(user(gid=number)) == [f"users[0].gid: {expected}"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"home": "home/alice"}, "home: found 'home/alice', allowed: an absolute path below a directory of homes"),
        ({"home": "/home"}, "home: found '/home', allowed: an absolute path below a directory of homes"),
        ({"home": "/home/alice/"}, "home: found '/home/alice/', allowed: an absolute path"),
        ({"home": "/home/../etc"}, "home: found '/home/../etc', allowed: an absolute path"),
        ({"home": "/home/a:b"}, "home: found '/home/a:b', allowed: an absolute path"),
        ({"shell": "bash"}, "shell: found 'bash', allowed: an absolute path"),
        ({"shell": "/bin/a b"}, "shell: found '/bin/a b', allowed: an absolute path"),
        ({"full_name": "a,b"}, "full_name: found 'a,b', allowed: a text of one line without ':' and ','"),
        ({"full_name": "a:b"}, "full_name: found 'a:b', allowed: a text of one line without ':' and ','"),
        ({"full_name": "a\nb:x:0:0"}, "full_name: found 'a\\nb:x:0:0', allowed: a text of one line"),
        ({"full_name": ["a"]}, "full_name: found ['a'], allowed: a text"),
        (
            {"state": "suspend"},
            "state: found 'suspend', unknown state, did you mean 'suspended'? allowed: present, susp",
        ),
        ({"jobs": "kill"}, "jobs: found 'kill', unknown value, allowed: stay, end"),
        ({"groups": "vision"}, "groups: found 'vision', allowed: a list"),
        (
            {"groups": ["vison"]},
            "groups: found 'vison', unknown group, did you mean 'vision'? allowed: those of groups",
        ),
        ({"groups": ["vision", "vision"]}, "groups: found ['vision', 'vision'], found 'vision' twice"),
        ({"groups": ["vision"], "gid": 6001}, "groups: found 'vision', the primary group of the user"),
        ({"keys": key()}, f"keys: found {key()[:70]}"),
        ({"limits": {"MaxJobs": 1}}, "limits: need an account, allowed: limits with account or accounts"),
        (
            {"account": "visoin"},
            "account: found 'visoin', unknown account, did you mean 'vision'? allowed: those of acc",
        ),
        ({"accounts": ["visoin"]}, "accounts: found 'visoin', unknown account, did you mean 'vision'?"),
        (
            {"accounts": [{"partition": "p"}]},
            "accounts: found [{'partition': 'p'}], found {'partition': 'p'}, allowed: the",
        ),
        ({"accounts": [{"name": "ocean", "MaxJbos": 1}]}, "accounts: found [{'name': 'ocean', 'MaxJbos': 1}], found {"),
        ({"account": "a b"}, "account: found 'a b', allowed: a name of ASCII letters"),
        (
            {"account": "ocean", "limits": {"MaxJbos": 1}},
            "limits: found {'MaxJbos': 1}, MaxJbos: unknown to Slurm, did",
        ),
        (
            {"account": "ocean", "limits": {"MaxJobs": "x"}},
            "limits: found {'MaxJobs': 'x'}, MaxJobs: found 'x', allowed",
        ),
        (
            {"account": "ocean", "limits": {"gpu_hours": 5, "GrpTRESMins": "gres/gpu=1"}},
            "limits: found {'gpu_hours': 5, 'GrpTRESMins': 'gres/gpu=1'}, gpu_hours: found with gres/gpu",
        ),
        ({"account": "ocean", "limits": {"name": "x"}}, "limits: found {'name': 'x'}, name: unknown to Slurm"),
        (
            {"account": "ocean", "limits": {"DefaultAccount": "vision"}},
            "limits: found {'DefaultAccount': 'vision'}, Def",
        ),
        ({"sshkeys": []}, "sshkeys: unknown key, did you mean 'keys'?"),
    ],
)
def test_wrong_values(keys: dict[str, Any], expected: str) -> None:
    (problem,) = of_users(user(**keys))
    assert problem.replace('"', "'").startswith(f"users[0].{expected}".replace("found ssh", "found 'ssh"))


@pytest.mark.parametrize("entry", ["alice", None, 1, [], ["alice", 5001]])
def test_entries_that_are_no_mappings(entry: Any) -> None:
    (problem,) = problems({"users": [entry]})
    assert problem.startswith(f"x.cluster.yml: users[0]: found {entry!r}, allowed: a mapping with name, uid, ")


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (
            [user(), user(uid=5002)],
            [
                "users[1].name: found 'alice', the name of alice (users[0]), allowed: another name",
            ],
        ),
        (
            [user(), user("bob")],
            [
                "users[1].uid: found 5001, the uid of alice (users[0]), allowed: another uid",
            ],
        ),
        (
            [user(gid=5002), user("bob", 5002)],
            [
                "users[1].uid: found 5002, the gid of the own group of alice (users[0]), "
                "allowed: an own gid, or that of a group in groups",
            ],
        ),
        (
            [user("vision", 5001)],
            [
                "users[0].uid: found 5001, but the group vision in groups has gid 6001, "
                "allowed: 6001, or another name of the group",
            ],
        ),
        (
            [user(), user("bob", 5002, home="/home/alice")],
            [
                "users[1].home: found '/home/alice', the home of alice (users[0]), allowed: another one",
            ],
        ),
        (
            [user(), user("bob", 5002, home="/home/alice/data/bob")],
            [
                "users[1].home: found '/home/alice/data/bob', which is in the home of alice (users[0]), "
                "allowed: a path outside",
            ],
        ),
        (
            [user(keys=[key(7)]), user("bob", 5002, keys=["restrict " + key(7).rpartition(" ")[0]])],
            [
                f"users[1].keys: found {('ssh-ed25519 ' + key(7).split()[1].rstrip('='))[:76]!r}, ".replace(
                    "', ", "', "
                ),
            ],
        ),
    ],
)
def test_users_together(users: list[dict[str, Any]], expected: list[str]) -> None:
    found = of_users(*users)
    if "keys" in expected[0]:
        assert len(found) == 1
        assert found[0].startswith("users[1].keys: found 'ssh-ed25519 AAAA")
        assert found[0].endswith(", the key of alice (users[0]), allowed: another key")
    else:
        assert found == expected


def test_groups_together() -> None:
    assert of_users(groups=[*GROUPS, {"name": "vision", "gid": 6002}]) == [
        "groups[2].name: found 'vision', the name of vision (groups[0]), allowed: another name",
        "groups[2].gid: found 6002, the gid of ocean (groups[1]), allowed: another gid",
    ]


@pytest.mark.parametrize("wrong", [{"name": "Vision", "gid": 6001}, {"name": "vision", "gid": 1}, {"gid": 6001}])
def test_a_wrong_group_is_no_error_of_its_users(wrong: dict[str, Any]) -> None:
    users = [
        user("bob", 5002, groups=[wrong.get("name", "vision")]),
        user("carol", 5003, gid=6001),
        user("dave", 5004, gid=6001),
    ]
    assert len(of_users(*users, groups=[wrong])) == 1


def test_users_may_share_a_listed_primary_group() -> None:
    users = [user(gid=6001), user("bob", 5002, gid=6001), user("vision", 5003, gid=6001)]
    assert len(loaded({"groups": GROUPS, "users": users}).variables["slurm_people"]["users"]) == 3


# -- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_keys_of_ssh_keygen(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "a b", "-f", file], check=True)
    line = (tmp_path / "id.pub").read_text()
    assert loaded({"users": [user(keys=[line])]}).variables["slurm_people"]["users"][0]["keys"] == [line.strip()]
    for private in (file.read_text(), file.read_text().split("\n")[1]):
        for keys in ([private], private):
            (problem,) = of_users(user(keys=keys))
            assert problem.startswith("users[0]: has a private key, which is not shown here")
            assert private[40:60] not in problem
    assert (
        "has a private key"
        in problems("people.csv", {"people.csv": f'name,uid,keys\na,5001,"{file.read_text()}"\n'})[0]
    )


def test_keys_of_hardware() -> None:
    keys = [key(1, "sk-ssh-ed25519@openssh.com", (b"ssh:",)), f"no-touch-required,verify-required {key(2)}"]
    keys.append(f'command="a \\"b\\", c",environment="X=1",NO-PTY {key(3)}')
    assert loaded({"users": [user(keys=keys)]}).variables["slurm_people"]["users"][0]["keys"] == keys


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "allowed: one line TYPE DATA COMMENT of a public key"),
        ("ssh-ed25519", "allowed: one line TYPE DATA COMMENT of a public key"),
        (key(1, "ssh-dss"), "allowed: one line TYPE DATA COMMENT of a public key"),
        (key(1).replace("AAAA", "AA*A"), "allowed: one line TYPE DATA COMMENT of a public key"),
        (f"{key(1)}\n{key(2)}", "allowed: one line TYPE DATA COMMENT of a public key"),
        (f"{key(1)}\nroot:x:0:0", "allowed: one line TYPE DATA COMMENT of a public key"),
        (
            key(1).replace("ssh-ed25519", "ssh-rsa"),
            "whose data are those of 'ssh-ed25519', allowed: all data of a key of",
        ),
        (
            " ".join([key(1).split()[0], key(1).split()[1][:40]]),
            "whose data are incomplete, allowed: all data of a key of",
        ),
        (
            " ".join([key(1).split()[0], key(1).split()[1][:41]]),
            "whose data are incomplete, allowed: all data of a key of",
        ),
        (f'form="10.0.0.1" {key(1)}', "unknown option, did you mean 'from'? allowed: "),
        (f"cert-authority {key(1)}", "unknown option, "),
        (f"from=10.0.0.1 {key(1)}", "unknown option, "),
        (f"restrict, {key(1)}", "allowed: no ',' after the last option"),
    ],
)
def test_wrong_keys(line: str, expected: str) -> None:
    (problem,) = of_users(user(keys=[line]))
    assert expected in problem


# -- accounting ------------------------------------------------------------------------------------------------------


def entries(*users: dict[str, Any], **accounting: Any) -> list[dict[str, Any]]:
    """The users in the policy."""
    cluster_of = loaded({"groups": GROUPS, "users": [*users]}, accounting={**ACCOUNTING, **accounting})
    found: list[dict[str, Any]] = cluster_of.variables["slurm_accounting_users"]
    return found


def test_entries_of_the_policy() -> None:
    found = entries(
        user(account="vision", accounts=["ocean", {"name": "detection", "partition": "p", "maxjobs": 3}]),
        user("bob", 5002),
        user("carol", 5003, accounts=["ocean"], limits={"grpsubmit": 7, "AdminLevel": "Operator"}),
        user("dave", 5004, account="ocean", state="absent"),
        users=[{"name": "erin", "DefaultAccount": "ocean"}],
    )
    assert found == [
        {"name": "erin", "DefaultAccount": "ocean"},
        {
            "name": "alice",
            "DefaultAccount": "vision",
            "accounts": ["ocean", {"name": "detection", "partition": "p", "MaxJobs": 3}],
            "MaxJobs": -1,
            "MaxSubmitJobs": -1,
            "GrpSubmitJobs": -1,
        },
        {
            "name": "carol",
            "accounts": ["ocean"],
            "AdminLevel": "Operator",
            "MaxJobs": -1,
            "MaxSubmitJobs": -1,
            "GrpSubmitJobs": 7,
        },
    ]


@pytest.mark.parametrize("purge", [False, True])
def test_a_suspended_user_has_no_jobs_and_has_them_again(purge: bool) -> None:
    one = user(account="vision", accounts=[{"name": "ocean", "MaxSubmitJobs": 9, "MaxWall": 60}], limits={"MaxJobs": 5})
    state, accounts = State(), {"accounts": ACCOUNTING["accounts"]}
    for settings, expected in (
        ({}, ("5", "", "")),
        ({"state": "suspended"}, ("0", "0", "0")),
        ({"state": "present"}, ("5", "", "")),
    ):
        policy = {**accounts, "users": entries({**copy.deepcopy(one), **settings})}
        wanted = read_policy(policy, "x", state, purge)
        for account, submit in (("vision", expected[1]), ("ocean", "0" if expected[1] else "9")):
            limits = wanted[Entity("association", "alice", account)]
            assert (limits["MaxJobs"], limits["MaxSubmitJobs"], limits["GrpSubmitJobs"]) == (
                expected[0],
                submit,
                expected[2],
            )
        state.entities = {**state.entities, **wanted}


def test_accounts_that_somebody_has_given_a_suspended_user_are_closed_and_opened_again() -> None:
    legacy, limited = (Entity("association", "alice", account) for account in ("legacy", "limited"))
    vision = Entity("association", "alice", "vision")
    state = State({legacy: {}, limited: {"MaxJobs": "7"}, Entity("association", "bob", "legacy"): {}})
    state.entities |= {Entity("account", "legacy"): {}, Entity("account", "limited"): {}}
    accounts = {"accounts": ACCOUNTING["accounts"]}

    def wanted(**keys: Any) -> dict[Entity, Any]:
        return read_policy({**accounts, "users": entries(user(account="vision", **keys))}, "x", state, False)

    closed = dict.fromkeys(("MaxJobs", "MaxSubmitJobs", "GrpSubmitJobs"), "0")
    assert {entity for entity in wanted() if entity.kind == "association"} == {vision}
    suspended = wanted(state="suspended", limits={"AdminLevel": "Operator"})
    assert [suspended[entity] for entity in (vision, legacy, limited)] == [closed] * 3
    assert suspended[Entity("user", "alice")]["AdminLevel"] == "None"
    state.entities |= {legacy: closed, limited: closed}
    assert wanted()[legacy] == dict.fromkeys(closed, "")
    assert Entity("association", "bob", "legacy") not in suspended


def test_a_user_in_both_lists() -> None:
    accounting = {**ACCOUNTING, "users": [{"name": "Alice", "DefaultAccount": "ocean"}]}
    assert of_users(user(), accounting=accounting) == [
        "users[0].name: found 'alice', which is in accounting.users too, "
        "allowed: one entry, here with account, accounts and limits"
    ]


def test_accounts_without_a_database() -> None:
    found = of_users(user(account="ocean"), database=None, accounting=None)
    assert found == ["users: found users with an account, which needs a database"]


def test_accounts_that_the_policy_does_not_list_may_be_there() -> None:
    found = loaded({"users": [user(account="geology")]}, accounting=None).variables["slurm_accounting_users"]
    assert found[0]["DefaultAccount"] == "geology"


def of_groups(*groups: Any) -> list[Any]:
    """Accounts, of which the nested one has these groups, and another one those of ocean."""
    nested = [{"name": "Detection", "groups": [*groups], "MaxJobs": 9}]
    return [{"name": "vision", "accounts": nested}, {"name": "ocean", "groups": ["ocean"]}]


def test_the_people_of_a_group_are_users_of_its_accounts() -> None:
    people = [
        user(groups=["ocean", "vision"], account="ocean"),
        user("bob", 5002, gid=6001, limits={"MaxWall": 9}),
        user("carol", 5003, groups=["vision"], accounts=[{"name": "detection", "MaxJobs": 2}]),
        user("dave", 5004, groups=["vision"], account="ocean", accounts=[{"name": "detection", "partition": "p"}]),
        user("erin", 5005, groups=["vision"], state="suspended"),
        user("frank", 5006, groups=["vision"], state="absent"),
        user("grace", 5007),
    ]
    found = loaded({"groups": GROUPS, "users": people}, accounting={"accounts": of_groups("vision")}).variables
    assert found["slurm_accounting_accounts"] == [
        {"name": "vision", "accounts": [{"name": "Detection", "MaxJobs": 9}]},
        {"name": "ocean"},
    ]
    assert {entry["name"]: entry["accounts"] for entry in found["slurm_accounting_users"]} == {
        "alice": ["Detection"],
        "bob": ["Detection"],
        "carol": [{"name": "detection", "MaxJobs": 2}],
        "dave": [{"name": "detection", "partition": "p"}, "Detection"],
        "erin": ["Detection"],
    }
    of_user = {entry["name"]: entry for entry in found["slurm_accounting_users"]}
    assert (of_user["bob"]["MaxWall"], of_user["erin"]["MaxJobs"]) == (9, 0)


@pytest.mark.parametrize("people", ["people.csv", "people.yml"])
def test_groups_of_accounts_are_those_of_a_file_as_well(people: str) -> None:
    texts = {"people.csv": "name,uid,groups\nbob,5002,vision\n"}
    texts["people.yml"] = "groups: [{name: vision, gid: 6001}]\nusers: [{name: bob, uid: 5002, groups: [vision]}]\n"
    groups = {"groups": GROUPS[:1]} if people == "people.csv" else {}
    accounting = {"accounts": [{"name": "a", "groups": ["vision"]}]}
    found = loaded({"people": people, **groups}, {people: texts[people]}, accounting=accounting).variables
    assert [entry["accounts"] for entry in found["slurm_accounting_users"]] == [["a"]]


def test_groups_of_accounts_that_are_none() -> None:
    allowed = "allowed: those of groups"
    assert of_users(user(), accounting={"accounts": [*of_groups("visoin", 7), {"name": "b", "groups": "vision"}]}) == [
        f"accounting: account detection: groups: found 'visoin', unknown group, did you mean 'vision'? {allowed}",
        f"accounting: account detection: groups: found 7, unknown group, {allowed}",
        "accounting: account b: groups: found 'vision', allowed: a list of groups of people",
    ]
    assert problems("directory", accounting={"accounts": of_groups()}) == [
        f"x.cluster.yml: accounting: account ocean: groups: found 'ocean', unknown group, {allowed}"
    ]
    known = loaded(None).variables
    (problem,) = model_errors(
        {**known, "slurm_user_id": 64030, "slurm_accounting_accounts": of_groups()}, ["head", "n1"]
    )[:1]
    assert "account detection: groups: unknown to Slurm: only an account of a cluster file has groups" in problem


@pytest.mark.parametrize("users", [1, "x", {}, [1], [None], [{"name": []}]])
def test_a_strange_policy_is_named_once(users: Any) -> None:
    for problem in of_users(user(account="ocean"), accounting={**ACCOUNTING, "users": users}):
        assert problem.startswith("accounting")


# -- the variable ----------------------------------------------------------------------------------------------------


def variables(people: Any, **more: Any) -> dict[str, Any]:
    """The shared variables of an inventory with these people."""
    known = loaded(None).variables
    return {**known, "slurm_people": people, "slurm_user_id": 64030, **more}


def test_the_variable_of_the_inventory_plugin_is_right() -> None:
    users = [user(account="ocean", keys=[key()], state="suspended"), user("bob", 5002)]
    found = loaded({"groups": GROUPS, "users": users}).variables
    assert model_errors({**found, "slurm_user_id": 64030}, ["head", "n1"]) == []
    assert model_errors(variables(loaded("directory").variables["slurm_people"]), ["head", "n1"]) == []


def test_the_rules_hold_for_the_variable() -> None:
    people = FILTERS["people"]({"groups": GROUPS, "users": [user(), user("bob", 5002, state="suspended")]})
    people["users"][0]["uid"] = 3
    people["users"][1]["gid"] = 5001
    del people["users"][1]["home"]
    policy = [{"name": "bob", "DefaultAccount": "ocean", "MaxSubmitJobs": 0}]
    found = model_errors(variables(people, slurm_user_id=6002, slurm_accounting_users=policy), ["head", "n1"])
    assert found == [
        f"slurm_people.users[0].uid: found 3, {IDS}",
        "slurm_people.users[1].home: missing",
        "slurm_people.users[1].gid: found 5001, the gid of the own group of alice (slurm_people.users[0]), "
        "allowed: an own gid, or that of a group in groups",
        "slurm_people.groups[1].gid: found 6002, which is slurm_user_id, allowed: another id",
        "slurm_people.users[1].state: found 'suspended', but the user may submit jobs, "
        "allowed: MaxJobs: 0, MaxSubmitJobs: 0, GrpSubmitJobs: 0 in slurm_accounting_users",
    ]


def test_the_id_of_slurm_may_be_a_text_of_the_command_line() -> None:
    people = FILTERS["people"]({"groups": GROUPS, "users": []})
    (problem,) = model_errors(variables(people, slurm_user_id="6002"), ["head", "n1"])
    assert problem == "slurm_people.groups[1].gid: found 6002, which is slurm_user_id, allowed: another id"


@pytest.mark.parametrize("people", ["directory", {"users": [user()]}, [user()]])
def test_the_variable_without_its_defaults(people: Any) -> None:
    (problem,) = model_errors(variables(people), ["head", "n1"])
    assert problem.endswith("allowed: a mapping with source, groups and users, as the filter people returns it")


def test_filter() -> None:
    complete = FILTERS["people"]
    assert complete("directory") == {"source": "directory", "groups": [], "users": []}
    assert complete({"users": [user()]}) == loaded({"users": [user()]}).variables["slurm_people"]
    for people, expected in (
        ("people.csv", "found 'people.csv', allowed: a mapping with groups, users"),
        ({"users": [user(uid=1)]}, f"users[0].uid: found 1, {IDS}"),
        ({"users": [user(account="a")]}, "account, accounts and limits are read from a cluster file only"),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the text follows
            complete(people)
        assert str(error.value).startswith(expected)


# -- many ------------------------------------------------------------------------------------------------------------


def many(number: int) -> str:
    """A CSV file with so many users."""
    rows = [f"u{i},{i + 65536},User {i},vision;ocean,{key(i)},,vision,10" for i in range(number)]
    return "\n".join(["name,uid,full_name,groups,keys,state,account,limits.MaxJobs", *rows])


def test_thousands_of_users_are_read_in_time() -> None:
    before = time.process_time()
    found = loaded({"groups": GROUPS, "people": "people.csv"}, {"people.csv": many(3000)}).variables
    spent = time.process_time() - before
    assert len(found["slurm_people"]["users"]) == len(found["slurm_accounting_users"]) == 3000
    assert spent < 2, spent


def test_one_mistake_in_all_of_many_users_is_named_in_time() -> None:
    before = time.process_time()
    found = problems("people.csv", {"people.csv": many(3000)})
    assert (len(found), len(str(ModelError(found)).split("\n"))) == (6000, 101)
    assert time.process_time() - before < 10
