# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where Slurm's packages come from: the key `packages` of the cluster file.

It is `distribution`, `schedmd`, or a mapping: SchedMD's packages from a repository, or as files. The names of files
have name, version and architecture of their package, so that the packages need not be read to know them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ..language.formatting import shown
from . import schema
from .schema import Checker, unknown

ALLOWED = "distribution, schedmd, or a mapping with repository and key, or with files"

_FILE = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]+)_(?P<version>[A-Za-z0-9.+~:-]+)_(?P<architecture>[a-z0-9-]+)\.deb")
_SCHEDMD = re.compile(r"slurm-smd(-.+)?")


def package_file(entry: Mapping[str, Any]) -> dict[str, str]:
    """Name, version and architecture of the package in a file or at a URL; empty if its name does not have them."""
    path = urlsplit(str(entry["url"])).path if entry.get("url") else str(entry.get("file", ""))
    match = _FILE.fullmatch(unquote(path).rpartition("/")[2])
    return match.groupdict() if match else {}


def check(checker: Checker, found: Any) -> Any:
    """The checked value of the key `packages`."""
    if not isinstance(found, Mapping):
        if not isinstance(found, str):
            checker.problem("packages", f"found {shown(found)}, allowed: {ALLOWED}")
        elif found not in schema.PACKAGE_SOURCES:
            what = unknown("package source", found, schema.PACKAGE_SOURCES, ALLOWED)
            checker.problem("packages", f"found {shown(found)}, {what}")
        return found
    source = checker.check(schema.PACKAGES, "packages", found)
    if ("files" in found) == ("repository" in found):
        checker.problem("packages", f"found {shown(sorted(map(str, found)))}, allowed: {ALLOWED}")
    elif "files" in found and "key" in found:
        checker.problem("packages.key", "files have no key, allowed: a key with repository")
    elif "repository" in found and "key" not in found:
        checker.problem("packages.key", "missing: apt takes no repository whose key it does not have")
    if isinstance(source.get("key"), Mapping):
        source["key"] = checker.check(schema.REPOSITORY_KEY, "packages.key", source["key"])
    if "files" in source:
        source["files"] = _files(checker, source["files"])
    return source


def _files(checker: Checker, found: list[Any]) -> list[dict[str, str]]:
    """The checked files: packages of SchedMD, all of one version and one architecture, each once."""
    if not found:
        checker.problem("packages.files", "found [], allowed: a list of files")
    entries, first, names = [], dict[str, str](), dict[str, int]()
    for i, value in enumerate(found):
        key = f"packages.files[{i}]"
        entry = checker.check(schema.PACKAGE_FILE, key, value)
        entries.append(entry)
        if ("url" in entry) == ("file" in entry):
            if isinstance(value, Mapping) and ("url" in value) == ("file" in value):
                checker.problem(key, f"found {shown(sorted(map(str, value)))}, allowed: url and sha256, or file")
            continue
        if "url" in entry and "sha256" not in value:
            checker.problem(f"{key}.sha256", "missing")
        path = shown(entry.get("url", entry.get("file")))
        package = package_file(entry)
        if not package:
            what = "a package's own name, NAME_VERSION_ARCHITECTURE.deb, such as slurm-smd_25.11.2-1_amd64.deb"
            checker.problem(key, f"found {path}, allowed: {what}")
            continue
        if not _SCHEDMD.fullmatch(package["name"]):
            checker.problem(key, f"found {path}, allowed: packages of SchedMD, slurm-smd and slurm-smd-*")
        for part in ("version", "architecture"):
            if first.setdefault(part, package[part]) != package[part]:
                other = checker.key("packages.files[0]")
                checker.problem(key, f"found {part} {package[part]}, allowed: {first[part]}, that of {other}")
        earlier = names.setdefault(package["name"], i)
        if earlier != i:
            other = checker.key(f"packages.files[{earlier}]")
            checker.problem(key, f"{package['name']} is listed twice, first in {other}")
    return entries


def _listed(packages: Any) -> list[dict[str, str]]:
    """The files that the variable slurm_packages lists, if it lists any."""
    return packages.get("files", []) if isinstance(packages, Mapping) else []


def package_entries(
    names: Iterable[str], packages: Any, own: Collection[str], version: str = ""
) -> list[dict[str, str]]:
    """The entries of the module slurm_packages for packages by their names.

    packages: the variable slurm_packages. own: names of Slurm's packages in this source. version: the version in which
    the host has some of them, as the others must have the same.
    """
    files = {package_file(entry).get("name", ""): entry for entry in _listed(packages)}
    entries = []
    for name in dict.fromkeys(names):
        if name in files:
            entries.append({key: str(value) for key, value in files[name].items() if value})
        else:
            entries.append({"name": f"{name}={version}" if version and name in own else name})
    return entries


def files_version(packages: Any) -> str:
    """The version of the packages that the variable slurm_packages lists as files; empty if it lists none."""
    return next((package["version"] for entry in _listed(packages) if (package := package_file(entry))), "")
