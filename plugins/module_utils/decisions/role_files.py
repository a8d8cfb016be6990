# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of this collection that hosts get as they are."""

from __future__ import annotations

from pathlib import Path

COLLECTION = Path(__file__).parents[3]


def role_file(role: str, name: str) -> str:
    """The text of a file in `files` of a role."""
    return (COLLECTION / "roles" / role / "files" / name).read_text(encoding="utf-8")


def plain_file(path: str, text: str) -> dict[str, str]:
    """A file that others read, as slurm_packages and slurm_service take it."""
    return {"path": path, "content": text}


def program(path: str, text: str) -> dict[str, str]:
    """A file that others run."""
    return {"path": path, "content": text, "mode": "0755"}
