# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the modules that hold the run lock of a cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options:
  run:
    description: This run. The control host fills it in.
    type: dict
    default: {}
    suboptions:
      host:
        description: The control host.
        type: str
        required: true
      user:
        description: The user of ansible-playbook there.
        type: str
        required: true
      process:
        description: Number and start of its process there.
        type: str
        required: true
  former:
    description: Processes of runs that have ended on the same control host. The control host fills them in.
    type: list
    elements: str
    default: []
"""
