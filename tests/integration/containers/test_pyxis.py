# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles enroot and pyxis with packages that stand in for the real ones: how they come to the hosts, what is checked and
restored, and what Slurm does with them. No container runs here but one that shows that containers do.

The tests run in this order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from debs import HOSTS, OLDER, OLDER_PLUGIN, PACKAGED, PLUGIN, Site, Workshop, as_user
from lab import Lab, Run

LINE = f"{PLUGIN} runtime_path=/var/lib/pyxis"


def broken(workshop: Workshop, required: bool = True) -> dict[str, Any]:
    """A pyxis that never starts, and no job without it where it is required."""
    package = {"file": str(workshop.pyxis("0.25.0-1", "-DBROKEN"))}
    return {"pyxis_packages": {"24.11": package}, "pyxis_required": required}


def test_hosts_that_a_first_run_leaves_out_are_named(lab: Lab, workshop: Workshop) -> None:
    """Without a prolog that Slurm's configuration names they would be drained."""
    run = Site(lab).run("--limit=front,box01", tags="controller", **workshop.everything())
    assert "would name enroot and pyxis for all hosts, and this run leaves out box02" in str(run.failed)
    assert "enroot-prolog" not in lab.command("front", "cat /etc/slurm/slurm.conf")


@pytest.mark.rare  # half a minute
def test_a_plugin_with_which_no_container_runs_is_not_left_to_jobs(lab: Lab, workshop: Workshop) -> None:
    run = Site(lab).run(tags="controller", **(workshop.everything() | broken(workshop)))
    assert "srun --help lacks --container-image" in str(run.failed)
    assert "spank_pyxis" not in lab.command("front", "cat /etc/slurm/plugstack.conf")
    for host in HOSTS:
        assert lab.command(host, f"ls {PLUGIN}* 2>/dev/null", 2) == ""
    assert as_user(lab, "timeout 180 srun -N2 echo plain") == "plain\nplain"


def test_a_plugin_is_not_checked_by_a_job_that_slurm_does_not_run(lab: Lab, equipping: Run) -> None:
    said = [result.get("msg", "") for _host, task, result in equipping.results if "no container was run" in task]
    assert "pyxis is not verified: the job REFUSED" in str(said)
    for host in HOSTS:
        assert lab.command(host, f"ls {PLUGIN}*").split() == [PLUGIN, f"{PLUGIN}.before"]


def line_in_force(lab: Lab) -> str:
    """The line of pyxis, as a node has it."""
    return str(lab.command("box01", f"grep {PLUGIN} /run/slurm/conf/plugstack.conf"))


def test_a_plugin_is_optional_until_it_is_proven(lab: Lab, equipping: Run) -> None:
    said = [result.get("msg", "") for _host, task, result in equipping.results if "no container was run" in task]
    assert "Until then the plugin is optional" in str(said)
    assert line_in_force(lab) == f"optional {LINE}"


@pytest.mark.usefixtures("equipping")
@pytest.mark.parametrize("host", HOSTS)
def test_a_newer_plugin_replaces_an_older_one_which_is_kept_until_it_is_proven(lab: Lab, host: str) -> None:
    before = OLDER_PLUGIN if host == OLDER else "/dev/null"
    assert lab.command(host, f"cmp {PACKAGED} {PLUGIN} && cmp {before} {PLUGIN}.before") == ""


@pytest.mark.usefixtures("equipped")
def test_packages_come_from_a_url_and_a_file_and_are_not_installed_again(lab: Lab, again: Run) -> None:
    """That run has all roles for containers, and changes nothing but what it is made to (fixture `again`)."""
    for host in HOSTS:
        versions = lab.command(host, "dpkg-query -W -f '${Package}=${Version} ' enroot nvslurm-plugin-pyxis")
        assert versions == "enroot=4.1.2-1 nvslurm-plugin-pyxis=0.24.0-1"
    # A container has run now, so the line becomes `required`: a task that runs once, for whichever host comes first.
    changed = ["pyxis : Change the line of plugstack.conf", "slurmd : Run slurmd with its settings"]
    found = sorted(task for tasks in again.changed.values() for task in tasks)
    assert found == [f"gpucluster.slurm.{task}" for task in changed]


