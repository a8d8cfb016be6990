# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection makes of the recorded answers of a real H200 (recorded/README.md); the stand-ins against it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recordings
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import render
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver, mig
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import nvidia_gpus as gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.pci import PCI
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import (
    differences,
    parse_node_line,
    read_memory,
    read_topology,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import gpu_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import machine_type
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import gpu_driver

COLLECTION = Path(__file__).parents[2]
CHECKS = COLLECTION / "roles/slurm_health/files/checks"
STAND_IN = COLLECTION / "tests/integration/stand_in/nvidia_smi.py"
REPORT = ("-q", "-x")
GPU = {
    "minor": 0,
    "pci_address": "0000:00:06.0",
    "model": "NVIDIA H200",
    "type": "h200",
    "memory_mb": 143771,
    "numa_node": 0,
    "cores": "0-15",
    "mig": [],
}


def facts() -> dict[str, Any]:
    """The fact slurm_hardware of the recorded machine."""
    tree = recordings.tree()
    topology = read_topology(tree)
    usage = gpus.parse_usage(recordings.nvidia_smi(gpus.QUERY)[1], recordings.nvidia_smi(gpus.LIST)[1])
    return {
        **topology.numbers,
        "real_memory": read_memory(tree),
        "gpus": gpus.read_gpus(tree, topology.cores, usage),
    }


# -- facts -------------------------------------------------------------------------------------------------------------


def test_the_gpu() -> None:
    """Its NUMA node is that of `nvidia-smi topo -m`; the kernel says -1 for it, as in most virtual machines."""
    assert facts()["gpus"] == [GPU]
    assert recordings.tree().number(f"{PCI}/0000:00:06.0/numa_node") == -1
    row = recordings.nvidia_smi(("topo", "-m"))[1].splitlines()[1]
    assert row.split("\t")[2:4] == [GPU["cores"], str(GPU["numa_node"])]


def test_nothing_of_the_recorded_answers_is_misunderstood() -> None:
    for arguments in (gpus.QUERY, gpus.LIST):
        assert gpus.misunderstood(recordings.nvidia_smi(arguments)[1]) == ""


def test_cpus_and_memory_are_those_of_slurmd() -> None:
    numbers = parse_node_line(recordings.slurm("slurmd-C"))
    assert numbers == {
        "cpus": 16,
        "boards": 1,
        "sockets_per_board": 1,
        "cores_per_socket": 16,
        "threads_per_core": 1,
        "real_memory": 128887,
    }
    assert differences(facts(), numbers) == []


def test_slurm_names_the_gpu_as_the_collection_expects() -> None:
    detected = gpus.detected_names(facts()["gpus"][0])
    assert detected == ["nvidia_h200"]
    assert f" Gres=gpu:{detected[0]}:1\n" in recordings.slurm("slurmd-C")


def test_the_driver() -> None:
    tree = recordings.tree()
    assert driver.devices(tree) == (["2335"], 0)
    assert driver.loaded_version(tree) == "580.159.04"
    assert driver.generation("2335") == "hopper"
    # The recorded kind is the first of those that the collection would choose.
    assert driver.kernel_modules(["hopper"])[0] == driver.OPEN
    assert "Open Kernel Module" in str(tree.text("/proc/driver/nvidia/version"))
    assert driver.reboot_reasons(driver.loaded_version(tree), "580.159.04", nouveau=False) == []


# -- MIG ---------------------------------------------------------------------------------------------------------------


def test_mig_that_is_off() -> None:
    """`nvidia-smi mig -lgi` then ends with 0, and its message is that of no GPU with MIG."""
    assert recordings.nvidia_smi(mig.INSTANCES) == (0, "No MIG-enabled devices found.\n")
    assert mig.look(recordings.nvidia_smi) == [mig.Gpu(0, "NVIDIA H200", enabled=False, pending=False, capable=True)]
    assert mig.set_layouts(recordings.nvidia_smi, [("h200", 1, ())]) == ([], [])


def test_profiles_of_an_h200_can_be_declared() -> None:
    _status, table = recordings.nvidia_smi(("mig", "-lgip"))
    profiles = re.findall(r"^\|\s+0\s+MIG (\S+)", table, re.MULTILINE)
    assert {"1g.18gb", "1g.18gb+me", "3g.71gb", "7g.141gb"} <= set(profiles)
    for profile in profiles:
        assert mig.layouts([{"name": "gpu", "type": "h200", "mig": {profile: 1}}]) == [("h200", 1, (profile,))]


# -- Slurm -------------------------------------------------------------------------------------------------------------


def test_the_lines_are_those_that_slurm_accepted() -> None:
    """The machine type of the facts gives the lines with which slurmctld had the node IDLE with its GPU."""
    machine, odd = machine_type(facts())
    assert machine is not None
    assert (machine, odd) == (
        {
            "sockets": 1,
            "cores_per_socket": 16,
            "threads_per_core": 1,
            "real_memory": 128384,
            "gres": [{"name": "gpu", "type": "h200", "file": "/dev/nvidia0"}],
        },
        [],
    )
    nodes = [{"hosts": "gpu01", "hardware": "machine", "address": "127.0.0.1"}]
    written = recordings.slurm("slurm.conf")
    for name, entry in (
        ("files", machine["gres"][0]),
        ("nvml", {"name": "gpu", "type": "h200", "count": 1, "autodetect": "nvml"}),
        ("nvidia", {"name": "gpu", "type": "h200", "count": 1, "autodetect": "nvidia"}),
    ):
        hardware = {"machine": {**machine, "gres": [entry]}}
        assert render.gres_lines(nodes, hardware) == recordings.slurm(f"gres.conf-{name}")
        assert render.node_lines(nodes, hardware) in written
    assert " State=IDLE " in recordings.slurm("show-node")
    assert " Gres=gpu:h200:1(S:0) " in recordings.slurm("show-node")


@pytest.mark.parametrize("name", ["files", "nvml", "nvidia"])
def test_slurmd_finds_what_the_node_line_declares(name: str) -> None:
    """`slurmd -G` has the count, type and file of the facts; with AutoDetect it has their cores, too."""
    gres = re.findall(r"^slurmd: Gres (.*)$", recordings.slurm(f"slurmd-G-{name}"), re.MULTILINE)
    (found,) = [dict(pair.partition("=")[::2] for pair in line.split()) for line in gres]
    (gpu,) = facts()["gpus"]
    assert (found["Name"], found["Type"], found["Count"]) == ("gpu", gpu["type"], "1")
    assert found["File"] == f"/dev/nvidia{gpu['minor']}"
    assert found.get("Cores", gpu["cores"]) == gpu["cores"]


# -- health checks -----------------------------------------------------------------------------------------------------


def checked(tmp_path: Path, check: str, changed: dict[tuple[str, ...], str] | None = None) -> tuple[int, str]:
    """Exit status and output of a health check of the recorded machine, some answers of which are changed."""
    answers: dict[tuple[str, ...], tuple[int, str]] = {
        arguments: recordings.nvidia_smi(arguments) for arguments in (gpus.LIST,)
    }
    answers |= {arguments: (0, text) for arguments, text in (changed or {}).items()}
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nstatus, text = {answers!r}[tuple(sys.argv[1:])]\n"
        "sys.stdout.write(text)\nsys.exit(status)\n"
    )
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    machine, _odd = machine_type(facts())
    assert machine is not None
    settings = health_environment([{"hosts": "gpu01", "hardware": "m"}], {"m": machine}, {})["gpu01"]
    assert settings["HEALTH_GPUS"] == "1"
    # The machine that runs the tests has no /dev/nvidia0.
    environment = {**settings, "HEALTH_GPU_FILES": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", str(CHECKS / check)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_good_gpu_is_healthy(tmp_path: Path) -> None:
    assert checked(tmp_path, "gpu") == (0, "")
    report = gpu_findings.read_report(recordings.nvidia_smi(REPORT)[1])
    assert (report.findings, len(report.gpus), len(report.well)) == ([], 1, 1)


def test_a_gpu_that_is_missing_is_noticed(tmp_path: Path) -> None:
    answer = recordings.nvidia_smi(gpus.LIST)[1]
    assert checked(tmp_path, "gpu", {gpus.LIST: answer.replace("GPU 0:", "GPU:")}) == (1, "0 of 1 GPUs\n")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>3<", "gpu-ecc-contained"),
        ("<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>1<", "gpu-ecc"),
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", "gpu-rows-pending"),
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", "gpu-rows-failed"),
        ("<tpc_repair_pending>No<", "<tpc_repair_pending>Yes<", "gpu-repair-pending"),
        ("<current_link_width>16x<", "<current_link_width>8x<", "gpu-pcie"),
        ("<gpu_temp_tlimit>51 C<", "<gpu_temp_tlimit>-3 C<", "gpu-hot"),
        ("hw_slowdown>Not Active<", "hw_slowdown>Active<", "gpu-slowed"),
        ("<state>N/A<", "<state>In Progress<", "gpu-fabric"),
        ("recovery_action>None<", "recovery_action>Reset<", "gpu-recovery-action"),
        ("<used>0 MiB<", "<used>2048 MiB<", "gpu-memory-left"),
    ],
)
def test_a_recorded_answer_with_an_error_is_noticed(before: str, after: str, found: str) -> None:
    answer = recordings.nvidia_smi(REPORT)[1]
    assert before in answer
    report = gpu_findings.read_report(answer.replace(before, after, 1))
    assert [(one.finding.name, one.gpu.serial) for one in report.findings] == [(found, "1234567890123")]


