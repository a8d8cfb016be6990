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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.client.advice import without_harmful_advice
from ..module_utils.cluster.variable_names import replaced_variables
from ..module_utils.doctor import results as doctor_results
from ..module_utils.language.formatting import indented, visible
from ..module_utils.results import module_results
from ..module_utils.results.fact_records import CORES, Empty, Form, HardwareFact, HostFact, Most, Pattern, Range

Check = Callable[[Any], str]
"""Returns the error in a value, or an empty text."""

SHOWN = 60
"""Characters of a wrong value that are shown."""

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


def _found(value: Any) -> str:
    """A value as it is shown: printable, and short."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _number(most: int, least: int = 0, none: bool = False) -> Check:
    def check(value: Any) -> str:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (value is None and none) or (whole and least <= value <= most):
            return ""
        return f"found {_found(value)}, allowed: a number from {least} to {most}{', or none' if none else ''}"

    return check


def _text(pattern: str, most: int = 200, none: bool = False) -> Check:
    def check(value: Any) -> str:
        if value is None and none:
            return ""
        if isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value, re.ASCII):
            return ""
        return f"found {_found(value)}, allowed: a text like {pattern}, of at most {most} characters"

    return check


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else f"found {_found(value)}, allowed: true or false"


def _list(of: Check, most: int = 4096, none: bool = False) -> Check:
    def check(value: Any) -> str:
        if value is None and none:
            return ""
        if not isinstance(value, list) or len(value) > most:
            return f"found {_found(value)}, allowed: a list of at most {most}"
        return next((f"[{i}]: {what}" for i, item in enumerate(value) if (what := of(item))), "")

    return check


def _mapping(key: Check, of: Check, most: int = 4096) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping) or len(value) > most:
            return f"found {_found(value)}, allowed: a mapping of at most {most}"
        return next((f"{_found(name)}: {what}" for name, item in value.items() if (what := key(name) or of(item))), "")

    return check


def _record(fields: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping):
            return f"found {_found(value)}, allowed: a mapping"
        for name, of in fields.items():
            if name not in value and name in optional:
                continue
            if name not in value:
                return f"{name}: is missing"
            if what := of(value[name]):
                return f"{name}: {what}" if not what.startswith("[") else f"{name}{what}"
        return "".join(f"found {_found(name)}, which is no such fact" for name in [*value] if name not in fields)[:200]

    return check


def _cores(value: Any) -> str:
    wrong = _text(r"([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?", 4096)(value)
    if not wrong and any(int(number) >= CORES for number in re.findall(r"[0-9]+", value)):
        wrong = f"found {_found(value)}, allowed: numbers below {CORES}"
    return wrong


def _any_text(value: Any) -> str:
    return "" if isinstance(value, str) else f"found {_found(value)}, allowed: a text"


def _line(value: Any) -> str:
    if isinstance(value, str) and "\n" not in value and len(value) <= 1000:
        return ""
    return f"found {_found(value)}, allowed: a text of one line, of at most 1000 characters"


def _seconds(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 40
    return "" if number else f"found {_found(value)}, allowed: seconds"


def _anything(_value: Any) -> str:
    return ""


def _or_none(check: Check) -> Check:
    return lambda value: "" if value is None else check(value)


def _or_empty(check: Check) -> Check:
    return lambda value: "" if value == {} else check(value)


_FORMS: dict[Form, Check] = {Form.CORES: _cores, Form.LINE: _line, Form.TEXT: _any_text, Form.SECONDS: _seconds}


def check_of(kind: Any, none: bool = False) -> Check:
    """The check of a type of `fact_records`, or of a field's type; a value may be null if it says so.

    Raises:
        TypeError: a text or number has no bounds, or the type is no other one of JSON.
    """
    bounds = getattr(kind, "__metadata__", ())
    kind = kind.__origin__ if bounds else kind
    inner = get_args(kind)
    if type(None) in inner:
        return check_of(inner[0], none=True)
    if Empty in inner:
        return _or_empty(check_of(inner[0]))
    if kind is Any:
        return _anything
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _record(checks_of(kind), getattr(kind, "__optional_keys__", ()))
    most = next((bound.items for bound in bounds if isinstance(bound, Most)), 4096)
    if get_origin(kind) in (list, tuple):  # JSON has lists alone
        return _list(check_of(inner[0]), most, none)
    if get_origin(kind) is dict:
        return _mapping(check_of(inner[0]), check_of(inner[1]), most)
    if kind is bool:
        return _truth
    return _check_of_bounds(kind, bounds, none)


def _check_of_bounds(kind: Any, bounds: Sequence[Any], none: bool) -> Check:
    """The check of a text or number by its bounds. Raises TypeError without any."""
    for bound in bounds:
        if isinstance(bound, Range):
            return _number(bound.most, bound.least, none)
        if isinstance(bound, Pattern):
            return _text(bound.pattern, bound.most, none)
        if isinstance(bound, Form):
            return _or_none(_FORMS[bound]) if none else _FORMS[bound]
    raise TypeError(f"{kind} has no bounds")


def checks_of(record: Any) -> dict[str, Check]:
    """The checks of a record's fields, by name."""
    return {name: check_of(hint) for name, hint in get_type_hints(record, include_extras=True).items()}


