# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml from Slurm 24.11 to 26.05 under running jobs: refusals, a failure before the point of no return and one
after it, and runs that are killed. The tests are in the order of an upgrade, and each needs those before it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from lab import Lab, Run, with_cluster

HOSTS = ("up-ctl", "up-db", "up-login", "up-node1", "up-node2")
DAEMONS = {"up-ctl": "slurmctld", "up-db": "slurmdbd", "up-login": "sackd", "up-node1": "slurmd", "up-node2": "slurmd"}
KEPT = "/var/lib/gpucluster-slurm/upgrade"
GO = "/home/alice/go"
# A job goes on while the file is there, so it lasts exactly as long as the upgrade.
UNTIL = f"sh -c 'while test -e {GO}; do sleep 1; done; echo end of the step'"


def upgrade(lab: Lab, *arguments: str) -> Run:
    """A run of the playbook without the jobs of `validate`."""
    return lab.playbook("upgrade", "--skip-tags=validate", *arguments)


def killed_at(lab: Lab, task: str, seconds: float = 0) -> None:
    """Kill a run in a task, after some seconds."""
    run = lab.start("upgrade", "--skip-tags=validate")
    run.wait_for_task(task)
    time.sleep(seconds)
    run.kill()


def state(lab: Lab) -> dict[str, str]:
    """What an upgrade changes, by host: packages with their holds, files, the processes of the daemons."""
    packages = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want}\\n' '*slurm*' sackd | sort"
    files = f"find /etc/slurm /var/lib/gpucluster-slurm /etc/systemd/system -path {KEPT} -prune -o -type f | sort"
    daemons = (
        "systemctl show --property=MainPID,UnitFileState,ActiveState munge slurmctld slurmdbd slurmd sackd mariadb"
    )
    return {host: lab.command(host, f"{packages}; {files} | xargs md5sum; {daemons}") for host in HOSTS}


def version(lab: Lab, host: str) -> str:
    """The version of the daemon that runs: that of its package, unless its program was replaced since its start.

    sackd of 26.05 does not tell its own.
    """
    program = f"program=$(readlink /proc/$(systemctl show -P MainPID {DAEMONS[host]})/exe)"
    package = "package=$(dpkg --search $program | cut -d: -f1)"
    return str(lab.command(host, f"set -eu -o pipefail; {program}; {package}; dpkg-query -Wf '${{Version}}' $package"))


def databases(lab: Lab) -> str:
    """The databases and the rights of slurmdbd's user."""
    return str(lab.command("up-db", "mariadb -Ne 'SHOW DATABASES; SELECT db, user FROM mysql.db'"))


def jobs_run(lab: Lab) -> None:
    """The jobs of the fixture have not ended."""
    lab.wait_for("up-ctl", "timeout 60 squeue -h -o '%j %t' | sort | xargs", "inside R outside R", 60)


@pytest.fixture(scope="module", name="number", autouse=True)
def jobs_of_alice(lab: Lab) -> Iterator[str]:
    """A batch job on two nodes, whose number this is, and an srun on the login host, until the last test."""
    script = f"#!/bin/sh\nsrun {UNTIL}\n"
    lab.script("up-login", f"cat >/home/alice/job; touch {GO}; chown -R alice: /home/alice", script.encode())
    batch = "timeout 60 sbatch --parsable -N2 -n2 -J inside -o inside.out job"
    number = lab.command("up-login", f"cd /home/alice && runuser -u alice -- {batch}")
    service = "systemd-run --quiet --uid=alice --working-directory=/home/alice --unit=outside"
    # srun says on stderr whether it had to wait.
    output = "--property=StandardOutput=file:/home/alice/outside.out --property=StandardError=journal"
    lab.command("up-login", f"{service} {output} srun -J outside -N1 {UNTIL}")
    jobs_run(lab)
    yield number
    lab.host("up-login").run(f"rm -f {GO}")


def test_hosts_that_are_offered_different_versions_are_named(lab: Lab) -> None:
    before = state(lab)
    lab.command("up-node2", "mv /etc/apt/sources.list.d/sid.list /root/sid.list")
    run = upgrade(lab)
    lab.command("up-node2", "mv /root/sid.list /etc/apt/sources.list.d/sid.list")
    assert run.rc != 0
    assert "the hosts do not agree on one version of Slurm" in str(run.failed)
    assert re.search(r"; 24\.11\.5-\S+ on up-node2\.", str(run.failed))
    assert (run.changed, state(lab)) == ({}, before)


