#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a removal of nodes, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_removal
short_description: Drain nodes that leave the cluster, and wait for their jobs
description:
  - The steps of the playbook C(gpucluster.slurm.remove_nodes), on the serving controller.
  - All nodes leave together, or none. Only nodes that this module has drained are resumed.
attributes:
  diff_mode: {support: none}
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_removal]
"""

EXAMPLES = r"""
- name: Drain two nodes, and wait for their jobs
  gpucluster.slurm.slurm_removal: {step: next, nodes: "gpu[13-14]"}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..module_utils.client import drains
from ..module_utils.client.commands import CommandError, output
from ..module_utils.client.scontrol import CLEARED, show
from ..module_utils.controller import removed_hosts
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, switch
from ..module_utils.language.hostlist import expand, fold
from ..module_utils.rolling import node_removal
from ..module_utils.rolling.next_nodes import Node, RollingError, deadline_of, node_of
from ..module_utils.rolling.node_removal import RemovalDecision

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import RemovalResult

POLL = 3
"""Seconds between two polls of the jobs."""


class Removal:
    """A removal of nodes."""

    def __init__(self, params: Params, check_mode: bool) -> None:
        """Read the options. Raises RollingError."""
        self.params, self.check_mode, self.changed = params, check_mode, False
        self.names = expand(params["nodes"])
        self.deadline = deadline_of(params["deadline"], datetime.now(), "remove_nodes_deadline")

    def update(self, names: Iterable[str], *settings: str) -> None:
        """Change nodes of Slurm."""
        names = [*names]
        if names:
            self.changed = True
        if names and not self.check_mode:
            output(["scontrol", "update", f"NodeName={fold(names)}", *settings])

    def resume(self, names: Iterable[str]) -> None:
        """Resume nodes. Raises CommandError if one of them stays drained.

        Slurm also resumes a node that has not answered since slurmctld's start, and says that it cannot (`update_node`
        in `src/slurmctld/node_mgr.c`).
        """
        names = [*names]
        try:
            self.update(names, "State=RESUME", f"Reason={CLEARED}")
        except CommandError:
            nodes = nodes_now()
            if any(node_removal.is_ours(nodes[name]) for name in names if name in nodes):
                raise

    def decide(self) -> RemovalDecision:
        """What happens next, by the present state of Slurm. Raises CommandError."""
        late = self.deadline is not None and datetime.now() >= self.deadline
        claims = node_removal.claims_of(output(node_removal.SQUEUE))
        return node_removal.decide_removal(self.names, nodes_now(), claims, late, self.params["end_jobs"])

    # -- the steps ---------------------------------------------------------------------------------------------------

    def begin(self) -> RemovalDecision:
        """Check that the nodes can leave. Raises RollingError."""
        if reasons := node_removal.describe_reservations(self.names, show("reservation")):
            raise RollingError("; ".join(reasons))
        return self.decide()

    def next(self) -> RemovalDecision:
        """Drain nodes, and wait a while for their jobs."""
        until = time.monotonic() + self.params["wait"]
        while True:
            try:
                decided = self.decide()
            except CommandError as error:
                # While the state of nodes cannot be read, all of them count as busy.
                decided = RemovalDecision(waiting={"all nodes": str(error)})
            self.resume(decided.resume)
            self.update(decided.drain, "State=DRAIN", f"Reason={drains.LEAVING}leaves the cluster")
            # A drained node could have got a job just before, so the drained nodes are read once more.
            if decided.over or self.check_mode or time.monotonic() >= until:
                return decided
            time.sleep(0 if decided.drain else POLL)

    def gone(self) -> RemovalDecision:
        """Check that Slurm does not have the nodes any more. Raises RollingError.

        If it has refused the change, nodes that were drained for it have jobs again.
        """
        nodes = nodes_now()
        if remaining := [name for name in self.names if name in nodes]:
            drained = [name for name in remaining if node_removal.is_ours(nodes[name])]
            self.resume(drained)
            resumed = f". Resumed: {fold(drained)}" if drained else ""
            raise RollingError(f"Slurm still has the nodes {fold(remaining)}, so these hosts are not cleaned{resumed}")
        return self.decide()

    def end(self) -> RemovalDecision:
        """Record which hosts are cleaned. Raises FileError."""
        if not self.check_mode:
            cleaned = expand(self.params["cleaned"])
            removed_hosts.forget(cleaned)
            known = {**removed_hosts.addresses(), **self.params["addresses"]}
            removed_hosts.record_addresses({name: str(at) for name, at in known.items() if name not in cleaned})
        return RemovalDecision(ready=self.names)


def nodes_now() -> dict[str, Node]:
    """All nodes of Slurm. Raises CommandError."""
    return {node.name: node for node in map(node_of, show("node"))}


def take_step(params: Params, check_mode: bool) -> RemovalResult:
    """Take a step. Raises CommandError, FileError, OSError and RollingError."""
    removal = Removal(params, check_mode)
    decided: RemovalDecision = getattr(removal, params["step"])()
    return {
        "changed": removal.changed,
        "ready": decided.ready if decided.over else [],
        "over": decided.over,
        "ok": decided.over and not decided.late,
        "table": node_removal.table(decided, removal.names),
        "deadline": removal.deadline.isoformat(timespec="seconds") if removal.deadline else "",
    }


ARGUMENTS = {
    "step": option(
        "V(begin) checks that the nodes can leave, and drains nothing.\n"
        "V(next) drains the nodes and waits for their jobs. The control host repeats it until no node has a job any "
        "more, and shows the table whenever it differs. After the O(deadline) it resumes the nodes.\n"
        "V(gone) fails if Slurm still has one of the nodes.\n"
        "V(end) records which of the hosts are cleaned.",
        choices=["begin", "next", "gone", "end"],
        required=True,
    ),
    "nodes": option("The nodes that leave, a hostlist.", required=True),
    "deadline": option(
        "A date and time by the clock of the controller, or a number of minutes after V(begin).", default=""
    ),
    "end_jobs": switch("Whether pending jobs that ask for one of the nodes by name may end."),
    "wait": option("Seconds that V(next) waits before it returns.", "int", default=60),
    "cleaned": option("For V(end), the hosts that are cleaned, a hostlist. The cluster forgets them.", default=""),
    "addresses": option("For V(end), the addresses of the other hosts, which later runs ask.", "dict", default={}),
}


def main() -> None:
    run_module(lambda module: take_step(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
