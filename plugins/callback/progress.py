# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stdout callback that shows a run to people: a line for each stage, waits, failures, and what has changed."""

from __future__ import annotations

DOCUMENTATION = """
name: progress
type: stdout
short_description: Output of runs for people
version_added: "0.2.0"
author: gpucluster.slurm contributors (@gpucluster)
description:
  - Shows a line for each play in which a task ran, with its time, its hosts, and the hosts that it changed.
  - A task that takes long is named while it goes on, with the hosts that have not ended it and with the last attempt if
    it is repeated.
  - A failure is shown once for all hosts that fail alike, in the words of the module or of the program that it ran.
    So is a diff.
  - The last lines say what changed on which hosts, what waits, and which hosts failed and why.
  - With C(-v) and more the output is that of P(ansible.builtin.default#callback), followed by these last lines.
    Only then the options of that callback have a meaning.
  - Whole lines only, since Ansible, ssh and sudo ask their questions on the same terminal.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - C(stdout_callback = gpucluster.slurm.progress) in the section C([defaults]) of ansible.cfg, or the environment
    variable E(ANSIBLE_STDOUT_CALLBACK).
seealso:
  - plugin: ansible.builtin.default
    plugin_type: callback
"""

import contextlib
import functools
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.playbook.block import Block
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default

from ..module_utils.language.formatting import visible
from ..plugin_utils.run_report import Line, RunReport, may_change

COLOURS = {"ok": "COLOR_OK", "changed": "COLOR_CHANGED", "failed": "COLOR_ERROR", "waits": "COLOR_WARN"}
"""Ansible's settings of colours, by the kind of a line."""

JUDGES = frozenset({"assert", "fail"})
"""Modules that judge on the control host. With run_once, the host on which they fail is not the one that they judge."""

PAUSES = ("pause", "ansible.builtin.pause", "ansible.legacy.pause")

SOON = 10
"""Seconds after which a task that goes on is named to somebody who looks at a terminal."""

LATE = 30
"""The same in a file."""


