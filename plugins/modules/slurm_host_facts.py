#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_host_facts
short_description: Gather the facts that the roles of this collection need
version_added: 0.1.0
description:
  - Gathers facts about a host once for all roles, instead of Ansible's facts. So a host that needs no change costs one
    task instead of a task for each fact.
  - It changes nothing on the host, with one exception. If apt has no package lists, or with O(update_lists), the module
    downloads them to find out the release of Slurm.
options:
  purpose:
    description:
      - For the roles of this collection, instead of the other options. The control host derives from the variables of
        the host what they have to know.
      - With V(site) and V(lists), it also decides what the host needs, and puts it into groups C(slurm_needs_STAGE).
        With V(lists), apt downloads its lists of packages first. With V(report), it decides without groups, and tells
        what is different from the cluster file. V(role) is for a role that is used alone, V(cluster)
        only finds out whether the host belongs to another cluster.
    type: str
    choices: ["", site, lists, report, role, cluster]
    default: ""
  packages:
    description: Packages to find, by name.
    type: list
    elements: str
    default: []
  slurm_package:
    description:
      - The package whose version is that of Slurm. The version that apt would install is asked for if the host has no
        Slurm. With the empty value, apt is not asked.
    type: str
    default: slurm-wlm-basic-plugins
    version_added: 0.2.0
  update_lists:
    description: Whether apt downloads its package lists first, because those that the host has may be old.
    type: bool
    default: false
    version_added: 0.2.0
  hold:
    description: Source packages whose installed packages have to be held (C(apt-mark hold)), by name.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  candidates:
    description: Packages of which to find the version that apt would install, by name.
    type: list
    elements: str
    default: []
  users:
    description: Users to find, by name.
    type: list
    elements: str
    default: []
  ids:
    description:
      - Ids of users by name. Those that a user who does not exist yet would not get, because another user or a group
        has them, are returned.
    type: dict
    default: {}
    version_added: 0.2.0
  policy_users:
    description:
      - Users that have to exist on the host, by name. The module asks for all of them with one call of getent, and
        warns of those that do not exist. No fact depends on it, since a directory service may be down.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  directory_users:
    description:
      - Users of a directory service, by name, to compute the checksum of their ids. The module asks for all of them
        with one call of getent.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  paths:
    description: Files and directories of which to read owner and mode.
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  free:
    description: Directories of which to read the free space.
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  files:
    description: Files to compute the checksum of.
    type: list
    elements: path
    default: []
  programs:
    description:
      - Programs to check, by their path. A path may be a pattern, as in glob(7); then all matching files are checked.
        A name without a directory is searched in the directories of a usual C(PATH).
      - Scripts must have an interpreter, which the host has, and a syntax that it accepts. None of them is run.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  scripts:
    description:
      - Texts of scripts that nodes are to run, by name. Those whose syntax an interpreter of this host refuses are
        returned. None of them is run.
    type: dict
    default: {}
    version_added: 0.2.0
  part:
    description:
      - Part of a file to compute the checksum of.
      - If the file is V(/etc/hosts), the addresses in its other lines are returned as well.
    type: dict
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      marker:
        description: The lines around the part, as in the files of M(gpucluster.slurm.slurm_packages).
        type: str
        required: true
  profiles:
    description:
      - Files of AppArmor's profiles in C(/etc/apparmor.d), by name, to find out whether their programs may make user
        namespaces.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  kernel:
    description: Settings of the kernel to read, by their names for sysctl(8).
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  made:
    description:
      - Names of records that M(gpucluster.slurm.slurm_config), M(gpucluster.slurm.slurm_service) and
        M(gpucluster.slurm.slurm_files) keep with O(ignore:digest), to find out which still hold.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  state_directory:
    description:
      - C(StateSaveLocation), to find out which cluster's state it has, and which release of slurmctld wrote it. For
        the name of the cluster, Slurm's default directories and those of the configurations on the host are read
        in any case.
    type: str
    default: ""
    version_added: 0.2.0
  serving_controller:
    description:
      - Whether to ask Slurm which of its controllers serves. It can take a minute if one of them does not answer.
    type: bool
    default: false
  nodes:
    description: Whether to ask Slurm for the nodes that are not in service, if slurmctld runs here.
    type: bool
    default: false
    version_added: 0.2.0
  jobs:
    description: Whether to return the jobs that run on the host.
    type: bool
    default: false
    version_added: 0.2.0
  ssh:
    description: Whether to return the host's public key, and who passes its sshd.
    type: bool
    default: false
    version_added: 0.2.0
  known_hosts:
    description: Whether to return the lines of C(/etc/ssh/ssh_known_hosts2).
    type: bool
    default: false
    version_added: 0.2.0
  backup_hours:
    description: The hours after which the last backup of the host is old. With V(0), backups are not checked.
    type: int
    default: 0
    version_added: 0.2.0
  hardware:
    description: Whether to measure the host's hardware as well, as M(gpucluster.slurm.slurm_hardware_facts) does.
    type: bool
    default: false
