# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster file without some nodes: its text with comments, order and layout, and the nodes that cannot leave."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.lookup.cluster_file_without import difference, without
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import edits, nodes_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.cluster_file import edited
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import read

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted(ROOT.glob("inventory/*/*.cluster.yml"))

WHOLE = """\
# The whole cluster
plugin: gpucluster.slurm.cluster
name: x
controllers: head   # one
database: head
login: login1
addresses: {head: 10.0.0.1, login1: 10.0.0.2}
hardware:
  a: {sockets: 1, cores_per_socket: 2, threads_per_core: 1, real_memory: 2000}
nodes:
  # first rack
  - {hosts: "gpu[01-08]", hardware: a, address: "10.0.0.[11-18]"}  # eight
  # second
  - hosts: big1
    hardware: a
    address: 10.0.0.30

  # third
  -
    hosts: cpu[1-4],fat[1-2]
    hardware: a
  - {hosts: login1, hardware: a}
partitions:
  - {name: all, nodes: ALL, default: true}
  - name: gpu
    nodes: 'gpu[01-04],big1,gpu[05-08],gpu02' # list
  - {name: small, nodes: "cpu[1-2]"}
storage:
  - {path: /scratch, type: nfs, source: "nas:/scratch", hosts: "gpu[01-08],login"}
slurm_conf:
  TopologyPlugin: topology/tree
  NodeSet: [{NodeSet: fast, Nodes: "gpu[01-02],cpu1"}]
  SuspendExcNodes: gpu[01-02]
slurm_files:
  topology.conf: |
    # gpu03 is in s1
    SwitchName=s1 Nodes=gpu[01-08],big1
    SwitchName=s2 Nodes=cpu[1-4],fat[1-2],login1
    SwitchName=top Switches=s[1-2]
"""


def without_nodes(text: str, hosts: str) -> str:
    return edited("x.cluster.yml", text, edits("x.cluster.yml", read("x", text.encode()).data, expand(hosts)))


def changed(text: str, hosts: str) -> list[str]:
    """The lines that differ, as of a diff."""
    lines = difflib.ndiff(text.splitlines(), without_nodes(text, hosts).splitlines())
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(
    ("hosts", "lines"),
    {
        "gpu03": [
            '-   - {hosts: "gpu[01-08]", hardware: a, address: "10.0.0.[11-18]"}  # eight',
            '+   - {hosts: "gpu[01-02,04-08]", hardware: a, address: "10.0.0.[11-12,14-18]"}  # eight',
            "-     nodes: 'gpu[01-04],big1,gpu[05-08],gpu02' # list",
            "+     nodes: 'gpu[01-02,04],big1,gpu[05-08],gpu02' # list",
            '-   - {path: /scratch, type: nfs, source: "nas:/scratch", hosts: "gpu[01-08],login"}',
            '+   - {path: /scratch, type: nfs, source: "nas:/scratch", hosts: "gpu[01-02,04-08],login"}',
            "-     SwitchName=s1 Nodes=gpu[01-08],big1",
            "+     SwitchName=s1 Nodes=gpu[01-02,04-08],big1",
        ],
        "big1": [
            "-   - hosts: big1",
            "-     hardware: a",
            "-     address: 10.0.0.30",
            "-     nodes: 'gpu[01-04],big1,gpu[05-08],gpu02' # list",
            "+     nodes: 'gpu[01-04],gpu[05-08],gpu02' # list",
            "-     SwitchName=s1 Nodes=gpu[01-08],big1",
            "+     SwitchName=s1 Nodes=gpu[01-08]",
        ],
        "cpu[3-4],fat[1-2]": [
            "-     hosts: cpu[1-4],fat[1-2]",
            "+     hosts: cpu[1-2]",
            "-     SwitchName=s2 Nodes=cpu[1-4],fat[1-2],login1",
            "+     SwitchName=s2 Nodes=cpu[1-2],login1",
        ],
        "gpu02": [
            '-   - {hosts: "gpu[01-08]", hardware: a, address: "10.0.0.[11-18]"}  # eight',
            '+   - {hosts: "gpu[01,03-08]", hardware: a, address: "10.0.0.[11,13-18]"}  # eight',
            "-     nodes: 'gpu[01-04],big1,gpu[05-08],gpu02' # list",
            "+     nodes: 'gpu[01,03-04],big1,gpu[05-08]' # list",
            '-   - {path: /scratch, type: nfs, source: "nas:/scratch", hosts: "gpu[01-08],login"}',
            '+   - {path: /scratch, type: nfs, source: "nas:/scratch", hosts: "gpu[01,03-08],login"}',
            '-   NodeSet: [{NodeSet: fast, Nodes: "gpu[01-02],cpu1"}]',
            '+   NodeSet: [{NodeSet: fast, Nodes: "gpu01,cpu1"}]',
            "-   SuspendExcNodes: gpu[01-02]",
            "+   SuspendExcNodes: gpu01",
            "-     SwitchName=s1 Nodes=gpu[01-08],big1",
            "+     SwitchName=s1 Nodes=gpu[01,03-08],big1",
        ],
    }.items(),
)
def test_only_values_that_name_the_nodes_change(hosts: str, lines: list[str]) -> None:
    assert changed(WHOLE, hosts) == lines


