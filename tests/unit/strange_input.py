# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strange input for property tests: valid data with some mistakes in them, and limits for the code that reads them."""

from __future__ import annotations

import copy
import datetime
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.limits import LIMITS
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import people_key, schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import FILES
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ROOT = Path(__file__).parents[2]

Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

SOAK = float(os.environ.get("STRANGE_INPUT_SECONDS", "0"))
"""Seconds that each property test searches with ever new examples; 0: a few examples, the same in each run."""

EXAMPLES = 100
"""Examples of a property in each run; all properties together take about 10 seconds of the processor."""

MEMORY = 2**30
"""Bytes that reading one input may take."""

SECONDS = 10.0
"""Seconds of the processor that reading one input may take."""

WEIRD: tuple[Any, ...] = (
    *(None, True, False, "", " ", 0, -1, 1, 3, 2**31, 2**64, 10**30, 1.5, float("nan"), float("inf"), "-1", "0", "00"),
    *([], {}, [None], [[1]], [True, "a"], ["a", "a"], ["a", ""], [""], {"a": None}, {"": 1}, {"name": "a"}),
    *("ALL", "all", "default", "DEFAULT", "none", "None", "NULL", "~", "false", "UNLIMITED", "INFINITE", "detected"),
    *(
        "a,b",
        "a b",
        " a",
        "a ",
        "a\t",
        "a#b",
        "#",
        "a\\",
        "a\\\\",
        "\\a",
        'a"b',
        '"',
        '"a"',
        "'",
        "a=b",
        "=",
        "a;b",
        "|",
    ),
    *("a\n", "a\nb", "a\rb", "a\u2028b", "a\x85b", "a\x0cb", "a\x1b[2Jb", "a\x00b", "\u202ea", "é", "🙂", "\ufeffa"),
    *("n[1-", "n]", "[", "n[[1]]", "n[]", "n[1,]", "n[3-1]", "[1-2]", "n[1-3]", "n1,n1", "n1 n2", ",", "n[01-3]x"),
    *("n[1-70000]", "n[1-65536]", "n[1-60000]x[1-60000]", f"n[{'1,' * 5000}1]", "n[1-99999999999999999999]"),
    *("10.0.0.1", "10.0.0.[1-2]", "999.1.1.1", "::1", "fe80::1%eth0", "1.2.3", "0x10", "1k", "1:00", "2-00:00:00"),
    *("{{ x }}", "{% x %}", "!vault", "*a", "&a", "<<", "%n", "@file", "$(id)", "../x", "/", "/dev/null", "x" * 5000),
    *(datetime.date(2026, 1, 2), "2026-13-45", "0o9", "now+1hour", "bogus", "gpu:2", "cpu=1,mem=1G", "gres/gpu=1"),
)
"""Values that are wrong in most places."""

CHARACTERS = "\0\t\n\r\x0b\x0c\x1b\x1c\x1e\x7f\x85\xa0 \u2028\u2029\ufeff\"'#\\,=[]{}()<>|&*!%@`:;-?~$/é🙂0"
"""Characters that end lines or mean something to YAML, Slurm or a terminal."""

