#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_hardware_facts
short_description: Measure the hardware of a host as Slurm does
version_added: 0.1.0
description:
  - Measures the CPUs and the memory of a host as C(slurmd -C) would report them, and its NVIDIA GPUs. Slurm need not be
    installed.
  - If slurmd is installed, C(slurmd -C) is run, too. Values that differ are returned and reported in a warning; the
    facts are the measured values.
  - If nvidia-smi fails, or its answer is not understood or lacks a GPU of the driver, there is a warning.
  - CPUs that are offline, and the efficient cores of Intel's hybrid processors, are left out, as Slurm does.
notes:
  - The special treatment of Xeon Phi and of Fujitsu's SPARC64 processors in hwloc is not implemented.
attributes:
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_hardware_facts]
seealso:
  - module: gpucluster.slurm.slurm_host_facts
"""

EXAMPLES = r"""
- name: Measure the host
  gpucluster.slurm.slurm_hardware_facts:
  register: hardware

- name: Show a node line for it
  ansible.builtin.debug:
    msg: >-
      NodeName={{ inventory_hostname }} CPUs={{ slurm_hardware.cpus }}
      Boards={{ slurm_hardware.boards }} SocketsPerBoard={{ slurm_hardware.sockets_per_board }}
      CoresPerSocket={{ slurm_hardware.cores_per_socket }} ThreadsPerCore={{ slurm_hardware.threads_per_core }}
      RealMemory={{ slurm_hardware.real_memory }}

- name: Measure it with each third-level cache as a socket, and find its GPUs
  gpucluster.slurm.slurm_hardware_facts:
    slurmd_parameters: [l3cache_as_socket]
    device_files: ["/dev/nvidia[0-7]"]

- name: Refuse a host for which slurmd reports other values
  ansible.builtin.assert:
    that: not hardware.differences

- name: Read the dump of another machine
  gpucluster.slurm.slurm_hardware_facts:
    sysroot: /srv/dumps/gpu017
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  type: dict
  returned: always
  contains:
    slurm_hardware:
      description: The hardware of the host as Slurm counts it.
      type: dict
      returned: always
      contains:
        cpus:
          description: Number of threads of all cores.
          type: int
          returned: always
          sample: 128
        boards:
          description: Number of boards, which are groups of sockets.
          type: int
          returned: always
          sample: 1
        sockets_per_board:
          description: Number of sockets for each board.
          type: int
          returned: always
          sample: 2
        cores_per_socket:
          description:
            - Number of cores for each socket, the average, rounded down.
            - It is 0 if the kernel reports sockets but no cores. Slurm reads 0 in a node line as 1.
          type: int
          returned: always
          sample: 32
        threads_per_core:
          description: Number of threads for each core, the average, rounded down.
          type: int
          returned: always
          sample: 2
        real_memory:
          description: Memory in MiB, rounded down; null if a dump does not have it.
          type: int
          returned: always
          sample: 515655
        cpuless_memory:
          description:
            - The part of V(real_memory) in MiB that is in NUMA nodes without CPUs. These are the memory of GPUs, as in
              GH200, or CXL.
          type: int
          returned: always
          sample: 0
        tmp_disk:
          description: Size of the file system O(tmp_fs) in MiB, rounded down; 0 if there is none, null for a dump.
          type: int
          returned: always
          sample: 915715
        device_files:
          description: The existing files of O(device_files), in order.
          type: list
          elements: str
          returned: always
          sample: [/dev/nvidia0, /dev/nvidia1]
        gpus:
          description:
            - The GPUs by minor number; GPUs without a driver are last. They are NVIDIA's, or AMD's on a host that has
              none of NVIDIA.
          type: list
          elements: dict
          returned: always
          contains:
            vendor:
              description: C(amd) for a GPU of AMD.
              type: str
              returned: with GPUs of AMD
              sample: amd
            minor:
              description:
                - The number of its device file, 0 for C(/dev/nvidia0) and 128 for C(/dev/dri/renderD128); null without
                  a driver.
              type: int
              returned: always
              sample: 0
            pci_address:
              description: Its PCI address.
              type: str
              returned: always
              sample: "0000:07:00.0"
            model:
              description: Its model, from the driver or from the host's list of PCI names; null if it is in neither.
              type: str
              returned: always
              sample: NVIDIA A100-SXM4-80GB
            type:
              description:
                - A type for Gres, derived from the model; null without a model. It is the first word with a digit, in
                  lower case.
                - If this word is a number, the words before it (except names of makers and product lines) and V(ti),
                  V(super), V(ada) or V(d) after it are included, as in C(rtx4090) and C(rtx3080ti).
              type: str
              returned: always
              sample: a100
            memory_mb:
              description: Its memory in MiB, from nvidia-smi or the kernel; null without it.
              type: int
              returned: always
              sample: 81920
            numa_node:
              description:
                - The nearest NUMA node. If the kernel does not know it, the only NUMA node of the host, or null if it
                  has several.
              type: int
              returned: always
              sample: 3
            cores:
              description: Slurm's logical indexes of the nearest cores, as for C(Cores=); empty if unknown.
              type: str
              returned: always
              sample: 0-31
            mig:
              description: Its MIG instances, from nvidia-smi.
              type: list
              elements: dict
              returned: always
              contains:
                profile:
                  description: The profile of the instance.
                  type: str
                  returned: always
                  sample: 3g.40gb
                uuid:
                  description: The identifier of the instance.
                  type: str
                  returned: always
                  sample: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f
        ports:
          description:
            - The ports of network adapters for RDMA (C(/sys/class/infiniband)), without those of virtual functions.
          type: list
          elements: dict
          returned: always
          contains:
            device:
              description: The adapter.
              type: str
              returned: always
              sample: mlx5_0
            port:
              description: The number of the port, from 1 on.
              type: int
              returned: always
              sample: 1
            link:
              description: C(InfiniBand) or C(Ethernet).
              type: str
              returned: always
              sample: InfiniBand
            rate:
              description: The rate of the link in Gb/s, rounded down.
              type: int
              returned: always
              sample: 400
            up:
              description: Whether something is connected, and the link carries data.
              type: bool
              returned: always
              sample: true
differences:
  description:
    - Facts for which C(slurmd -C) reports another value; empty if all are equal or slurmd is not installed.
    - C(slurmd -C) does not use C(SlurmdParameters), so it is compared with a measurement without O(slurmd_parameters).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the fact.
      type: str
      returned: always
      sample: real_memory
    measured:
      description: The measured value.
      type: int
      returned: always
      sample: 515655
    slurmd:
      description: The value that slurmd reports.
      type: int
      returned: always
      sample: 515654
"""


from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.facts.measurement import OPTIONS, measure
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import HardwareResult


def hardware_facts(module: AnsibleModule) -> HardwareResult:
    """The module's result. Raises MeasurementError."""
    facts, differences = measure(module, **module.params)
    return {"changed": False, "ansible_facts": {"slurm_hardware": facts}, "differences": differences}


ARGUMENTS = {
    "sysroot": option(
        "Directory with C(/sys) and C(/proc) of the machine. Any directory except C(/) is a dump of another machine, "
        "for which no commands are run.",
        "path",
        default="/",
    ),
    **OPTIONS,
}


def main() -> None:
    run_module(hardware_facts, ARGUMENTS)


if __name__ == "__main__":
    main()
