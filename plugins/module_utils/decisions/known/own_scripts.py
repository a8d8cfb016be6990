# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of a site that hosts run: those of slurm.conf, of jobs and of health checks; and what all users read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...cluster import programs
from ...cluster.named_files import content_error
from .host_paths import HEALTH_PROGRAM
from .run_host import RunHost


def site_scripts(host: RunHost) -> dict[str, str]:
    """The scripts of the site that hosts run, by the names that messages have for them."""
    checks = {name: script_text(host, path) for name, path in own_checks(host).items()}
    return programs.site_scripts(
        host["slurm_conf"], host["slurm_files"], host["slurm_prologs"], host["slurm_epilogs"], checks
    )


def own_checks(host: RunHost) -> dict[str, str]:
    """The files of the own health checks of the site by name."""
    checks: dict[str, str] = own_health_option(host, "slurm_health_own_checks", {})
    return checks


def own_health_option(host: RunHost, name: str, without: Any) -> Any:
    """A variable of role slurm_health; `without` if slurmd runs another program.

    It is that of all nodes, as role slurm_health makes its files once.
    """
    if host["slurm_conf"].get("HealthCheckProgram", HEALTH_PROGRAM) != HEALTH_PROGRAM:
        return without
    first = next(iter(host.members("slurm_compute")), host.name)
    return host.of(first).option("slurm_health", name)


def text_errors(host: RunHost) -> Iterator[str]:
    """Texts that hosts have for all users to read, with a secret."""
    texts = {f"slurm_files.{name}": text for name, text in host["slurm_files"].items()} | site_scripts(host)
    for name, text in texts.items():
        if error := content_error("script", str(text).encode(errors="surrogateescape")):
            yield f"{name}: found a text {error}"


def script_text(host: RunHost, path: str) -> str:
    """The text of a script on the control host. Bytes that are not UTF-8 are surrogates in it."""
    content = host.content(path)
    if content is None:
        raise ValueError(f"slurm_health_own_checks: {path} is missing")
    return content.decode(errors="surrogateescape")
