# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_image removes from a tree, and when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import image_scan
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_image

IDENTITIES = {
    "etc/machine-id": "0" * 32,
    "etc/ssh/ssh_host_rsa_key": "k",
    "etc/ssh/ssh_host_rsa_key.pub": "p",
    "etc/munge/munge.key": "k",
    "var/lib/systemd/random-seed": "s",
    "var/lib/dhcp/dhclient.eth0.leases": "l",
    "var/lib/cloud/instances/i-1/user-data.txt": "u",
}
TRACES = ("var/lib/apt/lists/mirror_Packages", "root/.bash_history", "var/log/dpkg.log")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with identities and traces of a build, which the module takes for the host."""
    for name, text in {**IDENTITIES, **dict.fromkeys(TRACES, "t")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    moved = tuple((f"{tmp_path}{pattern}", kind) for pattern, kind in slurm_image.IDENTITIES)
    monkeypatch.setattr(slurm_image, "IDENTITIES", moved)
    monkeypatch.setattr(slurm_image, "TRACES", tuple(f"{tmp_path}{pattern}" for pattern in slurm_image.TRACES))
    monkeypatch.setattr(slurm_image, "MACHINE_ID", f"{tmp_path}/etc/machine-id")
    scan = image_scan.scan

    def scan_tree() -> list[image_scan.ImageFinding]:
        return [image_scan.ImageFinding(f"{tmp_path}{found.path}", found.kind) for found in scan(str(tmp_path))]

    monkeypatch.setattr(image_scan, "scan", scan_tree)
    return tmp_path


def seal(check_mode: bool = False, accepted: list[str] | None = None) -> dict[str, Any]:
    """Run the module."""
    return dict(slurm_image.seal({"accepted": accepted or []}, check_mode))


def test_identities_and_traces_are_removed_and_a_second_run_changes_nothing(tree: Path) -> None:
    predicted = seal(check_mode=True)
    assert all((tree / name).exists() for name in (*IDENTITIES, *TRACES))
    done = seal()
    assert done == predicted
    assert done["changed"]
    assert (tree / "etc/machine-id").read_bytes() == b""
    assert not any((tree / name).exists() for name in (*IDENTITIES, *TRACES) if name != "etc/machine-id")
    (tree / TRACES[0]).write_text("each run updates apt's lists")
    again = seal()
    assert not again["changed"]
    assert not (tree / TRACES[0]).exists()


def test_a_diff_has_no_secret(tree: Path) -> None:
    (tree / "etc/munge/munge.key").write_text("topsecret")
    assert "topsecret" not in str(seal())


def test_a_secret_fails_the_build_with_its_path_and_kind(tree: Path) -> None:
    (tree / "etc/slurm").mkdir()
    (tree / "etc/slurm/slurm.key").write_text("topsecret")
    for check_mode in (True, False):
        with pytest.raises(slurm_image.ImageError, match=r"/etc/slurm/slurm\.key: key of Slurm") as error:
            seal(check_mode)
        assert "topsecret" not in str(error.value)
        assert "machine" not in str(error.value)
    assert not seal(accepted=[f"{tree}/etc/slurm/*"])["changed"]


def test_keys_of_administrators_are_a_remark(tree: Path) -> None:
    (tree / "root/.ssh").mkdir()
    (tree / "root/.ssh/authorized_keys").write_text("ssh-ed25519 AAAA\n")
    assert seal()["remarks"] == [f"{tree}/root/.ssh/authorized_keys: keys of users who may log in"]


def test_a_link_to_the_machine_id_stays(tree: Path) -> None:
    (tree / "var/lib/dbus").mkdir(parents=True)
    (tree / "var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    seal()
    assert (tree / "var/lib/dbus/machine-id").is_symlink()
