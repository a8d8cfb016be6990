# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of users of a directory service (LDAP or AD), compared between hosts.

Each host answers with a checksum of the ids, so that the cost does not grow with the product of users and hosts. Only
if these answers differ, one host of each answer is asked for the ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..language.formatting import limited
from ..language.hostlist import fold
from .messages import host_lines

SHOWN = 20
"""The number of names that a text has."""

_LINE = re.compile(r"([^:]+):[^:]*:([0-9]{1,10}):([0-9]{1,10}):.*")


def lowered(names: Iterable[str]) -> list[str]:
    """Names of users as Slurm keeps them."""
    return [name.lower() for name in names]


def ids_of(passwd: str) -> dict[str, str]:
    """`UID:GID` by the name of the user, from lines of passwd(5)."""
    found = (_LINE.fullmatch(line) for line in passwd.split("\n"))
    return {match[1].lower(): f"{match[2]}:{match[3]}" for match in found if match}


def absent_users(names: Sequence[str], known: Mapping[str, Any]) -> str:
    """The users of the policy who do not exist, as text; empty without any."""
    unknown = [name for name in names if name not in known]
    more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
    return f"users of the policy who do not exist: {', '.join(unknown[:SHOWN])}{more}" if unknown else ""


def _hosts_by_answer(answers: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The hosts of each answer, in their order."""
    hosts: dict[tuple[Any, Any], list[str]] = {}
    for host, answer in answers.items():
        hosts.setdefault((answer["checksum"], answer["unknown"]), []).append(host)
    return list(hosts.values())


def directory_hosts(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The hosts to be asked for the ids: the first one of each answer; none if all hosts agree and know all users.

    Args:
        answers: the fact `directory` of each host (module slurm_host_facts).
    """
    groups = _hosts_by_answer(answers)
    if len(groups) == 1 and answers[groups[0][0]]["unknown"] == 0:
        return []
    return [hosts[0] for hosts in groups]


def directory_differences(
    answers: Mapping[str, Mapping[str, Any]], passwd: Mapping[str, str], names: Sequence[str]
) -> dict[str, list[str]]:
    """What differs between hosts.

    Args:
        answers: as of `directory_hosts`.
        passwd: what getent says on the hosts that were asked; those that did not answer have an empty text.
        names: the users.

    Returns:
        conflicts: users who have other ids on other hosts, as texts. remarks: users whom hosts do not know, and hosts
        that did not answer.
    """
    wanted = lowered(names)
    ids: dict[str, dict[str, list[str]]] = {name: {} for name in wanted}
    said: dict[str, list[str]] = {}
    for hosts in _hosts_by_answer(answers):
        known = ids_of(passwd.get(hosts[0], ""))
        for name in wanted:
            if name in known:
                ids[name].setdefault(known[name], []).extend(hosts)
        silent = answers[hosts[0]]["unknown"] is None
        text = "the directory did not answer, so ids were not compared" if silent else absent_users(wanted, known)
        said.update((host, [text] if text else []) for host in hosts)
    conflicts = [f"user {name} has {_places(found)}" for name, found in ids.items() if len(found) > 1]
    return {"conflicts": limited(conflicts), "remarks": host_lines(said)}


def _places(found: Mapping[str, Sequence[str]]) -> str:
    """Ids with their hosts, those of the most hosts first."""
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    parts = ((*ids.split(":"), fold(list(hosts))) for ids, hosts in ordered)
    return ", and ".join(f"uid {uid} and gid {gid} on {hosts}" for uid, gid, hosts in parts)
