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
  - Runs on the serving controller, which is a backup controller after a takeover. It takes all files of the
    configuration together. Afterwards either all of them are in force, or none.
  - B(Validates) the files before anything is written. The installed release must know every key; if not, the error
    names the nearest known key. The files must agree with each other and with this host (nodes, partitions, generic
    resources, addresses, ports, included files, users, installed plugins, accounting, limits and times). Slurm's own
    parser reads them. A second slurmctld starts with them for a moment, with its own state directory and port, without
    accounting, without programs to run, and with addresses at which it reaches no node.
  - B(Plans) the changes by key, node and partition. The plan says whether a change needs C(scontrol reconfigure) or a
    restart, and which jobs it would end, also because a time becomes too short. The jobs are those that Slurm reports.
    If the present files are not the last good ones, the values that slurmctld has in force decide.
  - B(Refuses) changes that would end jobs, unless O(end_jobs) allows them. While slurmctld does not answer, changes
    that could end jobs are refused as well.
  - B(Applies) the files. Either all files are written, or none. Then slurmctld is reconfigured or restarted, as the
    changes need.
  - B(Verifies) that slurmctld answers, that the parameters, nodes and partitions in force are those of the files
    (except values that already differed before), and that every node that was up and whose slurmd accepted connections
    is up again within O(patience).
  - It does not restart daemons on other hosts. It does not wait for nodes that slurmctld can reach only after their
    slurmd has been restarted, as after a change of SlurmdPort. A change of RV(read_at_start) shows that slurmd must be
    restarted.
  - B(Rolls back) to the last good files if the verification fails, and reports why. The last good files are kept in
    C(/var/lib/gpucluster-slurm/good), so that the next run repairs the state after a run that was killed.
  - While one run is in progress, a second one is refused.
  - A change that needs a restart of slurmd on nodes that are up is RV(unproven) until O(state=proven), and
    O(state=former) takes it back. Until then the former files are kept in C(/var/lib/gpucluster-slurm/former).
options:
  state:
    description:
      - V(present) puts O(files) in force.
      - V(proven) keeps the files in force, after slurmd has started with them on nodes.
      - V(former) restores the files that were in force before the RV(unproven) change, because slurmd has not.
      - V(proven) and V(former) need O(daemon=slurmctld), and no O(files).
    type: str
    choices: [present, proven, former]
    default: present
    version_added: 0.2.0
  daemon:
    description:
      - The daemon that reads the files. slurmdbd has no test and no reconfigure, so its files are only checked against
        the schema, and each change restarts it. If it exits, the last good files are restored. If it runs and does not
        answer, it is left running, since it may be converting its tables.
    type: str
    choices: [slurmctld, slurmdbd]
    default: slurmctld
  directory:
    description: Directory of Slurm's configuration.
    type: path
    default: /etc/slurm
  files:
    description:
      - The text of each file, by its name in O(directory). V(slurm.conf) or V(slurmdbd.conf) must be among them.
      - With O(daemon=slurmctld), files that this module has put in force before and that are not among them are
        removed.
      - Required with O(state=present), and not used otherwise.
    type: dict
  partial:
    description: Whether O(files) are some of the files, and the other files in force stay. Only for slurmctld.
    type: bool
    default: false
    version_added: 0.2.0
  unpacked:
    description:
      - A directory with the packages of another release of Slurm (M(gpucluster.slurm.slurm_packages), C(unpack)).
        O(files) are then only checked, by this release's rules and by its slurmctld, which starts for a moment beside
        the installed one.
      - A change that could end jobs is refused. Nothing is written.
    type: path
    version_added: 0.2.0
  secrets:
    description:
      - Files with secret content, lines of C(Key=value) by the name of the file, encoded in base64. The result only
        shows that they change.
      - Slurm's own parser reads them before anything is written. If it does not read exactly the values that the lines
        were written for, the files are refused.
      - A rollback keeps them, because the password of a database user has already changed.
    type: dict
    default: {}
  end_jobs:
    description: Whether changes that end jobs may be applied.
    type: bool
    default: false
  patience:
    description: Seconds to wait for the daemon to answer, and for nodes that were up to be up again.
    type: int
    default: 60
  hosts:
    description:
      - All hosts of the cluster, as a hostlist. The module keeps their names in C(/var/lib/gpucluster-slurm/hosts).
      - Of a cluster that is taken over, nodes that are not among them may read files of their own. The first change of
        their generic resources does not reach them, and so ends no job there.
      - A kept host that is neither in this list nor a node of the files has left the cluster. RV(remarks) names it in
        each run, since it still has the munge key, and perhaps a slurmd that runs, until it is in O(cleaned_hosts).
    type: str
    default: ""
    version_added: 0.2.0
  cleaned_hosts:
    description: Hosts that have left the cluster, and that a person has cleaned, as a hostlist.
    type: str
    default: ""
    version_added: 0.2.0
  digest:
    description:
      - A checksum of O(files), O(secrets), O(hosts) and O(cleaned_hosts), for O(state=present). While the files in
        force do not change, the fact C(made) of M(gpucluster.slurm.slurm_host_facts) has it under the name
        V(slurmctld_config) or V(slurmdbd_config), and the module need not run again.
      - There is no such fact while a change is RV(unproven), or while hosts that have left are to be cleaned.
    type: str
    default: ""
    version_added: 0.2.0
  leaving:
    description:
      - Nodes that leave the cluster in this run, as a hostlist. In check mode the jobs that run on them do not count,
        since the run waits for their end before the change.
      - RV(remarks) does not name them, because the run cleans them after the change.
    type: str
    default: ""
    version_added: 0.2.0
