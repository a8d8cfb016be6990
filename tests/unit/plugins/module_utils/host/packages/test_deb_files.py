# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of packages: their plugins, and copies that are refused."""

from __future__ import annotations

import io
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import (
    deb_files,
    package_files,
)


def test_plugins_of_a_package_are_returned_with_their_checksums(tmp_path: Path) -> None:
    library, archive = tmp_path / "spank.so", io.BytesIO()
    gcc = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(library)]
    subprocess.run(gcc, input="const unsigned int plugin_version = 0x180B05;", text=True, check=True)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(library, "./usr/lib/x86_64-linux-gnu/slurm/spank_test.so")
        tar.add(__file__, "./usr/share/doc/test.py")
    module = Mock()
    module.run_command.return_value = (0, archive.getvalue(), b"")
    deb = package_files.PackageFile("/var/cache/test.deb", "test.deb", "test", "1-1", "all")
    path = "/usr/lib/x86_64-linux-gnu/slurm/spank_test.so"
    assert deb_files.check_plugins(module, [deb], "24.11") == [
        {"path": path, "sha256": sha256(library.read_bytes()).hexdigest()}
    ]
    with pytest.raises(package_files.PackageError, match=f"{path} is for Slurm 24.11, which Slurm 26.05 does not load"):
        deb_files.check_plugins(module, [deb], "26.05")


@pytest.mark.parametrize("where", ["copy", "elsewhere"])
def test_the_copy_of_a_refused_package_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Every user of the host can read it, and it may be no package at all."""
    monkeypatch.setattr(package_files, "CACHE", str(tmp_path / "copy"))
    path = tmp_path / where / "x.deb"
    path.parent.mkdir()
    path.write_text("root:secret")
    if where == "elsewhere":
        with pytest.raises(package_files.PackageError):
            raise package_files.RefusedError(str(path), "x")
        assert path.exists()
        return
    module = Mock()
    module.run_command.return_value = (2, "", "not a Debian format archive\n")
    package = {"name": None, "url": None, "file": "/srv/x.deb", "sha256": None}
    with pytest.raises(package_files.PackageError, match=r"x\.deb: not a Debian format archive"):
        deb_files.read_package(module, package)
    assert not path.exists()
    path.write_text("root:secret")
    with pytest.raises(package_files.PackageError, match=r"x\.deb: found sha256"):
        deb_files.read_package(module, {**package, "sha256": "0" * 64})
    assert not path.exists()
    path.write_text("")
    module.run_command.return_value = (0, "amd64\n", "")
    with pytest.raises(package_files.PackageError, match="found architecture arm64"):
        deb_files.check_architecture(module, [package_files.PackageFile(str(path), "x.deb", "x", "1", "arm64")])
    assert not path.exists()
