#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_host_cleanup
short_description: Remove what this collection has installed on a host
description:
  - Stops and disables services, then removes packages, secrets, files, directories and parts of files, in this order. A
    run that was killed is completed by the next one.
  - Nothing is changed on a host with O(trees) where a job runs.
  - Other packages, accounts, homes and data stay.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_host_cleanup]
"""

EXAMPLES = r"""
- name: Clean a host that leaves the cluster
  gpucluster.slurm.slurm_host_cleanup: {services: [slurmd, munge], secrets: [/etc/munge/munge.key]}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import glob
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import CommandError, run
from ..module_utils.formats.package_names import INSTALLED
from ..module_utils.host.files import File, part_of, without_part, write
from ..module_utils.host.job_processes import processes, served_jobs
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.packages import added_packages, dpkg
from ..module_utils.host.packages.added_packages import PackageRecord
from ..module_utils.host.plan_result import PlanRow, plan_result

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PlanResult

MARK = b"Managed by gpucluster.slurm"
NAME = "gpucluster"
"""What the names of files have that this collection makes without the mark, such as the key of a package source."""
UNITS = "/etc/systemd/system/"
UNIT = re.compile(r"[^/@]+\.(?:service|timer|socket|path)")
MOUNTS = (".mount", ".automount")
"""Units that slurm_storage removes, unless somebody uses the file system."""
EDGE = 1024
"""Bytes at the beginning and at the end of a file that may have the mark: a check of the site has it at its end."""
LIMIT = 150
"""Seconds for the end of a service."""
LIMIT_OF_PACKAGE = 600
"""Seconds for the removal of a package, with the wait for another apt."""
APT_GET = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet=1", "--option=DPkg::Lock::Timeout=300"]
CONFIRMED = ["--allow-change-held-packages", "--yes"]  # those of Slurm are held
PURGE = [*APT_GET, "purge", *CONFIRMED]
REMOVE = [*APT_GET, "remove", *CONFIRMED]
DEPENDS = ["apt-cache", "depends", "--installed", "--recurse", "--no-recommends", "--no-suggests", "--no-enhances"]
DEPENDS += ["--no-conflicts", "--no-breaks", "--no-replaces"]
REMOVED = re.compile(r"^(?:Purg|Remv) (\S+)", re.MULTILINE)
"""A package that apt would remove, in the output of its simulation."""


def systemctl(*arguments: str) -> str:
    """The output of systemctl. Raises CommandError."""
    answer = run(["systemctl", *arguments], seconds=LIMIT)
    if answer.status:
        raise CommandError(f"systemctl {' '.join(arguments)}: {answer.message}")
    return answer.output


def unit_of(service: str) -> str:
    """The unit of a service, or of what has its kind in its name, such as a timer."""
    return service if UNIT.fullmatch(service) else f"{service}.service"


def state(service: str) -> str:
    """The state of a service as text; empty if it neither runs nor starts, or is not there. Raises CommandError."""
    shown = systemctl("show", "--property=ActiveState,UnitFileState", "--", unit_of(service))
    found = dict(line.split("=", 1) for line in shown.split("\n") if "=" in line)
    runs = found.get("ActiveState") not in ("inactive", "failed", None)
    starts = found.get("UnitFileState") == "enabled"
    return ", ".join(name for name, holds in (("active", runs), ("enabled", starts)) if holds)


