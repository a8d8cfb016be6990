# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs: those of hosts, for tests of their functions, and stand-ins for those that a host has."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module, reload
from pathlib import Path
from types import ModuleType

PROGRAMS = "ansible_collections.gpucluster.slurm.plugins.module_utils.programs"
ROLES = Path(__file__).parents[2] / "roles"

StandIn = Callable[[str, str], None]
"""A function that puts a program first in PATH, from its name and a shell script, such as the fixture `stand_in`."""


def load(name: str) -> ModuleType:
    """A program as a module, by its name in `module_utils/programs`, new for each test that changes it."""
    return reload(import_module(f"{PROGRAMS}.{name}"))


def environment(**variables: str) -> dict[str, str]:
    """The environment of ansible-playbook, without the settings and the colours of whoever runs the tests."""
    others = ("ANSIBLE_", "NO_COLOR")
    own = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return {**own, **variables}
