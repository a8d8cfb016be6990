# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role remove_nodes: what is removed from a host that leaves, and what the run says at its end.

The hosts that leave are no hosts of the cluster any more: the inventory plugin has put them into the group
slurm_leaving, and each may have failed, or not have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...language.hostlist import fold
from ..daemons import slurmctld, slurmd
from ..host import access, slurm_health
from ..known import registered
from ..known.daemon_records import CleanupOptions
from ..known.host_paths import SCRIPTS_DIR
from ..known.run_host import RunHost
from ..known.whole_cluster import is_controller, serving_controller, with_leaving
from ..run import preparation, stages
from ..run.preparation import hosts_marker
from ..servers import exporters, prometheus

SERVICES = (
    "slurmd",
    "sackd",
    "slurm-mig",
    "slurm-metrics-host.timer",
    "slurm-gpu-metrics.timer",
    "nvidia-imex",
    "munge",
)
SECRETS = (
    "/etc/munge/munge.key",
    "/etc/nvidia-imex/nodes_config.cfg",
    *(path for paths in exporters.WRITTEN.values() for path in paths),
)
FILES = (
    "/etc/apt/apt.conf.d/*gpucluster-*",
    "/etc/bash_completion.d/gpucluster-*",
    "/etc/cloud/cloud.cfg.d/*gpucluster-*",
    "/etc/enroot/*.d/*gpucluster*",
    "/etc/logrotate.d/gpucluster-*",
    "/etc/modprobe.d/gpucluster-*",
    "/etc/modules-load.d/gpucluster-*",
    "/etc/needrestart/conf.d/gpucluster-*",
    "/etc/profile.d/gpucluster-*",
    "/etc/sysctl.d/*gpucluster-*",
    "/etc/systemd/system/*.service.d/gpucluster-*",
    "/etc/systemd/system/slurm-*.service",
    "/etc/systemd/system/slurm-*.timer",
    "/etc/sysusers.d/gpucluster-*",
    "/etc/tmpfiles.d/gpucluster-*",
    "/etc/update-motd.d/*gpucluster-*",
    "/usr/local/bin/*",
    "/usr/local/sbin/slurm-*",
)
DIRECTORIES = (
    "/etc/gpucluster-slurm",
    # Without the keys in it, users of the cluster do not come in: its part of sshd's configuration stays.
    "/etc/ssh/people.keys.d",
    "/run/gpucluster-slurm",
    SCRIPTS_DIR,
)
"""What a compute node or login host has of this collection. Role storage unmounts, and role access restores sshd."""


@dataclass(frozen=True)
class EndOptions:
    """Options of slurm_removal for the end of the removal."""

    nodes: str
    cleaned: str
    addresses: dict[str, str]
    """Those of the hosts that are not clean, so that a later run of site.yml can name them."""


# -- which nodes leave ------------------------------------------------------------------------------------------------


def leaving(host: RunHost) -> list[str]:
    """The nodes that leave."""
    return host.members("slurm_leaving")


def nodes(host: RunHost) -> str:
    """The same as a hostlist."""
    return fold(leaving(host))


def cluster_file(host: RunHost) -> str:
    """The cluster file that names them, which the inventory plugin has read."""
    return str(host.of(leaving(host)[0])["slurm_cluster_file"])


# -- what else the run would change ----------------------------------------------------------------------------------


def _access(host: RunHost) -> bool:
    return access.differs(host, access.text_digests(host.shared("access_texts")))


def _health(host: RunHost) -> bool:
    wanted = slurm_health.digest(host)
    return host.facts["applied"].get("slurm_health", wanted) != wanted


def _slurmd(host: RunHost) -> bool:
    """Whether slurmd runs with other options. They are not known after a run that was killed in a removal."""
    if not (stages.runs_jobs(host) and slurmctld.configuration_changes(host.of(serving_controller(host)))):
        return False
    text = slurmd.common(host, slurmd.values_checksum(host))
    wanted = slurmd.digest(text, host.name in host.shared("mig_hosts"), is_controller(host))
    return host.facts["applied"].get("slurmd", wanted) != wanted


OTHER_CHANGES: Mapping[str, Callable[[RunHost], bool]] = {
    "packages, users or files of the system": preparation.is_needed,
    "firewall": stages.needs_firewall_rules,
    "storage": lambda host: stages.needs_storage(host) or stages.needs_file_server(host),
    "access": _access,
    "health check": _health,
    "options of slurmd": _slurmd,
    "monitoring": prometheus.has_other_options,
}
"""What the stages of remove_nodes change on hosts that stay. Module slurm_config checks Slurm's own files."""


