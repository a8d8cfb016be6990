# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of role slurm_report: what it shows, what it hides, and that no text of others becomes a part of it."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import report_data
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.gpus_command import gpu_answers, gpu_reports
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import (
    acceptance_table as acceptance,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import node_tables as nodes
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import plots
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import queue_tables as jobs
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_page as page
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_privacy as privacy
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_texts as texts
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import upkeep_tables as upkeep
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import usage_tables as usage
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

Data = dict[str, Any]
MADE = {"made": report_data.at(), "cluster": "c", "version": 1, "private": []}
NOW = texts.time_of(MADE, "made")

# -- A page as a browser reads it ------------------------------------------------------------------------------------


class Read(HTMLParser):
    """A page: its tags with their attributes, its texts, the content of style and script, and its open elements."""

    VOID = ("meta", "link", "br", "wbr", "input", "rect", "path")

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.code: dict[str, str] = {}
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            self.code[self.open[-1]] = data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts, those of titles of nodes included, with single blanks."""
        titles = [str(attributes["title"]) for _tag, attributes in self.tags if "title" in attributes]
        return " ".join(" ".join([*self.texts, *titles]).split())

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """The tags with the names of their attributes."""
        return [(tag, tuple(attributes)) for tag, attributes in self.tags]


def admin(data: Data) -> str:
    """The page of administrators."""
    return page.render(page.page_of(data, admin=True))


def everybody(data: Data) -> str:
    """The page for everybody."""
    return page.render(page.page_of(privacy.for_everybody(data), admin=False))


@pytest.fixture(name="data")
def data_of_a_cluster() -> Data:
    found: Data = report_data.cluster()
    return found


@pytest.fixture(name="few")
def data_of_a_small_cluster() -> Data:
    """All kinds of things, and few of each."""
    found: Data = report_data.cluster(nodes=30, jobs=9, running=5, users=4)
    return found


# -- What it shows ---------------------------------------------------------------------------------------------------


def test_the_page_of_administrators_has_all_parts(data: Data) -> None:
    found = Read(admin(data))
    assert found.open == []
    for text in (
        "aurora",
        "Slurm 24.11.5",
        "Maintenance from 2026-12-01 11:59 +01:00",
        "New cooling loops.",
        "GPUs in use",
        "jobs with a higher priority come first Priority",
        "a limit of its QOS is reached: GPUs and other GRES for each user QOSMaxGRESPerUser",
        "Kill task failed, and no process of an ended job is left",
        "Resume the node; raise UnkillableStepTimeout if this happens often.",
        "GPU hours each day",
        "Fairshare",
        "550.163.01 is loaded, 580.95.05 is installed",
        "not reached",
        "24.11.5-4 24.11.5-4+deb13u1 gpu[01-24] (24)",
        "yes, held",
        "Passed 2026-11-27 07:23 +01:00 (7 h 12 min ago) : 31 jobs passed, 0 failed, 2 could not start.",
        "Not good db1",
        "head2 standby 1",
        "Acceptance gpu07 named 5 h ago (medium)",
        "Failed 2026-11-27 09:35 +01:00 (5 h ago) : level medium , 23 nodes measured, 1 left out, 1 named: gpu07 .",
        "gpu07: TCP between two nodes: with each of gpu[02-04,11], which are fast with others",
        "against the baseline, 2890",
        "-22.4 %, worse against the median of 11 earlier runs",
        "gpu12 (1) named",
    ):
        assert text in found.text


def test_a_node_tells_who_uses_it() -> None:
    node = {"name": "n1", "state": "MIXED", "partitions": ["gpu"], "cpus": 64, "cpus_allocated": 16, "memory": 262144}
    node |= {"memory_allocated": 1024, "gpus": [{"type": "h100", "count": 8, "allocated": 6}], "features": []}
    common = {"account": "bio", "state": "RUNNING", "cpus": 4, "start": report_data.at(-1)}
    data = {**MADE, "nodes": [node, {**node, "name": "n2", "state": "IDLE", "gpus": []}], "jobs": []}
    data["jobs"] = [
        {**common, "id": "7", "user": "ann", "nodes": "n1", "gpus": [{"type": "h100", "count": 4}]},
        {**common, "id": "8", "user": "bob", "nodes": "n[1-2]", "gpus": [{"type": "h100", "count": 4}]},
        {**common, "id": "9", "user": "ann", "nodes": "n1", "gpus": []},
    ]
    titles = [
        attributes["title"] for tag, attributes in Read(admin(data)).tags if tag == "li" and "title" in attributes
    ]
    assert titles == [
        "n1 · MIXED\n6 of 8 h100 · 16 of 64 CPUs · 1 GiB of 256 GiB\nPartitions: gpu\nann: 4 GPUs, jobs 7, 9"
        "\nbob: 2 GPUs, job 8",
        "n2 · IDLE\n16 of 64 CPUs · 1 GiB of 256 GiB\nPartitions: gpu\nbob: 2 GPUs, job 8",
    ]


@pytest.mark.parametrize(
    ("state", "key"),
    [
        ("IDLE", "idle"),
        ("MIXED+PLANNED", "used"),
        ("ALLOCATED+COMPLETING", "used"),
        ("IDLE+DRAIN", "drained"),
        ("MIXED+DRAIN", "drained"),
        ("DOWN+DRAIN", "down"),
        ("IDLE+NOT_RESPONDING", "down"),
        ("IDLE*", "idle"),
        ("IDLE+MAINTENANCE+RESERVED", "reserved"),
        ("IDLE+CLOUD+POWERED_DOWN", "off"),
        ("IDLE+CLOUD", "idle"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_the_group_of_a_state(state: str, key: str) -> None:
    assert nodes.group_of(state).key == key


@pytest.mark.parametrize(
    ("used", "total", "level"), [(0, 8, 0), (1, 8, 1), (1, 128, 1), (127, 128, 7), (8, 8, 8), (0, 0, 0)]
)
def test_how_full_a_cell_is(used: int, total: int, level: int) -> None:
    assert nodes.level_of(used, total) == level


def test_cells_show_less_on_larger_clusters() -> None:
    sizes = {count: page.page_of(report_data.cluster(nodes=count), admin=True).nodes.size for count in (64, 65, 401)}
    assert sizes == {64: "large", 65: "middle", 401: "small"}


def test_gpus_of_nodes_that_start_nothing_are_unavailable() -> None:
    gpus = [{"type": "a100", "count": 4, "allocated": 1}]
    found = [
        nodes.read_node({"name": f"n{place}", "state": state, "gpus": gpus})
        for place, state in enumerate(("MIXED", "MIXED+DRAIN"))
    ]
    assert nodes.grid_of(found, {}, {}).types == [nodes.TypeRow("a100", 8, 2, 3, 3)]


def test_the_queue_counts_all_jobs_and_says_what_it_leaves_out() -> None:
    some = {
        "account": "a",
        "partition": "p",
        "submit": report_data.at(-1),
        "cpus": 2,
        "gpus": [{"type": "h100", "count": 2}],
    }
    waiting = [
        {
            **some,
            "id": f"{number}",
            "user": f"u{number % 150}",
            "state": "PENDING",
            "reason": "Priority",
            "priority": number,
        }
        for number in range(1200)
    ]
    waiting.append(
        {**some, "id": "9_[1-50]", "array_tasks": 50, "user": "u1", "state": "PENDING", "reason": "Resources"}
    )
    queue = jobs.queue_of([job for job in map(jobs.read_job, waiting) if job])
    assert (queue.waiting, queue.gpus_wanted, queue.running) == (1250, 2500, 0)
    assert (len(queue.listed_waiting), queue.waiting_note) == (300, "and 901 lines of the queue more")
    assert [job.id for job in queue.listed_waiting[:2]] == ["1199", "1198"]
    assert queue.users_note == "and 50 users more, with 0 running and 400 waiting jobs"
    assert sum(user.waiting for user in queue.users) + 400 == 1250
    assert queue.accounts == [jobs.Share("a", waiting=1250, gpus_wanted=2500)]
    assert [(reason.word, reason.jobs) for reason in queue.reasons] == [("Priority", 1200), ("Resources", 50)]


def test_a_job_that_has_ended_is_no_part_of_the_queue() -> None:
    assert jobs.read_job({"id": "1", "state": "COMPLETED"}) is None
    assert jobs.read_job({"id": "1", "state": "CANCELLED by 0"}) is None


RUNNING: Data = {
    "user": "ada",
    "account": "a",
    "state": "RUNNING",
    "start": report_data.at(-1),
    "time_limit": 7200,
    "nodes": "n1",
    "cpus": 4,
    "gpus": [{"type": "h100", "count": 2}],
}


def read_jobs(*records: Data) -> list[jobs.QueueJob]:
    """Jobs of the data."""
    return [job for job in (jobs.read_job({**RUNNING, **record}, NOW) for record in records) if job]


def test_a_suspended_job_keeps_its_gpus_and_does_not_run() -> None:
    """Slurm takes the CPUs alone from it (`job_res_rm_job` in src/plugins/select/cons_tres/job_resources.c)."""
    queue = jobs.queue_of(read_jobs({"id": "1"}, {"id": "2", "state": "SUSPENDED"}))
    assert (queue.running, queue.suspended, queue.waiting, len(queue.listed_running)) == (1, 1, 0, 2)
    assert queue.users == [jobs.Share("ada", running=1, gpus=4, cpus=4)]
    data = {**MADE, "nodes": [], "jobs": [{**RUNNING, "id": "2", "state": "SUSPENDED"}]}
    found = Read(admin(data))
    assert "Jobs running 0 1 suspended" in found.text
    assert "Running and suspended, from the most GPUs" in found.text
    assert "2 (suspended)" in found.text
    assert "suspended on n1, ends at the latest: not known" in found.text


@pytest.mark.parametrize(
    ("hours", "reason", "shown"),
    [
        (3, "Resources", "2026-11-27 17:35 +01:00"),
        (365 * 24, "Resources", "not planned"),
        (200 * 24, "Priority", "not planned"),
        (365 * 24, "BeginTime", "2027-11-27 14:35 +01:00"),
        (None, "Priority", "not planned"),
    ],
)
def test_a_start_that_slurm_does_not_plan(hours: float | None, reason: str, shown: str) -> None:
    """Slurm takes a job without a time limit to end in a year. The program gpus says the same."""
    expected = None if hours is None else report_data.at(hours)
    waiting = {**RUNNING, "id": "7", "state": "PENDING", "reason": reason, "start": None, "expected_start": expected}
    text = Read(admin({**MADE, "jobs": [waiting]})).text
    assert text.count(shown) == 2  # in the queue, and in the jobs of the user
    empty: dict[str, Any] = dict.fromkeys(gpu_answers.ShownJob._fields, "")
    own = gpu_answers.ShownJob(**empty)._replace(id="7", nodes=1, tasks=1, reason=reason)
    start = None if hours is None else int(NOW.seconds + 3600 * hours)
    found = gpu_reports.report_waiting(own._replace(start=start), int(NOW.seconds))["start"]
    assert found == (None if shown == "not planned" else start)


def test_shares_of_gpus_are_shown() -> None:
    one, two = ([{"kind": "shard", "type": "h100", "count": count}] for count in (1, 2))
    found = read_jobs(
        {"gpus": [], "shares": one}, {"gpus": [], "shares": two}, {"shares": [{"kind": "mps", "count": 50}]}
    )
    assert [job.wanted for job in found] == ["1 h100 shard", "2 h100 shards", "2 h100, 50 mps"]


def test_when_the_next_gpu_of_a_type_is_free() -> None:
    def node(name: str, state: str, kind: str, allocated: int) -> nodes.NodeRow:
        return nodes.NodeRow(name, state, [], 8, 8, None, None, [nodes.NodeGpu(kind, 4, allocated)])

    machines = [
        node("n1", "ALLOCATED", "h100", 4),
        node("n2", "MIXED+DRAIN", "h100", 4),
        node("n3", "MIXED", "a100", 3),
        node("n4", "ALLOCATED", "t4", 4),
        node("n5", "ALLOCATED", "v100", 4),
    ]
    found = read_jobs(
        {"time_limit": 5 * 3600},
        {"time_limit": 3 * 3600},
        {"time_limit": 2 * 3600, "nodes": "n2"},
        {"time_limit": 4000, "nodes": "n3"},
        {"time_limit": None, "nodes": "n4", "gpus": [{"type": "t4", "count": 4}]},
        {"time_limit": 1800, "nodes": "n5", "gpus": [{"type": "", "count": 4}]},
    )
    rows = nodes.grid_of(machines, {}, {}, nodes.ends_of_types(found, machines), NOW).types
    assert {row.type: row.next.shown for row in rows} == {
        "h100": "2026-11-27 16:35 +01:00",  # the job on a drained node gives none back
        "a100": "",  # one is free
        "t4": "",  # its job has no limit
        "v100": "2026-11-27 14:35 +01:00",  # its job should have ended
    }


def test_the_jobs_of_a_user_are_all_there() -> None:
    """Also those that the tables of the queue leave out."""
    others = [{"id": str(number), "user": "ada", "priority": 9, "state": "PENDING"} for number in range(900)]
    mine = {"id": "5_[1-3]", "array_tasks": 3, "user": "zoe", "state": "PENDING", "reason": "Priority"}
    queue = jobs.queue_of(read_jobs(*others, mine, {"id": "6", "user": "zoe"}))
    assert "zoe" not in [job.user for job in queue.listed_waiting]
    own = {found.user: found for found in queue.own}
    assert [job.id for job in own["zoe"].jobs] == ["6", "5_[1-3]"]
    assert (own["zoe"].running, own["zoe"].waiting, own["zoe"].note) == (1, 3, "")
    assert (len(own["ada"].jobs), own["ada"].note) == (20, "and 880 lines of the queue more")
    many = jobs.queue_of(read_jobs(*({"id": str(number), "user": f"u{number % 1000}"} for number in range(9000))))
    assert sum(len(found.jobs) for found in many.own) == 2000


def test_alerts_that_fire_and_links_are_for_administrators(data: Data) -> None:
    found = Read(admin(data))
    assert "Alerts 3 firing" in found.text
    assert "page SlurmControllerDown for 12 min slurmctld of head2 does not answer" in found.text
    assert "ticket SlurmNodeDrained (2) for 6 h gpu01 has been drained" in found.text
    links = {attributes.get("href") for tag, attributes in found.tags if tag == "a"}
    assert {"http://10.0.0.9:9090", "https://grafana.example.org/d/slurm"} <= links
    assert "SlurmNodeDrained" not in everybody(data)
    assert "grafana" not in everybody(data)
    none = Read(admin({**data, "alerts": []})).text
    assert ("Alerts none firing" in none, "None is firing." in none) == (True, True)
    assert "Alerts" not in Read(admin({**data, "alerts": None})).text
    away = {"part": "alerts", "why": "http://10.0.0.9:9090 does not answer: timed out"}
    assert "Alerts not known" in Read(admin({**data, "alerts": None, "missing": [away]})).text
    bad = [{"title": "x", "url": "javascript:alert(1)"}]
    assert "javascript" not in admin({**data, "links": bad})


def test_open_cases_are_for_administrators(data: Data) -> None:
    found = Read(admin(data)).text
    assert "Nodes that fail 2 open cases, 1 for a person" in found
    assert (
        "13 gpu05 2026-11-27 13:05 +01:00 (1 h 30 min ago) person gpu-rows-failed GPU 0: row remapping has failed "
        f"gpu-rows-failed: replace {texts.NOTHING} 12 gpu03 2026-11-27 12:05 +01:00 (2 h 30 min ago) saved xid-79 "
        "GPU 3 has fallen off the bus drain (reboot) ada"
    ) in found
    assert "row remapping" not in everybody(data)
    none = Read(admin({**data, "cases": []})).text
    assert ("Nodes that fail no case is open" in none, "No case is open." in none) == (True, True)
    away = {"part": "cases", "why": "slurm-repair: slurmctld does not answer"}
    assert "Nodes that fail not known" in Read(admin({**data, "cases": None, "missing": [away]})).text


def test_without_the_key_no_cases_are_on_the_page(data: Data) -> None:
    """The host of the page may also be no controller, which has no cases."""
    for html in (admin({**data, "cases": None}), everybody(data)):
        assert "Nodes that fail" not in html
        assert "#cases" not in html


def test_cases_that_are_not_listed_are_counted() -> None:
    rows = [{"number": number, "node": f"n{number}", "state": "found"} for number in range(104)]
    found = Read(admin({**MADE, "cases": rows})).text
    assert "Nodes that fail 104 open cases" in found
    assert "n99" in found
    assert "n100" not in found
    assert "and 4 cases more" in found


def test_ages_have_their_time_for_the_script(data: Data) -> None:
    """A page stays open, and its text would still say `4 min ago`."""
    found = Read(admin(data))
    ages = {
        attributes["data-age"]: attributes["data-since"] for _tag, attributes in found.tags if "data-age" in attributes
    }
    assert ages["7 h 12 min"] == data["validation"]["finished"]
    assert len(ages) >= 4
    for age in re.findall(r"((?:\d+ (?:d|h|min) ?)+)ago", found.text):
        assert age.strip() in ages


def test_rows_of_the_trend_have_names_of_their_own() -> None:
    """A quick run has smaller messages than a long one."""
    data = runs(100, 100)
    data["acceptance"][1]["values"][0]["size"] = 2**30
    data["acceptance"][0]["values"][0]["size"] = 2**34
    found = trends(data)
    assert len({(trend.meaning, trend.hardware, trend.conditions) for trend in found}) == len(found) == 2
    assert [trend.conditions for trend in found] == ["16 GiB", "1 GiB"]


def test_a_message_has_lines() -> None:
    row = {"name": "m", "start": report_data.at(1), "end": report_data.at(2), "message": "new <b>\nsecond\x1b"}
    (found,) = upkeep.maintenance_of({"maintenance": [row]}, NOW)
    assert found.message == "new <b>\nsecond\\x1b"


def test_drained_nodes_with_one_reason_are_one_entry() -> None:
    drains = [
        {"nodes": "n[1-2]", "state": "IDLE+DRAIN", "since": report_data.at(-48), "reason": "disk", "by": "ops"},
        {"nodes": "n3", "state": "DOWN+DRAIN", "since": report_data.at(-2), "reason": "disk", "by": "ops"},
        {"nodes": "n4", "state": "DOWN", "since": None, "reason": "power", "by": None},
    ]
    found = upkeep.drains_of({"drains": drains}, NOW)
    assert [(drain.nodes, drain.total, drain.age, drain.first_age, drain.reason) for drain in found] == [
        ("n[1-3]", 3, "2 h", "2 d", "disk"),
        ("n4", 1, texts.NOTHING, texts.NOTHING, "power"),
    ]
    assert found[0].state == "DOWN+DRAIN, IDLE+DRAIN"


def test_use_is_summed_by_user_and_account() -> None:
    rows = [
        {"account": "a", "user": "x", "cpu_hours": 1, "gpu_hours": 2, "idle_gpu_hours": 1, "fairshare": 0.5},
        {"account": "a", "user": "y", "cpu_hours": 3, "gpu_hours": 4, "idle_gpu_hours": None, "fairshare": 0.1},
        {"account": "b", "user": "x", "cpu_hours": 5, "gpu_hours": 0, "idle_gpu_hours": 0, "fairshare": 0.2},
    ]
    found = usage.usage_of({"since": report_data.at(-720), "until": report_data.at(), "days": [], "users": rows})
    assert [(row.account, row.cpu, row.gpu, row.idle) for row in found.accounts] == [("a", 4, 6, 1), ("b", 5, 0, 0)]
    assert [(row.user, row.account, row.fairshare) for row in found.users] == [
        ("y", "a", 0.1),
        ("x", "a", 0.5),
        ("x", "b", 0.2),
    ]
    assert (found.users[1].idle_part, found.users[0].idle_part, found.has_idle) == (50, None, False)


@pytest.mark.parametrize(("value", "top"), [(0.2, 1), (1, 1), (7, 8), (11, 20), (60_000, 60_000), (61_000, 80_000)])
def test_the_top_of_a_plot(value: float, top: float) -> None:
    assert plots.round_up(value) == top


def test_a_plot_without_use_is_not_drawn() -> None:
    assert plots.plot("title", []) is None
    assert plots.plot("title", [plots.Value("2026-01-01", 0, None, "")]) is None
    drawn = plots.plot(
        "title", [plots.Value("2026-01-01", 50, 80, "all idle"), plots.Value("2026-01-02", 100, None, "")]
    )
    assert drawn
    assert [(bar.height, bar.idle) for bar in drawn.bars] == [(50, 50), (100, 0)]


# -- Runs of accept --------------------------------------------------------------------------------------------------

VALUE: Data = {
    "test": "stream",
    "meaning": "memory bandwidth (STREAM Triad)",
    "hardware": "m",
    "nodes": 1,
    "size": None,
    "driver": "",
    "image": "",
    "values": 4,
    "unit": "GB/s",
    "baseline": None,
    "tolerance": 0.05,
    "higher": True,
}


def runs(*medians: float | None, **value: Any) -> Data:
    """Data with runs that have measured these medians, the newest first; None for a run without the test."""
    return {
        "acceptance": [
            {
                "finished": report_data.at(-place - 1),
                "ok": True,
                "level": "quick",
                "values": [] if number is None else [{**VALUE, "median": number, **value}],
            }
            for place, number in enumerate(medians)
        ]
    }


def trends(data: Data) -> list[acceptance.Trend]:
    found = acceptance.acceptance_of(data, NOW)
    assert found
    return [*found.trends]


def test_a_trend_is_against_the_runs_before_or_the_baseline() -> None:
    (first,) = trends(runs(100))
    assert (first.change, first.worse, len(first.points)) == ("", False, 1)
    (second,) = trends(runs(99, 100))
    assert (second.change, second.to, second.worse) == ("-1.0 %", "the run before", False)
    (later,) = trends(runs(90, 100, 101, 20))
    assert (later.change, later.to, later.worse) == ("-10.0 %", "the median of 3 earlier runs", True)
    (reviewed,) = trends(runs(97, 50, baseline=100))
    assert (reviewed.change, reviewed.to, reviewed.worse) == ("-3.0 %", "the baseline, 100", False)
    assert [point.shown for point in later.points] == ["90", "100", "101", "20"]


@pytest.mark.parametrize(("median", "higher", "worse"), [(94, True, True), (106, True, False), (106, False, True)])
def test_what_is_worse_depends_on_the_test(median: float, higher: bool, worse: bool) -> None:
    (found,) = trends(runs(median, 100, higher=higher))
    assert found.worse is worse


@pytest.mark.parametrize("key", ["test", "hardware", "nodes", "size", "driver", "image", "unit"])
def test_what_cannot_be_compared_is_no_trend(key: str) -> None:
    data = runs(100, 50)
    data["acceptance"][1]["values"][0][key] = 7
    found = trends(data)
    assert [(trend.change, trend.is_last) for trend in found] == [("", True), ("", False)]


def test_a_run_of_another_level_leaves_the_trend_as_it_is() -> None:
    (found,) = trends(runs(None, 99, 100))
    assert (found.is_last, found.change) == (False, "-1.0 %")
    assert "99 GB/s, 2026-11-27 12:35 +01:00" in Read(admin({**MADE, **runs(None, 99, 100)})).text


@pytest.mark.parametrize("number", [0, -1, None, "x", float("nan"), float("inf"), 1e300])
def test_a_median_that_is_none_is_left_out(number: Any) -> None:
    data = runs(100, 100)
    data["acceptance"][0]["values"][0]["median"] = number
    assert [len(trend.points) for trend in trends(data)] == [1]


def test_what_the_last_run_has_named_is_a_check() -> None:
    def check(**run: Any) -> tuple[str, str]:
        found = acceptance.acceptance_check(acceptance.acceptance_of({"acceptance": [run]}, NOW))
        return found.state, found.text

    times = {"finished": report_data.at(-48), "level": "long"}
    assert acceptance.acceptance_check(None).state == "unknown"
    assert check(**times, ok=True) == ("good", "nothing named 2 d ago (long)")
    assert check(**times, ok=False, named=2, names="n[1-2]") == ("bad", "n[1-2] named 2 d ago (long)")
    assert check(**times, ok=False, named=8, names="n[1-2]")[1] == "n[1-2] and 6 nodes more named 2 d ago (long)"
    assert check(**times, ok=False) == ("bad", "failed 2 d ago (long)")


def test_findings_that_are_not_listed_are_counted() -> None:
    run = {"finished": report_data.at(-1), "findings": ["n1: slow"] * 150, "faults": 400}
    found = acceptance.acceptance_of({"acceptance": [run]}, NOW)
    assert found
    assert (len(found.findings), found.findings_note) == (100, "and 300 findings more")


def test_lines_of_the_trend_end() -> None:
    data = runs(1)
    data["acceptance"][0]["values"] = [{**VALUE, "hardware": f"m{number}", "median": 1} for number in range(130)]
    found = acceptance.acceptance_of(data, NOW)
    assert found
    assert (len(found.trends), found.trends_note) == (100, "and 30 lines more")
    assert acceptance.acceptance_of({"acceptance": []}, NOW) is None


def test_a_curve_shows_noise_as_small_and_a_fall_as_a_fall() -> None:
    assert plots.curve([], 5) is None
    one = plots.curve([7], None)
    assert one == plots.Curve("", plots.WIDE / 2, plots.HIGH / 2, None)
    calm = plots.curve([100, 101, 99, 100], None)
    assert calm
    assert calm.path == "M4 14L41.3 13L78.7 15L116 14"
    fall = plots.curve([100, 100, 20], 100)
    assert fall == plots.Curve("M4 4L60 4L116 24", 116.0, 24.0, 4.0)


@given(st.lists(st.floats(1e-12, 1e14), min_size=1, max_size=60), st.none() | st.floats(1e-12, 1e14))
def test_a_curve_stays_in_its_place(values: list[float], reference: float | None) -> None:
    found = plots.curve(values, reference)
    assert found
    numbers = [float(number) for number in re.findall(r"[\d.]+", found.path)]
    assert all(0 <= x <= plots.WIDE and 0 <= y <= plots.HIGH for x, y in zip(numbers[::2], numbers[1::2]))
    assert 0 <= found.y <= plots.HIGH
    assert "e" not in found.path


# -- What is missing -------------------------------------------------------------------------------------------------


def test_a_page_without_any_data() -> None:
    for data in ({}, MADE, {**MADE, "usage": None, "hosts": None, "validation": None, "backup": None, "nodes": None}):
        for html in (admin(data), everybody(data)):
            assert Read(html).open == []
    text = Read(admin(MADE)).text
    assert text.count("Not known: it could not be had when the page was made.") == 4
    assert "Security updates not known" in text
    assert Read(everybody(MADE)).text.count("Not known: it could not be had when the page was made.") == 3
    text = Read(admin({**MADE, "nodes": [], "jobs": [], "drains": [], "updates": []})).text
    assert "Not known" not in text
    assert "Security updates none pending" in text
    for said in (
        "not checked",
        "no run is known",
        "none is known",
        "No job runs or waits.",
        "The cluster has no nodes.",
    ):
        assert said in text


def test_what_is_missing_is_said() -> None:
    gaps = [{"part": "usage", "why": "slurmdbd on db1 does not answer"}, {"part": "updates", "why": "apt is locked"}]
    data = {**MADE, "missing": gaps}
    found = Read(admin(data)).text
    assert "usage : slurmdbd on db1 does not answer" in found
    assert "Security updates not known" in found
    assert "Not known: it could not be had when the page was made." in found
    for_all = Read(everybody(data)).text
    assert "Some of this page is missing." in for_all
    assert "db1" not in for_all
    assert "updates" not in for_all
    gaps.append({"part": "usage.fairshare", "why": "sshare failed"})
    assert "usage.fairshare" in Read(everybody(data)).text


def test_backups_of_which_the_time_is_not_known() -> None:
    rows = [
        {"host": "h1", "finished": None, "ok": True, "text": "copied"},
        {"host": "h2", "finished": None, "ok": True},
    ]
    assert upkeep.backup_check(upkeep.backups_of({"backup": rows}, NOW)).text == "done"
    rows[1]["finished"] = report_data.at(-2)
    assert upkeep.backup_check(upkeep.backups_of({"backup": rows}, NOW)).text == "done 2 h ago"


def test_ended_maintenance_is_not_shown() -> None:
    times = {"before": (-5, -1), "now": (-1, 1), "later": (5, 9)}
    found = [
        {"name": name, "start": report_data.at(start), "end": report_data.at(end)}
        for name, (start, end) in times.items()
    ]
    assert [(some.name, some.now) for some in upkeep.maintenance_of({"maintenance": found}, NOW)] == [
        ("now", True),
        ("later", False),
    ]


@pytest.mark.parametrize(("interval", "seconds"), [(300, 900), (None, 86400), (0, 86400)])
def test_when_a_page_is_old(interval: int | None, seconds: int) -> None:
    assert page.page_of({**MADE, "interval": interval}, admin=True).old_after == seconds


# -- PrivateData -----------------------------------------------------------------------------------------------------

ALL = ("accounts", "jobs", "nodes", "partitions", "reservations", "usage", "users")


def marked(data: Data) -> Data:
    """The data with a mark of its own in each text that is a name or a comment, such as `mark-jobs-user-`."""
    keep = re.compile(
        r"(made|version|private|.*\.(state|submit|start|end|since|until|finished|expected_start|checked|day|nodes))$"
    )

    def mark(path: str, text: str) -> str:
        return text if keep.match(path) else f"mark-{path.replace('.', '-')}-"

    found: Data = report_data.changed(data, mark)
    for number, node in enumerate(found["nodes"]):
        node["name"] = f"mark-nodes-name-{number}"
    for place, job in enumerate(found["jobs"]):
        # One of them is a node whose cell tells who uses it.
        job["nodes"] = f"mark-jobs-nodes-{place},mark-nodes-name-{place % 24}" if job["nodes"] else ""
    for place, drain in enumerate(found["drains"]):
        drain["nodes"] = f"mark-drains-nodes-{place}"
    found["maintenance"][0]["nodes"] = "mark-maintenance-nodes-1"
    return found


def marks(html: str) -> set[str]:
    """The marks in a page."""
    return set(re.findall(r"mark-([a-z_-]+?)-(?![a-z])", html))


def shown_with(*words: str) -> set[str]:
    """The marks in the page for everybody with these words of PrivateData."""
    data = marked(report_data.cluster())
    data["private"] = list(words)
    return marks(everybody(data))


OPEN = shown_with
NAMES_OF_JOBS = {"jobs-id", "jobs-user", "jobs-account", "jobs-partition", "jobs-name", "jobs-reason", "jobs-gpus-type"}
NAMES_OF_JOBS |= {"jobs-shares-kind", "jobs-shares-type"}
OF_NODES = {"nodes-name", "nodes-partitions", "nodes-gpus-type"}
OF_DRAINS = {"drains-nodes", "drains-by", "drains-reason"}
OF_USE = {"usage-users-user", "usage-users-account"}
OF_MAINTENANCE = {"maintenance-name", "maintenance-nodes", "maintenance-message"}
FOR_ALL = {"cluster", "jobs-nodes"} | NAMES_OF_JOBS | OF_NODES | OF_DRAINS | OF_USE | OF_MAINTENANCE


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ([], set()),
        (["events", "cloud"], set()),
        (["jobs"], {"jobs-nodes"} | NAMES_OF_JOBS),
        (["job"], {"jobs-nodes"} | NAMES_OF_JOBS),
        (["node"], OF_NODES | OF_DRAINS | {"jobs-nodes", "maintenance-nodes"}),
        (["nodes"], OF_NODES | OF_DRAINS | {"jobs-nodes", "maintenance-nodes"}),
        (["partitions"], {"jobs-partition", "nodes-partitions"}),
        (["usage"], OF_USE),
        (["users"], {"jobs-user", "usage-users-user", "drains-by"}),
        (["accounts"], {"jobs-account", "usage-users-account"}),
        (["reservations"], {"maintenance-name", "maintenance-nodes"}),
        (["users", "accounts"], {"jobs-user", "jobs-account", "usage-users-user", "usage-users-account", "drains-by"}),
        (["all"], FOR_ALL - {"cluster", "maintenance-message"}),
        (ALL, FOR_ALL - {"cluster", "maintenance-message"}),
    ],
)
def test_the_page_for_everybody_has_no_mark_of_what_is_private(words: list[str], gone: set[str]) -> None:
    """The marks of drift, versions, updates, acceptance, validation and backup are never there, nor doctor's words."""
    assert shown_with(*words) == FOR_ALL - gone


def test_the_page_of_administrators_has_all_marks_whatever_is_private() -> None:
    data = marked(report_data.cluster())
    data["private"] = ["all"]
    found = marks(admin(data))
    assert found >= FOR_ALL | {
        "hosts-hosts-name",
        "versions-version",
        "updates-to",
        "backup-text",
        "drains-cause",
        "controllers-name",
        "alerts-name",
        "alerts-text",
        "cases-node",
        "cases-text",
        "cases-next",
        "cases-held",
        "acceptance-level",
        "acceptance-names",
        "acceptance-findings",
        "acceptance-values-meaning",
        "acceptance-values-hardware",
        "acceptance-values-image",
    }


def test_idle_hours_of_users_are_for_administrators() -> None:
    data = report_data.cluster()
    own = page.page_of(data, admin=True)
    assert own.usage
    assert (own.usage.has_idle, own.usage.has_idle_of_users) == (True, True)
    view = page.page_of(privacy.for_everybody(data), admin=False)
    assert view.usage
    assert (view.usage.has_idle, view.usage.has_idle_of_users) == (True, False)


@pytest.mark.parametrize("private", [None, "", {}, 0])
def test_everything_is_private_if_private_data_are_not_known(private: Any) -> None:
    data = marked(report_data.cluster())
    data["private"] = private
    assert marks(everybody(data)) == {"cluster", "maintenance-message"}


def test_a_reservation_without_a_message_is_private() -> None:
    data = {
        **MADE,
        "private": ["reservations"],
        "maintenance": [{"name": "m", "end": report_data.at(9), "message": None}],
    }
    assert privacy.for_everybody(data)["maintenance"] == []


def test_a_reason_names_no_private_nodes() -> None:
    job = {"id": "1", "state": "PENDING", "reason": "ReqNodeNotAvail, UnavailableNodes:secret[1-3]"}
    assert "secret" in everybody({**MADE, "jobs": [job]})
    assert "secret" not in everybody({**MADE, "jobs": [job], "private": ["nodes"]})


# -- Texts of users and hosts ----------------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "' onmouseover='alert(1)' x='",
    "javascript:alert(1)",
    "</style><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "<!--",
    "-->",
    "]]>",
    "{{7*7}}",
    "{% raw %}",
    "{# comment",
    "${7*7}",
    "&lt;b&gt; &amp; &#60;",
    "\u202egnp.exe\u202c",
    "\u2066\u2067\u2069",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "nul\x00nul",
    "\ud800 half",
    "\udc80\udcff",
    "line\u2028line\u2029",
    "a\r\nb\tc\vd",
    "\ufeff\u200b\u2060",
    "\U000e0041\ufff9",
    "e" + "\u0301" * 300,
    "W" * 20_000,
    "漢字" * 5_000,
    "عربي",
    "",
)
ENDLESS = "x" * 2_000_000


