# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nvidia_mig."""

from __future__ import annotations

import json
from typing import Any

from ...client.drains import MIG
from ...cluster.render import mig_gres
from ..known import registered
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file, unloaded

MARK = "# Managed by gpucluster.slurm (role nvidia_mig): changes here are overwritten."

UNIT = f"""{MARK}
[Unit]
Description=MIG instances of NVIDIA GPUs
After=nvidia-persistenced.service
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/slurm-mig

[Install]
WantedBy=multi-user.target
"""


DRAIN_REASON = MIG
"""Why the role drains nodes. By it the role knows the nodes that it has drained."""


def declared(host: RunHost) -> list[str]:
    """The hosts that have MIG instances in the cluster file. A run asks this once for all hosts."""
    return list(mig_gres(host["slurm_nodes"], host["slurm_hardware_types"]))


def gres(host: RunHost) -> list[Any]:
    """The GPUs of this host, if it has MIG instances."""
    return list(mig_gres(host["slurm_nodes"], host["slurm_hardware_types"]).get(host.name, []))


def hosts_with_mig(host: RunHost) -> list[str]:
    """The hosts of this play that have MIG instances."""
    names = {*registered.NVIDIA_MIG_DECLARED.of(host)}
    return sorted((name for name in host.play_hosts if name in names), key=str.lower)


def pending(host: RunHost) -> list[str]:
    """The hosts of this play whose instances differ from the declared ones."""
    return [name for name in hosts_with_mig(host) if registered.NVIDIA_MIG_COMPARED.of(host.of(name))["gpus"]]


def known(host: RunHost) -> list[str]:
    """The nodes to change that Slurm knows. Others have no jobs, and cannot be drained."""
    names = {*registered.NVIDIA_MIG_SLURM.of(host)["stdout_lines"]}
    return sorted((name for name in host["nvidia_mig_pending"] if name in names), key=str.lower)


def makes_service(host: RunHost) -> bool:
    """Whether the host gets the service that makes the instances at each boot.

    Its start makes the instances, so check mode has nothing to compare where they differ.
    """
    if host.name not in hosts_with_mig(host) or not registered.NVIDIA_MIG_COMPARED.of(host)["driver"]:
        return False
    return not (host.check_mode and host.name in host["nvidia_mig_pending"])


def resumes(host: RunHost) -> bool:
    """Whether nodes are resumed.

    In check mode this run has drained no node, and Slurm may not know the nodes.
    """
    hosts = hosts_with_mig(host)
    if not hosts or not host.check_mode:
        return bool(hosts)
    return not host["nvidia_mig_pending"] and {*hosts} <= {*registered.NVIDIA_MIG_SLURM.of(host)["stdout_lines"]}


def files(host: RunHost) -> list[HostFile]:
    """A small program that makes the instances when the host boots. Another version of it has nothing to do now."""
    program = library("slurm-mig", {"/usr/local/sbin/slurm-mig": "programs.mig_boot"}, MARK)
    return [
        *unloaded(program),
        plain_file("/etc/gpucluster-slurm/mig.json", json.dumps(gres(host), indent=4, sort_keys=True) + "\n"),
        plain_file("/etc/systemd/system/slurm-mig.service", UNIT),
    ]
