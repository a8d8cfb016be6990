# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SPANK plugins as data, with a small plugin that is compiled against the headers of the lab's Slurm.

The tests run in this order. That a plugin is gone which the site names no more is shown where pyxis is changed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from debs import GREET, HOSTS, Site, Workshop, as_user, plan
from lab import Lab, Run


def job(lab: Lab, options: str = "") -> str:
    """What a job on both nodes prints of the plugin's variables, and what srun says."""
    return str(as_user(lab, f"timeout 180 srun -N2 {options} sh -c {shlex.quote('echo $GREETING $GREETED')} 2>&1"))


def test_a_stray_file_ends_no_job(lab: Lab) -> None:
    stray = "/etc/slurm/plugstack.conf.d/old.conf"
    for host in HOSTS:
        lab.command(host, f"mkdir -p {Path(stray).parent}; echo required /none.so >{stray}")
    try:
        assert job(lab) == ""
    finally:
        for host in HOSTS:
            lab.command(host, f"rm {stray}")


def test_check_mode_tells_what_the_plugin_would_change(lab: Lab, planned: Run) -> None:
    line = next(line for line in plan(planned) if line.startswith(f"plugstack.conf optional={GREET}"))
    assert "optional friendly" in line
    assert GREET not in lab.command("front", "cat /etc/slurm/plugstack.conf")


@pytest.mark.usefixtures("equipped")
def test_a_plugin_reaches_each_host_with_its_arguments(lab: Lab, equipping: Run, again: Run) -> None:
    assert f"plugstack.conf optional={GREET}" in "".join(plan(equipping))
    assert "--greet=NAME" in lab.command("front", "srun --help")
    assert job(lab, "--greet=world").splitlines() == ["friendly world"] * 2
    assert plan(again) == []


@pytest.mark.usefixtures("equipped")
def test_sbatch_takes_the_option_from_the_script(lab: Lab) -> None:
    script = "#!/bin/sh\n#SBATCH --greet=batch\n#SBATCH --output=/home/alice/greet.txt\nsrun sh -c 'echo $GREETED'\n"
    lab.script("front", "cat >/home/alice/greet.sh", script.encode())
    as_user(lab, "timeout 180 sbatch --wait greet.sh")
    assert lab.command("front", "cat /home/alice/greet.txt; rm /home/alice/greet.*") == "batch"


def jobs_run_and_complain(lab: Lab, message: str) -> None:
    """Jobs go on, also after a restart of slurmd, and srun says this of the plugin."""
    assert message in job(lab)
    lab.command("box01", "systemctl restart slurmd")
    lab.wait_until_idle("front", "box01")
    assert message in job(lab)


def test_plain_jobs_survive_a_plugin_for_another_release(lab: Lab, equipped: Site, workshop: Workshop) -> None:
    workshop.provide_greet(equipped.lab, "-DRELEASE=0x160508")
    try:
        jobs_run_and_complain(lab, "Incompatible")
    finally:
        workshop.provide_greet(lab)


def test_plain_jobs_survive_a_plugin_that_is_missing(lab: Lab, equipped: Site, workshop: Workshop) -> None:
    for host in HOSTS:
        equipped.lab.command(host, f"rm {GREET}")
    try:
        jobs_run_and_complain(lab, "greet.so")
    finally:
        workshop.provide_greet(lab)