NODES = """\
plugin: gpucluster.slurm.cluster
name: x
controllers: head
hardware: {a: {sockets: 1, cores_per_socket: 2, threads_per_core: 1, real_memory: 2000}}
"""


@pytest.mark.parametrize(
    ("before", "hosts", "after"),
    [
        ("nodes: [{hosts: a, hardware: a}, {hosts: b, hardware: a}]\n", "a", "nodes: [{hosts: b, hardware: a}]\n"),
        ("nodes: [{hosts: a, hardware: a}, {hosts: b, hardware: a}]\n", "b", "nodes: [{hosts: a, hardware: a}]\n"),
        ("nodes:\n- {hosts: a, hardware: a}\n- hosts: b\n  hardware: a\n", "b", "nodes:\n- {hosts: a, hardware: a}\n"),
        ("nodes:\n- {hosts: a, hardware: a}\n- hosts: b\n  hardware: a", "b", "nodes:\n- {hosts: a, hardware: a}\n"),
        ("nodes: [{hosts: a b c, hardware: a}]\n", "b", "nodes: [{hosts: a c, hardware: a}]\n"),
        ("nodes: [{hosts: 'r[1-2]n[1-2]', hardware: a}]\n", "r1n2",
         "nodes: [{hosts: 'r1n1,r2n[1-2]', hardware: a}]\n"),
        ("nodes: [{hosts: 'n[1-3]', hardware: a}] # é\n", "n2", "nodes: [{hosts: 'n[1,3]', hardware: a}] # é\n"),
        ("nodes:\r\n- {hosts: a, hardware: a}\r\n- {hosts: b, hardware: a}\r\n", "a",
         "nodes:\r\n- {hosts: b, hardware: a}\r\n"),
        (
            "nodes: [{hosts: n1, hardware: a}, {hosts: n2, hardware: a}]\naddresses: {n1: 10.0.0.1}\n",
            "n1",
            "nodes: [{hosts: n2, hardware: a}]\n",
        ),
        (
            "nodes: [{hosts: n1, hardware: a}, {hosts: n2, hardware: a}]\n"
            "machines: {by: ipmi, addresses: {n1: a, n2: b}, user: u}\n",
            "n1",
            "nodes: [{hosts: n2, hardware: a}]\nmachines: {by: ipmi, addresses: {n2: b}, user: u}\n",
        ),
        (
            "nodes: [{hosts: n1, hardware: a}, {hosts: n2, hardware: a}]\nmachines:\n  addresses: {n1: a}\n  user: u\n",
            "n1",
            "nodes: [{hosts: n2, hardware: a}]\nmachines:\n  user: u\n",
        ),
    ],
)  # fmt: skip
def test_layouts(before: str, hosts: str, after: str) -> None:
    assert without_nodes(NODES + before, hosts) == NODES + after


