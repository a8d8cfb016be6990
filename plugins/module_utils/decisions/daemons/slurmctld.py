# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmctld: slurmctld with its configuration on the controllers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...controller.succession import SERIAL
from ...formats.written import written
from ...language.hostlist import expand, fold
from ..known import registered, secret_sources, state_directory
from ..known.daemon_records import ServiceOptions
from ..known.host_paths import CONF_DIR, KEPT_CONF, KEPT_DIR, KEPT_HOSTS, KEPT_LIST, KEPT_SLURMD, LOG_DIR
from ..known.platform_tables import PLUGINS_OF_PACKAGES
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import is_controller, serves, serving_controller, with_leaving
from ..servers import rest
from ..values import machines, mail, slurm_accounting, slurm_conf_values, slurm_files, slurmctld_metrics
from . import host_packages, slurmdbd

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import ConfigResult


@dataclass(frozen=True)
class WantedConfiguration:
    """Options of slurm_config on the serving controller."""

    files: dict[str, str]
    hosts: str
    """The hosts of the cluster, as a hostlist."""
    leaving: str
    """The nodes that leave it, as a hostlist."""
    with_leaving: dict[str, str]
    """The files with the nodes that leave; none if none leave."""
    coming: list[str]
    """The plugins of packages that the run installs before the change."""
    digest: str


@dataclass(frozen=True)
class FirstNodes:
    """The nodes that have started slurmd with a change before all others."""

    restored: list[str]
    """Those that need their previous settings: after a failure all that have told."""
    failed: bool
    """Whether it has failed on one of them."""
    lost: str
    """Those that the run has lost before they could tell, as a hostlist."""


def configuration(host: RunHost) -> WantedConfiguration:
    """The wanted configuration."""
    files, hosts, leaving = slurm_files.files(host), hosts_of_cluster(host), host.members("slurm_leaving")
    before = slurm_files.files(with_leaving(host)) if leaving else {}
    return WantedConfiguration(files, hosts, fold(leaving), before, coming_plugins(host), digest_of_files(host, files))


def coming_plugins(host: RunHost) -> list[str]:
    """The plugins of packages that stage base installs before the configuration changes.

    remove_nodes installs packages after it.
    """
    if host.members("slurm_leaving") or not {"all", "base"} & {*host["ansible_run_tags"]}:
        return []
    missing = [name for name in host_packages.wanted_packages(host) if name not in host.facts["packages"]]
    return [plugin for name in dict.fromkeys(missing) for plugin in PLUGINS_OF_PACKAGES.get(name, ())]


def hosts_of_cluster(host: RunHost) -> str:
    """All hosts of the cluster, as a hostlist."""
    return fold(host.members("slurm_cluster"))


def configuration_changes(host: RunHost) -> bool:
    """Whether the files in force are not the wanted ones. A first configuration has nothing to lose."""
    found = host.facts["files"]
    if KEPT_CONF not in found:
        return False
    return bool(found.get(KEPT_LIST, "") != slurm_files.checksum(slurm_files.listed(slurm_files.files(host))))


def text_before_policy(host: RunHost) -> str:
    """slurm.conf if it may refuse what slurmdbd does not know yet: slurmctld itself, or jobs; else an empty text.

    The policy adds these to slurmdbd before it, and the rest of its changes after it.
    """
    unchanged = KEPT_CONF in host.facts["files"] and not configuration_changes(host)
    if (unchanged and not has_new_database(host)) or not (host["slurm_database"] and slurm_accounting.is_applied(host)):
        return slurm_conf_values.text_with_qos(host)
    return slurm_conf_values.text(host)


def has_new_database(host: RunHost) -> bool:
    """Whether this run has made the database, so that it knows neither the cluster nor its users."""
    return bool(host["slurm_database"]) and slurmdbd.has_new_database(host.of(host["slurm_database"]))


def registers_first(host: RunHost) -> bool:
    """Whether slurmctld serves a cluster that slurmdbd does not know yet, so that its users cannot be added before."""
    added = registered.SLURMCTLD_ADDITIONS.seen(host)
    return KEPT_CONF in host.facts["files"] and not host.check_mode and not added.get("registered", True)


def files_before_policy(host: RunHost) -> dict[str, str]:
    """The files with which slurmctld enforces no policy."""
    wanted = slurm_files.files(host)
    conf = re.sub("^AccountingStorageEnforce=.*\n", "", wanted["slurm.conf"], flags=re.IGNORECASE | re.MULTILINE)
    return {**wanted, "slurm.conf": conf}


def service(host: RunHost) -> ServiceOptions:
    """How slurmctld runs on this controller.

    The other controllers get the files in force, never files that were refused.
    """
    return ServiceOptions(service_files(host), service_digest(host), absent_files(host))


def service_files(host: RunHost) -> list[HostFile]:
    """The files of the service. The serving controller has its configuration from slurm_config already."""
    return [
        *unit_files(host),
        *mail.files(host),
        *machines.files(host),
        *slurmctld_metrics.key_files(host),
        *rest.key_files(host),
        *(state_directory.unit_files(host) if state_directory.is_shared(host) else []),
        *([] if serves(host) else standby_files(host)),
    ]


