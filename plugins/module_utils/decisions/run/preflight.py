# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role preflight: the variables of the cluster, and what the files of the control host must have for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...cluster import deprecated_names
from ...cluster.argument_specs import argument_errors
from ...cluster.firewall_key import firewall_warning
from ...cluster.job_scripts import script_warnings
from ...cluster.keys import KEYS, SERVERS
from ...cluster.model import model_errors
from ...cluster.named_files import named_file_errors
from ...cluster.package_source import package_entries
from ...cluster.programs import script_errors
from ...cluster.render import gres_lines, node_lines, partition_lines
from ...cluster.storage_key import storage_warning
from ...cluster.variable_names import file_errors, name_errors
from ...configuration.spank import plugstack_lines
from ...language.formatting import listed
from ...language.hostlist import expand, fold
from ...people.messages import host_lines
from ..known import command_line, image
from ..known.own_scripts import site_scripts, text_errors
from ..known.platform import has_files
from ..known.run_host import RunHost
from ..known.whole_cluster import (
    GROUP_ROLES,
    SRUN_PORTS,
    backup_hosts,
    cluster_members,
    hosts_of_key,
    port_variables,
    source,
)
from ..servers import alertmanager, all_servers
from ..values import slurm_accounting
from ..values.slurm_conf_values import (
    passed_limit_errors,
    passed_limit_warnings,
    refused_defaults,
    untracked_limit_errors,
)
from . import secret_checks

ROLES: Mapping[str, str] = {
    "base": "slurm_cluster",
    "munge": "slurm_cluster",
    **{role: key.group or "slurm_cluster" for key in KEYS for role in key.roles},
    "hardware": "slurm_compute",
    "nvidia_driver": "slurm_compute",
    "nvidia_mig": "slurm_compute",
    "slurm_health": "slurm_compute",
    "slurmd": "slurm_compute",
    "slurm_accounting": "slurm_controller",
    "slurm_upgrade": "slurm_cluster",
    "rolling": "slurm_cluster",
    "maintenance": "slurm_cluster",
    "rotation": "slurm_cluster",
    "accept": "slurm_cluster",
    "image": "slurm_cluster",
    "first_boot": "slurm_cluster",
    "remove_nodes": "slurm_cluster",
    "reset": "slurm_cluster",
    "enroot": "slurm_cluster",
    "pyxis": "slurm_cluster",
    "apptainer": "slurm_cluster",
    "job_tools": "slurm_cluster",
    "registry": "slurm_cluster",  # users of it need its options as well
    "validate": "slurm_cluster",
}
"""Roles with their own variables, and the group on which site.yml runs each. validate runs on one of several hosts.

The playbooks skip the argument specs of these roles, because each check would be a task on each host.
"""

SHARED = (
    *(key.variable.name for key in KEYS if key.variable),
    "slurm_job_user_id",
    "slurm_user_id",
    "slurm_containers",
    "slurm_no_new_privileges",
    "slurm_secret_max_age",
    "slurm_secrets_command",
    "slurm_secrets_dir",
)
"""Shared variables that the rules of the cluster file are about."""

NAMING = ("slurm_database_server", "slurm_monitoring", "slurm_packages", "slurm_report", "slurm_storage")
"""Shared variables that name files of the control host."""

POLICY = ("limits", "qos", "accounts", "users")
"""Parts of the policy with which Slurm enforces something. It takes every job where nothing is enforced (role
slurmctld)."""

OLDEST_ANSIBLE = (2, 19)

# -- the variables ---------------------------------------------------------------------------------------------------


def no_cluster(host: RunHost) -> str:
    """Why a run has no cluster."""
    return f"There is no cluster (group slurm_cluster): {host.no_inventory}"


def partial_inventory(host: RunHost) -> str:
    """Why an inventory is a part of one: it has none of the controllers that its hosts name; empty otherwise.

    The variables of its hosts can refer to a controller, so they cannot be checked.
    """
    named = host["slurm_controllers"]
    if host.members("slurm_controller") or not isinstance(named, list) or not named:
        return ""
    return (
        f"The inventory lacks {', '.join(map(str, named))} (slurm_controllers): it is a part of a cluster, as a job "
        "slice of AWX has it. Give each job the whole inventory, and a limit of its own."
    )


