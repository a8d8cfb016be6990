# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml while the primary serves, under load: with its standby, and with the standby away.

`test_controllers.py` has the upgrade while the standby serves. All hosts are made anew, with Slurm 24.11, before each
upgrade to 26.05.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab
from security_updates import REVISION, offered
from under_load import (
    BOTH,
    FIRST,
    FIRST_SERVES,
    HOSTS,
    LOGIN,
    OLDER,
    SECOND,
    away,
    each_job_ran_once,
    job_runs,
    jobs_of_alice,
    make_anew,
    offer_the_next_release,
    outage,
    serves,
    site,
    succeeded,
)


@pytest.fixture(scope="module", name="job")
def cluster_anew(lab: Lab) -> Iterator[str]:
    """The cluster with Slurm 24.11, and a job that runs until the last test that has this fixture."""
    make_anew(lab)
    with jobs_of_alice(lab) as job:
        yield job


def versions(lab: Lab) -> set[str]:
    """The versions of Slurm's packages on the hosts."""
    query = "dpkg-query --show --showformat='${Version}' slurm-wlm-basic-plugins"
    return {lab.command(host, query) for host in HOSTS}


def test_a_patch_release_with_both_controllers(lab: Lab, job: str) -> None:
    (before,) = versions(lab)
    with offered(lab, "slurm-wlm", HOSTS, []), outage(lab, "a patch release"):
        succeeded(site(lab, playbook="upgrade"), FIRST_SERVES)
    assert versions(lab) == {f"{before}{REVISION}"}
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


def test_an_upgrade_with_both_controllers(lab: Lab, job: str) -> None:
    offer_the_next_release(lab)
    with outage(lab, "an upgrade"):
        succeeded(site(lab, playbook="upgrade"), FIRST_SERVES)
    assert all("26.05" in version for version in versions(lab))
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    each_job_ran_once(lab, job, 30)


def test_an_upgrade_while_the_standby_is_away(lab: Lab) -> None:
    """Its slurmctld of the previous release does not start when it is back, until it is upgraded as well."""
    make_anew(lab)
    offer_the_next_release(lab)
    with jobs_of_alice(lab) as job:
        with away(lab, SECOND):
            with outage(lab, "an upgrade"):
                run = site(lab, playbook="upgrade")
            assert (run.rc, run.stats[SECOND]["unreachable"]) == (4, 1), run.output[-3000:]
            assert f"{SECOND} was not reached, and its slurmctld does not start with the previous release" in run.output
            assert "26.05" in lab.command(FIRST, "slurmctld -V")
        assert OLDER in lab.command(SECOND, "journalctl --no-pager --unit=slurmctld --lines=20")
        serves(lab, FIRST)
        job_runs(lab, job)
        with outage(lab, "a patch release"):
            succeeded(site(lab, playbook="upgrade"), FIRST_SERVES)
        assert "26.05" in lab.command(SECOND, "slurmctld -V")
        assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
        each_job_ran_once(lab, job, 30)