def hostile(data: Data, text: str) -> Data:
    """The data with a text in the place of each of its texts, except the states that decide where things are shown."""
    kept = ("made", "jobs.state", "nodes.state")

    def change(path: str, was: str) -> str:
        return was if path in kept else text

    found: Data = report_data.changed(data, change)
    return found


ELSEWHERE = {("link", "data:,"), *(("a", link["url"]) for link in report_data.LINKS)}
"""The only addresses of elements, besides parts of the page."""


def allowed(html: str) -> Iterator[str]:
    """What is wrong with a page as a browser reads it."""
    found = Read(html)
    yield from (f"<{tag}> is open" for tag in found.open)
    scripts = [tag for tag, _attributes in found.tags if tag == "script"]
    if scripts != ["script"]:
        yield f"{len(scripts)} scripts"
    for tag, attributes in found.tags:
        yield from (f"{name} of <{tag}>" for name in attributes if name.startswith("on") or name == "style")
        for name in ("href", "src", "action", "data", "xlink:href"):
            value = attributes.get(name)
            if value is not None and not value.startswith("#") and (tag, value) not in ELSEWHERE:
                yield f"{name} of <{tag}>: {value[:80]}"
        if tag in ("img", "iframe", "object", "embed", "form", "base", "math"):
            yield f"<{tag}>"
    hidden = re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9]", html)
    yield from {f"character {character!a}" for character in hidden}
    longest = max(
        map(len, [*found.texts, *(str(value) for _tag, attributes in found.tags for value in attributes.values())])
    )
    if longest > 5000:
        yield f"a text of {longest} characters"