extends_documentation_fragment: [gpucluster.slurm.changing]
seealso:
  - module: gpucluster.slurm.slurm_service
"""

EXAMPLES = r"""
- name: Apply Slurm's configuration
  gpucluster.slurm.slurm_config:
    files:
      slurm.conf: "{{ lookup('gpucluster.slurm.rendered', 'slurm.conf.j2') }}"
      cgroup.conf: "{{ lookup('gpucluster.slurm.rendered', 'cgroup.conf.j2') }}"
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
      description: Name of the changed parameter.
      type: str
      returned: always
      sample: slurm.conf KillWait
    before:
      description: Its value before; null if it was not set.
      type: str
      returned: always
      sample: "30"
    after:
      description: Its value afterwards; null if it is not set.
      type: str
      returned: always
      sample: "60"
    needs:
      description: Action that the change needs.
      type: str
      returned: always
      sample: reconfigure
    ends:
      description:
        - Ids of the jobs that it would end; V(unknown) if slurmctld does not answer and the change could end jobs.
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
  description: Actions on the daemon, done or, in check mode, predicted.
  type: list
  elements: str
  returned: always
  sample: [reconfigure]
read_at_start:
  description:
    - Lines with the settings that slurmd reads from the files only when it starts. They change when RV(plan) says that
      slurmd must be restarted.
    - They are also kept in C(/var/lib/gpucluster-slurm/slurmd), for runs that do not reach this module.
  type: str
  returned: with O(daemon=slurmctld)
  sample: SlurmdPort=6818
unproven:
  description:
    - Nodes that were up before a change after which slurmd must be restarted, a hostlist for each kind of node. Nodes
      of a kind have equal settings in slurm.conf, except for their addresses.
    - Empty without such a change, after O(state=proven) and O(state=former), and in check mode.
  type: list
  elements: str
  returned: with O(daemon=slurmctld)
  version_added: 0.2.0
  sample: ["compute[01-40]", "gpu[01-08]"]
in_force:
  description:
    - The files that are in force now, or would be in check mode, by name, without the secrets and those in
      RV(in_force_bytes).
    - It is not returned on failure.
  type: dict
  returned: success
  sample: {cgroup.conf: "ConstrainCores=yes\n"}
in_force_bytes:
  description:
    - As RV(in_force), in base64. These are the files with characters that a terminal obeys, such as carriage returns,
      and those that are not UTF-8.
  type: dict
  returned: success
  version_added: 0.2.0
  sample: {}
absent:
  description: Names of files beside slurm.conf that a site can have and this cluster does not have, or no longer.
  type: list
  elements: str
  returned: success
  version_added: 0.2.0
  sample: [topology.conf, topology.yaml]
