# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role backup: what a host saves."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.shipped_files import HostFile
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import backup
from plain_host import DATABASE_SERVER, PlainHost, cluster

KEY = "/cluster/secrets/x/backup_password"
ENVIRONMENT = "/cluster/secrets/x/backup.env"


def hosts_with(files: dict[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    shared = {
        "slurm_backup": {"target": "/srv/backup"},
        "backup_password_file": KEY,
        "backup_environment_file": ENVIRONMENT,
    }
    hosts: dict[str, PlainHost] = cluster({KEY: b"key\n"} if files is None else files, **{**shared, **variables})
    return hosts


def paths(files: list[HostFile]) -> list[str]:
    """The names of files, without the library of the program."""
    return [file["path"].rpartition("/")[2] for file in files if "/library/" not in file["path"]]


def test_a_controller_saves_the_files_of_the_control_host(tmp_path: Path) -> None:
    (tmp_path / "x.cluster.yml").write_text("name: x\n")
    hosts = hosts_with(slurm_cluster_dir=str(tmp_path), slurm_database="n1")
    found = backup.service(hosts["head"])
    common = ["slurm-backup.timer", "slurm-backup.service", "slurm-backup", "settings.json", "password"]
    assert paths(found.files) == [*common, "control.tar"]
    assert b"cluster/x.cluster.yml" in base64.b64decode(found.files[-1]["secret"])
    assert paths(backup.service(hosts["n1"]).files) == common


def test_a_host_has_the_variables_of_restic_or_loses_them() -> None:
    host = hosts_with(slurm_database="n1")["n1"]
    assert backup.service(host).absent == ["/etc/gpucluster-slurm/backup/environment", backup.CLIENT]
    host = hosts_with({KEY: b"key", ENVIRONMENT: b"A=b\n"}, slurm_database="n1")["n1"]
    found = backup.service(host)
    assert found.absent == [backup.CLIENT]
    assert base64.b64decode(found.files[-1]["secret"]) == b"A=b\n"


def test_only_the_timer_is_loaded_by_systemd_and_secrets_are_for_root() -> None:
    files = backup.settings_files(hosts_with()["head"])
    assert [file["path"] for file in files if file.get("loaded", True)] == ["/etc/systemd/system/slurm-backup.timer"]
    assert {file["mode"] for file in files if "secret" in file} == {"0600"}


def test_a_database_server_of_others_has_its_password_in_a_file_for_root() -> None:
    server = {**DATABASE_SERVER, "ca": "ca.pem"}
    password = "/cluster/secrets/x/slurmdbd_storage_pass"
    files = {KEY: b"key", password: b'a#"b\n', "/cluster/ca.pem": b"PEM"}
    hosts = hosts_with(files, slurm_database="n1", slurm_database_server=server)
    found = {file["path"]: file for file in backup.service(hosts["n1"]).files}
    client = found[backup.CLIENT]
    assert base64.b64decode(client["secret"]).decode().split("\n") == [
        "[client]",
        "host = db.x.org",
        "port = 3307",
        "user = slurm",
        r'password = "a#\"b"',
        "ssl-ca = /etc/gpucluster-slurm/database-ca.pem",
        "ssl-verify-server-cert = ON",
        "",
    ]
    assert (client["mode"], found["/etc/gpucluster-slurm/database-ca.pem"]["content"]) == ("0600", "PEM")
    assert backup.settings(hosts["n1"])["database"] == "acct"
    assert backup.CLIENT in backup.service(hosts["head"]).absent
    plain = hosts_with({KEY: b"key"}, slurm_database="n1", slurm_database_server=DATABASE_SERVER)["n1"]
    (client,) = [file for file in backup.service(plain).files if file["path"] == backup.CLIENT]
    assert base64.b64decode(client["secret"]).endswith(b"\nssl = OFF\n")


def test_the_settings_say_what_a_host_saves() -> None:
    hosts = hosts_with(slurm_database="n1", slurm_controllers=["head", "n2"])
    hosts["n1"].set(slurmdbd_conf={"StorageLoc": "own_db"})
    database, controller = backup.settings(hosts["n1"]), backup.settings(hosts["head"])
    assert (database["database"], database["archive"], database["state"]) == ("own_db", "/var/lib/slurm/archive", "")
    assert (controller["database"], controller["archive"]) == ("", "")
    assert controller["state"] == "/var/lib/slurm/slurmctld"
    assert controller["keep"] == {"daily": 7, "weekly": 5, "monthly": 12}
    assert [name for name in hosts if backup.settings(hosts[name])["prunes"]] == ["n1"]


def test_without_a_database_the_first_controller_removes_old_backups() -> None:
    hosts = hosts_with(slurm_database="", slurm_controllers=["head", "n2"])
    assert [name for name in hosts if backup.settings(hosts[name])["prunes"]] == ["head"]


def test_the_key_may_be_missing_in_check_mode_only() -> None:
    hosts = hosts_with({})
    with pytest.raises(ValueError, match="backup_password is missing"):
        backup.password(hosts["head"])
    assert backup.password(hosts["head"].set(ansible_check_mode=True)) == ""


def test_the_key_can_come_from_a_host() -> None:
    hosts = hosts_with()
    assert backup.known_password(hosts["head"]) == ""
    hosts["n1"].set(__backup_present={"msg": "no such file"})
    hosts["n2"].set(__backup_present={"content": base64.b64encode(b"key\n").decode()})
    assert backup.known_password(hosts["head"]) == "key"


def test_check_mode_says_what_would_be_saved() -> None:
    hosts = hosts_with()
    assert backup.saved_parts(hosts["head"]) == [
        "the database slurm_acct_db",
        "the archive /var/lib/slurm/archive",
        "the state in /var/lib/slurm/slurmctld, the configuration and the files of the control host",
    ]
    assert backup.saved_parts(hosts["n1"]) == []


def test_results_are_those_of_hosts_that_made_a_backup() -> None:
    hosts = hosts_with()
    hosts["head"].set(__backup_run={"stdout": json.dumps({"host": "head", "saved": []})})
    hosts["n1"].set(
        __backup_run={"stdout": json.dumps({"host": "n1", "saved": []})},
        __backup_verified={"stdout": json.dumps({"verified": [{"part": "database"}]})},
    )
    hosts["n2"].set(__backup_run={"skipped": True})
    assert backup.results(hosts["login"]) == [
        {"host": "head", "saved": [], "verified": []},
        {"host": "n1", "saved": [], "verified": [{"part": "database"}]},
    ]


def test_without_facts_the_age_is_asked_where_backups_are() -> None:
    run = cluster(slurm_backup={"target": "/backup"}, hostvars={})["n1"]
    assert backup.hosts_of_age(run) == ["head"]
    assert backup.hosts_of_age(cluster()["n1"]) == "!all"
    run["groups"]["slurm_needs_backup"] = ["login"]
    assert backup.hosts_of_age(run) == ["login"]
    assert backup.hosts_of_age(cluster(groups={"all": []})["n1"]) == "!all"
