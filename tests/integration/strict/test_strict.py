# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile strict. The scenario has installed the cluster, and so the stage validate has run its jobs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import sent
from lab import Lab
from reach import found_ways, open_ways, ways_of_monitoring

CONTROLLER, LOGIN, NODES = "st-ctl", "st-login", ("st-node1", "st-node2")
CLUSTER = (CONTROLLER, LOGIN, *NODES)
SETTINGS = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
ADMINISTRATOR = 1000
"""Ansible connects as this user of the lab. sudo asks for no password, and the collection does not know the user."""


def as_alice(lab: Lab, command: str) -> str:
    """The output of a command of an ordinary user."""
    return str(lab.command(LOGIN, f"runuser -u alice -- sh -c 'cd /tmp && timeout 120 {command} 2>&1'"))


def test_the_jobs_of_the_validation_are_those_of_the_service_user(lab: Lab) -> None:
    jobs = lab.command(
        CONTROLLER, "sacct --noheader --allocations --allusers --parsable2 --format=user,account,jobname"
    )
    assert {f"slurm-check|root|all/{node}" for node in NODES} <= {*jobs.split()}
    # In a run of the whole scenario, the tests of scenario default come first, with jobs of alice.
    assert {job.split("|")[0] for job in jobs.split()} - {"alice"} == {"slurm-check"}
    assert {lab.command(host, "id -u slurm-check; id -g slurm-check") for host in CLUSTER} == {"965\n965"}
    assert lab.command(CONTROLLER, "passwd --status slurm-check").split()[1] == "L"


def test_root_runs_no_job(lab: Lab) -> None:
    refused = lab.host(LOGIN).run("timeout 60 srun true")
    assert refused.rc != 0
    assert "Invalid user id" in refused.stderr
    assert sorted(as_alice(lab, "srun -N2 hostname").split()) == [*NODES]


@pytest.fixture
def associated(lab: Lab) -> Iterator[None]:
    """Root of a node gives the administrator what a job needs. The munge key is enough for that."""
    lab.command(NODES[0], "sacctmgr --immediate add user admin account=root")
    yield
    lab.command(CONTROLLER, "sacctmgr --immediate delete user admin")


def stolen(lab: Lab, command: str) -> str:
    """What a command says in a job on the second node, which root of the first submits as the administrator."""
    job = f"sbatch --wait --parsable --uid={ADMINISTRATOR} -w {NODES[1]} -o /tmp/stolen --wrap {shlex.quote(command)}"
    lab.host(NODES[0]).run(f"cd /tmp && timeout 120 {job}")
    return str(lab.command(NODES[1], "cat /tmp/stolen; rm /tmp/stolen"))


@pytest.mark.usefixtures("associated")
def test_no_job_becomes_root_by_sudo(lab: Lab) -> None:
    """Whatever the sudoers of a node say. An administrator who comes by ssh uses sudo as before."""
    assert lab.command(NODES[1], "sudo -u admin sudo -n id -u") == "0"
    said = stolen(lab, "grep NoNewPrivs /proc/self/status; sudo -n id; su root -c id; ping -c1 -W1 127.0.0.1")
    assert "uid=0" not in said
    assert said.splitlines()[0].split() == ["NoNewPrivs:", "1"]
    assert "no new privileges" in said


def test_slurmctld_runs_no_program_for_root_of_a_node(lab: Lab) -> None:
    """A trigger is a program that slurmctld runs as SlurmUser, on the controller (strigger(1))."""
    trigger = f"strigger --set --node={NODES[1]} --down --program=/usr/bin/true"
    refused = lab.host(NODES[0]).run(f"runuser -u slurm -- timeout 60 {trigger}")
    assert refused.rc != 0
    assert lab.command(CONTROLLER, "runuser -u slurm -- strigger --get --noheader") == ""


def test_programs_that_jobs_need_are_refused_first(lab: Lab) -> None:
    run = lab.playbook("site", "--extra-vars={apptainer_setuid: true}")
    assert (run.changed, run.rc != 0) == ({}, True)
    assert "slurm_no_new_privileges: found true" in run.output
    assert "allowed: false" in run.output