def test_a_page_of_plain_texts_is_allowed(data: Data) -> None:
    """The check of the next tests passes where nothing is wrong, and finds what is."""
    assert list(allowed(admin(data))) == []
    html = admin(data).replace("</main>", "<p onclick=x><script>1</script><a href='javascript:1'>\x1b</a></p></main>")
    assert len(list(allowed(html))) == 4


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:20])
def test_no_text_becomes_a_part_of_the_page(text: str, few: Data) -> None:
    for make in (admin, everybody):
        # Tags follow from what is there and what is equal, so the same number of other texts has the same tags.
        plain = Read(make(hostile(few, "plain" if text else "")))
        html = make(hostile(few, text))
        assert list(allowed(html)) == []
        html.encode()  # half characters would fail
        assert set(Read(html).shape) <= set(plain.shape) | {("details", ()), ("summary", ())}
        assert Read(html).code == plain.code


def test_templates_in_texts_are_not_run(few: Data) -> None:
    html = admin(hostile(few, "{{7*7}}{{ page }}{% for x in y %}"))
    assert "{{7*7}}{{ page }}{% for x in y %}" in Read(html).text


@given(st.lists(st.text(max_size=40), min_size=1, max_size=12))
@settings(max_examples=25)
def test_any_texts(some: list[str]) -> None:
    data = report_data.cluster(nodes=4, jobs=6, running=3, users=3)
    turn = iter(range(10**9))

    def change(path: str, was: str) -> str:
        return was if path == "made" else some[next(turn) % len(some)]

    changed: Data = report_data.changed(data, change)
    for html in (admin(changed), everybody(changed)):
        assert list(allowed(html)) == []
        html.encode()


