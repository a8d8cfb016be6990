# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of Slurm in Prometheus: those of dashboard 4323 against Slurm's commands, a hanging slurmctld, a takeover.

The tests run `slurm-metrics cluster` themselves, and wait for the next scrape. The last test gives control back.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from lab import Lab

FIRST, SECOND, NODE = "met-ctl1", "met-ctl2", "met-node1"
PROMETHEUS = "http://10.213.7.212:9090"
STATE = "/home/met-state"
FILE = "/var/lib/prometheus/node-exporter/slurm.prom"
SCRAPED = 130
"""Seconds until Prometheus has a new value."""
SAMPLES = 150
"""Seconds in which sdiag is asked. Prometheus has values of the last two minutes."""

STATES = {
    **{name: name for name in ("alloc", "comp", "down", "drain", "fail", "idle", "maint", "mix")},
    "err": "inval",
    "resv": "reserved",
}
"""The end of the name of a series, and the beginning of the word that sinfo has for the nodes."""

JOBS = {
    **{state: state for state in ("cancelled", "completed", "completing", "failed", "node_fail")},
    **{state: state for state in ("pending", "preempted", "running", "suspended", "timeout")},
}
"""The end of the name of a series, and the state of jobs for squeue."""

SDIAG = {
    "threads": r"Server thread count: +(\d+)",
    "queue_size": r"^Agent queue size: +(\d+)",
    "last_cycle": r"microseconds.*?Last cycle: +(\d+)",
    "mean_cycle": r"microseconds.*?Mean cycle: +(\d+)",
    "backfill_last_cycle": r"^Backfilling.*?Last cycle: +(\d+)",
    "backfill_mean_cycle": r"^Backfilling.*?Mean cycle: +(\d+)",
    "backfill_depth_mean": r"^Backfilling.*?Depth Mean: +(\d+)",
}
"""The end of the name of a series, and its place in sdiag's output."""


