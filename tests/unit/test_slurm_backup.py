# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pure parts of slurm-backup, and its pipes with stand-ins for programs. Scenario recovery has the real ones."""

from __future__ import annotations

import io
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.slurm_backup import (
    backup_command,
    backup_host,
    restic_repository,
    restore_parts,
    save_parts,
    saved_database,
    saved_state,
)
from programs import StandIn

pytestmark = pytest.mark.once


@pytest.fixture(name="stand_in")
def stand_ins_of_the_program(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Stand-ins that the program finds."""
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])
    return stand_in


NONE: Any = None
"""In the place of a repository that is not asked."""


def job_state(next_id: int) -> bytes:
    """The header of job_state, as slurmctld packs it, and a byte of a job."""
    word = b"PROTOCOL_VERSION\0"
    return struct.pack(">I", len(word)) + word + struct.pack(">HQI", 10752, 1767225600, next_id) + b"j"


def test_the_next_job_id_is_written_into_the_header() -> None:
    assert saved_state.job_id_of(job_state(77))[1] == 77
    assert saved_state.with_job_id(job_state(77), 100) == job_state(100)


@pytest.mark.parametrize("content", [b"", b"\0\0\0\x11PROTOCOL", job_state(1)[:-4], b"\0\0\0\x05other" + bytes(14)])
def test_another_file_than_job_state_is_refused(content: bytes) -> None:
    with pytest.raises(backup_host.BackupError, match="does not begin as a file of slurmctld"):
        saved_state.with_job_id(content, 5)


def test_jobs_on_nodes_are_kept_only_if_they_ran_in_the_backup() -> None:
    saved = saved_state.jobs_of("5|5|RUNNING|a|n1\n6|4_2|SUSPENDED|a|n1\n7|7|PENDING|b|\n8|8|RUNNING|b|n2\nno job\n")
    found = saved_state.compared(
        {"n1": {"5": "runs", "6": "runs", "7": "runs"}, "n2": {"5": "open", "9": "open"}, "n3": {}}, saved
    )
    assert found == {
        "kept": [5, 6],
        "lost": {"7": ["n1"], "9": ["n2"]},
        "reported": [],
        "ended": {"8": "n2"},
        "used": [5, 6, 7, 9],
    }
    words = "\n".join(saved_state.words_of_jobs(found))
    assert "7 on n1; 9 on n2" in words
    assert saved_state.words_of_jobs(saved_state.compared({}, [])) == []


def test_a_job_that_only_has_to_report_its_end_is_not_lost() -> None:
    """On the other nodes of the job is the step extern, or a step that runs on: then the job is not over."""
    saved = saved_state.jobs_of("5|5|RUNNING|a|n1\n")
    running = {
        "n1": {"5": "reports", "6": "reports", "7": "reports", "8": "open"},
        "n2": {"6": "open", "7": "runs"},
    }
    found = saved_state.compared(running, saved)
    assert found["kept"] == [5]
    assert found["lost"] == {"7": ["n1", "n2"], "8": ["n1"]}
    assert found["reported"] == [6]
    words = saved_state.words_of_jobs(found)
    assert "jobs that have ended unknown to the backup; slurmstepd waits to report it: 6" in words


def test_what_begun_in_the_backup_and_is_on_no_node_has_ended() -> None:
    """By the name that scancel takes: the number of an array's last task is that of the whole array.

    A job that was about to begin, or to end, goes on in slurmctld as it was. Parts of a job end together.
    """
    saved = saved_state.jobs_of(
        "12|9_2|RUNNING|a|n1\n9|9_3|SUSPENDED|a|n[1-2]\n20|20|COMPLETING|a|n1\n21|21|CONFIGURING|a|n1\n"
        "30|30+0|RUNNING|a|n1\n31|30+1|RUNNING|a|n2\n40|40+0|RUNNING|a|n1\n41|40+1|RUNNING|a|n2\n"
    )
    assert saved_state.compared({"n1": {"30": "runs"}}, saved)["ended"] == {
        "9_2": "n1",
        "9_3": "n[1-2]",
        "40": "n1,n2",
    }
    assert "30" not in saved_state.compared({"n2": {"31": "runs"}}, saved)["ended"]


def test_jobs_that_have_ended_are_ended_in_slurmctld_until_it_has_done_it(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel and squeue are stand-ins. A job that is over already, or purged, is no error."""
    monkeypatch.setattr(backup_host, "ENDED", tmp_path / "ended.json")
    assert restore_parts.end_jobs({}) == {"ended": []}
    backup_host.write_json(backup_host.ENDED, {"jobs": ["9_2", "40"]})
    stand_in("scancel", f"echo $* >>{tmp_path}/cancelled; exit 1")
    stand_in("squeue", "echo '9|9_2|CANCELLED|a|n1'; echo '40|40+0|PENDING|a|'")
    with pytest.raises(backup_host.BackupError, match=r"slurmctld has not ended these jobs: 40$"):
        restore_parts.end_jobs({})
    stand_in("squeue", "echo '9|9_2|CANCELLED|a|n1'; echo '9|9_3|RUNNING|a|n1'")
    assert restore_parts.end_jobs({}) == {"ended": ["9_2", "40"]}
    assert (tmp_path / "cancelled").read_text() == "--quiet 9_2 40\n" * 2
    assert not backup_host.ENDED.exists()


def test_many_jobs_are_counted() -> None:
    assert saved_state.listed(range(1, 53)).endswith("49, 50 and 2 more")


def test_counts_between_those_before_and_after_the_dump_are_right() -> None:
    bounds = [{"x_job_table": 10, "user_table": 2}, {"x_job_table": 12, "user_table": 2}]
    assert saved_database.different_counts({"x_job_table": 11, "user_table": 2}, bounds) == []
    assert saved_database.different_counts({"x_job_table": 9}, bounds) == [
        "user_table has 0 rows, and the live one had 2",
        "x_job_table has 9 rows, and the live one had 10 to 12",
    ]


def test_times_of_restic() -> None:
    assert restic_repository.seconds_of("2026-01-31T01:00:00Z") == 1769821200
    assert restic_repository.seconds_of("2026-01-31T02:00:00.123456789+01:00") == pytest.approx(1769821200.123456)
    with pytest.raises(backup_host.BackupError):
        restic_repository.seconds_of("yesterday")


def test_the_newest_snapshot_of_a_part() -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "time": "2026-01-31T02:00:00+01:00", "tags": ["database"]},
        {"id": "b", "time": "2026-01-31T01:30:00Z", "tags": ["database"]},
        {"id": "c", "time": "2026-02-01T00:00:00Z", "tags": ["controller"]},
        {"id": "d", "time": "2026-02-02T00:00:00Z", "tags": None},
    ]
    assert [row["id"] for row in restic_repository.newest(rows, "database")] == ["b", "a"]


