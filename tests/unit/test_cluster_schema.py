# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of the cluster file for editors: current, right for each example, and never stricter than the model."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import (
    access_key,
    backup_key,
    database_server_key,
    firewall_plans,
    job_scripts,
    machines_key,
    mail_key,
    model,
    people_key,
    schema,
    storage_key,
)
from jsonschema import Draft7Validator

# The schema follows from the collection alone, not from ansible-core.
pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
FILE = ROOT / "roles/slurm/files/cluster.schema.json"
EXAMPLES = sorted(ROOT.glob("inventory/*/*.cluster.yml"))
VALIDATOR = Draft7Validator(json.loads(FILE.read_text()))

CLUSTER: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "database": "head",
    "hardware": {
        "a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000, "gres": [{"name": "x"}]}
    },
    "nodes": [{"hosts": "n[1-2]", "hardware": "a"}],
    "partitions": [{"name": "p", "nodes": "ALL", "default": True}],
    "users": [{"name": "alice", "uid": 2000}],
    "accounting": {"qos": [{"name": "q"}], "accounts": [{"name": "a"}], "users": [{"name": "u", "accounts": ["a"]}]},
    "slurm_conf": {},
    "cgroup_conf": {},
}


@pytest.fixture(name="tool")
def the_tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that writes the schema."""
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("cluster_schema")


def refused_by_model(document: Any) -> bool:
    """Whether the model refuses a cluster file. The scripts of prologs and files of people are not read."""
    try:
        model.load(model.Document("x.cluster.yml", document))
    except model.ModelError:
        return True
    return False


def refused_by_schema(document: Any) -> bool:
    """Whether an editor would mark something."""
    return not VALIDATOR.is_valid(document)


def test_the_file_is_current_and_a_schema(tool: Any) -> None:
    """`make docs` writes it."""
    assert json.loads(FILE.read_text()) == tool.document()
    Draft7Validator.check_schema(tool.document())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_names_the_schema_and_is_right(path: Path) -> None:
    assert EXAMPLES
    first = path.read_text().partition("\n")[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == FILE
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))] == []


WRONG: dict[str, tuple[list[Any], Any]] = {
    "an unknown key": (["node"], []),
    "a wrong plugin": (["plugin"], "gpucluster.slurm.clusters"),
    "capitals in the name": (["name"], "HPC"),
    "no controllers": (["controllers"], None),
    "a list in the place of a hostlist": (["login"], ["a", "b"]),
    "no list of nodes": (["nodes"], {"hosts": "n1", "hardware": "a"}),
    "a node without hardware": (["nodes", 0, "hardware"], None),
    "a key of nodes in other letters": (["nodes", 0, "features"], "x"),
    "a derived parameter of a node": (["nodes", 0, "CPUs"], 4),
    "a state that Slurm does not have": (["nodes", 0, "State"], "BUSY"),
    "too large a weight": (["nodes", 0, "Weight"], 2**32),
    "text in the place of a number": (["hardware", "a", "sockets"], "one"),
    "no sockets": (["hardware", "a", "sockets"], 0),
    "a machine type without memory": (["hardware", "a", "real_memory"], None),
    "an unknown key of gres": (["hardware", "a", "gres", 0, "files"], "/dev/nvidia0"),
    "an unknown AutoDetect": (["hardware", "a", "gres", 0, "autodetect"], "cuda"),
    "an unknown flag of gres": (["hardware", "a", "gres", 0, "flags"], ["fast"]),
    "a partition without nodes": (["partitions", 0, "nodes"], None),
    "a default as a text": (["partitions", 0, "default"], "yes"),
    "an unknown parameter of a partition": (["partitions", 0, "MaxTimes"], "1:00"),
    "a number for OverSubscribe": (["partitions", 0, "OverSubscribe"], 7),
    "a text for a boolean": (["partitions", 0, "Hidden"], "perhaps"),
    "auto for another parameter": (["partitions", 0, "MaxNodes"], "auto"),
    "an unknown parameter of slurm.conf": (["slurm_conf", "SchedulerTyp"], "x"),
    "a derived parameter of slurm.conf": (["slurm_conf", "ClusterName"], "x"),
    "a boolean for a path": (["slurm_conf", "MailProg"], True),
    "a mapping for a parameter": (["slurm_conf", "SchedulerParameters"], {"defer": True}),
    "an unknown level of a log": (["slurm_conf", "SlurmctldDebug"], "loud"),
    "a number out of its limits": (["slurm_conf", "SlurmctldTimeout"], 70000),
    "an unknown flag": (["slurm_conf", "DebugFlags"], "Everything"),
    "an unknown flag in a list": (["slurm_conf", "PrologFlags"], ["Contain", "Alone"]),
    "a node set without its name": (["slurm_conf", "NodeSet"], {"Feature": "h100"}),
    "an unknown parameter of cgroup.conf": (["cgroup_conf", "ConstrainRAM"], True),
    "an unknown package source": (["packages"], "debian"),
    "a repository without a key": (["packages"], {"repository": "https://x.example.org noble main"}),
    "a user without a uid": (["users", 0, "uid"], None),
    "a uid of the system": (["users", 0, "uid"], 33),
    "an unknown state of a user": (["users", 0, "state"], "gone"),
    "an unknown limit of a user": (["users", 0, "limits"], {"MaxJob": 3}),
    "an unknown limit of a QOS": (["accounting", "qos", 0, "MaxJobs1"], 3),
    "an unknown limit of an account": (["accounting", "accounts", 0, "Fairshares"], 3),
    "an unknown limit in a nested account": (["accounting", "accounts", 0, "accounts"], [{"name": "b", "Nope": 1}]),
    "an unknown key of the policy": (["accounting", "qoses"], []),
    "an unknown parameter of a reservation": (["accounting", "reservations"], [{"name": "r", "Node": "n1"}]),
    "access with an unknown value": (["access"], {"compute": "jobs"}),
    "a backup without a target": (["backup"], {"times": "daily"}),
    "machines without by": (["machines"], {"address": "{host}-bmc", "user": "operator"}),
    "a protocol of machines that nobody speaks": (["machines"], {"by": "wol", "user": "operator"}),
    "mail without a sender": (["mail"], {"relay": "mail.example.org"}),
    "an unknown value for tls": (["mail"], {"relay": "m.example.org", "sender": "s@example.org", "tls": "ssl"}),
    "a firewall without ssh": (["firewall"], {"open": []}),
    "a prolog without a name": (["prologs"], [{"script": "#!/bin/sh"}]),
    "a mount without a type": (["storage"], [{"path": "/home", "source": "nas:/home"}]),
    "a template": (["private_tmp"], "{{ directory }}"),
    "a further file that follows from a key": (["slurm_files"], {"slurm.conf": "x"}),
}


def test_the_least_file_is_right() -> None:
    """So that a wrong one is refused for its one mistake."""
    assert not refused_by_model(copy.deepcopy(CLUSTER))
    assert not refused_by_schema(CLUSTER)


@pytest.mark.parametrize("name", WRONG)
def test_what_the_model_refuses_is_marked(name: str) -> None:
    (*path, last), value = WRONG[name]
    document = copy.deepcopy(CLUSTER)
    place: Any = document
    for key in path:
        place = place[key]
    place[last] = value
    assert refused_by_schema(document)
    assert refused_by_model(document)


KINDS: dict[str, schema.Kind[Any]] = {
    "cluster": schema.CLUSTER,
    "hardware": schema.HARDWARE,
    "gres": schema.GRES,
    "node": schema.NODE,
    "partition": schema.PARTITION,
    "slurm.conf": schema.SLURM_CONF,
    "cgroup.conf": schema.CGROUP_CONF,
    "package": schema.PACKAGE_FILE,
    "user": people_key.USER,
    "group": people_key.GROUP,
    "mount": storage_key.STORAGE,
    "access": access_key.ACCESS,
    "login limits": access_key.LOGIN_LIMITS,
    "backup": backup_key.BACKUP,
    "keep": backup_key.KEEP,
    "database server": database_server_key.DATABASE_SERVER,
    "machines": machines_key.MACHINES,
    "mail": mail_key.MAIL,
    "script": job_scripts.SCRIPT,
    "firewall": firewall_plans.FIREWALL,
    "open": firewall_plans.OPEN,
}
NUMBERS = (True, False, 0, 1, 7, 255, 65535, 65536, 2**32 - 1, -1, 1.5, "0", "1", "0x10", " 5", "10k", "007", "+3")
NAMES = (
    "yes",
    "NO",
    "Up",
    "UNLIMITED",
    "infinite",
    "x",
    "a b",
    "",
    "a[1-3]",
    "1.2.3.4",
    "/a/b",
    "/home/x",
    "#!/bin/sh",
)
OF_SLURM = (
    "core",
    "CR_Core",
    "all",
    "DOWN",
    "idle",
    "DRAINED",
    "debug3",
    "9x",
    "FORCE:4",
    "YES:2",
    "gang,suspend",
    ",a",
)
TIMES = ("1-00:00:00", "5:30", "12months", "6817-6820", "nvml", "10.0.0.0/8", "any", "a@b.org", "400%", "1G", "{{ x }}")
LISTS: tuple[Any, ...] = (["a", "b"], ["Contain", "x11"], [1, 2], {}, [], {"a": 1}, ["Backfill"], [True])
POOL: tuple[Any, ...] = (*NUMBERS, *NAMES, *OF_SLURM, *TIMES, *LISTS)


@pytest.mark.parametrize("name", KINDS)
def test_no_value_that_the_model_accepts_is_marked(name: str, tool: Any) -> None:
    """Each key with each value of a pool, alone."""
    stricter = []
    for key, spec in KINDS[name].spec.items():
        validator = Draft7Validator(tool.type_schema(spec["type"]))
        for value in POOL:
            try:
                spec["type"](copy.deepcopy(value))
            except (ValueError, TypeError):
                continue
            # Slurm takes one value: a list of one would do, and helps nobody.
            one = isinstance(value, list) and '"array"' not in json.dumps(validator.schema)
            if not validator.is_valid(value) and not one:
                stricter.append((key, value))
    assert not stricter, stricter
