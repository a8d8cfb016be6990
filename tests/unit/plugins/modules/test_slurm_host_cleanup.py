# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_host_cleanup removes, and what it leaves."""

from __future__ import annotations

import getpass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer, CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import added_packages
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_host_cleanup

MARK = "# Managed by gpucluster.slurm: changes here are overwritten.\n"
STATES = {
    "slurmd": "ActiveState=active\nUnitFileState=enabled\n",
    "munge": "ActiveState=inactive\nUnitFileState=enabled\n",
    "sackd": "ActiveState=inactive\nUnitFileState=\n",
    "slurm-mig": "ActiveState=failed\nUnitFileState=disabled\n",
}


WITHOUT_RESET: dict[str, Any] = {
    "added_packages": False,
    "kept_packages": [],
    "unpurged_packages": [],
    "trees": [],
    "spared": [],
    "reload": [],
}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that change something."""
    done: list[list[str]] = []

    def run(command: list[str], **_options: Any) -> Answer:
        if command[0] == "dpkg-query":
            return Answer(0 if command[-1].endswith("/apt/keyrings") else 1, "", "")
        if command[1] == "show":
            return Answer(0, STATES[command[-1].removesuffix(".service")], "")
        done.append(command[1:])
        return Answer(0, "", "")

    monkeypatch.setattr(slurm_host_cleanup, "run", run)
    return done


@pytest.fixture
def host(tmp_path: Path) -> dict[str, Any]:
    """Files of a host, and the options that remove those of the collection."""
    for name in ("units", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "key").write_bytes(b"\0\1")
    (tmp_path / "units/gpucluster-slurm.conf").write_text(MARK)
    (tmp_path / "units/gpucluster-other.conf").write_text("of somebody else\n")
    (tmp_path / "own/health.json").write_text("{}\n")
    lines = "127.0.0.1 localhost\n# BEGIN gpucluster.slurm x\n10.0.0.1 head\n# END gpucluster.slurm x\n# mine\n"
    (tmp_path / "hosts").write_text(lines)
    (tmp_path / "hosts").chmod(0o640)
    return {
        "services": ["slurmd", "munge", "sackd", "slurm-mig"],
        "packages": [],
        "secrets": [str(tmp_path / "key"), str(tmp_path / "missing")],
        "files": [str(tmp_path / "units/gpucluster-*"), str(tmp_path / "own")],
        "directories": [str(tmp_path / "own"), str(tmp_path / "none")],
        "empty_directories": [],
        "parts": [{"path": str(tmp_path / "hosts"), "marker": "# {mark} gpucluster.slurm x"}],
        "restored": None,
        **WITHOUT_RESET,
    }


def test_packages_go_that_the_collection_has_installed_and_nobody_else_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[list[str]] = []
    output = {"a": "Purg a [1]\n", "b": "Remv mine [1]\nPurg b [1]\n", "c": "Purg c [1]\n"}

    def run(command: list[str], **_options: Any) -> Answer:
        if "--simulate" not in command:
            done.append(command[-2:])
        return Answer(0, output[command[-1]] if "--simulate" in command else "", "")

    monkeypatch.setattr(slurm_host_cleanup, "run", run)
    monkeypatch.setattr(slurm_host_cleanup, "INSTALLED", str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name).touch()
    wanted = [{"what": "package a", "before": "installed", "after": None}]
    assert slurm_host_cleanup.remove_packages(["a", "b", "c"], True) == wanted
    assert done == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert slurm_host_cleanup.remove_packages(["a", "b", "c"], False) == wanted
    assert done == [["--", "a"]]
    assert list(tmp_path.iterdir()) == []
    assert slurm_host_cleanup.remove_packages(["a", "b", "c"], False) == []


def test_a_package_that_apt_does_not_remove_keeps_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_host_cleanup, "run", lambda _command, **_options: Answer(100, "", "locked"))
    monkeypatch.setattr(slurm_host_cleanup, "INSTALLED", str(tmp_path))
    (tmp_path / "a").touch()
    with pytest.raises(CommandError, match="locked"):
        slurm_host_cleanup.remove_packages(["a"], False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_timer_is_a_unit_of_its_own() -> None:
    assert slurm_host_cleanup.unit_of("slurm-metrics-host.timer") == "slurm-metrics-host.timer"
    assert slurm_host_cleanup.unit_of("munge") == "munge.service"


@pytest.fixture(autouse=True)
def as_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the test belong to its user, and no job runs on this machine."""
    monkeypatch.setattr(slurm_host_cleanup, "served_jobs", lambda _running: {})
    own = partial(File, owner=getpass.getuser())
    monkeypatch.setattr(slurm_host_cleanup, "File", own)


