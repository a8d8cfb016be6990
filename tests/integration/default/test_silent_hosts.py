# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that answer ssh and then nothing, or without end: site.yml goes on without them and names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lab import Lab, container, podman

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
