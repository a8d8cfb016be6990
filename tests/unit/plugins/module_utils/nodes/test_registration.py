# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from registration_texts import check_registration

MACHINE: dict[str, Any] = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "real_memory": 3700}
T4 = {"name": "gpu", "type": "t4", "file": "/dev/nvidia[0-1]"}


def gpu(minor: int | None, model: str = "Tesla T4", kind: str = "t4", mig: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"minor": minor, "model": model, "type": kind, "mig": [{"profile": profile} for profile in mig]}


def facts(**changed: Any) -> dict[str, Any]:
    """A host that has exactly what MACHINE declares."""
    return {
        "cpus": 16,
        "boards": 1,
        "sockets_per_board": 2,
        "cores_per_socket": 4,
        "threads_per_core": 2,
        "real_memory": 3700,
        "tmp_disk": 10000,
        "device_files": [],
        "gpus": [],
        **changed,
    }


def verdict(
    measured: dict[str, Any], machine: dict[str, Any], slurm_conf: dict[str, Any] | None = None, **node: Any
) -> dict[str, list[str]]:
    nodes = [{"hosts": "compute[01-02]", "hardware": "m", **node}]
    return dict(check_registration({"compute01": measured}, nodes, {"m": machine}, slurm_conf or {}))


RIGHT: dict[str, list[str]] = {"refused": [], "odd": []}


def test_what_is_declared_is_there() -> None:
    assert verdict(facts(), MACHINE) == RIGHT


def test_more_than_declared_is_no_problem() -> None:
    measured = facts(real_memory=9999, cpus=32, sockets_per_board=4)
    assert verdict(measured, MACHINE)["refused"] == []


@pytest.mark.parametrize(
    ("measured", "machine", "what"),
    [
        (
            {"real_memory": 3661},
            {},
            "RealMemory 3700 configured, 3661 present; lower it to 3661 or run discover",
        ),
        (
            {"tmp_disk": 500},
            {"tmp_disk": 501},
            "TmpDisk 501 configured, 500 present; lower it to 500 or run discover",
        ),
        (
            {"cpus": 8, "threads_per_core": 1},
            {},
            "CPUs 16 (2 x 4 x 2 sockets x cores x threads) configured, 8 (2 x 4 x 1) present; "
            "correct sockets, cores_per_socket and threads_per_core or run discover",
        ),
        (
            {"gpus": [gpu(None)]},
            {"gres": [{"name": "gpu", "type": "t4", "count": 2, "autodetect": "nvml"}]},
            "gres/gpu count 2 configured, 1 present; correct the gres or run discover",
        ),
        (
            {"gpus": [gpu(0), gpu(1, "NVIDIA A100-SXM4-80GB", "a100")]},
            {"gres": [{"name": "gpu", "type": "t4", "count": 2, "autodetect": "nvml"}]},
            "gres/gpu:t4 count 2 configured, 1 present; correct the gres or run discover",
        ),
        (
            {"gpus": [gpu(0, "NVIDIA A100-SXM4-80GB", "a100", ("3g.40gb", "3g.40gb"))]},
            {"gres": [{"name": "gpu", "type": "a100", "count": 1, "autodetect": "nvml", "mig": {"1g.10gb": 7}}]},
            "gres/gpu:a100_1g.10gb count 7 configured, 0 present; correct the gres or run discover",
        ),
    ],
)
def test_less_than_declared_is_refused(measured: dict[str, Any], machine: dict[str, Any], what: str) -> None:
    found = verdict(facts(**measured), {**MACHINE, **machine})
    assert found == {"refused": [f"compute01 would become INVAL: {what}"], "odd": []}


def test_device_files_that_are_missing() -> None:
    found = verdict(facts(device_files=["/dev/nvidia0"]), {**MACHINE, "gres": [T4]})
    assert found["refused"] == [
        "compute01: slurmd would not start: /dev/nvidia1 configured, /dev/nvidia0 present; "
        "correct the gres or run discover"
    ]


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param({"device_files": ["/dev/nvidia0", "/dev/nvidia1"]}, id="they are there"),
        pytest.param({"gpus": [gpu(0), gpu(1)]}, id="the driver will make them"),
        pytest.param({"gpus": [gpu(None), gpu(None)]}, id="there is no driver yet"),
    ],
)
def test_device_files_that_will_be_there(measured: dict[str, Any]) -> None:
    assert verdict(facts(**measured), {**MACHINE, "gres": [T4]}) == RIGHT


