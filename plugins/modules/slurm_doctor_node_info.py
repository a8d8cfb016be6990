#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather facts about the host of a node for a diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_doctor_node_info
short_description: Gather facts about the host of a node for a diagnosis
description:
  - Returns what can explain why Slurm does not use the node, such as its daemons with the last errors of their logs,
    clock, users, file systems, hardware, ports, and processes of jobs that have ended.
  - It changes nothing, and no question takes longer than some seconds.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_doctor_node_info]
"""

EXAMPLES = r"""
- name: Gather facts about the host of a node
  gpucluster.slurm.slurm_doctor_node_info: {node: gpu007}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import time
from collections.abc import Mapping
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.doctor.node_facts import HostQuestions, gather
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several


def gather_host_facts(module: AnsibleModule) -> Mapping[str, object]:
    """The module's result."""
    answer = gather(HostQuestions(**module.params))
    return {"changed": False, "time": time.time(), "clock_offset": 0.0, **asdict(answer)}


ARGUMENTS = {
    "node": option("The name of the node.", required=True),
    "port": option("The port of its slurmd.", "int", default=6818),
    "controllers": several("The names of the controllers."),
    "controller_port": option("The port of slurmctld.", "int", default=6817),
    "slurm_user": option("SlurmUser of slurm.conf.", default="slurm"),
    "spool_dir": option("SlurmdSpoolDir of slurm.conf.", default="/var/spool/slurmd"),
    "log_file": option("SlurmdLogFile of slurm.conf.", default=""),
    "tmp_fs": option("TmpFS of slurm.conf.", default="/tmp"),
    "device_files": several("The device files of the node in gres.conf.", "path"),
    "gpus": option("The GPUs of the node in Slurm. Without any, NVIDIA's driver is not asked.", "int", default=0),
    "jobs": several("The numbers of the jobs that run on the node."),
    "credential": option(
        "A credential of munge from the controller. The host has to accept it.", default="", no_log=True
    ),
}


def main() -> None:
    run_module(gather_host_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
