# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that the modules for accounting share."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options: {}
notes:
  - Limits have Slurm's names, which sacctmgr(1) documents. Their values are compared by meaning, so V(1-00:00:00),
    V(24:00:00) and V(1440) are equal. Quote times, since YAML reads some of them as numbers.
  - TRES are a mapping of names to numbers, or text such as V(cpu=64,gres/gpu=8). Memory is in MiB or has a unit.
  - Limits that are not named are not changed. V(null) and V(-1) unset a limit.
  - Slurm stores all these names and texts in lower case.
  - >-
    A name has ASCII letters, digits and signs. It has no blanks, none of the signs C(" # % ' , = [ \ ] ` |), and does
    not begin with C(+) or C(-), since sacctmgr would not take it as it is. Quote names that YAML reads as something
    else, such as V(on) and V(1.10).
requirements:
  - Slurm's sacctmgr (22.05 or later) with a slurmdbd that answers, as a user that may change its data
"""
