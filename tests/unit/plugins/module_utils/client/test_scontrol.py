# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes as scontrol shows them, and the nodes that are not in the wanted state."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import (
    controllers,
    node_record,
    reason_of,
    records,
    serving,
    to_change,
)
from programs import StandIn

NODES = """
NodeName=n1 Arch=x86_64 OS=Linux 6.12 #1 SMP State=IDLE ThreadsPerCore=1 Partitions=main  BootTime=2026-11-21T12:41:08
NodeName=n2 State=IDLE+DRAIN Partitions=main Reason=new DIMMs [root@2026-11-21T19:00:00]
NodeName=n3 State=DOWN* Reason=Not responding [slurm@2026-11-21T19:00:00]
NodeName=n4 State=MIXED+DRAIN+MAINTENANCE Reason=bad fan [root@2026-11-21T19:00:00]
"""


PING = """\
Slurmctld(primary) at head is {}
Slurmctld(backup1) at login1 is {}
Slurmctld(backup2) at login2 is {}
*****************************************
** RESTORE SLURMCTLD DAEMON TO SERVICE **
"""


@pytest.mark.parametrize(
    ("states", "licenses", "serves"),
    [
        (("UP", "UP", "UP"), "", "head"),
        (("DOWN", "UP", "UP"), "No licenses configured in Slurm.\n", "login1"),
        (("DOWN", "DOWN", "UP"), "LicenseName=a\n", "login2"),
        (("DOWN", "UP", "DOWN"), "", ""),  # it has not taken over yet
        (("DOWN", "DOWN", "DOWN"), "No licenses configured in Slurm.\n", ""),
    ],
)
def test_which_controller_serves(stand_in: StandIn, states: tuple[str, ...], licenses: str, serves: str) -> None:
    ping = PING.format(*states)
    stand_in("scontrol", f"case $* in\nping) echo '{ping}' ;;\n'show licenses') printf '{licenses}' ;;\nesac")
    assert serving() == serves
    assert [*controllers(ping)] == ["head", "login1", "login2"]


def test_no_controller_serves_where_there_is_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", str(tmp_path))
    assert serving() == ""


@pytest.mark.parametrize(
    ("state", "reason", "nodes"),
    [
        ("drain", "x", ["n1", "n3"]),
        ("down", "x", ["n1", "n2", "n4"]),
        ("resume", "", ["n2", "n3", "n4"]),
        ("resume", "new DIMMs", ["n2"]),
        ("resume", "something else", []),
    ],
)
def test_nodes_that_are_not_as_wanted(state: str, reason: str, nodes: list[str]) -> None:
    assert [node["NodeName"] for node in to_change(records(NODES), state, reason)] == nodes


def test_reasons_are_without_who_and_when() -> None:
    assert [reason_of(node).text for node in records(NODES)] == ["", "new DIMMs", "Not responding", "bad fan"]


def test_a_comment_that_looks_like_other_fields_changes_none() -> None:
    (node,) = records("NodeName=n1 State=IDLE Comment=x State=DOWN Reason=bad DIMM [root@1]")
    assert node["State"] == "IDLE"


def test_a_node_that_slurm_does_not_know_has_no_record(stand_in: StandIn) -> None:
    stand_in("scontrol", "echo NodeName=gpu01 State=IDLE")
    assert node_record("gpu01")["State"] == "IDLE"
    assert node_record("alias") == {}
    stand_in("scontrol", "echo Node gpu02 not found; exit 1")
    assert node_record("gpu02") == {}
    stand_in("scontrol", "echo 'slurm_load_node error: Unable to contact slurm controller'; exit 1")
    with pytest.raises(CommandError, match=r"show node gpu02: .*Unable to contact"):
        node_record("gpu02")
