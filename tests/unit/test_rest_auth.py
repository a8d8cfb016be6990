# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-rest-auth, asked over its socket as nginx asks it. The accounts are stand-ins."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import io
import json
import pwd
import socket
import sys
import threading
import time
from collections.abc import Iterator
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import nginx_questions
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import rest_auth

KEY = b"k" * 64
CHECK = partial(rest_auth.check, key=KEY, slurm_user="slurm")
ACCOUNTS = {"root": 0, "toor": 0, "slurm": 64030, "alice": 5001, "dana": 5004, "erin": 5005}
TODAY = int(time.time()) // 86400
SHADOW = f"root:*:1::::::\nalice:!:1:0:99999:7:::\ndana:!$y$hash:1:0:99999:7::1:\nerin:!:1:0:99999:7::{TODAY + 2}:\n"


def part(value: Any) -> str:
    """A part of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key: bytes = KEY, header: Any = None, **claims: Any) -> str:
    """A token as scontrol makes it."""
    return signed_token(key, header, {"exp": int(time.time()) + 600, "iat": int(time.time()), **claims})


def signed_token(key: bytes, header: Any, claims: Any) -> str:
    """A token with these claims alone."""
    signed = f"{part(header or {'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{signed}.{part(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


class Connection(http.client.HTTPConnection):
    """To a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


Answer = tuple[int, str, str]
"""The status, and the user or the reason, and the token."""


class Program:
    """The program."""

    def __init__(self, path: str) -> None:
        self.path = path

    def asked(self, *headers: tuple[str, str]) -> Answer:
        """The answer to a request with these headers."""
        connection = Connection(self.path, timeout=10)
        connection.putrequest("GET", "/check")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        found = connection.getresponse()
        found.read()
        connection.close()
        said = found.headers["Reason"] or found.headers["X-SLURM-USER-NAME"] or ""
        return found.status, said, found.headers["X-SLURM-USER-TOKEN"] or ""

    def refused(self, value: str) -> tuple[int, str]:
        """The status and the reason for a token that is refused."""
        status, reason, sent = self.asked(("X-SLURM-USER-TOKEN", value))
        assert sent == ""
        return status, reason


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    shadow = tmp_path / "shadow"
    shadow.write_text(SHADOW)
    monkeypatch.setattr(nginx_questions, "SHADOW", str(shadow))

    def found(name: str) -> pwd.struct_passwd:
        # A directory may not look at the case of letters.
        return pwd.struct_passwd((name.lower(), "x", ACCOUNTS[name.lower()], 100, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", found)
    path = str(tmp_path / "socket")
    with nginx_questions.NginxServer(path, CHECK) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Program(path)
        server.shutdown()
        thread.join()


# -- who comes in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [{"sun": "alice"}, {"username": "alice"}, {"sun": "alice", "username": "root"}],
    ids=["sun", "username", "sun is preferred, as in Slurm"],
)
def test_a_user_comes_in_and_the_checked_token_is_sent_on(program: Program, claims: dict[str, Any]) -> None:
    found = token(**claims)
    assert program.asked(("X-SLURM-USER-TOKEN", found)) == (204, "alice", found)
    assert program.asked(("Authorization", f"Bearer {found}")) == (204, "alice", found)
    assert program.asked(("X-SLURM-USER-TOKEN", found), ("X-SLURM-USER-NAME", "alice"))[0] == 204


def test_an_account_that_expires_later_is_no_suspended_one(program: Program) -> None:
    assert program.asked(("X-SLURM-USER-TOKEN", token(sun="erin")))[:2] == (204, "erin")


def test_a_user_who_is_suspended_now_is_refused_by_the_next_request(program: Program) -> None:
    good = token(sun="alice")
    assert program.asked(("X-SLURM-USER-TOKEN", good))[0] == 204
    Path(nginx_questions.SHADOW).write_text(SHADOW.replace("alice:!:1:0:99999:7:::", "alice:!:1:0:99999:7::1:"))
    assert program.refused(good) == (403, "the account of the token's user is suspended or has expired")


# -- who does not ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["root", "toor", "slurm"])
def test_a_token_that_may_act_as_anybody_is_refused(program: Program, name: str) -> None:
    why = "tokens of root and SlurmUser are refused, since they may act as anybody"
    assert program.refused(token(sun=name)) == (403, why)
    assert program.refused(token(username=name)) == (403, why)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("dana", "the account of the token's user is suspended or has expired"),
        ("nobody-here", "the user of the token has no account here"),
        ("0", "the user of the token has no account here"),
        ("al\0ice", "the user of the token has no account here"),
        ("ALICE", "the user of the token has another name here"),
        ("ROOT", "the user of the token has another name here"),
    ],
)
def test_users_who_may_not_come_in(program: Program, name: str, why: str) -> None:
    assert program.refused(token(sun=name)) == (403, why)


