#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_storage
short_description: Mount file systems by units of systemd, and make exported directories and homes
description:
  - Writes the mount units of a host, enables them and mounts what is not mounted. Role P(gpucluster.slurm.storage#role)
    makes the plan of the host.
  - It never unmounts a file system that is still wanted. If what is mounted is not what the unit says, it writes the
    unit and names what is needed in C(remarks).
  - A unit of this collection that is no longer wanted is stopped and removed if no job and no user has a process on the
    host. Otherwise it stays, and is named.
  - A path that has files is not mounted over for the first time, since the mount would hide them.
  - Every command, and every access to a file system that may not answer, has a time limit.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_storage]
"""

EXAMPLES = r"""
- name: Mount the storage of this host
  gpucluster.slurm.slurm_storage: {mounts: "{{ plan.mounts }}", digest: "{{ plan.digest }}"}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import hashlib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import run
from ..module_utils.host.directories import Directories, Directory
from ..module_utils.host.files import File, write
from ..module_utils.host.job_processes import processes, served_steps
from ..module_utils.host.journal import read_start_failure
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.mounts import hidden_files, homes, mount_record
from ..module_utils.host.mounts.hidden_files import is_ours
from ..module_utils.host.mounts.mountinfo import Mount, mounted
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.plan_result import PlanRow, plan_result
from ..module_utils.host.timeout_call import TimeoutCallError, call_with_timeout
from ..module_utils.language.errors import CollectionError

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import StorageResult

UNITS = "/etc/systemd/system"
"""The text by which units of this module are recognized."""

LIMIT = 150
"""Seconds for the start of a mount: the limit of its unit, and that of a device that it waits for (90 s)."""
TIMEOUT = 20
"""Seconds for an access to a file system."""
LOCK_SECONDS = 300
"""The time limit for a module of a killed run, which may wait for a server."""
SHOWN = 5
"""Names that a message has."""
OF_USERS = (range(1000, 60001), range(65536, 2**32 - 2))
"""Uids of people (login.defs(5), UID_MIN and UID_MAX); those between are of services, such as slurm."""

WRITTEN = "written"


class StorageError(CollectionError):
    """What cannot be mounted or created, and why."""


# -- what is there ---------------------------------------------------------------------------------------------------


