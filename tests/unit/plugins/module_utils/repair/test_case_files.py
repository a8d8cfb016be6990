# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases are kept for root alone, go on after a kill, and end by age."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import named
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_evidence import SavedEvidence, collect
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_files import KINDS, CaseFileError, CaseFiles
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.cases import RETURNED, Fault, NodeCase, opened

# No part of ansible-core takes part.
pytestmark = pytest.mark.once


def case_of(number: int) -> NodeCase:
    return opened(number, f"n{number}", [Fault(named("xid-79"), "GPU has fallen off the bus")], 1e9 + number)


def evidence_of(node: str, directory: Path) -> SavedEvidence:
    own = collect(node, Tree(str(directory)), "b1", [], "", 1e9)
    return SavedEvidence(own, [{"JobID": "7"}], {"NodeName": node})


@pytest.fixture(name="files")
def files_of_a_controller(tmp_path: Path) -> CaseFiles:
    files = CaseFiles(str(tmp_path / "repair"))
    files.make()
    files.make()
    return files


def test_cases_and_evidence_are_kept(files: CaseFiles, tmp_path: Path) -> None:
    evidence = evidence_of("n10", tmp_path)
    for number in (2, 10):
        files.write(case_of(number))
    files.write(replace(case_of(2), held="root"))
    files.write_evidence(10, evidence)
    assert [(case.number, case.held) for case in files.read()] == [(2, "root"), (10, "")]
    assert (files.evidence(10), files.evidence(2)) == (evidence, None)


def test_nobody_else_reads_them(files: CaseFiles) -> None:
    files.write(case_of(1))
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in files.directory.rglob("*")}
    assert modes == {**dict.fromkeys(KINDS, "0o700"), "1.json": "0o600"}


def test_a_kill_leaves_the_case_as_it_was(files: CaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(case_of(1))

    def kill(*_arguments: object, **_names: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.rename", kill)
    with pytest.raises(KeyboardInterrupt):
        files.write(replace(case_of(1), held="root"))
    assert [case.held for case in files.read()] == [""]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("1.json", "{", "1.json: "),
        ("1.json", "[]", "found no object of JSON"),
        ("1.json", "{}", "no case: "),
        ("a.json", "{}", "found a, allowed: the number of a case"),
    ],
)
def test_a_file_that_is_no_case_stops_the_round(files: CaseFiles, name: str, text: str, said: str) -> None:
    (files.directory / "cases" / name).write_text(text)
    with pytest.raises(CaseFileError, match=said):
        files.read()


def test_a_case_under_another_number_stops_the_round(files: CaseFiles) -> None:
    files.write(case_of(1))
    (files.directory / "cases/1.json").rename(files.directory / "cases/2.json")
    with pytest.raises(CaseFileError, match=r"2\.json: found the case 1"):
        files.read()


def test_ended_cases_are_forgotten_by_age(files: CaseFiles, tmp_path: Path) -> None:
    """An open one is not, nor the last one, whose number would be given again."""
    for number in (1, 2, 3, 4):
        files.write(case_of(number) if number == 2 else replace(case_of(number), state=RETURNED, since=1e9))
        files.write_evidence(number, evidence_of("n1", tmp_path))
    assert files.forget(1e9) == []
    assert files.forget(1e9 + 1) == [1, 3]
    assert sorted(path.name for path in files.directory.rglob("*.json")) == ["2.json", "2.json", "4.json", "4.json"]
