#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_service
short_description: Run a daemon with what its files say now
version_added: 0.1.0
description:
  - Enables and starts a systemd service, and restarts or reloads it if one of its O(files) is newer than what it has
    loaded.
  - Unlike a handler, it does not depend on the run that changed a file. A run that was killed between the change and
    the restart, or a file that was changed by hand, is repaired by the next run.
  - A service that has loaded its files is left alone.
options:
  name:
    description: Name of the service.
    type: str
    required: true
  files:
    description: Files that the service reads when it starts. Those that do not exist do not count.
    type: list
    elements: path
    default: []
  reload:
    description:
      - Command that makes the running service read its files anew, as a list of arguments.
      - Without it the service is restarted.
    type: list
    elements: str
  pending:
    description:
      - Whether an earlier task of this run changed one of the files, or would have.
      - In check mode the files themselves do not tell.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
seealso:
  - module: ansible.builtin.systemd_service
author:
  - gpucluster.slurm contributors (@gpucluster)
"""

EXAMPLES = r"""
- name: Run munge with its key
  gpucluster.slurm.slurm_service:
    name: munge
    files: [/etc/munge/munge.key]

- name: Run slurmctld, and let it read a changed configuration without a restart
  gpucluster.slurm.slurm_service:
    name: slurmctld
    files: [/etc/slurm/slurm.conf, /etc/slurm/gres.conf]
    reload: [scontrol, reconfigure]
"""

RETURN = r"""
actions:
  description: What was done, or would be done in check mode.
  type: list
  elements: str
  returned: always
  sample: [restart]
reason:
  description: Why it was started, restarted or reloaded; empty if it was not.
  type: str
  returned: always
  sample: /etc/munge/munge.key is newer than what munge has loaded
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# A reload leaves no trace in systemd that tells when it was: the time of a file here does. It is gone after a reboot,
# as it must be.
STAMPS = "/run/gpucluster-slurm"


class ServiceError(Exception):
    """What systemd or the reload command said when it failed."""


def show(module: AnsibleModule, name: str) -> dict[str, str]:
    """The properties of a unit that decide (systemctl(1), show)."""
    wanted = "LoadState,ActiveState,UnitFileState,NeedDaemonReload,InactiveExitTimestampMonotonic"
    stdout = module.run_command(["systemctl", "show", f"--property={wanted}", name], check_rc=True)[1]
    return dict(line.split("=", 1) for line in stdout.splitlines() if "=" in line)


def loaded_at(unit: dict[str, str], stamp: str) -> float:
    """When the running service last read its files, in seconds since the epoch."""
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + int(unit["InactiveExitTimestampMonotonic"]) / 1e6
    try:
        return max(started, os.stat(stamp).st_mtime)
    except FileNotFoundError:
        return started


def newer_file(files: list[str], when: float) -> str:
    """The first of the files that was written after `when`, or an empty string."""
    return next((path for path in files if os.path.exists(path) and os.stat(path).st_mtime > when), "")


def plan(unit: dict[str, str], params: dict[str, Any], loaded: float) -> tuple[list[str], str]:
    """The actions that are needed, in their order, and the reason for the last one."""
    actions = []
    if unit["NeedDaemonReload"] == "yes":
        actions.append("daemon-reload")
    if unit["UnitFileState"] not in ("enabled", "enabled-runtime", "static", "alias"):
        actions.append("enable")
    if unit["ActiveState"] not in ("active", "reloading"):
        return [*actions, "start"], f"{params['name']} is {unit['ActiveState']}"
    stale = newer_file(params["files"], loaded)
    if stale or params["pending"]:
        reason = f"{stale or 'a changed file'} is newer than what {params['name']} has loaded"
        return [*actions, "reload" if params["reload"] else "restart"], reason
    return actions, ""


def act(module: AnsibleModule, action: str, stamp: str) -> None:
    """Does one action.

    Raises:
        ServiceError: it failed; with the command's own words and, where the service did not come up, its journal.
    """
    name = module.params["name"]
    argv = {"daemon-reload": ["systemctl", action], "reload": module.params["reload"]}
    command = argv.get(action, ["systemctl", action, name])
    before = time.time()
    rc, stdout, stderr = module.run_command(command)
    if rc != 0:
        journal = ""
        if action in ("start", "restart"):
            last_words = ["journalctl", "--no-pager", "--output=cat", "--lines=15", f"--unit={name}"]
            journal = module.run_command(last_words)[1]
        raise ServiceError(f"{' '.join(command)}: {(stderr or stdout).strip()}\n{journal}".strip())
    if action == "reload":
        os.makedirs(STAMPS, mode=0o755, exist_ok=True)
        with open(stamp, "w", encoding="utf-8"):
            # The time before the command: what is written while it runs is for the next reload.
            os.utime(stamp, (before, before))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "reload": {"type": "list", "elements": "str"},
            "pending": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    name, stamp = module.params["name"], os.path.join(STAMPS, module.params["name"])
    unit = show(module, name)
    if unit["LoadState"] != "loaded":
        module.fail_json(
            msg=f"service {name}: systemd says {unit['LoadState']} of this unit; is its package installed?"
        )
    loaded = loaded_at(unit, stamp)
    actions, reason = plan(unit, module.params, loaded)
    if not module.check_mode:
        try:
            for action in actions:
                act(module, action, stamp)
        except ServiceError as error:
            module.fail_json(msg=f"service {name} ({reason or action}): {error}", actions=actions, reason=reason)
    before = f"{name}: {unit['ActiveState']}, {unit['UnitFileState']}\n"
    after = f"{name}: {', '.join(actions)} ({reason})\n" if actions else before
    diff = {"before": before, "after": after}
    module.exit_json(changed=bool(actions), actions=actions, reason=reason, diff=diff)


if __name__ == "__main__":
    main()
