# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the first controller does before its slurmctld starts, with stand-ins for Slurm's commands."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path

import pytest
from programs import ROLES, StandIn

pytestmark = pytest.mark.once


def take_control(directory: Path, served_last: int | None, port: int) -> subprocess.CompletedProcess[str]:
    """The end of the program, where a standby has this port."""
    if served_last is not None:
        (directory / "heartbeat").write_bytes(struct.pack(">QQ", 1_700_000_000, served_last))
    program = [ROLES / "slurmctld/files/take_control.sh", directory / "heartbeat", f"127.0.0.1:{port}"]
    return subprocess.run(["bash", *program], capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(name="asked")
def commands(stand_in: StandIn, tmp_path: Path) -> Path:
    """What scontrol was told. It cannot reach the controller of its own host."""
    asked = tmp_path / "asked"
    asked.touch()
    stand_in("scontrol", f'echo "$@" >>{asked}; exit 1')
    stand_in("sinfo", "exit 0")
    return asked


@pytest.mark.parametrize("served_last", [None, 0, 2, 1])
def test_only_another_controller_that_serves_is_stopped(tmp_path: Path, asked: Path, served_last: int | None) -> None:
    """There is no third one. The one that has served last is away."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        done = take_control(tmp_path, served_last, found.getsockname()[1])
    assert (done.returncode, done.stderr, asked.read_text()) == (0, "", "")


def test_the_one_that_serves_is_stopped(tmp_path: Path, asked: Path, stand_in: StandIn) -> None:
    """It listens until it has written its state."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listener = subprocess.Popen(["sleep", "60"], pass_fds=[server.fileno()])
    stand_in("scontrol", f'echo "$@" >>{asked}; kill {listener.pid}; exit 1')
    done = take_control(tmp_path, 1, port)
    listener.wait()
    assert (done.returncode, done.stderr, asked.read_text()) == (0, "", "shutdown slurmctld\n")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("answer", "starts"), [("slurm_load_partitions: Protocol authentication error", False), ("Timed out", True)]
)
def test_beside_one_that_serves_with_another_key_slurmctld_does_not_start(
    tmp_path: Path, stand_in: StandIn, answer: str, starts: bool
) -> None:
    """Of one that goes on for another reason, slurmctld asks for control itself."""
    stand_in("sinfo", f"echo {answer}; exit 1")
    stand_in("sleep", "exit 0")
    with socket.create_server(("127.0.0.1", 0), backlog=300) as server:
        done = take_control(tmp_path, 1, server.getsockname()[1])
    assert (done.returncode == 0) is starts
    assert ("serves with another munge key" in done.stderr) is not starts
