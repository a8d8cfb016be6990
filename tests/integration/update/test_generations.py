# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of an older version of the collection: this version restarts nothing, and the site accepts its defaults.

The older version is the last release (tests/tools/older_version.py). The tests run in this order. The GPUs are device
nodes without a driver, and nodes reboot as in reboots.py.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.state_version import FILE, VERSION
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.program_library import LIBRARY
from lab import ROOT, Lab, Run, container, podman, with_cluster
from reboots import wait_for_reboot, write_stand_ins

sys.path.append(str(ROOT / "tests/tools"))

CONTROLLER = "upd-ctl"
NODES = ("upd-node1", "upd-node2")
HOSTS = (CONTROLLER, *NODES)
GO = "/home/alice/go"
UNTIL = f"sh -c 'while test -e {GO}; do sleep 1; done; echo end of the step'"
BOOT_SECONDS = 120


def starts(lab: Lab) -> dict[str, str]:
    """The starts of the daemons by host, and the processes of those that Slurm itself does not replace.

    From 23.11 on, slurmctld and slurmd read their files again (scontrol reconfigure) in a new process.
    """
    start = "systemctl show --property=Id,InvocationID,ActiveState,ActiveEnterTimestamp"
    process = "systemctl show --property=Id,MainPID munge slurmdbd mariadb"
    return {host: lab.command(host, f"{start} munge slurmctld slurmdbd slurmd mariadb; {process}") for host in HOSTS}


def processes(lab: Lab) -> dict[str, str]:
    """The processes of slurmctld and slurmd, by host."""
    return {host: lab.command(host, "systemctl show --property=Id,MainPID slurmctld slurmd") for host in HOSTS}


def files_read(lab: Lab) -> dict[str, set[str]]:
    """The files that Slurm and MariaDB read, with their checksums, by host."""
    files = "find /etc/slurm /etc/mysql -type f | xargs md5sum"
    return {host: {*lab.command(host, files).splitlines()} for host in HOSTS}


def daemons(lab: Lab) -> list[Any]:
    """All of them, which a run that changes nothing leaves as they are."""
    return [starts(lab), processes(lab), files_read(lab)]


def records(lab: Lab) -> str:
    """What slurmdbd has of jobs that have ended, of users and of their accounts."""
    columns = "JobID,User,Account,State,Start,End,AllocTRES"
    jobs = f"sacct -a -X -n -P --state=CD --starttime=now-1days --endtime=now -o {columns}"
    associations = "sacctmgr -n -P show associations format=Cluster,Account,User,Fairshare,DefaultQOS,ID"
    return str(lab.command(CONTROLLER, f"timeout 60 {jobs} | sort; timeout 60 {associations} | sort"))


def changed_files(run: Run) -> set[str]:
    """The files that a run has changed, or would change in check mode. Each change has a diff that names its file.

    The modules of programs are one, their library.
    """
    succeeded(run)
    diffs = {(host, task): result.get("diff") or [] for host, task, result in run.results if result.get("changed")}
    assert all(diffs.values()), [task for task, diff in diffs.items() if not diff]
    paths = {part["after_header"] for diff in diffs.values() for part in diff}
    return {LIBRARY if path.startswith(f"{LIBRARY}/") else path for path in paths}


def named_files() -> set[str]:
    """The files of which the upgrade notes say that the first run of this version changes them."""
    older, notes = map(importlib.import_module, ("older_version", "upgrade_notes"))
    versions = notes.step(ROOT, older.last_release(ROOT)).values()
    entries = [entry for version in versions for entry in version.get("first_run", ())]
    return {path for entry in entries for path in re.findall(r"``(/[^`]+)``", entry)}


def shown(lab: Lab, key: str) -> str:
    """A value that slurmctld has in force."""
    output = lab.command(CONTROLLER, "timeout 60 scontrol show config")
    (value,) = re.findall(rf"(?m)^{key}\s*= (.*)$", output)
    return str(value)


def as_alice(lab: Lab, command: str, rc: int = 0) -> str:
    return str(lab.command(CONTROLLER, f"cd /home/alice && runuser -u alice -- timeout 60 {command}", rc))


def submit(lab: Lab, options: str, command: str = "sleep 300") -> str:
    """A job of alice that runs when this returns; its number."""
    job = as_alice(lab, f"sbatch --parsable -o /dev/null {options} --wrap '{command}'")
    lab.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T", "RUNNING", 60)
    return job


def bill(lab: Lab, options: str) -> str:
    """What a job with these options is charged."""
    job = submit(lab, options)
    record = lab.command(CONTROLLER, f"timeout 60 scontrol show job -o {job}")
    lab.command(CONTROLLER, f"timeout 60 scancel {job}")
    lab.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T; echo end", "end")
    (billing,) = re.findall(r"AllocTRES=\S*billing=(\d+)", record)
    return str(billing)


def newer(lab: Lab, directory: Path, **keys: Any) -> Lab:
    """The cluster after it has accepted the second generation."""
    return with_cluster(lab, directory, {**lab.cluster, "defaults": 2, **keys})


