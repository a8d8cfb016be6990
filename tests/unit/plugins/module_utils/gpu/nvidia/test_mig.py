# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG: the output of nvidia-smi, the layout of each GPU, and the commands for a stand-in for nvidia-smi.

The tables are written after NVIDIA's MIG user guide, not recorded. The stand-in follows the rules of that guide.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import mig
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.mig import Command, Gpu, MigError, Profiles
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import mig_boot

A100 = "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 80GB HBM3"
QUERY = f"0, {A100}, Enabled, Enabled\n1, {A100}, Disabled, Enabled\n2, Tesla T4, [N/A], [N/A]\n"
LISTING = f"""\
GPU 0: {A100} (UUID: GPU-5d5ba0d6)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-a28ad590)
GPU 1: {A100} (UUID: GPU-68bb4a4b)
GPU 2: Tesla T4 (UUID: GPU-1c5b2e21)
"""
INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.5gb+me       20       13          6:1     |
+-------------------------------------------------------+
|   0  MIG 3g.20gb          9        2          0:4     |
+-------------------------------------------------------+
"""


@dataclass
class Machine:
    """A stand-in for nvidia-smi on a machine; changes of the mode wait for a reset, as on an A100, unless `at_once`."""

    gpus: list[Gpu]
    at_once: bool = False
    told: list[str] = field(default_factory=list)

    def run(self, command: Command) -> tuple[int, str]:
        """Run a command, or print its answer."""
        if command == mig.QUERY:
            mode = {True: "Enabled", False: "Disabled"}
            lines = [
                f"{g.index}, {g.name}, {mode[g.enabled]}, {mode[g.pending]}" if g.capable
                else f"{g.index}, {g.name}, [N/A], [N/A]"
                for g in self.gpus
            ]  # fmt: skip
            return 0, "\n".join(lines)
        if command == mig.LIST:
            return 0, "\n".join(
                line
                for g in self.gpus
                for line in (f"GPU {g.index}: {g.name} (UUID: GPU-{g.index})", *self.listed(g.devices))
            )
        if command == mig.INSTANCES:
            rows = [f"|   {g.index}  MIG {name}   9   1   0:4  |" for g in self.gpus for name in g.instances]
            return (0, "\n".join(rows)) if rows else (6, "No GPU instances found: Not Found")
        self.told.append(" ".join(command))
        index = int(command[command.index("-i") + 1])
        self.gpus[index] = self.after(self.gpus[index], command)
        return 0, ""

    @staticmethod
    def listed(devices: Profiles) -> list[str]:
        """The lines of MIG devices."""
        return [f"  MIG {name}  Device  {i}: (UUID: MIG-{i})" for i, name in enumerate(devices)]

    def after(self, gpu: Gpu, command: Command) -> Gpu:
        """A GPU after a command, by the rules of the user guide."""
        if "-dci" in command:
            assert gpu.devices, "No compute instances found"
            return replace(gpu, devices=())
        if "-dgi" in command:
            assert gpu.instances, "No GPU instances found"
            assert not gpu.devices, "In use by another client"
            return replace(gpu, instances=())
        if "-mig" in command:
            on = command[-1] == "1"
            assert on or not gpu.instances, "In use by another client"
            return replace(gpu, pending=on, enabled=on if self.at_once else gpu.enabled)
        if "--gpu-reset" in command:
            return replace(gpu, enabled=gpu.pending)
        assert gpu.enabled, "No MIG-enabled devices found"
        assert not gpu.instances, "Insufficient Resources"
        created = tuple(sorted(command[command.index("-cgi") + 1].split(",")))
        return replace(gpu, instances=created, devices=created if "-C" in command else ())


def gpu(index: int, *profiles: str, name: str = H100, enabled: bool | None = None, capable: bool = True) -> Gpu:
    """A GPU with instances, MIG being on if it has some, or as said."""
    on = bool(profiles) if enabled is None else enabled
    return Gpu(index, name, on, on, capable, tuple(sorted(profiles)), tuple(sorted(profiles)))


def test_what_nvidia_smi_prints() -> None:
    profiles = ("1g.5gb+me", "3g.20gb")
    assert mig.parse(QUERY, LISTING, INSTANCES) == [
        Gpu(0, A100, True, True, True, profiles, profiles),
        Gpu(1, A100, False, True, True),
        Gpu(2, "Tesla T4", False, False, False),
    ]


def test_layouts_of_a_machine_type() -> None:
    gres: list[dict[str, Any]] = [
        {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"},
        {"name": "gpu", "type": "h100_80gb_hbm3", "autodetect": "nvml", "mig": {"3g.40gb": 1, "1g.10gb": 2}},
        {"name": "shard", "count": 4},
    ]
    assert mig.layouts(gres) == [("h100", 6, ()), ("h100_80gb_hbm3", 1, ("1g.10gb", "1g.10gb", "3g.40gb"))]
    assert mig.layouts(gres[:1]) == []
    assert mig.layouts([gres[0] | {"mig": {}}]) == [("h100", 6, ())]
    with pytest.raises(MigError, match=r"found 1c\.3g\.40gb, allowed: whole GPU instances such as 3g\.40gb"):
        mig.layouts([gres[1] | {"mig": {"1c.3g.40gb": 3}}])


@pytest.mark.parametrize(
    ("gpus", "wanted", "expected"),
    [
        pytest.param(
            [gpu(0), gpu(1, "3g.40gb"), gpu(2)],
            [("h100", 2, ()), ("h100", 1, ("3g.40gb",))],
            {0: (), 1: ("3g.40gb",), 2: ()},
            id="those-that-have-it-keep-it",
        ),
        pytest.param(
            [gpu(0), gpu(1)],
            [("h100", 1, ()), ("h100", 1, ("3g.40gb",))],
            {0: (), 1: ("3g.40gb",)},
            id="the-first-that-is-free",
        ),
        pytest.param(
            [gpu(0, name="Tesla T4", capable=False), gpu(1, name=A100)],
            [("", 1, ("3g.20gb",)), ("t4", 1, ())],
            {0: (), 1: ("3g.20gb",)},
            id="only-those-that-can",
        ),
        pytest.param([gpu(0, "7g.80gb"), gpu(1)], [("h100", 1, ())], {1: ()}, id="others-are-left-alone"),
    ],
)
def test_which_gpu_gets_which_layout(
    gpus: list[Gpu], wanted: list[tuple[str, int, Profiles]], expected: dict[int, Profiles]
) -> None:
    assert mig.assign(gpus, wanted) == expected


@pytest.mark.parametrize(
    ("gpus", "wanted", "message"),
    [
        (
            [gpu(0)],
            ("h100", 2, ("7g.80gb",)),
            "1 GPUs 'h100' with 7g.80gb are declared but missing; GPUs: 0: " + H100,
        ),
        ([gpu(0)], ("a100", 1, ()), "1 GPUs 'a100' without MIG are declared but missing"),
        ([gpu(0, name="Tesla T4", capable=False)], ("t4", 1, ("1g.5gb",)), r"GPUs: 0: Tesla T4 \(no MIG\)"),
        ([], ("t4", 1, ()), "GPUs: none"),
    ],
)
def test_gpus_that_are_not_there(gpus: list[Gpu], wanted: tuple[str, int, Profiles], message: str) -> None:
    with pytest.raises(MigError, match=message):
        mig.assign(gpus, [wanted])


SMALL = ("1g.10gb", "1g.10gb", "3g.40gb")
CREATE = "mig -i 0 -cgi 3g.40gb,1g.10gb,1g.10gb -C"
DESTROY = ["mig -i 0 -dci", "mig -i 0 -dgi"]


@pytest.mark.parametrize(
    ("before", "at_once", "wanted", "told"),
    [
        pytest.param(gpu(0), True, SMALL, ["-i 0 -mig 1", CREATE], id="on"),
        pytest.param(gpu(0), False, SMALL, ["-i 0 -mig 1", "-i 0 --gpu-reset", CREATE], id="on-with-reset"),
        pytest.param(replace(gpu(0), pending=True), False, SMALL, ["-i 0 --gpu-reset", CREATE], id="on-since-long"),
        pytest.param(gpu(0, enabled=True), True, SMALL, [CREATE], id="after-a-boot"),
        pytest.param(gpu(0, "7g.80gb"), True, SMALL, [*DESTROY, CREATE], id="other"),
        pytest.param(replace(gpu(0, *SMALL), devices=()), True, SMALL, [DESTROY[1], CREATE], id="no-compute-instances"),
        pytest.param(replace(gpu(0, *SMALL), pending=False), False, SMALL, ["-i 0 -mig 1"], id="about-to-go"),
        pytest.param(gpu(0, "7g.80gb"), False, (), [*DESTROY, "-i 0 -mig 0", "-i 0 --gpu-reset"], id="off-with-reset"),
        pytest.param(gpu(0, enabled=True), True, (), ["-i 0 -mig 0"], id="off"),
        pytest.param(gpu(0, *SMALL), True, SMALL, [], id="right"),
        pytest.param(gpu(0), True, (), [], id="right-without"),
    ],
)
def test_commands(before: Gpu, at_once: bool, wanted: Profiles, told: list[str]) -> None:
    machine = Machine([before, gpu(1)], at_once)
    layouts: list[mig.Layout] = [("h100", 1, wanted)] if wanted else [("h100", 2, wanted)]
    planned = mig.set_layouts(machine.run, layouts, change=False)
    assert machine.told == []
    assert mig.set_layouts(machine.run, layouts) == planned
    assert machine.told == told
    assert mig.set_layouts(machine.run, layouts) == ([], [])
    assert machine.told == told


def test_a_command_that_fails_ends_it() -> None:
    machine = Machine([gpu(0, "7g.80gb")])

    def run(command: Command) -> tuple[int, str]:
        return (19, "In use by another client\n") if "-dci" in command else machine.run(command)

    with pytest.raises(MigError, match="nvidia-smi mig -i 0 -dci: In use by another client"):
        mig.set_layouts(run, [("h100", 1, ("3g.40gb",))])
    assert machine.told == []


def test_a_driver_that_does_not_answer() -> None:
    with pytest.raises(MigError, match=r"nvidia-smi --query-gpu.*: Driver/library version mismatch"):
        mig.look(lambda _command: (18, "Driver/library version mismatch"))


def test_an_answer_that_is_not_understood() -> None:
    """Not that of a host without GPUs: nvidia-smi ends with 6 there."""
    with pytest.raises(MigError, match=r"nvidia-smi --query-gpu.*: found 'what', which is not understood"):
        mig.look(lambda _command: (0, "\nwhat\n"))


def test_a_command_that_does_nothing_is_noticed() -> None:
    machine = Machine([gpu(0)])

    def run(command: Command) -> tuple[int, str]:
        return (0, "") if "-mig" in command else machine.run(command)

    with pytest.raises(
        MigError, match="reported no error, but the GPUs do not have the wanted instances: GPU 0: MIG off"
    ):
        mig.set_layouts(run, [("h100", 1, ("3g.40gb",))])


@pytest.mark.parametrize(
    ("slurmd", "asked"),
    [
        pytest.param("[Unit]\n# slurm-mig.service makes MIG instances\n", True, id="declared"),
        pytest.param("[Unit]\n", False, id="no-longer-declared"),
        pytest.param(None, True, id="without-role-slurmd"),
    ],
)
def test_at_boot_only_what_is_still_declared_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    slurmd: str | None,
    asked: bool,
) -> None:
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mig_boot, "SETTINGS", str(tmp_path / "mig.json"))
    monkeypatch.setattr(mig_boot, "SLURMD", str(tmp_path / "slurmd.conf"))
    (tmp_path / "mig.json").write_text('[{"name": "gpu", "mig": {"7g.80gb": 1}}]')
    if slurmd is not None:
        (tmp_path / "slurmd.conf").write_text(slurmd)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert mig_boot.main() == int(asked)
    assert ("no driver" in capsys.readouterr().err) == asked


@pytest.mark.parametrize(
    ("gres", "message"),
    [
        ([{}], "gres: found {}, allowed: a name"),
        ([{"name": 5}], "gres: found {'name': 5}, allowed: a name"),
        ([{"name": "gpu", "mig": [1]}], r"mig: found \[1\], allowed: numbers of instances by profile"),
        ([{"name": "gpu", "mig": {"": 1}}], "mig: found {'': 1}, allowed: numbers of instances by profile"),
        ([{"name": "gpu", "mig": {"1g.10gb": "x"}}], "mig: found 'x', allowed: a whole number from 1 to 7"),
        (
            [{"name": "gpu", "mig": {}, "count": 10**9}],
            "count: found 1000000000, allowed: a whole number from 1 to 1024",
        ),
        ([{"name": "gpu", "mig": {}, "count": True}], "count: found True, allowed: a whole number from 1 to 1024"),
    ],
)
def test_layouts_that_cannot_be(gres: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(mig.MigError, match=message):
        mig.layouts(gres)