listed:
  description:
    - Lines with the checksum (SHA-256) and the name of each file of RV(in_force), in the order of the names.
    - They are also kept in C(/var/lib/gpucluster-slurm/files).
  type: str
  returned: success
  version_added: 0.2.0
  sample: 46e3fd7c5ec1dca2d3d3ec0b4c4a13ec6ddb18c5a5b3ea4a24e2c9d0c9ca2bfe slurm.conf
remarks:
  description: Settings that Slurm ignores, O(hosts) that have left, and other notes for the administrator.
  type: list
  elements: str
  returned: always
  sample: []
"""

import os
import shutil
import signal
import tempfile
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils import made
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    KEY_VALUE,
    NAMED_LINES,
    Configuration,
    ConfigurationError,
    changes,
    lines,
    read,
    table_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.equivalence import differing
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.meaning import patch_release_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import (
    SourceError,
    configuration_of,
    other_files,
    read_files,
    source_lines,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import cross_checks, departed
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.beside import enter
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import (
    Step,
    kinds,
    read_at_start,
    steps,
    table,
    without_reach,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import (
    DAEMONS,
    FAILED,
    ConfigError,
    Daemon,
    NotYetError,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.host import text
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.slurm_parser import library_of, secret_problem
from ansible_collections.gpucluster.slurm.plugins.module_utils.files import (
    File,
    from_base64,
    opener,
    write,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.module_run import run_module
from ansible_collections.gpucluster.slurm.plugins.module_utils.scripts import content_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import visible

RUN = "/run/gpucluster-slurm"
KEPT = "/var/lib/gpucluster-slurm"
GOOD = f"{KEPT}/good"
HOSTS = departed.HOSTS
FORMER = f"{KEPT}/former"
FOUND = f"{KEPT}/found"
"""Slurm's files of a cluster of another origin, as they were before the collection wrote its own."""
READ_AT_START = f"{KEPT}/slurmd"
"""The settings that slurmd reads from the files in force only when it starts."""
SLURMCTLD_FILES = ("cgroup.conf", "gres.conf", "plugstack.conf", "slurm.conf")
FILES = f"{KEPT}/files"
"""The names of slurmctld's files in GOOD, each with its checksum."""
PROGRAMS = f"{KEPT}/programs"
"""The programs in force that can drain nodes. The time of the file is that of their last change."""
PATH = "/usr/sbin:/usr/bin"
"""Where the packages of all releases have the daemons."""
NODES = "nodes"
"""Name of the file in FORMER with the nodes that were up before the change."""


# -- validate --------------------------------------------------------------------------------------------------------


def check_parameters(files: Mapping[str, str], version: str) -> tuple[list[str], list[str]]:
    """The parameters that the release would refuse, and those that it would ignore."""
    refused = [f"{problem.key}: {problem.text}" for problem in parameters.unread_files(files, version)]
    ignored: list[str] = []
    for file in (name for name in files if name in KEY_VALUE):
        own: list[tuple[str, str]] = []
        checked = [(f"{file}: ", file, own)]
        for pairs in lines(file, files[file]):
            if pairs[0][0] == "Include":
                continue
            kind = table_of(file, pairs)
            if kind == file and file not in ("gres.conf", *NAMED_LINES):
                own.extend(pairs)
            else:  # its parameters are its own
                checked.append((f"{file}: {pairs[0][0]}={pairs[0][1]}: ", kind, [*pairs]))
        for place, kind, values in checked:
            for problem in parameters.problems(kind, values, version):
                words = refused if problem.effect == parameters.REFUSED else ignored
                words.append(f"{place}{problem.key}: {problem.text}")
    return refused, ignored


@contextmanager
def candidate(module: AnsibleModule, files: Mapping[str, str], gone: Collection[str]) -> Iterator[str]:
    """A directory with the files and all others of the configuration but those `gone`, for Slurm's own checks."""
    os.makedirs(RUN, mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="candidate-", dir=RUN) as directory:
        os.chmod(directory, 0o755)
        current = module.params["directory"]
        for name in os.listdir(current) if os.path.isdir(current) else []:
            if name not in (*files, *gone, "slurmdbd.conf"):
                os.symlink(os.path.join(current, name), os.path.join(directory, name))
        for name, text in files.items():
            with open(os.path.join(directory, name), "wb", opener=opener(0o644)) as file:
                file.write(content_of(text))
        yield directory


