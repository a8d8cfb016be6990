# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drained node is measured by slurm-repair, while nobody else can use it."""

from __future__ import annotations

from lab import Lab

REASON = "fans are replaced"


def measure_a_drained_node(lab: Lab, controller: str, node: str) -> str:
    """Drain a node, and measure it. Returns what slurm-repair has said. A job of a user waits meanwhile."""
    lab.command(controller, f"scontrol update NodeName={node} State=DRAIN Reason='{REASON}'")
    job = lab.command(controller, f"sbatch --parsable --nodelist={node} --output=/dev/null --wrap=true").strip()
    try:
        answer = lab.host(controller).run(f"slurm-repair measure {node}")
        assert answer.stdout.rstrip().split("\n")[-1].startswith(f"{node}: "), answer
        record = lab.command(controller, f"scontrol --oneliner show node {node}")
        assert "+DRAIN" in record
        assert f"Reason={REASON} [root@" in record
        assert "No reservations" in lab.command(controller, "scontrol show reservation")
        assert lab.command(controller, f"squeue --noheader --format=%T --jobs={job}").strip() == "PENDING"
        return str(answer.stdout)
    finally:
        lab.command(controller, f"scancel {job}; scontrol update NodeName={node} State=RESUME")
