#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Plan, validate, apply, verify and roll back Slurm's configuration
description:
  - Runs on the serving controller, which is a backup controller after a takeover. It takes all files of the
    configuration together. Afterwards either all of them are in force, or none. A second run meanwhile is refused.
  - B(Validates) the files before anything is written, by the keys of the installed release, against each other and this
    host, with Slurm's own parser, and with a second slurmctld that starts for a moment. It has its own state directory
    and port, no accounting, no programs to run, and addresses at which it reaches no node.
  - B(Plans) the changes by key, node and partition, with what each needs (C(scontrol reconfigure) or a restart), and
    the jobs that it would end, also because a time becomes too short. If the present files are not the last good ones,
    the values that slurmctld has in force decide.
  - B(Refuses) changes that would end jobs, unless O(end_jobs) allows them, and those that could while slurmctld does
    not answer.
  - B(Applies) the files, and reconfigures or restarts slurmctld. If slurmdbd does not know the cluster, since its
    database is new, slurmctld takes the number that slurmdbd gives the cluster instead of the one in
    C(StateSaveLocation), with which it would end, and is restarted also without a change.
  - B(Verifies) that slurmctld answers, that what is in force is what the files say (except values that already differed
    before), and that every node that was up and whose slurmd served connections is up again within O(patience). A node
    that has stopped to answer before the change is not waited for. One that stops during it is like one that does not
    start with the files.
  - It does not restart daemons on other hosts, and does not wait for nodes that slurmctld can reach only after a
    restart of their slurmd, as after a change of SlurmdPort. A change of C(read_at_start) shows that it is needed.
  - B(Rolls back) to the last good files, which are kept in C(/var/lib/gpucluster-slurm/good), if the verification
    fails. With them the next run repairs the state after a run that was killed.
  - A change that needs a restart of slurmd on nodes that are up is C(unproven) until O(state=proven), and
    O(state=former) takes it back. Until then the previous files are kept in C(/var/lib/gpucluster-slurm/former).
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_config]
"""

EXAMPLES = r"""
- name: Apply the configuration
  gpucluster.slurm.slurm_config: {files: {slurm.conf: "{{ text }}"}}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import signal
import socket
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import CommandError, run
from ..module_utils.client.scontrol import CLEARED, serving, show
from ..module_utils.configuration import parameters
from ..module_utils.configuration.conf_file import KEY_VALUE, Configuration, ConfigurationError, changes, read
from ..module_utils.configuration.equivalence import differing
from ..module_utils.configuration.meaning import patch_release_of
from ..module_utils.configuration.sources import SourceError, configuration_of, other_files, read_files, source_lines
from ..module_utils.controller import file_validation, kept_files, removed_hosts, succession
from ..module_utils.controller.change_plan import Step, kinds, read_at_start, remedy, steps, table, without_reach
from ..module_utils.controller.controller_host import text
from ..module_utils.controller.daemons import (
    DAEMONS,
    Before,
    ConfigError,
    Daemon,
    NotYetError,
    advice,
    controllers,
    slurm_user,
    state_directory,
)
from ..module_utils.controller.release_overlay import enter
from ..module_utils.controller.state_save_location import StateDirectoryError
from ..module_utils.controller.trial_start import short_name
from ..module_utils.host import applied_state
from ..module_utils.host.files import File, from_base64, write
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.script_checks import content_of
from ..module_utils.language.formatting import visible
from ..module_utils.language.hostlist import expand, fold
from ..module_utils.rolling.next_nodes import node_of
from ..module_utils.rolling.node_removal import is_ours

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import ConfigResult

MANAGED = "Managed by gpucluster.slurm"
"""In the first line of files that this collection has written."""

