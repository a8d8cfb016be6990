#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather facts about the host of a node for a diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_doctor_node_info
short_description: Gather facts about the host of a node for a diagnosis
version_added: 0.2.0
description:
  - Returns what can explain why Slurm does not use the node, such as its daemons with the last errors of their logs,
    clock, users, file systems, hardware, ports, and processes of jobs that have ended.
  - It changes nothing, and no question takes longer than some seconds.
options:
  node:
    description: The name of the node.
    type: str
    required: true
  port:
    description: The port of its slurmd.
    type: int
    default: 6818
  controllers:
    description: The names of the controllers.
    type: list
    elements: str
    default: []
  controller_port:
    description: The port of slurmctld.
    type: int
    default: 6817
  slurm_user:
    description: SlurmUser of slurm.conf.
    type: str
    default: slurm
  spool_dir:
    description: SlurmdSpoolDir of slurm.conf.
    type: str
    default: /var/spool/slurmd
  log_file:
    description: SlurmdLogFile of slurm.conf.
    type: str
    default: ""
  tmp_fs:
    description: TmpFS of slurm.conf.
    type: str
    default: /tmp
  device_files:
    description: The device files of the node in gres.conf.
    type: list
    elements: path
    default: []
  gpus:
    description: The GPUs of the node in Slurm. Without any, NVIDIA's driver is not asked.
    type: int
    default: 0
  jobs:
    description: The numbers of the jobs that run on the node.
    type: list
    elements: str
    default: []
  credential:
    description: A credential of munge from the controller. The host has to accept it.
    type: str
    default: ""
extends_documentation_fragment: [gpucluster.slurm.reading]
"""

EXAMPLES = r"""
- name: Gather facts about the host of a node
  gpucluster.slurm.slurm_doctor_node_info:
    node: gpu007
    controllers: [head]
    device_files: [/dev/nvidia0, /dev/nvidia1]
    gpus: 2
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
version:
  description: The version of slurmd; empty if it is not installed.
  type: str
  returned: always
  sample: 24.11.5
slurmd:
  description: The state of slurmd, with the last errors of its log.
  type: dict
  returned: always
  sample: {active: failed, enabled: true, result: exit-code, down_seconds: 60.0, masked: false, log: ["fatal: bind"]}
munge:
  description: The state of munged.
  type: dict
  returned: always
  sample: {active: active, enabled: true, result: success, down_seconds: 0.0, masked: false, log: []}
munge_error:
  description: Why munged does not accept O(credential); empty if it does.
  type: str
  returned: always
  sample: "unmunge: Error: Expired credential"
slurm_uid:
  description: The id of O(slurm_user); null if there is no such user.
  type: int
  returned: always
  sample: 64030
slurm_conf:
  description: The checksum of the slurm.conf that slurmd reads; empty if it has none.
  type: str
  returned: always
  sample: ""
cpus:
  description: CPUs that are online.
  type: int
  returned: always
  sample: 64
memory:
  description: Memory in MiB.
  type: int
  returned: always
  sample: 515000
full:
  description: Directories in which nothing can be written, with the reason.
  type: list
  elements: str
  returned: always
  sample: []
unmounted:
  description: Mount points of C(/etc/fstab) and of systemd's units on which nothing is mounted.
  type: list
  elements: str
  returned: always
  sample: [/data]
hanging:
  description: File systems of servers that do not answer.
  type: list
  elements: str
  returned: always
  sample: []
missing_files:
  description: Those of O(device_files) that do not exist.
  type: list
  elements: str
  returned: always
  sample: [/dev/nvidia1]
nvidia_error:
  description: The error of nvidia-smi; empty without one.
  type: str
  returned: always
  sample: "Failed to initialize NVML: Driver/library version mismatch"
nvidia_gpus:
  description: The GPUs that nvidia-smi lists; null if it is not installed, or without O(gpus).
  type: int
  returned: always
  sample: 8
xids:
  description: Errors of GPUs in the kernel's messages.
  type: list
  elements: str
  returned: always
  sample: ["Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]
cgroup:
  description: The version of cgroups, V(v1) or V(v2).
  type: str
  returned: always
  sample: v2
listens:
  description: Whether a process listens on O(port).
  type: bool
  returned: always
  sample: true
addresses:
  description: The IP addresses of the host.
  type: list
  elements: str
  returned: always
  sample: [10.0.0.7]
unresolved:
  description: Those of O(controllers) whose names the host cannot resolve.
  type: list
  elements: str
  returned: always
  sample: []
closed:
  description: Why O(controller_port) of a controller takes no connection from the host, by controller.
  type: dict
  returned: always
  sample: {}
left:
  description: Processes of jobs that do not run on the node any more.
  type: list
  elements: str
  returned: always
  sample: [python 4711 of job 12]
booted:
  description: When the host has booted.
  type: str
  returned: always
  sample: "2026-11-24T10:00:00"
"""

import time
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.doctor.node_facts import HostQuestions, gather
from ..module_utils.host.module_run import NAMES, run_module

if TYPE_CHECKING:
    from ..module_utils.doctor.results import DoctorNodeInfo


def gather_host_facts(module: AnsibleModule) -> DoctorNodeInfo:
    """The module's result."""
    answer = gather(HostQuestions(**module.params))
    return {"changed": False, "time": time.time(), "clock_offset": 0.0, **answer}


ARGUMENTS = {
    "node": {"type": "str", "required": True},
    "port": {"type": "int", "default": 6818},
    "controllers": NAMES,
    "controller_port": {"type": "int", "default": 6817},
    "slurm_user": {"type": "str", "default": "slurm"},
    "spool_dir": {"type": "str", "default": "/var/spool/slurmd"},
    "log_file": {"type": "str", "default": ""},
    "tmp_fs": {"type": "str", "default": "/tmp"},
    "device_files": {"type": "list", "elements": "path", "default": []},
    "gpus": {"type": "int", "default": 0},
    "jobs": NAMES,
    "credential": {"type": "str", "default": "", "no_log": True},
}


def main() -> None:
    run_module(gather_host_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
