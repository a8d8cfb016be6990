# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that do not start meanwhile, an interrupted installation, versions and held packages."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import (
    apt_get,
    dpkg,
    package_files,
)


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
            raise package_files.PackageError("no such package")

    with pytest.raises(package_files.PackageError):
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
    module.run_command.side_effect = [(1, "", "dpkg: error processing package slurmd"), (0, "ok slurmd=24.11\n", "")]
    with pytest.raises(package_files.PackageError, match="error processing package slurmd"):
        apt_get.finish_installation(module)


BROKEN = "ok munge=0.5\nreinstreq libnuma1:amd64=2.0.19-1\n"
AGAIN = [*apt_get.CHANGE, "--reinstall", "--", "libnuma1:amd64=2.0.19-1"]


def test_a_package_that_was_being_unpacked_is_installed_again() -> None:
    """dpkg configures no such package: "package is in a very bad inconsistent state"."""
    module = Mock()
    module.run_command.side_effect = [(1, "", "very bad inconsistent state"), (0, BROKEN, ""), (0, "", ""), (0, "", "")]
    apt_get.finish_installation(module)
    assert [call.args[0] for call in module.run_command.call_args_list][2:] == [
        AGAIN,
        ["dpkg", "--configure", "--pending"],
    ]


def test_so_it_is_if_another_run_has_tried_to_finish_the_installation() -> None:
    """Then dpkg's journal is empty, and apt-get is the first one that fails."""
    module = Mock(params={"version": "", "download": False, "slurm_release": "", "slurm": None})
    module.run_command.side_effect = [(100, "", "E: unmet"), (0, "", ""), (0, BROKEN, ""), (0, "", ""), (0, "", "")]
    apt_get.install_packages(module, ["slurmd"], [])
    assert module.run_command.call_args_list[3].args[0] == AGAIN


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
    with pytest.raises(package_files.PackageError, match="dpkg --set-selections: dpkg: error: unable to lock"):
        apt_get.hold_packages(module)


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


def test_another_release_is_refused_with_new_lists_too() -> None:
    apt = Apt("24.11.5-4")
    with pytest.raises(package_files.PackageError, match=r"found version 24\.11\.5-4, allowed: Slurm 26\.05"):
        apt_get.limit_to_release(apt, ["slurmd"], [])
    assert apt.updates == 1


def test_a_file_of_another_release_is_refused() -> None:
    deb = package_files.PackageFile("/x/s.deb", "s.deb", PACKAGE, "24.11.5-4", "amd64")
    with pytest.raises(package_files.PackageError, match=r"found version 24\.11\.5-4, allowed: Slurm 26\.05"):
        apt_get.limit_to_release(Apt(""), ["/x/s.deb"], [deb])
    same = package_files.PackageFile("/x/s.deb", "s.deb", PACKAGE, "26.05.1-4", "amd64")
    assert apt_get.limit_to_release(Apt(""), ["/x/s.deb"], [same]) == ["/x/s.deb"]


def test_names_are_no_options_of_apt() -> None:
    module = Mock(params={"version": None, "download": False, "slurm_release": None, "slurm": None})
    module.run_command.return_value = (0, "", "")
    apt_get.install_packages(module, ["at", "/x.deb"], [])
    (call,) = module.run_command.call_args_list
    assert call.args[0][-3:] == ["--", "at", "/x.deb"]


def test_a_version_that_a_part_of_the_hosts_gets_first_is_read() -> None:
    """Ubuntu's phased updates; the answer is apt's (recorded/apt)."""
    policy = (Path(__file__).parents[4] / "recorded/apt/ubuntu-22.04/packages.txt").read_text()
    assert apt_get.read_versions(policy)["munge"] == ["0.5.14-6ubuntu1", "0.5.14-6ubuntu1", "0.5.14-6"]
