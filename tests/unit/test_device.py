# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/device, the check of a real GPU: what it replaces, finds and reads. Stage `device` runs all of it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.once

DEVICE = Path(__file__).parents[1] / "device"
NAMES = ("anonymous", "cluster", "loads", "machine", "recording", "root", "steps")
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
