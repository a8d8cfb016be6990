# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that slurmd of a node reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_configuration_info
from ansible_collections.gpucluster.slurm.plugins.modules.slurm_configuration_info import of_slurmd, path_of_slurmd


@pytest.mark.parametrize(
    ("arguments", "environment", "path"),
    [
        (["/usr/sbin/slurmd", "--systemd"], {}, ""),
        (["slurmd", "-D", "-f", "/opt/slurm.conf"], {"SLURM_CONF": "/srv/slurm.conf"}, "/opt/slurm.conf"),
        (["slurmd", "-f/opt/slurm.conf"], {}, "/opt/slurm.conf"),
        (["slurmd"], {"SLURM_CONF": "/srv/slurm.conf"}, "/srv/slurm.conf"),
        (["slurmd", "--conf-server", "ctl:6817", "-f", "/opt/slurm.conf"], {}, None),
        (["slurmd", "--conf-server=ctl"], {}, None),
        (["slurmd"], {"SLURMD_RECONF_CONF_CACHE": "/var/spool/slurmd/conf-cache"}, None),
    ],
)
def test_the_path_that_slurmd_was_started_with(
    arguments: list[str], environment: dict[str, str], path: str | None
) -> None:
    assert path_of_slurmd(arguments, environment) == path


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of slurmd, which does not run without any. The usual slurm.conf is in a directory of the test."""
    arguments: list[str] = []
    monkeypatch.setattr(slurm_configuration_info, "DEFAULT", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr(slurm_configuration_info, "PROGRAMS", str(tmp_path))
    (tmp_path / "slurmd").touch(0o755)
    monkeypatch.setattr(
        slurm_configuration_info, "run", lambda _command: SimpleNamespace(output="7\n" if arguments else "")
    )
    strings = {"cmdline": arguments, "environ": []}
    monkeypatch.setattr(slurm_configuration_info, "read_strings", lambda _process, name: strings[name])
    return arguments


@pytest.mark.parametrize("runs", [True, False])
def test_files_of_a_node_are_read_also_while_slurmd_is_down(tmp_path: Path, running: list[str], runs: bool) -> None:
    running += ["slurmd"] if runs else []
    assert of_slurmd("") == {"files": {}, "directory": str(tmp_path)}
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "cgroup.conf").write_text("ConstrainCores=yes\n")
    files = {"slurm.conf": "ClusterName=x\n", "cgroup.conf": "ConstrainCores=yes\n"}
    assert of_slurmd("") == {"files": files, "directory": str(tmp_path)}


def test_files_that_slurmd_does_not_read_are_not_returned(tmp_path: Path, running: list[str]) -> None:
    """Without a slurmd, and on a node that fetches its files."""
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "slurmd").unlink()  # what another slurmd has left
    assert of_slurmd("") == {"files": {}, "directory": ""}
    running += ["slurmd", "--conf-server", "ctl"]
    assert of_slurmd("") == {"files": {}, "directory": ""}
