# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the key `storage`: what is mounted, where, and whose files would be hidden or lost."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..formats.directory_purposes import PURPOSES, Use, directory_error, within
from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from .schema import Checker, unknown
from .storage_key import (
    AUTOFS,
    HOST_GROUPS,
    NFS,
    PACKAGE,
    STORAGE,
    StorageEntry,
    export_of,
    hosts_of,
    is_below,
    is_local,
)

_SECRET = re.compile(r"(?:pass|passwd|password|password2|secret)=")  # mount.cifs(8), mount.ceph(8)
_BINDS = ("bind", "rbind")
_NFS_SOURCE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):/\S*")


def check(
    checker: Checker,
    found: Sequence[Any],
    members: Mapping[str, Collection[str]],
    slurm_conf: Mapping[str, Any],
    uses: Sequence[Use] = (),
) -> list[StorageEntry]:
    """The checked entries of the key `storage`.

    members: the known hosts of each of HOST_GROUPS. uses: the directories that nothing else can have.
    """
    entries = [checker.check(STORAGE, f"storage[{i}]", value) for i, value in enumerate(found)]
    for i, (entry, value) in enumerate(zip(entries, found)):
        if isinstance(value, Mapping) and entry.get("type") == AUTOFS:
            _check_automount(checker, f"storage[{i}]", value)
            _check_hosts(checker, f"storage[{i}]", entry, members["all"])
        elif isinstance(value, Mapping):
            _check_server(checker, f"storage[{i}]", entry, value)
            _check_source(checker, f"storage[{i}]", entry)
            _check_options(checker, f"storage[{i}]", entry)
            _check_hosts(checker, f"storage[{i}]", entry, members["all"])
        if "packages" in entry:
            entry["packages"] = _check_packages(checker, f"storage[{i}].packages", entry["packages"])
    _check_places(checker, entries, members)
    _check_scratch(checker, entries, slurm_conf.get("TmpFS"))
    _check_exports(checker, entries, members, slurm_conf.get("StateSaveLocation"))
    _check_uses(checker, entries, members, uses)
    return entries


def _check_automount(checker: Checker, key: str, given: Mapping[str, Any]) -> None:
    """Check that an entry of the site's automounter says only where it mounts."""
    for name in given.keys() & {*STORAGE.own} - {"path", "type", "hosts"}:
        if given[name]:
            what = (
                f"found {shown(given[name])} with autofs, allowed: path and hosts, since the automounter has the rest"
            )
            checker.problem(f"{key}.{name}", what)


