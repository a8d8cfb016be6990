# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_removal (meta/runtime.yml): it waits for nodes, and shows how far the run is."""

from __future__ import annotations

from .slurm_rolling import Waiting


class ActionModule(Waiting):
    """The module, again and again until the nodes can leave."""

    title = "remove_nodes"
