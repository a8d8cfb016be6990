# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first policy of a running cluster, while a user submits jobs all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

ACCEPTED, REFUSED = "/tmp/accepted", "/tmp/refused"
SUBMITS = f"""\
systemctl stop submitting 2>/dev/null
rm -f {ACCEPTED} {REFUSED}
systemd-run --quiet --unit=submitting sh -c 'while sleep 0.5; do
  runuser -u alice -- timeout 60 sbatch -D / -o /dev/null --wrap true >>{ACCEPTED} 2>>{REFUSED}
done'
"""
POLICY: dict[str, Any] = {
    "qos": [{"name": "gpuq"}, {"name": "datamover"}],
    "accounts": [{"name": "vision"}],
    "users": [{"name": "alice", "DefaultAccount": "vision"}],
}


def site(
    lab: Lab, directory: Path, policy: dict[str, Any], *arguments: str, without: tuple[str, ...] = (), **partition: Any
) -> Run:
    """Put the cluster with this policy into force, without these keys of its cluster file."""
    partitions = [{**lab.cluster["partitions"][0], **partition}]
    cluster = {key: value for key, value in lab.cluster.items() if key not in ("accounting", *without)}
    cluster |= {"partitions": partitions, **({"accounting": policy} if policy else {})}
    return with_cluster(lab, directory, cluster).playbook("site", *arguments)


def refused(lab: Lab) -> list[str]:
    """What alice was told since the last call. slurmctld restarts meanwhile, for which sbatch waits."""
    lines = lab.command(lab.controller, f"cat {REFUSED}; : >{REFUSED}").splitlines()
    return [line for line in lines if "contact slurm controller" not in line and "retrying" not in line]


