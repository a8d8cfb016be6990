# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prologs, epilogs and a private /tmp (docs/admin/prologs.md), with real jobs.

Files of the tests make scripts fail: /run/no-disk, /run/no-disk-after and /run/docker-is-down. The prolog `noise` fails
at each job, and is only logged.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab, Run, with_cluster

CONTROLLER = "prep-ctl"
FIRST, SECOND = "prep-node1", "prep-node2"
DOCKER = Path(__file__).parents[1] / "stand_in/docker.py"
AS_USER = "runuser -u alice -- env --chdir=/tmp timeout 120"


@pytest.fixture(scope="module", autouse=True)
def _docker(lab: Lab) -> None:
    """The stand-in for docker on the nodes."""
    for node in (FIRST, SECOND):
        program = b"#!/usr/bin/python3\n" + DOCKER.read_bytes()
        lab.script(node, "install -m 0755 /dev/stdin /usr/local/bin/stand-in-docker", program)


@pytest.fixture(autouse=True)
def _clean(lab: Lab) -> Iterator[None]:
    """No lines of another test, and nodes in service."""
    for host in (CONTROLLER, FIRST, SECOND):
        lab.command(host, "rm -f /run/notes")
    yield
    lab.command(CONTROLLER, "scancel --user=alice")
    for host in (CONTROLLER, FIRST, SECOND):
        lab.wait_until_idle(CONTROLLER, host, 60)


@contextmanager
def failing(lab: Lab, node: str, file: str) -> Iterator[None]:
    """Let a script fail on a node, and put the node into service at the end."""
    lab.command(node, f"touch {file}")
    try:
        yield
    finally:
        lab.command(node, f"rm {file}")
        lab.command(CONTROLLER, "scancel --user=alice")
        lab.wait_for(CONTROLLER, "timeout 60 squeue -h | wc -l", "0", 60)
        lab.command(CONTROLLER, f"timeout 60 scontrol update nodename={node} state=resume")


def srun(lab: Lab, options: str, command: str) -> str:
    """The output of a command that runs as a job of a user."""
    return str(lab.command(CONTROLLER, f"{AS_USER} srun {options} sh -c {shlex.quote(command)}"))


def sbatch(lab: Lab, options: str, command: str = "sleep 300") -> str:
    """Submit a job of a user; return its number."""
    submit = f"{AS_USER} sbatch --parsable --output=/dev/null {options} --wrap {shlex.quote(command)}"
    return str(lab.command(CONTROLLER, submit))


def notes(lab: Lab, host: str, job: str) -> list[str]:
    """What the script note.sh has written for a job, without the job's number."""
    lines = lab.command(host, "cat /run/notes 2>/dev/null; true").splitlines()
    return [" ".join([*line.split()[:2], *line.split()[3:]]) for line in lines if line.split()[2] == job]


def reason(lab: Lab, node: str) -> str:
    """Why a node is drained; `none` if it is not."""
    return str(lab.command(CONTROLLER, f"timeout 60 sinfo -h -N -n {node} -o %E")).splitlines()[0]


def containers(lab: Lab, node: str) -> list[str]:
    """The containers of the stand-in that run."""
    found = lab.command(node, "systemctl list-units --plain --no-legend --state=active 'docker-*'")
    return sorted(line.split()[0].removeprefix("docker-").removesuffix(".service") for line in found.splitlines())


def docker_commands(lab: Lab, node: str) -> list[list[str]]:
    """The commands that the stand-in has got."""
    return [json.loads(line) for line in lab.command(node, "cat /var/log/stand-in-docker").splitlines()]


def unchanged(run: Run) -> None:
    assert (run.rc, run.failed, run.changed) == (0, {}, {})


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    unchanged(lab.playbook("site", "--check", "--diff"))
    unchanged(lab.playbook("site", "--skip-tags=validate"))


def test_a_check_foretells_a_database_and_a_login_host(lab: Lab, tmp_path: Path) -> None:
    """Of a cluster that has none: scenario default tries the other keys."""
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs")}
    accounting = {"accounts": [{"name": "vision"}], "users": [{"name": "alice", "DefaultAccount": "vision"}]}
    new = {"database": CONTROLLER, "login": f"{CONTROLLER},{FIRST}", "accounting": accounting}
    run = with_cluster(lab, tmp_path, {**cluster, **new}).playbook("site", "--check", "--diff")
    assert (run.rc, run.failed) == (0, {})


