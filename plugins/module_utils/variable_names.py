# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the collection's variables, which a fact of a host must not have.

With `inject_facts_as_vars`, which is Ansible's default, each fact is a variable of its host, and wins over the
inventory and the defaults of roles. Any module can return facts, so whoever controls a host can replace variables of
that host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ROLES = (
    "apptainer",
    "base",
    "enroot",
    "hardware",
    "job_tools",
    "mariadb",
    "munge",
    "nvidia_driver",
    "nvidia_mig",
    "preflight",
    "pyxis",
    "registry",
    "slurm",
    "slurm_accounting",
    "slurm_client",
    "slurm_health",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "validate",
)
"""The roles, whose names begin the names of their variables."""

OWN_FACTS = ("slurm_host", "slurm_hardware")
"""The facts that modules of this collection return."""

_VARIABLE = re.compile(rf"__|(?:{'|'.join(ROLES)})_")


def replaced_variables(facts: Iterable[object]) -> list[str]:
    """The names of facts that would replace variables of this collection, sorted. facts: names (`ansible_facts`)."""
    return sorted(name for name in facts if isinstance(name, str) and name not in OWN_FACTS and _VARIABLE.match(name))
