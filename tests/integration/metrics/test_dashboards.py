# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each expression of the dashboards, and each name of dashboard 4323, gives series in Prometheus on a real cluster.

The tests run on each scenario whose cluster file has the key `monitoring` with a host (MOLECULE_SCENARIO_NAME). A node
is drained meanwhile, and a backup is made.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from known_series import OF_DASHBOARD_4323
from lab import ROOT, Lab

FILES = sorted((ROOT / "roles/slurm_metrics/files/dashboards").glob("*.json"))

COUNT = """
import json, sys, urllib.parse, urllib.request
counts = {}
for expression in json.load(sys.stdin):
    url = f"http://{sys.argv[1]}:9090/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=30) as answer:
        counts[expression] = len(json.load(answer)["data"]["result"])
print(json.dumps(counts))
"""
"""Asks a Prometheus for each expression on its input, and prints how many series it has."""

SECONDS = 360
"""The program and Prometheus both run once in 60 s, and a rate needs two values; packages may still be installed."""

NEEDS_MORE = {
    "Alerts": "an alert that is firing",
    "Daemons that do not run": "a daemon that does not run",
    "Nodes that are down": "a node that is down",
    "InfiniBand": "hosts with InfiniBand",
}
"""Panels that are empty on a good cluster of the lab, and what would fill them."""

OF_GPUS = (
    *("Used part", "Allocated and used GPUs", "Idle GPUs of users", "GPU hours of the last week"),
    *("Jobs with idle GPUs", "Utilization", "GPU memory in use", "Temperature", "Power"),
)
"""Panels about GPUs, of which tests/unit/test_gpu_dashboard.py shows that they are filled."""

OF_USERS = ("Running jobs of users", "Pending jobs of users", "Running jobs of accounts", "Allocated GPUs of accounts")
BACKUP = "Age of the last backup"


class Query(NamedTuple):
    """An expression of a panel."""

    dashboard: str
    panel: str
    expression: str


def queries() -> Iterator[Query]:
    """All expressions, with the choice of all hosts and partitions."""
    for file in FILES:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", "4m")
                yield Query(file.stem, panel["title"], expression.replace("$host", ".*").replace("$partition", ".*"))


def monitoring(lab: Lab) -> dict[str, Any]:
    """The key `monitoring` in its long form."""
    key = lab.cluster["monitoring"]
    return dict(key) if isinstance(key, dict) else {"host": key}


def empty_panels(lab: Lab) -> dict[str, str]:
    """The panels that may be empty on this cluster, and what would fill them."""
    found = dict(NEEDS_MORE)
    found |= dict.fromkeys(OF_GPUS, "nodes with GPUs")
    if not monitoring(lab).get("users_and_accounts"):
        found |= dict.fromkeys(OF_USERS, "users_and_accounts")
    if "backup" not in lab.cluster:
        found[BACKUP] = "the key backup"
    return found


def count_series(lab: Lab, expressions: list[str]) -> dict[str, int]:
    """How many series Prometheus has for each expression, asked at its host's own address."""
    script = f"python3 -c {shlex.quote(COUNT)} $(hostname -I | cut -d ' ' -f 1)"
    counts: dict[str, int] = json.loads(lab.script(monitoring(lab)["host"], script, json.dumps(expressions).encode()))
    return counts


def wait_for_series(lab: Lab, expressions: list[str]) -> dict[str, int]:
    """The counts when all expressions have series, or else after some minutes."""
    until = time.monotonic() + SECONDS
    while 0 in (counts := count_series(lab, expressions)).values() and time.monotonic() < until:
        time.sleep(10)
    return counts


@pytest.fixture(scope="module", name="counts")
def counts_of_series(lab: Lab) -> Iterator[Mapping[str, int]]:
    """The number of series of each expression, while a node is drained."""
    if "backup" in lab.cluster:
        lab.command(lab.controller, "systemctl start slurm-backup && slurm-metrics host")
    node = f"NodeName={lab.nodes[-1]}"
    lab.command(lab.controller, f"scontrol update {node} State=DRAIN Reason='test of the dashboards'")
    try:
        wanted = [query.expression for query in queries() if query.panel not in empty_panels(lab)]
        counts = wait_for_series(lab, [*wanted, *sorted(OF_DASHBOARD_4323)])
        yield count_series(lab, [query.expression for query in queries()]) | counts
    finally:
        lab.command(lab.controller, f"scontrol update {node} State=RESUME")


@pytest.mark.parametrize("dashboard", [file.stem for file in FILES])
def test_each_expression_has_series(lab: Lab, counts: Mapping[str, int], dashboard: str) -> None:
    empty = [query for query in queries() if query.dashboard == dashboard and not counts[query.expression]]
    assert [query for query in empty if query.panel not in empty_panels(lab)] == []


def test_panels_that_may_be_empty_exist(lab: Lab) -> None:
    assert set(empty_panels(lab)) - {query.panel for query in queries()} == set()


def test_dashboards_that_others_have_made_find_their_series(counts: Mapping[str, int]) -> None:
    """Each name has one series: from the controller that serves, and from one source."""
    assert {name: counts[name] for name in sorted(OF_DASHBOARD_4323)} == dict.fromkeys(sorted(OF_DASHBOARD_4323), 1)
