# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches a tree for secrets and identities, which must not be in an image. It shows paths and kinds, no content."""

from __future__ import annotations

import base64
import fnmatch
import glob
import hashlib
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..language.secret_forms import ANYWHERE

NAMES: tuple[tuple[str, str], ...] = (
    ("munge.key", "munge key"),
    ("munge.key.next", "munge key"),
    ("munge.key.previous", "munge key"),
    ("slurm.key", "key of Slurm"),
    ("slurm.jwks", "key of Slurm"),
    ("jwt_hs256.key", "key of Slurm"),
    ("slurmctld_http.key", "key of Slurm"),
    ("slurmctld.token", "key of Slurm"),
    ("ssh_host_*_key", "ssh host key"),
    ("tls.key", "private key"),
    ("*.keytab", "key of Kerberos"),
    ("*.jks", "store of keys"),
    ("*.p12", "store of keys"),
    ("*.pfx", "store of keys"),
    (".netrc", "credentials"),
    ("netrc", "credentials"),
    (".credentials", "credentials"),
    (".git-credentials", "credentials"),
    (".pgpass", "credentials"),
    (".vault-token", "credentials"),
    ("application_default_credentials.json", "credentials of a cloud"),
    ("credentials.db", "credentials of a cloud"),
    ("msal_token_cache*", "credentials of a cloud"),
    (".msmtprc", "credentials"),
    ("authorized_keys", "keys of users who may log in"),
)
"""Names of files that are not empty, in any directory, and what they have."""

REMARKS = ("keys of users who may log in",)
"""Kinds that a site may want in its image."""

PATHS: tuple[tuple[str, str], ...] = (
    ("var/lib/systemd/random-seed", "random seed"),
    ("var/lib/systemd/credential.secret", "key of systemd's credentials"),
    ("var/lib/cloud/instances", "identity that a cloud has given"),
    ("etc/apt/auth.conf", "credentials"),
    ("etc/apt/auth.conf.d", "credentials"),
    # What roles of this collection write under other names than those of NAMES.
    ("etc/docker/registry/upstream.env", "credentials of a registry"),
    ("etc/gpucluster-slurm/backup/control.tar", "secrets of the cluster"),
    ("etc/gpucluster-slurm/backup/environment", "credentials of the backup"),
    ("etc/gpucluster-slurm/backup/password", "key of the backup"),
    ("etc/gpucluster-slurm/machines/password", "password of the machines"),
    ("etc/gpucluster-slurm/mail/password", "password of the mail relay"),
    ("etc/gpucluster-slurm/prometheus/alertmanager.yml", "credentials of receivers of alerts"),
    ("etc/gpucluster-slurm/report/administrators", "passwords of users"),
    ("etc/gpucluster-slurm/report/users", "passwords of users"),
)
"""Files, and directories that are not empty."""

MACHINE_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
NO_MACHINE = (b"", b"uninitialized")
"""What systemd takes as no machine id (machine-id(5))."""

SHADOW = ("etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-", "etc/passwd", "etc/passwd-")

_BASE64_PEM = re.compile(rb"LS0tLS1CRUdJTi[A-Za-z0-9+/=\r\n \t]{40,200}")
"""Something in PEM form, in base64 once more."""

