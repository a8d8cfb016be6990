# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any input gives one clear error, or a cluster that works: never a traceback, a hang or gigabytes of memory.

Valid cluster files, policies, facts and configuration get a few mistakes each. With STRANGE_INPUT_SECONDS=600, each
test searches that long with new examples (docs/design/testing.md).
"""

from __future__ import annotations

import copy
import functools
import json
import subprocess
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.filter.slurm import FILTERS
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting import differences, policy, reservations
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr_commands import batches
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    DeclaredCluster,
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.people_key import read_table
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import (
    HARDWARE_KEYS,
    NODE_KEYS,
    host_addresses,
    mig_gres,
    node_parameters,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    Configuration,
    ConfigurationError,
    Pairs,
    changes,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read as read_conf
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import LINES, REFUSED, problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.cross_checks import cross_check, whole
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.formatting import MESSAGE, PROBLEMS, visible
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import checked
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import read
from hypothesis import strategies as st
from registration_texts import check_registration
from slurm_confs import OLD
from strange_input import (
    CLUSTERS,
    MEASURED,
    PAIRS,
    PEOPLE,
    SOAK,
    WEIRD,
    holds,
    mutated,
    texts,
    yaml_texts,
)

pytestmark = pytest.mark.once

RELEASES = ("22.05.8", "24.11.5", "26.05.3")

HOST = Host(lambda _name: None, lambda _plugin_dir: None, lambda _names: [])
"""A host of slurmctld that knows nothing."""


def check_messages(error: BaseException) -> None:
    """Errors are lines that a person can read."""
    lines = str(error).split("\n")
    assert all(lines), error
    assert len(lines) <= PROBLEMS + 1
    assert max(map(len, lines)) <= MESSAGE
    assert visible(str(error)) == str(error)


# -- cluster files ---------------------------------------------------------------------------------------------------


def test_cluster_files() -> None:
    holds(st.tuples(yaml_texts(CLUSTERS), st.one_of(st.none(), yaml_texts([yaml.safe_load(MEASURED)]))), check_cluster)


def check_cluster(files: tuple[str, str | None]) -> None:
    """A cluster file, and perhaps a hardware file."""
    try:
        document = read("my.cluster.yml", files[0].encode())
        measured = None if files[1] is None else read("my.hardware.yml", files[1].encode())
        cluster = load(document, measured)
    except ModelError as error:
        check_messages(error)
        return
    json.dumps(cluster.variables, default=str)
    assert load(read("my.cluster.yml", files[0].encode()), measured) == cluster
    assert model_errors(cluster.variables, {*cluster.addresses, *chain(*cluster.groups.values())}) == []
    check_lines(cluster)


def test_tables_of_people() -> None:
    holds(texts([PEOPLE]), check_table)


def check_table(text: str) -> None:
    """A CSV file of users."""
    data = {**CLUSTERS[0], "people": "people.csv", "groups": [{"name": "lab", "gid": 6001}]}
    try:
        cluster = load(Document("my.cluster.yml", data), None, {"people.csv": read_table("people.csv", text)})
    except ModelError as error:
        check_messages(error)
        return
    hosts = {*cluster.addresses, *chain(*cluster.groups.values())}
    assert model_errors({**cluster.variables, "slurm_user_id": 64030}, hosts) == []
    for user in cluster.variables["slurm_people"]["users"]:
        fields = [user[key] for key in ("name", "full_name", "home", "shell")]
        assert len(":".join(map(str, fields)).splitlines()) == 1
        assert ":" not in "".join(fields)
        assert all(len(key.splitlines()) == 1 for key in user["keys"])


def check_lines(cluster: DeclaredCluster) -> None:
    """The variables become files that say the same, for Slurm and for the reader of this collection."""
    variables = cluster.variables
    known = [node for node in variables["slurm_nodes"] if node["hardware"] != "detected"]
    hardware, settings = variables["slurm_hardware_types"], variables["slurm_conf"]
    files = {
        "slurm.conf": FILTERS["slurm_conf"](settings, node_parameters(known, hardware))
        + FILTERS["node_lines"](known, hardware)
        + FILTERS["partition_lines"](variables["slurm_partitions"]),
        "cgroup.conf": FILTERS["slurm_conf"](variables["slurm_cgroup_conf"]),
        "gres.conf": FILTERS["gres_lines"](known, hardware),
    }
    mig_gres(known, hardware)
    health_environment(known, hardware, settings)
    host_addresses(variables["slurm_addresses"])
    found = read_conf(files)
    check_read_back(cluster, known, found)
    assert changes(found, read_conf(files)) == []
    refused = {version: [*cross_check(files, HOST, version)[0], *refusals(found, version)] for version in RELEASES}
    if SOAK:
        check_with_slurm(variables["slurm_cluster_name"], files["slurm.conf"], refused)


def refusals(found: Configuration, version: str) -> list[str]:
    """The parameters that a release of Slurm refuses, by the tables of this collection."""
    settings = found.settings.items()
    lines: list[tuple[str, Pairs]] = [(file, (pair,)) for (file, _key), pair in settings if "=" not in pair[0]]
    lines += [("NodeName", pairs) for pairs in {*found.nodes.values()}]
    lines += [("PartitionName", pairs) for pairs in found.partitions.values()]
    return [str(one) for file, pairs in lines for one in problems(file, pairs, version) if one.effect == REFUSED]


def check_with_slurm(name: str, slurm_conf: str, refused: Mapping[str, list[str]]) -> None:
    """Slurm's own parser reads a slurm.conf in which nothing is refused, if this machine has one of the releases."""
    version = sinfo("ClusterName=a\nSlurmctldHost=localhost\nNodeName=a\nPartitionName=a Nodes=a\n").stdout.split()[-1]
    found = sinfo(f"ClusterName={name}\nSlurmctldHost=localhost\n{slurm_conf}")
    assert found.returncode == 0 or refused.get(version, ["another release"]), (found.stderr, slurm_conf)


