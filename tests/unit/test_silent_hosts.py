# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real plays on hosts that answer ssh and then nothing, or without end: they are named, and the others go on.

The hosts are stand-ins (`standing_hosts`) behind a stand-in for the program ssh; Ansible's connection plugin is real.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import environment
from test_hostile_hosts import cluster, recap

ROOT = Path(__file__).parents[2]
LIMIT = 5
"""Seconds of a task here. The honest host has more: a busy machine must not fail a test."""

HONEST = 'for command; do :; done; exec sh -c "$command"'
HANGS = "exec sleep 120"
READS = "exec 3<&0; cat <&3 >/dev/null &"
WORDS = "yes '{\"changed\": false}'"

SILENT = {
    "login shell hangs": HANGS,
    "answers byte by byte": "while sleep 0.5; do printf x; done",
    "errors byte by byte": "while sleep 0.5; do printf x >&2; done",
    "closes its output and stays": "exec sleep 120 >/dev/null 2>&1",
    "says half an answer": "printf '{\"changed\": fal'; exec sleep 120",
    "stops itself": "kill -STOP $$",
    "ignores signals": "trap '' TERM HUP PIPE INT; while :; do sleep 120; done",
    "answers the question before, and keeps the line": f"sleep 120 & {HONEST}",
}
"""What ssh does that leads to a host which says nothing to the end."""

LOUD = {
    "output without end": f"{READS}\n{WORDS}",
    "errors without end": f"{READS}\n{WORDS} >&2",
    "both without end": f"{READS}\n{WORDS} >&2 & {WORDS}",
    "300 MB in one line": f"{READS}\nhead -c 300000000 /dev/zero",
    "300 MB before an answer": f"cat >$0.in; head -c 300000000 /dev/zero; {HONEST} <$0.in",
    "300 MB after an answer": f'for command; do :; done; sh -c "$command"; {WORDS}',
    "a list without end": f"{READS}\nprintf '{{\"changed\": ['; exec yes '[],'",
    "nested without end": f"{READS}\nexec yes '{{\"x\":'",
    "ignores signals and the end of its input": f"trap '' TERM PIPE; {READS}\nwhile :; do {WORDS}; done",
}
"""What ssh does that leads to an answer without end."""


def play(task: dict[str, Any], limit: int = LIMIT) -> list[dict[str, Any]]:
    """The plays of a test: as each playbook of the collection begins, then one task on all hosts."""
    limited = {**task, "timeout": f"{{{{ 100 if inventory_hostname == 'head' else {limit} }}}}"}
    return [
        {"hosts": "{{ 'localhost' | gpucluster.slurm.limit_answers }}", "gather_facts": False, "connection": "local"},
        {"hosts": "slurm_cluster", "gather_facts": False, "tasks": [limited]},
    ]


MEASURED = """import resource, subprocess, sys
status = subprocess.run(sys.argv[2:], check=False).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command, and writes the largest memory of its processes in KiB to a file."""


class Site:
    """A cluster of hosts behind a stand-in for ssh: `head` is honest, and the others are as a test wants."""

    def __init__(self, directory: Path, others: dict[str, str]) -> None:
        self.directory = directory
        self.others = {f"n{number:02}": said for number, said in enumerate(others.values(), 1)}
        self.names = dict(zip(self.others, others))
        (directory / "group_vars").mkdir(parents=True)
        (directory / "x.cluster.yml").write_text(yaml.safe_dump(cluster(f"n[01-{len(others):02}]")))
        for name, script in {"head": HONEST, **self.others}.items():
            place = directory / "hosts" / name
            place.mkdir(parents=True)
            (place / "ssh").write_text(f"#!/bin/sh\necho $$ >>{place}/started\n{script}\n")
            (place / "ssh").chmod(0o755)
        variables = {
            "ansible_connection": "ssh",
            "ansible_become": False,
            "ansible_ssh_executable": f"{directory}/hosts/{{{{ inventory_hostname }}}}/ssh",
            "ansible_python_interpreter": sys.executable,
        }
        (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
        (directory / "ansible.cfg").write_text("")

    def run(self, playbook: str | list[dict[str, Any]], *arguments: str, **variables: str) -> Any:
        """Run plays, or a playbook."""
        if not isinstance(playbook, str):
            (self.directory / "play.yml").write_text(yaml.safe_dump(playbook))
            playbook = str(self.directory / "play.yml")
        command = [str(Path(sys.executable).parent / "ansible-playbook"), playbook, "-i", "x.cluster.yml", *arguments]
        return subprocess.run(
            [sys.executable, "-c", MEASURED, str(self.directory / "memory"), *command],
            env=environment(
                ANSIBLE_CONFIG=str(self.directory / "ansible.cfg"),
                ANSIBLE_CALLBACKS_ENABLED="gpucluster.slurm.packed_modules",
                NO_COLOR="1",
                **{"ANSIBLE_FORKS": "30", "ANSIBLE_PIPELINING": "True", **variables},
            ),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def left(self) -> set[str]:
        """The hosts whose ssh still runs."""
        return {
            self.names[name]
            for name in self.others
            for number in (self.directory / "hosts" / name / "started").read_text().split()
            if Path(f"/proc/{number}").exists() and " Z " not in Path(f"/proc/{number}/stat").read_text()
        }


def said(run: subprocess.CompletedProcess[str], host: str) -> str:
    """What a run says of the failure of a host."""
    (line,) = re.findall(rf"^fatal: \[{host}\]: \S+ => (.*)$", run.stdout, re.MULTILINE)
    return str(line)


OWN = {"gpucluster.slurm.slurm_files": {"record": "", "digest": "", "files": []}}
OTHER = {"ansible.builtin.command": "true"}
# The module runs on this machine, and replaces what is there.
COPY = {"ansible.builtin.copy": {"content": "x", "dest": "{{ inventory_dir }}/copied"}}


def leaves_them_out(site: Site, run: subprocess.CompletedProcess[str], words: str) -> None:
    """The run goes on with `head`, and says of each other host why it does not; nothing of them is left."""
    assert recap(run) == {"head": "ok", **dict.fromkeys(site.others, "failed")}
    assert {site.names[name]: said(run, name) for name in site.others if not re.search(words, said(run, name))} == {}
    assert len(run.stdout) + len(run.stderr) < 1000 * (len(site.others) + 1)
    assert site.left() == set()


@pytest.mark.once
@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            OWN,
            "slurm_files did not answer within 5 s, and the host is left out of this run. Check whether its shell,",
        ),
        pytest.param(OTHER, r"Timed out after 5 second\(s\)", marks=pytest.mark.rare),
        pytest.param(COPY, r"Timed out after 5 second\(s\)", marks=pytest.mark.rare),
    ],
    ids=["own module", "command", "copy"],
)
def test_silent_hosts_are_left_out_and_named(tmp_path: Path, task: dict[str, Any], words: str) -> None:
    site = Site(tmp_path / "site", SILENT)
    leaves_them_out(site, site.run(play(task)), words)


