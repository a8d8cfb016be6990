# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The example page with forms (runner/form.py) in Chromium: what somebody fills in is a valid cluster file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, find_program

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.once
PROGRAM = find_program()
FILL = """
for (const [name, value] of Object.entries(%s)) {
  const input = document.querySelector(`form:nth-of-type(${name.split('/')[0]}) [name="${name.split('/')[1]}"]`);
  input.value = value;
}
show();
"""
OUTPUTS = "JSON.stringify([...document.querySelectorAll('pre')].map(pre => JSON.parse(pre.textContent)))"


@pytest.fixture(name="page", scope="module")
def page_in_a_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium; Debian's package is chromium")
    directory = tmp_path_factory.mktemp("form")
    command = [sys.executable, str(ROOT / "runner/form.py"), "validate"]
    (directory / "form.html").write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    with Browser(PROGRAM, directory / "profile") as browser:
        browser.look(1000, 900)
        browser.open(directory / "form.html")
        browser.ask("new Promise(resolve => setTimeout(resolve, 100))")
        yield browser


def fill(page: Browser, values: dict[str, str]) -> list[dict[str, Any]]:
    """Fill in fields of form 1 (the cluster) and 2 (the playbook); what the page shows then."""
    page.ask(FILL % json.dumps(values))
    return list(json.loads(page.ask(OUTPUTS)))


def test_what_is_filled_in_is_a_cluster_file_and_variables(page: Browser, tmp_path: Path) -> None:
    cluster, variables = fill(
        page,
        {
            "1/name": "web",
            "1/controllers": "head",
            "1/nodes.hosts": "n[1-2]",
            "1/nodes.hardware": "detected",
            "1/partitions.nodes": "n[1-2]",
            "1/partitions.name": "main",
            "2/validate_timeout": "600",
            "2/validate_may_wait": '["busy", "unavailable"]',
        },
    )
    assert variables == {"validate_timeout": 600, "validate_may_wait": ["busy", "unavailable"]}
    file = tmp_path / "web.cluster.yml"
    file.write_text(json.dumps(cluster))
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(file), "--list"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    inventory = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert inventory["slurm_controller"]["hosts"] == ["head"]
    assert inventory["slurm_compute"]["hosts"] == ["n1", "n2"]
    assert page.complaints == []


def test_a_value_that_is_not_allowed_is_not_taken(page: Browser) -> None:
    cluster, _variables = fill(page, {"1/name": "My Cluster"})
    assert "name" not in cluster
    assert page.ask("document.querySelector('[name=name]').validationMessage").startswith("allowed: ^(?:[a-z0-9]")
    assert fill(page, {"1/name": "web"})[0]["name"] == "web"


def test_the_page_asks_nobody(page: Browser) -> None:
    assert [url for url in page.requests if not url.startswith("file:")] == []
    for _depth in range(2):  # the parameters of slurm_conf are among the keys that are not required
        page.ask("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.ask("new Promise(resolve => setTimeout(resolve, 500))")
    assert page.ask("document.querySelectorAll('[name^=\"slurm_conf.\"]').length") > 100
    assert page.complaints == []
