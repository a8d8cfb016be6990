# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recording stand-in for nvidia-smi on hosts without GPUs, with only the commands that this collection calls.

Its GPUs are those of the stand-in for NVML, whose file describes them (nvml.c). It follows the rules of NVIDIA's MIG
user guide: instances need MIG mode, MIG mode cannot be disabled while there are instances, and an instance with a
compute instance cannot be destroyed. A new mode is in force at once, as on an H100. Commands that change something are
recorded in the file RECORD.

Answers without MIG have the form of a real H200's (tests/unit/test_recorded.py compares them). Those with MIG are by
the guide. Any other command fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

GPUS = Path(os.environ.get("NVML_STAND_IN", "/etc/nvml-stand-in"))
RECORD = Path("/run/nvidia-smi-stand-in")


def fail(message: str, status: int) -> None:
    """End as nvidia-smi does."""
    print(message)
    sys.exit(status)


def change(arguments: list[str], gpu: dict[str, list[str]]) -> dict[str, list[str]]:
    """A GPU after a command; the key `mig` is its GPU instances, `bare` those without a compute instance."""
    if "-dci" in arguments:
        return {"bare": gpu["mig"]}
    if "-dgi" in arguments:
        if "bare" not in gpu:
            fail("Unable to destroy GPU instance: In use by another client", 19)
        return {"mig": []}
    if "-cgi" in arguments:
        if gpu.get("mig") != []:
            fail("Unable to create a GPU instance: Insufficient Resources", 19)
        return {"mig": arguments[arguments.index("-cgi") + 1].split(",")}
    if gpu.get("mig"):
        fail("In use by another client", 19)
    return {"mig": []} if arguments[-1] == "1" else {}


def rows(arguments: list[str], known: dict[str, str], switch: str) -> list[str]:
    """The lines for `--query-SWITCH=FIELD,... --format=csv[,noheader][,nounits]` about one GPU, a heading first.

    Ends as nvidia-smi does for a field that it does not know.
    """
    fields = arguments[0].removeprefix(f"--query-{switch}=").split(",")
    for field in fields:
        if field not in known:
            fail(f'Field "{field}" is not a valid field to query.\n', 2)
    plain = "nounits" in arguments[-1]
    heading = ", ".join(f"{field} [MiB]" if "memory" in field and not plain else field for field in fields)
    line = ", ".join(known[field].removesuffix(" MiB") if plain else known[field] for field in fields)
    return [line] if "noheader" in arguments[-1] else [heading, line]


def table(arguments: list[str], gpus: list[dict[str, str]], switch: str) -> None:
    """Print the answer to a query about all GPUs."""
    answers = [rows(arguments, gpu, switch) for gpu in gpus]
    print("\n".join(answers[0][:-1] + [answer[-1] for answer in answers]))


def described(index: int, name: str, enabled: bool) -> dict[str, str]:
    """What the queries know of a GPU without errors; values have the form that an H200 with driver 580 gave them."""
    mode = "Enabled" if enabled else "Disabled"
    return {
        "index": str(index),
        "name": name,
        "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
        "gpu_bus_id": f"00000000:{index + 1:02X}:00.0",
        "memory.total": "81559 MiB",
        "mig.mode.current": mode,
        "mig.mode.pending": mode,
        "ecc.errors.uncorrected.volatile.total": "0",
        "remapped_rows.pending": "No",
        "remapped_rows.failure": "No",
    }


def main() -> None:
    arguments = sys.argv[1:]
    names, gpus = [], []
    for line in GPUS.read_text().splitlines():
        name, mode, instances = line.partition("|")
        names.append(name)
        # Between two commands instances without compute instances are marked by a word of their own.
        kind = "bare" if instances.startswith("bare") else "mig"
        gpus.append({kind: instances.removeprefix("bare").split()} if mode else {})
    if not names:
        fail("No devices were found", 6)
    known = [described(i, name, bool(gpus[i])) for i, name in enumerate(names)]
    if arguments in (["-L"], ["--list-gpus"]):
        for i, name in enumerate(names):
            print(f"GPU {i}: {name} (UUID: GPU-00000000-0000-0000-0000-{i:012})")
            for j, profile in enumerate(gpus[i].get("mig", [])):
                print(f"  MIG {profile}  Device  {j}: (UUID: MIG-{i}-{j + 1})")
    elif arguments and arguments[0].startswith("--query-gpu="):
        table(arguments, known, "gpu")
    elif arguments and arguments[0].startswith("--query-remapped-rows="):
        table(arguments, known, "remapped-rows")
    elif arguments == ["nvlink", "-s"]:
        pass
    elif arguments == ["mig", "-lgi"]:
        if not any(gpus):
            fail("No MIG-enabled devices found.", 0)
        found = [(i, profile) for i, gpu in enumerate(gpus) for profile in gpu.get("mig", gpu.get("bare", []))]
        for i, profile in found:
            print(f"|   {i}  MIG {profile}          9        1          0:4     |")
        if not found:
            fail("No GPU instances found: Not Found", 6)
    elif "-i" in arguments:
        index = int(arguments[arguments.index("-i") + 1])
        if index >= len(gpus):
            fail("No devices were found", 6)
        gpus[index] = change(arguments, gpus[index])
        lines = list(names)
        for i, gpu in enumerate(gpus):
            for kind, profiles in gpu.items():
                lines[i] += "|" + " ".join(([kind] if kind == "bare" else []) + profiles)
        GPUS.write_text("\n".join(lines) + "\n")
        with RECORD.open("a") as record:
            print(*arguments, file=record)
    else:
        fail(f"the stand-in for nvidia-smi does not know: {' '.join(arguments)}", 2)


if __name__ == "__main__":
    main()
