# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's files as data, and the differences between two of them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import node_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    ConfigurationChange,
    ConfigurationError,
    changes,
    lines,
    numbered_lines,
    read,
    value_text,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import fold
from hypothesis import given
from hypothesis import strategies as st
from slurm_confs import OLD, edited


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=x\\\nB=1\n", [("A", "xB=1")]),
        ("A=x\\\\\nB=1\n", [("A", "x\\"), ("B", "1")]),
        ("A=x\\\\\\\ny\n", [("A", "x\\y")]),
        ("A=x \\ \t\r\nB=1\n", [("A", "x"), ("B", "1")]),
        ("A=x \\ # not the end\nB=1\n", [("A", "x"), ("B", "1")]),
        ("A=x \\", [("A", "x")]),
        ("A=x\\#y\n", [("A", "x#y")]),
        ("A=x\\\\#y\n", [("A", "x\\")]),
        ("A=x\\y\n", [("A", "xy")]),
        ("A=x\r\nB=1\r\n", [("A", "x"), ("B", "1")]),
    ],
)
def test_backslashes_and_comments_are_read_as_slurm_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert [pair for pairs in lines("slurm.conf", text) for pair in pairs] == expected


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x1c", "\x1e"])
def test_only_a_newline_ends_a_line(character: str) -> None:
    """Python takes these characters for ends of lines, or for blanks."""
    assert [*lines("slurm.conf", f"MailDomain=a{character}b\n")] == [(("MailDomain", f"a{character}b"),)]
    assert [*lines("plugstack.conf", f"optional a.so x={character}b\n")] == [(("optional", f"a.so x={character}b"),)]


@pytest.mark.parametrize("character", ["\f", "\v"])
def test_other_blanks_of_c_part_words(character: str) -> None:
    assert [*lines("slurm.conf", f"A=1{character}B=2\n")] == [(("A", "1"), ("B", "2"))]


def test_plugstack_conf_has_no_escapes() -> None:
    found = [*lines("plugstack.conf", "optional a.so x=\\\nrequired b.so y=\\#z\n")]
    assert found == [(("optional", "a.so x=\\"),), (("required", "b.so y=\\"),)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NodeName=n[\n", "slurm.conf: NodeName=n[: bad hostlist"),
        ('NodeName=""\n', "slurm.conf: NodeName=: allowed: a hostlist such as compute[01-16]"),
        ('NodeName=n1 NodeAddr=""\n', "slurm.conf: NodeName=n1: NodeAddr: found '', allowed: a hostlist"),
        ("PartitionName=p Nodes=n[\n", "slurm.conf: PartitionName=p: bad hostlist"),
        ("NodeName=n1 Port=x\n", "slurm.conf: NodeName=n1: bad hostlist"),
    ],
)
def test_a_hostlist_that_cannot_be_read_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read({"slurm.conf": text})
    assert str(caught.value).startswith(message)


def test_an_empty_port_is_none() -> None:
    assert read({"slurm.conf": 'NodeName=n[1-2] Port=""\n'}).nodes == {"n1": (), "n2": ()}


@pytest.mark.parametrize("value", ["a\0b", [True], ["a", None], [["a"]], None, {"a": 1}])
def test_a_value_that_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="is not a valid value in a Slurm configuration"):
        value_text(value)


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


def test_the_same_settings_written_otherwise_are_no_change() -> None:
    new = OLD.replace("# The cluster", "").replace("n[1-4] NodeAddr=10.0.0.[1-4]", "n1 NodeAddr=10.0.0.1", 1)
    new += "NodeName=n[2-4] Gres=gpu:2 RealMemory=1000 NodeAddr=10.0.0.2,10.0.0.3,10.0.0.4\n"
    assert changes(read({"slurm.conf": OLD}), read({"slurm.conf": new})) == []


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        (("KillWait=30", "KillWait=60"), ConfigurationChange("slurm.conf", "", "KillWait", "30", "60")),
        (("KillWait=30", ""), ConfigurationChange("slurm.conf", "", "KillWait", "30", None)),
        (("# The cluster", "MinJobAge=9"), ConfigurationChange("slurm.conf", "", "MinJobAge", None, "9")),
        (("=1000", "=1001"), ConfigurationChange("NodeName", "n[1-4]", "RealMemory", "1000", "1001")),
        (("Weight=3", ""), ConfigurationChange("NodeName", "n[5-6]", "Weight", "3", None)),
        (("n[5-6]", "n[5-8]"), ConfigurationChange("NodeName", "n[7-8]", "NodeName", None, "n[7-8]")),
        (("n[5-6]", "n5"), ConfigurationChange("NodeName", "n6", "NodeName", "n6", None)),
        (
            ("PartitionName=old Nodes=n5\n", ""),
            ConfigurationChange("PartitionName", "old", "PartitionName", "old", None),
        ),
        (("Nodes=n5", "Nodes=n[5-6]"), ConfigurationChange("PartitionName", "old", "Nodes", "n5", "n[5-6]")),
    ],
)
def test_changes(replacement: tuple[str, str], expected: ConfigurationChange) -> None:
    assert edited(replacement) == [expected]


