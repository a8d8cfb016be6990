#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_packages
short_description: Install packages from a repository, a URL or a file, with their configuration files
description:
  - Installs Debian packages by name from the repositories that apt knows, from a URL with a checksum, or from a file on
    the host. Their dependencies come from the repositories.
  - Before anything is changed, it checks checksums, architectures and, with O(slurm_release), the release of Slurm that
    the plugins in the packages were built for.
  - Directories are created and corrected after O(before), and before the packages are installed.
  - Files are written before the packages are installed, so that a file can define a repository, and services start with
    their configuration.
  - An installation that was interrupted is finished first.
  - A downloaded package is kept in C(/var/cache/gpucluster-slurm), in check mode as well, since its content cannot be
    checked without it.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_packages]
"""

EXAMPLES = r"""
- name: Install slurmd, and start it later
  gpucluster.slurm.slurm_packages: {packages: [{name: slurmd}], hold: [slurm-wlm], hold_services: true}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.formats.package_names import package as package_name
from ..module_utils.host.directories import OPTION as DIRECTORIES
from ..module_utils.host.directories import Directories
from ..module_utils.host.directories import from_options as wanted_directories
from ..module_utils.host.files import OPTION, File, from_options, write
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.packages import added_packages, package_files
from ..module_utils.host.packages.apt import Apt
from ..module_utils.host.packages.package_files import PackageError, PackageFile
from ..module_utils.host.packages.package_manager import PackageManager

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PackagesResult, Plugin

LOCK_SECONDS = 1800
"""The time limit for an installation of a killed run, which may download gigabytes."""


def downloaded(module: AnsibleModule) -> list[File]:
    """The files of `downloads`. Raises PackageError, FileError, OSError."""
    files = []
    for wanted in module.params["downloads"]:
        with open(package_files.fetch_package(module, wanted["url"], wanted["sha256"].lower()), "rb") as content:
            files.append(File(wanted["path"], content.read()))
    return files


def prepare(module: AnsibleModule) -> None:
    """Run the commands of `before`. Raises PackageError."""
    for command in module.params["before"]:
        rc, stdout, stderr = module.run_command(command)
        if rc != 0:
            raise PackageError(f"{' '.join(command)}: {(stderr or stdout).strip()}")


@dataclass(frozen=True)
class Plan:
    """What the host lacks."""

    names: list[str]
    """The packages that are installed by name, each with its version if it is known."""
    package_files: list[PackageFile]
    """The packages that are files and are installed."""
    installed: dict[str, str]
    """The versions of all packages that are installed now, by name."""
    plugins: list[Plugin]
    directories: Directories
    files: list[File]
    changed_files: list[File]
    interrupted: bool
    """Whether an interrupted installation must be finished."""
    stale: bool
    """Whether the commands of `before` must be run."""

    @property
    def targets(self) -> list[str]:
        """Names of packages and paths of files, as the package manager takes them."""
        return self.names + [package.path for package in self.package_files]

    @property
    def after(self) -> list[str]:
        """The packages that are installed, with their versions where these are known."""
        return self.names + [f"{package.name}={package.version}" for package in self.package_files]


def check_options(params: Params) -> None:
    """Raises PackageError if a package cannot have its name, or if a command is not a list of texts."""
    for package in params["packages"]:
        if package["name"] is not None:
            try:
                package_name(package["name"])
            except ValueError as error:
                raise PackageError(f"packages: name: found {package['name']!r}, {error}") from None
    for command in params["before"]:
        if not command or not all(isinstance(argument, str) for argument in command):
            raise PackageError(f"before: found {command!r}, allowed: a command, a list of texts")


def check_package_files(
    manager: PackageManager, params: Params, names: list[str]
) -> tuple[list[PackageFile], list[Plugin]]:
    """The packages that are files, and their plugins with `slurm_release`. Raises PackageError, OSError.

    names: the packages that are no files, which are not allowed with `slurm_release`.
    """
    found = [manager.read_file(package) for package in params["packages"] if not package["name"]]
    manager.check_architecture(found)
    release = params["slurm_release"]
    if release and names:
        raise PackageError(f"{names[0]}: found a name, allowed: url or file, since the plugin in it must be read")
    return found, manager.check_plugins(found, release) if release else []


