# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of role first_boot. Commands of Slurm, the site's command and slurmctld are stand-ins."""

from __future__ import annotations

import base64
import io
import json
import os
import pwd
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import bounded_command, environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.upgrade import takes
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import first_boot as rules
from plain_host import cluster
from programs import StandIn, load

pytestmark = pytest.mark.once

KEY = bytes(range(256)) * 2
DROP_IN = 'Environment="SLURMD_OPTIONS=--conf-server new:6817"\n'


class Host(SimpleNamespace):
    """A host with files of its own."""

    program: ModuleType
    root: Path
    settings: dict[str, Any]

    def write(self, path: str, text: str | bytes) -> Path:
        """Write a file by the name of the constant that has its path, or by its path below the root."""
        place = Path(getattr(self.program, path)) if path.isupper() else self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        return place

    def set(self, **values: Any) -> None:
        """Change the settings."""
        self.settings |= values
        self.write("SETTINGS", json.dumps(self.settings))

    def controllers(self) -> tuple[str, str, bool]:
        """The controllers, their source, and whether the unit names them."""
        found = self.program.find_controllers(self.program.settings_of_image())
        return ",".join(map(str, found.servers)), found.source, found.in_unit

    def error(self, *words: str) -> str:
        """The error of the program; empty if there is none."""
        with patch.object(sys, "argv", ["slurm-first-boot", *words]), redirect_stderr(io.StringIO()) as said:
            assert self.program.main() == bool(said.getvalue())
        return said.getvalue().strip()


@pytest.fixture(name="host")
def host_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A node that has just booted, with the settings of the role. User munge is the user of the test."""
    program = load("image_first_boot")
    for name in ("SETTINGS", "SITE", "KERNEL", "UNITS", "ENVIRONMENT", "KEY"):
        monkeypatch.setattr(program, name, f"{tmp_path}{getattr(program, name)}")
    monkeypatch.setattr(program, "KEY_OWNER", pwd.getpwuid(os.getuid()).pw_name)
    monkeypatch.setattr(program, "own_version", lambda: "24.11.5")
    monkeypatch.setattr(program, "ASK", 2)
    monkeypatch.setattr(os, "umask", lambda _mask: 0o022)
    host = Host(program=program, root=tmp_path, settings=rules.settings(cluster()["n1"]))
    host.set()
    host.write("KERNEL", "BOOT_IMAGE=/vmlinuz root=/dev/sda ro quiet\n")
    Path(program.KEY).parent.mkdir(parents=True)
    return host


@pytest.fixture(name="stand_in")
def stand_ins_of_the_program(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Stand-ins that the program finds."""
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])
    return stand_in


def test_role_and_program_have_the_same_paths() -> None:
    program = load("image_first_boot")
    for name in ("SETTINGS", "ENVIRONMENT", "UNITS"):
        assert getattr(program, name) == getattr(rules, name)


# -- controllers -----------------------------------------------------------------------------------------------------


def test_the_controllers_are_those_of_the_first_source_that_has_some(host: Host) -> None:
    assert host.controllers() == ("head:6817", host.program.SETTINGS, False)
    host.write("etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf", DROP_IN)
    assert host.controllers() == ("new:6817", "slurmd.service", True)
    host.write("SITE", "# of cloud-init\n\ncontrollers = ctl1, 10.0.0.2:7000\n")
    assert host.controllers() == ("ctl1:6817,10.0.0.2:7000", f"{host.program.SITE}, controllers", False)
    host.write("KERNEL", "quiet gpucluster.controllers=a.example.org\n")
    assert host.controllers() == ("a.example.org:6817", "kernel argument gpucluster.controllers", False)


