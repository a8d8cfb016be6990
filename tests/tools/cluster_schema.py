# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write roles/slurm/files/cluster.schema.json, with which editors complete and check cluster files.

usage: python tests/tools/cluster_schema.py [--check]

It follows from the kinds of mappings in `module_utils/cluster`, the tables of Slurm's parameters, and the
documentation of the keys and of role slurm_accounting. A key that these do not document, and a type that
this program does not know, end it. With --check nothing is written, and the exit status is 1 if the file is not
current.

The schema refuses nothing that the model accepts, with one exception: a list where Slurm takes one value. Rules about
several keys, and values of which releases differ, are left to the model. JSON Schema is that of draft 7, which the YAML
language server knows.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.doc_fragments.cluster_file import OPTIONS as OPTIONS_OF_KEYS
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.limits import of_policies
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.reservations import RESERVATION
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import (
    access_key,
    address_checks,
    backup_key,
    database_server_key,
    firewall_plans,
    job_scripts,
    keys,
    machines_key,
    mail_key,
    monitoring_key,
    people_key,
    public_keys,
    report_key,
    rest_key,
    schema,
    storage_key,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameter_values, parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.choices import (
    BOOLEANS,
    CHOICES,
    FLAGS,
    HINTS,
    LEVELS,
    PLUGINS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.package_names import package
from generated_files import json_text, run

Schema = dict[str, Any]

ROOT = Path(__file__).parents[2]
FILE = ROOT / "roles/slurm/files/cluster.schema.json"

# -- texts -----------------------------------------------------------------------------------------------------------


def plain(markup: str) -> str:
    """Ansible's markup as plain text: editors show descriptions as they are."""
    return re.sub(r"\b[CVOEMPB]\(([^)#]*)[^)]*\)", r"\1", markup)


def lines(description: Any) -> list[str]:
    """The paragraphs of a description."""
    return [description] if isinstance(description, str) else list(description)


def described(found: Schema, description: str) -> Schema:
    """A schema with its description in front."""
    return {"description": plain(description), **found}


def about(key: str, option: Mapping[str, Any]) -> str:
    """The text about a key in the documentation of the option that has it: its own, or the first about it."""
    own = option.get("suboptions", {}).get(key)
    if own:
        return " ".join(lines(own["description"]))
    paragraphs = lines(option["description"])
    first = [text for text in paragraphs if re.match(rf"(C\(\w+\)(, | and ))*C\({key}\)", text)]
    found = first or [text for text in paragraphs if re.search(rf"[CVO]\({key}\b", text)]
    if not found:
        sys.exit(f"cluster_schema: the documentation of {option['name']} does not name the key {key}")
    return found[0]


def documented() -> dict[str, dict[str, Any]]:
    """The keys as options of the inventory plugin, and the options of role slurm_accounting as `accounting.KEY`."""
    options = dict(OPTIONS_OF_KEYS)
    roles = yaml.safe_load((ROOT / "roles/slurm_accounting/meta/argument_specs.yml").read_text())
    for name, option in roles["argument_specs"]["main"]["options"].items():
        options[f"accounting.{name.removeprefix('slurm_accounting_')}"] = option
    return {name: {**option, "name": name} for name, option in options.items()}


OPTIONS = documented()

# -- values ----------------------------------------------------------------------------------------------------------

TEXT: Schema = {"type": ["string", "number"], "pattern": r"^(?![\s\S]*\{\{)"}  # templates are not evaluated
FLAG: Schema = {"type": "boolean"}
LIST: Schema = {"type": "array"}
MAPPING: Schema = {"type": "object"}
FILE_OF_YAML: Schema = {"type": "string", "pattern": r"^.+\.ya?ml$"}
WHOLE = r"\s*\+?(0[xX][0-9a-fA-F]+|[0-9]*)[kK]?"
"""A whole number in a text, as `parameter_values` reads it."""
UNLIMITED = ("UNLIMITED", "INFINITE")
UNITS = {"s": "seconds", "us": "microseconds", "min": "minutes", "MiB": "MiB", "nodes/min": "nodes per minute"}


def pattern_of(expression: re.Pattern[str]) -> str:
    """A pattern that has to match all of a text, as JavaScript writes it, which knows no `{,9}`."""
    return f"^(?:{expression.pattern.replace('{,', '{0,')})$"


def matching(expression: re.Pattern[str]) -> Schema:
    """A text of a pattern."""
    return {"type": ["string", "number"], "pattern": pattern_of(expression)}


def count(highest: int | None = None) -> Schema:
    """A whole number from 1. JSON has no exact numbers above 2^53."""
    limit = {"maximum": highest} if highest is not None and highest < 2**53 else {}
    return {"type": "integer", "minimum": 1, **limit}


def list_of(items: Schema, least: int = 0) -> Schema:
    """A list."""
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def or_list(value: Schema) -> Schema:
    """A value, or a list of such values."""
    return {"anyOf": [value, list_of(value)]}


def insensitive(word: str) -> str:
    """The pattern of a word in any case."""
    return "".join(
        f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else re.escape(letter) for letter in word
    ).replace(r"\-", "-")


def one_of(words: Iterable[str], others: Iterable[str] = ()) -> Schema:
    """A word of Slurm's, which is in any case; YAML reads some as booleans or numbers. others: further patterns."""
    names = [*words]
    lower = [name.lower().rstrip(":*") for name in names]
    allowed: list[Any] = [name.rstrip(":*") for name in names]
    allowed += [True] if "yes" in lower else []
    allowed += [False] if "no" in lower else []
    allowed += [int(name) for name in lower if name.isdecimal()]
    patterns = [insensitive(name.rstrip(":*")) + (".*" if name[-1] in ":*" else "") for name in names]
    pattern = f"^({'|'.join([*patterns, *others])})$"
    return {"anyOf": [{"enum": allowed}, {"type": "string", "pattern": pattern}]}


def words_of(table: Mapping[str, str], name: str) -> list[str]:
    """The words of a set, of all releases."""
    return [*parameter_values.words(table[name])]


def value_of(kind: str) -> Schema:
    """The schema of the second column of a table of parameters."""
    name, _blank, rest = kind.partition(" ")
    if name in parameter_values.LIMITS:
        limit = re.fullmatch(r"(\d+)\.\.(\d*)", rest)
        highest = int((limit and limit[2]) or parameter_values.LIMITS[name])
        number: Schema = {"type": "integer", "minimum": int(limit[1]) if limit else 0}
        if highest < 2**53:
            number["maximum"] = highest
        text = "|".join([WHOLE, *map(insensitive, UNLIMITED)])
        return {"anyOf": [number, {"type": "string", "pattern": f"^({text})$"}]}
    if name == "bool":
        return one_of(BOOLEANS)
    if name == "one":
        return one_of(words_of(CHOICES, rest))
    if name == "level":
        # Slurm reads what begins with a digit as a number.
        return {"anyOf": [one_of(LEVELS, ["[0-9].*"]), {"type": "number", "minimum": 0}]}
    if name == "flags" and rest != "ResourceLimits":
        words = words_of(FLAGS, rest)
        several = f"({'|'.join(map(insensitive, words))})"
        element = one_of(words)
        return {
            "anyOf": [*element["anyOf"], {"type": "string", "pattern": f"^,*({several}(,+|$))*$"}, list_of(element)]
        }
    if name == "hints":
        return or_list({"anyOf": [{"enum": words_of(HINTS, rest)}, TEXT, FLAG]})
    # A plugin can be a site's own, so its name is of any form, too.
    return or_list(TEXT if name in parameter_values.TEXTS else {"anyOf": [TEXT, FLAG]})


def parameter_schema(table: str, key: str) -> Schema:
    """The schema of a parameter, with what the tables know of it."""
    parameter = parameters.FILES[table][key.lower()]
    kind, _blank, rest = parameter.value.partition(" ")
    file = table if table.endswith(".conf") else f"a {table} line"
    sentences = [f"{parameter.name} of {file}."]
    if rest in UNITS:
        sentences.append(f"In {UNITS[rest]}.")
    elif kind in ("minutes", "seconds"):
        sentences.append(f"In {kind}, or a time such as 1-12:00:00.")
    elif kind in ("plugin", "plugins"):
        sentences.append(f"Slurm comes with {', '.join(words_of(PLUGINS, rest))}.")
    if str(parameter.releases) != "all releases":
        sentences.append(f"Slurm {parameter.releases}.")
    for span, what in ((parameter.defunct, "ignored"), (parameter.refused, "refused")):
        sentences += [f"It is {what} by Slurm {span}."] if span else []
    sentences += [f"Replaced by {parameter.instead}."] if parameter.instead else []
    # The model does not check values that Slurm ignores.
    value = or_list({"anyOf": [TEXT, FLAG]}) if parameter.defunct else value_of(parameter.value)
    if key in parameters.REPEATED and table == "slurm.conf":
        value = or_list(value) if "array" not in str(value) else value
    return described(value, " ".join(sentences))


# -- types -----------------------------------------------------------------------------------------------------------

_HOSTS = {**TEXT, "minLength": 1}

TYPES: dict[Callable[..., Any], Schema] = {
    schema.text: TEXT,
    schema.cluster_name: matching(schema.CLUSTER_NAME),
    schema.name: matching(schema.NAME),
    schema.partition_name: matching(schema.PARTITION_NAME),
    schema.hostlist: _HOSTS,
    schema.host: matching(schema.NAME),
    schema.addresses: _HOSTS,
    schema.partition_nodes: TEXT,
    schema.files: {**TEXT, "pattern": "^\\s*/"},
    schema.autodetect: {"enum": [*schema.AUTODETECT]},
    schema.generation: {"type": "integer", "minimum": 1, "maximum": keys.NEWEST_GENERATION},
    schema.gres_flags: {"anyOf": [{"type": "string"}, list_of({"enum": [*schema.GRES_FLAGS]}, 1)]},
    schema.cores: or_list(TEXT),
    schema.gres_conf: list_of(TEXT, 1),
    schema.links: or_list(TEXT),
    schema.mig: {"type": "object", "additionalProperties": count()},
    schema.count: count(),
    schema.flag: FLAG,
    schema.texts: list_of(TEXT),
    schema.mapping: MAPPING,
    schema.mapping_or_file: {"anyOf": [MAPPING, FILE_OF_YAML]},
    schema.groups: {"anyOf": [MAPPING, LIST]},
    schema.sequence: LIST,
    schema.anything: {},
    schema.repository: TEXT,
    schema.key_of_repository: {},
    schema.file_name: TEXT,
    schema.url: {"type": "string", "pattern": "^(https?|ftp|file)://[!-~]+$"},
    schema.sha256: {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"},
    people_key.user_name: TEXT,
    people_key.identity: {
        "type": "integer",
        "anyOf": [{"minimum": low, "maximum": high} for low, high in people_key.IDS],
    },
    people_key.full_name: TEXT,
    people_key.home: {"type": "string", "pattern": "^/[^/]+/"},
    people_key.shell: {"type": "string", "pattern": "^/"},
    public_keys.public_key: {"type": "string"},
    people_key.account: {"anyOf": [TEXT, MAPPING]},
    people_key.limits: MAPPING,
    schema.any_text: TEXT,
    package: TEXT,
    storage_key.export: {"type": "string", "pattern": "^/"},
    storage_key.directory: {"type": "string", "pattern": "^/"},
    storage_key.kind_of_mount: TEXT,
    storage_key.source: TEXT,
    storage_key.options: or_list(TEXT),
    storage_key.hosts: _HOSTS,
    access_key.group_names: list_of(TEXT),
    backup_key.target: TEXT,
    backup_key.times: TEXT,
    database_server_key.server: matching(database_server_key.SERVER),
    database_server_key.identifier: matching(database_server_key.IDENTIFIER),
    machines_key.address: {"type": "string", "pattern": "\\{host\\}"},
    machines_key.user: TEXT,
    mail_key.relay: TEXT,
    mail_key.sender: {"type": "string", "pattern": "^[^@]+@[^@]+$"},
    mail_key.domain: TEXT,
    mail_key.user: TEXT,
    monitoring_key.retention: {"type": "string", "pattern": "^[0-9]+[ywdhms]"},
    report_key.address: TEXT,
    report_key.header: {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9-]*$"},
    report_key.users: list_of(TEXT),
    report_key.web_address: {"type": "string", "pattern": "^https?://"},
    job_scripts.script_name: TEXT,
    job_scripts.script: {"type": "string", "pattern": "^#!"},
    firewall_plans.port_list: or_list(TEXT),
    firewall_plans.networks: list_of(TEXT, 1),
    firewall_plans.node_networks: list_of(TEXT, 1),
}
"""The schema of each type that is a function."""


def word_of(allowed: Sequence[str]) -> Schema:
    """One of these words; forms fill in an only one by themselves."""
    return {"enum": [*allowed]} if len(allowed) > 1 else {"const": allowed[0]}


FACTORIES: dict[str, Callable[..., Schema]] = {
    "up_to": lambda highest: count(highest),
    "parameter_of": lambda table, key: parameter_schema(table, key),
    "parameter_lines": lambda key, names: or_list(
        mapping_of({name: parameter_schema(key, name) for name in names}, [key])
    ),
    "or_automatic": lambda typed: either(type_schema(typed)),
    "word": word_of,
    "choice": word_of,
    "each": lambda element: list_of(type_schema(element)),
    "_name_of": lambda: TEXT,
    # ARG005: the arguments are called by their names, and the schema needs only some of them.
    "_limit": lambda right, allowed: {"description": f"Allowed: {allowed}.", **TEXT},  # noqa: ARG005
    "_places": lambda names, place: list_of({"anyOf": [{"enum": [*names]}, TEXT]}, 1),  # noqa: ARG005
}
"""The schema of types that a function returns, by its name; the arguments are those of that function."""


def either(typed: Schema) -> Schema:
    """A parameter that can follow from the hardware."""
    description = typed.pop("description")
    return described(
        {"anyOf": [{"const": schema.AUTO}, typed]}, f"{description} {schema.AUTO}: it follows from the hardware."
    )


def type_schema(typed: Callable[..., Any]) -> Schema:
    """The schema of a type."""
    if typed in TYPES:
        return {**TYPES[typed]}
    factory = typed.__qualname__.partition(".")[0]
    if factory not in FACTORIES:
        sys.exit(f"cluster_schema: the type {typed.__qualname__} is unknown, give it a schema in {__file__}")
    schema_of = FACTORIES[factory]
    known = inspect.getclosurevars(typed).nonlocals
    return schema_of(**{name: known.get(name) for name in inspect.signature(schema_of).parameters})


# -- mappings --------------------------------------------------------------------------------------------------------


def or_null(value: Schema) -> Schema:
    """A value, or none: a key without a value is a missing one."""
    if not {*value} - {"description"}:
        return value
    description = {"description": value["description"]} if "description" in value else {}
    rest = {key: found for key, found in value.items() if key != "description"}
    if "type" in rest and "anyOf" not in rest:
        types = rest["type"] if isinstance(rest["type"], list) else [rest["type"]]
        return {**description, **rest, "type": [*types, "null"]}
    return {**description, "anyOf": [*(rest["anyOf"] if [*rest] == ["anyOf"] else [rest]), {"type": "null"}]}


def mapping_of(keys: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """A mapping with these keys and no others. Keys that are not required can have no value."""
    needed = [*required]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
        "properties": {key: value if key in needed else or_null(value) for key, value in keys.items()},
    }


def kind_of(kind: schema.Kind[Any], option: str = "", nested: Mapping[str, Schema] | None = None) -> Schema:
    """A kind of mapping.

    option: the option of the inventory plugin that documents its own keys. nested: schemas of keys that are mappings
    and lists of other kinds.
    """
    keys: dict[str, Schema] = {}
    for key, spec in {**kind.own, **kind.spec}.items():
        value = (nested or {}).get(key) or type_schema(spec["type"])
        keys[key] = described(value, about(key, OPTIONS[option])) if option and key in kind.own else value
    return mapping_of(keys, [key for key in kind.own if key in kind.required])


def named(keys: Iterable[str], nested: Mapping[str, Schema], needed: Iterable[str] = ("name",)) -> Schema:
    """An entry with a name, and with Slurm's keys in any case; only the usual case is offered."""
    offered: dict[str, Schema] = {**nested, **{key: {} for key in keys}}
    exact, others = "|".join(nested), "|".join(map(insensitive, sorted(set(keys))))
    return {
        "type": "object",
        "required": [*needed],
        "properties": {key: or_null(value) for key, value in offered.items()},
        "propertyNames": {"pattern": f"^({exact}|{others})$" if exact else f"^({others})$"},
    }


def terms(*kinds: str) -> list[str]:
    """The names of the limits of some kinds of entities, with their aliases."""
    return [term for kind in kinds for limit in of_policies(kind) for term in (limit.name, *limit.aliases)]


def accounting() -> dict[str, Schema]:
    """The keys of the policy."""
    nested = {"name": TEXT, "accounts": list_of({"$ref": "#/definitions/account"}), "groups": list_of(TEXT)}
    account = named(terms("account"), nested)
    place = named(terms("association"), {"name": TEXT, "partition": TEXT})
    user = named(terms("user", "association"), {"name": TEXT, "accounts": list_of({"anyOf": [TEXT, place]})})
    reservation = named(RESERVATION, {"name": TEXT, "state": {"enum": ["present", "absent"]}})
    return {
        "definitions": {"account": {"anyOf": [TEXT, account]}},
        "limits": named(terms("cluster"), {}, ()),
        "qos": list_of({"anyOf": [TEXT, named(terms("qos"), {"name": TEXT})]}),
        "accounts": list_of({"$ref": "#/definitions/account"}),
        "users": list_of({"anyOf": [TEXT, user]}),
        "reservations": list_of(reservation),
        "purge": FLAG,
    }


def packages() -> Schema:
    """Where packages come from."""
    keys = {
        "repository": TEXT,
        "key": {"anyOf": [TEXT, kind_of(schema.REPOSITORY_KEY)]},
        "files": list_of(kind_of(schema.PACKAGE_FILE), 1),
    }
    both = {key: described(value, about(key, OPTIONS["packages"])) for key, value in keys.items()}
    return {
        "anyOf": [
            {"enum": [*schema.PACKAGE_SOURCES]},
            mapping_of({key: both[key] for key in ("repository", "key")}, ["repository", "key"]),
            mapping_of({"files": both["files"]}, ["files"]),
        ]
    }


def constructed() -> dict[str, str]:
    """Descriptions of the keys of Ansible's fragment `constructed`, which the inventory plugin does not document."""
    own = ("strict", "compose", "groups", "keyed_groups", "leading_separator", "use_extra_vars")
    return {key: f"Ansible's option {key} of inventory plugins (ansible.builtin.constructed)." for key in own}


def document() -> Schema:
    """The whole schema."""
    policy = accounting()
    gres = kind_of(schema.GRES, "hardware")
    machine = kind_of(schema.HARDWARE, "hardware", {"gres": list_of(gres)})
    script = list_of(kind_of(job_scripts.SCRIPT, "prologs"))
    definitions = {**policy.pop("definitions"), "script": script["items"]}
    script = list_of({"$ref": "#/definitions/script"})
    mount = kind_of(storage_key.STORAGE, "storage", {"packages": list_of(kind_of(storage_key.PACKAGE))})
    nested: dict[str, Schema] = {
        "hardware": {
            "type": "object",
            "propertyNames": {"pattern": pattern_of(schema.NAME)},
            "additionalProperties": machine,
        },
        "nodes": list_of(kind_of(schema.NODE, "nodes")),
        "partitions": list_of(kind_of(schema.PARTITION, "partitions")),
        "addresses": {"type": "object", "additionalProperties": _HOSTS},
        "further_addresses": list_of(kind_of(address_checks.FURTHER, "further_addresses")),
        "packages": packages(),
        "users": list_of(kind_of(people_key.USER, "users", {"limits": named(terms("user", "association"), {}, ())})),
        "people": {"type": "string", "pattern": r"^(directory|.+\.(csv|ya?ml))$"},
        "storage": list_of(mount),
        "accounting": {
            "anyOf": [
                mapping_of(
                    {
                        key: described(policy[key], " ".join(lines(OPTIONS[f"accounting.{key}"]["description"])))
                        for key in schema.ACCOUNTING.own
                    }
                ),
                FILE_OF_YAML,
            ]
        },
        "access": kind_of(access_key.ACCESS, "access", {"login_limits": kind_of(access_key.LOGIN_LIMITS)}),
        "backup": kind_of(backup_key.BACKUP, "backup", {"keep": kind_of(backup_key.KEEP, "backup")}),
        "database_server": kind_of(database_server_key.DATABASE_SERVER, "database_server"),
        "machines": kind_of(machines_key.MACHINES, "machines"),
        "mail": kind_of(mail_key.MAIL, "mail"),
        "monitoring": {"anyOf": [matching(schema.NAME), kind_of(monitoring_key.MONITORING, "monitoring")]},
        "report": {
            "anyOf": [
                matching(schema.NAME),
                kind_of(report_key.REPORT, "report", {"proxy": kind_of(report_key.PROXY, "report")}),
            ]
        },
        "rest": {"anyOf": [matching(schema.NAME), kind_of(rest_key.REST, "rest")]},
        "prologs": script,
        "epilogs": script,
        "firewall": kind_of(
            firewall_plans.FIREWALL, "firewall", {"open": list_of(kind_of(firewall_plans.OPEN, "firewall"))}
        ),
        "slurm_conf": kind_of(schema.SLURM_CONF),
        "cgroup_conf": kind_of(schema.CGROUP_CONF),
        "slurm_files": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in parameters.SITE_FILES if name not in schema.OWN_FILES},
            "propertyNames": {"not": {"enum": [*schema.OWN_FILES]}},
            "additionalProperties": {"type": "string"},
        },
        "plugstack": list_of(kind_of(schema.PLUGSTACK, "plugstack", {"arguments": list_of(TEXT)})),
        "groups": {"anyOf": [MAPPING, list_of(kind_of(people_key.GROUP))]},
    }
    # An empty mapping of these is the same as none.
    for key in ("access", "backup", "database_server", "machines", "mail", "firewall"):
        nested[key] = {"anyOf": [{"type": "object", "maxProperties": 0}, nested[key]]}
    missing = constructed()
    keys = {}
    for key, spec in schema.CLUSTER.own.items():
        value = nested.get(key) or type_schema(spec["type"])
        option = OPTIONS.get(key)
        description = " ".join(lines(option["description"])) if option else missing[key]
        keys[key] = described(value, description)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A cluster file of gpucluster.slurm",
        "description": "Written by `make docs`; do not edit.",
        **mapping_of(keys, [key for key in schema.CLUSTER.own if key in schema.CLUSTER.required]),
        "definitions": definitions,
    }


def text() -> str:
    """The text of the schema."""
    found: str = json_text(document())
    return found


if __name__ == "__main__":
    run({FILE: text()})
