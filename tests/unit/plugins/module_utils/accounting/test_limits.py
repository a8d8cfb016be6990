# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of Slurm's limits, compared by their meaning."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.limits import (
    LIMITS,
    find,
    meaning,
    move_gpu_hours,
    name_of,
    new_value,
)
from hypothesis import given
from hypothesis import strategies as st

QOS, ACCOUNT = LIMITS["qos"], LIMITS["account"]


@pytest.mark.parametrize(
    ("limit", "values", "text"),
    [
        (QOS["MaxWall"], ["1-00:00:00", "24:00:00", "1-0", "1440", 1440, "1439:30"], "1-00:00:00"),
        (QOS["MaxWall"], ["00:01:30", "2", "1:30"], "00:02:00"),
        (QOS["GraceTime"], [90, "90", "00:01:30", "1:30"], "00:01:30"),
        (QOS["PreemptExemptTime"], ["00:01:30", "1:30"], "00:01:30"),
        (QOS["GrpTRES"], ["gres/gpu=8,cpu=4", "cpu=4,gres/gpu=8", {"gres/gpu": 8, "cpu": "4"}], "cpu=4,gres/gpu=8"),
        (QOS["GrpTRES"], ["mem=10G", "mem=10240", "mem=10240M", "mem=10485760k", {"mem": "10g"}], "mem=10240"),
        (QOS["GrpTRES"], ["cpu=4,node=-1", {"cpu": 4, "node": None}], "cpu=4"),
        (QOS["GrpTRESMins"], ["cpu=2K"], "cpu=2048"),
        (QOS["Preempt"], ["low,Normal", ["normal", "low"], "normal,low,low"], "low,normal"),
        (QOS["Flags"], ["noreserve,DenyOnLimit", ["DenyOnLimit", "NoReserve"]], "DenyOnLimit,NoReserve"),
        (QOS["UsageFactor"], ["1.000000", 1, "", None, -1], "1"),
        (QOS["UsageFactor"], ["0.500000", 0.5], "0.5"),
        (QOS["UsageFactor"], ["0.000061", "0.0000610"], "0.000061"),
        (QOS["PreemptMode"], ["", None, "CLUSTER"], "cluster"),
        (ACCOUNT["Fairshare"], [1, "1", None, -1, ""], "1"),
        (ACCOUNT["Fairshare"], ["parent", "Parent"], "parent"),
        (ACCOUNT["MaxJobs"], [None, -1, "-1", ""], ""),
        (ACCOUNT["MaxJobs"], [0, "0"], "0"),
        (ACCOUNT["QOS"], [[], "", None], ""),
        (ACCOUNT["Description"], ["Bob's Lab", " Bob's Lab "], "bob`s lab"),
        (ACCOUNT["Description"], ["GPU #1: \u00c4"], "gpu #1: \u00c4"),
        (ACCOUNT["QOS"], [2024, "2024", [2024]], "2024"),
        (LIMITS["user"]["AdminLevel"], ["operator"], "Operator"),
    ],
)
def test_values_with_one_meaning_are_one_text(limit: Any, values: list[Any], text: str) -> None:
    assert [meaning(limit, value) for value in values] == [text] * len(values)


@pytest.mark.parametrize(
    ("limit", "value", "allowed"),
    [
        (QOS["MaxWall"], "soon", "a time"),
        (QOS["MaxWall"], "1:2:3:4", "a time"),
        (QOS["GrpTRES"], "cpu", "resources"),
        (QOS["GrpTRES"], "cpu=4,", "resources"),
        (QOS["GrpTRES"], {"cpu": "many"}, "resources"),
        (QOS["GrpTRES"], {"cpu set": 1}, "resources"),
        (QOS["Priority"], -5, "a whole number"),
        (QOS["Priority"], True, "a whole number"),
        (QOS["Priority"], 2**32, "a whole number up to 4294967293"),
        (QOS["Preempt"], True, "a name"),
        (QOS["Preempt"], ["low", None], "a name"),
        (QOS["Preempt"], [["low"]], "a name"),
        (ACCOUNT["Parent"], 1.1, "a name"),
        (ACCOUNT["Description"], True, "text"),
        (ACCOUNT["Description"], ["a"], "text"),
        (ACCOUNT["Description"], "a\u2028b", "text"),
        (ACCOUNT["Description"], "\u00e9" * 501, "text of up to 1000 bytes"),
        (QOS["UsageFactor"], "x", "a number"),
        (QOS["Flags"], "NoReserves", "DenyOnLimit, "),
        (QOS["Preempt"], "a b", "a name"),
        (QOS["Description"], 'a "b"', "text without"),
        (QOS["Description"], "a\ndelete qos b", "text without"),
        (ACCOUNT["Parent"], "a,b", "one name"),
        (ACCOUNT["Fairshare"], "parents", "a whole number up to 4294967293, or parent"),
    ],
)
def test_what_slurm_would_not_take_is_refused(limit: Any, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"{limit.name}: found .*, allowed: {allowed}"):
        meaning(limit, value)


