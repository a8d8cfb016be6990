# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the parts of files that follow from the registry of the cluster file's keys.

usage: python tests/tools/key_files.py [--check]

Each part stands between two marks; the rest of its file is written by hand. With --check nothing is written, and the
exit status is 1 if a part is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import KEYS, PLUGIN, ClusterKey, paragraphs
from generated_files import run

ROOT = Path(__file__).parents[2]
BEGIN, END = "begin keys: `make docs` writes these lines from cluster/keys.py", "end keys"


class Dumper(yaml.SafeDumper):
    """YAML as yamllint wants it: the elements of a list are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent by one more level."""
        super().increase_indent(flow, False)


def represented(dumper: Dumper, text: str) -> yaml.ScalarNode:
    """A text in double quotes if it is a template or empty, and plain where YAML lets it."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, '"' if not text or text.startswith("{{") else None)


Dumper.add_representer(str, represented)


def written(value: Any, depth: int = 0, width: int = 119) -> str:
    """A mapping in YAML, indented by `depth` blanks."""
    return indent(yaml.dump(value, Dumper=Dumper, sort_keys=False, width=width), " " * depth)


def defaults() -> str:
    """The defaults of the shared variables."""
    found = {key.variable.name: key.variable_default for key in KEYS if key.variable}
    return written({name: default for name, default in found.items() if default is not None})


def described(option: Mapping[str, Any]) -> dict[str, Any]:
    """An option of an argument spec, whose description is one text or a list of paragraphs."""
    texts = paragraphs(option["description"])
    return {**option, "description": texts if len(texts) > 1 else texts[0]}


def specification(key: ClusterKey) -> dict[str, Any]:
    """The shared variable of a key as an option of an argument spec."""
    variable = key.variable
    assert variable
    found: dict[str, Any] = {"type": variable.type or key.type}
    if found["type"] == "list":
        found["elements"] = variable.elements or key.elements
    if key.choices:
        found["choices"] = key.allowed
    found |= {"required": True} if key.variable_default is None else {"default": key.variable_default}
    about = f"As the key C({key.name}) of inventory plugin P({PLUGIN}#inventory): {paragraphs(key.description)[0]}"
    found |= described({"description": variable.description or about})
    if variable.options:
        found["options"] = {name: described(option) for name, option in variable.options.items()}
    return found


def specifications() -> str:
    """The argument spec of the shared variables."""
    # PyYAML ends a line after the text that passes the width, which can be as long as the name of a plugin in markup.
    return written({key.variable.name: specification(key) for key in KEYS if key.variable}, depth=6, width=78)


def table() -> str:
    """The table of keys for administrators. Keys without a meaning are in the row of the next key."""
    rows, names = ["| Key | Meaning |", "|---|---|"], []
    for key in KEYS:
        names.append(f"`{key.name}`")
        if key.meaning:
            rows.append(f"| {', '.join(names)} | {' '.join(key.meaning.split())} |")
            names = []
    return "".join(f"{row}\n" for row in rows)


PARTS: Mapping[str, tuple[str, str, Callable[[], str]]] = {
    "roles/slurm/defaults/main.yml": ("# {}", "# {}", defaults),
    "roles/slurm/meta/argument_specs.yml": ("      # {}", "      # {}", specifications),
    "docs/admin/cluster-file.md": ("<!-- {} -->\n", "\n<!-- {} -->", table),
}
"""By the path of a file: the lines of its two marks, and the text between them."""


def current(path: Path, begin: str, end: str, part: str) -> str:
    """A file with its part as it should be."""
    first, last = f"{begin.format(BEGIN)}\n", f"{end.format(END)}\n"
    before, found, rest = path.read_text().partition(first)
    _part, found_end, after = rest.partition(last)
    if not (found and found_end):
        sys.exit(f"{path}: there is no line `{first.strip()}` followed by a line `{last.strip()}`")
    return before + first + part + last + after


def files() -> dict[Path, str]:
    """The files, with their parts as they should be."""
    return {ROOT / name: current(ROOT / name, begin, end, part()) for name, (begin, end, part) in PARTS.items()}


if __name__ == "__main__":
    run(files())
