# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `monitoring` on another release of Slurm: with slurmctld's own pages where it has them, and PrivateData."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from dashboard_4323 import wait_for_series
from lab import Lab, Run, with_cluster

# Minutes: two runs with the key, and its removal.
pytestmark = pytest.mark.rare


def site(lab: Lab) -> Run:
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    return run


@pytest.fixture(scope="module", name="address")
def address_of_the_controller(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the host of Prometheus. Afterwards the key is removed, and the cluster is as it was."""
    yield next(node["address"] for node in lab.cluster["nodes"] if node["hosts"] == lab.controller)
    directory = tmp_path_factory.mktemp("without")
    site(with_cluster(lab, directory, {key: value for key, value in lab.cluster.items() if key != "monitoring"}))
    assert lab.command(lab.controller, "ls /usr/bin/prometheus*", 2) == ""
    site(lab)


def targets(address: str) -> dict[str, set[str]]:
    """The health of the targets by job."""
    with urlopen(f"http://{address}:9090/api/v1/targets", timeout=10) as answer:
        active = json.load(answer)["data"]["activeTargets"]
    found: dict[str, set[str]] = {}
    for target in active:
        found.setdefault(target["labels"]["job"], set()).add(target["health"])
    return found


def names(address: str, selector: str) -> set[str]:
    """Slurm's names that some targets of Prometheus have."""
    query = urlencode({"query": f'{{__name__=~"slurm_.+",{selector}}}'})
    with urlopen(f"http://{address}:9090/api/v1/query?{query}", timeout=10) as answer:
        return {series["metric"]["__name__"] for series in json.load(answer)["data"]["result"]}


@pytest.mark.parametrize("private", [False, True], ids=["open", "private"])
def test_dashboard_4323_has_its_series(lab: Lab, address: str, tmp_path: Path, private: bool) -> None:
    conf = {**lab.cluster.get("slurm_conf", {}), **({"PrivateData": ["jobs", "usage"]} if private else {})}
    measured = with_cluster(lab, tmp_path, {**lab.cluster, "monitoring": lab.controller, "slurm_conf": conf})
    site(measured)
    wait_for_series(address)
    until = time.monotonic() + 70
    while (found := {health for each in targets(address).values() for health in each}) != {"up"}:
        assert time.monotonic() < until, found
        time.sleep(1)
    again = site(measured)
    assert again.changed == {}
    assert names(address, 'job="node"') & names(address, 'job=~"slurm_.+"') == set()
    has_pages = lab.release > "25.11"
    assert ("slurm_nodes" in targets(address)) == has_pages
    if has_pages and private:
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://{address}:6817/metrics/jobs", timeout=10)