RICH = """
plugin: gpucluster.slurm.cluster
name: rich
controllers: head[1-2]
database: db
login: login1
registry: db
hardware:
  plain: {sockets: 2, cores_per_socket: 4, threads_per_core: 2, real_memory: 64000, boards: 1, tmp_disk: 1000,
          Weight: 5, MemSpecLimit: 1000, CoreSpecCount: 1}
  shares: {sockets: 2, cores_per_socket: 4, threads_per_core: 1, real_memory: 64000, gres: [
    {name: gpu, type: a, file: "/dev/nvidia[0-1]", cores: 0-3}, {name: gpu, type: b, file: /dev/nvidia2, cores: 4-7},
    {name: shard, count: 12}, {name: nic, count: 2, flags: CountOnly}]}
  linked: {sockets: 1, cores_per_socket: 4, threads_per_core: 1, real_memory: 64000, gres: [
    {name: gpu, type: a, file: /dev/nvidia0, links: [-1, 16], flags: [nvidia_gpu_env]},
    {name: gpu, type: a, file: /dev/nvidia1, links: "16,-1", flags: [nvidia_gpu_env]}]}
  slices: {sockets: 1, cores_per_socket: 4, threads_per_core: 1, real_memory: 64000, gres: [
    {name: gpu, type: h100, count: 6, autodetect: nvml},
    {name: gpu, type: h100_80gb_hbm3, count: 2, autodetect: nvml, mig: {1g.10gb: 7}}]}
nodes:
  - {hosts: "cpu[01-04]", hardware: plain, address: "10.0.0.[1-4]", CPUSpecList: "0,8", Feature: "a,b",
     CoreSpecCount: 0}
  - {hosts: "shr[1-2],shr4", hardware: shares, address: "10.0.1.[1-3]", Reason: a b, State: UNKNOWN, Port: 7000}
  - {hosts: lnk1, hardware: linked, address: lnk1.example.org}
  - {hosts: "mig[1-2]", hardware: slices}
  - {hosts: "new[1-3]", hardware: detected, address: "10.0.2.[1-3]"}
partitions:
  - {name: cpu, nodes: "cpu[01-04]", default: true, MaxTime: "1-00:00:00", AllowAccounts: [physics], QOS: normal}
  - {name: gpu, nodes: "shr[1-2,4],lnk1,mig[1-2]", PriorityTier: 2, TRESBillingWeights: "CPU=1.0,GRES/gpu=2.0"}
  - {name: all, nodes: ALL, State: DOWN, PreemptMode: "off"}
addresses: {"head[1-2]": "10.0.3.[1-2]", db: 10.0.3.3, login1: 10.0.3.4}
further_addresses: [{hosts: "cpu[01-02]", names: "cpu[01-02]-ib", address: "10.1.0.[1-2]"}]
accounting:
  limits: {GrpTRES: {cpu: 10}, MaxJobs: 5}
  qos: [{name: normal, MaxWall: "1-00:00:00", Flags: [DenyOnLimit]}, {name: high, Priority: 9, Preempt: [normal]}]
  accounts:
    - {name: physics, Fairshare: 3, Organization: an institute, accounts: [{name: optics, GrpTRES: {gres/gpu: 4}}]}
  users: [{name: alice, DefaultAccount: optics, accounts: [physics]},
    {name: bob, accounts: [{name: optics, MaxJobs: 1}]}]
  reservations: [{name: m, StartTime: "2026-05-01T08:00", Duration: "02:00:00", Nodes: "cpu[01-02]", Users: [root]}]
  purge: false
groups: [{name: lab, gid: 6001}]
users:
  - {name: carol, uid: 5001, gid: 6001, full_name: Carol Früh, home: /data/carol, shell: /bin/zsh, account: optics,
     accounts: [physics, {name: optics, partition: cpu, MaxWall: 60}], limits: {MaxJobs: 10}, keys: [
     'from="10.0.0.0/8" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN4SQa0Lyje6KuAH14E1YY9pmz1EN09JCnKjcyUoOFEu carol']}
  - {name: dave, uid: 70000, groups: [lab], state: suspended, jobs: end, account: physics}
slurm_conf:
  StateSaveLocation: /shared/state
  KillWait: null
  SlurmctldParameters: [idle_on_node_suspend, node_reg_mem_percent=90]
  NodeSet: [{NodeSet: fast, Nodes: "shr[1-2]"}]
  Prolog: [/etc/a, /etc/b]
  TreeWidth: 16
  MailProg: "/bin/a mail"
cgroup_conf: {ConstrainCores: true, AllowedRAMSpace: 99.5}
packages:
  files: [{url: "https://x.example.org/slurm-smd_25.11.2-1_amd64.deb",
           sha256: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef},
          {file: packages/slurm-smd-slurmd_25.11.2-1_amd64.deb}]
"""

