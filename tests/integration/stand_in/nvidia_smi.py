# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recording stand-in for nvidia-smi on hosts without GPUs, with only the commands that this collection calls.

Its GPUs are those of the stand-in for NVML, whose file describes them (nvml.c). It follows the rules of NVIDIA's MIG
user guide: instances need MIG mode, MIG mode cannot be disabled while there are instances, and an instance with a
compute instance cannot be destroyed. A new mode is in force at once, as on an H100. Commands that change something are
recorded in the file RECORD.

Answers without MIG have the form of a real H200's (tests/unit/test_recorded.py compares them), except that of pmon,
which is by nvidia-smi(1). Those with MIG are by the guide and by NVIDIA's DTD. Any other command fails.

The file LOADS gives GPUs a known load: a line has the index of a GPU, the percentage of time in which it computes, and
its processes. They share the load.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

GPUS = Path(os.environ.get("NVML_STAND_IN", "/etc/nvml-stand-in"))
RECORD = Path("/run/nvidia-smi-stand-in")
LOADS = Path(os.environ.get("NVIDIA_SMI_STAND_IN_LOADS", "/run/nvidia-smi-stand-in-loads"))


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


UNITS = (" MiB", " W", " %", " MHz")


def rows(arguments: list[str], known: dict[str, str], switch: str) -> list[str]:
    """The lines for `--query-SWITCH=FIELD,... --format=csv[,noheader][,nounits]` about one GPU, a heading first.

    Ends as nvidia-smi does for a field that it does not know.
    """
    fields = arguments[0].removeprefix(f"--query-{switch}=").split(",")
    for field in fields:
        if field not in known:
            fail(f'Field "{field}" is not a valid field to query.\n', 2)
    plain = "nounits" in arguments[-1]
    units = {field: known[field].partition(" ")[2] for field in fields if known[field].endswith(UNITS)}
    heading = ", ".join(f"{field} [{units[field]}]" if field in units and not plain else field for field in fields)
    line = ", ".join(
        known[field].removesuffix(f" {units[field]}") if field in units and plain else known[field] for field in fields
    )
    return [line] if "noheader" in arguments[-1] else [heading, line]


def table(arguments: list[str], gpus: list[dict[str, str]], switch: str) -> None:
    """Print the answer to a query about all GPUs."""
    answers = [rows(arguments, gpu, switch) for gpu in gpus]
    print("\n".join(answers[0][:-1] + [answer[-1] for answer in answers]))


def load_of(index: int) -> tuple[int, int]:
    """The percentage and the processes of a GPU."""
    lines = LOADS.read_text().splitlines() if LOADS.exists() else []
    loads = {int(words[0]): (int(words[1]), int(words[2])) for words in map(str.split, lines) if words}
    return loads.get(index, (0, 0))


def processes(count: int) -> None:
    """Print the answer of pmon."""
    print("# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command ")
    print("# Idx           #    C/G      %      %      %      %      %      %    name ")
    for index in range(count):
        percentage, running = load_of(index)
        for process in range(running):
            share = percentage // running + (process < percentage % running)
            print(f"{index:5} {1000 + process:10}     C {share:6}      0      -      -      -      -    stand-in      ")
        if not running:
            print(f"{index:5}          -     -      -      -      -      -      -      -    -              ")


def details(gpus: list[dict[str, list[str]]]) -> None:
    """Print what `-q -x` says of MIG instances and processes: each instance of a GPU has the memory of its load."""
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>')
    for index, gpu in enumerate(gpus):
        percentage, running = load_of(index)
        print(f'<gpu id="00000000:{index + 1:02X}:00.0"><mig_devices>')
        for place, _profile in enumerate(gpu.get("mig", [])):
            print(f"<mig_device><index>{place}</index><gpu_instance_id>{place + 1}</gpu_instance_id>")
            print("<compute_instance_id>0</compute_instance_id>")
            print(
                f"<fb_memory_usage><total>10000 MiB</total><used>{percentage} MiB</used></fb_memory_usage></mig_device>"
            )
        print("</mig_devices><processes>")
        for process in range(running):
            where = process % max(1, len(gpu.get("mig", []))) + 1 if gpu.get("mig") else "N/A"
            print(f"<process_info><gpu_instance_id>{where}</gpu_instance_id><pid>{1000 + process}</pid>")
            print("<type>C</type><process_name>stand-in</process_name></process_info>")
        print("</processes></gpu>")
    print("</nvidia_smi_log>")


def described(index: int, name: str, enabled: bool) -> dict[str, str]:
    """What the queries know of a GPU without errors; values have the form that an H200 with driver 580 gave them."""
    mode = "Enabled" if enabled else "Disabled"
    percentage, running = load_of(index)
    return {
        "index": str(index),
        "name": name,
        "uuid": f"GPU-00000000-0000-0000-0000-{index:012}",
        "clocks_event_reasons.active": "0x0000000000000000" if running else "0x0000000000000001",
        "temperature.gpu": "36",
        "power.draw": f"{78 + 6 * percentage}.22 W",
        "clocks.current.sm": "1980 MHz" if running else "345 MHz",
        "utilization.gpu": "[N/A]" if enabled else f"{percentage} %",
        "memory.used": f"{500 * running} MiB",
        "ecc.errors.corrected.volatile.total": "0",
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
    elif arguments == ["pmon", "-c", "1"]:
        processes(len(gpus))
    elif arguments == ["-q", "-x"]:
        details(gpus)
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
