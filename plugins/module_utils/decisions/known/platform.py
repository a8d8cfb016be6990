# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform of a host: its distribution, the source of its packages and its release of Slurm.

Its rules hold for role base and for roles that are used without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...cluster.package_source import files_version
from . import registered
from .host_paths import UPGRADE_MARK
from .platform_tables import DISTRIBUTIONS, NEWEST, PLUGINS_OF_PACKAGES, RELEASES, SOURCES, Release
from .run_host import RunHost
from .whole_cluster import is_controller, source


def has_files(host: RunHost) -> bool:
    """Whether Slurm's packages are files, whose names have their version."""
    return isinstance(host["slurm_packages"], dict) and "files" in host["slurm_packages"]


def has_repository(host: RunHost) -> bool:
    """Whether Slurm's packages come from a repository that the site names."""
    return isinstance(host["slurm_packages"], dict) and "repository" in host["slurm_packages"]


def packages_version(host: RunHost) -> str:
    """The version of the host's packages of Slurm, which further packages must have; empty without them."""
    return host.facts["packages"].get(source(host).version, "")


def slurm_version(host: RunHost) -> str:
    """The version that the programs of the host report, or the version that this run installs.

    That of packages from a repository that the host does not have yet is known after their installation.
    """
    held = registered.SLURM_INSTALLED.seen(host).get("held") or {}
    return str(host.facts["slurm_version"] or files_version(host["slurm_packages"]) or next(iter(held.values()), ""))


def slurm_release(host: RunHost) -> str:
    """The release of Slurm on the host, such as 24.11; empty if it is not known."""
    return ".".join(slurm_version(host).split(".")[:2])


def platform(host: RunHost) -> Release:
    """What the host's release of Slurm has. A release that is not known yet lacks nothing: it is the newest one."""
    return RELEASES.get(slurm_release(host) if host.answer() else "", RELEASES[NEWEST])


def expected_release(host: RunHost) -> dict[str, str] | None:
    """The release that the host gets, for the module slurm_packages; None if the cluster has none yet."""
    order = registered.SLURM_RELEASE_ORDER.get(host) or registered.SLURM_RUN.seen(host).get("release_order") or {}
    return {"package": source(host).version, "release": order["release"]} if order.get("release") else None


def plugins(host: RunHost) -> list[str]:
    """Packages with which slurmd finds the GPUs of the host, and those of plugins that slurm_conf names."""
    packages = source(host).plugins
    methods = [method for method in packages if host.name in host.shared("plugin_hosts")[method]]
    return [*(package for method in methods for package in packages[method]), *configured_plugins(host)]


def configured_plugins(host: RunHost) -> list[str]:
    """Packages of plugins that the site's slurm_conf names, on all hosts whose daemons load them.

    slurmctld loads them all, and slurmd those that measure jobs (`acct_gather_conf_init` in
    src/interfaces/acct_gather.c). They are written with a slash.
    """
    if source(host) is not SOURCES["distribution"] or not (is_controller(host) or host.within("slurm_compute")):
        return []
    values = (value if isinstance(value, list) else str(value).split(",") for value in host["slurm_conf"].values())
    named = {str(word).strip().lower().replace("/", "_") for value in values for word in value}
    if not is_controller(host):
        named = {plugin for plugin in named if plugin.startswith("acct_gather_")}
    return [package for package, there in PLUGINS_OF_PACKAGES.items() if named & {*there}]


def missing_plugins(host: RunHost) -> list[str]:
    """Those packages that the host lacks."""
    return [package for package in plugins(host) if package not in host.facts["packages"]]


def objections(host: RunHost) -> list[str]:
    """Why the collection refuses the platform of a host, each with the way out."""
    return [
        *_object_to_distribution(host),
        *_object_to_packages(host),
        *_object_to_release(host),
        *_object_to_version(host),
    ]


def _object_to_distribution(host: RunHost) -> Iterator[str]:
    """A distribution that the collection does not know."""
    distribution = host.facts["distribution"]
    if distribution not in DISTRIBUTIONS:
        yield f"this collection does not know the distribution {distribution}; it knows {', '.join(DISTRIBUTIONS)}"


def _object_to_packages(host: RunHost) -> Iterator[str]:
    """Packages of another source than the wanted one, or none at all."""
    facts, wanted = host.facts, source(host)
    installed = next((other for other in SOURCES.values() if other.version in facts["packages"]), wanted)
    if installed is not wanted:
        yield (
            f"the host has Slurm {facts['slurm_version']} with packages of {installed.title}, and slurm_packages asks "
            f"for those of {wanted.title}; to change it, drain the host, wait for the end of its jobs, run apt-get "
            f"remove --allow-change-held-packages '?installed?source-package({installed.hold[0]})' there, and run "
            "site.yml again"
        )
    if not slurm_version(host) and not has_repository(host):
        from_distribution = wanted.name == "distribution"
        way = "Ubuntu's component universe has it" if from_distribution else "slurm_packages: repository and key"
        yield f"apt has no package {wanted.version}; add a repository that has it ({way})"


def _object_to_release(host: RunHost) -> Iterator[str]:
    """A release of Slurm that the collection does not know."""
    version, release = slurm_version(host), slurm_release(host)
    if version and release not in RELEASES:
        age = "too old" if release < min(RELEASES) else "unknown"
        way = (
            "install SchedMD's packages (slurm_packages, the key packages of the cluster file)"
            if source(host).name == "distribution"
            else "give packages of one of these"
        )
        yield f"Slurm {version} is {age}: this collection knows the releases {', '.join(RELEASES)}; {way}"


def _object_to_version(host: RunHost) -> Iterator[str]:
    """Another version than that of the wanted files, or an upgrade that has not ended."""
    if registered.SLURM_UPGRADES.get(host):
        return
    present, files = packages_version(host), files_version(host["slurm_packages"])
    if has_files(host) and present not in ("", files):
        yield (
            f"the host has Slurm {present}, and the files of slurm_packages are {files}; site.yml installs Slurm and "
            f"never changes its version, so give the files of {present}, or upgrade all hosts with the playbook "
            "gpucluster.slurm.upgrade"
        )
    if UPGRADE_MARK in host.facts["files"]:
        yield (
            "an upgrade of Slurm has begun here and has not ended; run gpucluster.slurm.upgrade again, which continues "
            "it"
        )


def units_package(host: RunHost, daemon: str) -> str:
    """The package that has the unit of a daemon."""
    return source(host).units[daemon]


def has_package(host: RunHost, *names: str) -> bool:
    """Whether the host has all of these packages."""
    packages = host.facts["packages"]
    return all(name in packages for name in names)