MEASURED = """
hardware:
  found: {sockets: 1, cores_per_socket: 8, threads_per_core: 1, real_memory: 32000, gres: [
    {name: gpu, type: t4, count: 1, autodetect: nvml}]}
nodes: [{hosts: "new[1-2]", hardware: found}]
"""

PEOPLE = """\
name,uid,gid,groups,full_name,home,shell,keys,state,jobs,account,accounts,limits.MaxJobs
carol,5001,,lab,"Carol ""C"" Früh",/data/carol,/bin/zsh,ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN4SQa0Lyje6KuAH14E1YY9pm\
z1EN09JCnKjcyUoOFEu carol,,,optics,physics;optics,10
dave,70000,70001,,,,,,suspended,end,physics,,
"""

CLUSTERS = [
    yaml.safe_load(text)
    for text in (
        RICH,
        *((ROOT / f"inventory/{name}/{name}.cluster.yml").read_text() for name in ("demo", "guide", "single")),
    )
]

_KINDS = {
    **{f"u{bits}": (0, 1, 10, 2**bits - 1, 2**bits, "UNLIMITED", "0x1f") for bits in (16, 32, 64)},
    "bool": (True, False, "YES", "no", 1, "maybe"),
    "float": (0, 1.5, "0.5", "unlimited", "1e3"),
    "minutes": (1, "10", "1-00:00:00", "UNLIMITED", "0"),
    "seconds": (1, "10", "1:30", "UNLIMITED", "0"),
    "ports": (6817, "6817-6820", 0, 65535, 70000),
}
"""Values of Slurm's parameters by their kind, right and wrong ones."""


@st.composite
def _parameter(draw: st.DrawFn, table: str) -> tuple[str, Any]:
    """A parameter of a table and a value for it."""
    known = draw(st.sampled_from([*FILES[table].values()]))
    kind = known.value.partition(" ")[0]
    plausible = _KINDS.get(kind, ("a", "/a", "a,b", ["a", "b"], 1))
    return known.name, draw(st.sampled_from(draw(st.sampled_from([plausible, plausible, WEIRD]))))


def _schema_pairs() -> SearchStrategy[tuple[Any, Any]]:
    """Keys that some mapping of a cluster file may have, with a value."""
    own = [
        key
        for kind in (
            *(schema.CLUSTER, schema.HARDWARE, schema.NODE, schema.PARTITION, schema.GRES),
            *(people_key.PEOPLE, people_key.GROUP, people_key.USER),
        )
        for key in kind.own
    ]
    limits = [name for kind in LIMITS.values() for name in kind]
    tables = ("slurm.conf", "NodeName", "PartitionName", "cgroup.conf", "DownNodes", "NodeSet")
    return st.one_of(
        st.tuples(st.sampled_from(own), st.sampled_from(WEIRD)),
        st.tuples(st.sampled_from(limits), st.sampled_from(WEIRD)),
        *(_parameter(table) for table in tables),
        st.tuples(st.sampled_from([value for value in WEIRD if value.__hash__]), st.sampled_from(WEIRD)),
    )


PAIRS = _schema_pairs()


def _pair_for(target: dict[Any, Any], key: Any) -> SearchStrategy[tuple[Any, Any]]:
    """A key and a value that may be in a mapping of a cluster file; key: its own one, if it has any."""
    tables = {"slurm_conf": "slurm.conf", "cgroup_conf": "cgroup.conf"}
    for name, table in (("hosts", "NodeName"), ("sockets", "NodeName"), ("nodes", "PartitionName")):
        if name in target and "plugin" not in target:
            return st.one_of(_parameter(table), _parameter(table), PAIRS)
    return st.one_of(_parameter(tables[key]), _parameter(tables[key]), PAIRS) if key in tables else PAIRS


