# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that exists, from what was found on its hosts: its cluster file with comments, and a table of the hosts.

A node whose slurmd reads files of its own would have to restart to be taken over, and a host that was not reached
cannot be. Such nodes are `unmanaged` in the cluster file: no play touches them until a person removes their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cluster import schema
from ..cluster.machine_types import is_there
from ..cluster.model import Document, ModelError, has_accounting, load
from ..cluster.schema import plain
from ..configuration.sources import Files
from ..language.formatting import align_columns, shown, visible
from ..language.hostlist import expand, fold
from ..nodes.first_cluster_file import host_failure, unknown_variables
from .cluster_files import Entry
from .comments import CHANGED, KEPT, Comment
from .local_files import Merged, merge
from .meaning_check import compare
from .translation import adopt

UNKNOWN = "unknown"
"""The value of `packages` that a person has to replace: site.yml refuses it."""

MANAGED = "/var/lib/gpucluster-slurm/good/slurm.conf"
"""The file in force of a cluster that site.yml manages."""

DISTRIBUTION_PACKAGE = "slurmctld"
"""The package of slurmctld of Debian and Ubuntu."""

USER_ID = 64030
"""The id of the user slurm of these packages (role slurm, slurm_user_id)."""

COLUMNS = ("host", "Slurm", "runs", "in this cluster", "site.yml")

_DAEMON = re.compile(r"^\d+ (?:\S*/)?(slurmctld|slurmdbd|slurmd|sackd)\b(.*)$", re.MULTILINE)

_SIZES = {"sockets": "sockets", "cores_per_socket": "cores of a socket", "threads_per_core": "threads of a core"}


def adoption_errors(choices: Mapping[str, Any], hosts: Sequence[str], given: Iterable[str]) -> list[str]:
    """The errors in the options of the playbook adopt, before any host is reached.

    Args:
        choices: its options by name, with their values.
        hosts: all hosts of the inventory.
        given: names of the variables that begin with `adopt_`.
    """
    errors = unknown_variables(given, choices)
    if not hosts:
        errors.append("the inventory has no hosts, allowed: -i controller,node1,node2, or -i FILE")
    controller = choices.get("adopt_controller")
    if controller and controller not in hosts:
        allowed = f"a host of the inventory, {fold([*hosts])}"
        errors.append(
            f"adopt_controller: found {shown(controller)}, {schema.unknown('host', controller, hosts, allowed)}"
        )
    return errors


def adoption_controller(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str], choice: str) -> str:
    """The host whose files are read: the chosen one, or else the first on which slurmctld runs.

    Raises:
        ValueError: slurmctld runs on none of the hosts, a host was not reached that may be the controller, or site.yml
            manages it already.
    """
    serving = [host for host in hosts if "slurmctld" in _find_daemons(hostvars[host])]
    unread = {host: failure for host in hosts if (failure := host_failure(hostvars[host]))}
    if choice in unread:
        raise ValueError(f"adopt_controller: {choice} was not read: {unread[choice]}")
    if unread and not serving:
        lines = [f"{host} was not read: {failure}" for host, failure in unread.items()]
        raise ValueError("\n".join([*lines, "slurmctld runs on none of the other hosts"]))
    if choice and choice not in serving:
        raise ValueError(
            f"adopt_controller: slurmctld does not run on {choice}; it runs on {fold(serving) or 'no host'}"
        )
    if not serving:
        raise ValueError("slurmctld runs on none of these hosts: the inventory needs the controller of the cluster")
    found = choice or serving[0]
    if MANAGED in (_read_fact(plain(hostvars[found]), "slurm_host").get("paths") or ()):
        raise ValueError(
            f"{found} belongs to a cluster of this collection, and {MANAGED} is there: use its cluster file"
        )
    return found