def test_scripts_run_in_their_order_where_their_conditions_hold(lab: Lab) -> None:
    """By partition, machine type and number of nodes. The nodes get the programs from slurmctld."""
    for node in (FIRST, SECOND):
        assert not lab.host(node).file("/etc/slurm/slurm-prolog").exists
    job = srun(lab, f"-w {FIRST}", "echo $SLURM_JOB_ID")
    lab.wait_for(FIRST, "cat /run/notes", "epilog_slurmd last", 30)
    assert notes(lab, FIRST, job) == ["prolog_slurmd first", "epilog_slurmd last"]

    job = srun(lab, f"-p other -N 2 -w {CONTROLLER},{FIRST}", "echo $SLURM_JOB_ID").split()[0]
    for host in (CONTROLLER, FIRST):
        lab.wait_for(host, "cat /run/notes", f"epilog_slurmd last {job}", 30)
    assert notes(lab, CONTROLLER, job) == ["prolog_slurmd first", "prolog_slurmd second", "epilog_slurmd last"]
    assert notes(lab, FIRST, job) == [
        "prolog_slurmd first",
        "prolog_slurmd second",
        "prolog_slurmd third it's $HOME",
        "epilog_slurmd last",
    ]


def test_a_script_in_latin_1_runs_with_each_of_its_bytes(lab: Lab, tmp_path: Path) -> None:
    """As a prolog, and as a file of slurmctld. No file of this repository is in Latin-1."""
    script = b"#!/usr/bin/env -S bash -eu\n# Gr\xfc\xdfe\nprintf '%s' 'gr\xfc\xdfe' >/run/"
    for name in ("latin", "sent"):
        (tmp_path / f"{name}.sh").write_bytes(script + f"{name}\n".encode())
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs")}
    cluster["prologs"] = [{"name": "latin", "file": "latin.sh"}]
    cluster["slurm_conf"] = {**cluster.get("slurm_conf", {}), "Prolog": "sent.sh"}
    sent = "{{ lookup('gpucluster.slurm.base64_file', slurm_cluster_dir ~ '/sent.sh') | b64decode }}"
    site = with_cluster(lab, tmp_path, cluster, slurm_files={"sent.sh": sent})
    try:
        assert site.playbook("site", "--tags=controller", "--diff").rc == 0
        unchanged(site.playbook("site", "--tags=controller", "--check"))
        srun(lab, f"-w {FIRST}", "true")
        for name in ("latin", "sent"):
            assert lab.script(FIRST, f"cat /run/{name}; rm /run/{name}", b"") == b"gr\xfc\xdfe"
        assert reason(lab, FIRST) == "none"
    finally:
        assert lab.playbook("site", "--tags=controller").rc == 0


def state(lab: Lab) -> list[str]:
    """The files of Slurm and of the collection on all hosts, with their times and checksums, and slurmctld's start."""
    files = "find /etc/slurm /etc/gpucluster-slurm /var/lib/gpucluster-slurm /usr/local -type f 2>/dev/null | sort"
    listing = (
        f"{files} | xargs stat -c '%n %Y'; {files} | xargs sha256sum; systemctl show -P InvocationID slurmctld slurmd"
    )
    return [lab.command(host, listing) for host in (CONTROLLER, FIRST, SECOND)]


