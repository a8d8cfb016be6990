# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AutoDetect with Slurm's own NVML plugin on gpu01, over a stand-in for NVIDIA's library with eight GPUs.

The cluster file gives two of the GPUs MIG instances, which site.yml makes with a recording stand-in for nvidia-smi; the
two stand-ins share their GPUs. What the driver says in /proc has a stand-in, too. The tests run in this order;
afterwards the node is as it was.
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
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpus import CHANGED
from lab import ROOT, Lab, with_hardware

NODE = "gpu01"
GPU = "NVIDIA H100 80GB HBM3"
MIG = {"3g.40gb": 1, "1g.10gb": 4}
DECLARED = [
    {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"},
    {"name": "gpu", "type": "h100_80gb_hbm3", "count": 2, "autodetect": "nvml", "mig": MIG},
]
FOUND = {"h100": 6, "h100_80gb_hbm3_3g.40gb": 2, "h100_80gb_hbm3_1g.10gb": 8}

INSTANCES = [profile for profile, count in MIG.items() for _instance in range(count)]
# What role slurmd tells slurmd.
UNIT = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
# The stand-ins' description of the GPUs, as it is before: without MIG.
GPUS = "\n".join([GPU] * 8)
# What the driver says in /proc of the instances' device files: of each a GPU instance and its compute instance.
MINORS = "\n".join(
    f"gpu{gpu}/gi{i}/access {20 * gpu + 2 * i}\ngpu{gpu}/gi{i}/ci0/access {20 * gpu + 2 * i + 1}"
    for gpu in (6, 7)
    for i in range(1, len(INSTANCES) + 1)
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
(echo '#!/usr/bin/python3'; base64 -d) >/usr/local/bin/nvidia-smi <<END
NVIDIA_SMI
END
chmod 755 /usr/local/bin/nvidia-smi
cd /dev/nvidia-caps
for n in $(cut -d' ' -f2 /proc/driver/nvidia-caps/mig-minors); do mknod -m 666 nvidia-cap$n c 236 $n; done
"""
REMOVE = """set -e
umount /proc/driver
systemctl disable --now slurm-mig
rm -rf /etc/systemd/system/slurm-mig.service /etc/gpucluster-slurm/mig.json /usr/local/sbin/slurm-mig
rm -rf /usr/local/lib/gpucluster-slurm
systemctl daemon-reload
rm -rf /dev/nvidia-caps /dev/nvidia[2-7] /etc/nvml-stand-in /run/nvidia-smi-stand-in
rm -f /usr/local/lib/libnvidia-ml.so.1 /usr/local/bin/nvidia-smi
ldconfig
apt-get purge --quiet=2 --yes slurm-wlm-nvml-plugin
"""


def node(lab: Lab, field: str) -> str:
    """A field of what slurmctld knows of the node."""
    match = re.search(rf"\b{field}=(.*?)(?= \w+=|$)", lab.command("gpuhead", f"scontrol --oneliner show node {NODE}"))
    return match[1] if match else ""


def job(lab: Lab, gres: str, command: str) -> str:
    """What a user's job with these resources prints."""
    run = f"runuser -u alice -- timeout 180 srun -w {NODE} --gres={gres} sh -c '{command}'"
    return str(lab.command("gpuhead", run))


@pytest.fixture(scope="module", autouse=True)
def detecting(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The node has the plugin and the stand-in, and afterwards no more."""
    library = tmp_path_factory.mktemp("stand-in") / "libnvidia-ml.so.1"
    source = ROOT / "tests/integration/stand_in/nvml.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
    install = INSTALL
    for name, path in (("LIBRARY", library), ("NVIDIA_SMI", ROOT / "tests/integration/stand_in/nvidia_smi.py")):
        install = install.replace(name, base64.encodebytes(path.read_bytes()).decode().strip())
    lab.command(NODE, install)
    yield
    lab.command(NODE, REMOVE)
    lab.playbook("site", "--tags=controller,compute")
    lab.host("gpuhead").run(f"scontrol update nodename={NODE} state=resume")  # refused where it is not needed
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.changed) == (0, {})


def recorded(lab: Lab) -> list[str]:
    """What nvidia-smi was told to change; there is no file before it is told something."""
    return str(lab.command(NODE, "cat /run/nvidia-smi-stand-in 2>/dev/null || true")).splitlines()


def test_a_node_with_a_job_keeps_its_instances(lab: Lab, running: str, tmp_path: Path) -> None:
    run = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED}).playbook("site", "--tags=controller,compute")
    assert f"would end the jobs on these nodes (node, job): {NODE} {running}. Nothing was changed." in str(run.failed)
    assert run.changed == {}
    assert recorded(lab) == []
    assert lab.command("gpuhead", f"squeue -h -j {running} -o %T") == "RUNNING"


def test_no_answer_of_slurmctld_is_not_taken_for_no_job(lab: Lab, tmp_path: Path) -> None:
    lab.command("gpuhead", "systemctl stop slurmctld")
    try:
        run = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED}).playbook("site", "--tags=controller,compute")
    finally:
        lab.command("gpuhead", "systemctl start slurmctld")
    lab.wait_until_idle("gpuhead", NODE)
    assert f"would end jobs on {NODE}, and slurmctld does not say whether there are any" in str(run.failed)
    assert run.changed == {}
    assert recorded(lab) == []


def test_a_node_in_maintenance_is_not_refused(lab: Lab, tmp_path: Path) -> None:
    reservation = f"reservationname=mig users=root flags=maint starttime=now duration=60 nodes={NODE}"
    lab.command("gpuhead", f"scontrol create {reservation}")
    try:
        lab.wait_for("gpuhead", f"sinfo -h -n {NODE} -o %T", "maint")
        declared = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED})
        plan = declared.playbook("site", "--tags=controller,compute", "--check")
    finally:
        lab.command("gpuhead", "scontrol delete reservationname=mig")
    lab.wait_until_idle("gpuhead", NODE)
    assert plan.failed == {}
    assert "gpucluster.slurm.nvidia_mig : Drain the nodes" in plan.changed[NODE]


def test_the_plan_is_told_in_check_mode(lab: Lab, tmp_path: Path) -> None:
    plan = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED}).playbook("site", "--check", "--diff")
    assert (plan.rc, plan.failed) == (0, {})
    assert "gpucluster.slurm.nvidia_mig : Look at the GPUs" in plan.changed[NODE]
    (diff,) = [
        result["diff"] for _host, task, result in plan.results if "Look at the GPUs" in task and result["changed"]
    ][:1]
    assert diff["before"] == f"GPU 6 ({GPU}): MIG off\nGPU 7 ({GPU}): MIG off\n"
    layout = "1g.10gb 1g.10gb 1g.10gb 1g.10gb 3g.40gb"
    assert diff["after"] == f"GPU 6 ({GPU}): {layout}\nGPU 7 ({GPU}): {layout}\n"
    assert recorded(lab) == []
    assert node(lab, "State") == "IDLE"


def test_the_instances_are_made_and_slurm_finds_what_the_cluster_file_declares(lab: Lab, tmp_path: Path) -> None:
    declared = with_hardware(lab, tmp_path, NODE, {"gres": DECLARED})
    run = declared.playbook("site", "--tags=controller,compute")
    assert run.failed == {}
    assert recorded(lab) == [
        "-i 6 -mig 1",
        "-i 7 -mig 1",
        "mig -i 6 -cgi 3g.40gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb -C",
        "mig -i 7 -cgi 3g.40gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb -C",
    ]
    detected = lab.command(NODE, "slurmd -G -f /run/slurm/conf/slurm.conf 2>&1")
    counts: Counter[str] = Counter()
    for kind, count in re.findall(r"Gres Name=gpu Type=(\S+) Count=(\d+)", detected):
        counts[kind] += int(count)
    assert counts == FOUND
    shown = re.findall(r"gpu:([^:,]+):(\d+)", node(lab, "Gres"))
    assert {kind: int(count) for kind, count in shown} == FOUND
    lab.wait_until_idle("gpuhead", NODE)

    # As if that run had been killed before it came to slurmd, which only finds instances when it starts.
    lab.command(NODE, f"test -e {CHANGED} && touch {CHANGED}")
    again = declared.playbook("site", "--tags=controller,compute")
    assert (again.rc, again.changed) == (0, {NODE: ["gpucluster.slurm.slurmd : Run slurmd with its settings"]})
    assert declared.playbook("site", "--tags=controller,compute").changed == {}


def test_discover_finds_what_the_cluster_file_declares(lab: Lab, tmp_path: Path) -> None:
    run = with_hardware(lab, tmp_path, NODE, "detected").playbook("discover", f"--limit={NODE}")
    assert (run.rc, run.failed) == (0, {})
    (machine,) = yaml.safe_load((tmp_path / "gpu.hardware.yml").read_text())["hardware"].values()
    assert machine["gres"] == DECLARED


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


def test_instances_are_made_again_when_the_node_boots(lab: Lab) -> None:
    assert lab.command(NODE, "systemctl is-enabled slurm-mig") == "enabled"
    # A boot takes the instances away, not the mode.
    lab.command(
        NODE, f"printf '%s\\n' {' '.join(repr(line) for line in [GPU] * 6 + [GPU + '|'] * 2)} >/etc/nvml-stand-in"
    )
    lab.command(NODE, "rm /run/nvidia-smi-stand-in")
    # A cluster file without `mig` has this line no more.
    lab.command(NODE, f"cp -p {UNIT} /run/slurmd-unit && sed -i /slurm-mig/d {UNIT} && systemctl restart slurm-mig")
    lab.command(NODE, f"mv /run/slurmd-unit {UNIT}")
    assert recorded(lab) == []
    lab.command(NODE, "systemctl restart slurm-mig slurmd")
    assert [command.split()[:4] for command in recorded(lab)] == [["mig", "-i", str(gpu), "-cgi"] for gpu in (6, 7)]
    lab.wait_until_idle("gpuhead", NODE)


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
    # As on a node whose instances somebody has made by hand.
    refused = wrong.playbook("site", "--tags=controller", "--skip-tags=mig")
    assert f"{NODE} would become INVAL: gres/gpu" in str(refused.failed)

    # Slurm judges likewise if it is let, and the old files are put back.
    failed = str(wrong.playbook("site", "--tags=controller", "--skip-tags=preflight,mig").failed["gpuhead"])
    assert f"Slurm takes {NODE} no more: gres/gpu count reported lower than configured {counts}" in failed
    assert "Rolled back: the old files are in force again." in failed
    lab.wait_until_idle("gpuhead", NODE)
