# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that was probably meant, for messages about unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: one that differs only in case, or else the most similar one, or None."""
    lower = {candidate.lower(): candidate for candidate in sorted(names)}
    matches = get_close_matches(name.lower(), lower, n=1)
    return lower[matches[0]] if matches else None