def test_scripts_that_cannot_run_change_nothing_on_any_host(lab: Lab, tmp_path: Path) -> None:
    """The control host refuses those of shells, and the hosts what only they can know."""
    before = state(lab)
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs", "mail")}
    (tmp_path / "returned.sh").write_bytes(b"#!/bin/bash\r\nexit 0\r\n")
    scripts = [{"name": "returned", "file": "returned.sh"}, {"name": "open", "script": "#!/bin/bash\nif true; then\n"}]
    run = with_cluster(lab, tmp_path, cluster | {"prologs": scripts}).playbook("site")
    assert run.rc != 0
    assert (
        "prologs[0].file: 'returned.sh': line 1: found '#!/bin/bash\\r', which ends with a carriage return"
        in run.output
    )
    assert "prologs[1].script: found '#!/bin/bash\\nif true; then\\n', line 3: bash -n: syntax error" in run.output

    programs = {
        "task": b"#!/bin/sh\r\n",
        "reboot": b"systemctl reboot\n",
        "latin": b"#!/bin/bash\n# gr\xfc\xdfe\n",
        "elf": b"",
    }
    for host in (CONTROLLER, FIRST, SECOND):
        lab.command(host, "mkdir /opt/site && ln -s /bin/true /opt/site/elf")
        for name, content in programs.items():
            if content:
                lab.script(host, f"install -m 0755 /dev/stdin /opt/site/{name}", content)
    try:
        prologs = [
            {"name": "python", "script": "#!/usr/bin/python3\nif True\n"},
            {"name": "absent", "script": "#!/usr/bin/env -S no-such-shell -e\n"},
        ]
        own = {
            "TaskProlog": "/opt/site/task",
            "TaskEpilog": "/opt/site/latin",
            "UnkillableStepProgram": "/opt/site/elf",
        }
        conf = {**cluster.get("slurm_conf", {}), **own, "RebootProgram": "/opt/site/reboot"}
        run = with_cluster(lab, tmp_path, cluster | {"prologs": prologs, "slurm_conf": conf}).playbook("site")
    finally:
        for host in (CONTROLLER, FIRST, SECOND):
            lab.command(host, "rm -r /opt/site")
    assert run.rc != 0
    assert run.changed == {}
    (message,) = {text for found in run.failed.values() for text in found}
    everywhere = "prep-ctl,prep-node[1-2]"
    assert f"slurm.conf TaskProlog: /opt/site/task on {everywhere}, line 1: found '#!/bin/sh\\r', which ends" in message
    assert f"prologs: absent: its interpreter no-such-shell is missing on {everywhere}" in message
    assert "prologs: python on prep-ctl, line 2: python3: expected ':'" in message
    assert not [key for key in ("TaskEpilog", "Unkillable", "RebootProgram") if key in message]
    assert state(lab) == before


def test_what_the_scripts_do_is_logged(lab: Lab) -> None:
    """A failure that is only logged does not hold a job up, and neither does a script that takes too long."""
    started = time.monotonic()
    job = srun(lab, f"-p other -w {FIRST}", "echo $SLURM_JOB_ID")
    assert time.monotonic() - started < 30
    log = lab.command(FIRST, "journalctl -t slurm-prolog -o cat")
    assert f"job {job}: first: done" in log
    assert f"job {job}: noise: nobody needs this" in log
    assert f"job {job}: noise ended with 4: nobody needs this, which is only logged" in log
    assert f"job {job}: slow took longer than 1 s, which is only logged" in log
    lab.wait_for(FIRST, "journalctl -t slurm-epilog -o cat", f"job {job}: last: done", 30)
    assert lab.command(FIRST, "ls /var/lib/gpucluster-slurm | grep -E '^(prolog|epilog)[.]'; true") == ""


def test_a_failed_prolog_drains_the_node_and_the_job_runs_elsewhere(lab: Lab) -> None:
    with failing(lab, FIRST, "/run/no-disk"):
        job = sbatch(lab, f"--exclude={CONTROLLER}", "true")
        lab.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {job} -o %r", "BeginTime", 60)
        assert reason(lab, FIRST) == f"Prolog error: disk ended with 3: the disk of the node is gone (job {job})"
        # Slurm waits two minutes before it starts a requeued job.
        lab.command(CONTROLLER, f"timeout 60 scontrol update jobid={job} starttime=now")
        where = lab.wait_for(
            CONTROLLER, f"grep 'JobId={job} .*COMPLETED' /var/log/slurm/job_completions; true", job, 60
        )
        assert f"NodeList={SECOND}" in where
        # The scripts after the failed one have not run. The epilogs clean the node all the same.
        assert notes(lab, FIRST, job) == ["epilog_slurmd last"]
    assert reason(lab, SECOND) == "none"


