# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic resources: correct ones, their lines in Slurm's files, and those that Slurm would refuse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import render
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.devices import REFUSED_METHODS
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from hypothesis import given
from hypothesis import strategies as st

Gres = dict[str, Any]

MACHINE = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "real_memory": 32100}


def file(*gres: Any, **node: Any) -> Document:
    """A cluster file with one machine type, which has these generic resources."""
    return Document(
        "my.cluster.yml",
        {
            "plugin": "gpucluster.slurm.cluster",
            "name": "demo",
            "controllers": "head",
            "hardware": {"a": {**MACHINE, "gres": list(gres)}},
            "nodes": [{"hosts": "n[1-2]", "hardware": "a", **node}],
            "partitions": [{"name": "all", "nodes": "ALL"}],
        },
    )


def rendered(*gres: Any) -> tuple[str, str, list[str]]:
    """Gres and GresTypes of slurm.conf, and gres.conf without `NodeName=n[1-2] `."""
    variables = load(file(*gres)).variables
    nodes, hardware = variables["slurm_nodes"], variables["slurm_hardware_types"]
    lines = render.gres_lines(nodes, hardware).splitlines()
    assert all(line.startswith("NodeName=n[1-2] ") for line in lines)
    return (
        render.node_lines(nodes, hardware).partition(" Gres=")[2].strip(),
        ",".join(render.node_parameters(nodes, hardware)["GresTypes"]),
        [line.partition(" ")[2] for line in lines],
    )


def own(*gres: Any, **keys: Any) -> Document:
    """A cluster file whose machine type has keys besides its gres."""
    found = file(*gres)
    found.data["hardware"]["a"].update(keys)
    return found


def test_resources_in_words_of_slurm_are_added_to_the_others() -> None:
    """What an entry cannot express is written as it is."""
    text = {"Gres": "lustre:no_consume:500G,nic:2", "gres_conf": ["Name=nic Count=2 Flags=CountOnly"]}
    variables = load(own(gpu(type="t4", file="/dev/nvidia[0-1]"), **text)).variables
    nodes, hardware = variables["slurm_nodes"], variables["slurm_hardware_types"]
    assert " Gres=gpu:t4:2,lustre:no_consume:500G,nic:2\n" in render.node_lines(nodes, hardware)
    assert render.node_parameters(nodes, hardware)["GresTypes"] == ["gpu", "lustre", "nic"]
    assert render.gres_lines(nodes, hardware) == (
        "NodeName=n[1-2] Name=gpu Type=t4 File=/dev/nvidia[0-1]\nNodeName=n[1-2] Name=nic Count=2 Flags=CountOnly\n"
    )


def test_cpus_that_are_cores() -> None:
    """They are what Slurm counts, also for the memory of a CPU."""
    data = own(sockets=2, cores_per_socket=4, threads_per_core=2, cpus=8, real_memory=8000)
    variables = load(data).variables
    nodes, hardware = variables["slurm_nodes"], variables["slurm_hardware_types"]
    assert "ThreadsPerCore=2 CPUs=8 RealMemory=8000" in render.node_lines(nodes, hardware)
    assert render.node_parameters(nodes, hardware)["DefMemPerCPU"] == 1000


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"Gres": "gpu:2,nic:1"}, "hardware.a.Gres: found 'gpu', which is in gres too: leave one of the two out"),
        ({"gres_conf": "Name=nic"}, "hardware.a.gres_conf: found 'Name=nic', allowed: a list of lines such as "),
        ({"gres_conf": ["Name=nic\nName=x"]}, "is not one line of gres.conf, allowed: a list of lines such as "),
        ({"gres_conf": ["NodeName=n1 Name=nic"]}, "'NodeName=n1 Name=nic': unknown key, did you mean "),
        ({"gres_conf": ["Name=nic Cuont=2"]}, "'Name=nic Cuont=2': unknown key, did you mean 'Count'? allowed: a list"),
        ({"cpus": 3}, "hardware.a.cpus: found 3, allowed: "),
        ({"Procs": 2}, "Slurm's Procs is derived from cpus, or sockets, cores_per_socket and threads_per_core: set"),
    ],
)
def test_wrong_words_of_slurm(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelError) as error:
        load(own(gpu(file="/dev/nvidia0"), **keys))
    assert any(problem in found for found in error.value.problems), error.value.problems