extends_documentation_fragment: [gpucluster.slurm.hardware, gpucluster.slurm.reading, gpucluster.slurm.directories]
seealso:
  - module: gpucluster.slurm.slurm_hardware_facts
"""

EXAMPLES = r"""
- name: Gather facts about the host
  gpucluster.slurm.slurm_host_facts:
    packages: [munge, slurmd]
    users: [munge, slurm]
  register: gathered

- name: Show the version of Slurm
  ansible.builtin.debug:
    var: gathered.ansible_facts.slurm_host.slurm_version
"""

RETURN = r"""
time:
  description: The clock of the host, in seconds since the epoch.
  type: float
  returned: always
  sample: 1795525200.5
clock_offset:
  description: The same as RV(gpucluster.slurm.slurm_doctor_info#module:clock_offset).
  type: float
  returned: always
  sample: 0.0
ansible_facts:
  description: The facts.
  type: dict
  returned: always
  contains:
    slurm_hardware:
      description: The fact of the same name of M(gpucluster.slurm.slurm_hardware_facts).
      type: dict
      returned: with O(hardware)
    slurm_host:
      description: The facts about the host.
      type: dict
      returned: always
      contains:
        distribution:
          description: C(ID) and C(VERSION_ID) of C(/etc/os-release).
          type: str
          returned: always
          sample: debian 13
        codename:
          description: C(VERSION_CODENAME) of C(/etc/os-release); empty without one.
          type: str
          returned: always
          sample: trixie
        hostname:
          description: The host name that the host itself has.
          type: str
          returned: always
          sample: compute01
        container:
          description: The kind of container that the host is, or V(none).
          type: str
          returned: always
          sample: podman
        memory_mib:
          description: Its memory in MiB.
          type: int
          returned: always
          sample: 515655
        nvidia_gpus:
          description: Number of NVIDIA GPUs, on PCI or of the driver.
          type: int
          returned: always
          sample: 8
        slurm_version:
          description:
            - The version that an installed daemon of Slurm reports, or a command if the host has no daemon.
            - On a host without Slurm, the version of O(slurm_package) that apt would install; empty if there is none.
          type: str
          returned: always
          sample: 24.11.5
        slurm:
          description: What decides which release of Slurm the host may run.
          type: dict
          returned: always
          contains:
            installed:
              description: The version of the installed programs; empty without Slurm.
              type: str
              returned: always
              sample: 24.11.5
            candidate:
              description: On a host without Slurm, the version of O(slurm_package) that apt would install.
              type: str
              returned: always
              sample: ""
            state_protocol:
              description: The protocol version of the slurmctld that wrote O(state_directory) last; 0 without a state.
              type: int
              returned: always
              sample: 10752
        packages:
          description: The installed ones of O(packages), with their versions.
          type: dict
          returned: always
          sample: {munge: 0.5.16-1}
        unheld:
          description: The installed packages from the source packages O(hold) that are not held.
          type: list
          elements: str
          returned: always
          sample: [slurmd]
        candidates:
          description: The packages of O(candidates) that apt can install, with their versions.
          type: dict
          returned: always
          sample: {apptainer: 1.4.5-3}
        mirror:
          description: URL of the host's Debian mirror, with O(candidates); empty if apt does not know it.
          type: str
          returned: always
          sample: http://mirror.example.org/debian/
        interrupted:
          description: Whether dpkg has an unfinished installation, or is running.
          type: bool
          returned: always
        clocks:
          description: Time services that are enabled, and whether they run.
          type: dict
          returned: always
          sample: {systemd-timesyncd: true}
        made:
          description:
            - The checksums of those records of O(made) that hold. Their files are as the module has left them, also in
              owner and mode, and their service has not been started again since.
          type: dict
          returned: always
          sample: {munge: 0c7e3a...}
        users:
          description: The existing users of O(users), with their ids.
          type: dict
          returned: always
          sample: {slurm: 64030}
        taken_ids:
          description: Why users of O(ids) who do not exist would not get their ids, or groups with these ids, by user.
          type: dict
          returned: always
          sample: {slurm: [the user backup2 has id 64030]}
        people:
          description:
            - The SHA-256 checksum of the plan of people that M(gpucluster.slurm.slurm_people) has put into force.
              Empty if there is none, or if an account, a group, a key or sshd's drop-in has changed since.
          type: str
          returned: always
          sample: ""
        directory:
          description: What the host knows of O(directory_users), for the comparison with other hosts.
          type: dict
          returned: always
          contains:
            checksum:
              description:
                - The SHA-256 checksum of the names and ids that it knows; empty if there was no answer in 20 seconds,
                  or without O(directory_users).
              type: str
              returned: always
              sample: ""
            unknown:
              description: The number of users that it does not know; null if there was no answer in 20 seconds.
              type: int
              returned: always
              sample: 0
        paths:
          description: The existing paths of O(paths), with their owner, group and permissions in octal.
          type: dict
          returned: always
          sample: {/etc/slurm: "root:root 0755"}
        directories:
          description: O(directories), compared with those of the host.
          type: dict
          returned: always
          contains:
            differ:
              description:
                - Those that are to be created or have another owner or mode, with their owner, group and permissions in
                  octal, or V(missing).
              type: dict
              returned: always
              sample: {/var/lib/gpucluster-slurm: "root:root 0777"}
            refused:
              description: Why files of root cannot be in them safely, a sentence for each reason.
              type: list
              elements: str
              returned: always
              sample: []
        free_mib:
          description:
            - The existing directories of O(free), with the MiB that an ordinary user can still write there. It is 0 if
              the file system has no inodes left.
          type: dict
          returned: always
          sample: {/var/lib/mysql: 69618}
        read_only:
          description: The directories in which the roles write, and whose file systems are read-only.
          type: list
          elements: str
          returned: always
          sample: [/usr]
        other_addresses:
          description:
            - With O(part) of C(/etc/hosts), the first IPv4 address of each name in the other lines of the file.
            - The host's own name with a loopback address is left out.
          type: dict
          returned: always
          sample: {compute02: 10.0.0.9}
        files:
          description: The existing files of O(files), with the SHA-256 checksum of their content.
          type: dict
          returned: always
          sample: {}
        programs:
          description: The programs of O(programs) that cannot be run, with the reason.
          type: dict
          returned: always
          sample: {/opt/site/prolog: is missing}
        scripts:
          description: The scripts of O(scripts) that cannot be run, with the reason.
          type: dict
          returned: always
          sample: {"prologs: disk": "line 3: python3: expected ':'"}
        part:
          description: SHA-256 checksum of O(part), without the marker lines; empty if the file does not have it.
          type: str
          returned: always
          sample: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
        clusters:
          description: The clusters of Slurm that the host belongs to, by its files and processes.
          type: dict
          returned: always
          contains:
            found:
              description:
                - The names of clusters, in small letters, as Slurm has them.
                - C(file) has the name. C(by) is the daemon that runs with this file, or V(conf), V(state), V(database)
                  or V(mark), for a slurm.conf with which no daemon runs, C(clustername) in C(StateSaveLocation), a
                  table of slurmdbd, and the part of C(/etc/hosts) that this collection writes.
              type: list
              elements: dict
              returned: always
              sample: [{name: hpc-demo-cluster, file: /etc/slurm/slurm.conf, by: slurmctld}]
            daemons:
              description: The daemons of Slurm that run, and that this collection has not set up.
              type: list
              elements: str
              returned: always
              sample: []
        state_version:
          description:
            - The version of what this collection keeps on the host (C(/var/lib/gpucluster-slurm/version)). V(0) where
              no version of the collection has written one.
          type: int
          returned: always
          sample: 1
        cloud_init:
          description: What cloud-init would change at the next boot.
          type: dict
          returned: always
          contains:
            writes_hosts:
              description:
                - The configuration of the instance by which it writes C(/etc/hosts) (C(manage_etc_hosts)). It wins over
                  the files in C(/etc/cloud). Empty if there is none, or if cloud-init is disabled.
              type: str
              returned: always
              sample: /var/lib/cloud/instance/cloud-config.txt
            own_name:
              description: Whether the host has another host name than the one that cloud-init has given to it.
              type: bool
              returned: always
        ufw:
          description:
            - The TCP ports to which rules of the firewall ufw allow connections, from any source; null if it is not
              active.
          type: list
          elements: str
          returned: always
          sample: ["22", "6817", "60001:63000"]
        profiles:
          description:
            - Whether the programs of each of O(profiles) may make user namespaces, V(loaded), or why not, V(missing),
              V(no userns) or V(not loaded).
          type: dict
          returned: always
          sample: {apptainer: loaded}
        kernel:
          description: The settings of O(kernel) that the kernel has as a number.
          type: dict
          returned: always
          sample: {net.core.somaxconn: 4096}
        storage:
          description:
            - The digest of the plan that M(gpucluster.slurm.slurm_storage) has applied, if all of it still holds.
            - V(incomplete) if there is something to do, or empty if the host has no storage of this collection.
          type: str
          returned: always
          sample: incomplete
        firewall:
          description:
            - The digest of the rules that M(gpucluster.slurm.slurm_firewall) has loaded, if all of it still holds.
            - V(incomplete) if there is something to do, or empty if the host has no firewall of this collection.
          type: str
          returned: always
          sample: incomplete
        backup:
          description:
            - What is wrong with the last backup of the host, as text; empty if nothing is, or without
              O(backup_hours).
          type: str
          returned: always
          sample: the last backup is 73 hours old, and 48 are allowed
        out_of_service:
          description:
            - The nodes that are down, drained or failed, or do not answer, as a hostlist, with O(nodes). Null if
              slurmctld does not run here, or has not answered.
          type: str
          returned: always
          sample: compute[03,07]
        jobs:
          description:
            - The jobs that a slurmstepd of the host serves, by number, with O(jobs). Slurm's daemons are not asked.
            - V(runs) is a job with processes. V(reports) is one of which only slurmstepd is left, which waits to report
              the end. V(open) is one without steps of its own on the host.
          type: dict
          returned: always
          sample: {"41": runs, "42": reports}
        serving_controller:
          description:
            - The serving controller, by its name in C(SlurmctldHost); empty if none serves, or without
              O(serving_controller).
          type: str
          returned: always
          sample: head
        host_key:
          description:
            - A public key of the host, of the kind ed25519 if it has one. Empty if it has none, or without O(ssh).
          type: str
          returned: always
          sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGVYYW1wbGUga2V5IG9mIHRoZSBkb2N1bWVudGF0aW9u
        sshd:
          description:
            - Who passes sshd by C(/etc/pam.d/sshd), as O(gpucluster.slurm.slurm_access#module:who). Empty if the files
              of PAM are not as M(gpucluster.slurm.slurm_access) writes them, or without O(ssh).
          type: str
          returned: always
          sample: job
        known_hosts:
          description: The lines of C(/etc/ssh/ssh_known_hosts2), with O(known_hosts).
          type: list
          elements: str
          returned: always
          sample: []
        namespaces:
          description:
            - Settings of the kernel that decide whether users can create containers, C(max_user_namespaces),
              C(unprivileged_userns_clone) and C(apparmor_restrict_unprivileged_userns).
            - A setting that the kernel does not have is null.
          type: dict
          returned: always
          sample: {max_user_namespaces: 65536}
differences:
  description: The same as RV(gpucluster.slurm.slurm_hardware_facts#module:differences), with O(hardware).
  type: list
  elements: dict
  returned: with O(hardware)
"""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.facts.measurement import OPTIONS, measure
from ..module_utils.facts.probe import Questions, gather_facts, unknown_users
from ..module_utils.hardware.sysfs import Tree
from ..module_utils.host.directories import OPTIONS as DIRECTORY
from ..module_utils.host.directories import from_options
from ..module_utils.host.module_run import NAMES, PATHS, REQUIRED_TEXT, run_module
from ..module_utils.host.packages.apt_lock import run_unlocked

if TYPE_CHECKING:
    from ..module_utils.results.module_results import HostFacts, HostFactsResult

LISTS_SECONDS = 120
"""How long another command may hold the lock of apt's lists. The task that gathers facts has 180 (stages/look.yml)."""


def read_facts(module: AnsibleModule) -> HostFactsResult:
    """The module's result. Raises MeasurementError."""

    def run(command: Sequence[str]) -> str:
        path = module.get_bin_path(command[0])
        return run_unlocked(module, [path, *command[1:]], {"LC_ALL": "C"}, LISTS_SECONDS)[1] if path else ""

    params = module.params
    names = ("packages", "hold", "candidates", "users", "paths", "free", "files", "programs", "profiles", "kernel")
    lists = {name: tuple(params[name]) for name in (*names, "made")}
    part = params["part"] or {"path": "", "marker": ""}
    questions = Questions(
        **lists,
        scripts=params["scripts"],
        ids=params["ids"],
        slurm_package=params["slurm_package"],
        update_lists=params["update_lists"],
        state_directory=params["state_directory"],
        directory_users=params["directory_users"],
        part=(part["path"], part["marker"]),
        serving_controller=params["serving_controller"],
        ssh=params["ssh"],
        known_hosts=params["known_hosts"],
        nodes=params["nodes"],
        jobs=params["jobs"],
        backup_hours=params["backup_hours"],
        directories=from_options(params["directories"]),
    )
    facts: HostFacts = {"slurm_host": gather_facts(Tree(), run, questions)}
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
    "purpose": {"type": "str", "default": "", "choices": ["", "site", "lists", "report", "role", "cluster"]},
    "packages": NAMES,
    "slurm_package": {"type": "str", "default": "slurm-wlm-basic-plugins"},
    "update_lists": {"type": "bool", "default": False},
    "state_directory": {"type": "str", "default": ""},
    "hold": NAMES,
    "candidates": NAMES,
    "users": NAMES,
    "ids": {"type": "dict", "default": {}},
    "policy_users": NAMES,
    "directory_users": NAMES,
    "paths": PATHS,
    "directories": {"type": "list", "elements": "dict", "default": [], "options": DIRECTORY},
    "free": PATHS,
    "files": PATHS,
    "programs": NAMES,
    "scripts": {"type": "dict", "default": {}},
    "profiles": NAMES,
    "kernel": NAMES,
    "made": NAMES,
    "part": {"type": "dict", "options": {"path": {"type": "path", "required": True}, "marker": REQUIRED_TEXT}},
    "serving_controller": {"type": "bool", "default": False},
    "nodes": {"type": "bool", "default": False},
    "jobs": {"type": "bool", "default": False},
    "ssh": {"type": "bool", "default": False},
    "known_hosts": {"type": "bool", "default": False},
    "backup_hours": {"type": "int", "default": 0},
    "hardware": {"type": "bool", "default": False},
    **OPTIONS,
}


def main() -> None:
    run_module(read_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
