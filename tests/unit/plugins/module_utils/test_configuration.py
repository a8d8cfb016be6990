# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's files as data, and what their changes need."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.change_plan import (
    Job,
    parts_daemons,
    read_at_start,
    removed_nodes,
    steps,
    table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import (
    Change,
    ConfigurationError,
    changes,
    lines,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.render import node_lines
from hypothesis import given
from hypothesis import strategies as st

OLD = """
# The cluster
ClusterName=demo  KillWait=30
SlurmctldHost=head(10.0.0.1)
SlurmctldHost=head2
MailProg="/bin/a mail"   # a comment
Epilog=/a\\#b
NodeName=DEFAULT Sockets=2 CoresPerSocket=4
NodeName=n[1-4] NodeAddr=10.0.0.[1-4] RealMemory=1000 Gres=gpu:2
NodeName=n[5-6] RealMemory=2000 \\
  Weight=3
PartitionName=gpu Nodes=n[1-4] Default=YES
PartitionName=old Nodes=n5
"""


def edited(*replacements: tuple[str, str]) -> list[Change]:
    """The changes that replacements in the text make."""
    new = OLD
    for before, after in replacements:
        assert before in new
        new = new.replace(before, after)
    return changes(read({"slurm.conf": OLD}), read({"slurm.conf": new}))


def test_lines() -> None:
    assert list(lines("slurm.conf", OLD))[:5] == [
        (("ClusterName", "demo"), ("KillWait", "30")),
        (("SlurmctldHost", "head(10.0.0.1)"),),
        (("SlurmctldHost", "head2"),),
        (("MailProg", "/bin/a mail"),),
        (("Epilog", "/a#b"),),
    ]
    assert list(lines("slurm.conf", "include /etc/x\n")) == [(("Include", "/etc/x"),)]


def test_a_line_that_slurm_would_not_take() -> None:
    with pytest.raises(ConfigurationError, match=r"slurm.conf: line 3: found 'KillWait 30', allowed: Key=value"):
        read({"slurm.conf": "A=1\n\nKillWait 30\n"})


def test_what_the_files_say() -> None:
    found = read({"slurm.conf": OLD, "gres.conf": "NodeName=n[1-2] Name=gpu File=/dev/nvidia0\nAutoDetect=nvml\n"})
    assert found.settings["slurm.conf", "slurmctldhost"] == ("SlurmctldHost", "head(10.0.0.1) head2")
    assert dict(found.nodes["n3"])["NodeAddr"] == "10.0.0.3"
    assert dict(found.nodes["n6"]) == {"Sockets": "2", "CoresPerSocket": "4", "RealMemory": "2000", "Weight": "3"}
    assert list(found.partitions) == ["gpu", "old"]
    assert found.gres == {
        "n1": ("Name=gpu File=/dev/nvidia0",),
        "n2": ("Name=gpu File=/dev/nvidia0",),
        "": ("AutoDetect=nvml",),
    }


def test_the_same_in_other_words_is_no_change() -> None:
    new = OLD.replace("# The cluster", "").replace("n[1-4] NodeAddr=10.0.0.[1-4]", "n1 NodeAddr=10.0.0.1", 1)
    new += "NodeName=n[2-4] Gres=gpu:2 RealMemory=1000 NodeAddr=10.0.0.2,10.0.0.3,10.0.0.4\n"
    assert changes(read({"slurm.conf": OLD}), read({"slurm.conf": new})) == []


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        (("KillWait=30", "KillWait=60"), Change("slurm.conf", "", "KillWait", "30", "60")),
        (("KillWait=30", ""), Change("slurm.conf", "", "KillWait", "30", None)),
        (("# The cluster", "MinJobAge=9"), Change("slurm.conf", "", "MinJobAge", None, "9")),
        (("=1000", "=1001"), Change("NodeName", "n[1-4]", "RealMemory", "1000", "1001")),
        (("Weight=3", ""), Change("NodeName", "n[5-6]", "Weight", "3", None)),
        (("n[5-6]", "n[5-8]"), Change("NodeName", "n[7-8]", "NodeName", None, "n[7-8]")),
        (("n[5-6]", "n5"), Change("NodeName", "n6", "NodeName", "n6", None)),
        (("PartitionName=old Nodes=n5\n", ""), Change("PartitionName", "old", "PartitionName", "old", None)),
        (("Nodes=n5", "Nodes=n[5-6]"), Change("PartitionName", "old", "Nodes", "n5", "n[5-6]")),
    ],
)
def test_changes(replacement: tuple[str, str], expected: Change) -> None:
    assert edited(replacement) == [expected]


