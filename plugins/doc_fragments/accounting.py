# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules for accounting have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options: {}
notes:
  - Limits have Slurm's names, which sacctmgr(1) documents, and are compared by what they mean. V(1-00:00:00) is
    V(24:00:00) and V(1440). Quote times, YAML takes some for numbers.
  - Resources are a mapping of their names to numbers, or text such as V(cpu=64,gres/gpu=8). Memory is in MiB or has a
    unit.
  - Limits that are not named are left alone. V(null) and V(-1) unset one.
  - Slurm keeps all names and texts here in small letters.
requirements:
  - Slurm's sacctmgr (22.05 or later) with a slurmdbd that answers, as a user that may change its data
"""

    CLUSTER = r"""
options:
  cluster:
    description: Name of the cluster in the database. Not needed where the database has no other.
    type: str
"""
