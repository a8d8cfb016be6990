# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` of the cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from .firewall_plans import networks
from .schema import Checker, host, kind_of, up_to

DAY = 86400
"""The default of max_token_lifespan, in seconds."""

DERIVED = ("AuthAltTypes", "AuthAltParameters")
"""Parameters of slurm.conf that follow from the key."""


class RestKey(TypedDict, total=False):
    """The value of the key; the variable has all of it, or is empty."""

    host: Annotated[str, host, "required"]
    clients: Annotated[list[str], networks]
    max_token_lifespan: Annotated[int, up_to(2**31 - 1)]  # slurmctld reads it with atoi (`_slurm_rpc_auth_token`)


REST = kind_of(RestKey)


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> RestKey:
    """The checked value of the key `rest`, with all defaults; empty without the key."""
    problems = len(checker.problems)
    found = checker.host_or_mapping(REST, "rest", found)
    if not found:
        return {}
    # The variable has every key, without a value where the cluster file has none.
    rest = checker.check(REST, "rest", {key: value for key, value in found.items() if value not in (None, "", [])})
    checker.refuse_derived("rest", DERIVED, slurm_conf)
    if len(checker.problems) > problems:
        return {}
    return {"clients": [], "max_token_lifespan": DAY, **rest}
