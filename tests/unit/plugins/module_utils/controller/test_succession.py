# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several controllers may take control, and when."""

from __future__ import annotations

import getpass
import shlex
import struct
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import daemons, succession
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import Slurmctld
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.state_save_location import StateDirectoryError
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.systemd import quoted
from programs import ROLES, StandIn

CONF = "SlurmctldHost=head(10.0.0.1)\nSlurmctldHost=login1\nSlurmctldHost=n1\nSlurmctldPort=6820-6823\n"


@pytest.mark.parametrize(
    ("content", "index"),
    [(struct.pack(">QQ", 1795790000, 1), 1), (struct.pack(">QQ", 1, 0), 0), (b"", None), (b"\0" * 12, None)],
)
def test_the_heartbeat_names_the_controller_that_served_last(content: bytes, index: int | None) -> None:
    assert succession.find_last_index(content) == index


@pytest.mark.parametrize(
    ("own", "last", "connecting", "may"),
    [
        (1, 1, [], True),
        (1, 1, [2], True),  # a later standby gives way
        (1, 1, [0], False),  # `scontrol takeover` would end the slurmctld of the primary
        (1, 0, [], False),  # the primary may be alive where this host does not reach it
        (1, None, [], False),  # the directory cannot be read
        (2, 2, [1], False),
        (0, 0, [], False),  # the primary takes control by itself
    ],
)
def test_a_standby_takes_over_at_once_only_if_it_served_last_and_none_precedes_it(
    own: int, last: int | None, connecting: list[int], may: bool
) -> None:
    assert succession.may_take_over(own, last, connecting) is may


@pytest.mark.parametrize(
    ("before", "after", "ahead"),
    [
        (["a"], ["a", "b"], []),
        (["a", "b"], ["a"], []),
        (["b", "a"], ["b", "a", "c"], []),  # it serves as the standby
        (["b", "a"], ["a"], []),
        ([], ["b", "a"], []),  # the first configuration
        (["a"], ["b", "a"], ["b"]),
        (["a", "b"], ["b", "a"], ["b"]),
        (["b", "a"], ["b", "c", "a"], ["c"]),
        (["a"], ["b"], []),
    ],
)
def test_no_controller_comes_before_the_one_that_serves(before: list[str], after: list[str], ahead: list[str]) -> None:
    """It would become a standby of one that has never served, and nobody would serve."""
    assert succession.find_ahead(before, after, "a") == ahead


@pytest.fixture(name="state")
def state_with_a_heartbeat_of_the_second(tmp_path: Path) -> Path:
    (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1795790000, 1))
    return tmp_path


def slurmctld() -> Slurmctld:
    module: Any = SimpleNamespace(params={"directory": "/etc/slurm", "patience": 1}, check_mode=False)
    return Slurmctld(module)


SCONTROL = """\
case $1 in
ping) cat {state}/ping ;;
show) echo none ;;
takeover)
    echo $* >>{state}/calls
    test -e {state}/listens || {{ touch {state}/listens; exit 1; }}
    printf '\\0\\0\\0\\0\\0\\0\\0\\7\\0\\0\\0\\0\\0\\0\\0\\1' >{state}/heartbeat
    mv {state}/up {state}/ping ;;
esac
"""
"""It does not listen at first. Its next heartbeat says that it serves."""


@pytest.mark.parametrize(
    ("host", "port_open", "asked"), [("login1", False, 2), ("login1", True, 0), ("head", False, 0)]
)
def test_a_restarted_standby_asks_for_control_until_it_serves(
    state: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, host: str, port_open: bool, asked: int
) -> None:
    """It does not wait for SlurmctldTimeout."""
    monkeypatch.setattr("socket.gethostname", lambda: host)
    monkeypatch.setattr(daemons, "connection_error", lambda *_place: "" if port_open else "Connection refused")
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    stand_in("systemctl", "exit 0")
    stand_in("scontrol", SCONTROL.format(state=state))
    (state / "ping").write_text("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at login1 is DOWN\n")
    (state / "up").write_text("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at login1 is UP\n")
    daemon, calls = slurmctld(), state / "calls"
    configuration = read({"slurm.conf": f"{CONF}StateSaveLocation={state}\nSlurmUser={getpass.getuser()}\n"})
    if asked:
        daemon.act("restart", configuration)
    else:
        daemon.seek_control(configuration)
    assert (calls.read_text() if calls.exists() else "") == "takeover 1\n" * asked
    assert daemon.answers(configuration) is bool(asked)


