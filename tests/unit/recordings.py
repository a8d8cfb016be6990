# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real machine with an NVIDIA H200 said of itself (recorded/README.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from sysfs import Memory

H200 = Path(__file__).parent / "recorded/h200"


def tree() -> Memory:
    """Its files in /proc and /sys."""
    return Memory("/recorded/h200", json.loads((H200 / "tree.json").read_text()))


def answer(directory: str, name: str) -> tuple[int, str]:
    """Exit status and output of a command."""
    output, _word, status = (H200 / directory / name).read_text().removesuffix("]\n").rpartition("\n[status ")
    return int(status), output


def nvidia_smi(words: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and output of nvidia-smi with these arguments. Raises FileNotFoundError for others than recorded."""
    # The names that tests/device/recording.py gives (`file_name`).
    return answer("nvidia-smi", re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(words)).strip("-")[:80].rstrip("-.") or "plain")


def query_gpu(fields: Sequence[str]) -> str:
    """The line of `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits`, from the recording of all fields."""
    _status, output = answer("nvidia-smi", "query-gpu-all-fields")
    heading, row = (line.split(", ") for line in output.strip().splitlines())
    units = {name.partition(" ")[0]: name.partition(" ")[2].strip("[]") for name in heading}
    values = dict(zip(units, row))
    return ", ".join(values[field].removesuffix(f" {units[field]}") for field in fields) + "\n"


def driver_files() -> dict[str, str]:
    """What NVIDIA's driver has in /proc/driver, by path below it."""
    files = json.loads((H200 / "tree.json").read_text())
    start = "proc/driver/"
    return {path[len(start) :]: text for path, text in files.items() if path.startswith(start)}


def slurm(name: str) -> str:
    """The output of one of Slurm's programs, which ended with 0, or one of its files."""
    if "conf" in name:
        return (H200 / "slurm" / name).read_text()
    status, output = answer("slurm", name)
    assert status == 0
    return output
