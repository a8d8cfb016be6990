# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Cases of nodes that fail: what was found, its evidence, and what would mend the node.

usage: slurm-repair list [--all] [--json]  the open cases, or all
       slurm-repair show CASE [--json]     a case with its evidence, as a text for a vendor
       slurm-repair hold CASE              begin nothing more for a case
       slurm-repair retry CASE             go on with a case that is held or needs a person
       slurm-repair close CASE             end a case, and close its findings on the node
       slurm-repair measure NODE           measure a node that is idle or drained, as accept.yml does at level quick
       slurm-repair stop                   begin nothing more for any case
       slurm-repair start                  go on after that
       slurm-repair count                  how many cases there are, as JSON for slurm-metrics
       slurm-repair round                  open cases and bring them one step further, as its timer does
       slurm-repair receive                take the report of a node, as its socket does

In mode observe nothing is done to nodes or in Slurm, apart from what is asked for here. In the modes reboot and full,
nodes are drained, mended, measured and returned.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..acceptance.baseline import BaselineError
from ..acceptance.quick_level import MeasuringPlan, plan_from_json
from ..client import drains, scontrol, slurm_records
from ..client.commands import CommandError, run
from ..client.environment import person
from ..health.finding_table import KILL_FAILED
from ..host.json_files import read_settings
from ..host.locks import locked
from ..language.errors import CollectionError
from ..maintenance.mails import Mail, message_of
from ..repair import report_transport
from ..repair.brakes import DAY, FULL, OBSERVE, Fleet, Rules, brake, treatments_left
from ..repair.case_evidence import CaseEvidence, SavedEvidence
from ..repair.case_files import CaseFiles
from ..repair.case_mails import CaseMail, mail_about, mails_about_jobs, news, untold
from ..repair.case_states import BUSY, PASSED, RUNS, Around, NodeView, asked_of_node, is_switched, proposal
from ..repair.case_texts import case_document, case_table, case_text, measuring_lines
from ..repair.cases import (
    CLOSED,
    PERSON,
    SAVE,
    SAVED,
    Fault,
    NodeCase,
    count_cases,
    moved,
    open_cases,
    treatment_key,
    tried_again,
)
from ..repair.measured_node import Measurer, NodeMeasuring, Sender, SentResult, reservations
from ..repair.node_hands import MACHINE, JobsOfNode, NodeHands, jobs_on_nodes, measuring_key
from ..repair.node_views import NodeReport, fleet_of, node_view, parse_report
from ..repair.report_transport import ClosedFindings, NodeOrder, ReportReply
from ..repair.rounds import one_round
from .job_mail import MSMTPRC, sender_in

