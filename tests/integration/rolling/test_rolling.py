# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rolling.yml while jobs run: free nodes first, busy ones when they become free, checks, failures, kills, a second run.

The tests run in this order. Nodes reboot as in reboots.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from host_variables import VARIABLES, put, readable
from lab import Lab, Run, container, podman, with_cluster
from reboots import power, write_stand_ins
from security_updates import JOB, LEDGER, REVISION, check_ledger, offered

CONTROLLER = "roll-ctl"
NODES = [f"roll-node{number}" for number in range(1, 5)]
NOTE = "/var/lib/gpucluster-slurm/rolling.json"

OLDER = """
cd "$(mktemp -d)"
apt-get download --quiet hello
dpkg-deb --raw-extract hello_*.deb old
sed -i 's/^Version: /&0~/' old/DEBIAN/control
dpkg-deb --build old old.deb
dpkg --install old.deb
"""
"""Installs Debian's package hello with a lower version."""

MARK = """
- name: Leave a mark
  ansible.builtin.shell: date +%s.%N >>/root/rolled
  changed_when: true
"""
BREAKABLE = """
- name: Fail on a broken node
  ansible.builtin.command: test ! -e /root/broken
  changed_when: false
"""
STREAM = f"""
while test -e /run/stream; do
  timeout 60 sbatch --parsable -D / -o /dev/null --time=2 "$@" --wrap '{JOB}' || echo refused
  sleep 1
done >/root/jobs
""".encode()
SLOW = """
- name: Change slowly
  ansible.builtin.command: sleep 5
  changed_when: false
"""
FLOOR = {
    "hardware": "container",
    "test": "disk_write_local",
    "nodes": 1,
    "size": 1 << 30,
    "median": 500.0,
    "spread": 1.0,
    "floor": 50.0,
    "unit": "MB/s",
    "values": 16,
    "measured": "2026-11-28",
}
SLOW_DISK = b'#!/bin/sh\nexec /usr/bin/fio --rate=10m "$@"\n'
"""A stand-in for a slow disk: fio itself writes 10 MB/s at most."""
OTHER = '{"host": "adm2", "user": "alice", "process": "1 1", "since": "2026-11-24 10:02"}'
SEE = """
- name: See the reservation
  ansible.builtin.command: timeout 60 scontrol show reservation
  changed_when: false
"""


@pytest.fixture(autouse=True)
def clean(lab: Lab) -> Iterator[None]:
    """After each test no job runs, no record is left, and all nodes are in service."""
    yield
    podman("start", *map(container, NODES))
    for node in NODES:
        lab.wait_for(node, "systemctl is-active slurmd | grep -x active", "active")
    # Not every test has jobs, and scancel may fail without one.
    lab.command(CONTROLLER, "timeout 60 scancel --user=root; timeout 60 scancel --user=alice; true")
    lab.command(CONTROLLER, f"rm -f {NOTE} /run/gpucluster-slurm/run")
    lab.host(CONTROLLER).run("timeout 60 scontrol delete ReservationName=gpucluster_rolling")
    lab.host(CONTROLLER).run("timeout 60 scontrol update NodeName=roll-node[1-4] State=RESUME")
    for node in NODES:
        lab.command(node, "rm -f /root/rolled /root/broken /usr/local/bin/fio")
        lab.wait_until_idle(CONTROLLER, node)


def tasks(directory: Path, text: str = MARK) -> str:
    """A file of tasks that run on each node; its path."""
    path = directory / "tasks.yml"
    path.write_text(f"---{text}")
    return str(path)


def submit(lab: Lab, node: str, command: str, *options: str) -> int:
    """A job on a node, which runs when this returns; its number."""
    command_line = (
        f"timeout 60 sbatch --parsable -D / -o /dev/null -w {node} --time=30 {' '.join(options)} --wrap '{command}'"
    )
    job = int(lab.command(CONTROLLER, command_line))
    lab.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T", "RUNNING")
    return job


def record(lab: Lab, job: int, wanted: str) -> None:
    """Return when accounting has a job in a state."""
    lab.wait_for(CONTROLLER, f"timeout 60 sacct --noheader -X -P --jobs={job} --format=state", wanted, 60)


def rolled(lab: Lab) -> list[str]:
    """The nodes with the mark."""
    return [node for node in NODES if lab.host(node).file("/root/rolled").exists]


def reason(lab: Lab, node: str) -> str:
    shown = f"timeout 60 sinfo --noheader --Node --format='%N %T %E' | sed -n 's/^{node} //p' | head -1"
    return str(lab.command(CONTROLLER, shown))


