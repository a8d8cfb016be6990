# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of root and of services, and what an ordinary user with a right to write has put there."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import host_directories
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import probe
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.directories import (
    Directories,
    Directory,
    DirectoryError,
    from_options,
)
from plain_host import cluster

pytestmark = [pytest.mark.once, pytest.mark.skipif(os.geteuid() != 0, reason="a second user can be had by root only")]

ROOT = Path(__file__).parents[2]
USER = 65534
SERVICE = "daemon"
"""A user of every distribution, with an id below 1000."""


@pytest.fixture(name="place")
def place_for_both() -> Iterator[Path]:
    """pytest's own directories are closed to other users."""
    path = Path(tempfile.mkdtemp(prefix="gpucluster-slurm-test-"))
    path.chmod(0o755)
    (path / "root").mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


def user(script: str) -> None:
    """Run a script as an ordinary user."""
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sh", "-c", script]
    subprocess.run(command, check=True, timeout=20, cwd="/")


def mode(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def refused(*wanted: Directory) -> str:
    """What the comparison refuses. Nothing may be repaired then."""
    found = Directories(wanted)
    if found.refused:
        with pytest.raises(DirectoryError):
            found.repair()
    return "; ".join(found.refused)


@pytest.mark.parametrize("wrong", [0o777, 0o1777, 0o775, 0o700, 0o2755])
def test_a_wrong_mode_is_repaired(place: Path, wrong: int) -> None:
    path = place / "kept"
    path.mkdir()
    path.chmod(wrong)
    wanted = [Directory(str(path), "root", make=False)]
    found = Directories(wanted)
    assert found.differ == {str(path): f"root:root {wrong:04o}"}
    assert found.diff[0]["after"] == "root:root 0755\n"
    found.repair()
    assert mode(path) == (0, 0o755)
    assert Directories(wanted).differ == {}


def test_a_wrong_owner_is_repaired(place: Path) -> None:
    path = place / "kept"
    path.mkdir(mode=0o755)
    os.chown(path, USER, USER)
    Directories([Directory(str(path), "root", closed=True)]).repair()
    assert mode(path) == (0, 0o755)


def test_a_wrong_owner_in_a_closed_directory_is_repaired(place: Path) -> None:
    """Only root can have changed it; what is in it is judged as well."""
    path = place / "kept/good"
    path.mkdir(parents=True, mode=0o755)
    os.chown(path, USER, USER)
    wanted = [Directory(f"{place}/kept", "root", closed=True), Directory(str(path), "root", closed=True)]
    Directories(wanted).repair()
    assert mode(path) == (0, 0o755)
    os.chown(path, USER, USER)
    user(f"ln -s /etc/shadow {path}/slurm.conf")
    assert "/kept/good has slurm.conf of nobody" in refused(*wanted)


def test_missing_directories_are_made_with_those_above(place: Path) -> None:
    wanted = [Directory(f"{place}/a/b/c", SERVICE, "0750"), Directory(f"{place}/none", "root", make=False)]
    found = Directories(wanted)
    assert found.differ == {f"{place}/a/b/c": "missing"}
    found.repair()
    assert mode(place / "a/b") == (0, 0o755)
    assert mode(place / "a/b/c") == (Directory("", SERVICE).ids[0], 0o750)  # type: ignore[index]
    assert not (place / "none").exists()


def test_a_directory_of_an_unknown_user_waits_for_him(place: Path) -> None:
    """The run creates the users of services after the facts were gathered."""
    found = Directories([Directory(f"{place}/new", "no-such-user")])
    assert found.differ == {f"{place}/new": "missing"}
    assert found.refused == []
    with pytest.raises(DirectoryError, match="there is no user no-such-user"):
        found.repair()


ABSENT = 64039
"""The id of a user who does not exist here, and that the run gives to him."""


def test_what_belongs_to_a_user_whom_the_run_makes_is_not_a_strangers(place: Path) -> None:
    """A host was lost, and its file system was not: the bare host has files of an id, and not yet the user."""
    wanted = []
    for name, owner in (("state", "slurm-of-test"), ("chosen", ""), ("above/log", "")):
        path = place / name
        path.mkdir(parents=True, mode=0o755)
        os.chown(path, ABSENT, ABSENT)
        wanted.append(Directory(str(path), owner, owner_id=ABSENT if owner else 0))
    os.chown(place / "above", ABSENT, ABSENT)
    (place / "state/job_state").touch()
    os.chown(place / "state/job_state", ABSENT, ABSENT)
    assert probe.directories(wanted) == {"differ": {}, "refused": []}
    without = [Directory(entry.path, entry.owner) for entry in wanted]
    assert f"{place}/chosen is {ABSENT}:{ABSENT} 0755" in str(probe.directories(without)["refused"])


def test_a_directory_of_a_user_whom_the_run_makes_differs_by_its_mode(place: Path) -> None:
    path = place / "state"
    path.mkdir(mode=0o700)
    os.chown(path, ABSENT, ABSENT)
    found = Directories([Directory(str(path), "slurm-of-test", owner_id=ABSENT)])
    assert found.differ == {str(path): f"{ABSENT}:{ABSENT} 0700"}
    assert found.diff[0]["after"] == "slurm-of-test:slurm-of-test 0755\n"


def test_directories_below_one_that_is_repaired(place: Path) -> None:
    """Both are repaired in one run, and the one above first."""
    (place / "kept/good").mkdir(parents=True)
    for path in (place / "kept", place / "kept/good"):
        path.chmod(0o777)
    wanted = from_options(
        [
            {"path": f"{place}/kept/good", "owner": "root", "mode": "0700"},
            {"path": f"{place}/kept", "owner": "root", "mode": "0755"},
        ]
    )
    Directories(wanted).repair()
    assert (mode(place / "kept"), mode(place / "kept/good")) == ((0, 0o755), (0, 0o700))


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("printf '#!/bin/sh' >{}/prolog", "has prolog of nobody"),
        ("ln -s /etc/shadow {}/settings.json", "has settings.json of nobody"),
        ("mkfifo {}/pipe", "has pipe of nobody"),
        ("mkdir {}/sub", "has sub of nobody"),
        ("printf x >{}/\"$(printf 'a\\nb')\"", r"has a\\nb of nobody"),
        ("printf x >{}/\"$(printf '\\033[2J\\303\\244')\"", r"has \\x1b\[2J\\xe4 of nobody"),
        ("printf x >{}/\"$(printf '\\377')\"", r"has \\udcff of nobody"),
        ("printf x >{}/\"$(printf '\\377%.0s' $(seq 250))\"", r"has (\\udcff){16}\\udc\.\.\. of nobody"),
        ("for i in 1 2 3 4 5 6; do : >{}/$i; done", "and others"),
        ("printf x >{}/.hidden", "has .hidden of nobody"),
    ],
)
def test_what_a_user_has_put_into_an_open_directory_is_named(place: Path, planted: str, message: str) -> None:
    path = place / "kept"
    path.mkdir()
    path.chmod(0o777)
    user(planted.format(path))
    said = refused(Directory(str(path), "root"))
    assert re.search(message, said), said
    assert said.isascii()
    assert len(said) < 1000
    assert said.isprintable()
    path.chmod(0o755)
    assert refused(Directory(str(path), "root", closed=True)), "the file is there, although the directory is closed"


