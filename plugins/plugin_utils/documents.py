# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a YAML file for the model."""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from ansible.module_utils.common.yaml import SafeLoader
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError


def read(file: str, text: bytes) -> Document:
    """Read the text of a file. Mistakes that YAML accepts without a message are problems here.

    Raises ModelError for a text that is no YAML.
    """
    loader = SafeLoader(text)
    try:
        root = loader.get_single_node()
        problems = list(_problems(root, "")) if root else []
        return Document(file, loader.construct_document(root) if root else None, problems)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ModelError([f"{file}: line {line}: cannot be read as YAML: {error.problem}"]) from None
    finally:
        loader.dispose()


def _problems(node: yaml.Node, key: str) -> Iterator[tuple[str, str]]:
    """Keys that are given twice (YAML uses the last), and times that YAML reads as numbers (1:00:00 is 3600)."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for name, value in node.value:
            child = f"{key}.{name.value}" if key else str(name.value)
            line = name.start_mark.line + 1
            if isinstance(name, yaml.ScalarNode):
                if name.value in lines:
                    yield child, f"is given twice, in lines {lines[name.value]} and {line}"
                lines[name.value] = line
            yield from _problems(value, child)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _problems(value, f"{key}[{index}]")
    elif node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and ":" in node.value:
        yield key, f"found {node.value}, which YAML reads as a number to the base 60: write it in quotes"
