# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places in a plot. The template draws them as SVG, so that each text in it is escaped as all others are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HEIGHT = 100.0
"""Of a plot. Its width is one for each bar. The page stretches both."""


class Bar(NamedTuple):
    """A bar. height: of all of it; idle: of its upper part. label: what a reader sees for it."""

    height: float
    idle: float
    label: str


class Plot(NamedTuple):
    """Bars from left to right. top: the value of the upper edge. first, last: labels of the ends."""

    title: str
    bars: Sequence[Bar]
    top: str
    middle: str
    first: str
    last: str
    has_idle: bool


class Value(NamedTuple):
    """A value of a day. idle: a part of it; None if it was not measured."""

    day: str
    value: float
    idle: float | None
    label: str


def round_up(value: float) -> float:
    """The least of 1, 2, 3, 4, 5, 6, 8, 10, 20 and so on that is not below a value; 1 at least."""
    step = 1.0
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if step * factor >= value:
                return step * factor
        step *= 10


def plot(title: str, values: Sequence[Value]) -> Plot | None:
    """A plot of a value for each day; None if there is nothing to draw."""
    highest = max((value.value for value in values), default=0)
    if highest <= 0:
        return None
    top = round_up(highest)
    bars = [
        Bar(
            round(HEIGHT * max(0.0, value.value) / top, 2),
            round(HEIGHT * min(max(0.0, value.idle or 0), max(0.0, value.value)) / top, 2),
            value.label,
        )
        for value in values
    ]
    has_idle = any(value.idle is not None for value in values)
    return Plot(title, bars, f"{top:,.0f}", f"{top / 2:,.10g}", values[0].day, values[-1].day, has_idle)


WIDE, HIGH, EDGE = 120.0, 28.0, 4.0
"""The size of a curve, and the space that its last point needs around it."""

CALM = 0.1
"""The least part of its middle that a curve shows above and below, so that noise of a percent looks small."""


class Curve(NamedTuple):
    """A line from left to right, of which the last point is marked.

    path: of SVG; empty for one value. x, y: of the last point. reference: y of a line to compare with, or None.
    """

    path: str
    x: float
    y: float
    reference: float | None


def curve(values: Sequence[float], reference: float | None) -> Curve | None:
    """A curve of values above 0, from the oldest one; None without a value."""
    if not values:
        return None
    shown = [*values, *([] if reference is None else [reference])]
    low, high = min(shown), max(shown)
    middle = (low + high) / 2
    half = max(high - middle, CALM * middle)

    def height(value: float) -> float:
        return round(HIGH / 2 - (value - middle) / half * (HIGH / 2 - EDGE), 1)

    step = (WIDE - 2 * EDGE) / max(1, len(values) - 1)
    points = [(round(EDGE + place * step, 1), height(value)) for place, value in enumerate(values)]
    if len(points) == 1:
        points = [(WIDE / 2, points[0][1])]
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if len(points) > 1 else ""
    return Curve(path, *points[-1], None if reference is None else height(reference))
