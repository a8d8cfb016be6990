# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state directory of several controllers, which has to be one directory.

Each controller writes a file into it, and checks for the files of the others (roles/slurmctld/tasks/state.yml).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...controller.state_save_location import state_directory_errors
from ...controller.succession import HEARTBEAT, SERIAL, SHARED_SERIAL
from ...formats.directory_purposes import directory_error
from ...formats.written import written as written_as
from ...language.hostlist import fold
from . import registered
from .host_paths import SCRIPTS_DIR
from .run_host import RunHost
from .shipped_files import HostFile, role_file
from .whole_cluster import conf_servers, state_directory

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import MountPoint, StateDirectoryResult

UNIT = "/etc/systemd/system/slurmctld.service.d/gpucluster-slurm-state.conf"
"""Prevents the start of slurmctld without the mount of the directory, and with older files than those in force. It
takes effect at the next start."""

TAKE_CONTROL = f"{SCRIPTS_DIR}/take-control"
"""What the first controller does before slurmctld starts."""


def is_shared(host: RunHost) -> bool:
    """Whether several controllers share the directory."""
    return len(host["slurm_controllers"]) > 1


def is_made(host: RunHost) -> bool:
    """Whether the directory gets its owner and mode. One with which a cluster was taken over may be that of others."""
    return not directory_error(state_directory(host), "state")


def unit_files(host: RunHost) -> list[HostFile]:
    """The files UNIT and TAKE_CONTROL for slurm_service."""
    program: HostFile = {
        "path": TAKE_CONTROL,
        "content": role_file("slurmctld", "take_control.sh"),
        "mode": "0755",
        "loaded": False,
    }
    return [*([program] if is_first(host) else []), _unit_file(host)]


def absent(host: RunHost) -> list[str]:
    """Those of the files that this host does not have."""
    return [*([] if is_shared(host) else [UNIT]), *([] if is_shared(host) and is_first(host) else [TAKE_CONTROL])]


def is_first(host: RunHost) -> bool:
    """Whether this is the first controller, which serves when it can."""
    return bool(host.name == host["slurm_controllers"][0])


def _unit_file(host: RunHost) -> HostFile:
    mount = cast("MountPoint", registered.SLURMCTLD_STATE.of(host)["mount"])
    of_others = [f"{state_directory(host)}/{HEARTBEAT}", *conf_servers(host)[1:]]
    content = host.text(
        "slurmctld",
        "state.conf.j2",
        directory=state_directory(host),
        mounts_for=written_as(mount["guard"], "systemd_quoted"),
        mount_point=written_as(mount["guard"], "systemd"),
        automount=mount["automount"],
        serial=SERIAL,
        shared_serial=_word(f"{state_directory(host)}/{SHARED_SERIAL}"),
        take_control=" ".join([TAKE_CONTROL, *map(_word, of_others)]) if is_first(host) else "",
    )
    return {"path": UNIT, "content": content, "loaded": False}


def _word(text: str) -> str:
    """A word of a command, in which a `$` begins a variable (systemd.service(5), COMMAND LINES)."""
    return written_as(text, "systemd_quoted").replace("$", "$$")


def needs_check(host: RunHost) -> bool:
    """Whether stage plan could not check that the controllers have one directory, because it was missing."""
    answer = registered.SLURMCTLD_STATE.get(host)
    return is_shared(host) and (answer is None or (answer["file"] == "" and not host.check_mode))


def written(host: RunHost) -> dict[str, StateDirectoryResult]:
    """The answers of the controllers in this run that were to write a file, by host."""
    return {
        name: registered.SLURMCTLD_STATE.of(host.of(name))
        for name in host["slurm_controllers"]
        if name in host.play_hosts
    }


def files_of_others(host: RunHost) -> list[str]:
    """The files of the other controllers, for which this one checks."""
    return [answer["file"] for name, answer in written(host).items() if name != host.name and answer["file"]]


def objections(host: RunHost) -> list[str]:
    """Why the controllers cannot keep their state there; empty if they can, as far as it was shown."""
    answers = written(host)
    seen = {
        name: registered.SLURMCTLD_STATE_SEEN.of(host.of(name)) for name, answer in answers.items() if answer["file"]
    }
    return state_directory_errors(answers, seen, state_directory(host))


def unconfirmed_message(host: RunHost) -> str:
    """What was not confirmed; empty if all was. A host that is down must not prevent repairs of the others."""
    away = [name for name in host["slurm_controllers"] if name not in host.play_hosts]
    reasons = [f"Controllers outside of this run: {fold(away)}."] if away else []
    if host.check_mode:
        reasons.append("Check mode writes no file there and has only compared mounts and inodes.")
    if not reasons:
        return ""
    controllers = fold(host["slurm_controllers"])
    return f"It is not confirmed that {state_directory(host)} is one directory on {controllers}. {' '.join(reasons)}"
