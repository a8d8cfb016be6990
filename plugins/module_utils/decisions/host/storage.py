# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role storage: what a host does for the storage of the cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..known.run_host import RunHost

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import HiddenFiles


@dataclass(frozen=True)
class StorageOptions:
    """Options of the module slurm_storage. A host without a plan loses its mounts."""

    digest: str
    mounts: list[dict[str, Any]]
    files: dict[str, str]
    exports: list[str]
    homes: list[dict[str, Any]]
    packages: list[str]
    """Names of packages."""


def plan(host: RunHost, plans: Mapping[str, Any]) -> dict[str, Any]:
    """What this host does, of the plans of all hosts; empty if that is nothing."""
    if host.name not in plans["hosts"]:
        return {}
    found: dict[str, Any] = plans["plans"][plans["hosts"][host.name]]
    return found


def own_plan(host: RunHost) -> dict[str, Any]:
    """What this host does."""
    return plan(host, host.shared("storage_plans"))


def unfinished_plan(host: RunHost) -> dict[str, Any]:
    """What this host does; empty if that holds already."""
    plan_of_host = own_plan(host)
    return plan_of_host if host.facts["storage"] != plan_of_host.get("digest", "") else {}


def mount_units(host: RunHost) -> dict[str, str]:
    """The unit files of the mounts, by their directories."""
    return {mount["path"]: mount["unit_file"] for mount in own_plan(host).get("mounts", [])}


def objections(host: RunHost) -> list[str]:
    """Why the storage cannot be mounted: the files that it would hide, and what to do with them."""
    people = {user["name"] for user in host["slurm_people"].get("users", [])}
    return [_hidden(path, found, people) for path, found in host.facts["hidden"].items() if unfinished_plan(host)]


def _hidden(path: str, found: HiddenFiles, people: Collection[str]) -> str:
    """The message about files that a mount would hide.

    A home can move while its user is logged in, as the one as whom Ansible connects is: usermod would refuse that.
    """
    homes = {user: home for user, home in found["homes"].items() if user not in people}
    names = ", ".join(found["names"]) + (f" and {found['more']} more" if found["more"] else "")
    others = {*found["names"]} - {home[len(path) :].strip("/").partition("/")[0] for home in homes.values()}
    remedies = []
    for user, home in homes.items():
        own = f"/var/local/{user}"
        remedies.append(
            f"give {user} a home on the disk of the host (sudo cp -a {home} {own} && sudo sed -i.before "
            f"'s|:{home}:|:{own}:|' /etc/passwd), log in again, and remove {home}"
        )
    if others or found["more"] or not homes:
        what = "the others" if homes else "them"
        remedies.append(f"move {what} to the storage or elsewhere, or mount it on another path")
    what_to_do = "; ".join(remedies)
    return f"{path} has files that the mount would hide: {names}. {what_to_do[0].upper()}{what_to_do[1:]}"


def packages(host: RunHost) -> list[dict[str, str]]:
    """The packages of the file systems, for the module slurm_packages."""
    found: list[dict[str, str]] = own_plan(host).get("packages", [])
    return found


def copied_packages(host: RunHost) -> list[str]:
    """Those packages that are files on the control host."""
    return [package["file"] for package in packages(host) if "file" in package]


def options(host: RunHost) -> StorageOptions:
    """What the module slurm_storage does on the host."""
    found = own_plan(host)
    return StorageOptions(
        digest=found.get("digest", ""),
        mounts=found.get("mounts", []),
        files=found.get("files", {}),
        exports=found.get("exports", []),
        homes=found.get("homes", []),
        packages=[_without_version(package["name"]) for package in packages(host) if "name" in package],
    )


def _without_version(package: str) -> str:
    """The name of a package, which may have a version, a release or an architecture behind it (apt-get(8))."""
    return re.sub("[=:/].*$", "", package)
