# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mpi.conf: `pmix_options` in `src/plugins/mpi/pmix/mpi_pmix.c`, mpi.conf(5)."""

from __future__ import annotations

MPI_CONF = """
PMIxCliTmpDirBase        text  daemons
PMIxCollFence            text  daemons
PMIxDebug                u32   daemons
PMIxDirectConn           bool  daemons
PMIxDirectConnEarly      bool  daemons
PMIxDirectConnUCX        bool  daemons
PMIxDirectSameArch       bool  daemons
PMIxEnv                  text  daemons
PMIxFenceBarrier         bool  daemons
PMIxNetDevicesUCX        text  daemons
PMIxShareServerTopology  bool  daemons  25.11+
PMIxTimeout              u32   daemons
PMIxTlsUCX               text  daemons
"""
"""Lines of one parameter."""
