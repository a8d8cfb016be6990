# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where secrets come from, and what preflight says of them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import slurmdbd
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import munge
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import secret_sources
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import restore
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight, secret_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import backup, rest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import jwt_keys
from plain_host import PlainHost, cluster

COMMAND = ["pass", "show", "{cluster}/{secret}"]
KEY = bytes(range(256)) * 4
REST = {"host": "login", "max_token_lifespan": 3600}
BACKUP = {"target": "s3:https://backup.example.org/x"}
GIVEN = {
    "x/munge.key": base64.encodebytes(KEY),
    "x/slurmdbd_storage_pass": b"word\n",
    "x/jwt_hs256.key": KEY[:64],
    "x/slurmctld_http.key": base64.b64encode(KEY[:64]),
    "x/backup_password": b"other\n",
    "x/backup.env": b"AWS_ACCESS_KEY_ID=a\n",
    "x/mail_password": b"third\n",
    "x/machines_password": b"fourth\n",
}
EVERYTHING: dict[str, Any] = {
    "slurm_rest": REST,
    "slurm_backup": BACKUP,
    "slurm_mail": {"relay": "mail", "user": "u"},
    "slurm_machines": {"by": "ipmi", "address": "{host}-bmc", "user": "u"},
    "slurm_monitoring": {"host": "login"},
    "slurm_profile": "strict",
}


def head(printed: dict[str, bytes], files: dict[str, bytes] | None = None, **variables: Any) -> PlainHost:
    """The controller of a small cluster whose secrets a command prints."""
    version = {"full": "2.19.4", "major": 2, "minor": 19, "revision": 4}
    hosts = cluster(files, **{"ansible_version": version, "slurm_secrets_command": COMMAND, **variables})
    asked: list[list[str]] = []
    for host in hosts.values():
        host.printed, host.asked = printed, asked
    return hosts["head"]


def test_without_a_command_secrets_are_files() -> None:
    host = cluster({"/cluster/secrets/x/munge.key": b"k", "/other": b"p"})["head"]
    assert not secret_sources.comes_from_command(host)
    assert secret_sources.secret(host, "munge.key") == b"k"
    assert secret_sources.secret(host, "slurmdbd_storage_pass") is None
    assert secret_sources.secret(host.set(slurmdbd_storage_pass_file="/other"), "slurmdbd_storage_pass") == b"p"
    with pytest.raises(ValueError, match="backup_password_file: /cluster/secrets/x/backup_password is missing"):
        secret_sources.required(host, "backup_password", "backup_password_file")
    assert secret_sources.required(host.set(ansible_check_mode=True), "backup_password", "x") == b""


def test_the_command_has_the_names_of_cluster_and_secret() -> None:
    host = head({}, slurm_secrets_command=["vault", "kv", "get", "-field={secret}", "kv/{cluster}", "{{other}}"])
    assert secret_sources.command(host, "munge.key") == ["vault", "kv", "get", "-field=munge.key", "kv/x", "{{other}}"]


@pytest.mark.parametrize(
    "printed", [KEY, base64.b64encode(KEY), base64.encodebytes(KEY), base64.b64encode(KEY) + b"\r\n"]
)
def test_a_key_is_raw_or_in_base64(printed: bytes) -> None:
    assert secret_sources.secret(head({"x/munge.key": printed}), "munge.key") == KEY


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (b"404 page not found\n", "found text that is not base64, allowed: a key, raw or in base64"),
        (base64.b64encode(KEY[:31]), "found 31 bytes, allowed: a key of 32 to 65536 bytes"),
        (b"\0" * 65537, "found more than 65536 bytes, allowed: a key of 32 to 65536 bytes"),
    ],
)
def test_something_else_is_no_key(printed: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=r"^pass show x/munge\.key: ") as found:
        secret_sources.secret(head({"x/munge.key": printed}), "munge.key")
    assert str(found.value) == f"pass show x/munge.key: {error}"


def test_a_password_is_text_even_if_it_could_be_base64() -> None:
    host = head({"x/slurmdbd_storage_pass": b"abcd\n"})
    assert slurmdbd.password(host) == "abcd"


