#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a user of Slurm's accounting."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user
short_description: Manage a user of Slurm's accounting
version_added: 0.1.0
description:
  - Adds a user with accounts and limits, changes the user, or removes it. A user with jobs is not removed.
  - In a database with several clusters a user is added to and removed from one cluster. O(admin_level) holds in all of
    them. A user without an association in another cluster who coordinates an account of it, or has WCKeys in it, is not
    removed.
seealso:
  - module: gpucluster.slurm.slurm_accounting
  - module: gpucluster.slurm.slurm_account
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.arguments.slurm_user
"""

EXAMPLES = r"""
- name: Add a user of two accounts
  gpucluster.slurm.slurm_user:
    name: alice
    default_account: physics
    accounts: [biology]
    limits: {MaxJobs: 20}

- name: Remove the user from one of them
  gpucluster.slurm.slurm_user:
    name: alice
    accounts: [biology]
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
      sample: user alice in physics MaxJobs
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
  sample: ["user alice in physics MaxJobs  10 -> 20"]
"""


from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.apply import apply_policy
from ..module_utils.accounting.entities import Entity
from ..module_utils.accounting.sacctmgr import CLUSTER, Sacctmgr
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PolicyResult


def change_user(module: AnsibleModule) -> PolicyResult:
    """Apply the user's policy, and return the module's result. Raises as `apply_policy`."""
    params, sacctmgr = module.params, Sacctmgr(module.params["cluster"])
    name, accounts, partition = params["name"], params["accounts"], params["partition"] or ""
    if params["state"] == "absent":
        places = [Entity("association", name.lower(), account.lower(), partition) for account in accounts]
        return apply_policy(module, sacctmgr, {}, absent=places or [Entity("user", name.lower())])
    options = {"DefaultAccount": params["default_account"], "AdminLevel": params["admin_level"]}
    user = {
        **params["limits"],
        **{key: value for key, value in options.items() if value is not None},
        "name": name,
        "accounts": [{"name": account, "partition": partition} for account in accounts],
    }
    return apply_policy(module, sacctmgr, {"users": [user]})


ARGUMENTS = {
    "cluster": CLUSTER,
    "name": option("Name of the user.", required=True),
    "default_account": option(
        "The account of the user's jobs that name none.\n"
        "Without it, a user keeps the present default account, and a new user gets the first of O(accounts)."
    ),
    "accounts": several(
        "Further accounts. Other accounts of the user are not changed.\n"
        "With O(state=absent) the user is removed from these accounts, or completely without O(accounts)."
    ),
    "partition": option("The partition that the associations are for. Without it, they are for all partitions."),
    "admin_level": option(
        "The user's administrative privileges in Slurm.", choices=["None", "Operator", "Administrator"]
    ),
    "limits": option(
        "Any limits of an association, such as C(Fairshare), C(MaxJobs), which apply in each account of the user, and "
        "C(WCKeys), a list of all WCKeys of the user in the cluster.",
        "dict",
        default={},
    ),
    "state": option("Whether the user exists.", choices=["present", "absent"], default="present"),
}


def main() -> None:
    run_module(change_user, ARGUMENTS)


if __name__ == "__main__":
    main()
