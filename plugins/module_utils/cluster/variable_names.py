# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of variables: those that are misspelt, and those that a fact of a host must not have.

With `inject_facts_as_vars`, which is Ansible's default, each fact is a variable of its host, and wins over the
inventory and the defaults of roles. Any module can return facts, so whoever controls a host can replace variables of
that host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from ..configuration import parameters
from ..language.formatting import shown
from ..language.hostlist import fold
from ..language.spelling import misspelt
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
    "reset",
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


def name_errors(
    variables: Mapping[str, Iterable[str]], known: Collection[str], given: Collection[str] = ()
) -> list[str]:
    """The errors in the names of variables, of which Ansible uses none, and says nothing.

    Args:
        variables: the names of the variables of each host.
        known: the variables of this collection.
        given: those of the command line, which are for a playbook of this collection.
    """
    errors: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    for host, names in variables.items():
        for name in names:
            if name not in problems:
                problems[name] = "" if name in known else _name_problem(name, known, name in given)
            if problems[name]:
                errors.setdefault(problems[name], []).append(host)
    return [text if len(hosts) == len(variables) else f"{fold(hosts)}: {text}" for text, hosts in errors.items()]


def _name_problem(name: str, known: Collection[str], is_given: bool) -> str:
    if name.startswith(("_", "ansible_")):
        return ""
    if name in parameters.SLURM_CONF:
        return f"{name}: is a parameter of slurm.conf, no variable: set it in slurm_conf of the cluster file"
    meant = misspelt(name, known)
    if meant or not is_given:
        return f"{shown(name)[1:-1]}: unknown variable, did you mean {meant!r}?" if meant else ""
    if longer := sorted(other for other in known if other.endswith(f"_{name}")):
        return f"{name}: unknown variable, did you mean {' or '.join(longer)}?"
    role = next((role for role in ROLES if name.startswith(f"{role}_")), "")
    own = sorted(other for other in known if role and other.startswith(f"{role}_"))
    return f"{name}: unknown variable, allowed: {', '.join(own) or 'none'}" if role else ""


def file_errors(directory: str, groups: Collection[str], hosts: Collection[str]) -> list[str]:
    """The files of variables that Ansible does not read, since they are named nearly as a group or a host is.

    Those with another name may be of another cluster.

    Args:
        directory: that of the cluster file.
        groups, hosts: the names of the inventory.
    """
    errors = [
        _file_error("group_vars", file, "group", meant)
        for file, name in _named_files(directory, "group_vars", groups)
        if (meant := f"slurm_{name}" if f"slurm_{name}" in groups else misspelt(name, groups))
    ]
    forms = {_plain_host(host): host for host in hosts}
    return errors + [
        _file_error("host_vars", file, "host", forms[_plain_host(name)])
        for file, name in _named_files(directory, "host_vars", hosts)
        if _plain_host(name) in forms
    ]


def _named_files(directory: str, folder: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """The entries of a folder that are named after no group or host, each with the name that it stands for."""
    path = os.path.join(directory, folder)
    for file in sorted(os.listdir(path)) if os.path.isdir(path) else []:
        name = re.sub(r"\.(?:ya?ml|json)$", "", file)
        if name not in known and not name.startswith("."):
            yield file, name


def _file_error(folder: str, file: str, kind: str, meant: str) -> str:
    return f"{folder}/{shown(file)[1:-1]}: no {kind} has this name, did you mean {meant}{os.path.splitext(file)[1]}?"


def _plain_host(name: str) -> str:
    """A host name without its domain, without case, and without zeros before numbers: gpu01.example.org is gpu1."""
    return re.sub(r"0+(?=[0-9])", "", name.partition(".")[0].lower())
