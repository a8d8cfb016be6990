# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets that somebody leaves in an image: the collection's own, and those of sites in many forms."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import munge
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import (
    backup,
    prometheus,
    registry,
    report_server,
    rest,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import jwt_keys, mail
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import image_scan
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines import machine_settings
from certificates import pair

CERTIFICATE, KEY = pair()
DER = base64.b64decode(b"".join(KEY.split(b"\n")[1:-2]))
HASH = b"$y$j9T$wJ8ZkXqv3bM1wJ8ZkXqv3b$0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
JWT = b"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3OTk5OTk5OTl9.wJ8ZkXqv3bM1wJ8ZkXqv3bM1wJ8ZkXqv3bM1"
WORD = b"wJ8ZkXqv3bM1"

OWN = [
    *(munge.KEY, f"{munge.KEY}.next", f"{munge.KEY}.previous"),
    *(f"{backup.DIRECTORY}/password", f"{backup.DIRECTORY}/control.tar", backup.ENVIRONMENT, mail.PASSWORD),
    machine_settings.PASSWORD,
    *(prometheus.RECEIVERS, prometheus.TOKEN),
    *(f"{directory}/tls.key" for directory in (report_server.ACCESS, rest.DIRECTORY, registry.CONF_DIR)),
    *(f"{report_server.ACCESS}/users", f"{report_server.ACCESS}/administrators", f"{registry.CONF_DIR}/upstream.env"),
    *map(jwt_keys.host_path, (jwt_keys.COMMANDS, "slurmctld_http.key")),
]
"""All files with secrets that roles write, with anything in them."""

FORMS: dict[str, tuple[str, bytes]] = {
    "a key in YAML": ("root/site.yml", b"tls:\n  key: |\n    " + KEY.replace(b"\n", b"\n    ")),
    "a key in YAML with tabs": ("root/site.conf", KEY.replace(b"\n", b"\n\t")),
    "a key after a comment sign": ("root/x.conf", b"# " + KEY.replace(b"\n", b"\n# ")),
    "a key in base64": ("root/secret.yaml", b"data:\n  tls.key: " + base64.b64encode(KEY) + b"\n"),
    "a key in base64 with lines": ("root/secret.b64", base64.encodebytes(KEY)),
    "a key of RSA in base64": ("opt/x", base64.b64encode(KEY.replace(b"PRIVATE", b"RSA PRIVATE"))),
    "a key in DER": ("etc/ssl/site.der", DER),
    "a key in DER without a name": ("srv/x", DER),
    "a key store of Java": ("opt/app/keystore.jks", b"\xfe\xed\xfe\xed\0\0\0\2" + b"x" * 90),
    "a key store": ("root/site.p12", b"0\x82\x09\x00\x02\x01\x03" + b"x" * 90),
    "a keytab": ("etc/krb5.keytab", b"\x05\x02\0\0\0\x42" + b"x" * 66),
    "a keytab of another name": ("root/nfs", b"\x05\x02\0\0\0\x42\0\2\0\x0bEXAMPLE.ORG" + b"x" * 66),
    "credentials of apt": ("etc/apt/auth.conf.d/site.conf", b"machine x login y password " + WORD),
    "credentials of apt in one file": ("etc/apt/auth.conf", b"machine x login y password " + WORD),
    "a cloud in the environment": ("etc/environment", b"AWS_SECRET_ACCESS_KEY=" + 4 * WORD[:10] + b"\n"),
    "a cloud, exported": ("root/.bashrc", b"export AWS_SECRET_ACCESS_KEY='" + 4 * WORD[:10] + b"'\n"),
    "a session of a cloud": ("root/.profile", b"AWS_SESSION_TOKEN=" + 9 * WORD + b"\n"),
    "a token of Slurm": ("home/a/.bashrc", b"export SLURM_JWT=" + JWT + b"\n"),
    "a token in a file": ("home/a/token", JWT),
    "a hash in passwd": ("etc/passwd", b"root:x:0:0::/root:/bin/sh\nalice:" + HASH + b":5001:5001::/home/a:/bin/sh\n"),
    "an old hash in passwd": ("etc/passwd", b"alice:ab01FAX.bQRSU:5001:5001::/home/a:/bin/sh\n"),
    "a hash in a copy": ("root/passwd.bak", b"alice:" + HASH + b":5001:5001::/home/a:/bin/sh\n"),
    "a hash for cloud-init": ("etc/cloud/cloud.cfg.d/99.cfg", b"users:\n  - {name: a, passwd: " + HASH + b"}\n"),
    "a key in a large file": ("root/dump.sql", b"x\n" * (1 << 20) + KEY),
    "a key at the border of what is read": ("root/dump", b"x" * ((1 << 20) - 40) + b"\n" + KEY + b"y" * (1 << 20)),
    "a token in a large log": ("var/log/x.log", b"line\n" * 300000 + b"token " + JWT + b"\n"),
    "a password in a URL": ("etc/site.conf", b"url = https://monitor:" + WORD + b"@example.org/\n"),
    "a password of a program": ("etc/site.conf", b"[db]\npassword = " + WORD + b"Qq7\n"),
    "a password in YAML": ("opt/app/config.yaml", b"db_password: '" + WORD + b"Qq7'\n"),
    "a token of an interface": ("root/.config/tool.toml", b'api_token = "' + 3 * WORD + b'"\n'),
    "a token of a code forge": ("root/.gitconfig", b"[url]\n\tx = ghp_" + 3 * WORD + b"\n"),
}
HARMLESS: dict[str, tuple[str, bytes]] = {
    "a certificate": ("etc/ssl/certs/site.pem", CERTIFICATE),
    "a certificate in base64": ("etc/x.yaml", b"ca: " + base64.b64encode(CERTIFICATE)),
    "a certificate in DER": ("etc/x.der", base64.b64decode(b"".join(CERTIFICATE.split(b"\n")[1:-2]))),
    "users without hashes": ("etc/passwd", b"root:x:0:0::/root:/bin/sh\nsync:*:4:65534::/:/bin/sync\n"),
    "no password": ("etc/site.conf", b"password =\npassword = changeme\npassword_file = /etc/site/password\n"),
    "a variable": ("etc/site.sh", b'PASSWORD="$1"\nexport AWS_SECRET_ACCESS_KEY=$(cat /x)\nurl=https://u:$P@x/\n'),
    "a word": ("etc/pam.d/x", b"password requisite pam_deny.so\npassword [success=1] pam_unix.so obscure yescrypt\n"),
    "a name": ("etc/site.conf", b"secret_name: database-credentials\ntoken_url: https://example.org/token\n"),
    "a large file": ("var/x", b"x" * (3 << 20)),
}


def put(root: Path, name: str, content: bytes) -> None:
    """A file of the tree."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("name", OWN)
def test_a_secret_that_a_role_writes_is_found(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, b"any")
    assert [finding.path for finding in image_scan.scan(str(tmp_path))] == [name]


@pytest.mark.parametrize("name", FORMS)
def test_a_secret_of_a_site_is_found(tmp_path: Path, name: str) -> None:
    path, content = FORMS[name]
    put(tmp_path, path, content)
    found = image_scan.scan(str(tmp_path))
    assert found
    assert all(f"/{path}".startswith(finding.path) for finding in found)
    assert not any(WORD.decode() in str(finding) for finding in found)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_secret_is_not_found(tmp_path: Path, name: str) -> None:
    put(tmp_path, *HARMLESS[name])
    assert image_scan.scan(str(tmp_path)) == []
