# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How slurm_packages keeps services from starting, finishes an interrupted installation and reads plugins;
tests/integration shows the rest."""

from __future__ import annotations

import io
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import dpkg
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import (
    apt_get,
    deb_files,
    release_directory,
)
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_packages


@pytest.fixture(name="policy")
def policy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the policy for starting services."""
    path = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt_get, "POLICY", str(path))
    return path


@pytest.mark.parametrize("before", [None, apt_get.HOLD], ids=["none", "of a killed run"])
def test_services_are_held_while_packages_are_installed(policy: Path, before: str | None) -> None:
    if before:
        policy.write_text(before)
    with apt_get.services_held(True):
        assert (policy.read_text(), policy.stat().st_mode & 0o777) == (apt_get.HOLD, 0o755)
    assert not policy.exists()


def test_services_are_held_no_more_after_a_failure(policy: Path) -> None:
    def fail() -> None:
        with apt_get.services_held(True):
            raise deb_files.PackageError("no such package")

    with pytest.raises(deb_files.PackageError):
        fail()
    assert not policy.exists()


@pytest.mark.parametrize("hold", [True, False])
def test_a_policy_of_the_host_stays(policy: Path, hold: bool) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n")
    with apt_get.services_held(hold):
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()


def test_services_start_unless_they_are_held(policy: Path) -> None:
    with apt_get.services_held(False):
        assert not policy.exists()


def test_an_interrupted_installation_is_finished_when_another_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    locked = (2, "", "dpkg: error: dpkg frontend lock was locked by another process with pid 7")
    module = Mock()
    module.run_command.side_effect = [locked, locked, (0, "", "")]
    apt_get.finish_installation(module)
    assert module.run_command.call_count == 3
    module.run_command.side_effect = [(1, "", "dpkg: error processing package slurmd")]
    with pytest.raises(deb_files.PackageError, match="error processing package slurmd"):
        apt_get.finish_installation(module)


def test_plugins_of_a_package_are_returned_with_their_checksums(tmp_path: Path) -> None:
    library, archive = tmp_path / "spank.so", io.BytesIO()
    gcc = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(library)]
    subprocess.run(gcc, input="const unsigned int plugin_version = 0x180B05;", text=True, check=True)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(library, "./usr/lib/x86_64-linux-gnu/slurm/spank_test.so")
        tar.add(__file__, "./usr/share/doc/test.py")
    module = Mock()
    module.run_command.return_value = (0, archive.getvalue(), b"")
    deb = deb_files.Deb("/var/cache/test.deb", "test.deb", "test", "1-1", "all")
    path = "/usr/lib/x86_64-linux-gnu/slurm/spank_test.so"
    assert deb_files.check_plugins(module, [deb], "24.11") == [
        {"path": path, "sha256": sha256(library.read_bytes()).hexdigest()}
    ]
    with pytest.raises(deb_files.PackageError, match=f"{path} is for Slurm 24.11, which Slurm 26.05 does not load"):
        deb_files.check_plugins(module, [deb], "26.05")