def test_words_of_errors() -> None:
    missing = "Fatal: repository does not exist: unable to open config file: stat /x/config: no such file\n"
    assert restic_repository.is_missing(missing)
    assert (
        backup_host.first_words("note\nFatal: wrong password or no key found\nmore") == "wrong password or no key found"
    )
    assert not restic_repository.is_missing("Fatal: wrong password or no key found")
    assert restic_repository.is_locked("unable to create lock in backend: repository is already locked by PID 1")
    assert backup_host.first_words("") == "no reason given"


def test_the_environment_of_a_target() -> None:
    text = "# S3\nAWS_ACCESS_KEY_ID=abc\nAWS_SECRET_ACCESS_KEY='d=e'\n\nnot a variable\n"
    assert restic_repository.environment(text) == {"AWS_ACCESS_KEY_ID": "abc", "AWS_SECRET_ACCESS_KEY": "d=e"}


@pytest.mark.parametrize("value", ["d=e", "it's", 'a"', "'", "#1 %x $y", "a\\"])
def test_a_value_of_the_environment_loses_one_pair_of_quotes(value: str) -> None:
    for line in (f"X={value}", f'X="{value}"', f" X = '{value}' ".replace(" = ", "=")):
        assert restic_repository.environment(line) == {"X": value}


def state_directory(path: Path) -> Path:
    """A directory as slurmctld keeps it."""
    (path / "hash.1/job.11").mkdir(parents=True)
    (path / "hash.1/job.11/script").write_text("#!/bin/sh\n")
    for name in ("clustername", "job_state", "job_state.old", "node_state", "job_state.new"):
        (path / name).write_text(name)
    return path


def test_a_copy_of_the_state_is_whole_without_half_written_files(tmp_path: Path) -> None:
    saved_state.copy_state(state_directory(tmp_path / "state"), tmp_path / "copy")
    names = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert names == {"clustername", "job_state", "job_state.old", "node_state", "hash.1/job.11/script"}


