# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/device, the check of a real GPU: what it replaces, finds and reads. Stage `device` runs all of it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.accept import accept_command
from simulated_acceptance import recorded_noise

pytestmark = pytest.mark.once

DEVICE = Path(__file__).parents[1] / "device"
NAMES = (
    *("acceptance", "anonymous", "cluster", "inside", "loads", "machine", "recording", "root", "stand_in_torch"),
    "steps",
)
UUID = "GPU-0f3c1a52-77aa-4b1e-9d00-1234567890ab"


@pytest.fixture(name="parts", scope="module")
def modules_by_name() -> Iterator[dict[str, ModuleType]]:
    """The modules of the check, which import each other by plain names."""
    sys.path.insert(0, str(DEVICE))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(DEVICE))
        for name in NAMES:
            sys.modules.pop(name, None)


# -- what identifies a machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("identifier", ["1653022012345", "0x5f2aA9b1c0", "S3RIAL-12ab", UUID])
def test_a_made_up_value_has_the_form_of_the_identifier(parts: dict[str, ModuleType], identifier: str) -> None:
    other = parts["anonymous"].made_up(identifier)
    assert other != identifier
    assert other == parts["anonymous"].made_up(identifier)
    assert [(c.isdigit(), c.isupper(), c.islower()) for c in other] == [
        (c.isdigit(), c.isupper(), c.islower()) for c in identifier
    ]


def test_identifiers_are_read_from_nvidia_smi(parts: dict[str, ModuleType]) -> None:
    xml = f"<log><gpu><serial>1653022012345</serial><uuid>{UUID}</uuid><pdi>N/A</pdi><name>H100</name></gpu></log>"
    assert parts["anonymous"].identifiers(xml) == {"1653022012345", UUID}
    assert parts["anonymous"].identifiers("NVIDIA-SMI has failed") == set()


def test_identifiers_are_replaced_everywhere_and_nothing_else(parts: dict[str, ModuleType]) -> None:
    names = parts["anonymous"].Names()
    names.learn({"1653022012345", "N/A", "0", "short"})
    text = f"Serial: 1653022012345, {UUID} at 0000:1b:00.0, 12:ab:34:cd:56:ef, short N/A 0"
    replaced = names.replaced(text)
    for hidden in ("1653022012345", UUID.removeprefix("GPU-"), "12:ab:34:cd:56:ef"):
        assert hidden not in replaced
    assert " at 0000:1b:00.0, " in replaced
    assert replaced.endswith(", short N/A 0")
    # Upper and lower case of one identifier are one identifier.
    assert names.replaced(UUID.upper()).lower() == names.replaced(UUID).lower()


# -- what a machine has ------------------------------------------------------------------------------------------------

V1 = "".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0\n" for name in ("devices", "freezer", "memory", "cpuset")
)


