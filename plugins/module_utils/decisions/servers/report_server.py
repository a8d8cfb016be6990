# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_report: the program, its timer and nginx on the host of the key `report`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from ...cluster.render import host_addresses
from ...cluster.schema import ip_version
from ...configuration.ports import PROMETHEUS
from ...doctor.causes import reason_table
from ..known.daemon_records import CleanupOptions, ServiceOptions
from ..known.host_paths import KEPT_DIR, SCRIPTS_DIR
from ..known.program_files import library, library_directory
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, unloaded
from ..known.whole_cluster import ip_addresses, profile
from . import nginx
from .server import ServerRole, Services

ROLE = "slurm_report"
TIMER = "slurm-report.timer"
UNITS = "/etc/systemd/system"
SETTINGS = "/etc/gpucluster-slurm/report.json"
PROGRAM = "/usr/local/sbin/slurm-report"
LIBRARY = "slurm-report"
OLD_PROGRAM = f"{SCRIPTS_DIR}/slurm_report"
"""The directory of the program before it had a library."""
STATE = f"{KEPT_DIR}/report"
PAGES = f"{KEPT_DIR}/report-pages"
ACCESS = "/etc/gpucluster-slurm/report"
"""The password files and the certificate."""

FRONT_CONF = "/etc/nginx/conf.d/gpucluster-report.conf"

MINUTES = 5
"""The time between two pages."""

_ENTRY = re.compile(r"([^\s:#][^\s:]*):(\S+)")
_HASH = re.compile(r"\$(?:apr1|1|5|6|2[aby]|y)\$\S+|\{S?SHA\}\S+")
"""Hashes of passwords that nginx checks (`ngx_crypt`, crypt(3)). It takes {PLAIN} as well."""


DIRECTORIES = [
    {"path": STATE, "owner": "root", "mode": "0700"},
    {"path": PAGES, "owner": "root", "mode": "0755"},
    {"path": f"{PAGES}/admin", "owner": "root", "mode": "0755"},
]
"""The directories of the program. nginx, which is not root, enters that of the pages."""


def is_served(host: RunHost) -> bool:
    """Whether the host serves the page."""
    return bool(host["slurm_report"]) and host.name == host["slurm_report"]["host"]


# -- files of the control host ----------------------------------------------------------------------------------------


def errors(host: RunHost) -> Iterator[str]:
    """What is wrong with the host, and with the files of the control host that the key and the role's options name."""
    if not host.within("slurm_controller", "slurm_login"):
        yield (
            f"slurm_report.host: found {host.name}, allowed: a controller or a login host, since the page needs "
            "Slurm's commands"
        )
    if not nginx.is_self_signed(host, ROLE):
        yield from nginx.tls_errors(host, ROLE, "a page without TLS")
    if host["slurm_report"]["proxy"]:
        yield from _proxy_errors(host, str(host["slurm_report"]["proxy"]["address"]))
    if host["slurm_report"]["password_file"]:
        yield from _password_errors(host, host.flag(ROLE, "slurm_report_tls"))


def _proxy_errors(host: RunHost, found: str) -> Iterator[str]:
    """Why requests from this address say nothing of a user: users open connections from it, or it is no host's."""
    address = _plain_address(found)
    with_users = [*host.members("slurm_login"), *host.members("slurm_compute")]
    if address.is_loopback:
        reason = f"which all users of {host.name} have" if host.name in with_users else ""
    elif address.is_unspecified or address.is_multicast or address.is_reserved:
        reason = "which is the address of no host"
    else:
        owner = next((name for name in with_users if address in _addresses_of(host, name)), "")
        reason = f"which is the address of {owner}, whose users could give themselves any name" if owner else ""
    if reason:
        yield f"slurm_report.proxy.address: found {found}, {reason}, allowed: the address of a host without users"


def _addresses_of(host: RunHost, name: str) -> list[IPv4Address | IPv6Address]:
    """The addresses of a host, as far as the control host knows them without asking for its name."""
    known = [entry["address"] for entry in ip_addresses(host, [name])]
    return [_plain_address(text) for text in (*known, str(host.of(name).get("ansible_host", ""))) if ip_version(text)]