def adopted(
    hostvars: Mapping[str, Mapping[str, Any]],
    hosts: Iterable[str],
    controller: str,
    defaults: Mapping[str, Mapping[str, Any]],
) -> Entry:
    """The cluster file of a cluster that exists, with the comments about it.

    Args:
        hostvars: the results that the roles new_cluster (its task file look) and adopt have registered.
        hosts: the hosts in the order of the inventory.
        controller: the host whose files were read.
        defaults: the values that the collection sets by itself, by file and parameter; None for those that differ.

    Returns:
        `cluster`: the content of the file. `table`: lines about the hosts. `errors`: why the file is not valid.
        `comments`: what became of parameters that the file says otherwise. `differences`: what would change for Slurm.
        `unset`: what the collection would set for parameters that the cluster does not have, as texts.
        `blocks`: texts of `slurm_files` that can be written as they are.

    Raises:
        SourceError: a file cannot be read.
        ValueError: the version of Slurm is not known.
    """
    answer = plain(hostvars[controller]["__adopt_files"])
    version = answer["version"]
    results = {str(host): plain(hostvars[host]) for host in hosts}
    merged = _merge_files(answer["files"], results, version)
    adoption = adopt(merged.files, defaults, version)
    hosts_found = _find_hosts(adoption.cluster, results)
    accounting = plain(hostvars[controller].get("__adopt_accounting") or {})
    cluster = _add_keys_of_site(adoption.cluster, hosts_found.unmanaged, accounting)
    errors = _find_errors(cluster, adoption.problems)
    differences = [] if errors else compare(merged.files, adoption, defaults, version).differences
    tasks = [
        *_name_tasks(answer),
        *_name_other_controllers(cluster, controller, hosts_found),
        *_name_unread_files(hosts_found),
        *_name_unread_accounts(cluster, accounting),
        *(
            f"slurmctld has something else in force than its files say, until it reads them again: {line}"
            for line in answer["drift"]
        ),
        *(f"accounting: left out, and no run changes it: {line}" for line in accounting.get("left_out") or ()),
    ]
    return {
        "cluster": cluster if answer["package"] == DISTRIBUTION_PACKAGE else {**cluster, "packages": UNKNOWN},
        "table": _make_table(cluster, hosts_found),
        "errors": errors,
        "comments": [*map(visible, merged.comments), *_list_comments(adoption.comments)],
        "remarks": [*map(visible, tasks), *_compare_sizes(hosts_found)],
        "differences": [visible(str(difference)) for difference in differences],
        "unexplained": [visible(str(difference)) for difference in differences if not difference.reason],
        "unset": {key: _show_default(key, defaults) for key in adoption.unset},
        "blocks": [name for name, text in cluster.get("slurm_files", {}).items() if _is_block(text)],
    }


@dataclass(frozen=True)
class _Hosts:
    """The hosts of the inventory, and the nodes of the cluster file."""

    results: Mapping[str, Mapping[str, Any]]
    """What the tasks of each host have registered."""
    machines: Mapping[str, Mapping[str, Any]]
    """The machine type of each node."""
    absent: set[str]
    """Nodes that Slurm starts when it needs them."""
    unmanaged: list[str]
    """Nodes that would have to restart, or that were not reached."""

    def result_of(self, name: str) -> Mapping[str, Any]:
        """The results of a host; empty where the inventory does not have it."""
        return self.results.get(name, {})


def _merge_files(files: Files, results: Mapping[str, Mapping[str, Any]], version: str) -> Merged:
    """The files of the controller, with those that only nodes have."""
    answers = {host: result["__adopt_own"] for host, result in results.items() if "__adopt_own" in result}
    own_files = {host: answer for host, answer in answers.items() if "files" in answer}
    return merge(files, own_files, [host for host, result in results.items() if _fetches_files(result)], version)


