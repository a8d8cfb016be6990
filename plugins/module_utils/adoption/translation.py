# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the files of a cluster that exists to a cluster file that means the same.

Nothing is dropped silently: each parameter is in the cluster file, or a comment names it, with its file and line. The
cluster file is neutral: a value that the collection would set, and that the files do not have, is taken away with null,
so that the cluster stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster import keys, render, schema
from ..cluster.model import Document, ModelError, load
from ..configuration import parameters
from ..configuration.sources import Files, other_files, whole_text
from ..language.hostlist import expand
from .cluster_files import ClusterFiles, Entry
from .comments import KEPT, LEFT_OUT, Comment, merge_comments
from .controllers import find_addresses, find_controllers, use_names_of_nodes
from .file_settings import translate_settings, unset_defaults
from .node_entries import drop_resource_types, translate_nodes
from .partition_entries import translate_partitions


@dataclass
class Adoption:
    """A cluster file, and the comments about it."""

    cluster: Entry
    """The content of the cluster file."""
    comments: list[Comment]
    unset: list[str]
    """Parameters of slurm.conf and cgroup.conf that the collection would set and the cluster does not have."""
    problems: list[str]
    """What the model finds wrong in the cluster file: a person has to correct it."""


def adopt(files: Files, defaults: Mapping[str, Iterable[str]], version: str) -> Adoption:
    """The cluster file of a cluster.

    Args:
        files: its files, `slurm.conf` and others.
        defaults: the names of the parameters that the collection sets by itself, by file.
        version: of its Slurm, such as 24.11.5.

    Raises:
        SourceError: a file cannot be read, or the cluster has no name or no controller.
        ValueError: the version is not known.
    """
    source = ClusterFiles(files, version)
    conf = translate_settings(source, "slurm.conf", schema.SLURM_CONF)
    controllers = find_controllers(source)
    hardware, nodes = translate_nodes(source)
    node_names = [host for node in nodes for host in expand(node["hosts"])]
    hosts = use_names_of_nodes(source, controllers.hosts, node_names)
    partitions = translate_partitions(source, node_names, conf)
    drop_resource_types(source, conf, hardware)
    unset = unset_defaults(conf, (*defaults["slurm.conf"], *render.DERIVED))
    cgroup_conf = translate_settings(source, "cgroup.conf", schema.CGROUP_CONF)
    unset += unset_defaults(cgroup_conf, defaults["cgroup.conf"])
    _comment_on_accounting(source)
    cluster: Entry = {
        "plugin": keys.PLUGIN,
        "name": controllers.cluster,
        "controllers": ",".join(hosts),
        "hardware": hardware,
        "nodes": nodes,
        "partitions": partitions,
        "addresses": find_addresses(source, hosts, controllers.addresses, nodes),
        "slurm_conf": conf,
        "cgroup_conf": cgroup_conf,
        "plugstack": _translate_plugstack(source),
        "slurm_files": _keep_other_files(source, conf),
    }
    problems, kept = _check(cluster)
    _comment_on_kept(source, kept)
    _comment_on_spool(source, conf, kept)
    cluster["taken_over"] = [*kept]
    needed = ("plugin", "name", "controllers", "nodes", "partitions")
    cluster = {key: value for key, value in cluster.items() if value or key in needed}
    return Adoption(cluster, merge_comments(source.comments), unset, problems)


def _check(cluster: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The problems of a cluster file, and by key the values that a new cluster could not have, which it keeps."""
    problems: list[str] = []
    kept: list[tuple[str, str]] = []
    try:
        load(Document("the cluster file", {**cluster, "taken_over": [*schema.TAKEN_OVER]}), warnings=kept)
    except ModelError as error:
        problems = error.problems
    first = dict(reversed(kept))
    return problems, {key: first[key] for key in schema.TAKEN_OVER if key in first}


def _comment_on_kept(source: ClusterFiles, kept: Mapping[str, str]) -> None:
    """Name the values that a new cluster could not have."""
    for key, text in kept.items():
        table, name = key.split(".")
        file = "cgroup.conf" if table == "cgroup_conf" else "slurm.conf"
        name = "NodeAddr" if table == "nodes" else name
        lines = [line for line in source.lines[file] for given, _value in line.pairs if given.lower() == name.lower()]
        source.add_comment(KEPT, lines[-1] if lines else file, name, text, file)


def _comment_on_accounting(source: ClusterFiles) -> None:
    """Say what stays with the site though the collection could have a part in it."""
    for line in source.lines["slurm.conf"]:
        for key, value in line.pairs:
            if key.lower() == "accountingstoragetype" and value.lower().endswith("slurmdbd"):
                why = "slurmdbd and its database stay as they are; the key database would let site.yml manage them"
                source.add_comment(KEPT, line, "AccountingStorageType", why, "slurm.conf")


def _comment_on_spool(source: ClusterFiles, conf: Mapping[str, Any], kept: Mapping[str, str]) -> None:
    """Advise another directory, which a change on a running cluster cannot give: its jobs would end."""
    named = "slurm_conf.SlurmdSpoolDir" in kept
    if not named and conf.get("SlurmdSpoolDir") and conf["SlurmdSpoolDir"] == conf.get("StateSaveLocation"):
        why = "StateSaveLocation is the same directory; a new cluster would have two"
        source.add_comment(KEPT, "slurm.conf", "SlurmdSpoolDir", why, "slurm.conf")


def _translate_plugstack(source: ClusterFiles) -> list[Entry]:
    """The SPANK plugins, in their order."""
    entries: list[Entry] = []
    for line in source.lines["plugstack.conf"]:
        requirement, rest = line.pairs[0]
        plugin, *arguments = rest.split() or [""]
        if requirement.lower() not in ("required", "optional") or not plugin:
            source.add_comment(
                LEFT_OUT, line, requirement, "allowed: required or optional, and a plugin", "plugstack.conf"
            )
        elif plugin in (entry["plugin"] for entry in entries):
            source.add_comment(LEFT_OUT, line, plugin, "it is there twice", "plugstack.conf")
        else:
            entry = {"plugin": plugin, **({"arguments": arguments} if arguments else {})}
            entries.append({**entry, "required": True} if requirement.lower() == "required" else entry)
    return entries


def _keep_other_files(source: ClusterFiles, conf: Mapping[str, Any]) -> dict[str, str]:
    """Files that are kept as they are, with what they include."""
    programs = [conf.get(key) or [] for key in ("Prolog", "Epilog")]
    scripts = [path for value in programs for path in (value if isinstance(value, list) else [value])]
    texts: dict[str, str] = {}
    for name in other_files(source.files):
        unread = parameters.unread_files([name], source.version)
        if unread:
            source.add_comment(LEFT_OUT, name, name, unread[0].text, name)
        elif name in parameters.SITE_FILES or name in scripts:
            texts[name] = whole_text(source.files, name)
        else:
            source.add_comment(LEFT_OUT, name, name, "Slurm reads no file of this name next to slurm.conf", name)
    return texts
