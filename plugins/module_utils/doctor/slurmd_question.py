# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks slurmd on nodes for its status, from the controller.

The port of a slurmd without munged stays open, and slurmctld asks a node only after each third of SlurmdTimeout. Until
then such a node is idle, and a job that it gets fails.

`scontrol show slurmd` asks the slurmd of the host on which it runs: it looks its own name up in slurm.conf
(`slurm_load_slurmd_status` in src/api/config_info.c). With a slurm.conf in which this name has the address of a node,
it asks this node. slurmd answers every user (`_rpc_daemon_status` in src/slurmd/slurmd/req.c).
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..client.commands import run
from .evidence import SlurmNode

SECONDS = 10
"""For an answer: the default of MessageTimeout."""
THREADS = 32

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
"""As a user who can do nothing in Slurm: a node could use root's credential. runuser would fill the journal."""

KEPT = (
    *("ClusterName", "AuthType", "AuthInfo", "CommunicationParameters", "HashPlugin", "PluginDir"),
    *("TLSType", "TLSParameters"),
)
"""Parameters on which the way of the question depends; they are as in the cluster's own slurm.conf."""


def compose_conf(own_name: str, address: str, port: int, settings: Mapping[str, str]) -> str:
    """A slurm.conf with which this host takes a node for itself.

    settings: the parameters of the cluster, by their names in small letters.
    """
    kept = [f"{name}={settings[name.lower()]}" for name in KEPT if name.lower() in settings]
    own = [f"SlurmctldHost={own_name}", f"SlurmdPort={port}", f"MessageTimeout={SECONDS}"]
    return "\n".join([*kept, *own, f"NodeName={own_name} NodeAddr={address}\n"])


def ask_slurmd(node: SlurmNode, settings: Mapping[str, str]) -> str:
    """Why a slurmd does not answer; empty if it does."""
    own_name = socket.gethostname().partition(".")[0]
    # The variable is for a Slurm that was built with --enable-multiple-slurmd.
    command = [*AS_NOBODY, "env", f"SLURMD_NODENAME={own_name}", "scontrol", "show", "slurmd"]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="slurm-doctor-") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(compose_conf(own_name, node.address, node.port, settings))
        file.flush()
        answer = run(command, seconds=SECONDS + 5, conf=file.name)
    return answer.message.split("\n")[-1].rpartition(": ")[2] if answer.status else ""


def ask_slurmds(nodes: Sequence[SlurmNode], settings: Mapping[str, str]) -> dict[str, str]:
    """Why slurmds do not answer, by the names of their nodes."""
    with ThreadPoolExecutor(THREADS) as pool:
        answers = zip((node.name for node in nodes), pool.map(lambda node: ask_slurmd(node, settings), nodes))
        return {name: why for name, why in answers if why}
