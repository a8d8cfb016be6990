# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role job_tools."""

from __future__ import annotations

from ..known.host_paths import SCRIPTS_DIR
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file, program, role_file

PROGRAMS = {
    "/usr/local/bin/gpus": "programs.gpus",
    "/usr/local/bin/jobstats": "programs.jobstats",
    "/usr/local/bin/notebook": "programs.notebook",
}

NVCRLOGIN = {"/usr/local/bin/nvcrlogin": "programs.nvcrlogin"}


def files(host: RunHost) -> list[HostFile]:
    """The commands, their defaults, and their completion in bash. Those for containers need software for containers."""
    tools = host["slurm_containers"]
    config_dir = host.option("enroot", "enroot_config_dir")
    with_keys = NVCRLOGIN if {"apptainer", "enroot"} & {*tools} else {}
    wanted: list[HostFile] = [
        *library("job-tools", {**PROGRAMS, **with_keys}),
        plain_file("/etc/bash_completion.d/gpucluster-job-tools", role_file("job_tools", "completion.bash")),
        plain_file(
            "/etc/gpucluster-slurm/job-tools.conf", host.text("job_tools", "job-tools.conf.j2", config_dir=config_dir)
        ),
    ]
    if "pyxis" in tools:
        wanted += [
            plain_file(f"{SCRIPTS_DIR}/job-tools.sh", role_file("job_tools", "job-tools.sh")),
            program("/usr/local/bin/sbuild.sh", role_file("job_tools", "sbuild.sh")),
            program("/usr/local/bin/srun.sh", role_file("job_tools", "srun.sh")),
        ]
    return wanted
