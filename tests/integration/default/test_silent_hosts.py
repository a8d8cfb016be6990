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
"""bash reads it also for a command that comes over ssh, from its first line on."""


@contextmanager
def login_does(host: str, command: str) -> Iterator[None]:
    """Let a command run instead of what comes over ssh; it is repaired without ssh."""
    podman("exec", container(host), "sh", "-c", f"[ ! -e {RC} ] || cp -p {RC} {RC}.kept; echo '{command}' >{RC}")
    try:
        yield
    finally:
        podman("exec", container(host), "sh", "-c", f"rm {RC}; [ ! -e {RC}.kept ] || mv {RC}.kept {RC}")


@pytest.mark.rare  # the first look waits three minutes for the silent host
def test_hosts_that_hang_or_answer_without_end_are_left_out(lab: Lab) -> None:
    silent, loud = lab.nodes[0], lab.login
    with login_does(silent, "exec sleep 1234"), login_does(loud, "exec yes"):
        run = lab.playbook("site")
    assert run.failed.keys() == {silent, loud}, run.failed
    assert "No answer of slurm_host_facts within 180 s" in run.failed[silent][0]
    assert "The host has answered one command with more than 16 MiB" in run.failed[loud][0]
    assert len(run.output) < 2_000_000
    others = {*lab.hosts} - {silent, loud}
    assert {name for name in others if run.stats[name]["ok"] > 5 and not run.stats[name]["failures"]} == others
    assert lab.playbook("site").failed == {}
