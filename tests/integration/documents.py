# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of ansible-playbook that README.md, docs/admin and docs/recipes show."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab import ROOT, Lab

DOCUMENTS = (
    "README.md",
    *(str(path.relative_to(ROOT)) for room in ("admin", "recipes") for path in sorted(ROOT.glob(f"docs/{room}/*.md"))),
)

_COMMAND = re.compile(r"(?:^ *|`)(ansible-playbook gpucluster\.slurm\.(?:[^`\n\\]|\\\n)*)", re.MULTILINE)
"""At the beginning of a line, or of a quotation; within a line it is a part of an output."""


def commands(*documents: str) -> list[str]:
    """The commands of documents in their order, each in one line and without a comment at its end; each once."""
    found = [_COMMAND.findall((ROOT / document).read_text()) for document in documents]
    lines = [" ".join(re.sub(r"\s+#.*|\\\n", " ", command).split()) for each in found for command in each]
    return list(dict.fromkeys(lines))


def run_as_typed(lab: Lab, command: str, directory: Path) -> str:
    """Run a command in a shell, in the directory of an administrator, to whom host names have addresses. Its output."""
    run = subprocess.run(
        command, shell=True, cwd=directory, env=lab.environment, capture_output=True, text=True, check=False
    )
    output = run.stdout + run.stderr
    assert run.returncode == 0, output[-4000:]
    return output
