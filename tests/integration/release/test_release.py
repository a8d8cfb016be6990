# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions that depend on the release of Slurm, on a cluster that site.yml has installed on two bare hosts.

One host is the controller with the database and a compute node. The other is a node with stand-ins for GPUs; it becomes
a login host at the end. The tests run in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, with_cluster, with_hardware

ROLE = "gpucluster.slurm."
CONFIGURATION = "cat /etc/slurm/*.conf; pidof slurmctld"


@pytest.fixture(name="head")
def controller(lab: Lab) -> str:
    return str(lab.controller)


@pytest.fixture(name="node")
def node_with_gpus(lab: Lab) -> str:
    return str(lab.nodes[-1])


@pytest.fixture(name="job")
def job_that_runs(lab: Lab, head: str) -> Iterator[str]:
    """A job on the controller; no test here must end it."""
    job = lab.command(head, f"sbatch --parsable -w {head} --output=/dev/null --wrap 'sleep 900'")
    try:
        lab.wait_for(head, f"squeue -h -j {job} -o %T", "RUNNING")
        before = lab.command(head, f"squeue -h -j {job} -o '%T %S'")
        yield job
        assert lab.command(head, f"timeout 60 squeue -h -j {job} -o '%T %S'") == before
        assert " Restarts=0 " in lab.command(head, f"scontrol --oneliner show job {job}")
    finally:
        lab.host(head).run(f"scancel {job}")


def test_a_second_run_changes_nothing_and_warns_of_nothing(lab: Lab) -> None:
    """The first run has shown the jobs of stage validate."""
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.changed, run.failed, run.warnings) == (0, {}, {}, [])


def test_this_is_the_release_of_the_scenario(lab: Lab) -> None:
    for host in lab.nodes:
        assert lab.command(host, "sinfo --version").startswith(f"slurm-wlm {lab.release}.")


def state_of_hosts(lab: Lab) -> dict[str, str]:
    """What site.yml could change on each host: files, packages, and the starts of the daemons."""
    places = "/etc /usr/local /var/lib/gpucluster-slurm /var/lib/slurm/slurmctld/clustername"
    script = (
        f"find {places} -type f 2>/dev/null | sort | xargs sha256sum; dpkg-query -W -f '${{Package}} ${{Version}}\\n'; "
        "systemctl show --property=Id,InvocationID munge slurmd slurmctld slurmdbd mariadb; apt-mark showhold"
    )
    return {host: lab.script(host, script, b"").decode() for host in lab.nodes}


def test_hosts_of_another_cluster_are_refused(lab: Lab, tmp_path: Path, head: str, node: str) -> None:
    """With the cluster file of another cluster for the same hosts, nothing is changed on any of them."""
    name = lab.cluster["name"]
    other = with_cluster(lab, tmp_path, {**lab.cluster, "name": "other"})
    before = state_of_hosts(lab)
    whole, limited = other.playbook("site"), other.playbook("site", "--check", f"--limit={node}", "--tags=policy")
    assert state_of_hosts(lab) == before
    for run in (whole, limited):
        assert (run.rc != 0, run.changed) == (True, {})
        (message,) = {text for texts in run.failed.values() for text in texts}
        assert "Nothing was changed, because the cluster file is that of other (slurm_cluster_name)" in message
        assert f"\n{node}: cluster {name}: slurmd runs with /" in message
        assert "gpucluster.slurm.adopt" in message
        on_the_head = f"\n{head}: cluster {name}: slurmctld runs with /etc/slurm/slurm.conf, slurmd runs with /"
        assert (on_the_head in message) == (run is whole)
    assert not lab.inventory.parent.joinpath("secrets/other").exists()