FACTS = {"slurm_host": check_of(HostFact), "slurm_hardware": check_of(HardwareFact)}
"""The checks of facts, built once, at import."""

FACTS_OF = {"slurm_host_facts": ("slurm_host", "slurm_hardware"), "slurm_hardware_facts": ("slurm_hardware",)}
"""The facts that a module returns. No other one returns any."""

# -- results of modules ----------------------------------------------------------------------------------------------


_OF_ANY = {"changed", "failed", "msg", "diff", "invocation", "ansible_facts"}
"""Ansible knows these keys, and there are other rules for them."""
_RECORDS: dict[str, Any] = {**module_results.RESULTS, **doctor_results.RESULTS}
RESULTS = {
    module: {name: check for name, check in checks_of(record).items() if name not in _OF_ANY}
    for module, record in _RECORDS.items()
}
"""The checks of what the modules of this collection return, by module and key."""

SOMETIMES = {module: record.__optional_keys__ - _OF_ANY for module, record in _RECORDS.items()}
"""The keys that they do not always return. A module that fails need not return any."""

COMMON: dict[str, Check] = {
    "changed": _truth,
    "failed": _truth,
    "skipped": _truth,
    "unreachable": _truth,
    "msg": _anything,
    "rc": _number(1 << 32, -(1 << 32)),
    "stdout": _any_text,
    "stderr": _any_text,
    "module_stdout": _any_text,
    "module_stderr": _any_text,
    "warnings": _list(_anything),
    "deprecations": _list(_anything),
    "exception": _anything,
    "invocation": _anything,
    "ansible_job_id": _line,
    "started": _anything,
    "finished": _anything,
    "results_file": _line,
    "put_back": _truth,  # a module that has failed has restored what it had changed
}
"""The keys that any module may return, or Ansible in its place. `msg` of some modules is not a text."""

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
        what = f"a fact named {_found(names[0])[1:-1]}, which is a variable of this collection or of a connection"
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
        return [f"found {_found(result)}, allowed: a mapping"]
    if strange := [name for name in result if not isinstance(name, str)]:
        return [f"found {_found(strange[0])}, allowed: a text as key"]
    if wrong := _too_large(result):
        return [wrong]
    own = RESULTS.get(module, {})
    checks = {**COMMON, **own}
    errors = [f"{name}: {what}" for name, value in result.items() if (what := checks.get(name, _anything)(value))]
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
        return [f"ansible_facts: found {_found(facts)}, allowed: a mapping"]
    own = FACTS_OF.get(module, ())
    required = () if arguments is None else _required_facts(own, arguments)
    missing = [f"{name}: is missing" for name in required if name not in facts]
    wrong = [f"{name}: {what}" for name in own if name in facts and (what := FACTS[name](facts[name]))]
    # Ansible adds the interpreter that it has found.
    strange = [name for name in facts if name not in own and not str(name).startswith("discovered_interpreter_")]
    return missing + wrong + [f"{_found(name)}: is no fact of this module" for name in strange[:5]]


def _required_facts(own: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """The facts that a module has to return with these options; of several, the hardware only if it was asked for."""
    return [name for name in own if name != "slurm_hardware" or len(own) == 1 or _is_true(arguments)]


def _is_true(arguments: Mapping[str, Any]) -> bool:
    """Whether the module was asked for the hardware as well."""
    return bool(boolean(arguments.get("hardware", False), strict=False))
