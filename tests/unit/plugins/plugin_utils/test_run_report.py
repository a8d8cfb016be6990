# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a run, from what happens in it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.run_report import (
    AGAIN,
    ALIKE,
    HIDDEN,
    REASONS,
    Line,
    RunReport,
    clock,
    hostlist,
    may_change,
    reason,
    waiting,
)
from hypothesis import given
from hypothesis import strategies as st

NODES = [f"n{number}" for number in range(1, 5)]
ALL = ["head", *NODES]


def begun(wait: float = 30, **options: Any) -> RunReport:
    """A run with a stage on all hosts."""
    report = RunReport(0, wait, **options)
    assert report.begin_stage("Compute nodes", ALL, 0) == []
    return report


def texts(lines: list[Line]) -> list[str]:
    """The texts of lines, with one blank between words."""
    return [" ".join(line.text.split()) for line in lines]


def last(report: RunReport, failed: Any = (), away: Any = (), results: Any = None, now: float = 65) -> list[str]:
    """The last lines of a run on all hosts."""
    return texts(report.end(now, ALL, failed, away, results or {}))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01"), (-1, "0:00")],
)
def test_times(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_a_stage_without_a_task_is_not_shown() -> None:
    report = begun()
    report.begin_task("1", "Install", "n1", 1)
    assert report.end_task("1", "n1", 2, ran=False) == []
    assert report.end_stage(3) == []


def test_a_stage_has_its_time_its_hosts_and_its_changes() -> None:
    report = begun()
    for host in ("n3", "n1", "n2"):
        report.begin_task("1", "Install", host, 1)
        report.end_task("1", host, 2, changed=True)
    assert texts(report.begin_stage("Login", ["head"], 75)) == ["changed 1:15 5 of 5 Compute nodes: n[1-3]"]
    report.begin_task("2", "Look", "head", 76)
    report.end_task("2", "head", 77)
    assert texts(report.end_stage(78)) == ["ok 0:03 1 of 1 Login"]
    assert last(report) == ["Changed 3 of 5 hosts (1:05):", "Compute nodes n[1-3]"]


def test_check_mode_says_what_would_change() -> None:
    report = begun(check_mode=True)
    report.begin_task("1", "Install", "n1", 1)
    report.end_task("1", "n1", 2, changed=True)
    assert texts(report.end_stage(3)) == ["changes 0:03 5 of 5 Compute nodes: n1"]
    assert last(report)[0] == "Would change 1 of 5 hosts (1:05):"


def test_hosts_that_fail_alike_are_shown_once() -> None:
    report = begun()
    for host in NODES:
        report.begin_task("1", "Start slurmd", host, 1)
    for host in NODES:
        result = {"msg": f"error: {host}: no such node at 10.0.0.{host[1]}\nsee its log"}
        assert report.fail("1", "Start slurmd", host, result, 2, address=f"10.0.0.{host[1]}") == []
    (line,) = report.end_tasks(3)
    assert line.kind == "failed"
    assert line.text.split("\n") == [
        "failed   n[1-4]: Start slurmd: error: n1: no such node at 10.0.0.1",
        "    see its log (as n1 says it; the others differ in names and times alone)",
    ]
    assert texts(report.end_stage(4)) == ["failed 0:04 1 of 5 Compute nodes: n[1-4]"]
    assert last(report, NODES) == [
        "Nothing was changed on 5 hosts (1:05).",
        "Failed: n[1-4].",
        "Failed first, on n[1-4] in Compute nodes: Start slurmd: error: n1: no such node at 10.0.0.1 see its log "
        "(as n1 says it; the others differ in names and times alone)",
    ]


def test_the_last_lines_name_every_host_that_failed_and_why() -> None:
    report = begun()
    for host, kind, why in (
        ("n1", "failed", "a"),
        ("n2", "unreachable", f"b {'x' * 500}"),
        ("n3", "failed", "a"),
        ("n1", "failed", "later"),
    ):
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": why}, 2, kind=kind)
    report.begin_stage("Login", ["head"], 3)
    report.begin_task("2", "y", "head", 3)
    report.fail("2", "y", "head", {"msg": "a"}, 4)
    report.end_stage(5)
    lines = last(report, ["n1", "n3", "head"], ["n2"])[1:]
    assert lines[3].startswith("Failed as well, on n2 in Compute nodes: x: b xxx")
    assert len(lines.pop(3)) < 460
    assert lines == [
        "Failed: head,n[1,3].",
        "Not reached: n2.",
        "Failed first, on n[1,3] in Compute nodes: x: a",
        "Failed as well, on head in Login: y: a",
    ]


def test_hosts_with_many_different_reasons_are_all_named() -> None:
    report = RunReport(0, 30)
    names = [f"n{number}" for number in range(1, 31)]
    report.begin_stage("Compute nodes", names, 0)
    for host in names:
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": f"reason {len(host)} of {ord(host[-1])}{host[:-1] * 3}"}, 2)
    lines = texts(report.end(9, names, names, [], {}))
    assert len(lines) == 2 + REASONS + 1
    assert lines[-1] == f"Failed as well, for other reasons (above): n[{REASONS + 1}-30]"


def test_controllers_for_which_a_play_ends_at_once_have_no_part_in_it() -> None:
    """They keep the run going if all hosts of the play are lost (docs/design/decisions.md)."""
    report = begun()
    for host in ("n1", "n2", "n3"):
        report.stay(host)
    report.begin_task("1", "x", "n1", 1)
    report.fail("1", "x", "n1", {"msg": "a"}, 2)
    assert texts(report.end_stage(3))[-1] == "failed 0:03 2 of 3 Compute nodes: n1"


@pytest.mark.parametrize(
    ("first", "second", "folded"),
    [
        ("expired (invalid since 22d 11h 26min 47s).", "expired (invalid since 22d 11h 26min 46s).", True),
        ("expired (invalid since 22d 11h 26min 59s).", "expired (invalid since 22d 11h 27min).", True),
        ("no answer in 60 s", "no answer in 61.5 s", True),
        ("took 0:00:01.234, from 2026-11-29T17:10:05.1Z", "took 0:00:02.345, from 2026-11-29T17:10:06+01:00", True),
        ("[2026-11-29 17:10:05] error", "[2026-11-30 07:10:06.123] error", True),
        ("2 days left", "3 days left", True),
        # What is no time is another reason.
        ("2 GPUs", "3 GPUs", False),
        ("10.0.0.1:22 refused", "10.0.0.1:23 refused", False),
        ("52:54:00:aa:00:01", "52:54:01:aa:00:01", False),
        ("gres/gpu count 8 s1", "gres/gpu count 4 s1", False),
    ],
)
def test_times_in_messages_are_no_other_reasons(first: str, second: str, folded: bool) -> None:
    report = begun()
    for host, why in (("n1", first), ("n2", second)):
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": why}, 2)
    differ = "(as n1 says it; the others differ in names and times alone)"
    separate = [f"failed n1: x: {first}", f"failed n2: x: {second}"]
    assert texts(report.end_tasks(3)) == ([f"failed n[1-2]: x: {first} {differ}"] if folded else separate)


def test_failures_are_in_the_order_of_the_hosts() -> None:
    report = begun()
    for host, why in (("n3", "a"), ("n4", "b n4"), ("n2", "b n2"), ("n1", "c")):
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": why}, 2)
    differ = "(as n2 says it; the others differ in names and times alone)"
    assert texts(report.end_tasks(3)) == ["failed n1: x: c", f"failed n[2,4]: x: b n2 {differ}", "failed n3: x: a"]
    assert last(report, NODES)[2:] == [
        "Failed first, on n1 in Compute nodes: x: c",
        f"Failed as well, on n[2,4] in Compute nodes: x: b n2 {differ}",
        "Failed as well, on n3 in Compute nodes: x: a",
    ]


def test_what_stops_the_whole_run_is_not_said_of_the_host_that_judged() -> None:
    """As a change for which Slurm would refuse n2: the first host of the play fails for all of them."""
    report = begun()
    for host in ALL:
        report.begin_task("0", "Compare", host, 1)
        report.end_task("0", host, 1)
    report.begin_task("1", "Refuse", "head", 1)
    report.fail("1", "Refuse", "head", {"msg": "n2: slurmd would not start"}, 2, whole=True)
    assert texts(report.end_stage(3)) == [
        "failed the run: Refuse: n2: slurmd would not start",
        "failed 0:03 0 of 5 Compute nodes",
    ]
    assert last(report, ["head"])[1:] == [
        "Failed: the run.",
        "Failed first, in Compute nodes: Refuse: n2: slurmd would not start",
    ]
    assert report.result(4, {}, ended=True)["failed"][0]["host"] == "head"


def test_a_host_that_was_lost_before_the_run_stopped_is_named() -> None:
    report = begun()
    report.begin_task("1", "x", "n1", 1)
    report.fail("1", "x", "n1", {"msg": "a"}, 2)
    report.begin_task("2", "Refuse", "head", 2)
    report.fail("2", "Refuse", "head", {"msg": "n2: b"}, 2, whole=True)
    assert last(report, ["n1", "head"])[1:] == [
        "Failed: n1, the run.",
        "Failed first, on n1 in Compute nodes: x: a",
        "Failed as well, in Compute nodes: Refuse: n2: b",
    ]


def test_the_only_host_of_a_play_is_named_whatever_it_judges() -> None:
    report = RunReport(0, 30)
    report.begin_stage("Controllers", ["head"], 0)
    report.begin_task("1", "Refuse", "head", 1)
    report.fail("1", "Refuse", "head", {"msg": "a"}, 2, whole=True)
    assert texts(report.end_stage(3)) == ["failed head: Refuse: a", "failed 0:03 0 of 1 Controllers: head"]


def test_other_reasons_are_other_lines() -> None:
    report = begun()
    for host, why in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": why}, 2)
    assert texts(report.end_tasks(3)) == ["failed n[1,3]: x: a", "failed n2: x: b"]


def test_failures_that_the_playbook_handles_do_not_count() -> None:
    report = begun()
    for number, kind in enumerate(("ignored", "rescued")):
        report.begin_task(str(number), "x", "n1", 1)
        report.fail(str(number), "x", "n1", {"msg": "no"}, 2, kind=kind)
    assert texts(report.end_stage(3)) == ["ignored n1: x: no", "rescued n1: x: no", "ok 0:03 5 of 5 Compute nodes"]
    assert last(report) == ["Nothing to change on 5 hosts (1:05)."]


def test_the_first_failure_is_one_that_counts_in_the_end() -> None:
    """A `rescue` in a form that the callback does not know: Ansible's statistics decide."""
    report = begun()
    for host in ("n1", "n2"):
        report.begin_task("1", "x", host, 1)
        report.fail("1", "x", host, {"msg": host}, 2)
    report.end_stage(3)
    assert last(report, ["n2"])[-2:] == ["Failed: n2.", "Failed first, on n2 in Compute nodes: x: n2"]
    report.recap(["n2"], [])
    result = report.result(4, {}, ended=True)
    assert [failure["host"] for failure in result["failed"]] == ["n2"]
    assert [host for host, state in result["hosts"].items() if state == "failed"] == ["n2"]


def test_a_host_that_is_lost_is_missing_in_later_stages() -> None:
    report = begun()
    report.begin_task("1", "x", "n1", 1)
    report.fail("1", "x", "n1", {"msg": "ssh: no route"}, 2, kind="unreachable")
    assert texts(report.begin_stage("Login", ALL, 3)) == [
        "unreachable n1: x: ssh: no route",
        "failed 0:03 4 of 5 Compute nodes: n1",
    ]
    report.begin_task("2", "y", "head", 3)
    report.end_task("2", "head", 3)
    assert texts(report.end_stage(4)) == ["ok 0:01 4 of 5 Login"]
    assert last(report, (), ["n1"])[1:] == [
        "Not reached: n1.",
        "Failed first, on n1 in Compute nodes: x: ssh: no route",
    ]


def test_a_delegated_task_names_both_hosts() -> None:
    report = begun()
    report.begin_task("1", "x", "n1", 1)
    report.fail("1", "x", "n1", {"msg": "no"}, 2, delegate="head")
    assert texts(report.end_tasks(3)) == ["failed n1 -> head: x: no"]


def test_a_long_task_is_named_again_and_again() -> None:
    report = begun(wait=30)
    for host in NODES:
        report.begin_task("1", "Wait for jobs", host, 0)
    report.end_task("1", "n4", 5)
    assert report.tick(29) == []
    assert texts(report.tick(30)) == ["waits 0:30 1 of 4 Wait for jobs: n[1-3]"]
    assert report.tick(31) == []
    report.retry("1", 3, 10, {"msg": "non-zero return code", "rc": 1, "stderr": "job 7 runs\n"})
    report.end_task("1", "n1", 100)
    (line,) = texts(report.tick(30 + AGAIN))
    assert line == "waits 5:30 2 of 4 Wait for jobs: n[2-3] (attempt 3 of 10: exit status 1: job 7 runs)"
    assert report.end_task("1", "n2", 340) == []
    assert texts(report.end_task("1", "n3", 341)) == ["ended 5:41 4 of 4 Wait for jobs"]
    assert report.tick(9999) == []


def test_a_pause_is_named_at_once_and_others_never() -> None:
    report = begun()
    assert texts(report.begin_task("1", "Look at it", "n1", 0, waits=True)) == ["waits 0:00 0 of 1 Look at it: n1"]
    assert report.begin_task("1", "Look at it", "n2", 0, waits=True) == []
    report.begin_task("2", "Quick", "n1", 0)
    assert report.end_task("2", "n1", 3) == []


def test_a_failure_does_not_wait_for_slow_hosts() -> None:
    report = begun()
    for host in ("n1", "n2"):
        report.begin_task("1", "x", host, 0)
    report.fail("1", "x", "n1", {"msg": "no"}, 1)
    assert report.tick(ALIKE) == []
    assert texts(report.tick(1 + ALIKE)) == ["failed n1: x: no"]
    assert report.end_tasks(20) == []


def test_what_tasks_say_and_diffs_are_shown_once() -> None:
    report = begun()
    for host in ("n1", "n2"):
        report.say("1", "Show it", host, "one line", 1)
        report.say("2", "Show them", host, "two\nlines", 1)
        report.differ("3", "Write it", host, "--- before\n+++ after\n+x\n", 1)
    assert [line.text for line in report.end_tasks(2)] == [
        "    Show it (n[1-2]): one line",
        "    Show them (n[1-2]):\n        two\n        lines",
        "    Write it (n[1-2])",
        "--- before\n+++ after\n+x",
    ]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"msg": "slurmd: error: no"}, "slurmd: error: no"),
        ({"msg": ["a", "b"]}, "a\nb"),
        ({"msg": "non-zero return code", "rc": 3, "stdout": "out", "stderr": "bad\n"}, "exit status 3: bad"),
        ({"msg": "The command exited with a non-zero return code.", "rc": 1, "stdout": "o"}, "exit status 1: o"),
        ({"msg": "non-zero return code", "rc": 1}, "exit status 1"),
        ({"msg": "MODULE FAILURE: no JSON", "module_stdout": "Killed"}, "Killed"),
        ({"censored": "hidden", "msg": "geheim"}, HIDDEN),
        ({"reason": "syntax error"}, "syntax error"),
        ({}, "failed without a message"),
        ({"msg": "at http://a:geheim@b/"}, "at http://a:...@b/"),
        ({"msg": "\x1b[2Jgone\r\u202e"}, "\\x1b[2Jgone\\r\\u202e"),
        ({"msg": {"a": 1}}, "{'a': 1}"),
        ({"msg": "non-zero return code", "stderr": "\n".join(map(str, range(30)))},
         "\n".join(["(10 more lines)", *map(str, range(10, 30))])),
    ],
)  # fmt: skip
def test_the_words_of_a_failure(result: dict[str, Any], shown: str) -> None:
    assert reason(result) == shown


