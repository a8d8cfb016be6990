# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that was probably meant, for messages about unknown names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from os.path import commonprefix

CANDIDATES = 1000
"""Names that are compared; all hosts of a large cluster would take seconds."""

MISSPELT = 0.88
"""How similar a misspelt name is (`difflib.SequenceMatcher.ratio`): slurm_contianers is slurm_containers by 0.94, and
munge_kye is munge_key by 0.89."""

_PREFIX = re.compile(r"(?:(?P<no>no|disable)|enable)?_?(?P<rest>.*)", re.DOTALL)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: one that differs only in case, or else the most similar one, or None.

    The opposite of a name, as NO_FAIR_TREE of FAIR_TREE, is not meant.
    """
    meant = name.lower()
    lower = {candidate.lower(): candidate for candidate in sorted(names) if not _opposite(meant, candidate.lower())}
    if meant in lower:
        return lower[meant]
    likely = sorted(lower, key=lambda other: -len(commonprefix([meant, other])))[:CANDIDATES]  # noqa: RUF071 - of texts
    matches = get_close_matches(meant, likely, n=1)
    return lower[matches[0]] if matches else None


def misspelt(name: str, names: Iterable[str]) -> str | None:
    """The name that differs from this one in a letter or two, so that no other can be meant; None without one."""
    lower = {other.lower(): other for other in sorted(names)}
    matches = get_close_matches(name.lower(), lower, n=1, cutoff=MISSPELT)
    return lower[matches[0]] if matches else None


def _opposite(name: str, other: str) -> bool:
    """Whether two names are equal, but one says no."""
    one, another = _PREFIX.fullmatch(name), _PREFIX.fullmatch(other)
    return bool(one and another and one["rest"] == another["rest"] and bool(one["no"]) != bool(another["no"]))
