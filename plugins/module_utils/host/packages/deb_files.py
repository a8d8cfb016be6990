# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that are files: their download, their checksum, and the plugins of Slurm in them."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.spank import PluginError, plugin_release
from ansible_collections.gpucluster.slurm.plugins.module_utils.errors import CollectionError

if TYPE_CHECKING:
    from ansible_collections.gpucluster.slurm.plugins.module_utils.module_results import Plugin

CACHE = "/var/cache/gpucluster-slurm"


class PackageError(CollectionError):
    """A package that cannot be installed, and why."""


class RefusedError(PackageError):
    """A package that is a file and is not what it must be. Its copy is removed, as every user of the host can read it.

    Args:
        path: the copy in CACHE.
        message: why.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        if os.path.dirname(path) == CACHE:
            with suppress(FileNotFoundError):
                os.unlink(path)


@dataclass(frozen=True)
class Deb:
    """A package that is a file."""

    path: str
    source: str
    """Its source, for messages."""
    name: str
    version: str
    architecture: str


def checksum(path: str) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def check_checksum(source: str, path: str, sha256: str) -> None:
    """Raises PackageError if a file has another checksum."""
    found = checksum(path)
    if found != sha256:
        raise PackageError(f"{source}: found sha256 {found}, allowed {sha256}")


def fetch_package(module: AnsibleModule, url: str, sha256: str) -> str:
    """The path of a package from a URL, downloaded unless it is in the cache. Raises PackageError, OSError."""
    path = os.path.join(CACHE, f"{sha256[:16]}-{os.path.basename(url.partition('?')[0])}")
    if os.path.exists(path) and checksum(path) == sha256:
        return path
    answer, info = fetch_url(module, url, timeout=60)
    if answer is None or info["status"] >= 400:
        raise PackageError(f"{url}: {info['msg']}")
    os.makedirs(CACHE, mode=0o755, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=CACHE, prefix=".fetch-", delete=False) as file:
        try:
            shutil.copyfileobj(answer, file)
            file.close()
            check_checksum(url, file.name, sha256)
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except (OSError, PackageError):
            os.unlink(file.name)
            raise
    return path


def read_package(module: AnsibleModule, package: dict[str, str | None]) -> Deb:
    """A package by URL or file, with the fields that dpkg shows. Raises PackageError, OSError."""
    sha256 = (package["sha256"] or "").lower()
    if package["url"]:
        source = package["url"]
        path = fetch_package(module, source, sha256)
    else:
        source = os.path.basename(str(package["file"]))
        path = os.path.join(CACHE, source)
        if not os.path.exists(path):
            raise PackageError(f"{path}: there is no such file")
        if sha256 and checksum(path) != sha256:
            raise RefusedError(path, f"{source}: found sha256 {checksum(path)}, allowed {sha256}")
    fields = "--showformat=${Package} ${Version} ${Architecture}"
    rc, stdout, stderr = module.run_command(["dpkg-deb", fields, "--show", path])
    if rc != 0:
        raise RefusedError(path, f"{source}: {stderr.strip()}")
    return Deb(path, source, *stdout.split())


def check_architecture(module: AnsibleModule, debs: list[Deb]) -> None:
    """Raises PackageError if a package is for another architecture."""
    own = module.run_command(["dpkg", "--print-architecture"], check_rc=True)[1].strip()
    for deb in debs:
        if deb.architecture not in (own, "all"):
            raise RefusedError(deb.path, f"{deb.source}: found architecture {deb.architecture}, allowed {own}")


def read_plugins(module: AnsibleModule, deb: Deb) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each Slurm plugin in a package. Raises RefusedError."""
    rc, stdout, stderr = module.run_command(["dpkg-deb", "--fsys-tarfile", deb.path], encoding=None)
    if rc != 0:
        raise RefusedError(deb.path, f"{deb.source}: {stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(stdout)) as archive:
        for member in archive:
            file = archive.extractfile(member) if re.search(r"/slurm[^/]*/[^/]+\.so$", member.name) else None
            if file:
                yield member.name.lstrip("."), file.read()


def check_plugins(module: AnsibleModule, debs: list[Deb], own: str) -> list[Plugin]:
    """The plugins, by path and checksum. Raises PackageError if this release of Slurm would not load one of them."""
    plugins: list[Plugin] = []
    for deb in debs:
        releases = {}
        for path, content in read_plugins(module, deb):
            try:
                releases[path] = plugin_release(content)
            except PluginError as error:
                raise RefusedError(deb.path, f"{deb.source}: {path}: {error}") from None
            plugins.append({"path": path, "sha256": hashlib.sha256(content).hexdigest()})
        if not releases:
            raise RefusedError(deb.path, f"{deb.source}: it contains no Slurm plugin")
        for path, release in releases.items():
            if release != own:
                raise RefusedError(
                    deb.path, f"{deb.source}: {path} is for Slurm {release}, which Slurm {own} does not load"
                )
    return plugins


def plugins_installed(plugins: list[Plugin]) -> bool:
    """Whether the host has these plugins. Packages for two releases of Slurm can have the same version."""
    return all(os.path.exists(plugin["path"]) and checksum(plugin["path"]) == plugin["sha256"] for plugin in plugins)
