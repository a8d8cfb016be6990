# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Old records leave the database of slurmdbd for its archive, and come back from there."""

from __future__ import annotations

from lab import Lab

ARCHIVE = "/var/lib/slurm/archive"
AGED = """
UPDATE {0}_job_table AS job JOIN {0}_step_table AS step USING (job_db_inx)
SET job.time_submit = job.time_submit - {1}, job.time_eligible = job.time_eligible - {1},
    job.time_start = job.time_start - {1}, job.time_end = job.time_end - {1},
    step.time_start = step.time_start - {1}, step.time_end = step.time_end - {1}
WHERE job.id_job = {2};
"""


def test_old_jobs_are_kept_in_the_archive(lab: Lab) -> None:
    host, years = lab.cluster["database"], 3 * 365 * 86400
    job = lab.command(host, "timeout 60 srun --job-name=archived sh -c 'echo $SLURM_JOB_ID'").strip()
    lab.wait_for(host, f"sacct -nXj {job} -o state,end", "COMPLETED")
    lab.script(host, "mariadb slurm_acct_db", AGED.format(lab.cluster["name"], years, job).encode())
    asked = f"sacct -nXP -j {job} -S now-1500days -o jobname"
    assert lab.command(host, asked).split() == ["archived"]

    lab.command(host, "timeout 60 sacctmgr -i archive dump")
    assert lab.command(host, asked).split() == []
    assert lab.command(host, f"stat -c '%U %a' {ARCHIVE}").split() == ["slurm", "700"]
    (file,) = lab.command(host, f"ls {ARCHIVE}/*_job_table_*").split()

    lab.command(host, f"timeout 60 sacctmgr -i archive load file={file}")
    assert lab.command(host, asked).split() == ["archived"]
