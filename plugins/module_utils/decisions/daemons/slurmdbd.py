# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmdbd."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from ...cluster.render import slurm_conf
from ...configuration.conf_file import value_in
from ...formats.written import written
from ..known import registered, secret_sources
from ..known.daemon_records import has_record, is_unchanged, options_digest
from ..known.host_paths import CONF_DIR
from ..known.platform import packages_version, platform
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.site_database import certificate_files, has_server
from ..servers import rest
from ..values import defaults
from .host_packages import lacks_package

STORAGE_CONF = "slurmdbd_storage.conf"
"""The file with the password, which slurmdbd.conf includes."""


PRESENT_FILE = f"{CONF_DIR}/{STORAGE_CONF}"
"""The file of a host with the password of the database."""


@dataclass(frozen=True)
class SlurmdbdConfiguration:
    """Options of slurm_config for slurmdbd."""

    conf: str
    """The text of slurmdbd.conf."""
    secrets: dict[str, str]
    """The file with the password, in base64."""
    digest: str
    unchanged: bool
    """Whether the host has slurmdbd and its configuration as the last run has left them."""


@dataclass(frozen=True)
class SlurmdbdService:
    """Options of slurm_service for slurmdbd."""

    files: list[HostFile]
    digest: str
    wanted: bool
    """Whether slurmdbd is to be compared with them: a check does not compare a daemon that the run would start."""


@dataclass(frozen=True)
class SlurmdbdDatabase:
    """The database, and its user for slurmdbd."""

    name: str
    user: str
    password: str


@dataclass(frozen=True)
class DatabaseServer:
    """A server that the collection does not manage, as module slurm_database_server takes it."""

    host: str
    port: int
    user: str
    password: str
    name: str
    ca: str
    convert: bool


def server(host: RunHost) -> DatabaseServer:
    """This server."""
    given = host["slurm_database_server"]
    return DatabaseServer(
        host=given["host"],
        port=given["port"],
        user=given["user"],
        password=password(host),
        name=given["name"],
        ca=next((file["content"] for file in certificate_files(host)), ""),
        convert=may_convert(host),
    )


def has_new_database(host: RunHost) -> bool:
    """Whether slurmdbd of this host gets a database in this run, which knows neither the cluster nor its users."""
    if has_server(host):
        return not registered.SLURMDBD_SERVER.seen(host).get("release", "unknown")
    return bool(registered.SLURMDBD_DATABASE.seen(host).get("changed"))


def is_installed_later(host: RunHost) -> bool:
    """Whether this run installs slurmdbd on the database host, so that check mode has no accounts to compare."""
    database = host.of(host["slurm_database"]) if host["slurm_database"] else None
    return database is not None and database.answer() is not None and lacks_package(database, "slurmdbd")


def default_values(host: RunHost, release: str = "") -> dict[str, Any]:
    """Parameters of slurmdbd.conf, which a site's own slurmdbd_conf overrides; release: as of conf()."""
    return defaults.values(defaults.SLURMDBD, defaults.target(host, release, platform(host)))


def conf(host: RunHost, release: str = "") -> str:
    """The text of slurmdbd.conf.

    Args:
        host: the host of the database.
        release: a release to which Slurm is upgraded; without it, the release that the host has.
    """
    parameters = slurm_conf(default_values(host, release), host.option("slurmdbd", "slurmdbd_conf"))
    include = f"{CONF_DIR}/{STORAGE_CONF}"
    return host.text("slurmdbd", "slurmdbd.conf.j2", parameters=parameters, storage_conf=include)


def configuration_changes(host: RunHost) -> bool:
    """Whether slurmdbd.conf, which has no password, is not the one of the last run. Facts have it in rotate_keys."""
    present = host.facts["files"].get(f"{CONF_DIR}/slurmdbd.conf")
    return present is not None and present != hashlib.sha256(conf(host).encode()).hexdigest()


