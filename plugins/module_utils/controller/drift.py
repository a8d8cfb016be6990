# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find differences between the files and the settings in force in slurmctld.

A value is compared by its meaning to Slurm: `KillWait=0x1e` is shown as `30 sec`, `DebugFlags=net` as `Network`.
How it is shown: `slurm_ctl_conf_2_key_pairs` in `src/api/config_info.c`, `slurm_sprint_node_table` and
`slurm_sprint_partition_info` in `node_info.c` and `partition_info.c` there.

A difference takes a change back, so what Slurm shows as something else than it was given is not compared
(NOT_COMPARED), nor is a parameter of slurm.conf that it does not show, or that the file does not have. Nor is what a
running cluster changes by itself: states and their reasons, nodes in state FUTURE, addresses of cloud nodes, generic
resources that nodes have added types and cores to. What `scontrol update` has changed is compared: a reconfigure and a
restart take features, weights, generic resources and partitions from the files (`restore_node_features` in
`src/slurmctld/node_mgr.c`, `load_all_part_state` in `partition_mgr.c`). Exceptions are features of a plugin that
changes them, partitions with ReconfigFlags=KeepPartInfo, and SuspendExc... with KeepPowerSaveSettings. Files that
slurm.conf includes are not read: with such ones, what it does not say itself may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..configuration.conf_file import Configuration, ConfigurationChange, Pairs
from ..configuration.meaning import (
    ALL_MEMORY,
    NOTHING,
    by_key,
    gres_counts,
    is_yes,
    meaning,
    number_in,
    patch_release_of,
)
from ..configuration.node_sets import functions, members, names_in
from ..configuration.parameter_tables.display import (
    IF_NOT_SAID,
    IF_NOT_SHOWN,
    NOT_COMPARED,
    OF_PLUGINS,
    RIVALS,
    SHOWN_AS,
    SHOWN_TOGETHER,
)
from ..configuration.parameter_values import LIMITS
from ..configuration.parameters import FILES, find
from ..language.hostlist import expand, fold

Wanted = Mapping[str, str]
"""The settings of a file, by key in lower case."""
Shown = Mapping[str, str]
"""What slurmctld shows of itself, of a node or of a partition, likewise."""
Difference = tuple[str, str, str]
"""A key, its value in the file, its value in slurmctld."""


_PAIR = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def differences(configuration: Configuration, config: str, nodes: str, partitions: str, version: str) -> list[str]:
    """The differences of slurmctld from the files, a line for each.

    Args:
        configuration: what the files say.
        config: the output of `scontrol show config`.
        nodes: that of `scontrol --all --future --oneliner show node`.
        partitions: that of `scontrol --all --oneliner show partition`.
        version: Slurm's, such as 24.11.5.

    Raises:
        ValueError: the version is not known, or a hostlist is none.
    """
    release = patch_release_of(version)
    conf = {key: value for (file, key), (_name, value) in configuration.settings.items() if file == "slurm.conf"}
    return [
        *_describe_settings(conf, shown_config(config), len(configuration.nodes), release),
        *_describe_nodes(configuration, conf, shown_lines("NodeName", nodes), release),
        *_describe_partitions(configuration, conf, shown_lines("PartitionName", partitions), release),
    ]


