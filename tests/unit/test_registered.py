# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rules read of tasks (`decisions/known/registered.py`), compared with the tasks that register or set it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import registered
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.registered import Registered
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results import module_results

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "plugins/module_utils/decisions"
FILES = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
PARTS = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks")
TABLE = {name: value for name, value in vars(registered).items() if isinstance(value, Registered)}

KINDS: dict[str, Any] = {
    **{f"gpucluster.slurm.{name}": kind for name, kind in module_results.RESULTS.items()},
    # Their types are the records of doctor/evidence.py.
    **dict.fromkeys(("gpucluster.slurm.slurm_doctor_info", "gpucluster.slurm.slurm_doctor_node_info"), dict[str, Any]),
    "ansible.builtin.command": module_results.Command,
    "ansible.builtin.slurp": module_results.Content,
    "ansible.builtin.stat": module_results.Status,
}


def tasks_in(value: Any) -> Iterator[dict[str, Any]]:
    """All plays and tasks of a file, also those in blocks."""
    for item in value if isinstance(value, list) else []:
        yield item
        for part in PARTS:
            yield from tasks_in(item.get(part))


TASKS = [task for file in FILES for task in tasks_in(yaml.safe_load(file.read_text()))]


def kinds_by_name() -> dict[str, list[Any]]:
    """The type that each task registers by a name."""
    found: dict[str, list[Any]] = defaultdict(list)
    for task in TASKS:
        if "register" in task:
            kind = next((KINDS[key] for key in task if key in KINDS), module_results.Result)
            found[task["register"]].append(module_results.Loop if "loop" in task else kind)
    return dict(found)


REGISTERED = kinds_by_name()
SET = {name for task in TASKS for place in ("vars", "ansible.builtin.set_fact") for name in task.get(place) or {}}


def names_in(path: Path) -> Iterator[str]:
    """The names of private variables that a file of rules has as text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and re.fullmatch("__[a-z_]+", str(node.value)):
            yield str(node.value)


@pytest.mark.parametrize("name", TABLE)
def test_tasks_register_what_the_table_says(name: str) -> None:
    (kind,) = get_args(eval(registered.__annotations__[name], {**vars(registered), "module_results": module_results}))
    variable = TABLE[name].name
    # A result of which no field is read may be that of any module.
    if variable not in REGISTERED:
        assert variable in SET
    elif kind is not module_results.Result:
        assert {*REGISTERED[variable]} == {kind}


def test_each_name_has_one_entry_which_is_called_as_the_variable() -> None:
    assert {name: entry.name for name, entry in TABLE.items()} == {name: "__" + name.lower() for name in TABLE}


def test_rules_read_the_table_alone() -> None:
    found = {path.stem: {*names_in(path)} for path in DECISIONS.glob("*/*.py")}
    assert {name for name, names in found.items() if names} == {"registered", "run_host"}
    assert found["run_host"] == {registered.SLURM_FACTS.name}


def test_rules_read_all_of_the_table() -> None:
    text = "\n".join(path.read_text() for path in DECISIONS.glob("*/*.py") if path.stem != "registered")
    assert [name for name in TABLE if f"registered.{name}" not in text] == []
