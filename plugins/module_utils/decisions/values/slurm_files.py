# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of Slurm that slurmctld reads and sends to the other hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ...cluster.job_scripts import job_scripts
from ...cluster.render import gres_lines
from ...cluster.render import slurm_conf as parameter_lines
from ...configuration.spank import plugstack_lines
from ...health.kernel_findings import CANDIDATE
from ..known import registered
from ..known.host_paths import CONF_DIR, HEALTH_PROGRAM, PYXIS_DIR, PYXIS_PLUGIN, PYXIS_PREVIOUS_LINE
from ..known.run_host import RunHost
from . import default_values, defaults, slurm_conf_values

OF_CLIENTS = ("cli_filter.lua", "plugstack.conf", "slurm.conf", "topology.conf")
"""Files that hosts without slurmctld and sackd need (client_config_files in Slurm's src/slurmctld/proc_req.c)."""


def files(host: RunHost, release: str = "") -> dict[str, str]:
    """The collection's own files and those of the site, by name.

    Args:
        release: of the Slurm that will read them, such as 24.11; that of the host if it is empty.
    """
    target = defaults.target(host, release or slurm_conf_values.own_release(host))
    texts = {
        "cgroup.conf": own_file(
            host,
            "cgroup.conf",
            parameters=parameter_lines(defaults.values(defaults.CGROUP, target), host["slurm_cgroup_conf"]),
        ),
        "gres.conf": own_file(host, "gres.conf", lines=gres_lines(host["slurm_nodes"], host["slurm_hardware_types"])),
        "plugstack.conf": own_file(host, "plugstack.conf", lines=plugstack_lines(spank_plugins(host))),
        "slurm.conf": slurm_conf_values.text(host, release),
    }
    gpu_map = target.holds(default_values.GPU_MAP)
    for stage, health in (("prolog", default_values.HEALTH_PROLOG), ("epilog", default_values.HEALTH_EPILOG)):
        scripts = job_scripts(host[f"slurm_{stage}s"], host["slurm_nodes"])
        parts = {"scripts": scripts, "gpu_map": gpu_map, "health": HEALTH_PROGRAM if target.holds(health) else ""}
        if any(parts.values()):
            # Between slashes, for awk.
            candidate = CANDIDATE.pattern.replace("/", r"\/")
            texts[f"slurm-{stage}"] = host.text(
                "slurmctld", "job_script.sh.j2", stage=stage, candidate=candidate, **parts
            )
    if parameters := defaults.values(defaults.JOB_CONTAINER, target):
        texts["job_container.conf"] = own_file(
            host, "job_container.conf", parameters=parameter_lines(parameters).rstrip()
        )
    return {**texts, **host["slurm_files"]}


def own_file(host: RunHost, name: str, **values: Any) -> str:
    """The text of a file that has a template of its name."""
    return host.text("slurmctld", f"{name}.j2", **values)


def listed(wanted: Mapping[str, str]) -> str:
    """Names and checksums of files, as slurm_config keeps them for the files in force."""
    return "\n".join(f"{checksum(text)} {name}" for name, text in sorted(wanted.items()))


def checksum(text: Any) -> str:
    """The checksum of a file's text (SHA-256)."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogateescape")).hexdigest()


def spank_plugins(host: RunHost) -> list[dict[str, Any]]:
    """The plugins of plugstack.conf. The line of role pyxis follows a site's own lines."""
    plugins: list[dict[str, Any]] = list(host["slurm_plugstack"])
    if "pyxis" in host["slurm_containers"]:
        required = host.flag("pyxis", "pyxis_required") and not pyxis_is_unverified(host)
        plugins.append({"plugin": PYXIS_PLUGIN, "arguments": pyxis_arguments(host), "required": required})
    return plugins


def pyxis_arguments(host: RunHost) -> list[Any]:
    """Arguments of the plugin, which imports images as files in its runtime path."""
    wanted: list[Any] = host.option("pyxis", "pyxis_arguments")
    named = any(str(argument).startswith("runtime_path=") for argument in wanted)
    return [*([] if named else [f"runtime_path={PYXIS_DIR}"]), *wanted]


def pyxis_is_unverified(host: RunHost) -> bool:
    """Whether no container has run with the plugin yet, so that its line is optional.

    Role pyxis asks for this in the same run, unless the run has none of its hosts; then the facts of the controller
    tell it. Check mode shows the line at the end.
    """
    if host.check_mode:
        return False
    asked = registered.PYXIS_RECORD.by_host(host, host.members("slurm_needs_container_plugins"))
    kept = next(iter(asked.values()), None)
    return kept["unproven"] if kept and "unproven" in kept else PYXIS_PREVIOUS_LINE in host.facts["files"]


def copies(host: RunHost) -> list[dict[str, str]]:
    """Files for a host without a daemon that fetches the configuration: `name`, `path` and `content`."""
    present = files(host)
    return [
        {"name": name, "path": f"{CONF_DIR}/{name}", "content": present[name]} for name in OF_CLIENTS if name in present
    ]


def stale_copies(host: RunHost) -> list[str]:
    """The paths of such files that the site does not have."""
    present = files(host)
    return [f"{CONF_DIR}/{name}" for name in OF_CLIENTS if name not in present]
