# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run several tasks on the host in one run, because each start of Ansible takes seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab import Lab

Task = dict[str, Any]
Results = dict[str, dict[str, Any]]
"""The result of each task by its name."""

MODES = ("checked", "done", "done again")

FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf", "slurm-prolog", "slurm-epilog")
"""The arguments that role slurmctld passes to module slurm_config."""


def task(name: str, module: str, arguments: dict[str, Any], *, check: bool = False, **keywords: Any) -> Task:
    """A task with a module of the collection, optionally in check mode, and other keywords of the task."""
    return {"name": name, f"gpucluster.slurm.{module}": arguments, "check_mode": check, **keywords}


def shell(name: str, command: str) -> Task:
    """A task with a shell command."""
    return {"name": name, "ansible.builtin.shell": command}


def each_mode(name: str, module: str, arguments: dict[str, Any]) -> list[Task]:
    """Three tasks with the same module: in check mode, for real, and a second time."""
    return [task(f"{name}, {mode}", module, arguments, check=mode == "checked") for mode in MODES]


def modes(results: Results, name: str) -> list[dict[str, Any]]:
    """The results of these tasks."""
    return [results[f"{name}, {mode}"] for mode in MODES]


def write(directory: Path, *tasks: Task) -> str:
    """Write a play with tasks, and return its path."""
    content = {
        "hosts": "slurm_controller",
        "become": True,
        "gather_facts": False,
        # A refusal is also a result, which the tests check; the tasks after it must run.
        "ignore_errors": True,
        "ignore_unreachable": True,
        "tasks": tasks,
    }
    path = directory / "play.yml"
    path.write_text(json.dumps([content]))
    return str(path)


def play(lab: Lab, directory: Path, *tasks: Task) -> Results:
    """Run tasks in their order, and return their results."""
    run = lab.playbook(write(directory, *tasks), "--diff")
    results = {name: result for _host, name, result in run.results}
    assert [*results] == [task["name"] for task in tasks], run.output
    return results


def configuration(lab: Lab, host: str) -> dict[str, str]:
    """The texts of Slurm's files on a host, as module slurm_config takes them."""
    return {name: lab.host(host).file(f"/etc/slurm/{name}").content_string for name in FILES}
