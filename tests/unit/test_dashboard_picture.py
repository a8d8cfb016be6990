# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/dashboard_picture.py, which draws a dashboard from a Prometheus, and the pictures in docs."""

from __future__ import annotations

import importlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "roles/slurm_metrics/files/dashboards").glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"
START, END = 1_800_000_000.0, 1_800_003_600.0


@pytest.fixture(name="grafana")
def module_of_the_json(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("grafana")


@pytest.fixture(name="drawing")
def module_that_draws(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("dashboard_picture")


class Answers(NamedTuple):
    """A stand-in for Prometheus: labels and values, by expression. Values over time are one for each minute."""

    values: dict[str, list[tuple[dict[str, str], list[float | None]]]]
    start: float = START
    end: float = END
    step: float = 60.0

    def now(self, expression: str) -> list[tuple[dict[str, str], float]]:
        return [(labels, values[-1]) for labels, values in self.values.get(expression, []) if values[-1] is not None]

    def over_time(self, expression: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        return [
            (labels, [(START + 60 * number, value) for number, value in enumerate(values) if value is not None])
            for labels, values in self.values.get(expression, [])
        ]


def drawn(drawing: Any, grafana: Any, panel: Any, answers: Answers) -> ElementTree.Element:
    """A dashboard with one panel, as SVG."""
    board = grafana.Dashboard("name", "Title", "Description", 6, (), (grafana.row(8, panel),))
    return ElementTree.fromstring(drawing.picture(grafana.dashboard_json(board), answers))


def texts(root: ElementTree.Element) -> list[str]:
    """All texts, without the title and the time of the picture and the title of the panel."""
    return [str(text.text) for text in root.iter(f"{SVG}text")][3:]


def classes(root: ElementTree.Element, kind: str) -> list[str]:
    """The classes of all elements of a kind."""
    return [str(element.get("class")) for element in root.iter(f"{SVG}{kind}")]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (12.345, "short", "12.3"),
        (1234, "short", "1.23 K"),
        (0.256, "percentunit", "25.6%"),
        (1, "percentunit", "100%"),
        (93.4, "percent", "93.4%"),
        (71, "celsius", "71 °C"),
        (412, "watt", "412 W"),
        (81920, "mbytes", "80 GiB"),
        (0.0042, "s", "4.2 ms"),
        (90, "s", "1.5 min"),
        (4 * 86400, "s", "4 days"),
        (1500, "µs", "1.5 ms"),
        (2.5e6, "Bps", "2.5 MB/s"),
        (1000 * (END - 3 * 3600), "dateTimeFromNow", "3 hours ago"),
    ],
)
def test_values_have_units(drawing: Any, value: float, unit: str, text: str) -> None:
    assert drawing.shown(value, unit, END) == text


def test_numbers_have_names_and_the_colour_of_their_threshold(drawing: Any, grafana: Any) -> None:
    panel = grafana.stat(
        "Nodes",
        "",
        grafana.Query("a", "idle", "green"),
        grafana.Query("b", "drained {{cause}}", steps=grafana.WRONG),
        grafana.Query("c", "down", steps=grafana.WRONG),
    )
    answers = Answers({"a": [({}, [7])], "b": [({"cause": "person"}, [1])], "c": [({}, [0])]})
    root = drawn(drawing, grafana, panel, answers)
    assert texts(root) == ["7", "idle", "1", "drained person", "0", "down"]
    assert classes(root, "text")[3::2] == ["green", "orange", "text"]


def test_texts_stand_in_place_of_values(drawing: Any, grafana: Any) -> None:
    panel = grafana.stat(
        "Controllers", "", grafana.Query("a", "{{host}}"), texts=(("standby", "text"), ("serves", "green"))
    )
    answers = Answers({"a": [({"host": "ctl1"}, [1]), ({"host": "ctl2"}, [0])]})
    assert texts(drawn(drawing, grafana, panel, answers)) == ["serves", "ctl1", "standby", "ctl2"]


def test_a_line_has_gaps_where_there_are_no_values(drawing: Any, grafana: Any) -> None:
    panel = grafana.graph("Jobs", "", grafana.Query("a", "{{state}}"))
    answers = Answers({"a": [({"state": "running"}, [1, 2, None, 2, 4]), ({"state": "pending"}, [3, 3, 3, 3, 3])]})
    root = drawn(drawing, grafana, panel, answers)
    assert {"running", "pending", "0", "4"} <= set(texts(root))
    lines = [str(line.get("points")).split() for line in root.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [2, 2, 2]  # a level line needs two points


def test_lines_are_added_up_in_a_stacked_graph(drawing: Any, grafana: Any) -> None:
    panel = grafana.graph("GPUs", "", grafana.Query("a", "a", "blue"), grafana.Query("b", "b", "green"), stacked=True)
    answers = Answers({"a": [({}, [1, 2])], "b": [({}, [4, 2])]})
    root = drawn(drawing, grafana, panel, answers)
    lower, upper = (
        [float(point.split(",")[1]) for point in str(line.get("points")).split()]
        for line in root.iter(f"{SVG}polyline")
    )
    assert [round((lower[0] - upper[0]) / (lower[0] - lower[1])), upper[0] < upper[1]] == [4, True]
    assert classes(root, "polygon") == ["area blue", "area green"]


def test_a_table_has_a_row_for_each_combination_of_labels(drawing: Any, grafana: Any) -> None:
    panel = grafana.table(
        "Nodes",
        "",
        grafana.Query("gpus", "GPUs"),
        grafana.Query("alloc", "Allocated"),
        grafana.Query("hidden"),
        labels={"node": "Node"},
    )
    answers = Answers(
        {
            "gpus": [({"node": "n2", "job": "x"}, [8]), ({"node": "n1"}, [4])],
            "alloc": [({"node": "n1"}, [3])],
            "hidden": [({"node": "n1"}, [55])],
        }
    )
    found = texts(drawn(drawing, grafana, panel, answers))
    assert found == ["Node", "GPUs", "Allocated", "n1", "4", "3", "n2", "8"]


def test_a_table_says_how_many_rows_it_leaves_out(drawing: Any, grafana: Any) -> None:
    panel = grafana.table("Nodes", "", grafana.Query("a"), labels={"node": "Node"})
    answers = Answers({"a": [({"node": f"n{number:02d}"}, [1]) for number in range(30)]})
    found = texts(drawn(drawing, grafana, panel, answers))
    assert found[-1] == f"and {30 - (len(found) - 2)} more"


def test_the_longest_bar_comes_first(drawing: Any, grafana: Any) -> None:
    panel = grafana.bars("Disks", "", grafana.Query("a", "{{disk}}"), unit="percentunit")
    answers = Answers({"a": [({"disk": "/"}, [0.25]), ({"disk": "/home"}, [0.95])]})
    root = drawn(drawing, grafana, panel, answers)
    assert texts(root) == ["/home", "95%", "/", "25%"]
    full, small = (float(str(bar.get("width"))) for bar in root.iter(f"{SVG}rect") if "fill" in str(bar.get("class")))
    assert full / small == pytest.approx(0.95 / 0.25, rel=0.01)


@pytest.mark.parametrize("kind", ["stat", "graph", "bars"])
def test_a_panel_without_series_says_so(drawing: Any, grafana: Any, kind: str) -> None:
    panel = getattr(grafana, kind)("Nodes", "", grafana.Query("a", "{{a}}"))
    assert texts(drawn(drawing, grafana, panel, Answers({}))) == ["No data"]


def test_a_panel_without_series_has_its_own_text(drawing: Any, grafana: Any) -> None:
    panel = grafana.table("Nodes", "", grafana.Query("a"), labels={"node": "Node"}, nothing="All is well")
    assert texts(drawn(drawing, grafana, panel, Answers({}))) == ["All is well"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_dashboard_can_be_drawn(drawing: Any, file: Path) -> None:
    """Each of its expressions is asked without variables, and all texts are on the page."""
    asked: list[str] = []

    class Everything(Answers):
        def now(self, expression: str) -> list[tuple[dict[str, str], float]]:
            asked.append(expression)
            return [({"instance": "ctl1", "node": "n1", "partition": "batch", "key": "munge"}, 0.5)]

        def over_time(self, expression: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
            return [(labels, [(START, value), (END, value)]) for labels, value in self.now(expression)]

    root = ElementTree.fromstring(drawing.picture(drawing.chosen(file.read_text()), Everything({})))
    panels = json.loads(file.read_text())["panels"]
    assert len(asked) == sum(len(panel.get("targets", [])) for panel in panels)
    assert [expression for expression in asked if "$" in expression] == []
    places = [float(str(text.get("x"))) for text in root.iter(f"{SVG}text")]
    assert min(places) >= 0
    assert max(places) <= drawing.WIDTH


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_picture_in_docs_is_one_of_this_dashboard(file: Path) -> None:
    root = ElementTree.parse(ROOT / f"docs/dashboards-{file.stem}.svg")
    titles = {panel["title"] for panel in json.loads(file.read_text())["panels"]}
    assert titles - {str(text.text) for text in root.iter(f"{SVG}text")} == set()


@pytest.fixture(name="server")
def api() -> Iterator[HTTPServer]:
    """The API of a Prometheus with one series, whose value is the number of seconds that a query asks for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            if "query_range" in self.path:
                times = [float(asked["start"]), float(asked["end"])]
                series: dict[str, Any] = {"values": [[time, asked["step"]] for time in times]}
            else:
                series = {"value": [float(asked["time"]), asked["time"]]}
            answer = {"status": "success", "data": {"result": [{"metric": {"query": asked["query"]}, **series}]}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_api_of_prometheus(drawing: Any, server: HTTPServer) -> None:
    source = drawing.Prometheus(f"http://127.0.0.1:{server.server_port}/", START, END)
    assert source.now('a{b="c"} > 1') == [({"query": 'a{b="c"} > 1'}, END)]
    assert source.over_time("a") == [({"query": "a"}, [(START, 45.0), (END, 45.0)])]
