# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import nvidia_gpus as gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import read_topology
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover, machine_type
from registration_texts import check_registration
from sysfs import Gpu, Memory, random_machine

H100 = "NVIDIA H100 80GB HBM3"


def gpu(minor: int | None, cores: str = "", model: str | None = H100, mig: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "minor": minor,
        "pci_address": f"0000:{minor or 0:02x}:00.0",
        "model": model,
        "type": gpus.gres_type(model) if model else None,
        "cores": cores,
        "mig": [{"profile": profile} for profile in mig],
    }


def port(device: str, rate: int = 400, up: bool = True, number: int = 1) -> dict[str, Any]:
    return {"device": device, "port": number, "link": "InfiniBand", "rate": rate, "up": up}


PORTS = [port("mlx5_0"), port("mlx5_1"), port("mlx5_3", rate=100, number=2), port("mlx5_2", up=False)]


def facts(memory: int = 2064000, cards: int = 8, **changed: Any) -> dict[str, Any]:
    """A server with two sockets and as many GPUs near to each."""
    return {
        "cpus": 224,
        "boards": 1,
        "sockets_per_board": 2,
        "cores_per_socket": 56,
        "threads_per_core": 2,
        "real_memory": memory,
        "cpuless_memory": 0,
        "tmp_disk": 100000,
        "device_files": [],
        "gpus": [gpu(number, "0-55" if number < 4 else "56-111") for number in range(cards)],
        **changed,
    }


def found(measured: dict[str, Any], known: dict[str, Any] | None = None, hosts: str = "n[1-9]") -> dict[str, Any]:
    return discover(measured, known or {}, expand(hosts), ["declared"])


def entries(result: dict[str, Any]) -> dict[str, str]:
    return {node["hosts"]: node["hardware"] for node in result["nodes"]}


def test_equal_machines_are_one_type() -> None:
    result = found({f"n{number}": facts() for number in (3, 1, 2)})
    assert result == {
        "hardware": {
            "8xh100-224c-2008g": {
                "sockets": 2,
                "cores_per_socket": 56,
                "threads_per_core": 2,
                "real_memory": 2064000 - 2064000 // 256,
                "gres": [
                    {"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-3]", "cores": "0-55"},
                    {"name": "gpu", "type": "h100", "file": "/dev/nvidia[4-7]", "cores": "56-111"},
                ],
            }
        },
        "nodes": [{"hosts": "n[1-3]", "hardware": "8xh100-224c-2008g", "notes": []}],
        "notes": [],
    }


@pytest.mark.parametrize("mig", [(), ("3g.40gb", "3g.40gb")])
def test_an_adapter_for_a_screen_is_named_and_left_out(mig: tuple[str, ...]) -> None:
    """A DGX Station has four GPUs, and one for its screen."""
    a100 = "NVIDIA A100-SXM4-80GB"
    cards = [*(gpu(minor, model=a100, mig=mig) for minor in (0, 1, 2, 4)), gpu(3, model="NVIDIA DGX Display")]
    machine, notes = machine_type(facts(gpus=cards))
    assert machine
    (entry,) = machine["gres"]
    assert (entry.get("file"), entry.get("count")) == ((None, 4) if mig else ("/dev/nvidia[0-2,4]", None))
    assert entry["type"].startswith("a100")
    assert notes == ["the NVIDIA DGX Display at 0000:03:00.0 is for a screen and is left out of gres"]


def test_an_adapter_for_a_screen_without_other_gpus_is_a_gpu() -> None:
    machine, notes = machine_type(facts(gpus=[gpu(0, model="NVIDIA T400 4GB")]))
    assert machine
    assert machine["gres"] == [{"name": "gpu", "type": "t400", "file": "/dev/nvidia0"}]
    assert notes == []


def test_memory_without_cpus_is_named_and_left_out() -> None:
    """The memory of the GPU of a GH200 is a part of MemTotal."""
    machine, notes = machine_type(facts(577000, cpuless_memory=97000))
    assert machine
    assert machine["real_memory"] == 480000 - 480000 // 256
    assert notes == [
        "97000 MiB of its memory are in NUMA nodes without CPUs (that of GPUs, or CXL) and are left out of real_memory"
    ]


