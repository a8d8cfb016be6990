# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AutoDetect with Slurm's own NVML plugin, and MIG instances that site.yml makes, on a node that seems to have GPUs.

The tests run in this order. Those of instances come when the cluster has all else as well.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from debs import Site
from gpus import DECLARED, GPU, INSTANCES, MIG, NODE, recorded
from lab import Lab, Run, with_hardware
from plays import Case, role, shell

FOUND = {"h100": 6, "h100_80gb_hbm3_3g.40gb": 2, "h100_80gb_hbm3_1g.10gb": 8}
MADE = [
    "-i 6 -mig 1",
    "-i 7 -mig 1",
    "mig -i 6 -cgi 3g.40gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb -C",
    "mig -i 7 -cgi 3g.40gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb -C",
]
UNMADE = [command for gpu in (6, 7) for command in (f"mig -i {gpu} -dci", f"mig -i {gpu} -dgi", f"-i {gpu} -mig 0")]
# What role slurmd tells slurmd.
UNIT = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"


def node(lab: Lab, field: str) -> str:
    """A field of what slurmctld knows of the node."""
    match = re.search(rf"\b{field}=(.*?)(?= \w+=|$)", lab.command("front", f"scontrol --oneliner show node {NODE}"))
    return match[1] if match else ""


def job(lab: Lab, gres: str, command: str) -> str:
    """What a user's job with these resources prints."""
    run = f"runuser -u alice -- timeout 180 srun -w {NODE} --gres={gres} sh -c '{command}'"
    return str(lab.command("front", run))


def test_a_node_with_a_job_keeps_its_instances(lab: Lab, prepared: Site, running: str) -> None:
    run = prepared.run(tags="mig")
    assert f"would end the jobs on these nodes (node, job): {NODE} {running}. Nothing was changed." in str(run.failed)
    assert run.changed == {}
    assert recorded(lab) == []
    assert lab.command("front", f"squeue -h -j {running} -o %T") == "RUNNING"


def test_the_plan_is_told_in_check_mode(lab: Lab, planned: Run) -> None:
    """The node is in maintenance meanwhile: that is no job, and it is not refused."""
    assert "gpucluster.slurm.nvidia_mig : Drain the nodes" in planned.changed[NODE]
    assert "gpucluster.slurm.base : Prepare the host" in planned.changed[NODE]  # the NVML plugin
    assert "gpucluster.slurm.nvidia_mig : Compare the instances with the declared ones" in planned.changed[NODE]
    (diff,) = [
        result["diff"]
        for _host, task, result in planned.results
        if "Compare the instances with the declared ones" in task and result["changed"]
    ][:1]
    assert diff["before"] == f"GPU 6 ({GPU}): MIG off\nGPU 7 ({GPU}): MIG off\n"
    layout = "1g.10gb 1g.10gb 1g.10gb 1g.10gb 3g.40gb"
    assert diff["after"] == f"GPU 6 ({GPU}): {layout}\nGPU 7 ({GPU}): {layout}\n"
    assert recorded(lab) == []
    assert node(lab, "State") == "IDLE"


@pytest.mark.usefixtures("equipping")
def test_the_instances_are_made_and_slurm_finds_what_the_cluster_file_declares(lab: Lab) -> None:
    assert recorded(lab) == MADE
    packages = {host: lab.command(host, "dpkg-query --show --showformat='${Package} '") for host in (NODE, "box02")}
    assert {host: "slurm-wlm-nvml-plugin " in text for host, text in packages.items()} == {NODE: True, "box02": False}
    detected = lab.command(NODE, "slurmd -G -f /run/slurm/conf/slurm.conf 2>&1")
    counts: Counter[str] = Counter()
    for kind, count in re.findall(r"Gres Name=gpu Type=(\S+) Count=(\d+)", detected):
        counts[kind] += int(count)
    assert counts == FOUND
    shown = re.findall(r"gpu:([^:,]+):(\d+)", node(lab, "Gres"))
    assert {kind: int(count) for kind, count in shown} == FOUND
    assert node(lab, "State") == "IDLE"


