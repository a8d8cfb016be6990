# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the control host has of a cluster, as one archive that a backup can have."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

LARGEST = 2**20
"""Bytes of a file that belongs to a cluster file. A larger one that it names, such as a package, can be had again."""

_WORDS = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./-]*")


def archive(directory: str, cluster: str, secrets: str) -> bytes:
    """A tar archive of the files, with names that begin with cluster/ and secrets/; the same for the same files."""
    top = Path(directory)
    members = {f"cluster/{path.relative_to(top)}": path for path in _of_cluster(top, cluster)}
    if secrets and Path(secrets).is_dir():
        members |= {f"secrets/{path.relative_to(secrets)}": path for path in _below(Path(secrets)) if not _next(path)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in sorted(members.items()):
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _of_cluster(top: Path, cluster: str) -> Iterable[Path]:
    """The cluster file of this name with what belongs to it."""
    for path in sorted([*top.glob("*cluster.yml"), *top.glob("*cluster.yaml")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not re.search(rf"^name:\s*[\"']?{re.escape(cluster)}[\"']?\s*(#.*)?$", text, re.MULTILINE):
            continue
        yield path
        yield from (top / name for name in sorted({*_WORDS.findall(text)}) if _belongs(top, top / name))
        measured = path.with_name(re.sub(r"cluster\.ya?ml$", "hardware.yml", path.name))
        if measured.is_file():
            yield measured
    for name in ("group_vars", "host_vars"):
        yield from _below(top / name)


def _belongs(top: Path, path: Path) -> bool:
    """Whether a path is a file below the directory, and small enough."""
    return path.is_file() and path.resolve().is_relative_to(top.resolve()) and path.stat().st_size <= LARGEST


def _next(path: Path) -> bool:
    """Whether a secret is one that does not apply yet (playbook rotate_keys)."""
    return path.suffix in (".next", ".new")


def _below(directory: Path) -> list[Path]:
    """All files below a directory."""
    return sorted(path for path in directory.rglob("*") if path.is_file())
