# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of the table of defaults (defaults.py, docs/design/defaults.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...cluster.gpu_defaults import billing_weights
from ...cluster.render import node_parameters
from ..known.platform_tables import Release
from ..known.run_host import RunHost

SET = "set"
"""The value stands in the file unless the site has its own value."""

FIRST = "first"
"""The cluster needs the value: it stands before the values of the site."""

LAST = "last"
"""The cluster needs the value: it stands after the values of the site."""

OPTION = "option"
"""The value stands after the options of the site, unless the site has this option or removes the parameter."""


PARTITION = "partition"
"""The value is a mapping: the parameter of each partition by name, unless the site has set it there."""


@dataclass(frozen=True)
class Target:
    """The cluster and the release of Slurm for which a file is written."""

    host: RunHost
    release: str
    """Such as 24.11; empty while it is not known."""
    platform: Release
    generation: int
    _held: dict[Condition, bool] = field(default_factory=dict, compare=False)

    @cached_property
    def of_nodes(self) -> Mapping[str, Any]:
        """The parameters that follow from the nodes."""
        return node_parameters(self.host["slurm_nodes"], self.host["slurm_hardware_types"])

    @cached_property
    def weights(self) -> dict[str, str]:
        """TRESBillingWeights of each partition with GPUs."""
        host = self.host
        return billing_weights(
            host["slurm_partitions"], host["slurm_nodes"], host["slurm_hardware_types"], host["slurm_conf"]
        )

    def holds(self, condition: Condition) -> bool:
        """Whether a condition holds. Many rows share one, and Ansible would render the variables each time."""
        if condition not in self._held:
            self._held[condition] = condition.holds(self)
        return self._held[condition]


@dataclass(frozen=True)
class Condition:
    """When a default applies."""

    text: str
    """The condition on the generated page; empty for all clusters."""
    holds: Callable[[Target], bool]


ALWAYS = Condition("", lambda _target: True)


@dataclass(frozen=True)
class Follows:
    """A value that follows from the cluster; None: no such parameter."""

    text: str
    """The value on the generated page."""
    value: Callable[[Target], Any]


@dataclass(frozen=True)
class Default:
    """A default: one row of the table."""

    file: str
    key: str
    value: Any
    """A value as the cluster file has it, Follows, or None: the row removes the value of an earlier generation."""
    reason: str
    source: str
    """The manual page or the source file of Slurm that says what the value does."""
    when: Condition = ALWAYS
    place: str = SET
    of_collection: bool = False
    """Whether it is a path or port range of this collection. An adopted cluster keeps its own."""
    generation: int = 1

    def value_for(self, target: Target) -> Any:
        """The value for a cluster."""
        return self.value.value(target) if isinstance(self.value, Follows) else self.value