SETTINGS = "/etc/gpucluster-slurm/repair.json"
PLAN = "/etc/gpucluster-slurm/measuring.json"
POLL_SECONDS = 5.0
LOCK_SECONDS = 30.0
REPORT_SECONDS = 600.0
"""How long a round waits for the evidence that a node sends. A node that is dead sends none."""
MAIL_SECONDS = 20.0
"""Time limit of a mail. Meanwhile no other command can change a case."""
MACHINES_AT_ONCE, MACHINE_SECONDS = 16, 70.0
"""How many machines are asked at once, and how long one may take: slurm-machine has a limit of its own."""
KEPT_DAYS = 365
"""How long a case is kept after its end."""

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Names of nodes, which become names of files."""
JOB_FIELDS = ("JobID", "UserName", "State", "Account")


class RepairError(CollectionError):
    """What a person has asked for and cannot be done, in one line."""


@dataclass(frozen=True)
class SeenCluster:
    """What is known of the cluster in a round."""

    records: Mapping[str, scontrol.Record]
    reports: Mapping[str, NodeReport]
    fleet: Fleet
    files: CaseFiles
    measured: Mapping[str, NodeMeasuring]
    """The last measurement, by node."""
    opened: Set[str]
    """Nodes that are in service for their measurement alone."""
    jobs: Mapping[str, JobsOfNode]
    """By node; those of nodes with open cases, in modes that do something about them."""
    powers: Mapping[str, str]
    """Whether machines have power, by node; of nodes that are switched off and on."""
    settings: Mapping[str, Any]
    rules: Rules
    now: float

    def node(self, name: str) -> NodeView:
        """What is seen of a node."""
        record = self.records.get(name)
        return node_view(record, self.reports.get(name)) if record else NodeView(is_known=False)

    def faults(self) -> dict[str, Sequence[Fault]]:
        """What drains nodes, by node, without what was known before the last case of the node has ended."""
        ended = {case.node: case.since for case in self.files.read() if not case.is_open}
        views = {name: self.node(name) for name in self.records}
        return {
            name: view.faults
            for name, view in views.items()
            if view.faults and (name not in ended or max(view.checked, self.drained(name)) > ended[name])
        }

    def drained(self, name: str) -> float:
        """When a node was drained; 0 if that is not known."""
        return float(slurm_records.integer(scontrol.reason_of(self.records[name]).since))

    def look(self, case: NodeCase) -> NodeView:
        """What is seen of the node of a case. One that is measured is in service for that alone."""
        view = self.node(case.node)._replace(is_saved=self.files.has_evidence(case.number))
        measuring = self.measured.get(case.node)
        if measuring and measuring.key == measuring_key(case):
            view = view._replace(measured=measuring.verdict or RUNS)
        view = with_answer(view, self.reports.get(case.node), case)._replace(power=self.powers.get(case.node, ""))
        if case.node in self.jobs:
            view = view._replace(jobs=self.jobs[case.node].all, movable=self.jobs[case.node].movable)
        if case.node not in self.opened or not view.in_service:
            return view
        # slurmctld shows the reservation some seconds later.
        owner = drains.owner(measuring.reason) if measuring else ""
        return view._replace(states=view.states | {"DRAIN"}, owner=owner, reserved="")

    def around(self, case: NodeCase, cases: Sequence[NodeCase]) -> Around:
        """What the case depends on apart from its node."""
        left = treatments_left(case.node, cases, self.rules, self.now)
        return Around(self.rules, left, brake(case, cases, self.rules, self.fleet))

    def save(self, case: NodeCase) -> None:
        """Save the evidence of a case, if it is there, or will not come."""
        evidence = self.evidence(case)
        if evidence or not self.is_awaited(case):
            saved = SavedEvidence(evidence, jobs_on(case.node), dict(self.records.get(case.node, {})))
            self.files.write_evidence(case.number, saved)

    def evidence(self, case: NodeCase) -> CaseEvidence | None:
        """What the node has sent about a case. What it has sent before may be of a former one."""
        report = self.reports.get(case.node)
        if not report or not report.evidence:
            return None
        is_of_case = report.wrong or report.evidence.taken > case.opened - REPORT_SECONDS
        return report.evidence if is_of_case else None

    def is_awaited(self, case: NodeCase) -> bool:
        """Whether the node may still send evidence: its checks can know of the finding, and it has said nothing yet."""
        report = self.reports.get(case.node)
        has_said = report is not None and report.checked > case.opened
        return case.finding != KILL_FAILED and not has_said and self.now - case.opened <= REPORT_SECONDS

    def carry_out(self, case: NodeCase) -> None:
        """Do the step of a case: in mode observe there is one. What fails begins again in a later round."""
        if case.step == SAVE:
            self.save(case)
            return
        with tried_now(f"case {case.number}, {case.step} {case.node}"):
            NodeHands(as_root, self.files.write_measuring, self.tell_users).carry_out(case, self.now)

    def tell_users(self, case: NodeCase, users: Mapping[int, str]) -> None:
        """Send mails to users whose jobs were requeued. One that cannot be sent is not sent later."""
        if not (domain := self.settings["mail_domain"]):
            return
        for user, mail in mails_about_jobs(case, users, self.settings["cluster"]).items():
            with tried_now(f"case {case.number}"):
                send(mail, f"{user}@{domain}")


def look_around() -> SeenCluster:
    """What is known now. Raises CollectionError if slurmctld does not answer."""
    settings = read_settings(SETTINGS)
    files = CaseFiles(settings["directory"])
    files.make()
    # Seconds since 1970 are the same in every time zone.
    answer = run(["scontrol", "--oneliner", "--all", "show", "node"], environment={"SLURM_TIME_FORMAT": "%s"})
    if answer.status:
        raise CommandError(answer.message)
    records = scontrol.records(answer.output)
    now, rules = time.time(), rules_of(settings, files)
    cases = open_cases(files.read())
    failing = {case.node for case in cases}.intersection(record["NodeName"] for record in records)
    measured = {measuring.node: measuring for measuring in files.measurings()}
    active = [measuring for measuring in measured.values() if measuring.reason and not measuring.verdict]
    reserved = reservations() if active else set()
    return SeenCluster(
        records={record["NodeName"]: record for record in records},
        reports={report.node: report for report in files.reports()},
        fleet=fleet_of(records, time.localtime(now).tm_hour),
        files=files,
        measured=measured,
        opened={measuring.node for measuring in active if measuring.reservation in reserved},
        jobs=jobs_on_nodes(failing) if rules.mode != OBSERVE else {},
        powers=powers_of(case.node for case in cases if is_switched(case)),
        settings=settings,
        rules=rules,
        now=now,
    )


def powers_of(names: Iterable[str]) -> dict[str, str]:
    """Whether the machines of nodes have power, as far as they answer. They are asked at the same time."""
    nodes = [*names]
    with ThreadPoolExecutor(MACHINES_AT_ONCE) as pool:
        answers = [*pool.map(lambda node: run([MACHINE, "state", node], seconds=MACHINE_SECONDS), nodes)]
    return {node: answer.output.strip() for node, answer in zip(nodes, answers) if not answer.status}


def rules_of(settings: Mapping[str, Any], files: CaseFiles) -> Rules:
    """The key `repair`, and whether a person has stopped everything."""
    quiet = settings["quiet_hours"]
    return Rules(
        mode=settings["mode"],
        has_machines=settings["machines"],
        quiet=(quiet[0], quiet[1]) if quiet else None,
        least=settings["least_nodes"],
        stopped=files.stopped(),
    )


def jobs_on(node: str) -> list[dict[str, str]]:
    """The jobs on a node; none if slurmctld does not say."""
    end = "\x1e"
    answer = run(slurm_records.squeue(JOB_FIELDS, end, f"--nodelist={node}"))
    return slurm_records.jobs(answer.output, JOB_FIELDS, end) if not answer.status else []


def become_owner(for_good: bool = True) -> None:
    """Go on as the user of slurmctld, whose directory has the cases: on a file system, root may not write there.

    for_good: whether this process can never be root again.
    """
    owner = pwd.getpwnam(read_settings(SETTINGS)["user"])
    if os.geteuid() == 0 != owner.pw_uid:
        os.setgroups([])
        os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid if for_good else 0)
        os.setresuid(owner.pw_uid, owner.pw_uid, owner.pw_uid if for_good else 0)


@contextmanager
def as_root() -> Iterator[None]:
    """Be root meanwhile, after `become_owner(for_good=False)`: jobs of root, and drains by root, need that."""
    users, groups = os.getresuid(), os.getresgid()
    if 0 in users:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    try:
        yield
    finally:
        if 0 in users:
            os.setresgid(*groups)
            os.setresuid(*users)


@contextmanager
def tried_now(what: str) -> Iterator[None]:
    """Print what fails, and go on: a later round tries again."""
    try:
        yield
    except (CollectionError, OSError) as error:
        print(f"{what}: {error}", file=sys.stderr)


@contextmanager
def alone() -> Iterator[None]:
    """Change cases as their owner, while no other process of this controller does. Raises OSError."""
    with ExitStack() as held:
        with as_root():
            held.enter_context(locked("repair", LOCK_SECONDS))
        become_owner(for_good=False)
        yield


def serves() -> bool:
    """Whether this controller serves."""
    return bool(scontrol.serving().partition(".")[0] == read_settings(SETTINGS)["controller"])


# -- what the timer and the socket start -----------------------------------------------------------------------------


def do_round() -> int:
    """Open cases and bring them further, on the controller that serves."""
    with alone():
        if not serves():
            return 0
        cluster = look_around()
        files, faults = cluster.files, cluster.faults()
        one_round(files, faults, cluster.look, cluster.carry_out, cluster.rules, cluster.fleet, cluster.now)
        for measuring in cluster.measured.values():
            with tried_now(f"measuring {measuring.node}"):
                advance(files, measuring)
        files.forget(cluster.now - KEPT_DAYS * DAY)
        send_mail(files, cluster.settings)
    return 0


def advance(files: CaseFiles, measuring: NodeMeasuring) -> NodeMeasuring:
    """Take a step of a measurement, if it has not ended. Raises CollectionError or OSError."""
    if measuring.verdict:
        return measuring
    settings = read_settings(SETTINGS)
    sender = Sender(settings["controllers"], settings["port"], settings["user"])
    measurer = Measurer(read_plan(), sender, settings["job_user"], files.write_measuring, as_root)
    return measurer.advance(measuring, files.result(measuring.node), time.time())


def read_plan() -> MeasuringPlan:
    """What measuring depends on, as site.yml has left it. Raises CollectionError."""
    try:
        return plan_from_json(read_settings(PLAN), PLAN)
    except (BaselineError, TypeError, KeyError) as error:
        raise RepairError(f"{PLAN}: {error}; run site.yml") from error


def send_mail(files: CaseFiles, settings: Mapping[str, Any]) -> None:
    """Send a mail about what is new, if administrators want mails. If it cannot be sent, the next round tries again.

    Raises CommandError or OSError.
    """
    cases = untold(files.read())
    if cases and settings["mail"]:
        send(mail_about(cases, settings["cluster"]), settings["mail"])
    for case in cases:
        files.write(replace(case, told=news(case)))


def send(mail: CaseMail, address: str) -> None:
    """Send a mail. Raises CommandError or OSError."""
    sender = sender_in(Path(MSMTPRC).read_text(encoding="utf-8"))
    content = message_of(Mail("", mail.subject, mail.text), address, sender).decode()
    answer = run(["msmtp", f"--file={MSMTPRC}", "--", address], stdin=content, seconds=MAIL_SECONDS)
    if answer.status:
        raise CommandError(f"no mail to {address}: {answer.message}")


def receive() -> int:
    """Take the report of a node from the connection that systemd has accepted."""
    become_owner()
    with socket.socket(fileno=os.dup(0)) as connection:
        try:
            reply = take(report_transport.receive(connection), os.environ.get("REMOTE_ADDR", ""))
            said, status = report_transport.accepted(reply), 0
        except (CollectionError, OSError) as error:
            said, status = str(error), 1
            print(said, file=sys.stderr)
        connection.sendall(f"{' '.join(said.split())}\n".encode())
    return status


def take(credential: str, address: str) -> ReportReply:
    """Keep a report or a result of a node, which must be sealed by its root, or by the user of measurements.

    Raises CollectionError or OSError.
    """
    sealed = report_transport.unseal(credential)
    settings = read_settings(SETTINGS)
    head, _newline, text = sealed.text.partition("\n")
    first, *kind = head.split()[:4] or [""]
    is_result = len(kind) == 3 and kind[0] == report_transport.MEASURED and kind[2].isdecimal()
    allowed = {"root", settings["job_user"]} if is_result else {"root"}
    if sealed.uid not in {pwd.getpwnam(name).pw_uid for name in allowed}:
        raise report_transport.ReportError(f"found user {sealed.uid}, allowed: {' or '.join(sorted(allowed))}")
    if (kind and not is_result) or not _NODE.fullmatch(first):
        raise report_transport.ReportError("found no name of a node in the first line")
    record = scontrol.node_record(first)
    if not record:
        raise report_transport.ReportError(f"{first} is no node of this cluster")
    names = [record.get("NodeAddr", ""), record.get("NodeHostName", ""), first]
    if not report_transport.is_from(address, filter(None, names)):
        raise report_transport.ReportError(f"{first}: found the address {address or 'unknown'} of another host")
    files = CaseFiles(settings["directory"])
    files.make()
    if kind:
        files.write_result(SentResult(first, kind[1], int(kind[2]), text))
        return ReportReply()
    # By this host's clock, which tells when cases begin: one that ends has a later report.
    report = parse_report(text, first)._replace(checked=time.time())
    if not report.evidence and (before := files.report(first)):
        # It has not changed, or the node is well meanwhile, and its case has not been saved.
        report = report._replace(evidence=before.evidence)
    last = next((case for case in reversed(files.read()) if case.node == report.node), None)
    closed = closed_with_case(files, report, last)
    if closed:
        report = report._replace(wrong={name: text for name, text in report.wrong.items() if name not in closed.names})
    files.write_report(report)
    keeps = settings["mode"] != OBSERVE and last is not None and last.is_open and last.state != PERSON
    if not last or settings["mode"] != FULL or files.stopped():
        return ReportReply(keeps, closed)
    what = asked_of_node(last, with_answer(node_view(record, report), report, last))
    return ReportReply(keeps, closed, NodeOrder(what, treatment_key(last)) if what else None)


def with_answer(view: NodeView, report: NodeReport | None, case: NodeCase) -> NodeView:
    """What is seen of a node, with what has come of the treatment that it was asked for."""
    treated = report.treated if report else None
    if not treated or treated.key != treatment_key(case):
        return view
    return view._replace(is_mended=not treated.error, refused=treated.error)


def closed_with_case(files: CaseFiles, report: NodeReport, last: NodeCase | None) -> ClosedFindings | None:
    """The findings that a person has closed with the last case of the node: those that it had then."""
    if not last or not last.closed_by:
        return None
    evidence = files.evidence(last.number)
    had = {last.finding, *(str(one["name"]) for one in (evidence.node.findings if evidence and evidence.node else ()))}
    names = [name for name in report.wrong if name in had]
    return ClosedFindings(last.since, names) if names else None


# -- what people ask for ---------------------------------------------------------------------------------------------


def list_cases(words: Sequence[str]) -> int:
    """Print the open cases, or all."""
    if others := {*words} - {"--all", "--json"}:
        raise RepairError(f"found {min(others)}, allowed: --all, --json")
    become_owner()
    cluster = look_around()
    cases = cluster.files.read()
    shown = cases if "--all" in words else open_cases(cases)
    following = {case.number: next_of(cluster, case, cases) for case in shown}
    if "--json" in words:
        print(json.dumps([listed(case, following[case.number]) for case in shown]))
        return 0
    if cluster.rules.stopped:
        print(f"Stopped by {cluster.rules.stopped}: nothing begins (slurm-repair start)")
    print(*case_table(shown, following), sep="\n")
    return 0


def listed(case: NodeCase, following: str) -> dict[str, Any]:
    """A case as other programs get it. following: what would be done next."""
    names = ("number", "node", "state", "finding", "text", "opened", "since", "held", "why")
    return {**{name: getattr(case, name) for name in names}, "next": following}


def count() -> int:
    """Print the counts of cases."""
    become_owner()
    print(json.dumps(count_cases(open_files().read())._asdict()))
    return 0


def next_of(cluster: SeenCluster, case: NodeCase, cases: Sequence[NodeCase]) -> str:
    """What would be done next for a case; empty without any."""
    if case.state != SAVED or case.held:
        return ""
    return proposal(case, cluster.look(case), cluster.around(case, cases), cluster.now)


def show_case(words: Sequence[str]) -> int:
    """Print a case with its evidence."""
    become_owner()
    cluster = look_around()
    cases = cluster.files.read()
    case = find(cases, [word for word in words if word != "--json"])
    if "--json" in words:
        print(json.dumps(case_document(case, cluster.files.evidence(case.number)), indent=1))
        return 0
    print(case_text(case, cluster.files.evidence(case.number), next_of(cluster, case, cases)), end="")
    return 0


def find(cases: Sequence[NodeCase], words: Sequence[str]) -> NodeCase:
    """The case that a person names by its number, or by its node if it is open. Raises RepairError."""
    if len(words) != 1:
        raise RepairError("allowed: one case, by its number or its node")
    for case in reversed(cases):
        if words[0] in (str(case.number), case.node if case.is_open else ""):
            return case
    raise RepairError(f"found {words[0]}, allowed: the number of a case (slurm-repair list --all), or a node with one")


def change(words: Sequence[str], changed: Callable[[NodeCase, str, float], NodeCase]) -> int:
    """Change a case for a person."""
    with alone():
        files = open_files()
        case = find(files.read(), words)
        if not case.is_open:
            raise RepairError(f"case {case.number} of node {case.node} has ended: {case.state}")
        after = changed(case, person(), time.time())
        files.write(after)
    print(f"case {after.number} of node {after.node}: {after.state}{f', held by {after.held}' if after.held else ''}")
    return 0


def hold(words: Sequence[str]) -> int:
    """Begin nothing more for a case."""
    return change(words, lambda case, who, _now: replace(case, held=who))


def retry(words: Sequence[str]) -> int:
    """Go on with a case."""
    return change(words, lambda case, _who, now: tried_again(case, now))


def close(words: Sequence[str]) -> int:
    """End a case, and close its findings on the node, which asks for that at its next check."""
    return change(words, lambda case, who, now: replace(moved(case, CLOSED, now, f"closed by {who}"), closed_by=who))


def measure(words: Sequence[str]) -> int:
    """Measure a node, and print the result. If this program is ended, the rounds go on with it."""
    if len(words) != 1:
        raise RepairError("allowed: one node")
    with alone():
        if not serves():
            raise RepairError("another controller serves: measure from there")
        cluster = look_around()
        measuring = begin_measuring(cluster, words[0])
    while not measuring.verdict:
        time.sleep(POLL_SECONDS)
        with alone():
            (known,) = (each for each in cluster.files.measurings() if each.node == measuring.node)
            measuring = advance(cluster.files, known)
    print(*measuring_lines(measuring, read_plan()), sep="\n")
    return 0 if measuring.verdict == PASSED else 1


def begin_measuring(cluster: SeenCluster, node: str) -> NodeMeasuring:
    """Begin to measure a node, or go on. Raises RepairError if that would disturb somebody."""
    record, view = cluster.records.get(node), cluster.node(node)
    if not record:
        raise RepairError(f"found {node}, allowed: a node of Slurm")
    if node not in read_plan().places:
        raise RepairError(f"found {node}, allowed: a node that is in a partition")
    former = cluster.measured.get(node)
    if former and not former.verdict:
        return former
    why = ""
    if view.jobs or view.states & BUSY:
        why = "it has jobs"
    elif "IDLE" not in view.states:
        why = f"its state is {record['State']}"
    elif view.reserved:
        why = f"it is in the reservation {view.reserved}"
    elif view.faults:
        why = f"it has {', '.join(view.names)}: slurm-repair close {node} ends that"
    if why:
        raise RepairError(f"{node} cannot be measured: {why}")
    reason = "" if view.in_service else scontrol.reason_of(record).text
    begun = NodeMeasuring(node, f"{cluster.now:.0f}", cluster.now, reason)
    cluster.files.write_measuring(begun)
    return begun


def stop() -> int:
    """Begin nothing more for any case."""
    become_owner()
    files = open_files()
    files.stop(person())
    print("nothing begins until slurm-repair start")
    return 0


def start() -> int:
    """Go on after a stop."""
    become_owner()
    open_files().start()
    print("steps begin again")
    return 0


def open_files() -> CaseFiles:
    """The cases. Raises OSError."""
    files = CaseFiles(read_settings(SETTINGS)["directory"])
    files.make()
    return files


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "list": list_cases,
    "show": show_case,
    "hold": hold,
    "retry": retry,
    "close": close,
    "measure": measure,
    "stop": lambda _words: stop(),
    "start": lambda _words: start(),
    "count": lambda _words: count(),
    "round": lambda _words: do_round(),
    "receive": lambda _words: receive(),
}


def main(words: Sequence[str] | None = None) -> int:
    """Do what the arguments say. Returns the exit status."""
    os.umask(0o077)
    arguments = [*(sys.argv[1:] if words is None else words)]
    command = COMMANDS.get(arguments[0]) if arguments else None
    if not command:
        print((__doc__ or "").partition("\n\n")[2].rstrip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        return command(arguments[1:])
    except (CollectionError, OSError) as error:
        print(f"slurm-repair: {error}", file=sys.stderr)
        return 1
