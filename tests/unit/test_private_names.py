# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions are in Python: roles have few private variables, and tasks have short expressions.

A private variable is one of vars or defaults of a role whose name begins with two underscores. Results that tasks
register and facts that they set are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "roles"

MOST_VARIABLES = 30
MOST_IN_A_CHAIN = 3
MOST_SHARED = 10
MOST_FILTERS = 12
LONGEST_EXPRESSION = 200
"""Characters between {{ and }}, where any white space is one."""


def texts(value: Any) -> Iterator[str]:
    """The texts in a value of YAML, and the keys of its mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from texts(key)
            yield from texts(element)
    elif isinstance(value, list):
        for element in value:
            yield from texts(element)


def private_variables() -> dict[str, tuple[str, str]]:
    """The role and the text of each private variable."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(path for place in ("vars", "defaults") for path in ROLES.glob(f"*/{place}/**/*.yml")):
        variables = yaml.safe_load(path.read_text()) or {}
        role = path.relative_to(ROLES).parts[0]
        found |= {name: (role, "\n".join(texts(of))) for name, of in variables.items() if name.startswith("__")}
    return found


VARIABLES = private_variables()


def named(text: str) -> set[str]:
    """The private variables that a text names."""
    return {*re.findall(r"\b__[a-z]\w*", text)} & {*VARIABLES}


def templates() -> list[str]:
    """The private variables that Jinja evaluates."""
    return [name for name, (_role, text) in VARIABLES.items() if "{{" in text or "{%" in text]


def chain(name: str, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The longest chain of variables of which each names the next one."""
    path = (*before, name)
    return max((chain(other, path) for other in named(VARIABLES[name][1]) - {*path}), key=len, default=path)


def shared() -> dict[str, list[str]]:
    """The private variables that other roles name, and these roles."""
    readers: dict[str, set[str]] = {}
    for path in ROLES.glob("*/**/*"):
        role = path.relative_to(ROLES).parts[0]
        for name in named(path.read_text()) if path.suffix in (".yml", ".j2") else ():
            if role != VARIABLES[name][0]:
                readers.setdefault(name, set()).add(role)
    return {name: sorted(roles) for name, roles in sorted(readers.items())}


def expressions_of(text: str) -> Iterator[str]:
    """What a text has between {{ and }}; a mapping in it may have such brackets as well."""
    inside: list[str] = []
    for _line, kind, part in Environment().lex(text):
        if kind == "variable_end":
            yield " ".join("".join(inside).split())
        inside = [] if kind in ("variable_begin", "variable_end") else [*inside, part]


def expressions() -> Iterator[tuple[int, str]]:
    """The expressions of tasks and playbooks: the length and, with its file, the text."""
    places = [*ROLES.glob("*/tasks/**/*.yml"), *ROLES.glob("*/handlers/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    for path in sorted(places):
        for text in texts(yaml.safe_load(path.read_text())):
            for expression in expressions_of(text):
                yield len(expression), f"{path.relative_to(ROOT)}: {expression}"


def test_roles_have_few_private_variables() -> None:
    by_role: dict[str, list[str]] = {}
    for name, (role, _text) in VARIABLES.items():
        by_role.setdefault(role, []).append(name)
    said = f"{len(VARIABLES)} private variables, {len(templates())} of them templates: {by_role}"
    assert len(VARIABLES) <= MOST_VARIABLES, said


def test_no_program_is_made_of_variables() -> None:
    longest = max(map(chain, VARIABLES), key=len, default=())
    assert len(longest) <= MOST_IN_A_CHAIN, " -> ".join(longest)


def test_roles_read_few_private_variables_of_others() -> None:
    assert len(shared()) <= MOST_SHARED, f"{len(shared())}: {shared()}"


def test_few_filters_are_public() -> None:
    names = sorted(path.stem for path in (ROOT / "plugins/filter").glob("*.yml"))
    assert len(names) <= MOST_FILTERS, f"{len(names)}: {names}"


def test_expressions_are_found() -> None:
    assert [*expressions_of("a {{ {'b': {'c':\n  1}} }}{% if d %}{{ e }}{% endif %}")] == ["{'b': {'c': 1}}", "e"]


def test_expressions_of_tasks_are_short() -> None:
    long = [text for length, text in expressions() if length > LONGEST_EXPRESSION]
    assert long == []
