# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All readers of `Reason=TEXT [USER@TIME]` in a line of `scontrol --oneliner show node` find the same.

A person's words can look like a user and a time, or like other fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import scontrol
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import controller_facts
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import report_collector as collect
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import metric_nodes
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling import next_nodes

pytestmark = pytest.mark.once

WHEN = "1795817005"
NODE = (
    "NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUEfctv=8 CPUTot=8 Gres=gpu:h100:8 NodeAddr=10.0.0.1 OS=Linux 6.12 #1 SMP  "
    "RealMemory=1000 AllocMem=0 FreeMem=900 State=IDLE+DRAIN Partitions=main  CurrentWatts=0 AveWatts=0 Reason="
)


class Case(NamedTuple):
    """What is behind `Reason=`, and what it means."""

    line: str
    reason: str
    user: str = "root"
    since: str = WHEN


CASES = {
    "plain": Case(f"fan broken [root@{WHEN}]", "fan broken"),
    "a user and a time": Case(f"as in [bob@20785] [root@{WHEN}]", "as in [bob@20785]"),
    "words behind them": Case(f"[bob@5] and [eve@6] say so [root@{WHEN}]", "[bob@5] and [eve@6] say so"),
    "without a blank": Case(f"see x[bob@20785] [root@{WHEN}]", "see x[bob@20785]"),
    "a user of a domain": Case(f"fan [root@{WHEN}]".replace("root", "bob@corp.example"), "fan", "bob@corp.example"),
    "other fields": Case(f"was State=IDLE Partitions=all [root@{WHEN}]", "was State=IDLE Partitions=all"),
    "further lines": Case(f"fan [root@{WHEN}]        State=DOWN as in [bob@5]", "fan"),
    "a comment": Case(f"see [bob@5] [root@{WHEN}] Comment=ask [eve@6] Extra=x", "see [bob@5]"),
    "other fields of Slurm": Case(f"fan [root@{WHEN}] InstanceId=i InstanceType=t ReservationName=r", "fan"),
    "no time": Case("fan broken", "fan broken", "", ""),
    "blanks": Case(f"fan{' ' * 9}broken [root@{WHEN}]", f"fan{' ' * 9}broken"),
}


def by_metrics(line: str) -> tuple[str, ...]:
    (node,) = metric_nodes.read_nodes(line)
    return node.reason, node.user, str(node.since or "")


def by_report(line: str) -> tuple[str, ...]:
    (drain,) = collect.read_drains(collect.read_nodes(line), {})
    assert drain["state"] == "IDLE+DRAIN"
    return drain["reason"], drain["by"], drain["since"] or ""


def by_doctor(line: str) -> tuple[str, ...]:
    (record,) = scontrol.records(line)
    node = controller_facts.read_node(record, {})
    assert node.states == ("IDLE", "DRAIN")
    return node.reason, node.user, node.since


def by_rolling(line: str) -> tuple[str, ...]:
    (record,) = scontrol.records(line)
    node = next_nodes.node_of(record)
    assert node.partitions == ("main",)
    return node.reason, node.user


def by_modules(line: str) -> tuple[str, ...]:
    (record,) = scontrol.records(line)
    assert record["State"] == "IDLE+DRAIN"
    return tuple(scontrol.reason_of(record))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("read", [by_metrics, by_report, by_doctor, by_rolling, by_modules])
def test_all_readers_find_the_same(read: Callable[[str], tuple[str, ...]], name: str) -> None:
    case = CASES[name]
    since = collect.read_time(case.since) or "" if read is by_report else case.since
    expected = (case.reason, case.user, since)
    found = read(NODE + case.line)
    assert found == expected[: len(found)]
