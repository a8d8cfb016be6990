# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that listen on ports, from the kernel's own files and from tables as a kernel has written them."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import sockets
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.sockets import (
    Socket,
    address_of,
    is_served,
    listener,
    listening,
)

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000 64030        0"
TCP = f"""{HEAD}\
   0: 0100007F:0CEA 00000000:0000 0A {REST} 27001 1 0000000000000000 100 0 0 10 0
   1: 00000000:1AA3 00000000:0000 0A {REST} 27002 1 0000000000000000 100 0 0 10 0
   2: 7807D50A:1AA1 7807D50A:C350 01 {REST} 27003 1 0000000000000000 20 4 30 10 -1
"""
TCP6 = f"""{HEAD}\
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A {REST} 27004 1 0 100 0 0 10 0
   1: 000080FE00000000FF565452040302FE:1AA3 00000000000000000000000000000000:0000 0A {REST} 27005 1 0 100 0 0 10 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a host with another byte order")
def test_sockets_that_listen() -> None:
    assert [*listening(TCP)] == [Socket("127.0.0.1", 3306, "27001"), Socket("127.0.0.1", 6819, "27002")]
    assert [*listening(TCP6)] == [
        Socket("::1", 22, "27004"),
        Socket("fe80::5254:56ff:fe02:304", 6819, "27005"),
    ]
    assert [*listening("")] == []


@pytest.mark.parametrize("end", ["close", "reset", "speak", "nothing"])
def test_a_kernel_that_takes_connections_for_a_process_that_hangs(end: str) -> None:
    def serve() -> None:
        connection, _address = server.accept()
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if end == "speak":
            connection.send(b"no")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if end != "nothing":
            threading.Thread(target=serve, daemon=True).start()
        assert is_served("127.0.0.1", port, 0.5) is (end != "nothing")
    assert not is_served("127.0.0.1", port, 0.5)
    assert not is_served("127.0.0.1", "none", 0.5)


def test_this_process_listens_and_another_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert address_of(os.getpid(), port) == "127.0.0.1"
        process, name = listener(port)
        assert (process, bool(name)) == (os.getpid(), True)
        with subprocess.Popen(["sleep", "60"]) as other:
            assert address_of(other.pid, port) == ""
            other.kill()
        assert address_of(other.pid, port) == ""  # it has ended
    assert listener(port) == (0, "")


def test_a_kernel_without_ipv6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    monkeypatch.setattr(sockets, "PROC", str(tmp_path))
    assert [found.inode for found in sockets.sockets(6819)] == ["27002"]
    assert listener(6819) == (0, "")
