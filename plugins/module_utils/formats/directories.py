# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which directories of a host a value may name, by its purpose: one table for all keys and variables.

A directory that a program of the system owns would be hidden by a mount, given to users by an export, or emptied or
given another owner by the program that the value is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.characters import one_line

LONGEST = 1024
"""Bytes of a path. Linux takes 4,095 (PATH_MAX), of which the program that uses the directory needs some."""

LONGEST_PART = 200
"""Bytes of a part of a path. Linux takes 255 (NAME_MAX); systemd escapes a path into the name of one file."""

_SYSTEM = "which the system needs"
_SLURM = "which Slurm has"

TREES: dict[str, str] = {
    **dict.fromkeys(
        ("/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found"), _SYSTEM
    ),
    **dict.fromkeys(("/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/lock", "/var/run"), _SYSTEM),
    **dict.fromkeys(("/tmp", "/var/tmp"), "which all programs of a host have, and which is emptied"),
    **dict.fromkeys(
        ("/var/cache/apt", "/var/cache/debconf", "/var/lib/apt", "/var/lib/dpkg"), "which apt and dpkg have"
    ),
    **dict.fromkeys(("/var/lib/ucf", "/var/lib/dkms"), "which apt and dpkg have"),
    **dict.fromkeys(("/var/lib/dbus", "/var/lib/pam", "/var/lib/polkit-1", "/var/lib/private"), _SYSTEM),
    **dict.fromkeys(("/var/lib/sss", "/var/lib/systemd", "/var/lib/nfs", "/var/log/journal"), _SYSTEM),
    **dict.fromkeys(("/var/mail", "/var/spool/cron", "/var/spool/mail"), _SYSTEM),
    "/var/lib/munge": "which munge has",
    "/var/lib/mysql": "which MariaDB has",
    "/var/cache/gpucluster-slurm": "which this collection has",
    "/var/lib/gpucluster-slurm": "which this collection has",
    **dict.fromkeys(("/var/lib/slurm", "/var/lib/slurm-llnl", "/var/log/slurm"), _SLURM),
    **dict.fromkeys(("/var/spool/slurm", "/var/spool/slurmctld", "/var/spool/slurmd"), _SLURM),
}
"""Directories that no value may name, with all that is below them, and why."""

TOPS: dict[str, str] = dict.fromkeys(
    ("/", "/var", "/var/backups", "/var/cache", "/var/lib", "/var/local", "/var/log", "/var/opt", "/var/spool"), _SYSTEM
)
"""Directories that no value may name. Others below them are possible."""

SECRET_PARTS = (".ssh", ".gnupg")
"""Parts of a path below which are keys, in every home."""

_PLAIN = re.compile(r"(?:/[A-Za-z0-9._+@:~-]+)+")
_OF_PASSWD = re.compile(r"(?:/[A-Za-z0-9._+@~-]+)+")
_OF_USER = re.compile(r"(?:%h)?(?:/(?:[A-Za-z0-9._+@~-]|%[uU])+)+")
_ANY = re.compile(r"(?:/[^/]+)+")

_OWN_OF_SLURM = ("/var/lib/slurm", "/var/lib/slurm-llnl", "/var/spool/slurm", "/var/spool/slurmctld")


@dataclass(frozen=True)
class Purpose:
    """What a directory is for, and what follows from it."""

    form: re.Pattern[str]
    allowed: str
    """The form in words."""
    example: str
    parts: int = 1
    """How many parts the path has at least."""
    below: tuple[str, ...] = ()
    """Those of TREES, or directories in them, below which this purpose may be."""
    kept: tuple[str, ...] = ()
    """Directories in `below` that stay forbidden."""
    itself: tuple[str, ...] = ()
    """Those of TREES and TOPS, or directories in them, that it may be."""
    around: bool = True
    """Whether it may be above a directory of others."""


_ABSOLUTE = "an absolute path of letters, digits, and '._+@:~-' without '..'"
_WITHOUT_COLON = "of letters, digits, and '._+@~-' without '..'"
_OWN_OF_SLURM = ("/var/lib/slurm", "/var/lib/slurm-llnl", "/var/spool/slurm", "/var/spool/slurmctld")
_SPOOL = (*_OWN_OF_SLURM, "/var/spool/slurmd")
_OF_DAEMONS = ("credentials", "dbus", "initctl", "lock", "munge", "mysqld", "ssh", "sshd", "systemd", "udev", "user")
_RUN = tuple(f"/run/{name}" for name in _OF_DAEMONS)

