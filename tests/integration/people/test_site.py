# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster file with users, access and storage, put into force by whole runs of site.yml, as a user finds it.

The tests depend on each other and run in this order. The last one takes access and storage back.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run, with_cluster

HOMES = {"path": "/srv/homes", "type": "tmpfs", "options": ["size=8m"], "homes": True}
ACCESS = {"administrators": ["ops"], "between_nodes": "host_based"}
OPEN = {"administrators": ["ops"], "compute": "all"}
SSH = "ssh -o BatchMode=yes -o PubkeyAuthentication=no"


@dataclass
class Site:
    """The lab with zoe, in a CSV file."""

    lab: Lab
    directory: Path
    user: dict[str, Any]

    @property
    def login(self) -> str:
        """A host that is a login host only."""
        return expand(self.lab.cluster["login"])[-1]

    @property
    def nodes(self) -> list[str]:
        """Two hosts that are compute nodes only."""
        return list(self.lab.nodes[-2:])

    def run(self, *arguments: str, **keys: Any) -> Run:
        """A run of site.yml with these keys of the cluster file; it has to succeed."""
        with (self.directory / "people.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, [*self.user])
            table.writeheader()
            table.writerow(self.user)
        cluster = {**self.lab.cluster, "people": "people.csv", **keys}
        run = with_cluster(self.lab, self.directory, cluster).playbook("site", *arguments)
        assert (run.rc, run.failed) == (0, {})
        return run

    def whole(self, *arguments: str) -> Run:
        """A run of all stages."""
        return self.run(*arguments, access=ACCESS, storage=[HOMES])

    def ssh(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """A command of zoe over a new connection with the key of the CSV file."""
        key = ["-o", "LogLevel=INFO", "-o", "BatchMode=yes", "-o", f"IdentityFile={self.directory / 'zoe'}"]
        argv = ["timeout", "120", "ssh", "-F", str(self.lab.ssh_config), *key, f"zoe@{host}", command]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def from_login(self, node: str) -> tuple[int, str]:
        """A command of zoe on a node, from the login host by host-based authentication; 0 or 1, and its output."""
        command = f"cd /tmp && runuser -u zoe -- timeout 60 {SSH} {node} hostname 2>&1 || exit 1"
        found = self.lab.host(self.login).run(command)
        return found.rc, str(found.stdout).strip()


@pytest.fixture(name="site", scope="module")
def site_of_zoe(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("site")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "zoe", "-f", directory / "zoe"], check=True)
    (account,) = lab.cluster["accounting"]["accounts"]
    user = {
        "name": "zoe",
        "uid": 5201,
        "home": "/srv/homes/zoe",
        "keys": (directory / "zoe.pub").read_text().strip(),
        "state": "present",
        "account": account["name"],
    }
    site = Site(lab, directory, user)
    for host in dict.fromkeys([lab.controller, site.login, *lab.nodes]):
        lab.command(host, "groupadd --force ops && usermod --append --groups ops admin")
    return site


def test_one_run_makes_all_of_it_and_the_next_one_changes_nothing(site: Site) -> None:
    site.whole()
    again = site.whole("--skip-tags=validate")
    assert (again.changed, again.warnings) == ({}, [])
    checked = site.whole("--check", "--skip-tags=validate")
    assert checked.changed == {}


def test_the_user_logs_in_submits_and_follows_the_job(site: Site) -> None:
    node = site.nodes[0]
    assert site.ssh(site.login, "pwd; stat --format='%U %a' .").stdout == "/srv/homes/zoe\nzoe 700\n"
    assert "you have no active jobs on this node" in site.ssh(node, "true").stderr
    assert "you have no active jobs on this node" in site.from_login(node)[1]
    script = "until test -e /tmp/zoe-ends; do sleep 0.2; done; pwd"
    submit = f"sbatch --parsable --nodelist={node} --mem=100 --wrap {shlex.quote(script)}"
    job = site.ssh(site.login, submit).stdout.strip()
    site.lab.wait_for(site.lab.controller, f"squeue -h -j {job} -o %T", "RUNNING", 60)
    assert site.ssh(node, "hostname").stdout == f"{node}\n"
    assert site.from_login(node) == (0, node)
    start = "cp /bin/bash slurmstepd && setsid --fork ./slurmstepd -c 'sleep 900; true' </dev/null >/dev/null 2>&1"
    assert site.ssh(node, start).returncode == 0
    site.lab.wait_for(node, "pgrep --uid zoe --exact slurmstepd && echo runs", "runs", 30)


def test_a_suspended_user_reaches_no_host_although_the_job_goes_on(site: Site) -> None:
    """The account is refused, not only the key: with host-based authentication and a job, ssh asks for no key."""
    node = site.nodes[0]
    site.user["state"] = "suspended"
    run = site.whole("--skip-tags=validate")
    assert {*run.changed} >= {site.lab.controller, site.login, *site.nodes}
    (job,) = site.lab.command(site.lab.controller, "squeue -h --user=zoe -o '%i %T'").splitlines()
    number, state = job.split()
    assert state == "RUNNING"
    assert site.lab.host(node).run("pgrep --uid zoe --exact slurmstepd || pgrep --uid zoe --full 'sleep 900'").rc == 1
    for host in (site.login, *site.nodes):
        assert site.ssh(host, "true").returncode == 255
    status, output = site.from_login(node)
    assert (status, node in output.splitlines()) == (1, False), output
    site.lab.command(node, "touch /tmp/zoe-ends")
    site.lab.wait_for(site.lab.controller, f"sacct -nX -j {number} -o state%20", "COMPLETED", 60)
    assert site.lab.command(node, f"cat /srv/homes/zoe/slurm-{number}.out") == "/srv/homes/zoe"


def test_access_and_storage_are_taken_back(site: Site) -> None:
    site.user["state"] = "present"
    for host in (site.login, *site.nodes):
        site.lab.wait_for(host, "pgrep --uid zoe || echo nobody", "nobody", 60)  # a mount stays while users are there
    site.run("--skip-tags=validate", access=OPEN, storage=[])
    for host in (site.login, *site.nodes):
        assert site.ssh(host, "id -un").stdout == "zoe\n"
        assert site.lab.host(host).run("grep -q ' /srv/homes ' /proc/self/mountinfo").rc == 1
