# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback `progress` in real runs of ansible-playbook: in a file, at a terminal and through ansible-runner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.gpucluster.slurm.plugins.callback import progress
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from plain_host import PlainHost
from programs import environment
from standing_hosts import Hosts
from test_stopped_runs import cluster, standing

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CALLBACK = "gpucluster.slurm.progress"
HOSTS = ["h1", "h2", "h3"]
FAIL = "sh -c 'echo out; echo bad {{ inventory_hostname }} >&2; exit 3'"
CLEAR = "\x1b[2J"

INNER = [{"name": "Inner", "ansible.builtin.fail": {"msg": "broken"}}]
FIRST = [
    {"name": "Change", "ansible.builtin.command": "true"},
    {"name": "Say it", "ansible.builtin.debug": {"msg": f"it{CLEAR}"}},
    {"name": "Say them", "ansible.builtin.debug": {"msg": ["a", "b"]}, "run_once": True},
    {"name": "Say a value", "ansible.builtin.debug": {"var": "ansible_check_mode"}, "run_once": True},
    {"name": "Say items", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": [1, "two"], "run_once": True},
    {"name": "Ignored", "ansible.builtin.raw": FAIL, "ignore_errors": True},
    {
        "block": [{"name": "Include", "ansible.builtin.include_tasks": "inner.yml"}],
        "rescue": [{"name": "Go on", "ansible.builtin.debug": {"msg": "rescued"}}],
    },
    {"name": "Secret", "ansible.builtin.command": "sh -c 'echo geheim; exit 1'", "no_log": True, "ignore_errors": True},
    {
        "name": "Items",
        "ansible.builtin.raw": "exit {{ item }}",
        "loop": [0, 1, 2],
        "ignore_errors": True,
        "changed_when": False,
    },
    {"name": "Quiet", "ansible.builtin.assert": {"that": True}},
    {"name": "Skipped", "ansible.builtin.command": "true", "when": False},
    {"name": "By itself", "ansible.builtin.command": "true", "async": 20, "poll": 1, "changed_when": False},
]
# Tasks that stand for any have raw, which sends no module: a run takes two thirds of the time.
STORY: list[dict[str, Any]] = [
    {"name": "First", "hosts": "all", "tasks": FIRST},
    {
        "name": "Handlers",
        "hosts": "h1,h2",
        "tasks": [{"name": "Notify", "ansible.builtin.command": "true", "notify": ["Restart"], "when": "in_h1"}],
        "vars": {"in_h1": "{{ inventory_hostname == 'h1' }}"},
        "handlers": [{"name": "Restart", "ansible.builtin.command": "true"}],
    },
    {"name": "Ended", "hosts": "all", "tasks": [{"ansible.builtin.meta": "end_play"}]},
    {"name": "Nobody", "hosts": "!all", "tasks": [{"ansible.builtin.debug": {}}]},
    {
        "name": "In turn",
        "hosts": "h1,h2",
        "serial": 1,
        "tasks": [{"name": "Look", "ansible.builtin.raw": "true", "changed_when": False}],
    },
    {
        "name": "Free",
        "hosts": "h1,h2",
        "strategy": "free",
        "tasks": [
            {
                "name": "Try again",
                "ansible.builtin.command": FAIL,
                "register": "tried",
                "until": "tried is success",
                "retries": 1,
                "delay": 1,
                "when": "inventory_hostname == 'h2'",
            },
            {"name": "Look", "ansible.builtin.raw": "true", "changed_when": False},
        ],
    },
    {
        "name": "Away",
        "hosts": "h1,h3",
        "strategy": "host_pinned",
        "vars": {
            "ansible_connection": "{{ 'ssh' if inventory_hostname == 'h3' else 'local' }}",
            "ansible_host": "127.0.0.1",
            "ansible_port": 1,
        },
        "tasks": [{"name": "Reach", "ansible.builtin.command": "true", "changed_when": False}],
    },
    {
        "name": "Fatal",
        "hosts": "h1",
        "any_errors_fatal": True,
        "tasks": [
            {"name": "Stop", "ansible.builtin.fail": {"msg": "no more\nof this"}},
            {"name": "Never", "ansible.builtin.command": "true"},
        ],
    },
    {"name": "After", "hosts": "all", "tasks": [{"name": "Never", "ansible.builtin.command": "true"}]},
]
LINES = """\
    Say it (h[1-3]): it\\x1b[2J
    Say them (h1):
        a
        b
    Say a value (h1): ansible_check_mode: false
    Say items (h1): 1
    Say items (h1): two
ignored  h[1-3]: Ignored: exit status 3: bad FIRST (as FIRST says it; the others differ in names and times alone)
rescued  h[1-3]: Inner: broken
    Go on (h[1-3]): rescued
ignored  h[1-3]: Secret: (hidden, since the task has no_log)
ignored  h[1-3]: Items: 1: exit status 1
    2: exit status 2
changed TIME 3 of 3 First: h[1-3]
changed TIME 2 of 2 Handlers: h1
ok TIME 1 of 1 In turn
ok TIME 1 of 1 In turn
failed   h2: Try again: exit status 3: bad h2
failed TIME 1 of 2 Free: h2
unreachable h3: Reach: NO ROUTE
failed TIME 1 of 2 Away: h3
failed   h1: Stop: no more
    of this
failed TIME 0 of 1 Fatal: h1
Changed 3 of 3 hosts (TIME):
    First     h[1-3]
    Handlers  h1
Failed: h[1-2].
Not reached: h3.
Failed first, on h2 in Free: Try again: exit status 3: bad h2
Failed as well, on h3 in Away: Reach: NO ROUTE
Failed as well, on h1 in Fatal: Stop: no more of this
"""


class Runs:
    """Playbooks in a directory, on hosts that are this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {"all": {"hosts": {name: {} for name in HOSTS}, "vars": variables}}
        (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (directory / "inner.yml").write_text(yaml.safe_dump(INNER))

    def write(self, plays: list[dict[str, Any]]) -> str:
        """Write a playbook; its path."""
        plays = [{"strategy": "linear", "gather_facts": False, **play} for play in plays]
        (self.directory / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
        return str(self.directory / "play.yml")

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a run."""
        own = {"ANSIBLE_INVENTORY_ENABLED": "yaml", "ANSIBLE_HOST_KEY_CHECKING": "False"}
        return dict(environment(ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), **own, **variables))

    def command(self, plays: list[dict[str, Any]], *arguments: str) -> list[str]:
        """The command that runs plays."""
        return [str(BIN / "ansible-playbook"), "-i", str(self.directory / "hosts.yml"), self.write(plays), *arguments]

    def run(self, plays: list[dict[str, Any]], *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run plays, with the output in a pipe."""
        return subprocess.run(
            self.command(plays, *arguments),
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def at_terminal(
        self,
        plays: list[dict[str, Any]],
        *arguments: str,
        answers: Sequence[tuple[bytes, bytes]] = (),
        **variables: str,
    ) -> str:
        """Run plays at a terminal, whose questions get answers, each once; its output."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            self.command(plays, *arguments),
            env=self.environment(TERM="xterm", COLUMNS="80", **variables),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # a pause reads from it
        )
        os.close(follower)
        output, left = b"", [*answers]
        until = time.monotonic() + 60
        with contextlib.suppress(OSError):  # the end of the terminal
            while select.select([leader], [], [], max(0, until - time.monotonic()))[0]:
                output += os.read(leader, 65536)
                if left and left[0][0] in output:
                    time.sleep(2)  # a pause forgets what was typed before it reads
                    os.write(leader, left.pop(0)[1])
        os.close(leader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        return output.decode().replace("\r\n", "\n")


@pytest.fixture(name="runs", scope="module")
def directory_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def same(output: str) -> str:
    """An output without what differs from run to run: times, and the host that was first."""
    row = re.compile(r"^(\w+) +\d+:\d\d +(\d+ of \d+) +", re.MULTILINE)
    output = re.sub(r"\(\d+:\d\d\)", "(TIME)", row.sub(r"\1 TIME \2 ", output))
    output = re.sub(r"bad (h\d) \(as \1 says", "bad FIRST (as FIRST says", output)
    return re.sub(r"(Reach: ).*", r"\1NO ROUTE", output)


def task(module: str, value: Any, **more: Any) -> dict[str, Any]:
    """A play with one task on all hosts."""
    return {"name": "Play", "hosts": "all", "tasks": [{"name": "Task", f"ansible.builtin.{module}": value, **more}]}


# -- in a file ---------------------------------------------------------------------------------------------------------


def test_all_that_can_happen_in_a_file(runs: Runs) -> None:
    run = runs.run(STORY)
    assert same(run.stdout) == LINES
    assert run.stderr == ""
    assert run.returncode != 0
    assert "geheim" not in run.stdout


@pytest.mark.once
def test_a_run_that_changes_nothing(runs: Runs) -> None:
    run = runs.run([task("command", "true", changed_when=False)])
    assert same(run.stdout) == "ok TIME 3 of 3 Play\nNothing to change on 3 hosts (TIME).\n"
    assert (run.returncode, run.stderr) == (0, "")


def test_warnings_are_shown_once(runs: Runs) -> None:
    (runs.directory / "library").mkdir()
    module = runs.directory / "library/warner.py"
    module.write_text("""#!/usr/bin/python3
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({})
module.warn("mind the gap")
module.exit_json(changed=False)
""")
    play = {"name": "Play", "hosts": "all", "tasks": [{"name": "Task", "warner": {}}]}
    run = runs.run([play])
    assert run.stderr.count("mind the gap") == 1
    assert same(run.stdout).startswith("ok TIME 3 of 3 Play\n")


def test_what_a_check_can_only_tell_is_a_change(runs: Runs) -> None:
    """A role without its packages, which the run would install (roles/slurm/tasks/foretell.yml)."""
    play = task("debug", {"msg": "the run starts it"})
    play["tasks"][0]["changed_when"] = True
    run = runs.run([play], "--check")
    assert [line for line in same(run.stdout).split("\n") if line][-3:] == [
        "changes TIME 3 of 3 Play: h[1-3]",
        "Would change 3 of 3 hosts (TIME):",
        "    Play  h[1-3]",
    ]


@pytest.mark.once
def test_a_check_shows_each_diff_once(runs: Runs) -> None:
    """A program of the collection has one line, a setting its diff."""
    name = runs.directory / "health"
    host = PlainHost({"inventory_hostname": "h1", "slurm_repair": {}})
    (program,) = [file for file in slurm_health.program(host) if file["path"].endswith("/health_check.py")]
    files = [
        {"path": str(name), "content": program["content"]},
        {"path": str(runs.directory / "x.conf"), "content": f"Port=1{CLEAR}\n"},
    ]
    play = task("debug", {"msg": "x"})
    play["tasks"] = [{"name": "Write", "gpucluster.slurm.slurm_files": {"files": files}}]
    run = runs.run([play], "--check", "--diff")
    assert run.returncode == 0, run.stdout + run.stderr
    lines = same(run.stdout).split("\n")
    assert lines[0] == "    Write (h[1-3])"
    (line,) = [line for line in lines if str(name) in line]
    assert re.fullmatch(rf"{name}: health_check.py of gpucluster.slurm, new, \d+ lines \(-v shows them\)", line)
    assert "+Port=1\\x1b[2J" in lines
    assert lines[-4:] == [
        "changes TIME 3 of 3 Play: h[1-3]",
        "Would change 3 of 3 hosts (TIME):",
        "    Play  h[1-3]",
        "",
    ]
    whole = runs.run([play], "--check", "--diff", "-v").stdout
    assert "+from __future__ import annotations" in whole


def test_verbose_output_is_that_of_ansible_and_the_last_lines(runs: Runs) -> None:
    play = {**STORY[0], "hosts": "h1"}
    theirs = runs.run([play], "-v", ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default")
    ours = runs.run([play], "-v")

    def without_times(output: str) -> str:
        output = re.sub(r"\d+:\d\d:\d\d\.\d+|\d{4}-\d\d-\d\d|j?\d{6,}\.?\d*|\d\.\d+", "#", output)
        return re.sub(r"(?m)^ASYNC .*\n", "", output)

    assert theirs.stdout.count("TASK [") > 8
    ended = "Changed 1 of 1 host (TIME):\n    First  h1\n"
    assert without_times(same(ours.stdout)) == without_times(same(theirs.stdout)) + ended


@pytest.mark.once
@pytest.mark.parametrize("argument", ["--list-tasks", "--syntax-check"])
def test_lists_are_those_of_ansible(runs: Runs, argument: str) -> None:
    plays = [task("command", "true")]
    ours, theirs = (
        runs.run(plays, argument, ANSIBLE_STDOUT_CALLBACK=name) for name in (CALLBACK, "ansible.builtin.default")
    )
    assert (ours.stdout, ours.stderr, ours.returncode) == (theirs.stdout, theirs.stderr, 0)


@pytest.mark.once
def test_a_judgement_for_all_hosts_is_that_of_no_host(runs: Runs) -> None:
    play = task("fail", {"msg": "h2: slurmd would not start"})
    play["tasks"][0]["run_once"] = True
    run = runs.run([play])
    assert run.returncode == 2
    assert same(run.stdout).split("\n")[:5] == [
        "failed   the run: Task: h2: slurmd would not start",
        "failed TIME 0 of 3 Play",
        "Nothing was changed on 3 hosts (TIME).",
        "Failed: the run.",
        "Failed first, in Play: Task: h2: slurmd would not start",
    ]


@pytest.mark.once
def test_no_host_at_all(runs: Runs) -> None:
    run = runs.run([{"name": "Nobody", "hosts": "!all", "tasks": []}])
    assert same(run.stdout) == "No task ran on a host (TIME).\n"


@pytest.mark.once
def test_lines_come_at_once(runs: Runs) -> None:
    """A file is read while the run goes on: `tail -f`, or the log of a service."""
    plays = [task("debug", {"msg": "now"}), task("command", "sleep 60")]
    process = subprocess.Popen(runs.command(plays), env=runs.environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = [process.stdout.readline() for _number in range(2)]
    time.sleep(3)  # Python does not obey it while it forks
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=30)[0]
    assert same("".join(lines)) == "    Task (h[1-3]): now\nok TIME 3 of 3 Play\n"
    assert "Traceback" not in rest


# -- at a terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_colours_at_a_terminal(runs: Runs) -> None:
    plays = [task("command", "true")]
    assert re.search("\x1b\\[0;33mchanged .*\x1b\\[0m\n", runs.at_terminal(plays))
    for output in (runs.at_terminal(plays, NO_COLOR="1"), runs.at_terminal(plays, ANSIBLE_NOCOLOR="1")):
        assert same(output).startswith("changed TIME 3 of 3 Play: h[1-3]\n")
        assert "\x1b" not in output


@pytest.mark.once
def test_a_long_task_and_its_end_at_a_terminal(runs: Runs) -> None:
    command = "sleep {{ 13 if inventory_hostname == 'h2' else 0 }}"
    output = runs.at_terminal([task("command", command, changed_when=False)], NO_COLOR="1")
    assert same(output).split("\n")[:3] == [
        "waits TIME 2 of 3 Task: h2",
        "ended TIME 3 of 3 Task",
        "ok TIME 3 of 3 Play",
    ]


@pytest.mark.once
def test_questions_stay_readable(runs: Runs) -> None:
    """Nothing is written over what Ansible asks: --step, and a pause."""
    plays = [task("pause", {"prompt": "Go on"})]
    answers = [(b"ontinue:", b"c\n"), (b"Go on:", b"\r")]
    output = runs.at_terminal(plays, "--step", answers=answers, NO_COLOR="1")
    assert "Perform task: TASK: Task (N)o/(y)es/(c)ontinue:" in output
    assert "Go on:" in output
    assert "Nothing to change on 3 hosts" in output


@pytest.mark.once
def test_a_narrow_terminal(runs: Runs) -> None:
    play = task("fail", {"msg": "word " * 60})
    lines = runs.at_terminal([play], NO_COLOR="1").split("\n")
    assert len([line for line in lines if line.startswith(" " * 29 + "word")]) >= 3


# -- site.yml ----------------------------------------------------------------------------------------------------------


@pytest.mark.rare  # 38 s; scenario default counts the lines of a converged cluster
def test_site_on_many_hosts_that_have_all(tmp_path: Path) -> None:
    """Stand-ins that lack everything, so that each stage has hosts: a converged cluster has fewer stages."""
    model = cluster()
    model["nodes"] = [{"hosts": "n[1-12]", "hardware": "a"}]
    hosts = Hosts(tmp_path / "site", model, standing(["head", *(f"n{number}" for number in range(1, 13))]))
    (hosts.directory / "ansible.cfg").write_text(f"[defaults]\nstdout_callback = {CALLBACK}\n")
    first = hosts.run("gpucluster.slurm.site")
    assert first.returncode == 0, first.stdout
    assert same(first.stdout).split("\n")[-3:-1] == ["Changed 1 of 13 hosts (TIME):", "    Munge  head"]
    again = hosts.run("gpucluster.slurm.site")
    lines = same(again.stdout).strip().split("\n")
    assert lines[-1] == "Nothing to change on 13 hosts (TIME)."
    stages = [line for line in lines if line.startswith("ok ")]
    assert len(stages) > 8
    assert len(lines) < 15 + 5, again.stdout  # five stages more than a converged cluster
    assert again.stderr == ""


# -- the callback itself -----------------------------------------------------------------------------------------------


def test_each_event_that_ansibles_callback_shows_has_a_method() -> None:
    theirs = {name for name in vars(Default) if name.startswith("v2_")}
    only_verbose = {"v2_playbook_on_start", "v2_playbook_on_notify"}
    assert theirs - only_verbose <= {*vars(progress.CallbackModule)}


def test_an_error_of_its_own_is_a_warning_and_the_event_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(Default, "v2_playbook_on_no_hosts_matched", lambda _self: shown.append("no hosts"))
    display = SimpleNamespace(warning=shown.append)
    fake = SimpleNamespace(lock=threading.RLock(), _display=display, NAME=CALLBACK, SILENT=False)

    @progress.guarded
    def v2_playbook_on_no_hosts_matched(_self: Any) -> None:
        raise KeyError("x")

    v2_playbook_on_no_hosts_matched(fake)
    assert shown == ["gpucluster.slurm.progress: v2_playbook_on_no_hosts_matched: KeyError('x')", "no hosts"]
