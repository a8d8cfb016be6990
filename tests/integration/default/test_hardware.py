# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware that the collection measures, compared with the slurmd of the nodes."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from check_topology import VARIANTS, collection_says, slurm_says, write_random_machines
from lab import Lab


@pytest.fixture(name="dumps")
def directory_in_memory() -> Iterator[Path]:
    """In memory, because thousands of small files keep a disk busy; removed at the end, which pytest does not do."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    ("seeds", "variants"),
    [
        pytest.param(range(100), VARIANTS[:1], id="as they are"),
        pytest.param(range(100, 120), VARIANTS[1:], id="with SlurmdParameters"),
    ],
)
def test_slurmd_says_the_same_of_random_machines(
    lab: Lab, seeds: range, variants: tuple[str, ...], dumps: Path
) -> None:
    if variants != VARIANTS[:1] and lab.release == "22.05":
        pytest.skip("slurmd -G of 22.05 does not say what it has found")
    # Most of the result depends on hwloc and not on Slurm: a half of the machines is enough for another release.
    others = lab.release != "24.11"
    write_random_machines(dumps, seeds[: len(seeds) // 2] if others else seeds)
    said = slurm_says(dumps, lambda script, data: lab.script(lab.nodes[-1], script, data).decode(), variants)
    assert {name for name, _variant in said} == {dump.name for dump in dumps.iterdir()}
    own = {(name, variant): collection_says(dumps / name, variant) for name, variant in said}
    if others:
        # With two kinds of cores, 22.05 always counts all of them, and the hwloc of 26.05 uses more than these files to
        # tell them apart.
        one_kind = [key for key in own if own[key] == collection_says(dumps / key[0], f"{key[1]},allow_ecores")]
        assert len(one_kind) > len(own) / 2
        said, own = ({key: numbers[key] for key in one_kind} for numbers in (said, own))
    assert said == own


def test_the_module_and_slurmd_say_the_same_of_the_nodes(lab: Lab, tmp_path: Path) -> None:
    tasks = [
        {
            "name": f"Measure {parameters}",
            "gpucluster.slurm.slurm_hardware_facts": {
                "device_files": ["/dev/nvidia[0-7]"],
                "slurmd_parameters": parameters,
            },
        }
        for parameters in ([], ["numa_node_as_socket"])
    ]
    play = {"hosts": "slurm_compute", "become": True, "gather_facts": False, "tasks": tasks}
    (tmp_path / "measure.yml").write_text(json.dumps([play]))
    run = lab.playbook(str(tmp_path / "measure.yml"))
    assert run.failed == {}
    results = [(host, result) for host, name, result in run.results if name.startswith("Measure")]
    assert sorted(host for host, _result in results) == sorted(lab.nodes * 2)
    for host, result in results:
        facts = result["ansible_facts"]["slurm_hardware"]
        assert result["differences"] == []
        assert facts["device_files"] == lab.command(host, "find /dev -name 'nvidia[0-7]' | sort").split()
        # The hardware that slurmd found when it started.
        found = re.findall(r"Memory=(\d+) TmpDisk=(\d+)", lab.command(host, "cat /var/log/slurm/slurmd.log"))
        assert (str(facts["real_memory"]), str(facts["tmp_disk"])) == found[-1]