def test_a_state_without_its_jobs_is_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    (state_directory(tmp_path / "state") / "job_state").unlink()
    with pytest.raises(backup_host.BackupError, match="has no job_state"):
        saved_state.copy_state(tmp_path / "state", tmp_path / "copy")


def test_clustername_is_put_in_place_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, place = state_directory(tmp_path / "state"), tmp_path / "place"
    (place / "hash.1/job.3").mkdir(parents=True)
    moved: list[str] = []
    rename = os.rename

    def noted(old: Path, new: Path) -> None:
        moved.append(new.name)
        rename(old, new)

    monkeypatch.setattr(os, "rename", noted)
    saved_state.put_in_place(source, place)
    assert moved[-1] == "clustername"
    assert not (place / "hash.1/job.3").exists()
    assert (place / "hash.1/job.11/script").exists()


def test_a_snapshot_knows_the_version_of_slurm(stand_in: StandIn) -> None:
    stand_in("dpkg-query", "printf 'slurm-smd 26.05.5-1 installed\\nslurmd 1 config-files\\nbash 5 installed\\n'")
    settings = {"host": "head", "slurm_package": "slurm-smd", "cluster": "c"}
    tags = ["--host=head", "--tag=database", "--tag=cluster=c"]
    assert restic_repository.labels("database", settings) == [*tags, "--tag=slurm=26.05.5-1"]
    assert restic_repository.labels("database", {**settings, "slurm_package": "x"}) == tags
    assert restore_parts.version_of({"tags": ["database", "slurm=26.05.5-1"]}, NONE, settings) == "26.05.5-1"


@pytest.mark.parametrize(
    ("saved", "present", "made"),
    [
        ("24.11.5-4", "24.11.6-1", False),
        ("1:24.11.5-4", "24.11.5-4", False),
        ("24.11.5-4", "26.05.5-1", True),
        ("", "26.05.5-1", True),
        ("24.11.5-4", "", False),
    ],
)
def test_a_new_release_gets_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str, present: str, made: bool
) -> None:
    monkeypatch.setattr(backup_host, "STATUS", tmp_path / "status.json")
    monkeypatch.setattr(save_parts, "backup", lambda _settings: {"saved": []})
    monkeypatch.setattr(save_parts, "versions", lambda: {"slurm-smd": present} if present else {})
    (tmp_path / "status.json").write_text(json.dumps({"slurm": saved} if saved else {}))
    assert save_parts.renew({"slurm_package": "slurm-smd"}) == ({"saved": []} if made else {})


def test_a_restore_is_unfinished_until_its_daemons_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backup_host, "CONF", tmp_path)
    monkeypatch.setattr(backup_host, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "run/locks"))
    monkeypatch.setattr(backup_host, "UNFINISHED", tmp_path / "unfinished")
    (tmp_path / "settings.json").write_text('{"host": "head"}')
    monkeypatch.setattr(backup_command, "restore_database", lambda _settings: {"part": "database"})
    monkeypatch.setattr("sys.argv", ["slurm-backup", "restore", "database"])
    assert backup_command.main() == 0
    assert (tmp_path / "unfinished").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("sys.argv", ["slurm-backup", "finish"])
    assert backup_command.main() == 0
    assert not (tmp_path / "unfinished").exists()
    assert json.loads(capsys.readouterr().out.split("\n")[0]) == {"part": "database"}


def snapshot(part: str, *tags: str) -> dict[str, Any]:
    return {"id": "-".join([part, *tags]), "time": "2026-01-31T02:00:00Z", "tags": [part, *tags]}


@pytest.mark.parametrize(
    ("others", "asked"), [([], []), ([snapshot("database", "cluster=other")], ["--tag=cluster=own"])]
)
def test_a_repository_that_clusters_share(
    monkeypatch: pytest.MonkeyPatch, others: list[dict[str, Any]], asked: list[str]
) -> None:
    """The newest backup is that of this cluster, and retention forgets no other one."""
    own = [snapshot("database"), snapshot("database", "cluster=own")]
    ran: list[tuple[str, ...]] = []

    def run(_self: Any, *arguments: str) -> str:
        ran.append(arguments)
        return json.dumps(own + others) if arguments[0] == "snapshots" else ""

    monkeypatch.setattr(restic_repository.Repository, "run", run)
    repository = restic_repository.Repository({"target": "/srv/backup", "cluster": "own"})
    assert repository.snapshots() == own
    save_parts.retain(repository, {"keep": {"daily": 7}}, {"checked": 1e12})
    assert ran[-1] == ("forget", "--group-by=paths", *asked, "--prune", "--keep-daily=7")


