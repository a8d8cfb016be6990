# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a value means to Slurm, from a file or as slurmctld shows it: `KillWait=0x1e` is `30 sec`.

Two values of one meaning are no difference, neither between a file and slurmctld nor between two files. How values are
read: `src/common/parse_value.c` and `read_config.c`; how they are shown: `slurm_ctl_conf_2_key_pairs` in
`src/api/config_info.c`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from ..language.hostlist import expand
from .conf_file import Pairs
from .parameter_tables.choices import BOOLEANS, LEVELS
from .parameter_tables.display import ALIASES, COMPARED_AS, IMPLIED, PARSED
from .parameter_tables.releases import NO_NORMAL_APART
from .parameter_values import LIMITS
from .parameters import FILES, patch_of, release_of

NOTHING = ("", "(null)", "(null type)", "n/a", "none", "unknown")
_UNLIMITED = ("unlimited", "infinite", "-1")
_MEMORY = ("defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode")
"""Of these nothing is all."""
ALL_MEMORY = 2**63 - 1
"""UNLIMITED without the bit that tells memory of CPUs from that of nodes."""
_TRES = {"billing", "cpu", "energy", "fs/disk", "gres/gpumem", "gres/gpuutil", "mem", "node", "pages", "vmem"}
"""What is accounted for whatever the file says, the two of GPUs with `gres/gpu`."""
PATHS = ("path", "dir", "program")
"""The kinds of values that are paths."""
_TIME = re.compile(r"(?:(\d+)-)?(\d*)(?::(\d*))?(?::(\d*))?")
_WHOLE = re.compile(r"\+?(0x[0-9a-f]+|\d+)(k?)", re.I)
_GRES = re.compile(r"([^:(]+)(?::([^:(]*[^\d:(][^:(]*))??(?::no_consume)?(?::(\d+)([KMGTP]?))?(?:\(.*\))?", re.I)


def patch_release_of(version: str) -> str:
    """The release and patch release of a version, to compare with others: 25.11.2 for 25.11.2-1, 25.11 for 25.11.

    Raises:
        ValueError: the version is not known.
    """
    release, patch = release_of(version), patch_of(version)
    return release if patch is None else f"{release}.{patch}"


def _is_from(first: str, release: str) -> bool:
    """Whether a release or patch release is the first one or a later one; 25.11 is before all of its patch releases."""
    return [int(part) for part in release.split(".")] >= [int(part) for part in first.split(".")]


@lru_cache(maxsize=4096)
def meaning(table: str, key: str, value: str, release: str) -> object:
    """The meaning of a value to Slurm, from a file or as shown."""
    kind, _blank, rest = FILES[table][key].value.partition(" ")
    kind = COMPARED_AS.get(key, kind)
    text = value.strip()
    word = text.lower()
    if kind in LIMITS:
        number = number_in(word, LIMITS[kind])
        return number or (LIMITS[kind] if key in _MEMORY else 0)
    if kind in _BY_KIND:
        return _BY_KIND[kind](word)
    if kind in PATHS:
        text = one_spelling(text)
    if kind == "hosts" and word not in NOTHING:
        return frozenset(expand(text))
    if kind in ("one", "flags") or rest in PARSED:
        return _words(rest, word, release)
    if kind in ("plugin", "plugins"):
        return _plugins(rest, word)
    return "" if word in NOTHING else text


def one_spelling(path: str) -> str:
    """A path in its only spelling: without `//`, `/.` and a slash at its end, and with /run for /var/run, a link on all
    platforms. `..` may be behind another link, and stays."""
    if not path.startswith("/"):
        return path
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/" + "/".join(parts[1:] if parts[:2] == ["var", "run"] else parts)


