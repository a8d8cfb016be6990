# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dashboards as JSON for Grafana: rows of panels, whose places and numbers are derived, become the schema's objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

COLUMNS = 24
"""The width of a dashboard in Grafana's unit."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "gpucluster"
SCRAPED = "1m"
"""How often Prometheus reads the hosts. `$__rate_interval` follows from it; a source says 15 s if nobody has set it."""

Steps = tuple[tuple[str, float], ...]
"""Colours, each from a value on."""
PLAIN: Steps = (("text", 0),)
WRONG: Steps = (("text", 0), ("orange", 1))
"""Of a number of things that are wrong."""
BROKEN: Steps = (("text", 0), ("red", 1))


class Query(NamedTuple):
    """An expression. name: of its series in the legend, with labels as `{{label}}`, or of its column in a table.

    A column without a name is hidden. colour: whatever the value is. steps: colours by value; a line has the last one.
    """

    expression: str
    name: str = ""
    colour: str = ""
    steps: Steps = PLAIN


@dataclass(frozen=True)
class Panel:
    """A panel. kind: as Grafana names it.

    stacked: lines are added up. texts: texts in place of 0, 1 and so on, with their colours. labels: of a table, the
    labels that are columns, and their titles. nothing: the text if there is no series. width: in columns; panels
    without one share what the others of their row leave.
    """

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    stacked: bool = False
    texts: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    nothing: str = ""
    width: int = 0


def stat(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    texts: tuple[tuple[str, str], ...] = (),
    nothing: str = "",
    width: int = 0,
) -> Panel:
    """Numbers."""
    return Panel("stat", title, description, queries, unit, texts=texts, nothing=nothing, width=width)


def graph(
    title: str, description: str, *queries: Query, unit: str = "short", stacked: bool = False, nothing: str = ""
) -> Panel:
    """Lines over time."""
    return Panel("timeseries", title, description, queries, unit, stacked, nothing=nothing)


def bars(title: str, description: str, *queries: Query, unit: str = "short") -> Panel:
    """A bar for each series."""
    return Panel("bargauge", title, description, queries, unit)


def table(
    title: str, description: str, *queries: Query, labels: dict[str, str], unit: str = "short", nothing: str = ""
) -> Panel:
    """A row for each combination of labels, a column for each label and query."""
    return Panel("table", title, description, queries, unit, labels=tuple(labels.items()), nothing=nothing)


class Row(NamedTuple):
    """Panels next to each other. A title is shown above them."""

    title: str
    height: int
    panels: tuple[Panel, ...]


def row(height: int, *panels: Panel, title: str = "") -> Row:
    """A row in which each panel has its width."""
    left = COLUMNS - sum(panel.width for panel in panels)
    share = left // max(1, sum(not panel.width for panel in panels))
    return Row(title, height, tuple(panel if panel.width else replace(panel, width=share) for panel in panels))


class Variable(NamedTuple):
    """What the reader can choose: values of a label of a series."""

    name: str
    title: str
    series: str
    label: str


class Dashboard(NamedTuple):
    """One file. hours: the time that it shows at first."""

    name: str
    title: str
    description: str
    hours: int
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def thresholds(steps: Steps) -> dict[str, Any]:
    """Colours by value; the first one has no lowest value."""
    values = [None, *(value for _colour, value in steps[1:])]
    return {
        "mode": "absolute",
        "steps": [{"color": colour, "value": value} for (colour, _value), value in zip(steps, values)],
    }


def mappings(texts: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """Texts in place of values."""
    options = {str(value): {"color": colour, "text": text} for value, (text, colour) in enumerate(texts)}
    return [{"options": options, "type": "value"}] if options else []


def override(kind: str, number: str, query: Query) -> list[dict[str, Any]]:
    """What holds for the series of one query."""
    colour, steps = query.colour, query.steps
    if kind == "timeseries" and steps != PLAIN:
        colour, steps = steps[-1][0], PLAIN
    found: list[dict[str, Any]] = []
    if colour:
        found.append({"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}})
    if steps != PLAIN:
        found.append({"id": "thresholds", "value": thresholds(steps)})
    return [{"matcher": {"id": "byFrameRefID", "options": number}, "properties": found}] if found else []


def custom(panel: Panel) -> dict[str, Any]:
    """How a kind of panel draws its series."""
    if panel.kind == "timeseries":
        stacking = {"group": "A", "mode": "normal" if panel.stacked else "none"}
        return {"fillOpacity": 40 if panel.stacked else 0, "lineWidth": 1, "showPoints": "never", "stacking": stacking}
    return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False} if panel.kind == "table" else {}


def field_config(panel: Panel) -> dict[str, Any]:
    """Units, limits and colours."""
    by_kind = {"timeseries": "palette-classic", "bargauge": "continuous-GrYlRd"}
    defaults: dict[str, Any] = {
        "color": {"mode": by_kind.get(panel.kind, "thresholds")},
        "custom": custom(panel),
        "mappings": mappings(panel.texts),
        "thresholds": thresholds(PLAIN),
        "unit": panel.unit,
    }
    if panel.kind in by_kind:
        defaults["min"] = 0
        if panel.unit == "percentunit":
            defaults["max"] = 1
    if panel.nothing:
        defaults["noValue"] = panel.nothing
    overrides = [part for number, query in numbered(panel.queries) for part in override(panel.kind, number, query)]
    return {"defaults": defaults, "overrides": overrides}


LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": LAST,
        "showPercentChange": False,
        "textMode": "value_and_name",
        "wideLayout": True,
    },
    "bargauge": {
        "displayMode": "basic",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
        "maxVizHeight": 24,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "left",
        "orientation": "horizontal",
        "reduceOptions": LAST,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    },
    "table": {"cellHeight": "sm", "frameIndex": 0, "showHeader": True},
}
"""What a panel of each kind has."""


def numbered(queries: tuple[Query, ...]) -> Iterator[tuple[str, Query]]:
    """Queries with the letters that Grafana gives them."""
    return zip("ABCDEFGHIJ", queries)


def target(panel: Panel, number: str, query: Query) -> dict[str, Any]:
    """A query: over time for lines, now for everything else."""
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": panel.kind != "timeseries",
        "interval": SCRAPED,
        "legendFormat": query.name,
        "range": panel.kind == "timeseries",
        "refId": number,
    }


def columns(panel: Panel) -> list[dict[str, Any]]:
    """The columns of a table: labels, then values. Grafana names a single value differently."""
    if len(panel.queries) == 1:
        values = {"Value": panel.queries[0].name}
    else:
        values = {f"Value #{number}": query.name for number, query in numbered(panel.queries)}
    renamed = {**dict(panel.labels), **{field: name for field, name in values.items() if name}}
    order = {field: place for place, field in enumerate(renamed)}
    hidden = {field: True for field in ("Time", "__name__", "job", *values) if field not in renamed}
    options = {"excludeByName": hidden, "indexByName": order, "renameByName": renamed}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": options}]


def panel_json(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel at its place."""
    found: dict[str, Any] = {
        "datasource": SOURCE,
        "description": " ".join(panel.description.split()),
        "fieldConfig": field_config(panel),
        "gridPos": place,
        "id": number,
        "options": OPTIONS[panel.kind],
        "targets": [target(panel, *query) for query in numbered(panel.queries)],
        "title": panel.title,
        "type": panel.kind,
    }
    if panel.kind == "table":
        found["transformations"] = columns(panel)
    return found


