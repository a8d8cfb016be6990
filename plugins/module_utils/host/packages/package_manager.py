# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_packages asks of a package manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from ansible.module_utils.basic import AnsibleModule

from .package_files import PackageFile

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Plugin


class PackageManager(ABC):
    """The package manager of a host. Its methods raise PackageError, and OSError where they read files.

    Args:
        module: runs the commands, and has the options of slurm_packages.
    """

    source_files: ClassVar[str]
    """The directory of the files that say where packages come from."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    @abstractmethod
    def installed(self) -> dict[str, str]:
        """The versions of the packages that were installed before this module's changes, by name."""

    @abstractmethod
    def installed_now(self) -> list[str]:
        """The names of the installed packages."""

    @abstractmethod
    def is_interrupted(self) -> bool:
        """Whether an installation has begun and not ended."""

    @abstractmethod
    def finish_installation(self) -> None:
        """Finish an interrupted installation, or wait for one that runs."""

    @abstractmethod
    def services_held(self, hold: bool) -> AbstractContextManager[None]:
        """Prevent, if `hold`, that an installation starts services meanwhile."""

    @abstractmethod
    def read_file(self, package: dict[str, str | None]) -> PackageFile:
        """A package by URL or file, with its name, version and architecture."""

    @abstractmethod
    def check_architecture(self, files: list[PackageFile]) -> None:
        """Refuse packages for another architecture."""

    @abstractmethod
    def check_plugins(self, files: list[PackageFile], release: str) -> list[Plugin]:
        """The plugins of Slurm in packages, which have to be for this release."""

    @abstractmethod
    def find_versions_to_change(self, files: set[str]) -> list[str]:
        """The installed packages that the option `version` changes, as targets, except those named as files."""

    @abstractmethod
    def limit_to_release(self, targets: list[str], files: list[PackageFile]) -> list[str]:
        """The targets, with the version of Slurm that the option `slurm` allows.

        Args:
            targets: names of packages and paths of files.
            files: the packages among the targets that are files.
        """

    @abstractmethod
    def install(self, targets: list[str], files: list[PackageFile], checked: list[str] | None = None) -> None:
        """Install packages, or only download them.

        Args:
            targets: names of packages and paths of files.
            files: the packages among the targets that are files.
            checked: what `limit_to_release` has returned, if it would still return the same.
        """

    @abstractmethod
    def unpack(self, targets: list[str], files: list[PackageFile], directory: str) -> None:
        """Unpack the downloaded packages into a directory, which is never there in part."""

    @abstractmethod
    def hold(self) -> dict[str, str]:
        """Hold the installed packages of the option `hold`; the version by package of those that were not held."""
