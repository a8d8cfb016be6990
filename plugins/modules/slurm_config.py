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
  - Runs on the controller that serves, which is the second one after it has taken over. It takes all files of the
    configuration at once, and either all of them are in force afterwards, or none.
  - B(Validates) them, before anything is written. Every key is known to the installed release, or the nearest known
    one is named. They go together, and with this host - nodes, partitions, generic resources, addresses, ports,
    included files, installed plugins, accounting and limits. Slurm's own parser reads them. A second slurmctld starts
    with them for a moment, with a state directory and a port of its own, no accounting, no programs to run, and
    addresses at which it reaches no node.
  - B(Plans) what changes, key by key, node by node and partition by partition, what each change needs
    (C(scontrol reconfigure), or a restart), and which jobs it would end. Slurm itself is asked for the jobs.
  - B(Refuses) what would end jobs, unless O(end_jobs) allows it. While slurmctld does not answer, a change that could
    end jobs is refused as well.
  - B(Applies) them. All files are written or none, then slurmctld is reconfigured or restarted, whichever they need.
  - B(Verifies) that slurmctld answers, that it has in force what the files say (parameters, nodes and partitions, but
    for those that were different before), and that every node that was up, and whose slurmd took connections, is up
    again within O(patience).
  - Daemons on other hosts are not its business. Nodes to whose slurmd slurmctld cannot speak before that is restarted,
    as with another SlurmdPort, are not waited for; RV(read_at_start) tells whose restart is due.
  - B(Rolls back) to the last good files if not, and says why. The last good files are kept in
    C(/var/lib/gpucluster-slurm/good), so that a run that was killed is repaired by the next one.
  - Two runs at once do not meet, the second one is refused.
options:
  daemon:
    description:
      - Whose files they are. slurmdbd has no test of its own and no reconfigure, so the schema alone checks its files,
        and each change restarts it. If it ends, the last good files are put back. If it runs and does not answer,
        it is left alone, since it may be converting its tables.
    type: str
    choices: [slurmctld, slurmdbd]
    default: slurmctld
  directory:
    description: Where Slurm reads its configuration from.
    type: path
    default: /etc/slurm
  files:
    description: The text of each file, by its name in O(directory). V(slurm.conf) or V(slurmdbd.conf) is among them.
    type: dict
    required: true
  secrets:
    description: Files that must not be shown, likewise, encoded in base64. Only that they change is told.
    type: dict
    default: {}
  end_jobs:
    description: Whether changes that end jobs may be applied.
    type: bool
    default: false
  patience:
    description: How many seconds the daemon may take to answer, and nodes that were up to be up again.
    type: int
    default: 60
extends_documentation_fragment: [gpucluster.slurm.changing]
seealso:
  - module: gpucluster.slurm.slurm_service
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
      description: Numbers of the jobs that it would end; V(unknown) if slurmctld does not answer and it could end some.
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
  description: What was done with the daemon, or would be in check mode.
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
  returned: with O(daemon=slurmctld)
  sample: SlurmdPort=6818
in_force:
  description:
    - The files that are in force now, or would be in check mode, by name, without the secrets.
    - A module that fails does not return it.
  type: dict
  returned: success
  sample: {cgroup.conf: "ConstrainCores=yes\n"}
remarks:
  description: What Slurm ignores of the files, and what else a reader should know.
  type: list
  elements: str
  returned: always
  sample: []
"""

import base64
import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    Configuration,
    ConfigurationError,
    changes,
    lines,
    read,
    table_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import cross_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import (
    Step,
    read_at_start,
    steps,
    table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import (
    DAEMONS,
    ConfigError,
    Daemon,
    NotYetError,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.files import File, FileError, write

RUN = "/run/gpucluster-slurm"
KEPT = "/var/lib/gpucluster-slurm"
GOOD = f"{KEPT}/good"


# -- validate --------------------------------------------------------------------------------------------------------


def check_parameters(files: Mapping[str, str], version: str) -> tuple[list[str], list[str]]:
    """What the release would refuse, and what it would ignore."""
    refused: list[str] = []
    ignored: list[str] = []
    for file in (name for name in files if name in parameters.FILES):
        own: list[tuple[str, str]] = []
        checked = [(f"{file}: ", file, own)]
        for pairs in lines(file, files[file]):
            if pairs[0][0] == "Include":
                continue
            kind = table_of(file, pairs)
            if kind == file != "gres.conf":
                own.extend(pairs)
            else:  # its parameters are its own
                checked.append((f"{file}: {pairs[0][0]}={pairs[0][1]}: ", kind, [*pairs]))
        for place, kind, values in checked:
            for problem in parameters.problems(kind, values, version):
                words = refused if problem.effect == parameters.REFUSED else ignored
                words.append(f"{place}{problem.key}: {problem.text}")
    return refused, ignored


@contextmanager
def candidate(module: AnsibleModule, files: Mapping[str, str]) -> Iterator[str]:
    """A directory with the files and all others of the configuration, for Slurm's own checks."""
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