def validate(
    module: AnsibleModule, daemon: Daemon, files: Mapping[str, str], gone: Collection[str], version: str
) -> list[str]:
    """Check the wanted files, without those that are `gone` then.

    Returns the settings that Slurm would ignore; raises ConfigError with all that it would refuse.
    """
    refused: list[str] = []
    ignored: list[str] = []
    if host := daemon.host:
        there = host.text
        host = replace(host, text=lambda name: None if name in gone else files.get(name, there(name)))
        whole, refused, ignored = cross_checks.whole(files, host)
    else:
        whole = {**files}
    if not refused:
        refused, more = check_parameters(whole, version)
        ignored += more
    if not refused and host:
        refused, more = cross_checks.cross_check(whole, host, version)
        ignored += more
    if refused:
        raise ConfigError("\n".join(refused))
    with candidate(module, whole, gone) as directory:
        daemon.try_files(directory)
    return ignored


def check_secrets(daemon: Daemon, secrets: Mapping[str, str]) -> None:
    """Check that Slurm reads the secrets that were given. Raises ConfigError, without them."""
    library = library_of(shutil.which(daemon.name, path=PATH) or daemon.name) if secrets else None
    if problems := [problem for name, text in secrets.items() if (problem := secret_problem(name, text, library))]:
        raise ConfigError("\n".join(problems))


# -- plan ------------------------------------------------------------------------------------------------------------


def texts_in(directory: str, names: Sequence[str]) -> dict[str, str]:
    """The texts of those of the files that are in a directory."""
    found = {name: text(os.path.join(directory, name)) for name in names}
    return {name: there for name, there in found.items() if there is not None}


def recorded() -> list[str]:
    """The names of slurmctld's files in GOOD, which also has the files of slurmdbd."""
    found = text(FILES)
    if found is None:  # the last run was one of version 0.1
        return [name for name in SLURMCTLD_FILES if os.path.exists(os.path.join(GOOD, name))]
    return [line.partition(" ")[2] for line in found.split("\n")]


def listed(texts: Mapping[str, str]) -> str:
    """The content of FILES."""
    return "\n".join(f"{sha256(content_of(texts[name])).hexdigest()} {name}" for name in sorted(texts))


def understood(files: Mapping[str, str]) -> tuple[Configuration, list[str]]:
    """The configuration in the files in force, and a remark if they cannot be read."""
    try:
        return read(files), []
    except ConfigurationError as error:
        return Configuration(), [f"the present files cannot be read, so the plan shows everything as new: {error}"]


def found_here(directory: str) -> tuple[Configuration, list[str]]:
    """The configuration of a cluster of another origin, whose files can include others, as `understood` returns it."""
    try:
        files = read_files(Path(directory, "slurm.conf"))
        main = [name for name in files if name in KEY_VALUE]
        found = configuration_of({name: source_lines(files, name) for name in main})
        within = read({name: files[name] for name in other_files(files) if name not in main})
    except (ConfigurationError, SourceError, OSError) as error:
        return Configuration(), [f"the present files cannot be read, so the plan shows everything as new: {error}"]
    found.settings.update(within.settings)
    return found, []


def planned(
    daemon: Daemon,
    old: Configuration,
    present: Configuration | None,
    new: Configuration,
    version: str,
    leaving: Collection[str] = (),
    foreign: bool = False,
) -> list[Step]:
    """The plan of a change.

    Args:
        daemon: knows the jobs, and the values in force.
        old: the configuration that was in force last, as far as it is known.
        present: that of the present files, if these are not the kept ones: somebody has edited them, or none are kept.
            Then the daemon may have loaded either, and the values that it shows decide. None: they are the kept ones.
        new: the wanted configuration.
        version: Slurm's.
        leaving: nodes whose jobs have ended before the change.
        foreign: whether the files in force are of another origin, and say the same in other words.
    """
    found = changes(old, new)
    if foreign:
        found = differing(found, old, new, patch_release_of(version))
    if not daemon.answers(old):
        return steps(found, daemon.possible_jobs(old), version, new)
    jobs = [job for job in daemon.jobs() if job.nodes.isdisjoint(leaving)]
    if present is None:
        return steps(found, jobs, version, new)
    places = {(change.file, change.subject, change.key.lower()) for change in found}
    others = [
        change for change in changes(present, new) if (change.file, change.subject, change.key.lower()) not in places
    ]
    backwards = {replace(change, before=change.after, after=change.before): change for change in others}
    in_force = daemon.in_force([*found, *backwards])
    loaded = [change for reverse, change in backwards.items() if reverse in in_force]
    return steps([*found, *loaded], jobs, version, new, in_force)