def test_the_controller_cannot_be_left_out(lab: Lab) -> None:
    run = upgrade(lab, "--limit=up-node1,up-db")
    assert "up-ctl cannot be left out, by --limit" in str(run.failed)


def test_a_key_that_the_new_release_refuses_is_named_before_anything_stops(lab: Lab, tmp_path: Path) -> None:
    before = state(lab)
    cluster = {**lab.cluster, "slurm_conf": {"AccountingStorageLoc": "x"}}
    run = upgrade(with_cluster(lab, tmp_path, cluster))
    assert run.rc != 0
    assert list(run.failed) == ["up-ctl"]
    assert "AccountingStorageLoc" in str(run.failed)
    assert state(lab) == before


def test_a_disk_without_room_for_the_dump_is_named_before_anything_stops(lab: Lab) -> None:
    """It has room for the unpacked packages, which come first."""
    before = state(lab)
    size = f"$(($(du -sm {KEPT}/26.05* | cut -f1) + 40))m"
    lab.command("up-db", f"mount -t tmpfs -o mode=700,size={size} tmpfs {KEPT}")
    run = upgrade(lab)
    lab.command("up-db", f"umount {KEPT}")
    assert run.rc != 0
    assert list(run.failed) == ["up-db"]
    room = rf"{KEPT}: the upgrade needs \d+ MiB for a dump and a copy of database slurm_acct_db .* \d+ MiB are free"
    assert re.search(room, str(run.failed))
    assert state(lab) == before


def test_check_mode_tries_everything_and_changes_nothing(lab: Lab) -> None:
    before, there = state(lab), databases(lab)
    run = upgrade(lab, "--check", "--diff")
    assert (run.rc, run.failed) == (0, {})
    assert (state(lab), databases(lab)) == (before, there)
    assert "the conversion will take about" in run.output
    packages = [result["installed"] for _host, task, result in run.results if "Change Slurm's packages" in task]
    assert len(packages) == len(HOSTS)
    assert all(any(name.startswith("slurm-wlm-basic-plugins=26.05") for name in names) for names in packages)
    (stats,) = [event["stats"] for event in run.events if "stats" in event]
    assert all(host["failures"] == 0 for host in stats.values())
    jobs_run(lab)


def test_a_failure_before_the_new_slurmdbd_serves_restores_the_previous_release(lab: Lab) -> None:
    before = state(lab)
    lab.command("up-db", """echo 'DPkg::Pre-Invoke {"false";};' >/etc/apt/apt.conf.d/lab-broken""")
    run = upgrade(lab)
    lab.command("up-db", "rm /etc/apt/apt.conf.d/lab-broken")
    assert run.rc != 0
    assert list(run.failed) == ["up-db"]
    assert "The previous slurmdbd serves again" in str(run.failed)
    assert version(lab, "up-db").startswith("24.11.5")
    lab.command("up-db", f"test -e {KEPT}/state.json", 1)
    after = state(lab)
    assert {host: after[host] for host in HOSTS if host != "up-db"} == {h: before[h] for h in HOSTS if h != "up-db"}
    lab.wait_for(
        "up-ctl",
        "timeout 60 sacct -n -X --name=inside,outside -o jobname,state | xargs",
        "inside RUNNING outside RUNNING",
        60,
    )
    jobs_run(lab)


def test_runs_that_are_killed_are_continued(lab: Lab) -> None:
    killed_at(lab, "Change the state of the database, which can take hours: converted", 1)
    lab.wait_for("up-db", "systemctl is-enabled slurmdbd", "masked", 60)
    run = lab.playbook("site", "--tags=database")
    assert "an upgrade of Slurm has begun here" in str(run.failed["up-db"])

    killed_at(lab, "slurm_upgrade : Change Slurm's packages", 1)  # of the database host
    assert steps_run(lab)

    killed_at(lab, "slurmdbd : Apply slurmdbd's configuration")
    # From here on there is only the way forward. The run ends while slurmctld is away.
    killed_at(lab, "slurm_upgrade : Keep a copy of the state")
    lab.wait_for("up-ctl", "timeout 60 sacctmgr -nP show cluster format=cluster", "upgrade", 60)
    assert "26.05" in version(lab, "up-db")
    assert steps_run(lab)


