# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a page with two forms, for the cluster file and for the variables of a playbook: an example for web interfaces.

usage: python runner/form.py ROLE > form.html

The forms follow from roles/slurm/files/cluster.schema.json and from the argument spec of the role whose variables the
playbook has, such as validate. The page needs no server and no network. It shows the cluster file, as JSON, which is
YAML too, and what to pass as `extravars`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[1] / "roles"

TYPES = {"str": "string", "path": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}
"""Types of argument specs as those of a JSON schema; the others are mappings."""


def schema_of_role(role: str) -> dict[str, Any]:
    """The variables of a role as a JSON schema. A default that is a template is text to the reader alone."""
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    properties = {}
    for name, option in specs["main"].get("options", {}).items():
        said = option.get("description", "")
        default = option.get("default")
        properties[name] = {
            "type": TYPES.get(option.get("type", "str"), "object"),
            "description": said if isinstance(said, str) else " ".join(said),
            **({"enum": option["choices"]} if "choices" in option and option.get("type") != "list" else {}),
            **({"default": default} if default not in (None, "") else {}),
        }
    required = [name for name, option in specs["main"].get("options", {}).items() if option.get("required")]
    return {"title": f"Variables of role {role}", "type": "object", "required": required, "properties": properties}


PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Forms of gpucluster.slurm</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem }
label { display: grid; grid-template-columns: 15rem 1fr; gap: .2rem 1rem; margin: .5rem 0 }
label small { grid-column: 2; opacity: .75 }
input, select, textarea { font: inherit; width: 100%; box-sizing: border-box }
input[type=checkbox] { width: auto; justify-self: start }
input:invalid, textarea:invalid { outline: 2px solid #c22 }
fieldset { margin: .8rem 0; border: 1px solid #8888; border-radius: 4px }
pre { background: #8882; padding: .8rem; overflow: auto }
@media (max-width: 40rem) { label { grid-template-columns: 1fr } label small { grid-column: 1 } }
</style>
<h1>Forms of gpucluster.slurm</h1>
<main></main>
<script type="application/json" id="schemas">SCHEMAS</script>
<script>
const add = (parent, tag, more = {}) => parent.appendChild(Object.assign(document.createElement(tag), more));
const last = path => path.split(".").pop();
const empty = value => value === undefined || typeof value === "object" && !Object.keys(value).length;

// A schema without `null` among its types and choices: a key that is left out means the same.
function plain(schema, root) {
  if (schema.$ref) schema = {...schema, ...root.definitions[schema.$ref.split("/").pop()]};
  const other = (schema.anyOf || []).find(each => each.type !== "null");
  if (other) schema = {...schema, ...plain(other, root)};
  const types = [schema.type].flat().filter(type => type && type !== "null");
  return {...schema, type: types[0]};
}

// Each of these adds a part of a form, and returns a function that gives its value, undefined if it has none.
// `path` is the name of the field: its keys, with dots.
function field(parent, path, schema, root, required) {
  schema = plain(schema, root);
  if ("const" in schema) return () => schema.const;
  if (schema.type === "object" && schema.properties) return group(add(parent, "fieldset"), path, schema, root);
  if (schema.type === "array" && schema.items && plain(schema.items, root).properties)
    return list(add(parent, "fieldset"), path, schema, root, required);
  const label = add(parent, "label", {textContent: last(path)});
  const choices = schema.enum;
  const json = schema.type === "object" || schema.type === "array";
  const input = add(label, choices ? "select" : json ? "textarea" : "input", {name: path, required});
  if (choices) for (const choice of ["", ...choices]) add(input, "option", {textContent: choice ?? ""});
  else if (schema.type === "boolean") input.type = "checkbox";
  else if (schema.type === "integer" || schema.type === "number") {
    Object.assign(input, {type: "number", step: schema.type === "integer" ? 1 : "any"});
    for (const [bound, key] of [["min", "minimum"], ["max", "maximum"]]) if (key in schema) input[bound] = schema[key];
  }
  if ("default" in schema) input.placeholder = "default: " + JSON.stringify(schema.default);
  else if (json) input.placeholder = "JSON";
  if (schema.type === "boolean") input.checked = schema.default === true;
  add(label, "small", {textContent: schema.description || ""});
  return () => {
    if (input.type === "checkbox") return input.checked === (schema.default === true) ? undefined : input.checked;
    let wrong = "", value = input.value;
    if (value && schema.pattern && !new RegExp(schema.pattern, "u").test(value)) wrong = "allowed: " + schema.pattern;
    try { if (value && (json || input.type === "number")) value = JSON.parse(value); } catch { wrong = "no JSON"; }
    input.setCustomValidity(wrong);
    return value === "" || wrong ? undefined : value;
  };
}

function group(parent, path, schema, root) {
  if (path && !path.endsWith(".")) { add(parent, "legend", {textContent: last(path)}); path += "."; }
  const required = schema.required || [], parts = {};
  for (const key of required) parts[key] = field(parent, path + key, schema.properties[key], root, true);
  const others = Object.keys(schema.properties).filter(key => !required.includes(key));
  // The form of what is optional is made when somebody opens it: Slurm has hundreds of parameters.
  const more = others.length && required.length + path.length ? add(parent, "details") : null;
  const fill = () => {
    for (const key of others) parts[key] ??= field(more || parent, path + key, schema.properties[key], root, false);
  };
  if (more) { add(more, "summary", {textContent: "More"}); more.ontoggle = fill; } else fill();
  return () => {
    const found = Object.entries(parts).map(([key, value]) => [key, value()]).filter(([, value]) => !empty(value));
    return found.length ? Object.fromEntries(found) : undefined;
  };
}

function list(parent, path, schema, root, required) {
  add(parent, "legend", {textContent: last(path)});
  add(parent, "small", {textContent: schema.description || ""});
  const rows = [], button = add(parent, "button", {type: "button", textContent: "Add"});
  button.onclick = () => {
    const row = add(parent, "fieldset"), value = group(row, path + ".", plain(schema.items, root), root);
    rows.push(() => row.isConnected ? value() : undefined);
    add(row, "button", {type: "button", textContent: "Remove", onclick: () => { row.remove(); show(); }});
    parent.append(button);
    show();
  };
  if (required) setTimeout(button.onclick);
  return () => {
    const found = rows.map(row => row()).filter(value => value !== undefined);
    return found.length ? found : undefined;
  };
}

const forms = JSON.parse(document.getElementById("schemas").textContent).map(schema => {
  const main = document.querySelector("main");
  add(main, "h2", {textContent: schema.title});
  const value = group(add(main, "form", {onsubmit: () => false}), "", schema, schema);
  return [value, add(main, "pre")];
});
function show() { for (const [value, pre] of forms) pre.textContent = JSON.stringify(value() ?? {}, null, 1); }
document.oninput = show;
show();
</script>
"""


def main() -> None:
    """Write the page."""
    (role,) = sys.argv[1:] or ["validate"]
    cluster = json.loads((ROLES / "slurm/files/cluster.schema.json").read_text(encoding="utf-8"))
    # A text in a script element ends at its first "</script".
    schemas = json.dumps([cluster, schema_of_role(role)]).replace("<", "\\u003c")
    sys.stdout.write(PAGE.replace("SCHEMAS", schemas))


if __name__ == "__main__":
    main()
