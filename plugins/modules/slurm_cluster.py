#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a cluster in Slurm's accounting."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_cluster
short_description: Manage a cluster in Slurm's accounting
version_added: 0.1.0
description:
  - Adds a cluster to the database, sets the limits of its root association, or removes it with its records.
  - slurmctld registers its own cluster when it first starts. Use this module for limits, and to remove old clusters.
seealso:
  - module: gpucluster.slurm.slurm_accounting
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.arguments.slurm_cluster
"""

EXAMPLES = r"""
- name: Set a limit for the whole cluster
  gpucluster.slurm.slurm_cluster:
    name: lab
    limits: {MaxWall: "7-00:00:00"}
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
      sample: cluster lab GrpTRES
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
  sample: ["cluster lab GrpTRES  10 -> 20"]
"""


from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.apply import apply_policy
from ..module_utils.accounting.entities import Entity
from ..module_utils.accounting.sacctmgr import Sacctmgr
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PolicyResult


def change_cluster(module: AnsibleModule) -> PolicyResult:
    """Apply the cluster's policy, and return the module's result. Raises as `apply_policy`."""
    name = module.params["name"].lower()
    sacctmgr = Sacctmgr(name, new=True)
    if module.params["state"] == "absent":
        return apply_policy(module, sacctmgr, {}, absent=[Entity("cluster", name)])
    return apply_policy(module, sacctmgr, {"limits": module.params["limits"]})


ARGUMENTS = {
    "name": option("Name of the cluster.", required=True),
    "limits": option("Any limits of an association, such as C(GrpTRES), C(MaxWall), C(QOS).", "dict", default={}),
    "state": option("Whether the cluster exists.", choices=["present", "absent"], default="present"),
}


def main() -> None:
    run_module(change_cluster, ARGUMENTS)


if __name__ == "__main__":
    main()
