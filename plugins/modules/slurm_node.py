#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain nodes of Slurm and take them back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain nodes of Slurm and take them back
version_added: 0.1.0
description:
  - Drains nodes, sets them down, or takes them back. Nodes that are so already are left alone, with their reason.
options:
  name:
    description: The nodes, a hostlist.
    type: str
    required: true
  state:
    description:
      - V(drain) lets jobs end and starts no others. V(down) ends the jobs.
      - V(resume) takes nodes back that are drained, down or failing. With a O(reason), only those that have it, so that
        nodes that somebody else has drained stay as they are.
    type: str
    choices: [drain, down, resume]
    required: true
  reason:
    description: Why. Needed with V(drain) and V(down), as Slurm does.
    type: str
extends_documentation_fragment: [gpucluster.slurm.changing]
requirements:
  - Slurm's scontrol (22.05 or later) with a slurmctld that answers, as a user that may change nodes
"""

EXAMPLES = r"""
- name: No new jobs on two nodes
  gpucluster.slurm.slurm_node:
    name: gpu[01-02]
    state: drain
    reason: new DIMMs

- name: Take back those that were drained for this
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
      description: What changes.
      type: str
      returned: always
      sample: node gpu01
    before:
      description: Its value before; null for what was not there.
      type: str
      returned: always
      sample: IDLE
    after:
      description: Its value afterwards; null for what is gone.
      type: str
      returned: always
      sample: DRAIN
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.plan_result import plan_result
from ansible_collections.gpucluster.slurm.plugins.module_utils.scontrol import CLEARED, show, to_change
from ansible_collections.gpucluster.slurm.plugins.module_utils.slurm_commands import CommandError, output


def set_state(module: AnsibleModule) -> list[dict[str, Any]]:
    """Make the nodes as wanted. Gives the plan. Raises CommandError."""
    state, reason = module.params["state"], module.params["reason"] or ""
    nodes = to_change(show("node", module.params["name"]), state, reason)
    if nodes and not module.check_mode:
        words = [f"NodeName={fold([node['NodeName'] for node in nodes])}", f"State={state.upper()}"]
        output(["scontrol", "update", *words, f"Reason={reason if state != 'resume' else CLEARED}"])
    return [{"what": f"node {node['NodeName']}", "before": node["State"], "after": state.upper()} for node in nodes]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drain", "down", "resume"], "required": True},
            "reason": {"type": "str"},
        },
        required_if=[("state", "drain", ["reason"]), ("state", "down", ["reason"])],
        supports_check_mode=True,
    )
    try:
        plan = set_state(module)
    except CommandError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**plan_result(plan))


if __name__ == "__main__":
    main()
