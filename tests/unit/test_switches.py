# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options on the command line: `-e NAME=VALUE` gives a text, and in a condition the text `false` counts as true.

Rules of `decisions` get their switches as texts from `plain_host.py` in each of their tests.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import switches
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import OPTION
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from plain_host import cluster

DOCUMENTED = [*switches.documented(), ("what doctor says", "rolling_packages", "security")]
COLLECTION = "gpucluster.slurm."
_WHOLE = r"\{{\{{ {name}( \| default\(false\))? \}}\}}"


def test_documents_have_switches() -> None:
    """Otherwise the tests below would be of nothing."""
    assert {("README.md", "rolling_reboot", "true"), ("rolling.md", "rolling_budget", "10%")} <= {
        (file, name, str(value)) for file, name, value in DOCUMENTED
    }


@pytest.mark.parametrize(("file", "name", "value"), DOCUMENTED, ids=[f"{file}-{name}" for file, name, _ in DOCUMENTED])
def test_what_a_document_gives_is_an_option_that_takes_it(file: str, name: str, value: Any) -> None:
    if name != OPTION:  # the inventory plugin reads it
        options = {"role": {name: switches.options()[name]}}
        variables = {"n1": {name: value}}
        assert argument_errors(variables, {"role": "all"}, {"all": ["n1"]}, options) == [], file


@pytest.mark.parametrize("name", sorted(switches.names()))
@pytest.mark.parametrize("value", ["true", "false", "no", "True", "0", True, False])
def test_a_rule_reads_a_switch_by_its_type(name: str, value: Any) -> None:
    host = cluster(**{name: value})["n1"]
    assert host.flag("any", name) is (str(value).lower() == "true")


def test_rules_read_a_switch_with_flag() -> None:
    sources = {file.name: file.read_text() for file in switches.ROOT.glob("plugins/module_utils/decisions/*/*.py")}
    assert [
        (file, name, how)
        for file, source in sources.items()
        for how, name in re.findall(r'(\w*)[(\[](?:"\w+", )?"(\w+)"', source)
        if name in switches.names() and how != "flag"
    ] == []


@pytest.mark.parametrize("name", sorted(switches.names()))
@pytest.mark.parametrize("value", ["true", "no"])
def test_preflight_takes_a_switch_as_a_text(name: str, value: str) -> None:
    hosts = cluster(ansible_version={"full": "2.19.4", "major": 2, "minor": 19, "revision": 4}, **{name: value})
    assert preflight.variable_errors(hosts["head"]) == []


def texts(node: Any, module: str = "", key: str = "") -> Iterator[tuple[str, str, str]]:
    """The texts of a file of tasks or plays, with their module and their key."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from texts(value, key, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from texts(value, module, key)
    elif isinstance(node, str):
        yield module, key, node


def takes_a_boolean(module: str, option: str) -> bool:
    """Whether an option of a module of the collection turns a text into a boolean."""
    if not module.startswith(COLLECTION):
        return False
    found = importlib.import_module(f"ansible_collections.{COLLECTION}plugins.modules.{module.rpartition('.')[2]}")
    return bool(found.ARGUMENTS[option]["type"] == "bool")


def raw_uses(name: str, module: str, key: str, text: str) -> list[str]:
    """The uses of a switch in a text that take it as it is: neither with the filter bool, nor as such an option."""
    if re.fullmatch(_WHOLE.format(name=name), text) and takes_a_boolean(module, key):
        return []
    is_template = "{{" in text or "{%" in text or key in ("when", "that", "until", "failed_when", "changed_when")
    return re.findall(rf"\b{name}\b(?! \| bool)", text) if is_template else []


FILES = sorted(
    file
    for pattern in ("roles/*/tasks/*.yml", "roles/*/handlers/*.yml", "roles/*/templates/*", "playbooks/**/*.yml")
    for file in switches.ROOT.glob(pattern)
)


def test_tasks_and_templates_read_a_switch_by_its_type() -> None:
    found = {}
    for file in FILES:
        content = file.read_text()
        for name in {*re.findall(r"\w+", content)} & switches.names():
            parts = texts(yaml.safe_load(content)) if file.suffix == ".yml" else lines(content)
            if raw := [use for module, key, text in parts for use in raw_uses(name, module, key, text)]:
                found[f"{file.relative_to(switches.ROOT)}: {name}"] = len(raw)
    assert found == {}


def lines(template: str) -> Iterator[tuple[str, str, str]]:
    """The expressions and statements of a template, as `texts` returns them."""
    return (("", "", part) for part in re.findall(r"\{[{%].*?[%}]\}", template, re.DOTALL))


@pytest.mark.parametrize(
    ("module", "key", "text", "raw"),
    [
        ("", "when", "doctor_repair", 1),
        ("", "when", "not doctor_repair | bool", 0),
        ("", "name", "Repair (doctor_repair)", 0),
        ("", "msg", "{{ 'x' if doctor_repair else 'y' }}", 1),
        ("gpucluster.slurm.slurm_run", "take_over", "{{ doctor_repair }}", 0),
        ("gpucluster.slurm.slurm_run", "state", "{{ doctor_repair }}", 1),
        ("ansible.builtin.set_fact", "x", "{{ doctor_repair }}", 1),
    ],
)
def test_raw_uses_are_found(module: str, key: str, text: str, raw: int) -> None:
    assert len(raw_uses("doctor_repair", module, key, text)) == raw
