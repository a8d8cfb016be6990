# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` of the cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .firewall_plans import networks
from .schema import Checker, Kind, host, up_to

DAY = 86400
"""The default of max_token_lifespan, in seconds."""

DERIVED = ("AuthAltTypes", "AuthAltParameters")
"""Parameters of slurm.conf that follow from the key."""

# slurmctld reads the number with atoi (`_slurm_rpc_auth_token` in `src/slurmctld/proc_req.c`).
REST = Kind(
    own={
        "host": {"type": host, "required": True},
        "clients": {"type": networks},
        "max_token_lifespan": {"type": up_to(2**31 - 1)},
    }
)


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> dict[str, Any]:
    """The checked value of the key `rest`, with all defaults; empty without the key."""
    if found in (None, "", {}):
        return {}
    problems = len(checker.problems)
    found = checker.host_or_mapping(REST, "rest", found)
    if not found:
        return {}
    # The variable has every key, without a value where the cluster file has none.
    rest = checker.check(REST, "rest", {key: value for key, value in found.items() if value not in (None, "", [])})
    settings = {str(key).lower() for key, value in slurm_conf.items() if value is not None}
    for parameter in DERIVED:
        if parameter.lower() in settings:
            checker.problem(f"slurm_conf.{parameter}", f"is derived from {checker.key('rest')}: remove one of them")
    if len(checker.problems) > problems:
        return {}
    return {
        "host": rest["host"],
        "clients": rest.get("clients", []),
        "max_token_lifespan": rest.get("max_token_lifespan", DAY),
    }
