# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for every role: argument specs equal its defaults, and the names of variables begin with that of their role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.lookup.decision import ROOMS
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import PROFILES
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.releases import RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.platform_tables import (
    RELEASES as PLATFORM_RELEASES,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.platform_tables import SOURCES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import (
    PROFILES as PROFILES_OF_DECISIONS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import comparison
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.first_cluster_file import MOST_SECONDS
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.rules import PACKAGE
from plain_host import cluster

ROOT = Path(__file__).parents[2]
LOOKUP = re.compile(r"'gpucluster\.slurm\.decision', '([a-z_.A-Z]+)'")
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())


def load(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; an absent file is an empty one."""
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_argument_specs_equal_the_defaults(role: Path) -> None:
    options = load(role / "meta/argument_specs.yml")["argument_specs"]
    options = (options.get("main") or options["variables"]).get("options", {})
    specified = {name: option["default"] for name, option in options.items() if "default" in option}
    assert specified == load(role / "defaults/main.yml")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_option_is_required_or_has_a_default(role: Path) -> None:
    options = load(role / "meta/argument_specs.yml")["argument_specs"]
    options = (options.get("main") or options["variables"]).get("options", {})
    assert [name for name, option in options.items() if bool(option.get("required")) == ("default" in option)] == []


def test_the_model_knows_the_profiles_of_the_roles() -> None:
    assert [*PROFILES_OF_DECISIONS] == [*PROFILES]


def test_new_and_site_refuse_the_same_clocks() -> None:
    assert comparison.MOST_SECONDS == MOST_SECONDS


def tasks_of(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tasks, and those in their blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_tasks_have_options_of_their_modules(role: Path) -> None:
    for path in sorted((role / "tasks").glob("*.yml")):
        for task in tasks_of(yaml.safe_load(path.read_text()) or []):
            for name, arguments in task.items():
                if name.startswith("gpucluster.slurm."):
                    module = import_module(f"ansible_collections.gpucluster.slurm.plugins.modules.{name.split('.')[2]}")
                    assert {*(arguments or {})} <= {*module.ARGUMENTS}, f"{path}: {task['name']}"


def test_lookups_name_a_rule_or_a_constant() -> None:
    files = [
        file for place in ("roles", "playbooks") for file in (ROOT / place).rglob("*") if file.suffix in (".yml", ".j2")
    ]
    terms = {term for file in files for term in LOOKUP.findall(file.read_text())}
    assert len(terms) > 100
    for term in terms:
        file, name = term.split(".")
        assert hasattr(import_module(f"{PACKAGE}.{ROOMS[file]}.{file}"), name), term


def test_package_sources_have_packages_for_the_same_purposes() -> None:
    assert len({frozenset(source.packages) for source in SOURCES.values()}) == 1


def test_platforms_have_the_releases_of_the_parameter_tables() -> None:
    assert [*PLATFORM_RELEASES] == [*RELEASES]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_public_variables_start_with_the_name_of_their_role(role: Path) -> None:
    names = {*load(role / "defaults/main.yml")} - {"rotate"}  # of playbook rotate_keys
    assert [name for name in names if not name.startswith(f"{role.name}_")] == []


@pytest.mark.parametrize("source", ["distribution", "schedmd"])
@pytest.mark.parametrize(
    ("role", "there"),
    [
        ("munge", ["munge"]),
        ("slurmd", ["slurmd"]),
        ("slurmctld", ["slurmctld", "client"]),
        ("slurmdbd", ["slurmdbd", "client"]),
        ("slurm_client", ["sackd"]),
        ("mariadb", ["mariadb-server"]),
        ("registry", ["docker-registry"]),
    ],
)
def test_a_check_shows_a_service_also_where_another_package_is_missing(
    role: str, there: list[str], source: str
) -> None:
    """Such as logrotate: the service would be restarted, which a person has to see before."""
    own = {"client": "slurm-client"} if source == "distribution" else {}
    if source == "schedmd":
        own = {name: f"slurm-smd-{name}" for name in ("slurmd", "slurmctld", "slurmdbd", "sackd", "client")}
        there = ["slurm-smd", *there] if "client" in there else there

    def is_left_out(packages: list[str]) -> bool:
        # A host that has only what its role needs.
        name = "login" if role == "slurm_client" else "n1"
        host = cluster(slurm_packages=source)[name].say(packages=dict.fromkeys(packages, "1"))
        return bool(host_packages.lacks_package(host, role))

    assert not is_left_out([own.get(name, name) for name in there])
    assert is_left_out(["logrotate"])


@pytest.mark.parametrize(
    "role",
    [path.parts[-3] for path in ROOT.glob("roles/*/tasks/main.yml") if "slurm/tasks/install.yml" in path.read_text()],
)
def test_a_role_that_installs_packages_has_some(role: str) -> None:
    """Its tasks pass no name: they ask Ansible's `role_name`."""
    host = cluster(slurm_access={"who": "job"}, slurm_firewall=True)["n1"]
    assert host_packages.installed_packages(host, role)
