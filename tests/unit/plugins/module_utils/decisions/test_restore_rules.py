# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of a restore (role backup)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import restore
from plain_host import DATABASE_SERVER, PlainHost, cluster

KEY = "/cluster/secrets/x/backup_password"
SAVED = {
    "database": {"time": "2026-11-01 02:00", "slurm": "24.11.5"},
    "controller": {"time": "2026-11-02 02:00", "slurm": "25.05.1", "seconds": 1777},
}


def printed(**values: Any) -> dict[str, str]:
    """A result of a command that prints JSON."""
    return {"stdout": json.dumps(values)}


def hosts_with(
    lost: tuple[str, ...] = ("database", "controller"), backups: dict[str, Any] | None = None, **variables: Any
) -> dict[str, PlainHost]:
    """A database on login, a controller on head, and what they found."""
    shared = {"slurm_database": "login", "slurm_backup": {"target": "/srv/b"}, "backup_password_file": KEY}
    hosts: dict[str, PlainHost] = cluster({KEY: b"key"}, **{**shared, **variables})
    saved = SAVED if backups is None else backups
    for name in ("head", "login"):
        present = {part: part not in lost for part in ("database", "controller")}
        hosts[name].set(__backup_read=printed(present=present, backups=saved))
    return hosts


def test_a_restore_needs_its_hosts_a_target_and_the_key() -> None:
    assert restore.reading_objection(hosts_with()["head"]) == ""
    found = restore.reading_objection(hosts_with(ansible_play_hosts=["head"])["head"])
    assert found == "Nothing was changed. These hosts have to take part, bare or not: login"
    assert restore.reading_objection(hosts_with(slurm_backup={})["head"]).startswith("slurm_backup is empty: name")
    found = restore.reading_objection(hosts_with(backup_password_file="/cluster/other")["head"])
    assert found == "/cluster/other is missing: put your copy of the key of the backup there"


@pytest.mark.parametrize(
    ("lost", "parts"),
    [
        ((), []),
        (("database",), ["database"]),
        (("controller",), ["controller"]),
        (("controller", "database"), ["database", "controller"]),
    ],
)
def test_only_what_is_lost_is_put_back(lost: tuple[str, ...], parts: list[str]) -> None:
    host = hosts_with(lost)["head"]
    assert restore.parts(host) == parts
    assert ("database" in restore.parts(host)) == ("database" in lost)
    assert restore.puts_state(host) == restore.puts_state_here(host) == ("controller" in lost)


def test_the_state_is_put_back_on_the_first_controller() -> None:
    hosts = hosts_with(slurm_controllers=["head", "n1"])
    assert [name for name in hosts if restore.puts_state_here(hosts[name])] == ["head"]


@pytest.mark.parametrize("name", ["head", "n1"])
def test_a_state_that_one_of_several_controllers_has_is_not_put_back(name: str) -> None:
    """The disk of the other one is lost. They share the state, and its controller may serve and change it."""
    hosts = hosts_with(("controller",), slurm_controllers=["head", "n1"])
    for other in ("head", "n1"):
        present = {"controller": other == name}
        hosts[other].set(__backup_read=printed(present=present, backups=SAVED))
    assert restore.parts(hosts["head"]) == []
    assert not restore.puts_state_here(hosts["head"])
    assert restore.objection(hosts["head"]) == (
        f"Nothing is lost: login has the database, {name} has the state of slurmctld. Existing data are never "
        "overwritten. Run gpucluster.slurm.site, which makes the lost hosts anew."
    )


def test_a_state_that_no_controller_has_is_lost() -> None:
    """Unless it is on storage that the run mounts later: what is there then stays."""
    hosts = hosts_with(("controller",), slurm_controllers=["head", "n1"])
    hosts["n1"].set(__backup_read=printed(present={"controller": False}, backups=SAVED))
    assert restore.parts(hosts["head"]) == ["controller"]
    assert restore.checks_directory(hosts["n1"])
    hosts["head"].set(__backup_state_now={"stat": {"exists": False}})
    assert restore.puts_state_here(hosts["head"])
    hosts["head"].set(
        __backup_state_now={"stat": {"exists": True}}, __backup_compared=printed(time="02:00", lost={"7": ["n2"]})
    )
    assert not restore.puts_state_here(hosts["head"])
    assert restore.lost_jobs_objection(hosts["head"]).endswith(
        " If their state is on storage that this run has not mounted yet, run gpucluster.slurm.site instead."
    )
    assert restore.report(hosts["head"])[0] == "the state of slurmctld is on its storage, and was not put back"


