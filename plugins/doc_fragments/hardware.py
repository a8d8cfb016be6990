# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that the modules that measure a host share."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options:
  slurmd_parameters:
    description:
      - The cluster's C(SlurmdParameters). V(l3cache_as_socket), V(numa_node_as_socket) and V(allow_ecores) change what
        slurmd counts as a socket or a core, and this module counts in the same way; other values have no effect here.
      - If both V(l3cache_as_socket) and V(numa_node_as_socket) are set, slurmd uses the caches. Slurm 22.05 does not
        know V(allow_ecores) and always counts all cores.
    type: list
    elements: str
    default: []
  device_files:
    description:
      - Device files to check for, such as those of generic resources. Each element is a hostlist in Slurm's notation,
        which can contain commas, so give a list.
    type: list
    elements: str
    default: []
  tmp_fs:
    description:
      - The file system that Slurm's C(TmpFS) names.
    type: path
    default: /tmp
attributes:
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
"""
