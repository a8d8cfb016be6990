# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of clusters, QOS, accounts and users in Slurm, and the meanings of their values.

Names, short forms and kinds are those of sacctmgr(1) and of `sacctmgr_set_assoc_rec` and `_set_rec` in `src/sacctmgr`.
A value has one text for each meaning, so that values are compared as texts: `1-00:00:00`, `24:00:00` and 1440 are one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..language.formatting import AS_BOOLEAN, short, shown
from ..language.spelling import nearest

NAME = re.compile(r"(?![+-])(?:(?![\"#%',=\[\\\]`|])[!-~]){1,255}")
"""A name that means the same in commands of sacctmgr, in files that it loads, and in slurmdbd, in all releases.

Commands expand brackets (`slurm_addto_char_list` in `src/common/slurm_protocol_defs.c`) and part lists and names at
the other signs, files have escapes and comments (`_get_next_line` in `src/sacctmgr/file_functions.c`). slurmdbd loses
backslashes, and finds the accounts that it removes with `like`, for which `%` is any text. The database keeps 255
bytes, and takes `cafe` and `caf\u00e9` for one name.
"""

NAMES = "a name of ASCII letters, digits and signs, without blanks and \" # % ' , = [ \\ ] ` |, no + or - at its start"
"""NAME as text."""

_GPUS = "gres/gpu"
_COUNT = 2**32 - 3
"""The highest number (uint32_t); the two above mean that nothing is set (NO_VAL and INFINITE in slurm.h)."""
_TEXT = 1000
"""Most bytes of a text; a line of a file to load has up to 4,096 (BUFFER_SIZE in file_functions.c)."""


@dataclass(frozen=True)
class Limit:
    """Something that can be set."""

    name: str
    """Slurm's term."""
    kind: str
    """A key of KINDS."""
    field: str = ""
    """Its column in `sacctmgr show`, where that is not the name."""
    aliases: tuple[str, ...] = ()
    """Slurm's other terms for it."""
    default: str = ""
    """Its meaning while it is not set."""
    choices: tuple[str, ...] = ()
    unset: str = "-1"
    """The value that unsets it."""

    @property
    def column(self) -> str:
        """Its column in `sacctmgr show`."""
        return self.field or self.name


# -- values ----------------------------------------------------------------------------------------------------------


def _count(value: Any) -> str:
    """A whole number."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"0*\d{1,10}", text) or int(text) > _COUNT:
        raise ValueError(f"a whole number up to {_COUNT}")
    return str(int(text))


def _factor(value: Any) -> str:
    """A number, of which Slurm keeps and shows six places."""
    if isinstance(value, bool) or not re.fullmatch(r"\d+(\.\d+)?", str(value)):
        raise ValueError("a number")
    return f"{float(value):f}".rstrip("0").rstrip(".")


def _share(value: Any) -> str:
    """Shares of the parent's, or `parent`: those of the parent itself."""
    if str(value).lower() == "parent":
        return "parent"
    try:
        return _count(value)
    except ValueError:
        raise ValueError(f"a whole number up to {_COUNT}, or parent") from None


