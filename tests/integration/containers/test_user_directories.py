# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users' directories of enroot, which the job's prolog makes and its epilog removes, over a stand-in for enroot.

The role runs once more on a host where directories have been damaged, first in check mode with another package.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from debs import Site, Workshop, as_user
from lab import Lab, Run
from plays import Case, role, shell

pytestmark = pytest.mark.usefixtures("equipped")

SCRIPTS = "/usr/local/lib/gpucluster-slurm"
RUNTIME = "/run/enroot/2001"
DIRECTORIES = f"{RUNTIME} /var/lib/enroot/2001"


def test_a_job_has_the_users_directories_and_leaves_none(lab: Lab) -> None:
    modes = f"stat -c '%U %a' {RUNTIME} /var/lib/enroot/2001"
    assert as_user(lab, f"timeout 180 srun -w box01 {modes}").splitlines() == ["alice 700"] * 2
    lab.wait_for("box01", f"ls -d {RUNTIME}* /var/lib/enroot/2001* 2>&1 | grep -vc 'No such' || :", "0")


def test_directories_stay_while_another_job_of_the_user_runs(lab: Lab) -> None:
    other = as_user(lab, "sbatch --parsable -w box01 -o /dev/null --wrap 'sleep 300'")
    lab.wait_for("box01", f"ls -d {RUNTIME}", RUNTIME)
    as_user(lab, f"timeout 180 srun -w box01 touch {RUNTIME}/mine")
    as_user(lab, f"timeout 180 srun -w box01 ls {RUNTIME}/mine")
    as_user(lab, f"scancel {other}")
    lab.wait_for("box01", f"ls -d {RUNTIME} 2>&1", "No such file")


def test_a_directory_that_somebody_else_has_put_there_is_not_given_to_the_user(lab: Lab) -> None:
    lab.command("box01", f"mkdir -p /run/enroot && ln -s /etc {RUNTIME}")
    try:
        assert as_user(lab, "timeout 180 srun -w box01 hostname") == "box01"
        assert lab.command("box01", "stat -c %U /etc") == "root"
        lab.wait_for("box01", "journalctl -t enroot-prolog", f"{RUNTIME} is not a directory of alice")
    finally:
        lab.command("box01", f"rm {RUNTIME}")


def test_users_do_not_see_each_others_directories(lab: Lab) -> None:
    other = as_user(lab, "sbatch --parsable -w box01 -o /dev/null --wrap 'sleep 300'")
    lab.wait_for("box01", f"ls -d {RUNTIME}", RUNTIME)
    said = as_user(lab, f"timeout 180 srun -w box01 ls {RUNTIME} 2>&1 || :", user="bob")
    as_user(lab, f"scancel {other}")
    assert "Permission denied" in said


@pytest.mark.parametrize("script", ["enroot-prolog", "enroot-epilog"])
@pytest.mark.parametrize("options", ["mode=0755", "nr_inodes=1"], ids=["after-a-boot", "full"])
def test_no_script_drains_its_node(lab: Lab, script: str, options: str) -> None:
    """Slurm runs epilogs also where no prolog has been since the boot. /run and what the prolog makes are hidden."""
    hide = f"mount -t tmpfs -o {options} tmpfs /run && mount -t tmpfs tmpfs /var/lib/enroot"
    job = f"SLURM_JOB_ID=1 SLURM_JOB_UID=2001 {SCRIPTS}/{script}"
    lab.command("box01", f"unshare --mount sh -c {shlex.quote(f'{hide} && {job}')}")


def test_what_a_job_has_not_completed_is_removed_at_its_end(lab: Lab) -> None:
    """pyxis is not there, so the job leaves what enroot-data and a container that is not complete would leave."""
    make = """cd .local/share/enroot && mkdir pyxis_half pyxis_done pyxis_others && touch pyxis_done/.lock
        for name in half done; do ln -s $(uname -n):$SLURM_JOB_ID .making-pyxis_$name; done
        ln -s other:1 .making-pyxis_others
        touch /var/lib/enroot/2001/made; touch -d '40 days ago' ~/.cache/enroot/old; touch ~/.cache/enroot/new"""
    directories = ".cache/enroot .local/share/enroot"
    as_user(lab, f"rm -rf {directories}; mkdir -p {directories}")
    try:
        as_user(lab, f"timeout 180 srun -w box01 bash -c {shlex.quote(make)}")
        left = ".cache/enroot: new .local/share/enroot: .making-pyxis_others pyxis_done pyxis_others"
        lab.wait_for("front", f"cd /home/alice && ls -A {directories} | xargs", left)
    finally:
        as_user(lab, f"rm -rf {directories}")


