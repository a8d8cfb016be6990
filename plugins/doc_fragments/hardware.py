# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules that measure a host have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options:
  slurmd_parameters:
    description:
      - The cluster's C(SlurmdParameters). V(l3cache_as_socket), V(numa_node_as_socket) and V(allow_ecores) change what
        slurmd takes for a socket and for a core, as slurmd has it; others do not matter here.
      - Of both kinds of sockets slurmd takes the caches. Slurm 22.05 does not know V(allow_ecores); it always has all
        cores.
    type: list
    elements: str
    default: []
  device_files:
    description:
      - Device files to look for, such as those of generic resources, each element a hostlist as Slurm writes it. An
        element may hold commas, so give a list.
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