_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def _tres(value: Any) -> str:
    """Trackable resources: a mapping, or text as Slurm has it. Memory is in MiB, or with a unit."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(count)) for name, count in value.items()]
    else:
        pairs = [(name, count) for name, _equals, count in (part.partition("=") for part in str(value).split(","))]
    counts = {}
    for name, count in pairs:
        match = re.fullmatch(r"(\d+)([KMGTP]?)", count, re.IGNORECASE)
        if not NAME.fullmatch(name) or (not match and count not in ("-1", "None")):
            raise ValueError("resources such as cpu=8,mem=64G,gres/gpu=2")
        if match:
            counts[name] = _convert_to_unit_of(name, int(match[1]), match[2].lower())
    return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))


def _gpu_hours(value: Any) -> str:
    """GPU hours, as the minutes of GPUs that Slurm counts."""
    return f"{_GPUS}={60 * int(_count(value))}"


def _convert_to_unit_of(name: str, number: int, unit: str) -> int:
    """A count of a resource in the unit in which Slurm keeps it (`slurmdb_get_tres_base_unit`, slurmdb_defs.c)."""
    if not unit:
        return number
    base = _UNITS["m"] if name in ("mem", "gres/gpumem") or name.startswith("bb/") else 0
    bits = 10 * (_UNITS[unit] - base)
    return number << bits if bits >= 0 else number >> -bits


_TIME = re.compile(r"(?:(\d+)-(\d+)(?::(\d+)(?::(\d+))?)?|(\d+):(\d+):(\d+)|(\d+)(?::(\d+))?)")


def seconds(text: str) -> int:
    """Seconds of a time as Slurm has it (`time_str2secs` in `src/common/parse_time.c`). A bare number is minutes."""
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError("a time such as 1-12:00:00 (in quotes), or minutes")
    parts = [int(part or 0) for part in match.groups()]
    days = parts[0]
    hours, minutes, rest = parts[1:4] if match[1] else parts[4:7] if match[5] else [0, parts[7], parts[8]]
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _text_of(duration: int) -> str:
    """Seconds as Slurm shows them."""
    minutes, second = divmod(duration, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def _minutes(value: Any) -> str:
    """A time in whole minutes, rounded up."""
    return _text_of(-(-seconds(str(value)) // 60) * 60)


def _time(value: Any) -> str:
    """A time to the second."""
    return _text_of(seconds(str(value)))


def _grace(value: Any) -> str:
    """A time to the second; a bare number is seconds."""
    text = str(value)
    try:
        return _text_of(int(text) if text.isdigit() else seconds(text))
    except ValueError:
        raise ValueError("seconds, or a time such as 00:01:30") from None


def _names(value: Any) -> str:
    """Names without order: a list, or text with commas. Slurm keeps those of accounts and QOS in small letters."""
    given = value if isinstance(value, (list, tuple)) else value.split(",") if isinstance(value, str) else [value]
    stripped = [name.strip(" ") if isinstance(name, str) else name for name in given]
    names = [name_of(name) for name in stripped if name != ""]
    return ",".join(sorted({name.lower() for name in names if name}))


def name_of(value: Any) -> str:
    """A name, or a whole number that is one. YAML reads other texts, such as `on` and `1.10`, as something else.

    Raises:
        ValueError: it is none; the message has the allowed values.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{NAMES}, in quotes where YAML reads it as something else")
    if not NAME.fullmatch(str(value)):
        raise ValueError(NAMES)
    return str(value)


def _word(value: Any) -> str:
    """One name."""
    names = _names(value)
    if "," in names:
        raise ValueError("one name")
    return names


def _text(value: Any) -> str:
    """A text, which Slurm keeps in small letters (`strip_quotes`)."""
    text = str(value).strip(" ")  # 26.05 does so
    if isinstance(value, bool):
        raise ValueError(f"text; {AS_BOOLEAN}")
    if isinstance(value, (list, Mapping)) or re.search(r'["|\\]', text) or not text.isprintable():
        raise ValueError("text without quotation marks, bars, backslashes and line breaks")
    if len(text.encode()) > _TEXT:
        raise ValueError(f"text of up to {_TEXT} bytes")
    # tolower(3), which Slurm calls for each byte, leaves letters that are not in ASCII as they are.
    return re.sub("[A-Z]+", lambda capitals: capitals[0].lower(), text.replace("'", "`"))


KINDS: Mapping[str, Callable[[Any], str]] = {
    "count": _count,
    "factor": _factor,
    "share": _share,
    "tres": _tres,
    "gpu_hours": _gpu_hours,
    "minutes": _minutes,
    "time": _time,
    "grace": _grace,
    "word": _word,
    "names": _names,
    "members": _names,
    "text": _text,
}


LEFT_ALONE = ("text", "members")
"""The kinds of limits that stay as they are where a policy does not name them, also with `purge`."""


def meaning(limit: Limit, value: Any) -> str:
    """The one text for the meaning of a value. Null, an empty value and -1 mean that the limit is not set.

    Raises:
        ValueError: what is found, and what is allowed.
    """
    if value is None or value in ("", [], {}) or str(value) in ("-1", "[]"):
        return limit.default
    try:
        text = KINDS[limit.kind](value)
        return (_chosen(text, limit.choices) if limit.choices else text) or limit.default
    except ValueError as error:
        raise ValueError(f"{limit.name}: found {shown(value)}, allowed: {error}") from None


def _chosen(names: str, choices: Iterable[str]) -> str:
    """Names as they are spelled among the choices."""
    known = {choice.lower(): choice for choice in choices}
    if not {*names.split(",")} <= {*known}:
        raise ValueError(", ".join(choices))
    return ",".join(known[name] for name in names.split(","))


def new_value(limit: Limit, before: str, after: str) -> str:
    """The value that makes Slurm change one meaning to another one."""
    if limit.kind == "tres":  # those that are named change
        gone = {pair.partition("=")[0] for pair in before.split(",") if pair}
        gone -= {pair.partition("=")[0] for pair in after.split(",")}
        return ",".join([*filter(None, [after]), *(f"{name}=-1" for name in sorted(gone))])
    if limit.kind == "grace":  # get_uint in src/sacctmgr/common.c
        days, _dash, clock = after.rpartition("-")
        return str(seconds(f"{days or 0}-{clock}"))
    return after or limit.unset


