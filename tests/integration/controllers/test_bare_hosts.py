# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are made again while the cluster serves: bare ones, on which something of an earlier installation is left.

A disk or a file system outlives its host: then files belong to ids of users that the bare host does not have yet. The
daemons of the cluster use what is left if it is theirs; what would make the host wrong is refused before anything is
changed. The tests need each other and run in this order, before all others of the scenario.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab, with_cluster
from under_load import (
    BOTH,
    DATABASE,
    FIRST,
    FIRST_SERVES,
    LOGIN,
    MORE,
    NODE,
    SECOND,
    STATE,
    each_job_ran_once,
    job_runs,
    jobs_of_alice,
    lose,
    site,
    start_load,
    stop_load,
    succeeded,
)

SLURM, JOBS, OTHER = 64030, 965, 118
"""The ids of users that the run makes, and one that belongs to nobody: that of another distribution's package."""

SITE_UNIT = "/etc/systemd/system/{}.service.d/site.conf"
OWN = f"install -o {SLURM} -g {SLURM}"
MUNGES = f"install -o {OTHER} -g {OTHER}"

LEFT: dict[str, dict[str, str]] = {
    SECOND: {
        "directory of logs": f"{OWN} -d /var/log/slurm",
        "log": f"{OWN} /dev/null /var/log/slurm/slurmctld.log",
        "list of jobs": f"{OWN} /dev/null /var/log/slurm/job_completions",
        "directory of the default": f"{OWN} -d /var/lib/slurm /var/lib/slurm/slurmctld",
        "chosen directory of logs": f"{OWN} -d /srv/slurm-log",
        "configuration": f"{OWN} -d /etc/slurm; {OWN} -m 644 /dev/null /etc/slurm/slurm.conf",
        "slurmdbd.conf of another time": f"{OWN} -m 600 /dev/null /etc/slurm/slurmdbd.conf",
        "version": "mkdir -p /var/lib/gpucluster-slurm; echo 1 >/var/lib/gpucluster-slurm/version",
        "files in force": "cd /var/lib/gpucluster-slurm; mkdir -m 700 good; echo x >good/slurm.conf",
        "drop-in of slurmctld": f"install -D /dev/null {SITE_UNIT.format('slurmctld')}",
        "password of a backup": "mkdir -p /etc/gpucluster-slurm/backup; echo x >/etc/gpucluster-slurm/backup/password",
    },
    DATABASE: {
        "directory of munge": f"{MUNGES} -d -m 711 /var/lib/munge; {MUNGES} /dev/null /var/lib/munge/munge.seed",
        "log of munge": f"{MUNGES} -d -m 700 /var/log/munge; {MUNGES} /dev/null /var/log/munge/munged.log",
        "archive": f"{OWN} -d /var/lib/slurm /var/lib/slurm/archive",
        "slurmdbd.conf": f"{OWN} -d /etc/slurm; {OWN} -m 600 /dev/null /etc/slurm/slurmdbd.conf",
        "log of slurmdbd": f"{OWN} -d /var/log/slurm; {OWN} -m 600 /dev/null /var/log/slurm/slurmdbd.log",
        "setting of MariaDB": "cd /etc; mkdir -p mysql/mariadb.conf.d; printf '[mysqld]\\nmax_connections=50\\n' "
        ">mysql/mariadb.conf.d/zz-gpucluster-slurm.cnf",
    },
    MORE: {
        "key of munge": f"{MUNGES} -d -m 700 /etc/munge; head -c 1024 /dev/urandom >/root/key; "
        f"{MUNGES} -m 400 /root/key /etc/munge/munge.key",
        "user munge": f"groupadd -g {OTHER} munge; useradd -r -u {OTHER} -g munge -M munge",
        "spool": f"{OWN} -d /var/lib/slurm /var/lib/slurm/slurmd; {OWN} /dev/null /var/lib/slurm/slurmd/cred_state",
        "home of the jobs": f"install -d -m 750 -o {JOBS} -g {JOBS} /var/lib/slurm-check",
        "drop-in of slurmd": f"install -D /dev/null {SITE_UNIT.format('slurmd')}",
        "users of another time": "mkdir -p /etc/sysusers.d; echo 'u slurm 990 - -' >/etc/sysusers.d/zz-slurm.conf",
        "directories of another time": "echo 'd /var/log/slurm 0777 root root' >/etc/tmpfiles.d/gpucluster-slurm.conf",
        "health check": "mkdir -p /etc/gpucluster-slurm; echo '{}' >/etc/gpucluster-slurm/health.json",
        "hosts": "for line in '# BEGIN' '10.9.9.9 two-ctl1' '# END'; do "
        "echo \"$line\" | sed '/^#/s/$/ gpucluster.slurm controllers/' >>/etc/hosts; done",
        "removed package": "mkdir -p /etc/logrotate.d; echo '/var/log/slurm/slurmd.log {}' >/etc/logrotate.d/slurmd",
    },
}
"""What is left on a host, as commands of a shell: the run makes the host right all the same."""

