# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the start and the end of each playbook and play to the file named by STAGE_EVENTS, for tests/tools/stages.

Tests start most runs of ansible-playbook and do not print their output: only a callback sees all runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from stage_events import tell

DOCUMENTATION = """
name: stage
type: notification
short_description: Record for tests/tools/stages which playbooks and plays run
description: Writes the start and the end of each playbook and play as a line of a file.
"""


class CallbackModule(CallbackBase):
    """One run of ansible-playbook. A play ends when the next one begins, since Ansible has no event for its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "stage"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.playbook, self.playbook_began = "", 0.0
        self.play, self.play_began = "", 0.0

    def end_play(self) -> None:
        """Write the end of the current play, if there is one."""
        if self.play:
            tell("play", self.play, time.monotonic() - self.play_began)
        self.play = ""

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.playbook, self.playbook_began = Path(playbook._file_name).name, time.monotonic()
        tell("playbook", self.playbook)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.end_play()
        self.play, self.play_began = f"{self.playbook}: {play.get_name()}", time.monotonic()
        tell("play", self.play)

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002 - Ansible calls it by this name
        self.end_play()
        tell("playbook", self.playbook, time.monotonic() - self.playbook_began)
