# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the answers of a host: types, patterns and sizes of facts and results, and the characters of all texts.

An attacker may control a compute node. Its answers are written into files of the control host, shown to people and
compared with those of other hosts. So an answer of another type or form is refused.

Ansible takes more than data from the result of a module. `ansible_facts` are variables of the host, which win over
those of the inventory and the defaults of roles (unless `inject_facts_as_vars` is off), `ansible_stats` go to the
caller of the run, and texts are shown as they are. So each result passes `checked`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.client.advice import without_harmful_advice
from ..module_utils.cluster.variable_names import replaced_variables
from ..module_utils.doctor import evidence
from ..module_utils.language.formatting import indented, shown, visible
from ..module_utils.language.records import anything, check_of, checks_of, refused
from .results import fact_records, module_results

TEXT = 2**24
"""Characters of all texts of a result. The plan of the largest clusters has some millions. `answer_limit.LIMIT` is the
limit in bytes while an answer is read.
"""

LONGEST = 100_000
"""Characters of a message of a host, and of output that is no answer."""

ITEM = 16
"""Characters that each value counts for, in addition to its text."""

DEPTH = 24
"""How deep the values of a result may be nested."""


NAMES = vars(fact_records)
"""What the annotations of doctor's records name, which hosts get without these types."""

FACTS = {"slurm_host": check_of(fact_records.HostFact), "slurm_hardware": check_of(fact_records.HardwareFact)}
"""The checks of facts, built once, at import."""

FACTS_OF = {"slurm_host_facts": ("slurm_host", "slurm_hardware"), "slurm_hardware_facts": ("slurm_hardware",)}
"""The facts that a module returns. No other one returns any."""

# -- results of modules ----------------------------------------------------------------------------------------------


_OF_ANY = {"changed", "failed", "msg", "diff", "invocation", "ansible_facts"}
"""Ansible knows these keys, and there are other rules for them."""
RECORDS: dict[str, tuple[type[Any], ...]] = {
    **{module: (record,) for module, record in module_results.RESULTS.items()},
    "slurm_doctor_info": (module_results.Clock, evidence.ServerAnswer),
    "slurm_doctor_node_info": (module_results.Clock, evidence.NodeFacts),
}
RESULTS = {
    module: {name: check for each in records for name, check in checks_of(each, NAMES).items() if name not in _OF_ANY}
    for module, records in RECORDS.items()
}
"""The checks of what the modules of this collection return, by module and key."""

SOMETIMES = {module: record.__optional_keys__ - _OF_ANY for module, record in module_results.RESULTS.items()}
"""The keys that they do not always return. A module that fails need not return any."""

COMMON = checks_of(module_results.AnyResult)
"""The checks of the keys that any module may return."""

# The callback that shows a diff reads these keys. It would print `prepared` unchanged.
_DIFF = ("before", "after", "before_header", "after_header", "src_binary", "dst_binary", "src_larger", "dst_larger")
# Ansible shows these keys without a mark that they come from a host.
_SHOWN = ("msg", "warnings", "deprecations", "exception")
# These have the content of files, which is written elsewhere as it is.
_FILES = ("in_force", "files", "ansible_facts")

_PLAIN = (str, int, float, bool, type(None))


def printed(text: str) -> str:
    """The output of a command on a host, visible, before Ansible reads it.

    Ansible shows some of it at once, for example the warnings of a module, and output after its result. The
    result is JSON from the first line that begins with a brace.
    """
    # Before memory is used for its values: a list in a list takes 64 bytes.
    if len(text) > TEXT or sum(map(text.count, "[{,")) > TEXT // ITEM:
        return f"An answer with more than {TEXT} characters or {TEXT // ITEM} values"
    # Blanks of one line only: `\s*` would search all following blank lines again from each of them.
    start = re.search(r"^[^\S\n]*\{", text, re.MULTILINE)
    if not start:
        return visible(text[:LONGEST])
    try:
        result, end = json.JSONDecoder().raw_decode(text[start.end() - 1 :])
        shown = {key: _map_texts(value, indented) if key in _SHOWN else value for key, value in result.items()}
        answer = json.dumps(_map_texts(shown, visible))
    except (ValueError, RecursionError):
        return visible(text[:LONGEST])
    after = " ".join(text[start.end() - 1 + end :][:LONGEST].split())
    return visible(f"{text[: start.start()][-LONGEST:]}{answer}\n{after}")


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value with its texts changed, those of Ansible's messages (data classes) as well."""
    if isinstance(value, str):
        changed = change(value)
        return value if changed == value else changed
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_map_texts(item, change) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        texts = {field.name: _map_texts(getattr(value, field.name), change) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **texts)
    return value


def _too_large(value: Any) -> str:
    """The error in a value that is too large, is nested too deep, or is no JSON; Ansible's own messages are none."""
    left, todo = TEXT - ITEM, [(value, 0)]
    while todo:
        item, depth = todo.pop()
        if depth > DEPTH:
            return f"it is nested more than {DEPTH} times"
        parts: Sequence[Any] = ()
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, Mapping):
            parts = [*item, *item.values()]
        elif isinstance(item, (list, tuple)):
            parts = item
        elif dataclasses.is_dataclass(item):
            parts = [getattr(item, field.name) for field in dataclasses.fields(item)]
        elif not isinstance(item, (*_PLAIN, type)):
            return f"found a value of type {type(item).__name__}"
        # Before a tuple is built for each part: a host can answer with millions.
        left -= ITEM * len(parts)
        if left < 0:
            return f"it is larger than {TEXT} characters"
        todo += [(part, depth + 1) for part in parts]
    return ""


