#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_service
short_description: Run a daemon with its configuration files
description:
  - Writes the files that a systemd service reads, enables and starts the service, and restarts or reloads it if one of
    the files is newer than what it has loaded. Unlike a handler, it does not depend on the run that changed a file.
  - No file is written if one of them is not valid. systemd reads units and drop-ins before they replace those on the
    host, and the programs of other files read these, such as nginx and mariadbd, also in check mode.
  - A file such as V(/etc/default/slurmd) can make the service read another configuration, since systemd prefers the
    variables there. Where none of the files of the module is there yet, this is an error that names the file and the
    variable. Otherwise it is a warning, and part of the error if the service does not start.
  - A service that has loaded its files is not restarted if the owner or mode of a file had to be corrected, unless
    another user could write to the file. Such a file is replaced, since he may still have it open.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_service]
"""

EXAMPLES = r"""
- name: Run munge, and check that it encodes credentials
  gpucluster.slurm.slurm_service: {name: munge, proof: {command: [munge, --no-input]}}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.controller.sockets import connection_error
from ..module_utils.host import applied_state, environment_files
from ..module_utils.host.files import File, from_base64, mode_of, temporary_file, write
from ..module_utils.host.journal import read_start_failure
from ..module_utils.host.load_times import read_load_time, write_load_time
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.program_library import remove_library
from ..module_utils.language.errors import CollectionError

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import ServiceResult

# Everything below it belongs to systemd.
UNITS = "/etc/systemd/"

OFFLINE = {"SYSTEMD_OFFLINE": "1", "LC_ALL": "C"}
"""With it systemctl changes files and asks no systemd, whether one runs or not (docs/ENVIRONMENT.md of systemd)."""


class ServiceError(CollectionError):
    """The output of a validation, of systemd or of the reload command that failed."""


def wanted_file(wanted: Params) -> File:
    """A file as the option describes it. Raises FileError if its owner does not exist, for example."""
    secret = wanted["secret"]
    content = (wanted["content"] or "").encode() if secret is None else from_base64(wanted["path"], secret)
    return File(wanted["path"], content, wanted["owner"], mode_of(wanted["mode"]), secret is not None)


def check(module: AnsibleModule, file: File, validate: list[str]) -> None:
    """Raises ServiceError with the command's output if the wanted content is not valid."""
    with temporary_file(file.content, f".{os.path.basename(file.path)}") as candidate:
        command = [argument.replace("%s", candidate) for argument in validate]
        rc, stdout, stderr = module.run_command(command)
    if rc != 0:
        error = (stderr or stdout).strip().replace(candidate, file.path)
        raise ServiceError(f"{file.path} was not changed, since the new file is not valid: {error}")


def removal(path: str) -> dict[str, str]:
    """The diff of a file that is removed."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return {"before_header": path, "after_header": path, "before": file.read(), "after": ""}


def put_away(path: str, directory: str | None) -> None:
    """Remove a file, and with a program its library. The first one of its name is kept in the directory, if given."""
    kept = os.path.join(directory, os.path.basename(path)) if directory else ""
    if directory and not os.path.exists(kept):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        shutil.move(path, kept)
    else:
        remove_library(path)
        os.unlink(path)


def show(module: AnsibleModule, name: str, others: Sequence[str] = ()) -> dict[str, str]:
    """The properties of a unit that this module uses (systemctl(1), show).

    NeedDaemonReload is `yes` if systemd has to read this unit or one of the others again.
    """
    if not module.params["start"]:
        return show_file(module, name)
    wanted = ["LoadState", "MainPID", "InactiveExitTimestampMonotonic", "EnvironmentFiles", *applied_state.PROPERTIES]
    command = ["systemctl", "show", f"--property={','.join(wanted)}", name, *others]
    stdout = module.run_command(command, check_rc=True)[1]
    own = stdout.split("\n\n")[0]
    unit = dict(line.split("=", 1) for line in own.split("\n") if "=" in line)
    unit["EnvironmentFiles"] = "\n".join(environment_files.files_of_unit(own))  # there is a line for each of them
    if "NeedDaemonReload=yes" in stdout.split("\n"):
        unit["NeedDaemonReload"] = "yes"
    return unit


def show_file(module: AnsibleModule, name: str) -> dict[str, str]:
    """The same of a unit's file alone, by systemctl without systemd."""
    state = module.run_command(["systemctl", "is-enabled", name], environ_update=OFFLINE)[1].strip() or "not-found"
    return {
        "LoadState": state if state in ("masked", "not-found") else "loaded",
        "UnitFileState": state,
        "ActiveState": "inactive",
        "NeedDaemonReload": "no",
    }


