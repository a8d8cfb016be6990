# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs where an image is built (`slurm_image: build`) instead of a host that runs (docs/design/images.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .run_host import RunHost

MODULE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "nvidia_driver": {"start": False},
    "slurm_access": {"start": False},
    "slurm_packages": {"hold_services": True},
    "slurm_service": {"start": False},
    "slurm_storage": {"start": False},
}
"""Options of modules that else start something. The control host sets them (plugins/action/image_options.py)."""

STAGES = (
    "preparation",
    "packages",
    "copied_packages",
    "driver",
    "container_plugins",
    "containers",
    "registry",
    "storage",
)
"""The stages that follow from the host's own answer (stages.py) and have work in an image."""


def builds(host: RunHost) -> bool:
    """Whether an image is built, so that nothing is measured, asked of a controller, or started."""
    return bool(host["slurm_image"] == "build")


def setting_errors(host: RunHost) -> list[str]:
    """Why the variable is refused: another playbook would leave hosts without daemons, key and people."""
    if not builds(host):
        return []
    return [
        "slurm_image: found build, allowed for a whole cluster: nothing. Leave it out: image.yml sets it for its host, "
        "and a play of your own can set it for single roles"
    ]


# -- what the host is not asked --------------------------------------------------------------------------------------


def unasked(host: RunHost) -> dict[str, Any]:
    """The options of slurm_host_facts about a running host and its cluster, switched off; none for a host that runs."""
    if not builds(host):
        return {}
    lists = ("policy_users", "directory_users", "programs", "filesystems")
    return {"serving_controller": False, "hardware": False, "mounts": {}, **{name: [] for name in lists}}


def is_measured(host: RunHost) -> bool:
    """Whether the image has what measures its hosts: not that of the host of Prometheus, whose files have secrets."""
    monitoring = host["slurm_monitoring"]
    return bool(monitoring) and monitoring["host"] != host.name
