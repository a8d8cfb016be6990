# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of all hosts, checked at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run.preflight import ROLES

ROOT = Path(__file__).parents[5]
OPTIONS: dict[str, dict[str, Any]] = {
    "clock": {"type": "str", "choices": ["chrony", "none"], "default": "{{ a_template }}"},
    "user_id": {"type": "int", "default": "{{ a_template }}"},
    "names": {"type": "list", "elements": "int"},
}


def errors(variables: dict[str, dict[str, Any]], hosts: list[str]) -> list[str]:
    """The errors in the variables of hosts that all have one role."""
    return argument_errors(variables, {"role": "group"}, {"group": hosts}, {"role": OPTIONS})


def test_what_is_right_is_empty() -> None:
    hosts: dict[str, dict[str, Any]] = {"n1": {"other": {}}, "n2": {"clock": "none", "user_id": "7", "names": [1]}}
    assert errors(hosts, [*hosts]) == []


def test_equal_hosts_are_one_line_and_only_the_hosts_asked_for_are_checked() -> None:
    wrong: dict[str, Any] = {"clock": "ntp"}
    hosts = {
        "n1": wrong,
        "n2": dict(wrong),
        "n3": {},
        "n4": {"names": ["x"]},
        "n5": {**wrong, "names": [1]},
        "n6": wrong,
    }
    clock = "value of clock must be one of: chrony, none, got: ntp"
    found = errors(hosts, ["n1", "n2", "n3", "n4", "n5"])
    assert found[0] == f"n[1-2]: {clock}"
    assert found[1].startswith("n4: Elements value for option 'names' is of type")
    assert found[2:] == [f"n5: {clock}"]


def test_a_text_in_the_place_of_a_list_is_what_the_command_line_gave() -> None:
    assert errors({"n1": {"names": "1,2"}}, ["n1"]) == [
        "n1: names: found '1,2', allowed: a list; on the command line: -e '{names: [VALUE, VALUE]}'"
    ]


def test_each_role_is_checked_for_the_hosts_of_its_group() -> None:
    hosts = {"n1": {"clock": "ntp", "size": "big"}, "n2": {"clock": "ntp", "size": "big"}}
    roles = {"time": "all", "disk": "stores", "none": "missing"}
    options = {"time": OPTIONS, "disk": {"size": {"type": "int"}}, "none": OPTIONS}
    found = argument_errors(hosts, roles, {"all": ["n1", "n2"], "stores": ["n2"]}, options)
    assert [line.partition(":")[0] for line in found] == ["n[1-2]", "n2"]


def test_preflight_checks_every_role_of_the_playbooks() -> None:
    """Ansible checks no role in a stage: it has no specs for other tasks than main, and stages switch those off."""
    paths = [*ROOT.glob("playbooks/stages/*.yml"), ROOT / "playbooks/image.yml"]
    stages = [play for path in paths for play in yaml.safe_load(path.read_text())]
    included = [
        role
        for play in stages
        for task in play.get("tasks", [])
        for action in ("import_role", "include_role")
        if (role := task.get(f"ansible.builtin.{action}"))
    ]
    # Preflight checks the variables of role slurm by importing it, and has none of its own. Doctor has no preflight.
    names = {role["name"].rpartition(".")[2] for role in included}
    servers = {play["vars"]["__slurm_server"] for play in stages if "__slurm_server" in play.get("vars", {})}
    assert names - {"{{ __slurm_server }}"} | servers == {*ROLES, "slurm", "preflight", "doctor"}
    assert all("tasks_from" in role or not role.get("rolespec_validate", True) for role in included)


def test_no_option_of_these_roles_is_required() -> None:
    for role in ROLES:
        specs = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())["argument_specs"]
        assert not [name for name, option in specs["main"]["options"].items() if option.get("required")]