def units_of(paths: Sequence[str]) -> list[str]:
    """The units whose own files these are, without those that have a drop-in only."""
    names = [os.path.basename(path) for path in paths if os.path.dirname(path) == f"{UNITS}system"]
    # systemctl shows no template, but any instance of it, which need not run.
    return [name.replace("@.", "@any.") for name in names]


def started_at(unit: dict[str, str]) -> float:
    """When the running service was started, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + int(unit["InactiveExitTimestampMonotonic"]) / 1e6


def loaded_at(name: str, unit: dict[str, str]) -> float:
    """When the running service last read its files, in seconds since the epoch."""
    return max(started_at(unit), read_load_time(name))


def newer_file(paths: list[str], when: float) -> str:
    """The first of the files that was written after `when`, or an empty string."""
    return next((path for path in paths if os.path.exists(path) and os.stat(path).st_mtime > when), "")


def runs_with(pid: str, arguments: list[list[str]]) -> bool:
    """Whether the arguments of a process have one of these sequences. pid: "0" is none."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            present = file.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(present[i : i + len(some)] == some for some in arguments for i in range(len(present)))


def other_configuration(module: AnsibleModule, unit: dict[str, str]) -> str:
    """Which file of the host makes the service read another configuration; empty if none does."""
    texts = {}
    for path in unit.get("EnvironmentFiles", "").split():
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            texts[path] = file.read()
    drop_ins = [file["content"] or "" for file in module.params["files"]]
    found = environment_files.find_other(texts, drop_ins, module.params["running_with"])
    if not found:
        return ""
    return (
        f"{found.file}: {found.name}: found {found.value!r}, with which {module.params['name']} reads another "
        f"configuration than this cluster's; remove the line, or let it have {found.allowed}"
    )


def plan_enabling(unit: dict[str, str]) -> list[str]:
    """The action that makes the unit start with the host, if it is necessary."""
    return [] if unit["UnitFileState"] in ("enabled", "enabled-runtime", "static", "alias") else ["enable"]


def plan(name: str, unit: dict[str, str], stale: str, reload: bool) -> tuple[list[str], str]:
    """The necessary actions in order, and the reason for the last one.

    stale: the file that is newer than the service's loaded files, or empty. reload: whether the service can load it
    without a restart.
    """
    actions = plan_enabling(unit)
    if unit["ActiveState"] not in ("active", "reloading"):
        return [*actions, "start"], f"{name} is {unit['ActiveState']}"
    if stale:
        return [*actions, "reload" if reload else "restart"], f"{stale} is newer than what {name} has loaded"
    return actions, ""


