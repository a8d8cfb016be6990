# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Slurm's HealthCheckProgram: runs every check of a directory, drains the node if one fails, resumes what it drained.

usage: slurm-health                    run all checks, as slurmd does
       slurm-health --list             show what was seen of the GPUs and in the kernel's messages, and why it ended
       slurm-health --vendor           a text for a vendor: parts with serial numbers, firmware, findings, messages
       slurm-health --close NAME...    a person has mended findings, such as xid-48, or `all`
       slurm-health --before-job       exit status 3 if the node must not start a job (slurm-prolog)
       slurm-health --after-job        see what a job has left on the GPUs (slurm-epilog)

A check is an executable file. The reason of a drained node has the name of the check. The exit status of a check is 0
if all is well; otherwise the last line of its output is the error. All checks run at the same time, each in its own
process group, so that together they take no longer than the limit. A check that does not end in time is killed and left
behind, since the kernel may not be able to end it (a hung mount, a driver). It is not started again before it has gone.

Three checks are no files: `kernel`, `gpu_errors` and `ports` read the journal, the driver and the adapters of the
network in the same way, and what they find is in a record (health/seen_findings.py), which drains the node until a
boot, a repair or a person ends it.

Before a job, the record and the kernel's own messages are read. After a job, the driver is asked as well.

The program asks slurmctld only if a check fails, after the checks succeed again, and once after a boot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

from ..client.commands import CommandError, output, run
from ..client.drains import APPENDED, HEALTH
from ..client.environment import person
from ..client.scontrol import own_node, reason_of, records
from ..hardware.network_ports import ConnectedPort, Port, parse_connected, parse_ports, ports_command
from ..hardware.sysfs import Tree
from ..health import nvlink_findings, seen_findings
from ..health.error_samples import Counters
from ..health.finding_table import NODE, SHARED, of_drain, of_reason
from ..health.gpu_findings import LEFT, DriverReport, read_report
from ..health.kernel_findings import find_in
from ..health.seen_findings import FindingRecord, HealthEvidence, Seen
from ..host import replacing
from ..host.job_processes import strays
from ..host.json_files import read_record
from ..host.kernel_messages import KernelMessage, journal_command, merged, parse_journal, read_boot_id, read_ring
from ..host.locks import locked
from ..language.errors import CollectionError
from ..language.formatting import visible
from ..repair import node_treatments
from ..repair.case_evidence import collect, vendor_text
from ..repair.case_texts import moment
from ..repair.report_transport import PROGRAM, ReportReply, Sent, seal, send

SILENT = "Not responding"
"""Beginning of Slurm's reasons for nodes that do not answer. Slurm replaces only these reasons."""
CLEARED = f"{SILENT} (cleared by the health check)"
"""Reason that a resumed node gets. A reason stays after the resume if there are jobs or no database. If it were still
the reason of this program, the program would resume a node that Slurm drains later (`_drain_node` there)."""
DIRECTORY = "/etc/gpucluster-slurm/health.d"
SETTINGS = "/etc/gpucluster-slurm/health.json"
GPU = "gpu"
"""The check that asks the driver for a list of the GPUs."""
KERNEL, GPU_ERRORS, PORTS = "kernel", "gpu_errors", "ports"
NVLINKS = "nvlinks"
"""Is of the check `gpu_errors`, of several GPUs."""
"""The checks that are no files."""
KERNEL_SEEN = "/run/gpucluster-slurm/kernel-seen"
"""The time of the newest message that was seen, in seconds since boot, as dmesg has it. slurm-prolog has this path: it
starts this program for newer messages alone, since srun waits a second longer for a prolog of a tenth of a second.
"""
STATE = "/run/gpucluster-slurm/health.json"
"""Results of the last run. A boot removes the file, and then the program asks slurmctld."""
NAME = re.compile(r"[A-Za-z0-9_-]+")
"""Names of checks, as in run-parts(8). Files that editors and package managers leave behind are no checks."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SLURMD = 60
"""Seconds after which slurmd ends this program (`run_script_health_check`)."""
SCONTROL = 15
"""Time limit in seconds for an answer of slurmctld."""
REASON = 200
"""Maximum length of a reason, in characters."""
SHARED_PERCENT, SHARED_LEAST = 5.0, 3
"""Nodes that may be drained for one shared finding: percent of all nodes, and at least."""
LIMIT = 20.0
"""Default time limit in seconds of all checks together."""
NOT_STARTED = 3
"""Exit status of a node that must not start a job. A program that cannot run has another one, and holds up no job."""
DRIVER_SECONDS = 10.0
"""Time limit in seconds for the driver after a job. Until then the node is not free."""
FREED_SECONDS = 3.0
"""Until a GPU has freed the memory of a process that has ended."""
TURN_SECONDS = 3.0
"""How long the end of a job waits for another run. That run sees as much."""
MOMENT_SECONDS = 1.0
"""How long a job waits for another run that is not to overwrite what it has seen."""
SCONTROL_AT_JOB = 5
"""Time limit in seconds for an answer of slurmctld while a job waits. slurm-prolog waits 20 s for this program."""

Hung = dict[str, list[Any]]
"""Checks that did not end, by name: the process, the moment it started, in ticks since boot, and its last line."""


def started(pid: int) -> int:
    """When a process started, in ticks since boot (proc(5), stat); 0 if there is none, or only its remains."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def last_line(text: str) -> str:
    """The last line that a check printed."""
    return next((" ".join(line.split()) for line in reversed(text.split("\n")) if line.strip()), "")


