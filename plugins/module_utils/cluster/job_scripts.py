# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys `prologs`, `epilogs` and `private_tmp` of the cluster file, and the parts of the programs slurm-prolog and
slurm-epilog, which run the scripts on the nodes (docs/design/prologs.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from shlex import quote
from typing import Annotated, Any, TypedDict

from ..configuration.parameter_values import LIMITS
from ..formats.characters import one_line
from ..formats.directory_purposes import directory_error
from ..host.script_checks import check_script, content_of
from ..language.formatting import shown
from ..language.hostlist import expand
from .schema import Checker, choice, flag, kind_of, mapping, sequence, text, unknown, up_to

STAGES = {"prologs": "Prolog", "epilogs": "Epilog"}
"""The keys, with the parameter of slurm.conf that names the program."""

FAILURES = ("drain", "log")

DEFAULT_TIME = 60
"""Seconds for a script without `time_limit`."""

COMMANDS = ("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sstat")
"""Commands that ask slurmctld, which may wait for the prolog that asks (Slurm's documentation, prolog_epilog.html)."""

_LOCAL = re.compile(r"\bscontrol\s+show\s+host(names?|list(sorted)?)\b")
"""Commands of scontrol that ask nobody."""

_NAMED = re.compile(rf"(?<![\w./-])({'|'.join(COMMANDS)})(?![\w.-])|/({'|'.join(COMMANDS)})(?![\w./-])")
_COMMENT = re.compile(r"(^|\s)#.*", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9_-]{,30}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NUMBERED = re.compile(r"(.*?)([0-9]{0,9})")


def script_name(value: Any) -> str:
    """The name of a script, which its log and the reason of a drained node have."""
    if not _NAME.fullmatch(text(value)):
        raise ValueError("allowed: up to 31 lower case letters, digits, '-' and '_', such as scratch")
    return text(value)


def script(value: Any) -> str:
    """The text of a script that slurmctld sends to the nodes. Bytes that are not UTF-8 are surrogates in it.

    Raises ValueError (`ScriptError`) if it cannot run on any host.
    """
    if not isinstance(value, str):
        raise ValueError("allowed: the text of a script, which begins with its interpreter, such as #!/bin/sh")
    if "\0" in value:  # `_load_conf2list` in `src/common/fetch_config.c`, and packstr
        line = value.count("\n", 0, value.index("\0")) + 1
        raise ValueError(f"line {line}: found a NUL, where slurmctld ends the text, allowed: a text without it")
    check_script(content_of(value), elsewhere=True)
    return value


class ScriptEntry(TypedDict, total=False):
    """An entry of `prologs` or `epilogs`; the variable has `script` instead of `file`."""

    name: Annotated[str, script_name, "required"]
    file: Annotated[str, text]
    script: Annotated[str, script]
    partitions: Annotated[list[str], sequence]
    hardware: Annotated[list[str], sequence]
    gpus: Annotated[bool, flag]
    min_nodes: Annotated[int, up_to(2**16)]
    time_limit: Annotated[int, up_to(LIMITS["u16"] - 2)]  # its highest values mean something else to Slurm
    on_failure: Annotated[str, choice(FAILURES)]
    environment: Annotated[dict[str, str], mapping]


SCRIPT = kind_of(ScriptEntry)


def files(file: Any) -> list[str]:
    """The names of the files that the entries of a cluster file have, as far as they are well-formed."""
    lists = [file.get(key) for key in STAGES] if isinstance(file, Mapping) else []
    entries = [entry for found in lists if isinstance(found, list) for entry in found if isinstance(entry, Mapping)]
    return sorted({entry["file"] for entry in entries if isinstance(entry.get("file"), str)})


def check(
    checker: Checker,
    key: str,
    found: list[Any],
    known: Mapping[str, Collection[str]],
    slurm_conf: Mapping[str, Any],
    texts: Mapping[str, str | ValueError | None],
) -> list[ScriptEntry]:
    """The checked value of `prologs` or `epilogs`, where each entry has its text as `script`.

    known: the names that `partitions` and `hardware` may have. texts: the files of the cluster file, or why one
    cannot be read; variables have none.
    """
    entries: list[ScriptEntry] = []
    names: dict[str, int] = {}
    for i, value in enumerate(found):
        at = f"{key}[{i}]"
        entry = checker.check(SCRIPT, at, value)
        _text(checker, at, entry, value, texts)
        named = {"partitions": entry.get("partitions", []), "hardware": entry.get("hardware", [])}
        for list_key, allowed in known.items():
            for name in named[list_key]:
                if name not in allowed:
                    what = unknown("name", str(name), [*allowed], ", ".join(allowed))
                    checker.problem(f"{at}.{list_key}", f"found {shown(name)}, {what}")
        for name, content in entry.get("environment", {}).items():
            _variable(checker, f"{at}.environment", name, content)
        first = names.setdefault(entry.get("name", ""), i)
        if first != i and "name" in entry:
            checker.problem(
                f"{at}.name", f"'{entry['name']}' is defined twice, first in {checker.key(f'{key}[{first}]')}"
            )
        entries.append(entry)
    _times(checker, key, entries, slurm_conf)
    return entries


def _text(
    checker: Checker, at: str, entry: ScriptEntry, value: Any, texts: Mapping[str, str | ValueError | None]
) -> None:
    """Check that an entry has one text, and take that of its file."""
    given = [key for key in ("file", "script") if isinstance(value, Mapping) and value.get(key) is not None]
    if len(given) != 1 and isinstance(value, Mapping):
        checker.problem(at, f"found {' and '.join(given) or 'no script'}, allowed: file or script")
    name = entry.pop("file", None)
    if name is None:
        return
    content = texts.get(name)
    if isinstance(content, ValueError):
        checker.problem(f"{at}.file", f"found {shown(name)}, {content}")
        return
    if content is None:
        what = "a file next to the cluster file, or an absolute path" if checker.file else "script, the text"
        checker.problem(f"{at}.file", f"found {shown(name)}, allowed: {what}")
        return
    try:
        entry["script"] = script(content)
    except ValueError as error:
        checker.problem(f"{at}.file", f"{shown(name)}: {error}")


def _variable(checker: Checker, key: str, name: Any, content: Any) -> None:
    """Check a variable of a script's environment."""
    if not _VARIABLE.fullmatch(str(name)) or str(name).startswith(("SLURM", "LD_")):
        checker.problem(key, f"found {shown(name)}, allowed: names of variables that begin with neither SLURM nor LD_")
    if isinstance(content, bool) or not isinstance(content, (str, int, float)):
        checker.problem(f"{key}.{name}", f"found {shown(content)}, allowed: a text of one line")
        return
    try:
        one_line(content)
    except ValueError as error:
        checker.problem(f"{key}.{name}", f"{error}")


def _times(checker: Checker, key: str, entries: list[ScriptEntry], slurm_conf: Mapping[str, Any]) -> None:
    """Check that Slurm waits for all scripts of a stage."""
    for parameter in (f"{STAGES[key]}Timeout", "PrologEpilogTimeout"):
        limit = slurm_conf.get(parameter)
        needed = sum(entry.get("time_limit", DEFAULT_TIME) for entry in entries)
        if entries and str(limit).isdecimal() and int(str(limit)) <= needed:
            what = f"found {limit}, allowed: more than {needed}, the seconds of all {checker.key(key)}"
            checker.problem(f"slurm_conf.{parameter}", what)


def check_private_tmp(
    checker: Checker, found: Any, slurm_conf: Mapping[str, Any], slurm_files: Mapping[str, Any]
) -> str:
    """The checked value of `private_tmp`."""
    if not found:
        return ""
    if error := directory_error(str(found), "private_tmp"):
        checker.problem("private_tmp", f"found {shown(found)}, {error}")
    checker.refuse_derived("private_tmp", ("JobContainerType", "NamespaceType"), slurm_conf)
    if "job_container.conf" in slurm_files:
        what = f"is derived from {checker.key('private_tmp')}: remove one of them"
        checker.problem("slurm_files.job_container.conf", what)
    flags = slurm_conf.get("PrologFlags", "contain")
    listed = (",".join(map(str, flags)) if isinstance(flags, list) else str(flags)).lower()
    if "contain" not in listed and "x11" not in listed:
        checker.problem("slurm_conf.PrologFlags", f"found {shown(flags)}, allowed: with contain, for private_tmp")
    return str(found)


def script_warnings(prologs: Iterable[Mapping[str, Any]], epilogs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The scripts that name a command of Slurm, a sentence for each."""
    warnings = []
    for key, entries in (("prologs", prologs), ("epilogs", epilogs)):
        for entry in entries:
            code = _LOCAL.sub("", _COMMENT.sub("", str(entry.get("script", ""))))
            named = sorted({match[1] or match[2] for match in _NAMED.finditer(code)})
            if named:
                warnings.append(
                    f"{key}: the script {entry.get('name', '')} names {', '.join(named)}. A prolog or epilog that asks "
                    "slurmctld can wait for itself, and all nodes of a large job ask at once"
                )
    return warnings


def job_scripts(entries: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The entries as the program's template needs them, in order.

    condition: calls of the program's own functions; empty for all jobs. arguments: those of its function
    `run`. script: the text, which ends with a newline. end: a line that is not in the text.
    """
    hosts: dict[str, list[str]] = {}
    for node in nodes:
        hosts.setdefault(str(node.get("hardware", "")), []).extend(expand(str(node["hosts"])))
    return [
        {
            "name": entry["name"],
            "condition": " && ".join(_conditions(entry, hosts)),
            "arguments": " ".join(map(quote, _arguments(entry))),
            "script": _complete(entry["script"]),
            "end": _end(entry["name"], entry["script"]),
        }
        for entry in entries
    ]


def _conditions(entry: Mapping[str, Any], hosts: Mapping[str, list[str]]) -> Iterator[str]:
    """The conditions of an entry."""
    if "partitions" in entry:
        yield " ".join(["in_partition", *map(quote, map(str, entry["partitions"]))])
    if "min_nodes" in entry:
        yield f"has_nodes {entry['min_nodes']}"
    if "gpus" in entry:
        yield "has_gpus" if entry["gpus"] else "! has_gpus"
    if "hardware" in entry:
        names = [host for kind in entry["hardware"] for host in hosts.get(kind, [])]
        yield " ".join(["on_node", *(quote(part) for span in _ranges(names) for part in span)])


def _arguments(entry: Mapping[str, Any]) -> list[str]:
    """The arguments of `run`: name, seconds, what a failure does, and the environment."""
    environment = [f"{name}={value}" for name, value in entry.get("environment", {}).items()]
    return [entry["name"], str(entry.get("time_limit", DEFAULT_TIME)), entry.get("on_failure", "drain"), *environment]


def _complete(content: str) -> str:
    """A text that ends with a newline."""
    return content if content.endswith("\n") else f"{content}\n"


def _end(name: str, content: str) -> str:
    """A line that ends a text in the shell, and is not in it."""
    end = f"END_OF_{re.sub('[^A-Z0-9]', '_', name.upper())}"
    while end in content.split("\n"):
        end += "_"
    return end


def _ranges(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Names as the part before their last number, with the first and the last number; both empty without one.

    All numbers of a range have as many digits, so that n1 and n01 differ.
    """
    parts = [match.groups() for match in map(_NUMBERED.fullmatch, names) if match]
    numbered = sorted({(prefix, len(number), int(number or 0)) for prefix, number in parts})
    # Consecutive numbers have the same distance to their places.
    for (prefix, width, _distance), run in groupby(
        enumerate(numbered), lambda item: (item[1][0], item[1][1], item[1][2] - item[0])
    ):
        numbers = [number for _place, (_prefix, _width, number) in run]
        yield (prefix, *(f"{number:0{width}d}" if width else "" for number in (numbers[0], numbers[-1])))