def test_gres_of_nodes_that_stay() -> None:
    new = OLD.replace("n[1-4] NodeAddr=10.0.0.[1-4]", "n[1-3] NodeAddr=10.0.0.[1-3]")
    before = read({"slurm.conf": OLD, "gres.conf": "NodeName=n[1-4] Name=gpu File=/dev/nvidia[0-1]\n"})
    after = read({"slurm.conf": new, "gres.conf": "NodeName=n[1-3] Name=gpu File=/dev/nvidia0\n"})
    assert changes(before, after)[1:] == [
        ConfigurationChange(
            "gres.conf", "n[1-3]", "Name", "Name=gpu File=/dev/nvidia[0-1]", "Name=gpu File=/dev/nvidia0"
        )
    ]


def test_ten_thousand_nodes_are_compared_by_their_lines() -> None:
    """Equal nodes share their settings: what is compared are kinds of nodes."""
    old = read({"slurm.conf": "NodeName=n[1-10000] NodeAddr=10.0.0.1 RealMemory=1000 Weight=1\n"})
    new = read({"slurm.conf": "NodeName=n[1-10000] NodeAddr=10.0.0.1 RealMemory=1000 Weight=2\n"})
    assert len(set(old.nodes.values())) == 1
    assert changes(old, new) == [ConfigurationChange("NodeName", "n[1-10000]", "Weight", "1", "2")]


TYPES = st.fixed_dictionaries(
    {key: st.integers(1, 8) for key in ("boards", "cores_per_socket", "threads_per_core")}
    | {"sockets_of_a_board": st.integers(1, 4), "real_memory": st.integers(1, 4_000_000)},
    optional={"Weight": st.integers(1, 9), "Feature": st.sampled_from(["ib", "ib,fast"])},
)
NODES = st.lists(
    st.fixed_dictionaries(
        {"hardware": st.sampled_from(["a", "b", "c"]), "size": st.integers(1, 5), "addressed": st.booleans()},
        optional={
            "Weight": st.integers(1, 9),
            "Reason": st.sampled_from(["a b", "c#d", "a\\b", "a\\\\#\\c", "a\u2028b", "a\u0085\fb"]),
        },
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


def test_some_parameters_are_not_taken_from_a_line_default() -> None:
    text = (
        "NodeName=DEFAULT Feature=a Weight=2 GresConf=x\nNodeName=n1 Features=b\nNodeName=n2\n"
        "PartitionName=DEFAULT ExclusiveUser=YES Hidden=YES\nPartitionName=p Nodes=n1\n"
    )
    found = read({"slurm.conf": text})
    assert dict(found.nodes["n1"]) == {"Features": "b", "Weight": "2"}
    assert dict(found.nodes["n2"]) == {"Feature": "a", "Weight": "2"}
    assert dict(found.partitions["p"]) == {"Hidden": "YES", "Nodes": "n1"}


def test_lines_have_numbers() -> None:
    text = "# first\nA=1 \\\n  B=2\n\nInclude other.conf\n"
    assert [*numbered_lines("slurm.conf", text)] == [(2, (("A", "1"), ("B", "2"))), (5, (("Include", "other.conf"),))]
    with pytest.raises(ConfigurationError, match=r"^other\.conf: line 1: "):
        [*numbered_lines("slurm.conf", "what", "other.conf")]


@pytest.mark.parametrize(
    ("conf", "pairs"),
    [
        ("NodeName=n CPUs=96 Procs=48\n", {"CPUs": "96"}),
        ("NodeName=n Procs=48 CPUs=96\n", {"CPUs": "96"}),
        ("NodeName=DEFAULT CPUs=96\nNodeName=n Procs=48\n", {"CPUs": "96"}),
        ("NodeName=DEFAULT Procs=96\nNodeName=n Procs=48\n", {"Procs": "48"}),
        ("NodeName=n Feature=a Features=b\n", {"Feature": "a"}),
        ("NodeName=DEFAULT Feature=a\nNodeName=n Features=b\n", {"Features": "b"}),
        ("NodeName=DEFAULT Feature=a\nNodeName=DEFAULT Features=b\nNodeName=n\n", {"Feature": "a"}),
        ("NodeName=n Sockets=1 SocketsPerBoard=2\n", {"SocketsPerBoard": "2"}),
        ("NodeName=DEFAULT SocketsPerBoard=2\nNodeName=n Sockets=1\n", {"SocketsPerBoard": "2"}),
        ("PartitionName=n Shared=YES OverSubscribe=NO\n", {"OverSubscribe": "NO"}),
        ("PartitionName=DEFAULT OverSubscribe=NO\nPartitionName=n Shared=YES\n", {"OverSubscribe": "NO"}),
        ("PartitionName=n Priority=3 PriorityTier=7 PriorityJobFactor=9\n", {"Priority": "3"}),
        ("PartitionName=DEFAULT Priority=3\nPartitionName=n PriorityTier=7\n", {"Priority": "3"}),
    ],
)
def test_of_two_names_slurm_reads_one(conf: str, pairs: dict[str, str]) -> None:
    """Each as slurmctld 24.11 shows it; the order is the same from 22.05 to 26.05."""
    found = read({"slurm.conf": conf})
    assert dict({**found.nodes, **found.partitions}["n"]) == pairs


def test_of_two_names_in_gres_conf_slurm_reads_one() -> None:
    text = "NodeName=n Name=gpu CPUs=0-7 Cores=8-15 Files=/dev/a File=/dev/b Links=0,-1 Link=-1,0\n"
    assert read({"gres.conf": text}).gres == {"n": ("Name=gpu Cores=8-15 File=/dev/b Link=-1,0",)}
