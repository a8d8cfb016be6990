# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt and dpkg do on a host: versions, an installation without its services, and held packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ansible.module_utils.basic import AnsibleModule

from ...configuration.release_order import PACKAGE_SOURCE
from ...configuration.upgrade import parts
from ..files import File, write
from . import dpkg
from .apt_lock import SECONDS, run_unlocked
from .package_files import PackageError, PackageFile

APT_GET = ["apt-get", "--quiet=2", f"--option=DPkg::Lock::Timeout={SECONDS}"]
INSTALL = [
    *APT_GET,
    "install",
    "--yes",
    "--no-install-recommends",
    "--allow-downgrades",
    "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold",
]
CHANGE = [*INSTALL, "--allow-change-held-packages", "--no-remove"]
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
POLICY = "/usr/sbin/policy-rc.d"
"""The program that invoke-rc.d(8) runs to find out whether a service may be started; exit status 101 forbids it."""
HOLD = "#!/bin/sh\n# Managed by gpucluster.slurm: it is there while packages are installed.\nexit 101\n"


def finish_installation(module: AnsibleModule) -> None:
    """Finish an interrupted installation. Raises PackageError if dpkg cannot, or if another one does not end."""
    configure = ["dpkg", "--configure", "--pending"]
    rc, stdout, stderr = run_unlocked(module, configure, ENVIRONMENT)
    if rc != 0 and reinstall_broken(module):
        rc, stdout, stderr = run_unlocked(module, configure, ENVIRONMENT)
    if rc != 0:
        raise PackageError(f"dpkg --configure --pending: {(stderr or stdout).strip()}")


def reinstall_broken(module: AnsibleModule) -> bool:
    """Install packages again that were being unpacked when dpkg was killed, since it configures none of them.

    Returns whether there were any. What fails then says why.
    """
    broken = dpkg.broken(module.run_command([*dpkg.BROKEN_QUERY])[1])
    if broken:
        run_unlocked(module, [*CHANGE, "--reinstall", "--", *broken], ENVIRONMENT)
    return bool(broken)


def update_lists(module: AnsibleModule) -> str:
    """Download apt's lists. Returns why that failed, which need not matter: the old lists may do."""
    rc, _stdout, stderr = run_unlocked(module, [*APT_GET, "update"], ENVIRONMENT)
    errors = [line for line in stderr.split("\n") if line.startswith("E:")]
    return f"apt-get update: {'; '.join(errors) or f'exit status {rc}'}" if rc != 0 else ""


@contextmanager
def services_held(hold: bool) -> Iterator[None]:
    """Prevent services from starting meanwhile, unless the host has its own policy file.

    One of a killed run is replaced.
    """
    try:
        with open(POLICY, encoding="utf-8", errors="replace") as file:
            own = file.read() != HOLD
    except FileNotFoundError:
        own = False
    if not hold or own:
        yield
        return
    write([File(POLICY, HOLD.encode(), mode=0o755)])
    try:
        yield
    finally:
        os.unlink(POLICY)


def read_versions(policy: str) -> dict[str, list[str]]:
    """The versions that apt can install, by package, its candidate first, as `apt-cache policy` says it."""
    found: dict[str, list[str]] = {}
    for package, block in re.findall(r"^(\S+):\n((?: .*\n)*)", policy + "\n", re.MULTILINE):
        versions = re.findall(r"^  Candidate: (\S+)", block, re.MULTILINE)
        found[package] = versions + re.findall(r"^ (?:\*\*\*|   ) (\S+) -?\d+(?: \(.*\))?$", block, re.MULTILINE)
    return found


def versions_to_change(
    packages: Mapping[str, dpkg.Package], policy: str, sources: list[str], version: str
) -> list[str]:
    """The installed packages of these sources that get another version, as NAME=VERSION.

    They get `version`, or the candidate if they have versions of their own. A package that the new version does not
    have any more keeps its own, as apt knows no other.
    """
    known, changed = read_versions(policy), []
    for name, package in sorted(packages.items()):
        if package.source in sources and name in known:
            wanted = version if version in known[name] else known[name][0]
            if wanted not in (package.version, "(none)"):
                changed.append(f"{name}={wanted}")
    return changed


