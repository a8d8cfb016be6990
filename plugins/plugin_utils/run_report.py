# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that a run of a playbook shows to people, from what happens in it.

Callback `progress` tells a `RunReport` what happens, with the time in seconds, and prints the lines that it returns.
Callback `result` prints nothing, and hands out `RunReport.result` to programs (docs/design/runner.md). All texts may
come from hosts: they are made visible here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..module_utils.language.formatting import short, visible, without_passwords
from ..module_utils.language.hostlist import fold

AGAIN = 300
"""Seconds after which a task that goes on is named again, as those of `slurm_rolling` show their table."""

ALIKE = 5
"""Seconds for which the result of a host waits for the same one of other hosts, while its task goes on elsewhere."""

SHORT = 400
"""Characters of a failure in the last lines; the whole text stands where it happened."""

REASONS = 20
"""Failures in the last lines. Hosts with other ones are named there without their reasons."""

TAIL = 20
"""Lines of a program's output in its failure: the last ones, which mostly say why."""

WITHOUT_A_REASON = ("", "non-zero return code", "The command exited with a non-zero return code.")
"""Messages of ansible-core 2.19 and 2.21 with which the output of the program has the reason."""

OUTPUTS = ("stderr", "stdout", "module_stderr", "module_stdout")
"""Keys of a result with the output of a program, that which mostly says why first."""

RESULT_VERSION = 1
"""The version of the structure that `RunReport.result` returns. New keys do not change it."""

ONLY_LOOK = frozenset(
    {
        *("assert", "fail", "debug", "pause", "meta", "set_fact", "set_stats", "add_host", "group_by", "include_role"),
        *("include_tasks", "validate_argument_spec", "setup", "stat", "slurp", "slurm_run"),
        "slurm_config",  # it says so with put_back if it fails after it has written
    }
)
"""Modules that have changed nothing on the hosts of the cluster if they fail. Those in _info and _facts are others."""

HIDDEN = "(hidden, since the task has no_log)"

THE_RUN = "the run"
"""The subject of a failure that is that of no host."""

_UNIT = r"(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|ms|us)"
TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w:])"
    r"|(?<![\w.:])(?:\d+-)?\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?(?![\w:])"
    rf"|(?<![\w.:])\d+(?:\.\d+)? ?{_UNIT}\b(?:,? ?\d+(?:\.\d+)? ?{_UNIT}\b)*"
)
"""Dates, times and durations, which differ between hosts that have the same reason: apt's `22d 11h 26min 47s`."""


@dataclass(frozen=True)
class Line:
    """A line, or several, of which `kind` decides the colour: ok, changed, failed, waits, note or diff."""

    kind: str
    text: str


@dataclass
class Stage:
    """A play. Times are in seconds."""

    name: str
    hosts: list[str]
    begun: float
    ran: bool = False
    """Whether a task was not skipped."""
    changed: dict[str, None] = field(default_factory=dict)
    """Hosts, in the order of their changes."""
    lost: set[str] = field(default_factory=set)
    """Hosts that failed or could not be reached."""
    staying: set[str] = field(default_factory=set)
    """Hosts that go on where the play ends for others (`meta: end_host`); empty in a play without that."""
    may_change: bool = False
    """Whether a task has begun that can change a host."""
    stopped: bool = False
    """Whether the run has stopped here, for a reason that is that of no host."""


@dataclass(frozen=True)
class Failure:
    """A task that has failed on a host, or found it unreachable."""

    stage: str
    host: str
    task: str
    message: str
    put_back: bool
    """Whether the module has restored what it had changed."""
    alike: str
    """The message without the host's own name and address, and without times."""
    whole: bool
    """Whether the run stops for it, and the host has only judged."""


@dataclass
class Work:
    """A task on the hosts that have not ended it."""

    name: str
    begun: float
    hosts: dict[str, None] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    said: float = 0
    """When it was named last; 0 if never."""
    attempt: str = ""
    """The last attempt of a task that is repeated."""


