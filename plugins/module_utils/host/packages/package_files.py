# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that are files, of any format: their download, their checksum, and the plugins of Slurm in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

from ...configuration.spank import PluginError, plugin_release
from ...language.errors import CollectionError
from ..files import named_in_errors

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Plugin

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
class PackageFile:
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
            with named_in_errors(path):
                shutil.copyfileobj(answer, file)
                file.close()
            check_checksum(url, file.name, sha256)
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except (OSError, PackageError):
            os.unlink(file.name)
            raise
    return path


def find_file(module: AnsibleModule, package: dict[str, str | None]) -> tuple[str, str]:
    """The path of a package by URL or file, and its source. Raises PackageError, OSError."""
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
    return path, source


def check_plugins(
    files: list[PackageFile], own: str, read: Callable[[PackageFile], Iterable[tuple[str, bytes]]]
) -> list[Plugin]:
    """The plugins, by path and checksum. Raises PackageError if this release of Slurm would not load one of them.

    read: gives the path and the content of each Slurm plugin in a package.
    """
    plugins: list[Plugin] = []
    for package in files:
        releases = {}
        for path, content in read(package):
            try:
                releases[path] = plugin_release(content)
            except PluginError as error:
                raise RefusedError(package.path, f"{package.source}: {path}: {error}") from None
            plugins.append({"path": path, "sha256": hashlib.sha256(content).hexdigest()})
        if not releases:
            raise RefusedError(package.path, f"{package.source}: it contains no Slurm plugin")
        for path, release in releases.items():
            if release != own:
                raise RefusedError(
                    package.path, f"{package.source}: {path} is for Slurm {release}, which Slurm {own} does not load"
                )
    return plugins


def plugins_installed(plugins: list[Plugin]) -> bool:
    """Whether the host has these plugins. Packages for two releases of Slurm can have the same version."""
    return all(os.path.exists(plugin["path"]) and checksum(plugin["path"]) == plugin["sha256"] for plugin in plugins)