def _places(data: Any) -> list[tuple[Any, Any]]:
    """All places in data, as (the list or mapping, the index or key)."""
    found: list[tuple[Any, Any]] = []
    todo = [data]
    while todo:
        item = todo.pop()
        if isinstance(item, (dict, list)):
            inner = [*item.items()] if isinstance(item, dict) else [*enumerate(item)]
            found += [(item, key) for key, _value in inner]
            todo += [value for _key, value in inner]
    return found


@st.composite
def _text_like(draw: st.DrawFn, text: str) -> str:
    """A text with one mistake in it."""
    place = draw(st.integers(0, len(text)))
    more = draw(st.one_of(st.sampled_from(CHARACTERS), st.sampled_from([v for v in WEIRD if isinstance(v, str)])))
    cut = draw(st.sampled_from([0, 0, 1, 3]))
    return text[:place] + more + text[place + cut :]


MISTAKES = ("value", "value", "text", "delete", "twice", "rename", "add", "add", "add", "add", "move", "deep")


@st.composite
def mutated(draw: st.DrawFn, originals: list[Any], most: int = 4) -> Any:
    """One of the originals with up to some mistakes."""
    data = copy.deepcopy(draw(st.sampled_from(originals)))
    for _mistake in range(draw(st.sampled_from([1, 1, 1, 2, most]))):
        places = _places(data)
        if not places:
            break
        item, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.sampled_from(MISTAKES))
        if kind == "text":
            item[key] = draw(_text_like(str(item[key])[:5000]))
        elif kind == "delete":
            del item[key]
        elif kind == "twice" and isinstance(item, list):
            item.append(copy.deepcopy(item[key]))
        elif kind == "rename" and isinstance(item, dict):
            name = str(key)
            item[draw(st.sampled_from([name.swapcase(), name[1:], f"{name}s", 1, None, True]))] = item.pop(key)
        elif kind == "add":
            target = next((one for one in (item[key], item) if isinstance(one, dict)), None)
            if target is not None:
                name, value = draw(_pair_for(target, key if target is item[key] else None))
                target[name] = copy.deepcopy(value)
        elif kind == "move":
            other, name = places[draw(st.integers(0, len(places) - 1))]
            with_it = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
            item[key] = with_it
        elif kind == "deep":
            for _level in range(draw(st.sampled_from([1, 5, 40]))):
                item[key] = [item[key]]
        else:
            item[key] = copy.deepcopy(draw(st.sampled_from(WEIRD)))
    return data


@st.composite
def yaml_texts(draw: st.DrawFn, originals: list[Any]) -> str:
    """A YAML file with some mistakes in its data, and perhaps some in its text."""
    data = draw(mutated(originals))
    flow = draw(st.sampled_from([None, False]))
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow)
    for _mistake in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))):
        text = draw(_text_like(text))
    return text


@st.composite
def texts(draw: st.DrawFn, originals: list[str], most: int = 6) -> str:
    """One of some texts with up to some mistakes."""
    text = draw(st.sampled_from(originals))
    for _mistake in range(draw(st.sampled_from([1, 1, 1, 2, most]))):
        text = draw(_text_like(text))
    return text


class TooSlowError(Exception):
    """Reading an input took too long."""


@contextmanager
def limits() -> Iterator[None]:
    """Code in this context may take some time and memory, and no more: then TooSlowError or MemoryError ends it."""

    def stop(*_signal: object) -> None:
        raise TooSlowError(f"took more than {SECONDS} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


def holds(strategy: SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Try a property with examples of a strategy: always the same few, or new ones for SOAK seconds."""

    def limited(example: Any) -> None:
        with limits():
            check(example)

    options: dict[str, Any] = {
        "deadline": None,
        "database": None,
        "max_examples": EXAMPLES,
        "suppress_health_check": [*HealthCheck],
    }
    if not SOAK:
        settings(derandomize=True, **options)(given(strategy)(limited))()
    end, round_ = time.monotonic() + SOAK, 0
    while time.monotonic() < end:
        round_ += 1
        seed(os.urandom(8))(settings(**options)(given(strategy)(limited)))()
