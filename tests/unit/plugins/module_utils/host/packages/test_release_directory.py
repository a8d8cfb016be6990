# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages whose content a directory gets."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import (
    package_files,
    release_directory,
)


def test_packages_that_apt_would_install_are_found_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_directory, "ARCHIVES", str(tmp_path))
    deb = tmp_path / "libslurm45_1%3a26.05.1-1_amd64.deb"
    deb.write_bytes(b"")
    module = Mock()
    module.run_command.return_value = (
        0,
        "Inst libslurm45 (1:26.05.1-1 Debian:unstable [amd64])\n"
        "Inst slurmd [24.11.5-4] (26.05.1-1 local-deb [amd64]) []\n"
        "Conf slurmd (26.05.1-1 local-deb [amd64])\n",
        "",
    )
    file = tmp_path / "5f70bf18a0860070-slurmd_26.05.1-1_amd64.deb"  # from a URL
    file.write_bytes(b"")
    files = [package_files.PackageFile(str(file), file.name, "slurmd", "26.05.1-1", "amd64")]
    assert release_directory.download_archives(module, [str(file)], files, "/nowhere") == [str(deb), str(file)]
    deb.unlink()
    module.run_command.side_effect = [module.run_command.return_value, (100, "", "E: no network")]
    with pytest.raises(package_files.PackageError, match=r"apt-get download libslurm45=1:26.05.1-1: E: no network"):
        release_directory.download_archives(module, [str(file)], files, "/nowhere")
