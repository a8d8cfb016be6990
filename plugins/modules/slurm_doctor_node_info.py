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

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import time
from collections.abc import Mapping
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.doctor.node_facts import HostQuestions, gather
from ..module_utils.host.module_run import NAMES, run_module


def gather_host_facts(module: AnsibleModule) -> Mapping[str, object]:
    """The module's result."""
    answer = gather(HostQuestions(**module.params))
    return {"changed": False, "time": time.time(), "clock_offset": 0.0, **asdict(answer)}


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
