# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables in /etc/environment, which sudo reads on Ubuntu: the answers of the cluster's commands do not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_variables import CLEAN, VARIABLES, put, readable
from lab import Lab, with_cluster

HEAD, NODE = "fault-head", "fault01"
HOSTS = (HEAD, NODE, "fault02")
SET = Callable[..., None]

RECORD = "/run/marked-commands"
WRAPPED = (
    *("squeue", "sinfo", "scontrol", "sacct", "sacctmgr", "sbatch", "srun", "scancel", "sdiag", "munge", "unmunge"),
    *("systemctl", "dpkg-query", "dpkg", "apt-get", "apt-cache", "mariadb", "systemd-analyze", "runuser"),
)
WRAPPER = f"""for name in {" ".join(WRAPPED)}; do
  real=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v $name) || continue
  printf '#!/bin/sh\\n[ -z "$GPUCLUSTER_MARK" ] || echo "%s $*" >>{RECORD}\\nexec %s "$@"\\n' $name $real \\
    >/usr/local/sbin/$name
  chmod 755 /usr/local/sbin/$name
done; touch {RECORD}; chmod 666 {RECORD}"""


@pytest.fixture(name="set_variables")
def variables_of_the_hosts(lab: Lab) -> Iterator[SET]:
    """A function that sets variables for each login and sudo of all hosts."""
    with readable(lab, HOSTS):
        yield lambda variables: put(lab, HOSTS, variables)


@pytest.fixture(name="job")
def job_on_a_node(lab: Lab) -> Iterator[str]:
    """A job of a user that runs on a node."""
    lab.wait_until_idle(HEAD, NODE)
    job = lab.command(HEAD, f"{CLEAN} sbatch --parsable --nodelist={NODE} --output=/dev/null --wrap 'sleep 3600'")
    lab.wait_for(HEAD, f"{CLEAN} squeue -h -j {job} -o %T", "RUNNING")
    yield job
    lab.host(HEAD).run(f"{CLEAN} scancel {job}")


def test_a_change_that_ends_jobs_is_refused(lab: Lab, set_variables: SET, job: str, tmp_path: Path) -> None:
    cluster: dict[str, Any] = deepcopy(lab.cluster)
    cluster["slurm_conf"] = {"SlurmdSpoolDir": "/var/spool/slurmd-new"}
    set_variables(VARIABLES)
    run = with_cluster(lab, tmp_path, cluster).playbook("site", "--check", "--tags=controller")
    text = "\n".join(message for messages in run.failed.values() for message in messages)
    assert "These changes would end jobs (1)" in text, (run.rc, text, run.output[-2000:])
    assert job in text


def test_validation_passes(lab: Lab, set_variables: SET) -> None:
    set_variables(VARIABLES)
    run = lab.playbook("validate")
    assert run.rc == 0, run.failed


def test_the_doctor_finds_the_same(lab: Lab, set_variables: SET) -> None:
    before = lab.playbook("doctor")
    set_variables(VARIABLES)
    after = lab.playbook("doctor")
    causes = [[finding["cause"] for finding in run.artifacts["slurm_doctor"]["findings"]] for run in (before, after)]
    assert (after.rc, after.failed, causes[1]) == (before.rc, before.failed, causes[0])


QUESTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (NODE, "slurm_hardware_facts", {}),
    (HEAD, "slurm_host_facts", {"packages": ["munge", "slurmctld"]}),
    (HEAD, "slurm_accounting_info", {}),
    (HEAD, "slurm_updates_info", {}),
    (HEAD, "slurm_service", {"name": "slurmctld"}),
    (HEAD, "slurm_node", {"name": NODE, "state": "drain", "reason": "test"}),
    (HEAD, "slurm_job", {"command": "hostname"}),
)


def answers(lab: Lab, tmp_path: Path) -> dict[str, Any]:
    """The answers of modules by their names, in check mode except for a job, without what differs between two runs."""
    plays = [
        {
            "hosts": host,
            "gather_facts": False,
            "become": True,
            "tasks": [
                {
                    "name": module,
                    f"gpucluster.slurm.{module}": arguments,
                    "check_mode": module != "slurm_job",
                    "ignore_errors": True,
                }
            ],
        }
        for host, module, arguments in QUESTIONS
    ]
    play = tmp_path / "play.yml"
    play.write_text(yaml.safe_dump(plays))
    found = {name: result for _host, name, result in lab.playbook(str(play)).results}
    jobs = found["slurm_job"]
    return found | {
        "slurm_host_facts": found["slurm_host_facts"]["ansible_facts"]["slurm_host"]["packages"],
        "slurm_job": ([(job["state"], job.get("stdout", "")) for job in jobs.get("jobs", [])], jobs.get("msg")),
    }


def test_modules_answer_the_same(lab: Lab, set_variables: SET, tmp_path: Path) -> None:
    before = answers(lab, tmp_path)
    assert len(before) == len(QUESTIONS)
    set_variables(VARIABLES)
    assert answers(lab, tmp_path) == before


