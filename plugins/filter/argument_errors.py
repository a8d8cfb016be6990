# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter `argument_errors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.filters import value_errors


class FilterModule:
    """Checks the variables of many hosts by argument specs."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give Ansible the filter by its name."""
        return {"argument_errors": value_errors(argument_errors)}