# -- apply, verify, roll back ----------------------------------------------------------------------------------------


def action_for(daemon: Daemon, old: Configuration, plan: Sequence[Step]) -> str:
    """The actions on the daemon for the plan. A daemon that runs but does not answer is restarted."""
    if not daemon.answers(old):
        return "restart" if daemon.active() else "start"
    restart = not daemon.reconfigures or any(daemon.name in step.needs.restart for step in plan)
    return "restart" if restart else "reconfigure"


def keep(texts: Mapping[str, str], read_at_start: str | None) -> None:
    """Keep the files as the last good ones, and the settings that each slurmd reads from them when it starts."""
    os.makedirs(GOOD, mode=0o700, exist_ok=True)
    kept = [File(os.path.join(GOOD, name), content_of(text), mode=0o600) for name, text in texts.items()]
    gone: set[str] = set()
    if read_at_start is not None:
        settings = read(texts).settings
        programs = "\n".join("=".join(settings.get(("slurm.conf", key), (key, ""))) for key in FAILED)
        kept += [File(READ_AT_START, read_at_start.encode()), File(PROGRAMS, programs.encode())]
        kept += [File(FILES, listed(texts).encode())]
        gone = {*recorded()} - texts.keys()
    write(kept)
    remove(GOOD, gone)


