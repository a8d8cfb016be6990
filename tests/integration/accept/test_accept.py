# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""accept.yml with real jobs on four nodes without GPUs: healthy, a slow link, killed and continued, baselines.

The tests run in this order. All nodes are containers of one machine, whose disk and processors fio, hpcc and iperf3
share, so that their values differ more than tolerances. Tests of links do not count those of fio and hpcc.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run, with_cluster

CONTROLLER = "acc-ctl"
NODES = [f"acc-node{number}" for number in range(1, 5)]
RECORD = "/var/lib/gpucluster-slurm/accept/run.json"
LEVEL = ("-e", "accept_level=medium")


@pytest.fixture(name="site")
def _site(lab: Lab, tmp_path: Path) -> Lab:
    """The lab with a cluster file in a directory of the test, where its baseline and report are."""
    copy: Lab = with_cluster(lab, tmp_path, lab.cluster)
    return copy


def report(lab: Lab) -> dict[str, Any]:
    path = lab.inventory.parent / "report/accept/acceptance.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def last_kept(lab: Lab) -> dict[str, Any]:
    """The newest run that the control host keeps for the page about the cluster."""
    found = json.loads((lab.inventory.parent / "report/accept/acceptance-runs.json").read_text())
    run: dict[str, Any] = found["runs"][0]
    return run


def of_links(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in found["findings"] if finding["test"] == "network_tcp"]


def limit_link(lab: Lab, node: str, rate: str) -> None:
    """Give what a node sends a rate, as a cable does."""
    device = lab.command(node, "ip -o route get 10.213.7.175 | sed 's/.* dev \\([^ ]*\\).*/\\1/'")
    lab.command(node, f"tc qdisc replace dev {device} root tbf rate {rate} burst 256kb latency 100ms")


@pytest.fixture(autouse=True)
def _links(lab: Lab) -> None:
    """Links that are equally fast, although the containers share processors."""
    for node in NODES:
        limit_link(lab, node, "1gbit")


def is_clean(lab: Lab) -> None:
    """Nothing is left of a run."""
    assert "accept" not in lab.command(CONTROLLER, "timeout 60 scontrol --oneliner show reservation")
    assert lab.command(CONTROLLER, "timeout 60 squeue --noheader") == ""
    assert not lab.host(CONTROLLER).file(RECORD).exists


def test_a_plan_measures_nothing(site: Lab) -> None:
    run = site.playbook("accept", "--check", *LEVEL)
    assert run.rc == 0, run.failed
    assert "nodes     acc-node[1-4]" in run.output
    assert "network_tcp" in run.output
    is_clean(site)
    assert not (site.inventory.parent / "report").exists()


def test_healthy_nodes_are_not_named(site: Lab) -> None:
    run = site.playbook("accept", *LEVEL, "-e", "accept_baseline=write")
    found = report(site)
    assert found["errors"] == [], run.output[-3000:]
    assert of_links(found) == []
    measured = {row["test"] for row in found["values"]}
    assert measured == {"stream", "dgemm", "disk_write_local", "disk_read_local", "network_tcp"}
    assert found["measured"] == NODES
    kept = last_kept(site)
    assert (kept["measured"], {row["test"] for row in kept["values"]}) == (len(NODES), measured)
    is_clean(site)
    for node in NODES:
        site.command(node, "test -x /usr/bin/fio && test -x /usr/bin/iperf3 && test -x /usr/bin/hpcc")
    entries = yaml.safe_load((site.inventory.parent / "accept.baseline.yml").read_text())
    assert {entry["hardware"] for entry in entries} == {"container"}


def test_the_node_with_a_slow_link_is_named_and_drained(site: Lab) -> None:
    limit_link(site, "acc-node3", "200mbit")
    run = site.playbook("accept", *LEVEL, "-e", "accept_drain=true")
    assert run.rc != 0
    links = of_links(report(site))
    assert {(finding["kind"], *finding["nodes"]) for finding in links} == {("node", "acc-node3")}
    kept = last_kept(site)
    assert "acc-node3" in expand(kept["names"])
    assert any(text.startswith("acc-node3: TCP between two nodes: ") for text in kept["findings"])
    reason = site.command(CONTROLLER, "timeout 60 sinfo --noheader --Node --nodes=acc-node3 --format=%E")
    assert reason.startswith("gpucluster.slurm accept: ")
    doctor = site.playbook("doctor")
    assert "drained by accept" in doctor.output
    # Others may have a slow disk.
    for node in NODES:
        site.host(CONTROLLER).run(f"timeout 60 scontrol update NodeName={node} State=RESUME")
    is_clean(site)


def test_a_run_that_was_killed_is_continued(site: Lab) -> None:
    run = site.start("accept", *LEVEL)
    run.wait_for_task("Wait for the jobs of this round")
    site.wait_for(CONTROLLER, f"cat {RECORD}", '"ended"', 600)
    run.kill()
    before = json.loads(site.command(CONTROLLER, f"cat {RECORD}"))["tasks"]
    finished: Run = site.playbook("accept", *LEVEL)
    found = report(site)
    assert found["errors"] == [], finished.output[-3000:]
    assert found["measured"] == NODES
    # The jobs of the first run were not made again.
    jobs = [task["job"] for task in before.values()]
    shown = f"timeout 60 sacct --noheader -X -P --jobs={','.join(map(str, jobs))} --format=state"
    assert {*site.command(CONTROLLER, shown).split()} == {"COMPLETED"}
    names = site.command(CONTROLLER, "timeout 60 sacct --noheader -X -P --name=accept-node --format=nodelist,start")
    assert names
    is_clean(site)


def test_a_node_with_a_job_is_left_out_or_waited_for(site: Lab) -> None:
    submit = "timeout 60 sbatch --parsable -D / -o /dev/null -w acc-node4 --time=60 --wrap 'sleep 900'"
    job = int(site.command(CONTROLLER, submit))
    site.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T", "RUNNING")
    run = site.playbook("accept")
    assert f"has job {job} of root until " in run.output
    assert report(site)["measured"] == NODES[:3]
    state = f"timeout 60 squeue --noheader --jobs={job} --format=%T"
    assert site.command(CONTROLLER, state) == "RUNNING"
    waits = site.start("accept", "-e", "accept_budget=1")
    waits.wait_for_line(f"waiting   acc-node4: job {job} of root until ")
    site.command(CONTROLLER, f"scancel {job}")
    waits.finish()
    assert report(site)["measured"] == NODES
    is_clean(site)


def test_a_baseline_of_another_machine_type_is_named_and_not_used(site: Lab) -> None:
    entry = {
        "hardware": "h100",
        "test": "network_tcp",
        "nodes": 2,
        "median": 390.0,
        "spread": 1.0,
        "floor": 370.0,
        "unit": "Gb/s",
        "values": 16,
        "measured": "2026-11-28",
    }
    (site.inventory.parent / "accept.baseline.yml").write_text(yaml.safe_dump([entry]))
    site.playbook("accept", *LEVEL)
    found = report(site)
    assert of_links(found) == []
    assert "network_tcp: the baseline is of hardware h100 and is not used for hardware container" in found["notes"]


def test_a_baseline_that_cannot_be_read_ends_the_run_before_it_begins(site: Lab) -> None:
    (site.inventory.parent / "accept.baseline.yml").write_text("- {hardware: container, floor: much}\n")
    begun = time.monotonic()
    run = site.playbook("accept")
    assert run.rc != 0
    assert "accept.baseline.yml: [0]" in str(run.failed)
    assert time.monotonic() - begun < 300
    is_clean(site)