def in_force(
    changes: Iterable[ConfigurationChange], config: str, nodes: str, partitions: str, version: str
) -> set[ConfigurationChange]:
    """The changes of slurm.conf whose result slurmctld already has in force. Args and Raises: as of `differences`.

    Changes of other files, and of values that it does not show, are not among them. If a change removes a parameter,
    its previous value must not be in force.
    """
    release = patch_release_of(version)
    shown = {"NodeName": shown_lines("NodeName", nodes), "PartitionName": shown_lines("PartitionName", partitions)}
    settings = shown_config(config)

    def holds(change: ConfigurationChange, there: Shown | None) -> bool:
        key = next(iter(by_key(((change.key, ""),))))
        if change.key == change.file:  # a node or a partition itself
            return (there is None) == (change.after is None)
        if there is None or key not in FILES[change.file] or key in NOT_COMPARED[change.file]:
            return False
        found = _find_shown(change.file, key, there)
        wanted = change.before if change.after is None else change.after
        if found is None or wanted is None:
            return False
        return _same(change.file, key, wanted, found, release) == (change.after is not None)

    def subjects(change: ConfigurationChange) -> list[Shown | None]:
        if change.file == "slurm.conf":
            return [settings]
        names = expand(change.subject) if change.file == "NodeName" else [change.subject]
        return [shown[change.file].get(name) for name in names]

    compared = (change for change in changes if change.file in ("slurm.conf", "NodeName", "PartitionName"))
    return {change for change in compared if all(holds(change, there) for there in subjects(change))}


def shown_config(text: str) -> dict[str, str]:
    """Parameters in the output of `scontrol show config`, by key in small letters; repeated ones parted by blanks."""
    settings: dict[str, str] = {}
    for line in text.partition("\n\n")[0].split("\n"):
        key, equals, value = line.partition("=")
        name = key.strip().lower().partition("[")[0]
        if equals:
            settings[name] = f"{settings[name]} {value.strip()}" if name in settings else value.strip()
    return settings


def shown_lines(kind: str, text: str) -> dict[str, dict[str, str]]:
    """Nodes or partitions in the output of `scontrol --oneliner show`, by name, with their keys in small letters.

    Of a key that is there twice the first one is meant: Reason and what else is free text is behind the parameters.
    """
    lines = {}
    for line in text.split("\n"):
        if line.startswith(f"{kind}="):
            pairs = _PAIR.findall(line)
            lines[pairs[0][1]] = {key.lower(): value for key, value in reversed(pairs)}
    return lines


def _describe_settings(conf: Wanted, shown: Shown, nodes: int, release: str) -> Iterator[str]:
    """Parameters of slurm.conf that differ, except numbers that Slurm corrects, `_validate_and_set_defaults` there."""
    bounds = {
        **_BOUNDS,
        "maxjobcount": (
            1,
            number_in(shown.get("maxjobid", "0"), _MAX_JOB_ID) - number_in(shown.get("firstjobid", "1"), 0) + 1,
        ),
        "maxnodecount": (nodes, _ANY),
    }
    wanted = dict(conf)
    for key, (low, high) in bounds.items():
        if key in wanted and not low <= number_in(wanted[key].lower(), _ANY) <= high:
            del wanted[key]
    if "keeppowersavesettings" in conf.get("reconfigflags", "").lower():
        wanted = {key: value for key, value in wanted.items() if not key.startswith("suspendexc")}
    if "prologtimeout" in shown and "prologepilogtimeout" in wanted:
        both = wanted.pop("prologepilogtimeout")
        wanted = {"prologtimeout": both, "epilogtimeout": both, **wanted}
    for difference in _different("slurm.conf", wanted, shown, release):
        yield _line("slurm.conf", *difference)


_ANY = LIMITS["u64"]
_MAX_JOB_ID = 0x03FFFFFF
_BOUNDS = {
    "epilogmsgtime": (0, 1_000_000),
    "healthchecktimeout": (1, _ANY),
    "maxarraysize": (0, 4_000_001),
    "maxjobid": (1, _MAX_JOB_ID),
    "minjobage": (2, _ANY),
    "schedulertimeslice": (5, _ANY),
    "treewidth": (1, _ANY),
}
"""The ranges in which Slurm does not correct numbers."""


@dataclass(frozen=True)
class _WantedNode:
    """A node of the file."""

    shared: Pairs
    """Its parameters, apart from those in `address`: most nodes have the same as others."""
    address: dict[str, str]
    """Its own address, host name and port."""
    said: Wanted
    """The shared ones by key, and what is meant where the file has nothing."""

    def is_cloud(self, shown: Shown) -> bool:
        """Whether it is in a cloud, so that its addresses change."""
        return "CLOUD" in f"{self.said.get('state', '')} {shown.get('state', '')}".upper()