def test_items_that_failed_are_named_without_secrets() -> None:
    report = begun()
    report.begin_task("1", "x", "n1", 0)
    report.fail_item("1", "n1", {"item": "a", "msg": "no"})
    report.fail_item("1", "n1", {"item": "geheim", "_ansible_no_log": True, "censored": "hidden", "msg": "geheim"})
    report.fail_item("1", "n1", {"item": {"a": 1}, "_ansible_item_label": "short", "msg": "no"})
    report.fail("1", "x", "n1", {"msg": "One or more items failed"}, 1)
    assert texts(report.end_tasks(3)) == [f"failed n1: x: a: no an item: {HIDDEN} short: no"]


def test_names_are_visible() -> None:
    report = RunReport(0, 30)
    report.begin_stage("\x1b[2Jstage", ["n\x1b[1m"], 0)
    report.begin_task("1", "\x1b[2Jtask", "n\x1b[1m", 0)
    report.fail("1", "\x1b[2Jtask", "n\x1b[1m", {"msg": "x"}, 1, delegate="\x1b[2J")
    lines = report.end_stage(2) + report.end(3, ["n\x1b[1m"], ["n\x1b[1m"], [], {})
    assert len(lines) == 5
    assert not any("\x1b" in line.text for line in lines)


def test_hosts_that_slurm_could_not_have_are_listed() -> None:
    assert hostlist(["a,b", "c d"]) == "a,b, c d"
    assert hostlist([]) == ""


