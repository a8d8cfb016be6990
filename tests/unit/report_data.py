# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data for the page (docs/design/report.md): a cluster of any size. The same arguments give the same data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

NOW = datetime(2026, 11, 27, 14, 35, tzinfo=timezone(timedelta(hours=1)))
FIRST = "ada ben chloe dan emma finn grace hugo ines jan kira leo mia noah olga paul quinn rosa sam tara"
ACCOUNTS = ["vision", "language", "physics", "climate", "biology"]
NAMES = ("train-vit-large", "llama finetune", "eval", "jupyter", "md_equil", "wrf-2km", "preprocess", "sweep", "bash")
WAITS = (
    "Priority",
    "Priority",
    "Priority",
    "Resources",
    "QOSMaxGRESPerUser",
    "Dependency",
    "AssocGrpCPUMinutesLimit",
    "JobHeldUser",
)
STATES = {
    "MIXED": 40,
    "ALLOCATED": 38,
    "IDLE": 12,
    "MIXED+DRAIN": 2,
    "IDLE+DRAIN": 3,
    "DOWN+NOT_RESPONDING": 2,
    "IDLE+RESERVED": 2,
    "IDLE+POWERED_DOWN": 1,
}
"""How often a node has a state."""

Data = dict[str, Any]


def at(hours: float = 0) -> str:
    """A time, hours after the page was made."""
    return (NOW + timedelta(hours=hours)).isoformat()


def _nodes(count: int, some: random.Random) -> Iterator[Data]:
    width = max(2, len(str(count)))
    for number in range(1, count + 1):
        kind, gpus = ("h100", 8) if number % 5 else ("a100", 4)
        state = some.choices([*STATES], [*STATES.values()])[0]
        used = gpus if state == "ALLOCATED" else some.randint(1, gpus - 1) if "MIXED" in state else 0
        yield {
            "name": f"gpu{number:0{width}d}",
            "state": state,
            "partitions": ["gpu", "long"] if number % 3 else ["gpu"],
            "cpus": 128,
            "cpus_allocated": used * 128 // gpus,
            "memory": 1031000,
            "memory_allocated": used * 120000,
            "gpus": [{"type": kind, "count": gpus, "allocated": used}],
            "features": [kind],
        }


def _people(count: int) -> list[tuple[str, str]]:
    """Users with their account."""
    first = FIRST.split()
    names = [*first, *(f"user{number:04d}" for number in range(len(first), count))][:count]
    return [(name, ACCOUNTS[place % len(ACCOUNTS)]) for place, name in enumerate(names)]


def _job(number: int, user: tuple[str, str], some: random.Random, **more: Any) -> Data:
    submit = -some.uniform(0.1, 70)
    return {
        "id": str(4_200_000 + number),
        "array_tasks": 1,
        "user": user[0],
        "account": user[1],
        "partition": some.choice(["gpu", "long"]),
        "name": some.choice(NAMES),
        "state": "RUNNING",
        "reason": "None",
        "submit": at(submit),
        "start": None,
        "expected_start": None,
        "time_limit": some.choice([3600, 14400, 86400, 172800]),
        "nodes": "",
        "cpus": 16,
        "gpus": [],
        "priority": some.randint(100, 100000),
        **more,
    }


def _jobs(
    nodes: list[Data], count: int, running: int, people: list[tuple[str, str]], some: random.Random
) -> Iterator[Data]:
    number = 0
    while number < running:
        for node in nodes:
            (gpus,) = node["gpus"]
            left = gpus["allocated"]
            while left and number < running:
                taken = min(left, some.choice([1, 1, 2, 4, 8]))
                left -= taken
                number += 1
                own = {"gpus": [{"type": gpus["type"], "count": taken}], "cpus": 16 * taken, "nodes": node["name"]}
                own |= {"state": "SUSPENDED"} if number % 40 == 0 else {}
                own |= {"gpus": [], "shares": [{"kind": "shard", "type": "h100", "count": 2}]} if number == 7 else {}
                yield _job(number, some.choice(people), some, start=at(-some.uniform(0, 40)), **own)
    for place in range(count - running):
        tasks = some.choice([1, 1, 1, 1, 8, 40])
        name = f"{4_200_000 + number + place}" + (f"_[1-{tasks}]" if tasks > 1 else "")
        soon = at(some.uniform(0.2, 30)) if place < 40 else None
        own = {"gpus": [{"type": some.choice(["h100", "a100"]), "count": some.choice([1, 2, 4, 8, 16])}], "id": name}
        reason = some.choice(WAITS)
        yield _job(
            0, some.choice(people), some, state="PENDING", reason=reason, array_tasks=tasks, expected_start=soon, **own
        )


