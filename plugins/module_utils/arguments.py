# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of all hosts, judged by the argument specs of roles at once.

Ansible judges a role's arguments with a task on each host. Most hosts have the same: here these are judged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold


def argument_errors(
    variables: Mapping[str, Mapping[str, Any]], hosts: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What is wrong with the variables of hosts, as `HOSTLIST: what`.

    variables: those of each host by name (`hostvars`). options: of an argument spec, none of them required: what a host
    does not set has the role's default, which is a template perhaps and not judged here.
    """
    validator = ArgumentSpecValidator({name: {**option, "default": None} for name, option in options.items()})
    equal: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for host in hosts:
        given = {name: variables[host][name] for name in options if name in variables[host]}
        equal.setdefault(repr(given), (given, []))[1].append(host)
    return [
        f"{fold(names)}: {message}"
        for given, names in equal.values()
        for message in validator.validate(given).error_messages
    ]
