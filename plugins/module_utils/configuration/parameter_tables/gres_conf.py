# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gres.conf: `_gres_options` in `src/interfaces/gres.c` (22.05: `src/common/gres.c`), gres.conf(5).

The manual wants a restart of slurmctld for Cores in every release; since 23.11 a reconfigure does the same. A job
whose node has other devices is aborted (`_sync_jobs_to_conf` in `src/slurmctld/read_config.c`).
"""

from __future__ import annotations

GRES_CONF = """
AutoDetect     hints            nodes
Cores          text             daemons
Count          text             nodes
CPUs           text             daemons  use Cores
File           text             nodes
Files          text             nodes
Flags          hints GresFlags  daemons
Link           text             daemons
Links          text             daemons
MultipleFiles  text             nodes
Name           text             nodes
NodeName       hosts            nodes
Type           text             nodes
"""
"""Its lines start with Name or NodeName, or have AutoDetect alone."""
