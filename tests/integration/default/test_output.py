# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of runs as an administrator sees it, with the ansible.cfg of the collection and into a file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import HEALTH_PROGRAM
from lab import ROOT, Lab

MOST = 14
"""Lines of a run that changes nothing."""
CALLBACK = "gpucluster.slurm.progress"


def output(lab: Lab, playbook: str, *arguments: str, callback: str = CALLBACK) -> tuple[int, list[str]]:
    """The exit status of a playbook, and the lines that it prints."""
    run = subprocess.run(
        ["ansible-playbook", f"gpucluster.slurm.{playbook}", f"--inventory={lab.inventory}", *arguments],
        cwd=ROOT,
        env=lab.environment | {"ANSIBLE_STDOUT_CALLBACK": callback, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout.strip("\n").split("\n")


@pytest.fixture(name="converged", scope="module")
def lines_of_a_run_that_changes_nothing(lab: Lab) -> list[str]:
    status, lines = output(lab, "site")
    assert status == 0, "\n".join(lines)
    if any(line.startswith("changed") for line in lines):  # an earlier test has left something to repair
        status, lines = output(lab, "site")
    return lines


def test_a_converged_run_fits_into_a_look(converged: list[str]) -> None:
    assert re.fullmatch(r"Nothing to change on 4 hosts \(\d+:\d\d\)\.", converged[-1]), "\n".join(converged)
    assert len(converged) <= MOST, "\n".join(converged)
    assert [line for line in converged if re.fullmatch(r"ok +\d+:\d\d +4 of 4 +Gather facts", line)]
    assert "\x1b" not in "\n".join(converged)


def test_the_jobs_that_passed_are_a_number(converged: list[str]) -> None:
    (line,) = [line for line in converged if "jobs passed" in line]
    (passed, whole) = re.findall(r"(\d+) of (\d+) jobs passed", line)[0]
    assert passed == whole


def test_a_failure_is_in_the_words_of_the_daemon_and_comes_last(lab: Lab) -> None:
    status, lines = output(lab, "site", '--extra-vars={"slurm_conf": {"NoSuchParameter": 1}}')
    assert status != 0
    assert lines[-2].startswith("Failed: "), "\n".join(lines)
    assert lines[-1].startswith("Failed first, in Check the model: "), "a refusal for the whole run names no host"
    assert "NoSuchParameter" in lines[-1]
    assert not any(word in "\n".join(lines) for word in ("Origin:", "Traceback", "fatal:"))


@pytest.fixture(name="without_program")
def a_node_without_its_health_check(lab: Lab) -> Iterator[str]:
    node, program = lab.nodes[-1], HEALTH_PROGRAM
    lab.command(node, f"mv {program} /root/kept-program")
    yield node
    lab.command(node, f"mv /root/kept-program {program}")


@pytest.mark.rare  # half a minute
def test_a_check_shows_settings_and_one_line_for_a_program(lab: Lab, without_program: str) -> None:
    status, lines = output(lab, "site", "--check", "--diff", '--extra-vars={"slurm_conf": {"KillWait": 31}}')
    assert status == 0, "\n".join(lines)
    assert "+KillWait=31" in lines
    (line,) = [line for line in lines if "of gpucluster.slurm, new, " in line]
    assert line.endswith("(-v shows them)")
    assert any(re.fullmatch(r"Would change \d of 4 hosts \(\d+:\d\d\):", line) for line in lines)
    assert any(line.startswith("    Compute nodes") and without_program in line for line in lines)


@pytest.mark.rare  # half a minute
def test_verbose_output_is_ansibles_own(lab: Lab) -> None:
    """What a run prints is for people; -v is for the search of a fault."""
    status, lines = output(lab, "site", "-v", "--tags=compute")
    assert status == 0
    assert any(line.startswith("TASK [") for line in lines)
    assert any(line.startswith("PLAY RECAP") for line in lines)
    assert re.match(r"(Nothing to change|Changed) ", [line for line in lines if not line.startswith(" ")][-1])
