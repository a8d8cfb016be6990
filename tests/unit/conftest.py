# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For all unit tests: the collection is imported as Ansible imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.yaml import SafeLoader
from ansible.plugins.loader import init_plugin_loader
from hypothesis import HealthCheck, settings
from programs import StandIn

# This has to run before any import from ansible_collections: after one, Ansible's own importer is no longer used.
init_plugin_loader()

# Tests read all tasks and specs of the roles. Ansible's loader is the one in C where there is one: five times as fast.
yaml.SafeLoader = SafeLoader  # type: ignore[misc]

# Tests that run playbooks read the output of Ansible's own callback. Those of another one name it.
os.environ["ANSIBLE_STDOUT_CALLBACK"] = "ansible.builtin.default"

# Ansible is that of the environment which runs the tests, whichever is first on the path.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

# A busy machine must not fail a test for its speed.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


# Tests of modules and of module_utils have the marker `once`, except these, which call ansible.module_utils.
PLUGINS = Path(__file__).parent / "plugins"
OF_ANSIBLE = (PLUGINS / "module_utils/cluster/test_argument_specs.py", PLUGINS / "module_utils/facts/test_answers.py")


def is_once(path: Path) -> bool:
    """Whether a file has tests of code that knows little of Ansible."""
    return path not in OF_ANSIBLE and any(path.is_relative_to(PLUGINS / name) for name in ("module_utils", "modules"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the tests that have the marker `once`, most files need not be read."""
    left_out = "not once" in config.option.markexpr and collection_path.suffix == ".py" and is_once(collection_path)
    return left_out or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of code that knows little of Ansible. Each scenario runs the modules on the hosts' Python."""
    for item in items:
        if is_once(item.path):
            item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True)
def environment_of_the_tests() -> Iterator[None]:
    """A module takes variables and the umask from its process, which is here that of the tests, and programs set it."""
    before, umask = dict(os.environ), os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Stand-ins for programs."""
    from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment

    directory = tmp_path / "stand-ins"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])

    def put(name: str, script: str) -> None:
        program = directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return put
