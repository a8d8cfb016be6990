# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role reset: which hosts are reset, what is removed from each, what stays, and what the run says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...client import drains
from ...cluster.schema import unknown
from ...formats.directory_purposes import TOPS
from ...language.formatting import limited, short, shown
from ...language.hostlist import expand, fold
from ...people.messages import host_lines
from ..host import storage
from ..known import registered
from ..known.daemon_records import CleanupOptions
from ..known.host_paths import CONF_DIR, JOB_DIR, KEPT_DIR, LIB_DIR, LOG_DIR, PYXIS_DIR, SCRIPTS_DIR
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts
from ..run.preparation import hosts_marker
from ..servers import backup, exporters
from . import remove_nodes

ROLE = "reset"
DATA, DATABASE, PEOPLE, HOMES = "data", "database", "people", "homes"
CHOICES = (DATA, DATABASE, PEOPLE, HOMES)

DAEMONS = ("slurmctld", "slurmdbd", "slurmrestd")
"""Those that compute nodes do not have."""

DIRECTORIES = ("/etc/gpucluster-slurm", "/etc/ssh/people.keys.d", "/var/cache/gpucluster-slurm", SCRIPTS_DIR)
DATA_DIRECTORIES = (*(LIB_DIR, LOG_DIR, JOB_DIR, PYXIS_DIR, "/var/spool/slurmd", "/var/lib/munge", "/var/log/munge"),)
SERIES_DIRECTORY = "/var/lib/prometheus"
"""On the host of the key `monitoring` alone: elsewhere a site's own exporter may use it."""

STATE_PARAMETERS = ("StateSaveLocation", "SlurmdSpoolDir")
MARIADB = ("mariadb-*", "galera-*", "libmariadb*")
"""The packages that stay while they have data."""

WITH_DATA = ("slurmctld", "slurmdbd", "slurm-smd-slurm*", "prometheus", "prometheus-alertmanager")
"""The packages whose purge removes data or logs (`postrm` of the packages of Debian)."""

OF_MARIADB = ("information_schema", "mysql", "performance_schema", "sys")
RELOADED = ("nginx", "nfs-server", "prometheus-node-exporter")
"""Services that a site may have for itself as well, and that have read files of this collection."""

DRAIN = f"{drains.RESET}the host is no node any more"
STAYS = (
    "NVIDIA's driver, packages that were on the hosts before, upgrades of these, system users of packages, values of "
    "sysctl until the next boot, backups, images of the registry, exported directories"
)
STAYS_UNLESS_NAMED = {
    DATA: "Slurm's state, spool and logs",
    DATABASE: "MariaDB with Slurm's records",
    PEOPLE: "accounts",
    HOMES: "homes",
}


# -- the options ------------------------------------------------------------------------------------------------------


def _cluster(host: RunHost) -> list[str]:
    return host.members("slurm_cluster")


def hosts(host: RunHost) -> list[str]:
    """The hosts that are reset, in the order of the inventory. Raises ValueError for a bad hostlist."""
    given = str(host.option(ROLE, "reset_hosts"))
    names = {*_cluster(host)} if given == "all" else {*expand(given)}
    return [name for name in _cluster(host) if name in names]


def also(host: RunHost) -> list[str]:
    """What is removed as well."""
    return [name for text in str(host.option(ROLE, "reset_also")).split(",") if (name := text.strip())]


def errors(host: RunHost) -> list[str]:
    """The errors in the options."""
    return limited([*_host_errors(host), *_also_errors(host)])


def _host_errors(host: RunHost) -> Iterator[str]:
    given, known = str(host.option(ROLE, "reset_hosts")), _cluster(host)
    allowed = f"all, or hosts of the cluster: {short(fold(known))}"
    try:
        names = known if given == "all" else expand(given)
    except ValueError as error:
        yield f"reset_hosts: found {shown(given)}: {error}"
        return
    if not names:
        yield f"reset_hosts: missing, allowed: {allowed}"
    for name in names:
        if name not in known:
            yield f"reset_hosts: found {shown(name)}, {unknown('host', name, known, allowed)}"
    if left := [name for name in names if name in known and name not in host.play_hosts]:
        yield f"--limit: leaves out {short(fold(left))}: leave this option out, reset_hosts names the hosts"
    stay = [name for name in known if name not in names]
    if stay and (serving := [name for name in _servers(host) if name in names]):
        yield (
            f"reset_hosts: found {fold(serving)}, which {short(fold(stay))} need{'s' if len(stay) == 1 else ''}, "
            "allowed: all, or hosts that are neither controller nor database"
        )


