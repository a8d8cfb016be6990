# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of root in which an ordinary user can write, or that he has replaced, on a host that is set up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, Run, with_cluster

HOST = "single"
KEPT = "/var/lib/gpucluster-slurm"
OPENED = {
    KEPT: "root 755",
    f"{KEPT}/good": "root 700",
    "/etc/gpucluster-slurm": "root 755",
    "/etc/gpucluster-slurm/health.d": "root 755",
    "/etc/munge": "munge 700",
    "/etc/slurm": "root 755",
    "/etc/systemd/system/slurmd.service.d": "root 755",
    "/run/gpucluster-slurm/made": "root 755",
    "/var/lib/munge": "munge 711",
    "/var/lib/slurm": "slurm 755",
    "/var/lib/slurm/slurmctld": "slurm 755",
    "/var/log/slurm": "slurm 755",
}
LOOK = "--tags=base"


def modes(lab: Lab) -> dict[str, str]:
    """Owner and mode of each directory."""
    lines = lab.command(HOST, f"stat --format='%n %U %a' {' '.join(OPENED)}").split("\n")
    return {path: " ".join(rest) for path, *rest in map(str.split, lines)}


def as_alice(lab: Lab, script: str) -> None:
    lab.command(HOST, f"runuser -u alice -- sh -c '{script}'")


def why(run: Run) -> str:
    """The message of the host that is refused. Nothing was changed."""
    assert (run.rc, run.changed) == (2, {})
    return " ".join(run.failed[HOST])


@pytest.fixture(name="opened")
def directories_that_all_can_write(lab: Lab) -> Iterator[None]:
    lab.command(HOST, f"chmod 0777 {' '.join(OPENED)}")
    yield
    lab.command(HOST, f"rm -rf {KEPT}/prolog.d {KEPT}/prolog")
    if modes(lab) != OPENED:
        lab.playbook("site", LOOK)
    assert modes(lab) == OPENED


@pytest.mark.usefixtures("opened")
def test_owner_and_mode_are_repaired(lab: Lab) -> None:
    lab.command(HOST, f"chown alice: {KEPT}")
    checked = lab.playbook("site", LOOK, "--check", "--diff")
    (diff,) = [result["diff"] for _host, task, result in checked.results if task.endswith("base : Prepare the host")]
    changes = {change["before_header"]: (change["before"], change["after"]) for change in diff}
    assert {*changes} == {*OPENED}
    assert changes[KEPT] == ("alice:alice 0777\n", "root:root 0755\n")
    assert {*modes(lab).values()} == {"alice 777", "munge 777", "root 777", "slurm 777"}
    done = lab.playbook("site", LOOK)
    assert (done.rc, done.failed, done.changed) == (0, {}, checked.changed)
    assert modes(lab) == OPENED


@pytest.mark.rare
@pytest.mark.usefixtures("opened")
def test_what_a_user_has_put_there_is_named(lab: Lab) -> None:
    """It is not removed: an administrator has to see it."""
    as_alice(lab, f"mkdir {KEPT}/prolog.d; touch {KEPT}/prolog")
    said = why(lab.playbook("site", LOOK))
    assert f"{KEPT} has prolog" in said
    assert "of alice, allowed: files of root or of a service, which read or run them" in said
    assert f"chmod go-w {KEPT}" in said


@pytest.mark.rare
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("runuser -u alice -- ln -s /etc /srv/own/state", "/srv/own is root:root 0777, so that other users"),
        ("chmod 755 /srv/own; mkdir /srv/own/real; ln -s real /srv/own/state", ""),
    ],
)
def test_a_state_directory_that_a_user_can_replace(lab: Lab, tmp_path: Path, script: str, message: str) -> None:
    """An administrator's link is followed."""
    cluster = {
        **lab.cluster,
        "slurm_conf": {**lab.cluster.get("slurm_conf", {}), "StateSaveLocation": "/srv/own/state"},
    }
    other = with_cluster(lab, tmp_path, cluster)
    lab.command(HOST, "rm -rf /srv/own; mkdir -m 0777 /srv/own; chmod 0777 /srv/own")
    try:
        lab.command(HOST, script)
        run = other.playbook("site", LOOK, "--check")
        said = " ".join(run.failed.get(HOST, []))
        assert message in said
        assert (run.rc == 0) is (message == "")
    finally:
        lab.command(HOST, "rm -rf /srv/own")
