# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards for Grafana: places, numbers, expressions and series. mypy checks their types."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from known_series import OF_DASHBOARD_4323, known_series, series_in

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "roles/slurm_metrics/files/dashboards").glob("*.json"))


def panels(file: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard, and the titles of its rows."""
    return list(json.loads(file.read_text())["panels"])


def expressions(file: Path) -> Iterator[tuple[str, str]]:
    """The title of the panel and the expression, for each query of a dashboard."""
    for panel in panels(file):
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def variables(file: Path) -> dict[str, str]:
    """The series of each variable that the reader chooses from."""
    found = {
        variable["name"]: variable["query"]["query"]
        for variable in json.loads(file.read_text())["templating"]["list"]
        if variable["type"] == "query"
    }
    return {name: re.sub(r"label_values\((\w+), \w+\)", r"\1", query) for name, query in found.items()}


@pytest.fixture(name="dashboards")
def module_of_the_dashboards(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("dashboards")


def test_the_files_are_current(dashboards: Any) -> None:
    """`make docs` writes them."""
    assert {path: path.read_text() for path in FILES} == dashboards.files()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_numbers_and_titles_are_there_once(file: Path) -> None:
    for field in ("id", "title"):
        found = [panel[field] for panel in panels(file)]
        assert [value for value in found if found.count(value) > 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_fill_the_rows_and_do_not_overlap(file: Path) -> None:
    taken = []
    for place in (panel["gridPos"] for panel in panels(file)):
        taken += [
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
    assert len(taken) == len(set(taken))
    assert set(taken) == {(x, y) for x in range(24) for y in range(max(y for _x, y in taken) + 1)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_panel_has_a_description_and_the_source_that_the_reader_chooses(file: Path) -> None:
    shown = [panel for panel in panels(file) if panel["type"] != "row"]
    assert [panel["title"] for panel in shown if not panel["description"]] == []
    sources = [part["datasource"]["uid"] for panel in shown for part in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_documents_that_are_named_exist(file: Path) -> None:
    named = re.findall(r"docs/[\w/]+\.md", file.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_variable_is_used_and_a_used_one_is_there(file: Path) -> None:
    used = {name for _title, expression in expressions(file) for name in re.findall(r"\$(\w+)", expression)}
    assert used - {"__rate_interval"} == set(variables(file))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_prometheus_can_parse_each_expression(file: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel{number}", "expr": expression.replace("$__rate_interval", "4m")}
        for number, (_title, expression) in enumerate(expressions(file))
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": file.stem, "rules": rules}]}))
    result = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"{len(rules)} rules found" in result.stdout


def test_names_are_found_in_expressions() -> None:
    assert series_in('max by (a) (b{c=~"d|e"}) / on (f) sum(rate(g:h[5m])) or vector(0) unless i == 1') == {
        "b",
        "g:h",
        "i",
    }


def test_the_dashboards_use_known_series_and_all_of_them() -> None:
    """Each series has a source. Of those that others make, the table has no more than dashboards use."""
    known = known_series()
    used = {name for file in FILES for name in variables(file).values()}
    used |= {name for file in FILES for _title, expression in expressions(file) for name in series_in(expression)}
    assert used - set().union(*known.values()) == set()
    others = set().union(*(series for source, series in known.items() if source != "slurm-metrics"))
    assert others - used == set()


def test_the_sources_have_different_series() -> None:
    every = [name for series in known_series().values() for name in series]
    assert len(every) == len(set(every))
    assert len(OF_DASHBOARD_4323) == 26 + 9
