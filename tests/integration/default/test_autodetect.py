# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AutoDetect with Slurm's own NVML plugin on compute01, over a stand-in for NVIDIA's library with eight GPUs.

Two of the GPUs have MIG instances. What the driver says in /proc, and nvidia-smi, have stand-ins that say the same, for
the collection's own check. The cluster file declares what is to be found; site.yml makes Slurm's files of it. The tests
run in this order; afterwards the node is as it was.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import ROOT, Lab, with_hardware

NODE = "compute01"
GPU = "NVIDIA H100 80GB HBM3"
MIG = {"3g.40gb": 1, "1g.10gb": 4}
DECLARED = [
    {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"},
    {"name": "gpu", "type": "h100_80gb_hbm3", "count": 2, "autodetect": "nvml", "mig": MIG},
]
FOUND = {"h100": 6, "h100_80gb_hbm3_3g.40gb": 2, "h100_80gb_hbm3_1g.10gb": 8}

# The stand-in's description of the GPUs: two layouts of MIG instances after six plain GPUs.
INSTANCES = [profile for profile, count in MIG.items() for _instance in range(count)]
GPUS = "\n".join([GPU] * 6 + [f"{GPU}|{' '.join(INSTANCES)}"] * 2)
# What the driver says in /proc of the instances' device files: of each a GPU instance and its compute instance.
MINORS = "\n".join(
    f"gpu{gpu}/gi{i}/access {20 * gpu + 2 * i}\ngpu{gpu}/gi{i}/ci0/access {20 * gpu + 2 * i + 1}"
    for gpu in (6, 7)
    for i in range(1, len(INSTANCES) + 1)
)
SMI_GPUS = "\n".join(f"{gpu}, 00000000:{gpu + 1:02X}:00.0, 81559" for gpu in range(8))
SMI_INSTANCES = "\n".join(
    f"GPU {gpu}: {GPU} (UUID: GPU-{gpu})\n"
    + "\n".join(f"  MIG {name}  Device  {i}: (UUID: MIG-{gpu}-{i + 1})" for i, name in enumerate(INSTANCES))
    for gpu in (6, 7)
)
INSTALL = f"""set -e
apt-get install --quiet=2 --yes --no-install-recommends slurm-wlm-nvml-plugin
base64 -d >/usr/local/lib/libnvidia-ml.so.1 <<END
LIBRARY
END
ldconfig
cat >/etc/nvml-stand-in <<END
{GPUS}
END
for n in $(seq 2 7); do mknod -m 666 /dev/nvidia$n c 195 $n; done
mount -t tmpfs nvml-stand-in /proc/driver
mkdir /proc/driver/nvidia-caps /dev/nvidia-caps
cat >/proc/driver/nvidia-caps/mig-minors <<END
{MINORS}
END
for n in $(seq 0 7); do
    mkdir -p /proc/driver/nvidia/gpus/0000:0$((n + 1)):00.0
    printf 'Model: {GPU}\\nDevice Minor: %s\\n' $n >/proc/driver/nvidia/gpus/0000:0$((n + 1)):00.0/information
done
(echo '#!/bin/sh'; cat) >/usr/local/bin/nvidia-smi <<'END'
test "$1" = -L && exec cat <<LIST
{SMI_INSTANCES}
LIST
cat <<GPUS
{SMI_GPUS}
GPUS
END
chmod 755 /usr/local/bin/nvidia-smi
cd /dev/nvidia-caps
for n in $(cut -d' ' -f2 /proc/driver/nvidia-caps/mig-minors); do mknod -m 666 nvidia-cap$n c 236 $n; done
"""
REMOVE = """set -e
umount /proc/driver
rm -rf /dev/nvidia-caps /dev/nvidia[2-7] /etc/nvml-stand-in /usr/local/lib/libnvidia-ml.so.1 /usr/local/bin/nvidia-smi
ldconfig
apt-get purge --quiet=2 --yes slurm-wlm-nvml-plugin
"""


def node(lab: Lab, field: str) -> str:
    """A field of what slurmctld knows of the node."""
    match = re.search(rf"\b{field}=(.*?)(?= \w+=|$)", lab.command("head", f"scontrol --oneliner show node {NODE}"))
    return match[1] if match else ""


def job(lab: Lab, gres: str, command: str) -> str:
    """What a user's job with these resources prints."""
    run = f"runuser -u alice -- timeout 60 srun -w {NODE} --gres={gres} sh -c '{command}'"
    return str(lab.command("login1", run))


@pytest.fixture(scope="module", autouse=True)
def detecting(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The node has the plugin and the stand-in, and afterwards no more."""
    library = tmp_path_factory.mktemp("stand-in") / "libnvidia-ml.so.1"
    source = ROOT / "tests/integration/stand_in/nvml.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
    lab.command(NODE, INSTALL.replace("LIBRARY", base64.encodebytes(library.read_bytes()).decode().strip()))
    yield
    lab.command(NODE, REMOVE)
    lab.playbook("site", "--tags=controller")
    lab.host("head").run(f"scontrol update nodename={NODE} state=resume")  # refused where it is not needed
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.changed) == (0, {})


def test_discover_finds_what_the_cluster_file_declares(lab: Lab, tmp_path: Path) -> None:
    run = with_hardware(lab, tmp_path, NODE, "detected").playbook("discover", f"--limit={NODE}")
    assert (run.rc, run.failed) == (0, {})
    (machine,) = yaml.safe_load((tmp_path / "demo.hardware.yml").read_text())["hardware"].values()
    assert machine["gres"] == DECLARED


def test_slurm_finds_what_the_cluster_file_declares(lab: Lab, tmp_path: Path) -> None:
    run = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED}).playbook("site", "--tags=controller,compute")
    assert (run.rc, run.failed) == (0, {})
    detected = lab.command(NODE, "slurmd -G -f /run/slurm/conf/slurm.conf 2>&1")
    counts: Counter[str] = Counter()
    for kind, count in re.findall(r"Gres Name=gpu Type=(\S+) Count=(\d+)", detected):
        counts[kind] += int(count)
    assert counts == FOUND
    declared = dict(re.findall(r"gpu:([^:,]+):(\d+)", node(lab, "Gres")))
    assert {kind: int(count) for kind, count in declared.items()} == FOUND
    assert node(lab, "State") == "IDLE"


def test_a_job_has_the_gpu_that_it_asks_for(lab: Lab) -> None:
    assert job(lab, "gpu:h100:1", "echo $CUDA_VISIBLE_DEVICES") == "0"
    assert job(lab, "gpu:h100:6", "echo $CUDA_VISIBLE_DEVICES") == "0,1,2,3,4,5"


@pytest.mark.parametrize("profile", MIG)
def test_a_job_has_the_mig_instances_that_it_asks_for(lab: Lab, profile: str) -> None:
    kind = f"h100_80gb_hbm3_{profile}"
    all_of_them = {f"MIG-{gpu}-{i}" for gpu in (6, 7) for i, name in enumerate(INSTANCES, 1) if name == profile}
    assert job(lab, f"gpu:{kind}:1", "echo $CUDA_VISIBLE_DEVICES") in all_of_them
    found = job(lab, f"gpu:{kind}:{FOUND[kind]}", "echo $CUDA_VISIBLE_DEVICES").split(",")
    assert sorted(found) == sorted(all_of_them)


@pytest.mark.parametrize(
    ("gres", "counts"),
    [
        pytest.param([DECLARED[0] | {"count": 7}, DECLARED[1]], "(16 < 17)", id="count"),
        pytest.param([DECLARED[0], DECLARED[1] | {"mig": {"7g.80gb": 1}}], "(6 < 8)", id="profile"),
    ],
)
def test_a_wrong_declaration_is_refused_and_slurm_refuses_it(
    lab: Lab, gres: list[dict[str, Any]], counts: str, tmp_path: Path
) -> None:
    wrong = with_hardware(lab, tmp_path, NODE, {"gres": gres})
    refused = wrong.playbook("site", "--tags=controller")
    assert f"{NODE} would become INVAL: gres/gpu" in str(refused.failed)

    # Slurm judges likewise if it is let, and the old files are put back.
    failed = str(wrong.playbook("site", "--tags=controller", "--skip-tags=preflight").failed["head"])
    assert f"Slurm takes {NODE} no more: gres/gpu count reported lower than configured {counts}" in failed
    assert "Rolled back: the old files are in force again." in failed
    lab.wait_for("head", f"sinfo --noheader --nodes={NODE} --format=%T", "idle")
