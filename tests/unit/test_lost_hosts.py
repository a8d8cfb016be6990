# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on stand-ins for hosts of which some are lost in the middle: the others go on, and the run fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from standing_hosts import Hosts
from test_stopped_runs import cluster, standing

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
SILENT = {"unreachable": True, "msg": "Timeout, server 10.0.0.9 not responding."}
ONE_NODE = [{"hosts": "n1", "hardware": "a"}]
USERS = [{"name": "kim", "uid": 7001}]


def lost(output: str) -> set[str]:
    """The hosts that have failed or were not reached, by Ansible's recap."""
    rows = re.findall(r"^(\S+) +: ok=.*unreachable=(\d+) +failed=(\d+)", output, re.M)
    return {name for name, away, failed in rows if away + failed != "00"}


def run_site(there: Hosts, *arguments: str) -> str:
    """The output of a run of site.yml that fails, and ends with its last stages for the other hosts."""
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig,validate", *arguments)
    assert run.returncode != 0, run.stdout
    assert '"state": "ended"' in there.asked("head", "slurm_run"), run.stdout
    return str(run.stdout)


@pytest.mark.parametrize(
    "module",
    [
        "slurm_people",
        pytest.param("slurm_packages", marks=pytest.mark.rare),  # each 15 s
        pytest.param("slurm_service", marks=pytest.mark.rare),
        pytest.param("nvidia_driver", marks=pytest.mark.rare),
    ],
)
def test_a_host_that_goes_silent_is_left_out_and_the_others_go_on(tmp_path: Path, module: str) -> None:
    hosts = standing(["head", "login", "n1", "n2", "n3"])
    for answers in hosts.values():
        answers["slurm_people"] = {"conflicts": [], "remarks": [], "diff": []}
    hosts["n1"][module] = SILENT
    there = Hosts(tmp_path / "site", cluster() | {"login": "login", "users": USERS}, hosts)
    said = run_site(there)
    assert lost(said) == {"n1"}, said
    for name in ("n2", "n3"):
        assert "slurmd.service" in there.asked(name, "slurm_service")


@pytest.mark.rare
def test_a_play_whose_only_host_is_lost_does_not_end_the_run(tmp_path: Path) -> None:
    """Ansible ends a run when all hosts of a play have failed."""
    hosts = standing(["head", "login", "n1"])
    hosts["n1"]["nvidia_driver"] = SILENT
    there = Hosts(tmp_path / "site", cluster() | {"nodes": ONE_NODE, "login": "login"}, hosts)
    said = run_site(there)
    assert lost(said) == {"n1"}
    assert "slurmctld" in there.asked("head", "slurm_service")
    assert there.asked("login", "slurm_service")


def test_a_node_that_slurm_would_refuse_is_left_out(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"])
    facts = hosts["n1"]["slurm_host_facts"]["ansible_facts"]
    facts["slurm_hardware"] = facts["slurm_hardware"] | {"real_memory": 1000}
    there = Hosts(tmp_path / "site", cluster(), hosts)
    said = run_site(there)
    assert lost(said) == {"n1"}, said
    assert "n1 would become INVAL: RealMemory 1900 configured, 1000 present" in said
    assert not there.asked("n1", "slurm_packages")
    assert "slurmd.service" in there.asked("n2", "slurm_service")
    assert "NodeName=n[1-2]" in there.asked("head", "slurm_config"), "the configuration keeps the node"


@pytest.mark.rare
def test_a_change_that_a_lost_first_node_has_not_proved_reaches_no_other(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"], packages={"slurmctld": "24.11.5-4", "slurmd": "24.11.5-4"})
    hosts["head"]["slurm_config"] |= {"unproven": ["n[1-3]"]}
    hosts["n1"]["slurm_service"] = SILENT
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--tags", "controller,compute", "--skip-tags", "mig")
    assert run.returncode != 0
    assert "Whether slurmd starts with the change is not known: n1 was lost." in " ".join(run.stdout.split())
    assert '"state": "proven"' not in there.asked("head", "slurm_config")
    assert not there.asked("n2", "slurm_service") + there.asked("n3", "slurm_service")


@pytest.mark.rare
def test_a_refused_plan_stops_all_hosts_although_a_controller_was_lost_before(tmp_path: Path) -> None:
    """Ansible's any_errors_fatal stops only the hosts of its play then."""
    hosts = standing(["head", "head2", "n1", "n2", "n3"])
    hosts["head2"]["slurm_host_facts"] = SILENT
    hosts["head"]["slurm_state_directory"] = SILENT
    hosts["head"]["slurm_host_facts"]["ansible_facts"]["slurm_host"]["serving_controller"] = "head"
    model = cluster(StateSaveLocation="/shared") | {"controllers": "head,head2"}
    there = Hosts(tmp_path / "site", model, hosts)
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig,validate")
    assert run.returncode != 0
    assert not any(there.asked(name, "slurm_packages") for name in hosts)
    assert "The run ends for all hosts: it has lost head, which the others depend on." in run.stdout


# -- the playbooks themselves ------------------------------------------------------------------------------------------

STOPPED_BY = {"slurm_cluster", "slurm_controller", "slurm_database"}
"""Groups of which all hosts are all, or whose order stops the run (docs/design/decisions.md)."""
OF_CONTROLLERS = {
    *("slurm_needs_shared_state", "slurm_needs_container_plugins_everywhere", "slurm_needs_stopped_controller"),
    *("slurm_needs_controller", "slurm_needs_policy", "slurm_needs_munge", "slurm_needs_repair"),
}
"""Groups of controllers, of which the one that serves is always a member."""


def plays_of(path: Path) -> list[dict[str, Any]]:
    """The plays of a playbook, with those that it imports."""
    found: list[dict[str, Any]] = []
    for play in yaml.safe_load(path.read_text()):
        imported = play.get("ansible.builtin.import_playbook")
        found += plays_of(path.parent / imported) if imported else [play | {"file": path.stem}]
    return found


def test_the_table_of_decisions_has_the_plays_that_stop_a_run() -> None:
    text = (ROOT / "docs/design/decisions.md").read_text().partition("## Hosts that are lost")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (`.*) \|$", text, re.M)]
    table = {name for _stages, names, _why in rows for name in names.split("; ")}
    stages = {name for stages, _names, _why in rows for name in re.findall(r"`(\w+)`", stages)}
    paths = [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("playbooks/stages/*.yml")]
    fatal = [play for path in paths for play in plays_of(path) if play.get("any_errors_fatal")]
    assert {play["name"] for play in fatal} == table
    assert {play["file"] for play in fatal} == stages


def test_a_play_of_site_whose_hosts_are_all_lost_does_not_end_the_run() -> None:
    """Either its order stops the run, or it has the controllers as well, which leave it by its first task."""
    wrong = []
    for play in plays_of(ROOT / "playbooks/site.yml"):
        groups = {*re.findall(r"slurm_\w+", re.sub(r" if .*? else|limit_answers", "", str(play["hosts"]), flags=re.S))}
        first = play["tasks"][0] if play.get("tasks") else {}
        anchored = first.get("ansible.builtin.meta") == "end_host" and (
            "slurm_controller" in groups or "slurm_needs_validation" in groups
        )
        stops = play.get("any_errors_fatal") or not groups - STOPPED_BY - OF_CONTROLLERS
        asks = play.get("become")  # other plays run on the control host
        if asks and not anchored and not stops:
            wrong.append((play["file"], play["name"], groups))
    assert wrong == []