def _find_hosts(cluster: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> _Hosts:
    """The hosts, and what becomes of the nodes."""
    machines = {
        host: cluster["hardware"][node["hardware"]] for node in cluster["nodes"] for host in expand(node["hosts"])
    }
    absent = {host for node in cluster["nodes"] if not is_there(node) for host in expand(node["hosts"])}
    unmanaged = [name for name in machines if name not in absent and not _fetches_files(results.get(name, {}))]
    return _Hosts(results, machines, absent, unmanaged)


def _add_keys_of_site(cluster: Mapping[str, Any], unmanaged: Iterable[str], accounting: Mapping[str, Any]) -> Entry:
    """The cluster file with the nodes that stay as they are, and with the accounts."""
    policy = {key: value for key, value in (accounting.get("policy") or {}).items() if value}
    return {
        **cluster,
        **({"unmanaged": fold([*unmanaged])} if unmanaged else {}),
        **({"accounting": policy} if policy else {}),
    }


def _find_errors(cluster: Entry, problems: Sequence[str]) -> list[str]:
    """Why the cluster file is not valid; the problems that are known come first."""
    try:
        load(Document("the cluster file", cluster))
    except ModelError as error:
        return [*problems, *(problem for problem in error.problems if problem not in problems)]
    return [*problems]


def _list_comments(comments: Iterable[Comment]) -> list[str]:
    """The texts of comments, those on what was left out first."""
    return [
        visible(str(comment)) for comment in sorted(comments, key=lambda comment: comment.effect in (KEPT, CHANGED))
    ]


def _name_unread_files(hosts: _Hosts) -> list[str]:
    """Lines about nodes whose own files were not read."""
    answers = {host: result.get("__adopt_own") or {} for host, result in hosts.results.items()}
    return [
        f"{host}: its own files were not read, and site.yml compares them when it takes over the node: {answer['msg']}"
        for host, answer in answers.items()
        if host in hosts.machines and "msg" in answer and "files" not in answer
    ]


def _name_unread_accounts(cluster: Mapping[str, Any], accounting: Mapping[str, Any]) -> list[str]:
    """A line about accounts that were not read."""
    if "policy" in accounting or not has_accounting(cluster):
        return []
    return [f"the accounts were not read, add them later (key accounting): {accounting.get('msg', 'no answer')}"]


def _compare_sizes(hosts: _Hosts) -> list[str]:
    """Lines about nodes of other sizes than slurm.conf has, equal ones of several nodes as one."""
    nodes: dict[str, list[str]] = {}
    for name, machine in hosts.machines.items():
        for difference in _compare_size(machine, hosts.result_of(name)):
            nodes.setdefault(difference, []).append(name)
    return [f"{fold(names)}: {difference}" for difference, names in nodes.items()]


def _name_tasks(found: Mapping[str, Any]) -> list[str]:
    """What a person has to do before site.yml runs."""
    tasks = []
    package = found["package"]
    if package != DISTRIBUTION_PACKAGE:
        source = f"comes from the package {package}" if package else "was not installed from a package"
        tasks.append(f"slurmctld {source}: replace '{UNKNOWN}' of the key packages by the source of these packages")
    if found["user_id"] not in (None, USER_ID):
        tasks.append(f"slurmctld runs with the user id {found['user_id']}: set slurm_user_id to it in group_vars")
    return tasks


def _name_other_controllers(cluster: Mapping[str, Any], controller: str, hosts: _Hosts) -> list[str]:
    """Lines about controllers whose files were not read: site.yml gives those that were read to all."""
    names = expand(cluster["controllers"])
    missing = [name for name in names if name not in hosts.results]
    running = [name for name in names if "slurmctld" in _find_daemons(hosts.result_of(name))]
    lines = [f"{name} is a controller, and is not in the inventory of this run: site.yml needs it" for name in missing]
    unread = {name: host_failure(hosts.results[name]) for name in names if name not in missing}
    lines += [f"{name} is a controller, and was not read: {failure}" for name, failure in unread.items() if failure]
    if len(running) > 1:
        lines.append(
            f"slurmctld runs on {fold(running)}, and the files of {controller} were read. site.yml gives them to all "
            "controllers, so the others must have the same (-e adopt_controller=HOST reads those of another one)"
        )
    return lines


def _find_daemons(found: Mapping[str, Any]) -> dict[str, str]:
    """Slurm's daemons on a host, with the arguments of each."""
    processes = plain(found.get("__new_cluster_processes") or {})
    return dict(_DAEMON.findall(str(processes.get("stdout", ""))))


def _fetches_files(found: Mapping[str, Any]) -> bool:
    """Whether slurmd of a host fetches its files from slurmctld, as site.yml would have it."""
    return "--conf-server" in _find_daemons(found).get("slurmd", "")


def _read_fact(found: Mapping[str, Any], name: str) -> Any:
    """A fact of a host; empty for a host that was not reached."""
    return ((found.get("__new_cluster_facts") or {}).get("ansible_facts") or {}).get(name) or {}


def _show_default(key: str, defaults: Mapping[str, Mapping[str, Any]]) -> str:
    """The value that the collection would set. Some follow from other parts of the cluster file."""
    value = next((values[key] for values in defaults.values() if key in values), None)
    if value is None:
        return "a value that follows from this file"
    return ",".join(value) if isinstance(value, list) else str(value)


def _compare_size(machine: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Where slurm.conf has other cores of a machine, or more memory. Slurm keeps the sizes that it had before."""
    hardware = _read_fact(found, "slurm_hardware")
    if not hardware:
        return []
    own = {**hardware, "sockets": hardware["sockets_per_board"] * hardware["boards"]}
    differences = [
        f"slurm.conf has {machine[key]} {name}, the machine has {own[key]}"
        for key, name in _SIZES.items()
        if own[key] != machine[key]
    ]
    memory = own["real_memory"]
    if memory and not memory * 0.8 <= machine["real_memory"] <= memory:
        differences.append(f"slurm.conf has RealMemory={machine['real_memory']}, the machine has {memory} MiB")
    return differences


def _is_block(text: str) -> bool:
    """Whether YAML can have a text as it is, in a block of lines."""
    return re.search(r"[^\n]\n\Z", text) is not None and all(char.isprintable() or char in "\n\t" for char in text)


def _make_table(cluster: Mapping[str, Any], hosts: _Hosts) -> list[str]:
    """A row for each host of the inventory and each node."""
    controllers = expand(cluster["controllers"])
    nodes = [host for node in cluster["nodes"] for host in expand(node["hosts"])]
    unreached = [name for name in nodes if name not in hosts.results]
    names = [*hosts.results, *(name for name in unreached if name in hosts.absent)]
    rows = [[*COLUMNS], *(_describe_host(name, controllers, hosts) for name in names)]
    missing = [name for name in unreached if name not in hosts.absent]
    if missing:
        rows.append([fold(missing), "-", "-", "compute node", "unmanaged: not in the inventory of this run"])
    return align_columns(rows)


def _describe_host(name: str, controllers: Sequence[str], hosts: _Hosts) -> list[str]:
    """The row of a host."""
    result = hosts.result_of(name)
    parts = ["controller"] * (name in controllers) + ["compute node"] * (name in hosts.machines)
    return [
        name,
        _read_fact(result, "slurm_host").get("slurm_version") or "-",
        ", ".join(_find_daemons(result)) or "-",
        ", ".join(parts) or "-",
        _describe_action(name, parts, hosts),
    ]


def _describe_action(name: str, parts: list[str], hosts: _Hosts) -> str:
    """What site.yml does with a host."""
    result = hosts.result_of(name)
    actions = ["manages the controller"] if "controller" in parts else []
    if name in hosts.absent:
        actions.append("leaves it to Slurm (State=CLOUD or FUTURE)")
    elif name in hosts.unmanaged:
        why = "slurmd does not run" if _read_fact(result, "slurm_host") else "not reached"
        actions.append(f"unmanaged: {'slurmd reads files of its own' if 'slurmd' in _find_daemons(result) else why}")
    elif "compute node" in parts:
        actions.append("manages the node: slurmd fetches its files already, and is not restarted")
    return ", ".join(actions) or "does not touch it: the cluster file does not name it"