REFUSED: dict[str, tuple[str, str, str]] = {
    "user of another id": (f"useradd -r -u {OTHER} slurm", "userdel slurm", f"the user slurm has id {OTHER} here"),
    "id of another user": (
        f"useradd -r -u {SLURM} oldslurm",
        "userdel oldslurm",
        f"the user oldslurm has id {SLURM} here, and the user slurm and its group have {SLURM} in this cluster",
    ),
    "group of another id": (
        f"groupadd -r -g {OTHER} slurm",
        "groupdel slurm",
        f"the group slurm has id {OTHER} here, and the user slurm and its group have {SLURM} in this cluster",
    ),
    "id of another group": (
        f"groupadd -r -g {SLURM} oldslurm",
        "groupdel oldslurm",
        f"the group oldslurm has id {SLURM} here, and the user slurm and its group have {SLURM} in this cluster",
    ),
    "id of the jobs": (
        f"useradd -r -u {JOBS} somebody",
        "userdel somebody",
        f"the user somebody has id {JOBS} here, and the user slurm-check and its group have {JOBS} in this cluster",
    ),
    "directory of a stranger": (
        f"{MUNGES} -d /var/lib/slurm/slurmd",
        "rm -r /var/lib/slurm",
        f"/var/lib/slurm/slurmd is {OTHER}:{OTHER} 0755, so that other users could replace what is in it",
    ),
    "newer version": (
        "mkdir -p /var/lib/gpucluster-slurm; echo 99 >/var/lib/gpucluster-slurm/version",
        "rm -r /var/lib/gpucluster-slurm",
        "found 99",
    ),
    "another cluster": (
        "mkdir -p /etc/slurm; printf 'ClusterName=other\\nSlurmctldHost=elsewhere\\n' >/etc/slurm/slurm.conf",
        "rm -r /etc/slurm",
        "other",
    ),
}
"""What is left, the command that removes it, and the reason for which the run refuses the host."""


@pytest.fixture(scope="module", name="job", autouse=True)
def load_of_alice(lab: Lab) -> Iterator[str]:
    """A job that runs until the last test, and alice, who submits others."""
    with jobs_of_alice(lab) as job:
        yield job


@pytest.fixture(name="larger", scope="module")
def cluster_with_more(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The cluster with one node more, and a directory of the site's choice; then the cluster as it was."""
    cluster = {
        **lab.cluster,
        "nodes": [*lab.cluster["nodes"], {"hosts": MORE, "hardware": "container", "address": "10.213.7.196"}],
        "slurm_conf": {
            **lab.cluster["slurm_conf"],
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": "/srv/slurm-log/completions",
        },
    }
    lab.command(FIRST, f"{OWN} -d /srv/slurm-log")
    larger = with_cluster(lab, tmp_path_factory.mktemp("larger"), cluster)
    yield larger
    site(larger, "-e", f"remove_nodes={MORE}", playbook="remove_nodes")
    succeeded(site(lab), FIRST_SERVES)


def test_a_bare_standby_joins_while_the_primary_serves(lab: Lab, job: str) -> None:
    """The state directory, which outlives it, belongs to the id of a user that the bare host does not have."""
    lose(lab, SECOND)
    assert lab.host(SECOND).run("getent passwd slurm").rc == 2
    assert lab.command(SECOND, f"stat -c %u {STATE}") == str(SLURM)
    refused = lab.playbook("restore")
    assert "Nothing is lost" in str(refused.failed), refused.output[-3000:]
    started = lab.command(FIRST, "systemctl show -P ActiveEnterTimestamp slurmctld")
    succeeded(site(lab), FIRST_SERVES)
    assert lab.command(FIRST, "systemctl show -P ActiveEnterTimestamp slurmctld") == started
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


@pytest.mark.parametrize("left", REFUSED)
def test_what_would_make_a_host_wrong_is_refused_before_anything_is_changed(lab: Lab, larger: Lab, left: str) -> None:
    plant, remove, reason = REFUSED[left]
    lab.command(MORE, plant)
    try:
        run = site(larger, f"--limit={MORE},{FIRST},{SECOND}", "--check")
        assert reason in str(run.failed), run.failed
        assert MORE not in run.changed
    finally:
        lab.command(MORE, remove)


def test_what_is_left_of_an_earlier_installation_is_made_right(lab: Lab, larger: Lab) -> None:
    """All at once, on hosts of each kind: one run makes them right, and the next one changes nothing."""
    stop_load(lab)
    lab.command(FIRST, "slurm-backup run")
    lab.command(DATABASE, "slurm-backup run")
    lose(lab, *LEFT)
    start_load(lab)
    for host, commands in LEFT.items():
        lab.script(host, "sh -e", "\n".join(f"({command})" for command in commands.values()).encode())
    run = site(larger, playbook="restore")
    succeeded(run, FIRST_SERVES)
    second = site(larger)
    succeeded(second, FIRST_SERVES)
    assert second.changed == {}
    for node in (MORE, NODE):
        lab.wait_until_idle(LOGIN, node)
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    assert lab.command(SECOND, f"stat -c %u {STATE}") == str(SLURM)
    assert lab.command(MORE, "munge --no-input | unmunge | grep -c Success") == "1"


def test_each_job_ran_once(lab: Lab, job: str) -> None:
    each_job_ran_once(lab, job, 30)
