# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnosis of a cluster: servers, folding, the permission of repairs, and the answers of the modules."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.diagnosis import diagnose, diagnosis
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.evidence import (
    ClusterEvidence,
    DaemonState,
    HostEvidence,
    ServerEvidence,
    SlurmNode,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.server_causes import (
    SERVER_CAUSES,
    ServerCase,
    server_causes,
)

pytestmark = pytest.mark.once

CLUSTER = ClusterEvidence(serving="head", controllers={"head": True, "spare": True}, proctrack="proctrack/cgroup")
RUNS = DaemonState()
WELL = ServerEvidence(daemons={"slurmctld": RUNS, "slurmdbd": RUNS, "mariadb": RUNS, "munge": RUNS})
ALL = ("slurmctld", "slurmdbd", "database")


def server(down: str, *log: str) -> ServerEvidence:
    return replace(WELL, daemons={**WELL.daemons, down: DaemonState("failed", True, "exit-code", log)})


SERVERS: dict[str, tuple[ClusterEvidence, ServerEvidence, str, str]] = {
    "not reached": (CLUSTER, ServerEvidence(unreached="No route to host"), "server-unreached", "No route to host"),
    "munged": (CLUSTER, server("munge"), "server-munged", "munged does not run"),
    "a masked unit": (
        CLUSTER,
        replace(WELL, daemons={**WELL.daemons, "slurmdbd": DaemonState("inactive", False, masked=True)}),
        "server-masked",
        "masked, so that nothing starts it: slurmdbd",
    ),
    "a masked database": (
        CLUSTER,
        replace(WELL, daemons={**WELL.daemons, "mariadb": DaemonState("inactive", False, masked=True)}),
        "server-masked",
        "nothing starts it: mariadb",
    ),
    "old secrets": (
        CLUSTER,
        replace(WELL, old_keys={"munge": 402, "database": 370}),
        "key-age",
        "secrets are old: munge is 402 days old, database is 370 days old",
    ),
    "slurmctld": (
        ClusterEvidence(answers=False, controllers={"head": False}),
        server("slurmctld", "fatal: CLUSTER NAME MISMATCH."),
        "slurmctld-down",
        "MISMATCH. (slurmctld cannot use its state directory",
    ),
    "slurmctld with a full queue": (
        ClusterEvidence(answers=False, controllers={"head": False}),
        server(
            "slurmctld",
            "fatal: agent queue is full (100000), not continuing until slurmdbd is able to process messages.",
        ),
        "slurmctld-down",
        "messages. (MaxDBDMsgs messages wait for slurmdbd",
    ),
    "slurmctld of another release": (
        ClusterEvidence(answers=False, controllers={"head": False}),
        server(
            "slurmctld", "fatal: Can not recover last_tres state, incompatible version, got 11520 need >= 9984 <= 10752"
        ),
        "slurmctld-down",
        "<= 10752 (StateSaveLocation has the state of another release of Slurm",
    ),
    "a controller that was away during a change": (
        ClusterEvidence(serving="head", controllers={"head": True, "spare": False}),
        replace(WELL, daemons={**WELL.daemons, "slurmctld": DaemonState("inactive", True, "exec-condition")}),
        "slurmctld-older-files",
        "its files are older than those in force",
    ),
    "slurmctld does not answer": (
        ClusterEvidence(answers=False, controllers={"head": False}),
        WELL,
        "slurmctld-silent",
        "does not answer",
    ),
    "standby": (
        ClusterEvidence(serving="spare", controllers={"head": True, "spare": True}),
        WELL,
        "slurmctld-standby",
        "spare serves",
    ),
    "slurmdbd": (CLUSTER, server("slurmdbd", "fatal: something"), "slurmdbd-down", "fatal: something"),
    "slurmdbd does not answer": (
        replace(CLUSTER, slurmdbd_error="Connection refused"),
        WELL,
        "slurmdbd-silent",
        "Connection refused",
    ),
    "jobs of an ended reservation": (
        replace(CLUSTER, ended_reservations={"course": ("7", "8")}),
        WELL,
        "reservation-ended",
        "jobs are held, since they waited for a reservation that has ended: course: 7, 8",
    ),
    "runaway jobs": (
        replace(CLUSTER, runaway_jobs=(*map(str, range(7, 19)),)),
        WELL,
        "runaway-jobs",
        "does not know them: 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 2 more",
    ),
    "messages for a slow database": (
        replace(CLUSTER, messages_waiting=5000, messages_limit=100_000),
        WELL,
        "messages-waiting",
        "5000 of at most 100000 messages for slurmdbd wait in slurmctld; at the limit slurmctld discards",
    ),
    "messages were discarded": (
        replace(CLUSTER, messages_discarded="[2026-11-27T14:41:30] error: agent queue is full (10000), discarding X"),
        WELL,
        "messages-discarded",
        "[2026-11-27T14:41:30] error: agent queue is full",
    ),
    "database": (CLUSTER, server("mariadb"), "database-down", "mariadb does not run"),
    "full": (CLUSTER, replace(WELL, full=("/var/log has no space left",)), "server-full", "/var/log"),
    "clock": (CLUSTER, replace(WELL, clock_offset=-90.0), "server-clock", "90 s behind"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_fault_of_a_server_is_named(name: str) -> None:
    cluster, facts, cause, text = SERVERS[name]
    said = {each.name: what for each, what in server_causes(ServerCase("head", facts, cluster, ALL))}
    assert [*said] == [cause]
    assert text in said[cause]


@pytest.mark.parametrize(
    ("waiting", "limit", "down", "exits", "expected"),
    [
        (0, 100_000, "slurmdbd", False, ""),
        (
            700,
            100_000,
            "slurmdbd",
            False,
            "; at the rate of the last 2 h, the limit is reached in 284 h; slurmctld then discards",
        ),
        (
            700,
            100_000,
            "mariadb",
            False,
            "; at the rate of the last 2 h, the limit is reached in 284 h; slurmctld then discards",
        ),
        (
            90_000,
            100_000,
            "slurmdbd",
            False,
            "; at the rate of the last 2 h, the limit is reached in 13 min; slurmctld then",
        ),
        (700, 100_000, "", False, "; at the limit slurmctld discards those of steps, then each new one"),
        (700, 100_000, "slurmdbd", True, "284 h; slurmctld then ends"),
        (700, 0, "slurmdbd", False, "700 messages for slurmdbd wait in slurmctld; at the limit slurmctld"),
        (
            99_999,
            100_000,
            "slurmdbd",
            False,
            "; this is the limit, and slurmctld discards those of steps, then each new one",
        ),
    ],
)
def test_waiting_messages_are_named_with_the_time_that_is_left(
    waiting: int, limit: int, down: str, exits: bool, expected: str
) -> None:
    """The rate is known from the time since slurmdbd or its database has stopped."""
    cluster = replace(
        CLUSTER,
        slurmdbd_error="Connection refused",
        messages_waiting=waiting,
        messages_limit=limit,
        full_queue_ends_slurmctld=exits,
    )
    stopped = DaemonState("inactive", down_seconds=7200.0)
    facts = replace(WELL, daemons={**WELL.daemons, down: stopped}) if down else WELL
    said = {each.name: what for each, what in server_causes(ServerCase("db", facts, cluster, ("slurmdbd", "database")))}
    assert expected in said.get("messages-waiting", "")
    assert ("messages-waiting" in said) == bool(expected)
    assert "messages-waiting" not in {
        each.name for each, _what in server_causes(ServerCase("head", facts, cluster, ()))
    }


def test_causes_come_before_their_effects() -> None:
    """slurmdbd has ended since MariaDB did not answer; both are on a full disk."""
    down = DaemonState("failed", True, "exit-code")
    facts = replace(WELL, daemons={**WELL.daemons, "mariadb": down, "slurmdbd": down}, full=("/var is full",))
    found = diagnose(CLUSTER, [], {}, {"db": facts}, {"db": ("slurmdbd", "database")})
    assert [finding.cause for finding in found] == ["server-full", "database-down", "slurmdbd-down"]


def test_each_cause_of_servers_has_a_case() -> None:
    assert {cause.name for cause in SERVER_CAUSES} == {cause for *_rest, cause, _words in SERVERS.values()}
    assert server_causes(ServerCase("head", WELL, CLUSTER, ALL)) == []


def sick(name: str, reason: str = "Kill task failed", user: str = "slurm", **more: Any) -> SlurmNode:
    return SlurmNode(name, ("IDLE", "DRAIN"), reason, user, "2026-11-24T10:00:00", name, ("10.0.0.1",), **more)


HOST = HostEvidence(addresses=("10.0.0.1",))


def test_equal_nodes_are_folded_with_the_earliest_time() -> None:
    nodes = [sick("n1"), replace(sick("n2"), since="2026-11-23T10:00:00"), sick("n3", "bad DIMM", "alice")]
    found = diagnose(CLUSTER, nodes, dict.fromkeys(("n1", "n2", "n3"), HOST), {"head": WELL}, {"head": ALL})
    assert [(one.hosts, one.since[:10], one.owner, one.cause) for one in found] == [
        (("n1", "n2"), "2026-11-23", "Slurm", "kill-task-failed"),
        (("n3",), "2026-11-24", "a person", "person"),
    ]


@pytest.mark.parametrize(
    ("node", "host", "repair"),
    [
        (sick("n1"), HOST, "resume"),
        (sick("n1", "Kill task failed : bad DIMM"), HOST, ""),
        (sick("n1"), replace(HOST, full=("/tmp has no space left",)), ""),
        (sick("n1"), replace(HOST, left=("python 1 of job 2",)), ""),
        (sick("n1"), HostEvidence(unreached="timed out"), ""),
        (sick("n1", "Kill task failed", "alice"), HOST, "resume"),
        (sick("n1", "SlurmdSpoolDir is full"), HOST, "resume"),
        (sick("n1", "Prolog error"), HOST, ""),
        (sick("n1", "bad DIMM", "alice"), replace(HOST, slurmd=DaemonState("failed", True, "signal")), ""),
        (sick("n1", "Not responding"), replace(HOST, slurmd=DaemonState("failed", True, "signal")), "start slurmd"),
        (sick("n1", "Not responding"), replace(HOST, slurmd=DaemonState("inactive", False)), ""),
        (sick("n1", "Not responding"), replace(HOST, munge=DaemonState("inactive")), "start munge"),
        (sick("n1", "Not responding"), replace(HOST, munge=DaemonState("failed", True, "exit-code")), ""),
        (sick("n1", "health check munge: x", "root"), replace(HOST, munge=DaemonState("inactive")), ""),
        (sick("n1", "gpucluster.slurm repair: xid-79", "root"), HOST, ""),
        (sick("n1", "gpucluster.slurm repair: xid-79 : Kill task failed", "root"), HOST, ""),
        (sick("n1", "gpucluster.slurm repair: xid-79"), replace(HOST, munge=DaemonState("inactive")), ""),
    ],
)
def test_a_repair_needs_the_permission_of_the_owner(node: SlurmNode, host: HostEvidence, repair: str) -> None:
    found = diagnose(CLUSTER, [node], {"n1": host}, {}, {})
    assert {one.repair for one in found} - {""} == ({repair} if repair else set())


def answer(**more: Any) -> dict[str, Any]:
    """The result of slurm_doctor_info on a well controller."""
    return {"time": 0.0, "clock_offset": 0.0, **asdict(WELL), "cluster": asdict(CLUSTER), "nodes": [], **more}


def test_answers_of_modules_become_a_diagnosis() -> None:
    nodes = [asdict(sick(name)) for name in ("n1", "n2", "n3", "n4")]
    facts = {"n1": asdict(HOST), "n2": {"unreachable": True, "msg": "Permission denied"}}
    found = diagnosis({"head": answer(nodes=nodes)}, facts, ["head", "n1", "n2", "n3"], ["head"], ["head"], "now")
    assert [(one["hosts"], one["cause"]) for one in found["findings"]] == [
        ("n1", "kill-task-failed"),
        ("n2", "ssh-refused"),
        ("n4", "not-in-inventory"),  # n3 is outside of --limit
    ]
    assert found["resume"] == [{"nodes": "n1", "reason": "Kill task failed"}]
    assert not found["ok"]
    assert found["table"][:4] == [
        "n1  IDLE+DRAIN  since 2026-11-24T10:00:00  by Slurm",
        "    cause   Kill task failed, and no process of an ended job is left",
        "    remedy  Resume the node; raise UnkillableStepTimeout if this happens often.",
        "    repair  resume (now)",
    ]


def test_the_clock_of_a_node_is_compared_with_the_controllers() -> None:
    """That of the control host may be wrong."""
    nodes = [asdict(sick("n1"))]
    for controller, causes in ((90.0, ["server-clock", "kill-task-failed"]), (0.0, ["clock"])):
        facts = asdict(replace(HOST, clock_offset=90.0))
        found = diagnosis({"head": answer(nodes=nodes, clock_offset=controller)}, {"n1": facts}, ["n1"], ["head"], [])
        assert [one["cause"] for one in found["findings"]] == causes


def test_a_well_cluster() -> None:
    found = diagnosis({"head": answer()}, {}, ["head"], ["head"], ["head"])
    assert found == {"ok": True, "answers": True, "findings": [], "table": [], "resume": [], "start": {}}


def test_without_a_controller_the_servers_are_all_that_is_known() -> None:
    found = diagnosis({"head": {"unreachable": True, "msg": "timed out"}}, {}, ["head"], ["head"], ["head"])
    assert [one["cause"] for one in found["findings"]] == ["server-unreached"]
    assert not found["answers"]


@pytest.mark.parametrize(
    ("result", "cause", "text"),
    [
        (
            {"failed": True, "msg": "Task failed: no python3"},
            "look-failed",
            "facts about the host could not be gathered: no python3",
        ),
        (
            {"failed": True, "msg": "Task failed: Timed out after 120 second(s).", "timedout": {"period": 120}},
            "host-down",
            "ssh: Timed out after 120 second(s).",
        ),
        (
            {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: No route to host"},
            "host-down",
            "ssh: No route to host;",
        ),
    ],
)
def test_a_host_without_facts(result: dict[str, Any], cause: str, text: str) -> None:
    node = asdict(SlurmNode("n1", ("DOWN", "NOT_RESPONDING"), closed="timed out"))
    (found,) = diagnosis({"head": answer(nodes=[node])}, {"n1": result}, ["n1"], ["head"], [])["findings"]
    assert found["cause"] == cause
    assert text in found["words"]


def test_munge_is_started_before_slurmd() -> None:
    dead = DaemonState("failed", True, "signal")
    facts = asdict(replace(HOST, slurmd=dead, munge=dead, listens=False))
    node = asdict(SlurmNode("n1", closed="Connection refused", addresses=("10.0.0.1",)))
    found = diagnosis({"head": answer(nodes=[node])}, {"n1": facts}, ["n1"], ["head"], [])
    assert found["start"] == {"n1": ["munge", "slurmd"]}