@pytest.mark.usefixtures("equipped")
def test_a_plugin_is_proven_by_the_next_run(lab: Lab) -> None:
    for host in HOSTS:
        assert lab.command(host, f"ls {PLUGIN}* && cmp {PACKAGED} {PLUGIN}") == PLUGIN
    assert line_in_force(lab) == f"required {LINE}"


@pytest.mark.usefixtures("equipped")
def test_a_container_that_fails_does_not_run_its_command_on_the_host(lab: Lab) -> None:
    wrong = ["image=missing", "image=/none.sqsh", "mounts=/none:/workspace"]
    wrong.append("mounts=/tmp:/workspace --container-workdir=/none")
    jobs = "; ".join(f"timeout 180 srun --container-{options} touch ran 2>/dev/null; echo $?" for options in wrong)
    assert as_user(lab, jobs).split() == ["1"] * len(wrong)
    assert as_user(lab, "ls -d ran", rc=2) == ""
    assert lab.command("front", "sinfo -h -t drain,fail,down -o %N") == ""


@pytest.mark.usefixtures("equipped")
def test_jobs_have_the_options_of_containers(lab: Lab) -> None:
    assert "--container-image=IMAGE" in lab.command("front", "srun --help")
    job = "timeout 180 srun -N2 --container-image=ubuntu:24.04 env | grep ^PYXIS"
    assert as_user(lab, job).splitlines() == ["PYXIS_container_image=ubuntu:24.04"] * 2


@pytest.mark.rare  # half a minute
def test_a_node_without_the_required_plugin_is_repaired(lab: Lab, equipped: Site) -> None:
    """slurmd, which does not start without it, comes up in the same run."""
    node = "box02"
    assert lab.host(node).run(f"rm {PLUGIN}; systemctl restart slurmd").rc != 0
    run = equipped.run(f"--limit={node}", "--skip-tags=preflight,mig", tags="compute")
    assert (run.rc, run.failed) == (0, {})
    assert lab.command(node, f"cmp {PACKAGED} {PLUGIN}; systemctl is-active slurmd") == "active"
    assert line_in_force(lab) == f"required {LINE}"
    job = f"timeout 180 srun -w {node} --container-image=any sh -c 'echo $PYXIS_container_image'"
    assert as_user(lab, job) == "any"


@pytest.fixture(scope="module")
def worse(equipped: Site) -> Site:
    """The cluster as it is to be with other plugins, in the state that it has with everything."""
    return replace(equipped, variables=equipped.variables | {"slurm_plugstack": []})


@pytest.mark.rare  # 75 s; test_a_plugin_with_which_no_container_runs_is_not_left_to_jobs has the same way back
@pytest.mark.parametrize("required", [True, False], ids=["package", "package-and-line"])
def test_after_a_change_for_the_worse_jobs_have_what_they_had(
    lab: Lab, worse: Site, workshop: Workshop, required: bool
) -> None:
    """A plugin that the site names no more is gone for all that."""
    had = {host: lab.command(host, f"sha256sum {PLUGIN}") for host in HOSTS}
    line = lab.command("front", "grep spank_pyxis /etc/slurm/plugstack.conf")
    run = worse.run("--skip-tags=preflight,mig", tags="controller", **broken(workshop, required))
    assert "the previous plugin are restored" in str(run.failed)
    assert lab.command("front", "grep -v ^# /etc/slurm/plugstack.conf") == line
    assert {host: lab.command(host, f"sha256sum {PLUGIN}") for host in HOSTS} == had
    assert lab.command("front", "sinfo -h -t drain,fail,down -o %N") == ""
    job = "timeout 180 srun -N2 --container-image=any sh -c 'echo $PYXIS_container_image $GREETING' 2>&1"
    assert as_user(lab, job) == "any\nany"
