# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role slurm_metrics: Prometheus and alertmanager, the services of a host together, and what a host loses.

With targets_only, the same files are written on the control host, for the Prometheus of the site.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...configuration.ports import ALERTMANAGER, NODE_EXPORTER, PROMETHEUS
from ...formats.package_names import INSTALLED
from ...host.program_library import LIBRARY
from ..known import secret_sources
from ..known.daemon_records import CleanupOptions, ServiceOptions, options_digest
from ..known.packages import MANAGED
from ..known.platform import configured_plugins
from ..known.run_host import RunHost
from ..known.shipped_files import ROLES, HostFile, role_file, unloaded
from ..known.whole_cluster import SLURMCTLD_PORT, is_controller
from ..values import slurmctld_metrics
from . import alertmanager, exporters, rest
from .exporters import (
    EXPORTER,
    EXPORTER_SETTINGS,
    LINES_TIMER,
    PROGRAMS,
    ROLE,
    SETTINGS,
    UNITS,
    WRITTEN,
    MeasuredCluster,
    Timer,
    address,
    all_packages,
    digests,
    is_measured,
    listen,
    measured_cluster,
    names,
    program_files,
    sampler_units,
    service_files,
    timer_files,
    wanted_packages,
)
from .server import ServerRole, Services

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import HostFact

DIRECTORY = "/etc/gpucluster-slurm/prometheus"
CONFIGURATION = f"{DIRECTORY}/prometheus.yml"
RECEIVERS = f"{DIRECTORY}/alertmanager.yml"
TOKEN = f"{DIRECTORY}/slurmctld.token"

SERVER, ALERTS, TOKEN_TIMER = "prometheus", "prometheus-alertmanager", "slurm-metrics-token.timer"
DROP_INS = {
    EXPORTER: EXPORTER_SETTINGS,
    **{name: f"{UNITS}/{name}.service.d/gpucluster-slurm.conf" for name in (SERVER, ALERTS)},
}
"""The settings of the distribution's services."""

TOKENS = Timer("slurm-metrics-token", "A token with which Prometheus reads the metrics of slurmctld", "hourly", 0, 60)
TIMERS: Mapping[str, Timer] = {**exporters.TIMERS, TOKEN_TIMER: TOKENS}
RECORDS = (EXPORTER, *TIMERS, SERVER, ALERTS)

RULES = ("names.yml", "gpus.yml", "alerts.yml")
PAGES = {"slurm_jobs": "jobs", "slurm_nodes": "nodes", "slurm_partitions": "partitions", "slurm_scheduler": "scheduler"}
"""The jobs of Prometheus that read slurmctld's pages, each with its page.

slurm-metrics has the series of users and accounts: slurmctld's page of them is empty without jobs, which Prometheus 3
takes for a failure.
"""


# -- the services of a host -------------------------------------------------------------------------------------------


def services(host: RunHost) -> Services:
    """The services of this host for the key; none without the key."""
    cluster = measured_or_none(host)
    return {name: partial(service, host, cluster, name) for name in _names(cluster, host.name)} if cluster else {}


def measured_or_none(host: RunHost) -> MeasuredCluster | None:
    """What the hosts have in common; None without the key."""
    return measured_cluster(host) if is_measured(host) else None


def _names(cluster: MeasuredCluster | None, name: str) -> list[str]:
    if cluster is None:
        return []
    exporter, *programs = names(cluster, name)
    # The programs see the services, so they come last.
    return [exporter, *(server_names(cluster) if name == cluster.server else []), *programs]


def server_names(cluster: MeasuredCluster) -> list[str]:
    """The services of the host of Prometheus alone. It starts with a token, in the directory of alertmanager's file."""
    return [ALERTS, *([TOKEN_TIMER] if cluster.source == "pages with tokens" else []), SERVER]


def service(host: RunHost, cluster: MeasuredCluster, service: str) -> ServiceOptions:
    """How one of the services runs on this host. A timer is proved by what it starts.

    The lines of jobs need Prometheus, which may start later on another host.

    Raises:
        ValueError: the control host lacks the key of the tokens.
    """
    if service == TOKEN_TIMER:
        slurmctld_metrics.require_key(host)
    timer = service.removesuffix(".timer")
    proved = service in TIMERS and service != LINES_TIMER
    proof = {"command": ["systemctl", "start", f"{timer}.service"]} if proved else None
    if service in names(cluster, host.name):
        wanted = digests(cluster, [host.name])[host.name]
        return ServiceOptions(service_files(host, cluster, service), wanted, proof=proof)
    reload = [] if service in TIMERS else ["systemctl", "reload", service]
    digest = server_digest(host, cluster)
    return ServiceOptions(server_files(host, cluster, service), digest, reload=reload, proof=proof)


