# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How old the secrets of a cluster are, for doctor and for the alert: the time of their files on hosts.

A file is replaced when its secret changes, and at no other time. So the oldest file of a secret tells since when
somebody may have read it, and a host that was made anew does not make it younger.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..host import munge
from ..known.host_paths import CONF_DIR
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts
from ..values import jwt_keys, slurmctld_metrics
from . import backup, registry


@dataclass(frozen=True)
class SecretHolders:
    """The hosts that have a secret, by its name. Read once, since there may be thousands of hosts."""

    holders: dict[str, frozenset[str]]
    max_age: int
    """The days after which a secret is old; 0 without a limit."""

    def files(self, name: str) -> dict[str, str]:
        """The files of a host that have a secret, by its name; none without a limit."""
        own = {secret: path for secret, path in FILES.items() if secret == MUNGE or name in self.holders[secret]}
        return own if self.max_age else {}


MUNGE = "munge"
"""All hosts have it."""

FILES = {
    MUNGE: munge.KEY,
    "slurmctld_http": jwt_keys.host_path(jwt_keys.PAGES),
    "jwt": jwt_keys.host_path(jwt_keys.COMMANDS),
    "database": f"{CONF_DIR}/slurmdbd_storage.conf",
    "registry": f"{registry.CONF_DIR}/upstream.env",
    "backup": f"{backup.DIRECTORY}/password",
}
"""By the name of a secret, its file on hosts."""


def max_age(host: RunHost) -> int:
    """The days after which a secret is old; 0 without a limit. With `-e` it is a text."""
    return int(host["slurm_secret_max_age"])


def holders(host: RunHost) -> SecretHolders:
    """Who has which secret."""
    controllers, database, registry = {*host["slurm_controllers"]}, host["slurm_database"], host["slurm_registry"]
    pages = slurmctld_metrics.cluster_source(host) == "pages with tokens"
    found = {
        "slurmctld_http": {*controllers, host["slurm_monitoring"].get("host")} if pages else set(),
        "jwt": {*controllers, database, host["slurm_rest"]["host"]} if host["slurm_rest"] else set(),
        "database": {database},
        "registry": {registry} if registry and has_upstream(host.of(registry)) else set(),
        "backup": {*backup_hosts(host)},
    }
    names = {secret: frozenset(name for name in those if name) for secret, those in found.items()}
    return SecretHolders(names, max_age(host))


def has_upstream(host: RunHost) -> bool:
    """Whether the registry of a host has a password for the registry behind it."""
    return bool(host.option("registry", "registry_upstream_username"))


def files(host: RunHost) -> dict[str, str]:
    """The files of this host that have a secret, by its name."""
    return holders(host).files(host.name)
