# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that seems to have eight GPUs, for AutoDetect with Slurm's own NVML plugin and for MIG.

NVIDIA's library and nvidia-smi are stand-ins that share their GPUs, and so are the device files and what the driver
says in /proc. The cluster file gives two of the GPUs MIG instances.
"""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from lab import Lab
from stand_ins import STAND_IN

NODE = "box01"
GPU = "NVIDIA H100 80GB HBM3"
MIG = {"3g.40gb": 1, "1g.10gb": 4}
DECLARED = [
    {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"},
    {"name": "gpu", "type": "h100_80gb_hbm3", "count": 2, "autodetect": "nvml", "mig": MIG},
]
PLAIN = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}

INSTANCES = [profile for profile, count in MIG.items() for _instance in range(count)]

# The stand-ins' description of the GPUs, as it is before: without MIG.
GPUS = "\n".join([GPU] * 8)
# What the driver says in /proc of the instances' device files: of each a GPU instance and its compute instance.
MINORS = "\n".join(
    f"gpu{gpu}/gi{i}/access {20 * gpu + 2 * i}\ngpu{gpu}/gi{i}/ci0/access {20 * gpu + 2 * i + 1}"
    for gpu in (6, 7)
    for i in range(1, len(INSTANCES) + 1)
)
INSTALL = f"""set -e
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
REMOVE = """test -e /etc/nvml-stand-in || exit 0
umount /proc/driver
systemctl disable --now slurm-mig
rm -rf /etc/systemd/system/slurm-mig.service /etc/gpucluster-slurm/mig.json /usr/local/sbin/slurm-mig
rm -rf /usr/local/lib/gpucluster-slurm/library/slurm-mig
systemctl daemon-reload
rm -rf /dev/nvidia-caps /dev/nvidia[2-7] /usr/local/bin/nvidia-smi /etc/nvml-stand-in /run/nvidia-smi-stand-in*
rm -f /usr/local/lib/libnvidia-ml.so.1
ldconfig
apt-get purge --quiet=2 --yes --allow-change-held-packages slurm-wlm-nvml-plugin
"""


def install_gpus(lab: Lab, directory: Path) -> None:
    """Have them on the node. The library is made in a directory."""
    library = directory / "libnvidia-ml.so.1"
    gcc = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(STAND_IN / "nvml.c")]
    subprocess.run(gcc, check=True)
    script = INSTALL
    for name, path in {"LIBRARY": library, "NVIDIA_SMI": STAND_IN / "nvidia_smi.py"}.items():
        script = script.replace(name, base64.encodebytes(path.read_bytes()).decode().strip())
    lab.command(NODE, script)


def recorded(lab: Lab) -> list[str]:
    """The commands that nvidia-smi has received to change something; before the first one there is no file."""
    return str(lab.command(NODE, "cat /run/nvidia-smi-stand-in 2>/dev/null || true")).splitlines()