def test_what_is_there_is_never_overwritten() -> None:
    assert restore.objection(hosts_with(())["n1"]) == (
        "Nothing is lost: login has the database, head has the state of slurmctld. Existing data are never "
        "overwritten. Run gpucluster.slurm.site, which makes the lost hosts anew."
    )
    others = hosts_with((), slurm_database_server=DATABASE_SERVER)["n1"]
    assert "db.x.org has the database, which its administrator restores, head has" in restore.objection(others)
    assert restore.objection(hosts_with((), slurm_database="")["n1"]).startswith("Nothing is lost: head has the state")
    assert restore.objection(hosts_with()["n1"]) == ""


def test_a_restore_that_was_ended_goes_on() -> None:
    hosts = hosts_with(())
    hosts["login"].set(__backup_read=printed(present={"database": True}, backups=SAVED, unfinished=True))
    assert restore.objection(hosts["head"]) == ""
    assert restore.announcement(hosts["head"]) == ["all data are restored; an interrupted restore continues"]


def test_a_part_without_a_backup_is_named() -> None:
    host = hosts_with(backups={"controller": SAVED["controller"]})["head"]
    assert restore.objection(host) == "/srv/b has no backup of: database"


def test_secrets_come_back_with_the_state_of_a_controller() -> None:
    hosts = hosts_with()
    assert restore.lacks_secrets(hosts["head"])
    hosts["head"].files = {"/cluster/secrets/x/munge.key": b"key"}
    assert not restore.lacks_secrets(hosts["head"])
    assert not restore.lacks_secrets(hosts_with(backups={"database": SAVED["database"]})["head"])


def test_the_release_is_the_latest_one_of_the_parts() -> None:
    assert restore.release(hosts_with()["head"]) == {"release": "25.05.1", "source": "the backup in /srv/b"}
    assert restore.release(hosts_with(("database",))["head"])["release"] == "24.11.5"
    assert restore.release(hosts_with(())["head"]) == {}
    unknown = {part: {"time": "t", "slurm": ""} for part in SAVED}
    assert restore.release(hosts_with(backups=unknown)["head"]) == {}


def installed(version: str, candidate: str = "") -> dict[str, Any]:
    """The fact `slurm` of a host."""
    return {"installed": version, "candidate": candidate, "state_protocol": 0}


OF_24 = {part: {"time": "02:00", "slurm": "24.11.5-4"} for part in ("database", "controller")}


@pytest.mark.parametrize(
    ("head", "login", "refused"),
    [
        (installed("24.11.5"), installed("24.11.5"), []),
        (installed("24.11.6"), installed("", "24.11.6-1"), []),
        # The cluster was upgraded after its last backup, and has lost its database.
        (installed("26.05.5"), installed("26.05.5"), ["login has 26.05.5", "head has 26.05.5"]),
        (installed("24.11.5"), installed("26.05.5"), ["login has 26.05.5"]),
        (installed("26.05.5"), installed("", "26.05.5-1"), ["login would get 26.05.5-1", "head has 26.05.5"]),
        (installed("", "26.05.5-1"), installed("24.11.5"), ["head would get 26.05.5-1"]),
        (installed("24.11.5"), installed("23.11.4"), ["login has 23.11.4"]),
        (installed("", ""), installed("", ""), []),
    ],
)
def test_a_backup_of_another_release_is_refused(
    head: dict[str, Any], login: dict[str, Any], refused: list[str]
) -> None:
    hosts = hosts_with(backups=OF_24)
    hosts["head"].say(slurm=head)
    hosts["login"].say(slurm=login)
    found = restore.release_objection(hosts["n1"])
    assert [text in found for text in refused] == [True] * len(refused)
    assert found.count("24.11.5-4, and") == len(refused)
    assert found.startswith("Nothing was changed: the backup of the") == bool(refused)


def test_a_part_that_is_there_is_not_compared() -> None:
    hosts = hosts_with(("database",), backups=OF_24)
    hosts["head"].say(slurm=installed("26.05.5"))
    hosts["login"].say(slurm=installed("24.11.5"))
    assert restore.release_objection(hosts["head"]) == ""


