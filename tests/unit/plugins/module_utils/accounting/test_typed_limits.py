# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on types of GPUs that a job without a type would pass."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.typed_limits import (
    describe_passed,
    find_passed,
)

TRACKED = ("gres/gpu", "gres/gpu:h100", "gres/gpu:a100")


def account(**limits: Any) -> dict[str, Any]:
    """A policy with one account with these limits."""
    return {"accounts": [{"name": "vision", **limits}]}


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (account(GrpTRES={"gres/gpu:h100": 8}), ["account vision GrpTRES"]),
        (account(GrpTRES="cpu=4,gres/gpu:h100=8"), ["account vision GrpTRES"]),
        (
            account(MaxTRES="gres/gpu:h100=8", GrpTRESRunMins="gres/gpu:a100=60"),
            ["account vision MaxTRESPerJob", "account vision GrpTRESRunMins"],
        ),
        ({"limits": {"GrpTRES": {"gres/gpu:h100": 8}}}, ["cluster GrpTRES"]),
        ({"qos": [{"name": "a", "MaxTRESPU": "gres/gpu:h100=8"}]}, ["qos a MaxTRESPerUser"]),
        # A limit of another place, or of another name, is another limit.
        (account(GrpTRES={"gres/gpu:h100": 8}, MaxTRES={"gres/gpu": 8}), ["account vision GrpTRES"]),
        (
            {"users": [{"name": "u", "accounts": [{"name": "vision", "MaxTRES": "gres/gpu:h100=1"}]}]},
            ["user u in vision MaxTRESPerJob"],
        ),
        # The untyped limit stands with it.
        (account(GrpTRES={"gres/gpu:h100": 8, "gres/gpu": 8}), []),
        (account(GrpTRESMins={"gres/gpu:h100": 600}, gpu_hours=10), []),
        (account(GrpTRES={"gres/gpu": 8}), []),
        # Nothing is passed where a job must want as many at least: one without a type wants none of the type.
        ({"qos": [{"name": "a", "MinTRES": "gres/gpu:h100=1"}]}, []),
        (account(GrpTRES={"license/a:b": 1}), []),
    ],
)
def test_a_limit_on_a_type_needs_one_on_all_types(policy: dict[str, Any], found: list[str]) -> None:
    assert [f"{limit.entity.text} {limit.name}" for limit in find_passed(policy, TRACKED)] == found


def test_where_slurm_does_not_track_all_types_a_job_counts_under_one() -> None:
    assert not [*find_passed(account(GrpTRES={"gres/gpu:h100": 8}), ["gres/gpu:h100"])]


def test_none_of_a_type_is_told_apart() -> None:
    """No number of GPUs of all types would keep a job from this one."""
    (limit,) = find_passed(account(GrpTRES={"gres/gpu:h100": 0, "gres/gpu:a100": 0}), TRACKED)
    assert limit.closes
    (limit,) = find_passed(account(GrpTRES={"gres/gpu:h100": 0, "gres/gpu:a100": 8}), TRACKED)
    assert not limit.closes


def test_equal_limits_of_many_users_are_one_line() -> None:
    users = [{"name": f"u{i}", "DefaultAccount": "vision", "MaxTRES": {"gres/gpu:h100": 2}} for i in range(1, 300)]
    assert describe_passed(find_passed({"users": users}, TRACKED)) == [
        "user u[1-299] in vision: MaxTRESPerJob: found gres/gpu:h100 without gres/gpu, so jobs that name no type "
        "(--gres=gpu:1) pass it"
    ]