STRANGE: tuple[Any, ...] = (None, [], "x", -1, 10**30, float("nan"), [None], [{"a": 1}], True)


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_strange_values_break_nothing(value: Any, few: Data) -> None:
    """Some of the data come from other hosts: what is not of its kind is left out."""
    parts = [key for key, part in few.items() if isinstance(part, list) and part]
    changed = [
        dict.fromkeys(few, value),
        {key: [dict.fromkeys(few[key][0], value)] if key in parts else part for key, part in few.items()},
        {key: dict.fromkeys(part, value) if isinstance(part, dict) else part for key, part in few.items()},
    ]
    for data in changed:
        for html in (admin(data), everybody(data)):
            assert list(allowed(html)) == []


def test_a_text_without_end_costs_little(few: Data) -> None:
    html = admin(hostile(few, ENDLESS))
    assert len(html) < 3_000_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("grün 漢字 ✓", "grün 漢字 ✓"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
        ("e\u0301", "e\u0301"),
        ("e\u0301\u0301\u0301", "e\u0301\u0301\\u0301"),
        ("a\u00a0b", "a\\xa0b"),
    ],
)
def test_a_text_is_visible(text: str, shown: str) -> None:
    assert texts.visible(text) == shown


# -- The policy of the page, and its files ---------------------------------------------------------------------------