def test_a_backup_that_does_not_tell_its_release_is_left_to_slurmdbd() -> None:
    hosts = hosts_with(backups={part: {"time": "t", "slurm": ""} for part in OF_24})
    assert restore.release_objection(hosts["head"]) == ""


def test_the_version_of_files_is_what_a_bare_host_would_get() -> None:
    hosts = hosts_with(
        ("database",), backups=OF_24, slurm_packages={"files": [{"file": "slurm-smd_26.05.5-1_amd64.deb"}]}
    )
    hosts["login"].say(slurm=installed("", "24.11.5-4"))
    assert "login would get 26.05.5" in restore.release_objection(hosts["head"])


@pytest.mark.parametrize(("version", "refused"), [("26.05.5", False), ("23.11.4", True)])
def test_a_conversion_can_be_accepted_and_damage_cannot(version: str, refused: bool) -> None:
    hosts = hosts_with(("database",), backups=OF_24, backup_convert=True)
    hosts["login"].say(slurm=installed(version))
    assert bool(restore.release_objection(hosts["head"])) == refused
    assert "backup_convert" not in restore.release_objection(hosts["head"])
    what = "converted by a later release: the backup of the database of 02:00 is one of Slurm 24.11.5-4, and login has "
    assert (f"{what}{version}" in restore.announcement(hosts["head"])) != refused
    assert restore.release(hosts["head"]) == {}, "the other hosts tell the release"


def test_jobs_are_those_of_nodes_that_answered() -> None:
    hosts = hosts_with()
    hosts["n1"].set(__backup_steps={"ansible_facts": {"slurm_host": {"jobs": {"7": "runs"}}}})
    hosts["n2"].set(__backup_steps={"unreachable": True})
    assert restore.running_jobs(hosts["head"]) == {"n1": {"7": "runs"}}
    assert restore.events(hosts["head"]) == ["the jobs of these nodes are unknown, since they were not reached: n2"]


def test_without_a_lost_state_nothing_is_said_about_nodes() -> None:
    assert restore.events(hosts_with(("database",))["head"]) == []


def test_what_is_put_back_is_said_with_what_happened_since() -> None:
    hosts = hosts_with()
    for name in ("n1", "n2"):
        hosts[name].set(__backup_steps={"ansible_facts": {"slurm_host": {"jobs": {}}}})
    hosts["head"].set(__backup_compared=printed(words=["job 7 goes on"]))
    hosts["login"].set(__backup_since_read=printed(words=["3 jobs since then"]))
    assert restore.announcement(hosts["n1"]) == [
        "from the backup: database, 2026-11-01 02:00",
        "from the backup: controller, 2026-11-02 02:00",
        "job 7 goes on",
        "3 jobs since then",
    ]


def test_a_restore_that_ends_jobs_names_them() -> None:
    hosts = hosts_with()
    assert restore.lost_jobs_objection(hosts["head"]) == ""
    hosts["head"].set(__backup_compared=printed(time="02:00", lost={"7": ["n1", "n2"], "8": ["n1"]}))
    assert restore.lost_jobs_objection(hosts["login"]) == (
        "Nothing was changed. The backup of 02:00 does not have these jobs as running, so slurmctld would end them: "
        "7 on n1, n2; 8 on n1. Wait for their end, or accept it with -e backup_end_jobs=true."
    )


def test_no_job_id_is_used_twice() -> None:
    """Nobody may know the jobs that slurmctld has accepted since the backup: the next id leaves them out."""
    hosts = hosts_with()
    hosts["head"].set(__backup_compared=printed(used=[20], next_job_id=15, age=1000))
    assert restore.next_job_id(hosts["head"]) == 15 + 100_000 + 40_000
    hosts["login"].set(__backup_since_read=printed(submitted=[14, 30, 900_000]))
    assert restore.next_job_id(hosts["head"]) == 900_001
    assert restore.later_jobs_command(hosts["login"]) == ["/usr/local/sbin/slurm-backup", "since", "1777", "15"]
    low = {"FirstJobId": "1000", "MaxJobId": "5000"}
    hosts = hosts_with(slurm_conf=low)
    hosts["head"].set(__backup_compared=printed(used=[4000], next_job_id=3900, age=86400))
    assert restore.next_job_id(hosts["head"]) == 1900


