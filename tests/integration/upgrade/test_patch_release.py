# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml with a security update of the same release of Slurm, under jobs. The hosts have Slurm 24.11 afterwards as
well, with a later revision, so the tests of the next release go on from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lab import Lab, Run
from security_updates import JOB, LEDGER, REVISION, check_ledger, offered

HOSTS = ["up-ctl", "up-db", "up-login", "up-node1", "up-node2"]
DAEMONS = {"up-ctl": "slurmctld", "up-db": "slurmdbd", "up-login": "sackd", "up-node1": "slurmd", "up-node2": "slurmd"}
KEPT = "/var/lib/gpucluster-slurm/upgrade"
CLIENT = f"""
while test -e /run/stream; do
  job=$(timeout 60 sbatch --parsable -D / -o /dev/null --time=2 --wrap '{JOB}' || echo refused)
  echo "$(date +%s) $job"
  sleep 1
done >/root/jobs
"""
"""Submits a short job each second, and writes down when slurmctld has taken it, or has not."""


@pytest.fixture(scope="module", autouse=True)
def security_update(lab: Lab) -> Iterator[None]:
    """All hosts are offered a security update of Slurm, and no package of the next release."""
    with offered(lab, "slurm-wlm", HOSTS, []):
        yield


def version(lab: Lab, host: str) -> str:
    """The version of Slurm's packages on a host."""
    return str(lab.command(host, "dpkg-query --show --showformat='${Version}' slurm-wlm-basic-plugins"))


@contextmanager
def load(lab: Lab) -> Iterator[None]:
    """Jobs all the time: each that slurmctld has taken begins and ends once. At most two minutes without a new one."""
    lab.script("up-login", f"rm -f {LEDGER}; touch /run/stream; cat >/root/client", CLIENT.encode())
    lab.command("up-login", "systemd-run --unit=client sh /root/client")
    yield
    lab.command("up-login", "rm /run/stream")
    lab.wait_for("up-login", "systemctl is-active client", "inactive", 90)
    lab.wait_for("up-ctl", "echo left=$(timeout 60 squeue --noheader | wc -l).", "left=0.", 180)
    lines = [line.split() for line in lab.command("up-login", "cat /root/jobs").splitlines()]
    taken = [(int(at), job) for at, job in lines if job != "refused"]
    assert len(taken) > 10
    check_ledger(lab, "up-login", [job for _at, job in taken])
    longest = max(later - earlier for (earlier, _), (later, _) in zip(taken, taken[1:], strict=False))
    print(f"{len(taken)} jobs, {len(lines) - len(taken)} refused; at most {longest} s without a new job")
    assert longest < 120


def succeeded(run: Run) -> None:
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]


def test_doctor_names_the_update_and_what_applies_it(lab: Lab) -> None:
    before = version(lab, "up-ctl")
    run = lab.playbook("doctor")
    succeeded(run)
    said = f"slurm     security update, held: {before} -> {before}{REVISION} on up-ctl,up-db,up-login,up-node[1-2]"
    assert said in run.output
    assert "    apply   ansible-playbook gpucluster.slurm.upgrade" in run.output
    for host in HOSTS:
        assert "Inst " not in lab.command(host, "apt-get --simulate upgrade")


def test_a_patch_release_takes_minutes_and_loses_no_job(lab: Lab) -> None:
    before = version(lab, "up-ctl")
    # Without an earlier upgrade there is no directory.
    kept = {host: lab.command(host, f"ls {KEPT} 2>/dev/null || true") for host in ("up-ctl", "up-db")}
    started = {host: lab.command(host, f"systemctl show -P MainPID {daemon}") for host, daemon in DAEMONS.items()}
    with load(lab):
        lab.wait_for("up-login", f"cat {LEDGER}", "start")
        began = time.monotonic()
        run = lab.playbook("upgrade", "--skip-tags=validate")
        print(f"{time.monotonic() - began:.0f} s")
        succeeded(run)
    assert f"Slurm {before} -> {before}{REVISION} on {','.join(HOSTS[:3])},up-node[1-2]" in run.output
    assert "the same protocols, state and database" in run.output
    assert "From here on there is only the way forward" not in run.output
    assert not [task for _host, task, result in run.results if "database, which" in task and not result.get("skipped")]
    assert {host: lab.command(host, f"ls {KEPT} 2>/dev/null || true") for host in kept} == kept
    selections = "dpkg-query -W -f '${source:Package} ${Package} ${db:Status-Want}\\n' | grep '^slurm-wlm'"
    for host, daemon in DAEMONS.items():
        assert version(lab, host) == f"{before}{REVISION}"
        assert lab.command(host, f"systemctl show -P MainPID {daemon}") not in ("0", started[host])
        assert {line.split()[2] for line in lab.command(host, selections).splitlines()} == {"hold"}


def test_nothing_is_left_to_do(lab: Lab) -> None:
    run = lab.playbook("upgrade", "--skip-tags=validate")
    succeeded(run)
    assert run.changed == {}
    assert "slurm     security update" not in lab.playbook("doctor").output
