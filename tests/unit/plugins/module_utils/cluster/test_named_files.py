# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the control host that a cluster file or a variable names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import named_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import (
    DEB,
    file_error,
    name_error,
    named_file_errors,
)


@pytest.mark.parametrize(
    "name",
    [
        *("../../../etc/shadow", "..", "../x.deb", "a/../../x.deb", "a/..", "x/../y.deb", "./../x", "..//x"),
        *("", " ", " x.deb", "x.deb ", "x.deb\n", "x\n.deb", "x\0.deb", "x\t.deb", "x\r", "x\x1b[2J"),
        *("~/x.deb", "~root/x.deb", "x/", "/", "/srv/", "/srv/../etc/shadow", "a" * 2000, "/" + "a" * 100_000),
        *("x\u2028", "\ud800", "a/b/../../..", "é" * 600),
        *(None, 1, True, ["x.deb"], {"x": 1}),
    ],
)  # fmt: skip
def test_names_that_leave_the_directory_of_the_cluster_file(name: Any) -> None:
    assert "allowed: " in name_error(name)


@pytest.mark.parametrize(
    "name", ["x.deb", "packages/x.deb", "/srv/x.deb", "./x.deb", "a..b/x", "...", "x y.deb", "é.deb"]
)
def test_names_of_files(name: str) -> None:
    assert name_error(name) == ""


def make_file(tmp_path: Path, kind: str) -> str:
    """The path of a file of a kind."""
    path = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(named_files.LARGEST_PACKAGE + 1)
    elif kind.startswith("/"):
        path.symlink_to(kind)
    elif kind != "missing":
        path.write_bytes(kind.encode())
    return "file"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fifo", "which is no regular file"),
        ("directory", "which is no regular file"),
        ("loop", "which cannot be read"),
        ("large", "of 4294967297 bytes, allowed: up to 4294967296"),
        ("missing", "which does not exist"),
        ("/dev/zero", "a file of the kernel"),
        ("/proc/kmsg", "a file of the kernel"),
        ("/proc/self/environ", "a file of the kernel"),
        ("/sys/kernel/notes", "a file of the kernel"),
        ("/etc/passwd", "which is no package, allowed: a package of Debian (.deb)"),
        ("", "which is no package"),
        ("!<arch>\n", "which is no package"),
        ("!<arch>\ncontrol.tar  ", "which is no package"),
        ("PK\x03\x04", "which is no package"),
        ("$ANSIBLE_VAULT;1.1;AES256\n", "which is no package"),
        ("\n!<arch>\ndebian-binary", "which is no package"),
    ],
)
def test_what_is_no_package(tmp_path: Path, kind: str, message: str) -> None:
    error = file_error(str(tmp_path), make_file(tmp_path, kind), kind="package")
    assert error.startswith(message), error
    assert "allowed: " in error


@pytest.mark.parametrize("kind", ["fifo", "directory", "/dev/zero", "/dev/tty", "/proc/kmsg", "large"])
def test_a_text_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    assert "allowed: " in file_error(str(tmp_path), make_file(tmp_path, kind))


ARMOR = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


@pytest.mark.parametrize(
    "content", ["", "root:!:1::::::\n", ARMOR.replace("PUBLIC", "PRIVATE"), f"x {ARMOR}", "\x99\x01"]
)
def test_a_key_of_a_repository_is_a_public_key(tmp_path: Path, content: str) -> None:
    """All users of the hosts can read the key."""
    (tmp_path / "k.asc").write_text(content)
    assert named_file_errors({"slurm_packages": {"key": "k.asc"}}, str(tmp_path)) == [
        "slurm_packages.key: found 'k.asc', which is no public key, allowed: a public key in ASCII armor (.asc)"
    ]


@pytest.mark.parametrize("content", [ARMOR, f"a comment\n{ARMOR}x", "$ANSIBLE_VAULT;1.1;AES256\n", f"\n{ARMOR}"])
def test_keys_of_repositories(tmp_path: Path, content: str) -> None:
    (tmp_path / "k.asc").write_text(content)
    assert named_file_errors({"slurm_packages": {"key": "k.asc"}}, str(tmp_path)) == []


def test_files_that_are_right(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(DEB + b"   1 0 0")
    (tmp_path / "people.csv").write_text("name,uid\n")
    (tmp_path / "link").symlink_to(tmp_path / "x.deb")
    assert file_error(str(tmp_path), "x.deb", kind="package") == ""
    assert file_error("/nowhere", str(tmp_path / "link"), kind="package") == ""
    assert file_error(str(tmp_path), "people.csv") == ""


def test_the_files_of_variables(tmp_path: Path) -> None:
    variables = {
        "slurm_packages": {"files": [{"file": "a.deb"}, {"url": "https://x.org/b.deb"}], "key": "k.asc"},
        "slurm_storage": [{"path": "/d"}, {"packages": [{"name": "x"}, {"file": "../../../etc/shadow"}]}],
        "apptainer_packages": [{"file": "/etc/passwd"}],
        "pyxis_packages": {"24.11": {"file": "c.deb"}, "25.11": {"file": "later.deb"}, "26.05": {"file": "../x.deb"}},
    }
    (tmp_path / "c.deb").write_text("")
    errors = named_file_errors(variables, str(tmp_path))
    assert [error.partition(", ")[0] for error in errors] == [
        "slurm_packages.files[0].file: found 'a.deb'",
        "slurm_packages.key: found 'k.asc'",
        "slurm_storage[1].packages[1].file: found '../../../etc/shadow'",
        "apptainer_packages[0].file: found '/etc/passwd'",
        "pyxis_packages.24.11.file: found 'c.deb'",
        "pyxis_packages.26.05.file: found '../x.deb'",
    ]
    assert named_file_errors({"slurm_packages": "schedmd", "slurm_storage": None, "enroot_packages": "x"}, "") == []


def test_the_packages_of_a_role_are_checked_with_its_variables(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(DEB)
    options = {"enroot": {"enroot_packages": {"type": "list", "elements": "dict"}}}

    def errors(name: str) -> list[str]:
        variables = {"n1": {"enroot_packages": [{"file": name}], "slurm_cluster_dir": str(tmp_path)}}
        return argument_errors(variables, {"enroot": "all"}, {"all": ["n1"]}, options)

    assert errors("x.deb") == []
    (found,) = errors("../x.deb")
    assert found.startswith("n1: enroot_packages[0].file: found '../x.deb', allowed: a file next to the cluster file")
