# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the answers of all hosts together tell: the serving controller, refusals, and the work of some stages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...cluster.package_source import files_version
from ...configuration.release_order import release_order
from ...facts.hosts_of_others import cluster_objections
from ...facts.state_version import newer_state_lines
from ...language.formatting import short
from ...language.hostlist import expand, fold
from ...people.directory import directory_hosts
from ..daemons import slurmctld, slurmd
from ..host import access, munge, slurm_health, storage
from ..known import hardware, image, platform, registered, secret_sources
from ..known.host_paths import KEPT_CONF
from ..known.run_host import RunHost
from ..known.whole_cluster import serving_controller, state_directory
from ..servers import prometheus
from . import stages
from .questions import asked_controllers

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import DirectoryUsers, HostFact
    from ....plugin_utils.results.module_results import HostAnswer

MOST_SECONDS = 30
"""Clocks of the hosts differ by less. munge refuses credentials between clocks that differ by 300 s."""

NODE_LINE = re.compile(r"NodeName=(\S+)")

AWAY, SILENT = "was not reached by this run", "gave no facts"
"""How a host has not answered."""


@dataclass(frozen=True)
class HostComparison:
    """The outcome, for all hosts of the run."""

    stop: str
    """Why the run must not go on; empty if it may."""
    remarks: list[str]
    serving_controller: str
    """The controller that serves, or should serve if none does."""
    release_order: dict[str, Any]
    """The release of the cluster, and the hosts that do not fit it (configuration/release_order.py)."""
    open_questions: list[str]
    """What has to be asked before the hosts can be judged: `nodes`, `controller`, `lists`."""
    refused: dict[str, list[str]]
    """Why hosts are left out."""
    work: list[dict[str, Any]]
    """Hosts with the groups of stages that have work there, in addition to those that each host's own answer told."""
    directory_users: list[str]
    directory_answers: dict[str, DirectoryUsers]
    """How hosts know the users of a directory, if they do not agree."""


def compare(host: RunHost) -> HostComparison:
    """Compare the answers of all hosts of this play."""
    answers = all_answers(host)
    host = host.extended(__slurm_run={"serving_controller": serving_of(host, answers)})
    order = releases(host, answers)
    stop = (
        "\n".join(stop_lines(host, facts_by_host(answers)))
        or unreached_controller(host, answers)
        or serving_releases(host, order)
    )
    stop = stop or ("" if registered.SLURM_ROTATES.get(host) else munge.switch_objection(host))
    refused = refusals(host, answers, order)
    stop = stop or refused_server(host, refused)
    suitable = {name: answer for name, answer in answers.items() if name not in refused}
    directory = differing_directory_answers(host, suitable)
    questions = [] if stop else open_questions(host, order)
    remarks = left_out(host)
    if questions:
        groups = {host.name: ["slurm_open_questions"]}
    else:
        groups = work(host, suitable, directory)
        if stop or remarks or refused:
            groups.setdefault(host.name, []).append("slurm_unsuitable")
    return HostComparison(
        stop=stop,
        remarks=remarks,
        serving_controller=serving_controller(host),
        release_order=order,
        open_questions=questions,
        refused=refused,
        work=[{"name": name, "groups": names} for name, names in groups.items() if names],
        directory_users=host.shared("policy_users") if directory else [],
        directory_answers=directory,
    )


def primary(host: RunHost) -> str:
    """The primary controller; empty without one."""
    return next(iter(host["slurm_controllers"]), "")


def all_answers(host: RunHost) -> dict[str, HostAnswer]:
    """The answers of the hosts that were reached, in the order of the play."""
    found = {name: host.of(name).answer() for name in host.play_hosts}
    return {name: answer for name, answer in found.items() if answer is not None}


def facts_by_host(answers: Mapping[str, HostAnswer]) -> dict[str, HostFact]:
    """The fact `slurm_host` of all hosts, by host."""
    return {host: answer["ansible_facts"]["slurm_host"] for host, answer in answers.items()}


def unreached(host: RunHost) -> list[str]:
    """The hosts that have not answered."""
    return sorted(set(host.all_play_hosts) - set(host.play_hosts), key=str.lower)


def left_out(host: RunHost) -> list[str]:
    """Hosts that have not answered, for a person."""
    found: dict[str, list[str]] = {}
    for name in unreached(host):
        found.setdefault(_lack(host, name)[0], []).append(name)
    words = {AWAY: "were not reached", SILENT: SILENT}
    return [f"Hosts that {words[how]} are left out of this run: {fold(names)}" for how, names in found.items()]


