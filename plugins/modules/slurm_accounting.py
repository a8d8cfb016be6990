#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a policy to Slurm's accounting."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting
short_description: Apply a policy to Slurm's accounting
version_added: 0.1.0
description:
  - Takes a whole policy, reads slurmdbd's data with a constant number of commands, and applies the differences in one
    sacctmgr process, with one command for all equal changes. This is fast enough for thousands of users.
  - The policy is checked before anything changes. One error lists all keys and values that Slurm would not accept,
    loops in the tree of accounts, users without an account, and unknown names.
  - After the change slurmdbd's data is read again. If Slurm did not accept a change, the error contains Slurm's
    message.
seealso:
  - module: gpucluster.slurm.slurm_qos
  - module: gpucluster.slurm.slurm_account
  - module: gpucluster.slurm.slurm_user
  - module: gpucluster.slurm.slurm_accounting_info
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.arguments.slurm_accounting
"""

EXAMPLES = r"""
- name: Apply the policy
  gpucluster.slurm.slurm_accounting:
    qos:
      - {name: normal, MaxWall: "2-00:00:00"}
      - {name: urgent, Priority: 100, Preempt: [normal], MaxTRESPerUser: {gres/gpu: 8}}
    accounts:
      - name: science
        Organization: Faculty of Science
        QOS: [normal]
        accounts:
          - {name: physics, Fairshare: 30, GrpTRES: {gres/gpu: 16}}
          - {name: biology, Fairshare: 10, QOS: [normal, urgent]}
    users:
      - {name: alice, DefaultAccount: physics}
      - {name: bob, accounts: [biology, {name: physics, MaxJobs: 2}]}
  register: accounting

- name: Add the QOS that partitions name, before slurmctld reads the file
  gpucluster.slurm.slurm_accounting:
    cluster: lab
    qos: [{name: urgent, Priority: 100}]
    slurm_conf: "{{ lookup('gpucluster.slurm.rendered', 'slurm.conf.j2') }}"

- name: Show the changes
  ansible.builtin.debug:
    msg: "{{ accounting.table + accounting.kept }}"
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
kept:
  description:
    - Entities that were not removed, or only from this cluster, with the reason. Equal reasons are one line.
  type: list
  elements: str
  returned: always
  sample: ["user bob: has jobs [12-13]"]
registered:
  description: Whether the database knows the cluster. slurmctld registers it when it starts with slurmdbd.
  type: bool
  returned: always
  version_added: 0.2.0
  sample: true
refused:
  description:
    - Whose jobs slurmctld refuses after the change, by the jobs that have not ended, with the reason.
    - Empty without O(enforced).
  type: list
  elements: str
  returned: always
  version_added: 0.2.0
  sample: ["user carol: has no association in account vision (now: job 7)"]
"""

from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounting.apply import apply_policy
from ..module_utils.accounting.sacctmgr import CLUSTER, Sacctmgr, UnreachedError, conf_for_sacctmgr
from ..module_utils.configuration import conf_file
from ..module_utils.host.files import temporary_file
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.plan_result import plan_result

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PolicyResult


def change_accounting(module: AnsibleModule) -> PolicyResult:
    """Apply the policy, and return the module's result. Raises as `apply_policy`, and OSError."""
    cluster, conf = module.params["cluster"], module.params["slurm_conf"]
    policy = {key: module.params[key] for key in ("limits", "qos", "accounts", "users")}
    if conf is None:
        text = module.params["enforced"]
        return apply_policy(
            module,
            Sacctmgr(cluster),
            policy,
            module.params["purge"],
            tracked=module.params["tracked"],
            enforced=conf_file.read({"slurm.conf": text}) if text else None,
        )
    wanted = conf_file.read({"slurm.conf": conf})
    with temporary_file(conf_for_sacctmgr(wanted).encode()) as path:
        try:
            sacctmgr = Sacctmgr(cluster, new=True, conf=path)
        except UnreachedError:
            if not module.check_mode:  # else the run starts slurmdbd first
                raise
            return {**plan_result([]), "table": [], "kept": [], "registered": False, "refused": []}
        return apply_policy(module, sacctmgr, policy, partitions=wanted.partitions, add=True)