def _diff(value: Any) -> Any:
    """The keys of a diff that are shown; none if it is not a diff."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if key in _DIFF}
    return [_diff(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def checked(module: str, result: Any, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The result of a module as far as the control host takes it.

    It has no statistics, no undocumented keys and no facts that the module does not return, and its texts are visible.
    A result that is wrong is the failure of its host.

    Args:
        module: the module's name, without gpucluster.slurm if it is of this collection.
        result: the answer of the host, as Ansible has read it, with the keys that Ansible has added.
        arguments: the options of the module.
    """
    if wrong := result_errors(module, result, arguments or {}):
        what = "; ".join(wrong[:5])
        return {
            "failed": True,
            "msg": f"The host returned an invalid result for {module} and is left out of this run. "
            f"Has somebody taken it over? {what}",
        }
    taken = _select_keys(module, result)
    taken = {key: _map_texts(value, visible) for key, value in taken.items()}
    taken = {key: value if key in _FILES else _map_texts(value, without_harmful_advice) for key, value in taken.items()}
    taken |= {key: _map_texts(taken[key], indented) for key in _SHOWN if key in taken}
    taken |= {key: _beginning(taken[key]) for key in ("module_stdout", "module_stderr", "msg") if key in taken}
    # Python ends a line at more characters than a terminal does.
    taken |= {f"{name}_lines": taken[name].splitlines() for name in ("stdout", "stderr") if name in taken}
    return taken


def _select_keys(module: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The documented keys of a result, and of its diff those that are shown; of other collections' modules all keys."""
    own = RESULTS.get(module)
    known = {*(own or ()), *COMMON, "diff", "ansible_facts"}
    taken = {key: value for key, value in result.items() if own is None or key in known or key.startswith("_ansible_")}
    if "diff" in taken:
        taken["diff"] = _diff(taken["diff"])
    return taken


def _beginning(value: Any) -> Any:
    """A text of a host that is shown as it is: it must not fill the output of a run, its log and its reports."""
    if not isinstance(value, str) or len(value) <= LONGEST:
        return value
    return f"{value[:LONGEST]} ... ({len(value)} characters)"


def fact_problems(host: str, facts: Mapping[str, Any]) -> str:
    """The error in the facts that Ansible has of a host; empty without one.

    Modules of other collections return facts without any check. If one has the name of a variable of this
    collection, or has not the form that this collection's modules return, nothing more is sent to that host.

    Args:
        host: its name, for the error.
        facts: `ansible_facts` of the host.
    """
    if names := replaced_variables(facts):
        what = f"a fact named {shown(names[0])[1:-1]}, which is a variable of this collection or of a connection"
    elif wrong := [f"{name}: {error}" for name in FACTS if name in facts and (error := FACTS[name](facts[name]))]:
        what = f"a wrong fact, {wrong[0]}"
    else:
        return ""
    return (
        f"{host} returned {what}; nothing more is sent to it. Has somebody taken it over? Leave it out "
        "(--limit), and remove it from Ansible's cache of facts"
    )


def result_errors(module: str, result: Any, arguments: Mapping[str, Any]) -> list[str]:
    """The errors in the result of a module, as `KEY: error`; empty without any. Arguments as of `checked`."""
    if not isinstance(result, Mapping):
        return [refused(result, "a mapping")]
    if strange := [name for name in result if not isinstance(name, str)]:
        return [refused(strange[0], "a text as key")]
    if wrong := _too_large(result):
        return [wrong]
    own = RESULTS.get(module, {})
    checks = {**COMMON, **own}
    errors = [f"{name}: {what}" for name, value in result.items() if (what := checks.get(name, anything)(value))]
    complete = not any(result.get(key) for key in ("failed", "skipped", "unreachable", "ansible_job_id"))
    if complete:
        present = {*result, *SOMETIMES.get(module, ())}
        errors += [f"{name}: is missing" for name in own if name not in present]
    if "ansible_stats" in result:
        errors.append("ansible_stats: no task asks for them")
    return errors + _fact_errors(module, result, arguments if complete else None)


def _fact_errors(module: str, result: Mapping[str, Any], arguments: Mapping[str, Any] | None) -> list[str]:
    """The errors in the facts of a result; some facts are required if there are arguments."""
    facts = {} if result.get("ansible_facts") is None else result["ansible_facts"]
    if not isinstance(facts, Mapping):
        return [f"ansible_facts: {refused(facts, 'a mapping')}"]
    own = FACTS_OF.get(module, ())
    required = () if arguments is None else _required_facts(own, arguments)
    missing = [f"{name}: is missing" for name in required if name not in facts]
    wrong = [f"{name}: {what}" for name in own if name in facts and (what := FACTS[name](facts[name]))]
    # Ansible adds the interpreter that it has found.
    strange = [name for name in facts if name not in own and not str(name).startswith("discovered_interpreter_")]
    return missing + wrong + [f"{shown(name)}: is no fact of this module" for name in strange[:5]]


def _required_facts(own: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """The facts that a module has to return with these options; of several, the hardware only if it was asked for."""
    return [name for name in own if name != "slurm_hardware" or len(own) == 1 or _is_true(arguments)]


def _is_true(arguments: Mapping[str, Any]) -> bool:
    """Whether the module was asked for the hardware as well."""
    return bool(boolean(arguments.get("hardware", False), strict=False))