def variable_errors(host: RunHost) -> list[str]:
    """The errors in the variables of all hosts.

    The rules of the cluster file also hold for variables from other sources.
    """
    groups = host["groups"]
    names = dict.fromkeys(name for group in ROLES.values() for name in groups.get(group, ()))
    options = {role: host.argument_options(role) for role in ROLES}
    hosts = {name: host.of(name) for name in names}
    old, wrong = old_names(host)[1], argument_errors(hosts, ROLES, groups, options)
    return old + unknown_names(host, hosts) + wrong + model_errors(model(host), groups["all"])


def unknown_names(host: RunHost, hosts: Mapping[str, RunHost]) -> list[str]:
    """The errors in names of variables, and of files of variables."""
    known = host.known_variables | {name.old for name in deprecated_names.OLD_NAMES}
    files = file_errors(str(host["slurm_cluster_dir"]), {*host["groups"]}, {*host["groups"]["all"]})
    return [*name_errors(hosts, known, host.given_variables), *files]


def old_names(host: RunHost) -> tuple[list[str], list[str]]:
    """Warnings and errors about old names of variables."""
    if not deprecated_names.OLD_NAMES:
        return [], []
    hosts = {name: host.of(name) for name in host.members("slurm_cluster")}
    version = deprecated_names.collection_version()
    warnings, errors = deprecated_names.variable_findings(hosts, version, deprecated_names.OLD_NAMES)
    return host_lines(warnings), host_lines(errors)


def model(host: RunHost) -> dict[str, Any]:
    """The variables that the rules of the cluster file are about, by name.

    Those of roles are the ones of the hosts that use them: the policy is a variable of the controllers, and directories
    and ports must differ from those of other programs on a host.
    """
    controller = first_of(host, host["slurm_controllers"])
    compute = first_of(host, host.members("slurm_compute"))
    database = first_of(host, [host["slurm_database"]])
    registry = first_of(host, [host["slurm_registry"]])
    defaults = {name: option.get("default") for name, option in host.argument_options("registry").items()}
    return {
        **{name: host[name] for name in SHARED},
        **port_variables(host),
        "apptainer_setuid": compute.flag("apptainer", "apptainer_setuid") if compute else False,
        "apptainer_fakeroot_uids": own_value(compute, "apptainer_fakeroot_uids", []),
        **{f"slurm_accounting_{kind}": value for kind, value in policy_values(host).items()},
        "slurm_accounting_reservations": own_value(controller, "slurm_accounting_reservations", []),
        "slurm_accounting_purge": bool(controller and controller.flag("slurm_accounting", "slurm_accounting_purge")),
        "registry_dir": own_value(registry, "registry_dir", defaults["registry_dir"]) if host["slurm_registry"] else "",
        "slurmdbd_conf": own_value(database, "slurmdbd_conf", {}),
        "mariadb_settings": own_value(database, "mariadb_settings", {}),
    }


def first_of(host: RunHost, names: Iterable[str]) -> RunHost | None:
    """The first of these hosts; None without one, and for a name that is no host of the inventory."""
    first = next(iter(names), "")
    return host.of(first) if first in host["groups"]["all"] else None


def own_value(host: RunHost | None, name: str, default: Any) -> Any:
    """The variable of a host if it has one."""
    return default if host is None else host.get(name, default)


# -- the model -------------------------------------------------------------------------------------------------------


def objections(host: RunHost) -> list[str]:
    """Why a cluster with these variables cannot run, each with the way out; the variables have been checked before."""
    # What slurm.conf tracks is known once its lines are right. A command for secrets may ask a person for a PIN.
    return (
        [*_objections(host), *line_errors(host)]
        or [*untracked_limit_errors(host, policy_values(host)), *passed_limit_errors(host, policy_values(host))]
        or firewall_errors(host)
        or list(secret_checks.command_errors(host))
    )


