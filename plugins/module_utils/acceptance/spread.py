# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spread of values of which some can be wrong, and how often good ones are."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

_SMALL = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
"""Factors for few values (Croux and Rousseeuw, "Time-efficient algorithms for two highly robust estimators of scale",
1992, section 4)."""

_GAUSS = 2.2219
"""Makes it the standard deviation where values are normally distributed (Rousseeuw and Croux, "Alternatives to the
median absolute deviation", 1993)."""


def robust_spread(values: Sequence[float]) -> float:
    """Qn of Rousseeuw and Croux: a standard deviation that almost half of the values cannot falsify.

    It is the k-th smallest of all differences of two values. As the median absolute deviation it withstands any wrong
    values of fewer than half; from the same values it knows the spread as well as the other does from 2.2 times as
    many (efficiency 82 % to 37 %), which counts with four nodes, and it needs no symmetry. 0 for fewer than two values.
    """
    number = len(values)
    if number < 2:
        return 0.0
    half = number // 2 + 1
    difference = _difference_of_rank(sorted(values), half * (half - 1) // 2)
    factor = _SMALL.get(number) or number / (number + (1.4 if number % 2 else 3.8))
    return _GAUSS * factor * difference


def _difference_of_rank(ordered: Sequence[float], rank: int) -> float:
    """The difference of two values that has this rank among all. All pairs of few values, else by bisection."""
    number = len(ordered)
    if number <= 40:
        differences = sorted(ordered[j] - ordered[i] for i in range(number) for j in range(i + 1, number))
        return differences[rank - 1]
    low, high = 0.0, ordered[-1] - ordered[0]
    for _ in range(40):
        middle = (low + high) / 2
        if _count_within(ordered, middle) >= rank:
            high = middle
        else:
            low = middle
    return high


def _count_within(ordered: Sequence[float], most: float) -> int:
    """The number of pairs that differ by at most this."""
    found = first = 0
    for last, value in enumerate(ordered):
        while value - ordered[first] > most:
            first += 1
        found += last - first
    return found


SPREADS = 5.0
"""Spreads below the median at which a value lies outside of what its kind does: 3e-7 of a normal distribution."""

_PRIOR_VALUES = 16
"""As many values as the tolerance of a test counts for, when the spread is estimated."""


def outside(values: Sequence[float], middle: float, tolerance: float) -> float:
    """By which share of the median a value has to be worse than the others to mean anything.

    It is `SPREADS` standard deviations, and at least the tolerance. A few values say little about their spread: that of
    four is often half or twice the true one. So the tolerance, by which healthy units differ, counts as 16 values more.
    """
    number = len(values)
    weight = number / (number + _PRIOR_VALUES)
    spread = weight * robust_spread([value / middle for value in values]) + (1 - weight) * tolerance / SPREADS
    return max(tolerance, SPREADS * spread)


CHANCE = 1e-4
"""The chance, for all nodes together, that what makes good ones slow now and then makes one slow each time."""

UNSEEN = 0.2
"""Slow measurements of good units that count as seen in addition: that a few show none does not mean there are none."""


def needed(least: int, slow: int, total: int, number: int, unseen: float = UNSEEN) -> int:
    """How often a unit has to be slow, and never fast, before it is named.

    If a share q of the measurements of good units is slow by noise, one of n good units is slow in all of m with the
    chance n * q**m.

    Args:
        least: the number if there is no noise.
        slow: the slow ones among the measurements of good units.
        total: the number of these.
        number: the number of units.
        unseen: what to add to the slow ones; 0 if the noise is known from elsewhere.
    """
    if not slow + unseen:
        return least
    share = (slow + unseen) / (total + 2 * unseen)
    return max(least, ceil(log(CHANCE / number) / log(min(share, 0.99))))