def test_a_run_without_hosts_says_so() -> None:
    assert texts(RunReport(0, 30).end(1, [], [], [], {})) == ["No task ran on a host (0:01)."]


def test_the_control_host_is_counted_if_there_is_no_other() -> None:
    assert texts(begun().end(1, ["localhost"], [], [], {})) == ["Nothing to change on 1 host (0:01)."]
    assert texts(begun().end(1, ["localhost", "n1"], [], [], {})) == ["Nothing to change on 1 host (0:01)."]


def test_what_waits_is_named() -> None:
    results = {
        "slurm_validation": {"ok": True, "passed": 3, "failed": 0, "waiting": 2},
        "slurm_rolling": {"ok": False, "done": ["n1"], "failed": {"n2": "no"}, "left": {"n3": "job 7", "n4": "job 8"}},
        "slurm_removal": {"removed": ["n1"], "cleaned": [], "not_cleaned": ["n1"]},
        "slurm_plan": ["x"],
        "other": 1,
    }
    assert waiting(results) == [
        ("Jobs of the validation that wait", "2"),
        ("Nodes that stay drained", "n2"),
        ("Nodes that wait for the next run", "n[3-4]"),
        ("Removed, and not cleaned", "n1"),
    ]
    assert last(begun(), results=results)[1:] == [f"{why}: {what}." for why, what in waiting(results)]
    assert waiting({"slurm_validation": {"passed": 3, "failed": 0, "waiting": 0}}) == []
    assert waiting({"slurm_validation": "x", "slurm_rolling": None, "slurm_removal": []}) == []