def test_a_type_has_the_least_memory_of_its_hosts() -> None:
    result = found({"n1": facts(2064000), "n2": facts(2063100), "n3": facts(2063900)})
    (machine,) = result["hardware"].values()
    assert machine["real_memory"] == 2063100 - 2063100 // 256


def test_a_host_without_a_type_joins_one_of_the_file_rather_than_a_new_one() -> None:
    machine, _odd = machine_type(facts(2064000))
    known = {"hardware": {"t": machine}, "nodes": [{"hosts": "n3", "hardware": "t"}]}
    result = found({"n1": facts(2085000), "n2": facts(2074000)}, known)  # n2 is near to both
    assert entries(result) == {"n1": "8xh100-224c-2028g", "n[2-3]": "t"}


def test_types_without_a_host_are_left_out_and_named() -> None:
    machine, _odd = machine_type(facts())
    result = found({}, {"hardware": {"t": machine, "t-2": machine}, "nodes": []})
    reason = "the file names no host for it, so it is left out"
    assert result == {"hardware": {}, "nodes": [], "notes": [f"hardware t-2: {reason}", f"hardware t: {reason}"]}


def test_ports_that_are_connected_are_a_part_of_the_type() -> None:
    """One that is not may never have been. Equal ports are one entry."""
    machine, _odd = machine_type(facts(ports=PORTS))
    assert machine is not None
    assert machine["fabric"] == {
        "ports": [
            {"device": "mlx5_[0-1]", "link": "InfiniBand", "rate": 400},
            {"device": "mlx5_3", "port": 2, "link": "InfiniBand", "rate": 100},
        ]
    }


def test_a_type_that_is_older_than_the_ports_gets_them() -> None:
    older = {**(machine_type(facts())[0] or {}), "Weight": 2}
    known = {"hardware": {"t": older}, "nodes": [{"hosts": "n[1-2]", "hardware": "t"}]}
    result = found({"n1": facts(ports=PORTS), "n2": facts(ports=PORTS)}, known)
    assert entries(result) == {"n[1-2]": "t"}
    assert [*result["hardware"]["t"]] == [*older, "fabric"]


def test_a_host_that_has_lost_its_ports_is_said() -> None:
    machine, _odd = machine_type(facts(ports=PORTS))
    known = {"hardware": {"t": machine}, "nodes": [{"hosts": "n[1-3]", "hardware": "t"}]}
    result = found({"n1": facts(ports=PORTS), "n2": facts(ports=PORTS), "n3": facts(ports=PORTS[2:])}, known)
    assert entries(result) == {"n[1-2]": "t", "n3": "8xh100-224c-2008g"}
    assert [text[:40] for text in result["notes"]] == [
        "n3: the machine is no longer t, which ha",
        "n3: fewer connected ports (1, not 3) tha",
    ]


def test_much_less_memory_is_another_type_and_said() -> None:
    result = found({"n1": facts(), "n2": facts(1950000), "n3": facts()})
    assert entries(result) == {"n[1,3]": "8xh100-224c-2008g", "n2": "8xh100-224c-1897g"}
    note = "less memory (1942383 MiB, not 2055938) than 8xh100-224c-2008g (2 hosts)"
    assert [node["notes"] for node in result["nodes"]] == [[], [note]]
    assert result["notes"] == [f"n2: {note}"]


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        (facts(cards=7), "fewer GPUs (7 h100, not 8) than"),
        (facts(cards=0), "fewer GPUs (0 h100, not 8) than"),
        (facts(cpus=112, threads_per_core=1), "fewer threads per core (1, not 2) than"),
        (facts(cpus=112, sockets_per_board=1), "fewer cores (56, not 112) than"),
    ],
)
def test_what_a_machine_lacks_is_said(odd: dict[str, Any], note: str) -> None:
    result = found({"n1": facts(), "n2": facts(), "n3": odd})
    assert [text.startswith(f"n3: {note}") for text in result["notes"]] == [True]


