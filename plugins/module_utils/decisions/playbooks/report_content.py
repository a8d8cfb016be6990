# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of playbook report: what the page says of hosts, and what is asked on the serving controller.

A difference is what site.yml would change or refuse. The rules of site.yml itself say it, from the same facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...language.hostlist import fold
from ..daemons import host_packages, slurmctld
from ..host import kernel, unattended_changes
from ..known import program_files, registered
from ..known.run_host import RunHost
from ..known.unchanged_hosts import digest
from ..known.whole_cluster import backup_hosts, serving_controller
from ..run import comparison, preparation, stages
from ..servers import report_server
from . import accept

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import HostAnswer

Row = dict[str, Any]

SHOWN = 5
"""Names that one difference lists."""

SERVICES = {
    "munge": "munge",
    "controller": "slurmctld",
    "compute": "slurmd or the health check",
    "metrics": "a program of monitoring",
}
"""What a stage changes, by its name."""

NOT_BOOTED = {"kernel": "kernel", "nvidia": "driver"}
"""The word of a difference by the kind of a package that is installed and was not booted."""


# -- differences ------------------------------------------------------------------------------------------------------


def differences(host: RunHost) -> Row:
    """What is different on the hosts of this play, in the form of the data (docs/design/report.md)."""
    answers = comparison.all_answers(host)
    host = host.extended(__slurm_run={"serving_controller": comparison.serving_of(host, answers)})
    common = _of_comparison(host, answers)
    return {
        "hosts": [
            {
                "name": name,
                "reached": name in answers,
                "differences": [
                    {"what": what, "text": text}
                    for what, text in (
                        *(answers[name].get("drift", ()) if name in answers else ()),
                        *common.get(name, ()),
                        *_not_booted(host.of(name)),
                    )
                ],
            }
            for name in host.all_play_hosts
        ]
    }


def own(host: RunHost, objections: Iterable[str]) -> list[tuple[str, str]]:
    """The differences that a host's own answer tells, each with its word.

    Args:
        host: the host, with the variables of role base.
        objections: why site.yml refuses it. Then its other facts are not compared, as there.
    """
    refused = [("refused", f"site.yml refuses the host: {text}") for text in objections]
    return refused or list(_own(host))


def _own(host: RunHost) -> Iterator[tuple[str, str]]:
    if host.within("slurm_controller") and slurmctld.configuration_changes(host):
        yield "configuration", "slurm.conf in force is not that of the cluster file"
    yield from _packages(host)
    yield from _ids(host)
    yield from _files(host)
    if kernel.kernel(host).low:
        yield "kernel", f"settings of the kernel are too low: {_few(kernel.kernel(host).low)}"
    if host_packages.wants_time(host):
        yield "clock", "no service synchronizes the clock"


def _packages(host: RunHost) -> Iterator[tuple[str, str]]:
    facts = host.facts
    wanted = dict.fromkeys([*preparation.role_packages(host), *host_packages.wanted_packages(host)])
    if missing := [name for name in wanted if name not in facts["packages"]]:
        yield "packages", f"packages are missing: {_few(missing)}"
    if facts["interrupted"]:
        yield "packages", "an installation of packages was interrupted"
    if facts["unheld"]:
        yield "packages", f"apt may change packages of Slurm, which are not held: {_few(facts['unheld'])}"


def _ids(host: RunHost) -> Iterator[tuple[str, str]]:
    if preparation.lacks_users(host):
        missing = [name for name in preparation.service_users(host) if name not in host.facts["users"]]
        yield "ids", f"users of services are missing: {_few(missing)}"
    if stages.needs_people(host):
        yield "ids", "users, groups or keys are not those of the cluster file"


def _files(host: RunHost) -> Iterator[tuple[str, str]]:
    facts = host.facts
    for path, found in [*facts["directories"]["differ"].items()][:SHOWN]:
        yield "files", f"{path} is missing" if found == "missing" else f"{path} has another owner or mode: {found}"
    if preparation.wants_hosts(host):
        yield "files", "the cluster's part of /etc/hosts is different"
    for path, text in unattended_changes.files(host).items():
        if facts["files"].get(path) != digest(text):
            yield "files", f"{path} is missing or different"
    if stages.needs_storage(host) or stages.needs_file_server(host):
        yield "files", "mounts, homes or exports are not those of the cluster file"
    if stages.needs_firewall_rules(host):
        yield "services", "the rules of the firewall are not those of the cluster file"
    if report_server.SERVER_ROLE.lost(host) and not report_server.is_served(host):
        yield "services", "the page about the cluster is still there, and the cluster file has it elsewhere"


