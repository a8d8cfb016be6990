#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_host_facts
short_description: Gather the facts that the roles of this collection need
description:
  - Gathers facts about a host once for all roles, instead of Ansible's facts. So a host that needs no change costs one
    task instead of a task for each fact.
  - It changes nothing on the host, with one exception. If apt has no package lists, or with O(update_lists), the module
    downloads them to find out the release of Slurm.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_host_facts]
"""

EXAMPLES = r"""
- name: Gather facts about the host
  gpucluster.slurm.slurm_host_facts: {packages: [munge, slurmd]}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.facts.measurement import OPTIONS, measure
from ..module_utils.facts.probe import Questions, gather_facts, unknown_users
from ..module_utils.hardware.sysfs import Tree
from ..module_utils.host.directories import OPTION as DIRECTORIES
from ..module_utils.host.directories import from_options
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.packages.apt_lock import run_unlocked

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import HostFacts, HostFactsResult

LISTS_SECONDS = 120
"""How long another command may hold the lock of apt's lists. The task that gathers facts has 180 (stages/look.yml)."""


def read_facts(module: AnsibleModule) -> HostFactsResult:
    """The module's result. Raises MeasurementError."""

    def run(command: Sequence[str]) -> str:
        path = module.get_bin_path(command[0])
        return run_unlocked(module, [path, *command[1:]], {"LC_ALL": "C"}, LISTS_SECONDS)[1] if path else ""

    params = module.params
    part = params["part"] or {"path": "", "marker": ""}
    given = {each.name: params[each.name] for each in fields(Questions)}
    given |= {"part": (part["path"], part["marker"]), "directories": from_options(params["directories"])}
    facts: HostFacts = {"slurm_host": gather_facts(Tree(), run, Questions(**given))}
    result: HostFactsResult = {"changed": False, "ansible_facts": facts, "time": 0.0, "clock_offset": 0.0}
    for message in unknown_users(params["policy_users"]):
        module.warn(f"{os.uname().nodename}: {message}")
    if params["hardware"]:
        hardware, differences = measure(module, **{name: params[name] for name in OPTIONS})
        facts["slurm_hardware"] = hardware
        result["differences"] = differences
    result["time"] = time.time()
    return result


ARGUMENTS = {
    "purpose": option(
        "For the roles of this collection, instead of the other options. The control host derives from the variables "
        "of the host what they have to know. With V(site) and V(lists), it also decides what the host needs, and puts "
        "it into groups C(slurm_needs_STAGE). With V(lists), apt downloads its lists of packages first. With "
        "V(report), it decides without groups, and tells what is different from the cluster file. V(role) is for a "
        "role that is used alone, V(cluster) only finds out whether the host belongs to another cluster. With "
        "V(new), a host that cannot answer does not fail: the result has the reason.",
        default="",
        choices=["", "site", "lists", "report", "role", "cluster", "new"],
    ),
    "packages": several("Packages to find, by name."),
    "slurm_package": option(
        "The package whose version is that of Slurm. The version that apt would install is asked for if the host has "
        "no Slurm. With the empty value, apt is not asked.",
        default="slurm-wlm-basic-plugins",
    ),
    "update_lists": switch(
        "Whether apt downloads its package lists first, because those that the host has may be old."
    ),
    "state_directory": option(
        "C(StateSaveLocation), to find out which cluster's state it has, and which release of slurmctld wrote it. For "
        "the name of the cluster, Slurm's default directories and those of the configurations on the host are read in "
        "any case.",
        default="",
    ),
    "hold": several("Source packages whose installed packages have to be held (C(apt-mark hold)), by name."),
    "candidates": several("Packages of which to find the version that apt would install, by name."),
    "users": several("Users to find, by name."),
    "ids": option(
        "Ids of users by name. Those that a user who does not exist yet would not get, because another user or a "
        "group has them, are returned.",
        "dict",
        default={},
    ),
    "policy_users": several(
        "Users that have to exist on the host, by name. The module asks for all of them with one call of getent, and "
        "warns of those that do not exist. No fact depends on it, since a directory service may be down."
    ),
    "directory_users": several(
        "Users of a directory service, by name, to compute the checksum of their ids. The module asks for all of them "
        "with one call of getent."
    ),
    "paths": several("Files and directories of which to read owner and mode.", "path"),
    "directories": DIRECTORIES,
    "free": several("Directories of which to read the free space.", "path"),
    "files": several("Files to compute the checksum of.", "path"),
    "programs": several(
        "Programs to check, by their path. A path may be a pattern, as in glob(7); then all matching files are "
        "checked. A name without a directory is searched in the directories of a usual C(PATH). Scripts must have an "
        "interpreter, which the host has, and a syntax that it accepts. None of them is run."
    ),
    "scripts": option(
        "Texts of scripts that nodes are to run, by name. Those whose syntax an interpreter of this host refuses are "
        "returned. None of them is run.",
        "dict",
        default={},
    ),
    "profiles": several(
        "Files of AppArmor's profiles in C(/etc/apparmor.d), by name, to find out whether their programs may make "
        "user namespaces."
    ),
    "kernel": several("Settings of the kernel to read, by their names for sysctl(8)."),
    "mounts": option(
        "The unit files of mounts, by their directories. Files that such a mount would hide are returned, unless "
        "something is mounted there, or the unit is that of M(gpucluster.slurm.slurm_storage).",
        "dict",
        default={},
    ),
    "filesystems": several(
        "Types of file systems that the kernel has to have, such as V(nfsd). Those that it lacks, and of which it has "
        "no module, are returned."
    ),
    "applied": several(
        "Names of records that M(gpucluster.slurm.slurm_config), M(gpucluster.slurm.slurm_service) and "
        "M(gpucluster.slurm.slurm_files) keep with O(ignore:digest), to find out which still hold."
    ),
    "part": option(
        "Part of a file to compute the checksum of. If the file is V(/etc/hosts), the addresses in its other lines "
        "are returned as well.",
        "dict",
        options={
            "path": option("The file.", "path", required=True),
            "marker": option(
                "The lines around the part, as in the files of M(gpucluster.slurm.slurm_packages).", required=True
            ),
        },
    ),
    "serving_controller": switch(
        "Whether to ask Slurm which of its controllers serves. It can take a minute if one of them does not answer."
    ),
    "nodes": switch("Whether to ask Slurm for the nodes that are not in service, if slurmctld runs here."),
    "jobs": switch("Whether to return the jobs that run on the host."),
    "ssh": switch("Whether to return the host's public key, and who passes its sshd."),
    "known_hosts": switch("Whether to return the lines of C(/etc/ssh/ssh_known_hosts2)."),
    "backup_hours": option(
        "The hours after which the last backup of the host is old. With V(0), backups are not checked.",
        "int",
        default=0,
    ),
    "hardware": switch(
        "Whether to measure the host's hardware as well, as M(gpucluster.slurm.slurm_hardware_facts) does."
    ),
    **OPTIONS,
}


def main() -> None:
    run_module(read_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