@contextmanager
def stream(lab: Lab, option: str = "") -> Iterator[None]:
    """Submit a short job each second. At the end, accounting must have each of them as COMPLETED, and each has begun
    and ended once by its own ledger."""
    start = f"rm -f {LEDGER}; touch /run/stream; cat >/root/stream; systemd-run --unit=stream sh /root/stream {option}"
    lab.script(CONTROLLER, start, STREAM)
    yield
    lab.command(CONTROLLER, "rm /run/stream")
    lab.wait_for(CONTROLLER, "systemctl is-active stream", "inactive", 60)
    jobs = lab.command(CONTROLLER, "cat /root/jobs").split()
    assert len(jobs) > 10
    assert "refused" not in jobs
    record = f"timeout 60 sacct --noheader -X -P --jobs={','.join(jobs)} --format=jobid,state"
    wanted = {f"{job}|COMPLETED" for job in jobs}
    until = time.monotonic() + 120
    while missing := wanted - set((found := lab.command(CONTROLLER, record)).split("\n")):
        assert time.monotonic() < until, f"{len(missing)} of {len(jobs)} jobs have not ended as they should: {found}"
        time.sleep(1)
    check_ledger(lab, CONTROLLER, jobs)


def waiting_job(lab: Lab, node: str) -> int:
    """A job of a user that waits for a node; its number."""
    submit_job = f"timeout 60 sbatch --parsable --uid=alice -D / -o /dev/null -w {node} --time=2 --wrap true"
    job = int(lab.command(CONTROLLER, submit_job))
    assert job_state(lab, job) == "PENDING"
    return job