def _not_booted(host: RunHost) -> Iterator[tuple[str, str]]:
    """Kernels and drivers that are installed, while an older one runs."""
    for update in registered.SLURM_UPDATES.seen(host).get("updates", ()):
        if update["state"] == "not booted" and update["kind"] in NOT_BOOTED:
            versions = " -> ".join(filter(None, (update["installed"], update["available"])))
            yield NOT_BOOTED[update["kind"]], f"the newest one is not booted: {versions}"


def _of_comparison(host: RunHost, answers: Mapping[str, HostAnswer]) -> dict[str, list[tuple[str, str]]]:
    """The differences that the answers of all hosts tell together."""
    found: dict[str, list[tuple[str, str]]] = {}

    def add(names: Iterable[str], what: str, text: str) -> None:
        for name in names:
            found.setdefault(name, []).append((what, text))

    answers = {name: answer for name, answer in answers.items() if not answer["objections"]}
    for name, text in comparison.wrong_clocks(host, answers).items():
        add([name], "clock", text)
    for name, text in comparison.releases(host, answers)["errors"].items():
        add([name], "packages", text)
    add(comparison.access_hosts(host, answers), "files", "files about who may log in are different")
    controllers = {
        name: fact["applied"]
        for name, fact in comparison.facts_by_host(answers).items()
        if name in host["slurm_controllers"]
    }
    work = comparison.services_with_work(host, answers) | {"controller": slurmctld.changed_hosts(host, controllers)}
    for stage, names in work.items():
        what = SERVICES[stage]
        add(names, "services", f"{what} is not known to be as site.yml has left it: a file, a start or a boot since")
    return found


