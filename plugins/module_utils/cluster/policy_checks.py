# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy for accounting in the cluster file, with the users that follow from its people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..accounting.policy import problems as policy_problems
from ..accounting.reservations import ReservationError, check_name, differences
from . import schema
from .schema import Checker, Partition, Raw, Settings

_FILE = re.compile(r".+\.ya?ml")


def file_of(data: Any) -> str:
    """The file of the policy that the data of a cluster file names; empty without one."""
    found = data.get("accounting") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) and _FILE.fullmatch(found) else ""


def check_accounting(
    checker: Checker, found: Mapping[str, Any], partitions: list[Partition], has_database: bool
) -> Raw:
    """The policy for accounting."""
    policy = checker.check(schema.ACCOUNTING, "accounting", found)
    parameters = {str(partition.get("name")): partition.items() for partition in partitions}
    for what in policy_problems(policy, policy.get("purge", False), parameters):
        checker.problem("accounting", what)
    for i, reservation in enumerate(policy.get("reservations", [])):
        _check_reservation(checker, f"accounting.reservations[{i}]", reservation)
    if policy and not has_database:
        checker.problem("accounting", "needs a database")
    return policy


def _check_reservation(checker: Checker, key: str, found: Any) -> None:
    """A reservation: its name, and parameters that Slurm knows."""
    if not isinstance(found, Mapping) or found.get("name") in (None, ""):
        checker.problem(key, "allowed: a mapping with name and parameters of a reservation")
        return
    try:
        check_name(found["name"])
        differences({name: value for name, value in found.items() if name not in ("name", "state")}, None)
    except ReservationError as error:
        for line in str(error).split("\n"):
            checker.problem(key, line)


def with_people(
    checker: Checker, policy: Mapping[str, Any], users: list[Settings], has_database: bool
) -> Mapping[str, Any]:
    """The policy for accounting with the users that follow from the people."""
    if users and not has_database:
        checker.problem("users", "found users with an account, which needs a database")
        return policy
    listed = [] if policy.get("users") is None else policy["users"]
    return {**policy, "users": [*listed, *users]} if users and isinstance(listed, list) else policy