def test_the_jobs_of_a_suspended_user_end(lab: Lab, set_variables: SET, job: str, tmp_path: Path) -> None:
    """Tasks of a role ask Slurm by a builtin module, which gives each variable to its command."""
    role = {"name": "gpucluster.slurm.people", "tasks_from": "jobs", "rolespec_validate": False}
    variables = {
        "slurm_people": {"users": [{"name": "root", "state": "suspended", "jobs": "end"}]},
        "question": "{{ lookup('gpucluster.slurm.decision', 'people.jobs_question') }}",
    }
    task = {"ansible.builtin.include_role": role, "vars": variables, "name": "End the jobs"}
    play = tmp_path / "play.yml"
    play.write_text(yaml.safe_dump([{"hosts": HEAD, "gather_facts": False, "become": True, "tasks": [task]}]))
    set_variables({name: VARIABLES[name] for name in ("SQUEUE_STATES", "SQUEUE_PARTITION", "SCANCEL_STATE")})
    run = lab.playbook(str(play))
    assert run.rc == 0, run.output[-2000:]
    assert lab.command(HEAD, f"{CLEAN} squeue -h -t RUNNING -j {job} -o %i") == ""


def test_no_command_of_a_playbook_has_a_variable_of_the_host(lab: Lab, set_variables: SET) -> None:
    """A variable that changes nothing, and programs that write down who had it."""
    for host in HOSTS:
        lab.command(host, WRAPPER)
    set_variables({"GPUCLUSTER_MARK": "1"})
    try:
        for playbook in (["site"], ["doctor"], ["report"]):
            lab.playbook(*playbook)
        seen = {host: lab.command(host, f"cat {RECORD}").splitlines() for host in HOSTS}
    finally:
        for host in HOSTS:
            lab.command(host, f"cd /usr/local/sbin && rm -f {' '.join(WRAPPED)} {RECORD}")
    assert not any(seen.values()), seen


# -- files that units read -------------------------------------------------------------------------------------------

LEFT_OVER = {
    "munge": 'OPTIONS="--key-file=/old/munge.key"',
    "slurmdbd": "SLURM_CONF=/old/slurm.conf",
    "slurmctld": 'SLURMCTLD_OPTIONS="-v -f /old/slurm.conf"',
}
"""A line of /etc/default/DAEMON with which the daemon reads the configuration of another cluster."""


def put_default(lab: Lab, host: str, daemon: str, line: str) -> None:
    """Write /etc/default/DAEMON, with what the package has in it."""
    lab.script(host, f"cp -n /etc/default/{daemon} /root/{daemon}; cat >>/etc/default/{daemon}", f"{line}\n".encode())


def put_back(lab: Lab, host: str, daemon: str) -> None:
    lab.command(host, f"mv /root/{daemon} /etc/default/{daemon}")


def test_a_left_over_file_of_another_cluster_is_named(lab: Lab, job: str) -> None:
    """systemd prefers /etc/default/slurmd to the settings of the collection, which the node does not have yet."""
    put_default(lab, NODE, "slurmd", 'SLURMD_OPTIONS="--conf-server elsewhere"')
    lab.command(NODE, "systemctl stop slurmd; rm /etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf")
    run = lab.playbook("site", "--skip-tags=validate")
    put_back(lab, NODE, "slurmd")
    assert [*run.failed] == [NODE], run.failed
    assert "/etc/default/slurmd: SLURMD_OPTIONS: found '--conf-server elsewhere'" in str(run.failed)
    run = lab.playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed
    assert lab.command(HEAD, f"timeout 60 squeue -h -j {job} -o %T") == "RUNNING"


def test_options_of_an_administrator_stay(lab: Lab, job: str) -> None:
    put_default(lab, NODE, "slurmd", f"SLURMD_OPTIONS='-v --conf-server {HEAD}'")
    lab.command(NODE, "systemctl restart slurmd")
    run = lab.playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed
    assert lab.command(NODE, "pgrep --list-full --exact slurmd").endswith(f"-v --conf-server {HEAD}")
    put_back(lab, NODE, "slurmd")
    lab.command(NODE, "systemctl restart slurmd")
    assert lab.command(HEAD, f"timeout 60 squeue -h -j {job} -o %T") == "RUNNING"


def test_a_left_over_file_of_a_server_is_named(lab: Lab, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    tasks = [
        {"name": name, "gpucluster.slurm.slurm_service": {"name": name}, "ignore_errors": True} for name in LEFT_OVER
    ]
    play.write_text(yaml.safe_dump([{"hosts": HEAD, "gather_facts": False, "become": True, "tasks": tasks}]))
    for daemon, line in LEFT_OVER.items():
        put_default(lab, HEAD, daemon, line)
    lab.command(HEAD, f"systemctl stop {' '.join(LEFT_OVER)}")
    found = {name: result for _host, name, result in lab.playbook(str(play)).results}
    for daemon in LEFT_OVER:
        put_back(lab, HEAD, daemon)
    assert lab.playbook(str(play)).rc == 0
    for daemon, line in LEFT_OVER.items():
        # slurmdbd ends after systemd takes it for started.
        said = found[daemon]["warnings"][0] if daemon == "slurmdbd" else found[daemon]["msg"]
        assert f"/etc/default/{daemon}: {line.partition('=')[0]}: found" in said
