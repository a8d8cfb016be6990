# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as the result of a module: whether something changes, the changes, and their diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, cast

if TYPE_CHECKING:
    from ...plugin_utils.results.module_results import PlannedChange, PlanResult

PlanRow = dict[str, Optional[str]]
"""A change: its object (`what`), and its value `before` and `after`; None where it does not exist."""


def plan_result(plan: Sequence[PlanRow]) -> PlanResult:
    """The keys `changed`, `plan` and `diff` of a module's result."""
    return {
        "changed": bool(plan),
        "plan": cast("list[PlannedChange]", list(plan)),
        "diff": {
            side: "".join(f"{change['what']}: {change[side]}\n" for change in plan if change[side] is not None)
            for side in ("before", "after")
        },
    }