def test_a_token_of_another_key_or_with_another_content_is_refused(program: Program) -> None:
    why = (401, "the token was not made by this cluster, or its key was replaced")
    header, claims, signature = token(sun="alice").split(".")
    assert program.refused(token(key=b"o" * 64, sun="alice")) == why
    assert program.refused(f"{header}.{part({'sun': 'erin', 'exp': 2**40})}.{signature}") == why
    assert program.refused(f"{part({'alg': 'HS256'})}.{claims}.{signature}") == why
    assert program.refused(f"{header}.{claims}.{signature[:-3]}") == why


@pytest.mark.parametrize("algorithm", ["none", "None", "hs256", "RS256", "HS384", None, ["HS256"]])
def test_no_other_algorithm_is_taken(program: Program, algorithm: Any) -> None:
    signed = token(header={"alg": algorithm}, sun="alice")
    assert program.refused(signed) == (401, "the token is not signed with HS256")
    assert program.refused(signed.rpartition(".")[0] + ".")[0] == 401


@pytest.mark.parametrize("end", [0, -1, 1, int(time.time()) - 1, "9999999999", None, True, 1e300, 2.0**40])
def test_a_token_that_has_expired_or_has_no_end_is_refused(program: Program, end: Any) -> None:
    assert program.refused(token(sun="alice", exp=end)) == (401, "the token has expired")


def test_a_token_without_the_claim_exp_is_refused(program: Program) -> None:
    assert program.refused(signed_token(KEY, None, {"sun": "alice"})) == (401, "the token has expired")