@pytest.mark.once
@pytest.mark.parametrize(
    ("task", "most"), [pytest.param(OWN, 16, marks=pytest.mark.rare), (OTHER, 4)], ids=["own module", "command"]
)
def test_loud_hosts_are_left_out_and_named(tmp_path: Path, task: dict[str, Any], most: int) -> None:
    site = Site(tmp_path / "site", LOUD)
    run = site.run(play(task, limit=100), ANSIBLE_FORKS="3")
    leaves_them_out(
        site, run, f"The host answered one command with more than {most} MiB. The answer was cut off, and the host"
    )
    assert int((site.directory / "memory").read_text()) < 300_000


@pytest.mark.once
@pytest.mark.rare
def test_temporary_files_are_not_removed_for_ever(tmp_path: Path) -> None:
    """Ansible removes them after the limit of the task, and without one."""
    silent_later = f"[ -e $0.asked ] && exec sleep 120\n: >$0.asked\n{HONEST}"
    site = Site(tmp_path / "site", {"silent after the first command": silent_later})
    run = site.run(play(OWN), ANSIBLE_PIPELINING="False")
    leaves_them_out(site, run, "slurm_files did not answer within 5 s")


def plays() -> Iterator[tuple[str, dict[str, Any]]]:
    """All plays of the collection, each with its file."""
    for path in sorted(ROOT.glob("playbooks/**/*.yml")):
        for each in yaml.safe_load(path.read_text()):
            if "hosts" in each:
                yield f"{path.relative_to(ROOT)}: {each['name']}", each


def test_every_play_on_hosts_has_a_limit_of_time() -> None:
    """Also plays whose tasks ask nobody today, and those of controllers: any host can hang."""
    local = "{{ 'localhost' | gpucluster.slurm."
    missing = [name for name, each in plays() if not each["hosts"].startswith(local) and "timeout" not in each]
    assert missing == []


def test_only_tasks_that_wait_for_jobs_have_no_limit_of_time() -> None:
    """Their action has one for each answer (`slurm_rolling.ANSWER`)."""
    without = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("roles/*/tasks/*.yml"))
        if re.search(r"^ +timeout: 0$", path.read_text(), re.MULTILINE)
    ]
    assert without == [
        "roles/accept/tasks/round.yml",
        "roles/remove_nodes/tasks/wait.yml",
        "roles/rolling/tasks/batch.yml",
    ]


def test_ansible_runner_ends_no_run_before_its_tasks_end() -> None:
    """A task without output, such as the conversion of a database, can take as long as its limit."""
    settings = yaml.safe_load((ROOT / "runner/env/settings").read_text())
    assert (settings["job_timeout"], settings["idle_timeout"]) == (0, 0)


def test_the_first_question_has_a_short_limit() -> None:
    limits = {name: each["timeout"] for name, each in plays() if "timeout" in each}
    first = [
        "adopt.yml: Gather facts of the hosts",
        "new.yml: Gather facts of the hosts",
        "stages/look.yml: Gather facts",
        "stages/doctor_servers.yml: Gather facts of the controllers and the database host",
    ]
    assert all(limits[f"playbooks/{name}"] <= 300 for name in first)


def test_every_playbook_limits_the_answers_of_hosts_before_it_asks_them() -> None:
    """Ansible's processes for tasks inherit the limit, so that it also holds for the modules of others."""
    for path in sorted(ROOT.glob("playbooks/*.yml")):
        first = yaml.safe_load(path.read_text())[0]
        if "hosts" not in first:
            assert first["ansible.builtin.import_playbook"] in ("stages/preflight.yml", "stages/inventory.yml"), path
        else:
            assert first["hosts"] == "{{ 'localhost' | gpucluster.slurm.limit_answers }}", path
    for name, first in (("preflight", {"import": "inventory.yml"}), ("inventory", {})):
        (begin, *_) = yaml.safe_load((ROOT / f"playbooks/stages/{name}.yml").read_text())
        wanted = first.get("import") or "{{ 'localhost' | gpucluster.slurm.limit_answers }}"
        assert begin.get("ansible.builtin.import_playbook", begin.get("hosts")) == wanted