def _check_server(checker: Checker, key: str, entry: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that an entry says once what is mounted, and that its mount does not hide what its server exports."""
    kind, path, export = entry.get("type", ""), entry.get("path", ""), export_of(entry)
    origins = [name for name in ("source", "server") if given.get(name) is not None]
    if not origins and kind not in ("tmpfs", "ramfs", ""):
        what = "missing: say what is mounted, or name the server of this cluster that exports it"
        checker.problem(f"{key}.source", what)
    if len(origins) > 1:
        checker.problem(key, "found source and server, allowed: source, or server with export")
    if "export" in given and "server" not in given:
        checker.problem(f"{key}.export", "found without server, allowed: with a server of this cluster")
    if "server" in origins and kind not in ("", *NFS):
        what = "with server, allowed: nfs, since role nfs_server exports it"
        checker.problem(f"{key}.type", f"found {shown(kind)} {what}")
    if "server" in entry and path and is_below(export, path):
        what = f"found {shown(export)} below {path}, which its mount would hide on the server"
        checker.problem(f"{key}.export", what)


def _check_source(checker: Checker, key: str, entry: Mapping[str, Any]) -> None:
    """Check that the source and the options of an entry fit its type."""
    kind, source = entry.get("type", ""), entry.get("source")
    if kind in NFS and source is not None and not _NFS_SOURCE.fullmatch(source):
        checker.problem(f"{key}.source", f"found {shown(source)}, allowed: SERVER:/PATH")
    binds = [option for option in entry.get("options", []) if option in _BINDS]
    if kind == "none" and not binds:
        checker.problem(f"{key}.type", "found 'none', allowed: with option bind, for a directory of the host itself")
    elif kind in _BINDS:
        checker.problem(f"{key}.type", f"found {shown(kind)}, allowed: none, with option {kind}")
    elif binds and kind not in ("", "none"):  # mount(8) would ignore the type, and bind the source
        checker.problem(f"{key}.type", f"found {shown(kind)} with option {binds[0]}, allowed: none, or no {binds[0]}")
    if kind == "none" and source is not None and (error := directory_error(source, "bind")):
        checker.problem(f"{key}.source", f"found {shown(source)}, {error}")


def _check_options(checker: Checker, key: str, entry: StorageEntry) -> None:
    """Check options that lose data, or that contradict the purpose of a mount."""
    options = entry.get("options", [])
    soft = [option for option in options if option in ("soft", "softerr")]
    if entry.get("type") in NFS and soft and "ro" not in options:
        why = "after the time limit a program loses what it has written, often without an error"
        checker.problem(
            f"{key}.options", f"found {shown(soft[0])}: {why}; allowed: hard (the default), or {soft[0]} with ro"
        )
    for option in options:
        if secret := _SECRET.match(option):  # found: not its value
            why = f"found {secret[0]}, which is a secret, which all users of a host could read"
            where = "such as credentials=FILE of cifs or secretfile=FILE of ceph"
            checker.problem(f"{key}.options", f"{why}, allowed: a file of the hosts with it, {where}")
    for purpose in ("homes", "scratch"):
        if entry.get(purpose) and "ro" in options:
            checker.problem(f"{key}.options", f"found 'ro' with {purpose}, where users write, allowed: no ro")


def _check_hosts(checker: Checker, key: str, entry: StorageEntry, known: Collection[str]) -> None:
    """Check that the hosts of an entry, and its server, are hosts of the cluster."""
    for name, hosts in (("hosts", expand(entry.get("hosts", "all"))), ("server", expand(entry.get("server", "")))):
        groups = HOST_GROUPS if name == "hosts" else ()
        strange = [host for host in hosts if host not in known and host not in groups]
        if strange:
            allowed = ", ".join([*groups, "hosts of this cluster"])
            what = unknown("host", strange[0], [*known, *groups], allowed)
            checker.problem(f"{key}.{name}", f"found {shown(fold(strange))}, {what}")


def _check_packages(checker: Checker, key: str, found: list[Any]) -> list[dict[str, str]]:
    """The checked packages, each a name, a URL with its checksum, or a file."""
    entries = [checker.check(PACKAGE, f"{key}[{i}]", value) for i, value in enumerate(found)]
    for i, (entry, value) in enumerate(zip(entries, found)):
        if isinstance(value, Mapping) and len({"name", "url", "file"} & {*value}) != 1:
            checker.problem(
                f"{key}[{i}]", f"found {shown(sorted(map(str, value)))}, allowed: name, url with sha256, or file"
            )
        elif "url" in entry and "sha256" not in value:
            checker.problem(f"{key}[{i}].sha256", "missing")
    return entries


def _check_places(checker: Checker, entries: list[StorageEntry], members: Mapping[str, Collection[str]]) -> None:
    """Check that no host has two mounts on one path."""
    first: dict[str, list[tuple[int, set[str]]]] = {}
    for i, entry in enumerate(entries):
        hosts = set(hosts_of(entry, members))
        for j, others in first.setdefault(entry.get("path", ""), []):
            if entry.get("path") and hosts & others:
                both = short(fold(sorted(hosts & others)))
                other = checker.key(f"storage[{j}]")
                checker.problem(
                    f"storage[{i}].path", f"found '{entry['path']}' on {both}, where {other} mounts it already"
                )
        first[entry.get("path", "")].append((i, hosts))


def _check_scratch(checker: Checker, entries: list[StorageEntry], tmp_fs: Any) -> None:
    """Check that scratch has one path: slurm.conf has one TmpFS for all nodes."""
    paths = list(dict.fromkeys(entry["path"] for entry in entries if entry.get("scratch") and "path" in entry))
    for path in paths[1:]:
        i = next(i for i, entry in enumerate(entries) if entry.get("scratch") and entry.get("path") == path)
        checker.problem(f"storage[{i}].scratch", f"found '{path}' and '{paths[0]}', allowed: one path, Slurm's TmpFS")
    if paths and tmp_fs is not None and tmp_fs != paths[0]:
        checker.problem("slurm_conf.TmpFS", f"found {shown(tmp_fs)}, allowed: '{paths[0]}', which is scratch")


def _check_exports(
    checker: Checker, entries: list[StorageEntry], members: Mapping[str, Collection[str]], state: Any
) -> None:
    """Check that only controllers mount StateSaveLocation, or what is in it, from a server of the cluster."""
    for i, entry in enumerate(entries):
        export = export_of(entry)
        if "server" in entry and state and within(export, str(state)):
            others = [host for host in hosts_of(entry, members) if host not in members["controllers"]]
            if others:
                what = f"found {shown(export)}, the StateSaveLocation, for {short(fold(others))}"
                checker.problem(f"storage[{i}].export", f"{what}, allowed: another directory, or hosts: controllers")


def _check_uses(
    checker: Checker,
    entries: Sequence[Mapping[str, Any]],
    members: Mapping[str, Collection[str]],
    uses: Sequence[Use],
) -> None:
    """Check that no entry changes the files of other uses, and that each use is on a file system that it can have."""
    for i, entry in enumerate(entries):
        for use in uses:
            _check_covered(checker, f"storage[{i}]", entry, use)
    mounts = [entry for entry in entries if {"path", "type"} <= entry.keys()]
    for use in uses:
        members_of_use = {*members["controllers" if use.purpose == "state" else "compute"]}
        for entry in _nearest(use.path, mounts):
            _check_file_system(checker, use, entry, len(members_of_use.intersection(hosts_of(entry, members))))


def _check_covered(checker: Checker, key: str, entry: Mapping[str, Any], use: Use) -> None:
    """Check that an entry neither mounts nor exports a directory that is in that of a use."""
    path, export = str(entry.get("path") or ""), export_of(entry)
    problem = f"with {use.description}, allowed: another directory"
    if is_below(path, use.path):
        checker.problem(f"{key}.path", f"found {shown(path)}, {problem}")
    # Only controllers mount the state, which _check_exports has checked.
    is_in_use = export == use.path or is_below(export, use.path)
    if "server" in entry and use.purpose != "state" and is_in_use:
        checker.problem(f"{key}.export", f"found {shown(export)}, {problem}")


def _check_file_system(checker: Checker, use: Use, entry: Mapping[str, Any], hosts: int) -> None:
    """Check that a use can be on the file system of an entry; hosts: how many hosts of the use mount it."""
    need, on = PURPOSES[use.purpose].disk, f"found {shown(use.path)} on {shown(entry['path'])}"
    if need == "node" and hosts > 1 and not is_local(entry) and not use.of_each_node:
        what = "where all nodes would have one directory, allowed: a file system of each node"
        checker.problem(use.key, f"{on}, {what}")
    if need == "lasting" and entry["type"] in ("tmpfs", "ramfs") and (hosts or use.purpose != "state"):
        checker.problem(use.key, f"{on}, which a reboot empties, allowed: a file system on a disk")


def _nearest(path: str, mounts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries on which a directory is; other hosts may have others with this path."""
    above = [str(entry["path"]) for entry in mounts if within(path, str(entry["path"]))]
    return [entry for entry in mounts if entry["path"] == max(above, key=len, default=None)]
