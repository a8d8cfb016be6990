# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter `answer_errors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.answers import answer_errors
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.filters import value_errors


class FilterModule:
    """Checks the facts of a host by type and pattern."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give Ansible the filter by its name."""
        return {"answer_errors": value_errors(answer_errors)}
