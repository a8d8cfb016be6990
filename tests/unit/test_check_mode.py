# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check foretells what the run changes: the same stages on the same hosts for each key of the cluster file, and a
line for each role that has nothing to compare yet. Scenario rest compares a check with its run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import stages
from new_keys import VARIABLES, added_keys
from plain_host import CLUSTER, cluster

ROLES = Path(__file__).parents[2] / "roles"
FORETOLD = ROLES / "slurm/tasks/foretell.yml"

FILE: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "database": "head",
    "login": "login",
    "hardware": CLUSTER["slurm_hardware_types"],
    "nodes": CLUSTER["slurm_nodes"],
    "partitions": CLUSTER["slurm_partitions"],
    "addresses": {"head": "10.0.0.1", "login": "10.0.0.2", "n1": "10.0.0.3", "n2": "10.0.0.4"},
}
ADDED = added_keys("head", "login", "n[1-2]")
SERVED = {"rest": "rest", "report": "report", "backup": "backup", "users": "people"}
"""Stages that have hosts by these keys."""


def tasks_of(file: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a file, with those of its blocks."""
    waiting = [*(yaml.safe_load(file.read_text()) or [])]
    while waiting:
        task = waiting.pop(0)
        waiting += [part for key in ("block", "rescue", "always") for part in task.get(key, [])]
        yield task


@pytest.mark.parametrize("file", sorted(ROLES.glob("*/tasks/*.yml")), ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_role_without_its_packages_says_that_the_run_installs_it(file: Path) -> None:
    """What a check skips because there is nothing to compare has a line all the same."""
    for task in tasks_of(file):
        condition = str(task.get("when", ""))
        if "ansible_check_mode" in condition and "lacks_package" in condition:
            included = task.get("ansible.builtin.include_tasks", "")
            assert (file.parent / included).resolve() == FORETOLD, task["name"]
    ends = [task["name"] for task in tasks_of(file) if task.get("ansible.builtin.meta") == "end_role"]
    if "ansible_check_mode" in file.read_text() and file != FORETOLD:
        assert not any("check" in name for name in ends)


def defaults_of_roles() -> dict[str, Any]:
    """The defaults of all roles, without those that are templates."""
    files = [yaml.safe_load(path.read_text()) or {} for path in ROLES.glob("*/defaults/main.yml")]
    return {name: value for file in files for name, value in file.items() if "{{" not in str(value)} | {
        "base_packages": ["bash"]
    }


def stages_of(keys: dict[str, Any], check: bool) -> dict[str, list[str]]:
    """The stages with work on each host of a cluster whose file has these keys, in the words of the decision."""
    loaded = load(Document("x.cluster.yml", {**FILE, **keys})).variables
    variables = {**defaults_of_roles(), **loaded, **VARIABLES}
    hosts = cluster(**variables, ansible_check_mode=check)
    return {name: stages.stages(host) for name, host in hosts.items()}


@pytest.mark.parametrize("key", ADDED)
def test_a_check_has_the_stages_of_the_run(key: str) -> None:
    run = stages_of(ADDED[key], check=False)
    assert stages_of(ADDED[key], check=True) == run
    stage = SERVED.get(key)
    assert stage is None or any(stage in found for found in run.values())


# -- tasks that a check skips -----------------------------------------------------------------------------------------

FORETOLD_BY = {
    "nvidia_driver/change: Install the driver": "Compare the driver with the wanted one",
    "nvidia_driver/modules: Load a module": "Write the modules that are loaded at boot, and their options",
    "nvidia_driver/reboot: Reboot the node": "Compare the driver with the wanted one",
    "nvidia_mig/apply: Make the instances": "Compare the instances with the declared ones",
    "people/ended_jobs: End them": "Show the jobs that end",
    "registry/clients: Trust the certificate": "Write the certificate of its authority",
    "reset/clean: Drop the database": "Show what is removed",
    "reset/stop: Drain the nodes": "Show what is removed",
    "slurm_accounting/main: Make reservations": "Show that nothing is compared",
    "slurmctld/run: Check slurmctld": "Apply Slurm's configuration",
    "slurm/server: Make a certificate": "Run the services",
    "slurmdbd/configure: Wait until it answers": "Run slurmdbd",
    "validate/main: Report": "Run the jobs",
}
"""Tasks that could change a host and that a check skips, with the beginning of the name of the task with their line."""

OF_THE_CONTROL_HOST = {
    "munge/adopt: Restrict the key to its owner",
    "munge/key: Make a new key",
    "slurm/token_key: Write this key, or a new one",
    "slurmdbd/password: Write this password, or a new one",
}
OTHER_PLAYBOOKS = {"accept", "adopt", "backup", "rolling", "rotation", "slurm_upgrade"}
"""Roles of playbooks that say themselves in check mode what they would do."""

READING = {
    "add_host",
    "assert",
    "debug",
    "fail",
    "group_by",
    "meta",
    "set_fact",
    "set_stats",
    "slurp",
    "uri",
    "wait_for",
}
"""Modules that change no host."""


def skipped(file: Path) -> Iterator[str]:
    """The tasks of a file that could change a host, and that a check skips."""
    for task in tasks_of(file):
        module = next((key.rpartition(".")[2] for key in task if "." in key), "")
        runs = module in ("command", "shell", "reboot") and task.get("check_mode") is not False
        reads = module in READING or (module in ("command", "shell") and task.get("changed_when") is False)
        if module and not reads and (runs or "not ansible_check_mode" in str(task.get("when", ""))):
            yield f"{file.parts[-3]}/{file.stem}: {task['name']}"


def test_what_a_check_skips_has_a_line_of_another_task() -> None:
    """Ansible skips commands and shells by itself."""
    files = [file for file in sorted(ROLES.glob("*/tasks/*.yml")) if file.parts[-3] not in OTHER_PLAYBOOKS]
    assert {task for file in files for task in skipped(file)} == {*FORETOLD_BY, *OF_THE_CONTROL_HOST}
    for task, line in FORETOLD_BY.items():
        names = [
            each.get("name") for file in ROLES.glob(f"{task.partition('/')[0]}/tasks/*.yml") for each in tasks_of(file)
        ]
        assert any(name and name.startswith(line) for name in names), (task, names)
