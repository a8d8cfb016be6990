#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Plan, validate, apply, verify and roll back Slurm's configuration
version_added: 0.1.0
description:
  - Runs on a controller. It takes all files of the configuration at once, and either all of them are in force
    afterwards, or none.
  - B(Validates) them, before anything is written. Every key is known to the installed release, or the nearest known
    one is named. Slurm's own parser reads them. A second slurmctld starts with them for a moment, with a state
    directory and a port of its own, no accounting, no programs to run, and addresses at which it reaches no node.
  - B(Plans) what changes, key by key, node by node and partition by partition, what each change needs
    (C(scontrol reconfigure), or a restart), and which jobs it would end. Slurm itself is asked for the jobs.
  - B(Refuses) what would end jobs, unless O(end_jobs) allows it.
  - B(Applies) them. All files are written or none, then slurmctld is reconfigured or restarted, whichever they need.
  - B(Verifies) that slurmctld answers, that it has the numbers of the files, and that every node that was up, and
    whose slurmd took connections, is up again within O(patience).
  - Daemons on other hosts are not its business. Nodes to whose slurmd slurmctld cannot speak before that is restarted,
    as with another SlurmdPort, are not waited for; RV(read_at_start) tells whose restart is due.
  - B(Rolls back) to the last good files if not, and says why. The last good files are kept in
    C(/var/lib/gpucluster-slurm/good), so that a run that was killed is repaired by the next one.
  - Two runs at once do not meet, the second one is refused.
options:
  directory:
    description: Where Slurm reads its configuration from.
    type: path
    default: /etc/slurm
  files:
    description: The text of each file, by its name in O(directory). V(slurm.conf) is among them.
    type: dict
    required: true
  end_jobs:
    description: Whether changes that end jobs may be applied.
    type: bool
    default: false
  patience:
    description: How many seconds nodes that were up may take to be up again.
    type: int
    default: 60
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
seealso:
  - module: gpucluster.slurm.slurm_service
author:
  - gpucluster.slurm contributors (@gpucluster)
"""

EXAMPLES = r"""
- name: Apply Slurm's configuration
  gpucluster.slurm.slurm_config:
    files:
      slurm.conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"
      cgroup.conf: "{{ lookup('ansible.builtin.template', 'cgroup.conf.j2') }}"
  register: config

- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ config.table | join('\n') }}"
"""

RETURN = r"""
plan:
  description: The changes. Empty where only comments or the order of lines differ.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: What changes.
      type: str
      returned: always
      sample: slurm.conf KillWait
    before:
      description: Its value before; null if it had none.
      type: str
      returned: always
      sample: "30"
    after:
      description: Its value afterwards; null if it has none.
      type: str
      returned: always
      sample: "60"
    needs:
      description: What it needs.
      type: str
      returned: always
      sample: reconfigure
    ends:
      description: Numbers of the jobs that it would end.
      type: list
      elements: str
      returned: always
      sample: []
table:
  description: The plan as text, a line for each change; empty for the first configuration.
  type: list
  elements: str
  returned: always
  sample: ["slurm.conf KillWait  30 -> 60  reconfigure"]
actions:
  description: What was done with slurmctld, or would be in check mode.
  type: list
  elements: str
  returned: always
  sample: [reconfigure]
read_at_start:
  description:
    - What each slurmd takes from the files when it starts, and only then, as lines. It changes when RV(plan) says that
      slurmd must be restarted.
    - It is kept in C(/var/lib/gpucluster-slurm/slurmd) as well, for runs that do not come to this module.
  type: str
  returned: always
  sample: SlurmdPort=6818
remarks:
  description: What Slurm ignores of the files, and what else a reader should know.
  type: list
  elements: str
  returned: always
  sample: []
