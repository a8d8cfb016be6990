# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_service decides; what it does to real services is shown in tests/integration."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_service

UNIT = {"NeedDaemonReload": "no", "UnitFileState": "enabled", "ActiveState": "active"}
PARAMS: dict[str, Any] = {"name": "munge", "files": [], "reload": None, "pending": False}


@pytest.mark.parametrize(
    ("unit", "params", "actions"),
    [
        ({}, {}, []),
        ({"ActiveState": "reloading"}, {}, []),
        ({"ActiveState": "inactive"}, {}, ["start"]),
        ({"ActiveState": "failed", "UnitFileState": "disabled"}, {}, ["enable", "start"]),
        ({"UnitFileState": "static"}, {}, []),
        ({"NeedDaemonReload": "yes"}, {}, ["daemon-reload"]),
        ({}, {"pending": True}, ["restart"]),
        ({}, {"pending": True, "reload": ["scontrol", "reconfigure"]}, ["reload"]),
        ({"ActiveState": "inactive"}, {"pending": True}, ["start"]),
    ],
)
def test_actions(unit: dict[str, str], params: dict[str, object], actions: list[str]) -> None:
    assert slurm_service.plan(UNIT | unit, PARAMS | params, loaded=0.0)[0] == actions


def test_a_file_that_is_newer_than_the_service_is_the_reason(tmp_path: Path) -> None:
    key = tmp_path / "munge.key"
    key.write_text("")
    absent = str(tmp_path / "absent")
    params = PARAMS | {"files": [absent, str(key)]}
    written = key.stat().st_mtime
    assert slurm_service.plan(UNIT, params, written + 1) == ([], "")
    assert slurm_service.plan(UNIT, params, written - 1) == (["restart"], f"{key} is newer than what munge has loaded")


def test_a_reload_counts_as_loading_and_an_older_one_does_not(tmp_path: Path) -> None:
    started = {"InactiveExitTimestampMonotonic": str(int((time.clock_gettime(time.CLOCK_MONOTONIC) - 60) * 1e6))}
    stamp = tmp_path / "slurmctld"
    assert slurm_service.loaded_at(started, str(stamp)) == pytest.approx(time.time() - 60, abs=5)
    stamp.write_text("")
    assert slurm_service.loaded_at(started, str(stamp)) == stamp.stat().st_mtime
    os.utime(stamp, (0, 0))
    assert slurm_service.loaded_at(started, str(stamp)) == pytest.approx(time.time() - 60, abs=5)