def managed(path: str) -> bool:
    """Whether a file is one of this collection."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(EDGE)
        file.seek(max(len(head), os.path.getsize(path) - EDGE))
        return MARK in head + file.read(EDGE)


def own_files(trees: Iterable[str], spared: Collection[str]) -> Iterator[str]:
    """The files of this collection in directories, by their mark or name, except in those of `spared`."""
    for tree in trees:
        for directory, names, files in os.walk(tree):
            names[:] = sorted(name for name in names if os.path.join(directory, name) not in spared)
            for path in (os.path.join(directory, name) for name in sorted(files) if not name.endswith(MOUNTS)):
                with suppress(FileNotFoundError):  # it has gone meanwhile
                    if NAME in os.path.basename(path) or managed(path):
                        yield path


def refuse_jobs() -> None:
    """Raises CommandError if a job runs on the host."""
    if jobs := served_jobs(processes()):
        raise CommandError(f"job {', '.join(jobs)} runs on this host, and nothing was changed")


def clean(params: Params, check_mode: bool) -> list[PlanRow]:
    """Do the work, and return the changes. Raises CommandError, FileError and OSError."""
    if params["trees"]:
        refuse_jobs()
    files = [path for path in params["secrets"] if os.path.lexists(path)]
    files += [path for pattern in params["files"] for path in sorted(glob.glob(pattern)) if managed(path)]
    own = list(own_files(params["trees"], params["spared"]))
    files = list(dict.fromkeys([*files, *own]))
    units = [os.path.basename(path) for path in files if UNIT.fullmatch(path.removeprefix(UNITS))]
    changes = stop_services(dict.fromkeys([*params["services"], *units]), check_mode)
    changes += remove_packages(params["packages"], check_mode)
    record = added_packages.read_record()
    if params["added_packages"]:
        changes += remove_added_packages(record, params["kept_packages"], params["unpurged_packages"], check_mode)
    changes += remove_paths(files, "present", unlink, check_mode)
    if params["restored"]:
        changes += restored(params["restored"]["kept"], params["restored"]["path"], check_mode)
    changes += remove_paths(filter(os.path.isdir, params["directories"]), "directory", shutil.rmtree, check_mode)
    for part in params["parts"]:
        changes += without(part["path"], part["marker"], check_mode)
    empty, _left = sort_empty(params["empty_directories"], changes)
    changes += remove_paths(empty, "directory", os.rmdir, check_mode)
    if params["added_packages"] and not check_mode:
        keep_record(record)
    if files and not check_mode:
        remove_empty_directories(own)
        systemctl("daemon-reload")
        for service in (name for name in params["reload"] if "active" in state(name)):
            systemctl("try-reload-or-restart", "--", unit_of(service))
    return changes


def unlink(path: str) -> None:
    """Remove a file, which may have gone with its package. Raises OSError."""
    with suppress(FileNotFoundError):  # it has gone with its package
        os.unlink(path)


def remove_empty_directories(files: Iterable[str]) -> None:
    """Remove the directories in which nothing is left without these files, and that are of no package."""
    for directory in dict.fromkeys(map(os.path.dirname, files)):
        is_empty = os.path.isdir(directory) and not os.listdir(directory)
        if is_empty and run(["dpkg-query", "--search", directory]).status:
            os.rmdir(directory)


def sort_empty(directories: Iterable[str], changes: Iterable[PlanRow]) -> tuple[list[str], dict[str, list[str]]]:
    """The directories with nothing but what these changes remove, and those with more, which is named.

    A directory comes before the one that it is in.
    """
    gone = {change["what"] for change in changes}
    empty: list[str] = []
    left = {}
    for directory in filter(os.path.isdir, directories):
        paths = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
        if others := [path for path in paths if path not in (*gone, *empty)]:
            left[directory] = others
        else:
            empty.append(directory)
    return empty, left


def stop_services(services: Iterable[str], check_mode: bool) -> list[PlanRow]:
    """Stop services, so that they do not start again. Raises CommandError."""
    changes = []
    for service in services:
        if now := state(service):
            changes.append({"what": unit_of(service), "before": now, "after": None})
            if not check_mode:
                systemctl("disable", "--now", "--quiet", "--", unit_of(service))
    return changes


def recorded_packages(names: Iterable[str]) -> list[str]:
    """Those of the packages that this collection has installed."""
    return [name for name in names if os.path.exists(os.path.join(INSTALLED, name))]


def needed_packages(names: Iterable[str]) -> dict[str, list[str]]:
    """The packages of others that apt would remove with one of these, by its name. Raises CommandError."""
    found = {name: [gone for gone in removed_with([name]) if not recorded_packages([gone])] for name in names}
    return {name: others for name, others in found.items() if others}


def remove_packages(names: Iterable[str], check_mode: bool) -> list[PlanRow]:
    """Purge the packages that this collection has installed and no other one needs. Raises CommandError, OSError."""
    changes = []
    recorded = recorded_packages(names)
    needed = needed_packages(recorded)
    for name in recorded:
        if name not in needed:
            changes.append({"what": f"package {name}", "before": "installed", "after": None})
        if check_mode:
            continue
        if name not in needed:
            answer = run([*PURGE, "--", name], seconds=LIMIT_OF_PACKAGE)
            if answer.status:
                raise CommandError(f"{' '.join(PURGE)} {name}: {answer.message}")
        # One that another package needs belongs to the site from now on.
        os.unlink(os.path.join(INSTALLED, name))
    return changes


def remove_added_packages(
    record: PackageRecord, kept: Collection[str], unpurged: Collection[str], check_mode: bool
) -> list[PlanRow]:
    """Purge all packages that came with this collection and no other one needs, and hold none any more.

    Args:
        record: what came with it.
        kept: patterns of names of packages that stay.
        unpurged: patterns of those that are removed, since a purge would remove their data as well.

    Raises CommandError, OSError.
    """
    present = dpkg.installed(run([*dpkg.QUERY]).output)
    names = added_packages.removable(record, present, kept)
    if names and (others := removed_with(names) - {*names}):
        needed = dependencies(others)
        names = [name for name in names if name not in needed]
    held = [name for name in record.get("held") or [] if name in present and name not in names and present[name].held]
    changes: list[PlanRow] = [{"what": f"package {name}", "before": "installed", "after": None} for name in names]
    changes += [{"what": f"hold of package {name}", "before": "held", "after": None} for name in held]
    if check_mode:
        return changes
    removed = [name for name in names if added_packages.matches(name, unpurged)]
    purged = [name for name in names if name not in removed]
    change_packages(REMOVE, removed)
    change_packages(PURGE, purged)
    change_packages(["apt-mark", "unhold"], held)
    return changes


def keep_record(before: PackageRecord) -> None:
    """Record the packages that stay, such as MariaDB with its data: a later reset can remove them. Raises OSError."""
    if left := added_packages.removable(before, dpkg.installed(run([*dpkg.QUERY]).output), ()):
        os.makedirs(os.path.dirname(added_packages.RECORD), mode=0o755, exist_ok=True)
        added_packages.write_record({"added": left})


def change_packages(command: Iterable[str], names: Iterable[str]) -> None:
    """Run a command with names of packages, if there are any. Raises CommandError."""
    wanted = [*command, "--", *names]
    if wanted[-1] != "--" and (answer := run(wanted, seconds=LIMIT_OF_PACKAGE)).status:
        raise CommandError(f"{' '.join(wanted)}: {answer.message}")


def removed_with(names: Iterable[str]) -> set[str]:
    """The packages that apt would remove with these. Raises CommandError."""
    answer = run([*PURGE, "--simulate", "--", *names], seconds=LIMIT)
    if answer.status:
        raise CommandError(f"{' '.join(PURGE)} --simulate: {answer.message}")
    return {*REMOVED.findall(answer.output)}


def dependencies(names: Iterable[str]) -> set[str]:
    """The installed packages that these need, and those that they need in turn. Raises CommandError."""
    answer = run([*DEPENDS, "--", *sorted(names)], seconds=LIMIT)
    if answer.status:
        raise CommandError(f"{' '.join(DEPENDS)}: {answer.message}")
    return {line.partition(":")[0] for line in answer.output.split("\n") if line and not line.startswith((" ", "<"))}


def remove_paths(paths: Iterable[str], kind: str, remove: Callable[[str], None], check_mode: bool) -> list[PlanRow]:
    """Remove files or directories; `kind` is what they are in the plan. Raises OSError."""
    changes = []
    for path in paths:
        changes.append({"what": path, "before": kind, "after": None})
        if not check_mode:
            remove(path)
    return changes


def restored(kept: str, path: str, check_mode: bool) -> list[PlanRow]:
    """Put files back, with their owners, modes and times. Raises OSError."""
    names = sorted(os.listdir(kept)) if os.path.isdir(kept) else []
    for name in [] if check_mode else names:
        before, place = os.path.join(kept, name), os.path.join(path, name)
        if os.path.isdir(before):
            continue  # nothing of this collection is in a directory of the site
        shutil.copy2(before, f"{place}.before")
        owner = os.stat(before)
        os.chown(f"{place}.before", owner.st_uid, owner.st_gid)
        os.replace(f"{place}.before", place)
    return (
        [{"what": path, "before": "files of this collection", "after": f"{len(names)} files of before"}]
        if names
        else []
    )


def without(path: str, marker: str, check_mode: bool) -> list[PlanRow]:
    """Remove a part of a file, which keeps its owner and mode. Raises FileError and OSError."""
    file = File(path, b"")
    there = part_of(file.found or b"", marker)
    if there is None:
        return []
    file.content, file.mode = without_part(file.found or b"", marker), file.found_as[1]
    if not check_mode:
        write([file])
    lines = there.count(b"\n")
    return [{"what": path, "before": f"{lines} lines of the cluster", "after": None}]


ARGUMENTS = {
    "services": several(
        "Services, and timers (C(NAME.timer)), that are stopped and disabled. Those that the host does not have are "
        "left out."
    ),
    "packages": several(
        "Packages that are purged if this collection has installed them, which the directory "
        "C(/var/lib/gpucluster-slurm/installed) records. One that another package needs stays, and is no longer "
        "recorded."
    ),
    "added_packages": switch(
        "Whether all packages are purged that the host has because of this collection, with those that came along "
        "(C(/var/lib/gpucluster-slurm/packages.json)), and no package that it has held is held any more. One that "
        "another package needs stays."
    ),
    "kept_packages": several("Patterns of names of packages that O(added_packages) leaves, as of a shell."),
    "unpurged_packages": several(
        "Patterns of names of packages that O(added_packages) removes and does not purge, as of a shell, since a purge "
        "would remove their data."
    ),
    "secrets": several("Files that are removed, whatever they contain.", "path", no_log=False),
    "files": several(
        "Patterns of files, as of a shell. Files without the text C(Managed by gpucluster.slurm) stay.", "path"
    ),
    "trees": several(
        "Directories in which, and below which, each file with the text C(Managed by gpucluster.slurm), or with "
        "C(gpucluster) in its name, is removed. Units of systemd among them are stopped before.",
        "path",
    ),
    "spared": several("Directories in O(trees) that are left out.", "path"),
    "reload": several("Services that read their files again, where they run still."),
    "directories": several("Directories of this collection, which are removed with all that they have.", "path"),
    "empty_directories": several(
        "Directories that are removed if nothing is in them, after all others. A warning names those that stay and "
        "what is in them.",
        "path",
    ),
    "parts": several(
        "Files of others that have a part of this collection.",
        "dict",
        options={
            "path": option("The file.", "path", required=True),
            "marker": option("The lines around the part, with C({mark}) for BEGIN and END.", required=True),
        },
    ),
    "restored": option(
        "Files of others that are put back after O(files) have been removed, and before O(directories) are. Without "
        "the directory C(kept) nothing is put back.",
        "dict",
        options={
            "kept": option("The directory with the files as they were.", "path", required=True),
            "path": option("The directory that they were in.", "path", required=True),
        },
    ),
}


def clean_host(module: AnsibleModule) -> PlanResult:
    """Clean the host, and return the module's result. Raises as `clean`."""
    changes = clean(module.params, module.check_mode)
    _empty, left = sort_empty(module.params["empty_directories"], changes)
    for directory, paths in left.items():
        module.warn(
            f"{directory} stays, since it has {', '.join(paths)}. Remove the keys of the cluster file that these "
            "belong to, and run site.yml, before a host is given back; what belongs to no key is yours to remove"
        )
    return plan_result(changes)


def main() -> None:
    run_module(clean_host, ARGUMENTS)


if __name__ == "__main__":
    main()
