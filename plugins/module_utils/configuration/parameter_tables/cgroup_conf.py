# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cgroup.conf: `_read_slurm_cgroup_conf` in `src/interfaces/cgroup.c` (22.05: `src/common/cgroup.c`), cgroup.conf(5).

New steps get the constraints from slurmd. What places the hierarchy of cgroups must not change under running steps.
"""

from __future__ import annotations

CGROUP_CONF = """
AllowedDevicesFile       path           reconfigure  defunct 23.02+
AllowedKmemSpace         float          reconfigure  -23.02
AllowedRAMSpace          float %        reconfigure
AllowedSwapSpace         float %        reconfigure
CgroupAutomount          bool           slurmd       defunct 23.11+
CgroupJobIdPaths         bool           nodes        26.05.2+
CgroupMountpoint         path           nodes
CgroupPlugin             plugin cgroup  nodes
CgroupReleaseAgentDir    text           reconfigure  -25.05; refused
CgroupSlice              text           nodes        25.11+
ConstrainCores           bool           reconfigure
ConstrainDevices         bool           reconfigure
ConstrainKmemSpace       bool           reconfigure  -23.02
ConstrainRAMSpace        bool           reconfigure
ConstrainSwapSpace       bool           reconfigure
EnableControllers        bool           slurmd       23.02.1+
EnableExtraControllers   text           slurmd       25.05+
IgnoreSystemd            bool           nodes
IgnoreSystemdOnFailure   bool           nodes
MaxKmemPercent           float %        reconfigure  -23.02
MaxRAMPercent            float %        reconfigure
MaxSwapPercent           float %        reconfigure
MemoryLimitEnforcement   bool           reconfigure
MemoryLimitThreshold     float          reconfigure
MemorySwappiness         u64            reconfigure
MinKmemSpace             u64 MiB        reconfigure  -23.02
MinRAMSpace              u64 MiB        reconfigure
RootOwnedCgroups         bool           reconfigure  23.02-23.02
SignalChildrenProcesses  bool           reconfigure  23.11+
SystemdTimeout           u64 ms         slurmd       24.05+
"""
"""Lines of one parameter."""
