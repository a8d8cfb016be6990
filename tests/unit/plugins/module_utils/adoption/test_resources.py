# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic resources of other files as entries of a machine type, or in Slurm's notation."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.resources import express
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import render
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.equivalence import lines_for, resources

MACHINE = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 1, "real_memory": 1000}

Entry = dict[str, Any]

CASES: dict[str, tuple[str, tuple[str, ...], list[Entry], str, list[str]]] = {
    "devices, and those of one socket together": (
        "gpu:h100:4",
        (
            "Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-3",
            "Name=gpu Type=h100 File=/dev/nvidia1 CPUs=0-3",
            "Name=gpu Type=h100 File=/dev/nvidia[2-3] Cores=4-7",
        ),
        [
            {"name": "gpu", "type": "h100", "cores": "0-3", "file": "/dev/nvidia[0-1]"},
            {"name": "gpu", "type": "h100", "cores": "4-7", "file": "/dev/nvidia[2-3]"},
        ],
        "",
        [],
    ),
    "a type that Slurm ignores": (
        "gpu:2",
        ("Name=gpu Type=a100 File=/dev/nvidia[0-1]",),
        [{"name": "gpu", "file": "/dev/nvidia[0-1]"}],
        "",
        [],
    ),
    "detected, with shares": (
        "gpu:a100:2,shard:a:8,shard:8",
        ("AutoDetect=nvml", "Name=shard Count=8"),
        [{"name": "gpu", "type": "a100", "count": 2, "autodetect": "nvml"}],
        "shard:a:8,shard:8",
        ["Name=shard Count=8"],
    ),
    "GPUs of Intel, which the cluster file cannot have": (
        "gpu:max:2",
        ("AutoDetect=oneapi",),
        [],
        "gpu:max:2",
        ["AutoDetect=oneapi"],
    ),
    "links without a device file": (
        "gpu:2",
        ("Name=gpu File=/dev/nvidia0", "Name=gpu Links=-1,2 Count=1"),
        [],
        "gpu:2",
        ["Name=gpu File=/dev/nvidia0", "Name=gpu Links=-1,2 Count=1"],
    ),
    "mps on one of two GPUs": (
        "gpu:2,mps:100",
        ("Name=gpu File=/dev/nvidia[0-1]", "Name=mps Count=100 File=/dev/nvidia0"),
        [{"name": "gpu", "file": "/dev/nvidia[0-1]"}, {"name": "mps", "count": 100, "file": "/dev/nvidia0"}],
        "",
        [],
    ),
    "detected, with shares that have no line": (
        "gpu:2,shard:8",
        ("AutoDetect=nvml",),
        [{"name": "gpu", "count": 2, "autodetect": "nvml"}, {"name": "shard", "count": 8}],
        "",
        [],
    ),
    "a count with a unit": ("disk:500G", (), [{"name": "disk", "count": 500 * 1024**3}], "", []),
    "no_consume, next to what can be expressed": (
        "gpu:1,lustre:no_consume:4K",
        ("Name=gpu File=/dev/nvidia0", "Name=lustre Count=4K"),
        [{"name": "gpu", "file": "/dev/nvidia0"}],
        "lustre:no_consume:4K",
        ["Name=lustre Count=4K"],
    ),
    "GPUs without a file": ("gpu:tesla:2", (), [], "gpu:tesla:2", []),
    "fewer files than Gres has": (
        "gpu:4",
        ("Name=gpu File=/dev/nvidia[0-1]",),
        [],
        "gpu:4",
        ["Name=gpu File=/dev/nvidia[0-1]"],
    ),
    "several files of a device": (
        "gpu:1",
        ("Name=gpu MultipleFiles=/dev/nvidia[0-1]",),
        [],
        "gpu:1",
        ["Name=gpu MultipleFiles=/dev/nvidia[0-1]"],
    ),
    "links": (
        "gpu:2",
        ("Name=gpu File=/dev/nvidia0 Links=-1,4", "Name=gpu File=/dev/nvidia1 Links=4,-1"),
        [
            {"name": "gpu", "links": "-1,4", "file": "/dev/nvidia0"},
            {"name": "gpu", "links": "4,-1", "file": "/dev/nvidia1"},
        ],
        "",
        [],
    ),
    "none": ("gpu:0", (), [], "", []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_keeps_what_it_has(case: str) -> None:
    value, lines, entries, text, texts = CASES[case]
    found = express(value, lines, MACHINE)
    assert (found.entries, found.text, found.texts) == (entries, text, texts)
    machine = {**MACHINE, "gres": found.entries, "Gres": found.text, "gres_conf": found.texts}
    assert resources(render.gres_value(machine) or "", render.machine_records(machine)) == resources(value, lines)


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        ("gpu:3", ("Name=gpu File=/dev/nvidia[0-1]",)),
        ("gpu:2", ("Name=gpu File=/dev/nvidia[0,2]",)),
        ("gpu:2", ("Name=gpu File=/dev/nvidia[0-1] Cores=0-3",)),
        ("gpu:2", ("AutoDetect=nvml", "Name=gpu File=/dev/nvidia[0-1]")),
        ("gpu:a100:2", ("Name=gpu File=/dev/nvidia[0-1]",)),
        ("gpu:no_consume:2", ("Name=gpu File=/dev/nvidia[0-1]",)),
    ],
)
def test_what_means_something_else(other: str, lines: tuple[str, ...]) -> None:
    assert resources("gpu:2", ("Name=gpu File=/dev/nvidia[0-1]",)) != resources(other, lines)


def test_only_lines_of_its_own_names_matter_to_a_node() -> None:
    everywhere, own = ("AutoDetect=nvml", "Name=nic Count=2"), ("Name=gpu File=/dev/nvidia0",)
    assert lines_for("gpu:1", own, everywhere) == ("AutoDetect=nvml", "Name=gpu File=/dev/nvidia0")
    assert lines_for("nic:2", own, everywhere) == ("Name=nic Count=2",)
    assert lines_for("", own, everywhere) == ()
