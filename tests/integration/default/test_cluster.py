# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster that site.yml installed, as users and administrators see it.

Its GPUs are stand-ins: device nodes without a driver. Scenario strict runs these tests, too: jobs are those of users.
"""

from __future__ import annotations

import pytest
from lab import Lab


def as_alice(lab: Lab, command: str, rc: int = 0) -> str:
    """The output of a command of a user on the login host."""
    return str(lab.command(lab.login, f"cd /tmp && runuser -u alice -- timeout 180 {command}", rc))


def test_this_is_the_release_of_the_scenario(lab: Lab) -> None:
    for host in lab.hosts:
        assert lab.command(host, "sinfo --version").startswith(f"slurm-wlm {lab.release}.")


def test_a_user_runs_a_job_on_both_nodes(lab: Lab) -> None:
    assert sorted(as_alice(lab, "srun -N2 hostname").split()) == lab.nodes


def test_a_job_gets_the_gpu_and_the_core_that_it_asked_for_and_no_other(lab: Lab) -> None:
    # A device node without a driver: opening one that was allocated gives ENXIO, another one EPERM.
    probe = "echo $CUDA_VISIBLE_DEVICES; nproc; for n in 0 1; do head -c1 /dev/nvidia$n 2>&1; done; true"
    lines = as_alice(lab, f"srun --gres=gpu:h100:1 sh -c '{probe}'").splitlines()
    assert lines[:2] == ["0", "1"]
    assert "No such device or address" in lines[2]
    assert "Operation not permitted" in lines[3]


def test_jobs_have_the_locked_memory_of_slurmd_and_other_limits_of_the_login(lab: Lab) -> None:
    node = lab.nodes[0]
    slurmd = lab.command(node, "prlimit --memlock --output=SOFT --noheadings --pid=$(pgrep -o slurmd)").strip()
    job = f'timeout 180 srun -w {node} sh -c "ulimit -l; ulimit -n"'
    said = as_alice(lab, f"sh -c 'ulimit -l 32; ulimit -n 999; {job}'")
    locked = slurmd if slurmd == "unlimited" else str(int(slurmd) // 1024)
    if lab.cluster.get("profile") == "strict":  # no limit of the login
        assert said.split()[0] == locked
        assert said.split()[1] != "999"
    else:
        assert said.split() == [locked, "999"]
    assert locked != "32"


def test_a_job_that_can_never_run_is_refused_with_slurms_reason(lab: Lab) -> None:
    refused = as_alice(lab, "srun --gres=gpu:3 true 2>&1", rc=1)
    assert "Requested node configuration is not available" in refused


def test_jobs_are_booked(lab: Lab) -> None:
    job = as_alice(lab, "sbatch --parsable --wait --output=/dev/null --wrap 'exit 3'", rc=3)
    # slurmctld sends accounting records to slurmdbd in batches.
    booked = lab.wait_for(lab.controller, f"sacct -nPX -j {job} -o User,State,ExitCode,AllocTRES", "|FAILED|3:0|")
    assert booked.startswith("alice|FAILED|3:0|")
    assert "cpu=1" in booked


def test_a_job_survives_a_restart_of_every_daemon(lab: Lab) -> None:
    node = lab.nodes[0]
    job = as_alice(lab, f"sbatch --parsable -w {node} --output=/dev/null --wrap 'sleep 300'")
    try:
        before = lab.wait_for(lab.controller, f"squeue -h -j {job} -o '%T %S'", "RUNNING")
        lab.command(node, "systemctl restart munge slurmd")
        lab.command(lab.controller, "systemctl restart slurmdbd slurmctld")
        # The node is shown as allocated until slurmctld has counted its cores again.
        lab.wait_for(lab.controller, f"sinfo -h -n {node} -o %T | grep -cE '^(mixed|allocated)$'", "1")
        assert lab.command(lab.controller, f"squeue -h -j {job} -o '%T %S'") == before
    finally:
        lab.host(lab.controller).run(f"scancel {job}")


def test_a_credential_of_each_host_decodes_on_the_others(lab: Lab) -> None:
    for host in lab.hosts:
        credential = lab.command(host, "munge -n")
        for other in lab.hosts:
            assert "Success" in lab.command(other, f"echo {credential} | unmunge")


def test_the_munge_key_is_the_same_and_only_munge_can_read_it(lab: Lab) -> None:
    show = "stat -c '%U:%G %a %s' /etc/munge/munge.key; sha256sum /etc/munge/munge.key"
    keys = {lab.command(host, show) for host in lab.hosts}
    assert len(keys) == 1
    assert keys.pop().splitlines()[0] == "munge:munge 400 1024"


@pytest.mark.parametrize("user", ["munge", "slurm"])
def test_service_users_have_the_same_ids_everywhere(lab: Lab, user: str) -> None:
    assert len({lab.command(host, f"id {user}") for host in lab.hosts}) == 1


def test_configuration_lives_on_the_controller_alone(lab: Lab) -> None:
    for host in (lab.login, *lab.nodes):
        if host == lab.login and not lab.has_sackd:
            assert len({lab.command(where, "sha256sum /etc/slurm/slurm.conf") for where in (lab.controller, host)}) == 1
        else:
            assert not lab.host(host).file("/etc/slurm/slurm.conf").exists
        assert f"ClusterName             = {lab.cluster['name']}" in lab.command(host, "scontrol show config")


def test_the_database_is_closed(lab: Lab) -> None:
    query = "SELECT CONCAT(user, '@', host) FROM mysql.user ORDER BY 1"
    assert lab.command(lab.controller, f'mariadb -NBe "{query}"').split() == [
        f"{user}@localhost" for user in ("mariadb.sys", "mysql", "root", "slurm")
    ]
    assert "test" not in lab.command(lab.controller, "mariadb -NBe 'SHOW DATABASES'").split()
    assert lab.command(lab.controller, "ss -Hltn sport = :3306 | tr -s ' ' | cut -d' ' -f4") == "127.0.0.1:3306"
    assert lab.host(lab.controller).run("runuser -u alice -- mariadb -u root -e 'SELECT 1'").rc != 0


def test_the_files_with_access_to_the_database_are_slurms_alone(lab: Lab) -> None:
    for name in ("slurmdbd.conf", "slurmdbd_storage.conf"):
        assert lab.command(lab.controller, f"stat -c '%U:%G %a' /etc/slurm/{name}") == "slurm:slurm 600"


def test_logs_are_rotated(lab: Lab) -> None:
    rotated = lab.command(lab.controller, "logrotate --debug /etc/logrotate.conf 2>&1")
    for log in ("slurmctld.log", "slurmdbd.log", "job_completions"):
        assert f"considering log /var/log/slurm/{log}" in rotated


def test_hosts_know_each_other_by_name(lab: Lab) -> None:
    known = {host: lab.command(lab.nodes[0], f"getent hosts {host}").split() for host in lab.hosts}
    assert {host: names[1] for host, names in known.items()} == {host: host for host in lab.hosts}
    assert len({address for address, *_names in known.values()}) == len(lab.hosts)
