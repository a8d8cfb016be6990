# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's tables of Slurm's parameters, and its view of the values in force, against the hosts' Slurm."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.drift import differences
from check_parameters import compare
from lab import Lab


@pytest.mark.parametrize(("which", "at_least"), [("controller", 400), ("node", 10)])
def test_slurm_says_the_same_of_its_parameters(lab: Lab, which: str, at_least: int) -> None:
    host = lab.controller if which == "controller" else lab.nodes[-1]
    found = compare(lambda script, archive: lab.script(host, script, archive).decode())
    assert not found.differences
    assert found.keys >= at_least


def test_slurmctld_has_in_force_what_its_files_say(lab: Lab) -> None:
    file = lab.command(lab.controller, "cat /etc/slurm/slurm.conf")
    version = lab.command(lab.controller, "slurmctld -V").split()[1]
    config = lab.command(lab.controller, "scontrol show config")
    nodes = lab.command(lab.controller, "scontrol --all --future --oneliner show node")
    partitions = lab.command(lab.controller, "scontrol --all --oneliner show partition")
    assert differences(read({"slurm.conf": file}), config, nodes, partitions, version) == []
    other = read({"slurm.conf": f"{file}\nKillWait=4711\nNodeName=more\n"})
    found = differences(other, config, nodes, partitions, version)
    assert {line.partition(":")[0] for line in found} >= {"slurm.conf KillWait", "NodeName=more"}