@pytest.mark.parametrize(
    ("changed", "failure", "check", "ended", "state"),
    [
        (False, None, False, True, "ok"),
        (True, None, False, True, "changed"),
        (True, None, True, True, "changed"),
        (False, {"msg": "no"}, False, True, "failed before a change"),
        (True, {"msg": "no"}, True, True, "failed before a change"),
        (True, {"msg": "no"}, False, True, "to be repaired by the next run"),
        (False, {"msg": "no", "put_back": True}, False, True, "failed and put back"),
        (True, {"msg": "no", "put_back": True}, False, True, "to be repaired by the next run"),
        (False, None, False, False, "failed before a change"),
        (True, None, False, False, "to be repaired by the next run"),
    ],
)
def test_the_state_says_what_a_run_leaves(changed: bool, failure: Any, check: bool, ended: bool, state: str) -> None:
    report = begun(check_mode=check)
    report.begin_task("1", "Install", "n1", 1)
    report.end_task("1", "n1", 2, changed=changed)
    if failure:
        report.fail("2", "Configure", "head", failure, 3)
    assert report.state(ended) == state


@pytest.mark.parametrize(
    ("action", "result", "state"),
    [
        ("ansible.builtin.assert", {}, "failed before a change"),
        ("gpucluster.slurm.slurm_host_facts", {}, "failed before a change"),
        ("gpucluster.slurm.slurm_config", {}, "failed before a change"),
        ("gpucluster.slurm.slurm_config", {"put_back": False}, "to be repaired by the next run"),
        ("gpucluster.slurm.slurm_config", {"put_back": True}, "failed and put back"),
        ("gpucluster.slurm.slurm_packages", {}, "to be repaired by the next run"),
        ("ansible.builtin.command", {"changed": True}, "to be repaired by the next run"),
    ],
)
def test_a_task_that_fails_in_the_middle_may_have_left_something(action: str, result: Any, state: str) -> None:
    report = begun()
    report.begin_task("1", "Work", "n1", 1, changing=may_change(action))
    before = "to be repaired by the next run" if may_change(action) else "failed before a change"
    assert report.state(ended=False) == before
    report.fail("1", "Work", "n1", {"msg": "no", **result}, 2, changing=may_change(action))
    report.end_stage(3)
    assert report.state(ended=True) == state