DRAINS = (
    (
        "Kill task failed",
        "root",
        "Kill task failed, and no process of an ended job is left",
        "slurmd could not end all processes of a job in time, and has drained its node.",
        "Resume the node; raise UnkillableStepTimeout if this happens often.",
    ),
    (
        "gpu: Xid 79 on GPU 3",
        "slurm",
        "a GPU has fallen off the bus (Xid 79)",
        "The driver has lost the connection to a GPU. Jobs on it have failed.",
        "Reboot the host; if it comes back, have the GPU or its riser replaced.",
    ),
    ("firmware update, ticket 4711", "ops", None, None, None),
)


def _drains(nodes: list[Data]) -> Iterator[Data]:
    bad = [node for node in nodes if {"DRAIN", "DOWN"} & {*node["state"].split("+")}]
    for place, node in enumerate(bad):
        reason, by, cause, meaning, remedy = DRAINS[place % len(DRAINS)]
        yield {
            "nodes": node["name"],
            "state": node["state"],
            "since": at(-3.4 * (place + 1) ** 1.3),
            "by": by,
            "reason": reason,
            "cause": cause,
            "meaning": meaning,
            "remedy": remedy,
        }


def _usage(gpus: int, people: list[tuple[str, str]], some: random.Random) -> Data:
    days: list[Data] = []
    for place in range(30):
        weekend = (NOW - timedelta(days=30 - place)).weekday() > 4
        used = gpus * 24 * some.uniform(0.45, 0.6) if weekend else gpus * 24 * some.uniform(0.7, 0.95)
        day = (NOW - timedelta(days=30 - place)).date().isoformat()
        idle = used * some.uniform(0.08, 0.3)
        days.append({"day": day, "cpu_hours": used * 15.2, "gpu_hours": used, "idle_gpu_hours": idle})
    total = sum(day["gpu_hours"] for day in days)
    weights = [some.paretovariate(0.9) for _person in people]
    users = []
    for (user, account), weight in zip(people, weights):
        own = total * weight / sum(weights)
        idle = own * some.uniform(0.03, 0.5)
        row = {"account": account, "user": user, "cpu_hours": own * 15.2, "gpu_hours": own, "idle_gpu_hours": idle}
        users.append({**row, "fairshare": round(some.uniform(0.02, 0.98), 4)})
    return {"since": at(-720), "until": at(), "days": days, "users": users}


def _hosts(nodes: list[Data]) -> Data:
    names = ["head1", "head2", "login1", *(str(node["name"]) for node in nodes)]
    hosts: list[Data] = [{"name": name, "reached": True, "differences": []} for name in names]
    hosts[2]["differences"] = [
        {"what": "files", "text": "/etc/slurm/plugstack.conf.d/pyxis.conf is not as the cluster file says"},
        {"what": "clock", "text": "2.4 s behind the controller's"},
    ]
    hosts[5]["differences"] = [{"what": "driver", "text": "550.163.01 is loaded, 580.95.05 is installed"}]
    hosts[-1]["reached"] = False
    return {"checked": at(-7.5), "hosts": hosts}


TESTS = (
    ("gpu_memory_bandwidth", "memory bandwidth of the GPU", 1, "GB/s", 2890, 0.05),
    ("gpu_matrix", "throughput of bf16 matrices", 1, "TFLOP/s", 781, 0.08),
    ("all_reduce_node", "NCCL's bus bandwidth of all_reduce on a node", 1, "GB/s", 478, 0.05),
    ("all_reduce_pair", "NCCL's bus bandwidth of all_reduce on two nodes", 2, "GB/s", 391, 0.05),
    ("stream", "memory bandwidth (STREAM Triad)", 1, "GB/s", 512, 0.05),
    ("disk_write_local", "writing to the local disk", 1, "MB/s", 3310, 0.15),
)


def acceptance(runs: int = 12, kinds: tuple[str, ...] = ("h100", "a100"), nodes: int = 24, seed: int = 4) -> list[Data]:
    """Runs of accept.yml, the newest first: it names a node, and the local disks of h100 have become slower."""
    some = random.Random(seed)

    def values(place: int) -> Iterator[Data]:
        for test, meaning, size, unit, value, tolerance in TESTS:
            for kind in kinds:
                slow = 0.78 if (place, test, kind) == (0, "disk_write_local", "h100") else 1
                gpu = test not in ("stream", "disk_write_local")
                yield {
                    "test": test,
                    "meaning": meaning,
                    "hardware": kind,
                    "nodes": size,
                    "size": 17179869184 if "reduce" in test else None,
                    "driver": "580" if gpu else "",
                    "image": "",
                    "values": nodes,
                    "median": round(value * slow * some.gauss(1, 0.006), 1),
                    "unit": unit,
                    "baseline": value if gpu else None,
                    "tolerance": tolerance,
                    "higher": True,
                }

    found: list[Data] = [
        {
            "finished": at(-5 - 168 * place),
            "ok": place % 5 != 0,
            "level": "medium",
            "measured": nodes - 1,
            "left": 1,
            "named": 0 if place % 5 else 1,
            "names": "" if place % 5 else f"gpu{place + 7:02}",
            "faults": 0 if place % 5 else 1,
            "findings": [],
            "values": list(values(place)),
        }
        for place in range(runs)
    ]
    found[0]["findings"] = [
        "gpu07: TCP between two nodes: with each of gpu[02-04,11], which are fast with others, down to 60.2 Gb/s, "
        "40.0 % less than what fast pairs do, 100.3"
    ]
    return found