def test_a_host_is_cleaned_once(tmp_path: Path, host: dict[str, Any], commands: list[list[str]]) -> None:
    predicted = slurm_host_cleanup.clean(host, True)
    assert (tmp_path / "key").exists()
    assert not commands
    done = slurm_host_cleanup.clean(host, False)
    assert done == predicted
    assert [(str(change["what"]).rpartition("/")[2], change["before"]) for change in done] == [
        ("slurmd.service", "active, enabled"),
        ("munge.service", "enabled"),
        ("key", "present"),
        ("gpucluster-slurm.conf", "present"),
        ("own", "directory"),
        ("hosts", "1 lines of the cluster"),
    ]
    assert commands == [
        ["disable", "--now", "--quiet", "--", "slurmd.service"],
        ["disable", "--now", "--quiet", "--", "munge.service"],
        ["daemon-reload"],
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["gpucluster-other.conf", "hosts", "units"]
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n# mine\n"
    assert (tmp_path / "hosts").stat().st_mode & 0o777 == 0o640
    again = slurm_host_cleanup.clean({**host, "services": ["sackd"]}, False)
    assert again == []


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("check_mode", [True, False])
def test_a_directory_goes_with_the_last_file(tmp_path: Path, host: dict[str, Any], check_mode: bool) -> None:
    """The check of the site has the mark at its end. What another feature has stays, and is named."""
    (tmp_path / "etc/health.d").mkdir(parents=True)
    (tmp_path / "etc/health.json").write_text("{}\n")
    (tmp_path / "etc/health.d/own").write_text("#!/bin/sh\n" + "true\n" * 1000 + MARK)
    options = {
        **host,
        "secrets": [str(tmp_path / "etc/health.json")],
        "files": [str(tmp_path / "etc/health.d/*")],
        "directories": [],
        "empty_directories": [str(tmp_path / "etc/health.d"), str(tmp_path / "etc"), str(tmp_path / "none")],
    }
    (tmp_path / "etc/password").write_text("of the backups\n")
    changes = slurm_host_cleanup.clean(options, check_mode)
    assert str(tmp_path / "etc/health.d") in [change["what"] for change in changes]
    left = {str(tmp_path / "etc"): [str(tmp_path / "etc/password")]}
    assert slurm_host_cleanup.sort_empty(options["empty_directories"], changes)[1] == left
    (tmp_path / "etc/password").unlink()
    changes = slurm_host_cleanup.clean(options, check_mode)
    assert (tmp_path / "etc").exists() == check_mode


def test_an_error_of_systemctl_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_host_cleanup, "run", lambda *_command, **_options: Answer(1, "", "no bus"))
    params = {"services": ["slurmd"], "secrets": [], "files": [], "directories": [], "parts": [], **WITHOUT_RESET}
    with pytest.raises(CommandError, match=r"systemctl show .* slurmd\.service: no bus"):
        slurm_host_cleanup.clean(params, False)


def test_files_of_before_are_put_back(tmp_path: Path, host: dict[str, Any], commands: list[list[str]]) -> None:
    (tmp_path / "found/plugstack.conf.d").mkdir(parents=True)
    (tmp_path / "found/slurm.conf").write_text("of before\n")
    (tmp_path / "found/slurm.conf").chmod(0o600)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/slurm.conf").write_text(MARK)
    (tmp_path / "conf/cgroup.conf").write_text(MARK)
    (tmp_path / "conf/site.conf").write_text("of the site\n")
    options = {
        **host,
        "files": [str(tmp_path / "conf/*.conf")],
        "restored": {"kept": str(tmp_path / "found"), "path": str(tmp_path / "conf")},
        "directories": [str(tmp_path / "found")],
    }
    slurm_host_cleanup.clean(options, check_mode=True)
    assert (tmp_path / "conf/slurm.conf").read_text() == MARK
    done = slurm_host_cleanup.clean(options, check_mode=False)
    assert {"what": str(tmp_path / "conf"), "before": "files of this collection", "after": "2 files of before"} in done
    there = {path.name: path.read_text() for path in (tmp_path / "conf").iterdir()}
    assert there == {"slurm.conf": "of before\n", "site.conf": "of the site\n"}
    assert (tmp_path / "conf/slurm.conf").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "found").exists()
    assert commands[-1] == ["daemon-reload"]


