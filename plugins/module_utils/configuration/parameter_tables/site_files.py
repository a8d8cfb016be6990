# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files next to slurm.conf that a site can have. Slurm finds them by these names.

slurmctld sends them to configless hosts (`slurmd_config_files` and `client_config_files` in
`src/common/fetch_config.c`, before 23.11 in `src/slurmctld/proc_req.c`), except burst_buffer.* and job_submit.lua,
which it reads alone. It also sends a Prolog and Epilog whose path is the name of a file there (`new_config_response`).
"""

from __future__ import annotations

SITE_FILES = """
acct_gather.conf    text  daemons
burst_buffer.conf   text  slurmctld
burst_buffer.lua    text  slurmctld
cli_filter.lua      text  reconfigure
ext_sensors.conf    text  daemons      -23.11
helpers.conf        text  daemons
job_container.conf  text  nodes
job_submit.lua      text  reconfigure
mpi.conf            text  daemons
namespace.yaml      text  nodes        25.11+
oci.conf            text  reconfigure
scrun.lua           text  reconfigure  24.05+
topology.conf       text  reconfigure
topology.yaml       text  reconfigure  25.05+
"""
"""The change is that of a file that is no file of Key=value, and so changes as a whole."""