def is_installed(package: PackageFile, installed: Mapping[str, str], plugins: list[Plugin]) -> bool:
    """Whether the host has this version of a package, and these plugins."""
    return installed.get(package.name) == package.version and package_files.plugins_installed(plugins)


def plan(module: AnsibleModule, manager: PackageManager) -> Plan:
    """Compare the host with the options. Raises PackageError, FileError, OSError."""
    params = module.params
    check_options(params)
    names = [package["name"] for package in params["packages"] if package["name"]]
    found, plugins = check_package_files(manager, params, names)
    installed = manager.installed()
    missing = [name for name in names if re.split("[=:/]", name)[0] not in installed]
    missing += manager.find_versions_to_change({package.name for package in found})
    other_files = [package for package in found if not is_installed(package, installed, plugins)]
    directories = Directories(wanted_directories(params["directories"]))
    directories.check()
    files = from_options(params["files"]) + downloaded(module)
    changed_files = [file for file in files if file.changes]
    interrupted = manager.is_interrupted()
    stale = params["stale"] or bool(params["before"] and (changed_files or missing or other_files))
    return Plan(missing, other_files, installed, plugins, directories, files, changed_files, interrupted, stale)


def download(manager: PackageManager, plan: Plan, unpacked: str | None) -> PackagesResult:
    """Download the packages, and unpack them into a directory if one is given. Raises PackageError, OSError."""
    if plan.targets:
        manager.install(plan.targets, plan.package_files)
        if unpacked:
            manager.unpack(plan.targets, plan.package_files, unpacked)
    return {"changed": False, "installed": plan.targets, "held": {}, "files": [], "plugins": plan.plugins, "diff": []}


def targets_checked_first(manager: PackageManager, plan: Plan) -> list[str] | None:
    """Check the release of Slurm that would be installed, before anything is changed. Raises PackageError.

    Returns: the targets with their version, or None if this must be asked again when they are installed.
    """
    # Files that name another source of packages come first; the package manager is asked after them.
    if not plan.targets or any(file.path.startswith(manager.source_files) for file in plan.changed_files):
        return None
    checked = manager.limit_to_release(plan.targets, plan.package_files)
    return None if plan.stale or plan.interrupted else checked  # the answer is another one afterwards


def apply(module: AnsibleModule, manager: PackageManager, plan: Plan) -> dict[str, str]:
    """Change the host, except in check mode.

    Returns: the packages that were held, with their versions. Raises PackageError, FileError, OSError.
    """
    checked = targets_checked_first(manager, plan)
    write(plan.files, module.check_mode)
    if not module.check_mode:
        if plan.stale:
            prepare(module)
        if plan.directories.differ:
            Directories(plan.directories.wanted).repair()  # their owners may be new
        if plan.targets or plan.interrupted:
            added_packages.begin(plan.installed)
        with manager.services_held(module.params["hold_services"]):
            if plan.interrupted:
                manager.finish_installation()
            if plan.targets:
                manager.install(plan.targets, plan.package_files, checked)
    held = manager.hold() if module.params["hold"] else {}
    if not module.check_mode and (plan.targets or plan.interrupted or held):
        added_packages.end(manager.installed_now(), held)
    return held


def lines_diff(title: str, before: list[str], after: list[str]) -> dict[str, str]:
    """The diff of two lists, an entry a line."""
    texts = {"before": before, "after": after}
    return {"before_header": title, "after_header": title} | {
        side: "".join(f"{line}\n" for line in lines) for side, lines in texts.items()
    }


def diff_of(plan: Plan, held: Mapping[str, str]) -> list[dict[str, str]]:
    """The differences as Ansible shows them."""
    diff: list[dict[str, str]] = [*(file.diff for file in plan.changed_files), *plan.directories.diff]
    after = plan.after
    if after:
        changed = {package.name for package in plan.package_files} | {name.partition("=")[0] for name in plan.names}
        before = [f"{name}={version}" for name, version in plan.installed.items() if name in changed]
        before = [f"{package} with other plugins" if package in after else package for package in before]
        diff.append(lines_diff("packages", before, after))
    if plan.interrupted:
        diff.append({"before": "an installation was interrupted\n", "after": "it is finished\n"})
    if held:
        diff.append(lines_diff("held packages", [], [f"{name}={version}" for name, version in held.items()]))
    return diff


