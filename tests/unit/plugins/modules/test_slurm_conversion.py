# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_conversion after a failure, and after a run that was killed, with stand-ins for MariaDB and systemd."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.conversion import ConversionError, Database
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import Slurmdbd
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_conversion
from ansible_collections.gpucluster.slurm.plugins.modules.slurm_conversion import Conversion

CONF = "SlurmUser=slurm\nStorageHost=localhost\nStorageLoc=acct\nStorageUser=slurm\n"


class World:
    """The host: what was done there, in order, and what fails."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.package = "installed 24.11.5-4"
        self.enabled = "enabled"
        self.release = "24.11"
        self.record = directory / "state.json"
        monkeypatch.setattr(slurm_conversion, "KEPT", str(directory))
        monkeypatch.setattr(slurm_conversion, "RECORD", str(self.record))
        monkeypatch.setattr(slurm_conversion, "File", lambda path, content, **_mode: (path, content))
        monkeypatch.setattr(slurm_conversion, "write", lambda files: [Path(p).write_bytes(c) for p, c in files])
        monkeypatch.setattr(slurm_conversion, "run", self.run)
        monkeypatch.setattr(slurm_conversion, "end_conversion", lambda: None)
        monkeypatch.setattr(slurm_conversion, "convert", lambda *_arguments: self.do("convert"))
        monkeypatch.setattr(Slurmdbd, "wait", lambda *_arguments: self.do("wait"))
        monkeypatch.setattr(Slurmdbd, "version", lambda _self: "26.05.5")
        monkeypatch.setattr(Database, "release", lambda _self: self.release)
        monkeypatch.setattr(slurm_conversion, "check_database", lambda *_arguments: self.do("check_database"))
        for name in ("dump", "load", "drop", "allow", "check_room"):
            monkeypatch.setattr(Database, name, self.database(name))

    def do(self, what: str) -> int:
        """Record it, and fail if it is to fail; the seconds of a conversion."""
        self.done.append(what)
        if what in self.fails:
            raise ConversionError(f"{what} fails")
        return 7

    def database(self, name: str) -> Callable[..., int]:
        """A method of Database."""

        def method(_self: object, *_arguments: object) -> int:
            return self.do(name)

        return method

    def run(self, command: list[str], **_limit: int) -> Answer:
        """A command."""
        if command[0] == "dpkg-query":
            return Answer(0, "slurmdbd: /usr/sbin/slurmdbd" if "--search" in command else self.package, "")
        if command[1] == "is-enabled":
            return Answer(1, self.enabled, "")
        self.done.append(command[1])
        return Answer(0, "", "")

    def conversion(self, state: str, check: bool = False) -> Conversion:
        """The module's work."""
        params = {"state": state, "version": "26.05.1-1", "unpacked": "/u", "conf": CONF, "socket": "/s", "patience": 1}
        return Conversion(Mock(params=params, check_mode=check))

    def saved(self, convert: bool = False, check: bool = False, conf: str = CONF) -> Conversion:
        """The module's work before slurmdbd starts."""
        params = {"state": "saved", "version": None, "convert": convert, "conf": conf, "socket": "/s", "patience": 1}
        return Conversion(Mock(params=params, check_mode=check))

    @property
    def step(self) -> str:
        """The step in the record."""
        return str(json.loads(self.record.read_text())["step"])