def test_an_epilog_that_fails_on_one_node_leaves_the_other_one_and_other_jobs_alone(lab: Lab) -> None:
    """Two jobs of one user on the same two nodes: each has its container there, and one of them ends."""
    ends = sbatch(lab, f"-N 2 -n 2 -c 1 -w {FIRST},{SECOND}")
    stays = sbatch(lab, f"-N 2 -n 2 -c 1 -w {FIRST},{SECOND}")
    lab.wait_for(CONTROLLER, "timeout 60 squeue -h -t RUNNING -o %i | sort -n | xargs", f"{ends} {stays}", 60)
    for node in (FIRST, SECOND):
        for job in (ends, stays):  # Slurm calls a job running before its prolog has ended
            lab.wait_for(node, "journalctl -t slurm-prolog -o cat", f"job {job}: tcpxo: done", 60)
        assert containers(lab, node) == sorted([f"tcpxo-{ends}", f"tcpxo-{stays}"])
    with failing(lab, FIRST, "/run/no-disk-after"):
        lab.command(CONTROLLER, f"scancel {ends}")
        lab.wait_for(CONTROLLER, f"timeout 60 sinfo -h -n {FIRST} -o %T", "drain", 60)
        for node in (FIRST, SECOND):
            lab.wait_for(node, "cat /run/notes", f"epilog_slurmd last {ends}", 30)
            # The epilogs after the failed one have run.
            lab.wait_for(node, "journalctl -t slurm-epilog -o cat", f"job {ends}: tcpxo: done", 30)
            assert containers(lab, node) == [f"tcpxo-{stays}"]
        assert reason(lab, FIRST) == f"Epilog error: disk ended with 5: the disk was lost (job {ends})"
        assert reason(lab, SECOND) == "none"
        assert lab.command(CONTROLLER, f"timeout 60 squeue -h -j {stays} -o %T") == "RUNNING"


def test_each_job_has_a_tmp_of_its_own(lab: Lab, tmp_path: Path) -> None:
    """From the run that asks for it on. It is refused while a job runs, whose further steps would fail."""
    lab.let_jobs_have_namespaces()
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs")}
    site = with_cluster(lab, tmp_path, cluster | {"private_tmp": "/var/lib/job-tmp"})
    before = sbatch(lab, f"-w {FIRST}")
    lab.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {before} -o %T", "RUNNING", 60)
    run = site.playbook("site", "--tags=controller,compute")
    assert before in " ".join(run.failed[CONTROLLER])
    lab.command(CONTROLLER, f"scancel {before}")
    lab.wait_for(CONTROLLER, "timeout 60 squeue -h | wc -l", "0", 60)
    run = site.playbook("site", "--tags=controller,compute")
    assert (run.rc, run.failed) == (0, {})
    unchanged(site.playbook("site", "--tags=controller,compute"))

    write = "echo $SLURM_JOB_ID >/tmp/own && echo $SLURM_JOB_ID >/dev/shm/own && sleep 300"
    jobs = [sbatch(lab, f"-c 1 -w {FIRST}", write) for _job in range(2)]
    for job in jobs:
        lab.wait_for(FIRST, f"cat /var/lib/job-tmp/{FIRST}/{job}/.{job}/_tmp/own 2>/dev/null; true", job, 60)
        seen = "sleep 1; cat /tmp/own /dev/shm/own; ls /tmp"
        found = lab.command(CONTROLLER, f"{AS_USER} srun --overlap --jobid={job} sh -c {shlex.quote(seen)}")
        assert found.split() == [job, job, "own"]
    for path in ("/tmp/own", "/dev/shm/own"):
        assert not lab.host(FIRST).file(path).exists
    lab.command(CONTROLLER, "scancel --user=alice")
    lab.wait_for(FIRST, f"ls /var/lib/job-tmp/{FIRST} | wc -l", "0", 60)
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})