"""

import fcntl
import os
import pwd
import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.change_plan import (
    Job,
    Step,
    parts_daemons,
    read_at_start,
    removed_nodes,
    steps,
    table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import (
    Configuration,
    ConfigurationError,
    changes,
    lines,
    read,
    table_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.files import File, FileError, write
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.trial import TrialError, try_out

RUN = "/run/gpucluster-slurm"
GOOD = "/var/lib/gpucluster-slurm/good"
READ_AT_START = "/var/lib/gpucluster-slurm/slurmd"
SERVICE = "slurmctld"
# Seconds that one command of Slurm may take.
COMMAND = 60
# States of a node that cannot have jobs (slurm.conf(5) and sinfo(1)); one that does not answer has a star.
LOST = re.compile(r"down|unknown|inval|fail|.*\*$")


class ConfigError(Exception):
    """Why the configuration is not in force; the files are as they were."""


class Slurm:
    """The commands of Slurm on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def ask(self, *command: str, conf: str = "") -> tuple[int, str, str]:
        """A command's status and output. It must not wait for a daemon that hangs."""
        environment = {"SLURM_CONF": conf} if conf else {}
        result: tuple[int, str, str] = self.module.run_command(
            ["timeout", str(COMMAND), *command], environ_update=environment
        )
        return result

    def version(self) -> str:
        """The installed release, such as 24.11.5. Raises ConfigError without one."""
        stdout = self.ask("slurmctld", "-V")[1]
        if not (match := re.search(r"\d+\.\d+\.\d+", stdout)):
            raise ConfigError(f"slurmctld -V says {stdout.strip()!r}; is its package installed?")
        return match[0]

    def active(self) -> bool:
        """Whether systemd runs slurmctld here."""
        return self.ask("systemctl", "is-active", "--quiet", SERVICE)[0] == 0

    def answers(self) -> bool:
        """Whether slurmctld answers."""
        return self.active() and self.ask("scontrol", "ping")[0] == 0

    def last_words(self) -> str:
        """What slurmctld has said last."""
        return self.ask("journalctl", "--no-pager", "--output=cat", "--lines=8", f"--unit={SERVICE}")[1]

    def jobs(self) -> list[Job]:
        """The jobs that have not ended."""
        fields = ["JobArrayID", "Partition", "NodeList", "tres-per-job", "tres-per-node", "tres-per-task", "tres-alloc"]
        rc, stdout, stderr = self.ask("squeue", "--noheader", "--Format", ",".join(f"{field}:|" for field in fields))
        if rc != 0:
            raise ConfigError(f"squeue: {stderr.strip()}")
        rows = [line.split("|") for line in stdout.splitlines()]
        return [
            Job(row[0], row[1], frozenset(expand(row[2])), any("gres" in field for field in row[3:])) for row in rows
        ]

    def nodes(self) -> dict[str, tuple[str, str]]:
        """State and reason of each node."""
        stdout = self.ask("sinfo", "--noheader", "--Node", "--all", "--format=%N|%T|%E")[1]
        rows = (line.split("|", 2) for line in stdout.splitlines())
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}

    def settings(self) -> dict[str, str]:
        """What slurmctld has in force, by key in small letters."""
        stdout = self.ask("scontrol", "show", "config")[1]
        pairs = (line.split("=", 1) for line in stdout.splitlines() if "=" in line)
        return {key.strip().lower(): value.strip() for key, value in pairs}


# -- validate --------------------------------------------------------------------------------------------------------


def judge(files: Mapping[str, str], version: str) -> tuple[list[str], list[str]]:
    """What the release would refuse, and what it would ignore."""
    refused: list[str] = []
    ignored: list[str] = []
    for file in (name for name in files if name in parameters.FILES):
        own: list[tuple[str, str]] = []
        judged = [(f"{file}: ", file, own)]
        for pairs in lines(file, files[file]):
            kind = table_of(file, pairs)
            if kind == file != "gres.conf":
                own.extend(pairs)
            else:  # its parameters are its own
                judged.append((f"{file}: {pairs[0][0]}={pairs[0][1]}: ", kind, [*pairs]))
        for place, kind, values in judged:
            for problem in parameters.problems(kind, values, version):
                words = refused if problem.effect == parameters.REFUSED else ignored
                words.append(f"{place}{problem.key}: {problem.text}")
    return refused, ignored


@contextmanager
def candidate(module: AnsibleModule, files: Mapping[str, str]) -> Iterator[str]:
    """A directory with the files and all others of the configuration, for Slurm's own judgement."""
    os.makedirs(RUN, mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="candidate-", dir=RUN) as directory:
        os.chmod(directory, 0o755)
        current = module.params["directory"]
        for name in os.listdir(current) if os.path.isdir(current) else []:
            if name not in files and name != "slurmdbd.conf":
                os.symlink(os.path.join(current, name), os.path.join(directory, name))
        for name, text in files.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(text)
        yield directory


def parse(slurm: Slurm, directory: str) -> None:
    """Let Slurm's parser read the files. Raises ConfigError with its words."""
    rc, stdout, stderr = slurm.ask("sinfo", "--version", conf=f"{directory}/slurm.conf")
    if rc != 0:
        raise ConfigError((stderr or stdout).strip().replace(f"{directory}/", ""))


def validate(
    module: AnsibleModule, slurm: Slurm, files: Mapping[str, str], new: Configuration, version: str
) -> list[str]:
    """Judge the wanted files. Gives what Slurm would ignore; raises ConfigError with all that it would refuse."""
    refused, ignored = judge(files, version)
    if refused:
        raise ConfigError("\n".join(refused))
    user = new.settings.get(("slurm.conf", "slurmuser"), ("", "root"))[1]
    with candidate(module, files) as directory:
        parse(slurm, directory)
        try_out(directory, pwd.getpwnam(user).pw_name)
    return ignored


