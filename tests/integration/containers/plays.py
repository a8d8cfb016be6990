# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles and modules tried one after another, each in a play of its own, without site.yml.

One start of Ansible serves many of them, and a role does nothing that another one has done before. That site.yml stops
where a role refuses something is for tests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from lab import Lab, Run

Task = dict[str, Any]


def role(name: str, tasks_from: str = "main", check: bool = False) -> Task:
    """A task that is a role of the collection, or other tasks of it, in check mode if that is wanted."""
    imported = {"name": f"gpucluster.slurm.{name}", "tasks_from": tasks_from, "rolespec_validate": False}
    return {"ansible.builtin.import_role": imported} | ({"check_mode": True, "diff": True} if check else {})


def shell(command: str, host: str = "") -> Task:
    """A task that runs a command of the shell on the play's host, or on another one; no change of the role's."""
    return {"ansible.builtin.shell": command, "changed_when": False} | ({"delegate_to": host} if host else {})


@dataclass(frozen=True)
class Case:
    """What is tried on a host, with variables of its own.

    after: commands that run in the end, whatever has failed before.
    """

    host: str
    tasks: list[Task]
    variables: Mapping[str, Any] = field(default_factory=dict)
    after: list[Task] = field(default_factory=list)

    def play(self, name: str) -> dict[str, Any]:
        """The play. A host whose task has failed is there for the next one."""
        block = {
            "name": "Try",
            "block": self.tasks,
            "rescue": [{"ansible.builtin.meta": "noop"}],
            "always": self.after,
        }
        play = {"name": name, "hosts": self.host, "become": True, "gather_facts": False}
        return play | {"vars": dict(self.variables), "tasks": [block]}


def run_cases(lab: Lab, directory: Path, cases: Mapping[str, Case]) -> dict[str, Run]:
    """What each case has come to, by its name. The plays are written to a directory."""
    playbook = directory / "cases.yml"
    playbook.write_text(yaml.safe_dump([case.play(name) for name, case in cases.items()]))
    run = lab.playbook(str(playbook))
    lines: dict[str, list[str]] = {}
    for line in run.output.splitlines():
        if line.startswith('{"_event":"v2_playbook_on_play_start"'):
            lines[json.loads(line)["play"]["name"]] = []
        elif lines:
            [*lines.values()][-1].append(line)
    assert [*lines] == [*cases], run.output
    return {name: Run(run.rc, "\n".join(of_case)) for name, of_case in lines.items()}