def _objections(host: RunHost) -> Iterator[str]:
    ansible = host["ansible_version"]
    if (ansible["major"], ansible["minor"]) < OLDEST_ANSIBLE:
        yield f"ansible-core {ansible['full']} is too old; this collection needs 2.19 or later"
    yield from command_line.option_errors(host)
    yield from image.setting_errors(host)
    yield from inventory_objections(host)
    tools = host["slurm_containers"]
    if "pyxis" in tools and "enroot" not in tools:
        yield "slurm_containers has pyxis without enroot, which runs its containers"
    if lacking := lacking_packages(host):
        yield f"slurm_packages.files lacks packages that this cluster needs: {', '.join(lacking)}"
    yield from joined(
        named_file_errors(
            {name: host[name] for name in NAMING},
            str(host["slurm_cluster_dir"]),
        )
    )
    yield from receivers_errors(host)
    yield from joined(secret_checks.file_errors(host))
    yield from joined(script_errors(site_scripts(host)))
    yield from joined(text_errors(host))
    if not host["slurm_partitions"]:
        yield "slurm_partitions is empty, and a job needs a partition to run in (cluster file, partitions)"
    nodes = {name for entry in host["slurm_nodes"] for name in expand(entry["hosts"])}
    if undeclared := without(host.members("slurm_compute"), nodes):
        names = ", ".join(sorted(undeclared, key=str.lower))
        yield f"slurm_nodes has no entry for these hosts of the group slurm_compute: {names}"


def server_objections(host: RunHost) -> list[str]:
    """Why a host cannot have the servers that it is to have, by the files of the control host that these need."""
    served = [role for role in all_servers.SERVERS if host.within(all_servers.KEYS[role].group)]
    return [text for role in served for text in all_servers.objections(host, role)]


def policy_values(host: RunHost) -> dict[str, Any]:
    """The policy for accounting, as `accounting` of the cluster file."""
    controller = first_of(host, host["slurm_controllers"])
    kinds: dict[str, Any] = {"limits": {}, "qos": [], "accounts": [], "users": []}
    return {kind: own_value(controller, f"slurm_accounting_{kind}", empty) for kind, empty in kinds.items()}


def inventory_objections(host: RunHost) -> Iterator[str]:
    """Hosts of the shared variables that the inventory lacks."""
    known = host["groups"]["all"]
    for key in SERVERS:
        if key.variable and (unknown := without(hosts_of_key(host, key), known)):
            verb = "is" if key.value == "host" else "has"
            yield f"{key.variable.name} {verb} {', '.join(unknown)}, which is no host of the inventory"


@listed
def firewall_errors(host: RunHost) -> Iterator[str]:
    """Why the hosts can have no firewall: names that the control host cannot resolve."""
    try:
        host.shared("firewall_plans")
    except ValueError as error:
        yield str(error)


def joined(errors: Iterable[str]) -> Iterator[str]:
    """Errors of one kind as one objection."""
    if text := "; ".join(errors):
        yield text


def without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """The names that are not among others, each once."""
    left_out = set(others)
    return [name for name in dict.fromkeys(names) if name not in left_out]


def lacking_packages(host: RunHost) -> list[str]:
    """With packages that are files: those that the cluster needs and the files lack."""
    if not has_files(host):
        return []
    packages = source(host).packages
    purposes = [role for group, roles in GROUP_ROLES.items() if host.members(group) for role in roles]
    purposes = [role for role in purposes if role in packages]
    purposes += ["sackd"] if has_sackd(host) else []
    purposes += ["adopt"] if adopts(host) else []
    needed = [package for purpose in purposes for package in packages[purpose]]
    return [entry["name"] for entry in package_entries(needed, host["slurm_packages"], []) if "name" in entry]


def has_sackd(host: RunHost) -> bool:
    """Whether a login host has neither slurmctld nor slurmd, so that sackd fetches its configuration."""
    others = [*host.members("slurm_controller"), *host.members("slurm_compute")]
    return bool(without(host.members("slurm_login"), others))


def adopts(host: RunHost) -> bool:
    """Whether sshd of a compute node asks Slurm for the job of a user (pam_slurm_adopt)."""
    access = host["slurm_access"]
    if not access or access.get("compute", "job") != "job":
        return False
    others = [*host.members("slurm_login"), *host["slurm_controllers"], host["slurm_database"]]
    return bool(without(host.members("slurm_compute"), others))


