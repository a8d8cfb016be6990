# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real hosts: an ordinary user with become, cgroup v2 with all of its controllers, and a reboot of everything."""

from __future__ import annotations

from lab import Lab

HOSTS = ("vm1", "vm2")


def test_the_administrator_is_an_ordinary_user(lab: Lab) -> None:
    assert {lab.command(host, "echo $SUDO_USER") for host in HOSTS} == {"admin"}


def test_jobs_are_confined_by_cgroup_v2(lab: Lab) -> None:
    assert lab.command("vm2", "stat -fc %T /sys/fs/cgroup") == "cgroup2fs"
    assert lab.command("vm1", "timeout 180 srun --cpus-per-task=1 nproc") == "1"
    assert lab.command("vm1", "timeout 180 srun --cpus-per-task=2 nproc") == "2"
    group = lab.command("vm1", "timeout 180 srun --mem=100 sh -c 'cat /proc/self/cgroup'").removeprefix("0::")
    assert "slurmstepd.scope/job_" in group
    hungry = lab.host("vm1").run("timeout 300 srun --mem=50 tail /dev/zero")
    assert "oom_kill" in hungry.stderr


def test_the_clock_is_kept(lab: Lab) -> None:
    assert {lab.command(host, "systemctl is-active systemd-timesyncd") for host in HOSTS} == {"active"}


def test_the_cluster_is_back_by_itself_after_a_reboot_of_all_hosts(lab: Lab) -> None:
    before = {host: lab.command(host, "cat /proc/sys/kernel/random/boot_id") for host in HOSTS}
    for host in HOSTS:
        # In a moment, so that the connection that says so ends well. At once then: slurmctld would take a node that
        # still answered when it came back itself, and is gone afterwards, for one that was rebooted by somebody else.
        lab.command(host, "systemd-run --on-active=1 systemctl reboot --force")
    for host in HOSTS:
        boot = lab.wait_for(host, f"grep -v {before[host]} /proc/sys/kernel/random/boot_id", "-", seconds=600)
        assert boot != before[host]
    # Not idle*, which does not answer yet.
    lab.wait_for("vm1", "timeout 60 sinfo -h -n vm2 -o %T:", "idle:", seconds=600)

    run = lab.playbook("validate")
    assert (run.rc, run.failed) == (0, {})
    assert lab.command("vm2", "systemctl --failed --no-legend --plain") == ""
    assert lab.command("vm1", "systemctl --failed --no-legend --plain") == ""