@functools.lru_cache(10)
def sinfo(slurm_conf: str) -> subprocess.CompletedProcess[str]:
    """The answer of this machine's sinfo, which reads all of a slurm.conf before it tells its version."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "slurm.conf"
        file.write_text(slurm_conf)
        command, environment = ["/usr/bin/sinfo", "--version"], {"SLURM_CONF": str(file)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def check_read_back(cluster: DeclaredCluster, nodes: list[dict[str, Any]], found: Configuration) -> None:
    """All values are read as they were given."""
    variables = cluster.variables
    assert [*found.nodes] == [host for node in regrouped(found, nodes) for host in expand(node["hosts"])]
    for node in nodes:
        machine = variables["slurm_hardware_types"][node["hardware"]]
        given = {**others(machine, HARDWARE_KEYS), **others(node, NODE_KEYS)}
        for host in expand(node["hosts"])[:2]:
            there = {key.lower(): value for key, value in found.nodes[host]}
            for key, value in given.items():
                assert there[key.lower()] == plain(value) or key == "Port"
    assert [*found.partitions] == [partition["name"] for partition in variables["slurm_partitions"]]
    for partition in variables["slurm_partitions"]:
        there = {key.lower(): value for key, value in found.partitions[partition["name"]]}
        for key, value in others(partition, ("name", "nodes", "default")).items():
            assert there[key.lower()] == plain(value)
    for variable, file in (("slurm_conf", "slurm.conf"), ("slurm_cgroup_conf", "cgroup.conf")):
        for key, value in variables[variable].items():
            if value is not None and key not in LINES and not isinstance(value, list):
                assert found.settings[file, key.lower()] == (key, plain(value)) or key in ("GresTypes", "DefMemPerCPU")


def regrouped(found: Configuration, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Node entries in the order of the file: equal ones share a line."""
    place = {host: i for i, host in enumerate(found.nodes)}
    return sorted(nodes, key=lambda node: place[expand(node["hosts"])[0]])