FABRIC = {"state": "Completed", "status": "Success", "cliqueId": "7", "clusterUuid": "9c6f5af3-53bf-49b5-a436-b66766c4"}
"""A GPU in a fabric, as in a report of a GB200 (github.com/leptonai/gpud/pull/1106)."""


def with_fabric(**values: str) -> str:
    """The recorded answer, whose GPU has these values of a fabric."""
    answer: str = recordings.nvidia_smi(REPORT)[1]
    for name, value in values.items():
        answer = answer.replace(f"<{name}>N/A<", f"<{name}>{value}<", 1)
    return answer


@pytest.mark.parametrize(
    "values",
    [
        FABRIC,
        {**FABRIC, "summary": "Healthy", "bandwidth": "Full", "route_unhealthy": "False"},
        {**FABRIC, "route_recovery_in_progress": "True"},
        {**FABRIC, "incorrect_configuration": "None"},
        {"state": "Not Supported", "status": "Success"},
        # github.com/leptonai/gpud/pull/1206: a GH200 without an NVSwitch.
        {"state": "Completed", "status": "NV_WARN_NOTHING_TO_DO"},
    ],
)
def test_a_gpu_in_a_healthy_fabric_or_in_none_has_no_finding(values: dict[str, str]) -> None:
    assert not gpu_findings.read_report(with_fabric(**values)).findings


