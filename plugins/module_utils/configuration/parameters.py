# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's parameters: their values, the releases that have them, and the actions that a change needs.

The facts are in `parameter_tables`, one line for each parameter, in columns that two blanks or more part:

    name  value  change  releases

The value is one of these; what Slurm's parser accepts is accepted here (`src/common/parse_value.c`):

- `text`, and as words for a reader `host`, `hosts`, `user`, `path`, `dir`, `program`: any text.
- `bool`; `u16`, `u32`, `u64`, `float`, with a unit or the limits `LOW..HIGH`; `minutes` and `seconds`: Slurm's times,
  stored in that unit; `ports`: one or a range, `ports nodes`: one or one for each node; `level`: of a log; `purge`: an
  age in slurmdbd.conf.
- `one SET`, `flags SET`, `hints SET`, `plugin KIND`, `plugins KIND`: words, see `parameter_tables/choices.py`. A set of
  the parameter's own name is not repeated. `word SET` is `one SET` in a line that Slurm leaves out if it is another.

The change is one of these. Since 23.11 a reconfigure starts slurmctld and every slurmd anew, with the state and the
sockets of the old ones (`_try_to_reconfig` in `src/slurmctld/controller.c` and `src/slurmd/slurmd/slurmd.c`). A
change that needed a restart before needs only a reconfigure since then, unless an exclamation mark follows it.

- `client`: nothing, commands read it.
- `reconfigure`: `scontrol reconfigure`.
- `slurmctld`, `slurmd`, `slurmdbd`, `daemons`: a restart of these (`daemons`: slurmctld and slurmd).
- `nodes`: likewise, while no job runs on the nodes that it is about.
- `cluster`: a restart of all daemons while there is no job at all.

The releases are `23.02+`, `23.02.1+`, `-24.11` or `23.11-24.11`; none: all. `defunct 23.11+`: since then Slurm only
says that it ignores the parameter. `refused 23.11+`: since then Slurm knows the parameter to refuse it. `use X` is what
replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..language.formatting import AS_BOOLEAN, shown
from ..language.spelling import nearest
from .parameter_tables import (
    acct_gather_conf,
    cgroup_conf,
    gres_conf,
    job_container_conf,
    mpi_conf,
    plugstack_conf,
    site_files,
    slurm_conf,
    slurmdbd_conf,
    topology_conf,
)
from .parameter_tables.releases import RECONFIGURE_RESTARTS, RELEASES, SCRIPTS_REPEATED
from .parameter_values import FOREIGN, IGNORED, REFUSED, TEXTS, Span, check_value

__all__ = [
    "FILES",
    "FOREIGN",
    "IGNORED",
    "REFUSED",
    "find",
    "needs",
    "patch_of",
    "problems",
    "refused_boolean",
    "refused_everywhere",
    "release_of",
    "unread",
    "unread_files",
]


ALL_EFFECTS = (REFUSED, IGNORED, FOREIGN)

BOOLEANS = {"YES": ("yes", "true", "on"), "NO": ("no", "false", "off")}
"""The texts that YAML reads as a boolean, by that of Slurm."""


class Problem(NamedTuple):
    """The problem of a parameter."""

    key: str
    text: str
    """The found value, the allowed values, and the nearest of them."""
    effect: str
    """REFUSED, IGNORED or FOREIGN."""


class Needs(NamedTuple):
    """The actions that a change of a parameter needs before Slurm uses the new value."""

    reconfigure: bool
    """`scontrol reconfigure`; a restart makes it unnecessary."""
    restart: tuple[str, ...]
    """The daemons to restart, in this order."""
    idle: str
    """The part of the cluster that must have no job meanwhile:

    `nodes` (those that the change is about), `cluster`, or nothing.
    """


@dataclass(frozen=True)
class Parameter:
    """A line of a table."""

    name: str
    value: str
    change: str
    releases: Span
    defunct: Span | None
    refused: Span | None
    instead: str
    """The parameter that replaces it, with its first release unless all releases have it; or nothing."""


def _parameter(line: str) -> Parameter:
    """A line of a table."""
    name, value, change, releases = [*re.split(r"\s{2,}", line), ""][:4]
    parts = {"defunct": "", "refused": "", "use": "", "releases": ""}
    for part in filter(None, releases.split("; ")):
        word, _blank, rest = part.partition(" ")
        if word in ("defunct", "refused", "use"):
            parts[word] = rest or "-" + RELEASES[-1]
        else:
            parts["releases"] = part
    return Parameter(
        name,
        value if " " in value or value not in ("one", "flags", "hints") else f"{value} {name}",
        change,
        Span.parse(parts["releases"]),
        Span.parse(parts["defunct"]) if parts["defunct"] else None,
        Span.parse(parts["refused"]) if parts["refused"] else None,
        parts["use"],
    )