def server_files(host: RunHost, cluster: MeasuredCluster, service: str) -> list[HostFile]:
    """The files of a service of the host of Prometheus."""
    makers: Mapping[str, Callable[[RunHost, MeasuredCluster], list[HostFile]]] = {
        TOKEN_TIMER: token_files,
        ALERTS: alertmanager_files,
        SERVER: prometheus_files,
    }
    return makers[service](host, cluster)


def token_files(host: RunHost, _cluster: MeasuredCluster) -> list[HostFile]:
    """The timer that writes tokens, its program and the key."""
    return [
        *timer_files(host, TOKEN_TIMER, TOKENS),
        *program_files(TOKENS.program),
        *unloaded(slurmctld_metrics.key_files(host)),
    ]


def prometheus_files(host: RunHost, cluster: MeasuredCluster) -> list[HostFile]:
    """The settings of Prometheus' unit, the rules, the targets, and the configuration, which names them."""
    start = host.text(
        ROLE,
        "prometheus.conf.j2",
        configuration=CONFIGURATION,
        listen=listen(cluster, host.name, PROMETHEUS),
        retention=host["slurm_monitoring"]["retention"],
    )
    return [
        {"path": DROP_INS[SERVER], "content": start, "restart": True},
        *map(rule_file, RULES),
        *target_files(host, cluster),
        {
            "path": CONFIGURATION,
            "content": configuration(host, cluster),
            "validate": ["promtool", "check", "config", "%s"],
        },
    ]


def rule_file(name: str) -> HostFile:
    """One of the files with rules."""
    text = f"{MANAGED}\n{role_file(ROLE, f'rules/{name}')}"
    return {"path": f"{DIRECTORY}/rules/{name}", "content": text, "validate": ["promtool", "check", "rules", "%s"]}


def target_files(host: RunHost, cluster: MeasuredCluster) -> list[HostFile]:
    """The hosts that Prometheus asks: all of the cluster, and the controllers at the port of slurmctld.

    Prometheus reads the files again when they change. JSON is YAML as well.
    """
    port = int(str(host["slurm_conf"].get("SlurmctldPort") or SLURMCTLD_PORT).partition("-")[0])
    found = {
        "nodes.yml": targets(cluster, host.members("slurm_cluster"), NODE_EXPORTER),
        "slurmctld.yml": targets(cluster, cluster.controllers, port),
    }
    return [
        {"path": f"{DIRECTORY}/targets/{name}", "content": content, "loaded": False} for name, content in found.items()
    ]


def targets(cluster: MeasuredCluster, hosts: Iterable[str], port: int) -> str:
    """A file of targets, a line for each host. Series have its name as their instance, not address and port."""
    lines = [
        json.dumps({"targets": [f"{address(cluster, name)}:{port}"], "labels": {"instance": name}}) for name in hosts
    ]
    return "\n".join([MANAGED, *(f"- {line}" for line in lines), ""])


def configuration(host: RunHost, cluster: MeasuredCluster) -> str:
    """The configuration of Prometheus, with this collection's Prometheus or that of the site."""
    return host.text(
        ROLE,
        "prometheus.yml.j2",
        cluster=host["slurm_cluster_name"],
        pages={} if cluster.source == "program" else PAGES,
        token=TOKEN if cluster.source == "pages with tokens" else "",
        server=cluster.server,
        prometheus=f"{address(cluster, cluster.server)}:{PROMETHEUS}",
        alertmanager=f"{address(cluster, cluster.server)}:{ALERTMANAGER}",
    )


def alertmanager_files(host: RunHost, cluster: MeasuredCluster) -> list[HostFile]:
    """The settings of alertmanager's unit, and its configuration, in which the receivers can have passwords."""
    start = host.text(
        ROLE, "alertmanager.conf.j2", configuration=RECEIVERS, listen=listen(cluster, host.name, ALERTMANAGER)
    )
    text = alertmanager.configuration(receivers(host))
    return [
        {"path": DROP_INS[ALERTS], "content": start, "restart": True},
        {
            "path": RECEIVERS,
            "secret": base64.b64encode(text.encode()).decode(),
            "owner": "prometheus",
            "mode": "0400",
            "validate": ["amtool", "check-config", "%s"],
        },
    ]


