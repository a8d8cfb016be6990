# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the variables of all hosts by the argument specs of roles, all at once.

Ansible checks a role's arguments with a task on each host. Most hosts have equal values, which are checked only once
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..language.formatting import limited, short, shown, visible
from ..language.hostlist import fold
from .named_files import named_file_errors
from .role_values import home_problems, value_problems
from .schema import plain
from .variable_names import replaced_variables


def argument_errors(
    variables: Mapping[str, Mapping[str, Any]],
    roles: Mapping[str, str],
    groups: Mapping[str, Iterable[str]],
    options: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[str]:
    """The errors in the variables of hosts, as `HOSTLIST: message`, role by role.

    variables: those of each host by name (`hostvars`). roles: the group that has a role, by role. groups: host names by
    group; one that is missing has no hosts. options: of a role's argument spec, by role, none of them required: what a
    host does not set has the role's default, which is a template perhaps and not checked here. Values that become parts
    of files are checked by the rules of these files as well, and so are files of the control host that they name.

    Facts of a host (`ansible_facts`) that have the names of variables of this collection are wrong: they win
    over the inventory where facts are variables. No module of this collection returns such, and whoever controls the
    host can have had others do so in an earlier play, or in an earlier run whose facts Ansible has kept.
    """
    roles_of: dict[str, list[str]] = {}
    foreign: dict[str, list[str]] = {}
    for role, group in roles.items():
        for host in groups.get(group, ()):
            roles_of.setdefault(host, []).append(role)
    equal: dict[str, dict[str, tuple[dict[str, Any], list[str]]]] = {role: {} for role in roles}
    for host, names in roles_of.items():
        own = variables[host]
        if facts := replaced_variables(own.get("ansible_facts") or {}):
            foreign.setdefault(", ".join(facts), []).append(host)
        for role in names:
            given = {name: plain(own[name]) for name in options[role] if name in own}
            equal[role].setdefault(repr(given), (given, []))[1].append(host)
    kept = [
        f"{short(fold(hosts))}: {visible(found)}: these facts have the names of variables, which they would replace; "
        "has somebody taken over the host? Leave it out (--limit), and remove it from Ansible's cache of facts"
        for found, hosts in foreign.items()
    ]
    wrong = [
        f"{short(fold(hosts))}: {message}"
        for role, found in equal.items()
        for given, hosts in found.values()
        for message in [
            *_validator(options[role]).validate(given).error_messages,
            *_texts_for_others(given, options[role]),
            *value_problems(given),
            *home_problems(given, partial(variables[hosts[0]].get, "slurm_people")),
            *named_file_errors(given, _directory(variables[hosts[0]])),
        ]
    ]
    return limited([*kept, *wrong])


_MORE = {"list": ("a list", "[VALUE, VALUE]"), "dict": ("a mapping", "{KEY: VALUE}")}
"""Types whose values `-e NAME=VALUE` cannot give, and how to write one."""


def _texts_for_others(given: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The values that are texts in the place of a list or a mapping.

    Ansible's validator takes them, since it can convert them, but roles have them as they are.
    """
    for name, value in given.items():
        if isinstance(value, str) and (kind := options[name].get("type")) in _MORE:
            what, form = _MORE[kind]
            way_out = f"on the command line: -e '{{{name}: {form}}}'"
            yield f"{name}: found {shown(value)}, allowed: {what}; {way_out}"


def _directory(variables: Mapping[str, Any]) -> str:
    """The directory of the cluster file, for names that are relative to it."""
    return str(variables.get("slurm_cluster_dir") or variables.get("inventory_dir") or "")


def _validator(options: Mapping[str, Mapping[str, Any]]) -> ArgumentSpecValidator:
    return ArgumentSpecValidator({name: {**option, "default": None} for name, option in options.items()})
