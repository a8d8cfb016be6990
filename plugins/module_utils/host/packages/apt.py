# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt and dpkg, the package manager of Debian and Ubuntu."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from . import apt_get, deb_files, dpkg, release_directory
from .package_files import PackageFile
from .package_manager import PackageManager

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Plugin


class Apt(PackageManager):
    """apt and dpkg."""

    source_files = "/etc/apt/"

    @cached_property
    def _found(self) -> str:
        """What dpkg lists before anything is changed."""
        return str(self.module.run_command([*dpkg.QUERY])[1])

    def installed(self) -> dict[str, str]:
        return {name: package.version for name, package in dpkg.installed(self._found).items()}

    def installed_now(self) -> list[str]:
        return [*dpkg.installed(str(self.module.run_command([*dpkg.QUERY])[1]))]

    def is_interrupted(self) -> bool:
        return bool(os.listdir(dpkg.JOURNAL))

    def finish_installation(self) -> None:
        apt_get.finish_installation(self.module)

    def services_held(self, hold: bool) -> AbstractContextManager[None]:
        return apt_get.services_held(hold)

    def read_file(self, package: dict[str, str | None]) -> PackageFile:
        return deb_files.read_package(self.module, package)

    def check_architecture(self, files: list[PackageFile]) -> None:
        deb_files.check_architecture(self.module, files)

    def check_plugins(self, files: list[PackageFile], release: str) -> list[Plugin]:
        return deb_files.check_plugins(self.module, files, release)

    def find_versions_to_change(self, files: set[str]) -> list[str]:
        return apt_get.find_versions_to_change(self.module, self._found, files)

    def limit_to_release(self, targets: list[str], files: list[PackageFile]) -> list[str]:
        return apt_get.limit_to_release(self.module, targets, files)

    def install(self, targets: list[str], files: list[PackageFile], checked: list[str] | None = None) -> None:
        apt_get.install_packages(self.module, targets, files, checked)

    def unpack(self, targets: list[str], files: list[PackageFile], directory: str) -> None:
        release_directory.unpack_packages(self.module, targets, files, directory)

    def hold(self) -> dict[str, str]:
        return apt_get.hold_packages(self.module)