def _lack(host: RunHost, name: str) -> tuple[str, str]:
    """Whether a host was away or has failed to say its facts, and why."""
    result = registered.SLURM_FACTS.seen(host.of(name))
    reason = short(str(result.get("msg") or "").strip().partition("\n")[0], 200)
    return SILENT if result.get("failed") and not result.get("unreachable") else AWAY, reason


def stop_lines(host: RunHost, found: Mapping[str, HostFact]) -> list[str]:
    """Why the run must touch none of its hosts: some belong to another cluster, or are those of a newer collection.

    A host of another cluster would lose its munge key and its configuration. The run stops for all hosts: with the
    wrong cluster file, the others would get the key and the names of a cluster that they do not belong to.

    Args:
        host: a host of the run.
        found: the fact `slurm_host` by host.
    """
    others = cluster_objections(
        {name: fact["clusters"] for name, fact in found.items()},
        cluster=host["slurm_cluster_name"],
        controllers=host["slurm_controllers"],
        database=host["slurm_database"],
        state_directory=state_directory(host),
        adopted=secret_sources.is_known(host, secret_sources.MUNGE),
    )
    return others or newer_state_lines({name: fact["state_version"] for name, fact in found.items()})


def stop_lines_of_play(host: RunHost) -> list[str]:
    """The same in playbooks without the tasks of role base, for the hosts of the play that were reached."""
    answers = registered.SLURM_CLUSTER_FACTS.by_host(host, host.play_hosts)
    facts = {name: answer.get("ansible_facts") or {} for name, answer in answers.items()}
    return stop_lines(host, {name: of["slurm_host"] for name, of in facts.items() if "slurm_host" in of})


def objections_of_role(host: RunHost) -> list[str]:
    """Why a role that is used without role base refuses the host."""
    return stop_lines(host, {host.name: host.facts}) or platform.objections(host)


def serving_of(host: RunHost, answers: Mapping[str, HostAnswer]) -> str:
    """The controller that serves. Another one than the primary serves after a takeover.

    If none has said so, it is the primary. Without its host it is a standby that has files in force and is stopped, as
    a run that was killed leaves it; one that runs takes over by itself.
    """
    asked = [name for name in asked_controllers(host) if name in answers]
    facts = {name: answers[name]["ansible_facts"]["slurm_host"] for name in asked}
    said = [facts[name]["serving_controller"] for name in asked]
    if primary(host) in unreached(host):
        said += [name for name in asked if KEPT_CONF in facts[name]["files"] and not runs_slurmctld(facts[name])]
    return next((name for name in said if name in host["slurm_controllers"]), primary(host))


def runs_slurmctld(facts: HostFact) -> bool:
    """Whether slurmctld runs on a host, by its facts."""
    clusters = facts["clusters"]
    return "slurmctld" in {*clusters["daemons"], *(found["by"] for found in clusters["found"])}


def unreached_controller(host: RunHost, answers: Mapping[str, HostAnswer]) -> str:
    """Why the run stops without its controller.

    With --tags base and people the other hosts get everything that needs no controller.
    """
    controller = serving_controller(host)
    if controller not in unreached(host) or {*host["ansible_run_tags"]} <= {"base", "people"}:
        return ""
    said = [name for name, fact in facts_by_host(answers).items() if fact["serving_controller"] == controller]
    who = f"{controller}, which serves as {fold(said)} says," if said else f"the controller {controller}"
    how, reason = _lack(host, controller)
    return (
        f"Nothing was changed: {who} {how}{f' ({reason})' if reason else ''}, and the other hosts depend on it. Run "
        "again when it answers, or with --tags base or people, which do not need it."
    )


def releases(host: RunHost, answers: Mapping[str, HostAnswer]) -> dict[str, Any]:
    """The release of the cluster, and the hosts that do not fit it.

    A controller outside of this run counts if it was asked. A run of upgrade.yml brings the hosts to another release,
    so there is nothing to compare.
    """
    if registered.SLURM_UPGRADES.get(host):
        return release_order({}, host["slurm_controllers"], host["slurm_database"])
    found = {name: fact["slurm"] for name, fact in facts_by_host(answers).items()}
    asked = registered.BASE_CONTROLLER.seen(host).get("ansible_facts")
    if asked:
        found[serving_controller(host)] = asked["slurm_host"]["slurm"]
    return release_order(
        found,
        host["slurm_controllers"],
        host["slurm_database"],
        files_version(host["slurm_packages"]),
        registered.BASE_KNOWN_RELEASE.seen(host),
    )


