# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How slurm_packages keeps services from starting and finishes an interrupted installation; the rest is shown in
tests/integration."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_packages


@pytest.fixture(name="policy")
def policy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the policy of starting services is looked for."""
    path = tmp_path / "policy-rc.d"
    monkeypatch.setattr(slurm_packages, "POLICY", str(path))
    return path


@pytest.mark.parametrize("before", [None, slurm_packages.HOLD], ids=["none", "of a killed run"])
def test_services_are_held_while_packages_are_installed(policy: Path, before: str | None) -> None:
    if before:
        policy.write_text(before)
    with slurm_packages.held_services(True):
        assert (policy.read_text(), policy.stat().st_mode & 0o777) == (slurm_packages.HOLD, 0o755)
    assert not policy.exists()


def test_services_are_held_no_more_after_a_failure(policy: Path) -> None:
    def fail() -> None:
        with slurm_packages.held_services(True):
            raise slurm_packages.PackageError("no such package")

    with pytest.raises(slurm_packages.PackageError):
        fail()
    assert not policy.exists()


@pytest.mark.parametrize("hold", [True, False])
def test_a_policy_of_the_host_stays(policy: Path, hold: bool) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n")
    with slurm_packages.held_services(hold):
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()


def test_services_start_unless_they_are_held(policy: Path) -> None:
    with slurm_packages.held_services(False):
        assert not policy.exists()


def test_an_interrupted_installation_is_finished_when_another_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    locked = (2, "", "dpkg: error: dpkg frontend lock was locked by another process with pid 7")
    module = Mock()
    module.run_command.side_effect = [locked, locked, (0, "", "")]
    slurm_packages.finish(module)
    assert module.run_command.call_count == 3
    module.run_command.side_effect = [(1, "", "dpkg: error processing package slurmd")]
    with pytest.raises(slurm_packages.PackageError, match="error processing package slurmd"):
        slurm_packages.finish(module)
