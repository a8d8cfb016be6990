# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile values in each key and variable that becomes a part of a command, a file or a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import VALUES, value_problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.characters import one_line

HARDWARE = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}
CLUSTER: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "database": "head",
    "hardware": {"a": HARDWARE},
    "nodes": [{"hosts": "gpu[1-2]", "hardware": "a"}],
    "partitions": [{"name": "p", "nodes": "ALL"}],
}
ALICE = {"name": "alice", "uid": 5001}
MAIL = {"relay": "h", "sender": "a@b.c"}
NFS = {"path": "/d", "type": "nfs", "source": "nas:/x"}

KEYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "name": lambda value: {"name": value},
    "database": lambda value: {"database": value},
    "registry": lambda value: {"registry": value},
    "hardware": lambda value: {"hardware": {"a": HARDWARE, value: HARDWARE}},
    "partition": lambda value: {"partitions": [{"name": value, "nodes": "ALL"}]},
    "gres": lambda value: {"hardware": {"a": {**HARDWARE, "gres": [{"name": "gpu", "type": value}]}}},
    "user": lambda value: {"users": [{**ALICE, "name": value}]},
    "full name": lambda value: {"users": [{**ALICE, "full_name": value}]},
    "home": lambda value: {"users": [{**ALICE, "home": value}]},
    "shell": lambda value: {"users": [{**ALICE, "shell": value}]},
    "key of a user": lambda value: {"users": [{**ALICE, "keys": [value]}]},
    "group": lambda value: {"users": [ALICE], "groups": [{"name": value, "gid": 6001}]},
    "administrators": lambda value: {"access": {"administrators": [value]}},
    "source": lambda value: {"storage": [{"path": "/d", "type": "lustre", "source": value}]},
    "option": lambda value: {"storage": [{**NFS, "options": [value]}]},
    "package": lambda value: {"storage": [{**NFS, "packages": [{"name": value}]}]},
    "file": lambda value: {"storage": [{**NFS, "packages": [{"file": value}]}]},
    "url": lambda value: {"storage": [{**NFS, "packages": [{"url": value, "sha256": "0" * 64}]}]},
    "repository": lambda value: {"packages": {"repository": value, "key": "k.asc"}},
    "key": lambda value: {"packages": {"repository": "https://x.org/s noble main", "key": value}},
    "target": lambda value: {"backup": {"target": value}},
    "times": lambda value: {"backup": {"target": "/srv/b", "times": value}},
    "relay": lambda value: {"mail": {**MAIL, "relay": value}},
    "sender": lambda value: {"mail": {**MAIL, "sender": value}},
    "prolog": lambda value: {"prologs": [{"name": value, "script": "#!/bin/sh\n"}]},
    "variable": lambda value: {"prologs": [{"name": "a", "script": "#!/bin/sh\n", "environment": {value: "x"}}]},
    "content": lambda value: {"prologs": [{"name": "a", "script": "#!/bin/sh\n", "environment": {"A": value}}]},
    "plugin": lambda value: {"plugstack": [{"plugin": value}]},
    "argument": lambda value: {"plugstack": [{"plugin": "/x.so", "arguments": [value]}]},
    "ssh": lambda value: {"firewall": {"ssh": [value]}},
    "slurm_files": lambda value: {"slurm_files": {value: "x"}},
    "slurm_conf": lambda value: {"slurm_conf": {value: "x"}},
    "reservation": lambda value: {"accounting": {"reservations": [{"name": value, "users": "root"}]}},
    "private_tmp": lambda value: {"private_tmp": value},
    "people": lambda value: {"people": value},
    "profile": lambda value: {"profile": value},
}
"""Cluster files with a value in one key."""

BROKEN = ["a\nb", "a\rb", "a\0b", "a\ud800b", "a\udcffb", "a\u202eb", "a\u2066b", "a\u200bb", "a\ufeffb", "a\x1b[2Jb"]
"""What no line of a file can have, or what shows another text than it is."""

COMMANDS = ["a;id", "$(id)", "`id`", "a|b", "a>b", "a&b", "a'b", "{{ x }}", "a*", "~/a"]
OPTIONS = ["-x", "--help", "-oProxyCommand=id"]

