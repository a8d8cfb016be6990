# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters that a host belongs to, from its files and processes. No daemon is asked.

Everything here reads files of others: they can be missing, huge, or no text at all, and a server of theirs may not
answer. What cannot be read says nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..configuration.conf_file import ConfigurationError, lines
from ..hardware.sysfs import Tree
from ..host.applied_state import Unit
from ..host.timeout_call import TimeoutCallError, call_with_timeout

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import Clusters

DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "sackd")
FETCHING = ("slurmd", "sackd")
"""Daemons that can fetch their configuration from slurmctld (slurm.conf(5), enable_configless)."""

CONF, STATE, DATABASE, MARK = "conf", "state", "database", "mark"
"""What tells a name, apart from a daemon that runs: a file of the configuration, the directory of slurmctld's state,
the tables of slurmdbd, and the part of /etc/hosts that this collection writes."""

CONFS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
"""The configuration of packages, of old packages of Debian and Ubuntu, and of Slurm from its sources."""

CACHES = (
    "/run/slurm/conf/slurm.conf",
    "/var/lib/slurm/slurmd/conf-cache/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
"""The configuration that was fetched. sackd has it in the first place, where slurmd has a link to its SlurmdSpoolDir
(`src/slurmd/slurmd/slurmd.c`, `src/sackd/sackd.c`). The others are SlurmdSpoolDir in Debian's packages and Slurm's own
default (slurm.conf(5))."""

STATES = ("/var/lib/slurm/slurmctld", "/var/spool/slurmctld", "/var/spool")
"""StateSaveLocation in this collection and in Debian's packages, in many sites, and Slurm's own default."""

TABLES = "/var/lib/mysql"
OWN = "Managed by gpucluster.slurm"
SECONDS = 10
"""The time limit for all files together: they may be on a file system whose server does not answer."""

MOST_BYTES = 1 << 22
"""Bytes of a file that are read. slurm.conf with a line for each of 10,000 nodes has 2 MB."""

LONGEST_LINE = 1 << 16
"""Characters of a line that is read."""

MOST_FILES = 64
"""Files that are read because an Include names them."""

MOST_FOUND = 64
"""Names that are returned."""

_WANTED = re.compile(r"\s*include\s|.*(?:clustername|statesavelocation)\s*=", re.DOTALL)
_PART = re.compile(r"^# BEGIN gpucluster\.slurm (\S+)$", re.MULTILINE)
_JOB_TABLE = re.compile(r"(.+)_job_table\.(?:frm|ibd|MYD)")
"""The table of the jobs of a cluster (`src/plugins/accounting_storage/mysql/accounting_storage_mysql.c`)."""

_ENCODED = re.compile(r"@([0-9a-f]{4})")
"""A character in the name of a table's file (MariaDB, identifier to file name mapping)."""

_FILE_OPTION = re.compile(r"-[BCDGIMRZbcirsvw]*f(.*)", re.DOTALL)
"""The option -f of slurmctld, slurmd and sackd, perhaps behind options without a value: `-Df /srv/slurm.conf`."""


@dataclass(frozen=True)
class RunningDaemon:
    """A daemon of Slurm that runs.

    arguments: its command line. slurm_conf: SLURM_CONF of its environment. program: its executable file.
    """

    name: str
    arguments: tuple[str, ...]
    slurm_conf: str = ""
    program: str = ""


@dataclass(frozen=True)
class ClusterName:
    """The name of a cluster, the file that has it, and what reads or wrote this file: a daemon that runs, or CONF to
    MARK."""

    name: str
    file: str
    by: str


def find_clusters(tree: Tree, hosts: str, units: Mapping[str, Unit], state_directory: str = "") -> Clusters:
    """The fact `clusters`.

    Args:
        tree: the host's files.
        hosts: the text of /etc/hosts.
        units: properties of services by name; of those in DAEMONS, whether they start with the host counts.
        state_directory: StateSaveLocation of the cluster file, on a controller.

    Returns:
        `found`: each name of a cluster with `file` and `by`; `daemons`: those that run and are not this collection's.
    """
    running = daemons(tree)
    running_names = {daemon.name for daemon in running}
    waiting = any(
        name not in running_names and units.get(name, {}).get("UnitFileState") == "enabled" for name in FETCHING
    )
    try:
        read = call_with_timeout(
            lambda: [vars(found) for found in _in_files(tree, running, waiting, state_directory)], SECONDS
        )
    except TimeoutCallError:
        read = []
    marks = [vars(ClusterName(_clean(name), "/etc/hosts", MARK)) for name in _PART.findall(hosts)]
    unique = {tuple(found.values()): found for found in [*read, *marks]}
    others = sorted(name for name in running_names if not _is_own(tree, name))
    return {"found": [*unique.values()][:MOST_FOUND], "daemons": others}


def daemons(tree: Tree) -> list[RunningDaemon]:
    """The daemons of Slurm that run on the host itself, not in a container, in the order of DAEMONS."""
    own = _link(tree, "/proc/self/ns/pid")
    found = []
    for pid in filter(str.isdecimal, tree.names("/proc")):
        name = tree.text(f"/proc/{pid}/comm") or ""
        if name not in DAEMONS or _link(tree, f"/proc/{pid}/ns/pid") != own:
            continue
        arguments = tuple(filter(None, _text(tree, f"/proc/{pid}/cmdline").split("\0")))
        if not arguments or os.path.basename(arguments[0]) != name:  # such as `slurmctld: slurmscriptd`
            continue
        environment = dict(entry.partition("=")[::2] for entry in _text(tree, f"/proc/{pid}/environ").split("\0"))
        found.append(RunningDaemon(name, arguments, environment.get("SLURM_CONF", ""), _link(tree, f"/proc/{pid}/exe")))
    return sorted(found, key=lambda daemon: DAEMONS.index(daemon.name))


def settings(tree: Tree, conf: str) -> dict[str, str]:
    """ClusterName and StateSaveLocation of a slurm.conf, by their names in small letters; empty without such a file.

    Included files are read in their place, and a later value replaces an earlier one, as in Slurm
    (`src/common/parse_config.c`). A line that Slurm would refuse is left out.
    """
    found: dict[str, str] = {}
    _read_settings(tree, conf, os.path.dirname(conf), found, [])
    return found


def _read_settings(tree: Tree, path: str, directory: str, found: dict[str, str], seen: list[str]) -> None:
    """Take in a file and those that it includes. A relative name is in the directory of slurm.conf, and %c is the name
    of the cluster."""
    if path in seen or len(seen) >= MOST_FILES:
        return
    seen.append(path)
    for line in _text(tree, path).split("\n"):
        if len(line) > LONGEST_LINE or not _WANTED.match(line.lower()):
            continue
        try:
            pairs = [pair for parsed in lines("slurm.conf", line) for pair in parsed]
        except ConfigurationError:
            continue
        for key, value in pairs:
            if key.lower() == "include":
                name = value.replace("%c", found.get("clustername", "%c").lower())
                _read_settings(tree, os.path.join(directory, name), directory, found, seen)
            elif key.lower() in ("clustername", "statesavelocation") and value:
                found[key.lower()] = value


def _in_files(
    tree: Tree, running: Iterable[RunningDaemon], waiting: bool, state_directory: str
) -> Iterator[ClusterName]:
    """What the files tell, those of running daemons first.

    waiting: whether a daemon that fetches its configuration starts with the host, and does not run now. Without one,
    the files of an earlier slurmd are no sign of a cluster: remove_nodes leaves them on the host.
    """
    read: dict[str, dict[str, str]] = {}

    def named_in(conf: str) -> str:
        if conf not in read:
            read[conf] = settings(tree, conf)
        return read[conf].get("clustername", "")

    for daemon in running:
        conf = next(filter(named_in, confs_of(daemon)), "")
        if conf:
            yield ClusterName(_clean(named_in(conf)), _clean_path(conf), daemon.name)
    of_running = [*read]
    for conf in (*CONFS, *(CACHES if waiting else ())):
        if conf not in of_running and named_in(conf):
            yield ClusterName(_clean(named_in(conf)), _clean_path(conf), CONF)
    states = [state_directory, *(values.get("statesavelocation", "") for values in read.values()), *STATES]
    for directory in dict.fromkeys(path for path in states if path.startswith("/")):
        # With or without its number: `release-26`, `release-26|588` (`_verify_clustername` in slurmctld/controller.c).
        file = os.path.join(directory, "clustername")
        name = _text(tree, file).partition("\n")[0].partition("|")[0].strip()
        if name:
            yield ClusterName(_clean(name), _clean_path(file), STATE)
    for database in tree.names(TABLES):
        matches = filter(None, map(_JOB_TABLE.fullmatch, tree.names(f"{TABLES}/{database}")))
        # A table has several files.
        for encoded, file in {match[1]: match[0] for match in matches}.items():
            name = _ENCODED.sub(lambda code: chr(int(code[1], 16)), encoded)
            yield ClusterName(_clean(name), _clean_path(f"{TABLES}/{database}/{file}"), DATABASE)


def confs_of(daemon: RunningDaemon) -> list[str]:
    """The files that a daemon may have been started with, the likeliest first.

    An option wins over SLURM_CONF, and both over a server of the configuration, which wins over the file that Slurm was
    built for (slurmctld(8), slurmd(8), sackd(8)).
    """
    if daemon.name == "slurmdbd":  # it reads no slurm.conf
        return []
    for argument, following in zip(daemon.arguments[1:], (*daemon.arguments[2:], "")):
        match = _FILE_OPTION.fullmatch(argument) if not argument.startswith("--") else None
        if match:
            return [os.path.join("/", match[1] or following)]  # the directory in which systemd starts a daemon
    if daemon.slurm_conf:
        return [os.path.join("/", daemon.slurm_conf)]
    prefix = os.path.dirname(os.path.dirname(daemon.program))
    built_for = (
        [f"{prefix}/etc/slurm.conf", f"{prefix}/etc/slurm/slurm.conf"] if prefix not in ("", "/", "/usr") else []
    )
    own = [*built_for, *CONFS]
    if daemon.name not in FETCHING:
        return own
    fetches = any(argument.startswith("--conf-server") for argument in daemon.arguments)
    return [*CACHES] if fetches else [*own, *CACHES]


def _is_own(tree: Tree, daemon: str) -> bool:
    """Whether this collection has set up a daemon: it has a drop-in of its unit, or its configuration says so."""
    if any(name.startswith("gpucluster-") for name in tree.names(f"/etc/systemd/system/{daemon}.service.d")):
        return True
    conf = {"slurmctld": "/etc/slurm/slurm.conf", "slurmdbd": "/etc/slurm/slurmdbd.conf"}.get(daemon, "")
    return bool(conf) and OWN in _text(tree, conf)[:1024]


def _clean(name: str) -> str:
    """The name of a cluster in small letters, as Slurm has it (slurm.conf(5), ClusterName), of harmless characters."""
    return re.sub(r"[^a-z0-9._+-]", "?", name.lower())[:255]


def _clean_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9+._/@%:-]", "?", path)[:1000]


def _link(tree: Tree, name: str) -> str:
    try:
        return os.readlink(tree.path(name))
    except OSError:
        return ""


def _text(tree: Tree, name: str) -> str:
    """The beginning of a regular file; empty where there is none. A pipe or a device would not end."""
    try:
        descriptor = os.open(tree.path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""
    except (OSError, ValueError):  # ValueError: a name with a null character
        return ""