def _plain_address(text: str) -> IPv4Address | IPv6Address:
    """An address in its only form: IPv4 can be written as IPv6."""
    address = ip_address(text)
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _password_errors(host: RunHost, tls: bool) -> Iterator[str]:
    """The errors of the password file. They show no hash."""
    path = password_path(host)
    if not tls:
        yield "slurm_report.password_file: without slurm_report_tls everybody on the network could read the passwords"
    if path.is_file():
        yield from nginx.mode_errors("slurm_report.password_file", path)
    lines = password_lines(host)
    for number, line in lines.items():
        entry = _ENTRY.fullmatch(line)
        if not entry or not _HASH.fullmatch(entry[2]):
            yield (
                f"slurm_report.password_file: line {number} of {path} is no user with the hash of a password, as "
                "htpasswd(1) writes it"
            )
    known = {line.partition(":")[0] for line in lines.values()}
    if strange := [name for name in host["slurm_report"]["administrators"] if name not in known]:
        yield f"slurm_report.administrators: {', '.join(strange)} is not in {path}"


def password_path(host: RunHost) -> Path:
    """The password file, next to the cluster file."""
    return Path(host["slurm_cluster_dir"]) / str(host["slurm_report"]["password_file"])


def password_lines(host: RunHost) -> dict[int, str]:
    """The lines of the password file by their numbers, without empty ones and comments.

    Raises:
        ValueError: there is no such file.
    """
    content = host.content(str(password_path(host)))
    if content is None:
        raise ValueError(f"slurm_report.password_file: {password_path(host)} is missing")
    lines = content.decode(errors="replace").split("\n")
    return {number: line.strip() for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"}


# -- the program and its timer ----------------------------------------------------------------------------------------


def files(host: RunHost) -> list[HostFile]:
    """The timer, its service, and the program, of which the timer loads none."""
    known = {**settings(host, host.name), "interval": MINUTES * 60}
    own = {"pages": PAGES, "state": STATE, "program": PROGRAM, "group": nginx.GROUP, "cases": known["cases"]}
    others: list[HostFile] = [
        {"path": f"{UNITS}/slurm-report.service", "content": host.text(ROLE, "service.j2", **own)},
        *library(LIBRARY, {PROGRAM: "programs.slurm_report"}),
        {"path": SETTINGS, "content": json.dumps(known, indent=1, sort_keys=True) + "\n"},
    ]
    timer: HostFile = {"path": f"{UNITS}/{TIMER}", "content": host.text(ROLE, "timer.j2", minutes=MINUTES)}
    return [timer, *unloaded(others)]


def settings(host: RunHost, name: str) -> dict[str, Any]:
    """What the program knows: doctor's words, its host, the user of the collection's jobs, Prometheus, links, cases."""
    prometheus = prometheus_url(host)
    links = {"Prometheus": prometheus, "Dashboards": (host["slurm_report"] or {}).get("dashboards", "")}
    return {
        "cases": has_cases(host, name),
        "causes": reason_table(),
        "host": name,
        "job_user": profile(host).job_user,
        "prometheus": prometheus,
        "links": [{"title": title, "url": url} for title, url in links.items() if url],
    }


def has_cases(host: RunHost, name: str) -> bool:
    """Whether a host keeps cases of nodes that fail: it is a controller of a cluster with the key `repair`."""
    return bool(host["slurm_repair"]) and name in host["slurm_controllers"]


def page_url(host: RunHost) -> str:
    """The address of the page; empty without one."""
    name = str((host["slurm_report"] or {}).get("host") or "")
    if not name:
        return ""
    own = host.of(name)
    scheme, usual = ("https", 443) if own.flag(ROLE, "slurm_report_tls") else ("http", 80)
    port = int(own.option(ROLE, "slurm_report_port"))
    return f"{scheme}://{name}{'' if port == usual else f':{port}'}/"


def url_lines(host: RunHost) -> list[str]:
    """Where the page and Prometheus are."""
    urls = {"The page of the cluster": page_url(host), "Prometheus": prometheus_url(host)}
    return [f"{what}: {url}" for what, url in urls.items() if url]


def prometheus_url(host: RunHost) -> str:
    """The address of the Prometheus of the key `monitoring`; empty without one."""
    name = str((host["slurm_monitoring"] or {}).get("host") or "")
    known = {entry["name"]: entry["address"] for entry in host_addresses(host["slurm_addresses"], [name])}
    found = str(known.get(name, name))
    return f"http://{f'[{found}]' if ':' in found else found}:{PROMETHEUS}" if name else ""


# -- nginx ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PageAccess:
    """Who opens which page."""

    users: bool
    """Whether users have passwords."""
    header: str
    """nginx' variable of the header in which a proxy names the user; empty without a proxy."""
    proxy: str
    """The address of the proxy."""
    administrators: list[str]
    """For a proxy: expressions for the names of those who open the page for administrators. Else the names."""


def access(host: RunHost) -> PageAccess:
    """Who opens which page."""
    report = host["slurm_report"]
    proxy, names = report["proxy"], list(report["administrators"])
    header = proxy["header"].lower().replace("-", "_") if proxy else ""
    # Without an expression, nginx would compare without the case of letters, and has names with another meaning.
    expressions = [f"~^{re.escape(name)}$" for name in names]
    return PageAccess(
        users=bool(report["password_file"]),
        header=f"$http_{header}" if header else "",
        proxy=proxy["address"] if proxy else "",
        administrators=expressions if proxy else names,
    )


def front_files(host: RunHost) -> list[HostFile]:
    """The configuration of nginx, the password files, and the certificate."""
    found, cluster = access(host), host["slurm_cluster_name"]
    values: dict[str, Any] = {"access": asdict(found), "cluster": cluster, "directory": ACCESS, "pages": PAGES}
    front = nginx.front_files(host, ROLE, FRONT_CONF, ACCESS, **values)
    return [*(password_files(host) if found.users else []), *front]


def services(host: RunHost) -> Services:
    """The timer, and nginx. Each run makes the pages, also the first one, so that nginx has something to serve."""
    made = {"command": ["systemctl", "start", "slurm-report.service"]}
    unused = [] if access(host).users else [f"{ACCESS}/users", f"{ACCESS}/administrators"]
    return {
        TIMER: lambda: ServiceOptions(files(host), proof=made),
        "nginx": lambda: nginx.service(front_files(host), unused),
    }


def password_files(host: RunHost) -> list[HostFile]:
    """The users, and those of them who open the page for administrators. nginx reads them for each request."""
    lines = password_lines(host).values()
    names = {*host["slurm_report"]["administrators"]}
    few = [line for line in lines if line.partition(":")[0] in names]
    return [
        {"path": f"{ACCESS}/{name}", "secret": _encoded(own), "owner": nginx.GROUP, "mode": "0400", "loaded": False}
        for name, own in (("users", lines), ("administrators", few))
    ]


def _encoded(lines: Any) -> str:
    return base64.b64encode("".join(f"{line}\n" for line in lines).encode()).decode()


# -- what a host loses ------------------------------------------------------------------------------------------------


ASKED_FILES = [SETTINGS, FRONT_CONF, f"{UNITS}/{TIMER}", f"{OLD_PROGRAM}/__main__.py"]
"""Files by which a run sees what a host has of the key, also without it."""


def removal(host: RunHost) -> CleanupOptions:
    """What the host loses."""
    if is_served(host):
        return CleanupOptions(secrets=[], files=[], directories=[OLD_PROGRAM])
    own = CleanupOptions(
        services=[TIMER],
        secrets=[SETTINGS],
        files=[f"{UNITS}/{TIMER}", f"{UNITS}/slurm-report.service", PROGRAM, FRONT_CONF],
        directories=[ACCESS, OLD_PROGRAM, library_directory(LIBRARY), STATE, PAGES],
    )
    return nginx.removal(host, FRONT_CONF, own)


SERVER_ROLE = ServerRole(
    role=ROLE,
    errors=errors,
    is_served=is_served,
    directories=lambda _host: DIRECTORIES,
    certificate=lambda host: nginx.certificate_command(host, ACCESS) if nginx.is_self_signed(host, ROLE) else [],
    services=services,
    asked_files=ASKED_FILES,
    # A host that serves the page does not need the old program.
    useless=lambda host: ASKED_FILES[-1:] if is_served(host) else ASKED_FILES,
    removal=removal,
)