def _read_wanted_nodes(configuration: Configuration, conf: Wanted) -> dict[str, _WantedNode]:
    """The nodes of the file by name."""
    unsaid = {} if "include" in conf else IF_NOT_SAID["NodeName"]
    settings: dict[Pairs, Wanted] = {}
    nodes = {}
    for name, pairs in configuration.nodes.items():
        address = {key.lower(): value for key, value in pairs if key.lower() in _ADDRESS}
        shared = tuple(pair for pair in pairs if pair[0].lower() not in address)
        if shared not in settings:
            settings[shared] = {**unsaid, **by_key(shared)}
        nodes[name] = _WantedNode(shared, address, settings[shared])
    return nodes


def _describe_nodes(
    configuration: Configuration, conf: Wanted, shown: Mapping[str, Shown], release: str
) -> Iterator[str]:
    """Nodes that differ, equal ones folded."""
    wanted = _read_wanted_nodes(configuration, conf)
    missing = [name for name, node in wanted.items() if name not in shown and not _future(node.said)]
    extra = [name for name, node in shown.items() if name not in wanted and "DYNAMIC" not in node.get("state", "")]
    if missing:
        yield f"NodeName={fold(missing)}: slurmctld does not have it"
    if extra and "include" not in conf:
        yield f"NodeName={fold(extra)}: the file does not have it, slurmctld has"
    names_by_difference: dict[Difference, list[str]] = {}
    for name, difference in _compare_nodes(wanted, conf, shown, release):
        names_by_difference.setdefault(difference, []).append(name)
    for difference, names in names_by_difference.items():
        yield _line(f"NodeName={fold(names)}", *difference)


def _compare_nodes(
    wanted: Mapping[str, _WantedNode], conf: Wanted, shown: Mapping[str, Shown], release: str
) -> Iterator[tuple[str, Difference]]:
    """The differences of nodes that both have, each with the name of its node."""
    # Most nodes are as others are: of each kind one is compared.
    kinds: dict[tuple[Pairs, tuple[str | None, ...]], list[Difference]] = {}
    for name, node in wanted.items():
        in_force = shown.get(name)
        if in_force is None or _future(node.said) or _future(in_force):
            continue
        kind = (node.shared, tuple(in_force.get(key) for key in _SHARED))
        if kind not in kinds:
            kinds[kind] = [*_different("NodeName", _correct_node(node.said, conf), in_force, release)]
        yield from ((name, difference) for difference in kinds[kind])
        if node.address and not node.is_cloud(in_force):
            with_port = {"port": conf.get("slurmdport", "6818"), **in_force}  # that one is not shown
            yield from ((name, difference) for difference in _different("NodeName", node.address, with_port, release))


_ADDRESS = ("nodeaddr", "nodehostname", "port")
"""Parameters that each node has for itself."""
_SHARED = sorted({SHOWN_AS["NodeName"].get(key, key) for key in FILES["NodeName"]} - {*_ADDRESS, "nodename", "state"})
"""What is shown of the other ones."""


def _future(node: Mapping[str, str]) -> bool:
    """Whether it is a place for a node, that takes hardware and name from the one that comes."""
    return "FUTURE" in node.get("state", "").upper()


_SHAPE = {"boards", "corespersocket", "cpus", "sockets", "socketsperboard", "threadspercore"}
"""How many of what a node has; Slurm takes 0 for 1."""


