# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for the locks of apt and dpkg."""

from __future__ import annotations

from unittest import mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import apt_lock
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages.apt_lock import run_unlocked

LISTS = (
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 650 (apt-get)\n"
    "E: Unable to lock directory /var/lib/apt/lists/\n"
)
DPKG = "dpkg: error: dpkg frontend lock was locked by another process with pid 650\n"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_lock, "PAUSE", 0)


@pytest.mark.parametrize("locked", [(100, "", LISTS), (2, "", DPKG)], ids=["apt", "dpkg"])
def test_a_command_is_run_again_while_another_holds_the_lock(locked: tuple[int, str, str]) -> None:
    module = mock.Mock()
    module.run_command.side_effect = [locked, locked, (0, "done", "")]
    assert run_unlocked(module, ["apt-get", "update"], {"LC_ALL": "C"}) == (0, "done", "")
    assert module.run_command.call_count == 3


def test_another_failure_is_not_tried_again() -> None:
    module = mock.Mock()
    module.run_command.return_value = (100, "", "E: Unable to locate package munge\n")
    assert run_unlocked(module, ["apt-get", "install"], {})[0] == 100
    assert module.run_command.call_count == 1


def test_a_lock_that_is_not_released_is_reported() -> None:
    module = mock.Mock()
    module.run_command.return_value = (100, "", LISTS)
    assert run_unlocked(module, ["apt-get", "update"], {}, seconds=-1) == (100, "", LISTS)
