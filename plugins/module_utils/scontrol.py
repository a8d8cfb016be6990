# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""scontrol: reservations and nodes, what is asked for them, and in what that differs from what is there.

The lines of `scontrol --oneliner show` are the same in Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.limits import KINDS, seconds
from ansible_collections.gpucluster.slurm.plugins.module_utils.spelling import nearest

COMMAND = 60
"""Seconds that a command may take."""

CLEARED = "Not responding (resumed)"
"""The reason that nodes are resumed with. Where there are jobs or no database they keep the old one, and Slurm gives a
node its own only in the place of one that begins like this (`_drain_node` in `src/slurmctld/node_mgr.c`)."""

Record = Mapping[str, str]
"""What Slurm shows of one thing, by key."""

Ask = Callable[[Sequence[str]], str]
"""Runs a command, and returns what it prints to its standard output, whether it succeeds or not."""


class ScontrolError(Exception):
    """A command that Slurm has refused, with its words, or something that it would."""


class Scontrol:
    """scontrol on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def run(self, *words: str) -> str:
        """What a command says. Raises ScontrolError with the words of one that fails."""
        command = ["timeout", str(COMMAND), "scontrol", *words]
        status, output, errors = self.module.run_command(
            command, environ_update={"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}
        )
        if status:
            said = f"no answer in {COMMAND} s" if status == 124 else f"{errors.strip()} {output.strip()}".strip()
            raise ScontrolError(f"{' '.join(command[2:])}: {said}")
        return str(output)

    def show(self, what: str, *name: str) -> list[Record]:
        """The records of what there is. Raises ScontrolError."""
        return records(self.run("--oneliner", "show", what, *name))


def records(text: str) -> list[Record]:
    """The records in lines of `Key=value`; `(null)` is empty."""
    found = []
    for line in text.splitlines():
        pairs = [pair.partition("=") for pair in re.split(r"\s+(?=[A-Z]\w*=)", line.strip())]
        found.append({key: value.replace("(null)", "") for key, _equals, value in pairs if _equals})
    return [record for record in found if record]


# -- controllers -----------------------------------------------------------------------------------------------------


def controllers(ping: str) -> dict[str, bool]:
    """Whether each controller answers, by its name in SlurmctldHost and in this order, from `scontrol ping`."""
    found = re.findall(r"^Slurmctld\(\w+\) at (\S+) is (\w+)", ping, re.MULTILINE)
    return {name: state == "UP" for name, state in found}


def serving(ask: Ask) -> str:
    """The controller that serves, by its name in SlurmctldHost; empty if none does.

    The first that answers serves, because the primary takes control back when it starts. Another one answers a ping
    also while it stands by, and refuses all other requests until it has taken over (`src/slurmctld/backup.c`).
    """
    found = controllers(ask(["timeout", "30", "scontrol", "ping"]))
    first = next((name for name, up in found.items() if up), "")
    if first and first != next(iter(found)) and not ask(["timeout", "20", "scontrol", "show", "licenses"]).strip():
        return ""
    return first


# -- reservations ----------------------------------------------------------------------------------------------------

RESERVATION = {
    "Accounts": "names",
    "BurstBuffer": "text",
    "CoreCnt": "count",
    "Duration": "duration",
    "EndTime": "moment",
    "Features": "text",
    "Flags": "flags",
    "Groups": "names",
    "Licenses": "names",
    "MaxStartDelay": "duration",
    "NodeCnt": "count",
    "Nodes": "hosts",
    "PartitionName": "text",
    "StartTime": "moment",
    "Users": "names",
}
"""Parameters of a reservation (scontrol(1)) that it shows, and the kinds of their values."""

_DERIVED = {"SPEC_NODES", "ALL_NODES"}
"""Flags that follow from Nodes."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d)(:\d\d)?)?")


def _meaning(kind: str, value: str) -> str:
    """The one text for what a value means. Raises ValueError."""
    if kind == "hosts":
        return ",".join(sorted(expand(value)))
    if kind == "flags":
        return ",".join(sorted({*value.upper().split(",")} - _DERIVED - {""}))
    if kind == "moment":
        match = _MOMENT.fullmatch(value)
        return f"{match[1]}T{match[2] or '00:00'}{match[3] or ':00'}" if match else ""
    if kind == "duration":
        return value.upper() if value.upper() in ("INFINITE", "UNLIMITED") else KINDS["minutes"](value)
    if kind == "names":
        return ",".join(sorted({*value.split(",")} - {""}))
    return KINDS[kind](value) if kind == "count" else value


