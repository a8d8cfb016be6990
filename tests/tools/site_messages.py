# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts that the collection can say, from its source, as pages of the documentation site.

Errors are not only raised: rules return them as lists, from pieces. So each text of at least three words in a plugin
counts, without docstrings and the documentation of plugins, and each message of a task that fails. A value is `…`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
OPTIONS = {"option", "several", "switch"}
"""Functions whose first argument documents an option of a module."""
DESCRIPTIONS = {"cluster/keys.py"}
"""Files below module_utils whose texts are the documentation of keys, which has pages of its own."""
WORD = re.compile(r"[^\W\d_]{2,}")
VALUE = "…"


class Message(NamedTuple):
    """A message, with the file that has it, relative to the collection."""

    file: str
    text: str


def is_message(text: str) -> bool:
    """Whether a text of the source has words for a reader: not a pattern, a template or a part of a file."""
    return len(WORD.findall(text)) >= 3 and " " in text.strip() and not re.search(r"\\[dwsSb]|\(\?|\{%|^\s*#", text)


def value(node: ast.expr) -> str:
    """The text of a constant, a formatted text, or a sum of them."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(value(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return value(node.left) + value(node.right)
    return VALUE


def documentation(tree: ast.Module) -> set[int]:
    """The texts that explain the source: docstrings, and what a plugin and its options document."""
    nodes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    nodes += [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in DOCUMENTATION for target in node.targets)
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    nodes += [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in OPTIONS]
    return {id(node) for node in nodes}


def texts(node: ast.AST, without: set[int]) -> Iterator[str]:
    """The texts of a part of the source, each as long as it is written."""
    if id(node) in without:
        return
    if isinstance(node, (ast.Constant, ast.JoinedStr)) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    ):
        text = value(node)
        if text.strip(VALUE):
            yield text
    if isinstance(node, ast.JoinedStr):  # its words are above; an expression in it may have a text of its own
        children: list[ast.AST] = [part for part in node.values if not isinstance(part, ast.Constant)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        children = [part for part in (node.left, node.right) if not isinstance(part, (ast.Constant, ast.JoinedStr))]
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from texts(child, without)


def of_source(source: str) -> list[str]:
    """The messages of a plugin, in their order, each once."""
    tree = ast.parse(source)
    return list(dict.fromkeys(filter(is_message, texts(tree, documentation(tree)))))


def of_tasks(node: Any) -> Iterator[str]:
    """The messages of tasks that fail, with `…` for each expression."""
    if isinstance(node, list):
        for part in node:
            yield from of_tasks(part)
    elif isinstance(node, dict):
        for name, part in node.items():
            if isinstance(part, dict) and name.rpartition(".")[2] in ("assert", "fail"):
                text = re.sub(r"\{\{.*?\}\}", VALUE, str(part.get("fail_msg", part.get("msg", ""))), flags=re.DOTALL)
                if WORD.search(text):
                    yield text
            else:
                yield from of_tasks(part)


@cache
def messages() -> list[Message]:
    """All messages, by file."""
    found = [
        Message(str(path.relative_to(ROOT)), text)
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        if not str(path).endswith(tuple(DESCRIPTIONS)) and "doc_fragments" not in path.parts
        for text in of_source(path.read_text())
    ]
    tasks = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    for path in sorted(tasks):
        texts_of_file = of_tasks(yaml.safe_load(path.read_text()))
        found += [Message(str(path.relative_to(ROOT)), text) for text in dict.fromkeys(texts_of_file)]
    return found


def place(file: str) -> str:
    """The page of a file's messages: its package of module_utils, or its kind of plugin, role or playbook."""
    parts = file.split("/")
    return parts[2] if parts[1] == "module_utils" else parts[1] if parts[0] == "plugins" else parts[0]


def quoted(text: str) -> str:
    """A text in one line as code in Markdown."""
    line = " ".join(text.split())
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    return f"{ticks} {line} {ticks}"


def pages() -> dict[str, str]:
    """The pages by name, in Markdown."""
    found = sorted(messages(), key=lambda message: (place(message.file), message.file))
    result: dict[str, str] = {}
    for name, group in groupby(found, key=lambda message: place(message.file)):
        lines = [f"# Messages of {name}", ""]
        for file, said in groupby(group, key=lambda message: message.file):
            lines += [f"## {file}", ""]
            for message in said:
                lines.append(f"- {quoted(message.text)}")
            lines.append("")
        result[name] = "\n".join(lines)
    entries = "\n".join(sorted(result))
    result["index"] = (
        "# Messages\n\nWhat the collection can say, from its source: errors, findings and what to do. A long message "
        "may be made of several of these texts. `…` stands for a name or a value.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
    )
    return result
