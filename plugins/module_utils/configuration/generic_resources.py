# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic resources in the texts of Slurm's files: Gres of a node, and lines of gres.conf."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..language.hostlist import expand


class Gres(NamedTuple):
    """A generic resource of a node, or of a line of gres.conf."""

    name: str
    kind: str
    """Its type; empty without one."""
    number: int
    files: bool
    """Whether they have device files."""
    no_consume: bool = False
    """Whether jobs use it without taking a part of it away."""

    def __str__(self) -> str:
        return f"{self.name}:{self.kind}" if self.kind else self.name


_UNITS = {"": 1, **{unit: 1024**power for power, unit in enumerate("kmgtp", 1)}}
_COUNT = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)


def count_of(text: str) -> int:
    """A count with a unit (`suffix_mult`); one for a text without a count."""
    match = _COUNT.fullmatch(text)
    return int(match[1]) * _UNITS[match[2].lower()] if match else 1


def gres_of_node(value: str) -> list[Gres]:
    """Gres of a node, `gpu:h100:8(S:0-1),shard:4` (`_get_gres_cnt` in `src/interfaces/gres.c`)."""
    resources = []
    for word in re.sub(r"\([^)]*\)", "", value).split(","):
        name, *rest = (part for part in word.strip().split(":") if part != "no_consume")
        count = count_of(rest.pop()) if rest and _COUNT.fullmatch(rest[-1]) else 1
        resources.append(Gres(name, rest[0] if rest else "", count, False, ":no_consume" in word))
    return [gres for gres in resources if gres.name]


def gres_of_lines(texts: Iterable[str]) -> list[Gres]:
    """Lines of gres.conf (`_parse_gres_config`)."""
    resources = []
    for text in texts:
        values = {key.lower(): value for key, _equals, value in (pair.partition("=") for pair in text.split())}
        files = len(expand(values.get("file") or values.get("files", "")))
        several = "multiplefiles" in values
        count = files or (1 if several else count_of(values.get("count", "1")))
        if "name" in values:
            resources.append(Gres(values["name"], values.get("type", ""), count, bool(files or several)))
    return resources