def other_changes(host: RunHost) -> list[str]:
    """What is to be changed on hosts that stay and does not follow from the removal, a line each.

    A run that was killed has left hosts that are as the cluster file without the nodes says.
    """
    before, lines = with_leaving(host), []
    for what, differs in OTHER_CHANGES.items():
        names = [name for name in host.play_hosts if differs(host.of(name)) and differs(before.of(name))]
        lines += [f"{what}: {fold(names)}"] if names else []
    return lines


# -- what is removed from their hosts ---------------------------------------------------------------------------------


def cleanup(host: RunHost) -> CleanupOptions:
    """What is removed from a host that leaves."""
    return CleanupOptions(
        services=[*SERVICES],
        packages=exporters.all_packages(),
        secrets=[*SECRETS],
        files=[*FILES],
        directories=[*DIRECTORIES],
        parts=[{"path": "/etc/hosts", "marker": hosts_marker(host)}],
    )


def access_files(_host: RunHost) -> list[str]:
    """The files that decide who logs in, which the module slurm_access removes."""
    return access.paths()


# -- what became of the hosts -----------------------------------------------------------------------------------------


def _reachable(result: Mapping[str, Any]) -> bool:
    return not result.get("unreachable")


def unreached(host: RunHost) -> str:
    """The hosts that have not answered before the removal, as a hostlist."""
    results = registered.REMOVE_NODES_COMPARED.by_host(host, leaving(host))
    return fold([node for node, result in results.items() if not _reachable(result)])


def errors(host: RunHost) -> dict[str, str]:
    """The hosts that could not be cleaned, each with the reason."""
    return registered.REMOVE_NODES_ERROR.by_host(host, leaving(host))


def clean(host: RunHost) -> list[str]:
    """The hosts that are clean."""
    cleaned, failed = registered.REMOVE_NODES_CLEANED.by_host(host, leaving(host)), errors(host)
    return [node for node, result in cleaned.items() if _reachable(result) and node not in failed]


def unclean(host: RunHost) -> list[str]:
    """The hosts that are not: they were not reached, or something has failed there."""
    cleaned = clean(host)
    return [node for node in leaving(host) if node not in cleaned]


def recording_controllers(host: RunHost) -> list[str]:
    """The controllers that record which hosts are clean: each that was reached, since another one may serve later."""
    return [name for name in host["slurm_controllers"] if name in host.play_hosts] or [serving_controller(host)]


def end_options(host: RunHost) -> EndOptions:
    """What the controller keeps about the hosts."""
    addresses = {node: str(host.of(node).get("ansible_host", "")) for node in unclean(host)}
    return EndOptions(nodes(host), fold(clean(host)), addresses)


# -- what the run says ------------------------------------------------------------------------------------------------


def statistics(host: RunHost) -> dict[str, list[str]]:
    """The result of the playbook, for programs that run it."""
    return {"removed": leaving(host), "cleaned": clean(host), "not_cleaned": unclean(host)}


def _removed(host: RunHost) -> str:
    return f"Slurm {'would' if host.check_mode else 'does'} not have {nodes(host)} any more"


def report(host: RunHost) -> list[str]:
    """What was done, and what is left to do."""
    lines = [_removed(host)]
    if cleaned := clean(host):
        lines.append(
            f"{'To be cleaned' if host.check_mode else 'Cleaned'}: {fold(cleaned)}. These stay there: packages "
            "(Slurm's are held), accounts, logs, homes, data on local disks, MIG instances"
        )
    if others := unclean(host):
        lines.append(
            f"Not cleaned: {fold(others)}. They still have the munge key: clean them by hand (docs/admin/nodes.md), or "
            "rotate the key. Each run of site.yml names them until you confirm it"
        )
    lines += _unmount_messages(host)
    if not host.flag("remove_nodes", "remove_nodes_write"):
        lines.append(
            f"{cluster_file(host)} still names {nodes(host)}: change it as shown above, or run again with -e "
            "remove_nodes_write=true. Otherwise the next run of site.yml makes them nodes again"
        )
    return lines


def _unmount_messages(host: RunHost) -> list[str]:
    """What a person has to unmount, each once."""
    storage = registered.REMOVE_NODES_STORAGE.by_host(host, leaving(host)).values()
    return list(dict.fromkeys(message for result in storage for message in result.get("remarks") or []))


def failure(host: RunHost) -> str:
    """Which hosts could not be cleaned; empty if all were, or were not reached."""
    failed = "; ".join(f"{node}: {error}" for node, error in errors(host).items())
    return f"{_removed(host)}, and not all hosts are clean: {failed}. Run again when this is repaired" if failed else ""