def find_versions_to_change(module: AnsibleModule, listing: str, files: set[str]) -> list[str]:
    """The installed packages that `version` changes, except those that are files."""
    version = module.params["version"]
    if not version:
        return []
    packages = {
        name: package
        for name, package in dpkg.installed(listing).items()
        if package.source in module.params["hold"] and name not in files
    }
    policy = module.run_command(["apt-cache", "policy", "--", *sorted(packages)], environ_update=ENVIRONMENT)[1]
    return versions_to_change(packages, policy, module.params["hold"], version)


def find_version(module: AnsibleModule, targets: list[str], package: str) -> str:
    """The version of a package that apt would install with these targets; empty if it would not, or cannot."""
    command = [*INSTALL, "--quiet=0", "--simulate", "--", *targets]
    stdout = module.run_command(command, environ_update=ENVIRONMENT)[1]
    found = re.search(rf"^Inst {re.escape(package)} (?:\[\S+\] )?\((\S+) ", stdout, re.MULTILINE)
    return found[1] if found else ""


def limit_to_release(module: AnsibleModule, targets: list[str], debs: list[PackageFile]) -> list[str]:
    """The targets, with the version of Slurm that O(slurm) allows. Raises PackageError if there is no such version.

    Without it, apt would install what its lists have, which can be another release than that of the cluster.
    """
    slurm = module.params["slurm"]
    if not slurm:
        return targets
    package, release = slurm["package"], slurm["release"]
    own = [deb.version for deb in debs if deb.name == package]
    version = own[0] if own else find_version(module, targets, package)
    if not own and version and parts(version)[0] != release:
        update_lists(module)
        version = find_version(module, targets, package)
    if version and parts(version)[0] != release:
        raise PackageError(
            f"{package}: found version {version}, allowed: Slurm {release}, which the cluster has. "
            f"{PACKAGE_SOURCE.format(release=release)}"
        )
    return [*targets, f"{package}={version}"] if version and not own else targets


def install_packages(
    module: AnsibleModule, targets: list[str], debs: list[PackageFile], checked: list[str] | None = None
) -> None:
    """Install packages, or only download them. If apt does not find one, update its package lists and try again.

    debs: the packages among the targets that are files.
    checked: the targets as limit_to_release returned them, if apt would still answer the same.

    Raises PackageError.
    """
    command = [*(CHANGE if module.params["version"] else INSTALL)]
    if module.params["download"]:
        command.append("--download-only")
    if module.params["slurm_release"]:
        command.append("--reinstall")  # a package with other plugins may have the same version
    wanted = [*command, "--", *(checked or limit_to_release(module, targets, debs))]
    rc, stdout, stderr = run_unlocked(module, wanted, ENVIRONMENT)
    outdated = ""
    if rc != 0:
        outdated = update_lists(module)
        reinstall_broken(module)
        wanted = [*command, "--", *limit_to_release(module, targets, debs)]
        rc, stdout, stderr = run_unlocked(module, wanted, ENVIRONMENT)
    if rc != 0:
        lines = [line for line in f"{stdout}\n{stderr}".split("\n") if line.strip() and not line.startswith("W:")]
        lines += [outdated] if outdated else []
        raise PackageError(f"apt-get install {' '.join(targets)}: " + "; ".join(lines[-8:]))


def hold_packages(module: AnsibleModule) -> dict[str, str]:
    """Hold the installed packages from the source packages of `hold`; the version by package of those that were not.

    In check mode nothing is changed. Raises PackageError.
    """
    packages = dpkg.installed(module.run_command([*dpkg.QUERY])[1])
    names = dpkg.unheld(packages, module.params["hold"])
    if names and not module.check_mode:
        selections = "".join(f"{name} hold\n" for name in names)
        rc, stdout, stderr = module.run_command(["dpkg", "--set-selections"], data=selections)
        if rc != 0:
            raise PackageError(f"dpkg --set-selections: {(stderr or stdout).strip()}")
    return {name: packages[name].version for name in names}
