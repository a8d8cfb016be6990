# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules, each with its documentation, which doc fragment `arguments` shows."""

from __future__ import annotations

from typing import Any

Option = dict[str, Any]
"""An entry of an `argument_spec`; Ansible leaves its `context` alone."""


def option(description: str, kind: str = "str", version_added: str = "", **more: Any) -> Option:
    """An option of a kind, a text if none is named, with more of its entry. Lines of the description are paragraphs."""
    context = {"description": description} | ({"version_added": version_added} if version_added else {})
    return {"type": kind, **more, "context": context}


def several(description: str, elements: str = "str", **more: Any) -> Option:
    """An option that is a list, empty if it is not given."""
    return option(description, "list", elements=elements, **{"default": [], **more})


def switch(description: str, default: bool = False) -> Option:
    """An option that is true or false."""
    return option(description, "bool", default=default)