@pytest.mark.rare  # 40 s; scenario default kills runs
@pytest.mark.usefixtures("equipped")
def test_a_run_that_was_killed_before_it_came_to_slurmd_is_continued(lab: Lab, again: Run) -> None:
    changed = [host for host, tasks in again.changed.items() if any(".slurmd : " in task for task in tasks)]
    assert changed == [NODE]
    assert recorded(lab) == MADE


@pytest.mark.usefixtures("equipped")
def test_discover_finds_what_the_cluster_file_declares(lab: Lab, tmp_path: Path) -> None:
    run = with_hardware(lab, tmp_path, NODE, "detected").playbook("discover", f"--limit={NODE}")
    assert (run.rc, run.failed) == (0, {})
    (machine,) = yaml.safe_load((tmp_path / "containers.hardware.yml").read_text())["hardware"].values()
    assert machine["gres"] == DECLARED


@pytest.mark.usefixtures("equipped")
def test_a_job_has_the_gpu_that_it_asks_for(lab: Lab) -> None:
    assert job(lab, "gpu:h100:1", "echo $CUDA_VISIBLE_DEVICES") == "0"
    assert job(lab, "gpu:h100:6", "echo $CUDA_VISIBLE_DEVICES") == "0,1,2,3,4,5"


@pytest.mark.usefixtures("equipped")
def test_a_node_without_gpus_is_beside_it(lab: Lab) -> None:
    assert lab.command("front", "sinfo -h -n box02 -o %G") == "(null)"
    refused = lab.host("front").run("timeout 180 srun -w box02 --gres=gpu:1 true")
    assert (refused.rc, "Requested node configuration is not available" in refused.stderr) == (1, True)
    assert lab.command("front", "timeout 180 srun -w box02 sh -c 'echo $CUDA_VISIBLE_DEVICES.'") == "."


@pytest.mark.usefixtures("equipped")
@pytest.mark.parametrize("profile", MIG)
def test_a_job_has_the_mig_instances_that_it_asks_for(lab: Lab, profile: str) -> None:
    kind = f"h100_80gb_hbm3_{profile}"
    all_of_them = {f"MIG-{gpu}-{i}" for gpu in (6, 7) for i, name in enumerate(INSTANCES, 1) if name == profile}
    assert job(lab, f"gpu:{kind}:1", "echo $CUDA_VISIBLE_DEVICES") in all_of_them
    found = job(lab, f"gpu:{kind}:{FOUND[kind]}", "echo $CUDA_VISIBLE_DEVICES").split(",")
    assert sorted(found) == sorted(all_of_them)


@pytest.mark.usefixtures("equipped")
def test_instances_are_made_again_when_the_node_boots(lab: Lab) -> None:
    assert lab.command(NODE, "systemctl is-enabled slurm-mig") == "enabled"
    # A boot takes the instances away, not the mode.
    lab.command(
        NODE, f"printf '%s\\n' {' '.join(repr(line) for line in [GPU] * 6 + [GPU + '|'] * 2)} >/etc/nvml-stand-in"
    )
    lab.command(NODE, "rm /run/nvidia-smi-stand-in")
    # A cluster file without `mig` has this line no more.
    lab.command(NODE, f"cp -p {UNIT} /run/slurmd-unit && sed -i /slurm-mig/d {UNIT} && systemctl restart slurm-mig")
    lab.command(NODE, f"mv /run/slurmd-unit {UNIT}")
    assert recorded(lab) == []
    lab.command(NODE, "systemctl restart slurm-mig slurmd")
    assert [command.split()[:4] for command in recorded(lab)] == [["mig", "-i", str(gpu), "-cgi"] for gpu in (6, 7)]
    lab.wait_until_idle("front", NODE)


