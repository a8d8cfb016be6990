# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that answer ssh and then nothing, or without end: site.yml goes on without them and names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, container, podman, with_cluster

RC = "/home/admin/.bashrc"
"""bash reads it also for a command that comes over ssh. The hosts of the lab share it."""


@contextmanager
def logins_do(lab: Lab, commands: dict[str, str]) -> Iterator[None]:
    """Let a command run on a host instead of what comes over ssh; this is ended without ssh."""
    script = "\n".join(f"[ $HOSTNAME != {host} ] || {command}" for host, command in commands.items())
    inside = ("exec", container(lab.controller), "sh", "-c")
    podman(*inside, f"cp -p {RC} {RC}.kept && echo '{script}' >{RC}")
    try:
        yield
    finally:
        podman(*inside, f"mv {RC}.kept {RC}")


@pytest.mark.rare  # the facts task waits three minutes for the silent host
def test_hosts_that_hang_or_answer_without_end_are_left_out(lab: Lab) -> None:
    silent, loud = lab.nodes[0], lab.login
    with logins_do(lab, {silent: "exec sleep 1234", loud: "exec yes"}):
        run = lab.playbook("site")
    assert run.failed.keys() == {silent, loud}, run.failed
    assert "slurm_host_facts did not answer within 180 s" in run.failed[silent][0]
    assert "The host answered one command with more than 16 MiB" in run.failed[loud][0]
    assert len(run.output) < 2_000_000
    others = {*lab.hosts} - {silent, loud}
    assert {name for name in others if run.stats[name]["ok"] > 5 and not run.stats[name]["failures"]} == others


# -- hosts that go silent in the middle, and broken nodes --------------------------------------------------------------


@contextmanager
def paused(host: str) -> Iterator[None]:
    """The kernel of a host answers, as that of a machine that hangs can, and none of its processes."""
    podman("pause", container(host))
    try:
        yield
    finally:
        podman("unpause", container(host))


def changed_cluster(lab: Lab, directory: Path, number: int, **keys: Any) -> Lab:
    """The lab with another user on every host, and another limit in the policy, both with this number."""
    people = {"users": [{"name": f"kim{number}", "uid": 7000 + number, "account": "vision"}]}
    accounting = {**lab.cluster["accounting"], "qos": [{"name": "fair", "MaxSubmitJobsPerUser": 9000 + number}]}
    return with_cluster(lab, directory, {**lab.cluster, **people, "accounting": accounting, **keys})


def change_is_on(lab: Lab, number: int, hosts: set[str]) -> bool:
    """Whether these hosts have the user, no other host has it, and the database has the limit."""
    known = {host for host in lab.hosts if host in hosts or not podman_is_paused(host)}
    having = {host for host in known if lab.command(host, f"id -u kim{number} || true").startswith("7")}
    limit = lab.command(lab.controller, "sacctmgr -nP show qos fair format=MaxSubmitJobsPerUser")
    return having == hosts and limit == str(9000 + number)


def podman_is_paused(host: str) -> bool:
    """Whether none of the processes of a host runs."""
    return bool(podman("inspect", "--format={{.State.Status}}", container(host)).strip() == "paused")


RUN_LOCK = "/run/gpucluster-slurm/run"
SILENT = [
    ("compute02", "Acquire the run lock"),
    ("compute02", "Compare the host with the plan"),
    ("login1", "Compare the host with the plan"),
    ("compute01", "Create the users of the plan"),
    ("login1", "Create the users of the plan"),
]


@pytest.mark.rare  # a silent host is waited for a minute
@pytest.mark.parametrize(("number", "silent", "task"), [(number, *each) for number, each in enumerate(SILENT)])
def test_a_host_that_goes_silent_is_left_out_and_named(
    lab: Lab, tmp_path: Path, number: int, silent: str, task: str
) -> None:
    site = changed_cluster(lab, tmp_path, number)
    live = site.start("site", "--skip-tags=validate")
    live.wait_for_task(task)
    with paused(silent):
        run = live.finish()
        nodes = lab.command(lab.controller, "grep ^NodeName /etc/slurm/slurm.conf")
        assert run.rc != 0
        assert run.failed.keys() == {silent}, run.failed
        assert change_is_on(lab, number, {*lab.hosts} - {silent})
        assert "compute[01-02]" in nodes
        lab.command(lab.controller, f"test ! -e {RUN_LOCK}")
    again = site.playbook("site")
    assert (again.rc, again.failed) == (0, {})
    assert change_is_on(lab, number, {*lab.hosts})


@pytest.mark.rare
def test_nodes_with_faults_are_left_out_and_people_and_policy_go_on(lab: Lab, tmp_path: Path) -> None:
    """A GPU is missing on one node; the slurmd of the other one, which is drained, does not start."""
    other, node = lab.nodes
    unit, broken = "/run/systemd/system/slurmd.service.d/zz-broken.conf", "[Service]\\nExecStartPre=/bin/false\\n"
    lab.command(node, "mv /dev/nvidia1 /dev/away")
    lab.command(other, f"mkdir -p $(dirname {unit}) && printf '{broken}' >{unit} && systemctl daemon-reload")
    lab.command(other, "systemctl stop slurmd")
    for state in ("drain", "down"):
        lab.command(lab.controller, f"scontrol update nodename={other} state={state} reason=test")
    try:
        run = changed_cluster(lab, tmp_path, 20).playbook("site", "--skip-tags=validate")
        assert run.rc == 2
        assert run.failed.keys() == {other, node}, run.failed
        assert f"{node}: slurmd would not start: /dev/nvidia1 configured" in str(run.failed[node])
        assert change_is_on(lab, 20, {*lab.hosts} - {node})
        assert "NodeName=compute[01-02]" in lab.command(lab.controller, "cat /etc/slurm/slurm.conf")
    finally:
        lab.command(node, "mv /dev/away /dev/nvidia1")
        lab.command(other, f"rm {unit} && systemctl daemon-reload && systemctl reset-failed slurmd; true")
    again = changed_cluster(lab, tmp_path, 20).playbook("site", "--skip-tags=validate")
    lab.command(lab.controller, f"scontrol update nodename={other} state=resume")
    assert (again.rc, again.failed) == (0, {})
    lab.wait_until_idle(lab.controller, other)
    assert change_is_on(lab, 20, {*lab.hosts})
