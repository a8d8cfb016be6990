#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a reservation of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reservation
short_description: Manage a reservation of Slurm
version_added: 0.1.0
description:
  - Creates a reservation, changes it, or removes it.
requirements:
  - Slurm's scontrol (22.05 or later) with a slurmctld that answers, as a user that may change reservations
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_reservation]
"""

EXAMPLES = r"""
- name: Reserve two nodes for a course
  gpucluster.slurm.slurm_reservation:
    name: course
    parameters:
      StartTime: 2027-03-01T09:00
      Duration: "08:00:00"
      Nodes: gpu[01-02]
      Accounts: [teaching]
      Flags: [WEEKLY]

- name: Reserve all nodes for maintenance
  gpucluster.slurm.slurm_reservation:
    name: maintenance
    parameters: {StartTime: now, Duration: INFINITE, Nodes: ALL, Users: [root], Flags: [MAINT, IGNORE_JOBS]}

- name: Remove the reservation
  gpucluster.slurm.slurm_reservation:
    name: maintenance
    state: absent
"""

RETURN = r"""
plan:
  description: The changes.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: Name of the changed parameter.
      type: str
      returned: always
      sample: reservation course Nodes
    before:
      description: Its value before; null if it did not exist.
      type: str
      returned: always
      sample: "gpu01"
    after:
      description: Its value afterwards; null if it is removed.
      type: str
      returned: always
      sample: "gpu01,gpu02"
"""

from datetime import datetime

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.reservations import check_name, differences, over, updates
from ..module_utils.client.commands import output
from ..module_utils.client.scontrol import show
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option
from ..module_utils.host.plan_result import PlanRow, plan_result


def change_reservation(module: AnsibleModule) -> list[PlanRow]:
    """Apply the wanted parameters, and return the plan. Raises ReservationError and CommandError."""
    name, absent = check_name(module.params["name"]), module.params["state"] == "absent"
    present = next((record for record in show("reservation") if record["ReservationName"] == name), None)
    named = f"ReservationName={name}"
    if absent:
        if present and not module.check_mode:
            output(["scontrol", "delete", named])
        return [{"what": f"reservation {name}", "before": name, "after": None}] if present else []
    changes = differences(module.params["parameters"], present)
    if present is None and over(module.params["parameters"], datetime.now()):
        return []
    if not module.check_mode:
        if present is None:
            given = [f"{change.key}={change.given}" for change in changes]
            output(["scontrol", "create", "reservation", named, *given])
        else:
            for arguments in updates(changes):
                output(["scontrol", "update", named, *arguments])
    new = [] if present else [{"what": f"reservation {name}", "before": None, "after": name}]
    plan: list[PlanRow] = [
        {"what": f"reservation {name} {c.key}", "before": c.before, "after": c.after} for c in changes
    ]
    return new + plan


ARGUMENTS = {
    "name": option("Name of the reservation.", required=True),
    "parameters": option(
        "Any parameters of a reservation in the spelling of C(scontrol), such as C(StartTime), C(Duration), C(Nodes), "
        "C(Users), C(Accounts), C(Flags). Values can be lists. Other parameters are not changed.\n"
        "A time that is not a date, such as V(now+1hour), is used only to create a reservation.\n"
        "A reservation whose last end is past, by its dates and the clock of this host, is not created.",
        "dict",
        default={},
    ),
    "state": option("Whether the reservation exists.", choices=["present", "absent"], default="present"),
}


def main() -> None:
    run_module(lambda module: plan_result(change_reservation(module)), ARGUMENTS)


if __name__ == "__main__":
    main()
