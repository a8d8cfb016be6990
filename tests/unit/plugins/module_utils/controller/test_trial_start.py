# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message of a second slurmctld that does not start. Its output is that of Slurm 24.11.5."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.trial_start import cause

ALWAYS = [
    "error: Job accounting information gathered, but not stored",
    "slurmctld version 24.11.5 started on cluster ha(0)",
    "error: PriorityWeightAge can only be used with SlurmDBD, ignoring",
    "error: PriorityWeightFairshare can only be used with SlurmDBD, ignoring",
    "error: Could not open job state file state/job_state: No such file or directory",
    "error: NOTE: Trying backup state save file. Jobs may be lost!",
]


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (
            """
error: Couldn't find the specified plugin name for none looking at all files
error: cannot find sched plugin for none
error: cannot create sched context for none
error: failed to initialize sched plugin
fatal: Failed to initialize the various schedulers
""",
            "fatal: Failed to initialize the various schedulers; error: failed to initialize sched plugin;"
            " error: cannot create sched context for none; error: cannot find sched plugin for none",
        ),
        (
            """
error: _find_node_record: lookup failure for node "nope"
build_part_bitmap: invalid node name nope in partition
fatal: Invalid node names in partition q
error: slurmscriptd: the other end has gone
""",
            "fatal: Invalid node names in partition q; error: slurmscriptd: the other end has gone;"
            ' error: _find_node_record: lookup failure for node "nope"',
        ),
        (
            "error: s_p_parse_file: cannot stat file topology.conf: No such file or directory, retrying in 1sec",
            "error: s_p_parse_file: cannot stat file topology.conf: No such file or directory, retrying in 1sec",
        ),
    ],
)
def test_the_line_that_ends_it_comes_first(end: str, message: str) -> None:
    assert cause([*ALWAYS, *end.strip().splitlines()]) == message


def test_the_last_lines_if_none_is_an_error() -> None:
    assert cause(["one", "two", "three", "four"]) == "two; three; four"
