#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_run
short_description: Keep runs that could meet from changing a cluster at the same time
description:
  - Acquires the run lock on a controller when a run begins, and releases it at its end. While a run has the lock, a run
    from another control host, or of another user, fails and names the run that has it. Runs with O(nodes) share the
    lock if they have no node in common.
  - The lock of a run that has ended without releasing it, because it failed or was killed, is replaced. The module
    finds that out if the run was one of the same control host, or if the controller has booted since. Otherwise a
    person has to decide it, with O(take_over).
  - In check mode no lock is acquired, and another run is a warning.
attributes:
  diff_mode: {support: none}
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_run]
"""

EXAMPLES = r"""
- name: Begin
  gpucluster.slurm.slurm_run: {state: begun}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import run
from ..module_utils.client.scontrol import controllers, serving
from ..module_utils.host import run_lock
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.language.errors import CollectionError
from ..module_utils.language.hostlist import fold

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import RunResult

SLURM_CONF = "/etc/slurm/slurm.conf"

STARTING = 90
"""Seconds in which a slurmctld that this run has restarted answers. A standby that the first controller has stopped
starts after 10 s (role slurmctld). A first controller that returns with another key waits about 30 s for the standby
that serves (`_slurm_rpc_request_control`), and commands about 20 s for the first answer: 63 s were seen."""


def change_locks(params: Params, check_mode: bool = False) -> list[run_lock.RunLock]:
    """Acquire or release the locks; the other runs that have prevented it. Raises FileError, OSError."""
    own = params["run"]
    acquired: list[str] = []
    # Without the lock of the whole rolling change, none of a part of it.
    for name in (run_lock.ROLLING, run_lock.RUN) if params["rolling"] else (run_lock.RUN,):
        if params["state"] == "begun":
            lock = (name, own, params["former"], params["take_over"], check_mode, params["nodes"])
            if others := run_lock.acquire(*lock):
                for each in acquired:
                    run_lock.release(each, own)
                return others
            acquired.append(name)
        elif not check_mode:
            run_lock.release(name, own)
    return []


def ask_controllers(names: Sequence[str]) -> dict[str, bool]:
    """Whether each controller answers, once all of `names` do, or do not in time. Without a configuration, none is to
    run yet."""
    if not os.path.exists(SLURM_CONF):
        return {}
    deadline = time.monotonic() + STARTING
    while True:
        answering = controllers(run(["scontrol", "ping"]).output)
        if all(answering.get(name) for name in names) or time.monotonic() > deadline:
            return {**dict.fromkeys(names, False), **answering}
        time.sleep(1)


def describe_controllers(answering: Mapping[str, bool], serves: str) -> dict[str, str]:
    """What each of several controllers does."""
    return {
        name: "serves" if name == serves else "stands by" if answers else "does not answer"
        for name, answers in answering.items()
    }


def begin_or_end(module: AnsibleModule) -> RunResult:
    """Acquire or release the locks, and return the module's result. Raises FileError, OSError and CollectionError."""
    params = module.params
    others = change_locks(params, module.check_mode)
    asked = [] if module.check_mode else params["controllers"]
    answering = ask_controllers(asked) if params["state"] == "ended" else {}
    states = describe_controllers(answering, serving()) if len(answering) > 1 else {}
    if silent := [name for name in asked if name in answering and not answering[name]]:
        serves = "".join(f"{name} serves. " for name, state in states.items() if state == "serves")
        raise CollectionError(
            f"slurmctld does not answer on {fold(silent)}, and this run has ended. {serves}Its log there has the "
            "reason (journalctl -u slurmctld), and the playbook gpucluster.slurm.doctor names the cause."
        )
    shared = any(lock["nodes"] for lock in run_lock.read_lock(run_lock.RUN) if run_lock.is_own(lock, params["run"]))
    return {"changed": False, "others": run_lock.shown(others), "shared": shared, "controllers": states}


ARGUMENTS = {
    "state": option("Whether the run begins or ends.", choices=["begun", "ended"], required=True),
    "take_over": switch("Whether the run of another control host has ended, so that its lock is replaced."),
    "nodes": several(
        "Compute nodes that this run changes, and nothing else. Without any it is to have the lock alone. A run that "
        "has it alone keeps it so."
    ),
    "run": run_lock.OPTION,
    "former": run_lock.FORMER,
    "rolling": switch(
        "Whether the run is a rolling change. While it waits for jobs, the module C(slurm_rolling) releases its lock, "
        "so that other runs can change the cluster. A second lock prevents a second rolling change meanwhile."
    ),
    "controllers": several(
        "Controllers that this run has reached, by their names in C(SlurmctldHost). If the run ends and slurmctld "
        "does not answer on one of them, the module fails."
    ),
}


def main() -> None:
    run_module(begin_or_end, ARGUMENTS)


if __name__ == "__main__":
    main()
