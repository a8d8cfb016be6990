# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts of role slurm_metrics: promtool's tests of each, their causes, and the page about them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.causes import MEASURED, OWNED, SAID, UNKNOWN
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.server_causes import SERVER_CAUSES
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import draining_xids
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.port_findings import ERRORS, FLAPS

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
FILES = ROOT / "roles/slurm_metrics/files"
RULES = FILES / "rules/alerts.yml"
TESTS = ("alerts.yml", "alerts_of_hours.yml", "alerts_of_days.yml")
OF_DOCTOR = {cause.name for cause in (*MEASURED, *OWNED, *SAID, UNKNOWN)} | {cause.name for cause in SERVER_CAUSES}


@cache
def alerts() -> dict[str, dict[str, Any]]:
    """The rules by the name of the alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return {rule["alert"]: rule for rule in rules}


@cache
def promtool_tests() -> list[dict[str, Any]]:
    """The tests of promtool."""
    return [test for name in TESTS for test in yaml.safe_load((ROOT / "tests/rules" / name).read_text())["tests"]]


@pytest.fixture(name="page")
def module_of_the_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("alerts_page")


def parts(name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A file of tests by the groups of the rules, each with its rules: promtool asks all rules in each minute."""
    file = yaml.safe_load((ROOT / "tests/rules" / name).read_text())
    groups, left = yaml.safe_load(RULES.read_text())["groups"], file["tests"]
    for group in groups:
        own = {rule["alert"] for rule in group["rules"]}
        of_group = [test for test in left if test["name"].split()[0] in own]
        left = [test for test in left if test not in of_group]
        if of_group:
            yield group["name"], file | {"tests": of_group}, {"groups": [group]}
    yield "all", file | {"tests": left}, {"groups": groups}


PARTS = {f"{name} {group}": part for name in TESTS for group, *part in parts(name)}


@pytest.mark.parametrize("part", PARTS)
def test_promtool_has_no_objection(tmp_path: Path, part: str) -> None:
    tests, rules = PARTS[part]
    names, _alerts = tests["rule_files"]
    files = [str(ROOT / "tests/rules" / names), "rules.json"]
    (tmp_path / "tests.json").write_text(json.dumps(tests | {"rule_files": files}))
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    command = ["promtool", "test", "rules", "tests.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_a_test_in_which_it_fires_and_clears(alert: str) -> None:
    (test,) = (test for test in promtool_tests() if test["name"] == f"{alert} fires and clears")
    fires = [bool(check["exp_samples"]) for check in test["promql_expr_test"]]
    assert fires[0] is False
    assert True in fires
    assert fires[-1] is False
    assert all(f'alertname="{alert}",alertstate="firing"' in check["expr"] for check in test["promql_expr_test"])


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_a_test_of_a_near_case_in_which_it_does_not_fire(alert: str) -> None:
    near = [test for test in promtool_tests() if test["name"].startswith(f"{alert} does not fire: ")]
    assert near
    for check in (check for test in near for check in test["promql_expr_test"]):
        assert check["exp_samples"] == []
        assert f'alertname="{alert}",alertstate="firing"' in check["expr"]


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_says_what_it_means_and_what_to_do(alert: str) -> None:
    rule = alerts()[alert]
    assert re.fullmatch(r"(Slurm|Gpucluster)[A-Za-z]+", alert)
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert list(rule["annotations"]) == ["summary", "meaning", "remedy", "page"]
    file, _hash, anchor = rule["annotations"]["page"].partition("#")
    assert anchor == alert.lower()
    assert f"\n### {alert}\n" in (ROOT / file).read_text()


def test_each_alert_is_caused_on_the_lab() -> None:
    text = (ROOT / "tests/integration/metrics/test_alerts.py").read_text()
    assert {*re.findall(r'Fault\(\s*"(\w+)"', text)} == alerts().keys()


def test_each_cause_is_one_of_doctor_or_has_a_reason_why_not(page: Any) -> None:
    fixed = {name: page.cause(rule) for name, rule in alerts().items()}
    of_series = [name for name, cause in fixed.items() if not cause]
    assert [name for name in of_series if "by (node, cause)" not in alerts()[name]["expr"]] == []
    others = {cause for cause in fixed.values() if cause} - OF_DOCTOR
    assert others == {*page.OTHER_CAUSES}
    assert [cause for cause, why in page.OTHER_CAUSES.items() if not why] == []


def test_causes_in_expressions_are_those_of_doctor() -> None:
    named = [word for rule in alerts().values() for word in re.findall(r'cause[!=]~?"([^"]+)"', rule["expr"])]
    causes = {cause for word in named for cause in word.split("|")}
    assert causes
    assert causes <= OF_DOCTOR


def test_xids_are_those_that_drain_a_node() -> None:
    numbers = re.findall(r"XID_ERRORS == (\d+)", alerts()["GpuclusterGpuXid"]["expr"])
    assert [int(number) for number in numbers] == draining_xids()


def test_the_page_is_current(page: Any) -> None:
    """`make docs` writes it."""
    assert page.PAGE.read_text() == page.page()


def test_a_notification_tells_soon_that_an_alert_is_over() -> None:
    """alertmanager tells changes of a group once in this time only."""
    assert yaml.safe_load((FILES / "alertmanager.yml").read_text())["route"]["group_interval"] == "1m"


def test_rules_of_alertmanager_name_alerts(page: Any) -> None:
    """An alert with another name would not be silenced any more."""
    rules = page.inhibitions()
    matchers = [matcher for rule in rules for matcher in (*rule["source_matchers"], *rule["target_matchers"])]
    assert [matcher for matcher in matchers if not matcher.startswith("alertname=")] == []
    assert {name for matcher in matchers for name in page.names(matcher)} <= alerts().keys()


def test_errors_of_ports_are_those_of_the_health_check() -> None:
    expression = alerts()["GpuclusterPortErrors"]["expr"]
    assert f"increase(node_infiniband_link_downed_total[1h]) >= {FLAPS}\n" in expression
    for counter, allowed in ERRORS.items():
        assert f"increase(node_infiniband_{counter}_total[1h]) > {allowed}\n" in expression
