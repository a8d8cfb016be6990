# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that a job cannot use where its processes gain no rights (`NoNewPrivileges` in systemd.exec(5)).

With this flag the kernel ignores the setuid and setgid bits and the capabilities of a program (PR_SET_NO_NEW_PRIVS in
prctl(2)). A child inherits the flag, and nobody can remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean


def _vouches(access: Any) -> bool:
    """Whether users come from node to node by the key of the host, which ssh-keysign(8) reads with its setuid bit."""
    return isinstance(access, Mapping) and access.get("between_nodes") == "host_based"


NEEDING: dict[str, tuple[Callable[[Any], bool], str]] = {
    "slurm_containers": (
        lambda tools: isinstance(tools, list) and "enroot" in tools,
        "enroot imports an image by programs with capabilities (the package enroot+caps)",
    ),
    "apptainer_setuid": (bool, "the program that makes apptainer's containers has the setuid bit"),
    "apptainer_fakeroot_uids": (bool, "newuidmap, which assigns these ids, has the setuid bit"),
    "slurm_access": (
        _vouches,
        "between_nodes is host_based, and ssh-keysign, which signs with the host's key, has the setuid bit",
    ),
}
"""Variables with which jobs need such a program: whether a value does, and why."""


def errors(variables: Mapping[str, Any]) -> list[str]:
    """The reasons why jobs of this cluster must be able to gain rights, if they cannot.

    variables: `slurm_no_new_privileges`, also as a text of the command line, and those of NEEDING, by name. A missing
        one needs nothing.
    """
    value = variables.get("slurm_no_new_privileges", False)
    try:
        wanted = boolean(value)
    except TypeError:
        return [f"slurm_no_new_privileges: found {value!r}, allowed: true or false"]
    if not wanted:
        return []
    reasons = [why for name, (needs, why) in NEEDING.items() if needs(variables.get(name))]
    return [
        f"slurm_no_new_privileges: found true, which is the default of profile strict, allowed: false, because {why}, "
        "and this would fail in jobs. With false, a job can use sudo and other programs with the setuid bit "
        "(docs/admin/strict.md)"
        for why in reasons
    ]
