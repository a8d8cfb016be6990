# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers without a common state directory, or with one that is not mounted: slurmctld does not start.

The login host becomes the second controller, and stays one for `test_two_controllers.py`, which runs next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab, with_cluster

# 65 s; few sites have several controllers.
pytestmark = pytest.mark.rare

STATE = "/home/slurm-state"
STAGES = "--tags=base,controller,compute,login"


def two_controllers(lab: Lab, directory: Path) -> Lab:
    """The lab with a second controller, as in `test_two_controllers.py`."""
    slurm_conf = {"StateSaveLocation": STATE, "SlurmctldTimeout": 10}
    controllers = f"{lab.controller},{lab.login}"
    return with_cluster(lab, directory, {**lab.cluster, "controllers": controllers, "slurm_conf": slurm_conf})


@contextmanager
def home_unmounted(lab: Lab, host: str) -> Iterator[None]:
    """Unmount /home, which all hosts of the lab share, on one host."""
    lab.command(host, "mkdir -p /mnt/home && mount --bind /home /mnt/home && umount --lazy /home")
    try:
        yield
    finally:
        lab.command(host, "mount --bind /mnt/home /home && umount --lazy /mnt/home")


def test_a_private_directory_is_refused_before_anything_is_changed(lab: Lab, tmp_path: Path) -> None:
    hosts = (lab.controller, lab.login)
    lab.command(lab.controller, f"install -d -o slurm -g slurm {STATE}")
    lab.command(lab.login, f"mount -t tmpfs none {STATE} && chown slurm:slurm {STATE}")
    show = f"sha256sum /etc/slurm/*.conf; pidof slurmctld; ls -A {STATE}"
    before = [lab.host(host).run(show).stdout for host in hosts]
    try:
        run = two_controllers(lab, tmp_path).playbook("site", STAGES)
        assert [lab.host(host).run(show).stdout for host in hosts] == before
    finally:
        lab.command(lab.login, f"umount {STATE}")
    assert (run.rc, run.changed) == (2, {})
    (refusal,) = {text for texts in run.failed.values() for text in texts}
    assert f"slurm_conf.StateSaveLocation: found {STATE}, which is not one directory" in refusal
    assert f"{lab.login} does not see the file of {lab.controller}" in refusal
    assert f"{lab.controller} has it on /home" in refusal
    assert f"{lab.login} has it on {STATE} (tmpfs, none)" in refusal


def test_slurmctld_does_not_start_where_its_directory_is_not_mounted(lab: Lab, tmp_path: Path) -> None:
    run = two_controllers(lab, tmp_path).playbook("site", STAGES)
    assert (run.rc, run.failed) == (0, {})
    assert lab.command(lab.controller, f"find {STATE} -name '.gpucluster-slurm*'") == ""

    lab.command(lab.login, "systemctl stop slurmctld")
    with home_unmounted(lab, lab.login):
        lab.command(lab.login, f"install -d -o slurm -g slurm {STATE}")
        lab.command(lab.login, "systemctl start slurmctld", rc=1)
        assert lab.command(lab.login, "systemctl show --property=ActiveState --value slurmctld") == "inactive"
        assert lab.command(lab.login, f"ls -A {STATE}") == ""
        lab.command(lab.login, f"rmdir {STATE}")
    lab.command(lab.login, "systemctl start slurmctld")
    lab.wait_for(lab.login, "timeout 60 scontrol ping", f"Slurmctld(backup) at {lab.login} is UP")