def test_the_policy_allows_the_own_style_and_script_alone(data: Data) -> None:
    found = Read(admin(data))
    (policy,) = [attributes["content"] for tag, attributes in found.tags if "http-equiv" in attributes]
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digests = {
        tag: base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for tag, code in found.code.items()
    }
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digests['style']}'",
        "script-src": f"'sha256-{digests['script']}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
    }
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert word not in found.code["script"]
    assert "url(" not in found.code["style"]
    assert "@import" not in found.code["style"]


def test_files_are_replaced_with_their_modes(tmp_path: Path, data: Data) -> None:
    old = os.umask(0o077)
    try:
        (tmp_path / "index.html").write_text("old")
        (tmp_path / ".index.html.new").symlink_to(tmp_path / "elsewhere")  # a killed run, or worse
        page.write_pages(data, tmp_path)
    finally:
        os.umask(old)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {
        "index.html": 0o644,
        "admin.html": 0o640,
    }
    assert (tmp_path / "index.html").read_text() == everybody(data)


def test_the_data_stay_as_they_are(data: Data) -> None:
    before = copy.deepcopy(data)
    admin(data)
    everybody(data)
    assert data == before
    assert admin(data) == admin(json.loads(json.dumps(data)))


@pytest.mark.rare  # 15 to 30 s; test_report_collect.py has as many jobs
def test_2000_nodes_and_50000_jobs(tmp_path: Path) -> None:
    """Sizes alone: seconds and memory depend on the machine (docs/design/benchmarks.md)."""
    data = report_data.large()
    # More trends and findings than the page lists.
    data["acceptance"] = report_data.acceptance(50, tuple(f"kind{number}" for number in range(33)), nodes=2000)
    data["acceptance"][0]["findings"] = ["node: slow " * 100] * 200
    page.write_pages(data, tmp_path)
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2**20