def heading(title: str, number: int, top: int) -> dict[str, Any]:
    """The title of a row at its place."""
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
    return {"collapsed": False, "gridPos": place, "id": number, "panels": [], "title": title, "type": "row"}


def panels(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """All panels with their places: from left to right, and one row below the other."""
    found: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        if row.title:
            found.append(heading(row.title, len(found) + 1, top))
            top += 1
        left = 0
        for panel in row.panels:
            place = {"h": row.height, "w": panel.width, "x": left, "y": top}
            found.append(panel_json(panel, len(found) + 1, place))
            left += panel.width
        top += row.height
    return found


def variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The choice of the data source, and those of the dashboard."""
    source = {"label": "Prometheus", "name": "datasource", "query": "prometheus", "refresh": 1, "type": "datasource"}
    choices = [
        {
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
            "datasource": SOURCE,
            "includeAll": True,
            "label": choice.title,
            "multi": True,
            "name": choice.name,
            "query": {"query": f"label_values({choice.series}, {choice.label})", "refId": choice.name},
            "refresh": 2,
            "sort": 7,
            "type": "query",
        }
        for choice in dashboard.variables
    ]
    return [source, *choices]


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """A file for Grafana."""
    others = {
        "asDropdown": False,
        "icon": "dashboard",
        "includeVars": False,
        "keepTime": True,
        "tags": [TAG],
        "targetBlank": False,
        "title": "",
        "tooltip": "",
        "type": "dashboards",
    }
    return {
        "description": dashboard.description,
        "editable": True,
        "graphTooltip": 1,
        "links": [others],
        "panels": panels(dashboard.rows),
        "refresh": "1m",
        "schemaVersion": 39,
        "tags": [TAG, "slurm"],
        "templating": {"list": variables(dashboard)},
        "time": {"from": f"now-{dashboard.hours}h", "to": "now"},
        "timezone": "",
        "title": dashboard.title,
        "uid": f"{TAG}-{dashboard.name}",
    }
