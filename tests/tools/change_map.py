# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""changed.yml, the map from paths to the stages that test them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import yaml

MAP = Path(__file__).parent / "changed.yml"
# The regular expression for each part of a pattern: any folders, anything, anything within one name, one character.
GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Rule:
    """One pattern of the map, and the stages that it chooses, in the map's order."""

    def __init__(self, pattern: str, stages: Iterable[str]) -> None:
        self.pattern, self.stages = pattern, tuple(dict.fromkeys(stages))

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The pattern as a regular expression."""
        parts = re.split(r"(\*\*/|\*\*|\*|\?)", self.pattern)
        return re.compile("".join(GLOBS.get(part) or re.escape(part) for part in parts))

    def matches(self, path: str) -> bool:
        """Whether the pattern matches a path from the root of the repository."""
        return self.expression.fullmatch(path) is not None


def spread(names: str, groups: Mapping[str, str]) -> Iterable[str]:
    """The stages with these names; the name of a group means all stages of the group."""
    for name in names.split():
        yield from spread(groups[name], groups) if name in groups else [name]


def read_map(text: str) -> list[Rule]:
    """The rules of the map. The last one is for paths that no pattern matches: they choose the group `everything`."""
    document = yaml.safe_load(text)
    rules = [Rule(pattern, spread(names, document["groups"])) for pattern, names in document["paths"].items()]
    return [*rules, Rule("**", spread("everything", document["groups"]))]


def decide(path: str, rules: Iterable[Rule]) -> Rule:
    """The first rule that matches the path."""
    return next(rule for rule in rules if rule.matches(path))