@pytest.fixture(scope="module", name="directory")
def directory_of_a_cluster_without_a_policy(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("policy")
    run = site(lab, directory, {}, "--tags=controller,policy")
    assert run.rc == 0, run.failed
    lab.command(lab.controller, "sacctmgr -i delete user alice; sacctmgr -i delete account vision; true")
    lab.script(lab.controller, SUBMITS, b"")
    yield directory
    lab.command(lab.controller, f"systemctl stop submitting; scancel --user=alice; rm -f {ACCEPTED} {REFUSED}; true")
    run = lab.playbook("site", "--tags=controller,policy")
    assert run.rc == 0, run.failed


def refuses_nobody(lab: Lab) -> None:
    """Associations are enforced, the client's next jobs are accepted, and none was refused before."""
    assert "associations" in lab.command(lab.controller, "scontrol show config | grep AccountingStorageEnforce")
    before = int(lab.command(lab.controller, f"wc -l <{ACCEPTED}"))
    lab.wait_for(lab.controller, f"test $(wc -l <{ACCEPTED}) -gt {before + 3} && echo more", "more", 60)
    assert refused(lab) == []


def test_a_check_says_whom_the_policy_refuses(lab: Lab, directory: Path) -> None:
    lab.command(lab.controller, "runuser -u alice -- sbatch -D / -o /dev/null --begin=now+1hour --wrap true")
    policy = {**POLICY, "users": [{"name": "carl", "DefaultAccount": "vision"}]}
    run = site(lab, directory, policy, "--check", "--tags=controller,policy")
    assert run.rc == 0, run.failed
    assert "slurmctld would refuse: user alice: has no association in account" in run.output
    run = site(lab, directory, POLICY, "--check", "--tags=controller,policy")
    assert "slurmctld would refuse" not in run.output
    assert refused(lab) == []


def test_no_job_is_refused_while_the_first_policy_comes_into_force(lab: Lab, directory: Path) -> None:
    """Nor if no later stage runs."""
    run = site(lab, directory, POLICY, "--tags=controller")
    assert run.rc == 0, run.failed
    refuses_nobody(lab)
    run = site(lab, directory, POLICY, "--tags=controller,policy")
    assert (run.rc, refused(lab)) == (0, [])


def test_no_job_is_refused_while_a_partition_allows_other_accounts_and_qos(lab: Lab, directory: Path) -> None:
    policy = {
        **POLICY,
        "accounts": [{"name": "vision", "QOS": ["normal", "gpuq"], "accounts": [{"name": "deep"}]}],
        "users": [{"name": "alice", "DefaultAccount": "vision", "accounts": ["vision", "deep"]}],
    }
    run = site(
        lab, directory, policy, "--tags=controller", AllowAccounts=["vision", "deep"], AllowQos=["normal", "gpuq"]
    )
    assert run.rc == 0, run.failed
    taken = "runuser -u alice -- sbatch --parsable -D / -o /dev/null --account=deep --qos=gpuq --wrap true"
    assert lab.command(lab.controller, taken).isdecimal()
    assert refused(lab) == []


def test_no_job_is_refused_while_a_default_account_moves_in_the_two_runs_that_a_check_names(
    lab: Lab, directory: Path
) -> None:
    accounts = [{"name": "vision"}, {"name": "lang"}]
    before, after = (
        {**POLICY, "accounts": accounts, "users": [{"name": "alice", "DefaultAccount": name}]}
        for name in ("vision", "lang")
    )
    run = site(lab, directory, before, "--tags=controller,policy", AllowAccounts=["vision"])
    assert run.rc == 0, run.failed
    lab.command(lab.controller, "runuser -u alice -- sbatch -D / -o /dev/null --begin=now+1hour --wrap true")
    refused(lab)
    run = site(lab, directory, after, "--check", "--tags=controller,policy", AllowAccounts=["lang"])
    assert "let the partition allow both in this run, and lang alone in the next" in run.output
    for allowed in (["vision", "lang"], ["lang"]):
        run = site(lab, directory, after, "--tags=controller,policy", AllowAccounts=allowed)
        assert (run.rc, refused(lab)) == (0, []), run.failed


def test_accounts_without_a_default_qos_are_named_before_and_found_by_validation(lab: Lab, directory: Path) -> None:
    policy = {**POLICY, "accounts": [{"name": "vision", "QOS": ["datamover", "gpuq"]}]}
    run = site(lab, directory, policy, "--check", "--tags=controller,policy")
    said = "accounting: account vision: it has several QOS and no DefaultQOS (datamover, gpuq)"
    assert said in " ".join(json.dumps([*run.results]).split())
    assert "slurmctld would refuse: user alice in vision: may use QOS datamover, gpuq, not QOS normal" in run.output
    run = site(lab, directory, policy, "--tags=controller,policy,validate")
    assert run.rc != 0
    assert "account/vision" in str(run.failed)
    assert "Invalid qos specification" in run.output
    run = site(lab, directory, POLICY | {"accounts": [{"name": "vision", "QOS": ["normal"]}]}, "--tags=policy,validate")
    assert run.rc == 0, run.failed


STATE = "/var/lib/slurm/slurmctld"
EMPTY = f"""\
systemctl stop slurmctld slurmdbd
rm -f {STATE}/clustername
mariadb -e 'drop database slurm_acct_db'
rm -r /etc/slurm/slurmdbd*.conf
systemctl start slurmctld
"""
"""Makes a cluster that has no slurmdbd like one that never had one. slurmctld writes its number in its state anew."""


def test_no_job_is_refused_while_the_first_database_comes_into_force(lab: Lab, directory: Path) -> None:
    """Of a cluster that has run without slurmdbd, with the first policy, in one run."""
    run = site(lab, directory, {}, "--tags=controller", without=("database",))
    assert run.rc == 0, run.failed
    lab.script(lab.controller, EMPTY, b"")
    lab.wait_for(lab.controller, "timeout 60 scontrol ping", "UP", 60)
    assert "slurmdbd" not in lab.command(lab.controller, "scontrol show config | grep AccountingStorageType")
    waits = lab.command(
        lab.controller, "runuser -u alice -- sbatch --parsable -D / -o /dev/null --begin=now+1hour --wrap true"
    )
    refused(lab)
    run = site(lab, directory, POLICY, "--tags=database,controller,policy")
    assert run.rc == 0, run.failed
    refuses_nobody(lab)
    assert lab.command(lab.controller, f"squeue -h -j {waits} -o %T") == "PENDING"
    assert lab.command(lab.controller, "sacctmgr -n show association user=alice format=account%20") == "vision"


def test_a_cluster_whose_database_is_lost_keeps_its_jobs(lab: Lab, directory: Path) -> None:
    """Without a backup. slurmctld goes on with what it knows, and would end at its next start."""
    run = site(lab, directory, POLICY, "--tags=controller,policy")
    assert run.rc == 0, run.failed
    running, waits = (
        lab.command(lab.controller, f"runuser -u alice -- sbatch --parsable -D / -o /dev/null {options}")
        for options in ("--mem=100 --wrap 'sleep 900'", "--begin=now+1hour --wrap true")
    )
    lab.command(lab.controller, "systemctl stop slurmdbd && mariadb -e 'drop database slurm_acct_db'")
    refused(lab)
    run = site(lab, directory, POLICY, "--tags=database,controller,policy")
    assert run.rc == 0, run.failed
    assert refused(lab) == []
    lab.command(lab.controller, "systemctl restart slurmctld")
    lab.wait_for(lab.controller, "timeout 60 scontrol ping", "UP", 60)
    states = lab.command(lab.controller, f"squeue -h -j {running},{waits} -o '%i %T'").splitlines()
    assert {*states} == {f"{running} RUNNING", f"{waits} PENDING"}
    assert lab.command(lab.controller, "sacctmgr -n show association user=alice format=account%20") == "vision"
    after = lab.command(lab.controller, "runuser -u alice -- sbatch --parsable --wait -D / -o /dev/null --wrap true")
    lab.wait_for(lab.controller, f"sacct -nX -j {after} -o account%20,state", "COMPLETED", 30)
    run = site(lab, directory, POLICY, "--tags=database,controller,policy")
    assert run.changed == {}
