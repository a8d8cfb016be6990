# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report from a node to a controller, with a real munged that has a key of its own, over the loopback."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import report_transport
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.report_transport import (
    ACCEPTED,
    LARGEST,
    ClosedFindings,
    NodeOrder,
    ReportError,
    ReportReply,
    Sent,
    accepted,
    is_from,
    receive,
    seal,
    send,
    unseal,
)

# No part of ansible-core takes part.
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(os.geteuid() != 0, reason="munged wants directories of root"),
    pytest.mark.skipif(not os.path.exists("/usr/sbin/munged"), reason="needs munge, which slurm-client brings"),
]

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture(name="munged", scope="module")
def munged_of_the_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a munged, and programs that ask it."""
    there = tmp_path_factory.mktemp("munge")
    for directory in [there, *there.parents[:3]]:
        directory.chmod(0o755)
    (there / "key").write_bytes(os.urandom(128))
    (there / "key").chmod(0o400)
    options = [f"--key-file={there}/key", f"--socket={there}/socket", f"--pid-file={there}/pid"]
    options += [f"--log-file={there}/log", f"--seed-file={there}/seed", "--force", "--foreground"]
    with subprocess.Popen(
        ["/usr/sbin/munged", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for _attempt in range(100):
            if (there / "socket").exists():
                break
            threading.Event().wait(0.05)
        (there / "bin").mkdir()
        for name in ("munge", "unmunge"):
            (there / "bin" / name).write_text(f'#!/bin/sh\nexec /usr/bin/{name} --socket={there}/socket "$@"\n')
            (there / "bin" / name).chmod(0o755)
        yield there
        process.terminate()


@pytest.fixture(autouse=True)
def path(munged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{munged}/bin:/usr/bin:/bin")


@pytest.fixture(name="controller")
def controllers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[socket.socket], str]], int]]:
    """A controller that answers one node. Returns its port."""
    monkeypatch.setattr(report_transport, "SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(talk: Callable[[socket.socket], str]) -> int:
            def serve() -> None:
                connection, _address = server.accept()
                with connection:
                    try:
                        said = talk(connection)
                    except ReportError as error:
                        said = str(error)
                    connection.sendall(f"{said}\n".encode())

            threading.Thread(target=serve, daemon=True).start()
            return int(server.getsockname()[1])

        yield answer


def test_a_report_comes_through(controller: Callable[[Callable[[socket.socket], str]], int]) -> None:
    text, found = '{"node": "n1", "words": "é"}\n\nUID: 5\n' + "x" * 500_000, []

    def talk(connection: socket.socket) -> str:
        found.append(unseal(receive(connection)))
        return ACCEPTED

    port = controller(talk)
    assert send(seal(text, ME), ["127.0.0.1"], port) == Sent([])
    assert (found[0].uid, found[0].text) == (os.geteuid(), text)


def test_the_next_controller_is_asked(controller: Callable[[Callable[[socket.socket], str]], int]) -> None:
    closed = ClosedFindings(1796000000.0, ["xid-79", "xid-48"])
    order = NodeOrder("reset", "12-1796000000")
    replies = [ReportReply(keeps, *others) for keeps in (False, True) for others in ((), (closed,), (None, order))]
    replies.append(ReportReply(True, closed, order))
    for reply in replies:
        said = accepted(reply)

        def talk(connection: socket.socket, said: str = said) -> str:
            return said if receive(connection) else ""

        assert send("MUNGE:x:", ["203.0.113.77.invalid", "127.0.0.1"], controller(talk)) == Sent([], reply)


@pytest.mark.parametrize(
    ("sent", "said"),
    [("MUNGE:broken:", "unmunge: "), ("", "no credential"), ("x" * (LARGEST + 1), "no credential, or one that is too")],
)
def test_what_is_no_report_is_refused(
    controller: Callable[[Callable[[socket.socket], str]], int], sent: str, said: str
) -> None:
    port = controller(lambda connection: unseal(receive(connection)).text)
    (error,) = send(sent, ["127.0.0.1"], port).errors
    assert said in error or "Connection reset" in error or "Broken pipe" in error


def test_a_report_is_opened_once_and_by_its_reader_alone() -> None:
    credential = seal("text", ME)
    assert unseal(credential).text == "text"
    with pytest.raises(ReportError, match=r"[Rr]eplay"):
        unseal(credential)
    with pytest.raises(ReportError, match=r"[Uu]nauthorized"):
        unseal(seal("text", "daemon"))


def test_a_controller_that_says_nothing_is_not_waited_for(
    controller: Callable[[Callable[[socket.socket], str]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_transport, "SECONDS", 0.3)
    ended = threading.Event()

    def talk(_connection: socket.socket) -> str:
        ended.wait(5)
        return ""

    (error,) = send("x", ["127.0.0.1"], controller(talk)).errors
    ended.set()
    assert "timed out" in error


@pytest.mark.parametrize(
    ("address", "names", "same"),
    [
        ("127.0.0.1", ["localhost"], True),
        ("::ffff:127.0.0.1", ["127.0.0.1"], True),
        ("127.0.0.2", ["localhost"], False),
        ("127.0.0.1", ["no-such-host.invalid", "localhost"], True),
        ("127.0.0.1", [], False),
        ("", ["no-such-host.invalid"], False),
    ],
)
def test_whose_address_it_is(address: str, names: list[str], same: bool) -> None:
    assert is_from(address, names) == same
