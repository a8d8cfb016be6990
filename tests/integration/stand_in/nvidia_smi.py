# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recording stand-in for nvidia-smi on hosts without GPUs, with only the commands that this collection calls.

Its GPUs are those of the stand-in for NVML, whose file describes them (nvml.c). It follows the rules of NVIDIA's MIG
user guide: instances need MIG mode, MIG mode cannot be disabled while there are instances, and an instance with a
compute instance cannot be destroyed. A new mode is in force at once, as on an H100. Commands that change something are
recorded in the file RECORD.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

GPUS = Path(os.environ.get("NVML_STAND_IN", "/etc/nvml-stand-in"))
RECORD = Path("/run/nvidia-smi-stand-in")


def fail(words: str, status: int) -> None:
    """End as nvidia-smi does."""
    print(words)
    sys.exit(status)


def change(words: list[str], gpu: dict[str, list[str]]) -> dict[str, list[str]]:
    """A GPU after a command; the key `mig` is its GPU instances, `bare` those without a compute instance."""
    if "-dci" in words:
        return {"bare": gpu["mig"]}
    if "-dgi" in words:
        if "bare" not in gpu:
            fail("Unable to destroy GPU instance: In use by another client", 19)
        return {"mig": []}
    if "-cgi" in words:
        if gpu.get("mig") != []:
            fail("Unable to create a GPU instance: Insufficient Resources", 19)
        return {"mig": words[words.index("-cgi") + 1].split(",")}
    if gpu.get("mig"):
        fail("In use by another client", 19)
    return {"mig": []} if words[-1] == "1" else {}


def main() -> None:
    words = sys.argv[1:]
    names, gpus = [], []
    for line in GPUS.read_text().splitlines():
        name, mode, instances = line.partition("|")
        names.append(name)
        # Between two commands instances without compute instances are marked by a word of their own.
        kind = "bare" if instances.startswith("bare") else "mig"
        gpus.append({kind: instances.removeprefix("bare").split()} if mode else {})
    if words == ["-L"]:
        for i, name in enumerate(names):
            print(f"GPU {i}: {name} (UUID: GPU-{i})")
            for j, profile in enumerate(gpus[i].get("mig", [])):
                print(f"  MIG {profile}  Device  {j}: (UUID: MIG-{i}-{j + 1})")
    elif words[0].startswith("--query-gpu=index,pci.bus_id"):
        print("\n".join(f"{i}, 00000000:{i + 1:02X}:00.0, 81559" for i in range(len(names))))
    elif words[0].startswith("--query-gpu=index,name"):
        modes = ["Enabled" if gpu else "Disabled" for gpu in gpus]
        print("\n".join(f"{i}, {name}, {modes[i]}, {modes[i]}" for i, name in enumerate(names)))
    elif words == ["mig", "-lgi"]:
        rows = [(i, profile) for i, gpu in enumerate(gpus) for profile in gpu.get("mig", gpu.get("bare", []))]
        for i, profile in rows:
            print(f"|   {i}  MIG {profile}          9        1          0:4     |")
        if not rows:
            fail("No GPU instances found: Not Found", 6)
    elif "-i" in words:
        index = int(words[words.index("-i") + 1])
        gpus[index] = change(words, gpus[index])
        lines = list(names)
        for i, gpu in enumerate(gpus):
            for kind, profiles in gpu.items():
                lines[i] += "|" + " ".join(([kind] if kind == "bare" else []) + profiles)
        GPUS.write_text("\n".join(lines) + "\n")
        with RECORD.open("a") as record:
            print(*words, file=record)


if __name__ == "__main__":
    main()