@dataclass
class Note:
    """A result that is shown once for all hosts that have the same."""

    kind: str
    title: str
    text: str
    since: float
    delegate: str = ""
    """The host on which a delegated task ran."""
    hosts: dict[str, str] = field(default_factory=dict)
    """The text of each host, which may differ in the host's own name and address, and in times."""
    whole: bool = False
    """Whether it is the run that has failed."""


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, or hours, minutes and seconds."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def hostlist(names: Iterable[str]) -> str:
    """The names of hosts as a hostlist, or with commas if Slurm could not have one of them."""
    listed = [visible(name) for name in names]
    try:
        return fold(listed)
    except ValueError:
        return ", ".join(listed)


def indented_text(text: str, blanks: int) -> str:
    """A text whose second line, and all after it, begin with that many blanks."""
    return ("\n" + " " * blanks).join(text.strip("\n").split("\n"))


def _differing(messages: Mapping[str, str]) -> str:
    """What follows the message of the first host if those of the others are not quite the same."""
    if len({*messages.values()}) == 1:
        return ""
    return f" (as {visible(next(iter(messages)))} says it; the others differ in names and times alone)"


def _without_own(text: str, names: Iterable[str]) -> str:
    """A message without the names of its host and without times, in which those of other hosts may differ."""
    for own in sorted({*names}, key=len, reverse=True):
        text = text.replace(own, "\0")
    return TIMES.sub("\0", text)


def _last_lines(text: str) -> str:
    lines = text.strip("\n").split("\n")
    return "\n".join(lines[-TAIL:] if len(lines) <= TAIL else [f"({len(lines) - TAIL} more lines)", *lines[-TAIL:]])


def _message(result: Mapping[str, Any]) -> str:
    if "censored" in result:
        return HIDDEN
    said = result.get("msg", result.get("reason", ""))
    if isinstance(said, (list, tuple)):
        said = "\n".join(map(str, said))
    said = str(said).strip()
    if said in WITHOUT_A_REASON or said.startswith("MODULE FAILURE"):
        output = next(
            (result[key] for key in ("stderr", "stdout", "module_stderr", "module_stdout") if result.get(key)), ""
        )
        said = _last_lines(str(output)) or ("" if said in WITHOUT_A_REASON else said)
        if "rc" in result:
            said = f"exit status {result['rc']}: {said}" if said else f"exit status {result['rc']}"
    return said or "failed without a message"


def reason(result: Mapping[str, Any]) -> str:
    """Why a task failed, in the words of the module, or of the program that it ran."""
    return visible(without_passwords(_message(result)))


def may_change(action: str) -> bool:
    """Whether a module can have changed a host of the cluster when it fails or is killed."""
    name = action.rpartition(".")[2]
    return name not in ONLY_LOOK and not name.endswith(("_info", "_facts"))


def item_label(item: Mapping[str, Any]) -> str:
    """An item of a loop as messages name it."""
    if item.get("_ansible_no_log") or "censored" in item:
        return "an item"
    return short(str(item.get("_ansible_item_label", item.get("item", "an item"))))