# -- what there is to set --------------------------------------------------------------------------------------------

_OF_ASSOCIATIONS = (
    Limit("Fairshare", "share", field="Share", aliases=("Share", "Shares"), default="1"),
    Limit("GrpJobs", "count"),
    Limit("GrpJobsAccrue", "count"),
    Limit("GrpSubmitJobs", "count", field="GrpSubmit", aliases=("GrpSubmit",)),
    Limit("GrpTRES", "tres"),
    Limit("GrpTRESMins", "tres"),
    Limit("GrpTRESRunMins", "tres"),
    Limit("GrpWall", "minutes"),
    Limit("MaxJobs", "count"),
    Limit("MaxJobsAccrue", "count"),
    Limit("MaxSubmitJobs", "count", field="MaxSubmit", aliases=("MaxSubmit",)),
    Limit("MaxTRESPerJob", "tres", field="MaxTRES", aliases=("MaxTRES", "MaxTRESPJ")),
    Limit("MaxTRESMinsPerJob", "tres", field="MaxTRESMins", aliases=("MaxTRESMins", "MaxTRESMinsPJ")),
    Limit("MaxTRESPerNode", "tres", aliases=("MaxTRESPN",)),
    Limit("MaxWall", "minutes", aliases=("MaxWallDurationPerJob", "MaxWallPJ")),
    Limit("MinPrioThresh", "count", aliases=("MinPrioThreshold",)),
    Limit("Priority", "count"),
    Limit("QOS", "names", aliases=("QOSLevel",), unset=""),
    Limit("DefaultQOS", "word"),
)

_OF_QOS = (
    Limit("Description", "text"),
    Limit(
        "Flags",
        "names",
        choices=(
            "DenyOnLimit",
            "EnforceUsageThreshold",
            "NoDecay",
            "NoReserve",
            "OverPartQOS",
            "PartitionMaxNodes",
            "PartitionMinNodes",
            "PartitionTimeLimit",
            "Relative",
            "RequiresReservation",
            "UsageFactorSafe",
        ),
    ),
    Limit("GraceTime", "grace", default="00:00:00"),
    Limit("GrpJobs", "count"),
    Limit("GrpJobsAccrue", "count"),
    Limit("GrpSubmitJobs", "count", field="GrpSubmit", aliases=("GrpSubmit",)),
    Limit("GrpTRES", "tres"),
    Limit("GrpTRESMins", "tres"),
    Limit("GrpTRESRunMins", "tres"),
    Limit("GrpWall", "minutes"),
    Limit("LimitFactor", "factor"),
    Limit("MaxJobsAccruePerAccount", "count", field="MaxJobsAccruePA", aliases=("MaxJobsAccruePA",)),
    Limit("MaxJobsAccruePerUser", "count", field="MaxJobsAccruePU", aliases=("MaxJobsAccruePU",)),
    Limit("MaxJobsPerAccount", "count", field="MaxJobsPA", aliases=("MaxJobsPA",)),
    Limit("MaxJobsPerUser", "count", field="MaxJobsPU", aliases=("MaxJobsPU", "MaxJobs")),
    Limit("MaxSubmitJobsPerAccount", "count", field="MaxSubmitPA", aliases=("MaxSubmitJobsPA", "MaxSubmitPA")),
    Limit("MaxSubmitJobsPerUser", "count", field="MaxSubmitPU", aliases=("MaxSubmitJobsPU", "MaxSubmitPU")),
    Limit("MaxTRESMinsPerJob", "tres", field="MaxTRESMins", aliases=("MaxTRESMins", "MaxTRESMinsPJ")),
    Limit("MaxTRESPerAccount", "tres", field="MaxTRESPA", aliases=("MaxTRESPA",)),
    Limit("MaxTRESPerJob", "tres", field="MaxTRES", aliases=("MaxTRES", "MaxTRESPJ")),
    Limit("MaxTRESPerNode", "tres", aliases=("MaxTRESPN",)),
    Limit("MaxTRESPerUser", "tres", field="MaxTRESPU", aliases=("MaxTRESPU",)),
    # The long forms are newer than 22.05.
    Limit("MaxTRESRunMinsPA", "tres", aliases=("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPerAcct")),
    Limit("MaxTRESRunMinsPU", "tres", aliases=("MaxTRESRunMinsPerUser",)),
    Limit("MaxWall", "minutes", aliases=("MaxWallDurationPerJob", "MaxWallPJ")),
    Limit("MinPrioThresh", "count", aliases=("MinPrioThreshold",)),
    Limit("MinTRESPerJob", "tres", field="MinTRES", aliases=("MinTRES",)),
    Limit("Preempt", "names", unset=""),
    Limit("PreemptExemptTime", "time"),
    Limit(
        "PreemptMode",
        "word",
        default="cluster",
        choices=("cluster", "cancel", "gang", "requeue", "suspend", "within"),
        unset="cluster",
    ),
    Limit("Priority", "count", default="0"),
    Limit("UsageFactor", "factor", default="1"),
    Limit("UsageThreshold", "factor"),
)

