# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scan of an image finds in a tree, and what it leaves out."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.shipped_files import COLLECTION
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import image_build
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import image_scan
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import scan_image

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
HEAD = "-----BEGIN PRIVATE KEY-----"
OPENSSH = "-----BEGIN OPENSSH PRIVATE KEY-----"

SECRETS: dict[str, tuple[str, str]] = {
    "etc/munge/munge.key": ("\1\2", "munge key"),
    "opt/copy/munge.key": ("\1\2", "munge key"),
    "etc/slurm/slurm.key": ("k", "key of Slurm"),
    "etc/slurm/slurm.jwks": ("{}", "key of Slurm"),
    "var/spool/jwt_hs256.key": ("k", "key of Slurm"),
    "etc/slurm/slurmdbd.conf": ("DbdHost=x\n storagepass = secret\n", "password of the database"),
    "etc/ssh/ssh_host_ed25519_key": (f"{OPENSSH}\n{BODY}\n", "ssh host key"),
    "root/deploy": (f"{OPENSSH}\n{BODY}\n", "private key"),
    "root/tls.pem": (f"# mine\n{HEAD}\r\n{BODY}\r\n", "private key"),
    "root/old.pem": (f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{BODY}\n", "private key"),
    "root/cloud.json": (f'{{"private_key": "{HEAD}\\n{BODY}\\n"}}', "private key"),
    "home/a/.aws/credentials": ("[x]\naws_secret_access_key=a\n", "credentials of a cloud"),
    "root/.docker/config.json": ('{"auths": {"x": {"auth": "YWxpY2U6c2VjcmV0"}}}', "credentials of a registry"),
    "etc/enroot/.credentials": ("machine x", "credentials"),
    "root/.netrc": ("machine x", "credentials"),
    "root/vars.yml": ("$ANSIBLE_VAULT;1.1;AES256\n", "encrypted secret"),
    "etc/machine-id": ("0" * 32 + "\n", "machine id"),
    "var/lib/systemd/random-seed": ("\3", "random seed"),
    "var/lib/cloud/instances/i-1/user-data.txt": ("x", "identity that a cloud has given"),
}

HARMLESS: dict[str, str] = {
    "etc/ssh/sshd_config": "HostKey /etc/ssh/ssh_host_ed25519_key\n",
    "usr/lib/x.so": f"{HEAD}\0-----END PRIVATE KEY-----",
    "usr/share/doc/keys": f"A key begins with {HEAD}\nand then has its text.\n",
    "etc/munge/munge.key.d": "",
    "etc/machine-id": "uninitialized\n",
    "etc/shadow": "root:*:1::::::\nalice:!:1::::::\nbob:!*:1::::::\n",
    "etc/gshadow": "root:*::\nadm:!::alice\n",
    "home/a/.netrc": "",
    "etc/slurm/slurm.conf": "ClusterName=x\n",
    "proc/1/environ": f"{HEAD}\n{BODY}\n",
}


def write(root: Path, name: str, content: str) -> None:
    """A file of the tree."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("latin-1"))


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_and_its_content_is_not_shown(tmp_path: Path, name: str) -> None:
    content, kind = SECRETS[name]
    write(tmp_path, name, content)
    found = image_scan.scan(str(tmp_path))
    assert [finding.kind for finding in found] == [kind]
    assert f"/{name}".startswith(found[0].path)
    assert BODY not in str(found[0])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_a_secret_is_not_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, HARMLESS[name])
    assert image_scan.scan(str(tmp_path)) == []


@pytest.mark.parametrize("password", ["$y$j9T$x$y", "$6$a$b", "!$6$a$b", "ab01FAX.bQRSU"])
def test_passwords_of_users_are_found_also_of_locked_ones(tmp_path: Path, password: str) -> None:
    write(tmp_path, "etc/shadow", f"root:*:1::::::\nalice:{password}:1::::::\n")
    assert [str(finding) for finding in image_scan.scan(str(tmp_path))] == ["/etc/shadow: password of alice"]


def test_keys_of_administrators_are_a_remark(tmp_path: Path) -> None:
    write(tmp_path, "root/.ssh/authorized_keys", "ssh-ed25519 AAAA\n")
    assert [finding.is_remark for finding in image_scan.scan(str(tmp_path))] == [True]


def test_a_key_of_a_package_counts_only_if_it_was_changed(tmp_path: Path) -> None:
    key, name = f"{HEAD}\n{BODY}\n", "usr/lib/python3/tests/server.key"
    write(tmp_path, name, key)
    assert len(image_scan.scan(str(tmp_path))) == 1
    checksum = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
    write(tmp_path, "var/lib/dpkg/info/tests.md5sums", f"{checksum}  {name}\n")
    assert image_scan.scan(str(tmp_path)) == []
    write(tmp_path, name, f"{key}\n")
    assert len(image_scan.scan(str(tmp_path))) == 1


def test_links_are_not_followed_out_of_the_tree(tmp_path: Path) -> None:
    write(tmp_path, "outside", f"{HEAD}\n{BODY}\n")
    (tmp_path / "tree/var/lib/dbus").mkdir(parents=True)
    (tmp_path / "tree/link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree/var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    assert image_scan.scan(str(tmp_path / "tree")) == []


@pytest.mark.parametrize(
    ("options", "status", "shown"),
    [
        ([], 1, "found  /etc/munge/munge.key: munge key\n"),
        (["--accept", "/etc/munge/*"], 0, ""),
        (["--accept", "/etc/other"], 1, "found  /etc/munge/munge.key: munge key\n"),
    ],
)
def test_the_program_by_hand(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    shown: str,
) -> None:
    write(tmp_path, "etc/munge/munge.key", "\1")
    monkeypatch.setattr("sys.argv", ["slurm-image-scan", *options, str(tmp_path)])
    assert scan_image.main() == status
    assert capsys.readouterr() == (shown, "")


def test_a_tree_that_cannot_be_read_is_no_clean_image(tmp_path: Path) -> None:
    """By the command of docs/admin/images.md."""
    words = "import sys; from plugins.module_utils.programs.scan_image import main; sys.exit(main())"
    assert words in (COLLECTION / "docs/admin/images.md").read_text()
    command = [sys.executable, "-c", words, str(tmp_path / "none")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=COLLECTION)
    assert answer.returncode == 2
    assert "none" in answer.stderr


def test_the_scan_finds_nothing_in_itself(tmp_path: Path) -> None:
    """An image has the program, with the forms of secrets."""
    for file in image_build.files(cast(RunHost, None)):
        write(tmp_path, file["path"].lstrip("/"), file["content"])
    assert image_scan.scan(str(tmp_path)) == []
