# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmrestd: slurmrestd, the check of its tokens, and nginx on the host of the key `rest`."""

from __future__ import annotations

from collections.abc import Iterator

from ..known import secret_sources
from ..known.daemon_records import CleanupOptions, ServiceOptions
from ..known.host_paths import CONF_DIR, SCRIPTS_DIR
from ..known.platform import configured_plugins
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.program_files import library, library_directory
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import is_controller, slurm_user, source
from ..values import jwt_keys
from . import exporters, nginx
from .server import ServerRole, Services

ROLE = "slurmrestd"
UNITS = "/etc/systemd/system"
CHECK = "slurm-rest-auth"
PROGRAM = f"{SCRIPTS_DIR}/{CHECK}"
KEY = jwt_keys.host_path(jwt_keys.COMMANDS)
DIRECTORY = "/etc/gpucluster-slurm/rest"
"""The certificate."""

FRONT_CONF = "/etc/nginx/conf.d/gpucluster-rest.conf"


DAEMON_READS = ["/usr/sbin/slurmrestd", f"{CONF_DIR}/slurm.conf", "/run/slurm/conf/slurm.conf"]
"""Files that slurmrestd reads at its start: upgrade.yml changes the program, and sackd fetches slurm.conf."""


def is_served(host: RunHost) -> bool:
    """Whether slurmrestd runs on the host."""
    return bool(host["slurm_rest"]) and host.name == host["slurm_rest"]["host"]


def errors(host: RunHost) -> Iterator[str]:
    """What is wrong with the host, and with the files of the control host that the role's options name."""
    if not host.within("slurm_controller", "slurm_login"):
        yield (
            f"slurm_rest.host: found {host.name}, allowed: a controller or a login host, which have slurm.conf for "
            "slurmrestd"
        )
    yield from nginx.tls_errors(host, ROLE, "a port of this host alone, without TLS")


# -- the key of the tokens --------------------------------------------------------------------------------------------


def has_key(host: RunHost) -> bool:
    """Whether the host has the key: slurmctld, slurmdbd and the program in front of slurmrestd check tokens."""
    return bool(host["slurm_rest"]) and (is_controller(host) or is_served(host) or host.name == host["slurm_database"])


def knows_key(host: RunHost) -> bool:
    """Whether both the control host and the host have the key, so that no task need make it."""
    return secret_sources.is_known(host, secret_sources.COMMANDS) and KEY in host.facts["files"]


def key_files(host: RunHost) -> list[HostFile]:
    """The key for the service of a daemon, which reads it at its start alone."""
    if not has_key(host):
        return []
    return [jwt_keys.file(host, jwt_keys.COMMANDS, slurm_user(host)) | {"restart": True}]


# -- packages ---------------------------------------------------------------------------------------------------------


def packages(host: RunHost) -> list[str]:
    """The packages that the host needs for the key. Those of slurmrestd are those of the role."""
    plugin = source(host).packages["tokens_of_slurm"] if has_key(host) else ()
    purposes = ("rest_front", "tokens") if is_served(host) else ()
    return [*plugin, *(name for purpose in purposes for name in DISTRIBUTION_PACKAGES[purpose])]


def wanted_packages(host: RunHost) -> list[str]:
    """The same with those of the role."""
    return [*(source(host).packages[ROLE] if is_served(host) else ()), *packages(host)]


def all_packages(host: RunHost) -> list[str]:
    """The packages that only this key and `monitoring` need: of SchedMD's, slurm-smd is for all."""
    own = source(host)
    names = [*own.packages[ROLE], *own.packages["tokens_of_slurm"], *DISTRIBUTION_PACKAGES["tokens"]]
    return [name for name in dict.fromkeys(names) if name != own.version]


# -- slurmrestd, the check, nginx -------------------------------------------------------------------------------------


def daemon_files(host: RunHost) -> list[HostFile]:
    """The unit of slurmrestd."""
    return [{"path": f"{UNITS}/slurmrestd.service", "content": host.text(ROLE, "slurmrestd.service.j2")}]


def check_files(host: RunHost) -> list[HostFile]:
    """The program that checks tokens, its unit and the key.

    Raises:
        ValueError: the control host has no key: the controllers of this run make it. Check mode makes none.
    """
    if not secret_sources.is_known(host, jwt_keys.COMMANDS) and not host.check_mode:
        path = secret_sources.path(host, jwt_keys.COMMANDS)
        raise ValueError(f"slurm_rest: {path} is missing; run site.yml without --limit")
    unit = host.text(ROLE, "check.service.j2", program=PROGRAM, key=KEY, slurm_user=slurm_user(host))
    return [
        *key_files(host),
        *library(CHECK, {PROGRAM: "programs.rest_auth"}),
        {"path": f"{UNITS}/{CHECK}.service", "content": unit},
    ]


def listening(host: RunHost) -> str:
    """Where nginx listens: without TLS for programs of this host alone."""
    if host.flag(ROLE, "slurmrestd_tls"):
        return nginx.listening(host, ROLE)
    return f"127.0.0.1:{host.option(ROLE, 'slurmrestd_port')}"


def front_files(host: RunHost) -> list[HostFile]:
    """The configuration of nginx, and the certificate."""
    return nginx.front_files(host, ROLE, FRONT_CONF, DIRECTORY, listen=listening(host))


def services(host: RunHost) -> Services:
    """slurmrestd, the check, and nginx in front of them."""
    return {
        "slurmrestd": lambda: ServiceOptions(daemon_files(host), reads=DAEMON_READS),
        CHECK: lambda: ServiceOptions(check_files(host)),
        "nginx": lambda: nginx.service(front_files(host)),
    }


# -- what a host loses ------------------------------------------------------------------------------------------------


OWN_FILES = [f"{UNITS}/slurmrestd.service", f"{UNITS}/{CHECK}.service", PROGRAM, FRONT_CONF]
"""Files of the host of the key."""


def removal(host: RunHost) -> CleanupOptions:
    """What a host without slurmrestd loses. Daemons that check tokens keep key and plugin."""
    needed = [*packages(host), *exporters.packages(host), *configured_plugins(host)]
    own = CleanupOptions(
        services=["slurmrestd", CHECK],
        packages=[name for name in all_packages(host) if name not in needed],
        secrets=[] if has_key(host) else [KEY],
        files=OWN_FILES,
        directories=[DIRECTORY, library_directory(CHECK)],
    )
    return nginx.removal(host, FRONT_CONF, own)


SERVER_ROLE = ServerRole(
    role=ROLE,
    errors=errors,
    is_served=is_served,
    needed=wanted_packages,
    brought=all_packages,
    services=services,
    asked_files=[*OWN_FILES, KEY],
    useless=lambda host: [*([] if is_served(host) else OWN_FILES), *([] if has_key(host) else [KEY])],
    removal=removal,
)