def others(entry: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of an entry that are Slurm's."""
    return {key: value for key, value in entry.items() if key not in known}


def plain(value: Any) -> str:
    """The text that Slurm reads for a value."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# -- variables of a plain inventory ----------------------------------------------------------------------------------

VARIABLES = [load(read("f", yaml.safe_dump(data).encode())).variables for data in CLUSTERS]


def test_variables() -> None:
    holds(mutated(VARIABLES), check_variables)


def check_variables(variables: Any) -> None:
    """Errors are texts; without errors the lines can be made."""
    before = copy.deepcopy(variables)
    errors = model_errors(variables, ["head", "head1", "head2", "db", "login1"])
    assert repr(variables) == repr(before)
    assert len(errors) <= PROBLEMS + 1
    assert all(error and len(error) <= MESSAGE and visible(error) == error for error in errors)


# -- policies --------------------------------------------------------------------------------------------------------

POLICIES = [data["accounting"] for data in CLUSTERS if "accounting" in data]


def test_policies() -> None:
    holds(st.tuples(mutated(POLICIES), st.booleans()), check_policy)


def check_policy(example: tuple[Any, bool]) -> None:
    """A valid policy does not differ from the state that it makes."""
    given, purge = example
    problems_of_types: list[str] = []
    given = schema.Checker("", problems_of_types).check(schema.ACCOUNTING, "", given)
    if problems_of_types:
        return
    try:
        wanted = policy.read(given, "demo", State(), purge)
    except policy.PolicyError as error:
        check_messages(error)
        return
    plan = differences.compare(State(), wanted)
    differences.table(plan)
    batches(State(), plan, "demo")
    state = State(entities=dict(wanted))
    assert differences.compare(state, policy.read(given, "demo", state, purge)) == []


# -- reservations ----------------------------------------------------------------------------------------------------

RESERVATIONS = [
    {"StartTime": "2026-05-01T08:00", "Duration": "02:00:00", "Nodes": "n[1-2]", "Users": ["root"], "Flags": "MAINT"},
    {"StartTime": "now", "EndTime": "2026-05-01", "NodeCnt": 2, "Accounts": ["a", "b"], "PartitionName": "gpu"},
]


def test_reservations() -> None:
    holds(mutated(RESERVATIONS), check_reservation)


def check_reservation(given: Any) -> None:
    """A valid reservation becomes a command of scontrol."""
    try:
        found = reservations.differences(given, None)
    except reservations.ReservationError as error:
        check_messages(error)
        return
    reservations.updates(found)


# -- answers of hosts ------------------------------------------------------------------------------------------------

HARDWARE = {
    "cpus": 16,
    "boards": 1,
    "sockets_per_board": 2,
    "cores_per_socket": 4,
    "threads_per_core": 2,
    "real_memory": 64000,
    "cpuless_memory": 0,
    "tmp_disk": 1000,
    "device_files": ["/dev/nvidia0"],
    "gpus": [
        {
            "minor": 0,
            "pci_address": "0000:01:00.0",
            "model": "NVIDIA H100 80GB HBM3",
            "type": "h100",
            "memory_mb": 81559,
            "numa_node": 0,
            "cores": "0-3",
            "mig": [{"profile": "1g.10gb", "uuid": "MIG-1"}],
        }
    ],
}
ANSWER = {"changed": False, "ansible_facts": {"slurm_hardware": HARDWARE}, "differences": []}


def test_answers_of_hosts() -> None:
    holds(st.tuples(mutated([ANSWER]), st.sampled_from(VARIABLES)), check_answer)


def check_answer(example: tuple[Any, Mapping[str, Any]]) -> None:
    """An answer is refused, or all that follows from it can be computed."""
    answer, variables = example
    taken = checked("slurm_hardware_facts", answer)
    if taken.get("failed") or "ansible_facts" not in taken:
        assert len(str(taken.get("msg", ""))) < 10000
        return
    facts = taken["ansible_facts"]["slurm_hardware"]
    nodes = [node for node in variables["slurm_nodes"] if node["hardware"] != "detected"]
    hosts = [host for node in nodes for host in expand(node["hosts"])][:5]
    measured = dict.fromkeys(hosts, facts)
    check_registration(measured, nodes, variables["slurm_hardware_types"], variables["slurm_conf"])
    found = discover(measured, {}, hosts, [], variables["slurm_nodes"])
    assert discover(measured, found, hosts, [], variables["slurm_nodes"])["nodes"] == found["nodes"]


# -- configuration ---------------------------------------------------------------------------------------------------

GRES = "NodeName=n[1-2] Name=gpu Type=t4 File=/dev/nvidia[0-1] Cores=0-3\nAutoDetect=nvml\n"


def test_slurm_conf_texts() -> None:
    holds(st.tuples(texts([OLD]), texts([GRES])), check_configuration)


def check_configuration(example: tuple[str, str]) -> None:
    """Files of Slurm are read, checked and compared, or one line is named."""
    files = {"slurm.conf": example[0], "gres.conf": example[1]}
    try:
        found = read_conf(files)
    except (ConfigurationError, ValueError) as error:
        check_messages(error)
        return
    assert changes(found, read_conf(files)) == []
    changes(read_conf({"slurm.conf": OLD, "gres.conf": GRES}), found)
    texts_of_host, refusals, _remarks = whole(files, HOST)
    try:
        refusals = refusals or cross_check(texts_of_host, HOST, RELEASES[0])[0]
    except ValueError as error:  # a hostlist
        check_messages(error)
    assert all(refusals)


def test_slurm_conf_mappings() -> None:
    scalars = st.sampled_from(WEIRD)
    pairs = st.one_of(PAIRS, st.tuples(st.sampled_from(["KillWait", "Prolog", "MailProg", "NodeSet"]), scalars))
    holds(st.lists(pairs, max_size=5).map(dict), check_mapping)


def check_mapping(given: dict[Any, Any]) -> None:
    """A mapping is refused, or read back as it was given."""
    if len({str(key).lower() for key in given}) < len(given):
        return
    try:
        text = FILTERS["slurm_conf"]({"KillWait": 30}, given)
        found = read_conf({"slurm.conf": text})
    except (ValueError, TypeError) as error:
        check_messages(error)
        return
    for key, value in given.items():
        if isinstance(value, (str, int, float)) and ("slurm.conf", str(key).lower()) in found.settings:
            assert found.settings["slurm.conf", str(key).lower()][1].strip() == plain(value).strip()