def ask(expression: str) -> list[dict[str, Any]]:
    """The series of an expression that Prometheus has now."""
    query = urllib.parse.urlencode({"query": expression})
    with urlopen(f"{PROMETHEUS}/api/v1/query?{query}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def value(name: str) -> float:
    """The value of a series that only one controller has."""
    (series,) = ask(name)
    return float(series["value"][1])


def wait_for(condition: Callable[[], bool], seconds: int = SCRAPED) -> None:
    """Return when a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s"
        time.sleep(1)


def measured(lab: Lab, host: str) -> dict[str, float]:
    """The values that the program writes on a host now."""
    lab.host(host).run("systemctl start slurm-metrics-cluster.service")
    rows = (line.rpartition(" ") for line in lab.command(host, f"grep -v ^# {FILE}").split("\n"))
    return {name: float(number) for name, _space, number in rows}


def serves(lab: Lab, place: int, seconds: int) -> None:
    """Wait until a controller serves."""
    number = f"od -An -tu1 -j15 -N1 {STATE}/heartbeat"
    lab.wait_for(NODE, f"timeout 60 squeue -h >/dev/null && echo serves $({number})", f"serves {place}", seconds)


@pytest.fixture(scope="module", name="load", autouse=True)
def jobs_in_several_states(lab: Lab) -> Iterator[None]:
    """Jobs that run, are held, have failed and were cancelled."""
    batch = "sbatch --parsable --output=/dev/null --mem=20 -n1"
    running = lab.command(NODE, f"{batch} --wrap 'sleep 3000'")
    held = lab.command(NODE, f"{batch} --hold --array=1-5 --wrap true")
    lab.command(NODE, f"{batch} --wrap false; {batch} --wrap true; scancel $({batch} --hold --wrap true)")
    lab.wait_for(NODE, "squeue -h --states=failed | wc -l", "1")
    lab.wait_for(NODE, f"squeue -h -j {running} -o %T", "RUNNING")
    yield
    lab.command(NODE, f"scancel {running} {held}")


def count_nodes(lab: Lab, word: str) -> int:
    """The nodes for which sinfo has a word."""
    shown = {*lab.command(NODE, "sinfo -haN -o '%N %T'").split("\n")}
    return sum(line.split()[1].startswith(word) for line in shown)


def count_jobs(lab: Lab, state: str) -> int:
    """The jobs in a state, with each task of an array."""
    return int(lab.command(NODE, f"squeue -har --states={state} | wc -l"))


def test_nodes_and_jobs_of_dashboard_4323(lab: Lab) -> None:
    """slurmctld forgets jobs that have ended, so that it takes some scrapes until the values are those of now."""

    def shown() -> dict[str, float]:
        nodes = {f"slurm_nodes_{state}": float(count_nodes(lab, states)) for state, states in STATES.items()}
        return nodes | {f"slurm_queue_{name}": float(count_jobs(lab, state)) for name, state in JOBS.items()}

    def found() -> dict[str, float]:
        return {name: float(each["value"][1]) for name in shown() for each in ask(name)}

    measured(lab, FIRST)
    wait_for(lambda: found() == shown(), 3 * SCRAPED)
    now = found()
    assert len(now) == 20
    assert (now["slurm_nodes_mix"], now["slurm_queue_running"], now["slurm_queue_pending"]) == (1, 1, 5)
    assert now["slurm_queue_failed"] >= 1


def test_slurmctld_in_dashboard_4323(lab: Lab) -> None:
    """sdiag's values change each half minute, so each one in Prometheus is one that sdiag had before."""
    script = f"for _ in $(seq {SAMPLES}); do sdiag; sleep 1; done"
    samples = lab.command(FIRST, script).split("sdiag output at")[1:]
    assert len(samples) == SAMPLES

    def in_sdiag(pattern: str) -> set[float]:
        # It shows no means before the first cycle.
        matches = (re.search(pattern, sample, re.MULTILINE | re.DOTALL) for sample in samples)
        return {float(match[1]) if match else 0.0 for match in matches}

    found = {name: value(f"slurm_scheduler_{name}") for name in SDIAG}
    # The threads are those of the moment.
    assert found.pop("threads") >= 1
    assert {name: number for name, number in found.items() if number not in in_sdiag(SDIAG[name])} == {}
    assert found["last_cycle"] > 0


def test_a_slurmctld_that_hangs(lab: Lab) -> None:
    """Its file has no old values, within the time of a command of Slurm."""
    pid = lab.command(FIRST, "systemctl show --property=MainPID --value slurmctld")
    lab.command(FIRST, f"kill -STOP {pid}")
    try:
        found = measured(lab, FIRST)
        result = lab.command(FIRST, "systemctl show --property=Result --value slurm-metrics-cluster.service")
    finally:
        lab.command(FIRST, f"kill -CONT {pid}")
    assert result == "exit-code"
    assert found["slurm_metrics_cluster_seconds"] < 45
    assert {name for name in found if not name.startswith("slurm_metrics_cluster_seconds")} == {
        f'slurm_controller_serving{{controller="{FIRST}",place="0"}}',
        "slurm_metrics_cluster_success",
    }
    assert found["slurm_metrics_cluster_success"] == 0
    assert measured(lab, FIRST)["slurm_metrics_cluster_success"] == 1


def test_after_a_takeover_the_standby_has_the_series(lab: Lab) -> None:
    standby = {f'slurm_controller_serving{{controller="{SECOND}",place="1"}}': 0}
    assert measured(lab, SECOND) == standby
    lab.command(FIRST, "systemctl stop slurmctld")
    try:
        serves(lab, 1, 240)
        found = measured(lab, SECOND)
        assert found[f'slurm_controller_serving{{controller="{SECOND}",place="1"}}'] == 1
        assert found["slurm_jobs_running"] == 1
        assert measured(lab, FIRST) == {f'slurm_controller_serving{{controller="{FIRST}",place="0"}}': 0}
        wait_for(lambda: [each["metric"]["instance"] for each in ask("slurm_queue_running")] == [SECOND])
        assert [each["metric"]["instance"] for each in ask("slurm_controller_serving == 1")] == [SECOND]
    finally:
        lab.command(FIRST, "systemctl start slurmctld")
        serves(lab, 0, 120)
    measured(lab, FIRST)
    assert measured(lab, SECOND) == standby
    wait_for(lambda: [each["metric"]["instance"] for each in ask("slurm_queue_running")] == [FIRST])
