# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes have device files open. /proc is a directory of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.device_holders import DeviceHolder, device_holders

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

SYSTEM = "0::/system.slice/{}\n"
USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/system.slice/{}\n"


def process(proc: Path, pid: int, cgroup: str, *files: str) -> None:
    (proc / f"{pid}/fd").mkdir(parents=True)
    for number, path in enumerate(files):
        (proc / f"{pid}/fd/{number}").symlink_to(path)
    (proc / f"{pid}/cgroup").write_text(cgroup)
    (proc / f"{pid}/comm").write_text(f"process{pid}\n")


def test_holders_and_their_services(tmp_path: Path) -> None:
    process(tmp_path, 1, "0::/init.scope\n", "/dev/null")
    process(tmp_path, 70, SYSTEM.format("nvidia-persistenced.service"), "/dev/null", "/dev/nvidiactl", "/dev/nvidia0")
    process(tmp_path, 71, SYSTEM.format("system-dcgm.slice/dcgm@1.service/worker"), "/dev/nvidia-uvm")
    process(tmp_path, 72, "12:devices:/x\n1:name=systemd:/system.slice/old.service\n0::/\n", "/dev/nvidia1")
    process(tmp_path, 73, SYSTEM.format("sshd.service"), "/dev/null")
    process(tmp_path, 4711, "0::/user.slice/user-1000.slice/session-3.scope\n", "/dev/nvidia0")
    (tmp_path / "80").mkdir()  # it has ended
    (tmp_path / "self").mkdir()
    assert device_holders("/dev/nvidia", str(tmp_path)) == [
        DeviceHolder(70, "process70", "nvidia-persistenced.service"),
        DeviceHolder(71, "process71", "dcgm@1.service"),
        DeviceHolder(72, "process72", "old.service"),
        DeviceHolder(4711, "process4711", ""),
    ]


def test_a_user_has_no_service_of_the_system(tmp_path: Path) -> None:
    """A user can name directories below the own service as the user likes."""
    process(tmp_path, 4711, USER.format("nvidia-persistenced.service"), "/dev/nvidia0")
    assert device_holders("/dev/nvidia", str(tmp_path)) == [DeviceHolder(4711, "process4711", "")]


def test_open_files_of_this_machine() -> None:
    with open("/dev/null", encoding="utf-8"):
        assert [one for one in device_holders("/dev/null") if one.name]
