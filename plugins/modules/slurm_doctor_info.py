#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather facts about a controller or the database host for a diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_doctor_info
short_description: Gather facts about a controller or the database host for a diagnosis
description:
  - Returns the state of the daemons of Slurm, munge and the database, with the last errors of their logs. The serving
    controller also returns the nodes that are down, drained, invalid or do not answer, and those whose slurmd takes no
    connection or gives the controller no answer.
  - It changes nothing. Role P(gpucluster.slurm.doctor#role) draws the conclusions.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_doctor_info]
"""

EXAMPLES = r"""
- name: Gather facts about the controller
  gpucluster.slurm.slurm_doctor_info:
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import time
from collections.abc import Mapping
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.doctor import controller_facts
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, switch


def gather_server_facts(module: AnsibleModule) -> Mapping[str, object]:
    """The module's result. Raises CommandError and ValueError."""
    given = module.params
    answer = controller_facts.gather(given["controller"], given["keys"], given["max_key_age"])
    return {"changed": False, "time": time.time(), "clock_offset": 0.0, **asdict(answer)}


ARGUMENTS = {
    "controller": switch("Whether the host is a controller. Only a controller asks Slurm.", default=True),
    "keys": option(
        "Files with secrets, by the name of the secret. Missing ones are left out.", "dict", default={}, no_log=False
    ),
    "max_key_age": option("Days after which a secret is old; V(0) is no limit.", "int", default=0, no_log=False),
}


def main() -> None:
    run_module(gather_server_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