def test_other_machines_are_not_odd() -> None:
    login = facts(128000, cards=0, cpus=32, sockets_per_board=1, cores_per_socket=16)
    assert found({"n1": facts(), "n2": facts(), "n3": login})["notes"] == []


def test_hosts_that_were_not_measured_keep_their_type() -> None:
    first = found({f"n{number}": facts() for number in range(1, 5)})
    second = found({"n2": facts(cards=7)}, first)
    assert entries(second) == {"n[1,3-4]": "8xh100-224c-2008g", "n2": "7xh100-224c-2008g"}
    assert found({"n2": facts()}, second) == first


def test_hosts_that_left_the_cluster_are_dropped() -> None:
    first = found({f"n{number}": facts() for number in range(1, 4)})
    assert entries(found({}, first, hosts="n[2-3]")) == {"n[2-3]": "8xh100-224c-2008g"}


def test_what_a_person_changed_stays() -> None:
    known = found({"n1": facts(), "n2": facts()})
    machine = known["hardware"].pop("8xh100-224c-2008g")
    shards = {"name": "shard", "count": 64}
    known["hardware"]["dgx"] = {**machine, "Features": ["ib"], "gres": [*machine["gres"], shards]}
    known["nodes"][0]["hardware"] = "dgx"
    assert found({"n1": facts(), "n3": facts(2065000)}, known)["hardware"] == known["hardware"]


KEPT = "n1: no GPU with a driver was found, so gpu:h100:8 stays in its machine type"
SHARDS = {"name": "shard", "count": 64}
AMD = {"name": "gpu", "type": "mi300", "file": "/dev/dri/renderD[128-131]"}
AMD_NEAR = {**AMD, "cores": "0-55"}


