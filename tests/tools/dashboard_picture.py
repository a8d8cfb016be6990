# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw what a dashboard shows.    usage: python tests/tools/dashboard_picture.py URL FILE SVG [MINUTES]

URL is that of a Prometheus, FILE one of roles/slurm_metrics/files/dashboards. The picture shows the last 60 or MINUTES
minutes. Its places, titles, units and colours are those of the file; the choices of the reader are all hosts and
partitions. Times are in UTC. Its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

# In pixels. The column and the line are the units of Grafana's places.
WIDTH, LINE, GAP, HEADER = 1000, 32, 8, 44
COLUMN = WIDTH / 24
SMALL, NORMAL, LARGE = 11, 13, 22
CHARACTER, WIDE, BOLD_WIDE = 0.54, 0.6, 0.68
"""The mean width of a character in most texts and in wide ones, as a part of its height, in a wide font."""
POINTS = 80
"""How many points a line has."""

COLOURS = {
    "text": ("#24292e", "#d8d9da"),
    "green": ("#2e8540", "#73bf69"),
    "yellow": ("#b58900", "#fade2a"),
    "blue": ("#1f60c4", "#5794f2"),
    "orange": ("#d9730d", "#ff9830"),
    "red": ("#c4162a", "#f2495c"),
    "purple": ("#8f3bb8", "#b877d9"),
    "cyan": ("#0a7ea4", "#59c4d9"),
    "pink": ("#c2185b", "#ff7eb6"),
    "grey": ("#6a737d", "#9fa7b3"),
    "brown": ("#8a5a2b", "#d2a679"),
}
"""On a light and on a dark ground."""
PALETTE = [name for name in COLOURS if name != "text"]

STYLE = """text {{ font-family: system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; fill: currentColor }}
.page {{ fill: {page} }} .panel {{ fill: {panel}; stroke: {edge} }} .grid {{ stroke: {edge} }} .rest {{ fill: {edge} }}
.muted {{ color: {muted} }}
"""
GROUNDS = (
    {"page": "#f4f5f5", "panel": "#ffffff", "edge": "#dfe2e5", "muted": "#5c6670"},
    {"page": "#111217", "panel": "#181b1f", "edge": "#2f343b", "muted": "#9aa3ad"},
)

Labels = Mapping[str, str]
Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


class Series(NamedTuple):
    """What is drawn of a series. points: times and values."""

    name: str
    colour: str
    points: list[Point]