def _given(value: Any) -> str:
    """A value as text: lists may be lists, and YAML makes times of some texts."""
    if isinstance(value, date):
        return value.isoformat()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


_RECURRING = {"HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"}
"""Flags that let Slurm move a reservation on when it is over (scontrol(1))."""


def over(wanted: Mapping[str, Any], now: datetime) -> bool:
    """Whether a reservation has ended for good, so that Slurm would refuse to make it. Times are the host's own."""
    given = {key.lower(): _given(value) for key, value in wanted.items()}
    start, end = (_meaning("moment", given.get(key, "")) for key in ("starttime", "endtime"))
    length = _meaning("duration", given["duration"]) if "duration" in given else "INFINITE"
    if _RECURRING & {*given.get("flags", "").upper().split(",")} or not (end or (start and length[0].isdigit())):
        return False
    last = datetime.fromisoformat(end or start)
    return (last if end else last + timedelta(seconds=seconds(length))) < now


class Difference(NamedTuple):
    """A parameter that is not as wanted."""

    key: str
    before: str
    after: str
    given: str
    """As it was given."""


def differences(wanted: Mapping[str, Any], there: Record | None) -> list[Difference]:
    """In what a reservation differs from what is wanted. Times such as V(now+1hour) only matter to a new one.

    Raises:
        ScontrolError: with all parameters and values that Slurm would not take.
    """
    errors, found = [], []
    names = {name.lower(): name for name in RESERVATION}
    for key, value in wanted.items():
        given = _given(value)
        name = names.get(key.lower())
        if name is None or re.search(r"[\s\"']", given):
            meant = nearest(key, RESERVATION) if name is None else None
            hint = f", did you mean {meant!r}?" if meant else ""
            errors.append(f"{key}: unknown to Slurm{hint}" if name is None else f"{key}: found {value!r}")
            continue
        kind = RESERVATION[name]
        try:
            after = _meaning(kind, given)
            before = "" if there is None or not there.get(name) else _meaning(kind, there[name])
        except ValueError as error:
            errors.append(f"{name}: found {value!r}, allowed: {error}")
            continue
        everything = kind == "hosts" and given.upper() == "ALL" and there and "ALL_NODES" in there.get("Flags", "")
        relative = kind == "moment" and not after
        if there is None or (before != after and not relative and not everything):
            found.append(Difference(name, before, given if relative else after, given))
    if errors:
        raise ScontrolError("\n".join(errors))
    return found


def updates(changes: Iterable[Difference]) -> list[list[str]]:
    """The words that tell scontrol to make changes, for each command. Flags are added and taken away one by one."""
    words, further = [], []
    for change in changes:
        if change.key == "Flags":
            before, after = ({*flags.split(",")} - {""} for flags in (change.before, change.after))
            further += [[f"Flags+={','.join(sorted(after - before))}"]] if after - before else []
            further += [[f"Flags-={','.join(sorted(before - after))}"]] if before - after else []
        else:
            words.append(f"{change.key}={change.given}")
    return ([words] if words else []) + further


# -- nodes -----------------------------------------------------------------------------------------------------------


def reason_of(node: Record) -> str:
    """Why a node is drained or down, without who said so and when."""
    return re.sub(r"\s*\[[^\]]*\]$", "", node.get("Reason", ""))


def to_change(nodes: Sequence[Record], state: str, reason: str) -> list[Record]:
    """The nodes that are not as wanted: `drain`, `down`, or `resume`, with a reason only those that have it."""
    found = []
    for node in nodes:
        flags = {*re.sub(r"[^A-Z_+]", "", node["State"]).split("+")}
        down, drained = bool(flags & {"DOWN"}), bool(flags & {"DRAIN"})
        if state == "resume":
            wrong = (down or drained or bool(flags & {"FAIL"})) and reason in ("", reason_of(node))
        else:
            wrong = not drained if state == "drain" else not down
        if wrong:
            found.append(node)
    return found