@dataclass(frozen=True)
class _Processors:
    """How many processors a node has."""

    boards: int
    sockets: int
    """Of all boards."""
    cores: int
    """Of a socket."""
    threads: int
    """Of a core."""
    cpus: int

    @classmethod
    def read(cls, numbers: Mapping[str, int]) -> _Processors:
        """The processors of a node by its parameters (`_parse_nodename` in `src/common/read_config.c`)."""
        boards, cores, threads = (numbers.get(key, 1) for key in ("boards", "corespersocket", "threadspercore"))
        cpus = numbers.get("cpus", cores * threads)
        if "socketsperboard" in numbers:
            sockets = boards * numbers["socketsperboard"]
        else:
            sockets = numbers.get("sockets", boards if cpus % (cores * threads) else cpus // (cores * threads))
        return cls(boards, sockets, cores, threads, cpus)


def _correct_node(wanted: Wanted, conf: Wanted) -> Wanted:
    """Parameters of a node without those that Slurm corrects, where numbers do not go together (`_parse_nodename`),
    features that a plugin changes, and generic resources that are not in GresTypes."""
    numbers = {key: number_in(value.lower(), _ANY) or int(key in _SHAPE) for key, value in wanted.items()}
    has = _Processors.read(numbers)
    cores = has.sockets * has.cores
    corrected = {
        "bcastaddr": not {"[", ","}.isdisjoint(wanted.get("bcastaddr", "")),  # one for each node
        "boards": has.boards > has.sockets,
        "corespeccount": numbers.get("corespeccount", 0) >= cores,
        "cpus": has.cpus not in (has.sockets, cores, cores * has.threads),
        "features": conf.get("nodefeaturesplugins", "").lower() not in NOTHING,
        "memspeclimit": numbers.get("memspeclimit", 0) >= numbers.get("realmemory", 1),
    }
    kept = {key: value for key, value in wanted.items() if not corrected.get(key)}
    kept.update({key: "1" for key in _SHAPE & kept.keys() if numbers[key] == 1})
    if "socketsperboard" in numbers:
        kept["sockets"] = str(has.sockets)
    if "gres" in kept:
        known = {name.strip().lower() for name in conf.get("grestypes", "").split(",")}
        kept["gres"] = ",".join(gres for gres in kept["gres"].split(",") if gres.partition(":")[0].lower() in known)
    return kept


def _describe_partitions(
    configuration: Configuration, conf: Wanted, shown: Mapping[str, Shown], release: str
) -> Iterator[str]:
    """Partitions that differ."""
    default = [name for name, pairs in configuration.partitions.items() if is_yes(by_key(pairs).get("default", ""))][
        -1:
    ]
    kept = "keeppartinfo" in conf.get("reconfigflags", "").lower()
    for name, pairs in configuration.partitions.items():
        partition = shown.get(name)
        if partition is None:
            yield f"PartitionName={name}: slurmctld does not have it"
        elif not kept:
            unsaid = {} if "include" in conf else IF_NOT_SAID["PartitionName"]
            wanted = {**unsaid, **by_key(pairs), "default": "YES" if name in default else "NO"}
            wanted = _exclusive(wanted) if "exclusive" in partition else wanted
            for difference in _different("PartitionName", wanted, partition, release):
                yield _line(f"PartitionName={name}", *difference)
            yield from _describe_members(name, wanted.get("nodes", ""), partition.get("nodes", ""), configuration)
    extra = [name for name in shown if name not in configuration.partitions]
    if not kept and "include" not in conf:
        yield from (f"PartitionName={name}: the file does not have it, slurmctld has" for name in extra)


def _exclusive(wanted: dict[str, str]) -> dict[str, str]:
    """The one of four parameters that 26.05 shows; it never shows that two of them are set."""
    modes = {
        "TOPO": is_yes(wanted.get("exclusivetopo", "")),
        "NODE": wanted.get("oversubscribe", "").upper() == "EXCLUSIVE",
        "USER": is_yes(wanted.get("exclusiveuser", "")),
    }
    mode = next((mode for mode, there in modes.items() if there), "NO")
    others = {key: value for key, value in wanted.items() if key not in ("exclusivetopo", "exclusiveuser")}
    result = {"exclusive": mode, **others}
    if result["exclusive"].upper() in ("NODE", "TOPO"):
        result.pop("oversubscribe", None)
    return result


def _describe_members(partition: str, wanted: str, found: str, configuration: Configuration) -> Iterator[str]:
    """The differences in the nodes of a partition. Nodes that the file does not have are compared elsewhere."""
    if wanted == found:
        return
    sets = configuration.node_sets
    # Nodes get and lose features, and slurmctld knows the topology.
    if functions(wanted) or any(node_set.feature and node_set.name in names_in(wanted) for node_set in sets):
        return
    names = {*members(wanted, sets, dict.fromkeys(configuration.nodes, ()))}
    present = {name for name in expand(found if found.lower() not in NOTHING else "") if name in configuration.nodes}
    for text, nodes in (("the file has", names - present), ("slurmctld has", present - names)):
        if nodes:
            yield f"PartitionName={partition} Nodes: only {text} {fold(sorted(nodes))}"


def _line(subject: str, key: str, wanted: str, found: str) -> str:
    """The line for a difference."""
    return f"{subject} {key}: the file has {wanted or 'nothing'}, slurmctld {found or 'nothing'}"


def _different(table: str, wanted: Wanted, shown: Shown, release: str) -> Iterator[Difference]:
    """The parameters of a file or a line that are not as they are shown."""
    for key, value in wanted.items():
        parameter = find(table, key)
        ruled = wanted.get(_RULED.get(key, ""), "ALL" if key.startswith("deny") else None)
        if parameter is None or key in NOT_COMPARED[table] or key == "nodes" or ruled not in (None, "ALL"):
            continue
        value_shown = _find_shown(table, key, shown)
        if value_shown is not None and not _same(table, key, value, value_shown, release):
            yield parameter.name, value, value_shown


_RULED = {weak: strong for strong, weak in RIVALS.items()}


def _find_shown(table: str, key: str, shown: Shown) -> str | None:
    """The shown value of a parameter; None if it cannot be compared."""
    name = SHOWN_AS[table].get(key, key)
    if name == "jobdefaults":
        defaults = dict(pair.split("=") for pair in shown.get(name, "").lower().split(",") if "=" in pair)
        return defaults.get(key, "0") if name in shown else None
    if name in OF_PLUGINS and shown.get(name, "(null)").lower() in NOTHING:
        return None
    if name in shown:
        return None if "unknown" in shown[name].lower() else shown[name]
    if key in SHOWN_TOGETHER:
        return shown.get(SHOWN_TOGETHER[key])
    rival = RIVALS.get(key) or _RULED.get(key)
    if rival and rival in shown and "mem" in key:
        none = shown[rival] in ("UNLIMITED", str(ALL_MEMORY))
        return "UNLIMITED" if none else f"{FILES[table][rival].name}={shown[rival]}"
    return IF_NOT_SHOWN[table].get(name)


def _same(table: str, key: str, wanted: str, found: str, release: str) -> bool:
    """Whether a value of a file is the one that is shown."""
    parameter = FILES[table][key]
    if key == "gres":
        return _same_gres(wanted, found)
    if key == "clustername":  # which Slurm has in small letters
        return wanted.lower() == found.lower()
    if key == "slurmctldhost":
        names = [re.sub(r"^(.+)\(\1\)$", r"\1", host) for host in wanted.split()]
        there = found.split()
        return len(names) == len(there) and all(
            name == shown or name.startswith("localhost")  # which is shown by its name
            for name, shown in zip(names, there)
        )
    if parameter.value == "user":
        return wanted in re.split("[()]", found)
    meant = meaning(table, key, wanted, release)
    chosen = key == "selecttypeparameters" and not meant  # by Slurm
    return chosen or meant == meaning(table, key, found, release)


def _same_gres(wanted: str, found: str) -> bool:
    """Whether generic resources are the same. Nodes that register add types, and part them by cores."""
    asked, there = gres_counts(wanted), gres_counts(found)
    if {name: sum(types.values()) for name, types in asked.items()} != {
        name: sum(types.values()) for name, types in there.items()
    }:
        return False
    return all(
        sum(count for other, count in there[name].items() if type_ == other or type_ in other) >= count
        for name, types in asked.items()
        for type_, count in types.items()
        if "" not in there[name]
    )
