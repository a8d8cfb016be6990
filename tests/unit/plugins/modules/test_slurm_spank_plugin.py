# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Effects of slurm_spank_plugin on the files of a host, also when it is killed; tests/integration shows that jobs have
the plugin."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_spank_plugin

OLD, NEW, NEWER = (b"\x7fELF\0" + name for name in (b"old", b"new", b"newer"))


class Killed(BaseException):
    """The end of a process: nothing is tidied up."""


class Host:
    """A host with the module."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.capsys = directory, capsys
        self.plugin = directory / "lib/spank_test.so"
        self.previous = directory / "lib/spank_test.so.before"
        self.plugstack = directory / "etc/plugstack.conf"
        self.kept = directory / "kept"
        self.plugstack.parent.mkdir()

    def run(self, **options: Any) -> dict[str, Any]:
        """Run the module, and give its result."""
        arguments = {"path": str(self.plugin), **options, "_ansible_diff": True}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            slurm_spank_plugin.main()
        result: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return result

    def install(self, plugin: bytes, **options: Any) -> dict[str, Any]:
        """Install a plugin."""
        source = self.directory / "source.so"
        source.write_bytes(plugin)
        return self.run(source=str(source), **options)

    def announce(self, line: str, **options: Any) -> dict[str, Any]:
        """Announce the line that plugstack.conf will have."""
        return self.run(line=line, directory=str(self.plugstack.parent), **options)

    def line_kept(self) -> str | None:
        """The kept line of plugstack.conf."""
        files = [*self.kept.glob("[!.]*")] if self.kept.exists() else []
        return files[0].read_text() if files else None


def content(path: Path) -> bytes | None:
    """The content of a file; None if there is no file."""
    return path.read_bytes() if path.exists() else None


def digest(plugin: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return sha256(plugin).hexdigest()


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(slurm_spank_plugin, "KEPT", str(tmp_path / "kept"))
    return Host(tmp_path, capsys)


def test_a_first_plugin(host: Host) -> None:
    result = host.install(NEW)
    assert (result["changed"], result["unproven"]) == (True, True)
    assert (content(host.plugin), content(host.previous)) == (NEW, b"")
    assert host.plugin.stat().st_mode & 0o777 == 0o644
    again = host.install(NEW)
    assert (again["changed"], again["unproven"]) == (False, True)


def test_what_was_there_before_the_first_change_is_kept(host: Host) -> None:
    host.plugin.parent.mkdir()
    host.plugin.write_bytes(OLD)
    for plugin in (NEW, NEWER):
        assert host.install(plugin)["changed"]
        assert (content(host.plugin), content(host.previous)) == (plugin, OLD)


def test_a_plugin_that_is_proven_is_the_former_one_of_the_next_change(host: Host) -> None:
    host.install(OLD)
    proven = host.run(state="proven")
    assert (proven["changed"], proven["unproven"], content(host.previous)) == (True, False, None)
    assert not host.run(state="proven")["changed"]
    assert host.install(NEW)["unproven"]
    assert content(host.previous) == OLD


@pytest.mark.parametrize("before", [None, OLD], ids=["none", "another one"])
def test_what_was_there_before_comes_back(host: Host, before: bytes | None) -> None:
    if before:
        host.plugin.parent.mkdir()
        host.plugin.write_bytes(before)
    host.install(NEW)
    result = host.run(state="former")
    assert (result["changed"], result["unproven"]) == (True, False)
    assert (content(host.plugin), content(host.previous)) == (before, None)
    assert not host.run(state="former")["changed"]
    assert content(host.plugin) == before


def compiled(directory: Path, number: int) -> bytes:
    """A plugin for a release of Slurm, without any other content."""
    library = directory / "compiled.so"
    gcc = ["gcc", "-shared", "-fPIC", "-nostdlib", "-s", "-x", "c", "-", "-o", str(library)]
    subprocess.run(gcc, input=f"const unsigned int plugin_version = {number};", text=True, check=True)
    return library.read_bytes()


def test_a_plugin_of_the_release_before_an_upgrade_does_not_come_back(host: Host, tmp_path: Path) -> None:
    """Slurm would not load it."""
    previous, patched, new = (compiled(tmp_path, number) for number in (0x180B04, 0x180B05, 0x1A0500))
    host.plugin.parent.mkdir()
    host.plugin.write_bytes(previous)
    host.install(new)
    result = host.run(state="former")
    assert (result["changed"], result["unproven"], content(host.plugin)) == (False, True, new)
    host.install(patched)
    assert not host.run(state="former")["unproven"]
    assert content(host.plugin) == previous


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """End the process before its n-th operation on a file. Returns the operations before that."""
    done: list[str] = []

    def instead_of(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def do(*arguments: Any, **options: Any) -> Any:
            if len(done) == step:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return do

    with ExitStack() as stack:
        for name in ("replace", "unlink", "open", "fsync", "makedirs"):
            stack.enter_context(patch.object(os, name, instead_of(name)))
        yield done


def steps_of(work: Callable[[], Any]) -> Iterator[int]:
    """Repeat a work that is killed at its first step, at its second step and so on; the last one is not killed."""
    for step in range(100):
        ended = False
        with suppress(Killed), killed_at(step) as done:
            work()
            ended = True
        if ended:
            assert len(done) == step > 0
            return
        yield step
    raise AssertionError("it does not end")


@pytest.mark.parametrize("before", [None, OLD], ids=["none", "another one"])
@pytest.mark.parametrize("killed", ["present", "former"])
def test_a_killed_run_loses_nothing_of_what_was_there_before(host: Host, before: bytes | None, killed: str) -> None:
    host.plugin.parent.mkdir()
    work = {"present": lambda: host.install(NEW), "former": lambda: host.run(state="former")}[killed]

    def start() -> None:
        for path in host.plugin.parent.iterdir():
            path.unlink()
        if before:
            host.plugin.write_bytes(before)
        if killed == "former":
            host.install(NEW)

    start()
    for _step in steps_of(work):
        # Whatever it has left: a plugin is whole, and there is a way back, at once and after another try.
        assert content(host.plugin) in (before, NEW)
        found = {path: path.read_bytes() for path in host.plugin.parent.iterdir()}
        host.run(state="former")
        assert (content(host.plugin), content(host.previous)) == (before, None)
        for path, data in found.items():
            path.write_bytes(data)
        assert host.install(NEW)["unproven"]
        assert (content(host.plugin), content(host.previous)) == (NEW, before or b"")
        host.run(state="former")
        assert (content(host.plugin), content(host.previous)) == (before, None)
        start()


def test_a_killed_run_may_have_forgotten_what_was_there_before(host: Host) -> None:
    host.install(NEW)
    for _step in steps_of(lambda: host.run(state="proven")):
        assert (content(host.plugin), content(host.previous)) == (NEW, b"")
    assert (content(host.plugin), content(host.previous)) == (NEW, None)


LINE = "optional {} runtime_path=/run/pyxis"


def test_the_line_that_plugstack_conf_has_is_kept(host: Host) -> None:
    old, new = LINE.format(host.plugin), f"{LINE.format(host.plugin)} sbatch_support=0"
    host.plugstack.write_text(f"# optional {host.plugin} {host.plugin}\noptional {host.plugin}.old\n{old} # first\n")
    same = host.announce(old)
    assert (same["changed"], same["unproven"], same["former_line"], host.line_kept()) == (False, False, old, None)
    result = host.announce(new)
    assert (result["changed"], result["unproven"]) == (True, True)
    assert result["former_line"] == host.line_kept() == old
    # The run that has brought the new one into force was killed.
    host.plugstack.write_text(f"{new}\n")
    for line in (new, f"{new} execute_entrypoint=1"):
        again = host.announce(line)
        assert (again["changed"], again["unproven"], again["former_line"]) == (False, True, old)
    assert host.run(state="proven")["changed"]
    assert (host.line_kept(), host.announce(new)["unproven"]) == (None, False)


def test_the_line_is_kept_while_jobs_get_another_plugin(host: Host) -> None:
    line, meanwhile = f"required {host.plugin}", f"optional {host.plugin}"
    host.plugstack.write_text(f"{line}\n")
    result = host.announce(line, replaced=True)
    assert (result["changed"], result["unproven"], result["former_line"]) == (True, True, line)
    # The run that has brought another line into force was killed.
    host.plugstack.write_text(f"{meanwhile}\n")
    for replaced in (True, False):
        again = host.announce(line, replaced=replaced)
        assert (again["changed"], again["unproven"], again["former_line"]) == (False, True, line)
    host.run(state="proven")
    host.plugstack.write_text(f"{line}\n")
    assert not host.announce(line)["unproven"]


@pytest.mark.parametrize("text", [None, "", "required /other.so\n"])
def test_no_line_is_kept_as_none(host: Host, text: str | None) -> None:
    if text is not None:
        host.plugstack.write_text(text)
    result = host.announce(LINE.format(host.plugin))
    assert (result["unproven"], result["former_line"], host.line_kept()) == (True, "", "")


def test_a_line_that_is_gone_is_not_what_jobs_had(host: Host) -> None:
    """A killed run has kept it, and then the site did without the plugin for a while."""
    host.plugstack.write_text(f"{LINE.format(host.plugin)}\n")
    new = f"required {host.plugin}"
    assert host.announce(new)["former_line"] == LINE.format(host.plugin)
    host.plugstack.write_text("")
    assert host.announce(new)["former_line"] == ""


def test_a_killed_run_keeps_the_whole_line_or_none(host: Host) -> None:
    old, new = LINE.format(host.plugin), f"required {host.plugin}"
    host.plugstack.write_text(f"{old}\n")
    for _step in steps_of(lambda: host.announce(new)):
        assert host.line_kept() in (None, old)


def test_taking_back_forgets_the_line(host: Host) -> None:
    host.install(NEW)
    host.announce(LINE.format(host.plugin))
    host.run(state="former")
    assert (content(host.plugin), content(host.previous), host.line_kept()) == (None, None, None)


@pytest.mark.parametrize("state", ["present", "proven", "former"])
def test_check_mode_and_diff_tell_what_a_run_does(host: Host, state: str) -> None:
    host.plugin.parent.mkdir()
    host.plugin.write_bytes(OLD)
    host.plugstack.write_text(f"{LINE.format(host.plugin)}\n")
    new = f"required {host.plugin}"
    works: dict[str, Callable[..., dict[str, Any]]] = {
        "present": lambda **options: host.install(NEW, line=new, directory=str(host.plugstack.parent), **options),
        "proven": lambda **options: host.run(state="proven", **options),
        "former": lambda **options: host.run(state="former", **options),
    }
    if state != "present":
        works["present"]()
    files = [path for path in host.directory.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    foretold = works[state](_ansible_check_mode=True)
    assert {path: path.read_bytes() for path in host.directory.rglob("*") if path.is_file()} == before | {
        path: path.read_bytes() for path in host.directory.glob("source.so")
    }
    done = works[state]()
    assert {**foretold, "invocation": None} == {**done, "invocation": None}
    plugin, previous = (f"sha256 {digest(data)}\n" for data in (NEW, OLD))
    shown = {diff["before_header"]: (diff["before"], diff["after"]) for diff in done["diff"]}
    line = next(name for name in shown if "kept" in name)
    assert (
        shown
        == {
            "present": {
                str(host.previous): ("", previous),
                str(host.plugin): (previous, plugin),
                line: ("", LINE.format(host.plugin) + "\n"),
            },
            "proven": {str(host.previous): (previous, ""), line: (LINE.format(host.plugin) + "\n", "")},
            "former": {
                str(host.plugin): (plugin, previous),
                str(host.previous): (previous, ""),
                line: (LINE.format(host.plugin) + "\n", ""),
            },
        }[state]
    )
    assert not works[state](_ansible_check_mode=True)["changed"]


def test_nothing_that_was_there_is_shown_as_such(host: Host) -> None:
    (kept,) = [diff for diff in host.install(NEW)["diff"] if diff["before_header"] == str(host.previous)]
    assert (kept["before"], kept["after"]) == ("", "(none)\n")


def test_check_mode_knows_a_package_that_is_not_installed_yet(host: Host) -> None:
    absent = str(host.directory / "usr/lib/spank_test.so")
    foretold = host.run(source=absent, sha256=digest(NEW), _ansible_check_mode=True)
    assert foretold["changed"]
    assert foretold["diff"][-1]["after"] == f"sha256 {digest(NEW)}\n"
    host.install(NEW)
    assert not host.run(source=absent, sha256=digest(NEW), _ansible_check_mode=True)["changed"]


def test_a_source_that_is_not_the_plugin_is_refused(host: Host) -> None:
    result = host.install(OLD, sha256=digest(NEW))
    assert result["msg"] == f"{host.directory}/source.so: found sha256 {digest(OLD)}, allowed {digest(NEW)}"
    assert "No such file" in host.run(source=str(host.directory / "none.so"))["msg"]
    assert not host.plugin.exists()
