# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check of new keys foretells is what the run does, in each play on each host; likewise their removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_cluster
from new_keys import ACCOUNTING, VARIABLES, added_keys

HEAD, LOGIN = "rest-ctl", "rest-login"
KEYS = ("registry", "accounting", "backup", "mail", "monitoring", "report", "rest", "prologs", "epilogs", "private_tmp")


def changes(run: Run) -> set[tuple[str, str]]:
    """The plays with the hosts that changed in each, or would have."""
    found, play = set(), ""
    for event in run.events:
        play = event["play"]["name"] if event["_event"] == "v2_playbook_on_play_start" else play
        found |= {(play, host) for host, result in event.get("hosts", {}).items() if result.get("changed")}
    return found


@pytest.fixture(name="clusters", scope="module")
def with_and_without(lab: Lab) -> dict[str, dict[str, Any]]:
    """The content of the cluster file with the keys, and without them."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    keys = added_keys(HEAD, LOGIN, HEAD)
    keys["accounting"] = {"accounting": {key: value for key, value in ACCOUNTING.items() if key != "users"}}
    added = {name: value for key in KEYS for name, value in keys[key].items()}
    more = {"users": [*cluster["users"], {"name": "zoe", "uid": 4100}], "slurm_conf": {"KillWait": 44}}
    return {"with": {**cluster, **added, **more}, "without": cluster}


@pytest.mark.parametrize("keys", ["with", "without"])
def test_a_check_foretells_the_run(lab: Lab, tmp_path: Path, clusters: dict[str, dict[str, Any]], keys: str) -> None:
    site = with_cluster(lab, tmp_path, clusters[keys], **VARIABLES)
    check = site.playbook("site", "--check", "--diff", "--skip-tags=validate")
    assert (check.rc, check.failed) == (0, {}), check.output[-3000:]
    run = site.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert changes(check) == changes(run)