def _few(names: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    found = [*names]
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


# -- other parts of the data ------------------------------------------------------------------------------------------


def versions(host: RunHost) -> list[Row]:
    """Which hosts have which release of Slurm, distribution and version of other packages."""
    together: dict[tuple[str, str], list[str]] = {}
    for name in comparison.all_answers(host):
        facts = host.of(name).facts
        found = {"Slurm": facts["slurm"]["installed"], "distribution": facts["distribution"]}
        found |= {title: facts["packages"].get(package, "") for package, title in PACKAGES.items()}
        for what, version in found.items():
            if version:
                together.setdefault((what, version), []).append(name)
    return [{"what": what, "version": version, "hosts": fold(names)} for (what, version), names in together.items()]


PACKAGES = {"munge": "munge", "mariadb-server": "MariaDB", "nvidia-driver": "NVIDIA driver", "enroot": "enroot"}
"""Packages whose versions are shown."""


def pending(host: RunHost) -> list[Row] | None:
    """The updates of all hosts that were asked; None if nobody was."""
    results = registered.SLURM_UPDATES.by_host(host, host.all_play_hosts)
    asked = {name: result["updates"] for name, result in results.items() if "updates" in result}
    together: dict[tuple[Any, ...], list[str]] = {}
    for name, found in asked.items():
        for each in found:
            if each["state"] not in ("none", "not booted"):
                key = (each["kind"], each["security"], each["state"] == "held", each["installed"], each["available"])
                together.setdefault(key, []).append(name)
    names = ("what", "security", "held", "from", "to")
    rows = [{**dict(zip(names, key)), "hosts": fold(hosts)} for key, hosts in together.items()]
    return rows if asked else None


def backups(host: RunHost) -> list[Row]:
    """The hosts that save, and the faults of their last backup."""
    answers = comparison.all_answers(host)
    return [
        {"host": name, "finished": None, "ok": not text, "text": text}
        for name in answers
        if name in backup_hosts(host.of(name))
        for text in [host.of(name).facts["backup"]]
    ]


def validation(host: RunHost) -> Row | None:
    """The last run of validate that this control host knows, in the form of the data; None without one."""
    path = Path(host.option("validate", "validate_report_dir")) / "validation.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return left_by_validate(host, found, datetime.fromtimestamp(int(path.stat().st_mtime)).astimezone().isoformat())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def left_by_validate(_host: RunHost, result: Mapping[str, Any], finished: str) -> Row:
    """What role validate leaves for the page.

    Args:
        result: what it returns.
        finished: the time, in ISO 8601.
    """
    return {"finished": finished, **{key: result[key] for key in ("ok", "passed", "failed", "waiting")}}


def acceptance(host: RunHost) -> list[Row]:
    """The last runs of accept.yml that this control host knows, in the form of the data; empty without one."""
    runs = accept.runs_before(host).get("runs")
    return runs if isinstance(runs, list) else []


def found(host: RunHost, checked: str) -> Row:
    """What the page says of hosts.

    Args:
        host: any host of the play.
        checked: the time, in ISO 8601.
    """
    last = validation(host)
    return {
        "hosts": {"checked": checked, **differences(host)},
        "versions": versions(host),
        "updates": pending(host),
        "backup": backups(host),
        **({"validation": last} if last else {}),
        "acceptance": acceptance(host),
    }


# -- the playbook -----------------------------------------------------------------------------------------------------


def serving(host: RunHost) -> str:
    """The controller that is asked."""
    answers = comparison.all_answers(host)
    return serving_controller(host.extended(__slurm_run={"serving_controller": comparison.serving_of(host, answers)}))


def collector(_host: RunHost) -> str:
    """The program that is sent to the serving controller."""
    return program_files.sent("programs.report_collector")


def pages_program(_host: RunHost) -> str:
    """The program that makes the pages on the control host."""
    return program_files.local("programs.slurm_report")


def settings(host: RunHost) -> str:
    """Its settings, as an argument."""
    return json.dumps(report_server.settings(host, serving(host)))


def collected(host: RunHost, made: str) -> str:
    """The data that `slurm-report pages` reads: the answer of the serving controller, or why there is none.

    Args:
        host: any host of the play.
        made: the time, in ISO 8601.
    """
    results = registered.SLURM_REPORT_COLLECTED.by_host(host, host.all_play_hosts)
    result: Mapping[str, Any] = next(iter(results.values()), {})
    if result.get("rc") == 0 and result.get("stdout"):
        return str(result["stdout"])
    reason = str(result.get("stderr") or result.get("msg") or "it was not reached").strip().split("\n")[-1][:300]
    why = f"{serving(host)}: {reason}"
    parts = [
        *OF_SLURM,
        *(["alerts"] if report_server.prometheus_url(host) else []),
        *(["cases"] if report_server.has_cases(host, serving(host)) else []),
    ]
    return json.dumps({"version": 1, "made": made, "missing": [{"part": part, "why": why} for part in parts]})


OF_SLURM = (
    *("cluster", "release", "private", "controllers", "nodes", "drains", "jobs", "maintenance", "usage"),
    *("hosts", "versions", "updates", "backup", "validation", "acceptance"),
)
"""The parts of the data that can be missing (`PARTS` of the program), without alerts and cases, which need a key."""


def is_left(host: RunHost) -> bool:
    """Whether the host of the key gets what was found. Before site.yml has run, it has no place for it."""
    name = (host["slurm_report"] or {}).get("host", "")
    return name in comparison.all_answers(host) and report_server.SETTINGS in host.of(name).facts["files"]


def result(host: RunHost, hosts: Mapping[str, Any]) -> Row:
    """What the playbook returns, apart from the paths.

    Args:
        host: any host of the play.
        hosts: the part `hosts` of what was found.
    """
    rows = hosts["hosts"]
    return {
        "checked": hosts["checked"],
        "hosts": len(rows),
        "reached": sum(row["reached"] for row in rows),
        "differences": {row["name"]: row["differences"] for row in rows if row["differences"]},
        "served": is_left(host),
    }


def lines(_host: RunHost, hosts: Mapping[str, Any], pages: str) -> list[str]:
    """What the playbook says to a person."""
    rows = hosts["hosts"]
    away = [row["name"] for row in rows if not row["reached"]]
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for each in row["differences"]:
            together.setdefault((each["what"], each["text"]), []).append(row["name"])
    texts = [f"{fold(names)}: {what}: {text}" for (what, text), names in together.items()]
    texts += [f"{fold(away)}: not reached"] if away else []
    return [f"Pages: {pages}", *(texts or ["All hosts are as the cluster file has them."])]