# -- a reset ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("commands")
def test_files_are_found_by_their_mark_or_name(
    tmp_path: Path, host: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc/apt/keyrings").mkdir(parents=True)
    (tmp_path / "etc/apt/keyrings/gpucluster-x.asc").write_text("a key\n")
    (tmp_path / "etc/own.d").mkdir()
    (tmp_path / "etc/own.d/own.conf").write_text(MARK)
    (tmp_path / "etc/other.conf").write_text("of somebody else\n")
    (tmp_path / "etc/scratch.mount").write_text(MARK)
    (tmp_path / "etc/slurm").mkdir()
    (tmp_path / "etc/slurm/slurm.conf").write_text(MARK)
    (tmp_path / "etc/gone").symlink_to("nowhere")
    (tmp_path / "etc/gpucluster-mount@.service").write_text(MARK)
    monkeypatch.setattr(slurm_host_cleanup, "UNITS", f"{tmp_path}/etc/")
    options = {**host, "trees": [str(tmp_path / "etc")], "spared": [str(tmp_path / "etc/slurm")]}
    slurm_host_cleanup.clean(options, False)
    left = {path.name for path in (tmp_path / "etc").rglob("*") if not path.is_dir()}
    assert (tmp_path / "etc/apt/keyrings").is_dir()  # a package has it
    assert not (tmp_path / "etc/own.d").exists()
    assert left == {"other.conf", "scratch.mount", "slurm.conf", "gone"}


def test_a_host_with_a_job_is_refused(
    host: dict[str, Any], commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_host_cleanup, "served_jobs", lambda _running: {"12": "runs", "13": "open"})
    with pytest.raises(CommandError, match="job 12, 13 runs on this host, and nothing was changed"):
        slurm_host_cleanup.clean({**host, "trees": ["/none"]}, False)
    assert not commands


def test_added_packages_go_unless_another_one_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `mine` of the site needs libb."""
    record: added_packages.PackageRecord = {
        "added": ["liba", "libb", "mariadb-server", "slurmctld"],
        "held": ["liba", "libb"],
    }
    listing = "".join(
        f"{name} installed hold {name} 1\n" for name in ("liba", "libb", "mariadb-server", "mine", "slurmctld")
    )
    simulated = "Purg liba [1]\nPurg libb [1]\nRemv mine [1]\n"
    done: list[list[str]] = []

    def run(command: list[str], **_options: Any) -> Answer:
        names = command[command.index("--") + 1 :] if "--" in command else command[2:]
        if command[0] == "dpkg-query":
            return Answer(0, listing, "")
        if command[0] == "apt-cache":
            return Answer(0, "mine\n  Depends: libb\nlibb\n  Depends: <virtual>\n<virtual>\n", "")
        if "--simulate" in command:
            return Answer(0, simulated, "")
        done.append([command[1] if command[0] == "apt-mark" else command[5], *names])
        return Answer(0, "", "")

    monkeypatch.setattr(slurm_host_cleanup, "run", run)
    wanted = ["package liba", "package slurmctld", "hold of package libb"]
    assert [
        row["what"] for row in slurm_host_cleanup.remove_added_packages(record, ["mariadb-*"], ["slurmc*"], True)
    ] == wanted
    assert not done
    slurm_host_cleanup.remove_added_packages(record, ["mariadb-*"], ["slurmc*"], False)
    assert done == [["remove", "slurmctld"], ["purge", "liba"], ["unhold", "libb"]]


def test_what_stays_is_recorded_for_a_later_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "mariadb-server installed install mariadb 1\nbash installed install bash 1\n"
    monkeypatch.setattr(slurm_host_cleanup, "run", lambda _command, **_options: Answer(0, listing, ""))
    monkeypatch.setattr(added_packages, "RECORD", str(tmp_path / "kept/packages.json"))
    monkeypatch.setattr(added_packages, "File", partial(File, owner=getpass.getuser()))
    slurm_host_cleanup.keep_record({"added": ["mariadb-server", "slurmd"], "held": ["slurmd"]})
    assert added_packages.read_record() == {"added": ["mariadb-server"]}
    slurm_host_cleanup.keep_record({})