ARGUMENTS = {
    "cluster": CLUSTER,
    "limits": option("Limits of the whole cluster, which are the limits of its root association.", "dict"),
    "qos": several(
        "The QOS. Each has a C(name) and any parameters of a QOS, such as C(Priority), C(MaxWall), C(Preempt), "
        "C(Flags).",
        "dict",
    ),
    "accounts": several(
        "The accounts. Each has a C(name), and optionally C(Description), C(Organization), C(Parent) and the limits "
        "of an association, such as C(Fairshare), C(GrpTRES), C(MaxJobs), C(QOS).\n"
        "C(Coordinators) has all users who are named as coordinators of the account; without it, they stay as they "
        "are.\n"
        "An account can have its child accounts as a list C(accounts), instead of a C(Parent) in each of them.",
        "dict",
    ),
    "users": several(
        "The users. Each has a C(name), a C(DefaultAccount) and further C(accounts). Without C(DefaultAccount), a "
        "user keeps the present default account, and a new user gets the first of C(accounts). C(AdminLevel) is "
        "optional. Limits of an association apply in each account of the user.\n"
        "C(WCKeys) has all WCKeys of the user in this cluster; without it, they stay as they are.\n"
        "An element of C(accounts) can be a mapping with C(name), a C(partition), and limits for this association "
        "only.",
        "dict",
    ),
    "purge": switch(
        "Whether to remove the limits, QOS, accounts and users that the policy does not name.\n"
        "Entities of root, entities with jobs, and the QOS V(normal), which Slurm adds itself, are kept. Those that "
        "are kept because of their jobs are in RV(kept), with those that no command can remove alone. Slurm 23.11 and "
        "later take C(_) in the name of a removed account or user for any character, so that V(a_b) would also remove "
        "V(a-b).\n"
        "What a policy cannot express is kept, and is in RV(kept), such as an account with a blank in its name. So "
        "are texts, coordinators and WCKeys that the policy does not name.\n"
        "In a database with other clusters, only associations of this cluster are removed. All QOS are kept, since "
        "the partitions of other clusters may name them, and so are limits of QOS and an C(AdminLevel) that the "
        "policy does not name. Users stay if they have an C(AdminLevel), coordinate an account of another cluster, or "
        "have WCKeys there, and no association. All of this is in RV(kept)."
    ),
    "slurm_conf": option(
        "Text of a slurm.conf that will be applied later. With it, the module only adds what is new, with its limits "
        "on known resources, and names to the C(QOS) and C(WCKeys) of others, so that slurmctld refuses nobody's job "
        "when it begins to enforce the policy. It changes and removes nothing else.\n"
        "slurmctld exits if a QOS of a partition is missing, so one that is neither in the policy nor in the database "
        "is an error.\n"
        "sacctmgr uses this text instead of the host's slurm.conf. If the cluster is not RV(registered) yet, only QOS "
        "are added.\n"
        "In check mode slurmdbd need not answer, since the run itself may have to start it. The plan is then empty."
    ),
    "tracked": option(
        "The resources that slurm.conf will track (C(AccountingStorageTRES)). Check mode then refuses limits of "
        "others, as slurmdbd will. Without it, check mode accepts limits of any generic resource.",
        "list",
        elements="str",
        version_added="0.2.0",
    ),
    "enforced": option(
        "Text of the slurm.conf by which slurmctld will accept jobs. With it, RV(refused) has those that it will "
        "refuse.\n"
        "Not used with O(slurm_conf).",
        version_added="0.2.0",
    ),
}


def main() -> None:
    run_module(change_accounting, ARGUMENTS)


if __name__ == "__main__":
    main()