_ASSIGNED = re.compile(
    rb"""(?:passw(?:or)?d|passphrase|secret|token|(?:api|access|private)_?key)["']?[ \t]*[:=][ \t]*
    ["']?([A-Za-z0-9+/_.!%^&*?@~=-]{12,200})(?:["'\s,;]|\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A value of a configuration whose name says that it is secret."""

CONTENTS: tuple[tuple[tuple[bytes, ...], re.Pattern[bytes], str], ...] = (
    *((tuple(map(str.encode, words)), re.compile(form.encode()), name) for words, form, name in ANYWHERE),
    (
        (b"aws_secret_access_key", b"aws_session_token"),
        re.compile(rb"aws_(?:secret_access_key|session_token)[ \t]*[=:][ \t]*[\"']?[A-Za-z0-9/+=]", re.IGNORECASE),
        "credentials of a cloud",
    ),
    (
        (b"storagepass",),
        re.compile(rb"^[ \t]*StoragePass[ \t]*=[ \t]*\S", re.MULTILINE | re.IGNORECASE),
        "password of the database",
    ),
    ((b"$ansible_vault;",), re.compile(rb"^\$ANSIBLE_VAULT;", re.MULTILINE), "encrypted secret"),
    (
        (b"gho_", b"ghp_", b"ghr_", b"ghs_", b"ghu_", b"github_pat_", b"glpat-", b"xox", b"hf_", b"nvapi-"),
        re.compile(rb"\b(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|hf_|nvapi-)[\w-]{20,}"),
        "token",
    ),
    (
        (b"$1$", b"$2a$", b"$2b$", b"$2x$", b"$2y$", b"$5$", b"$6$", b"$7$", b"$y$", b"$gy$"),
        re.compile(rb"[:\s\"'=]\$(?:1|2[abxy]|5|6|7|y|gy)\$[./A-Za-z0-9$=,]{20,}"),
        "hash of a password",
    ),
)
"""What files have that are secrets, wherever they are: words in small letters, one of which they have, and the form."""

BEGINNINGS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    # PKCS 8, PKCS 1 and SEC 1 in DER: a sequence that begins with its version; PKCS 12 has version 3.
    (re.compile(rb"0(?:\x82..|\x81.|[\x10-\x7f])\x02\x01(?:\0[0\x02]|\x01\x04)", re.DOTALL), "private key"),
    (re.compile(rb"0\x82..\x02\x01\x03", re.DOTALL), "store of keys"),
    (re.compile(rb"\xfe\xed\xfe\xed\0\0\0"), "store of keys"),
    (re.compile(rb"\x05\x02\0\0.{2}\0.|\x05\x02\0\0\0", re.DOTALL), "key of Kerberos"),
)
"""How files begin that are keys."""

CONFIGURATION = ("etc/*", "home/*", "opt/*", "root/*", "srv/*", "usr/local/*")
NO_CONFIGURATION = ("*.c", "*.h", "*.html", "*.js", "*.md", "*.py", "*.pyc", "*.rst", "*.so", "*/locale/*", "*/doc/*")
"""Where the values of a configuration are looked at, and the files there that are none."""

LARGEST = 1 << 20
"""Bytes that are read at once. A key with its certificates is far smaller."""

RANDOM = 3.0
"""Bits of entropy of each letter of a value that a program has made; words have repeated letters."""

OVERLAP = 1 << 13
"""Bytes that are looked at again with the next ones."""

KERNEL = ("proc", "sys", "dev")
"""Directories with files of the kernel."""

OWN = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "vfat", "xfs", "zfs")
"""File systems that can be a part of the image. Others, such as a tmpfs, are mounted where it is built."""


@dataclass(frozen=True)
class ImageFinding:
    """What must not be in an image."""

    path: str
    kind: str

    @property
    def is_remark(self) -> bool:
        """Whether an image may have it."""
        return self.kind in REMARKS

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}"


def scan(root: str = "/") -> list[ImageFinding]:
    """What the tree has, by path. Raises OSError: the tree cannot be read.

    Files of packages are left out if they are as the package has them: nothing in them is a secret.
    """
    root = os.path.join(root, "")
    os.listdir(root)
    from_packages = _PackageFiles(root)
    found = [*_of_paths(root), *(found for path in _files(root) for found in _of_file(root, path, from_packages))]
    return sorted({*found}, key=lambda finding: (finding.path, finding.kind))


def _read(path: str) -> bytes:
    """The content of a small file; empty if it is too large, or not there."""
    try:
        if os.stat(path).st_size > LARGEST:
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _of_paths(root: str) -> Iterator[ImageFinding]:
    """Identities, and passwords of users."""
    for name, kind in PATHS:
        path = root + name
        if os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path)):
            yield ImageFinding(f"/{name}", kind)
    for name in MACHINE_IDS:
        if not os.path.islink(root + name) and _read(root + name).strip() not in NO_MACHINE:
            yield ImageFinding(f"/{name}", "machine id")
    for name in SHADOW:
        for line in _read(root + name).decode(errors="replace").split("\n"):
            user, _colon, rest = line.partition(":")
            if re.match(r"!*(?:\$|[A-Za-z0-9./_]{13}(?::|$))", rest):
                yield ImageFinding(f"/{name}", f"password of {user}")


