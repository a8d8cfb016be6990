# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts that are read from a host; the resolver is a stand-in."""

from __future__ import annotations

import os
import pwd
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import controller_host as controller_host
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host

LDD = """\
    linux-vdso.so.1 (0x00007ffd)
    libslurmfull.so => {directory}/libslurmfull.so (0x00007f57)
    libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f56)
"""


def host(tmp_path: Path, check_mode: bool = False) -> Host:
    """A host with its files in a directory."""
    module: Any = SimpleNamespace(check_mode=check_mode, get_bin_path=lambda name: f"/usr/sbin/{name}")
    return controller_host.this_host(module, str(tmp_path))


@pytest.fixture
def print_by_commands(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets ldd and systemctl print a text, or fail if it is empty."""

    def set_output(output: str) -> None:
        def run(command: list[str]) -> Answer:
            assert command in (["ldd", "/usr/sbin/slurmctld"], ["systemctl", "show", "--property=User", "--value", "x"])
            return Answer(0 if output else 1, output, "")

        monkeypatch.setattr(controller_host, "run", run)

    return set_output


def test_files_next_to_slurm_conf_and_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text("NodeName=n1\n")
    there = host(tmp_path)
    assert there.text("nodes.conf") == there.text(str(tmp_path / "nodes.conf")) == "NodeName=n1\n"
    assert there.text("other.conf") is None


def test_plugins_are_next_to_the_library_of_slurmctld(tmp_path: Path, print_by_commands: Callable[[str], None]) -> None:
    for name in ("auth_munge.so", "mpi_pmix.so", "libslurmfull.so", "readme.txt"):
        (tmp_path / name).touch()
    print_by_commands(LDD.format(directory=tmp_path))
    assert host(tmp_path).plugins("") == frozenset({"auth_munge", "mpi_pmix", "libslurmfull"})


def test_plugins_of_a_plugin_dir(tmp_path: Path, print_by_commands: Callable[[str], None]) -> None:
    print_by_commands("")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"auth_{name}.so").touch()
    there = host(tmp_path)
    assert there.plugins(f"{tmp_path}/a:{tmp_path}/b") == frozenset({"auth_a", "auth_b"})
    assert there.plugins(f"{tmp_path}/a:{tmp_path}/c") is None
    assert there.plugins("") is None


@pytest.mark.parametrize(("output", "user"), [("slurm\n", "slurm"), ("\n", "root"), ("", None)])
def test_the_user_as_whom_systemd_starts_a_daemon(
    tmp_path: Path, print_by_commands: Callable[[str], None], output: str, user: str | None
) -> None:
    print_by_commands(output)
    assert host(tmp_path).started_as("x") == user


@pytest.mark.parametrize(
    ("given", "name"), [("root", "root"), ("0", "root"), ("no-such-user", None), ("4294967294", None), ("9" * 30, None)]
)
def test_users_by_name_and_number(given: str, name: str | None) -> None:
    assert controller_host.account(given) == name


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_directories_that_a_user_can_write(tmp_path: Path) -> None:
    with TemporaryDirectory() as directory:  # tmp_path is closed to others
        os.chmod(directory, 0o755)
        os.mkdir(f"{directory}/own")
        os.chown(f"{directory}/own", pwd.getpwnam("nobody").pw_uid, -1)
        found = {name: controller_host.writes("nobody", f"{directory}/{name}") for name in ("own", "", "new")}
        assert found == {"own": True, "": False, "new": True}
        assert controller_host.writes("root", directory)
        assert host(tmp_path, check_mode=True).writes("nobody", directory)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that the resolver was asked for. It knows those that start with an n."""
    names: list[str] = []

    def getaddrinfo(name: str, _port: None) -> list[SimpleNamespace]:
        names.append(name)
        if not name.startswith("n"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


def test_names_in_the_file_of_hosts_are_not_asked_for(tmp_path: Path, asked: list[str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 a b # c\n\n# 10.0.0.2 d\n")
    assert sorted(controller_host.find_unresolved(["a", "b", "c", "d", "n"], str(hosts))) == ["c", "d"]
    assert sorted(asked) == ["c", "d", "n"]


def test_ten_thousand_names(tmp_path: Path, asked: list[str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"10.0.0.1 m{number}\n" for number in range(10000)))
    before = time.process_time()
    assert controller_host.find_unresolved((f"m{number}" for number in range(10001)), str(hosts)) == ["m10000"]
    assert len(controller_host.find_unresolved((f"n{number}" for number in range(10000)), str(hosts))) == 0
    assert time.process_time() - before < 1
    assert len(asked) == 10001


def test_a_resolver_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda _name, _port: answer.wait(60))
    before = time.monotonic()
    assert controller_host.find_unresolved(["n1", "n2"], str(tmp_path / "hosts"), timeout=0.1) == []
    assert time.monotonic() - before < 10
    answer.set()


def test_names_are_not_resolved_in_check_mode(tmp_path: Path, asked: list[str]) -> None:
    assert host(tmp_path, check_mode=True).unresolved(["gone.example"]) == []
    assert asked == []
    assert host(tmp_path).unresolved(["gone.example"]) == ["gone.example"]