def install_wanted(module: AnsibleModule) -> PackagesResult:
    """The module's work, and its result. Raises PackageError, FileError, OSError."""
    manager = Apt(module)
    wanted = plan(module, manager)
    if module.params["download"]:
        return download(manager, wanted, module.params["unpack"])
    held = apply(module, manager, wanted)
    changes = [wanted.changed_files, wanted.directories.differ, wanted.after, held, wanted.interrupted]
    return {
        "changed": any([*changes, module.params["stale"]]),
        "installed": wanted.after,
        "held": held,
        "files": [file.path for file in wanted.changed_files],
        "plugins": wanted.plugins,
        "diff": diff_of(wanted, held),
    }


ARGUMENTS = {
    "packages": several(
        "The packages. A package with O(packages[].name) is installed if it is missing, one from a URL or file if "
        "another version is installed or, with O(slurm_release), other plugins, such as those for another release of "
        "Slurm.",
        "dict",
        options={
            "name": option(
                "Name of a package in a repository, optionally with the version to install, such as "
                "V(slurmd=24.11.5-4). A package that is installed in another version stays as it is."
            ),
            "url": option("URL of a package, with O(packages[].sha256)."),
            "file": option(
                "Name of a package that has been copied to C(/var/cache/gpucluster-slurm) on the host. Of a path, "
                "only the last part is used.",
                "path",
            ),
            "sha256": option("SHA-256 checksum of the package."),
        },
        mutually_exclusive=[("name", "url", "file"), ("name", "sha256")],
        required_one_of=[("name", "url", "file")],
        required_by={"url": "sha256"},
    ),
    "files": OPTION,
    "directories": DIRECTORIES,
    "before": several(
        "Commands that are run after the files are written and before packages are installed, each a list of "
        "arguments. An example is a command that creates users with fixed ids. They are run if a file changes or a "
        "package is installed, and with O(stale).",
        "list",
    ),
    "stale": switch("Whether O(before) must be run for another reason."),
    "downloads": several(
        "Files that are downloaded, such as the key of a repository. They are written together with O(files).",
        "dict",
        options={
            "path": option("Path of the file.", "path", required=True),
            "url": option("URL of its content.", required=True),
            "sha256": option("SHA-256 checksum of its content.", required=True),
        },
    ),
    "hold": several(
        "Names of source packages. After the installation, all installed packages from these sources are held "
        "(C(apt-mark hold)), so that C(apt-get upgrade) does not change them."
    ),
    "hold_services": switch(
        "Whether to prevent the services of the packages from starting during the installation. A Slurm daemon that "
        "starts without a configuration searches for one in DNS for 90 s."
    ),
    "version": option(
        "The version, such as V(26.05.1-1), to which the installed packages of the source packages in O(hold) are "
        "changed, held or not. A package of these sources that has versions of its own is changed to the one that apt "
        "offers. Nothing is removed for it. Without this option, installed packages keep their version."
    ),
    "download": switch(
        "Whether the packages are only downloaded, with their new dependencies, so that a later installation needs no "
        "network. Nothing is installed and no file is written. It is done in check mode as well."
    ),
    "unpack": option(
        "With O(download), a directory that gets the content of these packages, so that their programs can run next "
        "to the installed ones. It is replaced unless it has the same packages. If there is nothing to install, it "
        "stays.",
        "path",
    ),
    "slurm_release": option(
        "The release of Slurm, such as V(24.11), that the plugins in the packages must be built for. "
        "O(packages[].name) is not allowed with it, since the module must read the plugins before the installation."
    ),
    "slurm": option(
        "The release of Slurm that the cluster has. If apt would install another one, its lists are updated, and the "
        "module fails unless they have that release then. A host that has Slurm already is not concerned.",
        "dict",
        options={
            "package": option("The package whose version is that of all packages of Slurm.", required=True),
            "release": option("The release, such as V(24.11).", required=True),
        },
    ),
}


def main() -> None:
    run_module(install_wanted, ARGUMENTS, lock=("packages", LOCK_SECONDS), required_by={"version": "hold"})


if __name__ == "__main__":
    main()
