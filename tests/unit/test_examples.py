# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples in Markdown: each block of YAML, and each command with ansible-playbook (docs/design/site.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import switches
import yaml
from ansible.playbook.play import Play
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import OPTION
from test_docs import documents

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```ya?ml\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"ansible-playbook gpucluster\.slurm\.((?:[^`\n\\|]|\\\n)*)")
SCHEMA = json.loads((ROOT / "inventory/cluster.schema.json").read_text())
PARTS = {key: value for key, value in SCHEMA.items() if key != "required"}
"""The schema of a part of a cluster file."""

OTHERS = {
    "# yaml-language-server: $schema=../cluster.schema.json": "a comment for an editor",
    "#cloud-config": "cloud-init's file",
    "# execution-environment.yml": "ansible-builder's file",
    "route:": "a part of alertmanager's file",
    "# /etc/ood/config/clusters.d/NAME.yml; NAME is the name of the cluster": "Open OnDemand's file",
}
"""The first lines of blocks that only have to be YAML."""


class Block(NamedTuple):
    """A block of YAML with its document."""

    document: str
    text: str

    @property
    def first(self) -> str:
        """Its first line."""
        return self.text.strip().splitlines()[0]


def parts(text: str) -> list[str]:
    """The files that a block shows: each after a line that names it, or several with the same key."""
    if len(re.findall(r"^# group_vars/", text, re.MULTILINE)) > 1:
        return re.findall(r"^# group_vars/.*\n(?:(?!# group_vars/).*\n)*", text, re.MULTILINE)
    keys = re.findall(r"^\w+(?=:)", text, re.MULTILINE)
    return re.split(r"\n\n", text) if len(keys) > len(set(keys)) else [text]


def whole(text: str) -> str:
    """A text with whole checksums in place of those that are cut."""
    return re.sub(r"\b([0-9a-f]{8})\.\.\.", lambda match: match[1] * 8, text)


BLOCKS = [
    Block(str(path.relative_to(ROOT)), part)
    for path in documents()
    for _indent, text in BLOCK.findall(path.read_text())
    for part in parts(text)
]


def variable_errors(values: dict[str, Any]) -> list[str]:
    """What the argument specs object to in variables; one that they do not have is an error, unless it is Ansible's.

    A template has a value in a run only, and the files of an example are not there.
    """
    known = switches.options()
    given = {name: value for name, value in values.items() if not name.startswith("ansible_")}
    unknown = [f"{name}: no role has it" for name in given if name not in known]
    values = {name: value for name, value in given.items() if name in known and not str(value).startswith("{{")}
    options = {"role": {name: known[name] for name in values}}
    errors = argument_errors({"n1": values}, {"role": "all"}, {"all": ["n1"]}, options)
    return [*unknown, *(error for error in map(str, errors) if "which does not exist" not in error)]


def cluster_errors(part: dict[str, Any]) -> list[str]:
    """What the schema objects to in a cluster file, or in a part of one."""
    schema = SCHEMA if "plugin" in part else PARTS
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(part)]


def play_errors(play: dict[str, Any]) -> list[str]:
    """What is wrong in a play: its keywords, its roles and their variables."""
    errors = [f"{name}: no keyword of a play" for name in play if name not in Play.fattributes]
    variables = dict(play.get("vars", {}))
    for role in play.get("roles", []):
        name = role["role"] if isinstance(role, dict) else role
        if not (ROOT / "roles" / name.removeprefix("gpucluster.slurm.")).is_dir():
            errors.append(f"{name}: no such role")
        if isinstance(role, dict):
            keywords = ("role", "become", "tags", "when", "vars")
            variables |= {key: value for key, value in role.items() if key not in keywords} | role.get("vars", {})
    return errors + variable_errors(variables)


def kind(block: Block, content: Any) -> str:
    """How a block is checked; nothing if no way fits."""
    if block.first in OTHERS:
        return "other"
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        if all("hosts" in part and {"roles", "tasks"} & set(part) for part in content):
            return "play"
        if all("path" in part and "type" in part for part in content):
            return "storage"
        return "firewall" if all("ports" in part for part in content) else ""
    if isinstance(content, dict):
        if set(content) <= set(SCHEMA["properties"]):
            return "cluster"
        if set(content) & set(switches.options()) or block.first.startswith("# group_vars/"):
            return "variables"
    return ""


def errors_in(block: Block) -> list[str]:
    """What is wrong in a block."""
    content = yaml.safe_load(whole(block.text))
    found = kind(block, content)
    if found == "cluster":
        return cluster_errors(content)
    if found == "variables":
        return variable_errors(content)
    if found == "play":
        return [error for play in content for error in play_errors(play)]
    if found == "storage":
        return cluster_errors({"storage": content})
    if found == "firewall":
        return cluster_errors({"firewall": {"ssh": ["any"], "open": content}})
    return [] if found else ["nothing checks this block; OTHERS has the first lines of other programs' files"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.document}-{block.first[:30]}")
def test_a_block_of_yaml_is_right(block: Block) -> None:
    assert errors_in(block) == []


def test_each_other_file_is_in_a_document() -> None:
    assert set(OTHERS) - {block.first for block in BLOCKS} == set()


@pytest.mark.parametrize(
    "text",
    [
        "partitons: []",
        "partitions: {}",
        "plugin: gpucluster.slurm.cluster\nname: x",
        "# group_vars/all.yml\nslurm_health_disk_fre: 1",
        "slurm_health_disk_free: [1]",
        "- hosts: all\n  roles: [gpucluster.slurm.slurmdd]",
        "- hosts: all\n  becom: true\n  roles: []",
        "- hosts: all\n  roles: [{role: gpucluster.slurm.slurmd, slurm_controler: head}]",
    ],
)
def test_a_wrong_block_is_found(text: str) -> None:
    assert errors_in(Block("none", text)) != []


def commands() -> list[tuple[str, str]]:
    """The commands of all documents, in one line, with their document."""
    return [
        (str(path.relative_to(ROOT)), " ".join(command.replace("\\\n", " ").split()))
        for path in documents()
        for command in COMMAND.findall(path.read_text())
    ]


@pytest.mark.parametrize(("document", "command"), commands(), ids=str)
def test_a_command_names_a_playbook_and_its_options(document: str, command: str) -> None:
    name = re.split(r"[^\w]", command)[0]
    assert name == "NAME" or (ROOT / f"playbooks/{name}.yml").exists(), document
    given: dict[str, Any] = {}
    for option, value, mapping in switches.GIVEN.findall(command):
        given |= yaml.safe_load(mapping) if mapping else {option: value.strip("'\"")}
    assert variable_errors({name: value for name, value in given.items() if name != OPTION}) == [], document


def test_there_are_commands_with_options() -> None:
    assert len([command for _document, command in commands() if " -e " in command]) > 15