def test_users_see_their_own_jobs_and_no_others(lab: Lab) -> None:
    job = as_alice(lab, 'sbatch --parsable --output=/dev/null --wrap "sleep 120"')
    lab.wait_for(CONTROLLER, f"squeue --noheader --jobs={job} --format=%T", "RUNNING", 60)
    shown = {}
    for user in ("alice", "slurm-check"):
        ask = f"runuser -u {user} -- sh -c 'cd / && squeue --noheader --format=%A; sacct -n -X -P -a -o user | sort -u'"
        shown[user] = lab.command(LOGIN, ask).split()
    assert shown == {"alice": [job, "alice"], "slurm-check": ["slurm-check"]}
    assert as_alice(lab, "sacctmgr --noheader --parsable2 show association format=user") == "alice"
    assert as_alice(lab, "sinfo --noheader --format=%D") == "2"
    lab.command(CONTROLLER, f"scancel {job}")


def test_gpus_of_jobs_that_slurm_hides_are_counted_and_not_named(lab: Lab) -> None:
    """The program comes with the job tools, which this cluster does not have."""
    lab.script(LOGIN, "install -m 644 /dev/stdin /opt/gpus.py", sent("programs.gpus").encode())
    job = as_alice(lab, 'sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap "sleep 120"')
    try:
        lab.wait_for(CONTROLLER, f"squeue --noheader --jobs={job} --format=%T", "RUNNING", 60)
        reports = {
            user: json.loads(lab.command(LOGIN, f"runuser -u {user} -- sh -c 'cd / && python3 /opt/gpus.py --json'"))
            for user in ("alice", "slurm-check")
        }
        shown = {user: [(found["job"], found["user"]) for found in reports[user]["jobs"]] for user in reports}
        assert shown == {"alice": [(job, "alice")], "slurm-check": []}
        others = {user: [gpu["count"] for gpu in reports[user]["others"]] for user in reports}
        assert others == {"alice": [], "slurm-check": [1]}
        assert "alice" not in json.dumps(reports["slurm-check"])
        assert reports["alice"]["types"] == reports["slurm-check"]["types"]
        refused = lab.host(LOGIN).run(f"runuser -u slurm-check -- sh -c 'cd / && python3 /opt/gpus.py --why {job}'")
        assert (refused.rc, refused.stderr) == (1, f"gpus: Slurm shows no job {job} that waits or runs\n")
    finally:
        lab.command(CONTROLLER, f"scancel {job}")
        lab.command(LOGIN, "rm /opt/gpus.py")


def test_limits_of_the_login_are_none_of_the_job(lab: Lab) -> None:
    said = lab.command(LOGIN, "runuser -u alice -- sh -c 'cd /tmp; ulimit -n 999; timeout 60 srun sh -c \"ulimit -n\"'")
    assert said != "999"


@pytest.mark.parametrize(("host", "port"), [(CONTROLLER, 6817), (NODES[0], 6818)])
def test_daemons_listen_on_the_addresses_of_the_cluster(lab: Lab, host: str, port: int) -> None:
    address = {CONTROLLER: "10.213.7.230", NODES[0]: "10.213.7.232"}[host]
    assert lab.command(host, f"ss -Hltn sport = :{port}").split()[3] == f"{address}:{port}"


def test_who_reaches_which_server(lab: Lab) -> None:
    """Without the key `firewall`; scenario firewall has the table of a cluster with it."""
    targets = {host: f"10.213.7.{230 + i}" for i, host in enumerate(CLUSTER)}
    assert found_ways(lab, CLUSTER, targets) == open_ways(ways_of_monitoring(CONTROLLER, CLUSTER))


def test_the_logs_are_closed(lab: Lab) -> None:
    refused = lab.host(CONTROLLER).run("runuser -u alice -- cat /var/log/slurm/job_completions")
    assert "Permission denied" in refused.stderr
    lab.command(CONTROLLER, "chmod 0755 /var/log/slurm")
    repaired = lab.playbook("site", "--tags=base")
    assert (repaired.rc, repaired.failed, {*repaired.changed}) == (0, {}, {CONTROLLER})
    assert lab.command(CONTROLLER, "stat --format='%U %a' /var/log/slurm") == "slurm 750"


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    run = lab.playbook("site")
    assert (run.rc, run.failed, run.changed, run.warnings) == (0, {}, {}, [])