class RunReport:
    """What has happened in a run so far. Each method returns the lines that are to be shown now."""

    def __init__(self, begun: float, wait: float, check_mode: bool = False) -> None:
        """Begin.

        Args:
            begun: the time in seconds, as all times here.
            wait: seconds after which a task that goes on is named.
            check_mode: whether nothing is changed.
        """
        self.begun, self.wait, self.check_mode = begun, wait, check_mode
        self.stage: Stage | None = None
        self.stages: list[Stage] = []
        self.work: dict[str, Work] = {}
        self.notes: dict[tuple[str, ...], Note] = {}
        self.items: dict[tuple[str, str], list[str]] = {}
        """Why items of a loop have failed, by task and host."""
        self.order: dict[str, int] = {}
        self.lost: set[str] = set()
        self.away: set[str] = set()
        """Those of `lost` that could not be reached."""
        self.failures: list[Failure] = []
        """The failures that counted when they happened."""
        self.left = False
        """Whether a task that failed may have left a change."""
        self.playbook = ""
        self.planned: dict[str, str] = {}
        """The names of all plays of the playbook, by key."""
        self.percent = 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def plan(self, playbook: str, stages: Mapping[str, str]) -> None:
        """The run begins: its playbook, and the names of all plays by key."""
        self.playbook, self.planned = playbook, {key: visible(name) for key, name in stages.items()}

    def begin_stage(self, name: str, hosts: Sequence[str], now: float, key: str = "") -> list[Line]:
        """A play begins, and the one before it has ended."""
        lines = self.end_stage(now)
        if key in self.planned:
            self.percent = max(self.percent, 100 * [*self.planned].index(key) // len(self.planned))
        self.stage = Stage(visible(name), [*hosts], now)
        for host in hosts:
            self.order.setdefault(host, len(self.order))
        return lines

    def end_stage(self, now: float) -> list[Line]:
        """A play has ended. One in which no task ran is not shown."""
        lines = self.end_tasks(now)
        stage, self.stage = self.stage, None
        self.work = {}
        if not stage or not stage.ran:
            return lines
        self.stages.append(stage)
        kind = "failed" if stage.lost or stage.stopped else "changed" if stage.changed else "ok"
        word = "changes" if kind == "changed" and self.check_mode else kind
        shown = stage.lost or (not stage.stopped and stage.changed)
        text = f"{stage.name}: {self._hosts(shown)}" if shown else stage.name
        hosts = [host for host in stage.hosts if not stage.staying or host in stage.staying | self.lost]
        done = 0 if stage.stopped else len([host for host in hosts if host not in self.lost])
        return [*lines, self._row(kind, word, now - stage.begun, done, len(hosts), text)]

    def begin_task(
        self, key: str, name: str, host: str, now: float, *, waits: bool = False, changing: bool = False
    ) -> list[Line]:
        """A host begins a task.

        Args:
            key: the task.
            name: its name.
            host: the host.
            now: the time.
            waits: whether it waits for a person, or for a time, which is said at once.
            changing: whether it can change the host.
        """
        if self.stage and host not in self.stage.hosts:
            self.stage.hosts.append(host)
        if self.stage:
            self.stage.may_change |= changing
        self.order.setdefault(host, len(self.order))
        first = key not in self.work
        work = self.work.setdefault(key, Work(visible(name), now))
        work.hosts[host] = None
        return self._waits(work, now) if waits and first else []

    def retry(self, key: str, attempts: Any, retries: Any, result: Mapping[str, Any]) -> list[Line]:
        """A task has failed on a host, and is repeated."""
        if key in self.work:
            why = short(reason(result).split("\n")[-1], 120)
            self.work[key].attempt = f"attempt {attempts} of {retries}: {why}"
        return []

    def end_task(self, key: str, host: str, now: float, *, ran: bool = True, changed: bool = False) -> list[Line]:
        """A host has ended a task."""
        if self.stage:
            self.stage.ran |= ran
            if changed:
                self.stage.changed[host] = None
        work = self.work.get(key)
        if not work:
            return []
        work.hosts.pop(host, None)
        work.ended.add(host)
        if work.hosts:
            return []
        return self._over(self.work.pop(key), now)

    def stay(self, host: str) -> None:
        """A host goes on with a play that has ended for other hosts, which have no part in it."""
        if self.stage:
            self.stage.staying.add(host)

    def end_tasks(self, now: float) -> list[Line]:
        """Another task begins: nobody else will have the same result as the hosts of the one before."""
        lines = self._take(self.notes)
        idle = [key for key, work in self.work.items() if not work.hosts]
        return lines + [line for key in idle for line in self._over(self.work.pop(key), now)]

    def fail(self, key: str, name: str, host: str, result: Mapping[str, Any], now: float, **more: Any) -> list[Line]:
        """A task has failed on a host.

        Args:
            key: the task.
            name: its name.
            host: the host.
            result: what the module returned.
            now: the time.
            more: `kind`, which is `failed` or `unreachable`, or `ignored` or `rescued` if the playbook goes on;
                `delegate` and `address`, other names of the host in messages; `changing`, whether it can have changed
                the host; `whole`, whether the host has judged for the whole run.
        """
        kind, text = str(more.get("kind", "failed")), "\n".join(self.items.pop((key, host), ())) or reason(result)
        alike = _without_own(text, [host, str(more.get("address") or host)])
        whole = kind == "failed" and bool(more.get("whole")) and self.stage is not None and len(self.stage.hosts) > 1
        if kind in ("failed", "unreachable"):
            self.lost.add(host)
            if self.stage and whole:
                self.stage.stopped = True
            elif self.stage:
                self.stage.lost.add(host)
            if kind == "unreachable":
                self.away.add(host)
            stage = self.stage.name if self.stage else ""
            put_back = result.get("put_back")
            self.left |= put_back is False or (not put_back and bool(result.get("changed") or more.get("changing")))
            self.failures.append(Failure(stage, host, visible(name), text, put_back is True, alike, whole))
        lines = self.end_task(key, host, now)
        delegate = str(more.get("delegate") or "")
        self._note(
            (key, kind, name, delegate, alike),
            Note(kind, visible(name), text, now, visible(delegate), whole=whole),
            host,
            text,
        )
        return lines

    def fail_item(self, key: str, host: str, item: Mapping[str, Any]) -> list[Line]:
        """An item of a loop has failed on a host. It is shown when the whole task has failed."""
        self.items.setdefault((key, host), []).append(f"{visible(item_label(item))}: {reason(item)}")
        return []

    def say(self, key: str, name: str, host: str, text: str, now: float) -> list[Line]:
        """A task has something to say to people."""
        self._note((key, "note", name, text), Note("note", visible(name), visible(text), now), host, text)
        return []

    def differ(self, key: str, name: str, host: str, text: str, now: float) -> list[Line]:
        """A task shows what it changes. The text is visible already, and may have colours."""
        self._note((key, "diff", name, text), Note("diff", visible(name), text, now), host, text)
        return []

    def tick(self, now: float) -> list[Line]:
        """Time has passed."""
        lines = self._take(key for key, note in self.notes.items() if now - note.since >= ALIKE)
        for work in self.work.values():
            if work.hosts and now - (work.said or work.begun) >= (AGAIN if work.said else self.wait):
                lines += self._waits(work, now)
        return lines

    # -- lines --------------------------------------------------------------------------------------------------------

    def _note(self, group: tuple[str, ...], note: Note, host: str, text: str) -> None:
        self.notes.setdefault(group, note).hosts[host] = text

    def _take(self, keys: Iterable[tuple[str, ...]]) -> list[Line]:
        """The lines of notes, which are over, in the order of the hosts: which one ended a task first is chance."""
        notes = [self.notes.pop(key) for key in [*keys]]
        notes.sort(key=lambda note: min(map(self._place, note.hosts)))
        return [line for note in notes for line in self._shown(note)]

    def _hosts(self, names: Iterable[str]) -> str:
        return hostlist(self._ordered(names))

    def _ordered(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=self._place)

    def _place(self, name: str) -> tuple[int, str]:
        return self.order.get(name, len(self.order)), name

    def _in_order(self, messages: Mapping[str, str]) -> dict[str, str]:
        """Messages by host, that of the first host first."""
        return {name: messages[name] for name in self._ordered(messages)}

    def _row(self, kind: str, word: str, seconds: float, done: int, hosts: int, text: str) -> Line:
        return Line(kind, f"{word:<8} {clock(seconds):>6}  {f'{done} of {hosts}':<10}  {text}")

    def _waits(self, work: Work, now: float) -> list[Line]:
        work.said = now
        text = f"{work.name}: {self._hosts(work.hosts)}"
        if work.attempt:
            text += f" ({work.attempt})"
        return [self._row("waits", "waits", now - work.begun, len(work.ended), len(work.ended) + len(work.hosts), text)]

    def _over(self, work: Work, now: float) -> list[Line]:
        if not work.said:
            return []
        ended = len(work.ended)
        return [self._row("note", "ended", now - work.begun, ended, ended, work.name)]

    def _shown(self, note: Note) -> list[Line]:
        hosts = self._hosts(note.hosts)
        if note.kind == "diff":
            return [Line("note", f"    {note.title} ({hosts})"), Line("diff", note.text.rstrip("\n"))]
        if note.kind == "note":
            text = note.text.strip("\n")
            rest = "\n" + " " * 8 + indented_text(text, 8) if "\n" in text else f" {text}"
            return [Line("note", f"    {note.title} ({hosts}):{rest}")]
        messages = self._in_order(note.hosts)
        text = next(iter(messages.values())) + _differing(messages)
        hosts = THE_RUN if note.whole else f"{hosts} -> {note.delegate}" if note.delegate else hosts
        color = "note" if note.kind in ("ignored", "rescued") else "failed"
        return [Line(color, f"{note.kind:<8} {hosts}: {note.title}: {indented_text(text, 4)}")]

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(
        self,
        now: float,
        hosts: Iterable[str],
        failed: Iterable[str],
        unreachable: Iterable[str],
        results: Mapping[str, Any],
    ) -> list[Line]:
        """The last lines of the run: what changed on which hosts, what waits, and which hosts failed and why.

        Args:
            now: the time.
            hosts: the hosts that had a task, as the other two from Ansible's own statistics.
            failed: those on which a task failed.
            unreachable: those that could not be reached.
            results: what the playbooks return by set_stats.
        """
        everybody = {*hosts, *(host for stage in self.stages for host in stage.hosts)}
        counted = everybody - {"localhost"} or everybody
        broken, away = {*failed}, {*unreachable}
        lines: list[Line] = []
        changed = self._changed()
        took, number = clock(now - self.begun), f"{len(counted)} host{'' if len(counted) == 1 else 's'}"
        if not everybody:
            lines.append(Line("waits", f"No task ran on a host ({took})."))
        elif changed:
            verb = "Would change" if self.check_mode else "Changed"
            touched = {host for on in changed.values() for host in on} & counted
            lines.append(Line("changed", f"{verb} {len(touched)} of {number} ({took}):"))
            width = max(map(len, changed))
            lines += [Line("changed", f"    {name:<{width}}  {self._hosts(on)}") for name, on in changed.items()]
        elif not broken | away:
            lines.append(Line("ok", f"Nothing to change on {number} ({took})."))
        else:
            lines.append(Line("note", f"Nothing was changed on {number} ({took})."))
        lines += [Line("waits", f"{why}: {what}.") for why, what in waiting(results)]
        if broken:
            stopped = {failure.host for failure in self._first(broken) if failure.whole}
            names = [*([self._hosts(broken - stopped)] if broken - stopped else []), *([THE_RUN] if stopped else [])]
            lines.append(Line("failed", f"Failed: {', '.join(names)}."))
        if away:
            lines.append(Line("failed", f"Not reached: {self._hosts(away)}."))
        return lines + self._reasons(broken | away)

    def _first(self, lost: set[str]) -> list[Failure]:
        """Why each lost host has failed first, in the order of the tasks and, in a task, of the hosts."""
        first: dict[str, Failure] = {}
        tasks: dict[tuple[str, str], int] = {}
        for failure in self.failures:
            if failure.host in lost:
                first.setdefault(failure.host, failure)
                tasks.setdefault((failure.stage, failure.task), len(tasks))
        return sorted(first.values(), key=lambda one: (tasks[one.stage, one.task], self._place(one.host)))

    def _reasons(self, lost: set[str]) -> list[Line]:
        """Why the lost hosts have failed first; a line for all that failed alike."""
        groups: dict[tuple[str, str, str, bool], dict[str, str]] = {}
        for failure in self._first(lost):
            key = (failure.stage, failure.task, failure.alike, failure.whole)
            groups.setdefault(key, {})[failure.host] = failure.message
        lines = []
        for number, ((stage, task, _alike, whole), found) in enumerate([*groups.items()][:REASONS]):
            messages = self._in_order(found)
            text = short(" ".join(next(iter(messages.values())).split()), SHORT) + _differing(messages)
            word, on = "as well" if number else "first", "" if whole else f"on {self._hosts(messages)} "
            lines.append(Line("failed", f"Failed {word}, {on}in {stage}: {task}: {text}"))
        if others := [host for messages in [*groups.values()][REASONS:] for host in messages]:
            lines.append(Line("failed", f"Failed as well, for other reasons (above): {self._hosts(others)}"))
        return lines

    def _changed(self) -> dict[str, dict[str, None]]:
        """The hosts that each stage has changed, the one that goes on included."""
        changed: dict[str, dict[str, None]] = {}
        for stage in self._stages():
            if stage.changed:
                changed.setdefault(stage.name, {}).update(stage.changed)
        return changed

    def _stages(self) -> list[Stage]:
        return [*self.stages, self.stage] if self.stage else self.stages

    def state(self, ended: bool) -> str:
        """What the run leaves; before its end, what it would leave if it were killed now.

        Callback `result` asks after each event, so this takes no time for each host.
        """
        changed = any(stage.changed for stage in self._stages())
        if ended and not self.lost:
            return "changed" if changed else "ok"
        open_ended = not ended and self.stage is not None and self.stage.may_change
        if (changed or open_ended or self.left) and not self.check_mode:
            return "to be repaired by the next run"
        put_back = self.failures and all(failure.put_back for failure in self.failures)
        return "failed and put back" if put_back else "failed before a change"

    def recap(self, failed: Iterable[str], unreachable: Iterable[str]) -> None:
        """The run has ended: Ansible's own count knows which failures a playbook has handled."""
        self.away = {*unreachable}
        self.lost = {*failed} | self.away
        self.failures = [failure for failure in self.failures if failure.host in self.lost]

    def result(self, now: float, results: Mapping[str, Any], ended: bool) -> dict[str, Any]:
        """The result of the run for programs, `slurm_result` (docs/admin/runner.md), also before its end."""
        changed = self._changed()
        touched = {host for on in changed.values() for host in on}
        return {
            "version": RESULT_VERSION,
            "playbook": self.playbook,
            "check": self.check_mode,
            "state": self.state(ended),
            "ended": ended,
            "seconds": round(now - self.begun, 1),
            "progress": {
                "percent": 100 if ended and not self.lost else self.percent,
                "stage": self.stage.name if self.stage and not ended else "",
                "stages": [*self.planned.values()],
            },
            "hosts": {visible(host): self._host_state(host, touched) for host in self.order},
            "changes": [{"stage": stage, "hosts": [*map(visible, self._ordered(on))]} for stage, on in changed.items()],
            "waiting": [{"what": what, "why": why} for why, what in waiting(results)],
            "failed": [
                {
                    "stage": failure.stage,
                    "host": visible(failure.host),
                    "task": failure.task,
                    "message": failure.message,
                }
                for failure in self.failures
            ],
        }

    def _host_state(self, host: str, touched: set[str]) -> str:
        if host in self.lost:
            return "unreachable" if host in self.away else "failed"
        return "changed" if host in touched else "ok"


def waiting(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Why something still waits, and what, by the results of playbooks (docs/admin/stability.md)."""
    found: list[tuple[str, str]] = []
    validation = results.get("slurm_validation")
    if isinstance(validation, Mapping):
        found += [
            (f"Jobs of the validation that {title}", str(count))
            for word, title in (("failed", "failed"), ("waiting", "wait"))
            if (count := validation.get(word))
        ]
    rolling = results.get("slurm_rolling")
    if isinstance(rolling, Mapping):
        found += [
            (title, _names(names))
            for word, title in (("failed", "Nodes that stay drained"), ("left", "Nodes that wait for the next run"))
            if (names := rolling.get(word))
        ]
    removal = results.get("slurm_removal")
    if isinstance(removal, Mapping) and removal.get("not_cleaned"):
        found.append(("Removed, and not cleaned", _names(removal["not_cleaned"])))
    return [(why, visible(what)) for why, what in found]


def _names(value: Any) -> str:
    """Hosts of a result: a list of names, a mapping by name, or a hostlist."""
    return hostlist(map(str, value)) if isinstance(value, (list, tuple, Mapping)) else str(value)
