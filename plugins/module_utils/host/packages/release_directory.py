# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory with the content of packages that are not installed, so that their programs run next to others."""

from __future__ import annotations

import os
import re
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ..files import write_new
from .apt_get import APT_GET, CHANGE, ENVIRONMENT
from .package_files import PackageError, PackageFile

ARCHIVES = "/var/cache/apt/archives"
UNPACKED = "packages"
"""The file of an unpacked directory that lists its packages."""


def download_archives(module: AnsibleModule, targets: list[str], debs: list[PackageFile], directory: str) -> list[str]:
    """The files of the packages that apt would install for these targets, downloaded. Raises PackageError.

    debs: the packages among the targets that are files.
    """
    rc, stdout, stderr = module.run_command(
        [*CHANGE, "--quiet=0", "--simulate", "--", *targets], environ_update=ENVIRONMENT
    )
    if rc != 0:
        raise PackageError(f"apt-get install --simulate: {(stderr or stdout).strip()}")
    local = {(deb.name, deb.version): deb.path for deb in debs}
    files = []
    for name, version, architecture in re.findall(
        r"^Inst (\S+) (?:\[\S+\] )?\((\S+) .*\[(\w+)\]\)", stdout, re.MULTILINE
    ):
        package = name.partition(":")[0]
        file = f"{package}_{version.replace(':', '%3a')}_{architecture}.deb"
        path = local.get((package, version), os.path.join(ARCHIVES, file))
        if not os.path.exists(path):  # one from a repository on this host is not copied there
            rc, stdout, stderr = module.run_command([*APT_GET, "download", "--", f"{name}={version}"], cwd=directory)
            path = os.path.join(directory, file)
            if rc != 0 or not os.path.exists(path):
                raise PackageError(f"apt-get download {name}={version}: {(stderr or stdout).strip()}")
        files.append(path)
    return files


def unpack_packages(module: AnsibleModule, targets: list[str], debs: list[PackageFile], directory: str) -> None:
    """Unpack the downloaded packages into a directory, which is never there in part. Raises PackageError, OSError."""
    os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(directory), prefix=".unpack-") as scratch:
        files = download_archives(module, targets, debs, scratch)
        content = "".join(f"{os.path.basename(file)}\n" for file in files)
        try:
            with open(os.path.join(directory, UNPACKED), encoding="utf-8") as file:
                if file.read() == content:
                    return
        except FileNotFoundError:
            pass
        root = os.path.join(scratch, "root")
        for path in files:
            rc, _stdout, stderr = module.run_command(["dpkg-deb", "--extract", path, root])
            if rc != 0:
                raise PackageError(f"dpkg-deb --extract {path}: {stderr.strip()}")
        write_new(os.path.join(root, UNPACKED), content.encode(), 0o644)
        os.chmod(root, 0o755)
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(root, directory)
