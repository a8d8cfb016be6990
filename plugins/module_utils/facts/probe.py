# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects the facts about a host that the roles need, from its files and from a few commands."""

from __future__ import annotations

import glob
import grp
import hashlib
import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..client.commands import NO_ANSWER, NOT_STARTED, Answer, run
from ..client.scontrol import serving
from ..configuration import release_order
from ..gpu.devices import NVIDIA
from ..hardware.sysfs import Tree
from ..host import applied_state, firewall_change, job_processes, sshd_pam
from ..host.directories import Directories, Directory, group_name, user_name
from ..host.files import part_of, temporary_file, without_part
from ..host.mounts import mount_record, mountinfo
from ..host.mounts.hidden_files import entries, homes_below, is_ours
from ..host.packages import dpkg
from ..host.script_checks import ScriptError, check_script, content_of, why_not
from ..host.timeout_call import TimeoutCallError, call_with_timeout
from ..language.formatting import short, visible
from ..people.directory import absent_users, ids_of, lowered
from ..people.state import read_applied_plan
from . import apparmor, cloud_init, clusters, last_backup, state_version, ufw

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import (
        DirectoryFaults,
        DirectoryUsers,
        HiddenFiles,
        HostFact,
        SlurmPackage,
    )

DAEMONS = ("/usr/sbin/slurmctld", "/usr/sbin/slurmd")
"""The daemons that tell their version without a configuration; they have these paths in all packages of Slurm."""

LEAST_CONF = "ClusterName=x\nSlurmctldHost=x\n"
"""A configuration with which Slurm's commands tell their version; without one they search the network for it."""

VERSION = re.compile(r"^slurm\S* ([0-9]{2}\.[0-9]{2}\.[A-Za-z0-9.~+-]+)$", re.MULTILINE)
"""The version that a program of Slurm tells: `slurm 25.11.2`, or Debian's `slurm-wlm 24.11.5`."""

CLOCKS = ("systemd-timesyncd", "chrony", "ntpsec", "openntpd")
"""Services that keep the clock."""

DF = ("timeout", "--signal=KILL", "10", "df", "--block-size=1M", "--output=avail,itotal,iavail,file")
"""Asks for free space; it gives up on a file system whose server does not answer."""

SINFO = ("timeout", "60", "sinfo", "--noheader", "--format=%N %T")
"""Asks for the nodes by state."""

OUT_OF_SERVICE = re.compile(r"\S*\*$|(?:unknown|down|inval|future|drain|fail)")
"""States of a node on which no job starts; * marks a node that does not answer (sinfo(1), node state codes)."""

HOSTS = "/etc/hosts"

MOST_NAMES = 1000
"""Names of /etc/hosts that are returned."""

MOST_HIDDEN = 5
"""Entries of a directory, and homes in it, that are named."""

MOST_LETTERS = 100
"""Letters of the name of an entry."""

UPDATE_LISTS = ("apt-get", "--quiet=2", "update")
"""Downloads apt's package lists."""

NONE = "(none)"
"""How apt-cache shows that there is no version."""

WRITTEN = ("/etc", "/usr", "/usr/local", "/var/lib", "/var/log")
"""Directories in which each run of site.yml may write."""

TIMEOUT = 20
"""The time limit for programs, which may be on a file system that does not answer."""

GETENT_SECONDS = 20
"""The time limit for all names together. A directory service that does not answer takes long for each of them."""

HOST_KEYS = tuple(f"/etc/ssh/ssh_host_{kind}_key.pub" for kind in ("ed25519", "ecdsa", "rsa"))
"""The public keys of a host; the first one that there is serves for files of known hosts. ssh asks a host for a key of
a kind that it knows."""

KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts2"

Value = TypeVar("Value")

Command = Callable[[Sequence[str]], str]
"""Runs a command, and returns what it prints, whether it succeeds or not; an empty text if it is not installed."""


def distribution(os_release: str) -> dict[str, str]:
    """Name and release of the distribution, "debian 13", and its codename (os-release(5))."""
    values = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?$", os_release, re.MULTILINE))
    return {
        "distribution": f"{values.get('ID', 'unknown')} {values.get('VERSION_ID', '')}".strip(),
        "codename": values.get("VERSION_CODENAME", ""),
    }


