# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each host has for the key `monitoring`: node-exporter, the programs that write series, and their timers.

The host of Prometheus has more (prometheus.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from ...cluster.keys import hosts_in
from ...cluster.machine_types import gres_names, machine_of
from ...cluster.render import host_addresses
from ...configuration.ports import NODE_EXPORTER, PROMETHEUS
from ...language.hostlist import expand
from ..known import image
from ..known.platform_tables import DISTRIBUTION_PACKAGES, NEWEST, RELEASES, SOURCES
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file, stripped_file, unloaded
from ..known.unchanged_hosts import common_text, record_digest
from ..known.whole_cluster import backup_hosts, is_controller, state_directory
from ..known.whole_cluster import source as package_source
from ..values import default_values, defaults, slurmctld_metrics
from . import secret_ages

ROLE = "slurm_metrics"
UNITS = "/etc/systemd/system"
PROGRAMS = "/usr/local/sbin"
SETTINGS = "/etc/gpucluster-slurm/metrics.json"
EXPORTER = "prometheus-node-exporter"
EXPORTER_SETTINGS = f"{UNITS}/{EXPORTER}.service.d/gpucluster-slurm.conf"
HOST_TIMER, CLUSTER_TIMER = "slurm-metrics-host.timer", "slurm-metrics-cluster.timer"
GPU_TIMER, LINES_TIMER = "slurm-gpu-metrics.timer", "slurm-gpu-hours.timer"
SAMPLER = "slurm-gpu-use.service"

TEXTFILES = "/var/lib/prometheus/node-exporter"
"""The directory of the distribution's package, from which node-exporter adds the series of programs."""

WRITTEN = {
    HOST_TIMER: [f"{TEXTFILES}/gpucluster.prom"],
    CLUSTER_TIMER: [f"{TEXTFILES}/slurm.prom"],
    GPU_TIMER: [f"{TEXTFILES}/gpu.prom"],
    LINES_TIMER: [f"{TEXTFILES}/gpu-hours.prom", "/var/lib/gpucluster-slurm/gpu-hours.json"],
}
"""The files that programs write, by the timer that starts them."""

UNUSED_COLLECTORS = ("arp", "cpufreq", "schedstat", "softnet")
"""Collectors with series for each CPU or neighbour, which no alert and no dashboard has: thousands on a large host."""

TEMPLATES = ("exporter.conf.j2", "timer.j2", "service.j2", "sampler.j2")


@dataclass(frozen=True)
class Timer:
    """A timer that starts a program."""

    program: str
    """Its name on the host; the module has the same one."""
    description: str
    calendar: str
    """When it starts the program (systemd.time(7))."""
    spread: int
    """The seconds over which hosts spread their starts."""
    limit: int
    """The seconds after which the program is ended."""
    argument: str = ""
    leaves: bool = False
    """Whether a process that the kernel does not end is left, so that it does not keep the next start waiting."""
    sampler: str = ""
    """A service that each start of the program starts as well, unless it runs: the program with argument `sample`."""

    @property
    def command(self) -> str:
        """What systemd starts."""
        return f"{PROGRAMS}/{self.program} {self.argument}".rstrip()


TIMERS: Mapping[str, Timer] = {
    HOST_TIMER: Timer("slurm-metrics", "Metrics of this host", "*:0/15", 600, 120, "host"),
    CLUSTER_TIMER: Timer("slurm-metrics", "Metrics of Slurm", "*:*:00", 0, 50, "cluster"),
    GPU_TIMER: Timer(
        "slurm-gpu-metrics", "Metrics of GPUs and their jobs", "*:*:0/30", 5, 90, leaves=True, sampler=SAMPLER
    ),
    LINES_TIMER: Timer("slurm-gpu-hours", "Lines about the GPUs of jobs", "*:*:30", 0, 300, "lines"),
}


@dataclass(frozen=True)
class MeasuredCluster:
    """What the hosts of a cluster with the key have in common: read once, since there may be thousands of hosts."""

    server: str
    """The host of Prometheus; empty with targets_only."""
    users_and_accounts: bool
    controllers: list[str]
    database: str
    has_mariadb: bool
    """Whether MariaDB runs on this host."""
    registry: str
    report: str
    """The host that serves the page about the cluster."""
    rest: str
    """The host of slurmrestd."""
    compute: frozenset[str]
    fetching: frozenset[str]
    """The hosts with sackd."""
    saving: frozenset[str]
    """The hosts that make backups."""
    max_age: int
    """The hours after which a backup is old."""
    has_cases: bool
    """Whether the controllers keep cases of nodes that fail (key `repair`)."""
    secrets: secret_ages.SecretHolders
    state_directory: str
    source: slurmctld_metrics.Source
    addresses: Mapping[str, str]
    gpu_nodes: frozenset[str]
    """The nodes that say which job uses which GPU."""


def is_measured(host: RunHost) -> bool:
    """Whether the cluster has the key."""
    return bool(host["slurm_monitoring"])


def measured_cluster(host: RunHost) -> MeasuredCluster:
    """What the hosts of a cluster with the key have in common."""
    monitoring, controllers = host["slurm_monitoring"], list(host["slurm_controllers"])
    compute = frozenset(host.members("slurm_compute"))
    sackd = RELEASES.get(slurmctld_metrics.known_release(host), RELEASES[NEWEST]).sackd
    fetching = frozenset(host.members("slurm_login") if sackd else ()) - compute - {*controllers}
    return MeasuredCluster(
        server=monitoring["host"],
        users_and_accounts=monitoring["users_and_accounts"],
        controllers=controllers,
        database=host["slurm_database"],
        has_mariadb=not host["slurm_database_server"],
        registry=host["slurm_registry"],
        report=str(hosts_in(host["slurm_report"]) or ""),
        rest=str(hosts_in(host["slurm_rest"]) or ""),
        compute=compute,
        fetching=fetching,
        saving=frozenset(backup_hosts(host)),
        max_age=host["slurm_backup"].get("max_age", 48),
        has_cases=bool(host["slurm_repair"]),
        secrets=secret_ages.holders(host),
        state_directory=state_directory(host),
        source=slurmctld_metrics.cluster_source(host),
        addresses={entry["name"]: entry["address"] for entry in host_addresses(host["slurm_addresses"])},
        gpu_nodes=gpu_nodes(host),
    )


def gpu_nodes(host: RunHost) -> frozenset[str]:
    """The nodes with GPUs, if slurm-prolog notes which job has which of them."""
    target = defaults.target(host, slurmctld_metrics.known_release(host))
    if not target.holds(default_values.GPU_MAP):
        return frozenset()
    types = host["slurm_hardware_types"]
    entries = (entry for entry in host["slurm_nodes"] if "gpu" in gres_names(machine_of(entry, types)))
    return frozenset(name for entry in entries for name in expand(entry["hosts"]))


# -- packages ---------------------------------------------------------------------------------------------------------


def packages(host: RunHost) -> list[str]:
    """The packages that the host needs; none without the key."""
    if not is_measured(host):
        return []
    serves = host.name == host["slurm_monitoring"]["host"]
    return wanted_packages(host, serves, is_controller(host), slurmctld_metrics.cluster_source(host))


def wanted_packages(host: RunHost, serves: bool, controls: bool, source: slurmctld_metrics.Source) -> list[str]:
    """The packages that a host needs.

    Args:
        host: any host of the cluster.
        serves: whether Prometheus runs there.
        controls: whether it is a controller.
        source: where the values of slurmctld come from.
    """
    tokens = source == "pages with tokens"
    return [
        *DISTRIBUTION_PACKAGES["node_exporter"],
        *(DISTRIBUTION_PACKAGES["prometheus"] if serves else ()),
        *(DISTRIBUTION_PACKAGES["tokens"] if serves and tokens else ()),
        *(package_source(host).packages["tokens_of_slurm"] if controls and tokens else ()),
    ]


def all_packages() -> list[str]:
    """The packages that only the key needs."""
    tokens = SOURCES["distribution"].packages["tokens_of_slurm"]
    purposes = ("node_exporter", "prometheus", "tokens")
    return [*(name for purpose in purposes for name in DISTRIBUTION_PACKAGES[purpose]), *tokens]


# -- the services of every host ---------------------------------------------------------------------------------------


def address(cluster: MeasuredCluster, name: str) -> str:
    """The address of a host, in brackets if it is one of IPv6, or else its name."""
    found = cluster.addresses.get(name, name)
    return f"[{found}]" if ":" in found else found


def listen(cluster: MeasuredCluster, name: str, port: int) -> str:
    """Where a program listens: at the address of the cluster file, or everywhere if the host has none there."""
    return f"{address(cluster, name) if name in cluster.addresses else ''}:{port}"


def timers(cluster: MeasuredCluster, name: str) -> list[str]:
    """The timers of a host."""
    controls = name in cluster.controllers
    return [
        HOST_TIMER,
        *([CLUSTER_TIMER] if controls else []),
        *([GPU_TIMER] if name in cluster.gpu_nodes else []),
        # A line needs slurmdbd, which keeps it, and values.
        *([LINES_TIMER] if controls and cluster.server and cluster.database and cluster.gpu_nodes else []),
    ]


def names(cluster: MeasuredCluster, name: str) -> list[str]:
    """The services of a host, in the order of their start."""
    return [EXPORTER, *timers(cluster, name)]


def service_files(host: RunHost, cluster: MeasuredCluster, service: str) -> list[HostFile]:
    """The files of one of the services."""
    if service == EXPORTER:
        return [exporter_settings(host, cluster)]
    return [
        *timer_files(host, service, TIMERS[service]),
        *program_files(TIMERS[service].program),
        {"path": SETTINGS, "content": settings_text(cluster, host.name), "loaded": False},
    ]


def exporter_settings(host: RunHost, cluster: MeasuredCluster) -> HostFile:
    """How node-exporter starts."""
    content = host.text(
        ROLE,
        "exporter.conf.j2",
        # An image has no address yet: site.yml opens the port to the cluster.
        listen=f"127.0.0.1:{NODE_EXPORTER}" if image.builds(host) else listen(cluster, host.name, NODE_EXPORTER),
        textfiles=TEXTFILES,
        units="|".join(daemons(cluster, host.name)),
        unused=UNUSED_COLLECTORS,
    )
    return {"path": EXPORTER_SETTINGS, "content": content}


def timer_files(host: RunHost, name: str, timer: Timer) -> list[HostFile]:
    """A timer and its service."""
    service = f"{UNITS}/{name.removesuffix('.timer')}.service"
    values = {**asdict(timer), "command": timer.command}
    return [
        {"path": f"{UNITS}/{name}", "content": host.text(ROLE, "timer.j2", **values)},
        {"path": service, "content": host.text(ROLE, "service.j2", **values), "loaded": False},
        *unloaded(
            plain_file(path, host.text(ROLE, "sampler.j2", **values, timer=name)) for path in sampler_units(timer)
        ),
    ]


def sampler_units(timer: Timer) -> list[str]:
    """The unit of the service that runs all the time, if there is one."""
    return [f"{UNITS}/{timer.sampler}"] if timer.sampler else []


@cache
def program_files(name: str) -> list[HostFile]:
    """A program on a host: the modules that it imports, and what starts it."""
    module = f"programs.metrics.{name.replace('-', '_')}"
    return unloaded(library(name, {f"{PROGRAMS}/{name}": module}))


def settings(cluster: MeasuredCluster, name: str) -> dict[str, Any]:
    """What slurm-metrics knows of a host."""
    controls = name in cluster.controllers
    return {
        "controllers": [controller.partition(".")[0] for controller in cluster.controllers],
        "state_directory": cluster.state_directory if controls else "",
        "all": controls and cluster.source == "program",
        "users_and_accounts": cluster.users_and_accounts,
        "daemons": daemons(cluster, name),
        "keys": cluster.secrets.files(name),
        "key_max_age_days": cluster.secrets.max_age,
        "backup": {"max_age_hours": cluster.max_age} if name in cluster.saving else None,
        "repair": controls and cluster.has_cases,
        "prometheus": f"http://{address(cluster, cluster.server)}:{PROMETHEUS}" if controls and cluster.server else "",
    }


def settings_text(cluster: MeasuredCluster, name: str) -> str:
    """The same as a file."""
    return f"{json.dumps(settings(cluster, name), indent=4, sort_keys=True)}\n"


def daemons(cluster: MeasuredCluster, name: str) -> list[str]:
    """The units of this collection that run on a host all the time."""
    return list(_daemons(cluster, name))


def _daemons(cluster: MeasuredCluster, name: str) -> Iterator[str]:
    yield "munge"
    if name in cluster.controllers:
        yield "slurmctld"
    if name == cluster.database:
        yield from ("mariadb", "slurmdbd") if cluster.has_mariadb else ("slurmdbd",)
    if name in cluster.compute:
        yield "slurmd"
    if name in cluster.fetching:
        yield "sackd"
    if name == cluster.registry:
        yield from ("docker-registry", "slurm-registry-auth")
    if name in (cluster.registry, cluster.report, cluster.rest):
        yield "nginx"
    if name == cluster.rest:
        yield from ("slurmrestd", "slurm-rest-auth")
    if name == cluster.server:
        yield from ("prometheus", "prometheus-alertmanager")


# -- which hosts have work --------------------------------------------------------------------------------------------


def common() -> str:
    """What is equal on all hosts in the checksums: the programs and the templates."""
    # What starts a program names the content of its modules.
    programs = [program_files(name)[-1] for name in dict.fromkeys(timer.program for timer in TIMERS.values())]
    templates = [stripped_file(ROLE, f"templates/{name}") for name in TEMPLATES]
    return common_text([programs, templates, UNUSED_COLLECTORS, repr(TIMERS)])


def digests(cluster: MeasuredCluster, hosts: Iterable[str]) -> dict[str, str]:
    """The checksum of the options of the services of each host."""
    text = common()
    return {
        name: record_digest(text, listen(cluster, name, NODE_EXPORTER), settings(cluster, name), timers(cluster, name))
        for name in hosts
    }
