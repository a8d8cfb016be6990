# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role doctor: who is examined, and what follows from the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...doctor import diagnosis
from ..host import updates
from ..known import registered
from ..known.run_host import RunHost


def server_facts(host: RunHost) -> dict[str, dict[str, Any]]:
    """The facts of the controllers and the database host. A host outside of --limit has none."""
    servers = [*host.members("slurm_controller"), *host.members("slurm_database")]
    return registered.DOCTOR_SERVER_FACTS.by_host(host, servers)


def node_facts(host: RunHost) -> dict[str, dict[str, Any]]:
    """The facts of the hosts of the nodes that are not well."""
    return registered.DOCTOR_NODE_FACTS.by_host(host, host.members("slurm_needs_doctor"))


def serving(host: RunHost) -> str:
    """The controller that serves; empty if none answers."""
    servers = server_facts(host)
    return next((name for name, facts in servers.items() if facts.get("cluster", {}).get("answers")), "")


def sick_nodes(host: RunHost) -> list[dict[str, Any]]:
    """What the serving controller says of the nodes that are not well, if the inventory has them.

    A node that Slurm names and the inventory does not is a finding.
    """
    known = {*host["groups"]["all"]}
    return [node for node in _answer(host).get("nodes", []) if node["name"] in known]


def node_options(host: RunHost) -> dict[str, Any]:
    """What the serving controller says of all nodes, for the module slurm_doctor_node_info."""
    return dict(_answer(host)["node_options"])


def _answer(host: RunHost) -> Mapping[str, Any]:
    """The answer of the serving controller; empty if none answers."""
    return server_facts(host).get(serving(host), {})


def conclusions(host: RunHost) -> dict[str, Any]:
    """The diagnosis: findings, their table, and the safe repairs."""
    return diagnosis.diagnosis(
        server_facts(host),
        node_facts(host),
        host["groups"]["all"],
        host.members("slurm_controller"),
        host.members("slurm_database"),
        _repairs(host),
    )


def _repairs(host: RunHost) -> str:
    """A text about what becomes of the repairs."""
    if not host.flag("doctor", "doctor_repair"):
        return "-e doctor_repair=true does this"
    return "a run without --check does this" if host.check_mode else "this run has done it"


def failures(host: RunHost) -> list[str]:
    """The repairs that have failed, as texts."""
    repaired = [*host.members("slurm_needs_daemons"), *host.members("slurm_needs_resume")]
    results = [one for name in repaired for one in registered.DOCTOR_REPAIRED.seen(host.of(name)).get("results", [])]
    return [f"a repair has failed: {one['msg']}" for one in results if one.get("failed")]


def report(host: RunHost) -> list[str]:
    """The findings, the repairs that have failed and the pending updates, in lines."""
    found = registered.DOCTOR_FOUND.of(host)["table"] or ["All nodes and daemons are well."]
    return [*found, *failures(host), *updates.report(host)]


def result(host: RunHost) -> dict[str, Any]:
    """What the playbook returns and writes."""
    found = registered.DOCTOR_FOUND.of(host)
    return {
        **{key: found[key] for key in ("ok", "answers", "findings")},
        "repaired": host.flag("doctor", "doctor_repair") and not host.check_mode,
        "failures": failures(host),
        "updates": updates.result(host),
    }
