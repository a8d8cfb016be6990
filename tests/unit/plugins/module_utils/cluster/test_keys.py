# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each key of the registry is checked, reaches something, and something reads it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils import cluster
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import model, schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import KEYS, ClusterKey, Value
from new_keys import added_keys

ROOT = Path(__file__).parents[5]

BASE: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "database": "head",
    "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}},
    "nodes": [{"hosts": "n[1-2]", "hardware": "a", "address": "10.0.0.[1-2]"}],
    "partitions": [{"name": "p", "nodes": "ALL"}],
    "addresses": {"head": "10.0.0.3"},
}
CHANGES: dict[str, dict[str, Any]] = {
    "name": {"name": "y"},
    "controllers": {"controllers": "n1"},
    "database": {"database": "n1"},
    "login": {"login": "n2"},
    "unmanaged": {"unmanaged": "n2"},
    "taken_over": {"taken_over": ["nodes.address"]},
    "hardware": {"hardware": {"a": {**BASE["hardware"]["a"], "real_memory": 2001}}},
    "nodes": {"nodes": [{**BASE["nodes"][0], "Weight": 2}]},
    "partitions": {"partitions": [{"name": "q", "nodes": "ALL"}]},
    "addresses": {"addresses": {"head": "10.0.0.4"}},
    "packages": {"packages": "schedmd"},
    "defaults": {"defaults": 2},
    **added_keys("head", "n1", "n[1-2]"),
}
"""Another value for each key; those of plain keys follow from their types."""


def loaded(**keys: Any) -> model.DeclaredCluster:
    """The base with these keys."""
    return model.load(model.Document("x.cluster.yml", {**BASE, **keys}))


@pytest.mark.parametrize("key", [key for key in KEYS if key.name != "plugin"], ids=lambda key: key.name)
def test_the_value_of_each_key_reaches_something(key: ClusterKey) -> None:
    """A group, an address or a variable."""
    keys = CHANGES[key.name]
    others = {name: value for name, value in keys.items() if name != key.name}
    assert loaded(**keys) != loaded(**others), f"the key {key.name} is accepted and dropped: it needs a variable"


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_the_value_of_each_key_is_checked(key: ClusterKey) -> None:
    """What no key allows. A mapping or a list needs a rule that says so."""
    junk = {"strange key": {"x": 1}}
    for wrong in (junk, [junk]):
        with pytest.raises(model.ModelError) as error:
            loaded(**{key.name: wrong})
        assert any(f": {key.name}" in text for text in error.value.problems), f"{key.name} needs a rule (key_rules.py)"


@pytest.mark.parametrize("key", [key for key in KEYS if key.variable], ids=lambda key: key.name)
def test_a_variable_has_a_default_unless_its_key_is_required(key: ClusterKey) -> None:
    """Without it, a cluster file without the key would set no value."""
    assert key.required or key.variable_default is not None, f"the key {key.name} needs a default"


def test_something_reads_the_variable_of_each_key() -> None:
    """A rule of the decisions, or a template, task or playbook."""
    words: set[str] = set()
    for path in (ROOT / "plugins/module_utils/decisions").rglob("*.py"):
        words.update(re.findall(r'(?:\[|\bget\(|own_value\(\w+, )"(slurm_\w+)"', path.read_text()))
    for path in (*ROOT.glob("roles/*/t*/**/*"), *ROOT.glob("playbooks/**/*.yml")):
        if path.suffix in (".yml", ".j2"):
            words.update(re.findall(r"\bslurm_\w+", re.sub(r"(?m)(^|\s)#.*$", "", path.read_text())))
    assert [key.variable.name for key in KEYS if key.variable and key.variable.name not in words] == []


def test_something_reads_each_key_of_a_mapping() -> None:
    """Each of its names is somewhere in the rules, or in a template or playbook."""
    words: set[str] = set()
    for package in ("cluster", "decisions"):
        for path in (ROOT / "plugins/module_utils" / package).rglob("*.py"):
            words.update(re.findall(r'"(\w+)"', path.read_text()))
    for path in ROOT.glob("roles/*/templates/**/*.j2"):
        words.update(re.findall(r"\.(\w+)", path.read_text()))
    modules = [import_module(f"{cluster.__name__}.{module.name}") for module in iter_modules(cluster.__path__)]
    kinds = {name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, schema.Kind)}
    assert [f"{name}: {key}" for name, kind in kinds.items() for key in kind.own if key not in words] == []


PLAIN: dict[Value, tuple[list[Any], list[Any]]] = {
    "text": (["a text", 5, ""], [True, ["a"], "{{ x }}", "x" * 4097]),
    "choice": (["one", "two"], ["three", 1, None]),
    "number": ([1, 2**31 - 1], [0, 2**31, "1", True, 1.5]),
    "flag": ([True, False], ["yes", 1, "true"]),
    "texts": ([[], ["a", "b"]], ["a", [True], [["a"]], ["{{ x }}"]]),
}


@pytest.mark.parametrize("value", PLAIN)
def test_the_record_of_a_plain_key_is_its_check(value: Value) -> None:
    right, wrong = PLAIN[value]
    check = schema.type_of(ClusterKey("x", value, "", choices=("one", "two")))
    assert [check(found) for found in right] == [str(found) if value == "text" else found for found in right]
    for found in wrong:
        with pytest.raises(ValueError, match=r"allowed: |templates are not"):
            check(found)