def _servers(host: RunHost) -> list[str]:
    """The hosts without which the others do not work."""
    found = [*host["slurm_controllers"], *([host["slurm_database"]] if host["slurm_database"] else [])]
    return list(dict.fromkeys(found))


def _also_errors(host: RunHost) -> Iterator[str]:
    named = also(host)
    for name in named:
        if name not in CHOICES:
            yield f"reset_also: found {shown(name)}, {unknown('part', name, CHOICES, ', '.join(CHOICES))}"
    if HOMES in named and PEOPLE not in named:
        yield "reset_also: found homes without people, allowed: people,homes, since accounts need their homes"
    if DATABASE in named and host["slurm_database_server"]:
        yield "reset_also: found database, which others run (database_server): its administrator drops it"
    elif DATABASE in named and host.flag(ROLE, "reset_backup") and not host["slurm_backup"]:
        yield (
            "reset_also: found database, and there is no last backup without the key backup: add the key and run site, "
            "or set reset_backup=false"
        )


def groups(host: RunHost, name: str) -> list[str]:
    """The groups of plays that a host to reset gets."""
    saves = name in backup_hosts(host) and host.flag(ROLE, "reset_backup")
    return ["slurm_reset", *(["slurm_reset_backup"] if saves else [])]


# -- before the hosts are changed -------------------------------------------------------------------------------------


def is_whole(host: RunHost) -> bool:
    """Whether no host of the cluster stays."""
    return len(hosts(host)) == len(_cluster(host))


def was_adopted(host: RunHost) -> bool:
    """Whether the host had Slurm before this collection, and goes on with its previous files."""
    return bool(registered.RESET_FOUND.seen(host).get("stat", {}).get("exists"))


def drain_command(host: RunHost) -> list[str]:
    """The command that drains the nodes of a cluster that goes on; empty without any."""
    nodes = [name for name in hosts(host) if name in host.members("slurm_compute")]
    if is_whole(host) or not nodes:
        return []
    return ["scontrol", "update", f"NodeName={fold(nodes)}", "State=DRAIN", f"Reason={DRAIN}"]


def stops_slurmctld(host: RunHost) -> bool:
    """Whether slurmctld ends before the other daemons."""
    return host.name in host["slurm_controllers"] and not was_adopted(host)


def _removed(host: RunHost) -> set[str]:
    """What the plan removes and stops on the host."""
    return {str(change["what"]) for change in registered.RESET_CLEANUP.seen(host).get("plan", [])}


def makes_backup(host: RunHost) -> bool:
    """Whether the host has the program for it; one that a killed run has cleaned already has none."""
    return backup.PROGRAM in _removed(host)


def lacks_backup(host: RunHost) -> bool:
    """Whether the host has state or records, and cannot make the last backup."""
    serves = {"slurmctld.service", "slurmdbd.service"} & _removed(host)
    return host.within("slurm_reset_backup") and bool(serves) and not makes_backup(host)


# -- what is removed --------------------------------------------------------------------------------------------------


def cleanup(host: RunHost) -> CleanupOptions:
    """What is removed. A host that was adopted keeps Slurm, and role adopt restores its files."""
    adopted, named = was_adopted(host), also(host)
    daemons = [] if adopted else [*remove_nodes.SERVICES, *DAEMONS]
    directories = [*DIRECTORIES, *([] if adopted else [CONF_DIR, KEPT_DIR])]
    return CleanupOptions(
        services=daemons,
        packages=[name for name in exporters.all_packages() if DATA in named or not _has_data(name)],
        added_packages=True,
        unpurged_packages=[] if DATA in named else [*WITH_DATA],
        kept_packages=[] if DATABASE in named and not _other_databases(host) else [*MARIADB],
        secrets=[name for name in remove_nodes.SECRETS if not (adopted and name.startswith("/etc/munge/"))],
        files=["/usr/local/bin/*", "/usr/local/sbin/slurm-*"],
        trees=["/etc"],
        spared=[CONF_DIR, "/etc/gpucluster-slurm"],
        reload=[*RELOADED],
        directories=[*directories, *(_data(host) if DATA in named and not adopted else []), *_homes(host)],
        parts=[{"path": "/etc/hosts", "marker": hosts_marker(host)}],
    )


def _has_data(package: str) -> bool:
    return any(fnmatchcase(package, pattern) for pattern in WITH_DATA)


