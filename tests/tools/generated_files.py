# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that programs of `make docs` write, and that `make doc-lint` compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 160


def json_text(value: Any) -> str:
    """JSON in which lists and mappings that fit into a line have one."""
    return _json_part(value, 0, "") + "\n"


def _json_part(value: Any, depth: int, name: str) -> str:
    """The text of a value in its place, with its name in a mapping."""
    text = name + json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or depth + len(text) < WIDTH:
        return text
    parts = (
        [_json_part(item, depth + 1, f"{json.dumps(key)}: ") for key, item in value.items()]
        if isinstance(value, dict)
        else [_json_part(item, depth + 1, "") for item in value]
    )
    left, right = "{}" if isinstance(value, dict) else "[]"
    inner = f",\n{' ' * (depth + 1)}".join(parts)
    return f"{name}{left}\n{' ' * (depth + 1)}{inner}\n{' ' * depth}{right}"


def update(files: Mapping[Path, str], check: bool) -> int:
    """Write each file whose text is not current, or with `check` name it; the exit status is 1 if one was named."""
    outdated = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in outdated:
        print(f"{path}: {'is not current, run `make docs`' if check else 'written'}")
        if not check:
            path.write_text(files[path])
    return int(check and bool(outdated))


def run(files: Mapping[Path, str]) -> None:
    """The end of a program whose one option is --check."""
    sys.exit(update(files, sys.argv[1:] == ["--check"]))
