# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spread of values of which some are wrong."""

from __future__ import annotations

import random
from itertools import combinations
from statistics import mean

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import spread
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.spread import outside, robust_spread


@pytest.mark.parametrize("number", [3, 4, 5, 8, 9, 20, 41, 200])
def test_it_is_the_standard_deviation_of_normal_values(number: int) -> None:
    source = random.Random(1)
    rounds = 40_000 // number
    found = mean(robust_spread([source.gauss(100, 2) for _ in range(number)]) for _ in range(rounds))
    assert found == pytest.approx(2, rel=0.05)


def test_few_and_many_values_have_the_same_definition() -> None:
    source = random.Random(2)
    values = [source.gauss(0, 1) for _ in range(60)]
    differences = sorted(abs(one - other) for one, other in combinations(values, 2))
    found = spread._difference_of_rank(sorted(values), 31 * 30 // 2)
    assert found == pytest.approx(differences[31 * 30 // 2 - 1], rel=1e-6)


def test_almost_half_of_the_values_can_be_wrong() -> None:
    source = random.Random(3)
    values = [source.gauss(100, 1) for _ in range(51)]
    assert robust_spread(values) == pytest.approx(1, rel=0.3)
    assert robust_spread([*values, *[10.0] * 20]) < 2
    assert robust_spread([*values, *(float(wrong) for wrong in range(100))]) > 10


def test_one_value_has_no_spread() -> None:
    assert robust_spread([]) == robust_spread([5.0]) == 0
    assert robust_spread([5.0] * 10) == robust_spread([5.0] * 100) == 0


def test_the_tolerance_is_the_least() -> None:
    assert outside([100.0] * 8, 100.0, 0.05) == 0.05


def test_of_few_values_the_tolerance_says_more_than_their_spread() -> None:
    wide = [90.0, 95.0, 100.0, 105.0]
    assert 0.05 < outside(wide, 97.5, 0.05) < outside(wide * 20, 97.5, 0.05)