def test_files_of_an_administrator_in_a_directory_that_is_not_closed(place: Path) -> None:
    path = place / "conf"
    path.mkdir(mode=0o755)
    (path / "site.conf").write_text("")
    os.chown(path / "site.conf", 1000, 1000)
    assert refused(Directory(str(path), "root")) == ""


def test_a_directory_that_users_share_has_their_entries(place: Path) -> None:
    path = place / "shared"
    path.mkdir()
    path.chmod(0o777)
    user(f"mkdir {path}/own")
    found = Directories([Directory(str(path), "root", "1777")])
    found.repair()
    assert mode(path) == (0, 0o1777)


PLANTED = {
    "link to root's directory": "ln -s {place}/root {path}",
    "link to nothing": "ln -s {place}/new {path}",
    "link to a file": "ln -s /etc/passwd {path}",
    "link to itself": "ln -s {path} {path}",
    "FIFO": "mkfifo {path}",
    "file": ": >{path}",
    "directory": "mkdir -m 0777 {path}",
    "hard link": ": >{place}/open/own && ln {place}/open/own {path}",
}


@pytest.mark.parametrize("above", [0o777, 0o1777])
@pytest.mark.parametrize("owner", ["root", SERVICE, ""])
@pytest.mark.parametrize("kind", PLANTED)
def test_a_user_who_was_there_before_root(place: Path, kind: str, owner: str, above: int) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(above)
    user(PLANTED[kind].format(place=place, path=place / "open/state"))
    before = mode(place / "root")
    wanted = Directory(f"{place}/open/state", owner)
    assert refused(wanted)
    assert refused(Directory(f"{place}/open/state/below", owner))
    assert mode(place / "root") == before
    assert [*(place / "root").iterdir()] == []
    assert not (place / "new").exists()