def test_jobs_of_several_nodes_have_what_tcpxo_needs(lab: Lab) -> None:
    """Before the job starts: the plugin, the receive daemon and the profile. They are no longer there afterwards."""
    lab.command(FIRST, "rm -rf /var/lib/tcpxo /var/log/stand-in-docker")
    srun(lab, f"-w {FIRST}", "true")  # a job of one node needs nothing
    assert not lab.host(FIRST).file("/var/log/stand-in-docker").exists
    use = (
        ". /var/lib/tcpxo/profile.sh; echo $NCCL_FASTRAK_IFNAME $NCCL_SOCKET_IFNAME $NCCL_PROFILE_OF $LD_LIBRARY_PATH;"
        " cat /var/lib/tcpxo/lib64/libnccl-net.so; echo; systemctl is-active docker-tcpxo-$SLURM_JOB_ID"
    )
    for _job in range(2):
        lines = srun(lab, f"-N 2 -w {FIRST},{SECOND}", f"test $SLURM_PROCID = 0 || exit 0; {use}").splitlines()
        assert lines == [
            "enp6s0,enp7s0 enp0s12 /var/lib/tcpxo/lib64 /var/lib/tcpxo/lib64:/usr/lib/x86_64-linux-gnu:",
            "registry.example/plugin:v1",
            "active",
        ]
        for node in (FIRST, SECOND):
            lab.wait_until_idle(CONTROLLER, node, 60)
            assert containers(lab, node) == []
    started = [command for command in docker_commands(lab, FIRST) if command[0] == "run"]
    installed = [command for command in started if "--install-nccl" in command]
    assert len(installed) == 1
    daemons = [command for command in started if "registry.example/daemon:v1" in command]
    assert len(daemons) == 2
    assert daemons[0][-2:] == ["--num_nics=8", "--uid="]


def test_a_node_whose_container_runtime_fails_is_named(lab: Lab) -> None:
    with failing(lab, SECOND, "/run/docker-is-down"):
        sbatch(lab, f"-N 2 -w {FIRST},{SECOND}")
        lab.wait_for(CONTROLLER, f"timeout 60 sinfo -h -n {SECOND} -o %T", "drain", 60)
        # The epilog, which runs after a failed prolog as well, fails for the same reason.
        assert "error: tcpxo ended with 1: Cannot connect to the Docker daemon (job" in reason(lab, SECOND)
        assert reason(lab, FIRST) == "none"


def test_all_nodes_are_warmed_up(lab: Lab) -> None:
    """Also by a run after one that has found a node without docker, which it names."""
    for node in (FIRST, SECOND):
        lab.command(node, "rm -rf /var/lib/tcpxo /var/log/stand-in-docker")
    check = lab.playbook("warm_up", "--check")
    assert (check.rc, check.failed) == (0, {})
    assert "warm-up/prep-node[1-2]" in json.dumps([result for *_of, result in check.results])
    assert not lab.host(FIRST).file("/var/log/stand-in-docker").exists
    with failing(lab, SECOND, "/run/docker-is-down"):
        run = lab.playbook("warm_up", "-e", "validate_timeout=30")
        (message,) = run.failed[CONTROLLER]
        assert f"{SECOND} is drained" in message
        assert "error: tcpxo ended with 1: Cannot connect to the Docker daemon" in message
    run = lab.playbook("warm_up")
    assert (run.rc, run.failed) == (0, {})
    for node in (FIRST, SECOND):
        assert lab.host(node).file("/var/lib/tcpxo/profile.sh").exists
        assert containers(lab, node) == []


def test_a_script_that_names_a_command_of_slurm_is_remarked(lab: Lab, tmp_path: Path) -> None:
    """Also one that is not there, and a release that cannot send scripts: nothing is changed."""
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs")}
    text = "#!/bin/sh\n# squeue is not used\nscontrol show hostnames a\nsrun hostname\n"
    site = with_cluster(lab, tmp_path, cluster | {"prologs": [{"name": "asks", "script": text}]})
    run = site.playbook("site", "--check", "--tags=preflight")
    said = json.dumps([result for *_of, result in run.results])
    assert "prologs: the script asks names srun. A prolog or epilog that asks slurmctld can wait for itself" in said
    site = with_cluster(lab, tmp_path, cluster | {"prologs": [{"name": "asks", "file": "none.sh"}]})
    run = site.playbook("site", "--check")
    assert run.rc != 0
    assert "found 'none.sh', which does not exist, allowed: a file next to the cluster file" in run.output
    assert "prologs[0].file: found 'none.sh'" in run.output
