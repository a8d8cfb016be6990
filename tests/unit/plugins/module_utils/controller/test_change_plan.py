# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Slurm's files: the reconfigure or restarts that they need, and the jobs that they end."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    ConfigurationChange,
    changes,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import (
    JobPlacement,
    parts_daemons,
    read_at_start,
    removed_nodes,
    steps,
    table,
)
from slurm_confs import OLD, edited

JOBS = [
    JobPlacement("7", "gpu", frozenset({"n1", "n2"}), True),
    JobPlacement("8", "gpu", frozenset({"n2"}), False),
    JobPlacement("9", "old,gpu", frozenset(), False),
]


@pytest.mark.parametrize(
    ("replacements", "ends"),
    [
        ([("KillWait=30", "KillWait=60")], ()),
        ([("Weight=3", "Weight=4")], ()),
        ([("=1000", "=900")], ()),
        ([("CoresPerSocket=4", "CoresPerSocket=8")], ("7", "8")),
        ([("Gres=gpu:2", "Gres=gpu:1")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[2-4] NodeAddr=10.0.0.[2-4]")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]")], ()),
        ([("PartitionName=old Nodes=n5\n", "")], ("9",)),
        ([("Nodes=n[1-4] Default", "Nodes=n[3-4] Default")], ()),
        ([("ClusterName=demo", "ClusterName=other")], ("7", "8")),
        ([("KillWait=30", "ProctrackType=proctrack/linuxproc")], ("7", "8")),
    ],
)
def test_jobs_that_a_change_would_end(replacements: list[tuple[str, str]], ends: tuple[str, ...]) -> None:
    found = steps(edited(*replacements), JOBS, "24.11.5")
    assert {number for step in found for number in step.ends} == set(ends)


def test_nodes_that_are_removed() -> None:
    found = steps(edited(("n[5-6]", "n[6-7]"), ("KillWait=30", "")), [], "24.11.5")
    assert removed_nodes(found) == {"n5"}


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize(
    "replacement",
    [
        ("KillWait=30", "KillWait=60"),
        ("KillWait=30", "SlurmdPort=7000"),
        ("KillWait=30", "TaskPlugin=task/affinity"),
        ("n[5-6]", "n[5-7]"),
        ("Weight=3", "Weight=4"),
        ("Weight=3", "Port=7000"),
        ("RealMemory=2000", "RealMemory=2001"),
        ("PartitionName=old", "NodeSet=some Nodes=n1\nPartitionName=old"),
    ],
)
def test_what_slurmd_reads_at_its_start_changes_when_it_is_to_be_restarted(
    replacement: tuple[str, str], version: str
) -> None:
    old, new = (read({"slurm.conf": text}) for text in (OLD, OLD.replace(*replacement)))
    restart = any("slurmd" in step.needs.restart for step in steps(changes(old, new), [], version))
    assert restart == (read_at_start(old, "slurmd", version) != read_at_start(new, "slurmd", version))


def test_what_slurmd_reads_at_its_start_is_what_an_administrator_knows() -> None:
    found = read_at_start(read({"slurm.conf": OLD + "SlurmdPort=7000\nKillWait=1\n"}), "slurmd", "24.11.5")
    assert found.splitlines() == ["ClusterName=demo", "SlurmdPort=7000"]


@pytest.mark.parametrize(("key", "expected"), [("SlurmdPort", True), ("KillWait", False), ("TaskPlugin", False)])
def test_daemons_that_do_not_understand_each_other_for_a_while(key: str, expected: bool) -> None:
    assert parts_daemons(steps([ConfigurationChange("slurm.conf", "", key, "1", "2")], [], "24.11.5")) is expected


def test_table() -> None:
    found = steps(edited(("KillWait=30", "KillWait=60"), ("Gres=gpu:2", "Gres=gpu:1")), JOBS, "24.11.5")
    assert table(found) == [
        "slurm.conf KillWait   30 -> 60        reconfigure",
        "NodeName=n[1-4] Gres  gpu:2 -> gpu:1  reconfigure, no job on these nodes  ENDS JOBS 7",
    ]


def test_lines_of_plugstack_conf_are_compared_by_their_plugin() -> None:
    old = read({"plugstack.conf": "# plugins\ninclude /etc/slurm/plugstack.conf.d/*.conf\noptional a.so x=1\n"})
    new = read({"plugstack.conf": "required  a.so  x=1 y\noptional b.so  # new\n"})
    assert [" ".join(line.split()) for line in table(steps(changes(old, new), [], "24.11"))] == [
        "plugstack.conf required=a.so optional x=1 -> required x=1 y reconfigure",
        "plugstack.conf optional=b.so (none) -> optional reconfigure",
        "plugstack.conf include=/etc/slurm/plugstack.conf.d/*.conf include -> (none) reconfigure",
    ]
    assert {step.needs.restart for step in steps(changes(old, new), [], "22.05")} == {("slurmd",)}