def release_order_of_play(host: RunHost) -> dict[str, Any]:
    """The same for the hosts of this play alone."""
    return releases(host, all_answers(host))


def serving_releases(host: RunHost, order: Mapping[str, Any]) -> str:
    """Why the run stops for the release of a controller or the database. The other hosts depend on these.

    apt's lists may be old: it downloads them before a host is refused.
    """
    errors = order["serving_errors"]
    if not errors or not registered.BASE_ASKED_AGAIN.get(host):
        return ""
    return f"Nothing was changed. {'; '.join(f'{name}: {error}' for name, error in errors.items())}"


def refused_server(host: RunHost, refused: Mapping[str, list[str]]) -> str:
    """Why the run stops for a host that is refused and exports nothing yet: other hosts would mount it."""
    texts = []
    for name in refused:
        exports = storage.unfinished_plan(host.of(name)).get("exports")
        texts += [f"{name}, which is to export {', '.join(exports)}: {'; '.join(refused[name])}"] if exports else []
    return f"Nothing was changed. {'. '.join(texts)}" if texts else ""


def needs_node_lines(host: RunHost) -> bool:
    """Whether the configuration in force has to be asked for its nodes.

    slurmd starts only if it has its node. The controllers, which write it, are not in this run.
    """
    without = not {*host["slurm_controllers"]} & {*host.all_play_hosts}
    nodes = {*host.members("slurm_compute")} & {*host.play_hosts}
    return without and bool(nodes) and bool({*host["ansible_run_tags"]} & {"all", "compute"})


def open_questions(host: RunHost, order: Mapping[str, Any]) -> list[str]:
    """What has to be asked before the hosts can be judged."""
    if registered.BASE_ASKED_AGAIN.get(host) or image.builds(host):
        return []
    questions = ["nodes"] if needs_node_lines(host) else []
    questions += ["controller"] if order["unasked"] else []
    questions += ["lists"] if order["unasked"] or order["errors"] else []
    return questions


def refusals(host: RunHost, answers: Mapping[str, HostAnswer], order: Mapping[str, Any]) -> dict[str, list[str]]:
    """Why hosts are left out: what their own answers told, and what the comparison tells."""
    clocks, known = {} if image.builds(host) else wrong_clocks(host, answers), known_nodes(host)
    found = {}
    for name, answer in answers.items():
        texts = list(answer["objections"])
        texts += [clocks[name]] if name in clocks else []
        texts += [order["errors"][name]] if name in order["errors"] else []
        if known is not None and name in host.members("slurm_compute") and name not in known:
            texts.append(
                f"slurm.conf on {serving_controller(host)} does not have this node, so slurmd would not start; the "
                f"controllers have to be in the run, since they write slurm.conf: --limit {name},slurm_controller, or "
                "no --limit"
            )
        if texts:
            found[name] = texts
    return found


def known_nodes(host: RunHost) -> set[str] | None:
    """The nodes of the configuration in force; None if it was not asked."""
    lines = registered.BASE_NODE_LINES.seen(host).get("stdout_lines")
    if lines is None or not needs_node_lines(host):
        return None
    names = (NODE_LINE.match(line) for line in lines)
    return {node for match in names if match for node in expand(match[1])}


def wrong_clocks(host: RunHost, answers: Mapping[str, HostAnswer]) -> dict[str, str]:
    """Hosts whose clock differs from that of the first controller of the run.

    The control host's clock may be wrong itself. Without a controller it is the reference.
    """
    reference = next((name for name in host["slurm_controllers"] if name in answers), "")
    zero = answers[reference]["clock_offset"] if reference else 0.0
    texts = {}
    for name, answer in answers.items():
        offset = answer["clock_offset"] - zero
        if abs(offset) >= MOST_SECONDS:
            texts[name] = (
                f"the clock is {round(abs(offset))} s {'ahead of' if offset > 0 else 'behind'} that of "
                f"{reference or 'the control host'}, allowed: less than {MOST_SECONDS} s, since munge refuses "
                "credentials between clocks that differ by 300 s; correct the clock, and its synchronization "
                "(timedatectl, chronyc tracking)"
            )
    return texts


