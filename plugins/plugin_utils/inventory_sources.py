# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the inventories of a command line (`-i`) have no cluster.

Ansible shows for each file what each of its inventory plugins says about it; here is the one reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ..module_utils.cluster.keys import PLUGIN
from ..module_utils.cluster.model import ModelError
from ..module_utils.language.formatting import shown
from ..module_utils.language.spelling import nearest
from .documents import read

SUFFIXES = ("cluster.yml", "cluster.yaml")
"""How the name of a cluster file ends."""

UNSET = "/etc/ansible/hosts"
"""Ansible's inventory where nothing names one."""

OWN_LINE = re.compile(r"plugin:\s*[\"']?gpucluster\b|^(?:controllers|nodes|partitions):", re.MULTILINE)
"""A line that shows that a file is meant as a cluster file."""

MISNAMED = "the name of a cluster file ends in"

LARGEST = 2**26
"""Bytes of a file that is read for a message."""


def explain(sources: Iterable[str]) -> str:
    """Why none of these has a cluster, and what to write instead. sources: the values of -i."""
    reasons = [_reason(source) for source in sources if source not in ("", UNSET)]
    return "; ".join(reasons) or f"no inventory is given: name a cluster file, -i {_here('.') or 'my.cluster.yml'}"


def is_of_collection(text: str) -> bool:
    """Whether a file that is named as a cluster file is meant as one: others can be of other plugins."""
    return not text.strip() or bool(OWN_LINE.search(text))


def is_misnamed(path: str) -> bool:
    """Whether a file is a cluster file by its line `plugin`, with another name.

    An inventory of Ansible, which can be long, is not parsed for that.
    """
    file = Path(path)
    if not file.is_file() or file.stat().st_size > LARGEST or PLUGIN.encode() not in file.read_bytes():
        return False
    return _of_file(file).startswith(MISNAMED)


def _reason(source: str) -> str:
    if "," in source:
        return f"-i {shown(source)[1:-1]}: are names of hosts: only playbook new takes such, the others a cluster file"
    path = Path(source)
    if path.is_dir():
        return f"{source}: a directory without a cluster file, whose name ends in {SUFFIXES[0]}"
    if not path.exists():
        there = _here(str(path.parent))
        return f"{source}: does not exist" + (f"; did you mean {there}?" if there else "")
    return f"{source}: {_of_file(path)}"


def _here(directory: str) -> str:
    """A cluster file in a directory, with it; empty without one."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    found = nearest("my.cluster.yml", [name for name in names if name.endswith(SUFFIXES)])
    return os.path.normpath(os.path.join(directory, found)) if found else ""


def _of_file(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > LARGEST:
        return "is no file that an inventory can be"
    try:
        data = read(path.name, path.read_bytes()).data
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ModelError as error:
        return error.problems[0].removeprefix(f"{path.name}: ")
    plugin = data.get("plugin") if isinstance(data, dict) else None
    if plugin == PLUGIN and not path.name.endswith(SUFFIXES):
        return f"{MISNAMED} {SUFFIXES[0]}: mv {path} {path.with_suffix('')}.{SUFFIXES[0]}"
    if data is None:
        return f"is empty; a cluster file begins with the line plugin: {PLUGIN}"
    if plugin != PLUGIN and path.name.endswith(SUFFIXES):
        return f"plugin: found {shown(plugin)}, allowed: {PLUGIN}" if plugin else f"lacks the line plugin: {PLUGIN}"
    return "has no host in the group slurm_cluster"