def test_a_package_of_the_same_version_with_other_plugins_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such packages are built for two releases of Slurm."""
    plugin, deb = tmp_path / "spank.so", deb_files.Deb("/d", "d", "pyxis", "0.24.0-1", "all")
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
    with pytest.raises(deb_files.PackageError, match=r"before: found .*, allowed: a command"):
        slurm_packages.install_wanted(module)
    module.run_command.assert_not_called()


@pytest.mark.parametrize("name", ["", "-y", "a b", "a;b", "at-", "bash=1-", "-oAPT::x=y", "+at", "at/"])
def test_what_is_no_package_is_refused(name: str) -> None:
    module = Mock(params={"packages": [{"name": name}], "before": []})
    with pytest.raises(deb_files.PackageError, match=r"packages: name: found .*, allowed: the name of a package"):
        slurm_packages.install_wanted(module)


LISTING = """\
slurmd installed install slurm-wlm 24.11.5-4
slurm-client installed hold slurm-wlm 24.11.5-4
munge installed install munge 0.5
"""


def test_packages_of_a_source_are_held_once() -> None:
    module = Mock(params={"hold": ["slurm-wlm", "slurm-wlm-contrib"]}, check_mode=False)
    module.run_command.side_effect = [(0, LISTING, ""), (0, "", "")]
    assert apt_get.hold_packages(module) == {"slurmd": "24.11.5-4"}
    (call,) = module.run_command.call_args_list[1:]
    assert (call.args[0], call.kwargs["data"]) == (["dpkg", "--set-selections"], "slurmd hold\n")
    module.run_command.side_effect = [(0, LISTING.replace("install slurm-wlm", "hold slurm-wlm"), "")]
    assert apt_get.hold_packages(module) == {}


def test_nothing_is_held_in_check_mode() -> None:
    module = Mock(params={"hold": ["slurm-wlm"]}, check_mode=True)
    module.run_command.side_effect = [(0, LISTING, "")]
    assert apt_get.hold_packages(module) == {"slurmd": "24.11.5-4"}


def test_a_failed_hold_is_named() -> None:
    module = Mock(params={"hold": ["slurm-wlm"]}, check_mode=False)
    module.run_command.side_effect = [(0, LISTING, ""), (2, "", "dpkg: error: unable to lock\n")]
    with pytest.raises(deb_files.PackageError, match="dpkg --set-selections: dpkg: error: unable to lock"):
        apt_get.hold_packages(module)


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
    monkeypatch.setattr(deb_files, "CACHE", str(tmp_path))
    key = b"\x99\x01\x00 a binary key"
    monkeypatch.setattr(deb_files, "fetch_url", lambda *_words, **_more: (io.BytesIO(key), {"status": 200}))
    wanted = {"path": str(tmp_path / "keyring.gpg"), "url": "https://x.example.org/key.gpg"}
    module = Mock(params={"downloads": [{**wanted, "sha256": sha256(key).hexdigest()}]})
    (file,) = slurm_packages.downloaded(module)
    assert (file.path, file.content) == (wanted["path"], key)
    assert file.diff["after"] == "(16 bytes that are no text)\n"
    module.params["downloads"][0]["sha256"] = "0" * 64
    with pytest.raises(deb_files.PackageError, match=f"key.gpg: found sha256 .*, allowed {'0' * 64}"):
        slurm_packages.downloaded(module)


POLICY = """\
slurmd:
  Installed: 24.11.5-4
  Candidate: 26.05.1-1
  Version table:
     26.05.1-1 990
        990 http://mirror.example.org/debian sid/main amd64 Packages
 *** 24.11.5-4 100
        100 /var/lib/dpkg/status
libslurm42:
  Installed: 24.11.5-4
  Candidate: 24.11.5-4
  Version table:
 *** 24.11.5-4 500
        500 http://mirror.example.org/debian trixie/main amd64 Packages
slurm-wlm-nvml-plugin:
  Installed: 24.11.4-1
  Candidate: 26.05.0-2
  Version table:
     26.05.0-2 990
        990 http://mirror.example.org/debian sid/contrib amd64 Packages
 *** 24.11.4-1 100
        100 /var/lib/dpkg/status
munge:
  Installed: 0.5
  Candidate: 0.6
  Version table:
     0.6 500
 *** 0.5 100