def candidates(policy: str) -> dict[str, str]:
    """Version by package that apt would install, as `apt-cache policy` says it; without one there is no entry."""
    found = re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)", policy + "\n", re.MULTILINE)
    return {package: version for package, version in found if version != NONE}


def enabled_clocks(run: Command) -> dict[str, bool]:
    """The same in a tree without a running systemd, such as that of an image, where none of them runs."""
    return {name: False for name in CLOCKS if run(["systemctl", "--root=/", "is-enabled", name]).strip() == "enabled"}


def clocks(units: Mapping[str, applied_state.Unit]) -> dict[str, bool]:
    """Whether a service that keeps the clock runs, by name, for those that start with the host."""
    enabled = {name: unit for name, unit in units.items() if name in CLOCKS and unit["UnitFileState"] == "enabled"}
    return {name: unit["ActiveState"] == "active" for name, unit in enabled.items()}


def checksum(content: bytes | None) -> str:
    """SHA-256 of a file, in hexadecimal; empty where there is none."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def free_mib(shown: str) -> dict[str, int]:
    """MiB that an ordinary user can still write, by directory, from the output of DF; 0 if there are no inodes left."""
    rows = (line.split() for line in shown.split("\n")[1:])
    return {
        row[3]: 0 if row[1] not in ("-", "0") and row[2] == "0" else int(row[0])
        for row in rows
        if len(row) == 4 and row[0].isdecimal()
    }


def addresses(hosts: bytes, own_name: str) -> dict[str, str]:
    """The first IPv4 address of each name in lines of /etc/hosts, without the host's own name on the loopback.

    The first line of a name decides (hosts(5)). Debian gives a host its own name on 127.0.1.1, which does no harm.
    """
    found: dict[str, str] = {}
    for line in hosts.decode(errors="replace").split("\n"):
        address, *names = line.partition("#")[0].split() or [""]
        if not re.fullmatch(r"[0-9]+(\.[0-9]+){3}", address):
            continue
        own = own_name.partition(".")[0] if address.startswith("127.") else ""
        for name in names:
            if (
                re.fullmatch(r"[A-Za-z0-9._-]{1,255}", name)
                and name.partition(".")[0] != own
                and len(found) < MOST_NAMES
            ):
                found.setdefault(name, address)
    return found


def _other_addresses(path: str, whole: bytes, marker: str, own_name: str) -> dict[str, str]:
    """The addresses in other lines than those of a part of /etc/hosts; none for another file."""
    return addresses(without_part(whole, marker), own_name) if path == HOSTS else {}


@dataclass(frozen=True)
class Questions:
    """Options of the module slurm_host_facts."""

    packages: Sequence[str] = ()
    slurm_package: str = ""
    update_lists: bool = False
    state_directory: str = ""
    hold: Sequence[str] = ()
    candidates: Sequence[str] = ()
    users: Sequence[str] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    directory_users: Sequence[str] = ()
    paths: Sequence[str] = ()
    directories: Sequence[Directory] = ()
    free: Sequence[str] = ()
    files: Sequence[str] = ()
    part: tuple[str, str] = ("", "")
    """A path, and the marker of a part of that file."""
    programs: Sequence[str] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    profiles: Sequence[str] = ()
    kernel: Sequence[str] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    filesystems: Sequence[str] = ()
    applied: Sequence[str] = ()
    serving_controller: bool = False
    nodes: bool = False
    jobs: bool = False
    ssh: bool = False
    known_hosts: bool = False
    backup_hours: int = 0


def _imex_channels(tree: Tree) -> bool | None:
    """Whether NVIDIA's driver has IMEX channels (`_find_major` in Slurm's imex_device.c); None without the driver."""
    if not tree.exists("/proc/driver/nvidia/version"):
        return None
    return any(line.endswith(" nvidia-caps-imex-channels") for line in _text(tree, "/proc/devices").split("\n"))


def gather_facts(tree: Tree, run: Command, questions: Questions) -> HostFact:
    """The facts about a host: the fact `slurm_host`."""
    packages = dpkg.installed(run(dpkg.QUERY))
    system = distribution(_text(tree, "/etc/os-release"))
    version = _installed_version(run, packages.get(questions.slurm_package))
    policy = _policy(run, questions, version)
    slurm = _slurm_package(tree, questions, version, policy)
    path, marker = questions.part
    whole = _content(tree, path) or b""
    hostname = _text(tree, "/proc/sys/kernel/hostname")
    container = run(["systemd-detect-virt", "--container"]).strip() or "none"
    services = dict.fromkeys((*CLOCKS, *questions.applied, *clusters.DAEMONS))
    properties = ",".join(applied_state.PROPERTIES)
    units = applied_state.units(run(["systemctl", "show", f"--property={properties}", *services]))
    return {
        "distribution": system["distribution"],
        "codename": system["codename"],
        "hostname": hostname,
        "container": container,
        "memory_mib": _memory(_text(tree, "/proc/meminfo")),
        "nvidia_gpus": len(NVIDIA.find(tree)),
        "imex_channels": _imex_channels(tree),
        "slurm_version": slurm["installed"] or slurm["candidate"],
        "slurm": slurm,
        "packages": {name: packages[name].version for name in questions.packages if name in packages},
        "unheld": dpkg.unheld(packages, questions.hold),
        "candidates": {name: version for name, version in policy.items() if name in questions.candidates},
        "mirror": _mirror(run, system["codename"], questions.candidates),
        "interrupted": bool(tree.names(dpkg.JOURNAL)),
        "clocks": clocks(units) if units else enabled_clocks(run),
        "applied": applied_state.holding(questions.applied, units),
        "users": _collect(questions.users, _user),
        "taken_ids": taken_ids(questions.ids),
        "people": read_applied_plan(tree.root.rstrip("/")),
        "directory": directory(questions.directory_users),
        "paths": dict(_owners(tree, questions.paths)),
        "directories": directories(questions.directories),
        "free_mib": _free(run, questions.free),
        "read_only": _read_only(tree),
        "files": _collect(questions.files, partial(_file_checksum, tree)),
        "programs": _programs(tree, questions.programs),
        "scripts": _scripts(questions.scripts),
        "part": checksum(part_of(whole, marker)) if path else "",
        "other_addresses": _other_addresses(path, whole, marker, hostname),
        "clusters": clusters.find_clusters(tree, _text(tree, HOSTS), units, questions.state_directory),
        "state_version": state_version.read(tree),
        "cloud_init": cloud_init.read_cloud_init(tree, hostname),
        "ufw": ufw.open_ports(tree),
        "profiles": _collect(questions.profiles, partial(apparmor.profile_state, tree)),
        "kernel": _collect(questions.kernel, partial(_setting, tree)),
        "hidden": _hidden(tree, questions.mounts),
        "lacks_filesystems": [name for name in questions.filesystems if not _has_filesystem(tree, name, container)],
        "storage": mount_record.state(packages),
        "firewall": firewall_change.state(),
        "backup": _backup(tree, questions.backup_hours),
        "out_of_service": _ask_nodes(run, units) if questions.nodes else None,
        "jobs": job_processes.served_jobs(job_processes.processes()) if questions.jobs else {},
        "serving_controller": serving() if questions.serving_controller else "",
        "host_key": _host_key(tree) if questions.ssh else "",
        "sshd": _sshd(tree) if questions.ssh else "",
        "known_hosts": known_hosts(_text(tree, KNOWN_HOSTS)) if questions.known_hosts else [],
        # Users' containers need these. unprivileged_userns_clone is Debian's own, a kernel that lacks it allows them.
        # apparmor_restrict_unprivileged_userns is Ubuntu's: programs without a profile get useless namespaces.
        "namespaces": {
            "max_user_namespaces": _setting(tree, "user.max_user_namespaces"),
            "unprivileged_userns_clone": _setting(tree, "kernel.unprivileged_userns_clone"),
            "apparmor_restrict_unprivileged_userns": _setting(tree, "kernel.apparmor_restrict_unprivileged_userns"),
        },
    }


def _collect(names: Iterable[str], find: Callable[[str], Value | None]) -> dict[str, Value]:
    """What there is by these names; a name without anything has no entry."""
    return {name: value for name in names if (value := find(name)) is not None}


def _text(tree: Tree, name: str) -> str:
    """The text of a file; empty where there is none."""
    return tree.text(name) or ""


def _slurm_package(tree: Tree, questions: Questions, version: str, policy: Mapping[str, str]) -> SlurmPackage:
    """Which Slurm the host has or would get, and which one has written its state."""
    directory = questions.state_directory
    return {
        "installed": version,
        "candidate": "" if version else policy.get(questions.slurm_package, ""),
        "state_protocol": _state_protocol(tree, directory) if directory else 0,
    }


def _free(run: Command, names: Sequence[str]) -> dict[str, int]:
    """The room in directories."""
    return free_mib(run([*DF, *names])) if names else {}


def _read_only(tree: Tree) -> list[str]:
    """The directories of WRITTEN on a file system that cannot be written, without those in another one of them."""

    def find() -> list[str]:
        """Those that there are."""
        there = [name for name in WRITTEN if tree.exists(name)]
        return [name for name in there if os.statvfs(tree.path(name)).f_flag & os.ST_RDONLY]

    try:
        found: list[str] = call_with_timeout(find, TIMEOUT)
    except TimeoutCallError:
        return []
    return [name for name in found if os.path.dirname(name) not in found]


def _backup(tree: Tree, hours: int) -> str:
    """What is wrong with the last backup; empty if there is none to ask about."""
    return last_backup.problem(tree.text(last_backup.STATUS), hours, time.time()) if hours else ""


def _ask_nodes(run: Command, units: Mapping[str, applied_state.Unit]) -> str | None:
    """The nodes that are not in service; none where slurmctld does not run."""
    return out_of_service(run(SINFO)) if applied_state.invocation(units.get("slurmctld", {})) else None


def _host_key(tree: Tree) -> str:
    """The public key of the host; empty where it has none."""
    return next(filter(None, (public_key(_text(tree, path)) for path in HOST_KEYS)), "")


def out_of_service(shown: str) -> str | None:
    """The nodes that are not in service, from the output of SINFO, as a hostlist; none without an answer."""
    lines = [line.split() for line in shown.split("\n") if line]
    return ",".join(dict.fromkeys(nodes for nodes, state in lines if OUT_OF_SERVICE.match(state))) if lines else None


def public_key(text: str) -> str:
    """Kind and key of a public key, without its comment; empty if the text is none."""
    match = re.match(r"(ssh-[a-z0-9-]+|ecdsa-sha2-[a-z0-9-]+) ([A-Za-z0-9+/]+=*)(?:\s|$)", text)
    return f"{match[1]} {match[2]}" if match else ""


def known_hosts(text: str) -> list[str]:
    """The lines of a file of known hosts that are as the collection writes them: names, kind and key."""
    return [line for line in text.split("\n") if re.fullmatch(r"[A-Za-z0-9:._,-]+ [a-z0-9-]+ [A-Za-z0-9+/]+=*", line)]


def _sshd(tree: Tree) -> str:
    """Who passes sshd, by the files of PAM; empty if they are not as the collection writes them."""
    found = (_content(tree, path) or b"" for path in (sshd_pam.SSHD, sshd_pam.COMMON, sshd_pam.SESSION))
    return sshd_pam.who_passes(*(content.decode(errors="replace") for content in found))


def _installed_version(run: Command, package: dpkg.Package | None) -> str:
    """The version of Slurm on the host; empty if it has none.

    A host with slurmdbd alone has no program that tells its version without a configuration.
    """
    return slurm_version(run) or (package.version if package else "")


def slurm_version(run: Command) -> str:
    """The version that a daemon tells, or a command where there is no daemon; empty if the host has no Slurm.

    The version of the package can be another one, on a host whose packages were built by somebody else.
    """
    with temporary_file(LEAST_CONF.encode()) as conf:
        command = ["env", f"SLURM_CONF={conf}", "/usr/bin/sinfo", "-V"]
        matches = (VERSION.search(run(each)) for each in (*([daemon, "-V"] for daemon in DAEMONS), command))
        return next((match[1] for match in matches if match), "")


def _state_protocol(tree: Tree, directory: str) -> int:
    """The protocol version of the slurmctld that wrote StateSaveLocation last; 0 without a state."""
    try:
        with open(tree.path(f"{directory}/{release_order.JOB_STATE}"), "rb") as file:
            return release_order.protocol_of_state(file.read(release_order.HEAD))
    except OSError:
        return 0


def _policy(run: Command, questions: Questions, version: str) -> dict[str, str]:
    """The candidates of packages, and of Slurm's on a host without Slurm; apt is asked only if it has to be."""
    if questions.update_lists:
        run(UPDATE_LISTS)
    slurm_package = "" if version else questions.slurm_package
    asked = [*questions.candidates, *([slurm_package] if slurm_package else [])]
    if not asked:
        return {}
    found = candidates(run(["apt-cache", "policy", *asked]))
    if slurm_package and slurm_package not in found:
        # A host that apt has never updated, such as one from the image of a cloud, has no lists.
        run(UPDATE_LISTS)
        found = candidates(run(["apt-cache", "policy", *asked]))
    return found