# -- whose files are in force ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "shared", "changes", "record"),
    [
        ("", "", False, "1 24.11.5"),  # of an earlier version of the collection
        ("3 24.11.5", "3 24.11.5", False, "3 24.11.5"),
        ("3 24.11.5", "3 24.11.5", True, "4 24.11.5"),
        ("3 24.05.8", "3 24.05.8", False, "4 24.11.5"),  # an upgrade, also without a change of the files
        ("", "7 24.11.5", False, "7 24.11.5"),  # a new host, with a state that is there
        ("2 24.11.5", "7 24.11.5", True, "8 24.11.5"),  # it was away, and the other one is lost
        ("8 24.11.5", "7 24.11.5", False, "8 24.11.5"),  # a run was killed before it wrote the second one
        ("nonsense", "\x00", True, "1 24.11.5"),
    ],
)
def test_the_serial_number_rises_with_each_change(own: str, shared: str, changes: bool, record: str) -> None:
    assert succession.next_record(own, shared, "24.11.5", changes=changes) == record


def test_a_state_file_is_replaced_as_its_user(tmp_path: Path) -> None:
    user = getpass.getuser()
    assert succession.read_state_file(str(tmp_path), "serial", user) == b""
    succession.write_state_file(str(tmp_path), "serial", user, "7 24.11.5")
    assert succession.read_state_file(str(tmp_path), "serial", user) == b"7 24.11.5"
    assert [path.name for path in tmp_path.iterdir()] == ["serial"]
    with pytest.raises(StateDirectoryError, match="user nobody-such does not exist"):
        succession.write_state_file(str(tmp_path), "serial", "nobody-such", "")
    assert succession.read_state_file(str(tmp_path / "missing"), "serial", user) == b""


def condition(directory: Path, own: str | None, shared: str | None) -> tuple[int, str]:
    """The exit status and the message of ExecCondition= in the unit of slurmctld, with these records."""
    state = directory / 'shared "state"%'
    state.mkdir()
    for place, content in ((directory / "serial", own), (state / succession.SHARED_SERIAL, shared)):
        if content is not None:
            place.write_text(content)
    values = {"directory": str(state), "mounts_for": '"/x"', "mount_point": "/x", "automount": False}
    paths = {"serial": str(directory / "serial"), "shared_serial": quoted(f"{state}/{succession.SHARED_SERIAL}")}
    template = (ROLES / "slurmctld/templates/state.conf.j2").read_text()
    unit = jinja2.Environment(autoescape=False).from_string(template).render(values | paths)
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecCondition=")]
    # As systemd reads it (systemd.service(5), COMMAND LINES): the rest is as in a shell.
    words = shlex.split(line.partition("=")[2])
    done = subprocess.run(
        [word.replace("$$", "$").replace("%%", "%") for word in words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("own", "shared", "starts"),
    [
        ("7 24.11.5", "7 24.11.5", True),
        ("8 24.11.5", "7 24.11.5", True),
        ("9 24.11.5", "10 24.11.5", False),
        (None, "1 24.11.5", False),  # the disk was lost
        (None, None, True),  # of an earlier version of the collection
        ("7 24.11.5", None, True),
        ("7 24.11.5", "\x00\x01", True),  # no reason to end the service
    ],
)
def test_slurmctld_does_not_start_with_older_files(
    tmp_path: Path, own: str | None, shared: str | None, starts: bool
) -> None:
    status, message = condition(tmp_path, own, shared)
    # Another status than these two, such as 255, would be a failure that systemd repeats (systemd.service(5)).
    assert status == (0 if starts else 1)
    assert ("run gpucluster.slurm.site" in message) is not starts
    assert message.count("\n") == (not starts)
