# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root's code makes, opens or changes below a directory in which others can write, each tried against a user who
was there first with a link, a FIFO, a directory or a file. No file of root may change, and nothing may wait.

`PLACES` is the list by program; a program that is not in it fails a test.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software import enroot
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks, replacing
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError, write
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts import homes
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.slurm_backup import (
    backup_host,
    restore_parts,
    saved_state,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.slurm_backup.restic_repository import Repository
from programs import ROLES, StandIn, load

pytestmark = pytest.mark.once
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a second user can be had by root only")

ROOT = Path(__file__).parents[2]
USER = 65534
LIMIT = 20

ROOTS = "directories in which root alone can write: /etc, /run, /var/lib/gpucluster-slurm, /var/cache/gpucluster-slurm"
RANDOM = "a new name by mkstemp or mkdtemp, which is made or fails (O_EXCL)"
OF_SLURM = "the user slurm makes it himself, with O_EXCL"
AS_USER = "the user runs it for himself"

PLACES: dict[str, str] = {
    "plugins/module_utils/host/access_change.py": ROOTS,
    "plugins/module_utils/accounting/sacctmgr.py": RANDOM,
    "plugins/module_utils/controller/conversion.py": f"{RANDOM}; it is given to slurm after its file was written",
    "plugins/module_utils/controller/daemons.py": RANDOM,
    "plugins/module_utils/controller/removed_hosts.py": ROOTS,
    "plugins/module_utils/controller/file_validation.py": ROOTS,
    "plugins/module_utils/controller/kept_files.py": ROOTS,
    "plugins/module_utils/controller/slurm_parser.py": RANDOM,
    "plugins/module_utils/controller/state_save_location.py": OF_SLURM,
    "plugins/module_utils/controller/succession.py": OF_SLURM,
    "plugins/module_utils/controller/trial_start.py": f"{RANDOM}; it is given to slurm after its files were written",
    "plugins/module_utils/doctor/slurmd_question.py": RANDOM,
    "plugins/module_utils/host/directories.py": "test_directories.py",
    "plugins/module_utils/facts/probe.py": RANDOM,
    "plugins/module_utils/host/file_checks.py": RANDOM,
    "plugins/module_utils/host/files.py": "test_files",
    "plugins/module_utils/host/firewall_change.py": ROOTS,
    "plugins/module_utils/host/locks.py": "test_locks",
    "plugins/module_utils/host/applied_state.py": ROOTS,
    "plugins/module_utils/host/load_times.py": ROOTS,
    "plugins/module_utils/host/packages/added_packages.py": ROOTS,
    "plugins/module_utils/host/packages/apt_get.py": ROOTS,
    "plugins/module_utils/host/packages/package_files.py": ROOTS,
    "plugins/module_utils/host/packages/release_directory.py": ROOTS,
    "plugins/module_utils/host/run_lock.py": ROOTS,
    "plugins/module_utils/host/script_checks.py": RANDOM,
    "plugins/module_utils/host/spank_change.py": ROOTS,
    "plugins/module_utils/host/mounts/homes.py": "test_homes",
    "plugins/module_utils/host/mounts/mount_record.py": ROOTS,
    "plugins/modules/nvidia_driver.py": ROOTS,
    "plugins/modules/slurm_maintenance.py": ROOTS,
    "plugins/modules/nvidia_mig.py": ROOTS,
    "plugins/modules/slurm_acceptance.py": f"{ROOTS}, or that of the user of the jobs",
    "plugins/modules/slurm_access.py": ROOTS,
    "plugins/modules/slurm_config.py": ROOTS,
    "plugins/modules/slurm_accounting.py": RANDOM,
    "plugins/module_utils/host/program_library.py": ROOTS,
    "plugins/module_utils/host/replacing.py": "test_outputs, test_outputs_that_are_read, test_the_directory_of_outputs",
    "plugins/modules/slurm_conversion.py": ROOTS,
    "plugins/modules/slurm_database_server.py": RANDOM,
    "plugins/modules/slurm_firewall.py": ROOTS,
    "plugins/modules/slurm_host_cleanup.py": ROOTS,
    "plugins/modules/slurm_image.py": ROOTS,
    "plugins/modules/slurm_packages.py": ROOTS,
    "plugins/modules/slurm_people.py": f"{ROOTS}, keys included; {RANDOM}",
    "plugins/modules/slurm_rolling.py": ROOTS,
    "plugins/modules/slurm_service.py": f"{ROOTS}; {RANDOM}",
    "plugins/modules/slurm_storage.py": ROOTS,
    "plugins/module_utils/programs/accept/node_speed.py": RANDOM,
    "plugins/module_utils/programs/slurm_backup/restic_repository.py": RANDOM,
    "plugins/module_utils/programs/slurm_backup/restore_parts.py": f"{ROOTS}; test_state_that_is_restored",
    "plugins/module_utils/programs/slurm_backup/save_parts.py": ROOTS,
    "plugins/module_utils/programs/slurm_backup/saved_state.py": (
        "test_state_that_is_saved, test_state_that_is_restored"
    ),
    "plugins/module_utils/programs/image_first_boot.py": f"{ROOTS}; {RANDOM}; test_first_boot.py",
    "plugins/module_utils/programs/notebook.py": AS_USER,
    "plugins/module_utils/programs/notebook_job.py": AS_USER,
    "plugins/module_utils/programs/health_check.py": "test_locks_of_programs",
    "plugins/module_utils/programs/metrics/slurm_gpu_hours.py": f"{ROOTS}; test_gpu_hours.py",
    "plugins/module_utils/programs/slurm_report.py": f"{ROOTS}; {RANDOM}",
    # Scripts and settings.
    "roles/enroot/files/enroot-data.sh": AS_USER,
    "roles/enroot/files/enroot-dir.sh": AS_USER,
    "roles/enroot/files/import-once.sh": AS_USER,
    "roles/enroot/files/lock.sh": "test_locks_of_enroot",
    "roles/enroot/templates/epilog.sh.j2": "test_directories_of_enroot",
    "roles/enroot/templates/prolog.sh.j2": "test_directories_of_enroot",
    "roles/job_tools/files/sbuild.sh": AS_USER,
    "roles/pyxis/files/proof.sh": RANDOM,
    "roles/slurm_health/files/checks/filesystems": RANDOM,
    "roles/slurmctld/templates/job_script.sh.j2": f"{ROOTS}; {RANDOM}",
    "roles/slurmctld/templates/logrotate.j2": "test_log_of_slurm",
    "roles/validate/templates/mpi.sh.j2": RANDOM,
}
"""Programs of root by path: where they write, or the tests of it."""

CHANGES = {"makedirs", "mkdir", "chown", "chmod", "lchown", "rename", "replace", "rmtree", "move", "copy2", "copytree"}
MAKES = {"File", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile", "mkstemp", "temporary_file", "write_new"}


def writes(source: str) -> bool:
    """Whether a program of Python makes or changes files."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        whole = ast.unparse(call.func)
        name, options = whole.rpartition(".")[2], {option.arg for option in call.keywords}
        if name in MAKES or (name in CHANGES and whole.startswith(("os.", "shutil."))):
            return True
        if name == "open" and ("opener" in options or "O_CREAT" in ast.unparse(call)):
            return True
    return False


def test_the_list_has_every_program_that_writes() -> None:
    python = [*(ROOT / "plugins/modules").rglob("*.py"), *(ROOT / "plugins/module_utils").rglob("*.py")]
    python += [*ROOT.glob("roles/*/files/*.py"), *ROOT.glob("roles/*/files/*/*.py")]
    found = {str(path.relative_to(ROOT)) for path in python if writes(path.read_text())}
    words = ("mkdir", "install -d", "mktemp", "chown", "rm -rf", "copytruncate", "flock")
    shell = [*ROOT.glob("roles/*/files/**/*"), *ROOT.glob("roles/*/templates/*.j2")]
    for path in shell:
        if path.is_file() and path.suffix not in (".py", ".pyc") and any(word in path.read_text() for word in words):
            found.add(str(path.relative_to(ROOT)))
    found -= {"roles/apptainer/templates/profile.sh.j2"}  # of a login
    assert found == {*PLACES}


def test_the_list_names_tests_that_exist() -> None:
    named = {word for text in PLACES.values() for word in text.replace(",", "").split() if word.startswith("test_")}
    files = {word for word in named if word.endswith(".py")}
    assert named - files <= {*globals()}
    assert all([*(ROOT / "tests/unit").rglob(name)] for name in files)


# -- a user who was there first --------------------------------------------------------------------------------------

ATTEMPTS = {
    "link to a file": "ln -s {place}/root/secret {path}",
    "link to a directory": "ln -s {place}/root {path}",
    "link to nothing": "ln -s {place}/root/new {path}",
    "FIFO": "mkfifo -m 0666 {path}",
    "directory": "mkdir -m 0777 {path} && touch {path}/own && ln -s {place}/root/secret {path}/secret",
    "file": "touch {path} && chmod 0666 {path}",
    "hard link": "touch {place}/user/own && ln {place}/user/own {path}",
    "hard link to root's file": "ln {place}/root/open {path}",
}


class Place:
    """A directory with root's files, and one in which everybody can write."""

    def __init__(self, path: Path) -> None:
        self.path, self.open, self.root = path, path / "open", path / "root"
        for directory, mode in ((path, 0o755), (self.open, 0o777), (self.root, 0o755), (path / "user", 0o777)):
            directory.mkdir(exist_ok=True)
            directory.chmod(mode)
        (self.root / "secret").write_text("secret\n")
        (self.root / "secret").chmod(0o600)
        (self.root / "open").write_text("open\n")
        (self.root / "open").chmod(0o666)
        self.before = self.state()
        self.late = False

    def state(self) -> list[tuple[str, int, int, int, bytes]]:
        """Names, modes, owners and contents of root's files."""
        found = []
        for path in sorted([self.root, *self.root.rglob("*")]):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found.append((path.name, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content))
        return found

    def user(self, script: str) -> bool:
        """Run a script as another user; whether it succeeds."""
        words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sh", "-c", script]
        return subprocess.run(words, check=False, stderr=subprocess.DEVNULL, timeout=LIMIT, cwd="/").returncode == 0

    def attempt(self, kind: str, path: Path) -> bool:
        """Put something in the place of a file; False where the kernel lets nobody do it (protected_hardlinks)."""
        done = self.user(ATTEMPTS[kind].format(place=self.path, path=path))
        assert done or kind == "hard link to root's file"
        return done

    def check(self) -> None:
        """Root's files are as they were, and nobody has waited."""
        assert self.state() == self.before
        assert not self.late, f"root waits for a user for more than {LIMIT} s"


@pytest.fixture(name="place")
def place_for_both() -> Iterator[Place]:
    """pytest's own directories are closed to other users. An alarm ends a test that waits."""
    path = Path(tempfile.mkdtemp(prefix="gpucluster-slurm-test-"))
    found = Place(path)

    def late(_number: int, _frame: object) -> None:
        found.late = True  # an `except` of the program may take the exception
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    yield found
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    shutil.rmtree(path)


kinds = pytest.mark.parametrize("kind", ATTEMPTS)


@as_root
@kinds
@pytest.mark.parametrize("what", ["directory", "file"])
def test_locks(place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, what: str) -> None:
    """Also where everybody could write into the directory of locks for a while."""
    monkeypatch.setattr(locks, "LOCKS", str(place.open / "locks"))
    path = place.open / "locks"
    if what == "file":
        path.mkdir(mode=0o777)
        path.chmod(0o777)
        path /= "storage"
    if place.attempt(kind, path):
        with pytest.raises(locks.LockError, match="remove what is there"), locks.locked("storage", 0):
            pass
    place.check()


@as_root
def test_no_user_holds_a_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCKS", str(place.open / "locks"))
    with locks.locked("storage", 0):
        pass
    assert not place.user(f"exec 9<{place.open}/locks/storage && flock --nonblock 9")
    assert not place.user(f"ls {place.open}/locks || ln -s {place.root}/secret {place.open}/locks/new")


@as_root
@kinds
def test_files(place: Place, kind: str) -> None:
    """Also in a directory that belongs to a service, such as /etc/munge, or in which all could write for a while."""
    path = place.open / "conf"
    if place.attempt(kind, path):
        if kind not in ("file", "hard link", "hard link to root's file"):
            with pytest.raises(FileError, match="/conf: found"):
                File(str(path), b"wanted\n")
        else:
            write([File(str(path), b"wanted\n")])
            assert (path.read_bytes(), path.lstat().st_uid, path.lstat().st_nlink) == (b"wanted\n", 0, 1)
    place.check()


@as_root
@pytest.mark.parametrize("mode", ["0666", "0644"])
def test_a_user_who_has_the_file_open_cannot_change_it(place: Place, mode: str) -> None:
    """Its content is right, and only its owner or mode has to be corrected."""
    path = place.open / "prolog"
    place.user(f"printf wanted >{path}; chmod {mode} {path}")
    if mode == "0666":
        os.chown(path, 0, 0)
    with path.open("r+b") as still_open:
        write([File(str(path), b"wanted", mode=0o755)])
        still_open.write(b"evil..")
    assert path.read_bytes() == b"wanted"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@as_root
def test_a_link_of_root_to_a_file_is_an_administrators(place: Place) -> None:
    (place.path / "link").symlink_to(place.root / "open")
    write([File(str(place.path / "link"), b"new\n")])
    assert (place.root / "open").read_bytes() == b"new\n"
    assert (place.path / "link").is_symlink()


@as_root
@kinds
@pytest.mark.parametrize("name", ["home", homes._PREFIX + "home"])
def test_homes(place: Place, kind: str, name: str) -> None:
    """In a directory such as /scratch. A home that somebody else has made stays, and is reported (`of_others`)."""
    place.open.chmod(0o1777)
    home = {"path": str(place.open / "home"), "uid": 12345, "gid": 12345}
    if place.attempt(kind, place.open / name):
        wanted = homes.missing([home])
        try:
            homes.make(wanted, skel=str(place.root))
        except OSError:
            assert not (place.open / "home").exists() or name == "home"
    place.check()


@as_root
@pytest.mark.parametrize("kind", [kind for kind in ATTEMPTS if kind != "link to nothing"])
@pytest.mark.parametrize("above", [0o777, 0o1777])
def test_homes_below_what_a_user_has_made(place: Place, kind: str, above: int) -> None:
    """He could put a link in the place of the new home before root gives it to its owner."""
    place.open.chmod(above)
    if place.attempt(kind, place.open / "lab"):
        with pytest.raises(OSError, match="lab"):
            homes.make([{"path": f"{place.open}/lab/home", "uid": 12345, "gid": 12345}])
        assert not (place.open / "lab/home").exists()
    place.check()


@contextmanager
def held(lock: Path) -> Iterator[int]:
    """Another process of root holds a lock; its process id."""
    script = f"exec 9>>{lock}; flock 9; exec sh -c 'echo; read x'"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.terminate()


# -- programs of roles -----------------------------------------------------------------------------------------------


OWN_WAYS: dict[str, str] = {
    "slurm_backup/saved_state.py": "test_state_that_is_saved, test_state_that_is_restored",
    "slurm_backup/save_parts.py": f"copies into a new directory of root: {ROOTS}",
    "slurm_backup/restore_parts.py": f"moves what is missing there: {ROOTS}",
    "notebook_job.py": "of a user in his own directory; it is sent alone",
    "slurm_report.py": "a lock of its state's directory, which root alone can open; its unit can write no other",
    "standard_output.py": "/dev/null",
}
"""Programs that make or replace files, or lock, in another way than by host/replacing, host/locks and tempfile."""

MAKES_ITSELF = {
    "write_text",
    "write_bytes",
    "touch",
    "rename",
    "symlink",
    "symlink_to",
    "link",
    "hardlink_to",
    "mkfifo",
}
MAKES_ITSELF |= {"truncate", "copy2", "copyfile", "copytree", "move", "flock", "lockf"}
WRITING = re.compile(r"O_(CREAT|WRONLY|RDWR|TRUNC)|opener=|^open\([^,]+, (mode=)?'[rbt]*[wax+]")


def makes_files_itself(source: str) -> bool:
    """Whether a program opens a file to write it, renames or copies one, or takes a lock, itself."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call):
            function, text = ast.unparse(call.func), ast.unparse(call)
            if function in ("os.replace", "shutil.copy") or function.rpartition(".")[2] in MAKES_ITSELF:
                return True
            if function in ("open", "os.open", "os.fdopen", "io.open") and WRITING.search(text):
                return True
    return False


@pytest.mark.parametrize(
    ("source", "itself"),
    [
        ("open(path, 'w')", True),
        ("open(path, mode='ab')", True),
        ("open(path, opener=of_root)", True),
        ("os.open(path, os.O_WRONLY)", True),
        ("os.open(path, os.O_RDONLY)", False),
        ("open(path, 'rb')", False),
        ("os.replace(new, path)", True),
        ("new.rename(path)", True),
        ("fcntl.flock(lock, fcntl.LOCK_EX)", True),
        ("shutil.copy2(path, new)", True),
        ("text.replace('w', 'x')", False),
        ("replacing.replace(path, b'')", False),
    ],
)
def test_what_a_program_does_itself_is_found(source: str, itself: bool) -> None:
    assert makes_files_itself(source) is itself


def test_outputs_and_locks_of_programs_go_through_the_shared_modules() -> None:
    """`test_locks` and `test_outputs` try these with what a user puts in the place of a lock and of an output."""
    programs = ROOT / "plugins/module_utils/programs"
    found = {str(path.relative_to(programs)) for path in programs.rglob("*.py") if makes_files_itself(path.read_text())}
    assert found == {*OWN_WAYS}


@as_root
@kinds
@pytest.mark.parametrize("name", ["out", ".out.new"])
def test_outputs(place: Place, kind: str, name: str) -> None:
    if place.attempt(kind, place.open / name):
        try:
            replacing.replace(str(place.open / "out"), b"new\n", 0o600)
            assert (place.open / "out").read_bytes() == b"new\n"
            assert (place.open / "out").lstat().st_nlink == 1
        except IsADirectoryError:
            assert kind == "directory"
    place.check()


@as_root
@kinds
def test_outputs_that_are_read(place: Place, kind: str) -> None:
    if place.attempt(kind, place.open / "out"):
        try:
            assert b"secret" not in replacing.read(str(place.open / "out"))
        except OSError:
            assert kind == "directory" or kind.startswith("link")
    place.check()


@as_root
@kinds
def test_the_directory_of_outputs(place: Place, kind: str) -> None:
    if place.attempt(kind, place.open / "outputs") and kind != "directory":
        with pytest.raises(OSError, match="outputs"):
            replacing.replace(str(place.open / "outputs/new"), b"new\n")
    place.check()


@pytest.fixture(name="backup")
def backup_program(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """slurm-backup, which says what it has; the exit status."""
    module: ModuleType = load("slurm_backup.backup_command")
    (place.path / "settings.json").write_text('{"host": "head"}')
    monkeypatch.setattr(backup_host, "CONF", place.path)
    monkeypatch.setattr(backup_host, "CACHE", place.path / "cache")
    monkeypatch.setattr(module, "LOCKED", 0.2)
    monkeypatch.setattr(module, "WORK_OF", {"look": lambda _settings: {"looked": True}})
    monkeypatch.setattr("sys.argv", ["slurm-backup", "look"])
    found: Callable[[], int] = module.main
    return found


@pytest.fixture(scope="module", name="health")
def health_program() -> ModuleType:
    module: ModuleType = load("health_check")
    return module


@as_root
@kinds
def test_locks_of_programs(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, backup: Callable[[], int], health: ModuleType
) -> None:
    """A backup is refused, and a node is examined nevertheless."""
    path = place.open / "locks"
    monkeypatch.setattr(locks, "LOCKS", str(path))
    if place.attempt(kind, path):
        assert backup() == 1
        examined = False
        with health.alone(0.2):
            examined = True
        assert examined
    place.check()


@as_root
@pytest.mark.parametrize("name", ["health", "backup"])
def test_a_lock_of_a_program_that_is_held_is_named(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    backup: Callable[[], int],
    health: ModuleType,
) -> None:
    path = place.open / "locks"
    monkeypatch.setattr(locks, "LOCKS", str(path))
    with locks.locked(name, 0):
        assert not place.user(f"exec 9<{path}/{name}")
        assert stat.S_IMODE((path / name).stat().st_mode) == 0o600
    with held(path / name) as process:
        if name == "backup":
            assert backup() == 1
        else:
            with health.alone(0.2):
                pass
    said = capsys.readouterr()
    assert f"process {process} (sh -c echo; read x)" in said.out + said.err


@as_root
@kinds
def test_state_that_is_saved(place: Place, kind: str) -> None:
    """A link of user slurm would let the backup have, and then give to slurm, any file of root."""
    for name in saved_state.NEEDED:
        (place.open / name).write_text("x")
    if place.attempt(kind, place.open / "other"):
        saved_state.copy_state(place.open, place.path / "copy")
        copied = place.path / "copy/other"
        assert (
            copied.is_dir()
            if kind == "directory"
            else copied.is_file() == (kind == "file" or kind.startswith("hard link"))
        )
        assert not (copied / "secret").exists()
    place.check()


class NoRepository:
    """Restores nothing."""

    def run(self, *_words: str) -> None:
        """Nothing."""


@as_root
@kinds
def test_state_that_is_restored(place: Place, kind: str) -> None:
    scratch = place.open / saved_state.RESTORING
    if place.attempt(kind, scratch):
        try:
            restore_parts.restored_files(cast(Repository, NoRepository()), "1", scratch)
            assert scratch.lstat().st_uid == 0
            assert [*scratch.iterdir()] == []
        except FileExistsError:
            pass
    saved = place.path / "saved"
    saved.mkdir()
    (saved / "other").write_text("saved")
    if place.attempt(kind, place.open / "other"):
        saved_state.put_in_place(saved, place.open)
        assert (place.open / "other").read_text() == "saved"
        assert not (place.open / "other").is_symlink()
    place.check()


def script_of_enroot(name: str, place: Place, cleaned: bool = True) -> str:
    """A script of enroot with its directories in this place."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((ROLES / f"enroot/templates/{name}.sh.j2").read_text())
    directory = enroot.for_root(f"{place.open}/%U")
    text = template.render(
        lock=enroot.lock(),
        directories=[directory],
        cleaned=[directory] if cleaned else [],
        temp=directory,
        scripts_dir="/nonexistent",
    )
    assert "/run/gpucluster-slurm" in text
    text = text.replace("/run/gpucluster-slurm", f"{place.path}/run").replace("PATH=/", f"PATH={os.environ['PATH']}:/")
    return text.replace("flock -w 20", "flock -w 1")


def run_of_enroot(name: str, place: Place) -> int:
    """Run it for a job of the user; its exit status."""
    words = ["sh", "-c", script_of_enroot(name, place)]
    job = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(USER)}
    return subprocess.run(words, env=job, check=False, timeout=LIMIT).returncode


@pytest.fixture(name="log")
def stand_ins_of_enroot(place: Place, stand_in: StandIn) -> Path:
    """What the scripts say to the journal."""
    stand_in("logger", f'shift 2; echo "$*" >>{place.path}/log')
    stand_in("systemd-run", "exit 1")
    (place.path / "log").touch()
    return place.path / "log"


@as_root
@kinds
@pytest.mark.parametrize("name", [str(USER), f"{USER}.7.removed", f"{USER}/made"])
def test_directories_of_enroot(place: Place, log: Path, kind: str, name: str) -> None:
    place.open.chmod(0o1777)
    if "/" in name:
        place.user(f"mkdir -m 0700 {place.open}/{USER}")
    if place.attempt(kind, place.open / name):
        assert (run_of_enroot("prolog", place), run_of_enroot("epilog", place)) == (0, 0)
    if name == str(USER) and "link to" in kind and "hard" not in kind:
        assert "is not a directory of" in log.read_text()
    place.check()


@as_root
@kinds
def test_locks_of_enroot(place: Place, log: Path, kind: str) -> None:
    """A user stops no job, and takes no directory of a job that runs."""
    run = place.path / "run"
    run.mkdir()
    run.chmod(0o777)
    if place.attempt(kind, run / "locks"):
        assert (run_of_enroot("prolog", place), run_of_enroot("epilog", place)) == (0, 0)
        if kind != "directory":
            assert "is not a directory of root" in log.read_text()
        assert (run / "enroot" / str(USER) / "7").exists()  # the epilog has left it to the next one
    place.check()


@as_root
def test_a_lock_of_enroot_that_is_held_is_named(place: Place, log: Path) -> None:
    assert run_of_enroot("prolog", place) == 0
    lock = place.path / "run/locks/enroot"
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert not place.user(f"exec 9<{lock}")
    with held(lock) as process:
        assert (run_of_enroot("prolog", place), run_of_enroot("epilog", place)) == (0, 0)
    named = f"job 7: process {process} (sh -c echo; read x ) has held the lock {lock} for 20 s"
    assert log.read_text().splitlines().count(named) == 2


@as_root
@pytest.mark.skipif(not shutil.which("logrotate"), reason="there is no logrotate")
@kinds
@pytest.mark.parametrize("name", ["job_completions", "job_completions.1"])
def test_log_of_slurm(place: Place, kind: str, name: str) -> None:
    """User slurm owns the directory of the logs. logrotate refuses what is no file with one name."""
    os.chown(place.open, USER, USER)
    place.open.chmod(0o755)
    environment = jinja2.Environment(trim_blocks=True)
    template = environment.from_string((ROLES / "slurmctld/templates/logrotate.j2").read_text())
    text = template.render(path=f"{place.open}/job_completions")
    (place.path / "conf").write_text(text)
    if name != "job_completions":
        place.user(f"echo x >{place.open}/job_completions")
    if place.attempt(kind, place.open / name):
        words = ["logrotate", "--force", "--state", f"{place.path}/state", f"{place.path}/conf"]
        subprocess.run(words, check=False, timeout=LIMIT, stderr=subprocess.DEVNULL)
    place.check()