CASES = [
    {
        "number": 12,
        "node": "gpu03",
        "state": "saved",
        "finding": "xid-79",
        "text": "GPU 3 has fallen off the bus",
        "opened": at(-2.5),
        "since": at(-2.4),
        "next": "drain (reboot)",
        "why": "",
        "held": "ada",
    },
    {
        "number": 13,
        "node": "gpu05",
        "state": "person",
        "finding": "gpu-rows-failed",
        "text": "GPU 0: row remapping has failed",
        "opened": at(-1.5),
        "since": at(-1),
        "next": "",
        "why": "gpu-rows-failed: replace",
        "held": "",
    },
]

LINKS = [
    {"title": "Prometheus", "url": "http://10.0.0.9:9090"},
    {"title": "Dashboards", "url": "https://grafana.example.org/d/slurm"},
]


def cluster(nodes: int = 24, jobs: int = 160, running: int = 60, users: int = 20, seed: int = 4) -> Data:
    """The data of a cluster. jobs: lines of squeue, of which so many run."""
    some = random.Random(seed)
    machines, people = list(_nodes(nodes, some)), _people(users)
    names = f"gpu[{machines[0]['name'][3:]}-{machines[-1]['name'][3:]}]"
    return {
        "version": 1,
        "made": at(),
        "interval": 300,
        "cluster": "aurora",
        "release": "24.11.5",
        "controllers": [
            {"name": "head1", "place": 0, "answers": True, "serves": True},
            {"name": "head2", "place": 1, "answers": True, "serves": False},
        ],
        "nodes": machines,
        "jobs": list(_jobs(machines, jobs, running, people, some)),
        "drains": list(_drains(machines)),
        "usage": _usage(sum(node["gpus"][0]["count"] for node in machines), people, some),
        "hosts": _hosts(machines),
        "versions": [
            {"what": "Slurm", "version": "24.11.5-4", "hosts": f"head[1-2],login1,{names}"},
            {"what": "NVIDIA driver", "version": "580.95.05", "hosts": names},
            {"what": "kernel", "version": "6.12.48+deb13-amd64", "hosts": f"head[1-2],login1,{names}"},
        ],
        "updates": [
            {"what": "kernel", "security": "no", "held": False, "from": "6.12.48-1", "to": "6.12.57-1", "hosts": names},
            {
                "what": "slurm",
                "security": "yes",
                "held": True,
                "from": "24.11.5-4",
                "to": "24.11.5-4+deb13u1",
                "hosts": names,
            },
        ],
        "acceptance": acceptance(nodes=nodes),
        "validation": {"finished": at(-7.2), "ok": True, "passed": 31, "failed": 0, "waiting": 2},
        "backup": [
            {"host": "head1", "finished": at(-11.5), "ok": True, "text": "StateSaveLocation, 42 MiB"},
            {
                "host": "db1",
                "finished": at(-35.5),
                "ok": False,
                "text": "older than a day: the disk of the copy is full",
            },
        ],
        "maintenance": [
            {
                "name": "maint_2026_12",
                "start": at(93.4),
                "end": at(101.4),
                "nodes": names,
                "message": "New cooling loops. Jobs that would not end before the start wait until the end.",
            }
        ],
        "alerts": [
            {
                "name": "SlurmNodeDrained",
                "severity": "ticket",
                "since": at(-3 * place),
                "text": f"gpu{place:02} has been drained for {3 * place}h 10m (a GPU has fallen off the bus)",
            }
            for place in (1, 2)
        ]
        + [
            {
                "name": "SlurmControllerDown",
                "severity": "page",
                "since": at(-0.2),
                "text": "slurmctld of head2 does not answer",
            }
        ],
        "cases": CASES,
        "links": LINKS,
        "private": [],
        "missing": [],
    }


def large() -> Data:
    """2,000 nodes and 50,000 jobs, of which 10,000 run."""
    data = cluster(nodes=2000, jobs=50_000, running=10_000, users=800)
    data["acceptance"] = acceptance(50, nodes=2000)
    assert len(data["nodes"]) == 2000
    assert len(data["jobs"]) == 50_000
    return data


def changed(value: Any, change: Callable[[str, str], str], path: str = "") -> Any:
    """Data in which each text is another one, by its path, such as `jobs.name`, and what it was."""
    if isinstance(value, dict):
        return {key: changed(item, change, f"{path}.{key}".strip(".")) for key, item in value.items()}
    if isinstance(value, list):
        return [changed(item, change, path) for item in value]
    return change(path, value) if isinstance(value, str) else value
