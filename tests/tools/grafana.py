# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dashboards from rows of panels, by grafana-foundation-sdk: mypy compares them with the types of Grafana's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, prometheus, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import stat as stats
from grafana_foundation_sdk.builders import table as tables
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.dashboard import FieldColorModeId as Colours
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

COLUMNS = 24
"""The width of a dashboard in Grafana's unit."""
SOURCE = models.DataSourceRef("prometheus", "${datasource}")
TAG = "gpucluster"
SCRAPED = "1m"
"""How often Prometheus reads the hosts. `$__rate_interval` follows from it; a source says 15 s if nobody has set it."""

Steps = tuple[tuple[str, float], ...]
"""Colours, each from a value on."""
PLAIN: Steps = (("text", 0),)
WRONG: Steps = (("text", 0), ("orange", 1))
"""Of a number of things that are wrong."""
BROKEN: Steps = (("text", 0), ("red", 1))

Panel = bargauge.Panel | stats.Panel | tables.Panel | timeseries.Panel
Kind = TypeVar("Kind", bargauge.Panel, stats.Panel, tables.Panel, timeseries.Panel)


class Query(NamedTuple):
    """An expression. name: of its series in the legend, with labels as `{{label}}`, or of its column in a table.

    A column without a name is hidden. colour: whatever the value is. steps: colours by value; a line has the last one.
    """

    expression: str
    name: str = ""
    colour: str = ""
    steps: Steps = PLAIN


def thresholds(steps: Steps) -> builders.ThresholdsConfig:
    """Colours by value; the first one has no lowest value."""
    lowest = [None, *(value for _colour, value in steps[1:])]
    found = [models.Threshold(value, colour) for (colour, _value), value in zip(steps, lowest)]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(found)


def override(query: Query, line: bool) -> list[models.DynamicConfigValue]:
    """What holds for the series of one query."""
    colour, steps = query.colour, query.steps
    if line and steps != PLAIN:
        colour, steps = steps[-1][0], PLAIN
    found = []
    if colour:
        color = builders.FieldColor().mode(Colours.FIXED).fixed_color(colour).build()
        found.append(models.DynamicConfigValue("color", color))
    if steps != PLAIN:
        found.append(models.DynamicConfigValue("thresholds", thresholds(steps).build()))
    return found


def numbered(queries: tuple[Query, ...]) -> Iterator[tuple[str, Query]]:
    """Queries with the letters that Grafana gives them."""
    return zip("ABCDEFGHIJ", queries)


def filled(
    panel: Kind,
    title: str,
    description: str,
    queries: tuple[Query, ...],
    unit: str,
    colours: Colours,
    nothing: str = "",
) -> Kind:
    """A panel with what all kinds have. A query asks over time for lines, and now for everything else.

    nothing: the text if there is no series.
    """
    line = isinstance(panel, timeseries.Panel)
    form = PromQueryFormat.TABLE if isinstance(panel, tables.Panel) else PromQueryFormat.TIME_SERIES
    panel.title(title).description(description).datasource(SOURCE).unit(unit).thresholds(thresholds(PLAIN))
    panel.color_scheme(builders.FieldColor().mode(colours))
    if nothing:
        panel.no_value(nothing)
    for number, query in numbered(queries):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.name).ref_id(number).format(form)
        target.datasource(SOURCE).interval(SCRAPED).editor_mode(QueryEditorMode.CODE)
        panel.with_target(target.range() if line else target.instant())
        if properties := override(query, line):
            panel.override_by_query(number, properties)
    return panel


def last() -> common.ReduceDataOptions:
    """The last value of a series."""
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def stat(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    texts: tuple[tuple[str, str], ...] = (),
    nothing: str = "",
) -> stats.Panel:
    """Numbers. texts: texts in place of 0, 1 and so on, with their colours."""
    panel = stats.Panel().graph_mode(values.BigValueGraphMode.NONE).reduce_options(last())
    panel.text_mode(values.BigValueTextMode.VALUE_AND_NAME)
    if texts:
        shown = {str(value): models.ValueMappingResult(*text) for value, text in enumerate(texts)}
        panel.mappings([models.ValueMap(shown)])
    return filled(panel, title, description, queries, unit, Colours.THRESHOLDS, nothing)


