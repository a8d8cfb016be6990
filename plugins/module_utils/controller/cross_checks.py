# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check Slurm's files together and against the host of slurmctld, for problems that no single file shows.

Each value has been checked by itself before (`parameters`). Refused findings prevent the start of slurmctld or slurmd,
makes nodes INVAL, or makes Slurm wait; the rest is ignored by Slurm, or does not do what it says. Each rule names its
place in Slurm's source or manual.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    Configuration,
    lines,
    read,
    table_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.generic_resources import (
    Gres,
    gres_of_lines,
    gres_of_node,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.node_sets import functions, members
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables import releases
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.choices import (
    NONE_IN_ANY_CASE,
    PLUGINS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.times import LEAST
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import (
    whole_number,
    without_version,
    words,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import (
    FILES,
    IGNORED,
    REFUSED,
    SHARED_GRES,
    release_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.ports import (
    LARGEST,
    SLURMCTLD,
    SLURMD,
    SLURMDBD,
    SSH,
    Listener,
    collisions,
    port_range,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.scripts import ScriptError, check_script, content_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.spelling import nearest


class Finding(NamedTuple):
    """A contradiction."""

    place: str
    """The file, and the line in it: `slurm.conf: PartitionName=gpu`."""
    key: str
    text: str
    """The found value, the allowed values, and the nearest of them."""
    effect: str
    """REFUSED or IGNORED."""


@dataclass(frozen=True)
class Host:
    """The properties of slurmctld's host, apart from the checked files."""

    text: Callable[[str], str | None]
    """The text of another file, by its path or its name beside slurm.conf; None: it is not there."""
    plugins: Callable[[str], frozenset[str] | None]
    """The plugins (`auth_munge`) in a PluginDir, or in that of the installed Slurm for ''; None: not known."""
    unresolved: Callable[[Iterable[str]], Iterable[str]]
    """Of many host names, those that have no address here."""
    account: Callable[[str], str | None] = str
    """The name of a user, by the name or the number; None: there is no such user."""
    started_as: Callable[[str], str | None] = lambda _daemon: None
    """The user as whom systemd starts a daemon; root can become any, as None is not known."""
    writes: Callable[[str, str], bool] = lambda _account, _path: True
    """Whether a user can write a directory, or it is not there."""


@dataclass(frozen=True)
class ConfiguredCluster:
    """The settings of all files together."""

    says: Configuration
    lines: list[tuple[str, str, dict[str, str]]]
    """Lines of slurm.conf with parameters of their own: kind, name, the others by their key in small letters."""
    gres_conf: bool
    """Whether there is a gres.conf."""
    host: Host
    release: str
    """The release of Slurm, such as 24.11."""

    def get(self, key: str, default: str = "", file: str = "slurm.conf") -> str:
        """The value of a parameter."""
        return self.says.settings.get((file, key.lower()), ("", default))[1]

    def words(self, key: str) -> list[str]:
        """The value of a parameter that is a list with commas."""
        return [word.strip() for word in self.get(key).split(",") if word.strip()]

    def of_kind(self, kind: str) -> list[tuple[str, dict[str, str]]]:
        """The lines of a kind."""
        return [(name, values) for line, name, values in self.lines if line == kind]

    @cached_property
    def nodes(self) -> dict[str, dict[str, str]]:
        """The parameters of each node by their key in small letters."""
        return {name: {key.lower(): value for key, value in pairs} for name, pairs in self.says.nodes.items()}

    @cached_property
    def partitions(self) -> dict[str, dict[str, str]]:
        """The parameters of each partition by their key in small letters."""
        return {name: {key.lower(): value for key, value in pairs} for name, pairs in self.says.partitions.items()}

    @property
    def slurmdbd(self) -> bool:
        """Whether there is a database (`slurm_with_slurmdbd`)."""
        return self.get("AccountingStorageType").lower().endswith(("/slurmdbd", "/ctld_relay"))


def cross_check(files: Mapping[str, str], host: Host, version: str) -> tuple[list[str], list[str]]:
    """The findings that Slurm would refuse, and those that it would ignore, a line for each.

    Args:
        files: the text of each file by name, as `whole` gives it.
        host: where slurmctld runs.
        version: of its Slurm, such as 24.11.5.

    Raises:
        ConfigurationError: a line cannot be read.
        ValueError: a list of hosts is none, or see `release_of`.
    """
    keyed = [
        (kind, pairs[0][1], {key.lower(): value for key, value in pairs[1:]})
        for pairs in lines("slurm.conf", files["slurm.conf"])
        if (kind := table_of("slurm.conf", pairs)) != "slurm.conf"
    ]
    says = read({name: files[name] for name in CHECKED_FILES if name in files})
    cluster = ConfiguredCluster(says, keyed, "gres.conf" in files, host, release_of(version))
    return _sorted(finding for rule in RULES for finding in rule(cluster))


def _sorted(findings: Iterable[Finding]) -> tuple[list[str], list[str]]:
    """Findings as lines, those that are refused and those that are ignored."""
    result: dict[str, list[str]] = {REFUSED: [], IGNORED: []}
    for finding in findings:
        result[finding.effect].append(f"{finding.place}: {finding.key}: {finding.text}")
    return result[REFUSED], result[IGNORED]


def _guess(name: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence."""
    match = nearest(name, names)
    return f", did you mean {match!r}?" if match else ""


def _yes(value: str) -> bool:
    """A boolean, `s_p_handle_boolean`."""
    return value.lower() in ("yes", "up", "true", "1")


# -- included files --------------------------------------------------------------------------------------------------

CHECKED_FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf")
"""The files that are checked together."""

_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*(#.*)?", re.IGNORECASE)
_CLUSTER_NAME = re.compile(r"^\s*ClusterName\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)


def whole(files: Mapping[str, str], host: Host) -> tuple[dict[str, str], list[str], list[str]]:
    """Files with their included files inserted, and the findings that Slurm would refuse and ignore.

    Those of CHECKED_FILES that are not given are asked from the host.

    Raises:
        ConfigurationError: a line of an included file cannot be read.
    """
    result, found = dict(files), list[Finding]()
    for name in CHECKED_FILES:
        text = files.get(name, host.text(name))
        if text is not None:
            result[name] = _with_included((name,), text, files, host, found)
    return result, *_sorted(found)


def _with_included(path: tuple[str, ...], text: str, files: Mapping[str, str], host: Host, found: list[Finding]) -> str:
    """The text of a file with those that it includes (`_parse_include_directive` in `src/common/parse_config.c`).

    Slurm waits a minute for one that is missing, and ends. Other hosts get those without a path
    (`grab_include_directives` in `src/common/fetch_config.c`).

    Args:
        path: the file, after those that include it.
        text: what it says.
        files: the files that are checked.
        host: has the others.
        found: takes what is wrong.
    """
    result = []
    for line in text.removesuffix("\n").split("\n"):
        match = _INCLUDE.fullmatch(line)
        if not match:
            result.append(line)
            continue
        cluster = _CLUSTER_NAME.search(files.get("slurm.conf", ""))
        name = match[1].replace("%c", cluster[1].lower() if cluster else "%c")
        included = None if "*" in name or name in path else files.get(name, host.text(name))
        if included is None:
            why = "Slurm knows no wildcards" if "*" in name else "which is not there or includes itself"
            found.append(Finding(path[-1], "Include", f"found {name!r}, {why}, allowed: one file beside it", REFUSED))
            continue
        if "/" in name and "enable_configless" in files.get("slurm.conf", ""):
            what = f"found {name!r}, which configless hosts do not get, allowed: the name of a file beside slurm.conf"
            found.append(Finding(path[-1], "Include", what, IGNORED))
        for _pairs in lines(name, included):  # names this file and its line where it cannot be read
            pass
        result.append(_with_included((*path, name), included, files, host, found))
    return "\n".join([*result, ""])


# -- nodes and partitions --------------------------------------------------------------------------------------------


def _twice(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes and partitions with two lines (`_push_to_hashtbls`, `_build_single_partitionline_info`)."""
    for kind in ("NodeName", "PartitionName"):
        names = (name for name, values in cluster.of_kind(kind) if name.upper() != "DEFAULT")
        count = Counter(one for name in names for one in (expand(name) if kind == "NodeName" else [name]))
        again = [name for name, number in count.items() if number > 1]
        if again:
            found = fold(again) if kind == "NodeName" else ", ".join(again)
            yield Finding("slurm.conf", kind, f"found {found!r} more than once, allowed: one line for each", REFUSED)


def _unknown_nodes(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Names that are no nodes; slurmctld refuses those of partitions only (`_build_part_bitmaps`)."""
    nodesets = cluster.says.node_sets
    features = {
        name: values.get("feature", values.get("features", "")).split(",") for name, values in cluster.nodes.items()
    }
    places = [
        (f"slurm.conf: PartitionName={name}", "Nodes", members(values.get("nodes", ""), nodesets, features), REFUSED)
        for name, values in cluster.partitions.items()
    ]
    places += [("slurm.conf", "DownNodes", expand(name), IGNORED) for name, _v in cluster.of_kind("DownNodes")]
    places.append(("gres.conf", "NodeName", [name for name in cluster.says.gres if name], IGNORED))
    for place, key, names, effect in places:
        strange = [name for name in names if name not in cluster.nodes]
        if strange:
            sets = {node_set.name for node_set in nodesets if key == "Nodes"} - {*strange}
            allowed = f"{'nodes and nodesets' if sets else 'nodes'} of slurm.conf"
            what = f"found {fold(strange)!r}, allowed: {allowed}{_guess(strange[0], [*cluster.nodes, *sets])}"
            yield Finding(place, key, what, effect)
    for name, values in cluster.partitions.items():
        found = functions(values.get("nodes", "")) if cluster.release < releases.FUNCTIONS_OF_NODES else []
        if found:
            what = f"found '{found[0][0]}{{{found[0][1]}}}', allowed: nodes and nodesets; Slurm {cluster.release}"
            since = f"has no functions, {releases.FUNCTIONS_OF_NODES} and later do"
            yield Finding(f"slurm.conf: PartitionName={name}", "Nodes", f"{what} {since}", REFUSED)


def _topology(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes of topology.conf that do not exist, of which slurmctld only says so in its log (`_validate_switches`)."""
    for (file, _key), (line, text) in cluster.says.settings.items():
        hosts = re.search(r"\bNodes=(\S+)", text, re.IGNORECASE) if file == "topology.conf" else None
        strange = [name for name in expand(hosts[1]) if name not in cluster.nodes] if hosts else []
        if strange:
            what = f"found {fold(strange)!r}, allowed: nodes of slurm.conf{_guess(strange[0], cluster.nodes)}"
            yield Finding(f"topology.conf: {line}", "Nodes", what, IGNORED)


def _partitions(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Several defaults (`_build_single_partitionline_info`), unknown alternates (`_alt_part_test` in job_mgr.c)."""
    defaults = [name for name, values in cluster.partitions.items() if _yes(values.get("default", ""))]
    if len(defaults) > 1:
        what = f"found on {', '.join(defaults)}, allowed: one; Slurm takes the last, {defaults[-1]!r}"
        yield Finding(f"slurm.conf: PartitionName={defaults[0]}", "Default", what, IGNORED)
    for name, values in cluster.partitions.items():
        other = values.get("alternate")
        if other and other not in cluster.partitions:
            what = f"found {other!r}, allowed: {', '.join(cluster.partitions)}{_guess(other, cluster.partitions)}"
            yield Finding(f"slurm.conf: PartitionName={name}", "Alternate", what, IGNORED)


_NO_JOB = {
    "maxtime": "a time, or UNLIMITED",
    "maxnodes": "1 or more, or UNLIMITED",
    "maxcpuspernode": "1 or more, or UNLIMITED",
    "maxcpuspersocket": "1 or more, or UNLIMITED",
}
"""Limits of a partition of which 0 allows no job; of DefaultTime, it makes users give a time."""


def _no_job(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Limits under which a partition has no job, of which slurmctld says nothing.

    `_valid_job_part` in `src/slurmctld/job_mgr.c`, `job_limits_check` there for jobs that have been taken, and
    `_allocate_sc` in `src/plugins/select/cons_tres/job_test.c` for CPUs.
    """
    for name, values in cluster.partitions.items():
        for key, allowed in _NO_JOB.items():
            value = values.get(key, "1")
            if re.fullmatch("[0:-]+", value):
                what = f"found {value!r}, allowed: {allowed}; no job could start, for which there is State=DOWN"
                yield Finding(f"slurm.conf: PartitionName={name}", FILES["PartitionName"][key].name, what, REFUSED)


# -- addresses and ports ---------------------------------------------------------------------------------------------

_NUMERIC = re.compile(r"[0-9.]+|[0-9a-f.]*:[0-9a-f:.]*", re.IGNORECASE)


def _address(name: str, values: Mapping[str, str]) -> str:
    """The host name or address by which slurmctld reaches a node (`_check_callback` in `src/common/read_config.c`)."""
    return values.get("nodeaddr") or values.get("nodehostname") or name


def _addresses(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes without an address, of which each costs slurmctld seconds and each client likewise (`_xgetaddrinfo`).

    Those of a cloud get theirs later, future ones when they register. slurmctld answers an srun on a node at the part
    of the name of its host before the first dot (`xshort_hostname`), with all its jobs locked.
    """
    there = {
        name: values
        for name, values in cluster.nodes.items()
        if not values.get("state", "").upper().startswith(("CLOUD", "FUTURE"))
    }
    names = {_address(name, values): name for name, values in there.items()}
    labels = {name.partition(".")[0]: name for name in there if "." in name}
    asked = [name for name in {**names, **labels} if not _NUMERIC.fullmatch(name)]
    unresolved = {*cluster.host.unresolved(asked)}
    if found := [name for name in names if name in unresolved]:
        what = f"found {fold(found)!r}, allowed: names that have an address on this host; give these nodes a NodeAddr"
        yield Finding("slurm.conf", "NodeName", what, REFUSED)
    elif found := [name for label, name in labels.items() if label in unresolved]:
        what = f"found {fold(found)!r}, allowed: names whose part before the first dot has an address on this host, too"
        why = f"slurmctld answers an srun there, and stands still while it looks for {found[0].partition('.')[0]!r}"
        yield Finding("slurm.conf", "NodeName", f"{what}; {why}", IGNORED)
    default = cluster.get("SlurmdPort", SLURMD)
    first: dict[tuple[str, str], str] = {}
    for name, values in there.items():
        place = (_address(name, values).lower(), values.get("port", default))
        if first.setdefault(place, name) != name:
            what = f"found {place[0]!r} port {place[1]}, which {first[place]} has, allowed: one of its own; one is down"
            yield Finding(f"slurm.conf: NodeName={name}", "NodeAddr", what, IGNORED)
            return


def _controllers(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Controllers at an IPv6 address, from which hosts of older releases get no files (`src/common/fetch_config.c`)."""
    found = [word for word in re.findall(r"\(([^()]*)\)", cluster.get("SlurmctldHost")) if ":" in word]
    configless = "enable_configless" in cluster.get("SlurmctldParameters").lower()
    if found and configless and cluster.release < releases.CONFIGLESS_IPV6:
        what = f"found {found[0]!r}, allowed: an IPv4 address; configless hosts of Slurm {cluster.release} use no other"
        yield Finding("slurm.conf", "SlurmctldHost", what, REFUSED)


def _ports(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Programs of one host with one port."""
    controllers = frozenset(re.findall(r"[^\s()]+", cluster.get("SlurmctldHost")))
    listeners = [SSH, Listener("SlurmctldPort", port_range(cluster.get("SlurmctldPort", SLURMCTLD)), controllers)]
    if cluster.get("AccountingStorageType").lower().endswith("/slurmdbd"):
        hosts = {cluster.get("AccountingStorageHost", "localhost"), cluster.get("AccountingStorageBackupHost")} - {""}
        hosts |= controllers if "localhost" in hosts else set()
        ports = port_range(cluster.get("AccountingStoragePort", SLURMDBD))
        listeners.append(Listener("AccountingStoragePort", ports, frozenset(hosts)))
    default = cluster.get("SlurmdPort", SLURMD)
    nodes: dict[str, set[str]] = {}
    for name, values in cluster.nodes.items():
        own = {name, values.get("nodehostname", name), _address(name, values)}
        nodes.setdefault(values.get("port", default), set()).update(own)
    for port, names in nodes.items():
        listeners.append(Listener("SlurmdPort" if port == default else "Port", port_range(port), frozenset(names)))
    listeners.append(Listener("SrunPortRange", port_range(cluster.get("SrunPortRange")), None))
    for key, what in collisions(listeners):
        yield Finding("slurm.conf", key, what, REFUSED)


def _srun_ports(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """A range that is none (`_parse_srun_ports`), or is too small (slurm.conf(5))."""
    value = cluster.get("SrunPortRange")
    ports = port_range(value)
    if not value:
        return
    if len(ports) < 2 or ports[-1] > LARGEST:
        yield Finding("slurm.conf", "SrunPortRange", f"found {value!r}, allowed: FIRST-LAST, as 60001-63000", IGNORED)
        return
    needed = 4 + 2 * max(0, -(-(len(cluster.nodes) - 48) // 48))
    if len(ports) < needed:
        what = f"found {value!r}, {len(ports)} ports, allowed: {needed} or more, which one srun on all nodes needs"
        yield Finding("slurm.conf", "SrunPortRange", what, IGNORED)


# -- users -----------------------------------------------------------------------------------------------------------


def _users(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Users that do not exist, or as whom a daemon does not start.

    Users must exist (`_validate_and_set_defaults`). slurmctld becomes SlurmUser, which only root can
    (`become_slurm_user` in `src/slurmctld/controller.c`), and writes its state as that user (`set_slurmctld_state_loc`
    there). slurmd ends if it runs as another user than SlurmdUser (`main` in `src/slurmd/slurmd/slurmd.c`); its unit
    starts it as root.
    """
    host = cluster.host
    name = cluster.get("SlurmUser", "root")
    user, starter = host.account(name), host.started_as("slurmctld")
    state = cluster.get("StateSaveLocation")
    if user is None:
        yield Finding("slurm.conf", "SlurmUser", f"found {name!r}, allowed: a user of this host", REFUSED)
    elif starter not in (None, "root", user):
        what = f"found {name!r}, allowed: {starter}, the user of slurmctld.service"
        yield Finding("slurm.conf", "SlurmUser", what, REFUSED)
    elif state and not host.writes(user, state):
        what = f"found {state!r}, allowed: a directory that SlurmUser {name!r} can write"
        yield Finding("slurm.conf", "StateSaveLocation", what, REFUSED)
    daemon = cluster.get("SlurmdUser", "root")
    if host.account(daemon) != "root":
        yield Finding("slurm.conf", "SlurmdUser", f"found {daemon!r}, allowed: root, the user of slurmd", REFUSED)


# -- plugins ---------------------------------------------------------------------------------------------------------

_NOT_LOADED = {
    "CertgenType",
    "CliFilterPlugins",
    "CryptoType",
    "ExtSensorsType",
    "HttpParserType",
    "JobContainerType",
    "LaunchType",
    "MpiDefault",
    "NamespaceType",
    "PowerPlugin",
    "ProctrackType",
    "RoutePlugin",
    "TaskPlugin",
    "UrlParserType",
}
"""Parameters whose plugins slurmctld does not need to start: clients and slurmd load them, or no program any more.

The packages of Slurm have the plugins of one kind together, so that this host has those of Slurm itself, too.
"""

_PREFIX = {
    "energy": "acct_gather_energy",
    "filesystem": "acct_gather_filesystem",
    "interconnect": "acct_gather_interconnect",
    "profile": "acct_gather_profile",
    "storage": "accounting_storage",
}
"""How plugins are called whose kind has another name in the tables of parameters."""

_NONE_IS_A_PLUGIN = {"auth", "cred", "crypto", "tls"}
"""Kinds of which `none` is a plugin with a file of its own."""

_OTHER_NAMES = {"cred/slurm", "topology/default"}
"""Names that stand for another plugin (`cred_g_init`, `topology_g_init`)."""


def _plugins(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Plugins that slurmctld loads and that are not installed (`plugin_context_create` in `src/common/plugin.c`).

    `none` needs no file where the tables of parameters have it (`_validate_and_set_defaults` in
    `src/common/read_config.c` removes the name); elsewhere slurmctld ends. Authentication by `none` is a plugin. Some
    names have no kind before a slash, or another one. 22.05 starts without the plugin of JobCompType.
    """
    installed = cluster.host.plugins(cluster.get("PluginDir"))
    if not installed:
        return
    for (file, key), (_spelled, value) in cluster.says.settings.items():
        parameter = FILES["slurm.conf"].get(key)
        kind, _blank, rest = parameter.value.partition(" ") if parameter else ("", "", "")
        if file != "slurm.conf" or not parameter or kind not in ("plugin", "plugins"):
            continue
        prefix = _PREFIX.get(rest, rest)
        own = words(PLUGINS[rest])
        files = {file.removeprefix(f"{prefix}_") for file in installed if file.startswith(f"{prefix}_")}
        there = files | ({"none"} & own.keys() if rest not in _NONE_IS_A_PLUGIN else set())
        for word in filter(None, map(str.strip, value.split(",") if kind == "plugins" else [value])):
            name = word.rpartition("/")[2]
            any_case = parameter.name in NONE_IN_ANY_CASE and cluster.release >= releases.NONE_IN_ANY_CASE
            name = "none" if any_case and name.lower() == "none" else name
            if name in there or word in _OTHER_NAMES or word.replace("/", "_") in installed:
                continue
            if parameter.name in _NOT_LOADED and not (files and without_version(name) in own):
                continue
            allowed = ", ".join(sorted(there)) or "nothing"
            what = f"found {word!r}, which is not installed, allowed: {allowed}{_guess(name, there)}"
            yield Finding("slurm.conf", parameter.name, what, REFUSED)


# -- accounting ------------------------------------------------------------------------------------------------------

_TRES = ("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem")
"""TRES that are also counted without a database (`_init_tres` in `src/slurmctld/controller.c`)."""

_TRES_KINDS = ("bb/", "fs/", "gres/", "ic/", "license/")
"""Other TRES that can be counted."""

_NEEDS_SLURMDBD = ("AccountingStorageEnforce", "PriorityWeightAge", "PriorityWeightFairshare")
"""Settings that slurmctld removes without a database (`main` there, `init` in priority_multifactor.c)."""


def _accounting(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Find settings that need a database, and counted resources that do not exist."""
    gres_types = {*cluster.words("GresTypes")}
    for word in cluster.words("AccountingStorageTRES"):
        tres = word.lower()
        name = word.partition("/")[2].partition(":")[0]
        if tres in _TRES:
            continue
        if not tres.startswith(_TRES_KINDS):
            what = f"found {word!r}, allowed: {', '.join((*_TRES, *_TRES_KINDS))}{_guess(word, (*_TRES, *_TRES_KINDS))}"
            yield Finding("slurm.conf", "AccountingStorageTRES", what, REFUSED)
        elif not cluster.slurmdbd:
            what = f"found {word!r}, which needs AccountingStorageType=accounting_storage/slurmdbd"
            yield Finding("slurm.conf", "AccountingStorageTRES", f"{what}, allowed: {', '.join(_TRES)}", REFUSED)
        elif tres.startswith("gres/") and name not in gres_types | {"gpumem", "gpuutil"}:
            allowed = ", ".join(f"gres/{known}" for known in sorted(gres_types)) or "none without GresTypes"
            what = f"found {word!r}, allowed: {allowed}{_guess(name, gres_types)}"
            yield Finding("slurm.conf", "AccountingStorageTRES", what, IGNORED)
    for key in _NEEDS_SLURMDBD:
        value = cluster.get(key)
        if value not in ("", "0") and not cluster.slurmdbd:
            what = f"found {value!r}, allowed: with AccountingStorageType=accounting_storage/slurmdbd"
            yield Finding("slurm.conf", key, what, IGNORED)
    if cluster.get("AccountingStorageType").lower().endswith("/slurmdbd") and not cluster.get("AccountingStorageHost"):
        yield Finding("slurm.conf", "AccountingStorageHost", "missing: Slurm uses localhost", IGNORED)


# -- programs --------------------------------------------------------------------------------------------------------


def _programs(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Find files that slurmctld cannot send to the nodes, where the first job would fail and drain its node.

    It sends a Prolog or Epilog whose path is relative to its own directory (`new_config_response` in
    src/common/fetch_config.c). It does not report that one is missing, or cannot run.
    """
    for key in ("Prolog", "Epilog"):
        for path in cluster.get(key).split():
            if path.startswith("/"):
                continue
            if cluster.release < releases.SCRIPTS_SENT:
                what = f"found {path!r}, which Slurm {cluster.release} does not send to the nodes, allowed: a full path"
                yield Finding("slurm.conf", key, what, REFUSED)
                continue
            script = cluster.host.text(path)
            if script is None:
                yield Finding("slurm.conf", key, f"found {path!r}, which is no file beside slurm.conf", REFUSED)
                continue
            try:
                check_script(content_of(script))
            except ScriptError as error:
                yield Finding("slurm.conf", key, f"found {path!r}, {error}", REFUSED)


# -- memory and cores ------------------------------------------------------------------------------------------------


def _limits(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Find limits of jobs without the setting that enforces them.

    Place: `cgroup_memcg_job_confinement` in `src/interfaces/cgroup.c`. The meaning of memory to a release without
    SelectTypeParameters is not checked: 22.05 and 24.11 differ.
    """
    confined = "cgroup" in cluster.get("TaskPlugin")
    constrained = {
        key: _yes(cluster.get(key, file="cgroup.conf"))
        for key in ("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace", "ConstrainSwapSpace")
    }
    for key, on in constrained.items():
        if on and not confined:
            yield Finding("cgroup.conf", key, "found 'YES', allowed: with TaskPlugin=task/cgroup", IGNORED)
    memory = confined and (constrained["ConstrainRAMSpace"] or constrained["ConstrainSwapSpace"])
    killed = "overmemorykill" in map(str.lower, cluster.words("JobAcctGatherParams"))
    if memory and killed:  # `read_slurm_conf`
        what = "found 'OverMemoryKill', allowed: without ConstrainRAMSpace and ConstrainSwapSpace in cgroup.conf"
        yield Finding("slurm.conf", "JobAcctGatherParams", what, REFUSED)
    for keys, enforced, needed in (
        (("MemSpecLimit",), memory, "ConstrainRAMSpace"),  # `_memory_spec_init` in slurmd.c
        (("CoreSpecCount", "CPUSpecList"), confined and constrained["ConstrainCores"], "ConstrainCores"),
    ):
        for key in keys:
            names = [name for name, values in cluster.nodes.items() if values.get(key.lower(), "0") != "0"]
            if names and not enforced:
                what = f"nothing keeps jobs from it without TaskPlugin=task/cgroup and {needed} in cgroup.conf"
                yield Finding(f"slurm.conf: NodeName={fold(names)}", key, what, IGNORED)
    select = cluster.get("SelectTypeParameters")
    if select and "memory" not in select.lower():
        given = [("slurm.conf", key, cluster.get(key)) for key in ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")]
        given += [
            (f"slurm.conf: PartitionName={name}", key, values.get(key.lower(), ""))
            for name, values in cluster.partitions.items()
            for key in ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")
            if "memory" not in values.get("selecttypeparameters", "").lower()
        ]
        reserved: dict[str, list[str]] = {}
        for name, values in cluster.nodes.items():
            reserved.setdefault(values.get("memspeclimit", ""), []).append(name)
        given += [
            (f"slurm.conf: NodeName={fold(names)}", "MemSpecLimit", value if memory else "")
            for value, names in reserved.items()
        ]
        given += [("cgroup.conf", key, "YES") for key, on in constrained.items() if on and key.endswith("Space")]
        for place, key, value in given:
            if value not in ("", "0"):
                what = f"found {value!r}, but memory is no resource, allowed: with CR_Core_Memory, found {select!r}"
                yield Finding(place, key, what, IGNORED)


# -- times -----------------------------------------------------------------------------------------------------------

_TOO_SHORT = {
    "messagetimeout": "messages fail before their connection does",
    "slurmdtimeout": "nodes are set down with their jobs if they answer later",
    "unkillablesteptimeout": "nodes are drained if a step ends late",
}
"""What happens below the least times of `parameter_tables/times.py`."""


def _times(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Times that are short for other times."""
    for key, (factor, other, default) in LEAST.items():
        value, least = cluster.get(key), factor * whole_number(cluster.get(other, str(default)))
        lowest = 1 if key == "slurmdtimeout" else 0  # of which 0 is no limit
        if value and lowest <= whole_number(value) < least:
            rule = f"{least} or more, {factor} x {other}" if factor > 1 else f"{least} or more, the {other}"
            what = f"found {value!r}, allowed: {rule}: {_TOO_SHORT[key]}"
            yield Finding("slurm.conf", FILES["slurm.conf"][key].name, what, IGNORED)


# -- generic resources -----------------------------------------------------------------------------------------------


def _gres(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """GresTypes, the Gres of nodes and gres.conf. Nodes that have the same are checked once."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, values in cluster.nodes.items():
        own = cluster.says.gres.get(name, ())
        if own or "gres" in values:
            alike.setdefault((values.get("gres", ""), own), []).append(name)
    types = cluster.words("GresTypes")
    found: dict[_Problem, list[str]] = {}
    for (value, own), names in alike.items():
        problems = [*_gres_names(value, types)]
        if cluster.gres_conf:
            problems += _gres_files(value, own, cluster.says.gres.get("", ()))
        for problem in problems:
            found.setdefault(problem, []).extend(names)
    for (file, key, what, effect), names in found.items():
        yield Finding(f"{file}: NodeName={fold(names)}", key, what, effect)
    listed = {gres.name for texts in {*cluster.says.gres.values()} for gres in gres_of_lines(texts)}
    for name in sorted(listed):
        if name not in types:  # `_parse_gres_config`
            yield Finding("gres.conf", "Name", _not_in_types(name, types), IGNORED)


_Problem = tuple[str, str, str, str]
"""File, key, text and effect."""


def _not_in_types(name: str, types: list[str]) -> str:
    """The message for a name that is not in GresTypes."""
    return f"found {name!r}, allowed: {', '.join(types) or 'nothing'}, the GresTypes{_guess(name, types)}"


def _gres_names(value: str, types: list[str]) -> Iterator[_Problem]:
    """Names that slurmctld leaves out (`gres_name_filter`); types that some have, which slurmd refuses."""
    configured = gres_of_node(value)
    for name in dict.fromkeys(gres.name for gres in configured):
        if name not in types:
            yield "slurm.conf", "Gres", _not_in_types(name, types), IGNORED
        if len({bool(gres.kind) for gres in configured if gres.name == name}) > 1:  # `_foreach_slurm_conf`
            yield "slurm.conf", "Gres", f"found {value!r}, allowed: all or none of the {name} with a type", REFUSED


def _gres_files(value: str, own: tuple[str, ...], everywhere: tuple[str, ...]) -> Iterator[_Problem]:
    """Compare the Gres of a node with its lines in gres.conf, as slurmd does (`_merge_gres2`, `_find_fileless_gres`).

    It leaves out GPUs without a file: the node has fewer than configured, and becomes INVAL. So does one whose types
    are spelled otherwise, which slurmctld tells apart (not that of 22.05). Only the node knows the devices that slurmd
    detects. Shares are spread over GPUs, so that their lines have counts of their own.
    """
    if any(re.search(r"\bautodetect=(?!off\b)", text, re.IGNORECASE) for text in (*own, *everywhere)):
        return
    configured, listed = gres_of_node(value), gres_of_lines((*own, *everywhere))
    for gres in configured:
        same = [line for line in listed if line.name == gres.name]
        fitting = [line for line in same if gres.kind in ("", line.kind)]
        kinds = [*dict.fromkeys(line.kind for line in same if line.kind)]
        files = sum(line.number for line in fitting if line.files)
        if gres.name == "gpu" and files < gres.number:
            guess = _guess(gres.kind, kinds) if gres.kind not in ("", *kinds) else ""
            what = f"found '{gres}:{gres.number}', allowed: up to {files}, the files in gres.conf{guess}"
            yield "slurm.conf", "Gres", what, REFUSED
        if kinds and not gres.kind:
            what = f"found {', '.join(kinds)!r}, allowed: where Gres in slurm.conf has a type, found {value!r}"
            yield "gres.conf", "Type", what, IGNORED
    listed = gres_of_lines(own)
    for name, kind in dict.fromkeys((line.name, line.kind) for line in listed):
        count = sum(line.number for line in listed if (line.name, line.kind) == (name, kind))
        wanted = sum(gres.number for gres in configured if gres.name == name and gres.kind in ("", kind))
        if name not in SHARED_GRES and count > wanted:
            what = f"found '{Gres(name, kind, count, True)}:{count}', allowed: up to {wanted}, the Gres in slurm.conf"
            yield "gres.conf", "Name", what, IGNORED


_CORES = re.compile(r"\b(?:Cores|CPUs)=([\d,-]+)", re.IGNORECASE)
_NAME = re.compile(r"\bName=(\S+)", re.IGNORECASE)


def _gres_cores(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Cores that are a part of a socket, for which slurmctld sets the node down (`_check_core_range_matches_sock`)."""
    if cluster.release < releases.GRES_SOCKETS:
        return
    found: dict[tuple[str, int, int], list[str]] = {}
    for name, values in cluster.nodes.items():
        names = {gres.name for gres in gres_of_node(values.get("gres", ""))}
        for text in (*cluster.says.gres.get(name, ()), *cluster.says.gres.get("", ())) if names else ():
            cores, kind = _CORES.search(text), _NAME.search(text)
            if cores and kind and kind[1] in names and "corespersocket" in values:
                found.setdefault((cores[1], _sockets(values), int(values["corespersocket"])), []).append(name)
    for (cores_text, sockets, size), hosts in found.items():
        indexes = {int(core) for core in expand(f"[{cores_text}]")}
        touched = {index // size for index in indexes}
        one = cluster.release >= releases.GRES_ONE_SOCKET
        if len(indexes) != len(touched) * size or (one and len(touched) not in (1, sockets)):
            allowed = f"all {size} cores of {'one' if one else 'a'} socket, such as 0-{size - 1}"
            allowed += f", or all cores, 0-{sockets * size - 1}" if one and sockets > 1 else ""
            what = f"found {cores_text!r}, allowed: {allowed}, with Slurm {cluster.release}"
            yield Finding(f"gres.conf: NodeName={fold(hosts)}", "Cores", what, REFUSED)


def _sockets(values: Mapping[str, str]) -> int:
    """The sockets of a node, those of all its boards (`_parse_nodename` in `src/common/read_config.c`)."""
    boards, of_board = int(values.get("boards", "1")), values.get("socketsperboard")
    if of_board is not None:
        return boards * int(of_board)
    cores = int(values["corespersocket"]) * int(values.get("threadspercore", "1"))
    return int(values.get("sockets", "0")) or int(values.get("cpus", values.get("procs", "0"))) // cores or 1


RULES = (
    _twice,
    _unknown_nodes,
    _topology,
    _partitions,
    _no_job,
    _addresses,
    _controllers,
    _ports,
    _srun_ports,
    _users,
    _plugins,
    _programs,
    _accounting,
    _limits,
    _times,
    _gres,
    _gres_cores,
)
