# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a cluster with Slurm 26.05 that are made anew, and whose apt has 24.11 only: nothing installs or starts it.

The tests are in an order, and need the upgrade of test_upgrade.py. A host made anew lacks Slurm's packages, its
configuration and what the collection keeps; the archive of the distribution is its only source of packages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, Run, with_cluster

CONTROLLER, DATABASE, NODE = "up-ctl", "up-db", "up-node2"
STATE = "/var/lib/slurm/slurmctld"
LIST = "/etc/apt/sources.list.d/sid.list"
# With `purge`, the packages remove the state of slurmctld as well.
REMOVE = "apt-get -qq -y --allow-change-held-packages remove '?installed?source-package(^slurm-wlm)' >/dev/null 2>&1"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y install {0} >/dev/null 2>&1; {0} -V; systemctl stop {0}"
DUMP = "mariadb-dump --skip-dump-date --single-transaction slurm_acct_db"
REFUSED = (
    r"would install Slurm 24\.11\.5-\S+, and the cluster has Slurm 26\.05 \({}.* Give the host packages of Slurm 26"
)
MODES = pytest.mark.parametrize("mode", [["--check"], []], ids=["check", "run"])


@pytest.fixture(scope="module", name="site")
def cluster_with_a_backup(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    cluster = {**lab.cluster, "backup": {"target": "/home/backup", "times": "03:00"}}
    site = with_cluster(lab, tmp_path_factory.mktemp("site"), cluster)
    run = site.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    site.command(DATABASE, "slurm-backup run")
    site.command(CONTROLLER, "slurm-backup run")
    return site


@pytest.fixture(scope="module", autouse=True)
def job(site: Lab) -> Iterator[None]:
    """A job that runs until the last test, on the node that stays."""
    submit = (
        "timeout 60 sbatch --parsable -w up-node1 -D / -o /dev/null --wrap 'until test -e /home/go; do sleep 1; done'"
    )
    site.command(CONTROLLER, "rm -f /home/go")
    number = site.command(CONTROLLER, submit)
    site.wait_for(CONTROLLER, f"timeout 60 squeue -h -j {number} -o %T", "RUNNING", 60)
    yield
    site.command(CONTROLLER, "touch /home/go")
    shown = f"timeout 60 sacct -nPX -o state,restarts,exitcode -j {number}"
    site.wait_for(CONTROLLER, shown, "COMPLETED|0|0:0", 120)


def make_anew(site: Lab, host: str) -> None:
    daemons = "slurmctld slurmdbd slurmd sackd slurm-backup.timer"
    site.command(host, f"systemctl stop {daemons} 2>/dev/null; {REMOVE}; rm -rf /etc/slurm /var/lib/gpucluster-slurm")
    site.command(host, f"mv {LIST} /root/; apt-get -qq update")


def offer(site: Lab, host: str) -> None:
    """Give the host the source with 26.05 again. Its lists of packages are old."""
    site.command(host, f"mv /root/sid.list {LIST}")


def packages(site: Lab, host: str) -> str:
    return str(
        site.command(host, "dpkg-query -Wf '${Package} ${Version} ${Status}\\n' | md5sum; find /etc/slurm | sort")
    )


def refusal(run: Run, source: str) -> None:
    """The run was refused before any change, with the reason."""
    assert run.rc != 0
    assert re.search(REFUSED.format(source), str(run.failed)), run.failed
    assert run.changed == {}


@MODES
def test_a_node_made_anew_gets_no_other_release(site: Lab, mode: list[str]) -> None:
    if mode:
        make_anew(site, NODE)
    before = packages(site, NODE)
    run = site.playbook("site", "--skip-tags=validate", *mode)
    assert [*run.failed] == [NODE], "the other hosts go on"
    refusal(run, "26.05.* on up-ctl")
    # Without the controller in the run, it is asked.
    refusal(site.playbook("site", f"--limit={NODE}", "--skip-tags=validate", *mode), "26.05.* on up-ctl")
    assert packages(site, NODE) == before


def test_a_node_with_old_lists_of_packages_is_installed(site: Lab) -> None:
    offer(site, NODE)
    run = site.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert site.command(NODE, "slurmd -V").endswith(site.command(CONTROLLER, "slurmctld -V").split()[-1])
    site.wait_until_idle(CONTROLLER, NODE)


@MODES
def test_a_lost_database_is_not_restored_into_another_release(site: Lab, mode: list[str]) -> None:
    if mode:
        site.command(DATABASE, f"{DUMP} >/root/dump.sql")
        make_anew(site, DATABASE)
        site.command(DATABASE, "mariadb -e 'DROP DATABASE slurm_acct_db'")
    before = packages(site, DATABASE)
    refusal(site.playbook("restore", "--skip-tags=validate", *mode), "26.05.* on up-ctl")
    assert packages(site, DATABASE) == before
    assert "slurm_acct_db" not in site.command(DATABASE, "mariadb -Ne 'SHOW DATABASES'")


@MODES
def test_a_database_of_a_later_release_stays_as_it_is(site: Lab, mode: list[str]) -> None:
    """Somebody has loaded its dump by hand, and runs site.yml."""
    if mode:
        site.command(DATABASE, "mariadb -e 'CREATE DATABASE slurm_acct_db' && mariadb slurm_acct_db </root/dump.sql")
    run = site.playbook("site", "--skip-tags=validate", *mode)
    refusal(run, "26.05.* on up-ctl")
    assert site.command(DATABASE, f"{DUMP} | cmp - /root/dump.sql && echo same") == "same"


def test_slurmdbd_of_another_release_does_not_start_with_it(site: Lab, tmp_path: Path) -> None:
    """The packages are there by hand, and no controller tells the release of the cluster."""
    site.command(DATABASE, INSTALL.format("slurmdbd"))
    play = tmp_path / "start.yml"
    conf = "DbdHost=localhost\nStorageType=accounting_storage/mysql\n"
    task = {"gpucluster.slurm.slurm_config": {"daemon": "slurmdbd", "files": {"slurmdbd.conf": conf}}}
    play.write_text(json.dumps([{"hosts": DATABASE, "become": True, "gather_facts": False, "tasks": [task]}]))
    run = site.playbook(str(play))
    assert run.rc != 0
    assert "the database slurm_acct_db belongs to a cluster with Slurm 26.05, and slurmdbd 24.11.5 would" in str(
        run.failed
    )
    assert site.command(DATABASE, f"{DUMP} | cmp - /root/dump.sql && echo same") == "same"
    # The release that is there decides as well.
    run = site.playbook("site", "--skip-tags=validate")
    assert "slurmdbd of an earlier release damages the database" in str(run.failed)
    assert run.changed == {}
    site.command(DATABASE, f"{REMOVE}; rm -rf /etc/slurm; mariadb -e 'DROP DATABASE slurm_acct_db'")


def test_the_database_comes_back_with_its_release(site: Lab) -> None:
    offer(site, DATABASE)
    run = site.playbook("restore", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert "26.05" in site.command(DATABASE, "dpkg-query -Wf '${Version}' slurmdbd")
    assert site.command(CONTROLLER, "timeout 60 sacct -nPX -o jobid | wc -l") != "0"


@MODES
def test_a_controller_made_anew_does_not_take_over_the_state(site: Lab, mode: list[str]) -> None:
    """Its state is there, as on shared storage."""
    if mode:
        make_anew(site, CONTROLLER)
    state = f"find {STATE} -type f | sort | xargs md5sum"
    before = packages(site, CONTROLLER) + site.command(CONTROLLER, state)
    refusal(site.playbook("site", "--skip-tags=validate", *mode), "the state of slurmctld on up-ctl")
    assert packages(site, CONTROLLER) + site.command(CONTROLLER, state) == before


def test_no_advice_loses_the_state(site: Lab) -> None:
    """Somebody has installed slurmctld 24.11, which cannot read the state. Slurm's own advice would lose all jobs."""
    site.command(CONTROLLER, INSTALL.format("slurmctld"))
    conf = f"ClusterName=upgrade\\nSlurmctldHost=up-ctl\\nSlurmUser=slurm\\nStateSaveLocation={STATE}\\n"
    site.command(
        CONTROLLER, f"mkdir -p /etc/slurm; printf '{conf}' >/etc/slurm/slurm.conf; systemctl restart slurmctld; sleep 2"
    )
    assert "start with '-i'" in site.command(
        CONTROLLER, "journalctl -u slurmctld --no-pager | cat - /var/log/slurm/slurmctld.log"
    )
    run = site.playbook("doctor")
    assert "the state of another release of Slurm" in run.output
    assert "'-i'" not in run.output
    run = site.playbook("site", "--skip-tags=validate")
    assert "this slurmctld could not read the state of the cluster" in str(run.failed)
    assert run.changed == {}


def test_the_controller_comes_back_with_its_release(site: Lab) -> None:
    site.command(CONTROLLER, f"systemctl stop slurmctld; {REMOVE}; rm -rf /etc/slurm")
    offer(site, CONTROLLER)
    run = site.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    again = site.playbook("site", "--skip-tags=validate")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})


def test_a_run_does_not_end_well_without_its_controller(site: Lab) -> None:
    site.command(CONTROLLER, "systemctl stop slurmctld")
    run = site.playbook("site", "--tags=base", "--skip-tags=backup")
    assert run.rc != 0
    assert "slurmctld does not answer on up-ctl" in str(run.failed)
    site.command(CONTROLLER, "systemctl start slurmctld")
