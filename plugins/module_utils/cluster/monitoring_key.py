# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `monitoring` of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from ..language.formatting import shown
from .firewall_plans import networks
from .schema import Checker, file_name, flag, host, kind_of, text

RETENTION = "30d"
"""How long Prometheus keeps values by default."""

DERIVED = ("MetricsType", "MetricsParameters", "MetricsAuthUsers", "SlurmctldHttpAuthParameters")
"""Parameters of slurm.conf that follow from the key."""

# `model.ParseDuration` in Prometheus: each unit once, the largest first.
_DURATION = re.compile(r"(?=[0-9])" + "".join(rf"(?:([0-9]+){unit})?" for unit in ("y", "w", "d", "h", "m", "s")))

_DAY = 86400
_SECONDS = (365 * _DAY, 7 * _DAY, _DAY, 3600, 60, 1)
_MOST_SECONDS = 2**63 // 10**9  # nanoseconds in 64 bits


def retention(value: Any) -> str:
    """A duration as Prometheus takes it; zero would keep all values."""
    match = _DURATION.fullmatch(text(value))
    numbers = [int(number or 0) for number in match.groups()] if match else []
    if not 0 < sum(number * seconds for number, seconds in zip(numbers, _SECONDS)) < _MOST_SECONDS:
        raise ValueError("allowed: how long Prometheus keeps values, such as 30d or 1y6w, in y, w, d, h, m and s")
    return text(value)


class MonitoringKey(TypedDict, total=False):
    """The value of the key; the variable has all of it, or is empty."""

    host: Annotated[str, host]
    retention: Annotated[str, retention]
    readers: Annotated[list[str], networks]
    receivers: Annotated[str, file_name]
    users_and_accounts: Annotated[bool, flag]
    targets_only: Annotated[bool, flag]


MONITORING = kind_of(MonitoringKey)

OF_SERVER = ("host", "retention", "receivers")
"""Keys that are about this collection's Prometheus, which does not run with targets_only."""


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> MonitoringKey:
    """The checked value of the key `monitoring`, with all defaults; empty without the key."""
    problems = len(checker.problems)
    found = checker.host_or_mapping(MONITORING, "monitoring", found)
    if not found:
        return {}
    # The variable has every key, without a value where the cluster file has none.
    found = {key: value for key, value in found.items() if value not in (None, "", [])}
    monitoring = checker.check(MONITORING, "monitoring", found)
    given = [key for key in OF_SERVER if key in found]
    if monitoring.get("targets_only"):
        for key in given:
            what = f"found {shown(found[key])}, but targets_only installs no Prometheus: remove one of them"
            checker.problem(f"monitoring.{key}", what)
    elif len(checker.problems) == problems and "host" not in monitoring:
        checker.problem("monitoring.host", "missing, allowed: the host of Prometheus, or targets_only: true")
    checker.refuse_derived("monitoring", DERIVED, slurm_conf)
    if len(checker.problems) > problems:
        return {}
    return {
        "host": "",
        "retention": RETENTION if "host" in monitoring else "",
        "readers": [],
        "receivers": "",
        "users_and_accounts": False,
        "targets_only": False,
        **monitoring,
    }