def read_again(module: AnsibleModule, written: Sequence[str], units: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Let systemd read its units again, if files of them have changed, in this run or before.

    A unit has the state of the file that systemd has read last: one whose previous file was bad is `bad-setting` until
    then, whatever is in its file now.

    Args:
        written: the paths of files that were written or removed.
        units: the units whose files the module has, in addition to the service.

    Returns: the action, done or predicted, if one is necessary, and the state of the service after it.
    """
    name = module.params["name"]
    unit = show(module, name, units)
    if not module.params["start"]:
        return [], unit  # the host that boots reads them
    # systemd remembers the directories of drop-ins, and does not always notice a new one.
    if unit["NeedDaemonReload"] != "yes" and not any(path.startswith(UNITS) for path in written):
        return [], unit
    if not module.check_mode:
        act(module, "daemon-reload")
        unit = show(module, name)
    return ["daemon-reload"], unit


def unreachable(servers: list[str]) -> list[str]:
    """The servers that do not take a connection, each with the error of the socket."""
    errors = {server: connection_error(server.rpartition(":")[0], server.rpartition(":")[2], 5) for server in servers}
    return [f"{server} cannot be reached from this host: {error}" for server, error in errors.items() if error]


def act(module: AnsibleModule, action: str, other: str = "") -> None:
    """Does one action.

    other: which file of the host makes the service read another configuration.

    Raises: ServiceError: it failed; with the command's output and, if the service did not start, the servers that
    cannot be reached and its journal.
    """
    name = module.params["name"]
    argv = {"daemon-reload": ["systemctl", action], "reload": module.params["reload"]}
    command = argv.get(action, ["systemctl", action, name])
    environment = {} if module.params["start"] else OFFLINE
    if action in ("start", "restart"):
        # A unit that has failed too often may have reached its limit of starts, which is not meant for this one.
        module.run_command(["systemctl", "reset-failed", name])
    before = time.time()
    rc, stdout, stderr = module.run_command(command, environ_update=environment)
    if rc != 0:
        journal, lost = "", [other] if other else []
        if action in ("start", "restart"):
            lost += unreachable(module.params["servers"])
            journal = read_start_failure(name, stderr, 15)
        raise ServiceError("\n".join([*lost, f"{' '.join(command)}: {(stderr or stdout).strip()}", journal]).strip())
    if action == "reload":
        # The time before the command, so that a file that is written meanwhile needs another reload.
        write_load_time(name, before)


def check_service(module: AnsibleModule, proof: Params | None) -> str:
    """The output of the command that checks that the service works. Raises ServiceError if it fails."""
    if proof is None or module.check_mode:
        return ""
    rc, stdout, stderr = module.run_command(proof["command"], data=proof["stdin"])
    if rc != 0:
        raise ServiceError(f"{' '.join(proof['command'])}: {(stderr or stdout).strip()}")
    return str(stdout).strip()


@dataclass(frozen=True)
class Plan:
    """The files of the service, compared with the host before anything is changed."""

    files: list[File]
    changed_files: list[File]
    loaded_files: list[File]
    """Those that the service reads."""
    start_files: list[File]
    """Those of them that it reads only when it starts."""
    surplus: list[str]
    """Paths of files that are removed."""
    diff: list[dict[str, str]]
    taken_over: bool
    """Whether the service runs already with what the files say, though none of them is there."""
    other: str
    """Which file of the host makes the service read another configuration; empty if none does."""


def check_files(module: AnsibleModule, files: list[File]) -> None:
    """Raises ServiceError if a new file is not valid."""
    for file, wanted in zip(files, module.params["files"]):
        if file.differs and wanted["validate"]:
            check(module, file, wanted["validate"])


def compare(module: AnsibleModule) -> Plan:
    """Check the options and the new files, and compare them with the host. Raises ServiceError, FileError."""
    params = module.params
    if params["proof"] and not params["proof"]["command"]:
        raise ServiceError("proof: command: found [], allowed: a command")
    files = [wanted_file(wanted) for wanted in params["files"]]
    changed_files = [file for file in files if file.changes]
    surplus = [path for path in params["absent"] if os.path.isfile(path)]
    diff = [file.diff for file in changed_files] + [removal(path) for path in surplus]
    check_files(module, files)
    unit = show(module, params["name"])
    loaded_files = [file for file, wanted in zip(files, params["files"]) if wanted["loaded"]]
    start_files = [file for file, wanted in zip(files, params["files"]) if wanted["restart"]]
    configured = any(os.path.exists(file.path) for file in loaded_files)
    # A timer has no process.
    taken_over = not configured and runs_with(unit.get("MainPID", "0"), params["running_with"])
    other = other_configuration(module, unit)
    if other and loaded_files and not configured:
        raise ServiceError(other)
    if unit["LoadState"] == "masked":
        raise ServiceError(f"unit {params['name']} is masked and cannot start; run: systemctl unmask {params['name']}")
    return Plan(files, changed_files, loaded_files, start_files, surplus, diff, taken_over, other)


def change_files(module: AnsibleModule, wanted: Plan) -> tuple[list[str], dict[str, str]]:
    """Write and remove files, and let systemd read its units again.

    Returns: the action on systemd, if one is necessary, and the state of the service after it. Raises ServiceError.
    """
    write(wanted.files, module.check_mode)
    if not module.check_mode:
        for path in wanted.surplus:
            put_away(path, module.params["keep_in"])
    written = [file.path for file in wanted.changed_files if file.differs]
    reread, unit = read_again(module, [*written, *wanted.surplus], units_of([file.path for file in wanted.files]))
    predicted = module.check_mode and any(path.startswith(UNITS) for path in written)
    if unit["LoadState"] != "loaded" and not (predicted or (module.check_mode and reread)):
        raise ServiceError(
            f"systemd reports {unit['LoadState']} for unit {module.params['name']}; is its package installed?"
        )
    return reread, unit


def stale_file(module: AnsibleModule, wanted: Plan, unit: dict[str, str]) -> str:
    """What the service has not loaded yet: a path, another reason, or an empty string.

    A service that is taken over has loaded its files, which is recorded.
    """
    stale = ""
    if not wanted.taken_over:
        stale = next((file.path for file in wanted.loaded_files if file.differs), "")
        paths = [*(file.path for file in wanted.loaded_files), *module.params["reads"]]
        stale = stale or newer_file(paths, loaded_at(module.params["name"], unit))
    elif not module.check_mode:
        write_load_time(module.params["name"], time.time())
    return stale or ("something" if module.params["stale"] else "")


def start_file(wanted: Plan, unit: dict[str, str]) -> str:
    """The first file with which the service has not started yet, of those that it reads only when it starts."""
    changed = next((file.path for file in wanted.start_files if file.differs), "")
    if changed or not wanted.start_files:
        return changed
    return newer_file([file.path for file in wanted.start_files], started_at(unit))


def record_applied(module: AnsibleModule, files: list[File]) -> None:
    """Record on the host what the module has applied, so that a later run sees whether it still holds."""
    params = module.params
    started = applied_state.invocation(show(module, params["name"])) if params["digest"] else ""
    paths = [*(file.path for file in files), *params["absent"], *params["reads"]]
    applied_state.keep(params["name"], params["digest"] if started else "", paths, started)


def plan_actions(module: AnsibleModule, wanted: Plan, unit: dict[str, str]) -> tuple[list[str], str]:
    """The necessary actions in order, and the reason for the last one."""
    if not module.params["start"]:
        actions = plan_enabling(unit)
        return actions, f"{module.params['name']} is {unit['UnitFileState']}" if actions else ""
    restarted = start_file(wanted, unit)
    stale = restarted or stale_file(module, wanted, unit)
    return plan(module.params["name"], unit, stale, bool(module.params["reload"]) and not restarted)


def run_service(module: AnsibleModule) -> ServiceResult:
    """Write the files, act on the service, and return the result. Raises ServiceError."""
    params = module.params
    name = params["name"]
    wanted = compare(module)
    reread, unit = change_files(module, wanted)
    actions, reason = plan_actions(module, wanted, unit)
    if wanted.other:
        module.warn(wanted.other)
    if not module.check_mode:
        for action in actions:
            act(module, action, wanted.other)
    actions = reread + actions
    output = check_service(module, params["proof"] if params["start"] else None)
    if not module.check_mode:
        record_applied(module, wanted.files)
    diff = wanted.diff
    if actions:
        before = f"{unit['ActiveState']}, {unit['UnitFileState']}\n"
        after = f"{', '.join(actions)} ({reason})\n"
        diff = [*diff, {"before_header": name, "after_header": name, "before": before, "after": after}]
    return {
        "changed": bool(wanted.changed_files or wanted.surplus or actions),
        "files": [*(file.path for file in wanted.changed_files), *wanted.surplus],
        "actions": actions,
        "reason": reason,
        "proof": output,
        "diff": diff,
    }


ARGUMENTS = {
    "name": option("Name of the service.", required=True),
    "files": several(
        "Files of the service, which reads them when it starts. Missing directories are created.",
        "dict",
        options={
            "path": option("Path of the file.", "path", required=True),
            "content": option("The text of the file."),
            "secret": option(
                "Secret content of the file, encoded in base64, instead of O(files[].content). It is never shown.",
                no_log=True,
            ),
            "owner": option("User and group that own the file, by name.", default="root"),
            "mode": option("Permissions of the file, in octal.", default="0644"),
            "loaded": switch(
                "Whether the service reads the file. A change of other files does not restart the service.",
                default=True,
            ),
            "restart": switch(
                "Whether the service reads the file only when it starts, so that O(reload) is not enough."
            ),
            "validate": option(
                "Command that checks the new file, as a list of arguments. C(%s) is replaced by the path of the new "
                "file.",
                "list",
                elements="str",
            ),
        },
        mutually_exclusive=[("content", "secret")],
        required_one_of=[("content", "secret")],
    ),
    "absent": several(
        "Files of the service to remove, such as drop-ins of its unit that are no longer wanted. Their removal does "
        "not restart the service.",
        "path",
    ),
    "keep_in": option(
        "Directory to which files of O(absent) are moved, unless it has one of the same name. Without it they are "
        "lost.",
        "path",
    ),
    "reload": option(
        "Command that makes the running service read its files again, as a list of arguments. Without it, the service "
        "is restarted.",
        "list",
        elements="str",
    ),
    "reads": several(
        "Other files that the service reads, or that are written when one of its inputs has changed. The service is "
        "restarted or reloaded if one of them is newer. Missing files are ignored.",
        "path",
    ),
    "stale": switch("Whether the service must be restarted or reloaded for another reason."),
    "running_with": several(
        "Arguments of the process, as lists of which one is enough. If the running service has them, and none of its "
        "files is there, somebody else has configured it in the same way. Then the module writes the files, and the "
        "service is not restarted.",
        "list",
    ),
    "servers": several(
        "Servers that the service asks when it starts, each as V(HOST:PORT). If the service does not start, the error "
        "names those that this host cannot reach."
    ),
    "proof": option(
        "A command that checks that the service works. The module fails if the command fails. It is not run in check "
        "mode.",
        "dict",
        options={
            "command": option("The command, as a list of arguments.", "list", elements="str", required=True),
            "stdin": option("Standard input of the command.", default=""),
        },
    ),
    "start": switch(
        "Whether the service is started, restarted or reloaded, and its O(proof) is run. With V(false) the module "
        "writes the files and enables the unit, also in a tree without a running systemd. The control host sets it "
        "where an image is built (C(slurm_image) of role C(gpucluster.slurm.slurm)).",
        default=True,
    ),
    "digest": option(
        "A checksum of the other options. While nothing of what the module has applied changes, the fact C(applied) of "
        "M(gpucluster.slurm.slurm_host_facts) has it, and the module need not run again.",
        default="",
    ),
}


def main() -> None:
    run_module(run_service, ARGUMENTS, message="service {name}: {error}")


if __name__ == "__main__":
    main()