@pytest.mark.parametrize(
    ("saved", "used", "gap", "limits", "expected"),
    [
        (7, [], 100_000, (1, 0x03FF0000), 100_007),
        (67_000_000, [67_000_001], 100_000, (1, 0x03FF0000), 56_673),  # after the highest one, slurmctld begins again
        (500, [67_000_000], 100_000, (1, 0x03FF0000), 100_500),  # so it was before the backup
        (7, [], 1 << 40, (1, 0x03FF0000), 33_521_670),  # half of all
        (20, [], 100_000, (1_000_000, 0x03FF0000), 1_100_000),  # FirstJobId was raised
        (7, [], 100_000, (1, 101), 57),
        (0xFFFFFF, [], 100_000, (5, 5), 6),
    ],
)
def test_the_next_job_id_is_one_that_slurmctld_gives(
    saved: int, used: list[int], gap: int, limits: tuple[int, int], expected: int
) -> None:
    assert restore.id_after(saved, used, gap, *limits) == expected


def test_a_second_restore_of_the_same_backup_leaves_out_what_slurmctld_gave_meanwhile() -> None:
    """At most MaxJobCount jobs in MinJobAge, by Slurm's defaults."""
    host = hosts_with()["head"]
    numbers = []
    for age in (3600, 7200):
        host.set(__backup_compared=printed(next_job_id=7, age=age))
        numbers.append(restore.next_job_id(host))
    assert numbers[1] - numbers[0] >= 3600 * 10_000 / 300
    host.set(slurm_conf={"MaxJobCount": "1000000"})
    assert restore.next_job_id(host) - numbers[1] == 10 * 990_000


def test_jobs_have_ended_if_all_of_their_nodes_were_reached() -> None:
    hosts = hosts_with()
    hosts["head"].set(
        __backup_compared=printed(ended={"7": "n[1-2]", "8_3": "n1", "9": "gone"}, used=[], next_job_id=9, age=0)
    )
    ran = "jobs that ran at the time of the backup"
    for name, ended, stay in (("n1", "8_3", "7, 9"), ("n2", "7, 8_3", "9")):
        hosts[name].set(__backup_steps={"ansible_facts": {"slurm_host": {"jobs": {}}}})
        assert restore.events(hosts["head"])[:2] == [
            f"{ran} and run no more: they are ended, and not requeued: {ended}",
            f"{ran}, and of which it is not known whether they run: they stay: {stay}",
        ]
    command = ["/usr/local/sbin/slurm-backup", "restore", "controller", "--next-job-id=100009"]
    assert restore.state_command(hosts["head"]) == [*command, "--ended", "7", "8_3"]
    for host in hosts.values():
        host.set(slurm_conf={"PrologFlags": "Alloc"})
    assert restore.ended_jobs(hosts["head"]) == []
    assert restore.state_command(hosts["head"]) == command


def test_the_end_says_what_was_restored() -> None:
    hosts = hosts_with()
    hosts["login"].set(__backup_restored_database=printed(words="the database is back"))
    hosts["head"].set(
        __backup_restored_state=printed(words="the state is back"),
        __backup_runaway={"stdout": "ID|Name|User\n7|a|ann\n8_1|b|bob\nfix them? (y/n)"},
    )
    for name in ("n1", "n2"):
        hosts[name].set(__backup_steps={"ansible_facts": {"slurm_host": {"jobs": {}}}})
    assert restore.report(hosts["head"]) == [
        "the database is back",
        "the state is back",
        "jobs that the database has as running and slurmctld does not know (sacctmgr show runawayjobs ends them): "
        "7, 8_1",
        "the restore is complete",
    ]
    assert [part["words"] for part in restore.result(hosts["head"])["parts"]] == [
        "the database is back",
        "the state is back",
    ]


def test_the_last_line_names_drained_nodes() -> None:
    host = hosts_with()["head"]
    host.set(__backup_nodes={"stdout_lines": ["n1 idle none", "n2 drained broken fan"]})
    assert restore.report(host)[-1] == (
        "the restore is complete; drained, without new jobs until they are resumed: n2 (broken fan)"
    )
    host.set(ansible_check_mode=True)
    assert restore.report(host)[-1] == "nothing was restored, since check mode changes nothing"


def test_a_cluster_without_a_database_restores_its_state() -> None:
    hosts = hosts_with(("controller",), slurm_database="")
    hosts["head"].set(__backup_restored_state=printed(words="the state is back"))
    assert restore.objection(hosts["head"]) == ""
    assert len(restore.restored_parts(hosts["head"])) == 1