def test_rolling_works_without_root(lab: Lab, tmp_path: Path) -> None:
    """rolling.yml resumes a node after a job of the service user alone."""
    (tmp_path / "tasks.yml").write_text("- name: Nothing\n  ansible.builtin.command: 'true'\n  changed_when: true\n")
    run = lab.playbook(
        "rolling", f"--limit={NODES[1]}", "-e", f"rolling_tasks={tmp_path}/tasks.yml", "-e", "rolling_budget=1"
    )
    assert (run.rc, run.failed) == (0, {})
    assert lab.wait_for(CONTROLLER, f"sinfo -h -n {NODES[1]} -o %T", "idle", 30)


def test_a_host_with_another_id_is_refused(lab: Lab) -> None:
    run = lab.playbook("site", "--check", "--extra-vars={slurm_job_user_id: 964}")
    assert {*run.failed} == {*CLUSTER}
    assert "the user slurm-check has id 965 here and 964 in this cluster" in run.failed[LOGIN][0]


def test_new_leaves_hosts_of_a_cluster_out(lab: Lab, tmp_path: Path) -> None:
    """It reads the hosts, names their cluster, and writes no file."""
    options = {"new_cluster_name": "second", "new_cluster_dir": str(tmp_path)}
    run = lab.playbook("new", f"--extra-vars={json.dumps(options)}")
    assert run.rc != 0
    assert run.changed == {}
    for host, daemon in {CONTROLLER: "slurmctld", LOGIN: "sackd", **dict.fromkeys(NODES, "slurmd")}.items():
        assert re.search(rf"{host} .*belongs to another cluster \({daemon} runs\)", run.output), run.output
    assert [*tmp_path.iterdir()] == []


def test_the_way_back_and_forth(lab: Lab) -> None:
    """The tests of other scenarios follow, under the profile."""
    run = lab.playbook("site", "--diff", "--extra-vars={slurm_profile: standard}")
    assert (run.rc, run.failed) == (0, {})
    assert lab.command(LOGIN, "timeout 60 srun hostname") in NODES
    assert lab.command(CONTROLLER, "ss -Hltn sport = :6817").split()[3].startswith("0.0.0.0")
    assert lab.command(NODES[0], f"grep -c NoNewPrivileges {SETTINGS} || true") == "0"
    assert lab.command(NODES[0], "systemctl show slurmd --property=NoNewPrivileges") == "NoNewPrivileges=no"
    kept = as_alice(lab, f'sbatch --parsable --output=/dev/null -w {NODES[0]} --wrap "sleep 1800"')
    lab.wait_for(CONTROLLER, f"squeue --noheader --jobs={kept} --format=%T", "RUNNING", 60)
    foretold = lab.playbook("site", "--check", "--diff", "--tags=compute")
    assert {*NODES} <= {*foretold.changed}
    assert all(any("slurmd" in task for task in foretold.changed[node]) for node in NODES)
    assert "NoNewPrivileges=yes" in foretold.output
    assert lab.command(NODES[0], f"grep -c NoNewPrivileges {SETTINGS} || true") == "0"
    again = lab.playbook("site", "--diff")
    assert (again.rc, again.failed) == (0, {})
    assert lab.command(CONTROLLER, "ss -Hltn sport = :6817").split()[3] == "10.213.7.230:6817"
    assert lab.command(NODES[0], "systemctl show slurmd --property=NoNewPrivileges") == "NoNewPrivileges=yes"
    # slurmd has started anew; the job goes on, and keeps the rights with which it began until it ends.
    assert lab.command(CONTROLLER, f"squeue --noheader --jobs={kept} --format=%T") == "RUNNING"
    flags = lab.command(NODES[0], "grep -h NoNewPrivs $(pgrep -u alice sleep | sed 's,.*,/proc/&/status,')")
    assert flags.split() == ["NoNewPrivs:", "0"]
    lab.command(CONTROLLER, f"scancel {kept}")