def unit_files(host: RunHost) -> list[HostFile]:
    """The rotation of the list of jobs, and the unit's settings.

    These are for the next failure, and systemd takes them while slurmctld runs.
    """
    several, standby = state_directory.is_shared(host), host.name in host["slurm_controllers"][1:]
    jobs = str(host["slurm_conf"].get("JobCompLoc") or f"{LOG_DIR}/job_completions")
    path = written(jobs, "logrotate") if jobs.startswith("/") else ""
    return [
        {
            "path": "/etc/logrotate.d/gpucluster-slurm",
            "content": host.text("slurmctld", "logrotate.j2", path=path),
            "loaded": False,
        },
        {
            "path": "/etc/systemd/system/slurmctld.service.d/gpucluster-slurm.conf",
            "content": host.text("slurmctld", "slurmctld.service.j2", several=several, standby=standby),
            "loaded": False,
        },
    ]


def absent_files(host: RunHost) -> list[str]:
    """The files that the service does not have, in one order, since the checksum of the options depends on it."""
    return [
        *absent_configuration(host),
        *state_directory.absent(host),
        *mail.absent(host),
        *machines.absent(host),
        *slurmctld_metrics.absent_key(host),
    ]


def result(host: RunHost) -> ConfigResult:
    """The result of slurm_config on the serving controller; empty if it has none."""
    return registered.SLURMCTLD_CONFIG.seen(host.of(serving_controller(host)))


def knows_configuration(host: RunHost) -> bool:
    """Whether the files in force on the serving controller are known; not if that has failed."""
    return bool(result(host).get("in_force"))


def can_run(host: RunHost) -> bool:
    """Whether slurmctld can run with the files in force.

    In check mode, slurm_config would have started it on the serving controller before.
    """
    started = host.check_mode and serves(host) and "start" in result(host)["actions"]
    return knows_configuration(host) and not started


def absent_configuration(host: RunHost) -> list[str]:
    """Files of Slurm that the site does not have, on a controller that does not serve."""
    return [] if serves(host) else [f"{CONF_DIR}/{name}" for name in result(host).get("absent") or []]


def keeps_found_files(host: RunHost) -> bool:
    """Whether a controller that does not serve may have files of another origin: it has got none of the cluster yet."""
    return not serves(host) and KEPT_CONF not in host.facts["files"]


def standby_files(host: RunHost) -> list[HostFile]:
    """The files in force for a controller that does not serve.

    It has the copies of slurm_config as well, which it needs when it serves.
    """
    known = result(host)
    copies: list[HostFile] = [{**file, "mode": "0600", "loaded": False} for file in in_force(known, f"{KEPT_DIR}/good")]
    hosts: HostFile = {
        "path": KEPT_HOSTS,
        "loaded": False,
        "content": "".join(f"{name}\n" for name in known["kept_hosts"]),
    }
    return [
        *in_force(known, CONF_DIR),
        *copies,
        {"path": KEPT_SLURMD, "loaded": False, "content": known["read_at_start"]},
        {"path": KEPT_LIST, "loaded": False, "content": known["listed"]},
        {"path": SERIAL, "loaded": False, "content": known["serial"]},
        # Those that have left the cluster and are not clean are named also after a takeover.
        *([hosts] if hosts["content"] else []),
    ]


def in_force(known: ConfigResult, directory: str) -> list[HostFile]:
    """The files in force for a directory: texts, and others in base64."""
    texts, others = known.get("in_force") or {}, known.get("in_force_bytes") or {}
    files: list[HostFile] = [{"path": f"{directory}/{name}", "content": text} for name, text in texts.items()]
    return [*files, *(HostFile(path=f"{directory}/{name}", secret=value) for name, value in others.items())]


def digests(host: RunHost) -> dict[str, str]:
    """The checksums of the options of both modules, by the names of their records on the controller.

    For a cluster with one controller: with several, the files of the others follow from those in force, which are known
    after slurm_config has run.
    """
    return {"slurmctld": service_digest(host), "slurmctld_config": configuration_digest(host)}