def receivers(host: RunHost) -> str | None:
    """The text of the site's file of receivers; None without one.

    Raises:
        ValueError: the control host does not have it.
    """
    name = host["slurm_monitoring"]["receivers"]
    if not name:
        return None
    content = host.content(os.path.join(host["slurm_cluster_dir"], name))
    if content is None:
        raise ValueError(f"slurm_monitoring.receivers: {name} is missing in {host['slurm_cluster_dir']}")
    return content.decode(errors="replace")


def server_digest(host: RunHost, cluster: MeasuredCluster) -> str:
    """The checksum of the options of all services of the host of Prometheus.

    A password of a receiver is short: without a salt, the checksum on the host would help to guess it.
    """
    salt = hashlib.sha256(secret_sources.secret(host, secret_sources.MUNGE) or b"").hexdigest()
    files = [server_files(host, cluster, name) for name in server_names(cluster)]
    return options_digest([salt, files])


def ready_urls(host: RunHost) -> list[str]:
    """The pages with which Prometheus and alertmanager say that they work; none on another host."""
    cluster = measured_or_none(host)
    if cluster is None or host.name != cluster.server:
        return []
    return [f"http://{address(cluster, host.name)}:{port}/-/ready" for port in (PROMETHEUS, ALERTMANAGER)]


# -- which hosts have work --------------------------------------------------------------------------------------------


def hosts_with_work(host: RunHost, facts: Mapping[str, HostFact]) -> list[str]:
    """The hosts on which something of the key is not as the last run has left it, or is left of it.

    The files of Prometheus follow from the release of Slurm, so that its host is left as it is in a run without a
    controller.

    Args:
        host: any host.
        facts: of each host that has answered.
    """
    cluster = measured_or_none(host)
    lost = [name for name in facts if lost_of(host.of(name), cluster)]
    if cluster is None:
        return lost
    wanted = digests(cluster, facts)
    prepared = {*host.members("slurm_needs_preparation")}
    changed = {
        name
        for name, found in facts.items()
        if name in prepared or any(found["applied"].get(record) != wanted[name] for record in names(cluster, name))
    }
    if cluster.server in facts and slurmctld_metrics.known_release(host):
        own = server_digest(host.of(cluster.server), cluster)
        applied = facts[cluster.server]["applied"]
        changed |= {cluster.server} if any(applied.get(name) != own for name in server_names(cluster)) else set()
    return [name for name in facts if name in changed or name in lost]


def has_other_options(host: RunHost) -> bool:
    """Whether a service runs here with other options than those of the key, or is left of it.

    A service without a record may have any options, such as after a boot.
    """
    cluster, applied = measured_or_none(host), host.facts["applied"]
    if cluster is None or lost_of(host, cluster):
        return bool(lost_of(host, cluster))
    wanted = dict.fromkeys(names(cluster, host.name), digests(cluster, [host.name])[host.name])
    if host.name == cluster.server and slurmctld_metrics.known_release(host):
        wanted |= dict.fromkeys(server_names(cluster), server_digest(host, cluster))
    return any(applied.get(name, digest) != digest for name, digest in wanted.items())


def asked_records(host: RunHost) -> list[str]:
    """The records that a host is asked for."""
    return [*RECORDS] if is_measured(host) else []


ASKED_FILES = [
    *(SETTINGS, CONFIGURATION, *(f"{UNITS}/{name}" for name in TIMERS), *DROP_INS.values()),
    *(f"{INSTALLED}/{name}" for name in all_packages()),
]
"""Files by which a run sees what a host has of the key, also without it."""


# -- what a host loses ------------------------------------------------------------------------------------------------