def test_a_gpu_in_another_fabric_than_the_others_is_noticed() -> None:
    log, end = with_fabric(**FABRIC).rpartition("</nvidia_smi_log>")[:2]
    gpu = log[log.index("<gpu ") :]
    other = gpu.replace("<cliqueId>7<", "<cliqueId>8<").replace("1234567890123", "2")
    assert not gpu_findings.read_report(log + gpu + gpu + end).findings
    (found,) = gpu_findings.read_report(log + gpu.replace("1234567890123", "1") + other + end).findings
    assert (found.finding.name, found.gpu.serial) == ("gpu-fabric-split", "2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("<used>0 MiB<", "<used>900 MiB<", id="of-the-driver"),
        pytest.param("<addressing_mode>None<", "<addressing_mode>ATS<", id="of-the-kernel"),
        pytest.param("<processes>", "<processes>N/A", id="not-told"),
    ],
)
def test_memory_that_no_job_has_left(before: str, after: str) -> None:
    answer = recordings.nvidia_smi(REPORT)[1].replace("<used>0 MiB<", "<used>2048 MiB<", 1)
    if before.startswith("<used>"):
        answer = recordings.nvidia_smi(REPORT)[1]
    assert before in answer
    assert gpu_findings.read_report(answer.replace(before, after, 1)).findings == []


# -- stand-ins ---------------------------------------------------------------------------------------------------------

ASKED: list[tuple[str, ...]] = [
    gpus.QUERY,
    gpus.LIST,
    mig.QUERY,
    mig.INSTANCES,
    ("nvlink", "-s"),
    ("--query-gpu=no_such_field", "--format=csv"),
    ("-i", "99", "-q"),
]
"""What the collection and tests/device ask, with MIG off, and two wrong questions."""


def stand_in(tmp_path: Path, command: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and output of the stand-in for nvidia-smi with one H200."""
    (tmp_path / "gpus").write_text("NVIDIA H200\n")
    done = subprocess.run(
        [sys.executable, "-I", str(STAND_IN), *command],
        env={**os.environ, "NVML_STAND_IN": str(tmp_path / "gpus")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def form(answer: tuple[int, str]) -> tuple[int, str]:
    """An answer without what differs between two GPUs of one model: PCI address, UUID, memory."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", answer[1])
    text = re.sub(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d", "ADDRESS", text)
    return answer[0], re.sub(r"\b\d{5,6}\b", "MEMORY", text)


@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_the_stand_in_answers_in_the_form_of_the_real_program(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert form(stand_in(tmp_path, command)) == form(recordings.nvidia_smi(command))


def test_the_stand_in_answers_slurm_gpu_metrics_as_a_real_gpu_at_rest(tmp_path: Path) -> None:
    fields = [*gpu_driver.FIELDS]
    command = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    assert form(stand_in(tmp_path, command)) == form((0, recordings.query_gpu(fields)))


def test_the_stand_in_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """An answer of success to an unknown question would hide a fault of the one who asks."""
    for command in (("mig", "-lgo"), ("--no-such-option",)):
        assert stand_in(tmp_path, command)[0] != 0


# -- what is committed -------------------------------------------------------------------------------------------------


def test_nothing_recorded_identifies_the_machine() -> None:
    made_up = {"11111111-2222-3333-4444-555555555555"}
    for path in sorted(recordings.H200.rglob("*")):
        text = path.read_text() if path.is_file() else ""
        assert set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", text, re.IGNORECASE)) <= made_up, path
        assert re.findall(r"\b(?:[0-9a-f]{2}[:-]){5,7}[0-9a-f]{2}\b", text) == [], path
        assert set(re.findall(r"\b(?:\d{1,3}\.){3}\d{1,3}\b", text)) <= {"127.0.0.1"}, path
        assert set(re.findall(r"<serial>(.*)</serial>", text)) <= {"1234567890123"}, path
    assert "serial_number" not in " ".join(recordings.tree().files)
