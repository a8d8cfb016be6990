# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of scontrol: its records, and the nodes that are not in the wanted state.

The lines of `scontrol --oneliner show` are the same in Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .commands import CommandError, output, run

CLEARED = "Not responding (resumed)"
"""The reason with which nodes are resumed.

With jobs or without a database they keep the old reason, and Slurm replaces a node's reason by its own only if it
begins like this (`_drain_node` in `src/slurmctld/node_mgr.c`).
"""

Record = Mapping[str, str]
"""A record of Slurm, by key."""


def show(what: str, *name: str) -> list[Record]:
    """The records of all objects. Raises CommandError."""
    return records(output(["scontrol", "--oneliner", "show", what, *name]))


def records(text: str) -> list[Record]:
    """The records in lines of `Key=value`; `(null)` is empty. The reason of a node has all that is behind it.

    Persons write texts behind the other values, which may look like them, and have further lines, after blanks.
    """
    found = []
    for line in text.split("\n"):
        fields, is_node, reason = line.partition(" Reason=") if line.startswith("NodeName=") else (line, "", "")
        record: dict[str, str] = {}
        if not line.startswith(" "):
            for pair in re.split(r"\s+(?=[A-Z]\w*=)", fields.strip()):
                key, equals, value = pair.partition("=")
                if equals:
                    record.setdefault(key, "" if value == "(null)" else value)
        found.append(record | ({"Reason": reason.rstrip()} if is_node else {}))
    return [record for record in found if record]


# -- controllers -----------------------------------------------------------------------------------------------------


def controllers(ping: str) -> dict[str, bool]:
    """Whether each controller answers, by its name in SlurmctldHost and in this order, from `scontrol ping`."""
    found = re.findall(r"^Slurmctld\(\w+\) at (\S+) is (\w+)", ping, re.MULTILINE)
    return {name: state == "UP" for name, state in found}


def serving() -> str:
    """The controller that serves, by its name in SlurmctldHost; empty if none does.

    The first that answers serves, because the primary takes control back when it starts. Another one answers a ping
    also while it stands by, and refuses all other requests until it has taken over (`src/slurmctld/backup.c`).
    """
    found = controllers(run(["scontrol", "ping"], seconds=30).output)
    first = next((name for name, up in found.items() if up), "")
    if first and first != next(iter(found)) and not run(["scontrol", "show", "licenses"], seconds=20).output.strip():
        return ""
    return first


# -- nodes -----------------------------------------------------------------------------------------------------------


def node_record(name: str) -> Record:
    """The record of a node; empty if slurmctld does not know it. Raises CommandError."""
    answer = run(["scontrol", "--oneliner", "show", "node", name])
    if answer.status and "not found" not in answer.message:
        raise CommandError(f"scontrol show node {name}: {answer.message}")
    # scontrol takes other names of a host as well.
    return next((each for each in records(answer.output) if each.get("NodeName") == name), {})


def own_node() -> str:
    """The name of this node; slurmd passes it on to what it starts. Raises CommandError without one."""
    names = output(["scontrol", "show", "aliases"], seconds=15).split()
    if not names:
        raise CommandError("this host is no node of Slurm")
    return names[0]


class Reason(NamedTuple):
    """Why a node is drained or down; who has set it, and when. Empty texts if that is not known."""

    text: str = ""
    user: str = ""
    since: str = ""


_REASON = re.compile(
    r"(.*?)(?:\s\[([^\[\]]*)@([^\[\]@]*)\](?=\s{8}|\s(?:Comment|Extra|InstanceId|InstanceType|ReservationName)=|$)|$)",
    re.DOTALL,
)
"""User and time are at the end, since a person's words may look alike. Behind them are further lines of the reason,
after eight blanks, and other fields (`slurm_sprint_node_table` in `src/api/node_info.c`)."""


def reason_of(node: Record) -> Reason:
    """The reason of a node."""
    found = _REASON.match(node.get("Reason", ""))
    return Reason(*found.groups("")) if found else Reason()


def to_change(nodes: Sequence[Record], state: str, reason: str) -> list[Record]:
    """The nodes that are not in the wanted state:

    `drain`, `down`, or `resume`, which with a reason selects only nodes that have it.
    """
    found = []
    for node in nodes:
        flags = {*re.sub(r"[^A-Z_+]", "", node["State"]).split("+")}
        down, drained = bool(flags & {"DOWN"}), bool(flags & {"DRAIN"})
        if state == "resume":
            wrong = (down or drained or bool(flags & {"FAIL"})) and reason in ("", reason_of(node).text)
        else:
            wrong = not drained if state == "drain" else not down
        if wrong:
            found.append(node)
    return found