@pytest.mark.parametrize(
    ("hosts", "message"),
    {
        "gpu99": "remove_nodes: found 'gpu99', unknown node, did you mean 'gpu09'? allowed: nodes of",
        "": "remove_nodes: found no name, allowed: nodes of",
        "login1": "login: login1 cannot leave the cluster: remove it from this key first",
        "head": "controllers: head cannot leave the cluster: take it out of this key first, which needs another host",
        "gpu[01-08]": "storage[0].hosts: no other host mounts /scratch",
        "gpu[01-08],big1": "slurm_files.topology.conf: a list would be empty without gpu[01-08],big1",
        "gpu[01-02],cpu1": "slurm_conf.NodeSet[0].Nodes: a list would be empty",
        "gpu[01-08],big1,cpu[1-4],fat[1-2],login1": "nodes: gpu[01-08],big1,cpu[1-4],fat[1-2],login1 cannot leave",
    }.items(),
)
def test_nodes_that_cannot_leave(hosts: str, message: str) -> None:
    text = WHOLE.replace('"gpu[01-08],login"', '"gpu[01-08]"')
    with pytest.raises(ModelError) as error:
        without_nodes(text, hosts)
    assert message.replace("gpu09", "gpu08") in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    {
        "accounting: {reservations: [{name: maint, Nodes: 'n[1-2]', StartTime: now, Duration: 60, Users: root}]}\n": (
            "accounting.reservations[0].Nodes: n1 is named here"
        ),
        "slurm_files: {job_submit.lua: \"if node == 'n1' then\"}\n": "slurm_files.job_submit.lua: n1 is named here",
        "addresses: {'n[1-2]': '10.0.0.[1-2]'}\n": "addresses.n[1-2]: give the nodes among these their address",
        "machines: {by: ipmi, addresses: {'n[1-2]': 'b[1-2]'}}\n": (
            "machines.addresses.n[1-2]: give those that stay an entry of their own"
        ),
        "storage: [{path: /home, type: nfs, server: n1}]\n": "storage[0].server: n1 cannot leave the cluster",
        "registry: n1\n": "registry: n1 cannot leave the cluster: give another host the registry first",
    }.items(),
)
def test_a_person_has_to_change_other_values_first(more: str, message: str) -> None:
    with pytest.raises(ModelError) as error:
        without_nodes(f'{NODES}nodes: [{{hosts: "n[1-3]", hardware: a}}]\n{more}', "n1")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "nodes",
    ["nodes: [{<<: {hosts: 'n[1-3]'}, hardware: a}]\n", 'nodes: [{hosts: "n[1-\\x33]", hardware: a}]\n'],
    ids=["a merge key", "an escaped letter"],
)
def test_what_cannot_be_edited_is_left_to_a_person(nodes: str) -> None:
    with pytest.raises(ModelError, match="change it by hand"):
        without_nodes(NODES + nodes, "n2")


def test_an_alias_is_edited_where_it_is_defined() -> None:
    text = f"{NODES}nodes: [{{hosts: &n 'n[1-9]', hardware: a}}]\npartitions: [{{name: p, nodes: *n}}]\n"
    assert without_nodes(text, "n2") == text.replace("n[1-9]", "n[1,3-9]")


def left_by(path: Path, name: str) -> str:
    """The groups in which a node is after it has left; for a node that cannot leave, the reason."""
    try:
        cluster = load(read(path.name, without_nodes(path.read_text(), name).encode()))
    except ModelError as error:
        return str(error)
    return " ".join(group for group, hosts in cluster.groups.items() if name in hosts)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_node_of_the_examples_leaves_or_is_refused(path: Path) -> None:
    nodes = nodes_of(read(path.name, path.read_bytes()).data)
    for name in (nodes[0], nodes[-1]):
        left = left_by(path, name)
        assert left == "" or f"{name} cannot leave the cluster" in left or "people" in left or "prologs" in left


def test_nodes_that_have_left_are_ignored_when_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.cluster.yml"
    path.write_text(WHOLE)
    once = without(path, ["gpu03"])
    path.write_text(once)
    assert without(path, ["gpu03"]) == once
    assert "gpu[01-02,05-08]" in without(path, ["gpu03", "gpu04"])
    path.write_text("$ANSIBLE_VAULT;1.1;AES256\n00\n")
    with pytest.raises(ModelError, match="is encrypted"):
        without(path, ["gpu03"])


def test_the_difference_has_the_lines_that_change(tmp_path: Path) -> None:
    path = tmp_path / "x.cluster.yml"
    path.write_text(WHOLE)
    assert difference(path, without(path, ["big1"])).split("\n")[2:8] == [
        "@@ -13,5 +13,2 @@",
        "   # second",
        "-  - hosts: big1",
        "-    hardware: a",
        "-    address: 10.0.0.30",
        " ",
    ]
    assert difference(path, WHOLE) == ""