def differing_directory_answers(host: RunHost, answers: Mapping[str, HostAnswer]) -> dict[str, DirectoryUsers]:
    """How the hosts know the users of a directory; empty without one."""
    if not host.shared("uses_directory") or not host.shared("policy_users"):
        return {}
    return {name: fact["directory"] for name, fact in facts_by_host(answers).items()}


def access_hosts(host: RunHost, answers: Mapping[str, HostAnswer]) -> list[str]:
    """The hosts whose files of access differ."""
    if not host["slurm_access"]:
        return []
    digests = access.text_digests(host.shared("access_texts"))
    return [name for name in answers if access.differs(host.of(name), digests)]


def services_with_work(host: RunHost, answers: Mapping[str, HostAnswer]) -> dict[str, list[str]]:
    """The hosts on which daemons are not as the last run has left them, by stage.

    Stages that change something which slurmctld or slurmd depends on let the run compare these again
    (`controllers_again`, `nodes_again`).
    """
    records = {name: fact["applied"] for name, fact in facts_by_host(answers).items()}
    controllers = {name: records[name] for name in records if name in host["slurm_controllers"]}
    nodes = {name: records[name] for name in records if name in host.members("slurm_compute")}
    compute = {*slurm_health.hosts_with_work(host, nodes), *slurmd.hosts_with_work(host, nodes)}
    return {
        "munge": munge.hosts_with_work(host, answers),
        "controller": slurmctld.hosts_with_work(host, controllers),
        "compute": [name for name in nodes if name in compute],
        "metrics": prometheus.hosts_with_work(host, facts_by_host(answers)),
    }


def controllers_again(host: RunHost) -> list[str]:
    """The controllers with work after the stages that slurmctld's configuration depends on."""
    return slurmctld.hosts_with_work(host, records_on(host, "slurm_controller"))


def nodes_again(host: RunHost) -> list[str]:
    """The compute nodes with work after the stages that slurmd depends on."""
    return slurmd.hosts_with_work(host, records_on(host, "slurm_compute"))


def records_on(host: RunHost, group: str) -> dict[str, dict[str, str]]:
    """The checksums that modules have recorded on the hosts of a group, by host of this play."""
    members = {*host.members(group)}
    return {name: host.of(name).facts["applied"] for name in host.play_hosts if name in members}


def registration_has_findings(host: RunHost, answers: Mapping[str, HostAnswer]) -> bool:
    """Whether the measured hardware differs from what is declared, or a program of slurm.conf is missing."""
    if image.builds(host):
        return False
    facts = {name: answer["ansible_facts"] for name, answer in answers.items()}
    nodes = {*host.members("slurm_compute")}
    found = hardware.registration_findings(host, facts, [name for name in facts if name in nodes])
    return bool(found.hardware or found.programs)


def work(
    host: RunHost, answers: Mapping[str, HostAnswer], directory: Mapping[str, DirectoryUsers]
) -> dict[str, list[str]]:
    """The groups of stages that have work on each host, as only the comparison tells."""
    groups: dict[str, list[str]] = {name: [] for name in answers}
    for name, stage in _find_work(host, answers, directory):
        groups[name].append(f"slurm_needs_{stage}")
    return {name: needed for name, needed in groups.items() if needed}


def _find_work(
    host: RunHost, answers: Mapping[str, HostAnswer], directory: Mapping[str, DirectoryUsers]
) -> Iterator[tuple[str, str]]:
    """Hosts and stages that have work there."""
    controller = serving_controller(host)
    if controller in answers:
        serving = host.of(controller)
        yield from ((controller, stage) for stage, needs in stages.STAGES_OF_CONTROLLER.items() if needs(serving))
    submitting = [name for name in (*host.members("slurm_login"), *host["slurm_controllers"]) if name in answers]
    yield from ((name, "validation") for name in submitting)
    yield from ((name, "directory") for name in (directory_hosts(directory) if directory else []))
    yield from ((name, "access") for name in access_hosts(host, answers))
    for stage, names in services_with_work(host, answers).items():
        yield from ((name, stage) for name in names)
    if answers and prometheus.needs_control_files(host):
        yield next(iter(answers)), "metrics_files"
    if answers and registration_has_findings(host, answers):
        yield next(iter(answers)), "registration"