# -- Times, durations, hostlists -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("2026-11-27T14:35:00+01:00", "2026-11-27 14:35 +01:00"),
        ("2026-11-27T14:35:00Z", "2026-11-27 14:35 +00:00"),
        ("2026-11-27T14:35:00", "2026-11-27T14:35:00"),  # without an offset it is no time
        ("Unknown", "Unknown"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00"),
        (None, texts.NOTHING),
    ],
)
def test_times(value: str | None, shown: str) -> None:
    assert texts.time_of({"at": value}, "at").shown == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 min"),
        (59, "0 min"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (8_640_000, "100 d"),
        (-5, "0 min"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert texts.duration(seconds) == shown


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n1", ["n1"]),
        ("n[01-03,7],login", ["n01", "n02", "n03", "n7", "login"]),
        ("r[1-2]c[1-2]", ["r1c1", "r1c2", "r2c1", "r2c2"]),
        ("", []),
        ("n[x]", ["n[x]"]),
        ("n[3-1]", ["n[3-1]"]),
    ],
)
def test_hostlists_are_expanded(hostlist: str, names: list[str]) -> None:
    assert list(texts.expand(hostlist)) == names


def test_a_hostlist_has_an_end() -> None:
    for hostlist in ("n[0-999999999],m[1-9]" * 3, "a" + "[0-99999]" * 20):
        assert len(texts.expand(hostlist)) == 1


def test_names_are_folded() -> None:
    assert texts.fold(["n3", "n1", "n2", "n10", "login", "n07", "r1c2", "r1c3"]) == "login,n[1-3,07,10],r1c[2-3]"
    assert texts.fold([]) == ""
