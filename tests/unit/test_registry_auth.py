# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-registry-auth, asked over its socket as nginx asks it. Munge and the accounts are stand-ins.

`tests/integration/containers/test_registry_users.py` has nginx, docker-registry and munge themselves.
"""

from __future__ import annotations

import base64
import grp
import http.client
import os
import pwd
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import NOT_STARTED, Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import nginx_questions
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import registry_auth

REGISTRY = "head:5000"
ACCOUNTS = {"root": 0, "alice": 5001, "bob": 5002, "dana": 5004, "ops1": 5005, "site": 5006, "group": 5007, "vision": 5}
GROUPS = {"root": [0], "alice": [100, 200], "ops1": [100, 300]}
NAMES = {0: "root", 100: "users", 200: "vision", 300: "ops"}
SHADOW = f"dana:!:1:0:99999:7::1:\nbob:!:1:0:99999:7:::\nalice:!:1:0:99999:7::{int(time.time()) // 86400 + 2}:\n"
UPLOAD = "blobs/uploads/"
MANIFEST = "manifests/latest"


def credential(uid: int, payload: str = REGISTRY, number: int = 0, state: str = "new") -> str:
    """What the stand-in of munge decodes."""
    return f"MUNGE:{base64.b64encode(f'{uid} {payload} {number} {state}'.encode()).decode()}:"


def basic(name: str, password: str) -> str:
    """The header of a login."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


class Connection(http.client.HTTPConnection):
    """To a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def server_at(path: str) -> nginx_questions.NginxServer:
    """The program's server, for members of ops as administrators."""
    logins = registry_auth.Logins(REGISTRY)
    return nginx_questions.NginxServer(path, partial(registry_auth.check, logins=logins, administrators={"ops"}))


