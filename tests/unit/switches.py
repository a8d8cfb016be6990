# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of roles that are on or off, and the options that documents give on the command line."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.yaml import SafeLoader

ROOT = Path(__file__).parents[2]
GIVEN = re.compile(r"-e (?:([a-z]\w*)=('[^']*'|[^\s`'|)]+)|'(\{.*?\})')")


@cache
def options() -> dict[str, dict[str, Any]]:
    """The options of all roles by name, as their argument specs have them."""
    files = sorted(ROOT.glob("roles/*/meta/argument_specs.yml"))
    specs = [yaml.load(file.read_text(), SafeLoader)["argument_specs"] for file in files]
    return {
        name: option
        for entries in specs
        for entry in entries.values()
        for name, option in (entry.get("options") or {}).items()
    }


@cache
def names() -> frozenset[str]:
    """The options that are on or off."""
    return frozenset(name for name, option in options().items() if option["type"] == "bool")


def as_given(name: str, value: Any) -> Any:
    """The value of an option as `-e NAME=VALUE` gives it: a text, in which `false` counts as true if it is not read."""
    return str(value).lower() if isinstance(value, bool) and name in names() else value


def documented() -> list[tuple[str, str, Any]]:
    """The options that README.md, docs/admin and docs/recipes give with `-e`, with document and value: most are texts.

    Variables of Ansible's own, such as that of the connection, are none of this collection.
    """
    found: list[tuple[str, str, Any]] = []
    for file in (ROOT / "README.md", *sorted(ROOT.glob("docs/admin/*.md")), *sorted(ROOT.glob("docs/recipes/*.md"))):
        for name, value, mapping in GIVEN.findall(file.read_text()):
            given = yaml.safe_load(mapping) if mapping else {name: value.strip("'")}
            found += [(file.name, each, one) for each, one in given.items() if not each.startswith("ansible_")]
    return found
