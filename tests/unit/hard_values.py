# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that are hard to write, and what the functions of the formats make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import strategies as st

HARD = "#\\\"'`$%;=,:*?!&|<>()[]{}~^@+-/._ aZ09\t\nä漢\u00a0\u0085\u2028\x0b\x1f\x7f\0"
"""Characters that mean something to the parser of some format, and others."""

texts = st.text(st.sampled_from(HARD), max_size=12) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def written(function: Callable[[str], str], values: Iterable[str]) -> list[tuple[str, str]]:
    """The values with what a format makes of them. A value that the format refuses is no example."""

    def text(value: str) -> str | None:
        try:
            return function(value)
        except ValueError:
            return None

    texts_of = [(value, text(value)) for value in values]
    return [(value, found) for value, found in texts_of if found is not None]