def validate(module: AnsibleModule, daemon: Daemon, version: str) -> list[str]:
    """Check the wanted files. Gives what Slurm would ignore; raises ConfigError with all that it would refuse."""
    files: Mapping[str, str] = module.params["files"]
    refused: list[str] = []
    ignored: list[str] = []
    if daemon.host:
        files, refused, ignored = cross_checks.whole(files, daemon.host)
    if not refused:
        refused, more = check_parameters(files, version)
        ignored += more
    if not refused and daemon.host:
        refused, more = cross_checks.cross_check(files, daemon.host)
        ignored += more
    if refused:
        raise ConfigError("\n".join(refused))
    with candidate(module, files) as directory:
        daemon.try_files(directory)
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


def action_for(daemon: Daemon, old: Configuration, plan: Sequence[Step]) -> str:
    """What the daemon needs for the plan; one that runs but does not answer is started anew."""
    if not daemon.answers(old):
        return "restart" if daemon.active() else "start"
    restart = not daemon.reconfigures or any(daemon.name in step.needs.restart for step in plan)
    return "restart" if restart else "reconfigure"


def keep(texts: Mapping[str, str], read_at_start: str | None) -> None:
    """Keep the files as the last good ones, and what each slurmd takes of them when it starts."""
    os.makedirs(GOOD, mode=0o700, exist_ok=True)
    kept = [File(os.path.join(GOOD, name), text.encode(), mode=0o600) for name, text in texts.items()]
    write(kept + ([] if read_at_start is None else [File(f"{KEPT}/slurmd", read_at_start.encode())]))


def apply(
    daemon: Daemon,
    files: Sequence[File],
    good: Mapping[str, str],
    old: Configuration,
    new: Configuration,
    plan: Sequence[Step],
    action: str,
) -> None:
    """Put the files in force, or go back to the good ones, which say `old`. Raises ConfigError."""
    before = daemon.before(old)
    write(files)
    try:
        daemon.act(action, new)
        daemon.wait(new)
        daemon.verify(new, plan, before)
    except (ConfigError, ValueError) as error:
        if isinstance(error, NotYetError) and not daemon.interruptible:
            raise ConfigError(f"{error}, with the new files. It is left alone, see its log") from None
        outcome = roll_back(daemon, files, good, old, action)
        daemon.resume(old, before)
        raise ConfigError(f"{error}\n{outcome}") from None


def roll_back(daemon: Daemon, files: Sequence[File], good: Mapping[str, str], old: Configuration, action: str) -> str:
    """Put the good files back, and the daemon with them. Says how that went."""
    if len(good) < len(files):
        return "There were no files before to go back to."
    write([File(file.path, good[os.path.basename(file.path)].encode(), file.owner, file.mode) for file in files])
    try:
        daemon.act("restart" if action == "start" else action, old)
    except ConfigError:
        try:  # one that is gone cannot be reconfigured
            daemon.act("restart", old)
        except ConfigError as error:
            return f"The old files are back, but {daemon.name} did not come up with them: {error}"
    return "Rolled back: the old files are in force again."


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


def configure(module: AnsibleModule, daemon: Daemon) -> dict[str, Any]:
    """The module's work, and its result."""
    texts: dict[str, str] = module.params["files"]
    secrets = {name: base64.b64decode(text).decode() for name, text in module.params["secrets"].items()}
    wanted = texts | secrets
    files = [
        File(os.path.join(module.params["directory"], name), text.encode(), daemon.owner, daemon.mode, name in secrets)
        for name, text in wanted.items()
    ]
    version = daemon.version()
    good = last_good(module, list(wanted))
    old, remarks = understood({name: text for name, text in good.items() if name in texts})
    new = read(texts)
    at_start = read_at_start(new, "slurmd", version) if daemon.name == "slurmctld" else None
    running = daemon.answers(old)
    plan = steps(changes(old, new), daemon.jobs() if running else daemon.possible_jobs(old), version)
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
        "remarks": [],
        "in_force": texts,
        "diff": [file.diff for file in different],
    }
    if at_start is not None:
        result["read_at_start"] = at_start
    if good == wanted and not any(file.differs for file in files):  # but perhaps the owner or the mode of one
        if not module.check_mode:
            write(files)
            keep(wanted, at_start)
        return result
    remarks += [f"{name}: another secret" for name, text in secrets.items() if good and good.get(name) != text]
    result["remarks"] = remarks + validate(module, daemon, version)
    ending = sorted({number for step in plan for number in step.ends})
    if ending and not module.params["end_jobs"]:
        shown = "\n".join(table([step for step in plan if step.ends]))
        if not running:
            raise ConfigError(
                f"{daemon.name} does not answer, and this can end jobs: start it, or set end_jobs\n{shown}"
            )
        raise ConfigError(f"this would end {len(ending)} jobs; drain the nodes first, or set end_jobs:\n{shown}")
    action = action_for(daemon, old, plan)
    result["actions"] = [action]
    if not module.check_mode:
        apply(daemon, files, good, old, new, plan, action)
        keep(wanted, at_start)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "daemon": {"type": "str", "choices": ["slurmctld", "slurmdbd"], "default": "slurmctld"},
            "directory": {"type": "path", "default": "/etc/slurm"},
            "files": {"type": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "end_jobs": {"type": "bool", "default": False},
            "patience": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    # A connection that is lost must not end the work in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with alone():
            result = configure(module, DAEMONS[module.params["daemon"]](module))
    except (ConfigError, ConfigurationError, FileError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