def lost_of(host: RunHost, cluster: MeasuredCluster | None) -> list[str]:
    """The files on the host by which it has something of the key that it does not need any more.

    cluster: what the hosts have in common; None without the key.
    """
    found = [path for path in ASKED_FILES if path in host.facts["files"]]
    if not found:
        return []
    wanted = _names(cluster, host.name)
    needed = {f"{UNITS}/{name}" for name in wanted} | {DROP_INS[name] for name in wanted if name in DROP_INS}
    if cluster is not None:
        serves, controls = host.name == cluster.server, host.name in cluster.controllers
        needed |= {f"{INSTALLED}/{name}" for name in wanted_packages(host, serves, controls, cluster.source)}
    needed |= {f"{INSTALLED}/{name}" for name in (*rest.packages(host), *configured_plugins(host))}
    needed |= {SETTINGS} if wanted else set()
    needed |= {CONFIGURATION} if SERVER in wanted else set()
    return [path for path in found if path not in needed]


def removal(host: RunHost) -> CleanupOptions:
    """What the host loses."""
    cluster = measured_or_none(host)
    lost, wanted = lost_of(host, cluster), _names(cluster, host.name)
    timers = [name for name in TIMERS if name not in wanted]
    ended = [name for name in all_packages() if f"{INSTALLED}/{name}" in lost]
    units = [f"{UNITS}/{name.removesuffix('.timer')}{end}" for name in timers for end in (".timer", ".service")]
    units += [path for name in timers for path in sampler_units(TIMERS[name])]
    kept = {TIMERS[name].program for name in wanted if name in TIMERS}
    programs = [name for name in dict.fromkeys(timer.program for timer in TIMERS.values()) if name not in kept]
    secrets = [TOKEN] if TOKEN_TIMER in timers else []
    written = [path for name in timers for path in WRITTEN.get(name, ())]
    if not slurmctld_metrics.has_key(host) and not is_controller(host):
        secrets.append(slurmctld_metrics.HTTP_KEY)
    return CleanupOptions(
        services=timers,
        packages=ended,
        secrets=[*secrets, *written, *([] if wanted else [SETTINGS])],
        files=[
            *units,
            *(path for name, path in DROP_INS.items() if name not in wanted),
            *(f"{PROGRAMS}/{name}" for name in programs),
        ],
        directories=[*([] if SERVER in wanted else [DIRECTORY]), *(f"{LIBRARY}/{name}" for name in programs)],
        empty_directories=[os.path.dirname(path) for name, path in DROP_INS.items() if name not in wanted],
        kept={name: path for name, path in DROP_INS.items() if path in lost and name not in ended},
    )


SERVER_ROLE = ServerRole(
    role=ROLE,
    is_served=is_measured,
    needed=exporters.packages,
    compared=lambda host: [name for name in exporters.packages(host) if name in all_packages()],
    brought=lambda _host: all_packages(),
    services=services,
    ready_urls=ready_urls,
    asked_files=ASKED_FILES,
    useless=lambda host: lost_of(host, measured_or_none(host)),
    removal=removal,
)


# -- a site with its own Prometheus -----------------------------------------------------------------------------------


def control_directory(host: RunHost) -> str:
    """The directory on the control host with the files for the Prometheus of the site, next to the cluster file."""
    return re.sub(r"hardware\.ya?ml$", "monitoring", str(host["slurm_hardware_file"]))


def control_files(host: RunHost) -> list[HostFile]:
    """The files for the Prometheus of the site; none without targets_only."""
    if not host["slurm_monitoring"].get("targets_only"):
        return []
    cluster = measured_cluster(host)
    files = {
        "prometheus.yml": configuration(host, cluster),
        **{_below(file["path"]): file["content"] for file in target_files(host, cluster)},
        **{_below(file["path"]): file["content"] for file in map(rule_file, RULES)},
        **{f"dashboards/{path.name}": path.read_text(encoding="utf-8") for path in dashboards()},
    }
    return [{"path": f"{control_directory(host)}/{name}", "content": text} for name, text in files.items()]


def _below(path: str) -> str:
    return os.path.relpath(path, DIRECTORY)


def dashboards() -> list[Path]:
    """The files of the dashboards."""
    return sorted((ROLES / ROLE / "files/dashboards").glob("*.json"))


def control_folders(host: RunHost) -> list[str]:
    """The directories of these files."""
    return sorted({os.path.dirname(file["path"]) for file in control_files(host)})


def needs_control_files(host: RunHost) -> bool:
    """Whether one of them is missing or different."""
    if host["slurm_monitoring"].get("targets_only") and not slurmctld_metrics.known_release(host):
        return False
    return any(host.content(file["path"]) != file["content"].encode() for file in control_files(host))
