#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage an account of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Manage an account of Slurm
version_added: 0.1.0
description:
  - Adds an account with its limits, changes it, moves it, or removes it. An account that is not empty is not removed.
  - In a database with several clusters an account is added to and removed from one cluster. O(description) and
    O(organization) hold in all of them.
seealso:
  - module: gpucluster.slurm.slurm_accounting
  - module: gpucluster.slurm.slurm_user
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.arguments.slurm_account
"""

EXAMPLES = r"""
- name: Add an account with 16 GPUs
  gpucluster.slurm.slurm_account:
    name: physics
    parent: science
    description: Department of Physics
    limits:
      Fairshare: 30
      GrpTRES: {gres/gpu: 16}

- name: Unset its limit of jobs
  gpucluster.slurm.slurm_account:
    name: physics
    limits: {MaxJobs: null}
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
      sample: account physics Fairshare
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
  sample: ["account physics Fairshare  10 -> 20"]
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


def change_account(module: AnsibleModule) -> PolicyResult:
    """Apply the account's policy, and return the module's result. Raises as `apply_policy`."""
    params = module.params
    name, sacctmgr = params["name"], Sacctmgr(params["cluster"])
    if params["state"] == "absent":
        return apply_policy(module, sacctmgr, {}, absent=[Entity("account", name.lower())])
    options = {key.title(): params[key] for key in ("parent", "description", "organization")}
    given = {key: value for key, value in options.items() if value is not None}
    return apply_policy(module, sacctmgr, {"accounts": [{**params["limits"], **given, "name": name}]})


ARGUMENTS = {
    "cluster": CLUSTER,
    "name": option("Name of the account.", required=True),
    "parent": option("The parent account. A new account without one is in V(root)."),
    "description": option("Description of the account."),
    "organization": option("Organization of the account."),
    "limits": option(
        "Any limits of an association, such as C(Fairshare), C(GrpTRES), C(MaxJobs), C(MaxWall), C(QOS), and "
        "C(Coordinators), a list of all users who are named as coordinators.",
        "dict",
        default={},
    ),
    "state": option("Whether the account exists.", choices=["present", "absent"], default="present"),
}


def main() -> None:
    run_module(change_account, ARGUMENTS)


if __name__ == "__main__":
    main()