def _mirror(run: Command, codename: str, packages: Sequence[str]) -> str:
    """The URL from which the host has its own release of Debian; empty if no candidates of packages are asked for.

    Other archives can have the same release name.
    """
    if not packages:
        return ""
    wanted = ["Created-By: Packages", "Origin: Debian", f"Codename: {codename}"]
    return (run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).split("\n"))[0]


def _memory(meminfo: str) -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) // 1024 if match else 0


def _setting(tree: Tree, name: str) -> int | None:
    """A number among the settings of the kernel; None where the kernel does not have it."""
    text = tree.text(f"/proc/sys/{name.replace('.', '/')}")
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _hidden(tree: Tree, mounts: Mapping[str, str]) -> dict[str, HiddenFiles]:
    """What mounts would hide. A file system that does not answer is for the mount itself."""
    if not mounts:
        return {}
    present = {mount.point for mount in mountinfo.mounts(_text(tree, mountinfo.MOUNTINFO))}
    asked = [path for path, unit in mounts.items() if path not in present and not is_ours(_text(tree, unit))]
    try:
        found: dict[str, HiddenFiles] = call_with_timeout(lambda: _collect(asked, partial(_below, tree)), TIMEOUT)
    except TimeoutCallError:
        return {}
    return found


def _below(tree: Tree, path: str) -> HiddenFiles | None:
    """What is in a directory; None if that is nothing."""
    names, homes = entries(tree.path(path)), homes_below(_text(tree, "/etc/passwd"), path)
    there = [user for user, home in homes.items() if tree.exists(home)]
    return (
        {
            "names": [short(_ascii(visible(name)), MOST_LETTERS) for name in names[:MOST_HIDDEN]],
            "more": len(names[MOST_HIDDEN:]),
            "homes": {user: homes[user] for user in there[:MOST_HIDDEN]},
        }
        if names
        else None
    )