def test_the_end_of_a_token_is_that_of_the_clock_here(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the controller that made it may be ahead."""
    now = int(time.time())
    mine = token(sun="alice", exp=now + 60, iat=now + 30)
    for clock, status in ((now, 204), (now + 59, 204), (now + 60, 401)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        assert program.asked(("X-SLURM-USER-TOKEN", mine))[0] == status
    assert program.refused(token(sun="alice", exp=now)) == (401, "the token has expired")


def test_a_token_that_begins_later_is_refused(program: Program) -> None:
    later = token(sun="alice", nbf=int(time.time()) + 60)
    assert program.refused(later) == (401, "the token is not valid yet")


def test_a_user_whose_account_was_removed_is_refused_by_the_next_request(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = token(sun="alice")
    assert program.asked(("X-SLURM-USER-TOKEN", mine))[0] == 204
    monkeypatch.delitem(ACCOUNTS, "alice")
    assert program.refused(mine) == (403, "the user of the token has no account here")


@pytest.mark.parametrize("claims", [{}, {"sun": ""}, {"sun": 0}, {"sun": None, "username": "alice"}, {"name": "alice"}])
def test_a_token_without_a_user_is_refused(program: Program, claims: dict[str, Any]) -> None:
    assert program.refused(token(**claims)) == (401, "the token names no user")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "****.b.c",
        "a.b.c",
        f"{part([])}.{part([])}.{part(b'x')}",
        f"{part(b'[' * 2999)}.b.c",
    ],
)
def test_what_is_no_token_is_refused(program: Program, text: str) -> None:
    assert program.refused(text) == (401, "this is no token")


HEADER, CLAIMS = {"alg": "HS256", "typ": "JWT"}, {"sun": "alice", "exp": 2**40}
OTHER = b"o" * 64
PUBLIC_KEY = b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"
UNSIGNED = f"{part(HEADER)}.{part(CLAIMS)}"
SIGNED = signed_token(KEY, HEADER, CLAIMS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{part({'alg': 'nOnE'})}.{part(CLAIMS)}.", id="CVE-2015-9235: none in other letters"),
        pytest.param(f"{UNSIGNED}.", id="CVE-2020-28042: no signature"),
        pytest.param(f"{UNSIGNED}.{part(bytes(32))}", id="CVE-2022-21449: a signature of zeros"),
        pytest.param(signed_token(b"", HEADER, CLAIMS), id="CVE-2019-20933: the empty key"),
        pytest.param(signed_token(PUBLIC_KEY, HEADER, CLAIMS), id="CVE-2016-10555: a public key as the key"),
        pytest.param(signed_token(OTHER, {**HEADER, "kid": "../../dev/null"}, CLAIMS), id="a kid that is a path"),
        pytest.param(signed_token(OTHER, {**HEADER, "kid": "' UNION SELECT 'o"}, CLAIMS), id="a kid that is SQL"),
        pytest.param(signed_token(OTHER, {**HEADER, "kid": ["o"]}, CLAIMS), id="a kid that is no text"),
        pytest.param(
            signed_token(OTHER, {**HEADER, "jwk": {"kty": "oct", "k": part(OTHER)}}, CLAIMS),
            id="CVE-2018-0114: its own key",
        ),
        pytest.param(signed_token(OTHER, {**HEADER, "jku": "http://127.0.0.1:1/"}, CLAIMS), id="a link to its key"),
        pytest.param(signed_token(OTHER, {**HEADER, "x5c": [part(OTHER)]}, CLAIMS), id="a certificate of its own"),
        pytest.param(
            signed_token(OTHER, b'{"alg": "none", "alg": "HS256"}', CLAIMS), id="two algorithms, and another key"
        ),
        pytest.param(signed_token(KEY, b'{"alg": "HS256", "alg": "none"}', CLAIMS), id="two algorithms"),
        pytest.param(signed_token(KEY, {"alg": "HS256\0"}, CLAIMS), id="NUL after the algorithm"),
        pytest.param(
            signed_token(KEY, {"alg": "PBES2-HS256+A128KW", "enc": "A128GCM", "p2c": 2**31}, CLAIMS),
            id="CVE-2022-36083: two thousand million rounds",
        ),
        pytest.param(f"{SIGNED}.{part(b'x')}.{part(b'x')}", id="CVE-2023-51774: five parts, as JWE"),
        pytest.param(json.dumps({"payload": part(CLAIMS), "signature": SIGNED.split(".")[2]}), id="JWS in JSON"),
        pytest.param(signed_token(KEY, {**HEADER, "cty": "JWT"}, SIGNED.encode()), id="a token in a token"),
        pytest.param(signed_token(OTHER, {**HEADER, "b64": False, "crit": ["b64"]}, CLAIMS), id="detached content"),
        pytest.param(f"{SIGNED}=", id="padding"),
        pytest.param(SIGNED[:-2] + " " + SIGNED[-2:], id="a blank in the signature"),
        pytest.param(SIGNED[:-2] + "*" + SIGNED[-2:], id="another character in the signature"),
        pytest.param(signed_token(KEY, b"\xff\xfe{}", CLAIMS), id="no UTF-8"),
        pytest.param(signed_token(KEY, HEADER, b'{"sun": "alice", "exp": Infinity}'), id="an end without end"),
        pytest.param(signed_token(KEY, HEADER, b'{"sun": "alice", "exp": NaN}'), id="an end that is no number"),
        pytest.param(signed_token(KEY, HEADER, {**CLAIMS, "exp": [2**40]}), id="a list of ends"),
        pytest.param(signed_token(KEY, HEADER, {**CLAIMS, "sun": ["alice"]}), id="a list of users"),
    ],
)
def test_attempts_from_reports_about_libraries_are_refused(program: Program, text: str) -> None:
    assert program.refused(text)[0] == 401
    assert program.asked(("X-SLURM-USER-TOKEN", SIGNED))[0] == 204, "the program goes on"


def test_an_oversized_token_is_refused_and_so_is_a_header_beyond_those_of_http(program: Program) -> None:
    assert program.refused("x" * 4097) == (401, "the token has more than 4096 characters")
    assert program.asked(("X-SLURM-USER-TOKEN", "x" * 70000))[0] == 431
    assert program.asked(("X-SLURM-USER-TOKEN", token(sun="alice")))[0] == 204, "the program goes on"


def test_a_request_has_one_token_and_names_no_other_user(program: Program) -> None:
    mine, other = token(sun="alice"), token(sun="erin")
    several = (401, "the request has several tokens", "")
    assert program.asked(("X-SLURM-USER-TOKEN", mine), ("X-SLURM-USER-TOKEN", other)) == several
    assert program.asked(("X-SLURM-USER-TOKEN", mine), ("Authorization", f"Bearer {other}")) == several
    assert program.asked()[:2] == (
        401,
        "the request has no token, in the header X-SLURM-USER-TOKEN or as Authorization: Bearer TOKEN",
    )
    assert program.asked(("Authorization", f"Basic {mine}"))[:2] == (
        401,
        "the header Authorization is not Bearer TOKEN",
    )
    for names in (("erin",), ("alice", "erin")):
        headers = [("X-SLURM-USER-NAME", name) for name in names]
        why = "the header X-SLURM-USER-NAME names another user than the token"
        assert program.asked(("X-SLURM-USER-TOKEN", mine), *headers) == (401, why, "")


def test_nobody_comes_in_while_the_accounts_cannot_be_read(program: Program) -> None:
    Path(nginx_questions.SHADOW).unlink()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        program.asked(("X-SLURM-USER-TOKEN", token(sun="alice")))


# -- its start ---------------------------------------------------------------------------------------------------------


def test_the_program_does_not_start_with_a_short_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"k" * 31)))
    monkeypatch.setattr(sys, "argv", ["slurm-rest-auth", str(tmp_path / "socket"), "slurm"])
    with pytest.raises(SystemExit, match="the key has 31 bytes, allowed: 32 or more"):
        rest_auth.main()


def test_no_reason_has_a_token(capsys: pytest.CaptureFixture[str], program: Program) -> None:
    secret = token(key=b"o" * 64, sun="alice")
    program.refused(secret)
    said = capsys.readouterr()
    assert said.err == "refused: the token was not made by this cluster, or its key was replaced\n"
    assert said.out == ""


def test_headers_are_compared_without_case() -> None:
    headers = Message()
    headers["x-slurm-user-token"] = "t"
    assert rest_auth.token_in(headers) == "t"


def test_more_clients_wait_than_nginx_has_connections(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with nginx_questions.NginxServer(path, CHECK):
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(700)]
        for client in waiting:
            client.connect(path)
        for client in waiting:
            client.close()
