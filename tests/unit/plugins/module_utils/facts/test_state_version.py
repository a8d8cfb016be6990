# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of what the collection keeps on a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.state_version import (
    FILE,
    TEXT,
    VERSION,
    newer_state_lines,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree


@pytest.mark.parametrize(
    ("text", "version"),
    [(TEXT, VERSION), ("7\n", 7), ("7", 7), ("", 0), ("seven\n", 0), ("-1\n", 0), ("1 7\n", 0), ("9" * 4096, 0)],
)
def test_the_version_of_a_host(tmp_path: Path, text: str, version: int) -> None:
    file = tmp_path / FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert read(Tree(str(tmp_path))) == version


def test_a_host_that_no_collection_has_given_a_version(tmp_path: Path) -> None:
    assert read(Tree(str(tmp_path))) == 0


def test_hosts_of_this_collection_and_of_earlier_ones_are_taken() -> None:
    assert newer_state_lines({"head": 0, "n1": VERSION}) == []
    assert newer_state_lines({"head": 2, "n1": 3}, known=3) == []


def test_hosts_of_a_newer_collection_are_named_with_both_versions() -> None:
    lines = newer_state_lines({"head": 4, "n1": 3, "n2": 4, "n3": 0}, known=3)
    assert lines[0].startswith("Nothing was changed, because a newer version of this collection")
    assert lines[1:-1] == ["head,n2: found 4, allowed: up to 3"]