@pytest.mark.parametrize("kind", PLANTED)
def test_a_user_who_is_there_between_check_and_repair(place: Path, kind: str) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o1777)
    before = mode(place / "root")
    found = Directories([Directory(f"{place}/open/state", "root")])
    user(PLANTED[kind].format(place=place, path=place / "open/state"))
    with pytest.raises((DirectoryError, OSError)):
        found.repair()
    assert mode(place / "root") == before
    assert not (place / "new").exists()


@pytest.mark.parametrize("owner", ["root", SERVICE])
def test_an_open_directory_in_which_a_user_is_faster_than_the_repair(place: Path, owner: str) -> None:
    """It is closed, and what he has put there is named."""
    path = place / "kept"
    path.mkdir()
    path.chmod(0o777)
    found = Directories([Directory(str(path), owner)])
    assert found.refused == []
    user(f": >{path}/job_state")
    with pytest.raises(DirectoryError, match="has job_state of nobody"):
        found.repair()
    assert mode(path)[1] == 0o755


def test_root_uses_a_directory_in_which_all_may_make_theirs(place: Path) -> None:
    """As in /tmp: nobody else can rename or remove what root has made there."""
    (place / "open").mkdir()
    (place / "open").chmod(0o1777)
    Directories([Directory(f"{place}/open/state", "root")]).repair()
    assert mode(place / "open/state") == (0, 0o755)


@pytest.mark.parametrize("target", ["{place}/data/state", "data/state", "./data/../data/state", "{place}/second"])
def test_a_link_of_root_is_an_administrators(place: Path, target: str) -> None:
    (place / "data").mkdir(mode=0o755)
    (place / "second").symlink_to("data/state")
    (place / "state").symlink_to(target.format(place=place))
    wanted = [Directory(f"{place}/state", SERVICE, "0750")]
    Directories(wanted).repair()
    assert mode(place / "data/state")[1] == 0o750
    assert (place / "state").is_symlink()
    assert Directories(wanted).differ == {}


def test_a_link_of_root_into_a_place_of_a_user(place: Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "state").symlink_to(place / "open")
    user(f"mkdir {place}/open/state")
    said = refused(Directory(f"{place}/state/state", SERVICE))
    assert f"{place}/open is root:root 0777, so that other users could replace what is in it" in said
    assert f"(on the path of {place}/state/state)" in said


def test_a_link_of_a_service_is_refused(place: Path) -> None:
    """munge and slurm own directories too; root follows no link there."""
    (place / "state").symlink_to(place / "root")
    os.chown(place / "state", 1, 1, follow_symlinks=False)
    assert "is a symbolic link of daemon" in refused(Directory(f"{place}/state", SERVICE))


def test_a_directory_above_that_belongs_to_a_user(place: Path) -> None:
    (place / "home").mkdir(mode=0o755)
    os.chown(place / "home", USER, USER)
    said = refused(Directory(f"{place}/home/state", SERVICE))
    assert f"{place}/home belongs to nobody, who could replace what is in it" in said
    assert f"chown root {place}/home" in said


@pytest.mark.parametrize(("group", "right"), [(4, True), (1000, False)])
def test_a_group_that_may_write_above(place: Path, group: int, right: bool) -> None:
    """Ubuntu has /var/log with group syslog and mode 0775; people are in no group of the system."""
    (place / "log").mkdir()
    (place / "log").chmod(0o775)
    os.chown(place / "log", 0, group)
    assert (refused(Directory(f"{place}/log/slurm", SERVICE)) == "") is right