@pytest.mark.parametrize(
    ("mounts", "kind"),
    [
        ("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "v2"),
        (f"tmpfs /sys/fs/cgroup tmpfs rw 0 0\n{V1}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n", "v1"),
        (f"tmpfs /sys/fs/cgroup tmpfs rw 0 0\n{V1.replace('freezer', 'cpu')}", ""),
        ("proc /proc proc rw 0 0\n", ""),
    ],
)
def test_the_kind_of_cgroups(parts: dict[str, ModuleType], mounts: str, kind: str) -> None:
    assert parts["machine"].cgroup_kind(mounts) == kind


def test_libraries_of_the_driver(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "stubs").mkdir()
    (tmp_path / "empty").mkdir()
    files = ["libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04", "libc.so.6", "libnvidia-glcore.so.580"]
    for name in [*files, "stubs/libcuda.so"]:
        (tmp_path / name).touch()
    found = parts["machine"].driver_libraries([f"{tmp_path}/{name}" for name in ("missing", "empty", "stubs", "")])
    assert [Path(path).name for path in found] == files[:3]


@pytest.mark.parametrize(
    ("answer", "wanted"), [("9.0\n", "sm_90"), ("10.0\n9.0\n", "sm_100"), ("", "sm_90"), ("[N/A]\n", "sm_90")]
)
def test_the_architecture_for_nvcc(parts: dict[str, ModuleType], answer: str, wanted: str) -> None:
    assert parts["loads"].architecture(answer) == wanted


def test_fields_that_nvidia_smi_describes(parts: dict[str, ModuleType]) -> None:
    text = 'List of properties:\n\n"timestamp"\nThe time.\n\n"name" or "gpu_name"\nThe "official" name.\n"ecc.mode"\n'
    assert parts["recording"].fields(text) == ["timestamp", "name", "ecc.mode"]


def test_a_recording_reads_small_readable_files_alone(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "vendor").write_text("0x10de\n")
    (tmp_path / "reset").write_text("")
    (tmp_path / "reset").chmod(0o200)
    (tmp_path / "rom").write_text("binary")
    (tmp_path / "driver").symlink_to("/sys/nowhere")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/size").write_text("1")
    content, walk = parts["recording"].content, parts["recording"].walk
    paths = list(walk(str(tmp_path)))
    assert [path.removeprefix(f"{tmp_path}/") for path in paths] == ["driver", "reset", "rom", "vendor", "deep/size"]
    assert [content(path) for path in paths] == [None, None, None, "0x10de\n", "1"]


def test_a_recording_has_what_a_link_leads_to_and_whole_files(
    parts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/etc/os-release is a link, and the kernel gives /proc/cpuinfo in pieces."""
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/os-release").write_text("ID=debian\n")
    (tmp_path / "os-release").symlink_to("usr/os-release")
    content = parts["recording"].content
    pieces = [b"processor: 0\n", b"processor: 1\n", b""]
    with monkeypatch.context() as patched:
        patched.setattr(parts["recording"].os, "read", lambda _file, _size: pieces.pop(0))
        assert content(str(tmp_path / "usr/os-release")) == "processor: 0\nprocessor: 1\n"
    kept: list[str] = []
    recording = parts["recording"].Recording.__new__(parts["recording"].Recording)
    recording.files = 0
    monkeypatch.setattr(recording, "add", lambda name, text: kept.append(f"{name}: {text}"))
    recording.tree(str(tmp_path / "os-release"))
    assert kept == [f"tree{tmp_path}/os-release: ID=debian\n"]


def test_a_recording_leaves_out_what_identifies_a_device(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    for name in ("serial", "serial_number", "product_serial", "board_serial", "product_uuid", "vpd", "unique_id"):
        (tmp_path / name).write_text("6c-89-7f-0a-0b-2d-b0-48\n")
        assert parts["recording"].content(str(tmp_path / name)) is None


def test_a_made_up_value_cannot_be_guessed_from_all_serial_numbers(parts: dict[str, ModuleType]) -> None:
    """It differs from one run of the check to the next, so that nobody finds the number by trying them all."""
    anonymous = parts["anonymous"]
    first = anonymous.made_up("1653022012345")
    again = importlib.reload(anonymous)
    assert again.made_up("1653022012345") != first


# -- steps -------------------------------------------------------------------------------------------------------------


def test_each_step_is_a_line_and_a_failure_stops_none(
    parts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = parts["steps"].Steps(tmp_path, 60)

    def fail() -> str:
        raise parts["steps"].StepError("no\nnode")

    def defect() -> str:
        raise KeyError("x")

    def absent() -> str:
        raise parts["steps"].AbsentError("no nvcc")

    for name, function in {"good": lambda: "1 GPU", "bad": fail, "worse": defect, "away": absent}.items():
        steps.take(name, function)
    lines = [line.rpartition(" (")[0] for line in capsys.readouterr().out.strip().split("\n")]
    assert lines == ["pass good: 1 GPU", "fail bad: no node", "fail worse: KeyError: 'x'", "none away: no nvcc"]
    assert [line["result"] for line in json.loads((tmp_path / "check.json").read_text())] == [
        line.split()[0] for line in lines
    ]
    assert steps.failed() == 2


def test_a_command_that_hangs_is_ended_with_its_children(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    steps = parts["steps"].Steps(tmp_path, 60)
    answer = steps.command(["sh", "-c", "echo begun; sleep 100 & sleep 100"], seconds=1)
    assert (answer.status, answer.output, answer.message) == (parts["steps"].TIMED_OUT, "begun\n", "no answer in 1 s")
    assert steps.command(["/no/such/program"]).status == parts["steps"].NOT_STARTED


def test_no_step_begins_after_the_time_of_all(
    parts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = parts["steps"].Steps(tmp_path, -1)
    steps.take("late", lambda: "done")
    assert capsys.readouterr().out.startswith("fail late: the time of the whole check was over before it")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("State", "IDLE+DRAIN"),
        ("Reason", "health check gpu: 0 of 1 GPUs [root@now]"),
        ("Gres", "gpu:h200:1"),
        ("OS", ""),
    ],
)
def test_fields_of_scontrol(parts: dict[str, ModuleType], name: str, value: str) -> None:
    shown = "NodeName=gpu01 Gres=gpu:h200:1 State=IDLE+DRAIN Reason=health check gpu: 0 of 1 GPUs [root@now]"
    assert parts["cluster"].field(shown, name) == value


# -- acceptance --------------------------------------------------------------------------------------------------------

H100 = "NVIDIA H100 80GB HBM3"
REACHED = {"gpu_memory_bandwidth": 3029.0, "gpu_matrix": 807.0, "host_to_gpu": 54.3, "gpu_to_host": 55.0}


def measured(parts: dict[str, ModuleType], changes: dict[str, float], jobs: int = 3, fault: str = "") -> Any:
    """What the collection makes of jobs on an H100 that printed these values."""
    outputs = []
    for job in range(1, jobs + 1):
        lines = []
        for test, value in {"gpu_ecc": 0 if fault else 1, **REACHED, **changes}.items():
            unit = {"gpu_ecc": "ok", "gpu_matrix": "TFLOP/s"}.get(test, "GB/s")
            line = {"test": test, "value": value, "unit": unit, "nodes": ["gpu01"], "gpu": 0, "size": None, "job": job}
            more = {"text": fault if unit == "ok" else "", "hardware": "machine", "driver": "", "image": "", "time": 1}
            lines.append(json.dumps({**line, **more}))
        lines.append("not measured: dcgm_1: dcgmi is not installed")
        outputs.append({"task": "", "job": job, "nodes": "gpu01", "text": "\n".join(lines), "why": ""})
    return parts["inside"].accept_read({"outputs": outputs, "node": "gpu01", "gpu": "h100", "gpus": 1})


def test_figures_of_a_gpu_are_shown_with_published_ones(parts: dict[str, ModuleType]) -> None:
    assert parts["acceptance"].shown(measured(parts, {}), H100, True).split("; ") == [
        "gpu_memory_bandwidth 3029 GB/s, noise 0.00 % (published 3350)",
        "gpu_matrix 807 TFLOP/s, noise 0.00 % (published 989.4)",
        "host_to_gpu 54.3 GB/s, noise 0.00 % (published 64, floor 52)",
        "gpu_to_host 55 GB/s, noise 0.00 % (published 64, floor 52)",
        "1 checks are right: gpu_ecc",
        "not measured: dcgm_1 on gpu01: dcgmi is not installed",
    ]
    assert "gpu_matrix 807 TFLOP/s (nothing published)" in parts["acceptance"].shown(
        measured(parts, {}, jobs=1), "NVIDIA L4", True
    )


@pytest.mark.parametrize(
    ("changes", "jobs", "reason"),
    [
        ({"gpu_memory_bandwidth": 2300.0}, 3, "gpu_memory_bandwidth: 2300 GB/s are 69 % of what is published"),
        ({"gpu_matrix": 1500.0}, 3, "gpu_matrix: 1500 TFLOP/s are more than the hardware can do"),
        ({"gpu_to_host": 50.0}, 3, "to the host: 50 GB/s, 3.8 % less than a published figure: 52 (Azure"),
        ({"gpu_to_host": 50.0}, 2, "gpu_to_host was slow in some jobs"),
        ({"gpu_matrix": 0.0}, 3, "job 1 on gpu01: line 3: value: found 0.0, allowed: a number above 0"),
    ],
    ids=["slow", "too fast", "under the floor", "few jobs", "no value"],
)
def test_a_gpu_that_is_not_as_published_fails(
    parts: dict[str, ModuleType], changes: dict[str, float], jobs: int, reason: str
) -> None:
    with pytest.raises(parts["steps"].StepError) as failed:
        parts["acceptance"].shown(measured(parts, changes, jobs), H100, True)
    assert reason in str(failed.value)


def test_a_fault_that_a_check_finds_fails(parts: dict[str, ModuleType]) -> None:
    with pytest.raises(parts["steps"].StepError, match=r"dram_uncorrectable 2.*; 0 checks are right"):
        parts["acceptance"].shown(measured(parts, {}, fault="dram_uncorrectable 2"), H100, True)


def test_only_a_machine_without_pytorch_may_lack_its_figures(parts: dict[str, ModuleType]) -> None:
    nothing: dict[str, Any] = {"values": [], "errors": [], "findings": [], "again": [], "floors": {}}
    assert "gpu_matrix: this machine has no PyTorch" in parts["acceptance"].shown(
        {**nothing, "missed": []}, H100, False
    )
    with pytest.raises(
        parts["steps"].StepError, match=r"gpu_matrix has no value.*not measured: gpu_matrix on gpu01: x"
    ):
        parts["acceptance"].shown({**nothing, "missed": ["gpu_matrix on gpu01: x"]}, H100, True)


def test_the_values_of_a_check_are_noise_for_the_simulation(parts: dict[str, ModuleType], tmp_path: Path) -> None:
    """accept.jsonl has a value in each line, in the order of the jobs."""
    values = measured(parts, {}, jobs=6)["values"]
    (tmp_path / "accept.jsonl").write_text("".join(f"{json.dumps(value)}\n" for value in values))
    noise = recorded_noise(tmp_path / "accept.jsonl")
    assert noise["gpu_matrix"] == [0.0] * 4


def test_the_job_is_that_of_the_collection(parts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts["inside"], "COLLECTION", DEVICE.parents[1])
    job = parts["inside"].accept_job({"node": "gpu01", "gpus": 1, "image": "/pytorch-2", "directory": "/out"})
    assert {"--exclusive", "--gres=gpu:1", "--mem=0", "--output=/out/%j.out"} <= {*job["arguments"]}
    words = dict(word.split("=", 1) for word in job["script"].split() if word.startswith("--"))
    tests = {*words["--tests"].split(",")}
    assert {*parts["acceptance"].MEASURED, "gpu_count", "gpu_xid", "dcgm_1"} <= tests
    assert not tests & {"stream", "gpu_to_gpu", "all_reduce_node"}
    assert (words["--image"], words["--runtime"]) == ("/pytorch-2", "apptainer")
    assert job["program"] in job["script"]


def test_in_place_of_apptainer_the_command_runs_with_the_files_of_a_directory(
    parts: dict[str, ModuleType], tmp_path: Path
) -> None:
    script = parts["acceptance"].runtime("/venv/bin", {"PATH": "/bin", "LD_LIBRARY_PATH": "/driver lib"})
    (tmp_path / "apptainer").write_text(script)
    (tmp_path / "chroot").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "chroot").chmod(0o755)
    words = ["exec", "--nv", "--bind=/a:/a", "/pytorch-2", "python3", "/opt/program", "--tests=x"]
    command = ["sh", str(tmp_path / "apptainer"), *words]
    answer = subprocess.run(command, env={"PATH": f"{tmp_path}:/bin"}, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [
        "/pytorch-2",
        *("env", "PATH=/venv/bin:/bin", "LD_LIBRARY_PATH=/driver lib", "PYTHONPATH=/slurm-accept/python"),
        *("python3", "/opt/program", "--tests=x"),
    ]


def test_the_stand_in_for_pytorch_reaches_its_own_rates(
    parts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what the check measures on a machine without a GPU."""
    torch = parts["stand_in_torch"]
    monkeypatch.setitem(sys.modules, "torch", torch)
    tests = parts["acceptance"].MEASURED
    monkeypatch.setattr("sys.argv", ["slurm-accept", "gpus", f"--tests={','.join(tests)}", "--nodes=n1"])
    assert accept_command.main() == 0
    values = {line["test"]: line["value"] for line in map(json.loads, capsys.readouterr().out.splitlines())}
    rates = {"gpu_memory_bandwidth": 2 * torch.ON_GPU / 1e9, "gpu_matrix": torch.MATRIX / 1e12}
    rates |= dict.fromkeys(("host_to_gpu", "gpu_to_host"), torch.TO_HOST / 1e9)
    assert values == {test: pytest.approx(rate, rel=0.01) for test, rate in rates.items()}
