# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what follows from the table of findings.    usage: python tests/tools/findings_page.py [--check]

That is docs/admin/findings.md, and the Xids of the alert GpuclusterGpuXid. With --check nothing is written, and the
exit status is 1 if one is not current.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import (
    JOB,
    NODE,
    OTHERS,
    SHARED,
    XIDS,
    NodeFinding,
    draining_xids,
)
from generated_files import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/admin/findings.md"
ALERTS = ROOT / "roles/slurm_metrics/files/rules/alerts.yml"
EXPRESSION = re.compile(r"(- alert: GpuclusterGpuXid\n +expr: \|-\n)(?: +(?:or )?DCGM_FI_DEV_XID_ERRORS.*\n)+")

HEAD = """# What the health check finds on a node

<!-- `make docs` writes this page from plugins/module_utils/health/finding_table.py -->

The [health check](../../roles/slurm_health/README.md) reads the kernel's messages, of the journal and of the kernel
itself, and asks the driver (`nvidia-smi -q -x`). What it has seen stays in a record, whatever happens to the messages,
until one of these ends it:

- a boot after which the driver answers, for the actions reset, reboot and power cycle;
- the driver: it asks for no recovery (`GPU Recovery Action: None`), or no longer says what it said. What it answers
  wins over the table;
- another GPU at the same place (UUID and serial), for the action replace;
- the port, which is up with its rate again;
- a person: `slurm-health --close xid-48`. `slurm-health --list` shows all, with what ended them.

Classes: a finding of the **node** drains it. One of a **job** is the fault of a program, and drains nothing. One is
**shared** if many nodes can have it at once. Severities: **now**: jobs on the node cannot go on; **after**: they go on;
**warn**: the node takes jobs as before. PCIe, fabric, a port without a link, heat, clocks and
what a job leaves count after two runs in a row.

`slurm_health_xids` adds Xids that drain.

Nodes are seen every five minutes, and at jobs with GPUs (`slurm_health_at_jobs`, from Slurm 23.11 on). Before a job,
`slurm-prolog` reads the record and the kernel's messages: a node with a finding that drains is drained, a job of
`sbatch` goes back to the queue, and one of `srun` or `salloc` ends. After a job, `slurm-epilog` asks the driver what it
has left.

Of AMD's GPUs, only the kernel's messages are read, and amd-smi is not asked: PCIe, heat, clocks and what a job leaves
are not seen there.

| NodeFinding | Class | Severity | Action | What it is |
|---|---|---|---|---|
"""


def row(name: str, finding: NodeFinding, means: str) -> str:
    """A line of the table."""
    drains = finding.severity if finding.kind != JOB else ""
    return f"| {name} | {finding.kind} | {drains} | {finding.action} | {means} |"


def rows() -> list[str]:
    """The lines: Xids with the same consequences in one."""
    order = {NODE: 0, SHARED: 1, JOB: 2}

    def weight(finding: NodeFinding) -> tuple[int, str, str]:
        return order[finding.kind], finding.severity, finding.action

    found = []
    for _weight, group in groupby(
        sorted(XIDS.items(), key=lambda item: (weight(item[1]), item[0])), lambda item: weight(item[1])
    ):
        members = [*group]
        numbers = ", ".join(str(number) for number, _finding in members)
        means = "; ".join(dict.fromkeys(finding.means.rstrip(".") for _number, finding in members))
        found.append(row(f"Xid {numbers}", members[0][1], f"{means}."))
    return found + [
        row(f"`{one.name}`", one, one.means) for one in sorted(OTHERS.values(), key=lambda one: order[one.kind])
    ]


def alerts() -> str:
    """The rules of alerts with the Xids of the table."""
    terms = [f"DCGM_FI_DEV_XID_ERRORS == {number}" for number in draining_xids()]
    lines = [" or ".join(terms[place : place + 3]) for place in range(0, len(terms), 3)]
    indent = " " * 10
    text = "".join(f"{indent}{'or ' if number else ''}{line}\n" for number, line in enumerate(lines))
    return EXPRESSION.sub(lambda found: found[1] + text, ALERTS.read_text())


if __name__ == "__main__":
    run({PAGE: HEAD + "\n".join(rows()) + "\n", ALERTS: alerts()})