def password(host: RunHost) -> str:
    """The password of the database user.

    Raises:
        ValueError: the control host has no file with it. In check mode it may not exist yet.
    """
    return secret_sources.required(host, secret_sources.DATABASE, "slurmdbd_storage_pass_file").decode().rstrip()


def lacks_password(host: RunHost) -> bool:
    """Whether a task has to write the password on the control host."""
    return not secret_sources.is_known(host, secret_sources.DATABASE)


def lacks_secrets(host: RunHost) -> bool:
    """Whether a task has to write a secret for slurmdbd on the control host, or the key of tokens on this one."""
    return lacks_password(host) or (rest.has_key(host) and not rest.knows_key(host))


def salt(host: RunHost) -> str:
    """The munge key in base64, which keeps the password from being guessed from a checksum; empty without a key."""
    return base64.b64encode(secret_sources.secret(host, secret_sources.MUNGE) or b"").decode()


def configuration(host: RunHost) -> SlurmdbdConfiguration:
    """The files of slurmdbd."""
    text, secret, key = conf(host), password(host), salt(host)
    digest = options_digest([text, secret, key])
    # The file has the password as Slurm's parser reads it.
    line = f"StoragePass={written(secret, 'slurm')}\n"
    return SlurmdbdConfiguration(
        conf=text,
        secrets={STORAGE_CONF: base64.b64encode(line.encode()).decode()},
        digest=digest,
        unchanged=key != "" and has_record(host, "slurmdbd_config", digest) and service_is_unchanged(host),
    )


def unit_files(host: RunHost) -> list[HostFile]:
    """The settings of slurmdbd's unit, and the key of tokens."""
    settings = host.text("slurmdbd", "slurmdbd.service.j2")
    path = "/etc/systemd/system/slurmdbd.service.d/gpucluster-slurm.conf"
    certificates: list[HostFile] = [{**file, "restart": True} for file in certificate_files(host)]
    return [{"path": path, "content": settings, "loaded": False}, *certificates, *rest.key_files(host)]


def service_is_unchanged(host: RunHost) -> bool:
    """Whether the host has slurmdbd as the last run has left it."""
    return is_unchanged(host, "slurmdbd", options_digest(unit_files(host)))


def service(host: RunHost) -> SlurmdbdService:
    """How slurmdbd runs on this host."""
    files = unit_files(host)
    starts = "start" in (registered.SLURMDBD_CONFIG.seen(host).get("actions") or [])
    wanted = not service_is_unchanged(host) and not (host.check_mode and starts)
    return SlurmdbdService(files, options_digest(files), wanted)


def starts(host: RunHost) -> bool:
    """Whether this run may start slurmdbd anew."""
    return not (configuration(host).unchanged and service_is_unchanged(host))


def may_convert(host: RunHost) -> bool:
    """Whether slurmdbd may convert the database of an earlier release: in an upgrade, which saves a database of this
    host before, or where the user accepts it."""
    saves = bool(registered.SLURM_UPGRADES.get(host)) and not host["slurm_database_server"]
    return saves or host.flag("backup", "backup_convert")


def database(host: RunHost) -> SlurmdbdDatabase:
    """The database and its user, as slurmdbd.conf names them."""
    parameters = default_values(host) | host["slurmdbd_conf"]
    return SlurmdbdDatabase(str(parameters["StorageLoc"]), str(parameters["StorageUser"]), password(host))


def present_password(host: RunHost) -> str:
    """The password that a slurmdbd on the host has; empty without one."""
    content = registered.SLURMDBD_PRESENT.seen(host).get("content", "")
    text = base64.b64decode(content).decode(errors="surrogateescape")
    return value_in(text, STORAGE_CONF, "StoragePass")


def has_next_release(host: RunHost) -> bool:
    """Whether the host has the packages of the release to which upgrade.yml brings it."""
    return bool(packages_version(host) == registered.SLURM_UPGRADE_PLAN.of(host)["to"])
