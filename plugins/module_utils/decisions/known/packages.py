# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module slurm_packages needs to install packages of Slurm on a host."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...cluster.package_source import package_entries
from .host_paths import LOG_DIR
from .platform import expected_release, has_repository, packages_version
from .public_files import public_content
from .run_host import RunHost
from .shipped_files import HostFile
from .whole_cluster import source

MANAGED = "# Managed by gpucluster.slurm: changes here are overwritten."

SOURCE_FILE = "/etc/apt/sources.list.d/gpucluster-slurm.sources"
ROTATION_FILE = "/etc/logrotate.d/gpucluster-slurm-daemons"
KEY_FILE = "/etc/apt/keyrings/gpucluster-slurm"

APT_GET = [
    *("apt-get", "--quiet=2", "--option=DPkg::Lock::Timeout=300"),
    *("--option=Dpkg::Options::=--force-confdef", "--option=Dpkg::Options::=--force-confold"),
]
"""Waits for another installation, keeps a site's changes of a package's files, and says nothing if it has no work."""

ROTATION = f"""\
{MANAGED} See logrotate(8).
{LOG_DIR}/slurmctld.log {LOG_DIR}/slurmd.log {LOG_DIR}/slurmdbd.log {{
  size 5M
  rotate 12
  compress
  delaycompress
  missingok
  notifempty
  nocreate
  sharedscripts
  postrotate
    for daemon in slurmctld slurmd slurmdbd; do
      if test -e /usr/sbin/$daemon; then
        start-stop-daemon --stop --quiet --oknodo --signal USR2 --exec /usr/sbin/$daemon
      fi
    done
  endscript
}}
"""
"""As the packages of the distribution do it, for packages that do not. The daemons open their log again at SIGUSR2."""


UPDATE_COMMAND = [*APT_GET, "--option=APT::Update::Error-Mode=any", "--option=Acquire::Retries=3", "update"]
"""The command that downloads apt's lists, and fails if it cannot get one of them."""


@dataclass(frozen=True)
class Installation:
    """Options of the module slurm_packages."""

    missing: list[dict[str, str]]
    """The wanted packages that the host lacks."""
    files: list[HostFile]
    """The repository of slurm_packages with its key, and the rotation of logs."""
    downloads: list[dict[str, str]]
    hold: list[str]
    slurm: dict[str, str] | None
    """The release that the host gets."""
    changed: bool
    """Whether the host has other files."""
    copied: list[str]
    """Missing packages that are files on the control host."""
    needed: bool
    """Whether there is anything to do."""


def installation(host: RunHost, wanted: Iterable[str]) -> Installation:
    """What is to be done so that a host has these packages, and holds those of Slurm."""
    facts, files, downloads = host.facts, source_files(host), downloaded_files(host)
    own = {package for packages in source(host).packages.values() for package in packages}
    missing = package_entries(
        [package for package in wanted if package not in facts["packages"]],
        host["slurm_packages"],
        own,
        packages_version(host),
    )
    digests = file_digests(files, downloads)
    changed = any(facts["files"].get(path) != digest for path, digest in digests.items())
    return Installation(
        missing=missing,
        files=files,
        downloads=downloads,
        hold=list(source(host).hold),
        slurm=expected_release(host),
        changed=changed,
        copied=[entry["file"] for entry in missing if "file" in entry],
        needed=bool(missing or facts["unheld"] or changed),
    )


def downloaded_files(host: RunHost) -> list[dict[str, str]]:
    """The key of the repository, if it is at a URL."""
    packages = host["slurm_packages"]
    if isinstance(packages, dict) and isinstance(packages.get("key"), dict):
        return [{"path": key_path(packages), **packages["key"]}]
    return []


def source_files(host: RunHost) -> list[HostFile]:
    """The files that a host needs for the source of Slurm's packages."""
    packages = host["slurm_packages"]
    if packages == "distribution":
        return []
    files: list[HostFile] = []
    if has_repository(host):
        files.append({"path": SOURCE_FILE, "content": source_text(packages)})
        if isinstance(packages["key"], str):
            path = os.path.join(host["slurm_cluster_dir"], packages["key"])
            key = public_content(host, "slurm_packages.key", path, "repository key")
            files.append({"path": key_path(packages), "content": key})
    if not source(host).rotates:
        files.append({"path": ROTATION_FILE, "content": ROTATION})
    return files


def key_path(packages: dict[str, Any]) -> str:
    """Where apt finds the key of the repository. It takes a key in ASCII armor from a name that ends in .asc."""
    url = packages["key"].get("url", "") if isinstance(packages["key"], dict) else ""
    return f"{KEY_FILE}{'.gpg' if url.endswith(('.gpg', '.pgp')) else '.asc'}"


def source_text(packages: dict[str, Any]) -> str:
    """The file of the repository (sources.list(5))."""
    uri, suite, *components = packages["repository"].split()
    lines = [f"{MANAGED} See sources.list(5).", "Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    lines += [f"Components: {' '.join(components)}"] if components else []
    return "\n".join([*lines, f"Signed-By: {key_path(packages)}", ""])


def file_digests(files: Iterable[HostFile], downloads: Iterable[dict[str, str]]) -> dict[str, str]:
    """The checksums of these files by path (SHA-256)."""
    digests = {entry["path"]: hashlib.sha256(entry["content"].encode()).hexdigest() for entry in files}
    return digests | {entry["path"]: entry["sha256"] for entry in downloads}
