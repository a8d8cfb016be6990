# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a variable names and that all users of a host can read: what must not be in them is not copied."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import registry, report_server, rest
from certificates import pair, write_pair
from plain_host import GROUPS, PlainHost, cluster

CERTIFICATE, KEY = pair()
OTHER_CERTIFICATE, OTHER_KEY = pair("other")
BODY = KEY.split(b"-----")[2]
SSH = (
    b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + base64.encodebytes(b"openssh-key-v1\0" + 90 * b"k") + b"-----END-----\n"
)
SHADOW = (
    b"root:*:20000:0:99999:7:::\nalice:$y$j9T$wJ8ZkXqv3bM1$0123456789abcdefghijklmnopqrstuvwxyzABCDEFG:20000::::::\n"
)
PGP = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + 3 * (64 * b"m" + b"\n") + b"-----END PGP PUBLIC KEY BLOCK-----\n"
PRIVATE_PGP = PGP.replace(b"PUBLIC", b"PRIVATE")

KEYS = {
    "its key": CERTIFICATE + KEY,
    "its key first": KEY + CERTIFICATE,
    "a key of RSA": CERTIFICATE + KEY.replace(b"PRIVATE", b"RSA PRIVATE"),
    "an encrypted key": CERTIFICATE + KEY.replace(b"PRIVATE", b"ENCRYPTED PRIVATE"),
    "a key of OpenSSH": CERTIFICATE + SSH,
    "a key of PGP": CERTIFICATE + PRIVATE_PGP,
    "a key with lines of Windows": (CERTIFICATE + KEY).replace(b"\n", b"\r\n"),
    "an indented key": CERTIFICATE + KEY.replace(b"\n", b"\n   "),
    "a key in JSON": CERTIFICATE + b'{"key": "' + KEY.replace(b"\n", b"\\n") + b'"}\n',
    "a hash of a password": CERTIFICATE + SHADOW,
}
NO_CERTIFICATE = {
    "a key alone": KEY,
    "/etc/shadow": SHADOW,
    "nothing": b"",
    "a page": b"<html><body>404 Not Found</body></html>\n",
    "a request": CERTIFICATE.replace(b"CERTIFICATE", b"CERTIFICATE REQUEST"),
    "a public key": CERTIFICATE.replace(b"CERTIFICATE", b"PUBLIC KEY"),
    "half a certificate": CERTIFICATE[: len(CERTIFICATE) // 2],
    "other data": b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(90 * b"x") + b"-----END CERTIFICATE-----\n",
    "binary data": base64.b64decode(b"".join(CERTIFICATE.split(b"\n")[1:-2])),
}
RIGHT = {
    "a certificate": CERTIFICATE,
    "a chain": CERTIFICATE + OTHER_CERTIFICATE,
    "lines of Windows": CERTIFICATE.replace(b"\n", b"\r\n"),
    "text before": b"Bag Attributes\n    friendlyName: login\nsubject=CN = login\n" + CERTIFICATE,
}
ANSIBLE = {"full": "2.19.4", "major": 2, "minor": 19, "revision": 4}
ROLES: dict[str, dict[str, Any]] = {
    "slurm_report": {
        "slurm_report": {"host": "login", "readers": [], "password_file": "", "proxy": {}, "administrators": []}
    },
    "slurmrestd": {"slurm_rest": {"host": "login", "max_token_lifespan": 3600}},
    "registry": {"registry_name": "login", "registry_port": 5000, "registry_ca": ""},
}
OBJECTIONS = {
    "slurm_report": report_server.SERVER_ROLE.objections,
    "slurmrestd": rest.SERVER_ROLE.objections,
    "registry": registry.SERVER_ROLE.objections,
}


def server(role: str, directory: Path, **variables: Any) -> PlainHost:
    """The host of a server with the files of this directory."""
    options = {
        f"{role}_tls": True,
        f"{role}_certificate": f"{directory}/tls.crt",
        f"{role}_key": f"{directory}/tls.key",
    }
    files = {str(path): path.read_bytes() for path in directory.iterdir()}
    return cluster(files, groups=GROUPS, **{**ROLES[role], **options, **variables})["login"]


def objections(role: str, directory: Path, **variables: Any) -> str:
    """What preflight says of the server."""
    return "\n".join(OBJECTIONS[role](server(role, directory, **variables)))


def is_clean(text: str) -> bool:
    """Whether a message shows nothing of a secret."""
    return not any(line.strip().decode() in text for line in [*BODY.split(), b"wJ8ZkXqv3bM1"] if line.strip())


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", [*KEYS, *NO_CERTIFICATE])
def test_what_is_no_certificate_alone_is_refused(name: str, role: str, tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "tls.crt").write_bytes({**KEYS, **NO_CERTIFICATE}[name])
    found = objections(role, tmp_path)
    assert found.startswith(f"{role}_certificate: found {tmp_path}/tls.crt, ")
    assert is_clean(found)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_certificate_is_taken(name: str, role: str, tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "tls.crt").write_bytes(RIGHT[name])
    assert objections(role, tmp_path) == ""


@pytest.mark.parametrize("name", [*KEYS, *NO_CERTIFICATE])
def test_the_certificate_of_an_authority_is_one(name: str, tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "ca.crt").write_bytes({**KEYS, **NO_CERTIFICATE}[name])
    found = objections("registry", tmp_path, registry_ca=f"{tmp_path}/ca.crt")
    assert found.startswith(f"registry_ca: found {tmp_path}/ca.crt, ")
    assert is_clean(found)


@pytest.mark.parametrize("name", KEYS)
def test_what_vault_has_encrypted_is_no_certificate(name: str, tmp_path: Path) -> None:
    """A file is looked into again where its content is known: a run without preflight copies nothing either."""
    write_pair(tmp_path)
    host = server("slurm_report", tmp_path)
    host.files = {**host.files, f"{tmp_path}/tls.crt": KEYS[name]}
    with pytest.raises(ValueError, match="slurm_report_certificate") as error:
        report_server.front_files(host)
    assert is_clean(str(error.value))


@pytest.mark.parametrize("role", ROLES)
def test_a_key_is_that_of_the_certificate(role: str, tmp_path: Path) -> None:
    write_pair(tmp_path)
    for content, words in ((OTHER_KEY, "not the key of"), (CERTIFICATE, "no private key"), (b"", "no private key")):
        (tmp_path / "tls.key").write_bytes(content)
        found = objections(role, tmp_path)
        assert found.startswith(f"{role}_key: found {tmp_path}/tls.key, ")
        assert words in found


@pytest.mark.parametrize("name", [*KEYS, "a private key of PGP", "both keys of PGP", "nothing", "/etc/shadow"])
def test_the_key_of_a_repository_is_public(name: str, tmp_path: Path) -> None:
    given = {
        **{name: PGP + content for name, content in KEYS.items()},
        "a private key of PGP": PRIVATE_PGP,
        "both keys of PGP": PGP + PRIVATE_PGP,
        "nothing": b"",
        "/etc/shadow": SHADOW,
    }[name]
    (tmp_path / "key.asc").write_bytes(given)
    source = {"repository": "deb https://example.org/slurm stable main", "key": "key.asc"}
    host = cluster(
        {f"{tmp_path}/key.asc": given}, slurm_packages=source, slurm_cluster_dir=str(tmp_path), ansible_version=ANSIBLE
    )["head"]
    found = "\n".join(preflight.objections(host))
    assert "slurm_packages.key: found 'key.asc', " in found
    assert is_clean(found)
    with pytest.raises(ValueError, match=r"slurm_packages\.key") as error:
        packages.source_files(host)
    assert is_clean(str(error.value))


SECRET_LINES = {
    "a private key": f"cat <<'E'\n{KEY.decode()}E",
    "a key of OpenSSH": f"cat <<'E'\n{SSH.decode()}E",
    "a hash of a password": f"echo '{SHADOW.decode().splitlines()[1]}'",
    "credentials of a cloud": "export AWS_SECRET_ACCESS_KEY=wJ8ZkXqv3bM1wJ8ZkXqv3bM1wJ8ZkXqv3bM1wJ8Z",
    "a password in a URL": "curl https://monitor:wJ8ZkXqv3bM1@example.org/up",
    "a token": "export SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3OTl9.wJ8ZkXqv3bM1wJ8ZkXqv3bM1",
    "a password of the database": "mysql <<E\nStoragePass=wJ8ZkXqv3bM1\nE",
}
PUBLIC_LINES = {
    "a search for keys": "grep -r 'BEGIN PRIVATE KEY' /home && exit 1",
    "a name without a password": "curl https://example.org:8443/user@host",
    "a variable": 'curl "https://monitor:$PASSWORD@example.org/up"',
    "a file": 'AWS_SECRET_ACCESS_KEY=$(cat /root/key); export SLURM_JWT="$1"',
}


def checks_of(line: str) -> PlainHost:
    """A cluster with a health check of its own that has this line."""
    files = {"/checks/own": f"#!/bin/bash\n{line}\n".encode()}
    hosts = cluster(
        files, slurm_health_own_checks={"own": "/checks/own"}, slurm_health_checks=[], ansible_version=ANSIBLE
    )
    return hosts["head"]


@pytest.mark.parametrize("name", SECRET_LINES)
def test_a_check_that_all_can_read_has_no_secret(name: str) -> None:
    host = checks_of(SECRET_LINES[name])
    found = "\n".join(preflight.objections(host))
    assert "slurm_health_own_checks" in found
    assert "which all users of a host could read" in found
    assert is_clean(found)
    with pytest.raises(ValueError, match="slurm_health_own_checks") as error:
        slurm_health.own_check(host, "own", "/checks/own")
    assert is_clean(str(error.value))


@pytest.mark.parametrize("key", ["slurm_prologs", "slurm_epilogs", "slurm_files"])
@pytest.mark.parametrize("name", SECRET_LINES)
def test_a_script_that_all_can_read_has_no_secret(name: str, key: str) -> None:
    script = f"#!/bin/bash\n{SECRET_LINES[name]}\n"
    keys: dict[str, dict[str, Any]] = {
        "slurm_prologs": {"slurm_prologs": [{"name": "own.sh", "script": script}]},
        "slurm_epilogs": {"slurm_epilogs": [{"name": "own.sh", "script": script}]},
        "slurm_files": {"slurm_files": {"job_submit.lua": script}},
    }
    found = "\n".join(preflight.objections(cluster(ansible_version=ANSIBLE, **keys[key])["head"]))
    assert "own.sh" in found or "job_submit.lua" in found
    assert "which all users of a host could read" in found
    assert is_clean(found)


@pytest.mark.parametrize("name", PUBLIC_LINES)
def test_a_script_without_a_secret_is_taken(name: str) -> None:
    host = checks_of(PUBLIC_LINES[name])
    assert "could read" not in "\n".join(preflight.objections(host))
    assert slurm_health.own_check(host, "own", "/checks/own")["mode"] == "0755"
