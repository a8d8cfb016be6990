# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance program's figures of a GPU, compared with published ones.

slurm-accept takes PyTorch from a container of apptainer. Here PyTorch is the machine's own: a directory of the root
shows the machine's files, as an unpacked image would, and a short script runs commands there in place of apptainer.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from statistics import median, stdev
from typing import Any

from root import Root
from steps import StepError

JOBS = 12
"""Jobs at most, for the noise of a GPU."""
FEWEST = 3
"""Jobs that the judgement wants; more of a stand-in say nothing."""
SECONDS = 120
"""The time of all jobs. They come last, so the other steps keep theirs."""
RESERVE = 10
"""Seconds of the whole check that are left when they end: slurmctld's last lines are logged then."""

MACHINE = "/pytorch-"
"""The directory that shows the machine's files; the release of PyTorch follows, since results name their image."""
PLACE = "/slurm-accept"
"""The directory of the program and of the outputs, in the root and in what is shown as image. It is at the top, since
what lies below is the machine's."""
RUNTIME = "/usr/local/bin/apptainer"

_GEN5 = 64.0
_HOPPER = {"gpu_matrix": 989.4, "host_to_gpu": _GEN5, "gpu_to_host": _GEN5}
PEAKS = {
    "NVIDIA H100 80GB HBM3": {"gpu_memory_bandwidth": 3350.0, **_HOPPER},
    "NVIDIA H200": {"gpu_memory_bandwidth": 4800.0, **_HOPPER},
}
"""What NVIDIA's data sheets of the H100 SXM and the H200 SXM promise, by the GPU's name: GB/s, and TFLOP/s of bf16,
which are half of those that the sheets give with sparsity (1,979). PCIe 5.0 x16 has 128 GB/s in both directions
together."""
LEAST = 0.7
"""The share of a peak that a healthy GPU reaches at least. The first H100 and H200 reached 81 to 90 % by gpu_load
(docs/design/device.md)."""
MEASURED = ("gpu_memory_bandwidth", "gpu_matrix", "host_to_gpu", "gpu_to_host")
"""The tests of one GPU that need PyTorch, and so have to have a value where it is there."""


def runtime(python: str, environment: Mapping[str, str]) -> str:
    """The script in place of apptainer. python: the directory of a Python that has PyTorch in this environment."""
    path = ":".join(filter(None, (python, environment.get("PATH"))))
    return f"""#!/bin/sh
# In place of apptainer: it runs a command with the machine's own files instead of an image.
test "$1" = exec || exit 2
shift
while test "${{1#-}}" != "$1"; do shift; done
image=$1
shift
exec chroot "$image" env {shlex.quote(f"PATH={path}")} \\
  {shlex.quote(f"LD_LIBRARY_PATH={environment.get('LD_LIBRARY_PATH', '')}")} PYTHONPATH={PLACE}/python "$@"
"""


def install(root: Root, program: str, files: Sequence[Mapping[str, str]]) -> None:
    """Install slurm-accept in the root at the path of a program, and what takes the place of apptainer."""
    directory, name = os.path.split(program)
    # The program looks for itself in the container, where /usr is the machine's.
    for file in files:
        path, content = (file[key].replace(directory, PLACE) for key in ("path", "content"))
        root.write(path, content, int(file.get("mode", "0644"), 8))
    root.inner(program).parent.mkdir(parents=True, exist_ok=True)
    root.inner(program).symlink_to(f"{PLACE}/{name}")
    root.write(RUNTIME, runtime(os.path.dirname(sys.executable), os.environ), 0o755)


def shown(result: dict[str, Any], model: str, with_torch: bool) -> str:
    """The figures with the published ones, in one line.

    Args:
        result: `values`, `missed`, `errors`, `findings`, `again` and `floors` of inside.py, accept_read.
        model: the name of the GPU.
        with_torch: whether PyTorch is there.

    Raises:
        StepError: something is slow, broken, faster than it can be, or has no value.
    """
    peaks = PEAKS.get(model, {})
    values: dict[tuple[str, int], list[float]] = {}
    checks: dict[str, bool] = {}
    units = {}
    for value in result["values"]:
        if value["unit"] == "ok":
            checks[value["test"]] = checks.get(value["test"], True) and value["value"] == 1
        else:
            values.setdefault((value["test"], value["gpu"]), []).append(value["value"])
            units[value["test"]] = value["unit"]
    wrong = [*result["errors"], *result["findings"]]
    wrong += [f"{test} was slow in some jobs" for test in result["again"]]
    if not with_torch:
        result["missed"].append("gpu_matrix: this machine has no PyTorch")
    else:
        wrong += [f"{test} has no value" for test in MEASURED if test not in units]
    figures = []
    for (test, gpu), own in values.items():
        middle, peak, floor = median(own), peaks.get(test), result["floors"].get(test)
        noise = f", noise {100 * stdev(own) / middle:.2f} %" if len(own) > 1 else ""
        others = f"published {peak:g}" if peak else "nothing published"
        others += f", floor {floor:g}" if floor else ""
        which = f" of GPU {gpu}" if gpu else ""
        figures.append(f"{test}{which} {middle:.4g} {units[test]}{noise} ({others})")
        if peak and middle > peak:
            wrong.append(f"{test}: {middle:.4g} {units[test]} are more than the hardware can do")
        if peak and middle < LEAST * peak:
            wrong.append(f"{test}: {middle:.4g} {units[test]} are {100 * middle / peak:.0f} % of what is published")
    good = [test for test, right in checks.items() if right]
    figures.append(f"{len(good)} checks are right{': ' if good else ''}{', '.join(good)}")
    figures += [f"not measured: {line}" for line in result["missed"]]
    if wrong:
        raise StepError(f"{' | '.join(wrong)}; {'; '.join(figures)}")
    return "; ".join(figures)
