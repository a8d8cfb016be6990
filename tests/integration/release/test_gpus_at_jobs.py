# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health check before and after jobs with GPUs, on another release of Slurm."""

from __future__ import annotations

from collections.abc import Callable

import gpus_at_jobs
import pytest
from gpus_at_jobs import GpuNode
from lab import Lab


@pytest.mark.parametrize(
    "see",
    [
        gpus_at_jobs.see_a_broken_gpu_before_a_job,
        gpus_at_jobs.see_that_an_error_of_a_program_stops_nothing,
        gpus_at_jobs.see_what_a_job_has_left,
    ],
)
def test_gpus_are_seen_before_and_after_a_job(lab: Lab, see: Callable[[GpuNode], None]) -> None:
    if not lab.has_sackd:
        pytest.skip("slurmctld of this release sends no prologs")
    see(GpuNode(lab, lab.controller, lab.nodes[-1]))
