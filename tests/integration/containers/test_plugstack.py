# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SPANK plugins as data, with a small plugin that is compiled against the headers of the lab's Slurm.

The tests run in this order.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from debs import HOSTS, Site, Workshop, as_user
from lab import Lab

PLUGIN = "/usr/local/lib/greet.so"
SOURCE = Path(__file__).with_name("greet.c")
FRIENDLY = [{"plugin": PLUGIN, "arguments": ["friendly"]}]


def provide(lab: Lab, workshop: Workshop, *flags: str) -> None:
    """Put the plugin on each host."""
    library = workshop.plugin(SOURCE, *flags)
    for host in HOSTS:
        lab.script(host, f"cat >{PLUGIN}.new; mv {PLUGIN}.new {PLUGIN}", library.read_bytes())


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


def test_check_mode_tells_what_the_plugin_would_change(lab: Lab, site: Site, workshop: Workshop) -> None:
    provide(lab, workshop)
    said = site.plan("--check", tags="controller", slurm_plugstack=FRIENDLY)
    assert any(line.startswith(f"plugstack.conf optional={PLUGIN}") and "optional friendly" in line for line in said)
    assert PLUGIN not in lab.command("front", "cat /etc/slurm/plugstack.conf")


def test_a_plugin_reaches_each_host_with_its_arguments(lab: Lab, site: Site) -> None:
    assert site.plan(tags="controller", slurm_plugstack=FRIENDLY)
    assert "--greet=NAME" in lab.command("front", "srun --help")
    assert job(lab, "--greet=world").splitlines() == ["friendly world"] * 2
    assert site.plan(tags="controller", slurm_plugstack=FRIENDLY) == []


def test_sbatch_takes_the_option_from_the_script(lab: Lab) -> None:
    script = "#!/bin/sh\n#SBATCH --greet=batch\n#SBATCH --output=/home/alice/greet.txt\nsrun sh -c 'echo $GREETED'\n"
    lab.script("front", "cat >/home/alice/greet.sh", script.encode())
    as_user(lab, "timeout 180 sbatch --wait greet.sh")
    assert lab.command("front", "cat /home/alice/greet.txt; rm /home/alice/greet.*") == "batch"


def test_plain_jobs_survive_a_plugin_for_another_release(lab: Lab, workshop: Workshop) -> None:
    provide(lab, workshop, "-DRELEASE=0x160508")
    assert "Incompatible" in job(lab)
    lab.command("box01", "systemctl restart slurmd")
    lab.wait_until_idle("front", "box01")
    assert "Incompatible" in job(lab)


def test_plain_jobs_survive_a_plugin_that_is_missing(lab: Lab) -> None:
    for host in HOSTS:
        lab.command(host, f"rm {PLUGIN}")
    assert "greet.so" in job(lab)
    lab.command("box01", "systemctl restart slurmd")
    lab.wait_until_idle("front", "box01")
    assert "greet.so" in job(lab)


def test_what_slurm_would_misread_is_refused_before_anything_changes(site: Site) -> None:
    run = site.run(tags="controller", slurm_plugstack=[{"plugin": PLUGIN, "arguments": ["two words"]}])
    assert run.rc != 0
    assert "found 'two words', allowed: a word" in str(run.failed)
    assert run.changed == {}


def test_a_plugin_that_the_site_names_no_more_is_gone(lab: Lab, site: Site) -> None:
    assert site.plan(tags="controller")
    assert PLUGIN not in lab.command("front", "cat /etc/slurm/plugstack.conf")
    assert job(lab) == ""