def guarded(method: Callable[..., None]) -> Callable[..., None]:
    """A method of the callback that shows the event as Ansible's own callback does if it has an error itself."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **options: Any) -> None:
        with self.lock:
            try:
                method(self, *args, **options)
            except BrokenPipeError:
                raise
            except Exception as error:  # pylint: disable=broad-exception-caught  # a run must not end for its output
                self._display.warning(f"{self.NAME}: {method.__name__}: {error!r}")
                if not self.SILENT:
                    getattr(Default, method.__name__)(self, *args, **options)

    return wrapper


def is_rescued(task: Any) -> bool:
    """Whether the failure of a task is handled by a `rescue` of a block around it."""
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        # pylint: disable=protected-access  # Ansible has no other name for them
        if isinstance(parent, Block) and parent.rescue and any(each._uuid == child._uuid for each in parent.block):
            return True
        child, parent = parent, getattr(parent, "_parent", None)
    return False


def title(task: Any) -> str:
    """The name of a task, after that of its role."""
    return str(task.get_name()).strip().removeprefix("gpucluster.slurm.")


def host_names(play: Any) -> list[str]:
    """The hosts of a play, or of its batch (`serial`), in order; none if they are not known yet."""
    manager = play.get_variable_manager()
    inventory = getattr(manager, "_inventory", None)
    return [host.get_name() for host in inventory.get_hosts(play.hosts, order=play.order)] if inventory else []


class CallbackModule(Default):
    """The callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "gpucluster.slurm.progress"
    NAME = CALLBACK_NAME
    """The name in warnings, since ansible-runner's class has another CALLBACK_NAME."""
    SILENT = False

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.over = threading.Event()
        # ansible-runner has a class of its own below this one: it makes an event of each callback.
        alone = type(self) is CallbackModule
        self.ticks = alone and not self.verbose
        self.at_terminal = alone and sys.stdout.isatty()
        self.report = RunReport(
            time.monotonic(), SOON if self.at_terminal else LATE, bool(context.CLIARGS.get("check", False))
        )
        self.titles: dict[str, str] = {}
        if not alone and not self.SILENT:
            # That class reads the results of set_stats before it calls this one, so it has to find slurm_result there.
            # pylint: disable-next=invalid-name
            self.v2_playbook_on_stats = functools.partial(_with_result, self)  # type: ignore[method-assign]

    @property
    def verbose(self) -> bool:
        """Whether the output is that of Ansible's own callback."""
        return bool(self._display.verbosity)

    # -- output -------------------------------------------------------------------------------------------------------

    def _print(self, lines: list[Line]) -> None:
        """Show lines at once, also if the output goes to a file."""
        for line in lines:
            text = line.text
            if self.at_terminal and line.kind != "diff" and "\n" not in text:
                blanks = " " * (4 if text.startswith("    ") else 29)
                text = "\n".join(
                    textwrap.wrap(
                        text,
                        max(self._display.columns, 60),
                        subsequent_indent=blanks,
                        replace_whitespace=False,
                        break_long_words=False,
                        break_on_hyphens=False,
                    )
                )
            self._display.display(text, color=getattr(constants, COLOURS[line.kind]) if line.kind in COLOURS else None)
        if lines:
            with contextlib.suppress(OSError):
                sys.stdout.flush()

    def _show(self, lines: list[Line]) -> None:
        """Show lines, if Ansible's own callback does not show the event."""
        if not self.verbose:
            self._print(lines)

    def _begin_to_tick(self) -> None:
        """Name tasks that go on, in a thread: Ansible calls a callback only when something happens."""
        if self.ticks:
            self.ticks = False
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def _tick(self) -> None:
        while not self.over.wait(1):
            with self.lock, contextlib.suppress(Exception):
                if not self.over.is_set():
                    self._print(self.report.tick(time.monotonic()))

    # -- plays and tasks ----------------------------------------------------------------------------------------------

    @guarded
    def v2_playbook_on_start(self, playbook: Any) -> None:
        """The run begins."""
        if self.verbose:
            super().v2_playbook_on_start(playbook)
        # pylint: disable-next=protected-access
        name, plays = Path(str(playbook._file_name)).stem, playbook.get_plays()
        self.report.plan(name, {play._uuid: play.get_name().strip() for play in plays})

    @guarded
    def v2_playbook_on_play_start(self, play: Any) -> None:
        """A play begins."""
        if self.verbose:
            super().v2_playbook_on_play_start(play)
        self._play = play
        hosts: list[str] = []
        with contextlib.suppress(Exception):  # they are known when they begin a task
            hosts = host_names(play)
        self._show(self.report.begin_stage(play.get_name().strip(), hosts, time.monotonic(), play._uuid))
        self._begin_to_tick()

    @guarded
    def v2_playbook_on_no_hosts_matched(self) -> None:
        """A play has no hosts, as that of a stage with nothing to do."""
        if self.verbose:
            super().v2_playbook_on_no_hosts_matched()

    @guarded
    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """All hosts of a play have failed."""
        if self.verbose:
            super().v2_playbook_on_no_hosts_remaining()

    @guarded
    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task begins."""
        if self.verbose:
            super().v2_playbook_on_task_start(task, is_conditional)
        self._task_begins(task)

    @guarded
    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """A handler begins."""
        if self.verbose:
            super().v2_playbook_on_handler_task_start(task)
        self._task_begins(task)

    def _task_begins(self, task: Any) -> None:
        # Its name is a text only now; the one that comes with results may be a template again.
        self.titles[task._uuid] = title(task)  # pylint: disable=protected-access
        self._show(self.report.end_tasks(time.monotonic()))

    @guarded
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """A host begins a task."""
        if self.verbose:
            super().v2_runner_on_start(host, task)
        key, name = self._task(task)
        asks, changing = task.action in PAUSES, may_change(task.action)
        self._show(self.report.begin_task(key, name, host.get_name(), time.monotonic(), waits=asks, changing=changing))

    @guarded
    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Tasks are included."""
        if self.verbose:
            super().v2_playbook_on_include(included_file)

    def _task(self, task: Any) -> tuple[str, str]:
        """The key and the name of a task."""
        key = task._uuid  # pylint: disable=protected-access
        return key, self.titles.get(key) or title(task)

    # -- results ------------------------------------------------------------------------------------------------------

    @guarded
    def v2_runner_on_ok(self, result: Any) -> None:
        """A host has ended a task well."""
        found, (key, _name) = dict(result.result), self._task(result.task)
        host, changed = result.host.get_name(), bool(found.get("changed"))  # which a debug loses when it is shown
        if self.verbose:
            super().v2_runner_on_ok(result)
        else:
            self._handle_warnings(result.result)
            if found.get("_ansible_verbose_always") and not found.get("_ansible_verbose_override"):
                self._say(result, found)
        ran = not isinstance(result.task, TaskInclude)
        self._show(self.report.end_task(key, host, time.monotonic(), ran=ran, changed=changed))

    @guarded
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task has failed on a host."""
        found = dict(result.result)
        if self.verbose:
            super().v2_runner_on_failed(result, ignore_errors)
        else:
            self._handle_warnings(result.result)
        kind = "ignored" if ignore_errors else "rescued" if is_rescued(result.task) else "failed"
        self._fail(result, found, kind)

    @guarded
    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A host cannot be reached."""
        found = dict(result.result)
        if self.verbose:
            super().v2_runner_on_unreachable(result)
        else:
            self._handle_warnings(result.result)
        self._fail(result, found, "ignored" if result.task.ignore_unreachable else "unreachable")

    def _fail(self, result: Any, found: Mapping[str, Any], kind: str) -> None:
        (key, name), host = self._task(result.task), result.host
        delegate = result.task.delegate_to
        lines = self.report.fail(
            key,
            name,
            host.get_name(),
            found,
            time.monotonic(),
            kind=kind,
            delegate=str(delegate) if delegate and delegate != host.get_name() else "",
            address=str(host.vars.get("ansible_host") or ""),
            changing=may_change(result.task.action),
            whole=bool(result.task.run_once) and result.task.action.rpartition(".")[2] in JUDGES and not delegate,
        )
        self._show(lines)

    @guarded
    def v2_runner_on_skipped(self, result: Any) -> None:
        """A host has skipped a task."""
        if self.verbose:
            super().v2_runner_on_skipped(result)
        else:
            self._handle_warnings(result.result)
        key, _name = self._task(result.task)
        if result.task.args.get("_raw_params") == "end_host":
            self.report.stay(result.host.get_name())
        self._show(self.report.end_task(key, result.host.get_name(), time.monotonic(), ran=False))

    @guarded
    def v2_runner_item_on_ok(self, result: Any) -> None:
        """An item of a loop has ended well; the result of the task has it as well."""
        if self.verbose:
            super().v2_runner_item_on_ok(result)
        else:
            found = dict(result.result)
            self._handle_warnings(result.result)
            if found.get("_ansible_verbose_always") and not found.get("_ansible_verbose_override"):
                self._say(result, found)

    @guarded
    def v2_runner_item_on_failed(self, result: Any) -> None:
        """An item of a loop has failed."""
        found = dict(result.result)
        if self.verbose:
            super().v2_runner_item_on_failed(result)
        else:
            self._handle_warnings(result.result)
        key, _name = self._task(result.task)
        self._show(self.report.fail_item(key, result.host.get_name(), found))

    @guarded
    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """An item of a loop was skipped."""
        if self.verbose:
            super().v2_runner_item_on_skipped(result)

    @guarded
    def v2_runner_retry(self, result: Any) -> None:
        """A task is repeated, or waits for the end of a task that runs by itself (`async`)."""
        if self.verbose:
            super().v2_runner_retry(result)
        found, (key, _name) = result.result, self._task(result.task)
        self._show(self.report.retry(key, found.get("attempts", "?"), found.get("retries", "?"), found))

    @guarded
    def v2_runner_on_async_poll(self, result: Any) -> None:
        """A task that runs by itself goes on."""
        if self.verbose:
            super().v2_runner_on_async_poll(result)

    @guarded
    def v2_runner_on_async_ok(self, result: Any) -> None:
        """A task that runs by itself has ended; its result comes as that of any task."""
        if self.verbose:
            super().v2_runner_on_async_ok(result)

    @guarded
    def v2_runner_on_async_failed(self, result: Any) -> None:
        """A task that runs by itself has failed; its result comes as that of any task."""
        if self.verbose:
            super().v2_runner_on_async_failed(result)

    @guarded
    def v2_on_file_diff(self, result: Any) -> None:
        """A task shows what it changes, with --diff."""
        if self.verbose:
            super().v2_on_file_diff(result)
            return
        (key, name), found = self._task(result.task), result.result
        items = found["results"] if result.task.loop and "results" in found else [found]
        for item in items:
            if not item.get("diff") or not item.get("changed"):
                continue
            shown = item["diff"] if isinstance(item["diff"], list) else [item["diff"]]
            text = self._get_diff([{key: _plain(value) for key, value in each.items()} for each in shown])
            if text:
                self._show(self.report.differ(key, name, result.host.get_name(), text, time.monotonic()))

    def _say(self, result: Any, found: dict[str, Any]) -> None:
        """Show what a task has to say, as that of ansible.builtin.debug."""
        if "results" in found and result.task.loop:
            return  # each of its items was shown
        self._clean_results(found, result.task.action)
        said = found.get("msg")
        if isinstance(said, list) and all(isinstance(line, str) for line in said):
            said = "\n".join(said)
        elif isinstance(said, (bool, int, float)):
            said = str(said)
        if "censored" in found or said == "All assertions passed":
            return
        text = said if isinstance(said, str) else textwrap.dedent(self._dump_results(found).strip("\n"))
        key, name = self._task(result.task)
        if text.strip():
            self._show(self.report.say(key, name, result.host.get_name(), text, time.monotonic()))

    # -- the end ------------------------------------------------------------------------------------------------------

    @guarded
    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The run has ended."""
        self.over.set()
        now = time.monotonic()
        self._show(self.report.end_stage(now))
        if self.verbose:
            super().v2_playbook_on_stats(stats)
        self._print(self.report.end(now, stats.processed, *lost_hosts(stats), results_of(stats)))


def results_of(stats: Any) -> dict[str, Any]:
    """What the playbooks have returned by set_stats."""
    return dict((stats.custom or {}).get("_run", {}))


def lost_hosts(stats: Any) -> tuple[list[str], list[str]]:
    """The hosts on which a task has failed, and those that could not be reached, as Ansible has counted them."""
    failed, away = ([host for host, number in counts.items() if number] for counts in (stats.failures, stats.dark))
    return failed, away


def _with_result(callback: Any, stats: Any) -> None:
    """The end of a run below ansible-runner, whose event, and so AWX, gets slurm_result as the results of set_stats."""
    callback.report.recap(*lost_hosts(stats))
    result = callback.report.result(time.monotonic(), results_of(stats), ended=True)
    stats.set_custom_stats("slurm_result", result)
    type(callback).v2_playbook_on_stats(callback, stats)


def _plain(value: Any) -> Any:
    """A part of a diff without characters that a terminal obeys."""
    return visible(value) if isinstance(value, str) else value
