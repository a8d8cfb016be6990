# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each expression of the dashboard of GPUs gives series: with a real Prometheus, and series of a node with GPUs.

Clusters of the lab have no GPUs, so that tests/integration/metrics cannot show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_accounting import Values, minutes, prometheus
from programs import load

pytestmark = pytest.mark.once

FILE = Path(__file__).parents[2] / "roles/slurm_metrics/files/dashboards/gpus.json"
START, END = 1770714000, 1770714000 + 3600
PERSON = 'user="ann",account="physics",partition="gpu",slurmjobid="7",gpu="0",instance="n1"'
GPU = 'gpu="0",UUID="GPU-1",instance="n1",hpc_job="7"'
SERIES: dict[str, float] = {
    f"gpucluster_job_gpu_share{{{PERSON}}}": 1,
    'gpucluster_gpu_allocated{gpu="0",instance="n1"}': 1,
    'gpucluster_gpu_query_hanging{instance="n1"}': 0,
    'gpucluster_gpu_slowed{gpu="0",reason="hw_slowdown",instance="n1"}': 1,
    **{f"DCGM_FI_DEV_{name}{{{GPU}}}": 1 for name in ("ECC_DBE_VOL_TOTAL", "FB_USED", "GPU_TEMP", "GPU_UTIL")},
    f"DCGM_FI_DEV_POWER_USAGE{{{GPU}}}": 300,
    'up{job="node",instance="n1"}': 1,
}


def expressions() -> Iterator[tuple[str, str]]:
    """The title of the panel and the expression, for each query, with the choice of all hosts."""
    for panel in json.loads(FILE.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$host", ".*")


def test_each_expression_gives_series(tmp_path: Path) -> None:
    program = load("metrics.slurm_gpu_hours")
    values: dict[str, Values] = {name: minutes(START, END, value) for name, value in SERIES.items()}
    # 1.2 % of the first 25 minutes, and nothing of the others.
    for kind, share, end in (("measured", 1, END), ("busy", 0.012, START + 1500)):
        counter = [(when, share * (min(when, end) - START)) for when, _value in minutes(START, END, 0)]
        values[f"gpucluster_job_gpu_{kind}_seconds_total{{{PERSON}}}"] = counter
    with prometheus(tmp_path, values, (START, END)) as server:
        found = [(title, program.ask(server, text, END - 60)) for title, text in expressions()]
    assert [title for title, series in found if not series] == []
    # An hour on one GPU of which 0.5 % is used. The end of a load is seen over four minutes.
    figures = [value for title, series in found if title.startswith("GPU hours") for _labels, value in series]
    assert figures == [pytest.approx(hours, rel=error) for hours, error in ((1, 0.04), (1, 0.04), (0.005, 0.1))]
