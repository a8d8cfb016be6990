# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of a site that hosts run."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import programs
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.paths import HEALTH_PROGRAM
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost


def site_scripts(host: RunHost) -> dict[str, str]:
    """The scripts of the site that hosts run, by the words that messages have for them."""
    return programs.site_scripts(
        host["slurm_conf"], host["slurm_files"], host["slurm_prologs"], host["slurm_epilogs"], own_checks(host)
    )


def own_checks(host: RunHost) -> dict[str, str]:
    """The health checks of the site by name: those of all nodes, as role slurm_health makes them once."""
    if host["slurm_conf"].get("HealthCheckProgram", HEALTH_PROGRAM) != HEALTH_PROGRAM:
        return {}
    first = (host.members("slurm_compute") or [host.name])[0]
    paths = host.of(first).get("slurm_health_own_checks") or {}
    return {name: (host.content(path) or b"").decode(errors="replace") for name, path in paths.items()}