def limited(lab: Lab) -> dict[str, Any]:
    """A policy with a limit of a type of GPU."""
    policy = lab.cluster["accounting"]
    users = [{"name": "alice", "DefaultAccount": "physics", "GrpTRES": {"gres/gpu:t4": 1}}]
    return {"accounting": {**policy, "users": users}}


def succeeded(run: Run) -> None:
    assert run.rc == 0, run.failed or run.output[-3000:]


@pytest.fixture(scope="module", name="jobs", autouse=True)
def jobs_of_alice(lab: Lab) -> Iterator[str]:
    """A batch job, whose number this is, and an srun whose step started before the update."""
    lab.command(CONTROLLER, f"touch {GO}; chown alice: {GO}")
    as_alice(lab, "srun -n1 true")
    lab.wait_for(CONTROLLER, "timeout 60 sacct -a -X -n -o State", "COMPLETED", 60)
    job = submit(lab, "-J batch -w upd-node1 -n1", UNTIL.replace("'", '"'))
    service = "systemd-run --quiet --uid=alice --working-directory=/home/alice --unit=waiting"
    lab.command(
        CONTROLLER, f"{service} --property=StandardOutput=file:/home/alice/out srun -J srun -w upd-node2 {UNTIL}"
    )
    jobs_run(lab)
    yield job
    lab.host(CONTROLLER).run(f"rm -f {GO}")


def jobs_run(lab: Lab) -> None:
    """The jobs of the fixture have not ended."""
    lab.wait_for(CONTROLLER, "timeout 60 squeue -h -o '%j %t' | sort | xargs", "batch R srun R", 60)


def test_the_notes_name_each_file_that_the_first_run_would_change(lab: Lab) -> None:
    before = daemons(lab)
    assert changed_files(lab.playbook("site", "--check", "--diff", "--skip-tags=validate")) <= named_files()
    assert daemons(lab) == before


def test_an_update_of_the_collection_restarts_and_loses_nothing(lab: Lab) -> None:
    before, files, known = starts(lab), files_read(lab), records(lab)
    assert "|alice|physics|COMPLETED|" in known
    assert changed_files(lab.playbook("site", "--diff", "--skip-tags=validate")) <= named_files()
    assert starts(lab) == before
    changed = {line.split()[1] for host, now in files_read(lab).items() for line in now ^ files[host]}
    assert changed <= named_files()
    assert records(lab) == known
    jobs_run(lab)
    assert lab.playbook("site", "--check", "--diff", "--skip-tags=validate").changed == {}
    assert lab.playbook("site", "--skip-tags=validate").changed == {}


@pytest.mark.parametrize("check", [True, False])
def test_a_cluster_of_a_newer_version_is_refused_before_anything_changes(lab: Lab, check: bool) -> None:
    """One node that a newer version has reached stops the run for all hosts."""
    assert {lab.command(host, f"cat {FILE}") for host in HOSTS} == {str(VERSION)}
    before, node = daemons(lab), NODES[1]
    lab.command(node, f"echo {VERSION + 1} >{FILE}; rm -f /usr/local/sbin/slurm-health")
    try:
        run = lab.playbook("site", "--skip-tags=validate", *(["--check"] if check else []))
        assert run.rc != 0
        assert f"{node}: found {VERSION + 1}, allowed: up to {VERSION}" in str(run.failed)
        assert run.changed == {}
        assert daemons(lab) == before
        lab.command(node, "test ! -e /usr/local/sbin/slurm-health")
    finally:
        lab.command(node, f"echo {VERSION} >{FILE}")
    if not check:
        assert changed_files(lab.playbook("site", "--diff", "--skip-tags=validate")) == {"/usr/local/sbin/slurm-health"}


def test_a_check_shows_the_newer_defaults(lab: Lab) -> None:
    before = daemons(lab)
    run = lab.playbook("site", "--check", "--skip-tags=validate")
    succeeded(run)
    (lines,) = {result["msg"] for _host, task, result in run.results if "Check the model" in task and "msg" in result}
    keys = [re.sub(r":.*", "", line) for line in lines.splitlines() if " with defaults: 2. " in line]
    assert keys == [
        "slurm.conf SrunPortRange",
        "slurm.conf ResumeTimeout",
        "slurm.conf EnforcePartLimits",
        "slurm.conf JobCompType",
        "slurm.conf JobCompLoc",
        "slurm.conf MaxDBDMsgs",
        "slurm.conf AccountingStorageTRES",
        "slurm.conf PriorityWeightPartition",
        "slurm.conf PriorityFlags",
        "slurm.conf TRESBillingWeights",
        # Prolog, Epilog and nohold_on_prolog_fail follow from the scripts of this cluster already.
        "slurm.conf SchedulerParameters",
        "slurm.conf SchedulerParameters",
        "slurm.conf LaunchParameters",
        "slurm.conf SlurmctldParameters",
        "zz-gpucluster-slurm.cnf innodb_log_file_size",
    ]
    assert "slurm.conf ResumeTimeout: not set -> 600 with defaults: 2. With Slurm's 60 s, a server that" in lines
    assert daemons(lab) == before


