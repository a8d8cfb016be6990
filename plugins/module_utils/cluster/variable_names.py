# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of variables that a fact of a host must not have: those of the collection, and those of connections.

With `inject_facts_as_vars`, which is Ansible's default, each fact is a variable of its host, and wins over the
inventory and the defaults of roles. Any module can return facts, so whoever controls a host can replace variables of
that host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import keys

ROLES = (
    *keys.ROLES,
    "accept",
    "adopt",
    "apptainer",
    "base",
    "doctor",
    "enroot",
    "first_boot",
    "hardware",
    "image",
    "job_tools",
    "maintenance",
    "munge",
    "new_cluster",
    "nvidia_driver",
    "nvidia_mig",
    "preflight",
    "pyxis",
    "remove_nodes",
    "rolling",
    "rotation",
    "slurm",
    "slurm_health",
    "slurm_upgrade",
    "slurmd",
    "validate",
)
"""The roles, whose names begin the names of their variables; those of keys first."""

OWN_FACTS = ("slurm_host", "slurm_hardware")
"""The facts that modules of this collection return."""

_VARIABLE = re.compile(rf"__|rotate\b|(?:{'|'.join(ROLES)})_")

_CONNECTION = re.compile(
    r"(?:ansible_)?(?:(?:\w+_)?(?:executable|exe|args|flags|method)|control_path(?:_dir)?|(?:remote|local)_tmp)"
)
"""Options of connection, become and shell plugins, of which Ansible removes only some from the facts of a host
(`clean_facts` in `lib/ansible/vars/clean.py`): programs, their arguments and paths on the control host."""


def is_variable(name: str) -> bool:
    """Whether a name begins as those of this collection's variables do."""
    return bool(_VARIABLE.match(name))


def replaced_variables(facts: Iterable[object]) -> list[str]:
    """The names of facts that would replace such variables, sorted. facts: names (`ansible_facts`)."""
    texts = (name for name in facts if isinstance(name, str) and name not in OWN_FACTS)
    return sorted(name for name in texts if is_variable(name) or _CONNECTION.fullmatch(name))