_OF_ACCOUNTS = (
    Limit("Parent", "word", field="ParentName", default="root"),
    Limit("Coordinators", "members", aliases=("Coordinator",)),
    Limit("Organization", "text", aliases=("Org",)),
    Limit("Description", "text"),
    *_OF_ASSOCIATIONS,
)

_OF_USERS = (
    Limit("DefaultAccount", "word"),
    Limit("AdminLevel", "word", field="Admin", default="None", choices=("None", "Operator", "Administrator")),
    Limit("WCKeys", "members", aliases=("WCKey",)),
)

LIMITS: Mapping[str, Mapping[str, Limit]] = {
    kind: {limit.name: limit for limit in limits}
    for kind, limits in {
        "cluster": _OF_ASSOCIATIONS,
        "qos": _OF_QOS,
        "account": _OF_ACCOUNTS,
        "user": _OF_USERS,
        "association": _OF_ASSOCIATIONS,
    }.items()
}
"""The limits that can be set, by kind of entity and name."""


def of_all_clusters(kind: str, name: str) -> bool:
    """Whether a limit is one for all clusters of a database, and not one of the associations of a cluster."""
    return kind == "qos" or name in ("AdminLevel", "Coordinators", "Description", "Organization")


GPU_HOURS = Limit("gpu_hours", "gpu_hours")
"""GPU hours, which a policy can have instead of minutes of GPUs in GrpTRESMins. Slurm does not know them."""


def of_policies(kind: str) -> list[Limit]:
    """The limits that a policy can have."""
    return [*LIMITS[kind].values(), *([GPU_HOURS] if "GrpTRESMins" in LIMITS[kind] else [])]


_FOUND = {
    kind: {term.lower(): limit for limit in of_policies(kind) for term in (limit.name, *limit.aliases)}
    for kind in LIMITS
}


_ONLY_SACCTMGR = ("defaultwckey", "flags", "newname", "rawusage")
"""Terms of sacctmgr(1) in small letters that no policy has."""

_ELSEWHERE = {
    "groups": "only an account of a cluster file has groups of people",
    "gpus": "a number of GPUs is GrpTRES: {gres/gpu: NUMBER}",
    "limits": "limits stand in the entry itself, such as GrpTRES: {gres/gpu: 4}",
}
"""How to write what policies of other programs have, by its name in small letters."""


def find(kinds: Iterable[str], key: str, others: Iterable[str] = ()) -> tuple[str, Limit]:
    """The limit that a key is of, without case, and the kind of entity that has it.

    others: keys that are no limits, to be named if one of them was meant.

    Raises:
        ValueError: none of the kinds has it; names the nearest one.
    """
    kinds = list(kinds)
    for kind in kinds:
        if key.lower() in _FOUND[kind]:
            return kind, _FOUND[kind][key.lower()]
    if key.lower() in _ONLY_SACCTMGR:
        raise ValueError(f"{short(key)}: a policy cannot have it, sacctmgr(1) sets it")
    if key.lower() in _ELSEWHERE:
        raise ValueError(f"{short(key)}: unknown to Slurm: {_ELSEWHERE[key.lower()]}")
    meant = nearest(key, [*(limit.name for kind in kinds for limit in of_policies(kind)), *others])
    raise ValueError(f"{short(key)}: unknown to Slurm" + (f", did you mean {meant!r}?" if meant else ""))


def move_gpu_hours(settings: dict[str, str]) -> None:
    """Move the GPU hours among the meanings of an entity's limits into GrpTRESMins.

    Raises:
        ValueError: GrpTRESMins has minutes of GPUs as well.
    """
    hours = settings.pop(GPU_HOURS.name, None)
    if hours is None:
        return
    pairs = [pair for pair in (*settings.get("GrpTRESMins", "").split(","), hours) if pair]
    if len({pair.partition("=")[0] for pair in pairs}) < len(pairs):
        raise ValueError(f"{GPU_HOURS.name}: found with {_GPUS} in GrpTRESMins, allowed: one of both")
    settings["GrpTRESMins"] = ",".join(sorted(pairs))
