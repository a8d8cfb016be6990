# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between declared and measured hardware as texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.registration import find_differences


def check_registration(
    measured: Mapping[str, Any],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Any],
    slurm_conf: Mapping[str, Any],
) -> dict[str, list[str]]:
    """Those for which Slurm refuses nodes, `refused`, and those that it accepts, `odd`."""
    found = find_differences(measured, nodes, hardware, slurm_conf)
    return {
        "refused": [each.text for each in found if not each.accepted],
        "odd": [each.text for each in found if each.accepted],
    }