def test_a_failure_that_is_ignored_is_no_failure_of_the_run() -> None:
    report = begun()
    report.fail("1", "Try", "n1", {"msg": "no"}, 1, kind="ignored")
    assert (report.state(ended=True), report.result(2, {}, ended=True)["failed"]) == ("ok", [])


def test_the_result_of_a_run_for_programs() -> None:
    report = RunReport(0, 30)
    report.plan("site", {"a": "Facts", "b": "Servers", "c": "Nodes\x1b", "d": "End"})
    percents = []
    for key, name in report.planned.items():
        report.begin_stage(name, ALL, 1, key)
        percents.append(report.result(1, {}, ended=False)["progress"]["percent"])
    assert percents == [0, 25, 50, 75]
    report.begin_stage("Nodes", ["n1"], 1, "c")  # another batch of an earlier play
    report.begin_task("1", "Install", "n1", 1)
    report.end_task("1", "n1", 2, changed=True)
    report.fail("2", "Reach", "n2", {"msg": "gone"}, 3, kind="unreachable")
    report.fail("2", "Reach", "n3", {"msg": "broken"}, 3)
    report.end_stage(4)
    assert report.result(4.26, {"slurm_removal": {"not_cleaned": ["n4"]}}, ended=True) == {
        "version": 1,
        "playbook": "site",
        "check": False,
        "state": "to be repaired by the next run",
        "ended": True,
        "seconds": 4.3,
        "progress": {"percent": 75, "stage": "", "stages": ["Facts", "Servers", "Nodes\\x1b", "End"]},
        "hosts": {"head": "ok", "n1": "changed", "n2": "unreachable", "n3": "failed", "n4": "ok"},
        "changes": [{"stage": "Nodes", "hosts": ["n1"]}],
        "waiting": [{"what": "n4", "why": "Removed, and not cleaned"}],
        "failed": [
            {"stage": "Nodes", "host": "n2", "task": "Reach", "message": "gone"},
            {"stage": "Nodes", "host": "n3", "task": "Reach", "message": "broken"},
        ],
    }


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["msg", "rc", "stdout", "stderr", "reason", "item", "results", "censored", "module_stdout"])


@given(st.dictionaries(KEYS | st.text(), ANY, max_size=4), st.text(), st.dictionaries(st.text(), ANY))
def test_any_result_is_shown_without_control_characters(result: dict[str, Any], name: str, results: Any) -> None:
    report = begun()
    lines = report.begin_task("1", name, name, 0)
    report.retry("1", 1, 2, result)
    lines += report.tick(40)
    report.fail_item("1", name, result)
    lines += report.fail("1", name, name, result, 50, delegate=name)
    lines += report.say("2", name, name, str(result), 50)
    lines += report.end_stage(60) + report.end(70, [name], [name], [], {**results, "slurm_rolling": result})
    assert lines
    assert not any(char < " " and char not in "\n\t" for line in lines for char in line.text)
