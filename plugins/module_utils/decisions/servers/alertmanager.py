# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of alertmanager: the collection's own, with the receivers of the site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

try:
    import yaml
except ImportError:  # The control host has it; a host that lacks it only stores this file.
    yaml = None  # type: ignore[assignment]

from ...language.formatting import shown
from ..known.packages import MANAGED
from ..known.shipped_files import role_file

KEY = "slurm_monitoring.receivers"

NEEDED = ("route", "receivers")
ALLOWED = (*NEEDED, "time_intervals")
"""The keys of the site's file, which are alertmanager's."""


def configuration(text_of_receivers: str | None) -> str:
    """The text of alertmanager.yml.

    Values of the site stay as they are written: as a value of YAML, `start_time: 22:00` would be 1320. What the route
    does not say about grouping and times is as in the collection's own.

    Args:
        text_of_receivers: the site's file, with a route and its receivers; None without one.

    Raises:
        ValueError: the file is no YAML, or has other keys. The message has none of its values, which can be passwords.
    """
    text = role_file("slurm_metrics", "alertmanager.yml").removeprefix("---\n")
    if text_of_receivers is not None:
        own, site = _nodes(yaml.compose(text, yaml.BaseLoader)), _read(text_of_receivers)
        site["route"].value += [
            (key, value)
            for key, value in own["route"].value
            if key.value != "receiver" and key.value not in _nodes(site["route"])
        ]
        text = yaml.serialize(_mapping({**own, **site}), Dumper=yaml.BaseDumper, allow_unicode=True, width=120)
    return f"{MANAGED}\n{text}"


def _read(text: str) -> dict[str, yaml.Node]:
    """The values of the site's file by key."""
    try:
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "a character that YAML does not have"
        raise ValueError(f"{KEY}: {where}cannot be read as YAML: {what}") from None
    except RecursionError:
        raise ValueError(f"{KEY}: values are nested too deep") from None
    found = _nodes(node)
    strange = [name for name in found if name not in ALLOWED]
    missing = [name for name in NEEDED if not isinstance(found.get(name), yaml.CollectionNode)]
    if strange or missing or not isinstance(found["route"], yaml.MappingNode):
        names = ", ".join(map(shown, found)) or "none"
        raise ValueError(f"{KEY}: found the keys {names}; needed: route and receivers, allowed: time_intervals")
    _check_names(found)
    return found


def _check_names(site: dict[str, yaml.Node]) -> None:
    """Raise ValueError if a route has no receiver, or a receiver or a time of another name: alertmanager would end."""
    receivers, times = _names(site["receivers"]), _names(site.get("time_intervals"))
    if not receivers or "" in receivers or len({*receivers}) < len(receivers):
        raise ValueError(f"{KEY}: found receivers {_shown(receivers)}, allowed: receivers, each with a name of its own")
    if "receiver" not in _nodes(site["route"]):
        raise ValueError(f"{KEY}: the route has no receiver, allowed: {_shown(receivers)}")
    for key, name in _named(site["route"]):
        allowed = receivers if key == "receiver" else times
        if name not in allowed:
            raise ValueError(f"{KEY}: found {shown(name)} as {key} of a route, allowed: {_shown(allowed)}")


def _named(node: yaml.Node) -> Iterator[tuple[str, str]]:
    """The receivers and times of a route, and of those below it, each with its key."""
    route = _nodes(node)
    if "receiver" in route:
        yield "receiver", str(route["receiver"].value)
    for key in ("mute_time_intervals", "active_time_intervals"):
        yield from ((key, str(time.value)) for time in _entries(route.get(key)))
    for below in _entries(route.get("routes")):
        yield from _named(below)


def _entries(node: yaml.Node | None) -> list[yaml.Node]:
    """The entries of a list; none if it is no list."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _names(node: yaml.Node | None) -> list[str]:
    """The key `name` of each entry of a list; empty where there is none."""
    names = [_nodes(entry).get("name") for entry in _entries(node)]
    return ["" if name is None else str(name.value) for name in names]


def _shown(names: Iterable[str]) -> str:
    return ", ".join(map(shown, names)) or "none"


def _nodes(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """The values of a mapping by key; none if it is no mapping."""
    return {str(key.value): value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _mapping(values: dict[str, yaml.Node]) -> yaml.Node:
    """The opposite."""
    tag = "tag:yaml.org,2002:"
    return yaml.MappingNode(f"{tag}map", [(yaml.ScalarNode(f"{tag}str", key), value) for key, value in values.items()])
