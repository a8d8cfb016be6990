#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain and resume nodes of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain and resume nodes of Slurm
version_added: 0.1.0
description:
  - Drains nodes, sets them down, or resumes them. Nodes that are already in the state are not changed and keep their
    reason.
requirements:
  - Slurm's scontrol (22.05 or later) with a slurmctld that answers, as a user that may change nodes
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_node]
"""

EXAMPLES = r"""
- name: Drain two nodes
  gpucluster.slurm.slurm_node:
    name: gpu[01-02]
    state: drain
    reason: new DIMMs

- name: Resume the nodes that were drained for this reason
  gpucluster.slurm.slurm_node:
    name: gpu[01-02]
    state: resume
    reason: new DIMMs
"""

RETURN = r"""
plan:
  description: The changes.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: The changed node.
      type: str
      returned: always
      sample: node gpu01
    before:
      description: Its state before.
      type: str
      returned: always
      sample: IDLE
    after:
      description: Its state afterwards.
      type: str
      returned: always
      sample: DRAIN
"""


from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import CommandError, output
from ..module_utils.client.scontrol import CLEARED, show, to_change
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option
from ..module_utils.host.plan_result import PlanRow, plan_result
from ..module_utils.language.hostlist import fold


def set_state(module: AnsibleModule) -> list[PlanRow]:
    """Set the wanted state of the nodes, and return the plan. Raises CommandError."""
    state, reason = module.params["state"], module.params["reason"] or ""
    if not module.params["name"].strip(" ,"):  # scontrol shows all nodes
        raise CommandError(f"name: found {module.params['name']!r}, allowed: a hostlist such as compute[01-04]")
    nodes = to_change(show("node", module.params["name"]), state, reason)
    if nodes and not module.check_mode:
        settings = [f"NodeName={fold([node['NodeName'] for node in nodes])}", f"State={state.upper()}"]
        output(["scontrol", "update", *settings, f"Reason={reason if state != 'resume' else CLEARED}"])
    return [{"what": f"node {node['NodeName']}", "before": node["State"], "after": state.upper()} for node in nodes]


ARGUMENTS = {
    "name": option("The nodes, a hostlist.", required=True),
    "state": option(
        "V(drain) lets the running jobs end and starts no new ones. V(down) ends the jobs.\n"
        "V(resume) returns nodes to service that are drained, down or failing. With a O(reason), only the nodes with "
        "this reason, so that nodes drained by somebody else are not changed.",
        choices=["drain", "down", "resume"],
        required=True,
    ),
    "reason": option("Reason for the state. Slurm needs it for V(drain) and V(down)."),
}


def main() -> None:
    run_module(
        lambda module: plan_result(set_state(module)),
        ARGUMENTS,
        required_if=[("state", "drain", ["reason"]), ("state", "down", ["reason"])],
    )


if __name__ == "__main__":
    main()