VALUES = {
    "count": st.integers(0, 2**31).map(str),
    "factor": st.floats(0, 1000).map(lambda number: f"{number:f}"),
    "share": st.integers(0, 2**31).map(str) | st.just("parent"),
    "tres": st.dictionaries(
        st.sampled_from(["cpu", "mem", "node", "gres/gpu", "gres/gpu:h100"]), st.integers(0, 2**40)
    ),
    "minutes": st.integers(0, 10**6),
    "time": st.integers(0, 10**6),
    "grace": st.integers(0, 10**6),
    "names": st.lists(st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)),
    "word": st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True),
    "text": st.text(st.characters(codec="ascii", exclude_categories=["C"], exclude_characters='"|\\')),
}
VALUES["members"] = VALUES["names"]


@given(st.data())
def test_a_meaning_means_itself(data: st.DataObject) -> None:
    limit = data.draw(st.sampled_from([limit for limits in LIMITS.values() for limit in limits.values()]))
    value = data.draw(st.sampled_from(limit.choices) if limit.choices else VALUES[limit.kind])
    text = meaning(limit, value)
    assert meaning(limit, text) == text


@given(days=st.integers(0, 99), hours=st.integers(0, 23), minutes=st.integers(0, 59))
def test_forms_of_a_time_mean_the_same(days: int, hours: int, minutes: int) -> None:
    limit = QOS["MaxWall"]
    total = (days * 24 + hours) * 60 + minutes
    forms = [total, f"{total}:00", f"{days * 24 + hours}:{minutes}:00", f"{days}-{hours}:{minutes}"]
    assert len({meaning(limit, form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("limit", "before", "after", "value"),
    [
        (QOS["GrpTRES"], "cpu=4,node=2", "cpu=8,mem=10", "cpu=8,mem=10,node=-1"),
        (QOS["GrpTRES"], "cpu=4", "", "cpu=-1"),
        (QOS["MaxWall"], "00:10:00", "", "-1"),
        (QOS["Preempt"], "low", "", ""),
        (QOS["GraceTime"], "00:00:00", "1-00:01:30", "86490"),
        (QOS["GraceTime"], "00:01:00", "00:00:00", "0"),
        (QOS["PreemptMode"], "requeue", "cluster", "cluster"),
        (ACCOUNT["Fairshare"], "5", "1", "1"),
    ],
)
def test_the_value_that_slurm_gets(limit: Any, before: str, after: str, value: str) -> None:
    assert new_value(limit, before, after) == value


def test_keys_are_found_by_each_of_slurms_terms() -> None:
    assert find(["qos"], "maxtres") == ("qos", QOS["MaxTRESPerJob"])
    assert find(["user", "association"], "MaxSubmit") == ("association", LIMITS["association"]["MaxSubmitJobs"])
    with pytest.raises(ValueError, match=r"MaxWal: unknown to Slurm, did you mean 'MaxWall'\?"):
        find(["qos"], "MaxWal")
    with pytest.raises(ValueError, match=r"acounts: unknown to Slurm, did you mean 'accounts'\?"):
        find(["user"], "acounts", ["name", "accounts"])


@pytest.mark.parametrize("kind", LIMITS)
def test_gpu_hours_are_a_limit_wherever_minutes_are(kind: str) -> None:
    if "GrpTRESMins" not in LIMITS[kind]:
        with pytest.raises(ValueError, match="GPU_Hours: unknown to Slurm"):
            find([kind], "GPU_Hours")
        return
    assert find([kind], "GPU_Hours")[1].name == "gpu_hours"
    with pytest.raises(ValueError, match=r"gpu_huors: unknown to Slurm, did you mean 'gpu_hours'\?"):
        find([kind], "gpu_huors")


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"gpu_hours": 100000}, {"GrpTRESMins": "gres/gpu=6000000"}),
        ({"gpu_hours": "5", "GrpTRESMins": "cpu=9,node=7", "MaxJobs": 2}, {"GrpTRESMins": "cpu=9,gres/gpu=300,node=7"}),
        ({"gpu_hours": 5, "GrpTRESMins": {"gres/gpu:h100": 9}}, {"GrpTRESMins": "gres/gpu:h100=9,gres/gpu=300"}),
        ({"gpu_hours": 0}, {"GrpTRESMins": "gres/gpu=0"}),
        ({"gpu_hours": None}, {"GrpTRESMins": ""}),
        ({"gpu_hours": -1, "GrpTRESMins": {"gres/gpu": 60}}, {"GrpTRESMins": "gres/gpu=60"}),
        ({"MaxJobs": 2}, {}),
    ],
)
def test_slurm_has_gpu_hours_as_minutes(given: dict[str, Any], settings: dict[str, str]) -> None:
    meanings = {key: meaning(find(["account"], key)[1], value) for key, value in given.items()}
    move_gpu_hours(meanings)
    assert meanings == {**settings, **({"MaxJobs": "2"} if "MaxJobs" in given else {})}


SIGNS = "!$&()*+-./:;<>?@^_{}~"
"""Those that sacctmgr 24.11 took in names, in commands and in a file, for accounts, users and QOS."""


def test_all_other_signs_are_refused_in_names() -> None:
    taken = [sign for sign in map(chr, range(256)) if not sign.isalnum() and _is_name(f"a{sign}b")]
    assert "".join(taken) == SIGNS
    assert [name for name in ("", "+a", "-a", "caf\u00e9", "a" * 256) if _is_name(name)] == []


def _is_name(name: str) -> bool:
    """Whether it is a name."""
    try:
        return name_of(name) == name
    except ValueError:
        return False