"""
INSTALLED = """\
slurmd installed hold slurm-wlm 24.11.5-4
libslurm42 installed hold slurm-wlm 24.11.5-4
slurm-wlm-nvml-plugin installed hold slurm-wlm-contrib 24.11.4-1
munge installed install munge 0.5
"""


def test_versions_that_apt_offers() -> None:
    assert apt_get.read_versions(POLICY) == {
        "slurmd": ["26.05.1-1", "26.05.1-1", "24.11.5-4"],
        "libslurm42": ["24.11.5-4", "24.11.5-4"],
        "slurm-wlm-nvml-plugin": ["26.05.0-2", "26.05.0-2", "24.11.4-1"],
        "munge": ["0.6", "0.6", "0.5"],
    }


def test_packages_of_a_source_get_the_version_or_their_own() -> None:
    packages = dpkg.installed(INSTALLED)
    sources = ["slurm-wlm", "slurm-wlm-contrib"]
    changed = apt_get.versions_to_change(packages, POLICY, sources, "26.05.1-1")
    assert changed == ["slurm-wlm-nvml-plugin=26.05.0-2", "slurmd=26.05.1-1"]
    assert apt_get.versions_to_change(packages, "", sources, "26.05.1-1") == []


def test_packages_that_apt_would_install_are_found_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_directory, "ARCHIVES", str(tmp_path))
    deb = tmp_path / "libslurm45_1%3a26.05.1-1_amd64.deb"
    deb.write_bytes(b"")
    module = Mock()
    module.run_command.return_value = (
        0,
        "Inst libslurm45 (1:26.05.1-1 Debian:unstable [amd64])\n"
        "Inst slurmd [24.11.5-4] (26.05.1-1 local-deb [amd64]) []\n"
        "Conf slurmd (26.05.1-1 local-deb [amd64])\n",
        "",
    )
    file = tmp_path / "5f70bf18a0860070-slurmd_26.05.1-1_amd64.deb"  # from a URL
    file.write_bytes(b"")
    files = [deb_files.Deb(str(file), file.name, "slurmd", "26.05.1-1", "amd64")]
    assert release_directory.download_archives(module, [str(file)], files, "/nowhere") == [str(deb), str(file)]
    deb.unlink()
    module.run_command.side_effect = [module.run_command.return_value, (100, "", "E: no network")]
    with pytest.raises(deb_files.PackageError, match=r"apt-get download libslurm45=1:26.05.1-1: E: no network"):
        release_directory.download_archives(module, [str(file)], files, "/nowhere")


PACKAGE = "slurm-wlm-basic-plugins"


class Apt:
    """A module whose apt would install a version of PACKAGE: one before its lists are updated, and another one then."""

    def __init__(self, *versions: str) -> None:
        self.params = {"slurm": {"package": PACKAGE, "release": "26.05"}}
        self.versions = [*versions]
        self.updates = 0

    def run_command(self, command: list[str], **_options: object) -> tuple[int, str, str]:
        if command[-1] == "update":
            self.updates += 1
            return 0, "", ""
        assert "--simulate" in command
        version = self.versions[min(self.updates, len(self.versions) - 1)]
        return 0, f"Inst {PACKAGE} ({version} Debian:13.1/stable [amd64])\n" if version else "", ""


@pytest.mark.parametrize(
    ("versions", "pinned", "updates"),
    [(["26.05.5-1"], "26.05.5-1", 0), (["24.11.5-4", "26.05.5-1"], "26.05.5-1", 1), ([""], "", 0)],
    ids=["the release of the cluster", "old lists", "nothing of Slurm"],
)
def test_apt_installs_the_release_of_the_cluster(versions: list[str], pinned: str, updates: int) -> None:
    apt = Apt(*versions)
    targets = apt_get.limit_to_release(apt, ["slurmd"], [])
    assert targets == ["slurmd", *([f"{PACKAGE}={pinned}"] if pinned else [])]
    assert apt.updates == updates


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


def test_another_release_is_refused_with_new_lists_too() -> None:
    apt = Apt("24.11.5-4")
    with pytest.raises(deb_files.PackageError, match=r"found version 24\.11\.5-4, allowed: Slurm 26\.05"):
        apt_get.limit_to_release(apt, ["slurmd"], [])
    assert apt.updates == 1


def test_a_file_of_another_release_is_refused() -> None:
    deb = deb_files.Deb("/x/s.deb", "s.deb", PACKAGE, "24.11.5-4", "amd64")
    with pytest.raises(deb_files.PackageError, match=r"found version 24\.11\.5-4, allowed: Slurm 26\.05"):
        apt_get.limit_to_release(Apt(""), ["/x/s.deb"], [deb])
    same = deb_files.Deb("/x/s.deb", "s.deb", PACKAGE, "26.05.1-4", "amd64")
    assert apt_get.limit_to_release(Apt(""), ["/x/s.deb"], [same]) == ["/x/s.deb"]


@pytest.mark.parametrize("where", ["copy", "elsewhere"])
def test_the_copy_of_a_refused_package_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Every user of the host can read it, and it may be no package at all."""
    monkeypatch.setattr(deb_files, "CACHE", str(tmp_path / "copy"))
    path = tmp_path / where / "x.deb"
    path.parent.mkdir()
    path.write_text("root:secret")
    if where == "elsewhere":
        with pytest.raises(deb_files.PackageError):
            raise deb_files.RefusedError(str(path), "x")
        assert path.exists()
        return
    module = Mock()
    module.run_command.return_value = (2, "", "not a Debian format archive\n")
    package = {"name": None, "url": None, "file": "/srv/x.deb", "sha256": None}
    with pytest.raises(deb_files.PackageError, match=r"x\.deb: not a Debian format archive"):
        deb_files.read_package(module, package)
    assert not path.exists()
    path.write_text("root:secret")
    with pytest.raises(deb_files.PackageError, match=r"x\.deb: found sha256"):
        deb_files.read_package(module, {**package, "sha256": "0" * 64})
    assert not path.exists()
    path.write_text("")
    module.run_command.return_value = (0, "amd64\n", "")
    with pytest.raises(deb_files.PackageError, match="found architecture arm64"):
        deb_files.check_architecture(module, [deb_files.Deb(str(path), "x.deb", "x", "1", "arm64")])
    assert not path.exists()


def test_names_are_no_options_of_apt() -> None:
    module = Mock(params={"version": None, "download": False, "slurm_release": None, "slurm": None})
    module.run_command.return_value = (0, "", "")
    apt_get.install_packages(module, ["at", "/x.deb"], [])
    (call,) = module.run_command.call_args_list
    assert call.args[0][-3:] == ["--", "at", "/x.deb"]