def test_a_limit_of_a_type_is_refused_before_anything_changes(lab: Lab, tmp_path: Path) -> None:
    before = daemons(lab)
    run = with_cluster(lab, tmp_path, {**lab.cluster, **limited(lab)}).playbook("site", "--skip-tags=validate")
    assert run.rc != 0
    assert "gres/gpu:t4" in str(run.failed)
    assert daemons(lab) == before


def test_a_site_accepts_the_second_generation_while_jobs_run(lab: Lab, tmp_path: Path) -> None:
    accepted = newer(lab, tmp_path, **limited(lab))
    succeeded(accepted.playbook("site", "--skip-tags=validate"))
    jobs_run(lab)
    assert accepted.playbook("site", "--skip-tags=validate").changed == {}
    assert accepted.playbook("site", "--check", "--skip-tags=validate").changed == {}
    assert shown(lab, "ResumeTimeout") == "600 sec"
    assert shown(lab, "MaxDBDMsgs") == "100000"
    assert shown(lab, "SrunPortRange") == "61000-63000"
    assert shown(lab, "JobCompType") in ("jobcomp/none", "(null)")
    assert shown(lab, "LaunchParameters").split(",").count("use_interactive_step") == 1
    assert {"bf_window=4320", "bf_resolution=180"} <= {*shown(lab, "SchedulerParameters").split(",")}
    size = lab.command(CONTROLLER, "mariadb -Ne 'SELECT @@innodb_log_file_size, @@innodb_buffer_pool_size'").split()
    assert int(size[0]) == max(int(size[1]) // 4, 96 * 2**20)


def test_a_job_is_charged_for_its_largest_share_of_a_node(lab: Lab) -> None:
    """A node has two CPUs and one GPU, so a GPU counts as two CPUs, and so does all of the memory."""
    assert bill(lab, "-p gpu -n1 --mem=100 --gres=gpu:1") == "2"
    assert bill(lab, "-p gpu -n1 --mem=100") == "1"


def test_a_limit_of_a_type_of_gpu_holds(lab: Lab) -> None:
    job = submit(lab, "-n1 --mem=100 --gres=gpu:t4:1")
    second = as_alice(lab, "sbatch --parsable -o /dev/null -n1 --mem=100 --gres=gpu:t4:1 --wrap true")
    lab.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={second} --format=%r", "AssocGrpGRES", 60)
    as_alice(lab, f"scancel {job} {second}")


def test_a_job_for_two_partitions_needs_one_that_fits(lab: Lab) -> None:
    job = as_alice(lab, "sbatch --parsable -H -o /dev/null -p gpu,all -N2 --wrap true")
    as_alice(lab, f"scancel {job}")
    as_alice(lab, "sbatch -H -o /dev/null -p gpu -N2 --wrap true", rc=1)


def test_the_factor_of_a_partition_counts(lab: Lab) -> None:
    job = as_alice(lab, "sbatch --parsable -o /dev/null -p gpu -n2 --begin=now+1hour --wrap true")
    held = as_alice(lab, "sbatch --parsable -o /dev/null -p gpu -c2 -w upd-node1 --mem=1500 --wrap true")
    lab.wait_for(CONTROLLER, f"timeout 60 sprio --noheader --jobs={held} --format=%P", "10000", 90)
    as_alice(lab, f"scancel {job} {held}")


def test_salloc_gives_a_shell_on_the_node(lab: Lab) -> None:
    shell = """script --quiet --command 'salloc --quiet -n1 -w upd-node2' /dev/null"""
    output = lab.command(
        CONTROLLER,
        f"echo 'echo on-$(hostname); exit' >/tmp/typed; cd /home/alice; "
        f"runuser -u alice -- timeout 60 {shell} </tmp/typed",
    )
    assert "on-upd-node2" in output


def test_a_node_that_boots_for_two_minutes_returns_to_service(lab: Lab, jobs: str) -> None:
    """The jobs of the fixture end before."""
    lab.command(CONTROLLER, f"rm {GO}")
    for name, job in (("batch", jobs), ("srun", "")):
        which = f"--jobs={job}" if job else f"--name={name} --starttime=now-1hours"
        lab.wait_for(CONTROLLER, f"timeout 60 sacct --noheader -X -P {which} --format=state", "COMPLETED", 60)
    assert "end of the step" in lab.command(CONTROLLER, "cat /home/alice/out")
    write_stand_ins(lab, "upd-node2")
    lab.wait_until_idle(CONTROLLER, "upd-node2")
    lab.command(CONTROLLER, "timeout 60 scontrol reboot ASAP nextstate=RESUME upd-node2")
    wait_for_reboot("upd-node2")
    time.sleep(BOOT_SECONDS)
    podman("start", container("upd-node2"))
    lab.wait_until_idle(CONTROLLER, "upd-node2", 60)