def steps_run(lab: Lab) -> bool:
    """Whether the batch job has its processes on both nodes, even if no other daemon is there."""
    return all(int(lab.command(node, "pgrep -c slurmstepd")) >= 2 for node in ("up-node1", "up-node2"))


def test_after_the_new_slurmdbd_serves_there_is_only_the_way_forward(lab: Lab) -> None:
    broken = "/run/systemd/system/slurmctld.service.d/lab-broken.conf"
    lab.script("up-ctl", f"mkdir -p $(dirname {broken}); cat >{broken}", b"[Service]\nExecStartPre=false\n")
    run = upgrade(lab)
    lab.command("up-ctl", f"rm {broken}; systemctl daemon-reload")
    assert run.rc != 0
    assert list(run.failed) == ["up-ctl"]
    assert "slurmctld" in str(run.failed)
    assert "26.05" in version(lab, "up-db")
    assert {version(lab, node)[:7] for node in ("up-node1", "up-node2")} == {"24.11.5"}
    assert steps_run(lab)

    killed_at(lab, "slurmd : Run slurmd with its settings")  # of the first node
    assert "26.05" in version(lab, "up-ctl")
    assert steps_run(lab)


def test_the_last_run_ends_the_upgrade(lab: Lab, number: str) -> None:
    run = upgrade(lab)
    assert (run.rc, run.failed) == (0, {})
    selections = "dpkg-query -W -f '${source:Package} ${Package} ${db:Status-Want}\n' | grep '^slurm-wlm'"
    for host in HOSTS:
        assert "26.05" in version(lab, host), host
        assert {line.split()[2] for line in lab.command(host, selections).split("\n")} == {"hold"}, host
    target = lab.command("up-db", "dpkg-query -W -f '${Version}' slurm-wlm-basic-plugins")
    assert lab.command("up-db", f"stat -c '%n %a' {KEPT}/*") == f"{KEPT}/slurm_acct_db-before-{target}.sql 600"
    assert lab.command("up-ctl", f"stat -c '%n %a' {KEPT}/*") == f"{KEPT}/StateSaveLocation-before-{target}.tar 600"
    assert "upgrade" not in databases(lab)
    assert "inside" in lab.command("up-ctl", f"timeout 60 squeue -h -o %j -j {number}")
    jobs_run(lab)


def test_the_jobs_end_as_if_nothing_had_happened(lab: Lab, number: str) -> None:
    lab.command("up-login", f"rm {GO}")
    shown = "timeout 60 sacct -nPX -o jobname,jobid,state,exitcode,nnodes,start,end,elapsedraw --name=inside,outside"
    lab.wait_for("up-ctl", f"{shown} | grep -c COMPLETED", "2", 120)
    rows = {name: row for name, *row in (line.split("|") for line in lab.command("up-ctl", shown).split("\n"))}
    assert rows["inside"][:4] == [number, "COMPLETED", "0:0", "2"]
    assert rows["outside"][1:4] == ["COMPLETED", "0:0", "1"]
    now = datetime.fromisoformat(lab.command("up-ctl", "date +%FT%T"))
    for *_row, start, end, elapsed in rows.values():
        began, ended = datetime.fromisoformat(start), datetime.fromisoformat(end)
        assert int(elapsed) == (ended - began).total_seconds() > 60
        assert (now - ended).total_seconds() < 120
    assert lab.command("up-login", "cat /home/alice/inside.out").split("\n") == ["end of the step"] * 2
    assert lab.command("up-login", "cat /home/alice/outside.out") == "end of the step"


def test_everything_is_as_the_site_wants_it(lab: Lab) -> None:
    run = lab.playbook("site")
    assert (run.rc, run.failed, run.changed) == (0, {}, {})
    run = upgrade(lab)
    assert (run.rc, run.failed, run.changed) == (0, {}, {})
    assert "Every host has Slurm 26.05" in run.output