def remove(directory: str, names: Iterable[str]) -> None:
    """Remove files of a directory, if they are there."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))


def programs_since() -> float:
    """When the programs in force that can drain nodes came in force, in seconds since the epoch; 0 if not known."""
    times = [os.stat(path).st_mtime for path in (PROGRAMS, f"{GOOD}/slurm.conf") if os.path.exists(path)]
    return times[0] if times else 0


def apply(
    daemon: Daemon,
    files: Sequence[File],
    good: Mapping[str, str],
    gone: Collection[str],
    old: Configuration,
    new: Configuration,
    plan: Sequence[Step],
    action: str,
) -> list[str]:
    """Put the files in force, without those that are `gone`, or restore the good ones, whose configuration is `old`.

    Returns the nodes that could be reached before. Raises ConfigError.
    """
    before = daemon.before(old)
    write(files)
    remove(os.path.dirname(files[0].path), gone)
    try:
        daemon.act(action, new)
        daemon.wait(new)
        daemon.verify(new, plan, before)
    except (ConfigError, ValueError) as error:
        if isinstance(error, NotYetError) and not daemon.interruptible:
            raise ConfigError(f"{error} with the new files. It is left running; see its log") from None
        outcome = roll_back(daemon, files, good, old, action)
        daemon.resume(old, before)
        raise ConfigError(f"{error}\n{outcome}") from None
    return sorted(before.nodes)


def roll_back(daemon: Daemon, files: Sequence[File], good: Mapping[str, str], old: Configuration, action: str) -> str:
    """Restore the good files, and the daemon with them. Returns the outcome in words."""
    if daemon.conf not in good:
        return "There are no earlier files to restore."
    directory, first = os.path.dirname(files[0].path), files[0]
    write(
        [File(os.path.join(directory, name), content_of(text), first.owner, first.mode) for name, text in good.items()]
    )
    remove(directory, {os.path.basename(file.path) for file in files} - good.keys())
    try:
        daemon.act("restart" if action == "start" else action, old)
    except ConfigError:
        try:  # a daemon that has exited cannot be reconfigured
            daemon.act("restart", old)
        except ConfigError as error:
            return f"The old files are restored, but {daemon.name} did not start with them: {error}"
    return "Rolled back: the old files are in force again."


# -- the trial on nodes ----------------------------------------------------------------------------------------------


def copy_owned(source: str, target: str) -> None:
    """Copy a file with its owner: slurmdbd refuses a slurmdbd.conf of somebody else."""
    shutil.copy2(source, target, follow_symlinks=False)
    owner = os.lstat(source)
    os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)


def keep_found(directory: str) -> None:
    """Keep the files of a cluster of another origin before they are replaced, for the day when it is given back."""
    if not os.path.exists(FOUND):
        os.makedirs(KEPT, mode=0o755, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as part:
            whole = os.path.join(part, "found")
            shutil.copytree(directory, whole, symlinks=True, copy_function=copy_owned)
            os.chmod(whole, 0o700)  # slurmdbd.conf has a password
            os.rename(whole, FOUND)


def keep_former(texts: Mapping[str, str], nodes: Sequence[str]) -> None:
    """Keep the files that a change replaces, and the nodes that were up; those before an unproven change stay."""
    if not os.path.isdir(FORMER):
        shutil.rmtree(f"{FORMER}.new", ignore_errors=True)  # only a run that was killed has left one
        os.makedirs(f"{FORMER}.new", mode=0o700)
        kept = {**texts, NODES: "\n".join(nodes)}
        write([File(f"{FORMER}.new/{name}", content_of(text), mode=0o600) for name, text in kept.items()])
        os.rename(f"{FORMER}.new", FORMER)


def forget_former() -> None:
    """Remove the former files. Their directory gets another name first, so that it is never there in part."""
    shutil.rmtree(f"{FORMER}.old", ignore_errors=True)  # only a run that was killed has left one
    if os.path.isdir(FORMER):
        os.rename(FORMER, f"{FORMER}.old")
        shutil.rmtree(f"{FORMER}.old")


def former_files() -> tuple[dict[str, str], list[str]]:
    """The files that were in force before an unproven change, and the nodes that were up; without one nothing."""
    texts = texts_in(FORMER, os.listdir(FORMER) if os.path.isdir(FORMER) else [])
    return texts, texts.pop(NODES, "").split()


def unproven(new: Configuration, at_start: str, version: str) -> list[str]:
    """The nodes that were up before a change that no slurmd has proved, by their kind.

    Files with which slurmd starts as before need no proof.
    """
    former, nodes = former_files()
    if former and read_at_start(understood(former)[0], "slurmd", version) == at_start:
        forget_former()
        return []
    return kinds(new, nodes)


def settle(module: AnsibleModule, daemon: Daemon, state: str) -> dict[str, Any]:
    """End a trial: keep the files in force, or restore the former ones. Returns the result of the module."""
    if daemon.name != "slurmctld":
        raise ConfigError(f"state: found {state!r}, allowed with daemon={daemon.name}: 'present'")
    version = daemon.version()
    former = former_files()[0]
    in_force = texts_in(GOOD, recorded())
    texts = former if state == "former" and former else in_force
    old, new = read(in_force), read(texts)
    at_start = read_at_start(new, "slurmd", version)
    plan = steps(changes(old, new), [], version, new)
    result = outcome(plan, texts)
    result |= {"changed": bool(plan), "read_at_start": at_start, "unproven": []}
    if former and not module.check_mode:
        if plan:
            result["actions"] = [action := action_for(daemon, old, plan)]
            write(files_of(module, daemon, texts))
            remove(module.params["directory"], in_force.keys() - texts.keys())
            daemon.act(action, new)
            daemon.wait(new)
            keep(texts, at_start)
        forget_former()
    return result


def files_of(
    module: AnsibleModule, daemon: Daemon, texts: Mapping[str, str], secrets: Collection[str] = ()
) -> list[File]:
    """The files of a daemon with these texts. The content of `secrets` is not shown."""
    directory = module.params["directory"]
    return [
        File(os.path.join(directory, name), content_of(text), daemon.owner, daemon.mode, name in secrets)
        for name, text in texts.items()
    ]


def outcome(plan: Sequence[Step], texts: Mapping[str, str]) -> dict[str, Any]:
    """The result of the module for a plan that leads to these files, before it is applied."""
    plain = {name: text for name, text in texts.items() if visible(text) == text}
    return {
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
        "table": table(plan),
        "actions": [],
        "remarks": [],
        "in_force": plain,
        "in_force_bytes": {
            name: b64encode(content_of(text)).decode() for name, text in texts.items() if name not in plain
        },
        "listed": listed(texts),
        "absent": [name for name in parameters.SITE_FILES if name not in texts],
    }


def configure(module: AnsibleModule, daemon: Daemon) -> dict[str, Any]:
    """The module's work, and its result."""
    texts: dict[str, str] = module.params["files"]
    known = recorded() if daemon.name == "slurmctld" else []
    if module.params["partial"]:
        texts = texts_in(module.params["directory"], known) | texts_in(GOOD, known) | texts
    for option in ("files", "secrets"):
        for name, content in module.params[option].items():
            if not name or "/" in name:
                raise ConfigError(f"{option}: found {name!r}, allowed: the name of a file without a directory")
            if not isinstance(content, str):
                raise ConfigError(f"{option}: {name}: found {type(content).__name__}, allowed: the text of the file")
            content_of(content)
    secrets = {name: from_base64(name, text).decode() for name, text in module.params["secrets"].items()}
    wanted = texts | secrets
    files = files_of(module, daemon, wanted, secrets)
    version = daemon.version()
    gone = [name for name in known if name not in wanted]
    kept, present = (texts_in(directory, [*wanted, *gone]) for directory in (GOOD, module.params["directory"]))
    good = present | kept
    old, remarks = understood({name: text for name, text in good.items() if name not in secrets})
    new = read(texts)
    foreign = daemon.name == "slurmctld" and not kept and daemon.conf in present
    if foreign:
        old, remarks = found_here(module.params["directory"])
    at_start = read_at_start(new, "slurmd", version) if daemon.name == "slurmctld" else None
    there = {name: text for name, text in present.items() if name not in secrets}
    by_hand = None if foreign or present == kept else understood(there)[0]
    leaving = expand(module.params["leaving"]) if module.check_mode else []
    plan = planned(daemon, old, by_hand, new, version, leaving, foreign)
    if foreign and module.params["hosts"]:
        plan = without_reach(plan, old, new, expand(module.params["hosts"]))
    different = [file for file in files if file.changes]
    removed = [removal(os.path.join(module.params["directory"], name), good[name]) for name in gone if name in good]
    result = outcome(plan, texts) | {
        "changed": bool(different) or good != wanted,
        "diff": [file.diff for file in different] + removed,
    }
    result["absent"] += [name for name in gone if name not in parameters.SITE_FILES]
    if not good:
        result["table"] = []
    if at_start is not None:
        result |= {"read_at_start": at_start, "unproven": []}
    if good == wanted and not any(file.differs for file in files):  # but perhaps the owner or the mode of one
        if not module.check_mode:
            write(files)
            keep(wanted, at_start)
            if daemon.only_one and daemon.active():  # it was started a moment ago
                daemon.wait(new)
            if at_start is not None:
                result["unproven"] = unproven(new, at_start, version)
        return result
    remarks += [f"{name}: another secret" for name, text in secrets.items() if good and good.get(name) != text]
    result["remarks"] = remarks + validate(module, daemon, texts, gone, version)
    check_secrets(daemon, secrets)
    ending = sorted({number for step in plan for number in step.ends})
    if ending and not module.params["end_jobs"]:
        shown = "\n".join(table([step for step in plan if step.ends]))
        if "unknown" in ending:
            raise ConfigError(
                f"{daemon.name} does not answer, and this can end jobs: start it, or set end_jobs\n{shown}"
            )
        raise ConfigError(f"this would end jobs ({len(ending)}); drain the nodes first, or set end_jobs:\n{shown}")
    if foreign and not plan and daemon.active():  # the daemons have read the same, in other words
        if not module.check_mode:
            keep_found(module.params["directory"])
            write(files)
            keep(wanted, at_start)
        return result
    action = action_for(daemon, old, plan)
    result["actions"] = [action]
    if not module.check_mode:
        daemon.check_others(new, plan)
        if foreign:
            keep_found(module.params["directory"])
        nodes = apply(daemon, files, {**good, **secrets} if good else {}, gone, old, new, plan, action)
        result["remarks"] += daemon.resume_corrected(new, plan, programs_since())
        if daemon.conf in good and nodes and at_start is not None and read_at_start(old, "slurmd", version) != at_start:
            keep_former(good, nodes)
        keep(wanted, at_start)
        if at_start is not None:
            result["unproven"] = unproven(new, at_start, version)
    return result