PURPOSES: dict[str, Purpose] = {
    "mount": Purpose(_PLAIN, _ABSOLUTE, "/home, /data or /srv/home", below=_SPOOL, itself=_SPOOL),
    "export": Purpose(_PLAIN, _ABSOLUTE, "/srv/home"),
    "bind": Purpose(_PLAIN, _ABSOLUTE, "/srv/data"),
    "private_tmp": Purpose(
        _OF_PASSWD,
        f"a directory of its own below a file system of the node, {_WITHOUT_COLON}",
        "/local/jobs",
        parts=2,
        around=False,
    ),
    "backup": Purpose(_OF_PASSWD, f"an absolute path {_WITHOUT_COLON}", "/srv/backup"),
    "home": Purpose(
        _OF_PASSWD,
        f"an absolute path below a directory of homes, {_WITHOUT_COLON}",
        "/home/alice",
        parts=2,
        around=False,
    ),
    "shell": Purpose(
        _OF_PASSWD, f"an absolute path {_WITHOUT_COLON}", "/bin/bash", parts=2, below=("/bin", "/sbin", "/usr")
    ),
    "registry": Purpose(_PLAIN, _ABSOLUTE, "/srv/images"),
    "user": Purpose(
        _OF_USER,
        "an absolute path, or one that begins with %h/, of letters, digits, '._+@~-', %U and %u without '..'",
        "/scratch/%U",
        below=("/dev/shm", "/run", "/tmp", "/var/tmp"),
        kept=_RUN,
    ),
    # Slurm's own default is /var/spool.
    "state": Purpose(
        _ANY, "an absolute path", "/shared/slurm", below=_OWN_OF_SLURM, itself=(*_OWN_OF_SLURM, "/var/spool")
    ),
    "spool": Purpose(_ANY, "an absolute path", "/var/spool/slurmd", below=(*_SPOOL, "/run"), kept=_RUN, itself=_SPOOL),
    # A directory of the control host, where the rest of the system is not the collection's.
    "secrets": Purpose(
        _ANY,
        "an absolute path",
        "/home/admin/cluster/secrets",
        below=("/etc", "/root", "/run", "/tmp", "/usr/local", "/var/tmp"),
        kept=("/etc/pam.d", "/etc/ssh", "/etc/sudoers.d", "/etc/systemd", *_RUN),
    ),
}
"""Each purpose. docs/admin/cluster-file.md has the keys and variables of each."""


def within(path: str, top: str) -> bool:
    """Whether a path is a directory, or below it."""
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def directory_error(path: str, purpose: str, others: Mapping[str, str] | None = None) -> str:
    """Why a directory cannot be used, as `..., allowed: ...`; empty if it can.

    Args:
        path: an absolute path in its only spelling: no `..`, no `//`, no `/` and no blank at its end.
        purpose: a key of PURPOSES.
        others: further directories that it must neither be nor be in, such as StateSaveLocation, with why. A home and
            a private /tmp must not be above them either.
    """
    use = PURPOSES[purpose]
    try:
        one_line(path)
    except ValueError as error:
        return str(error)
    parts = path.split("/")[1:]
    if len(path.encode()) > LONGEST or any(len(part.encode()) > LONGEST_PART for part in parts):
        return f"a path of {len(path.encode())} bytes, allowed: up to {LONGEST}, and {LONGEST_PART} for each part of it"
    ends = [part for part in parts if part != part.strip()]
    if not use.form.fullmatch(path) or {".", ".."} & {*parts} or ends or (len(parts) < use.parts and path not in TREES):
        return f"allowed: {_described(use)}"
    if secret := [part for part in parts if part in SECRET_PARTS]:
        return f"where {secret[0]} has keys, {_another(use)}"
    for top, why in (others or {}).items():
        if within(path, top) or (within(top, path) and not use.around):
            return f"{why}, {_another(use)}"
    if path in use.itself:
        return ""
    if path in TOPS:
        return f"{TOPS[path]}, {_another(use)}"
    trees = [top for top in ("/".join(["", *parts[:end]]) for end in range(1, len(parts) + 1)) if top in TREES]
    if trees and not _excepted(path, use):
        return f"{TREES[trees[0]]}, {_another(use)}"
    return ""


def _described(use: Purpose) -> str:
    return f"{use.allowed}{',' if ',' in use.allowed else ''} such as {use.example}"


def _another(use: Purpose) -> str:
    return f"allowed: another directory such as {use.example}"


def _excepted(path: str, use: Purpose) -> bool:
    """Whether a purpose may use a directory in one of TREES."""
    return any(path != top and within(path, top) for top in use.below) and not any(
        within(path, top) for top in use.kept
    )


def own_directories(slurm_conf: Mapping[str, Any]) -> dict[str, str]:
    """The directories that slurm.conf gives to Slurm's daemons, with why nothing else can have them.

    A part with a pattern of slurm.conf(5), such as %n, and what is below it, are left out.
    """
    found = {}
    for name in ("StateSaveLocation", "SlurmdSpoolDir"):
        path = str(slurm_conf.get(name) or "").partition("/%")[0]
        if path.startswith("/"):
            found[path] = f"with Slurm's {name}"
    return found


def directory_for(purpose: str) -> Callable[[Any], str]:
    """The check of a directory for a purpose, which returns it, or raises ValueError with what is allowed."""

    def typed(value: Any) -> str:
        """The directory."""
        if not isinstance(value, str):
            raise ValueError(f"allowed: {_described(PURPOSES[purpose])}")
        if error := directory_error(value, purpose):
            raise ValueError(error)
        return value

    return typed
