# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of role enroot: the directory of containers that each command of enroot gets, and the hook for GPUs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

FILES = Path(__file__).parents[2] / "roles/enroot/files"


@pytest.fixture(name="enroot")
def program(tmp_path: Path) -> Path:
    """A program with the name and the command line of enroot, which prints its directory of containers."""
    for directory in ("home/pyxis_mine", "home/other", "disk"):
        (tmp_path / directory).mkdir(parents=True)
    path = tmp_path / "enroot"
    path.write_text(
        f"#! /usr/bin/env bash\nprintf '%s' \"$(bash {FILES}/enroot-data.sh $$ {tmp_path}/home {tmp_path}/disk)\""
    )
    path.chmod(0o755)
    return path


def data(enroot: Path, *arguments: str) -> Path:
    """The directory of containers of `enroot ARGUMENTS`."""
    return Path(subprocess.run([enroot, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout)


@pytest.mark.parametrize(
    "arguments",
    [("create", "--name", "pyxis_12.0", "a.sqsh"), ("start", "--conf", "x", "pyxis_7_12.0"), ("remove", "pyxis_1.4")],
)
def test_containers_without_a_name_are_on_the_nodes_own_disk(enroot: Path, arguments: tuple[str, ...]) -> None:
    assert data(enroot, *arguments) == enroot.parent / "disk/containers"


@pytest.mark.parametrize(
    "arguments", [("create", "--name", "pyxis_mine"), ("start", "pyxis_v1.0"), ("list", "-f"), ("list",)]
)
def test_other_containers_are_in_the_data_directory(enroot: Path, arguments: tuple[str, ...]) -> None:
    (enroot.parent / "disk/containers").mkdir()
    assert data(enroot, *arguments) == enroot.parent / "home"


def test_a_list_has_both_while_there_is_a_container_without_a_name(enroot: Path) -> None:
    own = enroot.parent / "disk/containers"
    (own / "pyxis_12.0").mkdir(parents=True)
    for gone in ((), ("pyxis_mine",)):
        for name in gone:
            (enroot.parent / "home" / name).rmdir()
        assert data(enroot, "list", "-f") == own
        names = {"pyxis_12.0", "pyxis_mine", "other"} - {*gone}
        assert {path.name for path in own.iterdir() if path.is_dir()} == {path.name for path in own.iterdir()} == names
    assert data(enroot, "start", "pyxis_mine") == enroot.parent / "home"
    (own / "pyxis_12.0").rmdir()
    assert data(enroot, "list") == enroot.parent / "home"


JOB = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0"}
BOTH = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]


@pytest.mark.parametrize(
    ("gpus", "job", "image", "added"),
    [
        pytest.param(False, {}, [], ["NVIDIA_VISIBLE_DEVICES=void"], id="no GPUs"),
        pytest.param(False, {}, ["NVIDIA_VISIBLE_DEVICES=all"], ["NVIDIA_VISIBLE_DEVICES=void"], id="no GPUs, NVIDIA"),
        pytest.param(True, {}, [], [], id="no job"),
        pytest.param(True, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0"}, [], [], id="a step without GPUs"),
        pytest.param(True, JOB, [], BOTH, id="a plain image"),
        pytest.param(True, JOB, ["NVIDIA_VISIBLE_DEVICES=none"], BOTH[1:], id="an image with devices"),
        pytest.param(True, JOB, ["NVIDIA_DRIVER_CAPABILITIES=all"], BOTH[:1], id="an image with capabilities"),
    ],
)
def test_devices_of_a_container(
    tmp_path: Path, gpus: bool, job: dict[str, str], image: list[str], added: list[str]
) -> None:
    if gpus:
        (tmp_path / "nvidia0").touch()
    environment = tmp_path / "environment"
    environment.write_text("".join(f"{line}\n" for line in image))
    hook = (FILES / "gpus.sh").read_text().replace("/dev/nvidia", f"{tmp_path}/nvidia")
    subprocess.run(
        ["sh", "-c", hook], check=True, env={"PATH": os.environ["PATH"], "ENROOT_ENVIRON": str(environment), **job}
    )
    assert environment.read_text().splitlines() == [*image, *added]