def tried(module: AnsibleModule, daemon: Daemon) -> dict[str, Any]:
    """Check the files for the release in `unpacked`, of which nothing is in force. Returns the result of the module."""
    texts: dict[str, str] = module.params["files"]
    known = recorded() if daemon.name == "slurmctld" else []
    gone = [name for name in known if name not in texts]
    old = understood(texts_in(module.params["directory"], [*texts]) | texts_in(GOOD, [*texts]))[0]
    enter(module.params["unpacked"])
    version, new = daemon.version(), read(texts)
    remarks = validate(module, daemon, texts, gone, version)
    # The new release starts with them at once, so no job may depend on the difference.
    plan = steps(changes(old, new), daemon.possible_jobs(old), version, new)
    if ending := table([step for step in plan if step.ends]):
        shown = "\n".join(ending)
        raise ConfigError(f"this could end jobs; run site.yml with it before the upgrade or after it:\n{shown}")
    return outcome(plan, texts) | {"changed": False, "remarks": remarks}


def note(module: AnsibleModule, daemon: Daemon, *, holds: bool) -> None:
    """Keep the note for O(digest), or remove it. Raises OSError."""
    directory, names = module.params["directory"], [*module.params["files"], *module.params["secrets"]]
    paths = [os.path.join(place, name) for place in (directory, GOOD) for name in names]
    paths += [] if daemon.name == "slurmdbd" else [FILES, PROGRAMS, READ_AT_START, HOSTS, FORMER]
    made.keep(f"{daemon.name}_config", module.params["digest"] if holds else "", paths)


