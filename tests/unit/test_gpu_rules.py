# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of GPU hours of role slurm_metrics, with promtool and known loads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", ROOT / "roles/slurm_metrics/files/rules/gpus.yml"],
        ["test", "rules", ROOT / "tests/rules/gpus.yml"],
    ],
)
def test_promtool_has_no_objection(command: list[str]) -> None:
    done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
