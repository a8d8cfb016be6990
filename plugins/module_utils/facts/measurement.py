# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures a machine as `slurmd -C` would, and its GPUs, for the fact `slurm_hardware`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..client.commands import run
from ..gpu.devices import read_gpus
from ..hardware.cpu_files import TopologyError
from ..hardware.network_ports import read_ports
from ..hardware.numa_nodes import read_cpuless_memory
from ..hardware.sysfs import Tree
from ..hardware.topology import Topology, differences, parse_node_line, read_memory, read_topology
from ..host.options import option, several
from ..host.timeout_call import TimeoutCallError, call_with_timeout
from ..language.errors import CollectionError
from ..language.hostlist import expand

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import HardwareFact
    from ...plugin_utils.results.module_results import HardwareDifference

TIMEOUT = 20
"""Seconds for the size of a file system, whose server may not answer."""

OPTIONS = {
    "slurmd_parameters": several(
        "The cluster's C(SlurmdParameters). V(l3cache_as_socket), V(numa_node_as_socket) and V(allow_ecores) change "
        "what slurmd counts as a socket or a core, and this module counts in the same way; other values have no "
        "effect here. If both V(l3cache_as_socket) and V(numa_node_as_socket) are set, slurmd uses the caches. Slurm "
        "22.05 does not know V(allow_ecores) and always counts all cores."
    ),
    "device_files": several(
        "Device files to check for, such as those of generic resources. Each element is a hostlist in Slurm's "
        "notation, which can contain commas, so give a list."
    ),
    "tmp_fs": option("The file system that Slurm's C(TmpFS) names.", "path", default="/tmp"),
}
"""Options of a module that measures."""


class MeasurementError(CollectionError):
    """A machine that cannot be measured, and why."""


def ask(module: AnsibleModule, warn: Callable[[str], None], command: str, *arguments: str) -> str | None:
    """The output of a command on the host; None if it is not installed or fails. A command that fails is a warning."""
    path = module.get_bin_path(command, opt_dirs=["/usr/sbin", "/usr/local/sbin", "/opt/slurm/sbin"])
    if path is None:
        return None
    answer = run([path, *arguments])
    if answer.status:
        warn(f"{command}: {answer.message}; the hardware is measured without it")
        return None
    return answer.output


def disk_size(path: str) -> int:
    """The size of a file system in MiB, as get_tmp_disk counts it (Slurm's get_mach_stat.c); 0 if there is none.

    Also if it does not answer.
    """

    def size() -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize // 1024**2

    try:
        return int(call_with_timeout(size, TIMEOUT))
    except TimeoutCallError:
        return 0


def _measure_topology(tree: Tree, slurmd_parameters: Sequence[str] = ()) -> Topology:
    """The topology of a machine. Raises MeasurementError."""
    try:
        return read_topology(tree, slurmd_parameters)
    except TopologyError as error:
        raise MeasurementError(str(error)) from None


def measure(
    module: AnsibleModule,
    slurmd_parameters: Sequence[str] = (),
    device_files: Sequence[str] = (),
    tmp_fs: str = "/tmp",
    sysroot: str = "/",
) -> tuple[HardwareFact, list[HardwareDifference]]:
    """The fact `slurm_hardware`, and its differences from `slurmd -C`, which are also a warning of the module.

    Raises:
        MeasurementError: the machine's files make no topology, or an option is wrong.
    """
    root = os.path.realpath(sysroot)
    if not os.path.isdir(root):
        raise MeasurementError(f"sysroot {root}: no such directory")
    tree, here = Tree(root), root == "/"
    try:
        devices = [path for hostlist in device_files for path in expand(hostlist)]
    except ValueError as error:
        raise MeasurementError(f"device_files: {error}") from None
    host = platform.node()

    def warn(text: str) -> None:
        """Ansible shows warnings without the host."""
        module.warn(f"{host}: {text}")

    reported = parse_node_line((ask(module, warn, "slurmd", "-C") if here else None) or "")
    topology = _measure_topology(tree, slurmd_parameters)
    # slurmd -C does not know the cluster's parameters.
    plain = _measure_topology(tree) if reported and slurmd_parameters else topology
    facts: HardwareFact = {
        **topology.numbers,
        "real_memory": read_memory(tree),
        "cpuless_memory": read_cpuless_memory(tree),
        "tmp_disk": disk_size(tmp_fs) if here else None,
        "device_files": [path for path in devices if tree.exists(path)],
        "gpus": read_gpus(tree, topology.cores, partial(ask, module, warn) if here else None, warn),
        "ports": [
            {"device": port.device, "port": port.number, "link": port.link, "rate": port.rate, "up": port.is_up}
            for port in read_ports(tree)
        ],
    }
    found = differences({**facts, **plain.numbers}, reported)
    for item in found:
        warn(f"{item['name']}: measured {item['measured']}, slurmd reports {item['slurmd']}")
    return facts, found