def test_other_gpus_than_declared() -> None:
    gpus = [gpu(0), gpu(1, "NVIDIA A100-SXM4-80GB", "a100")]
    assert verdict(facts(gpus=gpus), {**MACHINE, "gres": [T4]}) == {
        "refused": [],
        "odd": ["compute01 would be accepted, but: /dev/nvidia1 is configured as gpu:t4, a100 present"],
    }


def test_a_gpu_whose_model_gives_no_type() -> None:
    """A host may answer so: the type of a model without a known part is none."""
    gpus = [gpu(0) | {"type": None}, gpu(1, "Graphics Device", "") | {"type": None}]
    assert verdict(facts(gpus=gpus), {**MACHINE, "gres": [T4]})["odd"] == [
        "compute01 would be accepted, but: /dev/nvidia1 is configured as gpu:t4, graphics_device present"
    ]


@pytest.mark.parametrize("kind", ["h100", "H100", "h100_80gb", "80gb"])
def test_autodetect_takes_part_of_the_name(kind: str) -> None:
    gpus = [gpu(number, "NVIDIA H100 80GB HBM3", "h100") for number in range(4)]
    gres = [{"name": "gpu", "type": kind, "count": 4, "autodetect": "nvml"}]
    assert verdict(facts(gpus=gpus), {**MACHINE, "gres": gres}) == RIGHT


def test_mig_instances_with_whole_gpus() -> None:
    model = ("NVIDIA H100 80GB HBM3", "h100")
    gpus = [gpu(0, *model), gpu(1, *model, mig=("1g.10gb",) * 7)]
    gres = [
        {"name": "gpu", "type": "h100", "count": 1, "autodetect": "nvml"},
        {"name": "gpu", "type": "h100_80gb_hbm3", "count": 1, "autodetect": "nvml", "mig": {"1g.10gb": 7}},
    ]
    assert verdict(facts(gpus=gpus), {**MACHINE, "gres": gres}) == RIGHT
    gres[0]["count"] = 2
    assert verdict(facts(gpus=gpus), {**MACHINE, "gres": gres})["refused"] == [
        "compute01 would become INVAL: gres/gpu:h100 count 2 configured, 1 present; correct the gres or run discover"
    ]


def test_the_same_cpus_in_another_shape_are_accepted() -> None:
    found = verdict(facts(sockets_per_board=1, cores_per_socket=8), MACHINE)
    assert found == {
        "refused": [],
        "odd": [
            "compute01 would be accepted, but: 2 x 4 x 2 sockets x cores x threads are configured, 1 x 8 x 2 present: "
            "tasks are bound to other CPUs than Slurm believes"
        ],
    }


def test_sockets_are_those_of_all_boards() -> None:
    assert verdict(facts(boards=2, sockets_per_board=1), {**MACHINE, "boards": 2}) == RIGHT


@pytest.mark.parametrize(
    ("slurm_conf", "node", "lowest"),
    [
        ({}, {}, 3700),
        ({}, {"State": "CLOUD"}, 3330),
        ({"SlurmctldParameters": ["enable_configless", "node_reg_mem_percent=95"]}, {}, 3515),
        ({"slurmctldparameters": "node_reg_mem_percent=50.5"}, {"State": "CLOUD"}, 1869),
    ],
)
def test_how_much_memory_must_be_there(slurm_conf: dict[str, Any], node: dict[str, Any], lowest: int) -> None:
    assert verdict(facts(real_memory=lowest), MACHINE, slurm_conf, **node) == RIGHT
    (message,) = verdict(facts(real_memory=lowest - 1), MACHINE, slurm_conf, **node)["refused"]
    allowed = int(message.rpartition("lower it to ")[2].partition(" ")[0])
    assert verdict(facts(real_memory=lowest - 1), {**MACHINE, "real_memory": allowed}, slurm_conf, **node) == RIGHT
    higher = {**MACHINE, "real_memory": allowed + 1}
    assert verdict(facts(real_memory=lowest - 1), higher, slurm_conf, **node)["refused"]


def test_config_overrides_hides_it() -> None:
    found = verdict(facts(real_memory=1), MACHINE, {"SlurmdParameters": "config_overrides"})
    assert found["refused"] == []
    assert found["odd"] == [
        "compute01 would be accepted, since SlurmdParameters has config_overrides, but: RealMemory 3700 configured, "
        "1 present; lower it to 1 or run discover"
    ]


def test_equal_messages_are_one() -> None:
    measured = {f"n{number}": facts(real_memory=3661 if number < 4 else 3600) for number in range(1, 7)}
    found = check_registration(measured, [{"hosts": "n[1-5]", "hardware": "m"}], {"m": MACHINE}, {})
    assert [message.partition(" would")[0] for message in found["refused"]] == ["n[1-3]", "n[4-5]"]
