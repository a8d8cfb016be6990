# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of files that follow from the registry of the cluster file's keys."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TOOLS = Path(__file__).parents[1] / "tools"


def test_the_parts_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` writes them."""
    monkeypatch.syspath_prepend(TOOLS)
    files = importlib.import_module("key_files").files()
    assert [path for path, text in files.items() if path.read_text() != text] == []
