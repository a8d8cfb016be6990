# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of slurm_hardware_facts, for a dump and for the machine that runs the test."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import measurement
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import nvidia_gpus as gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import read_topology
from sysfs import Gpu, Machine


def measured(sysroot: Path, options: dict[str, Any] | None = None, **programs: Path) -> tuple[dict[str, Any], Mock]:
    """The facts and differences of a machine on which only these programs are installed, and the module."""
    module = Mock()
    module.get_bin_path.side_effect = lambda name, **_options: str(programs[name]) if name in programs else None
    facts, differences = measurement.measure(module, sysroot=str(sysroot), **(options or {}))
    return {"facts": facts, "differences": differences}, module


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_dump_is_asked_for_files_only(tmp_path: Path) -> None:
    machine = Machine(packages=2, threads=2, memory_kb=4_194_304, gpus=(Gpu("0000:07:00.0", minor=0),))
    result, module = measured(machine.write(tmp_path))
    facts = result["facts"]
    assert {key: facts[key] for key in facts if key != "gpus"} == {
        "cpus": 16,
        "boards": 1,
        "sockets_per_board": 2,
        "cores_per_socket": 4,
        "threads_per_core": 2,
        "real_memory": 4096,
        "cpuless_memory": 0,
        "tmp_disk": None,
        "device_files": [],
        "ports": [],
    }
    assert [gpu["type"] for gpu in facts["gpus"]] == ["h100"]
    assert result["differences"] == []
    module.get_bin_path.assert_not_called()


def test_a_slurmd_that_ends_by_a_signal_is_named_with_its_host(tmp_path: Path) -> None:
    """Ansible shows the warning without the host, and the message of a signal has been `exit status -11`."""
    _result, module = measured(Path("/"), slurmd=program(tmp_path / "slurmd", "kill -SEGV $$"))
    (said,) = (call[0][0] for call in module.warn.call_args_list if "slurmd" in call[0][0])
    assert said == f"{platform.node()}: slurmd: ended by SIGSEGV; the hardware is measured without it"


def test_slurmd_disagrees(tmp_path: Path) -> None:
    result, module = measured(Path("/"), slurmd=program(tmp_path / "slurmd", "echo NodeName=n1 CPUs=9999 Boards=1"))
    (difference,) = (item for item in result["differences"] if item["name"] == "cpus")
    assert difference["slurmd"] == 9999
    assert difference["measured"] == result["facts"]["cpus"]
    assert "slurmd reports 9999" in module.warn.call_args_list[0][0][0]


def test_slurmd_fails(tmp_path: Path) -> None:
    result, module = measured(Path("/"), slurmd=program(tmp_path / "slurmd", "exit 3"))
    assert result["differences"] == []
    assert "exit status 3" in module.warn.call_args[0][0]


ROW = "0, 00000000:07:00.0, 81559"
LISTED = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)"
QUERIED = " ".join(("nvidia-smi", *gpus.QUERY))
SHOWN = "the output has no line for the GPU 0000:07:00.0, which the driver has"


@pytest.mark.parametrize(
    ("query", "listing", "warnings"),
    [
        pytest.param(ROW, LISTED, [], id="right"),
        pytest.param(
            "0, 00000000:07:00.0, [N/A]", f"{LISTED}\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)", [], id="N/A"
        ),
        pytest.param(
            "what, is: this, ,,,",
            "what",
            [
                f"{QUERIED}: found 'what, is: this, ,,,', which is not understood",
                f"{QUERIED}: {SHOWN}",
                "nvidia-smi -L: found 'what', which is not understood",
            ],
            id="garbage",
        ),
        pytest.param("", "", [f"{QUERIED}: {SHOWN}", "nvidia-smi -L: the output has no GPU"], id="nothing"),
        pytest.param("0, 00000000:08:00.0, 81559", LISTED, [f"{QUERIED}: {SHOWN}"], id="another-gpu"),
        pytest.param(
            f"{ROW}\nWARNING: infoROM is corrupted at gpu 0000:07:00.0",
            LISTED,
            [f"{QUERIED}: found 'WARNING: infoROM is corrupted at gpu 0000:07:00.0', which is not understood"],
            id="a-warning-of-its-own",
        ),
    ],
)
def test_an_answer_of_nvidia_smi_that_is_not_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, listing: str, warnings: list[str]
) -> None:
    """Although nvidia-smi ends with 0, it is no answer."""
    monkeypatch.setattr(gpus, "DRIVER", str(tmp_path / "driver"))
    (tmp_path / "driver/0000:07:00.0").mkdir(parents=True)
    (tmp_path / "-L").write_text(listing)
    (tmp_path / "query").write_text(query)
    script = f"case $1 in -L) cat {tmp_path}/-L ;; *) cat {tmp_path}/query ;; esac"
    _result, module = measured(Path("/"), None, **{"nvidia-smi": program(tmp_path / "nvidia-smi", script)})
    host = platform.node()
    assert [call[0][0] for call in module.warn.call_args_list] == [f"{host}: {text}" for text in warnings]


def test_slurmd_knows_no_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = Tree(str(Machine(cores=8, caches=4).write(tmp_path / "dump")))
    monkeypatch.setattr(measurement, "read_topology", lambda _tree, given=(): read_topology(dump, given))
    says = "echo NodeName=n1 CPUs=8 SocketsPerBoard=1 CoresPerSocket=9999"
    options = {"slurmd_parameters": ["l3cache_as_socket"]}
    result, _module = measured(Path("/"), options, slurmd=program(tmp_path / "slurmd", says))
    assert result["differences"] == [{"name": "cores_per_socket", "measured": 8, "slurmd": 9999}]
    assert result["facts"]["sockets_per_board"] == 4


def test_slurmd_parameters(tmp_path: Path) -> None:
    dump = Machine(cores=8, caches=4).write(tmp_path)
    facts = measured(dump, {"slurmd_parameters": ["l3cache_as_socket"]})[0]["facts"]
    assert (facts["sockets_per_board"], facts["cores_per_socket"]) == (4, 2)


def test_device_files(tmp_path: Path) -> None:
    dump = Machine().write(tmp_path)
    (dump / "dev").mkdir()
    for name in ("nvidia1", "nvidia3", "fpga0"):
        (dump / "dev" / name).touch()
    facts = measured(dump, {"device_files": ["/dev/nvidia[3,0-2]", "/dev/fpga0"]})[0]["facts"]
    assert facts["device_files"] == ["/dev/nvidia3", "/dev/nvidia1", "/dev/fpga0"]


def test_device_files_that_are_no_hostlist(tmp_path: Path) -> None:
    with pytest.raises(measurement.MeasurementError, match="device_files: bad hostlist"):
        measured(Machine().write(tmp_path), {"device_files": ["/dev/nvidia[0-x]"]})


def test_size_of_the_temporary_file_system(tmp_path: Path) -> None:
    found, missing = (
        measured(Path("/"), {"tmp_fs": str(path)})[0]["facts"]["tmp_disk"] for path in (tmp_path, tmp_path / "missing")
    )
    assert found == shutil.disk_usage(tmp_path).total // 2**20
    assert missing == 0