def test_a_directory_of_the_site_is_not_changed(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data").chmod(0o750)
    os.chown(place / "data", 1, 1)
    assert Directories([Directory(f"{place}/data")]).differ == {}
    assert refused(Directory(f"{place}/data"), Directory(f"{place}/root", SERVICE)) == ""
    (place / "data").chmod(0o777)
    assert "chmod go-w" in refused(Directory(f"{place}/data"))


def test_a_file_is_compared_and_never_made(place: Path) -> None:
    path = place / "completions"
    wanted = [Directory(str(path), SERVICE, "0644", file=True)]
    assert Directories(wanted).differ == {}
    path.write_text("job")
    path.chmod(0o666)
    Directories(wanted).repair()
    assert path.read_text() == "job"
    assert mode(path)[1] == 0o644
    os.link(path, place / "second")
    assert "allowed: a file with one name" in refused(*wanted)


@pytest.mark.parametrize(("path", "text"), [("relative", "0755"), ("/x", "rwx"), ("/x", "0788"), ("/x", "07555")])
def test_options_that_cannot_be(path: str, text: str) -> None:
    with pytest.raises(DirectoryError, match=r"found .*, allowed"):
        from_options([{"path": path, "owner": "root", "mode": text}])


def test_the_fact(place: Path) -> None:
    """A directory that is also compared is repaired, and not refused."""
    (place / "log").mkdir()
    (place / "log").chmod(0o777)
    wanted = [Directory(f"{place}/log"), Directory(f"{place}/log", "root"), Directory(f"{place}/log/below")]
    assert probe.directories(wanted) == {"differ": {f"{place}/log": "root:root 0777"}, "refused": []}
    (place / "root").chmod(0o777)
    assert "go-w" in probe.directories([*wanted, Directory(f"{place}/root")])["refused"][0]


# -- the table -------------------------------------------------------------------------------------------------------


def test_each_owner_has_the_id_that_the_run_gives_him() -> None:
    for host in cluster(slurm_profile="strict", slurm_conf={"SlurmUser": "root"}).values():
        owned = [entry for entry in host_directories.directories(host) if "owner" in entry]
        owners = {entry["owner"]: entry.get("owner_id") for entry in owned}
        assert owners == {"root": None, "munge": 966, "slurm-check": 965}
    host = cluster(slurm_user_id=2000)["head"]
    ids = {entry.get("owner_id") for entry in host_directories.directories(host) if entry.get("owner") == "slurm"}
    assert ids == {2000}


def test_a_controller_has_the_closed_directory_before_files_are_copied_there() -> None:
    hosts = cluster(slurm_controllers=["head", "login"])
    good = "/var/lib/gpucluster-slurm/good"
    creates = {}
    for name, host in hosts.items():
        (entry,) = (entry for entry in host_directories.directories(host) if entry["path"] == good)
        assert entry["mode"] == "0700"
        creates[name] = entry["make"]
    assert {name for name, create in creates.items() if create} == {"head", "login"}


def test_the_table_has_every_directory_that_code_makes() -> None:
    """A directory below the collection's own that is in no row would not be compared."""
    listed = {entry["path"] for entry in host_directories.directories(cluster(slurm_profile="strict")["head"])}
    sources = [*ROOT.glob("plugins/**/*.py"), *ROOT.glob("roles/*/files/**/*.py")]
    own = re.compile(r'"(/(?:etc|run|var/lib|var/cache)/(?:gpucluster-slurm|ssh/people)[a-zA-Z/._-]*)"')
    used = {path for source in sources for path in own.findall(source.read_text())}
    files = {  # these are no directories
        "/etc/gpucluster-slurm/database-ca.pem",
        "/etc/gpucluster-slurm/firewall.nft",
        "/etc/gpucluster-slurm/first-boot.conf",
        "/etc/gpucluster-slurm/first-boot.json",
        "/etc/gpucluster-slurm/health.json",
        "/etc/gpucluster-slurm/job-tools.conf",
        "/etc/gpucluster-slurm/mail/msmtprc",
        "/etc/gpucluster-slurm/mail/password",
        "/etc/gpucluster-slurm/measuring.json",
        "/etc/gpucluster-slurm/metrics.json",
        "/etc/gpucluster-slurm/mig.json",
        "/etc/gpucluster-slurm/prometheus/slurmctld.token",
        "/etc/gpucluster-slurm/repair.json",
        "/etc/gpucluster-slurm/report.json",
        "/etc/gpucluster-slurm/slurmctld_http.key",
        "/run/gpucluster-slurm/findings.json",
        "/run/gpucluster-slurm/kernel-seen",
        "/run/gpucluster-slurm/first-boot.env",
        "/run/gpucluster-slurm/gpus-changed",
        "/run/gpucluster-slurm/health.json",
        "/run/gpucluster-slurm/treatment.json",
        "/var/lib/gpucluster-slurm/accept",
        "/var/lib/gpucluster-slurm/accept/rolling.json",
        "/var/lib/gpucluster-slurm/accept/run.json",
        "/var/lib/gpucluster-slurm/backup/status.json",
        "/var/lib/gpucluster-slurm/findings.json",
        "/var/lib/gpucluster-slurm/firewall",
        "/var/lib/gpucluster-slurm/good/slurm.conf",
        "/var/lib/gpucluster-slurm/gpu-hours.json",
        "/var/lib/gpucluster-slurm/packages.json",
        "/var/lib/gpucluster-slurm/hosts",
        "/var/lib/gpucluster-slurm/left",
        "/var/lib/gpucluster-slurm/people",
        "/var/lib/gpucluster-slurm/maintenance-message.json",
        "/var/lib/gpucluster-slurm/maintenance.json",
        "/var/lib/gpucluster-slurm/report/acceptance.json",
        "/var/lib/gpucluster-slurm/rolling.json",
        "/var/lib/gpucluster-slurm/serial",
        "/var/lib/gpucluster-slurm/storage",
        "/var/lib/gpucluster-slurm/version",
    }
    assert used - files - listed == set()