@pytest.fixture(name="world")
def a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A host with the previous release."""
    return World(tmp_path, monkeypatch)


def test_the_database_is_dumped_while_nothing_can_start_slurmdbd(world: World) -> None:
    result = world.conversion("converted").work()
    assert world.done == ["stop", "mask", "dump", "convert"]
    assert (result["changed"], result["seconds"], world.step) == (True, 7, "converted")
    assert world.conversion("converted").work()["changed"] is False


@pytest.mark.parametrize(
    ("fails", "done"),
    [
        ("dump", ["stop", "mask", "dump", "unmask", "start", "wait"]),
        ("convert", ["stop", "mask", "dump", "convert", "load", "unmask", "start", "wait"]),
    ],
)
def test_a_failure_restores_the_previous_slurmdbd(world: World, fails: str, done: list[str]) -> None:
    world.fails = {fails}
    with pytest.raises(ConversionError, match=f"{fails} fails\nThe previous slurmdbd serves again"):
        world.conversion("converted").work()
    assert world.done == done
    assert not world.record.exists()


def test_a_database_that_cannot_be_restored_keeps_its_record(world: World) -> None:
    world.fails = {"convert", "load"}
    with pytest.raises(ConversionError, match=r"are not restored: load fails. Its dump is /.*acct-before-26.05"):
        world.conversion("converted").work()
    assert (world.step, "unmask" in world.done) == ("converting", False)


@pytest.mark.parametrize(
    ("step", "done"),
    [
        ("dumping", ["stop", "mask", "dump", "convert"]),
        ("converting", ["load", "convert"]),
        ("converted", []),
        ("open", []),
    ],
)
def test_a_killed_run_is_continued(world: World, step: str, done: list[str]) -> None:
    world.record.write_text(json.dumps({"step": step, "to": "26.05.1-1", "dump": "/d"}))
    world.conversion("converted").work()
    assert world.done == done


def test_a_restored_database_is_never_overwritten_with_its_old_dump(world: World) -> None:
    """A run that is killed after the previous slurmdbd has started: it has taken new records."""
    world.fails = {"convert", "wait"}
    with pytest.raises(ConversionError):
        world.conversion("converted").work()
    assert world.step == "dumping"
    world.done, world.fails = [], set()
    world.conversion("converted").work()
    assert world.done == ["stop", "mask", "dump", "convert"]


def test_the_way_back_is_there_until_the_new_slurmdbd_is_installed(world: World) -> None:
    world.conversion("converted").work()
    world.done = []
    world.package = "installed 26.05.1-1"
    with pytest.raises(ConversionError, match="so there is only the way forward: run the upgrade again"):
        world.conversion("former").work()
    world.package = "half-configured 26.05.1-1"
    with pytest.raises(ConversionError, match="so there is only the way forward: run the upgrade again"):
        world.conversion("former").work()
    assert world.done == []
    world.package = "installed 24.11.5-4"
    (message,) = world.conversion("former").work()["remarks"]
    assert message.startswith("The previous slurmdbd serves again")
    assert world.done == ["load", "unmask", "start", "wait"]


def test_the_port_opens_once(world: World) -> None:
    world.conversion("converted").work()
    world.enabled, world.done = "masked", []
    assert world.conversion("open").work()["changed"]
    assert (world.done, world.step) == (["unmask"], "open")
    with pytest.raises(ConversionError, match="so there is only the way forward: run the upgrade again"):
        world.conversion("former").work()
    world.enabled = "enabled"
    assert not world.conversion("open").work()["changed"]
    assert world.conversion("ended").work()["changed"]
    assert not world.record.exists()


@pytest.mark.parametrize("check", [False, True])
def test_a_conversion_of_a_copy_only_reads_the_database(world: World, check: bool) -> None:
    result = world.conversion("tried", check).work()
    assert world.done == ["check_room", "drop", "dump", "load", "allow", "convert", "drop"]
    assert (result["changed"], result["seconds"], result["size"]) == (False, 7, 7)


def test_a_conversion_of_a_copy_that_fails_leaves_nothing(world: World) -> None:
    world.fails = {"convert"}
    with pytest.raises(ConversionError, match="convert fails"):
        world.conversion("tried").work()
    assert world.done[-1] == "drop"


def test_check_mode_changes_nothing(world: World) -> None:
    assert world.conversion("converted", check=True).work()["changed"]
    assert (world.done, world.record.exists()) == ([], False)


def test_a_database_elsewhere_is_refused(world: World) -> None:
    params = {"state": "tried", "version": "1", "unpacked": "/u", "socket": "/s", "patience": 1}
    with pytest.raises(ConversionError, match="StorageHost: found 'sql1', allowed for an upgrade: localhost"):
        Conversion(Mock(params=params | {"conf": CONF.replace("localhost", "sql1")}))
    assert world.done == []


@pytest.mark.parametrize("release", ["", "26.05"])
def test_slurmdbd_starts_with_the_tables_of_its_release(world: World, release: str) -> None:
    world.release = release
    assert world.saved().work()["changed"] is False
    assert world.done == ["check_database"]


@pytest.mark.parametrize("check", [False, True])
def test_a_database_of_an_earlier_release_is_refused(world: World, check: bool) -> None:
    with pytest.raises(ConversionError) as error:
        world.saved(check=check).work()
    assert "acct was not changed. It is one of Slurm 24.11, and slurmdbd 26.05.5 would convert it" in str(error.value)
    assert "Run gpucluster.slurm.upgrade" in str(error.value)
    assert "Give the host packages of Slurm 24.11" in str(error.value)
    assert world.done == ["check_database"]


def test_a_conversion_that_is_allowed_is_announced_and_dumped_before(world: World) -> None:
    result = world.saved(convert=True).work()
    assert world.done == ["check_database", "check_room", "stop", "dump"]
    (message,) = result["remarks"]
    assert message == (
        "slurmdbd 26.05.5 converts the database acct of Slurm 24.11 (7 MiB) when it starts, in about 1 s. Its dump "
        f"before that is {world.record.parent}/acct-before-26.05.5.sql"
    )
    world.done = []
    assert world.saved(convert=True, check=True).work()["changed"]
    assert world.done == ["check_database", "check_room"]


def test_a_dump_that_fails_leaves_slurmdbd_stopped(world: World) -> None:
    world.fails = {"dump"}
    with pytest.raises(ConversionError, match="dump fails"):
        world.saved(convert=True).work()
    assert "start" not in world.done


def test_a_database_elsewhere_is_not_looked_at(world: World) -> None:
    assert world.saved(conf=CONF.replace("localhost", "sql1")).work()["changed"] is False
    assert world.done == []