def job_state(lab: Lab, job: int) -> str:
    return str(lab.command(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T"))


def measurements(lab: Lab, node: str, since: str) -> list[list[str]]:
    """The jobs that have measured a node: state, start and end of each."""
    shown = f"timeout 60 sacct --noheader -X -P --name=accept-node --nodelist={node} --starttime={since}"
    lines = lab.command(CONTROLLER, f"{shown} --format=state,start,end").split("\n")
    return [line.split("|") for line in lines if line]


def now(lab: Lab) -> str:
    return str(lab.command(CONTROLLER, "date +%Y-%m-%dT%H:%M:%S"))


def succeeded(run: Run) -> None:
    assert run.rc == 0, run.failed or run.output[-3000:]


def test_the_plan_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    budget = "{rolling_budget: {small: 1, '*': 50%}}"
    run = lab.playbook("rolling", "--check", "-e", f"rolling_tasks={tasks(tmp_path)}", "-e", budget)
    succeeded(run)
    assert "next      roll-node[1,3]" in run.output
    assert not rolled(lab)
    assert not lab.host(CONTROLLER).file(NOTE).exists
    assert not [name for names in run.changed.values() for name in names if "Begin" not in name]


def test_free_nodes_are_changed_first_and_a_busy_one_when_its_job_ends(lab: Lab, tmp_path: Path) -> None:
    job = submit(lab, "roll-node1", "until test -e /home/go; do sleep 0.5; done")
    run = lab.start("rolling", "-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_budget=2")
    run.wait_for_line(f"waiting   roll-node1: job {job} of root until ")
    assert reason(lab, "roll-node1").startswith(("draining", "drng"))
    lab.wait_for(CONTROLLER, f"cat {NOTE}", "done", 120)
    lab.command(CONTROLLER, "touch /home/go")
    finished = run.finish()
    succeeded(finished)
    lab.command(CONTROLLER, "rm /home/go")
    record(lab, job, "COMPLETED")
    assert rolled(lab) == NODES
    marks = {node: float(lab.command(node, "cat /root/rolled")) for node in NODES}
    assert max(marks, key=lambda node: marks[node]) == "roll-node1"
    assert not lab.host(CONTROLLER).file(NOTE).exists
    assert "drain" not in lab.command(CONTROLLER, "timeout 60 sinfo --noheader --format=%T")


def test_a_node_that_another_one_has_drained_is_left_alone(lab: Lab, tmp_path: Path) -> None:
    lab.command(CONTROLLER, "timeout 60 scontrol update NodeName=roll-node3 State=DRAIN Reason='bad DIMM'")
    run = lab.playbook("rolling", "-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_budget=2")
    succeeded(run)
    assert "left out  roll-node3: drained by a person (bad DIMM)" in run.output
    assert rolled(lab) == ["roll-node1", "roll-node2", "roll-node4"]
    assert reason(lab, "roll-node3") == "drained bad DIMM"


def test_failures_use_up_the_budget_and_the_next_run_goes_on(lab: Lab, tmp_path: Path) -> None:
    lab.command("roll-node1", "touch /root/broken")
    lab.command("roll-node2", "touch /root/broken")
    given = ("-e", f"rolling_tasks={tasks(tmp_path, BREAKABLE + MARK)}", "-e", "rolling_budget=2")
    run = lab.playbook("rolling", *given)
    assert run.rc != 0
    assert "stopped   roll-node[1-2] failed" in run.output
    assert not rolled(lab)
    assert "gpucluster.slurm rolling: failed: Fail on a broken node" in reason(lab, "roll-node1")
    assert reason(lab, "roll-node3").startswith("idle")
    lab.command("roll-node1", "rm /root/broken")
    lab.command("roll-node2", "rm /root/broken")
    succeeded(lab.playbook("rolling", *given))
    assert rolled(lab) == NODES


def test_while_a_rolling_change_waits_site_yml_changes_the_cluster(lab: Lab, tmp_path: Path) -> None:
    job = submit(lab, "roll-node2", "until test -e /home/go; do sleep 0.5; done")
    run = lab.start("rolling", "-e", f"rolling_tasks={tasks(tmp_path, SLOW)}", "-e", "rolling_budget=1")
    # While nodes are changed, site.yml is refused.
    run.wait_for_task("Change slowly")
    refused = lab.playbook("site", "--tags", "base")
    assert "has been running a playbook of this collection on this cluster" in str(refused.failed)
    run.wait_for_line("done      3 of 4")
    succeeded(lab.playbook("site", "--skip-tags", "validate", "-e", "{slurm_conf: {MessageTimeout: 11}}"))
    lab.command(CONTROLLER, "timeout 60 scontrol show config | grep 'MessageTimeout *= 11 sec'")
    assert lab.command(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T") == "RUNNING"
    # A run that has not ended when the job ends is waited for.
    lab.command(CONTROLLER, f"echo '{OTHER}' >/run/gpucluster-slurm/run; touch /home/go")
    run.wait_for_line("waiting   alice on adm2 has been running a playbook of this collection")
    lab.command(CONTROLLER, "rm /home/go /run/gpucluster-slurm/run")
    succeeded(run.finish())
    record(lab, job, "COMPLETED")
    succeeded(lab.playbook("site", "--skip-tags", "validate"))


def test_a_run_that_was_killed_goes_on_and_a_second_one_is_refused(lab: Lab, tmp_path: Path) -> None:
    job = submit(lab, "roll-node2", "until test -e /home/go; do sleep 0.5; done")
    given = ("-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_budget=2")
    run = lab.start("rolling", *given)
    run.wait_for_line("done      3 of 4")
    second = lab.playbook("rolling", *given)
    assert second.rc != 0
    assert "has been running a playbook of this collection on this cluster" in str(second.failed)
    run.kill()
    assert reason(lab, "roll-node2").endswith("gpucluster.slurm rolling: to be changed")
    lab.command(CONTROLLER, "touch /home/go")
    succeeded(lab.playbook("rolling", *given))
    lab.command(CONTROLLER, "rm /home/go")
    record(lab, job, "COMPLETED")
    for node in NODES:
        assert len(lab.command(node, "cat /root/rolled").splitlines()) == 1, f"{node} was changed twice"


def test_a_node_that_is_measured_as_slow_stays_drained_and_no_job_gets_on_a_node_before(
    lab: Lab, tmp_path: Path
) -> None:
    site = with_cluster(lab, tmp_path, lab.cluster)
    (tmp_path / "rolling.baseline.yml").write_text(yaml.safe_dump([FLOOR]))
    lab.script("roll-node2", "cat >/usr/local/bin/fio; chmod 755 /usr/local/bin/fio", SLOW_DISK)
    since = now(lab)
    given = ("-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_budget=4", "-e", "rolling_accept=true")
    run = site.start("rolling", *given, "--limit=roll-ctl,roll-node1,roll-node2")
    run.wait_for_task("Wait for the jobs of this round")
    jobs = {node: waiting_job(lab, node) for node in NODES[:2]}
    finished = run.finish()
    assert finished.rc != 0
    record(lab, jobs["roll-node1"], "COMPLETED")
    start = lab.command(CONTROLLER, f"timeout 60 sacct --noheader -X -P --jobs={jobs['roll-node1']} --format=start")
    # roll-node1 returns after the last measurement of both: it is measured again with a slow node.
    measured = {node: measurements(lab, node, since) for node in NODES[:2]}
    assert {state for found in measured.values() for state, _start, _end in found} == {"COMPLETED"}
    assert len(measured["roll-node2"]) == 3
    assert start >= max(end for found in measured.values() for _state, _start, end in found)
    assert job_state(lab, jobs["roll-node2"]) == "PENDING"
    why = reason(lab, "roll-node2")
    assert why.startswith("drained gpucluster.slurm rolling: failed: disk_write_local writing to the local disk: ")
    assert "less than the baseline of 2026-11-28: floor 50" in why
    assert "gpucluster_rolling" not in lab.command(CONTROLLER, "timeout 60 scontrol show reservation")


def test_a_run_that_was_killed_while_it_measured_goes_on_and_measures_nothing_twice(lab: Lab, tmp_path: Path) -> None:
    since = now(lab)
    given = ("-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_accept=true", "--limit=roll-ctl,roll-node3")
    run = lab.start("rolling", *given)
    run.wait_for_task("Wait for the jobs of this round")
    lab.wait_for(CONTROLLER, "timeout 60 squeue --noheader --name=accept-node --format=%T", "RUNNING")
    run.kill()
    job = waiting_job(lab, "roll-node3")
    finished = lab.playbook("rolling", *given)
    succeeded(finished)
    record(lab, job, "COMPLETED")
    assert "without /" in finished.output
    assert [state for state, _start, _end in measurements(lab, "roll-node3", since)] == ["COMPLETED"]
    assert len(lab.command("roll-node3", "cat /root/rolled").splitlines()) == 1
    assert not lab.host(CONTROLLER).file("/var/lib/gpucluster-slurm/accept/rolling.json").exists


def test_after_the_deadline_jobs_are_requeued_or_left(lab: Lab, tmp_path: Path) -> None:
    stays = submit(lab, "roll-node1", "sleep 900", "--no-requeue")
    again = submit(lab, "roll-node2", "sleep 900", "--requeue")
    given = ("-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "rolling_budget=4")
    run = lab.playbook("rolling", *given, "-e", "rolling_deadline=2026-01-01T00:00")
    assert run.rc != 0
    assert f"left out  roll-node1: after the deadline, job {stays} of root" in run.output
    assert rolled(lab) == NODES[1:]
    assert lab.command(CONTROLLER, f"timeout 60 squeue --noheader --jobs={stays} --format=%T") == "RUNNING"
    assert "Restarts=1" in lab.command(CONTROLLER, f"timeout 60 scontrol show job {again}")
    assert reason(lab, "roll-node1").split()[0] in ("allocated", "mixed")


def test_the_window_is_a_reservation_for_as_long_as_the_run(lab: Lab, tmp_path: Path) -> None:
    window = "{rolling_window: {StartTime: now, Duration: '01:00:00'}}"
    run = lab.playbook("rolling", "-e", f"rolling_tasks={tasks(tmp_path, SEE)}", "-e", window)
    succeeded(run)
    assert "ReservationName=gpucluster_rolling_window" in run.output
    assert "gpucluster_rolling" not in lab.command(CONTROLLER, "timeout 60 scontrol show reservation")


def test_packages_are_installed_and_upgraded_and_no_job_is_lost(lab: Lab) -> None:
    lab.script("roll-node3", "set -e" + OLDER, b"")
    older = lab.command("roll-node3", "dpkg-query --show --showformat='${Version}' hello")
    assert older.startswith("0~")
    with stream(lab):
        succeeded(lab.playbook("rolling", "-e", "{rolling_packages: [hello], rolling_budget: 2}"))
    for node in NODES:
        assert lab.command(node, "dpkg-query --show --showformat='${Version}' hello") == older.removeprefix("0~")


def munge(lab: Lab, node: str) -> str:
    """The version of munge on a node."""
    return str(lab.command(node, "dpkg-query --show --showformat='${Version}' munge"))


def test_security_updates_are_installed_where_they_are_missing_and_no_job_is_lost(lab: Lab) -> None:
    """munge has one on three nodes; somebody holds it on one of them. The fourth node has none, and is not drained."""
    before = {node: munge(lab, node) for node in NODES}
    with offered(lab, "munge", NODES[:3], [NODES[3]]):
        lab.command("roll-node3", "apt-mark hold munge libmunge2")
        for playbook in ("doctor", "validate"):
            run = lab.playbook(playbook)
            succeeded(run)
            assert (
                f"munge     security update: {before['roll-node1']} -> {before['roll-node1']}{REVISION}" in run.output
            )
            assert f"{REVISION} on roll-node[1-2]" in run.output
            assert f"munge     security update, held: {before['roll-node1']} -> " in run.output
            assert "ansible-playbook gpucluster.slurm.rolling -e rolling_packages=security" in run.output
        plan = lab.playbook("rolling", "--check", "-e", "rolling_packages=security")
        succeeded(plan)
        assert "security updates: on roll-node[1-4]; none for roll-node[3-4]" in plan.output
        assert "done      2 of 4: roll-node[3-4]" in plan.output
        with stream(lab):
            run = lab.playbook("rolling", "-e", "rolling_packages=security", "-e", "rolling_budget=1")
        succeeded(run)
        held = lab.command("roll-node3", "apt-mark showhold").split()
        again = lab.playbook("rolling", "-e", "rolling_packages=security")
        succeeded(again)
        assert "done      4 of 4" in again.output
        lab.command("roll-node3", "apt-mark unhold munge libmunge2")
    after = {node: munge(lab, node) for node in NODES}
    assert after == {node: f"{before[node]}{REVISION}" if node in NODES[:2] else before[node] for node in NODES}
    assert {"munge", "libmunge2", "slurmd"} <= {*held}
    assert "slurmd" in lab.command("roll-node1", "apt-mark showhold").split()


def test_a_package_that_apt_does_not_know_drains_no_node(lab: Lab) -> None:
    run = lab.playbook("rolling", "-e", "{rolling_packages: [hallo]}")
    assert run.rc != 0
    assert "Unable to locate package hallo" in run.output
    assert not lab.host(CONTROLLER).file(NOTE).exists


def test_nodes_reboot_and_one_that_does_not_return_counts_against_the_budget(lab: Lab) -> None:
    for node in NODES:
        write_stand_ins(lab, node)
    given = ("-e", "{rolling_reboot: true, rolling_budget: 2, rolling_reboot_timeout: 45}")
    # Nodes without jobs come first. Between two jobs of the stream, the first two nodes can have none.
    for node in NODES[:2]:
        submit(lab, node, "until test -e /home/go; do sleep 0.5; done")
    with stream(lab, "--exclude=roll-node[3-4]"), power("roll-node1", "roll-node2", "roll-node4") as boots:
        live = lab.start("rolling", *given)
        live.wait_for_line("next      roll-node[3-4]")
        lab.command(CONTROLLER, "touch /home/go")
        run = live.finish()
    lab.command(CONTROLLER, "rm /home/go")
    assert run.rc != 0
    assert "failed    roll-node3: Reboot the node: " in run.output
    assert "gpucluster.slurm rolling: failed: Reboot the node: " in reason(lab, "roll-node3")
    assert boots[0] == "roll-node4"
    assert sorted(boots) == ["roll-node1", "roll-node2", "roll-node4"]
    # One failure leaves one place of two.
    assert "next      roll-node[1-2]" not in run.output

    # A person repairs it, and the same command goes on.
    podman("start", container("roll-node3"))
    lab.wait_for("roll-node3", "systemctl is-active slurmd | grep -x active", "active")
    with power(*NODES) as boots:
        succeeded(lab.playbook("rolling", *given))
    assert boots == ["roll-node3"]


def test_variables_of_the_hosts_change_nothing(lab: Lab, tmp_path: Path) -> None:
    """Variables in /etc/environment: a maintenance and a rolling change see the job, and nodes are changed."""
    hosts = (CONTROLLER, *NODES[:3])
    for node in NODES[:3]:
        write_stand_ins(lab, node)
        lab.command(node, "dpkg --remove hello")
    job = submit(lab, "roll-node2", "until test -e /home/go; do sleep 0.5; done")
    soon = lab.command(CONTROLLER, "date --date='10 minutes' +%Y-%m-%dT%H:%M")
    given = ("-e", f"rolling_tasks={tasks(tmp_path)}", "-e", "{rolling_packages: [hello], rolling_budget: 2}")
    with readable(lab, hosts), power(*NODES[:3]) as boots:
        put(lab, hosts, VARIABLES)
        plan = lab.playbook("maintenance", "--check", "-e", f"maintenance_start={soon}", "-e", "maintenance_hours=1")
        run = lab.start("rolling", *given, "-e", "rolling_reboot=true", f"--limit={','.join(hosts)}")
        run.wait_for_line("done      2 of 3: roll-node[1,3]")
        podman("exec", container(CONTROLLER), "touch", "/home/go")
        finished = run.finish()
    lab.command(CONTROLLER, "rm /home/go")
    succeeded(plan)
    assert [one["job"] for one in plan.artifacts["slurm_maintenance"]["running"]["jobs"]] == [str(job)]
    succeeded(finished)
    record(lab, job, "COMPLETED")
    assert boots[2:] == ["roll-node2"]
    assert rolled(lab) == NODES[:3]
    for node in NODES[:3]:
        assert lab.command(node, "dpkg-query --show --showformat='${db:Status-Abbrev}' hello").strip() == "ii"
