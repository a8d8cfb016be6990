# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the collection's topology of dumps of machines against a real slurmd.

slurmd reads a dump with hwloc's HWLOC_FSROOT. `slurmd -C` does not read SlurmdParameters; `slurmd -G`, which shows
generic resources, reads a slurm.conf and logs the hardware that it has found.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.cpu_files import TopologyError
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import (
    parse_node_line,
    read_topology,
)
from sysfs import random_machine

# Runs a shell script with this input, and gives its output.
Runner = Callable[[str, bytes], str]

# SlurmdParameters that change the topology in slurmd, alone and together where Slurm allows it; the empty one is
# `slurmd -C`.
VARIANTS = (
    "",
    "l3cache_as_socket",
    "numa_node_as_socket",
    "allow_ecores",
    "numa_node_as_socket,allow_ecores",
    "allow_ecores,numa_node_as_socket,L3cache_as_Socket",
)

# A line for each dump and variant.
_SCRIPT = """\
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
tar -xz
export HWLOC_COMPONENTS=linux,stop HWLOC_THISSYSTEM=0
slurmd -V >&2
for parameters in VARIANTS; do
    cat >slurm.conf <<END
ClusterName=check
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
SlurmdSpoolDir=$directory
SlurmdParameters=$parameters
NodeName=machine CPUs=1
END
    echo CgroupPlugin=disabled >cgroup.conf
    ask=${parameters:+-G -N machine -vv -f $directory/slurm.conf}
    for dump in */; do
        export HWLOC_FSROOT="$directory/$dump"
        echo "${dump%/} =$parameters $(timeout 10 slurmd ${ask:--C} 2>&1 | grep 'CPUs[:=].*Boards[:=]' | head -n 1)"
    done
done
"""


def write_random_machines(dumps: Path, seeds: Iterable[int]) -> None:
    """Make dumps of random machines, each named after its seed."""
    for seed in seeds:
        random_machine(random.Random(seed)).write(dumps / str(seed))


def slurm_says(dumps: Path, run: Runner, variants: Sequence[str]) -> dict[tuple[str, str], dict[str, int]]:
    """The facts that slurmd prints for each dump in a folder, by the dump's name and the SlurmdParameters.

    A dump with which slurmd does not start has no facts.

    Args:
        dumps: a folder of dumps.
        run: runs the script where slurmd is installed.
        variants: values of SlurmdParameters.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        tar.add(dumps, arcname=".")
    result = {}
    script = _SCRIPT.replace("VARIANTS", " ".join(variant or "''" for variant in variants))
    for line in run(script, archive.getvalue()).splitlines():
        name, parameters, text = line.split(" ", 2)
        numbers = parse_node_line(text.replace(":", "="))
        numbers.pop("real_memory", None)  # of the machine that slurmd runs on
        if " Sockets:" in text:
            numbers["sockets_per_board"] = int(text.split(" Sockets:")[1].split()[0]) // numbers["boards"]
        result[name, parameters[1:]] = numbers
    return result


def collection_says(dump: Path, slurmd_parameters: str) -> Mapping[str, object]:
    """The collection's facts for a dump; empty if the collection finds that slurmd would not start."""
    try:
        return read_topology(Tree(str(dump)), slurmd_parameters.split(",")).numbers
    except TopologyError:
        return {}


def differences(dumps: Path, run: Runner, variants: Sequence[str] = VARIANTS) -> list[str]:
    """A text for each dump of a folder and each variant for which slurmd and the collection differ.

    Raises:
        AssertionError: slurmd did not read all of the dumps.
    """
    said = slurm_says(dumps, run, variants)
    assert set(said) == {(dump.name, parameters) for dump in dumps.iterdir() for parameters in variants}
    return [
        f"{name} {parameters}\n  slurmd:     {numbers}\n  collection: {own}"
        for (name, parameters), numbers in said.items()
        if (own := collection_says(dumps / name, parameters)) != numbers
    ]
