# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check Slurm's files together and against the host of slurmctld, for problems that no single file shows.

Each value has been checked by itself before (`parameters`). Refused findings prevent the start of slurmctld or slurmd,
make nodes INVAL, or make Slurm wait; the rest is ignored by Slurm, or does not do what it says. The functions and
manuals of Slurm that a rule follows are named in the rule, in the functions that it calls, or in its table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..configuration.conf_file import lines, read, table_of
from ..configuration.parameters import IGNORED, REFUSED, release_of
from . import address_cross_checks, gres_cross_checks, host_cross_checks, limit_cross_checks, node_cross_checks
from .configured_cluster import ConfiguredCluster, Finding, Host

Rule = Callable[[ConfiguredCluster], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    *node_cross_checks.RULES,
    *address_cross_checks.RULES,
    *host_cross_checks.RULES,
    *limit_cross_checks.RULES,
    *gres_cross_checks.RULES,
)
"""In the order in which their findings are shown."""


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
    return _sort_by_effect(finding for rule in RULES for finding in rule(cluster))


def _sort_by_effect(findings: Iterable[Finding]) -> tuple[list[str], list[str]]:
    """Findings as lines, those that are refused and those that are ignored."""
    result: dict[str, list[str]] = {REFUSED: [], IGNORED: []}
    for finding in findings:
        result[finding.effect].append(f"{finding.place}: {finding.key}: {finding.text}")
    return result[REFUSED], result[IGNORED]


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
    result, findings = dict(files), list[Finding]()
    for name in CHECKED_FILES:
        text = files.get(name, host.text(name))
        if text is not None:
            result[name] = _insert_included((name,), text, files, host, findings)
    return result, *_sort_by_effect(findings)


def _insert_included(
    path: tuple[str, ...], text: str, files: Mapping[str, str], host: Host, findings: list[Finding]
) -> str:
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
            why = "Slurm knows no wildcards" if "*" in name else "which does not exist or includes itself"
            what = f"found {name!r}, {why}, allowed: one file next to it"
            findings.append(Finding(path[-1], "Include", what, REFUSED))
            continue
        if "/" in name and "enable_configless" in files.get("slurm.conf", ""):
            what = f"found {name!r}, which configless hosts do not get, allowed: the name of a file next to slurm.conf"
            findings.append(Finding(path[-1], "Include", what, IGNORED))
        for _pairs in lines(name, included):  # names this file and its line where it cannot be read
            pass
        result.append(_insert_included((*path, name), included, files, host, findings))
    return "\n".join([*result, ""])
