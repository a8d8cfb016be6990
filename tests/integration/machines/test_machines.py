# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real host: an ordinary user with become, cgroup v2 with all of its controllers, and a reboot."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import Process, step_of_cgroup
from lab import Lab

HOST = "vm1"
SETTINGS = ["9000", "3000"]


def test_the_administrator_is_an_ordinary_user(lab: Lab) -> None:
    assert lab.command(HOST, "echo $SUDO_USER") == "admin"


def test_jobs_are_confined_by_cgroup_v2(lab: Lab) -> None:
    assert lab.command(HOST, "stat -fc %T /sys/fs/cgroup") == "cgroup2fs"
    assert lab.command(HOST, "timeout 180 srun --cpus-per-task=1 nproc") == "1"
    assert lab.command(HOST, "timeout 180 srun --cpus-per-task=2 nproc") == "2"
    group = lab.command(HOST, "timeout 180 srun --mem=100 sh -c 'cat /proc/self/cgroup'").removeprefix("0::")
    assert "slurmstepd.scope/" in group
    hungry = lab.host(HOST).run("timeout 300 srun --mem=50 tail /dev/zero")
    assert "oom_kill" in hungry.stderr


def test_the_cgroup_of_a_job_is_known(lab: Lab) -> None:
    """By its number, and from Slurm 26.05 on by its SLUID. The release is that of the host's image."""
    job = "timeout 180 srun sh -c 'echo ${SLURM_JOB_SLUID:-$SLURM_JOB_ID}; cat /proc/self/cgroup'"
    name, group = lab.command(HOST, job).splitlines()
    first = Process("systemd", 0, (0, 0, 0, 0), lab.command(HOST, "cat /proc/1/cgroup"))
    assert step_of_cgroup(Process("cat", 1, (0, 0, 0, 0), group), first) == (name, "0")


def test_the_clock_is_kept(lab: Lab) -> None:
    assert lab.command(HOST, "systemctl is-active systemd-timesyncd") == "active"


def test_jobs_may_lock_the_memory_that_rdma_needs(lab: Lab) -> None:
    """The site's package is there, and a login's limit is not that of the job."""
    assert lab.command(HOST, "dpkg-query --show --showformat='${db:Status-Status}' rdma-core") == "installed"
    assert lab.command(HOST, "ulimit -l 64; timeout 180 srun sh -c 'ulimit -l'") == "unlimited"


def test_settings_of_the_kernel_are_raised_and_none_is_lowered(lab: Lab) -> None:
    """The inventory has two values above the kernel's own and one below."""
    shown = lab.command(HOST, "cd /proc/sys/net && cat core/somaxconn ipv4/neigh/default/gc_thresh3 core/rmem_max")
    assert shown.split()[:2] == SETTINGS
    assert int(shown.split()[2]) > 4096
    wrong = lab.playbook("site", "--tags=preflight", '--extra-vars={"base_kernel_settings": {"net.core.somaxcon": 1}}')
    assert "base_kernel_settings: found net.core.somaxcon, allowed" in wrong.output
    lab.command(HOST, "echo 100 > /proc/sys/net/core/somaxconn")
    repaired = lab.playbook("site", "--tags=base", "--diff")
    assert (repaired.rc, repaired.failed) == (0, {})
    assert lab.command(HOST, "cat /proc/sys/net/core/somaxconn") == SETTINGS[0]
    assert lab.playbook("site", "--tags=base").changed == {}


def test_the_cluster_is_back_by_itself_after_a_reboot(lab: Lab) -> None:
    before = lab.command(HOST, "cat /proc/sys/kernel/random/boot_id")
    # After a moment, so that the connection with this command ends normally.
    lab.command(HOST, "systemd-run --on-active=1 systemctl reboot --force")
    lab.wait_for(HOST, f"grep -v {before} /proc/sys/kernel/random/boot_id", "-", seconds=600)
    lab.wait_until_idle(HOST, HOST, seconds=600)

    assert lab.command(HOST, "cat /proc/sys/net/core/somaxconn") == SETTINGS[0]
    run = lab.playbook("validate")
    assert (run.rc, run.failed) == (0, {})
    assert lab.command(HOST, "systemctl --failed --no-legend --plain") == ""