def test_controllers_without_a_port_have_that_of_the_cluster(host: Host) -> None:
    host.set(port=7321)
    host.write("KERNEL", "gpucluster.controllers=a,b:1")
    assert host.controllers()[0] == "a:7321,b:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found '', allowed: HOST or HOST:PORT, separated by commas"),
        ("a,,b", "found '', allowed: HOST"),
        ("a b", "found 'a b', allowed: HOST"),
        ("-a", "found '-a', allowed: HOST"),
        ("a;reboot", "found 'a;reboot', allowed"),
        ('a" --help', "allowed: HOST"),
        ("10.0.0.300", "found '10.0.0.300', allowed"),
        ("[fd00::1]:6817", "allowed: HOST or HOST:PORT"),
        ("a:0", "found port '0' of a, allowed: 1 to 65535"),
        ("a:65536", "found port '65536' of a"),
        ("a:", "found port '' of a"),
        ("a:1:2", "found port '1:2' of a"),
        ("a:x\x1b[0m", "found port 'x\\x1b[0m' of a"),
        ("a,a:6817", "a:6817 is there twice"),
        ("a" * 300, "aaa..., allowed"),
    ],
)
def test_wrong_controllers(host: Host, text: str, message: str) -> None:
    host.write("SITE", f"controllers={text}\n")
    error = host.error()
    assert error.startswith(f"slurm-first-boot: {host.program.SITE}, controllers: ")
    assert message in error
    assert not Path(host.program.ENVIRONMENT).exists()


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("KERNEL", "gpucluster.controler=a", "found 'controler', allowed: controllers; did you mean controllers?"),
        ("KERNEL", "gpucluster.munge_key=secret", "found 'munge_key', allowed: controllers"),
        ("KERNEL", "gpucluster.controllers=a gpucluster.controllers=b", "controllers is there twice"),
        ("SITE", "controller=a", "found 'controller', allowed: controllers; did you mean controllers?"),
        ("SITE", "controllers=a\ncontrollers=b", "controllers is there twice"),
        ("SITE", "[first_boot]", "found '[first_boot]', allowed: lines NAME=VALUE"),
    ],
)
def test_other_names(host: Host, path: str, text: str, message: str) -> None:
    host.write(path, text)
    assert message in host.error()


# -- the key ---------------------------------------------------------------------------------------------------------


def ensure(host: Host, *command: str) -> str:
    """What the program says about the key."""
    text: str = host.program.ensure_key(command)
    return text


def key_file(host: Host) -> tuple[bytes, int]:
    """The key and the mode of its file."""
    path = Path(host.program.KEY)
    assert [*path.parent.iterdir()] == [path]
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("key", [KEY, b"\n" + os.urandom(31), os.urandom(1024)], ids=["512", "32", "1024"])
@pytest.mark.parametrize("form", ["raw", "base64", "lines"])
def test_a_key_of_a_command(host: Host, stand_in: StandIn, key: bytes, form: str) -> None:
    forms = {"raw": key, "base64": base64.b64encode(key), "lines": base64.encodebytes(key)}
    source = host.write("vault", forms[form])
    stand_in("get-key", f"cat {source}")
    assert ensure(host, "get-key", "cluster/munge") == f"munge key: {len(key)} bytes from get-key"
    assert key_file(host) == (key, 0o400)
    assert ensure(host) == f"munge key: {host.program.KEY}"


def test_a_key_that_is_there_is_taken(host: Host) -> None:
    host.write("KEY", KEY).chmod(0o400)
    assert ensure(host, "false") == f"munge key: {host.program.KEY}"
    assert key_file(host) == (KEY, 0o400)


def test_the_mode_of_a_key_that_is_there_is_corrected(host: Host) -> None:
    host.write("KEY", KEY).chmod(0o644)
    assert "owner and mode were corrected" in ensure(host)
    assert key_file(host) == (KEY, 0o400)


def wrong_key(host: Host, *command: str) -> str:
    """The error about a key."""
    with pytest.raises(host.program.FirstBootError) as caught:
        host.program.ensure_key(command)
    return str(caught.value)


def test_no_key(host: Host) -> None:
    assert "munge.key is missing, and the image has no command for it" in wrong_key(host)


@pytest.mark.parametrize(
    ("size", "printed", "found"),
    [
        (0, "printed nothing", "found 0 bytes"),
        (31, "found 31 bytes, allowed: a key of 32 to 65536 bytes", "found 31 bytes"),
        (65537, "printed more than 65536 bytes", "found more than 65536 bytes"),
    ],
)
def test_a_key_of_another_size(host: Host, stand_in: StandIn, size: int, printed: str, found: str) -> None:
    text = os.urandom(size)
    stand_in("get-key", f"cat {host.write('vault', base64.b64encode(text))}")
    assert printed in wrong_key(host, "get-key")
    path = host.write("KEY", text)
    assert f"{found}, allowed: a key of 32 to 65536 bytes" in wrong_key(host, "get-key")
    path.unlink()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo '<html>404 not found, and more than 32 bytes</html>'",
            "found text that is not base64, allowed: a key",
        ),
        ("echo; printf '\\033'; echo 'no\\nright' >&2; exit 7", "get-key: ended with 7: right"),
        ("exit 1", "get-key: ended with 1: no message"),
        ("sleep 60 & sleep 60", "get-key: has not ended within 1 s"),
    ],
)
def test_a_command_that_fails(
    host: Host, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setattr(bounded_command, "SECONDS", 1)
    stand_in("get-key", script)
    assert message in wrong_key(host, "get-key", "--token=mine")
    assert not Path(host.program.KEY).exists()


def test_a_command_that_is_missing(host: Host) -> None:
    assert "first_boot_key_command: /nonexistent: cannot run: No such file" in wrong_key(host, "/nonexistent")


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "hard link"])
def test_something_else_in_the_place_of_the_key(host: Host, kind: str) -> None:
    path, other = Path(host.program.KEY), host.write("other", KEY)
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        (os.symlink if kind == "link" else os.link)(other, path)
    wrong_key(host)
    assert other.read_bytes() == KEY


