# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of docs/admin/failures.md: each row has tests, and each of them exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="page")
def module_of_the_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("failures_page")


def parameters(path: Path) -> set[object]:
    """The constants in a file of tests: texts among them may be names of parameters."""
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}


def test_each_row_has_tests_that_exist(page: Any) -> None:
    assert [row.failure for row in page.FAILURES if not all(row)] == []
    for test in {test for row in page.FAILURES for test in row.tests}:
        file, _colons, rest = test.partition("::")
        name, _bracket, parameter = rest.removesuffix("]").partition("[")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test
        assert not parameter or parameter in parameters(ROOT / file), test


def test_each_test_of_failures_is_in_a_row(page: Any) -> None:
    shown = {test.partition("[")[0] for row in page.FAILURES for test in row.tests}
    for file in ("test_failures.py", "test_database_away.py"):
        path = f"tests/integration/faults/{file}"
        assert {f"{path}::{name}" for name in re.findall(r"^def (test_\w+)", (ROOT / path).read_text(), re.M)} <= shown


def test_the_page_is_current(page: Any) -> None:
    """`make docs` writes it."""
    assert page.PAGE.read_text() == page.page()
