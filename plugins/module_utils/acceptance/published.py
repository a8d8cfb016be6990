# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Floors that others have published, each for its own machine, test, number of nodes and size alone.

Left out are limits that do not say for which collective and size they hold, as those of Google's cluster-health-scanner
(`BANDWIDTH_THRESHOLD` of its nccl_healthcheck.yaml, for messages from 2 to 8 GiB), and figures for one NIC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GIB = 2**30
_AZURE = "Azure/azurehpc-health-checks, conf/"


@dataclass(frozen=True)
class PublishedMachine:
    """What is known of a machine type that figures can be for."""

    gpu: str
    """The type of its GPUs, as Slurm has it: h100."""
    gpus: int
    platform: str = ""
    """The name of the machine at its cloud, such as a3-megagpu-8g, if the site names it."""


@dataclass(frozen=True)
class PublishedFigure:
    """A floor, and where it is from."""

    test: str
    gpu: str
    gpus: int
    nodes: int
    size: int | None
    """Bytes; None where the source names none."""
    floor: float
    source: str
    platform: str = ""
    """The machine at its cloud that it is for; empty for all with these GPUs."""


FIGURES = (
    PublishedFigure("all_reduce_node", "h100", 8, 1, 16 * _GIB, 460.0, f"{_AZURE}nd96isr_h100_v5.conf"),
    PublishedFigure("all_reduce_node", "h200", 8, 1, 16 * _GIB, 431.0, f"{_AZURE}nd96isr_h200_v5.conf"),
    PublishedFigure("all_reduce_node", "a100", 8, 1, 8 * _GIB, 228.0, f"{_AZURE}nd96asr_v4.conf"),
    PublishedFigure("all_reduce_node", "h100", 2, 1, 16 * _GIB, 208.0, f"{_AZURE}nc80adis_h100_v5.conf"),
    PublishedFigure("host_to_gpu", "h200", 8, 1, None, 48.0, f"{_AZURE}nd96isr_h200_v5.conf (check_gpu_bw)"),
    PublishedFigure("gpu_to_gpu", "h200", 8, 1, None, 335.0, f"{_AZURE}nd96isr_h200_v5.conf (check_gpu_bw)"),
    PublishedFigure("host_to_gpu", "h100", 8, 1, None, 48.0, f"{_AZURE}nd96is_h100_v5.conf (check_gpu_bw)"),
    PublishedFigure("gpu_to_gpu", "h100", 8, 1, None, 335.0, f"{_AZURE}nd96is_h100_v5.conf (check_gpu_bw)"),
    *(
        PublishedFigure(test, "h100", 1, 1, None, 52.0, f"{_AZURE}nc40ads_h100_v5.conf (check_cuda_bw)")
        for test in ("host_to_gpu", "gpu_to_host")
    ),
    # The source gives 188.7 as what was measured; 5 % less is the tolerance of the test.
    PublishedFigure(
        "all_gather_pair",
        "h100",
        8,
        2,
        8 * _GIB,
        179.2,
        "GoogleCloudPlatform/cluster-toolkit, examples/gke-a3-megagpu (188.7 GB/s), less the tolerance of the test",
        "a3-megagpu-8g",
    ),
)


def published_floor(
    machines: Mapping[str, PublishedMachine], hardware: str, test: str, nodes: int, size: int | None
) -> PublishedFigure | None:
    """The published floor for a value, if there is one for exactly this; one for the machine's cloud comes first."""
    machine = machines.get(hardware)
    found = [
        figure
        for figure in FIGURES
        if machine
        and (figure.test, figure.gpu, figure.gpus, figure.nodes) == (test, machine.gpu, machine.gpus, nodes)
        and figure.size in (None, size)
        and figure.platform in ("", machine.platform)
    ]
    return max(found, key=lambda figure: bool(figure.platform), default=None)
