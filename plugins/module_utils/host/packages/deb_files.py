# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages in Debian's format that are files: their fields, their architecture, and the plugins of Slurm in them."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from . import package_files
from .package_files import PackageFile, RefusedError, find_file

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Plugin


def read_package(module: AnsibleModule, package: dict[str, str | None]) -> PackageFile:
    """A package by URL or file, with the fields that dpkg shows. Raises PackageError, OSError."""
    path, source = find_file(module, package)
    fields = "--showformat=${Package} ${Version} ${Architecture}"
    rc, stdout, stderr = module.run_command(["dpkg-deb", fields, "--show", path])
    if rc != 0:
        raise RefusedError(path, f"{source}: {stderr.strip()}")
    return PackageFile(path, source, *stdout.split())


def check_architecture(module: AnsibleModule, debs: list[PackageFile]) -> None:
    """Raises PackageError if a package is for another architecture."""
    own = module.run_command(["dpkg", "--print-architecture"], check_rc=True)[1].strip()
    for deb in debs:
        if deb.architecture not in (own, "all"):
            raise RefusedError(deb.path, f"{deb.source}: found architecture {deb.architecture}, allowed {own}")


def read_plugins(module: AnsibleModule, deb: PackageFile) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each Slurm plugin in a package. Raises RefusedError."""
    rc, stdout, stderr = module.run_command(["dpkg-deb", "--fsys-tarfile", deb.path], encoding=None)
    if rc != 0:
        raise RefusedError(deb.path, f"{deb.source}: {stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(stdout)) as archive:
        for member in archive:
            file = archive.extractfile(member) if re.search(r"/slurm[^/]*/[^/]+\.so$", member.name) else None
            if file:
                yield member.name.lstrip("."), file.read()


def check_plugins(module: AnsibleModule, files: list[PackageFile], own: str) -> list[Plugin]:
    """The plugins, by path and checksum. Raises PackageError if this release of Slurm would not load one of them."""
    return package_files.check_plugins(files, own, partial(read_plugins, module))