NO_TEXT = ("content", "plugin", "argument", "full name", "key", "file", "source", "option")
"""Keys of free texts and names of files, which no shell reads."""


def problems(key: str, value: str) -> list[str]:
    """What is wrong with a cluster file with this value."""
    try:
        load(Document("x.cluster.yml", {**CLUSTER, **KEYS[key](value)}))
    except ModelError as error:
        return error.problems
    return []


@pytest.mark.parametrize("key", [*KEYS])
def test_no_key_takes_what_is_not_one_line(key: str) -> None:
    for value in BROKEN:
        found = problems(key, value)
        assert found, value
        assert all(ord(sign) >= 32 and sign not in "\u202e\u2066\ufeff" for text in found for sign in text), found


@pytest.mark.parametrize("key", [key for key in KEYS if key not in (*NO_TEXT, "reservation")])
def test_no_name_is_a_command_of_a_shell(key: str) -> None:
    for value in [value for value in COMMANDS if (key, value) != ("times", "a*") and (key, value) != ("times", "~/a")]:
        assert problems(key, value), value


@pytest.mark.parametrize("key", [key for key in KEYS if key not in NO_TEXT or key == "source"])
def test_no_name_is_an_option(key: str) -> None:
    for value in [value for value in OPTIONS if key != "times" or "=" in value]:
        assert problems(key, value), value


@pytest.mark.parametrize("name", [*VALUES])
def test_no_variable_of_a_role_takes_what_is_not_one_line(name: str) -> None:
    for value in BROKEN if name not in ("enroot_hooks", "slurmdbd_conf") else ["a\0b"]:
        for found in (value, [value], {"a": value}):
            assert [*value_problems({name: found})], value


NAMES = [
    "../../cron.d/x",
    "a/b",
    "-x",
    "",
    ".",
    "..",
    "a\n",
    "a b",
    "$(id)",
    "a;b",
    "/etc/x",
    "\u0430\u202e",
    "a" * 101,
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_of_a_role_stay_in_their_directory(name: str) -> None:
    (error,) = value_problems({"enroot_hooks": {name: "#!/bin/sh\n"}})
    assert "allowed: up to 100 letters" in error
    if name != "-x":
        assert len([*value_problems({"slurm_health_own_checks": {name: "x.sh"}})]) == 1
    assert [*value_problems({"enroot_hooks": {"50-site.sh": "#!/bin/sh\n"}})] == []
    assert [*value_problems({"slurm_health_own_checks": {"site-1": "a/x.sh"}})] == []


@pytest.mark.parametrize("value", ["5001\n", "-x", "0", "5001-", "1-2-3", "root", "5001 5002", "", "5001;id"])
def test_ids_for_fakeroot(value: str) -> None:
    assert len([*value_problems({"apptainer_fakeroot_uids": [value]})]) == 1
    assert [*value_problems({"apptainer_fakeroot_uids": ["5001", "6000-6100"]})] == []


@pytest.mark.parametrize("value", ["-x", "a b", "$(id)", "", "a\n", "a;id", "root:x", "../x", "a" * 300])
def test_users_of_playbooks(value: str) -> None:
    for name in ("validate_user", "rolling_user"):
        assert len([*value_problems({name: value})]) == 1
        assert [*value_problems({name: "jane.doe@example.org"})] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("url", "https://me:geheim@x.org/a.deb"),
        ("repository", "https://me:geheim@x.org/s noble main"),
        ("repository", "https://:geheim@x.org/s noble main"),
        ("target", "rest:https://me:geheim@x.org/"),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(key: str, value: str) -> None:
    """Hosts would have it in files and commands that all users can read."""
    (found,) = problems(key, value)
    assert "without a password" in found
    assert "geheim" not in found
    for variable in ("nvidia_driver_repository", "registry_upstream"):
        (error,) = value_problems({variable: "https://me:geheim@x.org/"})
        assert "geheim" not in error


def test_texts_of_people_stay() -> None:
    for value in ("Zoë O'Neil", "a\u200cb", "山田 太郎", "Émile #1", "a\u200db"):
        assert problems("full name", value) == []
        assert one_line(value) == value
    assert problems("url", "https://x.org/a@b.deb") == problems("url", "https://[2001:db8::1]:80/a.deb") == []
