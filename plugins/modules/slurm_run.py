#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_run
short_description: Let one run at a time change a cluster
version_added: 0.2.0
description:
  - Notes on a controller that a run has begun, and removes the note at its end. While there is a note, a run from
    another control host, or of another user, fails and names the run of the note.
  - A note whose run has ended without removing it, because it failed or was killed, is replaced. The module finds that
    out if the run was one of the same control host, or if the controller has booted since. Otherwise a person has to
    decide it, with O(take_over).
  - In check mode nothing is noted, and another run is a warning.
options:
  state:
    description: Whether the run begins or ends.
    type: str
    choices: [begun, ended]
    required: true
  take_over:
    description: Whether the run of another control host has ended, so that its note is replaced.
    type: bool
    default: false
  run:
    description: This run, and a former run whose note may be replaced. The control host fills it in.
    type: dict
    default: {}
    suboptions:
      host:
        description: The control host.
        type: str
        required: true
      user:
        description: The user of ansible-playbook there.
        type: str
        required: true
      process:
        description: Number and start of its process there.
        type: str
        required: true
  former:
    description: The process of a run that has ended on the same control host. The control host fills it in.
    type: str
    default: ""
extends_documentation_fragment: [gpucluster.slurm.changing]
attributes:
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Begin
  gpucluster.slurm.slurm_run:
    state: begun
  delegate_to: head
  run_once: true
"""

RETURN = r"""
other:
  description: The run that the controller has a note of; empty without one, or if it is this run.
  type: dict
  returned: always
  sample: {host: adm1, user: alice, process: 4711 15234567, since: 2026-11-24 10:02}
"""

import fcntl
import json
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.files import File, FileError, write

NOTE = "/run/gpucluster-slurm/run"
"""In memory: when the controller boots, every run on it has ended."""


def noted(path: str) -> dict[str, str]:
    """The run that a note is about; empty without one. A note that a person has damaged counts as none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            note = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return {str(key): str(value) for key, value in note.items()} if isinstance(note, dict) else {}


def change(params: dict[str, Any], path: str, check_mode: bool = False) -> dict[str, str]:
    """Write or remove the note; the other run that has prevented it. Raises FileError, OSError."""
    own = params["run"]
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(f"{path}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = noted(path)
        if note and {key: note.get(key) for key in own} == own:
            if params["state"] == "ended" and not check_mode:
                os.unlink(path)
            return {}
        replaced = params["take_over"] or (note.get("host") == own["host"] and note.get("process") == params["former"])
        if params["state"] == "ended" or (note and not replaced):
            return note
        if not check_mode:
            text = json.dumps({**own, "since": time.strftime("%Y-%m-%d %H:%M")})
            write([File(path, f"{text}\n".encode())])
    return {}


def main() -> None:
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["begun", "ended"], "required": True},
            "take_over": {"type": "bool", "default": False},
            "run": {"type": "dict", "default": {}, "options": {"host": text, "user": text, "process": text}},
            "former": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        other = change(module.params, NOTE, module.check_mode)
    except (FileError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, other=other)


if __name__ == "__main__":
    main()