def test_no_part_of_a_key_is_shown(
    host: Host, stand_in: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "0123456789abcdef" * 2
    for output in (text, text[:20], f"{text} {text}!"):
        stand_in("get-key", f"printf '%s' '{output}'")
        host.set(key_command=["get-key"])
        monkeypatch.setattr(host.program, "check_release", lambda *_words: "release: not asked")
        said = host.error() + "".join(capsys.readouterr())
        assert "0123" not in said
        Path(host.program.KEY).unlink(missing_ok=True)


# -- the release -----------------------------------------------------------------------------------------------------

PROTOCOLS = rules.settings(cluster()["n1"])["protocols"]


def header(protocol: int) -> bytes:
    """The beginning of an answer of slurmctld: RESPONSE_SLURM_RC, as it was seen of 24.11.5 and 26.05.5."""
    answer = struct.pack(">HHHIHHHI", protocol, 64, 8001, 4, 0, 0, 0, 2012)
    return struct.pack(">I", len(answer)) + answer


def answers_of(release: str) -> Callable[[int], bytes]:
    """What slurmctld of a release answers to a question in a protocol, as it was seen of these three."""
    own = PROTOCOLS[release]
    taken = [PROTOCOLS[name] for name in (*takes(release), release)]
    if release == "22.05":
        return lambda _protocol: b""
    if release == "26.05":
        return lambda protocol: header(protocol) if protocol in taken else b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"
    return lambda protocol: header(protocol if protocol in taken else own)


@contextmanager
def slurmctld(answer: Callable[[int], bytes]) -> Iterator[int]:
    """A stand-in for slurmctld; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    question = connection.recv(4096)
                    (length, protocol, flags, kind) = struct.unpack_from(">IHHH", question)
                    assert (length, flags, kind) == (len(question) - 4, 64, 1008)
                    connection.sendall(answer(protocol))

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def release_of(host: Host, version: str, *ports: int) -> str:
    """What the program says about a version of this host."""
    servers = [host.program.Server("127.0.0.1", port) for port in ports]
    try:
        return str(host.program.check_release(servers, version, host.program.settings_of_image()))
    except host.program.FirstBootError as error:
        return f"refused: {error}"


def test_the_version_of_this_host(tmp_path: Path, stand_in: StandIn) -> None:
    """scontrol has no configuration of its own yet."""
    program = load("image_first_boot")
    stand_in("scontrol", f'cp "$SLURM_CONF" {tmp_path}/conf; echo "slurm-wlm 24.11.5"; test "$*" = -V')
    assert program.own_version() == "24.11.5"
    assert (tmp_path / "conf").read_text() == "ClusterName=none\nSlurmctldHost=localhost\n"
    stand_in("scontrol", "echo; echo 'no library' >&2; exit 1")
    with pytest.raises(program.FirstBootError, match="scontrol -V does not tell its release: no library"):
        program.own_version()


@pytest.mark.parametrize(
    ("controller", "version", "expected"),
    [
        ("24.11", "24.11.5", "takes Slurm 24.11.5"),
        ("24.11", "23.11.4", "takes Slurm 23.11.4"),
        ("24.11", "22.05.8", "refused"),
        ("24.11", "26.05.5", "refused"),
        ("26.05", "26.05.5", "takes Slurm 26.05.5"),
        ("26.05", "24.11.5", "takes Slurm 24.11.5"),
        ("26.05", "22.05.8", "refused"),
        ("22.05", "22.05.8", "does not tell its release"),
        ("22.05", "24.11.5", "older than 24.11"),
        ("24.11", "27.05.1", "27.05 is not in the tables of this image"),
    ],
)
def test_a_controller_is_asked_for_its_release(
    host: Host, monkeypatch: pytest.MonkeyPatch, controller: str, version: str, expected: str
) -> None:
    monkeypatch.setattr(host.program.time, "sleep", lambda _seconds: None)
    with slurmctld(answers_of(controller)) as port:
        said = release_of(host, version, port)
    assert expected in said
    if expected == "refused":
        taken = ", ".join([*takes(controller), controller])
        assert f"this image has Slurm {version}, and slurmctld on 127.0.0.1:{port} has Slurm {controller}" in said
        assert f"which takes daemons of {taken}: build the image" in said


def test_a_controller_of_a_later_release_than_the_tables(host: Host) -> None:
    with slurmctld(lambda _protocol: header(60000)) as port:
        assert "has Slurm with protocol 60000: build the image" in release_of(host, "24.11.5", port)


def test_controllers_with_tls_are_not_asked(host: Host) -> None:
    host.set(tls=True)
    assert release_of(host, "22.05.8", closed_port()) == "release: not asked, since the controllers use TLS"


def test_something_else_answers(host: Host) -> None:
    with slurmctld(lambda _protocol: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert f"127.0.0.1:{port} does not answer as slurmctld" in release_of(host, "24.11.5", port)


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_the_next_controller_is_asked_if_one_does_not_answer(host: Host) -> None:
    closed = closed_port()
    with slurmctld(answers_of("24.11")) as port:
        assert release_of(host, "24.11.5", closed, port) == f"release: 127.0.0.1:{port} takes Slurm 24.11.5"
    assert f"no controller answers yet (127.0.0.1:{closed}: Connection refused)" in release_of(host, "24.11.5", closed)


# -- the whole program -----------------------------------------------------------------------------------------------


def test_a_boot_and_the_next_one(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.write("KEY", KEY)
    with slurmctld(answers_of("24.11")) as port:
        host.write("KERNEL", f"gpucluster.controllers=127.0.0.1:{port}")
        assert host.error() == ""
        environment = Path(host.program.ENVIRONMENT)
        assert environment.read_text() == f'SLURMD_OPTIONS="--conf-server 127.0.0.1:{port}"\n'
        assert stat.S_IMODE(environment.stat().st_mode) == 0o644
        said = capsys.readouterr().out
        assert said.split("\n")[0] == f"controllers: 127.0.0.1:{port} (kernel argument gpucluster.controllers)"
        assert host.error() == ""
        # site.yml has written the same controllers into the unit.
        host.write(
            "etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf",
            DROP_IN.replace("new:6817", f"127.0.0.1:{port}"),
        )
        host.write("KERNEL", "")
        assert host.error() == ""
        assert not environment.exists()


def test_all_errors_are_told_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with slurmctld(answers_of("26.05")) as port:
        host.write("SITE", f"controllers=127.0.0.1:{port}")
        monkeypatch.setattr(host.program, "own_version", lambda: "22.05.8")
        error = host.error()
    assert "22.05.8, and slurmctld on" in error
    assert "munge.key is missing" in error


def test_a_login_host_without_sackd_gets_its_key_alone(host: Host) -> None:
    host.set(daemon="")
    host.write("KEY", KEY)
    assert host.error() == ""
    assert not Path(host.program.ENVIRONMENT).exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'idle none'", ""),
        (
            "echo 'drained* health check gpu: 7 of 8'",
            "is drained* (health check gpu: 7 of 8); see journalctl -u slurmd",
        ),
        ("echo 'drained health check gpu: 7 of 8'", ""),
        ("echo 'down Node unexpectedly rebooted'", "is down (Node unexpectedly rebooted)"),
        ("true", "cluster x has no node "),
        (
            "echo 'failed to fetch: Protocol authentication error' >&2; echo 'fatal: no configuration' >&2; exit 1",
            "head:6817 does not accept credentials of this host: its munge key",
        ),
        (
            "echo 'Failed to access /run/munge/munge.socket.2' >&2; echo 'authentication error' >&2; exit 1",
            ": munge does not run (journalctl -u munge) (Failed to access",
        ),
        ("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", "no answer from head:6817 (Unable"),
    ],
)
def test_whether_a_node_is_in_its_cluster(
    host: Host, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    stand_in("sinfo", f'test "$SLURM_CONF_SERVER" = head:6817 || exit 9\n{script}')
    monkeypatch.setattr(host.program, "JOIN", -1)
    monkeypatch.setattr(host.program, "check_release", lambda *_words: "release: not asked")
    error = host.error("check")
    assert message in error if message else not error


def test_a_login_host_is_in_its_cluster_if_a_controller_answers(host: Host, stand_in: StandIn) -> None:
    host.set(daemon="sackd")
    stand_in("sinfo", "test \"$*\" = '--noheader --summarize' && echo 'all* up infinite 0/2/0/2 n[1-2]'")
    assert host.error("check") == ""


def test_other_arguments(host: Host) -> None:
    assert "slurm-first-boot check" in host.error("--help")