def test_daemons_run_where_they_belong(lab: Lab, head: str, node: str) -> None:
    daemons = {head: "munge mariadb slurmdbd slurmctld slurmd", node: "munge slurmd"}
    for host, units in daemons.items():
        assert set(lab.command(host, f"systemctl is-active {units}; systemctl is-enabled {units}").split()) == {
            "active",
            "enabled",
        }
        assert lab.command(host, "systemctl --failed --no-legend --plain") == ""
    # systemd knows a daemon by its PID file where it does not tell by itself.
    for unit in daemons[head].split()[2:]:
        assert lab.command(head, f"systemctl show --value --property=MainPID {unit}") == lab.command(
            head, f"pidof {unit}"
        )
    # A unit without a directory of its own, as in 22.05, has a daemon that writes its PID file.
    for unit in daemons[head].split()[2:]:
        show = "cat /etc/slurm/slurmdbd.conf" if unit == "slurmdbd" else "timeout 60 scontrol show config"
        setting = "PidFile" if unit == "slurmdbd" else f"{unit}PidFile"
        path = Path(lab.command(head, f"{show} | grep -i '^{setting}'").partition("=")[2].strip())
        directory = lab.command(head, f"systemctl show --value --property=RuntimeDirectory {unit}")
        if directory:
            assert path.parent == Path("/run") / directory
        else:
            assert lab.command(head, f"cat {path}") == lab.command(head, f"pidof {unit}")
    assert not lab.host(node).file("/etc/slurm/slurm.conf").exists
    assert f"ClusterName             = {lab.cluster['name']}" in lab.command(node, "scontrol show config")


def test_a_node_has_the_files_of_the_site_and_runs_its_prolog(lab: Lab, head: str, node: str) -> None:
    """slurmctld sends both to the node, which has no directory with a configuration of its own."""
    files = lab.cluster.get("slurm_files")
    if not files:
        pytest.skip("slurmctld sends no prolog before Slurm 23.11")
    job = lab.command(head, f"timeout 180 srun -w {node} printenv SLURM_JOB_ID")
    assert job in lab.command(node, "cat /run/first-prolog").split()
    assert lab.command(node, "cat /run/slurm/conf/oci.conf") == files["oci.conf"].strip()
    for name in files:
        assert not lab.host(node).file(f"/etc/slurm/{name}").exists


def test_a_job_gets_the_gpu_and_the_core_that_it_asked_for_and_no_other(lab: Lab, node: str) -> None:
    # A device node without a driver: opening one that was allocated gives ENXIO, another one EPERM.
    probe = "echo $CUDA_VISIBLE_DEVICES; nproc; for n in 0 1; do head -c1 /dev/nvidia$n 2>&1; done; true"
    job = f"runuser -u alice -- timeout 180 srun --gres=gpu:h100:1 sh -c '{probe}'"
    lines = lab.command(node, job).splitlines()
    assert lines[:2] == ["0", "1"]
    assert "No such device or address" in lines[2]
    assert "Operation not permitted" in lines[3]


def test_jobs_are_booked(lab: Lab, node: str) -> None:
    submit = "runuser -u alice -- timeout 180 sbatch --parsable --wait --output=/dev/null --wrap 'exit 3'"
    job = lab.command(node, submit, rc=3)
    # slurmctld sends accounting records to slurmdbd in batches.
    booked = lab.wait_for(node, f"sacct -nPX -j {job} -o User,State,ExitCode,AllocTRES", "|FAILED|3:0|")
    assert booked.startswith("alice|FAILED|3:0|")
    assert "cpu=1" in booked
    # PrologFlags=contain: a step on all nodes of the job, before and with its own.
    assert lab.command(node, f"sacct -nP -j {job} -o JobID,State").split()[1:] == [
        f"{job}.batch|FAILED",
        f"{job}.extern|COMPLETED",
    ]


@pytest.mark.usefixtures("job")
def test_a_job_survives_a_restart_of_every_daemon(lab: Lab, head: str) -> None:
    lab.command(head, "systemctl restart munge slurmd slurmdbd slurmctld")
    # The node is shown as allocated until slurmctld has counted its cores again.
    lab.wait_for(head, f"sinfo -h -n {head} -o %T | grep -cE '^(mixed|allocated)$'", "1")