def test_with_a_command_no_task_makes_a_secret_and_no_file_is_read() -> None:
    files = {f"/cluster/secrets/x/{name}": b"old" for name in secret_sources.SECRETS}
    host = head(GIVEN, files, **EVERYTHING)
    for given in (host, head({}, **EVERYTHING)):
        assert not munge.lacks_key(given)
        assert not slurmdbd.lacks_password(given)
        assert not backup.lacks_password(given)
        assert secret_sources.is_known(given, jwt_keys.COMMANDS)
        assert restore.reading_objection(given) == ""
        assert given.asked == []
    assert munge.key_files(host)[0]["secret"] == base64.b64encode(KEY).decode()
    assert base64.b64decode(backup.password(host)) == b"other\n"
    assert rest.key_files(host)[0]["secret"] == base64.b64encode(KEY[:64]).decode()
    assert secret_sources.secret(host, "mail_password") == b"third\n"


def test_the_backup_has_no_secrets_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/munge.key").write_bytes(b"old key")
    variables: dict[str, Any] = {"slurm_cluster_dir": str(tmp_path), "slurm_secrets_dir": str(tmp_path / "secrets")}
    (file,) = backup.control_files(cluster(**variables)["head"])
    assert b"old key" in base64.b64decode(file["secret"])
    (file,) = backup.control_files(head({}, **variables))
    assert b"old key" not in base64.b64decode(file["secret"])


def test_variables_of_restic_are_asked_for_where_the_target_is_a_service() -> None:
    for target, names in (("/srv/backup", []), ("sftp:a:/b", []), ("s3:https://h/b", ["x/backup.env"])):
        host = head(GIVEN, slurm_backup={"target": target})
        backup.settings_files(host)
        assert [command[-1] for command in host.asked if "env" in command[-1]] == names


# -- preflight -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, ["munge.key", "slurmdbd_storage_pass"]),
        ({"slurm_database": ""}, ["munge.key"]),
        ({"slurm_image": "build"}, []),
        ({"slurm_backup": {"target": "/srv"}}, ["munge.key", "slurmdbd_storage_pass", "backup_password"]),
        (EVERYTHING, list(secret_sources.SECRETS)),
    ],
)
def test_what_a_cluster_needs(variables: dict[str, Any], names: list[str]) -> None:
    host = head(GIVEN, __slurm_facts={}, **variables)
    assert sorted(secret_checks.needed(host)) == sorted(names)


def test_everything_that_is_missing_is_one_error() -> None:
    given = {"x/munge.key": base64.b64encode(KEY), "x/slurmdbd_storage_pass": b'"xyz one"\nuser: slurm\n'}
    host = head(given, slurm_rest=REST, slurm_backup={"target": "/srv/backup"})
    (error,) = secret_checks.command_errors(host)
    assert error.split("\n") == [
        "slurm_secrets_command has not given these secrets:",
        "  jwt_hs256.key: pass show x/jwt_hs256.key: ended with 1: no such entry",
        "  backup_password: pass show x/backup_password: ended with 1: no such entry",
        "  slurmdbd_storage_pass: found a newline (character 10), allowed: one line without tabs and control "
        "characters",
        "A new cluster needs new secrets. What makes one, for your store (docs/admin/secrets.md):",
        "  jwt_hs256.key: head -c 64 /dev/urandom | base64 --wrap=0",
        "  backup_password: cat /proc/sys/kernel/random/uuid",
        "A cluster that runs keeps its own: take them from its hosts, as the page says.",
    ]
    assert "xyz" not in error


def test_the_command_is_asked_when_everything_else_is_right() -> None:
    host = head({})
    assert preflight.objections(host)[0].startswith("slurm_secrets_command has not given")
    host = head({}, slurm_containers=["pyxis"])
    assert "pyxis without enroot" in preflight.objections(host)[0]
    assert host.asked == []
    assert preflight.objections(head(GIVEN, slurm_backup=BACKUP, slurm_rest=REST)) == []


def test_the_arguments_of_modules_must_not_become_files() -> None:
    host = head(GIVEN)
    host.writes = True
    (error,) = secret_checks.command_errors(host)
    assert "pipelining = True" in error
    assert host.asked == []
    assert list(secret_checks.command_errors(host.set(slurm_secrets_command=[]))) == []


def test_files_that_nobody_reads_are_named() -> None:
    files = {"/cluster/secrets/x/munge.key": b"k"}
    (warning,) = secret_checks.warnings(head(GIVEN, files))
    assert "/cluster/secrets/x/munge.key. Remove" in warning
    assert list(secret_checks.warnings(head(GIVEN))) == []
    assert list(secret_checks.warnings(cluster(files)["head"])) == []