def test_a_snapshot_of_an_earlier_collection_is_of_the_version_in_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_parts, "manifest_of", lambda _repository: {"packages": {"slurm-smd": "24.11.5-4"}})
    assert restore_parts.version_of({"tags": ["database"]}, NONE, {"slurm_package": "slurm-smd"}) == "24.11.5-4"

    def none(_repository: None) -> None:
        raise backup_host.BackupError("there is none")

    monkeypatch.setattr(restore_parts, "manifest_of", none)
    assert restore_parts.version_of({"tags": None}, NONE, {"slurm_package": "slurm-smd"}) == ""


END = "-- Dump completed on 2026-01-31"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo '{END}'; echo 'disk is full' >&2; exit 3", "disk is full"),
        ("echo 'CREATE TABLE x'", "the dump has no end"),
    ],
)
def test_a_dump_that_fails_is_not_saved(tmp_path: Path, stand_in: StandIn, script: str, reason: str) -> None:
    stand_in("dump", script)
    reads = f"exec 3<&0; cat <&3 >{tmp_path}/part & trap 'kill $!; exit 130' INT; wait $!"
    stand_in("save", f"{reads} && mv {tmp_path}/part {tmp_path}/saved")
    with pytest.raises(backup_host.BackupError, match=f"dump: {reason}"):
        restic_repository.piped(["dump"], ["save"], dict(os.environ))
    assert not (tmp_path / "saved").exists()


def test_a_whole_dump_is_saved(tmp_path: Path, stand_in: StandIn) -> None:
    stand_in("dump", f"head -c 3000000 /dev/zero; echo; echo '{END}'")
    stand_in("save", f"cat >{tmp_path}/saved; echo done")
    assert restic_repository.piped(["dump"], ["save"], dict(os.environ)) == "done\n"
    assert (tmp_path / "saved").stat().st_size > 3000000


def test_a_target_that_ends_early_is_named(stand_in: StandIn) -> None:
    stand_in("dump", f"head -c 3000000 /dev/zero; echo; echo '{END}'")
    stand_in("save", "echo 'Fatal: no space left' >&2; exit 1")
    with pytest.raises(backup_host.BackupError, match="save: no space left"):
        restic_repository.piped(["dump"], ["save"], dict(os.environ))


def test_without_settings_the_error_names_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backup_host, "CONF", tmp_path)
    monkeypatch.setattr("sys.argv", ["slurm-backup", "look"])
    assert backup_command.main() == 1
    assert f"{tmp_path}/settings.json: No such file" in capsys.readouterr().err


def test_without_slurmctld_no_job_counts_as_running(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert saved_state.listed_jobs() == []
    assert "no list of jobs: squeue: slurm_load_jobs error: Unable to contact" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ping", "host", "is_serving"),
    [
        ("Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is UP", "a", True),
        ("Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is UP", "b", False),
        ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP", "b", True),
    ],
)
def test_the_controller_that_serves_saves_the_state(stand_in: StandIn, ping: str, host: str, is_serving: bool) -> None:
    stand_in("scontrol", f"printf '{ping}\\n'")
    assert save_parts.serves({"state": "/s", "controllers": ["a", "b"], "host": host}) is is_serving
    assert save_parts.serves({"state": "", "controllers": ["a"], "host": "db"}) is False
    assert json.dumps(save_parts.serves({"state": "/s", "controllers": ["a"], "host": "a"})) == "true"


