#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather facts about a controller or the database host for a diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_doctor_info
short_description: Gather facts about a controller or the database host for a diagnosis
version_added: 0.2.0
description:
  - Returns the state of the daemons of Slurm, munge and the database, with the last errors of their logs. The serving
    controller also returns the nodes that are down, drained, invalid or do not answer, and those whose slurmd takes no
    connection or gives the controller no answer.
  - It changes nothing. Role P(gpucluster.slurm.doctor#role) draws the conclusions.
options:
  controller:
    description: Whether the host is a controller. Only a controller asks Slurm.
    type: bool
    default: true
  keys:
    description: Files with secrets, by the name of the secret. Missing ones are left out.
    type: dict
    default: {}
    version_added: 0.3.0
  max_key_age:
    description: Days after which a secret is old; V(0) is no limit.
    type: int
    default: 0
    version_added: 0.3.0
extends_documentation_fragment: [gpucluster.slurm.reading]
"""

EXAMPLES = r"""
- name: Gather facts about the controller
  gpucluster.slurm.slurm_doctor_info:
"""

RETURN = r"""
time:
  description: The clock of the host, in seconds since the epoch.
  type: float
  returned: always
  sample: 1795525200.5
clock_offset:
  description:
    - Seconds by which the clock of the host is ahead of the control host's, at least. It is 0 if the clock showed a
      time between the beginning and the end of the task.
  type: float
  returned: always
  sample: 0.0
daemons:
  description: The daemons by their units; units that the host does not have are left out.
  type: dict
  returned: always
  sample: {slurmctld: {active: active, enabled: true, result: success, down_seconds: 0.0, masked: false, log: []}}
full:
  description: Directories of the daemons in which nothing can be written, with the reason.
  type: list
  elements: str
  returned: always
  sample: [/var/lib/slurm/slurmctld has no space left]
old_keys:
  description: Secrets of O(keys) that are older than O(max_key_age), with the days since their last change.
  type: dict
  returned: always
  sample: {munge: 402}
cluster:
  description: What Slurm says of itself, and whether this host serves (C(answers)).
  type: dict
  returned: always
  sample:
    answers: true
    serving: head
    controllers: {head: true}
    version: 24.11.5
    slurm_user: slurm
    slurm_uid: 64030
    slurm_conf: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    cgroup_plugin: autodetect
    proctrack: proctrack/cgroup
    return_to_service: "1"
    slurmdbd_error: ""
    messages_waiting: 0
    messages_limit: 100000
    messages_discarded: ""
    full_queue_ends_slurmctld: false
    runaway_jobs: []
    ended_reservations: {}
nodes:
  description:
    - The nodes that are to be examined, with their states, reasons and the errors of slurmctld's log about them.
  type: list
  elements: dict
  returned: always
  sample:
    - name: gpu007
      states: [IDLE, DRAIN]
      reason: Kill task failed
      user: slurm
      since: "2026-11-23T02:11:40"
      address: 10.0.0.7
      addresses: [10.0.0.7]
      port: 6818
      cpus: 64
      real_memory: 515000
      gpus: 8
      device_files: []
      closed: ""
      unanswered: ""
      jobs: ["4711"]
      log: []
node_options:
  description: Options of the module M(gpucluster.slurm.slurm_doctor_node_info) that are the same for all nodes.
  type: dict
  returned: always
  sample:
    controllers: [head]
    controller_port: 6817
    slurm_user: slurm
    spool_dir: /var/lib/slurm/slurmd
    log_file: /var/log/slurm/slurmd.log
    tmp_fs: /tmp
    credential: "MUNGE:AwQDAAA=:"
"""

import time
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.doctor import controller_facts, daemon_facts
from ..module_utils.host.module_run import run_module

if TYPE_CHECKING:
    from ..module_utils.doctor.results import DoctorInfo


def gather_server_facts(module: AnsibleModule) -> DoctorInfo:
    """The module's result. Raises CommandError and ValueError."""
    given = module.params
    answer = controller_facts.gather(given["controller"])
    old = daemon_facts.find_old(given["keys"], given["max_key_age"])
    return {"changed": False, "time": time.time(), "clock_offset": 0.0, "old_keys": old, **answer}


ARGUMENTS = {
    "controller": {"type": "bool", "default": True},
    "keys": {"type": "dict", "default": {}, "no_log": False},
    "max_key_age": {"type": "int", "default": 0, "no_log": False},
}


def main() -> None:
    run_module(gather_server_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
