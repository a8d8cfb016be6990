# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plugstack.conf: `_spank_stack_process_line` in `src/common/spank.c`, spank(8).

It is no file of Key=value: a line is `required PLUGIN ARGUMENTS...`, `optional PLUGIN ARGUMENTS...` or `include FILES`.
The first word is the key here, the rest the value. Commands and new steps read it; slurmd loads it once.
"""

from __future__ import annotations

PLUGSTACK_CONF = """
include   text  slurmd
optional  text  slurmd
required  text  slurmd
"""
"""The first words of its lines."""