def test_the_types_of_a_site_have_all_names() -> None:
    found = own(gpu(file="/dev/nvidia0"), Gres="nic:1")
    found.data["slurm_conf"] = {"GresTypes": "gpu,mps,nic"}
    assert load(found).variables["slurm_conf"] == {"GresTypes": "gpu,mps,nic"}
    found.data["slurm_conf"] = {"GresTypes": ["mps"]}
    with pytest.raises(ModelError, match=r"slurm_conf\.GresTypes: found \['mps'\], allowed: with gpu, nic, which are"):
        load(found)


def gpu(**keys: Any) -> Gres:
    """A generic resource `gpu`."""
    return {"name": "gpu", **keys}


def shard(**keys: Any) -> Gres:
    """A generic resource `shard`."""
    return {"name": "shard", **keys}


RIGHT: dict[str, tuple[list[Gres], str, str, list[str]]] = {
    "files": (
        [
            gpu(type="h100", file="/dev/nvidia[0-3]", cores="0-3"),
            gpu(type="h100", file="/dev/nvidia[4-7]", cores=[4, "5-7"]),
        ],
        "gpu:h100:8",
        "gpu",
        ["Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3", "Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=4,5-7"],
    ),
    "several types": (
        [gpu(type="h100", file="/dev/nvidia[0-1]"), gpu(type="t4", file="/dev/nvidia2")],
        "gpu:h100:2,gpu:t4:1",
        "gpu",
        ["Name=gpu Type=h100 File=/dev/nvidia[0-1]", "Name=gpu Type=t4 File=/dev/nvidia2"],
    ),
    "links": (
        [gpu(file="/dev/nvidia0", links=[-1, 4]), gpu(file="/dev/nvidia1", links="4,-1")],
        "gpu:2",
        "gpu",
        ["Name=gpu File=/dev/nvidia0 Links=-1,4", "Name=gpu File=/dev/nvidia1 Links=4,-1"],
    ),
    "autodetect": ([gpu(type="h100", count=8, autodetect="nvml")], "gpu:h100:8", "gpu", ["AutoDetect=nvml"]),
    "autodetect, one, without a type": ([gpu(autodetect="nvidia")], "gpu:1", "gpu", ["AutoDetect=nvidia"]),
    # AutoDetect is a property of the node: one line.
    "autodetect of several types": (
        [gpu(type="h100", count=4, autodetect="nvml"), gpu(type="t4", count=2, autodetect="nvml")],
        "gpu:h100:4,gpu:t4:2",
        "gpu",
        ["AutoDetect=nvml"],
    ),
    "autodetect of some files": (
        [gpu(type="h100", file="/dev/nvidia[0,2]", autodetect="nvml")],
        "gpu:h100:2",
        "gpu",
        ["AutoDetect=nvml Name=gpu Type=h100 File=/dev/nvidia[0,2]"],
    ),
    "autodetect with flags": (
        [gpu(type="h100", count=4, autodetect="nvml", flags="explicit, nvidia_gpu_env")],
        "gpu:h100:4",
        "gpu",
        ["AutoDetect=nvml Name=gpu Type=h100 Count=4 Flags=explicit,nvidia_gpu_env"],
    ),
    "mig": (
        [gpu(type="a100", count=8, autodetect="nvml", mig={"3g.40gb": 1, "1g.10gb": 4})],
        "gpu:a100_3g.40gb:8,gpu:a100_1g.10gb:32",
        "gpu",
        ["AutoDetect=nvml"],
    ),
    "mig of some GPUs, with other profiles": (
        [
            gpu(type="h100_80gb_hbm3", autodetect="nvml", mig={"1g.10gb+me": 1, "1c.2g.20gb": 2}),
            gpu(type="h100", count=3, autodetect="nvml"),
        ],
        "gpu:h100_80gb_hbm3_1g.10gb+me:1,gpu:h100_80gb_hbm3_1c.2g.20gb:2,gpu:h100:3",
        "gpu",
        ["AutoDetect=nvml"],
    ),
    "mig with flags": (
        [gpu(type="a100", autodetect="nvml", mig={"3g.40gb": 2}, flags=["nvidia_gpu_env"])],
        "gpu:a100_3g.40gb:2",
        "gpu",
        ["AutoDetect=nvml Name=gpu Type=a100_3g.40gb Count=2 Flags=nvidia_gpu_env"],
    ),
    "mig with a GPU with a file": (
        [
            gpu(type="a100", autodetect="nvml", mig={"3g.40gb": 2}),
            gpu(type="a100", file="/dev/nvidia1", autodetect="nvml"),
        ],
        "gpu:a100_3g.40gb:2,gpu:a100:1",
        "gpu",
        ["AutoDetect=nvml", "AutoDetect=nvml Name=gpu Type=a100 File=/dev/nvidia1"],
    ),
    "shards of all GPUs": (
        [gpu(type="t4", file="/dev/nvidia[0-1]"), shard(count=16)],
        "gpu:t4:2,shard:16",
        "gpu,shard",
        ["Name=gpu Type=t4 File=/dev/nvidia[0-1]", "Name=shard Count=16"],
    ),
    "shards of detected GPUs": (
        [gpu(count=2, autodetect="nvml"), shard(count=16)],
        "gpu:2,shard:16",
        "gpu,shard",
        ["AutoDetect=nvml", "Name=shard Count=16"],
    ),
    "shards of each GPU": (
        [gpu(file="/dev/nvidia[0-2]"), shard(file="/dev/nvidia0", count=2), shard(file="/dev/nvidia[1-2]", count=8)],
        "gpu:3,shard:10",
        "gpu,shard",
        [
            "Name=gpu File=/dev/nvidia[0-2]",
            "Name=shard Count=2 File=/dev/nvidia0",
            "Name=shard Count=8 File=/dev/nvidia[1-2]",
        ],
    ),
    "mps": (
        [gpu(file="/dev/nvidia[0-3]"), {"name": "mps", "count": 400, "flags": ["all_sharing"]}],
        "gpu:4,mps:400",
        "gpu,mps",
        ["Name=gpu File=/dev/nvidia[0-3]", "Name=mps Count=400 Flags=all_sharing"],
    ),
    "counted": (
        [{"name": "bandwidth", "type": "lustre", "count": 5, "flags": "CountOnly"}],
        "bandwidth:lustre:5",
        "bandwidth",
        ["Name=bandwidth Type=lustre Count=5 Flags=CountOnly"],
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right(case: str) -> None:
    gres, value, types, lines = RIGHT[case]
    assert rendered(*gres) == (value, types, lines)


FLAGS = (
    "CountOnly, explicit, one_sharing, all_sharing, nvidia_gpu_env, amd_gpu_env, intel_gpu_env, opencl_env, no_gpu_env"
)
LINKS = "allowed: a number from 0 for each device, and -1 for the device itself, such as -1,16,16"

WRONG: dict[str, tuple[list[Gres], list[str]]] = {
    "values": (
        [
            gpu(autodetect="nvm", flags=["nvidia"], cores="0-", links="1,2", mig={"1g": 1}),
            gpu(autodetect=True, flags=[], cores="3-1", links=[-1, -1], mig=[]),
            gpu(mig={"1g.10gb": 8}),
            gpu(mig={"1g.10gb": 0}),
        ],
        [
            "[0].cores: found '0-', allowed: indexes of cores such as 0-3,8-11",
            f"[0].links: found '1,2', {LINKS}",
            f"[0].flags: found ['nvidia'], allowed: {FLAGS}",
            "[0].autodetect: found 'nvm', allowed: nvml, nvidia, rsmi, nrt",
            "[0].mig: found {'1g': 1}, '1g' is not a profile, allowed: profiles of nvidia-smi such as 1g.10gb",
            "[1].cores: found '3-1', bad hostlist '[3-1]': the range '3-1' ends before it starts",
            f"[1].links: found [-1, -1], {LINKS}",
            f"[1].flags: found [], allowed: {FLAGS}",
            "[1].autodetect: found True, allowed: nvml, nvidia, rsmi, nrt",
            "[1].mig: found [], allowed: a mapping, key: value",
            "[2].mig: found {'1g.10gb': 8}, allowed: instances of up to 7 compute slices on each GPU, these have 8",
            "[3].mig: found {'1g.10gb': 0}, allowed: a whole number from 1",
        ],
    ),
    "GPUs of Intel": (
        [gpu(type="max", count=4, autodetect="oneapi"), gpu(type="x", autodetect=["oneapi"])],
        [
            f"[0].autodetect: found 'oneapi', refused: {REFUSED_METHODS['oneapi']}",
            "[1].autodetect: found ['oneapi'], allowed: nvml, nvidia, rsmi, nrt",
        ],
    ),
    "no file": ([gpu(type="t4", count=2)], ["[0].file: missing: the device files of the GPUs, or set autodetect"]),
    "not on other names": (
        [{"name": "nic", "autodetect": "nvml", "mig": {"1g.10gb": 1}}],
        ["[0].autodetect: found on 'nic', allowed: on gpu", "[0].mig: found on 'nic', allowed: on gpu"],
    ),
    "what is detected": (
        [gpu(file="/dev/nvidia0", autodetect="nvml", cores="0-3", links="-1")],
        [
            "[0].cores: autodetect nvml finds them: leave one of the two out",
            "[0].links: autodetect nvml finds them: leave one of the two out",
        ],
    ),
    "mig with files": (
        [gpu(type="a100", file="/dev/nvidia[0-1]", mig={"3g.40gb": 2})],
        [
            "[0].autodetect: found none, allowed with mig: nvml",
            "[0].file: the files of MIG instances are detected: set count, how many GPUs have this layout",
        ],
    ),
    "mig without NVML and type": (
        [gpu(autodetect="nvidia", mig={"3g.40gb": 2})],
        [
            "[0].autodetect: found nvidia, allowed with mig: nvml",
            "[0].type: missing: the GPU's name in the types of its MIG instances, such as a100 in a100_1g.5gb",
        ],
    ),
    "mig with lines and a file": (
        [
            gpu(type="a", autodetect="nvml", mig={"3g.40gb": 2}, flags=["nvidia_gpu_env"]),
            gpu(type="a", file="/dev/nvidia1", autodetect="nvml", flags=["nvidia_gpu_env"]),
        ],
        ["[1].file: either all or none of the 'gpu' of a machine have 'file'"],
    ),
    "autodetect differs": (
        [gpu(type="a", autodetect="nvml"), gpu(type="b", autodetect="rsmi")],
        ["[1].autodetect: all 'gpu' of a machine have the same, the first has 'nvml'"],
    ),
    "some": (
        [{"name": "nic", "type": "a", "file": "/dev/a", "cores": "0-3"}, {"name": "nic", "type": "b", "count": 2}],
        [
            "[1].file: either all or none of the 'nic' of a machine have 'file'",
            "[1].cores: either all or none of the 'nic' of a machine have 'cores'",
        ],
    ),
    "twice": (
        [{"name": "x"}, {"name": "x", "count": 2}],
        ["[1].name: 'x' is there already: give each a type or a file, or add up their counts"],
    ),
    "flags": (
        [
            gpu(type="a", file="/dev/a", flags=["no_gpu_env", "amd_gpu_env"]),
            gpu(type="b", file="/dev/b", flags=["explicit"]),
            shard(count=2, flags=["one_sharing", "all_sharing"]),
            {"name": "x", "flags": ["one_sharing"]},
        ],
        [
            "[0].flags: found no_gpu_env, amd_gpu_env, which exclude each other",
            "[1].flags: all 'gpu' of a machine have the same, the first has ['no_gpu_env', 'amd_gpu_env']",
            "[1].flags: found explicit, which leaves jobs no CUDA_VISIBLE_DEVICES: add one of "
            "nvidia_gpu_env, amd_gpu_env, intel_gpu_env, opencl_env, no_gpu_env",
            "[2].flags: found one_sharing, all_sharing, which exclude each other",
            "[3].flags: found one_sharing on 'x', allowed: on mps and shard",
        ],
    ),
    "count of files": (
        [gpu(file="/dev/a[0-2]", count=2), shard(file="/dev/a[0-2]", count=4)],
        [
            "[0].count: found 2, but '/dev/a[0-2]' are 3 files",
            "[1].count: found 4, allowed: a multiple of 3, the files in '/dev/a[0-2]'",
        ],
    ),
    "too many files": (
        [{"name": "x", "file": "/dev/a[1-1000]"}, {"name": "x", "file": "/dev/a[1001-1025]"}],
        ["[1].file: found 1025 files of 'x', allowed: up to 1024"],
    ),
    "links of several": (
        [gpu(file="/dev/a[0-1]", links="-1,4")],
        ["[0].links: found for 2 files, allowed: an entry for each file"],
    ),
    "file twice": (
        [
            gpu(file="/dev/a[0-1]"),
            gpu(file="/dev/a[1-2]"),
            shard(file="/dev/a0", count=1),
            shard(file="/dev/a0", count=2),
        ],
        ["[1].file: /dev/a1 is in another entry already", "[3].file: /dev/a0 is in another entry already"],
    ),
    "shard without gpu": (
        [shard(count=4)],
        ["[0].name: found 'shard', which is part of a GPU: add the gpu"],
    ),
    "shard: keys": (
        [gpu(file="/dev/a"), shard(type="t4", cores="0-3", links="-1")],
        [
            "[1].type: 'shard' has that of its GPU: leave it out",
            "[1].cores: 'shard' has that of its GPU: leave it out",
            "[1].links: 'shard' has that of its GPU: leave it out",
            "[1].count: missing: how many 'shard' there are, of all GPUs of the entry",
            "[1].links: found for 0 files, allowed: an entry for each file",
        ],
    ),
    "shard and mps": (
        [gpu(file="/dev/a"), shard(count=4), {"name": "mps", "count": 100}],
        ["[2].name: found 'mps' with 'shard', allowed: one of them on a machine"],
    ),
    "shard of no GPU": (
        [gpu(file="/dev/a[0-1]"), shard(file="/dev/a[1-3]", count=3)],
        ["[1].file: found /dev/a[2-3], allowed: the files of the gpu, or none for all GPUs alike"],
    ),
    "cores": (
        [gpu(file="/dev/a", cores="0-8"), gpu(file="/dev/b", cores="4-5")],
        [
            "[0].cores: found '0-8', allowed: 0-7",
        ],
    ),
}


def problems(document: Document) -> list[str]:
    """All errors in a cluster file, without the name of the file."""
    with pytest.raises(ModelError) as error:
        load(document)
    return [problem.removeprefix("my.cluster.yml: ") for problem in error.value.problems]


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    gres, expected = WRONG[case]
    assert problems(file(*gres)) == [f"hardware.a.gres{problem}" for problem in expected]


def test_nothing_is_detected_in_a_cloud() -> None:
    assert problems(file(gpu(autodetect="nvml"), State="cloud")) == [
        "nodes[0].State: found 'cloud', Slurm detects nothing on nodes of a cloud: "
        "give the gres of their hardware a file"
    ]
    load(file(gpu(file="/dev/nvidia0"), State="CLOUD"))


def test_files_everywhere_or_nowhere() -> None:
    document = file({"name": "nic", "file": "/dev/nic0"}, gpu(file="/dev/nvidia0"), shard(count=2))
    document.data["hardware"]["b"] = {**MACHINE, "gres": [gpu(autodetect="nvml"), {"name": "nic"}]}
    assert problems(document) == [
        "hardware.b.gres[1].file: either all or none of the 'nic' of a cluster have 'file', see hardware.a"
    ]


def test_what_is_no_entry_says_nothing_about_others() -> None:
    document = file({"name": "nic", "file": "dev/nic0"}, gpu())
    document.data["hardware"]["b"] = {**MACHINE, "gres": [{"name": "nic", "file": "/dev/nic0"}]}
    assert problems(document) == [
        "hardware.a.gres[0].file: found 'dev/nic0', 'dev/nic0' is not a host name, "
        "allowed: device files such as /dev/nvidia[0-7]"
    ]


def test_cores_of_a_machine_that_is_wrong_are_not_checked() -> None:
    document = file(gpu(file="/dev/nvidia0", cores="0-99"))
    del document.data["hardware"]["a"]["sockets"]
    assert problems(document) == ["hardware.a.sockets: missing"]


# Rendered lines parsed back give the model.

TYPES = st.lists(st.sampled_from(["h100", "t4", "a100_80gb", None]), min_size=1, max_size=3, unique=True).filter(
    lambda types: None not in types or len(types) == 1
)
LAYOUTS = st.sampled_from([{"1g.10gb": 7}, {"3g.40gb": 2}, {"3g.40gb": 1, "1g.10gb": 4}, {"1c.3g.40gb": 3}])


@st.composite
def resources(draw: st.DrawFn) -> list[Gres]:
    """The generic resources of a machine that is right."""
    types = draw(TYPES)
    detected = draw(st.booleans())
    entries, minor = [], 0
    for kind in types:
        count = draw(st.integers(1, 8))
        entry = gpu(**({"type": kind} if kind else {}))
        if not detected:
            entry["file"] = f"/dev/nvidia[{minor}-{minor + count - 1}]"
        else:
            entry |= {"count": count, "autodetect": "nvml"}
            if kind and draw(st.booleans()):
                entry["mig"] = draw(LAYOUTS)
        minor += count
        entries.append(entry)
    if draw(st.booleans()):
        entries.append({"name": draw(st.sampled_from(parameters.SHARED_GRES)), "count": draw(st.integers(1, 64))})
    if draw(st.booleans()):
        entries.append({"name": "bandwidth", "count": draw(st.integers(1, 999))})
    return entries


def kind_of(gres: Gres, profile: str = "") -> str:
    """NAME, or NAME:TYPE."""
    kind = "_".join(part for part in (gres.get("type"), profile) if part)
    return f"{gres['name']}:{kind}" if kind else str(gres["name"])


@given(resources())
def test_lines_parsed_back_give_the_model(entries: list[Gres]) -> None:
    """The counts in slurm.conf are those of the model, and gres.conf names no more and no others."""
    model: Counter[str] = Counter()
    for gres in entries:
        count = gres.get("count") or len(expand(gres["file"]))
        for profile, instances in gres.get("mig", {"": 1}).items():
            model[kind_of(gres, profile)] += count * instances
    value, types, lines = rendered(*entries)
    assert {kind: int(count) for kind, _colon, count in (part.rpartition(":") for part in value.split(","))} == model
    assert types.split(",") == sorted({kind.partition(":")[0] for kind in model})

    written: Counter[str] = Counter()
    parsed = [dict(pair.split("=", 1) for pair in line.split()) for line in lines]
    for line in parsed:
        if "Name" in line:
            kind = ":".join(line[key] for key in ("Name", "Type") if key in line)
            written[kind] += int(line.get("Count") or len(expand(line["File"])))
    detected = any("autodetect" in gres for gres in entries)
    assert [line["AutoDetect"] for line in parsed if "AutoDetect" in line] == ["nvml"] * detected
    assert written == {kind: count for kind, count in model.items() if not (detected and kind.startswith("gpu"))}