# The GPUs without instances.
WHOLE = [DECLARED[0], DECLARED[1] | {"mig": {}}]
# Wrong declarations of the GPUs, and what Slurm says that it counts.
WRONG = {
    "count": ([DECLARED[0] | {"count": 7}, DECLARED[1]], "(16 < 17)"),
    "profile": ([DECLARED[0], DECLARED[1] | {"mig": {"7g.80gb": 1}}], "(6 < 8)"),
}


@pytest.fixture(scope="module")
def checked(equipped: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """What comes of other declarations. Of the wrong ones by the roles that check them: hardware before Slurm is asked,
    as on a node whose instances somebody has made by hand, slurmctld where Slurm checks, and nvidia_mig where slurmctld
    is away. Of whole GPUs, and of those with instances after them, by nvidia_mig.

    The tests that use it are rare: it takes 40 s, and unit tests have the rules and what slurmctld says."""
    types = "{{ hostvars.front.slurm_hardware_types | combine({'mig': {'gres': declared}}, recursive=True) }}"
    cases: dict[str, Case] = {}
    for name, (gres, _counts) in WRONG.items():
        wrong = {"declared": gres, "slurm_hardware_types": types}
        cases[f"{name} before"] = Case(NODE, [role("hardware")], wrong)
        cases[f"{name} by Slurm"] = Case("front", [role("slurm", "gather"), role("slurmctld")], wrong)
    stop, start = (shell(f"systemctl {verb} slurmctld", "front") for verb in ("stop", "start"))
    cases["away"] = Case(NODE, [stop, role("nvidia_mig")], wrong, [start])
    state = shell(f"sinfo -h -n {NODE} -o '%T: %E'", "front")
    found = shell("slurmd -G -f /run/slurm/conf/slurm.conf 2>&1")
    cases["whole"] = Case(NODE, [role("nvidia_mig"), state, found], wrong | {"declared": WHOLE})
    cases["instances"] = Case(NODE, [role("nvidia_mig"), role("nvidia_mig", "resume")])
    outcomes: dict[str, Run] = equipped.cases(tmp_path_factory.mktemp("checked"), cases)
    equipped.lab.wait_until_idle("front", NODE)
    return outcomes


@pytest.mark.rare
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_refused_and_slurm_refuses_it(checked: dict[str, Run], name: str) -> None:
    assert f"{NODE} would become INVAL: gres/gpu" in str(checked[f"{name} before"].failed)

    # Slurm checks likewise if it is let, and the old files are put back.
    failed = str(checked[f"{name} by Slurm"].failed["front"])
    counts = WRONG[name][1]
    assert f"Slurm no longer accepts {NODE}: gres/gpu count reported lower than configured {counts}" in failed
    assert "Rolled back: the old files are in force again." in failed


@pytest.mark.rare
def test_no_answer_of_slurmctld_is_not_taken_for_no_job(checked: dict[str, Run]) -> None:
    run = checked["away"]
    assert f"would end jobs on {NODE}, and slurmctld does not say whether there are any" in str(run.failed)
    assert run.changed == {}


@pytest.mark.rare
def test_whole_gpus_come_back_and_have_instances_again(lab: Lab, checked: dict[str, Run]) -> None:
    """The commands are those of the boot and these: what was refused has given none."""
    assert (checked["whole"].failed, checked["instances"].failed) == ({}, {})
    state, found = (result["stdout"] for _host, task, result in checked["whole"].results if "shell" in task)
    assert state.replace("*", "") == "drained: gpucluster.slurm: other MIG instances"
    # Slurm's configuration does not name them.
    assert re.findall(r"Type:nvidia_h100_80gb_hbm3 .* File:(\S+)", found) == ["/dev/nvidia6", "/dev/nvidia7"]
    boot, rest = recorded(lab)[:2], recorded(lab)[2:]
    assert [command.split()[:4] for command in boot] == [["mig", "-i", str(gpu), "-cgi"] for gpu in (6, 7)]
    assert rest == UNMADE + MADE
    assert node(lab, "State") == "IDLE"
