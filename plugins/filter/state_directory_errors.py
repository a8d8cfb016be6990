# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter `state_directory_errors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.state_directory import errors
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.filters import value_errors


class FilterModule:
    """Compares the state directories of controllers."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give Ansible the filter by its name."""
        return {"state_directory_errors": value_errors(errors)}
