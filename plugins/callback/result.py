# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback that writes the progress and the result of a run into a file, for programs."""

from __future__ import annotations

DOCUMENTATION = """
name: result
type: notification
short_description: Progress and result of a run, as a file for programs
version_added: "0.2.0"
author: gpucluster.slurm contributors (@gpucluster)
description:
  - Writes one JSON object, which is valid by C(runner/result.schema.json), when a stage begins, when the
    first change and the first failure happen, and at the end. Its key C(slurm_result) has the progress and the
    result of the run, which are the same for all playbooks. The other keys are what the playbooks return with
    C(set_stats).
  - A reader gets a whole file at any time. If the run is killed, the file says what it has left.
  - Shows nothing, so it goes with any other callback.
options:
  file:
    description: The file. The default is C(slurm_result.json) in the artifacts of ansible-runner. Without
      ansible-runner, no file is written by default.
    type: path
    env: [{name: GPUCLUSTER_SLURM_RESULT}]
    ini: [{section: callback_slurm_result, key: file}]
requirements:
  - C(callbacks_enabled = gpucluster.slurm.result) in the section C([defaults]) of ansible.cfg, or the environment
    variable E(ANSIBLE_CALLBACKS_ENABLED).
seealso:
  - plugin: gpucluster.slurm.progress
    plugin_type: callback
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

from ..plugin_utils.run_report import Line
from .progress import CallbackModule as Progress
from .progress import guarded, lost_hosts, results_of

ARTIFACTS = "AWX_ISOLATED_DATA_DIR"
"""Where ansible-runner, and so AWX, keeps the artifacts of a run, in the environment of ansible-playbook."""


class CallbackModule(Progress):
    """The callback. It hears the same as `progress`, and shows none of it."""

    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = NAME = "gpucluster.slurm.result"
    CALLBACK_NEEDS_ENABLED = True
    SILENT = True

    def __init__(self) -> None:
        super().__init__()
        self.path: Path | None = None
        self.written: tuple[object, ...] = ()

    def set_options(self, *args: Any, **options: Any) -> None:
        """Find the file; without one, Ansible does not call this callback."""
        CallbackBase.set_options(self, *args, **options)
        named, artifacts = self.get_option("file"), os.environ.get(ARTIFACTS)
        self.path = Path(named) if named else Path(artifacts, "slurm_result.json") if artifacts else None
        self.disabled = self.path is None

    @property
    def verbose(self) -> bool:
        """Whether the output is that of Ansible's own callback: there is none."""
        return False

    def _handle_warnings(self, *_: Any) -> None:
        """Nothing, since the other callback shows them."""

    def _say(self, *_: Any) -> None:
        """Nothing, as above."""

    def v2_on_file_diff(self, result: Any) -> None:
        """Nothing, as above."""

    def _show(self, _lines: list[Line]) -> None:
        """Something has happened: write the file if it says something else to a program."""
        news = (self.report.stage, self.report.state(ended=False), bool(self.report.failures))
        if news != self.written:
            self.written = news
            self._write({}, ended=False)

    @guarded
    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The run has ended."""
        self.over.set()
        self.report.end_stage(time.monotonic())
        self.report.recap(*lost_hosts(stats))
        self._write(results_of(stats), ended=True)

    def _write(self, results: dict[str, Any], *, ended: bool) -> None:
        """Replace the file. It may name hosts and users, so it is the owner's alone."""
        if not self.path:
            return  # disabled
        content = {**results, "slurm_result": self.report.result(time.monotonic(), results, ended)}
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, default=str)
        os.replace(new, self.path)
