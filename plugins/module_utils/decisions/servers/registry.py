# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role registry: docker-registry, the check of logins, and nginx on the host of the key `registry`."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from ...formats.written import written
from ..known.daemon_records import ServiceOptions
from ..known.host_paths import SCRIPTS_DIR
from ..known.platform import has_package
from ..known.program_files import library
from ..known.public_files import option_errors, public_content
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from . import nginx
from .server import ServerRole, Services

CONF_DIR = "/etc/docker/registry"
FRONT_CONF = "/etc/nginx/conf.d/gpucluster-registry.conf"
UNIT_SETTINGS = "/etc/systemd/system/docker-registry.service.d/gpucluster-slurm.conf"
CLEAN_UNIT = "/etc/systemd/system/gpucluster-registry-clean"
TRUSTED = "/usr/local/share/ca-certificates/gpucluster-registry.crt"

SOCKET = "/run/docker-registry/socket"
"""docker-registry answers here; nginx passes the requests of the clients to it."""

CHECK = "slurm-registry-auth"
CHECK_SOCKET = f"/run/{CHECK}/socket"
PROGRAM = f"{SCRIPTS_DIR}/{CHECK}"

FORMATS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""The formats of images."""


def errors(host: RunHost) -> Iterator[str]:
    """What is wrong with the files of the control host that the options of the role name."""
    yield from nginx.tls_errors(host, "registry", "a registry without TLS")
    if host.option("registry", "registry_ca"):
        yield from option_errors(host, "registry", "registry_ca", "certificate")


def url(host: RunHost) -> str:
    """The address of the registry for its clients."""
    scheme = "https" if host.flag("registry", "registry_tls") else "http"
    return f"{scheme}://{host['registry_name']}:{host['registry_port']}"


def prefix(host: RunHost) -> str:
    """The registry in the names of its images, which is also what a user's credential is for."""
    name, port = host["registry_name"], int(host["registry_port"])
    return str(name) if port == 443 and host.flag("registry", "registry_tls") else f"{name}:{port}"


def authority_file(host: RunHost) -> HostFile:
    """The certificate of the authority that has signed that of the registry, for hosts that do not trust it yet."""
    return {"path": TRUSTED, "content": public_content(host, "registry_ca", host["registry_ca"], "certificate")}


def files(host: RunHost) -> list[HostFile]:
    """The configuration of docker-registry."""
    account = {name: host.option("registry", f"registry_upstream_{name}") for name in ("username", "password")}
    values = {name: written(value, "registry") if account["username"] else "" for name, value in account.items()}
    upstream = host.text("registry", "upstream.env.j2", **values).encode(errors="surrogateescape")
    unit = host.text("registry", "docker-registry.service.j2", directory=CONF_DIR, socket=SOCKET)
    return [
        {"path": f"{CONF_DIR}/config.yml", "content": host.text("registry", "config.yml.j2", socket=SOCKET)},
        {"path": UNIT_SETTINGS, "content": unit},
        {"path": f"{CONF_DIR}/upstream.env", "secret": base64.b64encode(upstream).decode(), "mode": "0400"},
    ]


def front_files(host: RunHost) -> list[HostFile]:
    """The configuration of nginx in front of docker-registry."""
    return nginx.front_files(
        host,
        "registry",
        FRONT_CONF,
        CONF_DIR,
        listen=nginx.listening(host, "registry", host["registry_name"]),
        body_timeout="60s",  # a client compresses a layer while it sends it
        check=CHECK_SOCKET,
        formats=", ".join(FORMATS),
        registry=prefix(host),
        socket=SOCKET,
    )


def auth_files(host: RunHost) -> list[HostFile]:
    """The program that tells nginx who may push, and its unit. Administrators are those of the key `access`."""
    unit = host.text(
        "registry",
        "auth.service.j2",
        administrators=host["slurm_access"].get("administrators", []),
        name=CHECK,
        program=PROGRAM,
        registry=prefix(host),
        socket=CHECK_SOCKET,
    )
    modules = library(CHECK, {PROGRAM: "programs.registry_auth"})
    return [*modules, {"path": f"/etc/systemd/system/{CHECK}.service", "content": unit}]


def cleaning_files(host: RunHost) -> list[HostFile]:
    """The timer that cleans up on schedule, and its service."""
    return [
        {
            "path": f"{CLEAN_UNIT}.service",
            "content": host.text("registry", "clean.service.j2", configuration=f"{CONF_DIR}/config.yml"),
        },
        {"path": f"{CLEAN_UNIT}.timer", "content": host.text("registry", "clean.timer.j2")},
    ]


def services(host: RunHost) -> Services:
    """docker-registry runs before nginx, which takes the port that docker-registry had without it."""
    front = {"nginx": lambda: nginx.service(front_files(host))}
    return {
        "docker-registry": lambda: ServiceOptions(files(host)),
        CHECK: lambda: ServiceOptions(auth_files(host)),
        **({} if host.check_mode and not has_package(host, "nginx") else front),
        "gpucluster-registry-clean.timer": lambda: ServiceOptions(cleaning_files(host)),
    }


# The images of a registry stay, and so does the rest of it.
SERVER_ROLE = ServerRole(
    role="registry",
    errors=errors,
    is_served=lambda _host: True,
    compared=lambda _host: ["docker-registry"],
    directories=lambda host: [
        {"path": host.option("registry", "registry_dir"), "owner": "docker-registry", "mode": "0750"}
    ],
    services=services,
)