def with_words(error: str, words: str) -> str:
    """An error of a check that hangs, with its last line, which tells where."""
    return f"{error}: {words}" if words else error


def start(command: Sequence[str], output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a check in its own process group. Raises OSError if it cannot be run."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=dict(environment),
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit status of a check; None if it has not ended by then (time.monotonic)."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


class Result(NamedTuple):
    """How a check has ended."""

    status: int | None
    """Its exit status; None if it has not ended, or could not be run."""
    output: str
    error: str
    """What is wrong; empty if all is well."""


def checks_of(directory: str) -> dict[str, list[str]]:
    """The commands of the checks in a directory, by name; a missing directory has no checks."""
    names = sorted(filter(NAME.fullmatch, os.listdir(directory))) if os.path.isdir(directory) else []
    paths = {name: os.path.join(directory, name) for name in names}
    return {name: [path] for name, path in paths.items() if os.path.isfile(path) and os.access(path, os.X_OK)}


def run_checks(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], limit: float, hung: Hung
) -> tuple[dict[str, Result], Hung]:
    """Run checks, all at once.

    Args:
        commands: the commands by the name of the check.
        environment: environment variables of the checks.
        limit: time limit in seconds.
        hung: checks that an earlier run has left behind.

    Returns:
        The results by name, and the checks that were left behind.
    """
    # A start of 0 is a check that ended just when it was killed.
    left = {name: where for name, where in hung.items() if where[1] and started(where[0]) == where[1]}
    results = {
        name: Result(None, "", with_words("still hangs", "".join(left[name][2:]))) for name in left if name in commands
    }
    deadline = time.monotonic() + limit
    with ExitStack() as files:
        running = []
        for name, command in commands.items():
            if name in left:
                continue
            output = files.enter_context(tempfile.TemporaryFile(dir="/run"))
            try:
                running.append((name, start(command, output, environment), output))
            except OSError as error:
                results[name] = Result(None, "", f"cannot be run: {error.strerror}")
        for name, process, output in running:
            status = ended(process, deadline)
            output.seek(0)
            said = output.read().decode(errors="replace")
            if status is None:
                results[name] = Result(None, said, with_words(f"no answer in {limit:g} s", last_line(said)))
                left[name] = [process.pid, started(process.pid), last_line(said)]
                os.killpg(process.pid, signal.SIGKILL)
            else:
                results[name] = Result(status, said, (last_line(said) or f"exit status {status}") if status else "")
    return dict(sorted(results.items())), left


# -- what is seen ----------------------------------------------------------------------------------------------------


def built_in(chosen: Collection[str], settings: Mapping[str, Any], cursor: str) -> dict[str, list[str]]:
    """The commands of the chosen checks that are no files, by name."""
    found = {}
    gpus = int(settings.get("environment", {}).get("HEALTH_GPUS") or 0)
    # The kernel's messages have both findings of GPUs and others.
    if chosen and shutil.which("journalctl", path=PATH):
        found[KERNEL] = journal_command(cursor)
    if GPU_ERRORS in chosen and gpus and shutil.which("nvidia-smi", path=PATH):
        found[GPU_ERRORS] = ["nvidia-smi", "-q", "-x"]
        if gpus > 1:
            found[NVLINKS] = [*nvlink_findings.COMMAND]
    if PORTS in chosen and wanted_of(settings):
        found[PORTS] = ports_command()
    return found