def _data(host: RunHost) -> list[str]:
    """Directories with data. One that others may use as well stays."""
    chosen = [str(host["slurm_conf"].get(name) or "") for name in STATE_PARAMETERS]
    own = [path for path in chosen if path.startswith("/") and "%" not in path and path not in TOPS]
    return [*DATA_DIRECTORIES, *own, *([SERIES_DIRECTORY] if host.within("slurm_monitoring") else [])]


def _homes(host: RunHost) -> list[str]:
    """The homes that this collection has made on the host."""
    return [str(home["path"]) for home in storage.options(host).homes] if HOMES in also(host) else []


def people_plan(host: RunHost) -> str:
    """The plan by which the accounts go, as a text; empty if they stay."""
    plan: Mapping[str, Any] = host["slurm_people"]
    if PEOPLE not in also(host) or not plan.get("users"):
        return ""
    return json.dumps({**plan, "users": [{**user, "state": "absent"} for user in plan["users"]]})


# -- the database -----------------------------------------------------------------------------------------------------


def drops_database(host: RunHost) -> bool:
    """Whether the host has the records, and they are named."""
    return DATABASE in also(host) and host.name == host["slurm_database"]


def _databases(host: RunHost) -> list[str]:
    return list(registered.RESET_DATABASES.seen(host).get("stdout_lines", []))


def _storage(host: RunHost, parameter: str, default: str) -> str:
    return str((host.get("slurmdbd_conf") or {}).get(parameter) or default)


def _other_databases(host: RunHost) -> list[str]:
    own = _storage(host, "StorageLoc", "slurm_acct_db")
    return [name for name in _databases(host) if name not in (*OF_MARIADB, own)]


def has_database(host: RunHost) -> bool:
    """Whether there are records to drop."""
    return drops_database(host) and _storage(host, "StorageLoc", "slurm_acct_db") in _databases(host)


def drop_statements(host: RunHost) -> str:
    """The statements that remove Slurm's records and its account."""
    name, user = _storage(host, "StorageLoc", "slurm_acct_db"), _storage(host, "StorageUser", "slurm")
    return f"DROP DATABASE `{name}`; DROP USER IF EXISTS '{user}'@'localhost'"


# -- what the run says ------------------------------------------------------------------------------------------------


def plan_lines(host: RunHost) -> list[str]:
    """What is removed, each line with the hosts that it is about."""
    compared = registered.RESET_CLEANUP.by_host(host, hosts(host))
    return host_lines({name: _lines_of(host.of(name), answer["plan"]) for name, answer in compared.items()})


def _lines_of(host: RunHost, plan: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {"stops": [], "purges": [], "removes": []}
    for change in plan:
        what = change["what"]
        if what.startswith("package "):
            kinds["purges"].append(what.removeprefix("package "))
        elif change["before"] == "directory" or not what.startswith(("/", "hold ")):
            kinds["removes" if what.startswith("/") else "stops"].append(what)
    if host.name in host.members("slurm_compute") and not is_whole(host):
        yield "is drained"
    if has_database(host):
        yield "drops the database with Slurm's records"
    if people_plan(host):
        yield "removes the accounts of people"
    if was_adopted(host):
        yield "gets its files from before the collection"
    for kind, names in kinds.items():
        if names:
            yield f"{kind} {len(names)} packages" if kind == "purges" else f"{kind} {', '.join(sorted(names))}"
    if files := [change for change in plan if change["before"] == "present"]:
        yield f"removes {len(files)} files (--diff shows them)"


def _unmount_messages(host: RunHost) -> list[str]:
    storage_results = registered.RESET_STORAGE.by_host(host, hosts(host))
    return host_lines({name: result.get("remarks") or [] for name, result in storage_results.items()})


def statistics(host: RunHost) -> dict[str, list[str]]:
    """The result of the playbook, for programs that run it."""
    return {"reset": hosts(host), "also": also(host)}


def report(host: RunHost) -> list[str]:
    """What was done, and what stays."""
    kept = [text for name, text in STAYS_UNLESS_NAMED.items() if name not in also(host)]
    lines = [
        f"{'To be reset' if host.check_mode else 'Reset'}: {fold(hosts(host))}",
        f"These stay: {', '.join([*kept, STAYS])}",
    ]
    if not is_whole(host):
        lines.append(
            "The cluster file still names them: the next run of site installs them again, and drained nodes are then "
            "to be resumed. remove_nodes takes nodes out of Slurm and of the file"
        )
    return [*lines, *_unmount_messages(host)]