# -- plan ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The texts of the files that are to be in force, by name. Those of `secrets` are not shown."""

    plain: Mapping[str, str]
    secrets: Mapping[str, str]

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all files."""
        return {**self.plain, **self.secrets}


@dataclass(frozen=True)
class Present:
    """The files of a daemon before a change."""

    directory: str
    texts: Mapping[str, str]
    """The last good files by name, and the files in the directory of which no good one is kept."""
    gone: Sequence[str]
    """Names of files that this module has put in force before, and that are no longer wanted."""
    configuration: Configuration
    edited: Configuration | None
    """What the files in the directory say, if they are not the last good ones."""
    foreign: bool
    """Whether the cluster is of another origin, and this module has put nothing in force yet."""
    messages: Sequence[str]
    """Why the configuration cannot be read, if it cannot."""


@dataclass(frozen=True)
class Plan:
    """A change of the files of a daemon."""

    wanted: Wanted
    present: Present
    files: Sequence[File]
    """The wanted files, as they are written."""
    new: Configuration
    version: str
    at_start: str | None
    """The settings that slurmd reads only when it starts; None for slurmdbd."""
    steps: Sequence[Step]


def read_if_possible(files: Mapping[str, str]) -> tuple[Configuration, list[str]]:
    """The configuration in the files in force, and a message if they cannot be read."""
    try:
        return read(files), []
    except ConfigurationError as error:
        return Configuration(), [f"the present files cannot be read, so the plan shows everything as new: {error}"]


def read_foreign(directory: str) -> tuple[Configuration, list[str]]:
    """What the files of a cluster of another origin say, which can include others, and a message if they are wrong."""
    try:
        files = read_files(Path(directory, "slurm.conf"))
        main = [name for name in files if name in KEY_VALUE]
        configuration = configuration_of({name: source_lines(files, name) for name in main})
        included = read({name: files[name] for name in other_files(files) if name not in main})
    except (ConfigurationError, SourceError, OSError) as error:
        return Configuration(), [f"the present files cannot be read, so the plan shows everything as new: {error}"]
    configuration.settings.update(included.settings)
    return configuration, []


def plan_steps(
    daemon: Daemon, present: Present, new: Configuration, version: str, leaving: Collection[str] = ()
) -> list[Step]:
    """The steps to a new configuration. The jobs on nodes that are `leaving` have ended before the change.

    Where somebody has edited the files, the daemon may have loaded the edited ones or the good ones, and the values
    that it shows decide.
    """
    old = present.configuration
    wanted_changes = changes(old, new)
    if present.foreign:
        wanted_changes = differing(wanted_changes, old, new, patch_release_of(version))
    if not daemon.answers(old):
        return steps(wanted_changes, daemon.possible_jobs(old), version, new)
    jobs = [job for job in daemon.jobs() if job.nodes.isdisjoint(leaving)]
    if present.edited is None:
        return steps(wanted_changes, jobs, version, new)
    places = {(change.file, change.subject, change.key.lower()) for change in wanted_changes}
    edits = changes(present.edited, new)
    others = [change for change in edits if (change.file, change.subject, change.key.lower()) not in places]
    backwards = {replace(change, before=change.after, after=change.before): change for change in others}
    in_force = daemon.in_force([*wanted_changes, *backwards])
    loaded = [change for reverse, change in backwards.items() if reverse in in_force]
    return steps([*wanted_changes, *loaded], jobs, version, new, in_force)


def read_wanted(params: Params, known: Sequence[str]) -> Wanted:
    """The files by the options of the module, with the others in force if O(partial). Raises ConfigError, FileError.

    `known` are the names of files that this module has put in force before.
    """
    plain: dict[str, str] = params["files"]
    if params["partial"]:
        plain = kept_files.read_good_texts(params["directory"], known) | plain
    for part in ("files", "secrets"):
        for name, content in params[part].items():
            if not name or "/" in name:
                raise ConfigError(f"{part}: found {name!r}, allowed: the name of a file without a directory")
            if not isinstance(content, str):
                raise ConfigError(f"{part}: {name}: found {type(content).__name__}, allowed: the text of the file")
            content_of(content)
    return Wanted(plain, {name: from_base64(name, text).decode() for name, text in params["secrets"].items()})


def read_present(daemon: Daemon, directory: str, wanted: Wanted, known: Sequence[str]) -> Present:
    """The files of a daemon before the change; `known` are those that this module has put in force before."""
    gone = [name for name in known if name not in wanted.texts]
    good, written = (kept_files.read_texts(place, [*wanted.texts, *gone]) for place in (kept_files.GOOD, directory))
    if daemon.name == "slurmctld" and not good and daemon.conf in written:
        configuration, messages = read_foreign(directory)
        return Present(directory, written, gone, configuration, None, True, messages)
    texts = written | good
    plain, plain_written = (
        {name: text for name, text in files.items() if name not in wanted.secrets} for files in (texts, written)
    )
    configuration, messages = read_if_possible(plain)
    edited = None if written == good else read_if_possible(plain_written)[0]
    return Present(directory, texts, gone, configuration, edited, False, messages)


def plan_change(module: AnsibleModule, daemon: Daemon) -> Plan:
    """The change from the present files to the wanted ones.

    Raises ConfigError, ConfigurationError, FileError and ValueError if the options of the module are wrong.
    """
    params = module.params
    known = kept_files.read_recorded_names() if daemon.name == "slurmctld" else []
    wanted = read_wanted(params, known)
    files = build_files(module, daemon, wanted.texts, wanted.secrets)
    version = daemon.version()
    new = read(wanted.plain)
    present = read_present(daemon, params["directory"], wanted, known)
    at_start = read_at_start(new, "slurmd", version) if daemon.name == "slurmctld" else None
    leaving = expand(params["leaving"]) if module.check_mode else []
    planned_steps = plan_steps(daemon, present, new, version, leaving)
    if present.foreign and params["hosts"]:
        planned_steps = without_reach(planned_steps, present.configuration, new, expand(params["hosts"]))
    return Plan(wanted, present, files, new, version, at_start, planned_steps)


# -- the serial number of the files of several controllers ------------------------------------------------------------


def write_serial(module: AnsibleModule, configuration: Configuration, version: str, *, changes: bool) -> str:
    """Write the serial number of the files into this controller's record, with which its slurmctld may start.

    Part of the files is changed on the other controllers by the role that changes it. Returns the record; empty with
    one controller.
    """
    if len(controllers(configuration)) < 2:
        return ""
    shared = succession.read_state_file(
        state_directory(configuration), succession.SHARED_SERIAL, slurm_user(configuration)
    )
    counts = changes and not module.params["partial"]
    record = succession.next_record(
        text(succession.SERIAL) or "", shared.decode(errors="replace"), version, changes=counts
    )
    write([File(succession.SERIAL, record.encode())], module.check_mode)
    return record


def share_serial(configuration: Configuration, record: str) -> list[str]:
    """Let no controller start any more that has a lower number, once the files are in force. Returns messages."""
    directory = state_directory(configuration)
    try:
        if record:
            succession.write_state_file(directory, succession.SHARED_SERIAL, slurm_user(configuration), record)
    except StateDirectoryError as error:
        return [
            f"The serial number of the files was not written into {directory}, so a controller that was away could "
            f"start with older ones: {error}"
        ]
    return []


# -- apply, verify, roll back ----------------------------------------------------------------------------------------


def choose_action(daemon: Daemon, old: Configuration, plan: Sequence[Step]) -> str:
    """The actions on the daemon for the plan. A daemon that runs but does not answer is restarted."""
    if not daemon.answers(old):
        return "restart" if daemon.active() else "start"
    restart = not daemon.reconfigures or any(daemon.name in step.needs.restart for step in plan)
    return "restart" if restart else "reconfigure"


def act_and_wait(daemon: Daemon, action: str, configuration: Configuration) -> list[str]:
    """Do an action on the daemon, and wait until it answers. Returns messages. Raises ConfigError.

    slurmctld 24.11 before 24.11.6 can stop to answer for good when it reconfigures (CHANGELOG/slurm-24.11.md of Slurm).
    A restart mends that, and ends no job. With many nodes slurmctld may only answer later than scontrol waits.
    """
    if action != "reconfigure":
        daemon.act(action, configuration)
        daemon.wait(configuration)
        return []
    try:
        with suppress(NotYetError):
            daemon.act(action, configuration)
        daemon.wait(configuration)
    except NotYetError:
        return restart_silent(daemon, configuration)
    return []


def restart_silent(daemon: Daemon, configuration: Configuration) -> list[str]:
    """Restart a daemon that does not answer after its reconfigure. Returns the message. Raises ConfigError."""
    daemon.act("restart", configuration)
    daemon.wait(configuration)
    return [f"{daemon.name} did not answer after scontrol reconfigure, so it was restarted. That ends no job"]


def verify(daemon: Daemon, plan: Plan, before: Before, action: str) -> list[str]:
    """Verify what is in force; a daemon can also fall silent after its first answer. Returns messages.

    Raises ConfigError.
    """
    try:
        daemon.verify(plan.new, plan.steps, before)
    except NotYetError:
        if action != "reconfigure":
            raise
        messages = restart_silent(daemon, plan.new)
        daemon.verify(plan.new, plan.steps, before)
        return messages
    return []


def apply(daemon: Daemon, plan: Plan, action: str) -> tuple[list[str], list[str]]:
    """Put the wanted files in force, or restore those before.

    Returns the nodes that could be reached before, and messages. Raises ConfigError.
    """
    old, new = plan.present.configuration, plan.new
    before = daemon.before(old)
    write(plan.files)
    kept_files.remove_files(plan.present.directory, plan.present.gone)
    try:
        messages = act_and_wait(daemon, action, new)
        messages += verify(daemon, plan, before, action)
    except (ConfigError, ValueError) as error:
        if isinstance(error, NotYetError) and not daemon.interruptible:
            raise ConfigError(f"{error}. It is left running with the new files; see its log", put_back=False) from None
        outcome = roll_back(daemon, plan, action)
        daemon.resume(old, before)
        message = f"{error}{advice(str(error), new)}\n{outcome}"
        raise ConfigError(message, put_back=outcome == ROLLED_BACK) from None
    return sorted(before.nodes), messages


ROLLED_BACK = "Rolled back: the old files are in force again."


def roll_back(daemon: Daemon, plan: Plan, action: str) -> str:
    """Restore the files before and the daemon with them, but keep the new secrets. Returns the outcome as a message."""
    present = plan.present
    texts = {**present.texts, **plan.wanted.secrets} if present.texts else {}
    if daemon.conf not in texts:
        return "There are no earlier files to restore."
    paths = {os.path.join(present.directory, name): text for name, text in texts.items()}
    write([File(path, content_of(text), daemon.owner, daemon.mode) for path, text in paths.items()])
    kept_files.remove_files(present.directory, plan.wanted.texts.keys() - texts.keys())
    try:
        daemon.act("restart" if action == "start" else action, present.configuration)
    except ConfigError:
        try:  # a daemon that has exited cannot be reconfigured
            daemon.act("restart", present.configuration)
        except ConfigError as error:
            return f"The old files are restored, but {daemon.name} did not start with them: {error}"
    return ROLLED_BACK


# -- the check on nodes ----------------------------------------------------------------------------------------------


def changes_start(daemon: Daemon, plan: Plan) -> bool:
    """Whether slurmd starts with other settings than before. A first configuration has no nodes yet."""
    if plan.at_start is None or daemon.conf not in plan.present.texts:
        return False
    return read_at_start(plan.present.configuration, "slurmd", plan.version) != plan.at_start


def add_unproven(result: ConfigResult, plan: Plan, would_be: Collection[str] | None = None) -> None:
    """Add the nodes that were up before a change with which no slurmd has started yet, by their kind.

    Files with which slurmd starts as before need no check. Those of slurmdbd have none. would_be: in check mode, the
    nodes that are up before a change with which slurmd has other settings.
    """
    if plan.at_start is None:
        return
    previous, nodes = kept_files.read_previous_files()
    if previous and read_at_start(read_if_possible(previous)[0], "slurmd", plan.version) == plan.at_start:
        if would_be is None:
            kept_files.remove_previous_files()
        nodes = []
    elif not previous:
        nodes = sorted(would_be or [])
    result["unproven"] = kinds(plan.new, nodes)


# -- the work of the module ------------------------------------------------------------------------------------------


def build_files(
    module: AnsibleModule, daemon: Daemon, texts: Mapping[str, str], secrets: Collection[str] = ()
) -> list[File]:
    """The files of a daemon with these texts. The content of `secrets` is not shown."""
    directory = module.params["directory"]
    return [
        File(os.path.join(directory, name), content_of(text), daemon.owner, daemon.mode, name in secrets)
        for name, text in texts.items()
    ]


def describe_plan(
    plan: Sequence[Step], texts: Mapping[str, str], changed: bool, new_files: Collection[str] = ()
) -> ConfigResult:
    """The result of the module for a plan that leads to these files, before it is applied."""
    plain = {name: text for name, text in texts.items() if visible(text) == text}
    return {
        "changed": changed,
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
        "table": table(plan, new_files),
        "actions": [],
        "remarks": [],
        "in_force": plain,
        "in_force_bytes": {
            name: b64encode(content_of(text)).decode() for name, text in texts.items() if name not in plain
        },
        "listed": kept_files.list_files(texts),
        "serial": "",
        "kept_hosts": [],
        "absent": [name for name in parameters.SITE_FILES if name not in texts],
    }


def predict(plan: Plan) -> ConfigResult:
    """The result of the module for a plan, before the files are checked and put in force."""
    wanted, present = plan.wanted, plan.present
    files_to_write = [file for file in plan.files if file.changes]
    names_to_remove = [name for name in present.gone if name in present.texts]
    new_files = [name for name in wanted.plain if name not in present.texts]
    changed = bool(files_to_write) or present.texts != wanted.texts
    result = describe_plan(plan.steps, wanted.plain, changed, new_files)
    removals = [
        describe_removal(os.path.join(present.directory, name), present.texts[name]) for name in names_to_remove
    ]
    result["diff"] = [file.diff for file in files_to_write] + removals
    result["absent"] += [name for name in present.gone if name not in parameters.SITE_FILES]
    if not present.texts:
        result["table"] = []
    if plan.at_start is not None:
        result["read_at_start"], result["unproven"] = plan.at_start, []
    return result


def check_plan(module: AnsibleModule, daemon: Daemon, plan: Plan) -> list[str]:
    """Check the wanted files and secrets, and that no job ends against the will of the user.

    Returns messages about the files. Raises ConfigError.
    """
    wanted, present = plan.wanted, plan.present
    if whole := module.params.get("with_leaving"):
        check_removal(plan, read(whole), expand(module.params["leaving"]))
    check_order(daemon, present.configuration, plan.new)
    messages = [*present.messages]
    if present.texts:
        changed = [name for name, text in wanted.secrets.items() if present.texts.get(name) != text]
        messages += [f"The secret in {name} changes" for name in changed]
    messages += file_validation.check_wanted_files(module, daemon, wanted.plain, present.gone, plan.version)
    file_validation.check_secrets(daemon, wanted.secrets)
    ended_jobs = {number for step in plan.steps for number in step.ends}
    if ended_jobs and not module.params["end_jobs"]:
        unknown = "unknown" in ended_jobs
        would = f"These changes would end jobs ({len(ended_jobs)})"
        why = f"{daemon.name} does not answer, so these changes could end jobs" if unknown else would
        helps = "start it" if unknown else remedy(plan.steps)
        shown = "\n".join(table([step for step in plan.steps if step.ends]))
        raise ConfigError(f"{why}: {helps}; or accept it with -e slurmctld_end_jobs=true\n{shown}")
    return messages


def check_removal(plan: Plan, whole: Configuration, leaving: Collection[str]) -> None:
    """Refuse a removal of nodes that would change more than these nodes.

    Args:
        plan: the change.
        whole: the configuration by the same cluster file with the nodes that leave.

    Raises: ConfigError: with what else would change.
    """
    present = [found for found in (plan.present.configuration, plan.present.edited) if found is not None]
    # A run that was killed may have removed the nodes from the files already.
    others = [change for old in present for change in changes(old, plan.new if is_gone(old, leaving) else whole)]
    if others:
        found = steps(dict.fromkeys(others), [], plan.version, plan.new)
        raise ConfigError(
            "The cluster file has more changes than the removal of these nodes, which would come into force with it. "
            "Run site.yml first, or take them back:\n" + "\n".join(table(found))
        )


def is_gone(configuration: Configuration, leaving: Collection[str]) -> bool:
    """Whether the configuration has none of these nodes any more."""
    return configuration.nodes.keys().isdisjoint(leaving)


def check_order(daemon: Daemon, old: Configuration, new: Configuration) -> None:
    """Refuse another controller before this one, if it serves. Raises ConfigError."""
    here, after = short_name(socket.gethostname()), controllers(new)
    ahead = succession.find_ahead(controllers(old), after, here)
    if ahead and daemon.answers(old):
        raise ConfigError(
            f"slurm.conf SlurmctldHost: found {' '.join(after)!r}, allowed: {here}, which serves, before "
            f"{fold(ahead)}. To make {ahead[0]} the primary controller, take {here} out of controllers for one run, "
            "when both have one StateSaveLocation"
        )


def resume_leaving(names: Collection[str]) -> str:
    """Resume nodes that remove_nodes has drained, and that stay. Returns a message, on a line of its own."""
    with suppress(CommandError):
        nodes = {node.name: node for node in map(node_of, show("node"))} if names else {}
        drained = [name for name in names if name in nodes and is_ours(nodes[name])]
        if drained:
            # It resumes a node that has not answered since slurmctld's restart as well, and says that it cannot.
            run(["scontrol", "update", f"NodeName={fold(drained)}", "State=RESUME", f"Reason={CLEARED}"])
            return f"\nResumed: {fold(drained)}"
    return ""


def put_in_force(daemon: Daemon, plan: Plan, action: str, leaving: Collection[str] = ()) -> list[str]:
    """Put changed files in force, or restore those before. Returns messages; raises ConfigError."""
    present = plan.present
    daemon.check_others(plan.new, plan.steps)
    if present.foreign:
        kept_files.keep_found(present.directory)
    try:
        nodes, messages = apply(daemon, plan, action)
    except ConfigError as error:
        # No later play runs where the only controller has failed.
        resumed = resume_leaving(leaving)
        raise ConfigError(f"{error}{resumed}", **error.result) from None
    messages += daemon.resume_corrected(plan.new, plan.steps, kept_files.find_program_time())
    if nodes and changes_start(daemon, plan):
        kept_files.keep_previous_files(present.texts, nodes)
    kept_files.keep_good_files(plan.wanted.texts, plan.at_start)
    return messages


def configure(module: AnsibleModule, daemon: Daemon) -> ConfigResult:
    """Put the wanted files in force, or predict it in check mode. Returns the result of the module."""
    plan = plan_change(module, daemon)
    result, present = predict(plan), plan.present
    same = present.texts == plan.wanted.texts and not any(file.differs for file in plan.files)  # but perhaps an owner
    result["remarks"] = [] if same else check_plan(module, daemon, plan)
    result["serial"] = write_serial(module, plan.new, plan.version, changes=not same)
    # The daemons have read files of the same meaning.
    taken_over = not same and present.foreign and not plan.steps and daemon.active()
    action = "" if same or taken_over else choose_action(daemon, present.configuration, plan.steps)
    if not action and daemon.active() and daemon.is_unregistered(plan.new):
        action, result["changed"] = "restart", True
    result["actions"] = [action] if action else []
    if module.check_mode:
        add_unproven(
            result, plan, daemon.before(present.configuration).nodes if action and changes_start(daemon, plan) else ()
        )
        return result
    if action:
        result["remarks"] += put_in_force(daemon, plan, action, expand(module.params.get("leaving") or ""))
    else:
        keep_as_good(daemon, plan, taken_over=taken_over)
    result["remarks"] += share_serial(plan.new, result["serial"])
    if not taken_over:
        add_unproven(result, plan)
    return result


def keep_as_good(daemon: Daemon, plan: Plan, *, taken_over: bool) -> None:
    """Keep the files as those in force that the daemon has read already, and wait for one that was just started."""
    if taken_over:
        kept_files.keep_found(plan.present.directory)
    write(plan.files)
    kept_files.keep_good_files(plan.wanted.texts, plan.at_start)
    if daemon.only_one and daemon.active():
        daemon.wait(plan.new)


def confirm_or_restore(module: AnsibleModule, daemon: Daemon, state: str) -> ConfigResult:
    """Confirm the files in force, restore the previous ones, or wait for them. Returns the result of the module."""
    if daemon.name != "slurmctld":
        raise ConfigError(f"state: found {state!r}, allowed with daemon={daemon.name}: 'present'")
    if state == "serving":
        return wait_for_controller(daemon)
    if state == "found":
        conf = text(os.path.join(module.params["directory"], daemon.conf))
        own = os.path.exists(kept_files.FILES) or MANAGED in (conf or MANAGED)
        if not own and not module.check_mode:
            kept_files.keep_found(module.params["directory"])
        return describe_plan([], {}, False)
    version = daemon.version()
    previous = kept_files.read_previous_files()[0]
    in_force = kept_files.read_texts(kept_files.GOOD, kept_files.read_recorded_names())
    texts = previous if state == "former" and previous else in_force
    old, new = read(in_force), read(texts)
    at_start = read_at_start(new, "slurmd", version)
    plan = steps(changes(old, new), [], version, new)
    result = describe_plan(plan, texts, bool(plan))
    result["read_at_start"], result["unproven"] = at_start, []
    result["serial"] = write_serial(module, new, version, changes=bool(previous and plan))
    if previous and not module.check_mode:
        if plan:
            result["actions"] = [action := choose_action(daemon, old, plan)]
            write(build_files(module, daemon, texts))
            kept_files.remove_files(module.params["directory"], in_force.keys() - texts.keys())
            daemon.act(action, new)
            daemon.wait(new)
            kept_files.keep_good_files(texts, at_start)
        kept_files.remove_previous_files()
    if not module.check_mode:
        result["remarks"] = share_serial(new, result["serial"])
    return result


def wait_for_controller(daemon: Daemon) -> ConfigResult:
    """Wait until one of several controllers serves. Returns the result of the module."""
    texts = kept_files.read_texts(kept_files.GOOD, kept_files.read_recorded_names())
    configuration = read(texts)
    daemon.seek_control(configuration)
    daemon.wait_until(configuration, lambda: bool(serving()))
    at_start = read_at_start(configuration, "slurmd", daemon.version())
    return {**describe_plan([], texts, False), "read_at_start": at_start, "unproven": []}


def check_for_release(module: AnsibleModule, daemon: Daemon) -> ConfigResult:
    """Check the files for the release in `unpacked`, of which nothing is in force. Returns the result of the module."""
    texts: dict[str, str] = module.params["files"]
    known = kept_files.read_recorded_names() if daemon.name == "slurmctld" else []
    gone = [name for name in known if name not in texts]
    old = read_if_possible(kept_files.read_good_texts(module.params["directory"], [*texts]))[0]
    enter(module.params["unpacked"])
    version, new = daemon.version(), read(texts)
    messages = file_validation.check_wanted_files(module, daemon, texts, gone, version)
    # The new release starts with them at once, so no job may depend on the difference.
    plan = steps(changes(old, new), daemon.possible_jobs(old), version, new)
    if ending := table([step for step in plan if step.ends]):
        shown = "\n".join(ending)
        raise ConfigError(f"These changes could end jobs: run site.yml with them before or after the upgrade\n{shown}")
    return {**describe_plan(plan, texts, False), "remarks": messages}


def record_applied_state(module: AnsibleModule, daemon: Daemon, *, holds: bool) -> None:
    """Record O(digest) as applied, or remove the record. Raises OSError."""
    directory, names = module.params["directory"], [*module.params["files"], *module.params["secrets"]]
    paths = [os.path.join(place, name) for place in (directory, kept_files.GOOD) for name in names]
    paths += [] if daemon.name == "slurmdbd" else kept_files.list_records()
    applied_state.keep(f"{daemon.name}_config", module.params["digest"] if holds else "", paths)


def describe_removal(path: str, before: str) -> dict[str, str]:
    """The diff of a file that is removed."""
    return {"before_header": path, "after_header": path, "before": before, "after": ""}


def read_addresses(module: AnsibleModule) -> set[str]:
    """The addresses of the nodes in the wanted files."""
    nodes = read(module.params["files"]).nodes.values()
    return {value for settings in nodes for key, value in settings if key.lower() == "nodeaddr"}


def find_known_hosts(module: AnsibleModule) -> tuple[list[str], list[str]]:
    """The names of hosts to keep, and those of them that have left the cluster; none without O(hosts).

    Raises:
        ValueError: a hostlist is wrong.
        ConfigurationError: a file is wrong.
    """
    hosts, cleaned = expand(module.params["hosts"]), expand(module.params["cleaned_hosts"])
    if not hosts:
        return [], []
    in_force = read_if_possible(kept_files.read_good_texts(module.params["directory"], ["slurm.conf"]))[0]
    before = [*removed_hosts.recorded(kept_files.HOSTS), *in_force.nodes]
    return removed_hosts.known_hosts(before, [*hosts, *read(module.params["files"]).nodes], cleaned)


def change_configuration(module: AnsibleModule) -> ConfigResult:
    """Do what the state asks for, and return the module's result.

    Raises as `configure`, `check_for_release` and `confirm_or_restore`.
    """
    daemon, state = DAEMONS[module.params["daemon"]](module), module.params["state"]
    if module.params["unpacked"]:
        return check_for_release(module, daemon)
    if state != "present":
        return confirm_or_restore(module, daemon, state)
    names, gone = find_known_hosts(module)
    result = configure(module, daemon)
    result["kept_hosts"] = names
    left = [name for name in gone if name not in expand(module.params["leaving"])]
    answering = removed_hosts.find_answering(left, read_addresses(module)) if left else {}
    result["remarks"] += removed_hosts.describe_removed(left, answering)
    if not module.check_mode:
        if names:
            removed_hosts.record(kept_files.HOSTS, names)
        record_applied_state(module, daemon, holds=not gone and not result.get("unproven"))
    return result


ARGUMENTS = {
    "daemon": option(
        "The daemon that reads the files. slurmdbd has no test and no reconfigure, so its files are only checked "
        "against the schema, and each change restarts it. If it exits, the last good files are restored. If it runs "
        "and does not answer, it is left running, since it may be converting its tables.",
        choices=["slurmctld", "slurmdbd"],
        default="slurmctld",
    ),
    "directory": option("Directory of Slurm's configuration.", "path", default="/etc/slurm"),
    "state": option(
        "V(present) puts O(files) in force.\n"
        "V(proven) keeps the files in force, after slurmd has started with them on nodes.\n"
        "V(former) restores the files that were in force before the C(unproven) change, because slurmd has not.\n"
        "V(serving) waits until one of several controllers serves, after slurmctld was started on this one. If it "
        "served last and none before it is there, it takes over at once.\n"
        "V(found) keeps the files of another origin that a standby controller has, in "
        "C(/var/lib/gpucluster-slurm/found), before it gets those of the serving one.\n"
        "V(proven), V(former), V(serving) and V(found) need O(daemon=slurmctld), and no O(files).",
        choices=["present", "proven", "former", "serving", "found"],
        default="present",
    ),
    "files": option(
        "The text of each file, by its name in O(directory). V(slurm.conf) or V(slurmdbd.conf) must be among them. "
        "With O(daemon=slurmctld), files that this module has put in force before and that are not among them are "
        "removed. Required with O(state=present), and not used otherwise.",
        "dict",
    ),
    "partial": switch("Whether O(files) are some of the files, and the other files in force stay. Only for slurmctld."),
    "unpacked": option(
        "A directory with the packages of another release of Slurm (M(gpucluster.slurm.slurm_packages), C(unpack)). "
        "O(files) are then only checked, by this release's rules and by its slurmctld, which starts for a moment next "
        "to the installed one. A change that could end jobs is refused. Nothing is written.",
        "path",
    ),
    "secrets": option(
        "Files with secret content, lines of C(Key=value) by the name of the file, encoded in base64. The result only "
        "shows that they change. Slurm's own parser reads them before anything is written. If it does not read "
        "exactly the values that the lines were written for, the files are refused. A rollback keeps them, because "
        "the password of a database user has already changed.",
        "dict",
        default={},
        no_log=True,
    ),
    "end_jobs": switch("Whether changes that end jobs may be applied."),
    "patience": option(
        "Seconds to wait for the daemon to answer, and for nodes that were up to be up again.", "int", default=60
    ),
    "hosts": option(
        "All hosts of the cluster, as a hostlist. The module keeps their names in C(/var/lib/gpucluster-slurm/hosts). "
        "Of a cluster that is taken over, nodes that are not among them may read files of their own. The first change "
        "of their generic resources does not reach them, and so ends no job there. A kept host that is neither in "
        "this list nor a node of the files has left the cluster. C(remarks) names it in each run, since it still has "
        "the munge key, and perhaps a slurmd that runs, until it is in O(cleaned_hosts).",
        default="",
    ),
    "cleaned_hosts": option(
        "Hosts that have left the cluster, and that a person has cleaned, as a hostlist.", default=""
    ),
    "digest": option(
        "A checksum of O(files), O(secrets), O(hosts) and O(cleaned_hosts), for O(state=present). While the files in "
        "force do not change, the fact C(applied) of M(gpucluster.slurm.slurm_host_facts) has it under the name "
        "V(slurmctld_config) or V(slurmdbd_config), and the module need not run again. There is no such fact while a "
        "change is C(unproven), or while hosts that have left are to be cleaned.",
        default="",
    ),
    "leaving": option(
        "Nodes that leave the cluster in this run, as a hostlist. In check mode the jobs that run on them do not "
        "count, since the run waits for their end before the change. C(remarks) does not name them, because the run "
        "cleans them after the change.",
        default="",
    ),
    "with_leaving": option(
        "The text of each file by the same cluster file, with the nodes of O(leaving). With O(leaving), the files in "
        "force must mean the same. If not, O(files) would change more than these nodes, and the change is refused.",
        "dict",
        default={},
    ),
    "coming": several(
        "Plugins of Slurm, such as V(auth_jwt), in packages that the run installs before O(files) are in force. Check "
        "mode takes them for installed."
    ),
}


def main() -> None:
    # A connection that is lost must not end the work in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The lock: no other configuration is applied on this host meanwhile.
    required_if = [("state", "present", ["files"])]
    run_module(change_configuration, ARGUMENTS, lock=("slurm_config", 0), required_if=required_if)


if __name__ == "__main__":
    main()
