# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of the cluster file and variables with new names: the old name warns, and later it is refused.

How a name is changed is in docs/design/new-version.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

COLLECTION = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class OldName:
    """A name that is another one now."""

    kind: Literal["key", "variable"]
    old: str
    """A variable, or the place of a key: `nodes.gpu`. Lists have no part in it, and `*` is any key of a mapping."""
    new: str
    """The new name alone: the key is in the same mapping."""
    since: str
    """The release with the new name, in which the old one works and warns."""
    refused: str
    """The release that refuses the old name: the next minor release, and from 1.0.0 on the next major one."""

    @property
    def name(self) -> str:
        """The old name alone."""
        return self.old.rpartition(".")[2]

    def works(self, version: str) -> bool:
        """Whether the old name still works in a release."""
        return _numbers(version) < _numbers(self.refused)

    def describe(self, version: str) -> str:
        """What a person reads about the old name in a release."""
        if self.works(version):
            return f"is called {self.new} since {self.since}, and the old name is refused from {self.refused} on"
        return f"unknown {self.kind} since {self.refused}, did you mean {self.new!r}?"


OLD_NAMES: tuple[OldName, ...] = ()
"""All of them, also those that are refused. A key becomes a variable, which has an entry of its own."""


@dataclass(frozen=True)
class Renamed:
    """A cluster file with the new names."""

    data: Any
    warnings: list[tuple[str, str]]
    """As (key, text): old names that still work."""
    problems: list[tuple[str, str]]
    """As (key, problem): old names that are refused, or that are there with the new one."""


def collection_version(collection: Path = COLLECTION) -> str:
    """The version of this collection: that of its last release in a checkout."""
    manifest = collection / "MANIFEST.json"
    if manifest.exists():
        return str(json.loads(manifest.read_text())["collection_info"]["version"])
    (found,) = re.findall(r"(?m)^version: (\S+)$", (collection / "galaxy.yml").read_text())
    return str(found)


def with_new_names(data: Any, version: str, names: Iterable[OldName]) -> Renamed:
    """The content of a cluster file with the new names in the place of the old ones.

    Args:
        data: the content, which stays as it is.
        version: the version of the collection.
        names: the old names.
    """
    result = Renamed(data, [], [])
    for name in names:
        if name.kind == "key":
            changed = _renamed(result.data, name.old.split("."), "", name, version, result)
            result = Renamed(changed, result.warnings, result.problems)
    return result


def _renamed(data: Any, parts: list[str], place: str, name: OldName, version: str, result: Renamed) -> Any:
    """A part of the data with the new name; what was found goes into the lists of the result."""
    if isinstance(data, list):
        return [_renamed(entry, parts, f"{place}[{i}]", name, version, result) for i, entry in enumerate(data)]
    if not isinstance(data, Mapping):
        return data
    first, *rest = parts
    if rest:
        return {
            key: _renamed(value, rest, _join(place, key), name, version, result) if first in ("*", key) else value
            for key, value in data.items()
        }
    if first not in data:
        return data
    at = _join(place, first)
    if name.works(version) and name.new not in data:
        result.warnings.append((at, name.describe(version)))
        return {name.new if key == first else key: value for key, value in data.items()}
    both = f"is there with {name.new}, its new name: leave it out"
    result.problems.append((at, both if name.works(version) else name.describe(version)))
    return {key: value for key, value in data.items() if key != first}


def variable_findings(
    hosts: Mapping[str, Mapping[str, Any]], version: str, names: Iterable[OldName]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Warnings and errors about old names of variables, by host.

    Args:
        hosts: the variables of each host.
        version: the version of the collection.
        names: the old names.
    """
    warnings: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for name in names:
        for host, variables in hosts.items():
            if name.kind == "variable" and name.old in variables:
                works, text = _describe_variable(name, variables, version)
                (warnings if works else errors).setdefault(host, []).append(f"{name.old}: {text}")
    return warnings, errors


def _describe_variable(name: OldName, variables: Mapping[str, Any], version: str) -> tuple[bool, str]:
    """Whether the old name of a variable works, and what a person reads about it.

    It works by the default of the new variable. Where something else sets that, the old one would do nothing.
    """
    if name.works(version) and variables.get(name.new, variables[name.old]) != variables[name.old]:
        return False, f"{name.new}, its new name, has another value: set {name.new} alone"
    return name.works(version), name.describe(version)


def table(names: Iterable[OldName]) -> Iterator[str]:
    """The lines of the table for administrators; none without old names."""
    rows = [f"| {name.kind} `{name.old}` | `{name.new}` | {name.since} | {name.refused} |" for name in names]
    if rows:
        yield from ("| Old name | New name | Since | Refused from |", "|---|---|---|---|", *rows)


def wrong_releases(names: Iterable[OldName]) -> list[str]:
    """The old names that would be refused too early."""
    return [name.old for name in names if _numbers(name.refused) < _earliest(_numbers(name.since))]


def _earliest(since: tuple[int, ...]) -> tuple[int, ...]:
    """The first release that may refuse a name: what is stable keeps its name until the next major release."""
    major, minor = since[:2]
    return (major + 1, 0, 0) if major else (0, minor + 1, 0)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _join(place: str, key: Any) -> str:
    return f"{place}.{key}" if place else str(key)
