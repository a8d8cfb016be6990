#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read Slurm's accounting as a policy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting_info
short_description: Read Slurm's accounting as a policy
version_added: 0.1.0
description:
  - Returns slurmdbd's data in the form that M(gpucluster.slurm.slurm_accounting) takes, so that a site can start from
    its present policy. Entities that Slurm adds itself and limits that are not set are left out.
  - What a policy cannot express is left out as well, such as an account with a blank in its name or a QOS that was
    given with C(qos+=), and is named in RV(left_out). M(gpucluster.slurm.slurm_accounting) leaves it as it is.
requirements:
  - Slurm's sacctmgr (22.05 or later) with a slurmdbd that answers
seealso:
  - module: gpucluster.slurm.slurm_accounting
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_accounting_info]
"""

EXAMPLES = r"""
- name: Read the present policy
  gpucluster.slurm.slurm_accounting_info:
  register: accounting

- name: Save it to a file
  ansible.builtin.copy:
    content: "{{ accounting.policy | to_nice_yaml }}"
    dest: policy.yml
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
policy:
  description: The policy.
  type: dict
  returned: always
  contains:
    limits:
      description: Limits of the whole cluster.
      type: dict
      returned: always
      sample: {MaxWall: "7-00:00:00"}
    qos:
      description: The QOS.
      type: list
      elements: dict
      returned: always
      sample: [{name: urgent, Priority: "100"}]
    accounts:
      description: The accounts.
      type: list
      elements: dict
      returned: always
      sample: [{name: physics, Parent: science, Fairshare: "30"}]
    users:
      description: The users.
      type: list
      elements: dict
      returned: always
      sample: [{name: alice, DefaultAccount: physics, accounts: [{name: physics}]}]
left_out:
  description: What the policy cannot express, with the reason. Equal reasons are one line.
  type: list
  elements: str
  returned: always
  sample: ["account phys lab: has a name that a policy cannot have"]
  version_added: 0.2.0
"""

from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.policy import policy_of
from ..module_utils.accounting.sacctmgr import CLUSTER, Sacctmgr
from ..module_utils.accounting.unmanaged import list_unmanaged
from ..module_utils.host.module_run import run_module

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PolicyInfo

ARGUMENTS = {"cluster": CLUSTER}


def read_policy(module: AnsibleModule) -> PolicyInfo:
    """Read the policy. Raises AccountingError."""
    state = Sacctmgr(module.params["cluster"]).state()
    return {"changed": False, "policy": policy_of(state), "left_out": list_unmanaged(state)}


def main() -> None:
    run_module(read_policy, ARGUMENTS)


if __name__ == "__main__":
    main()