def graph(
    title: str, description: str, *queries: Query, unit: str = "short", stacked: bool = False, nothing: str = ""
) -> timeseries.Panel:
    """Lines over time. stacked: lines are added up."""
    panel = timeseries.Panel().min(0).line_width(1).show_points(values.VisibilityMode.NEVER)
    panel.legend(common.VizLegendOptions().show_legend(True))
    panel.tooltip(common.VizTooltipOptions().mode(values.TooltipDisplayMode.MULTI).sort(values.SortOrder.DESCENDING))
    panel.fill_opacity(40 if stacked else 0)
    if stacked:
        panel.stacking(common.StackingConfig().group("A").mode(values.StackingMode.NORMAL))
    if unit == "percentunit":
        panel.max(1)
    return filled(panel, title, description, queries, unit, Colours.PALETTE_CLASSIC, nothing)


def bars(title: str, description: str, *queries: Query, unit: str = "short") -> bargauge.Panel:
    """A bar for each series."""
    panel = bargauge.Panel().min(0).reduce_options(last()).orientation(values.VizOrientation.HORIZONTAL)
    panel.display_mode(values.BarGaugeDisplayMode.BASIC).name_placement(values.BarGaugeNamePlacement.LEFT)
    panel.max_viz_height(24)
    if unit == "percentunit":
        panel.max(1)
    return filled(panel, title, description, queries, unit, Colours.CONTINUOUS_GR_YL_RD)


def table(
    title: str, description: str, *queries: Query, labels: dict[str, str], unit: str = "short", nothing: str = ""
) -> tables.Panel:
    """A row for each combination of labels, a column for each label and query. labels: their titles.

    Grafana names the column of a single query differently.
    """
    panel = tables.Panel()
    fields = {f"Value #{number}" if queries[1:] else "Value": query.name for number, query in numbered(queries)}
    renamed = {**labels, **{field: name for field, name in fields.items() if name}}
    order = {field: place for place, field in enumerate(renamed)}
    hidden = {field: True for field in ("Time", "__name__", "job", *fields) if field not in renamed}
    options = {"excludeByName": hidden, "indexByName": order, "renameByName": renamed}
    panel.with_transformation(models.DataTransformerConfig("merge", options={}))
    panel.with_transformation(models.DataTransformerConfig("organize", options=options))
    return filled(panel, title, description, queries, unit, Colours.THRESHOLDS, nothing)


class Row(NamedTuple):
    """Panels next to each other. A title is shown above them."""

    title: str
    panels: tuple[Panel, ...]


def row(height: int, *panels: Panel, title: str = "", widths: tuple[int, ...] = ()) -> Row:
    """A row of panels that have these widths, in columns, or equal ones."""
    for panel, width in zip(panels, widths or (COLUMNS // len(panels),) * len(panels), strict=True):
        panel.height(height).span(width)
    return Row(title, panels)


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


def choice(variable: Variable) -> builders.QueryVariable:
    """The choice of values, all of them at first."""
    query: dict[str, object] = {"query": f"label_values({variable.series}, {variable.label})", "refId": variable.name}
    found = builders.QueryVariable(variable.name).label(variable.title).datasource(SOURCE).query(query).multi(True)
    found.include_all(True).all_value(".*").current(models.VariableOption(text=["All"], value=["$__all"]))
    return found.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """A file for Grafana."""
    board = builders.Dashboard(dashboard.title).uid(f"{TAG}-{dashboard.name}").description(dashboard.description)
    board.tags([TAG, "slurm"]).time(f"now-{dashboard.hours}h", "now").refresh("1m").timezone("")
    board.tooltip(models.DashboardCursorSync.CROSSHAIR)
    others = builders.DashboardLink("").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    board.link(others.icon("dashboard").keep_time(True))
    board.with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in dashboard.variables:
        board.with_variable(choice(variable))
    for row in dashboard.rows:
        if row.title:
            board.with_row(builders.Row(row.title))
        for panel in row.panels:
            board.with_panel(panel)
    built = board.build()
    for number, part in enumerate(built.panels or [], 1):
        part.id_val = number
    found: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(built))
    del found["links"][0]["placement"]  # its type has one value, which the SDK always writes: inside a menu
    return found
