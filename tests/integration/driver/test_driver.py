# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real kernel module of Debian's package, built for the running kernel; nouveau; a reboot that waits for jobs.

The machine has no GPU, so these tests do not show that a driver works with one.
"""

from __future__ import annotations

from lab import Lab

NODE = "gpu1"
REASON = "gpucluster.slurm: NVIDIA driver"


def compute(lab: Lab, *arguments: str) -> tuple[int, dict[str, list[str]], dict[str, list[str]], str]:
    """Run stage compute. Returns its exit status, its changed tasks, its failures, and all of its output."""
    run = lab.playbook("site", "--tags", "compute", *arguments)
    return run.rc, run.changed, run.failed, run.output


def test_the_module_is_built_for_the_kernel_that_runs(lab: Lab) -> None:
    kernel = lab.command(NODE, "uname -r")
    status = lab.command(NODE, f"dkms status -k {kernel}")
    assert status.startswith("nvidia-current/550.")
    assert "installed" in status
    version = status.split("/")[1].split(",")[0]
    assert version in lab.command(NODE, "cat /etc/apt/preferences.d/gpucluster-nvidia")
    assert lab.command(NODE, "modinfo --field version nvidia-current") == version
    # Without a GPU, modprobe fails after the real module has looked for one.
    assert lab.host(NODE).run("modprobe nvidia-current").rc != 0
    assert "NVRM: No NVIDIA GPU found" in lab.command(NODE, "dmesg")


def test_nouveau_is_blocked(lab: Lab) -> None:
    assert lab.command(NODE, "modinfo --field name nouveau") == "nouveau"
    assert lab.host(NODE).run("modprobe nouveau").rc != 0
    assert "nouveau" not in lab.command(NODE, "lsmod")


def test_device_files_come_before_slurmd(lab: Lab) -> None:
    assert "slurmd.service" in lab.command(NODE, "systemctl show --property=Before gpucluster-nvidia.service")
    assert "gpucluster-nvidia.service" in lab.command(NODE, "systemctl show --property=Wants slurmd.service")


def test_a_reboot_waits_for_jobs_and_for_permission(lab: Lab) -> None:
    # As on a machine that has booted with nouveau, the role finds nouveau loaded.
    lab.command(NODE, "modprobe --ignore-install nouveau")
    boot = lab.command(NODE, "cat /proc/sys/kernel/random/boot_id")

    rc, changed, failed, output = compute(lab)
    assert (rc, changed, failed) == (0, {}, {})
    assert "nouveau is loaded" in output
    assert "Set nvidia_driver_reboot=true" in output

    job = lab.command(NODE, "sudo -u alice sbatch --parsable --output=/dev/null --chdir=/ --wrap 'sleep 3600'")
    lab.wait_for(NODE, f"squeue --noheader --jobs={job} --format=%T", "RUNNING")
    rc, _changed, failed, _output = compute(lab, "--extra-vars", "nvidia_driver_reboot=true nvidia_driver_wait=10")
    assert rc != 0
    assert f"still has jobs after 10 s, and its driver is unchanged ({job})" in failed[NODE][0]
    assert lab.command(NODE, f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"
    assert lab.command(NODE, "cat /proc/sys/kernel/random/boot_id") == boot
    assert REASON in lab.command(NODE, f"sinfo --noheader --nodes={NODE} --format='%T %E'")

    lab.command(NODE, f"scancel {job}")
    lab.wait_for(NODE, "squeue --noheader | wc --lines", "0")
    rc, _changed, failed, _output = compute(lab, "--extra-vars", "nvidia_driver_reboot=true")
    assert (rc, failed) == (0, {})
    assert lab.command(NODE, "cat /proc/sys/kernel/random/boot_id") != boot
    assert "nouveau" not in lab.command(NODE, "lsmod")
    lab.wait_until_idle(NODE, NODE)


def test_a_node_that_was_drained_by_a_run_that_was_killed_is_taken_back_by_the_next(lab: Lab) -> None:
    lab.command(NODE, f"scontrol update nodename={NODE} state=drain reason='{REASON}'")
    plan = lab.playbook("site", "--tags", "compute", "--check")
    assert plan.changed == {NODE: ["gpucluster.slurm.nvidia_driver : Resume the node"]}
    rc, changed, failed, _output = compute(lab)
    assert (rc, failed) == (0, {})
    assert changed == {NODE: ["gpucluster.slurm.nvidia_driver : Resume the node"]}
    lab.wait_until_idle(NODE, NODE)

    lab.command(NODE, f"scontrol update nodename={NODE} state=drain reason=fan")
    assert compute(lab)[1] == {}
    lab.command(NODE, f"scontrol update nodename={NODE} state=resume")
    lab.wait_until_idle(NODE, NODE)


def test_what_was_damaged_is_built_again(lab: Lab) -> None:
    kernel = lab.command(NODE, "uname -r")
    module = lab.command(NODE, f"dkms status -k {kernel}").split(",")[0]
    lab.command(NODE, f"rm /etc/modprobe.d/gpucluster-nvidia.conf; dkms uninstall {module} -k {kernel}")
    rc, changed, failed, _output = compute(lab)
    assert (rc, failed) == (0, {})
    assert changed[NODE] == ["gpucluster.slurm.nvidia_driver : Install the driver"]
    assert "installed" in lab.command(NODE, f"dkms status -k {kernel}")
    assert compute(lab)[1] == {}
