# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_packages installs, and in which order; tests/integration shows the rest."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import (
    deb_files,
    dpkg,
    package_files,
)
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_packages


def test_a_package_of_the_same_version_with_other_plugins_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such packages are built for two releases of Slurm."""
    plugin, deb = tmp_path / "spank.so", package_files.PackageFile("/d", "d", "pyxis", "0.24.0-1", "all")
    plugin.write_bytes(b"for 24.11")
    found = {"path": str(plugin), "sha256": sha256(b"for 24.11").hexdigest()}
    monkeypatch.setattr(dpkg, "JOURNAL", str(tmp_path / "none"))
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(deb_files, "read_package", lambda *_words: deb)
    monkeypatch.setattr(deb_files, "check_architecture", lambda *_words: None)
    monkeypatch.setattr(deb_files, "check_plugins", lambda *_words: [found])
    module = Mock(
        params={
            "packages": [{"name": None}],
            "slurm_release": "24.11",
            "version": None,
            "download": False,
            "slurm": None,
        }
        | {name: [] for name in ("before", "directories", "files", "downloads", "hold")}
        | {"stale": False, "hold_services": False},
        check_mode=True,
    )
    module.run_command.return_value = (0, "pyxis installed install pyxis 0.24.0-1\n", "")
    assert slurm_packages.install_wanted(module)["installed"] == []
    found["sha256"] = sha256(b"for 26.05").hexdigest()
    result = slurm_packages.install_wanted(module)
    assert result["installed"] == ["pyxis=0.24.0-1"]
    assert (result["diff"][0]["before"], result["diff"][0]["after"]) == (
        "pyxis=0.24.0-1 with other plugins\n",
        "pyxis=0.24.0-1\n",
    )
    plugin.unlink()
    assert slurm_packages.install_wanted(module)["installed"] == ["pyxis=0.24.0-1"]


@pytest.mark.parametrize("command", [[], ["apt-get", 5]])
def test_a_command_that_cannot_be_run_is_refused_before_all_others(command: list[object]) -> None:
    module = Mock(params={"packages": [], "before": [["touch", "/x"], command]})
    with pytest.raises(package_files.PackageError, match=r"before: found .*, allowed: a command"):
        slurm_packages.install_wanted(module)
    module.run_command.assert_not_called()


@pytest.mark.parametrize("name", ["", "-y", "a b", "a;b", "at-", "bash=1-", "-oAPT::x=y", "+at", "at/"])
def test_what_is_no_package_is_refused(name: str) -> None:
    module = Mock(params={"packages": [{"name": name}], "before": []})
    with pytest.raises(package_files.PackageError, match=r"packages: name: found .*, allowed: the name of a package"):
        slurm_packages.install_wanted(module)


LISTING = """\
slurmd installed install slurm-wlm 24.11.5-4
slurm-client installed hold slurm-wlm 24.11.5-4
munge installed install munge 0.5
"""


def test_a_name_with_a_version_is_installed_only_if_the_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpkg, "JOURNAL", str(tmp_path))
    names = ["slurmd=24.11.5-1", "slurmctld=24.11.5-4", "munge"]
    module = Mock(
        params={
            "packages": [{"name": name} for name in names],
            "hold": ["slurm-wlm"],
            "slurm_release": None,
            "slurm": None,
        }
        | {name: [] for name in ("before", "directories", "files", "downloads")}
        | {"stale": False, "hold_services": False, "version": None, "download": False},
        check_mode=True,
    )
    module.run_command.return_value = (0, LISTING, "")
    result = slurm_packages.install_wanted(module)
    assert (result["installed"], result["held"]) == (["slurmctld=24.11.5-4"], {"slurmd": "24.11.5-4"})
    assert result["diff"][-1]["after"] == "slurmd=24.11.5-4\n"


def test_a_downloaded_file_has_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_files, "CACHE", str(tmp_path))
    key = b"\x99\x01\x00 a binary key"
    monkeypatch.setattr(package_files, "fetch_url", lambda *_words, **_more: (io.BytesIO(key), {"status": 200}))
    wanted = {"path": str(tmp_path / "keyring.gpg"), "url": "https://x.example.org/key.gpg"}
    module = Mock(params={"downloads": [{**wanted, "sha256": sha256(key).hexdigest()}]})
    (file,) = slurm_packages.downloaded(module)
    assert (file.path, file.content) == (wanted["path"], key)
    assert file.diff["after"] == "(16 bytes that are no text)\n"
    module.params["downloads"][0]["sha256"] = "0" * 64
    with pytest.raises(package_files.PackageError, match=f"key.gpg: found sha256 .*, allowed {'0' * 64}"):
        slurm_packages.downloaded(module)


PACKAGE = "slurm-wlm-basic-plugins"


@pytest.mark.parametrize("interrupted", [False, True], ids=["", "dpkg was interrupted"])
def test_apt_is_asked_once_unless_its_answer_changes(
    interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an interrupted installation, apt's first answer is empty."""
    if interrupted:
        (tmp_path / "0001").touch()
    monkeypatch.setattr(dpkg, "JOURNAL", str(tmp_path))
    listing = Mock(return_value=(0, "munge installed install munge 0.5\n", ""))
    simulations: list[list[str]] = []
    installed: list[list[str]] = []

    def run_command(command: list[str], **_options: object) -> tuple[int, str, str]:
        if "--simulate" in command:
            simulations.append(command)
            first_of_interrupted = interrupted and len(simulations) == 1
            return 0, "" if first_of_interrupted else f"Inst {PACKAGE} (26.05.5-1 Debian:13.1/stable [amd64])\n", ""
        if "install" in command:
            installed.append(command)
        return listing()  # type: ignore[no-any-return]

    module = Mock(
        params={
            "packages": [{"name": "slurmd"}],
            "slurm": {"package": PACKAGE, "release": "26.05"},
            "version": None,
            "download": False,
            "slurm_release": None,
        }
        | {name: [] for name in ("before", "files", "directories", "downloads", "hold")}
        | {"stale": False, "hold_services": False},
        check_mode=False,
    )
    module.run_command.side_effect = run_command
    slurm_packages.install_wanted(module)
    assert len(simulations) == (2 if interrupted else 1)
    assert installed[0][-2:] == ["slurmd", f"{PACKAGE}=26.05.5-1"]