def driver_command(chosen: Collection[str], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """The command that asks the driver, by its name; none where that is not chosen."""
    return {name: command for name, command in built_in(chosen, settings, "").items() if name == GPU_ERRORS}


def wanted_of(settings: Mapping[str, Any]) -> list[ConnectedPort]:
    """The ports of the machine type."""
    return parse_connected(settings.get("environment", {}).get("HEALTH_PORTS", ""))


def see(
    record: FindingRecord, results: Mapping[str, Result], chosen: Collection[str], settings: Mapping[str, Any]
) -> tuple[FindingRecord, list[Seen]]:
    """The record after a run, and what drains the node. results: those of the checks that are no files."""
    journal, cursor = parse_journal(results[KERNEL].output) if KERNEL in results else ([], "")
    ring: list[KernelMessage] = []
    with suppress(OSError):  # in a container
        ring = read_ring()
    # The next run reads the whole journal if it does not have this place any more.
    lost = KERNEL in results and results[KERNEL].status != 0
    wanted = wanted_of(settings)
    evidence = HealthEvidence(
        boot=read_boot_id(),
        now=time.time(),
        kernel=[*find_in(merged(ring, journal))],
        report=report_of(results.get(GPU_ERRORS)),
        ports=ports_of(results.get(PORTS)) if wanted else [],
        wanted=wanted,
        links=links_of(results.get(NVLINKS)),
        cursor="" if lost else cursor or record.cursor,
        uptime=time.monotonic(),
        xids=seen_findings.names_of(settings.get("xids", ())),
    )
    record = seen_findings.updated(record, evidence)
    if ring:
        replacing.replace(KERNEL_SEEN, f"{max(ring).microseconds / 1e6:.6f}".encode(), 0o644)
    return record, [one for one in record.counting if check_of(one) in chosen]


def check_of(one: Seen) -> str:
    """The check that is chosen or not with a finding."""
    return PORTS if one.name.startswith(seen_findings.OF_PORTS) else GPU_ERRORS if one.of_gpu else KERNEL


def ports_of(result: Result | None) -> list[Port] | None:
    """The ports of the node; None if they were not read, or reading them has not ended."""
    return parse_ports(result.output) if result and result.status == 0 else None


def links_of(result: Result | None) -> Mapping[str, Counters]:
    """The errors of NVLinks; empty if they were not read, or reading them has not ended."""
    return nvlink_findings.parse_links(result.output) if result and result.status == 0 else {}


def report_of(result: Result | None) -> DriverReport | None:
    """What the driver says; None if it was not asked, or has not answered."""
    with suppress(ElementTree.ParseError):
        return read_report(result.output, strays) if result and result.status == 0 else None
    return None


def reasons(results: Mapping[str, Result], seen: Sequence[Seen]) -> dict[str, str]:
    """What is wrong by the name of the finding or of the check, the first finding first."""
    found: dict[str, str] = {}
    for one in seen:
        found.setdefault(one.name, one.text)
    failed = {name: result.error for name, result in results.items() if result.error}
    return {**found, **failed}


# -- what Slurm is asked to do ---------------------------------------------------------------------------------------


def reason_for(wrong: Mapping[str, str]) -> str:
    """The reason of a drained node: the failed checks and their errors, without quotes and control characters."""
    text = HEALTH + "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return re.sub(r"[^ -!#-&(-~]", "", text.replace(APPENDED, ": "))[:REASON].rstrip()


def action(node: str, reason: str) -> list[str]:
    """The words for `scontrol update` after the node's name; none if the node is as it should be.

    A node that somebody else has drained or set down keeps its state and its reason. A node that is down because it
    does not answer is drained, so that it gets no job when it is back.

    Args:
        node: output of `scontrol --oneliner show node`.
        reason: the reason to drain the node, or an empty text.
    """
    found = next(iter(records(node)), {})
    flags = set(re.split(r"[^A-Z_]+", found.get("State", "")))
    given = reason_of(found).text
    first, *appended = given.split(APPENDED)
    # A node that runs this answers again, whatever Slurm has appended when it did not.
    ours = first.startswith(HEALTH) and all(part.startswith(SILENT) for part in appended)
    drained = "DRAIN" in flags
    if not reason:
        return ["State=RESUME", f"Reason={CLEARED}"] if drained and ours else []
    if drained or "DOWN" in flags:
        free = ours or (not drained and (not given or given.startswith(SILENT)))
        return [] if not free or (drained and given == reason) else ["State=DRAIN", f"Reason={reason}"]
    return ["State=DRAIN", f"Reason={reason}"]


def scontrol(*words: str, seconds: float = SCONTROL) -> str:
    """The output of a scontrol command. Raises CommandError if it fails, or if it does not end in time."""
    return output(["scontrol", *words], seconds=seconds)


def nodes_with(wrong: Mapping[str, str], percent: float) -> int:
    """How many nodes are drained for the same, if all that is wrong is shared and these are as many as may be; else 0.

    A file server or an update that all nodes have would otherwise drain the cluster.
    """
    found = {of_reason(*one) for one in wrong.items()}
    if any(one.kind != SHARED for one in found):
        return 0
    lines = {line for line in sinfo("--Node", "--noheader", "--format=%N %E").split("\n") if line}
    given = [line.partition(" ")[2] for line in lines]
    same = sum(of_drain(reason) in found for reason in given)
    return same if same >= max(SHARED_LEAST, percent / 100 * len(given)) else 0


def sinfo(*words: str) -> str:
    """The output of a sinfo command. Raises CommandError as scontrol()."""
    return output(["sinfo", *words], seconds=SCONTROL)


def tell(wrong: Mapping[str, str], settings: Mapping[str, Any], seconds: float = SCONTROL) -> None:
    """Drain the node for what is wrong, or resume it. Raises CommandError if slurmctld does not answer in time."""
    reason = reason_for(wrong) if wrong else ""
    name = os.environ.get("SLURMD_NODENAME") or own_node()
    words = action(scontrol("--oneliner", "show", "node", name, seconds=seconds), reason)
    if words and reason and (others := nodes_with(wrong, float(settings.get("shared_percent", SHARED_PERCENT)))):
        print(f"not drained, since {others} nodes are drained for the same: {reason}")
    elif words:
        scontrol("update", f"NodeName={name}", *words, seconds=seconds)


def environment_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of the checks."""
    return {"PATH": PATH, "LC_ALL": "C", **settings.get("environment", {})}


def chosen_of(settings: Mapping[str, Any], commands: Collection[str]) -> set[str]:
    """The chosen checks that are no files. A check of the site with the name of one of these replaces it."""
    return {name for name in settings.get("built_in", ()) if name not in commands}


def examine() -> int:
    """Run the checks and update the node. Returns the exit status, which slurmd logs: 1 if a check fails."""
    settings, before, former = read_record(SETTINGS), read_record(STATE), seen_findings.load()
    commands = checks_of(DIRECTORY)
    chosen = chosen_of(settings, commands)
    own = built_in(chosen, settings, former.cursor)
    limit = float(settings.get("limit", LIMIT))
    results, hung = run_checks({**commands, **own}, environment_of(settings), limit, before.get("hung", {}))
    mine = {name: result for name, result in results.items() if name in own}
    record, seen = see(former, mine, chosen, settings)
    if KERNEL in own and results[KERNEL].status:
        # A journal that cannot be read is no fault of the node, as long as reading it ends.
        del results[KERNEL]
    if GPU_ERRORS in own and GPU in results and results[GPU].error:
        # It has asked the same driver, and says more.
        for name in (GPU_ERRORS, NVLINKS):
            results.pop(name, None)
    unkept = seen_findings.remember(record)
    wrong = reasons(results, seen)
    for name, what in wrong.items():
        print(f"{name}: {what}")
    state = {"well": before.get("well", False), "hung": hung, "reported": before.get("reported", "")}
    if wrong:
        state["well"] = told(wrong, settings)
    replacing.replace(STATE, json.dumps(state).encode(), 0o600)
    keep_on_disk(record, former, unkept)
    # The controllers come last: slurmd may end this program while they do not answer.
    xml = mine[GPU_ERRORS].output if GPU_ERRORS in mine else ""
    state["reported"], reply = report(settings, wrong, record, xml, state["reported"], state["well"])
    if not (wrong or state["well"] or reply.keeps):
        state["well"] = told(wrong, settings)
    replacing.replace(STATE, json.dumps(state).encode(), 0o600)
    if reply.closed:
        close(reply.closed.names, "slurm-repair", reply.closed.when)
    if reply.order:
        answer = run([PROGRAM, "begin", *reply.order])
        if answer.status:
            print(answer.message)
    return 1 if wrong else 0


def told(wrong: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """Drain the node for what is wrong, or resume it. Returns whether slurmctld has it as a node that is well."""
    try:
        tell(wrong, settings)
    except CommandError as error:
        # slurmctld does not answer: the next run asks again.
        print(error)
        return False
    return not wrong


def report(
    settings: Mapping[str, Any],
    wrong: Mapping[str, str],
    record: FindingRecord,
    xml: str,
    before: str,
    is_in_service: bool,
) -> tuple[str, ReportReply]:
    """Tell the controllers what is wrong, if repair asks for it (key `repair`), and hear whether it has the node.

    They get what has changed, with the evidence, also after a boot. Until the node is in service, they are asked again.
    If repair treats nodes and no controller answers, repair has it.

    Args:
        settings: those of this program.
        wrong: what is wrong, by the name of the finding or check.
        record: the findings.
        xml: the output of `nvidia-smi -q -x`; empty without an answer.
        before: what they have got last.
        is_in_service: whether slurmctld has the node as one that is well.

    Returns: what they have got last, and their reply.
    """
    repair = settings.get("repair")
    if not repair:
        return "", ReportReply()
    news = json.dumps([record.boot, [*wrong.items()]])
    if news == before and is_in_service:
        return news, ReportReply()
    try:
        node, now = os.environ.get("SLURMD_NODENAME") or own_node(), time.time()
        is_new = bool(wrong) and news != before
        evidence = asdict(collect(node, Tree(), record.boot, record.seen, xml, now)) if is_new else None
        treated = done._asdict() if (done := node_treatments.reported()) else None
        content = {"node": node, "checked": now, "wrong": wrong, "evidence": evidence, "treated": treated}
        text = json.dumps(content)
        sent = send(seal(f"{node}\n{text}", repair["reader"]), repair["controllers"], repair["port"])
    except CollectionError as error:
        sent = Sent([str(error)])
    for line in sent.errors:
        print(f"no report to the controllers: {line}")
    if sent.errors:
        return before, ReportReply(keeps=repair.get("treats", False))
    return news, sent.reply


def keep_on_disk(record: FindingRecord, former: FindingRecord, unkept: str) -> None:
    """Write what has changed for the time after a boot. unkept: why it could not be written for the next run.

    This comes last, since the disk may not answer. Then what has begun to write stays behind, so that it is tried once.
    """
    if unkept or seen_findings.differ(record, former):
        unkept = " ".join(filter(None, (unkept, seen_findings.keep(record))))
    if unkept:
        print(unkept)


def before_job() -> int:
    """See whether the node may start a job, and drain it otherwise. Returns the exit status.

    The record stays as it is if the node is well.
    """
    settings, former = read_record(SETTINGS), seen_findings.load()
    chosen = chosen_of(settings, checks_of(DIRECTORY))
    record, seen = see(former, {}, chosen, settings)
    wrong = reasons({}, [one for one in seen if one.kind == NODE])
    if not wrong:
        return 0
    with ExitStack() as held:
        with suppress(OSError):  # a broken node is drained, whoever holds the lock
            held.enter_context(locked("health", MOMENT_SECONDS))
        drain_at_job(wrong, settings, record, former)
    return NOT_STARTED


def drain_at_job(
    wrong: Mapping[str, str], settings: Mapping[str, Any], record: FindingRecord, former: FindingRecord
) -> None:
    """Drain the node for what is wrong. The next run of the checks asks slurmctld what it has of the node."""
    print(reason_for(wrong))
    unkept = seen_findings.remember(record)
    state = read_record(STATE)
    replacing.replace(STATE, json.dumps({**state, "well": False}).encode(), 0o600)
    try:
        tell(wrong, settings, SCONTROL_AT_JOB)
    except CommandError as error:
        print(error)  # slurmctld drains a node by itself whose prolog fails
    keep_on_disk(record, former, unkept)


def after_job() -> int:
    """See what a job has left on the GPUs, and drain the node if it must not start another one."""
    settings, state, former = read_record(SETTINGS), read_record(STATE), seen_findings.load()
    chosen = chosen_of(settings, checks_of(DIRECTORY))
    own = driver_command(chosen, settings)
    record, hung = former, state.get("hung", {})
    for pause in (0.0, FREED_SECONDS):
        time.sleep(pause)
        results, hung = run_checks(own, environment_of(settings), DRIVER_SECONDS, hung)
        record, seen = see(record, results, chosen, settings)
        # What was seen before is not asked for twice: a person's process may run for days.
        if not any(one.name in LEFT and not one.closed and one.runs == 1 for one in record.seen):
            break
    replacing.replace(STATE, json.dumps({**state, "hung": hung}).encode(), 0o600)
    if wrong := reasons({}, seen):
        drain_at_job(wrong, settings, record, former)
    else:
        keep_on_disk(record, former, seen_findings.remember(record))
    return 0


@contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Wait for another run of this program. A run that has not ended after `seconds` is named, and not waited for.

    A broken node must be drained, whoever holds the lock.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked("health", seconds))
        except OSError as error:
            print(error)
        yield


def waiting(limit: float) -> float:
    """How long to wait for another run, in seconds, with this limit of the checks.

    The checks of the other run have ended by then, so that none runs twice at the same time. What is left is enough for
    the own checks and an answer of slurmctld before slurmd ends this program.
    """
    return max(0.0, min(limit + 2, SLURMD - SCONTROL - limit))


def show(record: FindingRecord) -> Iterator[str]:
    """A line for each finding, the open ones last."""
    for one in sorted(record.seen, key=lambda one: (not one.closed, one.last)):
        state = f"closed: {one.closed}" if one.closed else "drains the node" if one.counts else "does not drain"
        when = moment(one.first)
        gpu = f", GPU {one.uuid} serial {one.serial}" if one.uuid else ""
        yield f"{when}  {one.name} {one.subject} ({state}; {one.kind}, action: {one.action}{gpu}): {visible(one.text)}"


def for_vendor() -> str:
    """What a vendor asks for when something is to be repaired or replaced."""
    settings = read_record(SETTINGS)
    results, _hung = run_checks(driver_command({GPU_ERRORS}, settings), environment_of(settings), DRIVER_SECONDS, {})
    xml = results[GPU_ERRORS].output if GPU_ERRORS in results and not results[GPU_ERRORS].error else ""
    now = time.time()
    evidence = collect(os.uname().nodename, Tree(), read_boot_id(), seen_findings.load().seen, xml, now)
    return vendor_text(evidence, (), moment(now))


def close(names: Sequence[str], who: str, until: float | None = None) -> int:
    """Close findings, as a person has asked for, up to a time. Returns the exit status."""
    record, closed = seen_findings.close(seen_findings.load(), names, who, time.time(), until)
    errors = [error for error in (seen_findings.remember(record), seen_findings.keep(record)) if error]
    print(*errors, *(f"closed: {one.name} {one.subject}" for one in closed), sep="\n")
    missing = {*names} - {one.name for one in closed} - {"all"}
    if missing:
        print(f"no open finding: {', '.join(sorted(missing))}; slurm-health --list shows all")
    return 1 if errors or missing else 0


def main(words: Sequence[str] | None = None) -> int:
    """Examine the node. Two runs at a time are prevented, since an administrator may start one while slurmd's runs."""
    os.umask(0o022)  # that of a person who runs it may be any, and other programs use the directory
    arguments = [*(sys.argv[1:] if words is None else words)]
    word = arguments[0] if arguments else ""
    known = word in ("", "--list", "--vendor", "--close", "--before-job", "--after-job")
    if not known or (word == "--close") != (len(arguments) > 1):
        print((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
        return 0 if word in ("-h", "--help") else 2
    if word == "--list":
        print(*show(seen_findings.load()), sep="\n")
        return 0
    if word == "--vendor":
        print(for_vendor(), end="")
        return 0
    os.makedirs(os.path.dirname(STATE), mode=0o755, exist_ok=True)
    if word == "--before-job":
        return before_job()
    if word == "--after-job":
        with ExitStack() as held:
            try:
                held.enter_context(locked("health", TURN_SECONDS))
            except OSError as error:
                print(error)
                return 0
            return after_job()
    with alone(waiting(float(read_record(SETTINGS).get("limit", LIMIT)))):
        return close(arguments[1:], person()) if arguments else examine()
