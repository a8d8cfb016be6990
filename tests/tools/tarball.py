#!/usr/bin/env python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the tarball of a commit: the same bytes each time and everywhere.    usage: tarball.py COMMIT DIRECTORY

`ansible-galaxy collection build` lists the files in the order of the file system, with the time of the build. So its
tarball is packed again: sorted by name, with the time of the commit. The content of the files stays.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
MANIFEST, FILES = "MANIFEST.json", "FILES.json"


def run(*command: str | Path, cwd: Path | None = None) -> bytes:
    """The output of a command. CalledProcessError if it fails; its own messages are on stderr."""
    return subprocess.run([*map(str, command)], cwd=cwd, stdout=subprocess.PIPE, check=True).stdout


def dumped(data: Any) -> bytes:
    """JSON as ansible-galaxy writes it."""
    return json.dumps(data, indent=1).encode()


def read(tarball: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Each member of a tarball by its name, with its content."""
    with tarfile.open(tarball) as tar:
        members = [(member, tar.extractfile(member) if member.isreg() else None) for member in tar]
        return {member.name: (member, content.read() if content else b"") for member, content in members}


def packed(members: dict[str, tuple[tarfile.TarInfo, bytes]], time: int) -> bytes:
    """A tarball of the members in their order, all of one time."""
    packing = io.BytesIO()
    # Without the name and time that gzip would add.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packing, mtime=time) as zipped,
        tarfile.open(mode="w", fileobj=zipped, format=tarfile.GNU_FORMAT) as tar,
    ):
        for member, content in members.values():
            member.mtime, member.size = time, len(content)
            tar.addfile(member, io.BytesIO(content))
    return packing.getvalue()


def in_order(tarball: Path, time: int) -> bytes:
    """The tarball of ansible-galaxy, sorted by name, and of one time."""
    members = read(tarball)
    manifest, files = (json.loads(members.pop(name)[1]) for name in (MANIFEST, FILES))
    files["files"].sort(key=lambda file: file["name"])
    listed = dumped(files)
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listed).hexdigest()
    head = {name: (tarfile.TarInfo(name), text) for name, text in ((MANIFEST, dumped(manifest)), (FILES, listed))}
    return packed(head | dict(sorted(members.items())), time)


def build(commit: str, directory: Path, repository: Path = Path()) -> Path:
    """Write the tarball of a commit into a directory. Returns its path."""
    time = int(run("git", "show", "--no-patch", "--format=%ct", f"{commit}^{{commit}}", cwd=repository))
    with tempfile.TemporaryDirectory() as name:
        tree, output = Path(name, "tree"), Path(name, "output")
        archive = Path(name, "archive.tar")
        run("git", "archive", "--output", archive, commit, cwd=repository)
        shutil.unpack_archive(archive, tree)
        run(BIN / "ansible-galaxy", "collection", "build", tree, "--output-path", output)
        (built,) = output.iterdir()
        path = directory / built.name
        path.write_bytes(in_order(built, time))
    return path


if __name__ == "__main__":
    print(build(sys.argv[1], Path(sys.argv[2])))
