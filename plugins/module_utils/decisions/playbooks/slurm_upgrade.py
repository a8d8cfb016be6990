# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_upgrade: what an upgrade of Slurm changes, why it is refused, and the part that a host has in it.

All rules but `plan` need the plan, which a task has computed once for all hosts (`__slurm_upgrade_plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...client.scontrol import controllers
from ...cluster.package_source import files_version, package_entries
from ...configuration.upgrade import converts_database, parts, upgrade_plan
from ...controller.succession import SERIAL
from ...language.formatting import listed
from ...language.hostlist import fold
from ..daemons import slurmdbd
from ..daemons.slurm_client import wants_sackd
from ..known import registered
from ..known.host_paths import UPGRADE_DIR, UPGRADE_MARK
from ..known.run_host import RunHost
from ..known.whole_cluster import is_controller, serving_controller, source
from ..servers import rest

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import ConversionResult

USUAL_TIMEOUT = 300
"""Slurm's SlurmdTimeout, in seconds."""

LEAST_TIMEOUT = 300
"""Seconds. An installation from disk, the start of slurmd and its registration take less than a minute."""


# -- the plan ---------------------------------------------------------------------------------------------------------


def plan(host: RunHost) -> dict[str, Any]:
    """The plan for the hosts of this play (configuration/upgrade.py).

    The target is what the packages say: the version of the files in slurm_packages, or what apt offers on each host.
    `converts` tells whether the run converts the database: not that of a server of others, nor from a version of the
    same release to another one, unless a run that was killed has begun a conversion. `absent` are the controllers that
    the run does without. `unpacked` is where the new programs are before they are installed, `state_copy` the last copy
    of the state before them.
    """
    facts = {name: host.of(name).facts for name in host.play_hosts}
    package, database = source(host).version, facts.get(host["slurm_database"])
    found = upgrade_plan(facts, package, files_version(host["slurm_packages"]))
    begun = database is not None and UPGRADE_MARK in database["files"]
    present = database["packages"].get(package, "") if database else ""
    converts = begun or converts_database(present, found["to"])
    return {
        **found,
        "converts": converts and not host["slurm_database_server"],
        "absent": absent_controllers(host),
        "unpacked": f"{UPGRADE_DIR}/{found['to']}",
        "state_copy": f"{UPGRADE_DIR}/StateSaveLocation-before-{found['to']}.tar",
    }


def announcement(host: RunHost) -> str:
    """A line about the plan."""
    found = registered.SLURM_UPGRADE_PLAN.of(host)
    if not found["hosts"]:
        return f"Every host has Slurm {found['to']}"
    kept = "" if changes_release(host) else ", which has the same protocols, state and database"
    return f"Slurm {found['from']} -> {found['to']} on {fold(found['hosts'])}{kept}"


def changes_release(host: RunHost) -> bool:
    """Whether a host gets another release, or a database is converted as for another one.

    Within a release, the state of slurmctld and the plugins of others stay good. A run that was killed may have changed
    the packages of a controller that is the database host as well: then the conversion tells.
    """
    found = registered.SLURM_UPGRADE_PLAN.of(host)
    return bool(found["converts"] or parts(found["from"])[0] != found["release"])


@listed
def objections(host: RunHost) -> Iterator[str]:
    """What would lose jobs or cannot work, each with the way out."""
    plan = registered.SLURM_UPGRADE_PLAN.of(host)
    if plan["errors"]:
        yield "; ".join(plan["errors"])
    yield from _objections_to_absence(host)
    if (server := host["slurm_database_server"]) and changes_release(host) and not slurmdbd.may_convert(host):
        yield (
            f"slurmdbd {plan['to']} converts the database {server['name']} of {server['host']} when it starts, without "
            "a trial and a way back: let its administrator save it, and run again with -e backup_convert=true"
        )
    timeout = slurmd_timeout(host)
    if 0 != timeout < LEAST_TIMEOUT:
        yield (
            f"slurm_conf SlurmdTimeout: found {timeout}, allowed during an upgrade: 0, or {LEAST_TIMEOUT} or more; "
            "slurmctld ends the jobs of a node whose slurmd is away for longer. Raise it, run gpucluster.slurm.site, "
            "and lower it after the upgrade"
        )
    if "pyxis" in host["slurm_containers"] and plan["release"] not in host.option("pyxis", "pyxis_packages"):
        yield (
            f"pyxis_packages has no package for Slurm {plan['release']}, and slurmd would not start with the plugin of "
            "another release; build pyxis for it, and add the package"
        )
    # After the database's conversion, slurmdbd would start with a plugin that its host does not have.
    hosts = [host.of(name) for name in serving_hosts(host) if name in host.play_hosts]
    new = [one.name for one in hosts if rest.has_key(one) and rest.KEY not in one.facts["files"]]
    if new:
        yield (
            f"{fold(new)} was not configured with the key rest yet: run gpucluster.slurm.site first, or leave the key "
            "out until after the upgrade"
        )


def _objections_to_absence(host: RunHost) -> Iterator[str]:
    """Why the run cannot go on without the hosts that serve the cluster and are not in it."""
    absent, serving = absent_controllers(host), serving_controller(host)
    needed = [name for name in serving_hosts(host) if name not in (*host.play_hosts, *absent)]
    if needed:
        yield (
            f"{fold(needed)} cannot be left out, by --limit or because it was not reached or is unsuitable: the "
            "database and the controllers are upgraded first and together"
        )
    if not absent:
        return
    answering = controllers(registered.SLURM_UPGRADE_PING.seen(host.of(serving)).get("stdout", ""))
    if alive := [name for name in absent if answering.get(name)]:
        yield (
            f"{fold(alive)} was not reached, but its slurmctld answers {serving}, and would go on with the previous "
            "release: make the host reachable for Ansible, or stop slurmctld there"
        )
    elif not answering.keys() >= {*absent}:
        yield (
            f"{fold(absent)} was not reached, and {serving} does not say whether its slurmctld answers (scontrol ping)"
        )
    if SERIAL not in host.of(serving).facts["files"]:
        yield (
            f"{fold(absent)} was not reached, and its slurmctld could take control with the previous release when the "
            "host is back: run gpucluster.slurm.site with all controllers first, which prevents such a start"
        )


def absent_controllers(host: RunHost) -> list[str]:
    """The controllers that were not reached while another one serves, which may be dead."""
    serving = serving_controller(host)
    away = {*host.all_play_hosts} - {*host.play_hosts, serving, host["slurm_database"]}
    return [name for name in host["slurm_controllers"] if name in away] if serving in host.play_hosts else []


def asks_controllers(host: RunHost) -> bool:
    """Whether this host is asked if the slurmctld of controllers that were not reached answers."""
    return host.name == serving_controller(host) and bool(absent_controllers(host))


def serving_hosts(host: RunHost) -> list[str]:
    """The controllers and the host of the database."""
    names = [*host["slurm_controllers"], host["slurm_database"]]
    return list(dict.fromkeys(name for name in names if name))


def slurmd_timeout(host: RunHost) -> int:
    """SlurmdTimeout in seconds; 0, which is no limit, for a value such as INFINITE."""
    try:
        return int(float(host["slurm_conf"].get("SlurmdTimeout") or USUAL_TIMEOUT))
    except (ValueError, TypeError, OverflowError):
        return 0


# -- the part of a host -----------------------------------------------------------------------------------------------


def stages(host: RunHost) -> list[str]:
    """The stages that this host has a part in.

    Hosts that serve the cluster and have slurmd or pyxis as well come first: their slurmd has been stopped with their
    other daemons, and their srun does not load the previous pyxis any more.
    """
    changes, computes, serves = is_changed(host), host.within("slurm_compute"), serves_cluster(host)
    # A database whose change a killed run has begun has a record.
    begun = changes or UPGRADE_MARK in host.facts["files"]
    parts = {
        "packages": changes,
        "database": begun and host.name == host["slurm_database"],
        "controllers": begun and is_controller(host),
        "first_nodes": changes and serves and (computes or has_pyxis(host)),
        "nodes": changes and computes and not serves,
        "clients": changes and not computes and not serves,
    }
    return [name for name, has_part in parts.items() if has_part]


def is_changed(host: RunHost) -> bool:
    """Whether this host gets other packages."""
    return host.name in registered.SLURM_UPGRADE_PLAN.of(host)["hosts"]


def serves_cluster(host: RunHost) -> bool:
    """Whether this host is a controller or has the database."""
    return host.name in serving_hosts(host)


def has_pyxis(host: RunHost) -> bool:
    """Whether this host has pyxis: hosts with users do."""
    return "pyxis" in host["slurm_containers"] and host.within("slurm_compute", "slurm_login")


def pyxis_package(host: RunHost) -> dict[str, str]:
    """The package of pyxis for the new release."""
    package: dict[str, str] = host.option("pyxis", "pyxis_packages")[registered.SLURM_UPGRADE_PLAN.of(host)["release"]]
    return package


def daemons(host: RunHost) -> list[str]:
    """Daemons of this host that must not run while its packages change: they would load plugins of another version.

    Module slurm_conversion sees to slurmdbd if the database is converted.
    """
    found = {
        "slurmctld": is_controller(host),
        "slurmd": host.within("slurm_compute"),
        "sackd": host.within("slurm_login") and wants_sackd(host),
        "slurmdbd": host.name == host["slurm_database"] and not registered.SLURM_UPGRADE_PLAN.of(host)["converts"],
    }
    return [name for name, runs in found.items() if runs]


# -- packages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackageChange:
    """Options of the module slurm_packages."""

    packages: list[dict[str, str]]
    """The files of slurm_packages that the host gets; none with a repository."""
    version: str
    hold: list[str]


def packages(host: RunHost) -> PackageChange:
    """How the packages of this host become those of the new release."""
    own = list(dict.fromkeys(name for names in source(host).packages.values() for name in names))
    present = [name for name in own if name in host.facts["packages"]]
    entries = [entry for entry in package_entries(present, host["slurm_packages"], own) if "name" not in entry]
    return PackageChange(entries, registered.SLURM_UPGRADE_PLAN.of(host)["to"], list(source(host).hold))


def copied_files(host: RunHost) -> list[str]:
    """Those packages that are files on the control host."""
    return [entry["file"] for entry in packages(host).packages if "file" in entry]


def unpacked(host: RunHost) -> str:
    """Where the packages are unpacked; empty on hosts that need only their packages."""
    needs = host.name in (host["slurm_database"], serving_controller(host))
    return str(registered.SLURM_UPGRADE_PLAN.of(host)["unpacked"]) if needs else ""


def keeps_state(host: RunHost) -> bool:
    """Whether this host keeps a copy of the state for another release: all controllers share it, and one serves."""
    return host.name == serving_controller(host) and changes_release(host)


# -- the report -------------------------------------------------------------------------------------------------------


def conversion(host: RunHost) -> ConversionResult:
    """What the conversion of a copy has shown on the host of the database; empty without one."""
    return registered.SLURMDBD_CONVERSION.seen(host.of(host["slurm_database"] or host.name))


def report(host: RunHost) -> str:
    """What the upgrade will do."""
    plan = registered.SLURM_UPGRADE_PLAN.of(host)
    target, absent = plan["to"], plan["absent"]
    lines = ["Check mode: the next run would upgrade."] if host.check_mode else []
    lines.append(f"The packages are on the hosts, and slurmctld {target} starts with the configuration.")
    if host.members("slurm_upgrades_database") and plan["converts"]:
        result = conversion(host)
        lines.append(
            f"A copy of the database ({result['size']} MiB) was converted; the conversion will take about "
            f"{max(int(result.get('seconds', 0)), 1)} s. Until slurmdbd {target} opens its port, every failure "
            "restores the previous release."
        )
    if absent:
        lines.append(
            f"{fold(absent)} was not reached, and its slurmctld does not start with the previous release: run "
            "gpucluster.slurm.upgrade again when the host is back."
        )
    if host["slurm_plugstack"] and changes_release(host):
        plugins = ", ".join(entry["plugin"] for entry in host["slurm_plugstack"])
        lines.append(f"SPANK plugins of slurm_plugstack must be installed for Slurm {plan['release']}: {plugins}")
    return " ".join(lines)


def result(host: RunHost) -> dict[str, Any]:
    """The statistics of the run."""
    found = registered.SLURM_UPGRADE_PLAN.of(host)
    return {
        "from": found["from"],
        "to": found["to"],
        "hosts": fold(found["hosts"]),
        "conversion_seconds": conversion(host).get("seconds", 0),
    }
