# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a module as documentation, from its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import yaml

SHOWN = ("type", "elements", "choices", "default", "required")


def documented(arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments as options of a documentation."""
    found: dict[str, Any] = {}
    for name, argument in arguments.items():
        found[name] = {**argument["context"], "description": argument["context"]["description"].split("\n")}
        found[name].update((key, argument[key]) for key in SHOWN if key in argument)
        if "options" in argument:
            found[name]["suboptions"] = documented(argument["options"])
    return found


class ModuleDocFragment:
    """The options of module NAME, for `extends_documentation_fragment: gpucluster.slurm.arguments.NAME`."""

    def __getattr__(self, part: str) -> str:
        if not part.isupper() or part == "DOCUMENTATION":
            raise AttributeError(part)
        module = import_module(f"..modules.{part.lower()}", __package__)
        return yaml.safe_dump({"options": documented(module.ARGUMENTS)})
