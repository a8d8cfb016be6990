# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which directories of a host a value may name, by its purpose: one table for all keys and variables.

A directory that a program of the system owns would be hidden by a mount, given to users by an export, or emptied or
given another owner by the program that the value is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .characters import one_line

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
    **dict.fromkeys(("/cgroup", "/initrd", "/nonexistent", "/selinux", "/snap", "/sysimage", "/sysroot"), _SYSTEM),
    **dict.fromkeys(("/tmp", "/var/tmp"), "which all programs of a host have, and which is emptied"),
    **dict.fromkeys(
        ("/var/cache/apt", "/var/cache/debconf", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/ucf", "/var/lib/dkms"),
        "which apt and dpkg have",
    ),
    **{
        f"/var/cache/{name}": _SYSTEM
        for name in ("app-info", "apparmor", "fontconfig", "ldconfig", "man", "nscd", "private", "samba")
    },
    **{
        f"/var/lib/{name}": _SYSTEM
        for name in (
            *("AccountsService", "NetworkManager", "PackageKit", "apparmor", "ca-certificates", "chrony", "cloud"),
            *("dbus", "dhcp", "dhcpcd", "emacsen-common", "fwupd", "gdm3", "grub", "initscripts"),
            *("initramfs-tools", "krb5kdc", "ldap", "libuuid", "lldpd", "logrotate", "man-db", "misc"),
            *("nfs", "ntp", "ntpsec", "os-prober", "pam", "plymouth", "polkit-1", "portables", "postfix", "private"),
            *("python", "rpm", "samba", "sgml-base", "snapd", "sntp", "sss", "sudo", "systemd", "tpm2-tss", "udisks2"),
            *("unattended-upgrades", "update-manager", "update-notifier", "vmware", "xkb", "xml-core"),
        )
    },
    **{
        f"/var/log/{name}": _SYSTEM
        for name in ("apt", "audit", "chrony", "installer", "journal", "munge", "mysql", "private", "sssd", "sysstat")
    },
    **{f"/var/spool/{name}": _SYSTEM for name in ("anacron", "at", "cron", "exim4", "mail", "postfix", "rsyslog")},
    **dict.fromkeys(("/var/account", "/var/db", "/var/empty", "/var/mail", "/var/yp"), _SYSTEM),
    "/var/lib/munge": "which munge has",
    "/var/lib/mysql": "which MariaDB has",
    "/var/cache/gpucluster-slurm": "which this collection has",
    "/var/lib/gpucluster-slurm": "which this collection has",
    **dict.fromkeys(("/var/lib/slurm", "/var/lib/slurm-llnl", "/var/log/slurm", "/var/log/slurm-llnl"), _SLURM),
    **dict.fromkeys(("/var/lib/slurmctld", "/var/lib/slurmd", "/var/lib/slurmdbd"), _SLURM),
    **dict.fromkeys(("/var/spool/slurm", "/var/spool/slurm-llnl", "/var/spool/slurmctld", "/var/spool/slurmd"), _SLURM),
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
_ONE_USER = re.compile(r"%h(?:/(?:[A-Za-z0-9._+@~-]|%[uU])+)+|(?:/[A-Za-z0-9._+@~-]+)+/(?:[A-Za-z0-9._+@~-]*-)?%[uU]")
_ANY = re.compile(r"(?:/[^/]+)+")


@dataclass(frozen=True)
class Purpose:
    """What a directory is for, and what follows from it."""

    form: re.Pattern[str]
    allowed: str
    """The form, for messages."""
    example: str
    parts: int = 1
    """How many parts the path has at least."""
    below: tuple[str, ...] = ()
    """Those of TREES, or directories in them, below which this purpose may be."""
    kept: tuple[str, ...] = ()
    """Directories in `below` that stay forbidden."""
    itself: tuple[str, ...] = ()
    """Those of TREES and TOPS, or directories in them, that it may be."""
    not_itself: tuple[str, ...] = ()
    """Directories that it must not be."""
    not_in: tuple[str, ...] = ()
    """Directories that must not be its parent."""
    around: bool = True
    """Whether it may be above a directory of others."""
    disk: str = ""
    """The file system that it needs: `node`, one of each node; `lasting`, one that a reboot does not empty."""


_ABSOLUTE = "an absolute path of letters, digits, and '._+@:~-' without '..'"
_WITHOUT_COLON = "of letters, digits, and '._+@~-' without '..'"
_OWN_OF_SLURM = (
    *("/var/lib/slurm", "/var/lib/slurm-llnl", "/var/lib/slurmctld", "/var/lib/slurmd"),
    *("/var/spool/slurm", "/var/spool/slurm-llnl", "/var/spool/slurmctld"),
)
_SPOOL = (*_OWN_OF_SLURM, "/var/spool/slurmd")
_OF_DAEMONS = (
    *("NetworkManager", "agetty.reload", "blkid", "chrony", "credentials", "cryptsetup", "dbus", "docker", "initctl"),
    *("lock", "log", "lvm", "mount", "munge", "mysqld", "network", "nscd", "polkit-1", "resolvconf", "rpcbind"),
    *("screen", "sendsigs.omit.d", "shm", "snapd", "ssh", "sshd", "sssd", "sudo", "systemd", "tmux", "udev", "user"),
    *("utmp", "gpucluster-slurm"),
)
_RUN = tuple(f"{top}/{name}" for top in ("/run", "/var/run") for name in _OF_DAEMONS)
_OF_SITES = ("/home", "/media", "/mnt", "/opt", "/srv")
_CONTROL = ("/etc", "/root", "/run", "/tmp", "/usr/local", "/var/tmp")
_NOT_CONTROL = ("/etc/pam.d", "/etc/ssh", "/etc/sudoers.d", "/etc/systemd", *_RUN)
_LOGS = ("/var/log/slurm", "/var/log/slurm-llnl")

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
        disk="node",
    ),
    "backup": Purpose(
        _OF_PASSWD, f"an absolute path {_WITHOUT_COLON}", "/srv/backup", not_itself=_OF_SITES, disk="lasting"
    ),
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
    "registry": Purpose(_PLAIN, _ABSOLUTE, "/srv/images", not_itself=_OF_SITES, disk="lasting"),
    "user": Purpose(
        _OF_USER,
        "an absolute path, or one that begins with %h/, of letters, digits, '._+@~-', %U and %u without '..'",
        "/scratch/%U",
        below=("/dev/shm", "/run", "/tmp", "/var/tmp"),
        kept=_RUN,
    ),
    # Role enroot gives the parent to all users of a login host, and removes the directory after a job.
    "one_user": Purpose(
        _ONE_USER,
        "below %h, or an absolute path that ends in a part with %U or %u, of letters, digits, '._+@~-' without '..'",
        "/scratch/%U",
        parts=2,
        below=("/dev/shm", "/run", "/tmp", "/var/tmp"),
        kept=_RUN,
        not_in=("/run", "/var/run", *_OF_SITES, *TOPS),
    ),
    # Slurm's own default is /var/spool.
    "state": Purpose(
        _ANY,
        "an absolute path",
        "/shared/slurm",
        below=_OWN_OF_SLURM,
        itself=(*_OWN_OF_SLURM, "/var/spool"),
        not_itself=_OF_SITES,
        disk="lasting",
    ),
    "spool": Purpose(
        _ANY,
        "an absolute path",
        "/var/spool/slurmd",
        below=(*_SPOOL, "/run"),
        kept=_RUN,
        itself=_SPOOL,
        not_itself=_OF_SITES,
        disk="node",
    ),
    # Files that daemons write, slurmd as root.
    "log": Purpose(
        _ANY,
        "an absolute path",
        "/var/log/slurm/slurmctld.log",
        parts=2,
        below=(*_LOGS, *_SPOOL),
        itself=("/dev/null",),
    ),
    "pid": Purpose(
        _ANY, "an absolute path", "/run/slurmctld.pid", parts=2, below=(*_SPOOL, "/run", "/var/run"), kept=_RUN
    ),
    "archive": Purpose(
        _ANY,
        "an absolute path",
        "/srv/archive",
        below=(*_SPOOL, "/tmp", "/var/tmp"),
        itself=("/tmp", "/var/tmp"),
        not_itself=_OF_SITES,
    ),
    # slurmd only reads how large its file system is.
    "local": Purpose(
        *(re.compile(f"/|{_ANY.pattern}"), "an absolute path", "/tmp"),
        below=("/dev/shm", "/tmp", "/var/tmp"),
        itself=("/", "/dev/shm", "/tmp", "/var/tmp"),
    ),
    "cgroups": Purpose(
        *(re.compile(r"/(?:sys/fs/|dev/)?cgroup(?:/[a-z0-9_,]+)*"), "the directory of cgroups", "/sys/fs/cgroup"),
        below=("/cgroup", "/dev", "/sys"),
        itself=("/cgroup",),
    ),
    # Directories of the control host, where the rest of the system is not the collection's.
    "secrets": Purpose(_ANY, "an absolute path", "/home/admin/cluster/secrets", below=_CONTROL, kept=_NOT_CONTROL),
    "report": Purpose(
        _ANY, "an absolute path", "/home/admin/cluster/report", below=_CONTROL, kept=_NOT_CONTROL, not_itself=_OF_SITES
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
    if not _has_form(path, parts, use):
        return f"allowed: {_described(use)}"
    reason = _keys_reason(parts) or _others_reason(path, use, others or {}) or _system_reason(path, parts, use)
    return f"{reason}, {_another(use)}" if reason else ""


def _has_form(path: str, parts: Sequence[str], use: Purpose) -> bool:
    """Whether a path has the form of a purpose."""
    in_one_spelling = not {".", ".."} & {*parts} and all(part == part.strip() for part in parts)
    long_enough = len(parts) >= use.parts or path in TREES
    return bool(use.form.fullmatch(path)) and in_one_spelling and long_enough


def _keys_reason(parts: Iterable[str]) -> str:
    """Why a path with these parts is no place for others, if it is one for keys; else empty."""
    secret = [part for part in parts if part in SECRET_PARTS]
    return f"where {secret[0]} has keys" if secret else ""


def _others_reason(path: str, use: Purpose, others: Mapping[str, str]) -> str:
    """Why a path is that of others, of which each has its own reason; else empty."""
    for top, why in others.items():
        if within(path, top) or (within(top, path) and not use.around):
            return why
    return ""


def _system_reason(path: str, parts: Sequence[str], use: Purpose) -> str:
    """Why the system needs a path for something else; empty if the purpose may have it."""
    if path in use.itself:
        return ""
    parent = path.rpartition("/")[0]
    if parent in use.not_in:
        return f"in {parent}, which would be given to all users"
    if path in TOPS or path in use.not_itself:
        return TOPS.get(path, "which is for others as well")
    places = ("/".join(["", *parts[:end]]) for end in range(1, len(parts) + 1))
    tree = next((place for place in places if place in TREES), None)
    return "" if tree is None or _excepted(path, use) else TREES[tree]


def _described(use: Purpose) -> str:
    return f"{use.allowed}{',' if ',' in use.allowed else ''} such as {use.example}"


def _another(use: Purpose) -> str:
    return f"allowed: another directory such as {use.example}"


def _excepted(path: str, use: Purpose) -> bool:
    """Whether a purpose may use a directory in one of TREES."""
    return any(path != top and within(path, top) for top in use.below) and not any(
        within(path, top) for top in use.kept
    )


OF_SLURM: dict[str, str] = {
    "StateSaveLocation": "state",
    "SlurmdSpoolDir": "spool",
    **dict.fromkeys(("SlurmctldLogFile", "SlurmdLogFile", "SlurmSchedLogFile"), "log"),
    **dict.fromkeys(("SlurmctldPidFile", "SlurmdPidFile"), "pid"),
    "TmpFS": "local",
}
"""Parameters of slurm.conf with a path that daemons write or measure, with its purpose ("fully qualified pathname")."""

OF_SLURMDBD: dict[str, str] = {"LogFile": "log", "PidFile": "pid", "ArchiveDir": "archive"}
"""The same for slurmdbd.conf."""


@dataclass(frozen=True)
class Use:
    """A directory that one part of a cluster file or a variable names, and that nothing else can have."""

    key: str
    path: str
    purpose: str
    description: str
    """What messages call it, after `with`."""
    of_each_node: bool = False
    """Whether a pattern of slurm.conf(5) in the path, such as %n, gives each node a directory below it."""


def uses_of_slurm(slurm_conf: Mapping[str, Any]) -> list[Use]:
    """The directories that slurm.conf gives to Slurm's daemons. A part with a pattern, and the rest, are left out."""
    found = []
    for name in ("StateSaveLocation", "SlurmdSpoolDir"):
        path, pattern, _rest = str(slurm_conf.get(name) or "").partition("/%")
        if path.startswith("/"):
            found.append(Use(f"slurm_conf.{name}", path, OF_SLURM[name], f"Slurm's {name}", bool(pattern)))
    return found


def taken_directories(uses: Iterable[Use]) -> dict[str, str]:
    """The directories of these uses, with why nothing else can have them."""
    return {use.path: f"with {use.description}" for use in uses}


def shared_uses(uses: Sequence[Use], one_host: bool) -> Iterator[tuple[Use, str]]:
    """The uses that would write or remove the files of one before them, with why.

    Neither can be in the directory of the other. slurmctld and slurmd only need different directories, as Slurm's
    defaults have them (/var/spool and /var/spool/slurmd), and none on different hosts.

    one_host: whether slurmctld and slurmd run on one host.
    """
    for i, use in enumerate(uses):
        for other in uses[:i]:
            inside = within(use.path, other.path) or within(other.path, use.path)
            if inside and (use.purpose != "spool" or (use.path == other.path and one_host)):
                yield use, f"with {other.description}, {_another(PURPOSES[use.purpose])}"
                break


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
