# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_hardware_facts returns, of a dump and of the machine that runs the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from ansible_collections.gpucluster.slurm.plugins.modules import slurm_hardware_facts
from sysfs import Gpu, Machine


def measured(sysroot: Path, **programs: Path) -> tuple[dict[str, Any], Mock]:
    """The result for a machine on which only these programs are installed."""
    module = Mock(params={"sysroot": str(sysroot)})
    module.get_bin_path.side_effect = lambda name, **_options: str(programs[name]) if name in programs else None
    return slurm_hardware_facts.measure(module), module


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_dump_is_asked_for_files_only(tmp_path: Path) -> None:
    machine = Machine(packages=2, threads=2, memory_kb=4_194_304, gpus=(Gpu("0000:07:00.0", minor=0),))
    result, module = measured(machine.write(tmp_path))
    facts = result["ansible_facts"]["slurm_hardware"]
    assert {key: facts[key] for key in facts if key != "gpus"} == {
        "cpus": 16,
        "boards": 1,
        "sockets_per_board": 2,
        "cores_per_socket": 4,
        "threads_per_core": 2,
        "real_memory": 4096,
    }
    assert [gpu["type"] for gpu in facts["gpus"]] == ["h100"]
    assert result["differences"] == []
    module.get_bin_path.assert_not_called()


def test_slurmd_disagrees(tmp_path: Path) -> None:
    result, module = measured(Path("/"), slurmd=program(tmp_path / "slurmd", "echo NodeName=n1 CPUs=9999 Boards=1"))
    (difference,) = (item for item in result["differences"] if item["name"] == "cpus")
    assert difference["slurmd"] == 9999
    assert difference["measured"] == result["ansible_facts"]["slurm_hardware"]["cpus"]
    assert "slurmd says 9999" in module.warn.call_args_list[0][0][0]


def test_slurmd_fails(tmp_path: Path) -> None:
    result, module = measured(Path("/"), slurmd=program(tmp_path / "slurmd", "exit 3"))
    assert result["differences"] == []
    assert "exit status 3" in module.warn.call_args[0][0]