# -- plan ------------------------------------------------------------------------------------------------------------


def last_good(module: AnsibleModule, names: Sequence[str]) -> dict[str, str]:
    """The files that were in force last: what was kept, or what is there where nothing was kept."""
    found = {}
    for name in names:
        for directory in (GOOD, module.params["directory"]):
            try:
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    found[name] = file.read()
                    break
            except FileNotFoundError:
                continue
    return found


def understood(files: Mapping[str, str]) -> tuple[Configuration, list[str]]:
    """What the files in force say, and a remark where they cannot be read."""
    try:
        return read(files), []
    except ConfigurationError as error:
        return Configuration(), [f"the files that are there cannot be read, so all is new: {error}"]


# -- apply, verify, roll back ----------------------------------------------------------------------------------------


def action_for(plan: Sequence[Step], answers: bool, active: bool) -> str:
    """What slurmctld needs for the plan; one that runs but does not answer is started anew."""
    if not answers:
        return "restart" if active else "start"
    return "restart" if any(SERVICE in step.needs.restart for step in plan) else "reconfigure"


def act(slurm: Slurm, action: str) -> None:
    """Do it. Raises ConfigError with the words of the command, and the journal where slurmctld did not come up."""
    command = ["scontrol", "reconfigure"] if action == "reconfigure" else ["systemctl", action, SERVICE]
    rc, stdout, stderr = slurm.ask(*command)
    if rc != 0:
        words = "" if action == "reconfigure" else slurm.last_words()
        raise ConfigError(f"{' '.join(command)}: {(stderr or stdout).strip()}\n{words}".strip())


def wait(slurm: Slurm, patience: int) -> None:
    """Wait for slurmctld. Raises ConfigError if it does not answer in time, or has ended."""
    deadline = time.monotonic() + patience
    while not slurm.answers():
        if not slurm.active():
            raise ConfigError(f"slurmctld has ended:\n{slurm.last_words()}")
        if time.monotonic() > deadline:
            raise ConfigError(f"slurmctld does not answer after {patience} s")
        time.sleep(1)


def verify(slurm: Slurm, plan: Sequence[Step], up: set[str], patience: int) -> None:
    """See that slurmctld has the configuration in force, and the nodes that were up. Raises ConfigError if not."""
    wait(slurm, patience)
    deadline = time.monotonic() + patience
    in_force = slurm.settings()
    for change in (step.change for step in plan):
        found = in_force.get(change.key.lower(), "").split()
        wanted = change.after or ""
        numbers = change.file == "slurm.conf" and wanted.isdigit() and found and found[0].isdigit()
        if numbers and int(found[0]) != int(wanted):
            raise ConfigError(f"slurmctld has {change.key}={found[0]}, the file {wanted}")
    while not parts_daemons(plan):
        nodes = slurm.nodes()
        missing = sorted(up - removed_nodes(plan) - those_up(nodes))
        refused = [node for node in missing if nodes.get(node, ("", ""))[0].startswith("inval")]
        if refused:  # they will not be up again by themselves
            raise ConfigError(f"Slurm takes {fold(refused)} no more: {nodes[refused[0]][1]}")
        if not missing:
            return
        if time.monotonic() > deadline:
            raise ConfigError(f"{fold(missing)} were up and are not after {patience} s")
        time.sleep(1)


def those_up(nodes: Mapping[str, tuple[str, str]]) -> set[str]:
    """The nodes that can have jobs, drained ones among them."""
    return {node for node, (state, reason) in nodes.items() if not LOST.match(state)}


def reachable(old: Configuration, nodes: Iterable[str]) -> set[str]:
    """The nodes whose slurmd takes connections: Slurm misses one that is dead only after SlurmdTimeout."""
    names = list(nodes)
    port = old.settings.get(("slurm.conf", "slurmdport"), ("", "6818"))[1]

    def answers(node: str) -> bool:
        settings = {key.lower(): value for key, value in old.nodes.get(node, ())}
        address = settings.get("nodeaddr") or settings.get("nodehostname") or node
        try:
            with socket.create_connection((address, int(settings.get("port", port))), timeout=2):
                return True
        except (OSError, ValueError):
            return False

    with ThreadPoolExecutor(64) as pool:
        return {name for name, found in zip(names, pool.map(answers, names)) if found}


def keep(files: Mapping[str, str], read_at_start: str) -> None:
    """Keep the files as the last good ones, and what each slurmd takes of them when it starts."""
    os.makedirs(GOOD, mode=0o700, exist_ok=True)
    kept = [File(os.path.join(GOOD, name), text.encode(), mode=0o600) for name, text in files.items()]
    write([*kept, File(READ_AT_START, read_at_start.encode())])