def hosts_with_work(host: RunHost, records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The controllers on which slurmctld or its configuration is not as the last run has left it.

    With several controllers, the files of the others follow from those in force, so all of them are compared.

    Args:
        host: any host.
        records: by controller, the checksums that modules have recorded there.
    """
    if len(host["slurm_controllers"]) > 1:
        return list(records)
    prepared = host.members("slurm_needs_preparation")
    return [
        name
        for name, found in records.items()
        if name in prepared or any(found.get(key) != wanted for key, wanted in digests(host.of(name)).items())
    ]


def changed_hosts(host: RunHost, records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The controllers on which slurmctld is not known to be as the last run has left it.

    A run compares all of several controllers. The record of slurm_service says what it has left there: it ends with
    another start, and with a change of a file.
    """
    found = hosts_with_work(host, records)
    return [name for name in found if len(host["slurm_controllers"]) == 1 or "slurmctld" not in records[name]]


def configuration_digest(host: RunHost) -> str:
    """The checksum of the options of slurm_config."""
    return digest_of_files(host, slurm_files.files(host))


def digest_of_files(host: RunHost, files: Mapping[str, str]) -> str:
    """The checksum of the options of slurm_config with these files."""
    cleaned = host.option("slurmctld", "slurmctld_cleaned_hosts")
    return digest([slurm_files.listed(files), hosts_of_cluster(host), cleaned])


def service_digest(host: RunHost) -> str:
    """The checksum of the options of slurm_service.

    The passwords of the relay and of the machines are short: without a salt, the checksum on the host would help to
    guess them.
    """
    salted = mail.has_password(host) or machines.has_password(host)
    key = secret_sources.secret(host, secret_sources.MUNGE) if salted else None
    return digest([service_files(host), absent_files(host), base64.b64encode(key or b"").decode()])


def digest(options: Iterable[Any]) -> str:
    """The checksum of options by which a host is known to be as the last run has left it (SHA-256)."""
    return hashlib.sha256(json.dumps([*options]).encode()).hexdigest()


def waits_for_control(host: RunHost) -> bool:
    """Whether this host may have to take over: slurm_service has started one of several controllers."""
    actions = registered.SLURMCTLD_SERVICE.seen(host).get("actions") or []
    return state_directory.is_shared(host) and bool({"start", "restart"} & {*actions})


def was_controller(host: RunHost) -> bool:
    """Whether slurmctld of this collection runs here, and the host is no controller any more: it could take over."""
    clusters = host.facts["clusters"]
    runs = any(found["by"] == "slurmctld" for found in clusters["found"])
    return runs and "slurmctld" not in clusters["daemons"] and not is_controller(host)


def stopped_files(host: RunHost) -> list[str]:
    """What such a host loses with its slurmctld: its settings, the files in force, and those of machines."""
    return [
        "/etc/systemd/system/slurmctld.service.d/gpucluster-*",
        state_directory.TAKE_CONTROL,
        *(f"{CONF_DIR}/{name}" for name in slurm_files.files(host)),
        *machines.EVERY_FILE,
    ]


def report(host: RunHost) -> list[str]:
    """Lines about the change of the configuration; empty if there is nothing to say."""
    done = registered.SLURMCTLD_CONFIG.seen(host)
    table, messages = done.get("table") or [], [*(done.get("remarks") or []), *mail.warnings(host)]
    if not table and not messages:
        return []
    return [*(["This changes:", *table] if table else ["Warnings:"]), *messages]


def has_report(host: RunHost) -> bool:
    """Whether the change has lines to show, belongs to the plan of the run, or is to be checked on the first nodes."""
    done = registered.SLURMCTLD_CONFIG.seen(host)
    return bool(report(host) or done.get("plan") or done.get("unproven"))


def first_nodes(host: RunHost) -> list[str]:
    """The nodes that start slurmd with a change before all others: the first of each kind that this run has reached.

    Not one that this run has refused for its own files: it stays as it is.
    """
    nodes = {*host.members("slurm_compute")}
    kinds = (expand(kind) for kind in registered.SLURMCTLD_CONFIG.seen(host).get("unproven") or [])
    firsts = (next((name for name in kind if name in nodes and _can_be_first(host.of(name))), None) for kind in kinds)
    return [name for name in firsts if name is not None]


def _can_be_first(node: RunHost) -> bool:
    """Whether this run has reached a node, and has not refused to take it over."""
    return node.answer() is not None and not registered.SLURMCTLD_OWN_ACCEPTED.seen(node).get("failed")


def first_nodes_result(host: RunHost) -> FirstNodes:
    """The result of the first nodes with the change."""
    names = host.members("slurm_needs_first_nodes")
    errors = registered.SLURMD_OUTCOME.by_host(host, names)
    failed = any(errors.values())
    return FirstNodes([*errors] if failed else [], failed, fold([name for name in names if name not in errors]))


def serving_line(host: RunHost) -> str:
    """Which of several controllers serves at the end of the run; empty for a cluster with one."""
    answer: dict[str, str] = registered.SLURM_RUN_ENDED.seen(host).get("controllers") or {}
    order = [name for name in host["slurm_controllers"] if name in answer]
    states = {name: answer[name] for name in dict.fromkeys([*order, *answer])}
    if not states:
        return ""
    named = {state: fold([name for name in states if states[name] == state]) for state in states.values()}
    first, serves, silent = next(iter(states)), named.get("serves", ""), named.get("does not answer", "")
    if not serves:
        return f"No controller serves: run gpucluster.slurm.doctor. slurmctld does not answer on {silent or 'none'}."
    place = "" if serves == first else f" in place of {first}"
    standbys = f"; {named['stands by']} stands by" if "stands by" in named else ""
    away = f"; slurmctld does not answer on {silent}" if silent else ""
    back = f". Run gpucluster.slurm.site when {first} can be reached: it then takes control back" if place else ""
    return f"The controller {serves} serves{place}{standbys}{away}{back}."