def _table(text: str) -> dict[str, Parameter]:
    """A table by the names in lower case, in its order."""
    return {parameter.name.lower(): parameter for parameter in map(_parameter, text.strip().split("\n"))}


FILES: Mapping[str, Mapping[str, Parameter]] = {
    "slurm.conf": _table(slurm_conf.SLURM_CONF),
    "NodeName": _table(slurm_conf.NODE),
    "PartitionName": _table(slurm_conf.PARTITION),
    "DownNodes": _table(slurm_conf.DOWN_NODES),
    "NodeSet": _table(slurm_conf.NODE_SET),
    "FrontendName": _table(slurm_conf.FRONTEND),
    "PowerAction": _table(slurm_conf.POWER_ACTION),
    "gres.conf": _table(gres_conf.GRES_CONF),
    "cgroup.conf": _table(cgroup_conf.CGROUP_CONF),
    "slurmdbd.conf": _table(slurmdbd_conf.SLURMDBD_CONF),
    "topology.conf": _table(topology_conf.TOPOLOGY_CONF),
    "topology.yaml": _table(topology_conf.TOPOLOGY_YAML),
    "acct_gather.conf": _table(acct_gather_conf.ACCT_GATHER_CONF),
    "job_container.conf": _table(job_container_conf.JOB_CONTAINER_CONF),
    "namespace.yaml": _table(job_container_conf.NAMESPACE_YAML),
    "mpi.conf": _table(mpi_conf.MPI_CONF),
    "plugstack.conf": _table(plugstack_conf.PLUGSTACK_CONF),
}
"""Parameters by file, or by the kind of line in slurm.conf that has parameters of its own, and name in lower case."""

SITE_FILES: Mapping[str, Parameter] = _table(site_files.SITE_FILES)
"""Files that a site can add."""

SCRIPT = _parameter("Prolog  program  reconfigure")
"""A program that slurmctld sends to the nodes."""


def _names(file: str) -> frozenset[str]:
    """The names of a file in Slurm's spelling, of all releases."""
    return frozenset(parameter.name for parameter in FILES[file].values())


SLURM_CONF, CGROUP_CONF = _names("slurm.conf"), _names("cgroup.conf")
NODE, PARTITION = _names("NodeName") - {"NodeName"}, _names("PartitionName") - {"PartitionName"}

LINES = frozenset({"DownNodes", "NodeSet", "PowerAction"})
"""Keys of slurm.conf whose lines have parameters of their own, `NodeSet=fast Feature=h100`.

NodeName and PartitionName are such keys too; the model writes them.
"""

_SCRIPTS = frozenset({"Epilog", "EpilogSlurmctld", "Prolog", "PrologSlurmctld"})

REPEATED = LINES | _SCRIPTS | {"SlurmctldHost"}
"""Keys of slurm.conf of which each value has a line of its own (`S_P_ARRAY` in Slurm's tables)."""

SHARED_GRES = ("mps", "shard")
"""Generic resources that are parts of GPUs (`gres_is_shared_name` in `src/interfaces/gres.c`): a file has many."""

_REPEATED = {key.lower() for key in {*REPEATED, "NodeName", "PartitionName", "FrontendName"}}


def release_of(version: str) -> str:
    """The release whose tables hold for a version such as 24.11.5, the last one for later versions.

    Raises:
        ValueError: it is no version, or one before the first release of the tables.
    """
    match = re.match(r"(\d\d)\.(\d\d?)", version)
    release_named = f"{match[1]}.{int(match[2]):02}" if match else ""
    if release_named < RELEASES[0]:
        raise ValueError(f"found Slurm {version!r}, known: {RELEASES[0]} and later")
    return max(release for release in RELEASES if release <= release_named)


def patch_of(version: str) -> int | None:
    """The patch release, 5 of 24.11.5; None where the version does not say it."""
    match = re.match(r"\d+\.\d+\.(\d+)", version)
    return int(match[1]) if match else None


def find(file: str, key: str) -> Parameter | None:
    """A parameter by its file and its name in any case; None if no release has it."""
    return FILES[file].get(key.lower())


def needs(file: str, key: str, version: str) -> Needs:
    """The actions that a change of a parameter needs. An unknown one needs a restart of all daemons.

    Raises:
        ValueError: see `release_of`.
    """
    release = release_of(version)
    parameter = FILES.get(file, {}).get(key.lower())
    if key == file and not parameter:  # it changes as a whole
        parameter = SITE_FILES.get(file, SCRIPT)
    change = parameter.change if parameter else "daemons!"
    if change == "client":
        return Needs(False, (), "")
    if change == "nodes":
        restarts = release >= RECONFIGURE_RESTARTS  # of a reconfigure
        return Needs(restarts, () if restarts else ("slurmctld", "slurmd"), "nodes")
    if change == "cluster":
        return Needs(False, ("slurmdbd", "slurmctld", "slurmd"), "cluster")
    if change == "reconfigure" or (not change.endswith("!") and release >= RECONFIGURE_RESTARTS):
        return Needs(True, (), "")
    daemon = change.rstrip("!")
    return Needs(False, ("slurmctld", "slurmd") if daemon == "daemons" else (daemon,), "")


