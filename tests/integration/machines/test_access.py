# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins to a compute node with cgroup v2: refused without a job, and a part of the job with one.

The machine runs all of the cluster. Its cluster file for these tests has the controller elsewhere, so that the machine
is a compute node only, and the runs leave the controller out. Scenario people has the other rules.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, with_cluster

HOST = "vm1"
ELSEWHERE = {**dict.fromkeys(["controllers", "database", "login"], "other"), "addresses": {"other": "10.99.1.1"}}
REFUSED = "you have no active jobs on this node"


def put_into_force(lab: Lab, directory: Path, compute: str) -> None:
    """Let in those of this kind, and assert that the next run finds nothing to do."""
    cluster = {**lab.cluster, **ELSEWHERE, "access": {"administrators": ["ops"], "compute": compute}}
    other = with_cluster(lab, directory, cluster)
    run = other.playbook("site", "--tags=access", f"--limit={HOST}")
    assert (run.rc, run.failed, [*run.changed]) == (0, {}, [HOST])
    again = other.playbook("site", "--tags=access", f"--limit={HOST}")
    assert (again.rc, again.changed) == (0, {})


def alice(lab: Lab, command: str) -> list[str]:
    """A command of alice over a new connection."""
    return ["timeout", "120", "ssh", "-F", str(lab.ssh_config), "-o", "LogLevel=INFO", f"alice@{HOST}", command]


def ended(lab: Lab, command: str) -> subprocess.CompletedProcess[str]:
    """Such a command, when it has ended."""
    return subprocess.run(alice(lab, command), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", name="job")
def job_on_a_closed_node(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job of alice with one CPU and 100 MiB; the machine is open again afterwards."""
    directory = tmp_path_factory.mktemp("access")
    lab.command(HOST, "groupadd --force ops && usermod --append --groups ops admin")
    lab.command(HOST, "cp /etc/ssh/authorized_keys.d/admin /etc/ssh/authorized_keys.d/alice")
    # Stage base would install it, but it would also find a controller that is not in the cluster file.
    install = "apt-get install --quiet=2 --yes --no-install-recommends libpam-slurm-adopt"
    lab.command(HOST, f"apt-get update --quiet=2 && {install}")
    put_into_force(lab, directory, "job")
    assert REFUSED in ended(lab, "true").stderr
    submit = "sbatch --parsable --cpus-per-task=1 --mem=100 --output=/dev/null --wrap 'sleep 3600'"
    number = lab.command(HOST, f"cd /tmp && runuser -u alice -- sh -c {shlex.quote(submit)}")
    lab.wait_for(HOST, f"squeue --noheader --jobs={number} --format=%T", "RUNNING", 180)
    yield number
    lab.command(HOST, f"scancel {number}")
    put_into_force(lab, directory, "all")
    assert ended(lab, "id -un").stdout == "alice\n"


def test_a_login_has_the_limits_of_the_job(lab: Lab, job: str) -> None:
    group = ended(lab, "cat /proc/self/cgroup").stdout
    assert group.startswith("0::/")
    assert f"slurmstepd.scope/job_{job}/step_extern/" in group
    assert ended(lab, "nproc").stdout == "1\n"
    of_job = "/sys/fs/cgroup$(sed 's,^0::,,; s,/step_extern.*,,' /proc/self/cgroup)"
    assert ended(lab, f"cat {of_job}/memory.max").stdout == f"{100 << 20}\n"
    hungry = ended(lab, "echo in; exec tail /dev/zero")
    assert (hungry.stdout, hungry.returncode) in (("in\n", 137), ("in\n", 255)), "the kernel ends it"
    assert lab.command(HOST, f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"
    assert "alice" not in lab.command(HOST, "loginctl list-sessions --no-legend")
    assert "job_" not in lab.command(HOST, "cat /proc/self/cgroup"), "an administrator is in no job"


def test_a_login_ends_with_the_job(lab: Lab, job: str) -> None:
    with subprocess.Popen(alice(lab, "echo in; exec sleep 3601"), stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout
        assert session.stdout.readline() == "in\n"
        lab.command(HOST, f"scancel {job}")
        assert session.wait(120) == 255
    lab.wait_for(HOST, "pgrep --uid alice || echo nobody", "nobody", 120)
    assert REFUSED in ended(lab, "true").stderr
