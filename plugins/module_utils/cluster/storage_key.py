# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts, exports and homes: the key `storage` of the cluster file, and what each host has to do for it.

A mount is a unit of systemd. A boot does not wait for it (`nofail`), slurmd does (`Before=`), and a unit that fails is
started again after a while.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Annotated, Any, TypedDict

from ..formats.directory_purposes import LONGEST, directory_for
from ..formats.package_names import package
from ..formats.systemd import setting
from ..language.formatting import shown, without_passwords
from ..language.hostlist import expand, fold
from . import schema
from .render import host_addresses
from .schema import Kind, kind_of, text

HOST_GROUPS = ("all", "login", "compute", "controllers")
"""Names for the hosts of a mount. They stand for groups of hosts, also where a host has such a name."""

NFS = ("nfs", "nfs4")
LOCAL = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "none", "ramfs", "tmpfs", "vfat", "xfs", "zfs")
"""File systems of the host itself. `none` is the type of a bind mount."""

AUTOFS = "autofs"
"""The type of a directory in which the automounter of the site mounts file systems, and the collection nothing."""

CLIENTS = {
    **dict.fromkeys(NFS, "nfs-common"),
    "ceph": "ceph-common",
    "cifs": "cifs-utils",
    "glusterfs": "glusterfs-client",
}
"""Debian's package with the program that mounts a type. Other types have none, or a site names its packages."""

SERVER = "nfs-kernel-server"
"""Debian's package of the NFS server."""

SECONDS = 60
"""The time limit of a mount. mount.nfs alone would try for two minutes (nfs(5), retry)."""

UNITS = "/etc/systemd/system"
RETRY = f"{UNITS}/gpucluster-slurm-mount@.service"
EXPORTS = "/etc/exports.d/gpucluster-slurm.exports"

MARK = "# Managed by gpucluster.slurm (key storage): changes here are overwritten."

_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PRINTABLE = re.compile(r"[!-~]+")
_OPTION = re.compile(r"[!#-+\--~]+")  # neither blanks nor commas and quotes
_DEVICE = re.compile(r"/dev/|(?:PART)?(?:UUID|LABEL)=")

