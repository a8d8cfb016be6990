#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_hardware_facts
short_description: What Slurm will find on a host
version_added: 0.1.0
description:
  - Measures the CPUs and the memory of a host as C(slurmd -C) would report them, on hosts where Slurm is not installed,
    and its NVIDIA GPUs.
  - Where slurmd is installed it is asked, too. What it says differently is returned and is a warning; the facts stay
    what was measured.
  - CPUs that are offline, and the efficient cores of Intel's hybrid processors, are left out, as Slurm does.
options:
  sysroot:
    description:
      - Directory that holds C(/sys) and C(/proc) of the machine. Another one than C(/) is a dump of another machine,
        for which no command is asked.
    type: path
    default: /
notes:
  - Known limits are hwloc's special treatment of Xeon Phi and of Fujitsu's SPARC64 processors, which is not done here.
extends_documentation_fragment: [gpucluster.slurm.hardware, gpucluster.slurm.reading]
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

- name: Measure it as slurmd does where each third-level cache counts as a socket, and look for its GPUs
  gpucluster.slurm.slurm_hardware_facts:
    slurmd_parameters: [l3cache_as_socket]
    device_files: ["/dev/nvidia[0-7]"]

- name: Refuse a host that slurmd would report otherwise
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
      description: What Slurm will find on the host.
      type: dict
      returned: always
      contains:
        cpus:
          description: Threads of all cores.
          type: int
          returned: always
          sample: 128
        boards:
          description: Boards, which are groups of sockets.
          type: int
          returned: always
          sample: 1
        sockets_per_board:
          description: Sockets of a board.
          type: int
          returned: always
          sample: 2
        cores_per_socket:
          description:
            - Cores of a socket, on average, rounded down.
            - It is 0 where the kernel tells of sockets but not of cores. A node line that says so is read as 1.
          type: int
          returned: always
          sample: 32
        threads_per_core:
          description: Threads of a core, on average, rounded down.
          type: int
          returned: always
          sample: 2
        real_memory:
          description: Memory in MiB, rounded down; null if a dump does not tell.
          type: int
          returned: always
          sample: 515655
        tmp_disk:
          description: Size of the file system O(tmp_fs) in MiB, rounded down, 0 if there is none; null for a dump.
          type: int
          returned: always
          sample: 915715
        device_files:
          description: Those of O(device_files) that exist, in order.
          type: list
          elements: str
          returned: always
          sample: [/dev/nvidia0, /dev/nvidia1]
        gpus:
          description: The NVIDIA GPUs by minor number, those that no driver has taken last.
          type: list
          elements: dict
          returned: always
          contains:
            minor:
              description: Number of its device, C(/dev/nvidia0); null without a driver.
              type: int
              returned: always
              sample: 0
            pci_address:
              description: Where it is on PCI.
              type: str
              returned: always
              sample: "0000:07:00.0"
            model:
              description: Its model, from the driver or from the host's list of PCI names; null if neither is there.
              type: str
              returned: always
              sample: NVIDIA A100-SXM4-80GB
            type:
              description:
                - A type for Gres, made from the model; null without one. It is the first word with a digit, in small
                  letters.
                - A number alone takes the words before it, without those that name the maker or a line of products, and
                  V(ti), V(super), V(ada) or V(d) after it, as in C(rtx4090) and C(rtx3080ti).
              type: str
              returned: always
              sample: a100
            memory_mb:
              description: Its memory in MiB, from nvidia-smi; null without it.
              type: int
              returned: always
              sample: 81920
            numa_node:
              description: The NUMA node that it is near to; null if there is none.
              type: int
              returned: always
              sample: 3
            cores:
              description: Slurm's logical indexes of the cores it is near to, as C(Cores=) has them; empty if unknown.
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
differences:
  description:
    - Facts for which the word of C(slurmd -C) is another one; empty if it agrees or is not installed.
    - It knows no C(SlurmdParameters), so it is compared with what is measured without O(slurmd_parameters).
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
      description: What was measured.
      type: int
      returned: always
      sample: 515655
    slurmd:
      description: What slurmd says.
      type: int
      returned: always
      sample: 515654
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.measurement import (
    OPTIONS,
    MeasurementError,
    measure,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={"sysroot": {"type": "path", "default": "/"}, **OPTIONS}, supports_check_mode=True
    )
    try:
        facts, differences = measure(module, **module.params)
    except MeasurementError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, ansible_facts={"slurm_hardware": facts}, differences=differences)


if __name__ == "__main__":
    main()
