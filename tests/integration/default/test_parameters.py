# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection says of Slurm's parameters, judged by the Slurm that is installed on the hosts."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from judge_parameters import compare
from lab import Lab


@pytest.mark.parametrize(("host", "at_least"), [("head", 400), ("compute01", 10)])
def test_slurm_says_the_same_of_its_parameters(lab: Lab, host: str, at_least: int) -> None:
    def run(script: str, archive: bytes) -> str:
        command = ["ssh", "-F", str(lab.ssh_config), host, f"sudo sh -c {shlex.quote(script)}"]
        return subprocess.run(command, input=archive, stdout=subprocess.PIPE, check=True).stdout.decode()

    found = compare(run)
    assert not found.differences
    assert found.keys >= at_least