def section(text: str) -> str:
    """The part of a unit that says what is mounted and how."""
    match = re.search(r"^\[Mount\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def read_text(path: str) -> str:
    """The text of a file; empty without one."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def own_units() -> dict[str, str]:
    """The path of each mount unit that this module has written, by the name of its unit file."""
    units = {}
    for name in sorted(os.listdir(UNITS)):
        path = os.path.join(UNITS, name)
        if name.endswith(".mount") and os.path.isfile(path) and is_ours(text := read_text(path)):
            where = re.search(r"^Where=(.*)$", text, re.MULTILINE)
            units[path] = where[1] if where else ""
    return units


def wants(mount: Mapping[str, Any]) -> str:
    """The link by which a boot starts a unit."""
    target = re.search(r"^WantedBy=(.*)$", mount["content"], re.MULTILINE)
    return f"{UNITS}/{target[1] if target else ''}.wants/{mount['unit']}"


def as_wanted(present: Mount, mount: Mapping[str, Any]) -> bool:
    """Whether somebody else has mounted the same, as a line of fstab does."""
    source = mount["source"].rstrip("/")
    if mount["type"] == "none":
        return bool(source.endswith(present.root))
    if mount["type"] in ("tmpfs", "ramfs"):
        return bool(present.type == mount["type"])
    device = re.fullmatch(r"(PARTUUID|PARTLABEL|UUID|LABEL)=(.*)", source)
    path = f"/dev/disk/by-{device[1].lower()}/{device[2]}" if device else source
    same = present.source.rstrip("/") == source or os.path.realpath(path) == os.path.realpath(present.source)
    kinds = {present.type.removeprefix("fuse."), mount["type"].removeprefix("fuse.")}
    return same and (len(kinds) == 1 or kinds == {"nfs", "nfs4"} or present.type.startswith("fuse"))


def since(unit: str) -> str:
    """The boot, and the moment in which a unit became active: another one is another mount."""
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    when = run(["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", "--", unit]).output
    return f"{boot} {when.strip()}"


def hidden(path: str) -> list[str]:
    """The entries of a directory that a mount would hide. Raises StorageError."""
    try:
        names: list[str] = call_with_timeout(lambda: hidden_files.entries(path), TIMEOUT)
    except TimeoutCallError as error:
        raise StorageError(f"{path}: {error}") from None
    return names


def users() -> list[str]:
    """Why nothing may be unmounted: a job, or processes of people. The user of this connection does not count."""
    uid_of_connection = int(os.environ.get("SUDO_UID", "0"))
    running = processes()
    uids = {process.uids[1] for process in running.values()} - {uid_of_connection}
    people = {f"uid {uid}" for uid in uids if any(uid in of_people for of_people in OF_USERS)}
    return sorted(people | ({"a job"} if served_steps(running) else set()))


# -- the work --------------------------------------------------------------------------------------------------------


class Work:
    """The changes of one host, done or predicted."""

    def __init__(self, module: AnsibleModule) -> None:
        self.wanted: list[Params] = module.params["mounts"]
        self.params, self.check = module.params, module.check_mode
        self.changes: list[PlanRow] = []
        self.diffs: list[dict[str, str]] = []
        self.remarks: list[str] = []
        self.present_mounts = mounted()
        self.record = mount_record.read()
        self.pending: dict[str, list[str]] = {}

    def write_record(self, digest: str) -> None:
        """Write the record. `digest`: the plan, or INCOMPLETE until all of it is done."""
        if self.check:
            return
        files = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in self.params["files"].items()}
        links = {wants(mount): files[mount["unit_file"]] for mount in self.wanted}
        places = [place for place in homes.places(self.params["homes"]) if self._is_own(place)]
        wanted = {
            "plan": digest,
            "files": {**files, **links},
            "mounts": [mount["path"] for mount in self.wanted],
            "homes": {place: mount_record.changed(place) for place in places},
            "packages": self.params["packages"],
            "exports": self.params["exports"],
            "pending": self.pending,
        }
        if wanted != mount_record.read():
            mount_record.keep(wanted)

    def _is_own(self, path: str) -> bool:
        """Whether a directory is on a file system of the host itself, so that it answers."""
        above = [point for point in self.present_mounts if path == point or path.startswith(f"{point.rstrip('/')}/")]
        kind = self.present_mounts[max(above, key=len)].type if above else ""
        return kind in ("btrfs", "ext2", "ext3", "ext4", "overlay", "tmpfs", "xfs", "zfs")

    def leave_pending(self, unit: str, warning: str) -> None:
        """Record a mount that a person has to end."""
        self.pending[unit] = [since(unit), warning]
        self.remarks.append(warning)

    def units(self) -> None:
        """Write the units, and let systemd read them. Raises StorageError, FileError, OSError."""
        files = self._unit_files()
        checked = self.wanted if self.params["start"] else []
        obstacles = [self._check_mount(mount, files[mount["unit_file"]]) for mount in checked]
        if any(obstacles):
            raise StorageError(
                f"nothing was mounted: {'; '.join(filter(None, obstacles))}. Move them to the storage or elsewhere, so "
                "that the directory is empty, or mount it on another path"
            )
        changes = [file for file in files.values() if file.changes]
        self.diffs += [file.diff for file in changes]
        self.changes += [{"what": file.path, "before": None, "after": WRITTEN} for file in changes]
        if not changes:
            self.changes += [
                {"what": unit, "before": "not started at a boot", "after": "enabled"} for unit in self._disabled()
            ]
        write(changes, check_mode=True)  # a unit that systemd refuses shows before the record changes
        if not self.check:
            self.write_record(mount_record.INCOMPLETE)  # with what is pending, before the units lose the previous text
            write(changes)
            if changes:
                self.systemctl("daemon-reload")

    def _unit_files(self) -> dict[str, File]:
        """The wanted units by their paths, those of mounts first. Raises FileError, OSError."""
        contents: dict[str, str] = {mount["unit_file"]: mount["content"] for mount in self.wanted}
        for path, text in self.params["files"].items():
            if path.startswith(UNITS):
                contents.setdefault(path, text)
        return {path: File(path, text.encode()) for path, text in contents.items()}

    def _check_mount(self, mount: Mapping[str, Any], file: File) -> str:
        """Record a mount that stays otherwise than wanted. Returns why its path cannot have one; empty if it can.

        Raises StorageError.
        """
        present_mount, unit = self.present_mounts.get(mount["path"]), mount["unit"]
        text = (file.found or b"").decode(errors="replace")
        if not present_mount:
            names = [] if is_ours(text) else hidden(mount["path"])
            return f"{mount['path']} has files that the mount would hide: {named(names)}" if names else ""
        same_unit = section(text) == section(mount["content"])
        pending = self.record.get("pending", {}).get(unit)
        if not (same_unit if is_ours(text) else as_wanted(present_mount, mount)):
            self.leave_pending(unit, self._other(mount, present_mount))
        elif pending and pending[0] == since(unit):
            self.leave_pending(unit, pending[1])
        return ""

    def _disabled(self) -> list[str]:
        """The units that a boot would not start."""
        return [mount["unit"] for mount in self.wanted if not os.path.islink(wants(mount))]

    def enable(self) -> None:
        """Let a boot start the units. Raises StorageError.

        A node whose unit is enabled but not mounted gets no job (check `filesystems` of role slurm_health). Therefore a
        unit is enabled after its mount was tried, and disabled before its mount ends.
        """
        if not self.check and (units := self._disabled()):
            self.systemctl("enable", "--quiet", *units)

    def _other(self, mount: Mapping[str, Any], present: Mount) -> str:
        """The warning about a file system that is mounted otherwise than its unit says."""
        return (
            f"{mount['path']} stays mounted as it was ({present.type}, {present.source}), and its unit has the change."
            f" Drain the node and let users log out, then: systemctl restart '{mount['unit']}'"
        )

    def systemctl(self, *arguments: str) -> None:
        """Run systemctl, which asks no systemd where an image is built. Raises StorageError."""
        if not self.params["start"] and arguments == ("daemon-reload",):
            return
        offline = [] if self.params["start"] else ["env", "SYSTEMD_OFFLINE=1"]
        answer = run([*offline, "systemctl", *arguments], seconds=LIMIT)
        if answer.status:
            raise StorageError(f"systemctl {' '.join(arguments)}: {answer.message}")

    def mount(self, mounts: list[Params]) -> None:
        """Mount what is not mounted. Raises StorageError with all that cannot be."""
        failed = []
        for mount in mounts:
            if mount["path"] in self.present_mounts:
                continue
            self.changes.append({"what": mount["path"], "before": "not mounted", "after": mount["source"]})
            if self.check:
                continue
            run(["systemctl", "reset-failed", "--", mount["unit"]])
            answer = run(["systemctl", "start", "--", mount["unit"]], seconds=LIMIT)
            if answer.status:
                error = " ".join(read_start_failure(mount["unit"], answer.message, 4).split())
                failed.append(f"{mount['path']} cannot be mounted from {mount['source']}: {error or answer.message}")
        if failed:
            raise StorageError("; ".join(failed))
        self.present_mounts = mounted()

    def directories(self) -> None:
        """Create the directories that the host exports. Raises OSError."""
        missing = [Directory(path, "root") for path in self.params["exports"] if not os.path.isdir(path)]
        wanted = Directories(missing)
        wanted.check()
        self.changes += [{"what": directory.path, "before": None, "after": "directory"} for directory in missing]
        if not self.check:
            wanted.repair()

    def homes(self) -> None:
        """Create the homes that are not there. Raises StorageError."""
        wanted = self.params["homes"]
        if not wanted:
            return
        limit = TIMEOUT + len(wanted) / 10
        try:
            absent = call_with_timeout(lambda: [dict(home) for home in homes.missing(wanted)], limit)
            self.remarks += call_with_timeout(lambda: homes.of_others(wanted), limit)
            if absent and not self.check:
                call_with_timeout(lambda: homes.make(absent), limit)
        except TimeoutCallError as error:
            raise StorageError(f"homes: {error}") from None
        if absent:
            self.changes.append({"what": "homes", "before": None, "after": named([home["path"] for home in absent])})

    def surplus(self) -> None:
        """Stop and remove units that are no longer wanted. Raises StorageError, OSError."""
        keep = {mount["unit_file"] for mount in self.wanted}
        gone = {path: where for path, where in own_units().items() if path not in keep}
        busy = users() if any(where in self.present_mounts for where in gone.values()) else []
        for path, where in sorted(gone.items(), key=lambda item: item[1], reverse=True):
            self._remove_unit(path, where, busy if where in self.present_mounts else [])
        for path in self._strays():
            self.changes.append({"what": path, "before": "present", "after": None})
            if not self.check:
                os.unlink(path)
                self.systemctl("daemon-reload")

    def _remove_unit(self, path: str, where: str, busy: list[str]) -> None:
        """Stop and remove a unit, unless its mount may be in use. Raises StorageError, OSError.

        Args:
            path: of the unit.
            where: where it mounts something.
            busy: who could use the mount.
        """
        unit = os.path.basename(path)
        stays = f"{where} stays mounted, although the cluster file no longer has it"
        if busy:
            warning = f"{stays}: {named(busy)} could use it. The next run without jobs and users unmounts it"
            self.leave_pending(unit, warning)
            return
        change = {"what": where, "before": "mounted" if where in self.present_mounts else "a unit", "after": None}
        if not self.check:
            run(["systemctl", "disable", "--quiet", "--", unit])
            answer = run(["systemctl", "stop", "--", unit], seconds=LIMIT)
            if where in mounted():
                self.leave_pending(unit, f"{stays}: {answer.message if answer.status else 'it is in use'}")
                return
        self.changes.append(change)
        if not self.check:
            os.unlink(path)
            self.systemctl("daemon-reload")
            run(["systemctl", "reset-failed", "--", unit])

    def _strays(self) -> list[str]:
        """The unit that starts mounts again, where nothing is left to start."""
        path = f"{UNITS}/gpucluster-slurm-mount@.service"
        return [path] if os.path.exists(path) and path not in self.params["files"] and not own_units() else []

    def start(self) -> None:
        """Mount, and make directories and homes. Raises StorageError, OSError."""
        try:
            self.mount([mount for mount in self.wanted if mount["type"] != "none"])
            self.directories()
            self.mount([mount for mount in self.wanted if mount["type"] == "none"])
        finally:
            self.enable()
        self.homes()
        if self.params["digest"] or self.pending:
            self.write_record(self.params["digest"])
        elif os.path.exists(mount_record.PATH) and not self.check:
            os.unlink(mount_record.PATH)

    def mount_points(self) -> None:
        """Make the directories of the mounts: at a boot, systemd cannot make them in a root that is read-only."""
        for path in [mount["path"] for mount in self.wanted if not os.path.isdir(mount["path"])]:
            self.changes.append({"what": path, "before": None, "after": "directory"})
            if not self.check:
                os.makedirs(path, mode=0o755)

    def run(self) -> StorageResult:
        """The work, and the module's result. Raises StorageError, FileError, OSError."""
        self.surplus()
        self.units()
        if self.params["start"]:
            self.start()
        else:
            self.enable()
            self.mount_points()
        unexported = sorted({*self.params["exports"]} - mount_record.exported())
        result = plan_result(self.changes)
        others = plan_result([change for change in self.changes if change["after"] != WRITTEN])  # files have a diff
        diff = [*self.diffs, others["diff"]]
        return {**result, "diff": diff, "remarks": self.remarks, "unexported": unexported}


def named(names: list[str]) -> str:
    """The first of some names, and the number of the others."""
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


ARGUMENTS = {
    "digest": option("The digest of the plan, for the record.", default=""),
    "mounts": several(
        "The mounts, in the order in which they are mounted.",
        "dict",
        options={
            "path": option("The directory on which it is mounted.", "path", required=True),
            "unit_file": option("The file of the unit.", "path", required=True),
            "unit": option("The name of the unit.", required=True),
            "source": option("What is mounted.", required=True),
            "type": option("The type of the file system; V(none) for a bind mount.", required=True),
            "content": option("The text of the unit.", required=True),
        },
    ),
    "files": option(
        "The texts of all files of the plan by their paths. The module writes the units among them, and records the "
        "others.",
        "dict",
        default={},
    ),
    "exports": several("Directories that the host exports. They are created before the bind mounts.", "path"),
    "homes": several(
        "Homes that the host creates, each once. One that is there is never changed.",
        "dict",
        options={
            "path": option("The path of the home on this host.", "path", required=True),
            "uid": option("Its owner.", "int", required=True),
            "gid": option("Its group.", "int", required=True),
        },
    ),
    "packages": several("Names of the packages that bring the file systems, for the record."),
    "start": switch(
        "Whether file systems are mounted, and directories and homes made. With V(false) the module writes and "
        "enables the units and makes the directories of the mounts alone, also in a tree without a running systemd, "
        "and the next run does the rest. The control host sets it where an image is built (C(slurm_image) of role "
        "C(gpucluster.slurm.slurm)).",
        default=True,
    ),
}


def main() -> None:
    run_module(lambda module: Work(module).run(), ARGUMENTS, lock=("storage", LOCK_SECONDS))


if __name__ == "__main__":
    main()
