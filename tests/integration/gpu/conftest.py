# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of scenario gpu share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab


@pytest.fixture(name="running")
def a_job_that_runs(lab: Lab) -> Iterator[str]:
    """A job on gpu01, by its number. It is ended with the test, or it would stand in the way of the next."""
    job = lab.command("gpuhead", "sbatch --parsable -w gpu01 --output=/dev/null --wrap 'sleep 900'")
    lab.wait_for("gpuhead", f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    lab.host("gpuhead").run(f"scancel {job}")
    lab.wait_until_idle("gpuhead", "gpu01")
