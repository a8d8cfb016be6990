#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a QOS of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos
short_description: Manage a QOS of Slurm
version_added: 0.1.0
description:
  - Adds a QOS with its limits, changes it, or removes it. A QOS that jobs use is not removed.
  - A QOS belongs to all clusters of the database. One that associations or jobs of other clusters have is not removed.
    The database does not know whether a partition of another cluster names it. That slurmctld would not start again.
seealso:
  - module: gpucluster.slurm.slurm_accounting
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.arguments.slurm_qos
"""

EXAMPLES = r"""
- name: Add a QOS that preempts another one
  gpucluster.slurm.slurm_qos:
    name: urgent
    limits:
      Priority: 100
      MaxWall: "04:00:00"
      MaxTRESPerUser: {gres/gpu: 8}
      Preempt: [normal]

- name: Remove a QOS
  gpucluster.slurm.slurm_qos:
    name: testing
    state: absent
"""

RETURN = r"""
plan:
  description: The changes, one for each limit, and one for each entity that is added or removed.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: Name of the changed parameter.
      type: str
      returned: always
      sample: qos high Priority
    before:
      description: Its value before; null if it did not exist.
      type: str
      returned: always
      sample: "10"
    after:
      description: Its value afterwards; null if it is removed, empty if the limit is not set.
      type: str
      returned: always
      sample: "20"
table:
  description: The plan as text. Equal changes of several names are one line.
  type: list
  elements: str
  returned: always
  sample: ["qos high Priority  10 -> 20"]
"""


from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.apply import apply_policy
from ..module_utils.accounting.entities import Entity
from ..module_utils.accounting.sacctmgr import CLUSTER, Sacctmgr
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PolicyResult


def change_qos(module: AnsibleModule) -> PolicyResult:
    """Apply the QOS's policy, and return the module's result. Raises as `apply_policy`."""
    name, sacctmgr = module.params["name"], Sacctmgr(module.params["cluster"])
    if module.params["state"] == "absent":
        return apply_policy(module, sacctmgr, {}, absent=[Entity("qos", name.lower())])
    return apply_policy(module, sacctmgr, {"qos": [{**module.params["limits"], "name": name}]})


ARGUMENTS = {
    "cluster": CLUSTER,
    "name": option("Name of the QOS.", required=True),
    "limits": option(
        "Any parameters of a QOS, such as C(Priority), C(MaxWall), C(MaxTRESPerUser), C(Preempt), C(Flags).",
        "dict",
        default={},
    ),
    "state": option("Whether the QOS exists.", choices=["present", "absent"], default="present"),
}


def main() -> None:
    run_module(change_qos, ARGUMENTS)


if __name__ == "__main__":
    main()