def with_entries(known: dict[str, Any], *more: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """The hardware file, in which a person has added generic resources and other keys to each type."""
    types = known["hardware"].items()
    changed = {name: {**machine, "gres": [*machine.get("gres", []), *more], **keys} for name, machine in types}
    return {**known, "hardware": changed}


@pytest.mark.parametrize("cards", [[], [gpu(None, model=None)] * 8], ids=["none", "no driver"])
def test_gpus_that_are_not_found_stay_and_are_named(cards: list[dict[str, Any]]) -> None:
    known = found({"n1": facts(), "n2": facts()})
    result = found({"n1": facts(gpus=cards), "n2": facts()}, known)
    assert (result["hardware"], entries(result)) == (known["hardware"], entries(known))
    assert [note.startswith(KEPT) for note in result["notes"]] == [True]
    assert "hardware_remove_gres=true" in result["notes"][0]


def test_gpus_that_are_not_found_stay_with_another_memory() -> None:
    result = found({"n1": facts(1032000, cards=0)}, with_entries(found({"n1": facts()}), SHARDS, Features=["ib"]))
    (machine,) = result["hardware"].values()
    measured = machine_type(facts())[0]
    assert measured
    assert machine["gres"] == [*measured["gres"], SHARDS]
    assert result["notes"][0].startswith(KEPT)
    assert result["notes"][1:] == ["n1: the machine is no longer 8xh100-224c-2008g, which had Features"]


def test_gpus_that_are_not_found_disappear_where_that_is_confirmed() -> None:
    known = found({"n1": facts(), "n2": facts()})
    gone = {f"n{number}": facts(cards=0) for number in (1, 2)}
    result = discover(gone, known, ["n1", "n2"], [], remove_gres=True)
    assert [machine.get("gres") for machine in result["hardware"].values()] == [None]
    assert result["notes"][0] == "n[1-2]: the machine is no longer 8xh100-224c-2008g, which had gpu:h100:8 (now 0)"


def test_a_gpu_that_is_missing_among_others_is_named() -> None:
    known = found({"n1": facts(), "n2": facts(), "n3": facts()})
    notes = found({"n1": facts(cards=7)}, known)["notes"]
    assert notes[0] == "n1: the machine is no longer 8xh100-224c-2008g, which had gpu:h100:8 (now 7)"


@pytest.mark.parametrize(
    ("cards", "entry"), [(8, SHARDS), (0, AMD), (0, {"name": "gpu", "count": 4, "autodetect": "rsmi"}), (8, AMD_NEAR)]
)
def test_what_cannot_be_measured_stays_with_its_host(cards: int, entry: dict[str, Any]) -> None:
    known = with_entries(found({"n1": facts(cards=cards)}), entry)
    for memory in (2064000, 1032000):
        result = found({"n1": facts(memory, cards=cards)}, known)
        (machine,) = result["hardware"].values()
        assert machine["gres"] == [*(machine_type(facts(cards=cards))[0] or {}).get("gres", []), entry]
        assert result["notes"] == []


def test_what_contradicts_the_measurement_is_named() -> None:
    """Either all or none of the GPUs of a machine have cores, and the measured ones have."""
    known = with_entries(found({"n1": facts()}), AMD)
    notes = found({"n1": facts(1032000)}, known)["notes"]
    assert notes == ["n1: the machine is no longer 8xh100-224c-2008g, which had gpu:mi300:4 (now 0)"]


def test_a_type_that_no_host_has_is_named() -> None:
    known = found({"n1": facts()})
    known["hardware"]["planned"] = known["hardware"]["8xh100-224c-2008g"] | {"real_memory": 100000}
    assert found({"n1": facts()}, known)["notes"] == [
        "hardware planned: the file names no host for it, so it is left out"
    ]


def test_a_type_whose_memory_is_wrong_is_made_anew() -> None:
    known = found({"n1": facts()})
    assert entries(found({"n1": facts(1032000)}, known)) == {"n1": "8xh100-224c-1004g"}
    known["hardware"]["8xh100-224c-2008g"]["real_memory"] = 2064001
    (machine,) = found({"n1": facts()}, known)["hardware"].values()
    assert machine["real_memory"] == 2064000 - 2064000 // 256


def test_names_are_taken_once() -> None:
    measured = {"n1": facts(), "n2": facts(gpus=[gpu(number) for number in range(8)])}
    assert list(found(measured)["hardware"]) == ["8xh100-224c-2008g", "8xh100-224c-2008g-2"]
    reserved = discover(measured, {}, ["n1"], ["8xh100-224c-2008g"])
    assert list(reserved["hardware"]) == ["8xh100-224c-2008g-2"]


def test_gpus_without_a_driver() -> None:
    result = found({"n1": facts(gpus=[gpu(None, "0-55"), gpu(None, "0-55")])})
    (machine,) = result["hardware"].values()
    assert machine["gres"] == [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-1]"}]
    assert result["notes"] == [
        "n1: 2 GPUs have no driver, so their device files are a guess: install the driver, then run discover again"
    ]


def test_a_gpu_that_the_driver_has_not_taken() -> None:
    result = found({"n1": facts(gpus=[gpu(0), gpu(None)])})
    (machine,) = result["hardware"].values()
    assert machine["gres"] == [{"name": "gpu", "type": "h100", "file": "/dev/nvidia0"}]
    assert result["notes"] == ["n1: the GPU at 0000:00:00.0 has no driver and is left out"]


def test_types_only_where_all_have_them() -> None:
    result = found({"n1": facts(gpus=[gpu(0), gpu(1, model=None)])})
    (machine,) = result["hardware"].values()
    assert machine["gres"] == [{"name": "gpu", "file": "/dev/nvidia[0-1]"}]


def test_mig_is_left_to_nvml() -> None:
    result = found({"n1": facts(gpus=[gpu(0), gpu(1, mig=("1g.10gb", "1g.10gb", "2g.20gb")), gpu(2)])})
    assert result["hardware"]["3xh100-mig-224c-2008g"]["gres"] == [
        {"name": "gpu", "type": "h100", "count": 2, "autodetect": "nvml"},
        {
            "name": "gpu",
            "type": "h100_80gb_hbm3",
            "count": 1,
            "autodetect": "nvml",
            "mig": {"1g.10gb": 2, "2g.20gb": 1},
        },
    ]


def test_cores_are_widened_to_sockets() -> None:
    near = [gpu(0, "14-27"), gpu(1, "28-41"), gpu(2, "56,60")]
    (machine,) = found({"n1": facts(gpus=near)})["hardware"].values()
    assert [entry["cores"] for entry in machine["gres"]] == ["0-55", "56-111"]


def test_cores_of_a_part_of_the_sockets_are_left_out() -> None:
    """No release from 25.11 on takes them (`_check_core_range_matches_sock`); one socket and all cores are taken."""
    four = {"sockets_per_board": 4, "cores_per_socket": 28}
    (machine,) = found({"n1": facts(gpus=[gpu(0, "0-55"), gpu(1, "56-83")], **four)})["hardware"].values()
    assert "cores" not in machine["gres"][0]
    (machine,) = found({"n1": facts(gpus=[gpu(0, "0-111"), gpu(1, "56-83")], **four)})["hardware"].values()
    assert [entry["cores"] for entry in machine["gres"]] == ["0-111", "56-83"]


def test_a_host_that_slurm_cannot_use() -> None:
    result = found({"n1": facts(cores_per_socket=0)})
    assert (result["hardware"], result["nodes"]) == ({}, [])
    assert result["notes"] == [
        "n1: no node line can be made, since slurmd counts fewer cores than sockets, or CPUs than cores"
    ]


def random_facts(number: int) -> dict[str, Any]:
    """The measured hardware of a random machine, with GPUs of the driver, with MIG instances, or without a driver."""
    choice = random.Random(number)
    machine = random_machine(choice)
    nodes = max(1, len(machine.numa(machine.threads_by_core())))
    models = choice.choice([[H100], ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"]])
    driven = choice.random() < 0.8
    cards = tuple(
        Gpu(f"0000:{i:02x}:00.0", choice.choice(models), choice.randrange(nodes), i if driven else None)
        for i in range(choice.choice([0, 1, 4, 8]))
    )
    tree = Memory(files=dict(replace(machine, gpus=cards).files()))
    topology = read_topology(tree)
    usage = {
        card.address: gpus.Usage(81920, [{"profile": "1g.10gb", "uuid": "x"}] * choice.randrange(1, 8))
        for card in cards
        if driven and "H100" in card.model and choice.random() < 0.3
    }
    return {
        "cpus": topology.cpus,
        "boards": topology.boards,
        "sockets_per_board": topology.sockets_per_board,
        "cores_per_socket": topology.cores_per_socket,
        "threads_per_core": topology.threads_per_core,
        "real_memory": choice.randrange(1000, 3000000),
        "cpuless_memory": choice.choice((0, 0, 900)),
        "tmp_disk": None,
        "device_files": [],
        "gpus": gpus.read_gpus(tree, topology.cores, usage),
    }


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_what_is_discovered_is_right(start: int) -> None:
    """The model accepts the result, Slurm would accept the nodes, and a second discovery changes nothing."""
    measured = {f"n{number}": random_facts(number) for number in range(start, start + 20)}
    result = discover(measured, {}, list(measured), [])
    usable = [host for host in measured if machine_type(measured[host])[0]]
    assert {host for node in result["nodes"] for host in expand(node["hosts"])} == set(usable)

    file = {
        "hardware": result["hardware"],
        "nodes": [{key: node[key] for key in ("hosts", "hardware")} for node in result["nodes"]],
    }
    cluster = {
        "plugin": "gpucluster.slurm.cluster",
        "name": "c",
        "controllers": "head",
        "nodes": [{"hosts": ",".join(usable), "hardware": "detected"}],
        "partitions": [{"name": "p", "nodes": "ALL"}],
    }
    model = load(Document("c.cluster.yml", cluster), Document("c.hardware.yml", file))
    verdict = check_registration(measured, model.variables["slurm_nodes"], model.variables["slurm_hardware_types"], {})
    assert verdict == {"refused": [], "odd": []}
    assert discover(measured, file, list(measured), []) == result
