# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Old names of keys and variables, with a table of the test's own; and the rules that the collection's table keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.deprecated_names import (
    OLD_NAMES,
    OldName,
    collection_version,
    table,
    variable_findings,
    with_new_names,
    wrong_releases,
)

ROOT = Path(__file__).parents[5]
NAMES = (
    OldName("key", "master", "controllers", "0.3.0", "0.4.0"),
    OldName("key", "nodes.type", "hardware", "0.3.0", "0.4.0"),
    OldName("key", "hardware.*.cpus.number", "count", "0.3.0", "0.4.0"),
    OldName("variable", "rolling_size", "rolling_batch", "0.3.0", "0.4.0"),
)
WARNS = "since 0.3.0, and the old name is refused from 0.4.0 on"


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "0.3.9"])
def test_old_keys_work_and_warn_for_a_minor_release(version: str) -> None:
    data = {
        "name": "x",
        "master": "head",
        "nodes": [{"hosts": "a", "hardware": "m"}, {"hosts": "b", "type": "m"}],
        "hardware": {"m": {"cpus": {"number": 2}}},
    }
    found = with_new_names(data, version, NAMES)
    assert found.data == {
        "name": "x",
        "controllers": "head",
        "nodes": [{"hosts": "a", "hardware": "m"}, {"hosts": "b", "hardware": "m"}],
        "hardware": {"m": {"cpus": {"count": 2}}},
    }
    assert [*found.data] == ["name", "controllers", "nodes", "hardware"]
    assert found.warnings == [
        ("master", f"is called controllers {WARNS}"),
        ("nodes[1].type", f"is called hardware {WARNS}"),
        ("hardware.m.cpus.number", f"is called count {WARNS}"),
    ]
    assert found.problems == []
    assert "master" in data


@pytest.mark.parametrize("version", ["0.4.0", "0.10.0", "1.0.0"])
def test_old_keys_are_refused_with_the_new_name(version: str) -> None:
    found = with_new_names({"nodes": [{"hosts": "a", "type": "m"}]}, version, NAMES)
    assert found.problems == [("nodes[0].type", "unknown key since 0.4.0, did you mean 'hardware'?")]
    assert found.warnings == []
    assert found.data == {"nodes": [{"hosts": "a"}]}


def test_an_old_key_with_the_new_one_is_refused() -> None:
    found = with_new_names({"master": "a", "controllers": "b"}, "0.3.0", NAMES)
    assert found.problems == [("master", "is there with controllers, its new name: leave it out")]
    assert found.data == {"controllers": "b"}


@pytest.mark.parametrize("data", [None, "text", [1], {"nodes": "text", "hardware": None}, {"nodes": [None]}])
def test_other_data_is_left_to_the_rules_of_the_file(data: Any) -> None:
    found = with_new_names(data, "0.3.0", NAMES)
    assert (found.data, found.warnings, found.problems) == (data, [], [])


def test_old_variables_warn_where_they_work() -> None:
    """By its default, the new variable has the value of the old one."""
    hosts = {"a": {"rolling_size": 2}, "b": {"rolling_size": 2, "rolling_batch": 2}, "c": {"rolling_batch": 3}}
    warnings, errors = variable_findings(hosts, "0.3.1", NAMES)
    said = [f"rolling_size: is called rolling_batch {WARNS}"]
    assert warnings == {"a": said, "b": said}
    assert errors == {}


def test_an_old_variable_that_would_do_nothing_is_refused() -> None:
    warnings, errors = variable_findings({"a": {"rolling_size": 2, "rolling_batch": 3}}, "0.3.0", NAMES)
    assert errors == {"a": ["rolling_size: rolling_batch, its new name, has another value: set rolling_batch alone"]}
    assert warnings == {}


def test_old_variables_are_refused_with_the_new_name() -> None:
    warnings, errors = variable_findings({"a": {"rolling_size": 2, "rolling_batch": 3}}, "0.4.0", NAMES)
    assert errors == {"a": ["rolling_size: unknown variable since 0.4.0, did you mean 'rolling_batch'?"]}
    assert warnings == {}


def test_the_version_is_that_of_a_checkout_or_of_an_installed_collection(tmp_path: Path) -> None:
    assert collection_version() == yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "1.2.3"}}))
    assert collection_version(tmp_path) == "1.2.3"


def test_the_table_for_administrators() -> None:
    assert [*table(())] == []
    assert [*table(NAMES)][2:4] == [
        "| key `master` | `controllers` | 0.3.0 | 0.4.0 |",
        "| key `nodes.type` | `hardware` | 0.3.0 | 0.4.0 |",
    ]


@pytest.mark.parametrize(
    ("since", "refused", "right"),
    [
        ("0.3.0", "0.4.0", True),
        ("0.3.0", "0.5.0", True),
        ("0.3.0", "0.3.1", False),
        ("0.3.0", "1.0.0", True),
        ("1.1.0", "1.2.0", False),
        ("1.1.0", "2.0.0", True),
    ],
)
def test_a_name_is_not_refused_too_early(since: str, refused: str, right: bool) -> None:
    assert wrong_releases([OldName("key", "a", "b", since, refused)]) == ([] if right else ["a"])


def test_the_old_names_of_the_collection_keep_the_rules() -> None:
    """The default of a new variable is the old one, so that this works."""
    assert wrong_releases(OLD_NAMES) == []
    defaults = "".join(path.read_text() for path in sorted(ROOT.glob("roles/*/defaults/main.yml")))
    working = [name for name in OLD_NAMES if name.kind == "variable" and name.works(collection_version())]
    assert [name.old for name in working if f"{{{{ {name.old} | default(" not in defaults] == []