def removal(path: str, before: str) -> dict[str, str]:
    """The diff of a file that is removed."""
    return {"before_header": path, "after_header": path, "before": before, "after": ""}


def addresses_in(module: AnsibleModule) -> set[str]:
    """The addresses of the nodes in the wanted files."""
    nodes = read(module.params["files"]).nodes.values()
    return {value for settings in nodes for key, value in settings if key.lower() == "nodeaddr"}


def known_hosts(module: AnsibleModule) -> tuple[list[str], list[str]]:
    """The names of hosts to keep, and those of them that have left the cluster; none without O(hosts).

    Raises:
        ValueError: a hostlist is wrong.
        ConfigurationError: a file is wrong.
    """
    hosts, cleaned = expand(module.params["hosts"]), expand(module.params["cleaned_hosts"])
    if not hosts:
        return [], []
    present, good = (texts_in(directory, ["slurm.conf"]) for directory in (module.params["directory"], GOOD))
    in_force = understood(present | good)[0]
    before = [*departed.recorded(HOSTS), *in_force.nodes]
    return departed.known_hosts(before, [*hosts, *read(module.params["files"]).nodes], cleaned)


def apply_or_settle(module: AnsibleModule) -> dict[str, Any]:
    """Do what the state asks for, and return the module's result. Raises as `configure`, `tried` and `settle`."""
    daemon, state = DAEMONS[module.params["daemon"]](module), module.params["state"]
    if module.params["unpacked"]:
        return tried(module, daemon)
    if state != "present":
        return settle(module, daemon, state)
    names, gone = known_hosts(module)
    result = configure(module, daemon)
    left = [name for name in gone if name not in expand(module.params["leaving"])]
    result["remarks"] += departed.remarks(left, departed.back(left, addresses_in(module)) if left else {})
    if not module.check_mode:
        if names:
            departed.record(HOSTS, names)
        note(module, daemon, holds=not gone and not result.get("unproven"))
    return result


ARGUMENTS = {
    "daemon": {"type": "str", "choices": ["slurmctld", "slurmdbd"], "default": "slurmctld"},
    "directory": {"type": "path", "default": "/etc/slurm"},
    "state": {"type": "str", "choices": ["present", "proven", "former"], "default": "present"},
    "files": {"type": "dict"},
    "partial": {"type": "bool", "default": False},
    "unpacked": {"type": "path"},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "end_jobs": {"type": "bool", "default": False},
    "patience": {"type": "int", "default": 60},
    "hosts": {"type": "str", "default": ""},
    "cleaned_hosts": {"type": "str", "default": ""},
    "digest": {"type": "str", "default": ""},
    "leaving": {"type": "str", "default": ""},
}


def main() -> None:
    # A connection that is lost must not end the work in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The lock: no other configuration is applied on this host meanwhile.
    run_module(apply_or_settle, ARGUMENTS, lock=("slurm_config", 0), required_if=[("state", "present", ["files"])])


if __name__ == "__main__":
    main()