_OF_KERNEL = frozenset(
    (
        *("bdev", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs"),
        *("devpts", "devtmpfs", "efivarfs", "functionfs", "fusectl", "hugetlbfs", "mqueue", "nfsd", "nsfs", "pipefs"),
        *("proc", "pstore", "resctrl", "rootfs", "rpc_pipefs", "securityfs", "selinuxfs", "smackfs", "sockfs", "swap"),
        *("sysfs", "tracefs"),
    )
)
"""File systems by which the kernel shows and takes settings, those of /proc/filesystems without data of users."""

_OF_VFS = ("ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "relatime", "nodiratime")
"""Options that every mount takes, a bind mount as well (mount(8))."""

_DERIVED = ("_netdev", "nofail")


# -- types -----------------------------------------------------------------------------------------------------------


def directory(value: Any) -> str:
    """A directory for a mount."""
    return directory_for("mount")(text(value))


def export(value: Any) -> str:
    """A directory of a server that other hosts mount."""
    return directory_for("export")(text(value))


def kind_of_mount(value: Any) -> str:
    """The type of a file system as mount(8) has it."""
    if not _TYPE.fullmatch(text(value)):
        raise ValueError("allowed: a type of mount(8) such as nfs, lustre, xfs, tmpfs or gcsfuse")
    if value in _OF_KERNEL:
        raise ValueError("which the kernel has for itself, allowed: a type such as nfs, lustre, xfs, tmpfs or gcsfuse")
    return text(value)


def source(value: Any) -> str:
    """What is mounted: a device, a server's directory, a bucket."""
    if not _PRINTABLE.fullmatch(text(value)):
        raise ValueError("allowed: a text without blanks such as nas.example.org:/vol/home or /dev/nvme0n1")
    if len(str(value)) > LONGEST:
        raise ValueError(f"of {len(str(value))} characters, allowed: up to {LONGEST}")
    if str(value).startswith("-"):  # mount(8) would take it as an option
        raise ValueError("allowed: a text that does not begin with '-'")
    if without_passwords(str(value)) != str(value):
        raise ValueError("allowed: a source without a password, which all users of a host could read")
    setting(value)  # What= of a unit
    return text(value)


def options(value: Any) -> list[str]:
    """Options of mount(8): a list, or a text with commas."""
    listed = [text(option) for option in (value if isinstance(value, list) else text(value).split(","))]
    for option in listed:
        if not _OPTION.fullmatch(option):
            raise ValueError(f"{shown(option)} is no option, allowed: options of mount(8) such as [hard, noatime]")
        setting(option)  # Options= of a unit
        if len(option) > LONGEST:
            raise ValueError(f"an option of {len(option)} characters, allowed: up to {LONGEST}")
        if option in ("remount", "move"):
            raise ValueError(f"{shown(option)} changes a mount that is there, allowed: options of the file system")
        if option.startswith("x-systemd.") or option in ("noauto", "auto"):
            raise ValueError(
                f"{shown(option)} is for fstab(5), allowed: options of the file system; the unit has the rest"
            )
    return listed


def hosts(value: Any) -> str:
    """A hostlist of hosts and HOST_GROUPS."""
    others = [name for name in expand(schema.any_text(value)) if name not in HOST_GROUPS]
    if others or not schema.any_text(value):
        schema.hostlist(",".join(others))
    return schema.any_text(value)


class StorageEntry(TypedDict, total=False):
    """An entry of the key."""

    path: Annotated[str, directory, "required"]
    type: Annotated[str, kind_of_mount, "required"]
    source: Annotated[str, source]
    server: Annotated[str, schema.host]
    export: Annotated[str, export]
    options: Annotated[list[str], options]
    hosts: Annotated[str, hosts]
    packages: Annotated[list[dict[str, str]], schema.sequence]
    homes: Annotated[bool, schema.flag]
    scratch: Annotated[bool, schema.flag]


STORAGE = kind_of(StorageEntry)

PACKAGE: Kind[dict[str, str]] = Kind(own={"name": {"type": package}, **schema.PACKAGE_FILE.own})


# -- where -----------------------------------------------------------------------------------------------------------


def export_of(entry: Mapping[str, Any]) -> str:
    """The directory of an entry on its server."""
    return str(entry.get("export") or entry.get("path", ""))


def is_below(path: str, top: str) -> bool:
    """Whether a path is below a directory."""
    return path.startswith(f"{top}/")


def hosts_of(entry: Mapping[str, Any], members: Mapping[str, Collection[str]]) -> list[str]:
    """The hosts of an entry, in order."""
    names = expand(str(entry.get("hosts") or "all"))
    return list(dict.fromkeys(host for name in names for host in (members[name] if name in HOST_GROUPS else [name])))


def is_local(entry: Mapping[str, Any]) -> bool:
    """Whether a file system is of the host itself, and needs no network."""
    return entry["type"] in LOCAL or bool(_DEVICE.match(str(entry.get("source") or "")))


def has_automounts(storage: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the automounter of the site mounts file systems on hosts."""
    return any(entry["type"] == AUTOFS for entry in storage)


def file_servers(storage: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hosts of the cluster that export file systems."""
    return sorted({str(entry["server"]) for entry in storage if entry.get("server")})


# -- units -----------------------------------------------------------------------------------------------------------


def unit_name(path: str) -> str:
    """The name of a mount unit, as `systemd-escape --path --suffix=mount` gives it."""

    def escaped(byte: int, first: bool) -> str:
        character = chr(byte)
        if character == "/":
            return "-"
        keep = byte < 128 and (character.isalnum() or character in ":_" or (character == "." and not first))
        return character if keep else f"\\x{byte:02x}"

    simple = "/".join(part for part in path.split("/") if part)
    return ("".join(escaped(byte, not i) for i, byte in enumerate(simple.encode())) or "-") + ".mount"


def _unit(path: str, what: str, kind: str, given: Iterable[str], local: bool) -> str:
    """The text of a mount unit."""
    all_options = list(dict.fromkeys([*given, *(() if local else ("_netdev",)), "nofail"]))
    return "\n".join(
        [
            MARK,
            "[Unit]",
            f"Description={path} of the cluster",
            "# These daemons wait for the mount at a boot, until it is there or has failed.",
            "Before=slurmd.service slurmctld.service slurmdbd.service",
            "OnFailure=gpucluster-slurm-mount@%N.service",
            "StartLimitIntervalSec=0",
            "",
            "[Mount]",
            f"What={setting(what)}",
            f"Where={path}",
            f"Type={kind}",
            f"Options={setting(','.join(all_options))}",
            f"TimeoutSec={SECONDS}",
            "",
            "[Install]",
            f"WantedBy={'local' if local else 'remote'}-fs.target",
            "",
        ]
    )


RETRY_UNIT = f"""{MARK}
[Unit]
Description=Start %i.mount again, since it has failed

[Service]
Type=oneshot
ExecStart=sleep 30
ExecStart=systemctl start --no-block %i.mount
"""


def _mount(entry: Mapping[str, Any], host: str) -> Plan | None:
    """A mount as the module slurm_storage takes it; None if the host needs none, since it has the directory itself."""
    path, kind, given = str(entry["path"]), str(entry["type"]), list(entry.get("options") or [])
    what = str(entry.get("source") or kind)
    if entry.get("server"):
        what = f"{entry['server']}:{export_of(entry)}"
        if entry["server"] == host:
            if path == export_of(entry):
                return None
            # A mount of its own export could end in a deadlock when memory is short: the server would wait for itself.
            what, kind, given = export_of(entry), "none", ["bind", *(option for option in given if option in _OF_VFS)]
    local = is_local({"type": kind, "source": what})
    name = unit_name(path)
    content = _unit(path, what, kind, given, local)
    return {
        "path": path,
        "unit": name,
        "unit_file": f"{UNITS}/{name}",
        "source": what,
        "type": kind,
        "content": content,
    }


# -- exports ---------------------------------------------------------------------------------------------------------

EXPORT_OPTIONS = "rw,sync,no_subtree_check,root_squash"

NFS_CONF_FILE = "/etc/nfs.conf.d/gpucluster-slurm.conf"
NFS_CONF = f"""{MARK}
[nfsd]
# Version 4 alone needs one port, 2049, and no rpcbind.
vers3=n
threads=64
"""


def _clients(names: Collection[str], addresses: Mapping[str, str]) -> list[str]:
    """Hosts as exports(5) names them: the fewest networks with exactly their addresses, and other hosts by name."""
    found = [addresses.get(name, name) for name in names]
    networks = [ip_network(name) for name in found if _is_address(name)]
    fewest: list[IPv4Network | IPv6Network] = [
        *collapse_addresses(network for network in networks if isinstance(network, IPv4Network)),
        *collapse_addresses(network for network in networks if isinstance(network, IPv6Network)),
    ]
    ranges = [str(network.network_address) if network.num_addresses == 1 else str(network) for network in fewest]
    return [*ranges, *(name for name in found if not _is_address(name))]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _exported(
    storage: Sequence[Mapping[str, Any]], members: Mapping[str, Collection[str]], addresses: Mapping[str, str]
) -> dict[str, dict[str, list[str]]]:
    """The clients of each exported directory, by server. What has no client is not exported."""
    clients: dict[str, dict[str, list[str]]] = {}
    for entry in storage:
        if entry.get("server"):
            server = str(entry["server"])
            if others := [host for host in hosts_of(entry, members) if host != server]:
                clients.setdefault(server, {}).setdefault(export_of(entry), []).extend(others)
    return {
        server: {path: _clients(dict.fromkeys(names), addresses) for path, names in directories.items()}
        for server, directories in clients.items()
    }


def _export_lines(exported: Mapping[str, Collection[str]]) -> str:
    """The text of a file of exports(5)."""
    lines = [
        " ".join([path, *(f"{client}({EXPORT_OPTIONS})" for client in clients)])
        for path, clients in sorted(exported.items())
    ]
    return "".join(f"{line}\n" for line in [MARK, *lines])


# -- homes -----------------------------------------------------------------------------------------------------------


def _home_of(user: Mapping[str, Any]) -> str:
    return str(user.get("home") or f"/home/{user['name']}")


def _storage_of(home: str, storage: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The entry that has a home; None if it is on the disk of each host."""
    above = [entry for entry in storage if is_below(home, str(entry["path"]))]
    return max(above, key=lambda entry: len(str(entry["path"])), default=None)


def _homes(
    storage: Sequence[Mapping[str, Any]],
    members: Mapping[str, Collection[str]],
    users: Iterable[Mapping[str, Any]],
) -> dict[str, list[Plan]]:
    """The homes that each host makes: once, on the server, or on each host whose own file system it is.

    On a server outside the cluster the first host of the mount makes them.
    """
    homes: dict[str, list[Plan]] = {}
    for user in users:
        home = _home_of(user)
        entry = _storage_of(home, storage)
        if user.get("state", "present") != "present" or entry is None or not entry.get("homes"):
            continue
        path, hosts_of_it = home, hosts_of(entry, members)
        if entry.get("server"):
            path, hosts_of_it = export_of(entry) + home[len(str(entry["path"])) :], [str(entry["server"])]
        elif not is_local(entry):
            hosts_of_it = hosts_of_it[:1]
        one = {"path": path, "uid": int(user["uid"]), "gid": int(user.get("gid") or user["uid"])}
        for host in hosts_of_it:
            homes.setdefault(host, []).append(one)
    return homes


def storage_warning(
    storage: Sequence[Mapping[str, Any]], members: Mapping[str, Collection[str]], people: Mapping[str, Any]
) -> str:
    """The warning about users whose homes are not on all hosts on which they work; empty if there are none.

    people: the variable slurm_people; its users are known if they are a list.
    """
    wanted = {*members["login"], *members["compute"]}
    if len(wanted) < 2:
        return ""
    names: dict[str, list[str]] = {}
    advice: dict[str, dict[str, None]] = {}
    for user in people.get("users") or []:
        if user.get("state", "present") == "present":
            fact, what_to_do = _why_apart(_home_of(user), storage, members, wanted)
            names.setdefault(fact, []).append(str(user["name"]))
            advice.setdefault(fact, {})[what_to_do] = None
    return ". ".join(
        sentence
        for fact in filter(None, names)
        for sentence in (f"The homes of {_name_some(names[fact])} {fact}", *advice[fact])
    )


def _why_apart(
    home: str, storage: Sequence[Mapping[str, Any]], members: Mapping[str, Collection[str]], wanted: Collection[str]
) -> tuple[str, str]:
    """What a warning says about a home that these hosts may not share, and what follows; empty if they share it."""
    entries = _entries_of(home, storage)
    if not entries:
        return _NOT_SHARED, "Give the cluster file storage with homes: true"
    for entry in entries:
        missing = sorted({*wanted} - {*hosts_of(entry, members), str(entry.get("server"))})
        if missing:
            return _NOT_SHARED, f"The storage at {entry['path']} needs {fold(missing)} among its hosts"
    last = entries[-1]
    if last["type"] == "none":
        place = f"are on {last['path']}, a bind mount of {last['source']}, which is in no storage of the cluster file"
        return place, f"If that is a directory of each host itself, {_CONSEQUENCE}"
    if is_local(last):
        return _NOT_SHARED, f"The storage at {last['path']} is a file system of each host itself"
    return "", ""


_CONSEQUENCE = "the output of a job stays on the node where it ran"
_NOT_SHARED = f"are not on storage that all login hosts and compute nodes mount, so that {_CONSEQUENCE}"


def _entries_of(home: str, storage: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries that a home is on: a bind mount, and then what the bind mount shows."""
    found: list[Mapping[str, Any]] = []
    path = home
    while (entry := _storage_of(path, storage)) and entry not in found:
        found.append(entry)
        if entry["type"] != "none":
            break
        path = str(entry.get("source")).rstrip("/") + path[len(str(entry["path"])) :]
    return found


def _name_some(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


SHOWN = 5
"""Users that a warning names."""


# -- what each host does ---------------------------------------------------------------------------------------------

Plan = dict[str, Any]
"""Options of a module that changes a host."""


def storage_plans(
    storage: Sequence[Mapping[str, Any]],
    members: Mapping[str, Collection[str]],
    people: Mapping[str, Any],
    addresses: Iterable[Mapping[str, str]],
) -> dict[str, Any]:
    """What each host does for its storage: the different `plans`, and the index of its plan for each of the `hosts`.

    Args:
        storage: the variable slurm_storage.
        members: the hosts of each of HOST_GROUPS.
        people: the variable slurm_people.
        addresses: the variable slurm_addresses.

    Raises ValueError if a host has two mounts on one path.
    """
    known = {entry["name"]: entry["address"] for entry in host_addresses(addresses)} if storage else {}
    exported = _exported(storage, members, known)
    homes = _homes(storage, members, people.get("users") or [])
    of_host: dict[str, list[int]] = {host: [] for host in (*exported, *homes)}
    for i, entry in enumerate(storage):
        for host in hosts_of(entry, members) if entry["type"] != AUTOFS else ():
            if any(storage[j]["path"] == entry["path"] for j in of_host.get(host, ())):
                raise ValueError(f"slurm_storage[{i}].path: found {entry['path']!r} twice on {host}")
            of_host.setdefault(host, []).append(i)
    numbers: dict[tuple[Any, ...], int] = {}
    plans: list[Plan] = []
    of = {}
    for host, entries in of_host.items():
        special = host if host in exported or host in homes else ""
        kind = (special, *entries)
        if kind not in numbers:
            numbers[kind] = len(plans)
            mine = [storage[i] for i in entries]
            plans.append(_plan(mine, host, exported.get(host, {}), homes.get(host, [])))
        of[host] = numbers[kind]
    return {"plans": plans, "hosts": of}


def _plan(
    entries: Sequence[Mapping[str, Any]],
    host: str,
    exported: Mapping[str, Collection[str]],
    homes: list[Plan],
) -> Plan:
    """What one host does. Mounts come before those that are below them, and bind mounts after what they show."""
    mounts = [mount for entry in entries if (mount := _mount(entry, host))]
    mounts.sort(key=lambda mount: (mount["type"] == "none", mount["path"]))
    packages = [package for entry in entries if entry.get("server") != host for package in _packages(entry)]
    files = {mount["unit_file"]: mount["content"] for mount in mounts}
    if mounts:
        files[RETRY] = RETRY_UNIT
    if exported:
        packages.append({"name": SERVER})
        files |= {EXPORTS: _export_lines(exported), NFS_CONF_FILE: NFS_CONF}
    plan: Plan = {
        "mounts": mounts,
        "packages": [json.loads(one) for one in dict.fromkeys(json.dumps(package) for package in packages)],
        "exports": sorted(exported),
        "homes": homes,
        "files": files,
    }
    return {**plan, "digest": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()}


def _packages(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    """The packages that bring a type of file system."""
    given = [{key: str(value) for key, value in package.items() if value} for package in entry.get("packages") or []]
    return given or ([{"name": CLIENTS[entry["type"]]}] if entry["type"] in CLIENTS else [])