class FakeRepository:
    """A repository of restic by the passwords of its keys: what Repository.run would say."""

    def __init__(self, *clusters: str) -> None:
        self.clusters, self.keys, self.killed = clusters, {"k1": "old"}, ""

    def run(self, repository: Any, *arguments: str) -> str:
        password = Path(repository.environment["RESTIC_PASSWORD_FILE"]).read_text().strip()
        if password not in self.keys.values():
            raise backup_host.BackupError(f"restic {arguments[0]}: wrong password or no key found")
        if " ".join(arguments).startswith(self.killed or "?"):
            raise KeyboardInterrupt
        if arguments[:2] == ("key", "list"):
            return json.dumps([{"id": key, "current": value == password} for key, value in self.keys.items()])
        if arguments[:2] == ("key", "add"):
            new = arguments[2].removeprefix("--new-password-file=")
            assert Path(new).stat().st_mode & 0o777 == 0o600
            self.keys[f"k{len(self.keys) + 1}"] = Path(new).read_text().strip()
        if arguments[:2] == ("key", "remove"):
            assert self.keys[arguments[2]] != password
            del self.keys[arguments[2]]
        return json.dumps([snapshot("database", f"cluster={name}") for name in self.clusters])


class Rotation:
    """A host that makes backups, while the password of the repository changes."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *clusters: str) -> None:
        self.directory, self.patch = directory, monkeypatch
        self.repository = FakeRepository(*clusters)
        self.file = directory / "password"
        self.file.write_text("old\n")
        monkeypatch.setattr(backup_host, "CONF", directory)
        monkeypatch.setattr(backup_host, "REPLACED", directory / "replaced.json")
        monkeypatch.setattr(
            restic_repository.Repository, "run", lambda of, *given, **_: self.repository.run(of, *given)
        )
        monkeypatch.setattr(
            restic_repository.Repository, "open", lambda of, *_: self.repository.run(of, "cat", "config")
        )

    def do(self, command: str, password: str = "") -> dict[str, Any]:
        self.patch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
        settings = {"target": "/b", "cluster": "own", "host": "head"}
        result: dict[str, Any] = backup_command.WORK_OF[command](settings)
        return result


def test_a_new_password_opens_the_repository_before_the_old_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Rotation(tmp_path, monkeypatch, "own")
    assert host.do("add-key", "new") == {"added": True}
    assert host.repository.keys == {"k1": "old", "k2": "new"}
    assert host.do("add-key", "new") == {"added": False}
    with pytest.raises(backup_host.BackupError, match="head has another password in"):
        host.do("prove-key", "new")
    host.file.write_text("new\n")
    assert host.do("prove-key", "new") == {"opens": True}
    assert host.do("remove-keys") == {"removed": ["k1"], "left": [], "clusters": []}
    assert host.repository.keys == {"k2": "new"}
    assert host.do("remove-keys")["removed"] == []
    with pytest.raises(backup_host.BackupError, match="no password"):
        host.do("add-key", "")


@pytest.mark.parametrize("step", ["key list", "key add", "key remove"])
def test_a_change_that_was_killed_is_completed_by_the_same_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    host = Rotation(tmp_path, monkeypatch)

    def change() -> None:
        host.do("add-key", "new")
        host.file.write_text("new\n")
        host.do("prove-key", "new")
        host.do("remove-keys")

    host.repository.killed = step
    with pytest.raises(KeyboardInterrupt):
        change()
    host.repository.killed = ""
    assert host.file.read_text().strip() in host.repository.keys.values()
    change()
    assert host.repository.keys == {"k2": "new"}


def test_the_key_of_a_change_that_never_ended_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Rotation(tmp_path, monkeypatch)
    for password in ("second", "third"):
        host.do("add-key", password)
        host.file.write_text(password)
    assert host.do("remove-keys")["removed"] == ["k1", "k2"]
    assert host.repository.keys == {"k3": "third"}


def test_a_key_that_another_cluster_may_have_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Rotation(tmp_path, monkeypatch, "own", "other")
    host.do("add-key", "new")
    host.file.write_text("new")
    assert host.do("remove-keys") == {"removed": [], "left": ["k1"], "clusters": ["other"]}
    assert "k1" in host.repository.keys


def test_a_database_server_of_others_is_asked_with_a_file_of_options_and_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_host, "CLIENT", tmp_path / "database.cnf")
    assert saved_database.client("mariadb") == ["mariadb"]
    (tmp_path / "database.cnf").write_text("[client]\n")
    assert saved_database.client("mariadb-dump") == ["mariadb-dump", f"--defaults-extra-file={tmp_path}/database.cnf"]
    with pytest.raises(backup_host.BackupError, match="others run the database server, and restore its databases"):
        restore_parts.restore_database({"host": "head", "database": "acct"})
    restore_parts.return_records({"cluster": "x", "database": "acct"})  # without a query
