#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make Slurm's accounting as a policy wants it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting
short_description: Make Slurm's accounting as a policy wants it
version_added: 0.1.0
description:
  - Takes a whole policy, reads what slurmdbd has with a constant number of commands, and makes the difference in one
    process of sacctmgr with as few commands as there are different things to do. This serves thousands of users.
  - The policy is checked first. A key or a value that Slurm would not take, a tree with a circle, a user without
    an account, a name that is not known is one error with all of them before anything changes.
  - After the change what slurmdbd has is read again. What Slurm has not taken is an error with its own words.
options:
  limits:
    description: Limits of the whole cluster, those of its root association.
    type: dict
  qos:
    description: Each has a C(name) and any parameter of a QOS, such as C(Priority), C(MaxWall), C(Preempt), C(Flags).
    type: list
    elements: dict
    default: []
  accounts:
    description:
      - Each has a C(name), and may have C(Description), C(Organization), C(Parent) and the limits of an association,
        such as C(Fairshare), C(GrpTRES), C(MaxJobs), C(QOS).
      - The accounts in it can be given as a list C(accounts) in it, instead of a C(Parent) in each of them.
    type: list
    elements: dict
    default: []
  users:
    description:
      - Each has a C(name), a C(DefaultAccount) and further C(accounts). Where no default is named, a user keeps the one
        that it has, and a new one has the first of them. It may have an C(AdminLevel), and the limits of an
        association hold in each of its accounts.
      - One of the accounts may be a mapping with its C(name), the C(partition) that it is for, and limits of its own.
    type: list
    elements: dict
    default: []
  purge:
    description:
      - Whether to remove the limits, QOS, accounts and users that the policy does not name.
      - What is root's or has jobs stays, and so does the QOS V(normal), which Slurm makes itself. What stays for its
        jobs is in RV(kept).
    type: bool
    default: false
  slurm_conf:
    description:
      - Text of a slurm.conf that is to be applied. Of the policy only the QOS that its partitions name are made,
        without limits, and one that nobody knows is an error. slurmctld ends where a QOS of a partition is missing.
      - sacctmgr uses what it needs of it instead of the host's own. The database need not know the cluster yet.
    type: str
extends_documentation_fragment:
  - gpucluster.slurm.changing
  - gpucluster.slurm.accounting
  - gpucluster.slurm.accounting.cluster
seealso:
  - module: gpucluster.slurm.slurm_qos
  - module: gpucluster.slurm.slurm_account
  - module: gpucluster.slurm.slurm_user
  - module: gpucluster.slurm.slurm_accounting_info
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

- name: Make the QOS that partitions name, before slurmctld reads the file
  gpucluster.slurm.slurm_accounting:
    cluster: lab
    qos: [{name: urgent, Priority: 100}]
    slurm_conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"

- name: Show what has changed
  ansible.builtin.debug:
    msg: "{{ accounting.table + accounting.kept }}"
"""

RETURN = r"""
plan:
  description: The changes, one for each limit, and one for what comes or goes.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: What changes.
      type: str
      returned: always
      sample: qos high Priority
    before:
      description: Its value before; null for what was not there.
      type: str
      returned: always
      sample: "10"
    after:
      description: Its value afterwards; null for what is gone. It is empty where a limit is not set.
      type: str
      returned: always
      sample: "20"
table:
  description: The plan as text. What is the same of several names is one line.
  type: list
  elements: str
  returned: always
  sample: ["qos high Priority  10 -> 20"]
kept:
  description: What is not removed, and why.
  type: list
  elements: str
  returned: always
  sample: ["user bob: has jobs [12-13]"]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.apply import apply_policy, run
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import PolicyError, qos_of_partitions
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr import Sacctmgr, conf_for_sacctmgr
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import conf_file


def main() -> None:
    entries: dict[str, Any] = {"type": "list", "elements": "dict", "default": []}
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str"},
            "limits": {"type": "dict"},
            "qos": entries,
            "accounts": entries,
            "users": entries,
            "purge": {"type": "bool", "default": False},
            "slurm_conf": {"type": "str"},
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        cluster, conf = module.params["cluster"], module.params["slurm_conf"]
        policy = {key: module.params[key] for key in ("limits", "qos", "accounts", "users")}
        if conf is None:
            return apply_policy(module, Sacctmgr(cluster), policy, module.params["purge"])
        try:
            wanted = conf_file.read({"slurm.conf": conf})
        except conf_file.ConfigurationError as error:
            raise PolicyError(str(error)) from None
        file = Path(module.tmpdir, "slurm.conf")
        file.write_text(conf_for_sacctmgr(wanted), encoding="utf-8")
        sacctmgr = Sacctmgr(cluster, new=True, conf=str(file))
        return apply_policy(
            module, sacctmgr, qos_of_partitions(policy, wanted.partitions), partitions=wanted.partitions
        )

    run(module, work)


if __name__ == "__main__":
    main()