# A program that has changed its root stands in for a container.
RUN = """mkdir -p /var/lib/enroot/2001/containers/pyxis_1.0 ~/.local/share/enroot/pyxis_other
    mkdir ~/.local/share/enroot/pyxis_work
    cd ~/.local/share/enroot/pyxis_work; touch .lock
    program='import os, time; os.chroot("."); time.sleep(300)'
    exec unshare --map-root-user --mount bash -c "mount --bind . . && cd $PWD && exec python3 -c '$program'\""""


def test_pyxis_attaches_to_a_running_container_beside_one_without_a_name(lab: Lab) -> None:
    """The homes of the lab are a bind mount of a directory."""
    job = as_user(lab, f"sbatch --parsable -w box01 -o /dev/null --wrap {shlex.quote(RUN)}")
    try:
        lab.wait_for("box01", "pgrep -xu alice python3", "\n")
        process = lab.command("box01", "pgrep -xu alice python3")
        step = f"timeout 180 srun --jobid={job} --overlap"
        listed = as_user(lab, f"{step} enroot list -f").splitlines()
        assert listed == [f"pyxis_work {process}"]
        assert as_user(lab, f"{step} enroot list").split() == ["pyxis_1.0", "pyxis_other", "pyxis_work"]
        for name, attached in {"work": process, "other": ""}.items():
            assert as_user(lab, f"{step} --container-name={name} sh -c 'echo $PYXIS_attached'") == attached
    finally:
        as_user(lab, f"scancel {job}; rm -rf .local/share/enroot")


MODES = "stat -c %a /run/enroot /var/lib/enroot"
INSTALL = "gpucluster.slurm.slurm : Install packages with their files"


@pytest.fixture(scope="module", name="mended")
def role_enroot_after_damage(
    lab: Lab, equipped: Site, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """The role in check mode, with a newer package, for good and once more where a run has ended between a file and
    its directories."""
    newer = {"enroot_packages": [{"file": str(workshop.enroot("4.2.0-1"))}]}
    cases = {
        "check": Case("front", [role("enroot", check=True)], newer, [shell(f"{MODES} 2>&1 || :")]),
        "run": Case("front", [role("enroot")]),
        "again": Case("front", [role("enroot")]),
    }
    lab.command("front", "rm -rf /run/enroot; chmod 755 /var/lib/enroot")
    outcomes: dict[str, Run] = equipped.cases(tmp_path_factory.mktemp("mended"), cases)
    return outcomes


def test_directories_that_are_missing_or_closed_are_mended(lab: Lab, mended: dict[str, Run]) -> None:
    """alice logs in there."""
    make = ["gpucluster.slurm.enroot : Make the parents of the users' directories"]
    assert [run.failed for run in mended.values()] == [{}, {}, {}]
    assert {name: run.changed for name, run in mended.items()} == {
        "check": {"front": [INSTALL, *make]},
        "run": {"front": make},
        "again": {},
    }
    (left,) = [result["stdout"] for _host, task, result in mended["check"].results if "stdout" in result]
    assert left.split()[-1] == "755"
    assert lab.command("front", MODES).split() == ["1777", "1777"]
    assert as_user(lab, f"{SCRIPTS}/enroot-dir /run/enroot/2001") == "/run/enroot/2001"


def test_check_mode_tells_of_another_version_of_the_package(lab: Lab, mended: dict[str, Run]) -> None:
    (diffs,) = [result["diff"] for _host, task, result in mended["check"].results if task == INSTALL]
    assert [(diff["before"], diff["after"]) for diff in diffs] == [("enroot=4.1.2-1\n", "enroot=4.2.0-1\n")]
    # The run for good, with the site's package, would have had to install it again.
    assert lab.command("front", "dpkg-query -W -f '${Version}' enroot") == "4.1.2-1"


def test_what_other_nodes_may_use_stays_unless_the_site_names_it(lab: Lab, equipped: Site, tmp_path: Path) -> None:
    """The directory with credentials cannot be named."""
    paths = {f"enroot_{name}_dir": f"/var/lib/shared/{name}/%U" for name in ("data", "cache", "config")}
    jobs = "/run/gpucluster-slurm/enroot/2001"
    kept = "/var/lib/shared/{cache,config,data}/2001"

    def left_after_a_job(**variables: Any) -> list[str]:
        outcome = equipped.cases(tmp_path, {"enroot": Case("box01", [role("enroot")], paths | variables)})["enroot"]
        assert outcome.failed == {}
        as_user(lab, "timeout 180 srun -w box01 true")
        lab.wait_for("box01", f"echo left: $(ls -d {DIRECTORIES} {jobs} | wc -l).", "left: 0.")
        lab.wait_for("box01", "echo left: $(ls /var/lib/shared/*/ | grep -c removed).", "left: 0.")
        return str(lab.command("box01", f"bash -c 'ls -d {kept} 2>/dev/null' || :")).split()

    everything = [f"/var/lib/shared/{name}/2001" for name in ("cache", "config", "data")]
    assert left_after_a_job() == everything
    assert left_after_a_job(enroot_clean=["data", "runtime", "temp"]) == everything[:2]