def test_gres_of_nodes_that_stay() -> None:
    new = OLD.replace("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]")
    before = read({"slurm.conf": OLD, "gres.conf": "NodeName=n[1-4] Name=gpu File=/dev/nvidia[0-1]\n"})
    after = read({"slurm.conf": new, "gres.conf": "NodeName=n[1-3] Name=gpu File=/dev/nvidia0\n"})
    assert changes(before, after)[1:] == [
        Change("gres.conf", "n[1-3]", "Name", "Name=gpu File=/dev/nvidia[0-1]", "Name=gpu File=/dev/nvidia0")
    ]


JOBS = [
    Job("7", "gpu", frozenset({"n1", "n2"}), True),
    Job("8", "gpu", frozenset({"n2"}), False),
    Job("9", "old,gpu", frozenset(), False),
]


@pytest.mark.parametrize(
    ("replacements", "ends"),
    [
        ([("KillWait=30", "KillWait=60")], ()),
        ([("Weight=3", "Weight=4")], ()),
        ([("=1000", "=900")], ()),
        ([("CoresPerSocket=4", "CoresPerSocket=8")], ("7", "8")),
        ([("Gres=gpu:2", "Gres=gpu:1")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[2-4] NodeAddr=10.0.0.[2-4]")], ("7",)),
        ([("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]")], ()),
        ([("PartitionName=old Nodes=n5\n", "")], ("9",)),
        ([("Nodes=n[1-4] Default", "Nodes=n[3-4] Default")], ()),
        ([("ClusterName=demo", "ClusterName=other")], ("7", "8")),
        ([("KillWait=30", "ProctrackType=proctrack/linuxproc")], ("7", "8")),
    ],
)
def test_jobs_that_a_change_would_end(replacements: list[tuple[str, str]], ends: tuple[str, ...]) -> None:
    found = steps(edited(*replacements), JOBS, "24.11.5")
    assert {number for step in found for number in step.ends} == set(ends)


def test_nodes_that_are_removed() -> None:
    found = steps(edited(("n[5-6]", "n[6-7]"), ("KillWait=30", "")), [], "24.11.5")
    assert removed_nodes(found) == {"n5"}


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize(
    "replacement",
    [
        ("KillWait=30", "KillWait=60"),
        ("KillWait=30", "SlurmdPort=7000"),
        ("KillWait=30", "TaskPlugin=task/affinity"),
        ("n[5-6]", "n[5-7]"),
        ("Weight=3", "Weight=4"),
        ("Weight=3", "Port=7000"),
        ("RealMemory=2000", "RealMemory=2001"),
        ("PartitionName=old", "NodeSet=some Nodes=n1\nPartitionName=old"),
    ],
)
def test_what_slurmd_reads_at_its_start_changes_when_it_is_to_be_restarted(
    replacement: tuple[str, str], version: str
) -> None:
    old, new = (read({"slurm.conf": text}) for text in (OLD, OLD.replace(*replacement)))
    restart = any("slurmd" in step.needs.restart for step in steps(changes(old, new), [], version))
    assert restart == (read_at_start(old, "slurmd", version) != read_at_start(new, "slurmd", version))


def test_what_slurmd_reads_at_its_start_is_what_an_administrator_knows() -> None:
    found = read_at_start(read({"slurm.conf": OLD + "SlurmdPort=7000\nKillWait=1\n"}), "slurmd", "24.11.5")
    assert found.splitlines() == ["ClusterName=demo", "SlurmdPort=7000"]


@pytest.mark.parametrize(("key", "expected"), [("SlurmdPort", True), ("KillWait", False), ("TaskPlugin", False)])
def test_daemons_that_do_not_understand_each_other_for_a_while(key: str, expected: bool) -> None:
    assert parts_daemons(steps([Change("slurm.conf", "", key, "1", "2")], [], "24.11.5")) is expected


def test_table() -> None:
    found = steps(edited(("KillWait=30", "KillWait=60"), ("Gres=gpu:2", "Gres=gpu:1")), JOBS, "24.11.5")
    assert table(found) == [
        "slurm.conf KillWait   30 -> 60        reconfigure",
        "NodeName=n[1-4] Gres  gpu:2 -> gpu:1  reconfigure, no job on these nodes  ENDS JOBS 7",
    ]


def test_ten_thousand_nodes_are_compared_by_their_lines() -> None:
    """Equal nodes share their settings: what is compared are kinds of nodes."""
    old = read({"slurm.conf": "NodeName=n[1-10000] NodeAddr=10.0.0.1 RealMemory=1000 Weight=1\n"})
    new = read({"slurm.conf": "NodeName=n[1-10000] NodeAddr=10.0.0.1 RealMemory=1000 Weight=2\n"})
    assert len(set(old.nodes.values())) == 1
    assert changes(old, new) == [Change("NodeName", "n[1-10000]", "Weight", "1", "2")]


TYPES = st.fixed_dictionaries(
    {key: st.integers(1, 8) for key in ("boards", "cores_per_socket", "threads_per_core")}
    | {"sockets_of_a_board": st.integers(1, 4), "real_memory": st.integers(1, 4_000_000)},
    optional={"Weight": st.integers(1, 9), "Feature": st.sampled_from(["ib", "ib,fast"])},
)
NODES = st.lists(
    st.fixed_dictionaries(
        {"hardware": st.sampled_from(["a", "b", "c"]), "size": st.integers(1, 5), "addressed": st.booleans()},
        optional={"Weight": st.integers(1, 9), "Reason": st.sampled_from(["a b", "c#d"])},
    ),
    min_size=1,
    max_size=8,
)


@given(st.fixed_dictionaries(dict.fromkeys("abc", TYPES)), NODES)
def test_node_lines_parsed_back_give_the_model(types: dict[str, dict[str, Any]], found: list[dict[str, Any]]) -> None:
    hardware: dict[str, dict[str, Any]] = {}
    nodes: list[dict[str, Any]] = []
    expected: dict[str, dict[str, str]] = {}
    for name, keys in types.items():
        others = {key: value for key, value in keys.items() if key != "sockets_of_a_board"}
        hardware[name] = {**others, "sockets": keys["boards"] * keys["sockets_of_a_board"]}
    for i, entry in enumerate(found):
        names = [f"n{i}-{number:02}" for number in range(entry["size"])]
        addresses = [f"10.0.{i}.{number}" for number in range(entry["size"])]
        keys = types[entry["hardware"]]
        own: dict[str, Any] = {key: value for key, value in entry.items() if key in ("Weight", "Reason")}
        address = {"address": fold(addresses)} if entry["addressed"] else {}
        nodes.append({"hosts": fold(names), "hardware": entry["hardware"], **address, **own})
        boards = keys["boards"] > 1
        same: dict[str, Any] = {
            **({"Boards": keys["boards"]} if boards else {}),
            "SocketsPerBoard" if boards else "Sockets": keys["sockets_of_a_board"],
            "CoresPerSocket": keys["cores_per_socket"],
            "ThreadsPerCore": keys["threads_per_core"],
            "RealMemory": keys["real_memory"],
            **{key: keys[key] for key in ("Weight", "Feature") if key in keys},
            **own,
        }
        for name, where in zip(names, addresses):
            whole = {**same, **({"NodeAddr": where} if entry["addressed"] else {})}
            expected[name] = {key: str(value) for key, value in whole.items()}
    parsed = read({"slurm.conf": node_lines(nodes, hardware)}).nodes
    assert {name: dict(settings) for name, settings in parsed.items()} == expected


def test_lines_of_plugstack_conf_are_compared_by_their_plugin() -> None:
    old = read({"plugstack.conf": "# plugins\ninclude /etc/slurm/plugstack.conf.d/*.conf\noptional a.so x=1\n"})
    new = read({"plugstack.conf": "required  a.so  x=1 y\noptional b.so  # new\n"})
    assert [" ".join(line.split()) for line in table(steps(changes(old, new), [], "24.11"))] == [
        "plugstack.conf required=a.so optional x=1 -> required x=1 y reconfigure",
        "plugstack.conf optional=b.so (none) -> optional reconfigure",
        "plugstack.conf include=/etc/slurm/plugstack.conf.d/*.conf include -> (none) reconfigure",
    ]
    assert {step.needs.restart for step in steps(changes(old, new), [], "22.05")} == {("slurmd",)}