def _files(root: str) -> Iterator[str]:
    """The paths of the files of the tree, without `root`."""
    foreign = _foreign_mounts() if root == "/" else set()
    for directory, names, files in os.walk(root):
        names[:] = [
            name
            for name in names
            if os.path.join(directory, name) not in foreign and not (directory == root and name in KERNEL)
        ]
        for name in files:
            yield os.path.join(directory, name)[len(root) :]


def _foreign_mounts() -> set[str]:
    """Where file systems are mounted that are no part of the image."""
    found = set()
    for line in _read("/proc/self/mountinfo").decode(errors="replace").split("\n"):
        before, _dash, after = line.partition(" - ")
        if after and after.split()[0] not in OWN:
            found.add(before.split()[4].replace("\\040", " "))
    return found


def _of_file(root: str, name: str, packages: _PackageFiles) -> Iterator[ImageFinding]:
    """What a file has, by its name and its content."""
    path = root + name
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) or not status.st_size or name in SHADOW:
        return
    # Checksums are faster than patterns. The large files of packages are libraries.
    if packages.has(name) or (status.st_size > LARGEST and packages.checksums(name)):
        return
    base = os.path.basename(name)
    kinds = {kind for pattern, kind in NAMES if fnmatch.fnmatchcase(base, pattern)}
    yield from (ImageFinding(f"/{name}", kind) for kind in kinds or {*_of_content(path, name)})


def _of_content(path: str, name: str) -> Iterator[str]:
    """The kinds of secrets in a file."""
    looked_at = any(fnmatch.fnmatchcase(name, pattern) for pattern in CONFIGURATION)
    configuration = looked_at and not any(fnmatch.fnmatchcase(name, pattern) for pattern in NO_CONFIGURATION)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST)
            yield from (kind for pattern, kind in BEGINNINGS if pattern.match(content))
            while content:
                small = content.lower()
                for words, pattern, kind in CONTENTS:
                    if any(word in small for word in words) and pattern.search(content):
                        yield kind
                if any(b"PRIVATE KEY" in _decoded(found) for found in _BASE64_PEM.findall(content)):
                    yield "private key"
                if configuration and any(_is_random(value) for value in _ASSIGNED.findall(content)):
                    yield "secret of a configuration"
                further = file.read(LARGEST)
                content = content[-OVERLAP:] + further if further else b""
    except OSError:
        return


def _decoded(text: bytes) -> bytes:
    """The bytes of a text in base64 whose end was cut."""
    digits = b"".join(text.split()).rstrip(b"=")
    return base64.b64decode(digits[: len(digits) // 4 * 4])


def _is_random(value: bytes) -> bool:
    """Whether a value looks like one that a program has made: three kinds of letters, and few of them again."""
    if b"://" in value or value.startswith((b"/", b"./", b"~")):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in (rb"[0-9]", rb"[A-Z]", rb"[a-z]"))
    shares = [value.count(letter) / len(value) for letter in {*value}]
    return kinds == 3 and -sum(share * math.log2(share) for share in shares) >= RANDOM


class _PackageFiles:
    """The files of Debian's packages, with the checksums that these have for them (deb-md5sums(5)).

    The lists of all packages are read with the first question.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.known: dict[str, str] | None = None

    def checksums(self, name: str) -> set[str]:
        """The checksums of a file in packages; empty if it is of none."""
        if self.known is None:
            self.known = dict(self._sums())
        # A merged /usr: packages can have the file below /lib, where the tree has a link.
        return {self.known[path] for path in (name, name.removeprefix("usr/")) if path in self.known}

    def has(self, name: str) -> bool:
        """Whether a file is as its package has it."""
        sums = self.checksums(name)
        return bool(sums) and hashlib.md5(_read(self.root + name), usedforsecurity=False).hexdigest() in sums

    def _sums(self) -> Iterator[tuple[str, str]]:
        for path in glob.glob(f"{glob.escape(self.root)}var/lib/dpkg/info/*.md5sums"):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    checksum, _space, name = line.rstrip("\n").partition("  ")
                    yield name, checksum


def without(findings: Iterable[ImageFinding], accepted: Iterable[str]) -> list[ImageFinding]:
    """The findings without those whose paths are accepted, by name or by a pattern of fnmatch(3)."""
    patterns = [*accepted]
    return [found for found in findings if not any(fnmatch.fnmatchcase(found.path, pattern) for pattern in patterns)]