def test_files_that_slurmctld_does_not_start_with_are_not_written(lab: Lab, head: str) -> None:
    before = lab.command(head, CONFIGURATION)
    slurm_conf = {**lab.cluster.get("slurm_conf", {}), "Licenses": "a:x"}
    run = lab.playbook("site", "--tags=controller", f"--extra-vars={json.dumps({'slurm_conf': slurm_conf})}")
    (message,) = run.failed[head]
    assert "slurmctld does not start with these files: fatal: Invalid configured licenses: a:x" in message
    assert lab.command(head, CONFIGURATION) == before


def test_gpus_that_this_slurm_cannot_find_are_refused(lab: Lab, head: str, node: str, tmp_path: Path) -> None:
    gpus = [{"name": "gpu", "type": "h100", "count": 2, "autodetect": "nvidia"}]
    run = with_hardware(lab, tmp_path, node, {"gres": gpus}).playbook("site", "--tags=base", "--check")
    if lab.release == "22.05":
        assert "knows autodetect nvml, oneapi, rsmi, and the machine types have nvidia" in str(run.failed[head])
        gpus[0]["autodetect"] = "nvml"
        run = with_hardware(lab, tmp_path, node, {"gres": gpus}).playbook("site", "--tags=base", "--check")
        assert "apt cannot install slurm-wlm-nvml-plugin with the installed Slurm" in str(run.failed[node])
        assert "give the machine type file" in str(run.failed[node])
    else:
        assert (run.rc, run.failed) == (0, {})


def test_slurm_refuses_a_node_that_has_less_memory_and_the_run_takes_it_back(
    lab: Lab, head: str, node: str, tmp_path: Path
) -> None:
    memory = int(lab.command(node, "slurmd -C").partition("RealMemory=")[2].split()[0])
    before = lab.command(head, "cat /etc/slurm/*.conf")
    too_much = with_hardware(lab, tmp_path, node, {"real_memory": memory + 1})
    run = too_much.playbook("site", "--tags=controller", "--skip-tags=preflight")
    low = f"Low RealMemory (reported:{memory} < 100.00% of configured:{memory + 1})"
    assert f"Slurm no longer accepts {node}: {low}" in str(run.failed[head])
    assert "Rolled back: the old files are in force again." in str(run.failed[head])
    assert lab.command(head, "cat /etc/slurm/*.conf") == before
    lab.wait_until_idle(head, node)


@pytest.mark.rare  # 45 s; a node seldom changes its part
@pytest.mark.usefixtures("job")
def test_a_node_becomes_a_login_host_while_a_job_runs(lab: Lab, head: str, node: str, tmp_path: Path) -> None:
    (address,) = (entry["address"] for entry in lab.cluster["nodes"] if entry["hosts"] == node)
    cluster = {
        **lab.cluster,
        "login": node,
        "addresses": {node: address},
        "nodes": [entry for entry in lab.cluster["nodes"] if entry["hosts"] == head],
        "partitions": [{"name": "all", "nodes": head, "default": True}],
    }
    lab.command(node, "systemctl disable --now slurmd")
    run = with_cluster(lab, tmp_path, cluster).playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert f"{ROLE}slurmctld : Apply Slurm's configuration" in run.changed[head]
    assert lab.command(node, "timeout 60 sinfo -h -N -o %N") == head
    assert lab.command(node, "runuser -u alice -- timeout 180 srun hostname") == head
    if lab.has_sackd:
        assert lab.command(node, "systemctl is-active sackd") == "active"
        assert not lab.host(node).file("/etc/slurm/slurm.conf").exists
    else:
        files = [lab.command(host, "sha256sum /etc/slurm/slurm.conf") for host in (head, node)]
        assert files[0] == files[1]