class Prometheus(NamedTuple):
    """The API of a Prometheus, and the time that is shown."""

    url: str
    start: float
    end: float

    def ask(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        """The series of an answer."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url.rstrip('/')}/api/v1/{path}?{query}", timeout=60) as answer:
            return list(json.load(answer)["data"]["result"])

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(15.0, (self.end - self.start) / POINTS)

    def now(self, expression: str) -> list[tuple[Labels, float]]:
        """Labels and value of each series at the end of the time."""
        return [
            (found["metric"], float(found["value"][1])) for found in self.ask("query", query=expression, time=self.end)
        ]

    def over_time(self, expression: str) -> list[tuple[Labels, list[Point]]]:
        """Labels and points of each series."""
        answer = self.ask("query_range", query=expression, start=self.start, end=self.end, step=self.step)
        return [(found["metric"], [(time, float(value)) for time, value in found["values"]]) for found in answer]


# Values as texts.


def rounded(value: float) -> str:
    """A number with up to three digits that matter."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """A number in the largest of these units that it reaches."""
    size, unit = next((pair for pair in units if abs(value) >= pair[0]), units[-1])
    return f"{rounded(value / size)}{unit}" if value else "0"


TIMES = (
    (365 * 86400.0, " years"),
    (86400.0, " days"),
    (3600.0, " hours"),
    (60.0, " min"),
    (1.0, " s"),
    (1e-3, " ms"),
    (1e-6, " µs"),
)
NUMBERS = ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1.0, ""))
MEMORY = ((1024.0**2, " TiB"), (1024.0, " GiB"), (1.0, " MiB"))
RATES = ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s"))


def shown(value: float, unit: str, now: float = 0) -> str:
    """A value in a unit of Grafana. now: for times, which are shown as a distance from it."""
    by_unit: dict[str, Callable[[], str]] = {
        "percentunit": lambda: f"{rounded(100 * value)}%",
        "percent": lambda: f"{rounded(value)}%",
        "celsius": lambda: f"{rounded(value)} °C",
        "watt": lambda: f"{rounded(value)} W",
        "mbytes": lambda: scaled(value, MEMORY),
        "s": lambda: scaled(value, TIMES),
        "µs": lambda: scaled(value / 1e6, TIMES),
        "Bps": lambda: scaled(value, RATES),
        "dateTimeFromNow": lambda: re.sub(r"\.\d+", "", f"{scaled(now - value / 1000, TIMES)} ago"),
        "short": lambda: scaled(value, NUMBERS),
    }
    return by_unit[unit]()


def named(template: str, labels: Labels) -> str:
    """The name of a series in the legend."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)


def fitting(content: str, width: float, size: float = SMALL) -> str:
    """A text that is cut to a width."""
    most = int(width / (size * CHARACTER))
    return content if len(content) <= most else f"{content[: max(1, most - 1)]}…"


def width_of(content: str, size: float = SMALL) -> float:
    """The width of a text at most."""
    return len(content) * size * WIDE


# Parts of the picture.


def text(x: float, y: float, content: str, size: float = SMALL, colour: str = "text", more: str = "") -> str:
    """A text. more: further attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.0f}" class="{colour}"{more}>{escape(content)}</text>'


CENTRED, TO_THE_LEFT, BOLD = ' text-anchor="middle"', ' text-anchor="end"', ' font-weight="600"'


def rectangle(box: Box, kind: str, radius: int = 0) -> str:
    """A rectangle. kind: its class."""
    size = f'width="{max(0.0, box.width):.1f}" height="{box.height:.1f}"'
    return f'<rect x="{box.x:.1f}" y="{box.y:.1f}" {size} rx="{radius}" class="{kind}"/>'


def nothing(panel: Mapping[str, Any], box: Box) -> Iterator[str]:
    """What a panel without series shows."""
    content = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    lines = textwrap.wrap(content, int(box.width / (NORMAL * WIDE)))
    top = box.y + box.height / 2 - 9 * (len(lines) - 1) + 4
    for number, line in enumerate(lines):
        yield text(box.x + box.width / 2, top + 18 * number, line, NORMAL, "muted", CENTRED)


def overrides(panel: Mapping[str, Any], number: str) -> Mapping[str, Any]:
    """What holds for the series of one query, by the name of the property."""
    return {
        part["id"]: part["value"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == number
        for part in override["properties"]
    }


def colour_of(panel: Mapping[str, Any], number: str, value: float) -> str:
    """The colour of a value: a fixed one, or that of the highest threshold that it reaches."""
    own = overrides(panel, number)
    if "color" in own:
        return str(own["color"]["fixedColor"])
    steps = own.get("thresholds", panel["fieldConfig"]["defaults"]["thresholds"])["steps"]
    return str([step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1])


def stat(panel: Mapping[str, Any], source: Prometheus, box: Box) -> Iterator[str]:
    """Numbers next to each other, with their names below."""
    defaults = panel["fieldConfig"]["defaults"]
    texts = defaults["mappings"][0]["options"] if "mappings" in defaults else {}
    tiles = []
    for target in panel["targets"]:
        for labels, value in source.now(target["expr"]):
            mapped = texts.get(f"{value:.0f}", {})
            content = mapped.get("text") or shown(value, defaults["unit"])
            colour = mapped.get("color") or colour_of(panel, target["refId"], value)
            tiles.append((content, named(target["legendFormat"], labels), colour))
    if not tiles:
        yield from nothing(panel, box)
        return
    width = box.width / len(tiles)
    size = min(LARGE, *((width - 6) / (len(content) * BOLD_WIDE) for content, _name, _colour in tiles))
    for number, (content, name, colour) in enumerate(tiles):
        middle = box.x + width * (number + 0.5)
        yield text(middle, box.y + box.height / 2 + 4, content, size, colour, CENTRED + BOLD)
        yield text(middle, box.y + box.height / 2 + 24, fitting(name, width - 4), SMALL, "muted", CENTRED)


def nice_step(highest: float, count: int) -> float:
    """The smallest of 1, 2, 5, 10 and so on that needs no more than `count` steps."""
    sizes = (base * 10.0**power for power in range(-9, 16) for base in (1, 2, 5))
    return next(size for size in sizes if size * count >= highest * 0.999)


def gathered(panel: Mapping[str, Any], source: Prometheus) -> list[Series]:
    """The series of a graph, sorted by the query and the name."""
    found = [
        (target["refId"], named(target["legendFormat"], labels), points)
        for target in panel["targets"]
        for labels, points in source.over_time(target["expr"])
    ]
    series: list[Series] = []
    for number, name, points in sorted(found, key=lambda item: item[:2]):
        fixed = overrides(panel, number).get("color", {}).get("fixedColor")
        # A text's colour is for numbers.
        series.append(Series(name, fixed or PALETTE[len(series) % len(PALETTE)], points))
    return series


def stacked(series: Sequence[Series]) -> list[Series]:
    """Each series on top of those before it."""
    totals: dict[float, float] = {time: 0 for part in series for time, _value in part.points}
    found = []
    for part in series:
        for time, value in part.points:
            totals[time] += value
        found.append(part._replace(points=[(time, totals[time]) for time in sorted(totals)]))
    return found


def legend(series: Sequence[Series], box: Box) -> tuple[list[str], int]:
    """The names under a graph, in up to two lines, and the number of these lines."""
    places: list[tuple[float, int, Series]] = []
    x, line = 0.0, 0
    for part in series:
        width = min(width_of(part.name) + 25, box.width)
        if x and x + width > box.width:
            x, line = 0.0, line + 1
        places.append((x, line, part))
        x += width
    lines = min(line + 1, 2)
    top = box.y + box.height - 16 * lines
    drawn: list[str] = []
    for x, line, part in places:
        if line < lines:
            y = top + 16 * line + 12
            drawn.append(rectangle(Box(box.x + x, y - 6, 12, 3), f"fill {part.colour}"))
            drawn.append(text(box.x + x + 17, y, fitting(part.name, box.width - 30), SMALL, "muted"))
    return drawn, lines


def time_ticks(start: float, end: float, count: int) -> list[float]:
    """Round times between two times."""
    steps = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
    step = next((step for step in steps if (end - start) / step <= count), steps[-1])
    first = int(start // step + 1) * step
    return [float(time) for time in range(first, int(end) + 1, step)]


def pieces(points: Sequence[Point], longest: float) -> Iterator[list[Point]]:
    """The parts of a line between its gaps, without points that lie on a level line."""
    piece: list[Point] = []
    for point in points:
        if piece and point[0] - piece[-1][0] > longest:
            yield piece
            piece = []
        if len(piece) > 1 and piece[-2][1] == piece[-1][1] == point[1]:
            piece.pop()
        piece.append(point)
    if piece:
        yield piece


def graph(panel: Mapping[str, Any], source: Prometheus, box: Box) -> Iterator[str]:
    """Lines with axes and a legend."""
    defaults = panel["fieldConfig"]["defaults"]
    adding = "stacking" in defaults["custom"]
    series = gathered(panel, source)
    if not series:
        yield from nothing(panel, box)
        return
    names, lines = legend(series, box)
    yield from names
    drawn = stacked(series) if adding else series
    highest = max((value for part in drawn for _time, value in part.points), default=0)
    step = nice_step(defaults.get("max", highest) or 1, 4)
    count = max(1, round(defaults.get("max", highest) / step + 0.499))
    ticks = [step * number for number in range(count + 1)]
    left = max(width_of(shown(tick, defaults["unit"])) for tick in ticks) + 6
    area = Box(box.x + left, box.y + 6, box.width - left - 4, box.height - 16 * lines - 30)

    def x_of(time: float) -> float:
        return area.x + area.width * (time - source.start) / (source.end - source.start)

    def y_of(value: float) -> float:
        return area.y + area.height * (1 - min(max(value, 0), ticks[-1]) / ticks[-1])

    for tick in ticks:
        y = y_of(tick)
        yield f'<line x1="{area.x:.1f}" x2="{area.x + area.width:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield text(area.x - 6, y + 4, shown(tick, defaults["unit"]), SMALL, "muted", TO_THE_LEFT)
    for time in time_ticks(source.start, source.end, max(2, int(area.width / 60))):
        if area.x + 15 < x_of(time) < area.x + area.width - 10:
            label = datetime.fromtimestamp(time, timezone.utc).strftime("%H:%M")
            yield text(x_of(time), area.y + area.height + 16, label, SMALL, "muted", CENTRED)
    below: Mapping[float, float] = {}
    for part in drawn:
        for piece in pieces(part.points, source.step * 1.5):
            line = " ".join(f"{x_of(time):.1f},{y_of(value):.1f}" for time, value in piece)
            if adding:
                last, first = piece[-1][0], piece[0][0]
                floor = [(time, below.get(time, 0)) for time, _value in reversed(part.points) if first <= time <= last]
                (level,) = pieces(floor, float("inf"))
                back = " ".join(f"{x_of(time):.1f},{y_of(value):.1f}" for time, value in level)
                yield f'<polygon points="{line} {back}" class="area {part.colour}"/>'
            yield f'<polyline points="{line}" class="line {part.colour}"/>'
        below = dict(part.points)


def bars(panel: Mapping[str, Any], source: Prometheus, box: Box) -> Iterator[str]:
    """A bar for each series, the highest first."""
    defaults = panel["fieldConfig"]["defaults"]
    found = [
        (value, named(target["legendFormat"], labels))
        for target in panel["targets"]
        for labels, value in source.now(target["expr"])
    ]
    if not found:
        yield from nothing(panel, box)
        return
    found.sort(reverse=True)
    height = 22
    left = min(box.width * 0.55, max(width_of(name) for _value, name in found) + 8)
    most = defaults.get("max") or found[0][0] or 1
    for number, (value, name) in enumerate(found[: int(box.height // height)]):
        y = box.y + height * number
        bar = Box(box.x + left, y + 4, box.width - left - 50, 12)
        part = min(1, value / most)
        colour = "green" if part < 0.7 else "yellow" if part < 0.9 else "red"
        yield text(box.x, y + 14, fitting(name, left - 6))
        yield rectangle(bar, "rest", 2)
        yield rectangle(bar._replace(width=bar.width * part), f"fill {colour}", 2)
        yield text(box.x + box.width, y + 14, shown(value, defaults["unit"]), SMALL, colour, TO_THE_LEFT)


def cells(panel: Mapping[str, Any], source: Prometheus) -> tuple[list[str], list[dict[str, str]]]:
    """The fields of a table in their order, and its rows: a row for each combination of labels."""
    organize = panel["transformations"][1]["options"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for target in panel["targets"]:
        field = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
        for labels, value in source.now(target["expr"]):
            kept = {name: content for name, content in labels.items() if name in organize["indexByName"]}
            row = rows.setdefault(tuple(sorted(kept.items())), kept)
            row[field] = shown(value, unit, source.end)
    order = sorted(organize["indexByName"], key=lambda name: organize["indexByName"][name])
    return order, [rows[key] for key in sorted(rows)]


def column_widths(columns: Sequence[Sequence[str]], width: float) -> list[float]:
    """Widths that show the texts of each column; if there is no room for all of them, equal ones."""
    needed = [max(map(len, column)) * SMALL * BOLD_WIDE + 12 for column in columns]
    spare = (width - sum(needed)) / len(needed)
    return [one + spare for one in needed] if spare >= 0 else [width / len(needed)] * len(needed)


def table(panel: Mapping[str, Any], source: Prometheus, box: Box) -> Iterator[str]:
    """Rows as far as there is room, and how many more there are."""
    titles = panel["transformations"][1]["options"]["renameByName"]
    order, rows = cells(panel, source)
    if not rows:
        yield from nothing(panel, box)
        return
    height = 22
    room = int(box.height // height) - 1
    left_out = len(rows) - (room - 1) if len(rows) > room else 0
    every = [{name: titles[name] for name in order}, *rows[: len(rows) - left_out]]
    widths = column_widths([[row.get(name, "") for row in every] for name in order], box.width)
    for number, row in enumerate(every):
        x, y = box.x, box.y + height * number + 14
        colour, weight = ("text", "") if number else ("muted", BOLD)
        for name, width in zip(order, widths):
            if name in row:
                yield text(x, y, fitting(row[name], width - 8), SMALL, colour, weight)
            x += width
        yield rectangle(Box(box.x, y + 7, box.width, 1), "rest")
    if left_out:
        yield text(box.x, box.y + height * len(every) + 14, f"and {left_out} more", SMALL, "muted")


KINDS: Mapping[str, Callable[[Mapping[str, Any], Prometheus, Box], Iterator[str]]] = {
    "bargauge": bars,
    "stat": stat,
    "table": table,
    "timeseries": graph,
}


def drawn_panel(panel: Mapping[str, Any], source: Prometheus) -> Iterator[str]:
    """A panel or the title of a row at its place."""
    place = panel["gridPos"]
    box = Box(place["x"] * COLUMN, HEADER + place["y"] * LINE, place["w"] * COLUMN, place["h"] * LINE)
    if panel["type"] == "row":
        yield text(box.x + GAP, box.y + 22, panel["title"], NORMAL + 2, "text", BOLD)
        return
    frame = Box(box.x + GAP / 2, box.y + GAP / 2, box.width - GAP, box.height - GAP)
    yield rectangle(frame, "panel", 4)
    yield text(frame.x + 10, frame.y + 19, fitting(panel["title"], frame.width - 20, NORMAL), NORMAL, "text", BOLD)
    inner = Box(frame.x + 10, frame.y + 30, frame.width - 20, frame.height - 38)
    yield from KINDS[panel["type"]](panel, source, inner)


def style() -> str:
    """The colours of both schemes."""
    light, dark = (
        STYLE.format(**ground) + "\n".join(f".{name} {{ color: {pair[scheme]} }}" for name, pair in COLOURS.items())
        for scheme, ground in enumerate(GROUNDS)
    )
    shapes = (
        ".line { fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linejoin: round }\n"
        ".area { fill: currentColor; fill-opacity: 0.3 }\n.fill { fill: currentColor }"
    )
    return f"<style>\n{light}\n{shapes}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>"


def chosen(text_of_file: str) -> dict[str, Any]:
    """A dashboard with the choice of all hosts and partitions."""
    dashboard: dict[str, Any] = json.loads(text_of_file)
    names = [variable["name"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    for target in (target for panel in dashboard["panels"] for target in panel.get("targets", [])):
        target["expr"] = target["expr"].replace("$__rate_interval", "4m")
        for name in names:
            target["expr"] = target["expr"].replace(f"${name}", ".*")
    return dashboard


def picture(dashboard: Mapping[str, Any], source: Prometheus) -> str:
    """The whole picture, as SVG."""
    height = HEADER + LINE * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + GAP
    start, end = (datetime.fromtimestamp(time, timezone.utc) for time in (source.start, source.end))
    span = f"{start:%d %b %Y, %H:%M} to {end:%H:%M} UTC"
    title = escape(dashboard["title"])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
            f"<title>{title}</title>",
            "<!-- drawn by tests/tools/dashboard_picture.py -->",
            style(),
            rectangle(Box(0, 0, WIDTH, height), "page", 6),
            text(GAP + 4, 28, dashboard["title"], 18, "text", BOLD),
            text(WIDTH - GAP - 4, 28, span, NORMAL, "muted", TO_THE_LEFT),
            *(part for panel in dashboard["panels"] for part in drawn_panel(panel, source)),
            "</svg>\n",
        ]
    )


def main(url: str, file: str, svg: str, minutes: str = "60") -> None:
    """Write the picture."""
    end = datetime.now(timezone.utc).timestamp()
    source = Prometheus(url, end - 60 * float(minutes), end)
    Path(svg).write_text(picture(chosen(Path(file).read_text()), source))


if __name__ == "__main__":
    main(*sys.argv[1:])
