# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check of keys foretells is what the run does, in each play on each host; likewise their removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_cluster
from new_keys import ACCOUNTING, VARIABLES, added_keys

HEAD, LOGIN = "rest-ctl", "rest-login"
SERVERS = (
    *("registry", "accounting", "backup", "mail", "monitoring", "report", "rest", "prologs", "epilogs", "private_tmp"),
)
HOSTS = ("access", "firewall")
SLURM = ("profile", "cgroup_conf", "slurm_files", "plugstack")
DATABASE = {"mariadb_settings": {"max_connections": 211}, "slurmdbd_conf": {"PurgeJobAfter": "13months"}}
"""Options of the database, which are variables of its roles."""


def changes(run: Run) -> set[tuple[str, str]]:
    """The plays with the hosts that changed in each, or would have."""
    found, play = set(), ""
    for event in run.events:
        play = event["play"]["name"] if event["_event"] == "v2_playbook_on_play_start" else play
        found |= {(play, host) for host, result in event.get("hosts", {}).items() if result.get("changed")}
    return found


@pytest.fixture(name="clusters", scope="module")
def cluster_files(lab: Lab) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The content of cluster files with keys that do not overlap, and without them, and further variables."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    keys = added_keys(HEAD, LOGIN, HEAD)
    keys["accounting"] = {"accounting": {key: value for key, value in ACCOUNTING.items() if key != "users"}}
    keys["access"]["access"] |= {"login_limits": {"TasksMax": 900}}
    alice, bob = cluster["users"]
    zoe = {"name": "zoe", "uid": 4100}

    def added(names: tuple[str, ...], more: dict[str, Any]) -> dict[str, Any]:
        return {**cluster, **{key: value for name in names for key, value in keys[name].items()}, **more}

    servers = {"users": [alice, bob, zoe], "slurm_conf": {"KillWait": 44}}
    people = {"users": [alice, {**bob, "state": "suspended"}, {**zoe, "groups": ["ops"]}]}
    scratch = {"path": "/srv/scratch", "type": "tmpfs", "hosts": "all", "scratch": True}
    return {
        "servers": (added(SERVERS, servers), {}),
        "without servers": (cluster, {}),
        "hosts": (added(HOSTS, {**people, "login": f"{LOGIN},{HEAD}"}), {}),
        "slurm": (added(SLURM, {"storage": [scratch]}), DATABASE),
        "without": (cluster, {}),
    }


@pytest.mark.parametrize("keys", ["servers", "without servers", "hosts", "slurm", "without"])
def test_a_check_foretells_the_run(
    lab: Lab, tmp_path: Path, clusters: dict[str, tuple[dict[str, Any], dict[str, Any]]], keys: str
) -> None:
    content, more = clusters[keys]
    site = with_cluster(lab, tmp_path, content, **VARIABLES, **more)
    check = site.playbook("site", "--check", "--diff", "--skip-tags=validate")
    assert (check.rc, check.failed) == (0, {}), check.output[-3000:]
    run = site.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert changes(check) - changes(run) == changes(run) - changes(check) == set()


@pytest.mark.parametrize("enforced", [False, True])
def test_without_a_policy_a_check_says_whom_a_change_refuses(lab: Lab, tmp_path: Path, enforced: bool) -> None:
    """Without associations slurmctld does not look at the accounts that a partition allows."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    conf = {**cluster["slurm_conf"], **({"AccountingStorageEnforce": "associations"} if enforced else {})}
    partitions = [{**cluster["partitions"][0], "AllowAccounts": ["vision"]}]
    site = with_cluster(lab, tmp_path, {**cluster, "partitions": partitions, "slurm_conf": conf})
    submit = "runuser -u alice -- sbatch --parsable -D / -o /dev/null --begin=now+1hour --wrap true"
    job = lab.command(HEAD, submit)
    check = site.playbook("site", "--check", "--tags=controller,policy")
    lab.command(HEAD, f"scancel {job}")
    assert check.rc == 0, check.failed
    said = "slurmctld would refuse: user alice: has no association in account (none)"
    assert (said in check.output) == enforced, check.output[-3000:]
    lab.command(HEAD, "scontrol update partition=main AllowAccounts=vision")
    try:
        lab.command(HEAD, f"scancel $({submit})")
    finally:
        lab.command(HEAD, "scontrol update partition=main AllowAccounts=ALL")