def receivers_errors(host: RunHost) -> Iterator[str]:
    """What alertmanager would refuse in the site's file of receivers, as far as its structure shows it."""
    name = host["slurm_monitoring"].get("receivers")
    content = host.content(os.path.join(host["slurm_cluster_dir"], name)) if name else None
    if content is not None:
        try:
            alertmanager.configuration(content.decode(errors="replace"))
        except ValueError as error:
            yield str(error)


def line_errors(host: RunHost) -> list[str]:
    """What Slurm would refuse in the lines of its files, as these say before a host gets them."""
    nodes, hardware = host["slurm_nodes"], host["slurm_hardware_types"]
    try:
        node_lines(nodes, hardware)
        gres_lines(nodes, hardware)
        partition_lines(host["slurm_partitions"], nodes, hardware, host["slurm_conf"])
        plugstack_lines(host["slurm_plugstack"])
    except (TypeError, ValueError) as error:
        return [str(error)]
    return []


# -- warnings --------------------------------------------------------------------------------------------------------


@listed
def warnings(host: RunHost) -> Iterator[str]:
    """What a person should know about the variables of a cluster that can run."""
    yield from old_names(host)[0]
    yield from taken_over_warnings(host)
    yield from suspended_warnings(host)
    yield from secret_checks.warnings(host)
    if warning := storage_warning(host["slurm_storage"], cluster_members(host), host["slurm_people"]):
        yield warning
    target, hosts = host["slurm_backup"].get("target", ""), backup_hosts(host)
    if target.startswith("/") and len(hosts) > 1:
        yield (
            f"slurm_backup.target is the directory {target}: {fold(hosts)} need the same file system there, which "
            "must not be lost with any of them"
        )
    policy = policy_values(host)
    # What slurm.conf enforces is known once its lines are right.
    if any(policy.values()) and not line_errors(host):
        for line in (*refused_defaults(host, policy), *passed_limit_warnings(host, policy)):
            yield f"accounting: {line}"
    yield from script_warnings(host["slurm_prologs"], host["slurm_epilogs"])
    controller = first_of(host, host["slurm_controllers"])
    if slurm_accounting.needs_own_user(host) and not own_value(controller, "slurm_accounting_users", None):
        yield (
            "accounting.users: missing: with profile strict, sacct shows no job to a user without an account, not even "
            "an own one"
        )


def taken_over_warnings(host: RunHost) -> list[str]:
    """The values that a new cluster could not have, and with which this one was taken over."""
    found: list[tuple[str, str]] = []
    if host["slurm_taken_over"]:
        model_errors(model(host), host["groups"]["all"], found)
    kept = "It stays, since the cluster was taken over with it (taken_over; docs/admin/adopt.md)."
    return [f"{key}: {what}. {kept}" for key, what in found]


def suspended_warnings(host: RunHost) -> Iterator[str]:
    """Where Slurm does not keep out users who are suspended."""
    users = host["slurm_people"].get("users", [])
    suspended = ", ".join(user["name"] for user in users if user.get("state") == "suspended")
    if not suspended:
        return
    controller = first_of(host, host["slurm_controllers"])
    if not any(own_value(controller, f"slurm_accounting_{part}", None) for part in POLICY):
        yield f"Slurm cannot refuse jobs of suspended users, since it has no policy for accounting: {suspended}"
    kinds = host["slurm_conf"].get("AuthAltTypes") or []
    # No command of Slurm takes a token (JWT) back.
    if host["slurm_rest"]:
        yield (
            "rest: slurmrestd refuses suspended users, but with a token that they have already, Slurm's own commands "
            f"speak for them until it expires: {suspended}"
        )
    elif "auth/jwt" in ",".join(map(str, kinds if isinstance(kinds, list) else [kinds])).lower():
        yield (
            "AuthAltTypes has auth/jwt: tokens of suspended users are valid until they expire, or until jwt_key is "
            f"replaced: {suspended}"
        )


def closed_ports(host: RunHost) -> list[str]:
    """Lines about hosts of this play whose active firewall does not open the ports of Slurm; empty without any.

    slurm.conf has the collection's range of ports for srun unless the site sets another one.
    """
    opened = {name: host.of(name).facts["ufw"] for name in host.play_hosts}
    conf = {"SrunPortRange": SRUN_PORTS, **host["slurm_conf"]}
    warning = firewall_warning(opened, model(host) | {"slurm_conf": conf})
    return warning.split("\n") if warning else []