def minutes_in(word: str) -> int:
    """A time in minutes, which Slurm rounds up; -1: no limit, or none at all."""
    seconds = _seconds(word)
    return seconds if seconds < 0 else -(-seconds // 60)


def _names(word: str) -> frozenset[str]:
    """Names without an order."""
    return frozenset() if word in NOTHING else frozenset(filter(None, word.split(",")))


def _level(word: str) -> str:
    """A level of messages by its name."""
    return LEVELS[min(int(word), len(LEVELS) - 1)] if word.isdigit() else word


def _plugins(kind: str, word: str) -> tuple[str, ...]:
    """The names of plugins. Slurm has names for having no topology, and an order of its own for plugins of tasks."""
    names = [name for name in (part.rpartition("/")[2] for part in word.split(",")) if name not in NOTHING]
    if kind == "topology":
        names = [name for name in names if name not in ("default", "flat")]
    return tuple(sorted(names) if kind == "task" else names)


def number_in(word: str, highest: int) -> int:
    """A whole number of any base, with a unit behind it where it is shown."""
    if word in _UNLIMITED:
        return highest
    match = _WHOLE.match(word)
    if not match:
        return 0
    digits = match[1]
    base = 16 if digits.startswith("0x") else 8 if re.fullmatch("0[0-7]+", digits) else 10
    number = int(digits, base) * (1024 if match[2] else 1)
    return highest if number >= highest - 1 or number == ALL_MEMORY else number


def is_yes(word: str) -> bool:
    """Whether a word switches something on."""
    return word.lower() in BOOLEANS[:4]


def _seconds(word: str) -> int:
    """A time: minutes, or more fields as in `1-02:03:04`; -1: no limit, or none at all."""
    match = _TIME.fullmatch(word)
    if not match:
        return -1
    fields = [int(field or 0) for field in match.groups()[1:]]
    if match[1] is None and match[4] is None:
        fields = [0, *fields[:2]]
    hours, minutes, seconds = fields
    total = ((int(match[1] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return total if total < 2**32 - 60 else -1


_BY_KIND: Mapping[str, Callable[[str], object]] = {
    "bool": is_yes,
    "level": _level,
    "minutes": minutes_in,
    "names": _names,
    "seconds": _seconds,
    "tres": lambda word: frozenset(word.split(",")) - _TRES,
    "truth": lambda word: number_in(word, LIMITS["u16"]) != 0,
}
"""The meaning of a value in small letters, by the kinds for which it depends on nothing else."""


def _words(name: str, value: str, release: str) -> frozenset[str]:
    """The words of a value, those that come with them, and each by the name that Slurm shows."""
    words = value.split(",")
    if name == "LogTimeFormat" and {*words} <= {"", "format_stderr"}:
        words.append("iso8601_ms")
    aliases = _find_aliases(name, release)
    shown = _add_implied(name, {part for word in words for part in aliases.get(word, word).split(",")})
    if name == "HealthCheckNodeState" and shown <= {"cycle", "reboot_only", "start_only"}:
        shown = _add_implied(name, {*shown, "any"})
    if name == "PrivateData":
        shown = {word.rstrip("s") for word in shown}
    if name == "PriorityFlags" and not _is_from(NO_NORMAL_APART, release):
        shown = {word.partition("_normal_")[0] for word in shown}
    return frozenset(shown.difference(NOTHING))


def _find_aliases(name: str, release: str) -> dict[str, str]:
    """What a release shows for words of a set: other words, with commas."""
    aliases: dict[str, str] = {}
    for since, renamed in ALIASES.get(name, {}).items():
        if _is_from(since, release):
            aliases |= renamed
    return aliases


def _add_implied(name: str, words: set[str]) -> set[str]:
    """Words of a set with all that come with them."""
    implied = IMPLIED.get(name, {})
    complete, added = {*words}, {*words}
    while added:
        added = {other for word in added for other in implied.get(word, "").split()} - complete
        complete |= added
    return complete


def by_key(pairs: Pairs) -> dict[str, str]:
    """Pairs by key in small letters; what has two names by one of them.

    The pairs are those that Slurm reads (`conf_file.by_order_of_names`).
    """
    names = {"feature": "features", "priority": "prioritytier", "procs": "cpus", "shared": "oversubscribe"}
    found = {names.get(key.lower(), key.lower()): value for key, value in pairs}
    both = [value for key, value in pairs if key.lower() == "priority"]  # the tier and the factor
    return {**found, **({"priorityjobfactor": both[-1]} if both else {})}


def gres_counts(text: str) -> dict[str, dict[str, int]]:
    """Counts by name and type."""
    counts: dict[str, dict[str, int]] = {}
    for part in re.split(r",(?![^(]*\))", text.lower()):
        match = _GRES.fullmatch(part)
        if match and part not in NOTHING and (count := int(match[3] or 1) * 1024 ** "\0kmgtp".index(match[4] or "\0")):
            types = counts.setdefault(match[1], {})
            types[match[2] or ""] = types.get(match[2] or "", 0) + count
    return counts
