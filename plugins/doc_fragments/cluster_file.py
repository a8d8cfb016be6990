# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of the cluster file as options of the inventory plugin, from their registry."""

from __future__ import annotations

from typing import Any

import yaml

from ..module_utils.cluster.keys import KEYS, ClusterKey, paragraphs


def option(key: ClusterKey) -> dict[str, Any]:
    """A key as an option of a plugin."""
    found: dict[str, Any] = {"description": paragraphs(key.description), "type": key.type}
    if key.type == "list":
        found["elements"] = key.elements
    if key.required:
        found["required"] = True
    if key.choices:
        found["choices"] = key.allowed
    if key.default is not None:
        found["default"] = key.default
    if key.version_added:
        found["version_added"] = key.version_added
    return found


OPTIONS = {key.name: option(key) for key in KEYS}


class ModuleDocFragment:
    """The keys of the cluster file."""

    # With its type, because ansible-test would take a plain assignment for one of a text.
    DOCUMENTATION: str = yaml.safe_dump({"options": OPTIONS}, sort_keys=False)
