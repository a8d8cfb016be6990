# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx in front of other servers: certificate, address, and which of them on a host need it.

Their roles have the same options, ROLE_port, ROLE_tls, ROLE_certificate and ROLE_key, and a template front.conf.j2.
"""

from __future__ import annotations

import base64
import re
import ssl
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...cluster.keys import hosts_in
from ...cluster.named_files import VAULT
from ...formats.package_names import INSTALLED
from ..known.daemon_records import CleanupOptions, ServiceOptions
from ..known.packages import MANAGED
from ..known.public_files import option_errors, public_content
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import ip_addresses

GROUP = "www-data"
"""The group of nginx."""

WELCOME = "/etc/nginx/sites-enabled/default"
"""The welcome page of the distribution."""

RELOAD = ["systemctl", "reload", "nginx"]

FRONTS = ("slurm_report", "slurm_rest")
"""The keys whose removal removes nginx again; that of a registry stays."""

RECORD = f"{INSTALLED}/nginx"
"""Where nginx was installed for one of the keys."""


def service(files: list[HostFile], absent: Sequence[str] = ()) -> ServiceOptions:
    """How nginx runs with these files. A reload does not end the requests in progress."""
    return ServiceOptions(files, absent=[WELCOME, *absent], reload=RELOAD)


def is_front(host: RunHost) -> bool:
    """Whether the host has nginx for one of these keys."""
    return any(host.name == hosts_in(host[name]) for name in FRONTS)


def package_records(host: RunHost) -> list[HostFile]:
    """A file for nginx if this run installs it for these keys alone, so that their removal removes it again."""
    new = is_front(host) and "nginx" not in host.facts["packages"] and host.name != host["slurm_registry"]
    return [{"path": RECORD, "content": f"{MANAGED} Removed with the last of the keys report and rest.\n"}] * new


def stays(host: RunHost) -> bool:
    """Whether nginx goes on: the site has installed it, or something else of this collection needs it."""
    return RECORD not in host.facts["files"] or host.name == host["slurm_registry"] or is_front(host)


def removal(host: RunHost, configuration: str, own: CleanupOptions) -> CleanupOptions:
    """What a host loses with a server behind nginx: its own things, the configuration of nginx, maybe nginx itself."""
    goes, noted = not stays(host), RECORD in host.facts["files"]
    useless = noted and not goes and not is_front(host)  # the registry needs nginx from now on
    return replace(
        own,
        packages=[*own.packages, *(["nginx"] if goes else [])],
        secrets=[*own.secrets, *([RECORD] if useless else [])],
        kept={} if goes or configuration not in host.facts["files"] else {"nginx": configuration},
    )


def tls_errors(host: RunHost, role: str, without: str) -> Iterator[str]:
    """What is wrong with the certificate and its key on the control host.

    Args:
        host: the host of the key.
        role: the role with the options.
        without: what the host has without TLS.
    """
    if not host.flag(role, f"{role}_tls"):
        return
    certificate, key = (str(host.option(role, f"{role}_{name}")) for name in ("certificate", "key"))
    wrong = list(option_errors(host, role, f"{role}_certificate", "certificate"))
    yield from (f"{error}; or {role}_tls: false for {without}" for error in wrong)
    wrong_key = list(option_errors(host, role, f"{role}_key", "private key"))
    wrong_key += [] if wrong_key else mode_errors(f"{role}_key", Path(key))
    yield from wrong_key
    if not wrong and not wrong_key and not _is_pair(certificate, key):
        yield f"{role}_key: found {key}, which is not the key of {certificate}, allowed: the key of the certificate"


def is_self_signed(host: RunHost, role: str) -> bool:
    """Whether a server has a certificate that it makes itself, since the site gives none."""
    given = any(host.option(role, f"{role}_{name}") for name in ("certificate", "key"))
    return host.flag(role, f"{role}_tls") and not given


def certificate_command(host: RunHost, directory: str) -> list[str]:
    """The command with which a host makes its certificate and the key, which never leaves it.

    It is of use for ten years. The certificate comes last: with it, both are complete.
    """
    known = ip_addresses(host, [host.name])
    names = ",".join(
        dict.fromkeys(
            [
                f"DNS:{host.name}",
                *(f"DNS:{entry['name']}" for entry in known),
                *(f"IP:{entry['address']}" for entry in known),
            ]
        )
    )
    script = (
        'umask 077; install -d -m 0755 "$1" && cd "$1" && '
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
        '-nodes -days 3650 -subj "/CN=$2" -addext "subjectAltName=$3" -keyout tls.key -out tls.new && '
        "chmod 0644 tls.new && mv tls.new tls.crt"
    )
    return ["sh", "-c", script, "sh", directory, host.name, names]


def _is_pair(certificate: str, key: str) -> bool:
    """Whether a key belongs to a certificate, as far as that can be seen: either may be encrypted."""
    if any(Path(path).read_bytes().startswith(VAULT) for path in (certificate, key)):
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A password that is no password: OpenSSL would ask for one.
        context.load_cert_chain(certificate, key, password=b"")
    except ssl.SSLError as error:
        return error.reason != "KEY_VALUES_MISMATCH"
    return True


def mode_errors(name: str, path: Path) -> Iterator[str]:
    """What is wrong with the mode of a secret file on the control host."""
    mode = f"{stat.S_IMODE(path.stat().st_mode):o}"
    if not re.fullmatch("[0-7]00", mode):
        yield f"{name}: found {path} with mode {mode}, allowed: 600 or 400"


def front_files(
    host: RunHost, role: str, configuration: str, directory: str, /, listen: str = "", **values: Any
) -> list[HostFile]:
    """The files of nginx in front of a server: the certificate and its key in a directory, and the configuration.

    Without its parameter `listen`, nginx has the port of the role at all addresses. values: of the two templates.
    """
    tls = host.flag(role, f"{role}_tls")
    values = {"body_timeout": "10s", **values, "directory": directory, "tls": tls}
    first = host.text("slurm", "nginx_server.conf.j2", listen=listen or listening(host, role), **values)
    text = host.text(role, "front.conf.j2", server=first, **values)
    given = tls and not is_self_signed(host, role)
    return [*(tls_files(host, role, directory) if given else []), {"path": configuration, "content": text}]


def tls_files(host: RunHost, role: str, directory: str) -> list[HostFile]:
    """The certificate and its key, in a directory of the host, for slurm_service."""
    option = f"{role}_certificate"
    certificate = public_content(host, option, host.option(role, option), "certificate")
    path = host.option(role, f"{role}_key")
    key = host.content(path)
    if key is None:
        raise ValueError(f"{role}_key: {path} is missing")
    return [
        {"path": f"{directory}/tls.crt", "content": certificate},
        {"path": f"{directory}/tls.key", "secret": base64.b64encode(key).decode(), "mode": "0400"},
    ]


def listening(host: RunHost, role: str, name: str = "") -> str:
    """Where nginx listens (its parameter `listen`); name: of the host in the cluster file, if it has another one.

    The kernel may have no IPv6, and nginx would end with an error if its configuration listened there.
    """
    addresses = ip_addresses(host, [name or host.name])
    with_ipv6 = any(":" in entry["address"] for entry in addresses)
    port = host.option(role, f"{role}_port")
    return f"[::]:{port} ipv6only=off" if with_ipv6 else str(port)