class Program:
    """The program, and the credentials that munge has decoded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.decoded: list[str] = []

    def asked(self, method: str, uri: str, *logins: str) -> tuple[int, str]:
        """The status and the reason for a request with these headers Authorization."""
        connection = Connection(self.path, timeout=10)
        connection.putrequest("GET", "/check")
        for name, value in (
            ("X-Original-Method", method),
            ("X-Original-URI", uri),
            *(("Authorization", login) for login in logins),
        ):
            connection.putheader(name, value)
        connection.endheaders()
        found = connection.getresponse()
        found.read()
        connection.close()
        return found.status, found.headers["Reason"] or ""

    def status(self, method: str, repository: str, user: str = "alice", end: str = UPLOAD) -> int:
        """The status for a request of a user."""
        return self.asked(method, f"/v2/{repository}/{end}", basic(user, credential(ACCOUNTS[user])))[0]

    def run(self, command: list[str], **options: Any) -> Answer:
        """A stand-in for unmunge, which decodes a credential once."""
        assert command[0] == "unmunge"
        text = options["stdin"]
        uid, payload, _number, state = base64.b64decode(text[6:-1]).decode().split(" ")
        if state == "new" and text in self.decoded:
            state = "Replayed"
        self.decoded.append(text)
        status = "Success (0)" if state == "new" else f"{state} credential (15)"
        error = "" if state == "new" else f"unmunge: Error: {state} credential\n"
        stdout = f"STATUS:          {status}\nUID:             who ({uid})\n\n{payload}"
        return Answer(0 if state == "new" else 15, stdout, error)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    def account(name: str) -> pwd.struct_passwd:
        # A directory may not look at the case of letters.
        return pwd.struct_passwd((name.lower(), "x", ACCOUNTS[name.lower()], 100, "", "/", "/bin/sh"))

    def group(gid: int) -> grp.struct_group:
        return grp.struct_group((NAMES[gid], "x", gid, []))

    (tmp_path / "shadow").write_text(SHADOW)
    monkeypatch.setattr(nginx_questions, "SHADOW", str(tmp_path / "shadow"))
    path = str(tmp_path / "socket")
    program = Program(path)
    monkeypatch.setattr(pwd, "getpwnam", account)
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: GROUPS.get(name, [gid]))
    monkeypatch.setattr(registry_auth, "run", program.run)
    with server_at(path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield program
        server.shutdown()
        thread.join()


# -- who may push ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "repository", "status"),
    [
        ("alice", "alice/pytorch", 204),
        ("alice", "alice/a/b/c", 204),
        ("alice", "group/vision/pytorch", 204),  # a member
        ("root", "site/pytorch", 204),
        ("root", "pytorch", 204),
        ("ops1", "site/pytorch", 204),  # a member of a group of administrators
        ("ops1", "alice/pytorch", 204),
        ("alice", "site/pytorch", 403),
        ("alice", "pytorch", 403),
        ("alice", "alice", 403),
        ("alice", "bob/pytorch", 403),
        ("alice", "alicex/pytorch", 403),
        ("alice", "alice-x/pytorch", 403),
        ("alice", "bob/alice/pytorch", 403),
        ("alice", "vision/pytorch", 403),  # the name of a user, not of a group
        ("alice", "group/vision", 403),
        ("alice", "group/ops/pytorch", 403),
        ("alice", "group/alice/pytorch", 403),
        ("alice", "root/pytorch", 403),
        ("alice", "library/alice/pytorch", 403),
        ("bob", "group/vision/pytorch", 403),
        ("bob", "group/bob/pytorch", 403),
        ("vision", "group/vision/pytorch", 403),  # a user who has the name of a group
        ("vision", "vision/pytorch", 204),
        ("site", "site/pytorch", 403),  # users who have the names of directories
        ("group", "group/vision/pytorch", 403),
        ("group", "group/pytorch", 403),
    ],
)
def test_who_may_change_what(program: Program, user: str, repository: str, status: int) -> None:
    for method in registry_auth.CHANGES:
        for end in (UPLOAD, f"{UPLOAD}0-f?_state=a", MANIFEST, "manifests/sha256:0f", "blobs/sha256:0f"):
            assert program.status(method, repository, user, end) == status, (method, end)


def test_a_layer_of_another_user_is_mounted_into_ones_own_images_alone(program: Program) -> None:
    mount = f"{UPLOAD}?mount=sha256:0f&from="
    assert program.status("POST", "alice/x", end=f"{mount}bob/x") == 204
    assert program.status("POST", "bob/x", end=f"{mount}alice/x") == 403


ATTEMPTS = {
    "two slashes": "/v2//site/x/blobs/uploads/",
    "two slashes at the beginning": "//v2/alice/x/blobs/uploads/",
    "two slashes later": "/v2/alice//../site/x/blobs/uploads/",
    "up": "/v2/alice/../site/x/blobs/uploads/",
    "up, encoded": "/v2/alice/%2e%2e/site/x/blobs/uploads/",
    "a slash, encoded": "/v2/alice%2f..%2fsite/x/blobs/uploads/",
    "a letter, encoded": "/v2/%61lice/x/blobs/uploads/",
    "encoded twice": "/v2/alice/%252e%252e/site/x/blobs/uploads/",
    "here": "/v2/alice/./x/blobs/uploads/",
    "a capital": "/v2/Alice/x/blobs/uploads/",
    "capitals in the path": "/V2/alice/x/blobs/uploads/",
    "a blank": "/v2/alice /x/blobs/uploads/",
    "NUL, encoded": "/v2/alice%00/x/blobs/uploads/",
    "a backslash": "/v2/alice\\..\\site/x/blobs/uploads/",
    "a semicolon": "/v2/alice;/../site/x/blobs/uploads/",
    "a fragment": "/v2/alice/x#/blobs/uploads/",
    "a query before the path": "/v2/site/x?/v2/alice/x/blobs/uploads/",
    "a name in a query": "/v2/?n=alice/x/blobs/uploads/",
    "a slash at the end": "/v2/alice/x/manifests/latest/",
    "no upload": "/v2/alice/x/blobs/uploads",
    "an underscore at the end": "/v2/alice_/x/blobs/uploads/",
    "the catalog": "/v2/_catalog",
    "tags": "/v2/alice/x/tags/list",
    "the ping": "/v2/",
    "the root": "/",
    "another version": "/v1/alice/x/blobs/uploads/",
    "another host": "http://head:5000/v2/alice/x/blobs/uploads/",
    "a letter of another script": "/v2/alic\xe9/x/blobs/uploads/",
    "an upload below": "/v2/alice/x/blobs/uploads/a/../../../../site/x/manifests/latest",
}


@pytest.mark.parametrize("uri", ATTEMPTS.values(), ids=ATTEMPTS)
def test_paths_that_two_programs_could_read_in_two_ways(program: Program, uri: str) -> None:
    login = basic("alice", credential(ACCOUNTS["alice"]))
    said = {program.asked(method, uri, login) for method in registry_auth.CHANGES}
    assert said == {(403, "this request is none that pushes or deletes an image")}


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "MKCOL", "LINK", "get", "put", "PUTX", ""])
def test_a_method_that_is_not_known_is_refused(program: Program, method: str) -> None:
    assert program.status(method, "alice/x", end=MANIFEST) == 403


# -- who it is ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        ((), "pushing and deleting need a login"),
        (("Bearer x",), "pushing and deleting need a login"),
        (("Basic",), "the password is no credential of munge"),
        (("Basic !",), "this is no login"),
        (("Basic Og==",), "the password is no credential of munge"),  # skopeo without a login
        ((basic("alice", "secret"),), "the password is no credential of munge"),
        ((basic("alice", credential(5001)[:-1]),), "the password is no credential of munge"),
        ((basic("alice", credential(5001) + "\n"),), "the password is no credential of munge"),
        ((basic("alice", f"MUNGE:{'A' * 5000}:"),), "the password is no credential of munge"),
        ((basic("alice", credential(5002)),), "the credential is of another user than the name"),
        ((basic("root", credential(5001)),), "the credential is of another user than the name"),
        ((basic("ALICE", credential(5001)),), "the credential is of another user than the name"),
        ((basic("5001", credential(5001)),), "the user has no account on the host of the registry"),
        ((basic("", credential(5001)),), "the user has no account on the host of the registry"),
        ((basic("-h", credential(5001)),), "the user has no account on the host of the registry"),
        (
            (basic("alice", credential(5001, "")),),
            "the credential is not for this registry",
        ),
        (
            (basic("alice", credential(5001, "evil:5000")),),
            "the credential is not for this registry",
        ),
        (
            (basic("alice", credential(5001, state="Expired")),),
            "munge refuses the credential, log in again: Expired credential",
        ),
        (
            (basic("alice", credential(5001, state="Replayed")),),
            "munge refuses the credential, log in again: Replayed credential",
        ),
        (
            (basic("alice", credential(5001)), basic("root", credential(0))),
            "pushing and deleting need a login",
        ),
    ],
)
def test_logins_that_are_none(program: Program, login: tuple[str, ...], reason: str) -> None:
    assert program.asked("POST", "/v2/alice/x/blobs/uploads/", *login) == (401, reason)
    assert program.asked("GET", "/v2/", *login)[0] == 401


def test_a_suspended_user_is_refused_also_within_a_login(program: Program) -> None:
    assert program.asked("GET", "/v2/", basic("dana", credential(5004)))[0] == 403
    assert program.status("POST", "bob/x", "bob") == 204
    Path(nginx_questions.SHADOW).write_text(SHADOW.replace("bob:!:1:0:99999:7:::", "bob:!:1:0:99999:7::1:"))
    login = basic("bob", credential(ACCOUNTS["bob"]))
    assert program.asked("POST", "/v2/bob/x/blobs/uploads/", login) == (403, "the account is suspended or has expired")


def test_a_credential_is_decoded_once_and_is_good_for_hours(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    login, now = basic("alice", credential(5001)), time.time()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(program.asked("GET", "/v2/", login)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, len(program.decoded)) == ([204] * 8, 1)
    monkeypatch.setattr(time, "time", lambda: now + registry_auth.HOURS * 3600 - 10)
    assert program.asked("GET", "/v2/", login)[0] == 204
    monkeypatch.setattr(time, "time", lambda: now + registry_auth.HOURS * 3600 + 10)
    assert program.asked("GET", "/v2/", login)[0] == 401


def test_nobody_logs_in_while_munge_cannot_be_asked(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """nginx gets no answer, and refuses."""
    monkeypatch.setattr(registry_auth, "run", lambda *_words, **_options: Answer(NOT_STARTED, "", "command not found"))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        program.asked("GET", "/v2/", basic("alice", credential(5001)))


def test_a_user_has_a_limited_number_of_logins(program: Program) -> None:
    other = basic("bob", credential(5002))
    assert program.asked("GET", "/v2/", other)[0] == 204
    for number in range(registry_auth.MOST_LOGINS + 1):
        assert program.asked("GET", "/v2/", basic("alice", credential(5001, number=number)))[0] == 204
    assert program.asked("GET", "/v2/", basic("alice", credential(5001, number=0)))[0] == 401
    assert program.asked("GET", "/v2/", basic("alice", credential(5001, number=1)))[0] == 204
    assert program.asked("GET", "/v2/", other)[0] == 204


def test_more_clients_wait_than_nginx_has_connections(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with server_at(path):
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(700)]
        for client in waiting:
            client.connect(path)
        for client in waiting:
            client.close()
