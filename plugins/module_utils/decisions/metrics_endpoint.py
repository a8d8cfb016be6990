# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the values of slurmctld come from: its own pages, or the program slurm-metrics (docs/design/metrics.md)."""

from __future__ import annotations

import base64
from typing import Any, Literal

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.cluster import (
    is_controller,
    serving_controller,
    slurm_user,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.platform import slurm_release
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.platforms import NEWEST, RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost

Source = Literal["program", "pages", "pages with tokens"]

HTTP_KEY = "/etc/gpucluster-slurm/slurmctld_http.key"
"""The key of the tokens for slurmctld's pages, on the controllers and on the host of Prometheus."""

USER = "prometheus"
"""The user of the tokens. The package of node-exporter makes it on every host."""


def source_of(host: RunHost, release: str) -> Source:
    """Where the values of slurmctld come from with a release of Slurm. One that is not known yet is the newest.

    During an upgrade, slurmctld must start without what site.yml installs for its pages.
    """
    monitoring, pages = host["slurm_monitoring"], RELEASES.get(release, RELEASES[NEWEST]).metrics
    if not monitoring or not pages or host.get("__slurm_upgrades"):
        return "program"
    if not has_private_data(host):
        return "pages"
    return "pages with tokens" if pages == "tokens" and monitoring["host"] else "program"


def has_private_data(host: RunHost) -> bool:
    """Whether slurm.conf has PrivateData: with profile strict, or from the site."""
    given = {str(key).lower(): value for key, value in host["slurm_conf"].items()}
    return bool(given["privatedata"] if "privatedata" in given else host["slurm_profile"] == "strict")


def has_other_tokens(host: RunHost) -> bool:
    """Whether the site lets commands of Slurm use tokens (AuthAltTypes), with a key of its own."""
    return any(str(name).lower() == "authalttypes" and value for name, value in host["slurm_conf"].items())


def known_release(host: RunHost) -> str:
    """The release of the cluster, as the serving controller or another one has said it; empty if none has answered."""
    names = dict.fromkeys([serving_controller(host), *host["slurm_controllers"]])
    controllers = [host.of(name) for name in names if name in host["groups"]["all"]]
    return next((slurm_release(found) for found in controllers if found.answer() is not None), "")


def cluster_source(host: RunHost) -> Source:
    """Where the values of slurmctld come from in this cluster."""
    return source_of(host, known_release(host))


# -- the key of the tokens --------------------------------------------------------------------------------------------


def has_key(host: RunHost) -> bool:
    """Whether the host has the key: a controller checks tokens, and the host of Prometheus makes them."""
    user = is_controller(host) or host.name == host["slurm_monitoring"].get("host")
    return user and cluster_source(host) == "pages with tokens"


def key_path(host: RunHost) -> str:
    """The file on the control host that has the key."""
    return f"{host['slurm_secrets_dir']}/slurmctld_http.key"


def key_files(host: RunHost) -> list[dict[str, Any]]:
    """The key on a host that has it, for slurm_service; an empty one until the run has made it on the control host."""
    if not has_key(host):
        return []
    secret = base64.b64encode(host.content(key_path(host)) or b"").decode()
    return [{"path": HTTP_KEY, "secret": secret, "owner": slurm_user(host), "mode": "0400"}]


def require_key(host: RunHost) -> None:
    """Raise ValueError if the control host has no key: the controllers of this run make it. Check mode makes none."""
    if host.content(key_path(host)) is None and not host.check_mode:
        raise ValueError(f"slurm_monitoring: {key_path(host)} is missing; run site.yml without --limit")


def absent_key(host: RunHost) -> list[str]:
    """The path of the key on a controller that does not have it."""
    return [] if has_key(host) else [HTTP_KEY]


def known_key(host: RunHost) -> str:
    """The key that a controller of this play has, in base64; empty if none has it.

    A control host without the key, such as another administrator's, gets it from there.
    """
    found = [(host.of(name).get("__slurm_metrics_present") or {}).get("content") for name in host.play_hosts]
    return next((content for content in found if content is not None), "")