def _has_filesystem(tree: Tree, name: str, container: str) -> bool:
    """Whether the kernel has a file system, or a module of it, which a container cannot load."""
    if name in _text(tree, "/proc/filesystems").split():
        return True
    modules = f"/lib/modules/{_text(tree, '/proc/sys/kernel/osrelease')}"
    known = (_text(tree, f"{modules}/{file}") for file in ("modules.dep", "modules.builtin"))
    module = re.compile(rf"^(?:\S*/)?{re.escape(name)}\.ko", re.MULTILINE)
    return container == "none" and any(module.search(text) for text in known)


def _user(name: str) -> int | None:
    """The id of a user; None where there is no such user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def taken_ids(ids: Mapping[str, int]) -> dict[str, list[str]]:
    """Why users who do not exist yet would not get these ids, or a group with the same id, by name.

    systemd-sysusers chooses another id for a user whose own one is taken, and leaves a group that is there as it is.
    """
    found: dict[str, list[str]] = {}
    for name, number in ids.items():
        user, group, own = user_name(number), group_name(number), _group(name)
        reasons = [
            *([f"the user {user} has id {number}"] if user != str(number) else []),
            *([f"the group {group} has id {number}"] if group not in (str(number), name) else []),
            *([f"the group {name} has id {own}"] if own not in (None, number) else []),
        ]
        if reasons and _user(name) is None:
            found[name] = reasons
    return found


def _group(name: str) -> int | None:
    """The id of a group; None where there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _owners(tree: Tree, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Owner, group and mode of the paths that exist."""
    for name in names:
        try:
            status = os.stat(tree.path(name))
        except OSError:
            continue
        yield name, f"{user_name(status.st_uid)}:{group_name(status.st_gid)} {status.st_mode & 0o7777:04o}"


def directories(wanted: Sequence[Directory]) -> DirectoryFaults:
    """The fact `directories`. Raises OSError.

    A directory whose owner the site chooses may be on a file system that does not answer, which is for the health
    check. Then it is not judged.
    """
    own = Directories([directory for directory in wanted if directory.owner])
    compared = {directory.path for directory in own.wanted}
    others = [directory for directory in wanted if not directory.owner and directory.path not in compared]
    refused: list[str] = []
    with suppress(TimeoutCallError):
        refused = call_with_timeout(lambda: Directories(others, own).refused, TIMEOUT) if others else []
    return {"differ": own.differ, "refused": [*own.refused, *refused]}


def _programs(tree: Tree, names: Sequence[str]) -> dict[str, str]:
    """The programs that cannot be run, with the reason. A file system that does not answer is for the health check."""
    if not names:
        return {}
    try:
        found: dict[str, str] = call_with_timeout(lambda: {name: _unusable(tree, name) for name in names}, TIMEOUT)
    except TimeoutCallError:
        return {}
    return {name: reason for name, reason in found.items() if reason}


def _unusable(tree: Tree, pattern: str) -> str:
    """Why root cannot run a program, or one of those that a pattern matches; empty if it can."""
    root = tree.root.rstrip("/")
    path = tree.path(pattern)
    matched = [] if not pattern.startswith("/") or os.path.lexists(path) else glob.glob(path)
    for name in matched or [f"{root}{pattern}" if pattern.startswith("/") else pattern]:
        reason = why_not(name.removeprefix(root), root)
        if reason:
            return _ascii(reason)
    return ""


def _scripts(texts: Mapping[str, str]) -> dict[str, str]:
    """The scripts that cannot be run, with the reason."""
    return {name: reason for name, text in texts.items() if (reason := _not_run(text))}


def _not_run(text: str) -> str:
    """Why the interpreter of a script would not run it; empty if it would."""
    try:
        check_script(content_of(text))
    except ScriptError as error:
        return _ascii(str(error))
    return ""


def _ascii(reason: str) -> str:
    """A reason with escapes for other characters, which a fact does not have."""
    return reason.encode("ascii", "backslashreplace").decode()


def _file_checksum(tree: Tree, name: str) -> str | None:
    """The checksum of a file, also of one that cannot be read; None where there is none."""
    return checksum(_content(tree, name)) if tree.exists(name) else None


def _content(tree: Tree, name: str) -> bytes | None:
    try:
        with open(tree.path(name), "rb") as file:
            return file.read()
    except OSError:
        return None


def _getent(names: Sequence[str]) -> Answer:
    """What getent says of users, by one call for all of them."""
    return run(["getent", "passwd", "--", *names], seconds=GETENT_SECONDS)


def unknown_users(names: Sequence[str]) -> list[str]:
    """The users that this host does not know, as texts, by one call of getent; nothing where it knows all of them.

    Slurm finds their ids in the same way (`uid_from_string` in `src/common/uid.c`), and takes no job of a user without
    one. A directory service may be down, so this is no error.
    """
    if not names:
        return []
    wanted = lowered(names)
    answer = _getent(wanted)
    if answer.status == NOT_STARTED:
        return []
    if answer.status == NO_ANSWER:
        return [f"getent has not found the {len(wanted)} users of the policy within {GETENT_SECONDS} s"]
    unknown = absent_users(wanted, ids_of(answer.output))
    return [unknown] if unknown else []


def directory(names: Sequence[str]) -> DirectoryUsers:
    """A checksum of the ids of users, for the comparison with other hosts, and how many this host does not know.

    None of them: there was no answer in time.
    """
    if not names:
        return {"checksum": "", "unknown": 0}
    wanted = lowered(names)
    answer = _getent(wanted)
    if answer.status in (NO_ANSWER, NOT_STARTED):
        return {"checksum": "", "unknown": None}
    found = ids_of(answer.output)
    lines = [f"{name}:{found[name]}" for name in sorted({*wanted} & found.keys())]
    return {"checksum": checksum("\n".join(lines).encode()), "unknown": len({*wanted} - found.keys())}
