# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of this collection that hosts get as they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

COLLECTION = Path(__file__).parents[4]
ROLES = COLLECTION / "roles"


class _PathOfFile(TypedDict):
    path: str


class HostFile(_PathOfFile, total=False):
    """A file of a host, for slurm_service and slurm_files: its `content`, or a `secret` in base64."""

    content: str
    secret: str
    owner: str
    mode: str
    loaded: bool
    restart: bool
    marker: str
    """Of the part of the file that the content is, instead of the whole file."""
    validate: list[str]


def role_file(role: str, name: str) -> str:
    """The text of a file in `files` of a role."""
    return (ROLES / role / "files" / name).read_text(encoding="utf-8")


def stripped_file(role: str, path: str) -> str:
    """The text of a file of a role without blanks at its end, as the lookup `ansible.builtin.file` returns it.

    A template is not rendered.
    """
    return (ROLES / role / path).read_text(encoding="utf-8").rstrip()


def plain_file(path: str, text: str) -> HostFile:
    """A file that others read, as slurm_packages and slurm_service take it."""
    return {"path": path, "content": text}


def program(path: str, text: str) -> HostFile:
    """A file that others run."""
    return {"path": path, "content": text, "mode": "0755"}


def unloaded(files: Iterable[HostFile]) -> list[HostFile]:
    """The same files, which no daemon loads."""
    return [{**file, "loaded": False} for file in files]
