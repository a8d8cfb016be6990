# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection measures, judged by the slurmd of the nodes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from judge import VARIANTS, differences, write_random_machines
from lab import Lab


@pytest.mark.parametrize(
    ("seeds", "variants"),
    [
        pytest.param(range(200), VARIANTS[:1], id="as they are"),
        pytest.param(range(200, 240), VARIANTS[1:], id="with SlurmdParameters"),
    ],
)
def test_slurmd_says_the_same_of_random_machines(
    lab: Lab, seeds: range, variants: tuple[str, ...], tmp_path: Path
) -> None:
    def run(script: str, archive: bytes) -> str:
        command = ["ssh", "-F", str(lab.ssh_config), lab.nodes[-1], f"sudo sh -c {shlex.quote(script)}"]
        return subprocess.run(command, input=archive, stdout=subprocess.PIPE, check=True).stdout.decode()

    write_random_machines(tmp_path, seeds)
    assert not differences(tmp_path, run, variants)


@pytest.mark.parametrize("parameters", [[], ["numa_node_as_socket"]], ids=["as they are", "with SlurmdParameters"])
def test_the_module_and_slurmd_say_the_same_of_the_nodes(lab: Lab, parameters: list[str], tmp_path: Path) -> None:
    options = {"device_files": ["/dev/nvidia[0-7]"], "slurmd_parameters": parameters}
    task = {"name": "Measure", "gpucluster.slurm.slurm_hardware_facts": options}
    play = {"hosts": "slurm_compute", "become": True, "gather_facts": False, "tasks": [task]}
    (tmp_path / "measure.yml").write_text(json.dumps([play]))
    run = lab.playbook(str(tmp_path / "measure.yml"))
    assert run.failed == {}
    results = {host: result for host, name, result in run.results if name == "Measure"}
    assert sorted(results) == ["compute01", "compute02"]
    for host, result in results.items():
        facts = result["ansible_facts"]["slurm_hardware"]
        assert result["differences"] == []
        assert facts["device_files"] == ["/dev/nvidia0", "/dev/nvidia1"]
        # What slurmd has found when it started.
        found = re.findall(r"Memory=(\d+) TmpDisk=(\d+)", lab.command(host, "cat /var/log/slurm/slurmd.log"))
        assert (str(facts["real_memory"]), str(facts["tmp_disk"])) == found[-1]