def refused_everywhere(file: str, key: str, value: str, effects: tuple[str, ...] = (REFUSED,)) -> str:
    """The allowed values for a value that every release with the parameter refuses; nothing for other values.

    effects: those of a value that count as refused.
    """
    parameter = FILES[file][key.lower()]
    verdicts = [
        [*check_value(parameter.value, value, release)] for release in RELEASES if release in parameter.releases
    ]
    texts = [next((text for effect, text in verdict if effect in effects), "") for verdict in verdicts]
    return texts[-1] if all(texts) and not parameter.defunct else ""


def refused_boolean(file: str, key: str, value: str) -> str:
    """The allowed values for a parameter whose value is no boolean, where YAML has read one; nothing for others.

    value: the text of the boolean, which a parameter with any text or keyword would get in silence.
    """
    kind = FILES[file][key.lower()].value
    allowed = "allowed: a text" if kind in TEXTS else refused_everywhere(file, key, value, ALL_EFFECTS)
    is_meant = kind in TEXTS or any(not refused_everywhere(file, key, text, ALL_EFFECTS) for text in BOOLEANS[value])
    return f"{allowed}; {AS_BOOLEAN}" if allowed and is_meant else allowed


def unread_files(names: Iterable[str], version: str) -> list[Problem]:
    """The problems of the files that a site has added: a release does not read all of them.

    Raises:
        ValueError: see `release_of`.
    """
    release, patch = release_of(version), patch_of(version)
    return [
        problem for name in names if name in SITE_FILES for problem in _of_release(SITE_FILES[name], release, patch)
    ]


def runs_all_scripts(release: str) -> bool:
    """Whether a release runs each of several Prolog, Epilog and the like, and not only the last."""
    return release >= SCRIPTS_REPEATED


def problems(file: str, values: Iterable[tuple[str, str]], version: str) -> list[Problem]:
    """The parameters of a file, or of a line with several, that a release would refuse or ignore.

    Args:
        file: a key of FILES.
        values: names and values as they are in the file, without quotes and escapes.
        version: of Slurm, such as 24.11 or 24.11.5.

    Raises:
        ValueError: see `release_of`.
    """
    release, patch = release_of(version), patch_of(version)
    problems_found: list[Problem] = []
    seen: set[str] = set()
    for key, value in values:
        parameter = find(file, key)
        if parameter is None:
            match = nearest(key, _names(file))
            guess = f", did you mean {match!r}?" if match else ""
            problems_found.append(Problem(key, f"unknown to Slurm{guess}", REFUSED))
            continue
        if key.lower() in seen and file != "plugstack.conf":
            if key.lower() not in _REPEATED:
                problems_found.append(Problem(key, "is set more than once: Slurm uses the last", IGNORED))
            elif parameter.name in _SCRIPTS and not runs_all_scripts(release):
                # A site's own program and one of a role: neither may be lost silently.
                what = f"is set more than once: Slurm {release} runs only the last, {SCRIPTS_REPEATED}+ all"
                problems_found.append(Problem(key, what, REFUSED))
        seen.add(key.lower())
        problems_found.extend(_of_release(parameter, release, patch) or _of_value(parameter, value, release))
    return problems_found


def unread(file: str, key: str, version: str) -> str:
    """Why a release does not read a parameter of a file, known to some release; empty if it does.

    Raises:
        ValueError: see `release_of`.
    """
    found = _of_release(FILES[file][key.lower()], release_of(version), patch_of(version))
    return found[0].text if found else ""


def _of_release(parameter: Parameter, release: str, patch: int | None) -> list[Problem]:
    """Whether a release has a parameter."""
    instead = f", use {parameter.instead}" if parameter.instead else ""
    if not parameter.releases.has(release, patch):
        shown = f"{release}.{patch}" if release in parameter.releases else release
        what = f"Slurm {shown} does not have it, {parameter.releases} {parameter.releases.verb}{instead}"
        return [Problem(parameter.name, what, REFUSED)]
    if parameter.refused and release in parameter.refused:
        return [Problem(parameter.name, f"Slurm {release} refuses it{instead or ': remove it'}", REFUSED)]
    if parameter.defunct and release in parameter.defunct:
        return [Problem(parameter.name, f"Slurm {release} ignores it{instead or ': remove it'}", IGNORED)]
    return []


def _of_value(parameter: Parameter, value: str, release: str) -> list[Problem]:
    """Whether a release accepts a value."""
    instead = f", use {parameter.instead}" if parameter.instead else ""
    return [
        Problem(parameter.name, f"found {shown(value)}, {what}{instead}", effect)
        for effect, what in check_value(parameter.value, value, release)
    ]
