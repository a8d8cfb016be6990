# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own files of nodes whose slurmd was started by other hands.

From the take-over on, slurmd of such a node fetches the files of the cluster, so that what its own files alone say
would be lost.
"""

from __future__ import annotations

from ...adoption.local_files import node_file_errors
from ..known import registered
from ..known.host_paths import KEPT_DIR
from ..known.platform import slurm_version
from ..known.run_host import RunHost
from ..known.whole_cluster import serving_controller
from .slurm_files import files

FILES_OF_CONTROLLER = [f"{KEPT_DIR}/found/slurm.conf", ""]
"""slurm.conf of the controller as it was before it was taken over, and that in force, as an empty text."""


def are_in_play(host: RunHost) -> bool:
    """Whether nodes of this play have files of their own, or have not answered."""
    own = (registered.SLURMCTLD_OWN.seen(host.of(name)) for name in host.play_hosts)
    return any(answer.get("files", True) for answer in own)


def to_fetch(host: RunHost) -> dict[str, str]:
    """The files that the nodes will fetch. A controller that this run does not change keeps its files."""
    if host.of(serving_controller(host)).answer() and {"all", "controller"} & {*host["ansible_run_tags"]}:
        return files(host)
    return dict(registered.SLURMCTLD_OF_CLUSTER.of(host)["results"][1].get("files") or {})


def objections(host: RunHost) -> list[str]:
    """Why this node cannot be taken over as it is."""
    answers = [answer for answer in registered.SLURMCTLD_OF_CLUSTER.of(host)["results"] if "files" in answer]
    before: dict[str, str] = answers[0]["files"] if answers else {}
    version = answers[0]["version"] if answers else slurm_version(host)
    return node_file_errors(
        registered.SLURMCTLD_OWN.of(host), host.name, before, registered.SLURMCTLD_FETCHED.of(host), version
    )