def apply(
    module: AnsibleModule,
    slurm: Slurm,
    files: Sequence[File],
    good: Mapping[str, str],
    old: Configuration,
    plan: Sequence[Step],
    action: str,
) -> None:
    """Put the files in force, or go back to the good ones. Raises ConfigError."""
    before = slurm.nodes() if slurm.answers() else {}
    there = reachable(old, those_up(before))
    before = {node: state for node, state in before.items() if node in there}
    write(files)
    try:
        act(slurm, action)
        if action != "reconfigure" and good:
            wait(slurm, module.params["patience"])
            act(slurm, "reconfigure")  # which hands the files to the other hosts
        verify(slurm, plan, those_up(before), module.params["patience"])
    except ConfigError as error:
        outcome = roll_back(slurm, files, good, action)
        resume(slurm, before, module.params["patience"])
        raise ConfigError(f"{error}\n{outcome}") from None


def roll_back(slurm: Slurm, files: Sequence[File], good: Mapping[str, str], action: str) -> str:
    """Put the good files back, and slurmctld with them. Says how that went."""
    if len(good) < len(files):
        return "There were no files before to go back to."
    write([File(file.path, good[os.path.basename(file.path)].encode(), file.owner, file.mode) for file in files])
    try:
        act(slurm, "restart" if action == "start" else action)
    except ConfigError:
        try:  # a slurmctld that is gone cannot be reconfigured
            act(slurm, "restart")
        except ConfigError as error:
            return f"The old files are back, but slurmctld did not come up with them: {error}"
    return "Rolled back: the old files are in force again."


def resume(slurm: Slurm, before: Mapping[str, tuple[str, str]], patience: int) -> None:
    """Resume the nodes that Slurm has drained because it refused them with the files that are gone again."""
    whole = {node for node in those_up(before) if "drain" not in before[node][0]}
    deadline = time.monotonic() + patience
    while slurm.answers() and time.monotonic() < deadline:
        nodes = slurm.nodes()
        drained = sorted(node for node in whole & nodes.keys() if re.match("inval|drain", nodes[node][0]))
        if not drained:
            return
        slurm.ask("scontrol", "update", f"nodename={fold(drained)}", "state=resume")
        time.sleep(1)


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of this module. Raises ConfigError where another run has it."""
    os.makedirs(RUN, mode=0o755, exist_ok=True)
    with open(os.path.join(RUN, "slurm_config.lock"), "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError("another run is applying a configuration on this host; let it end first") from None
        yield


def converge(module: AnsibleModule, slurm: Slurm) -> dict[str, Any]:
    """The module's work, and its result."""
    wanted: dict[str, str] = module.params["files"]
    directory = module.params["directory"]
    files = [File(os.path.join(directory, name), text.encode()) for name, text in wanted.items()]
    version = slurm.version()
    good = last_good(module, list(wanted))
    old, remarks = understood(good)
    new = read(wanted)
    at_start = read_at_start(new, "slurmd", version)
    running = slurm.answers()
    plan = steps(changes(old, new), slurm.jobs() if running else [], version)
    different = [file for file in files if file.changes]
    result = {
        "changed": bool(different) or good != wanted,
        "plan": [
            {
                "what": step.what,
                "before": step.change.before,
                "after": step.change.after,
                "needs": step.action,
                "ends": list(step.ends),
            }
            for step in plan
        ],
        "table": table(plan) if good else [],
        "actions": [],
        "read_at_start": at_start,
        "remarks": [],
        "diff": [file.diff for file in different],
    }
    if not result["changed"]:
        if not module.check_mode:
            keep(wanted, at_start)
        return result
    if good and not running:
        remarks.append("slurmctld does not answer, so which jobs run is not known")
    result["remarks"] = remarks + validate(module, slurm, wanted, new, version)
    ending = sorted({number for step in plan for number in step.ends})
    if ending and not module.params["end_jobs"]:
        shown = "\n".join(table([step for step in plan if step.ends]))
        raise ConfigError(f"this would end {len(ending)} jobs; drain the nodes first, or set end_jobs:\n{shown}")
    action = action_for(plan, running, slurm.active())
    result["actions"] = [action]
    if not module.check_mode:
        apply(module, slurm, files, good, old, plan, action)
        keep(wanted, at_start)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "default": "/etc/slurm"},
            "files": {"type": "dict", "required": True},
            "end_jobs": {"type": "bool", "default": False},
            "patience": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    # A connection that is lost must not end the work in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with alone():
            result = converge(module, Slurm(module))
    except (ConfigError, ConfigurationError, FileError, TrialError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
