# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the values of slurmctld come from: its own pages, or the program slurm-metrics (docs/design/metrics.md)."""

from __future__ import annotations

from typing import Literal

from ..known import registered, secret_sources
from ..known.platform import slurm_release
from ..known.platform_tables import NEWEST, RELEASES
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import is_controller, serving_controller, slurm_user
from . import jwt_keys

Source = Literal["program", "pages", "pages with tokens"]

HTTP_KEY = jwt_keys.host_path(jwt_keys.PAGES)
"""The key of the tokens for slurmctld's pages, on the controllers and on the host of Prometheus."""

USER = "prometheus"
"""The user of the tokens. The package of node-exporter makes it on every host."""


def source_of(host: RunHost, release: str) -> Source:
    """Where the values of slurmctld come from with a release of Slurm. One that is not known yet is the newest.

    During an upgrade, slurmctld must start without what site.yml installs for its pages.
    """
    monitoring, pages = host["slurm_monitoring"], RELEASES.get(release, RELEASES[NEWEST]).metrics
    if not monitoring or not pages or registered.SLURM_UPGRADES.get(host):
        return "program"
    if not has_private_data(host):
        return "pages"
    return "pages with tokens" if pages == "tokens" and monitoring["host"] else "program"


def has_private_data(host: RunHost) -> bool:
    """Whether slurm.conf has PrivateData: with profile strict, or from the site."""
    given = {str(key).lower(): value for key, value in host["slurm_conf"].items()}
    return bool(given["privatedata"] if "privatedata" in given else host["slurm_profile"] == "strict")


def has_other_tokens(host: RunHost) -> bool:
    """Whether commands of Slurm can use tokens, with another key: by the key `rest`, or by AuthAltTypes of the site."""
    return bool(host["slurm_rest"]) or any(
        str(name).lower() == "authalttypes" and value for name, value in host["slurm_conf"].items()
    )


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


def key_files(host: RunHost) -> list[HostFile]:
    """The key on a host that has it, for slurm_service; an empty one until the run has made it on the control host."""
    if not has_key(host):
        return []
    return [jwt_keys.file(host, jwt_keys.PAGES, slurm_user(host))]


def require_key(host: RunHost) -> None:
    """Raise ValueError if the control host has no key: the controllers of this run make it. Check mode makes none."""
    if not secret_sources.is_known(host, jwt_keys.PAGES) and not host.check_mode:
        path = secret_sources.path(host, jwt_keys.PAGES)
        raise ValueError(f"slurm_monitoring: {path} is missing; run site.yml without --limit")


def absent_key(host: RunHost) -> list[str]:
    """The path of the key on a controller that does not have it."""
    return [] if has_key(host) else [HTTP_KEY]
