# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of the firewall, with stand-ins for nft and systemd; tests/integration/firewall has the real ones."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import file_checks, firewall_change
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.access_change import UnconfirmedError
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import FileError
from programs import StandIn

NFT = """
case "$*" in
  *--check*) echo "Error: refused"; exit "$(cat {root}/refused 2>/dev/null || echo 0)" ;;
  *list*) cat {root}/kernel 2>/dev/null ;;
  *delete*) rm {root}/kernel ;;
  *) for file; do :; done; cat "$file" >{root}/kernel ;;
esac
"""
"""A kernel with one table, which is the last file that was loaded."""


@dataclass
class Host:
    """A host in a directory."""

    root: Path

    @property
    def rules(self) -> Path:
        """The file of confirmed rules."""
        return self.root / "firewall.nft"

    @property
    def kernel(self) -> str:
        """The rules in the kernel; empty without a table."""
        path = self.root / "kernel"
        return path.read_text() if path.exists() else ""

    def confirmed(self, text: str) -> None:
        """Put rules into force, and confirm them."""
        (self.root / firewall_change.UNIT).write_text("unit\n")
        firewall_change.apply(text, text.strip() * 2)
        firewall_change.confirm()


@pytest.fixture
def host(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Host:
    stand_in("systemctl", "exit 0")
    stand_in("systemd-run", "exit 0")
    nft = tmp_path / "nft"
    nft.write_text("#!/bin/sh" + NFT.format(root=tmp_path))
    nft.chmod(0o755)
    monkeypatch.setattr(firewall_change, "NFT", str(nft))
    for name, path in (("RULES", "firewall.nft"), ("RECORD", "record"), ("PENDING", "record.new"), ("UNITS", "")):
        monkeypatch.setattr(firewall_change, name, str(tmp_path / path))
    check = next(check for check in file_checks.CHECKS if check.program == "nft")
    own = check._replace(paths=rf"{tmp_path}/firewall\.nft\.new", command=(str(nft), *check.command[1:]))
    monkeypatch.setattr(file_checks, "CHECKS", (own,))
    monkeypatch.setattr(firewall_change, "enabled", lambda: True)
    return Host(tmp_path)


def test_a_bare_host_has_no_firewall(host: Host) -> None:
    assert firewall_change.state() == ""
    assert host.kernel == ""


def test_rules_are_confirmed_and_recorded(host: Host) -> None:
    (host.root / firewall_change.UNIT).write_text("unit\n")
    firewall_change.apply("a\n", "digest")
    assert (host.kernel, host.rules.exists()) == ("a\n", False), "a boot would not load them"
    assert firewall_change.state() == firewall_change.INCOMPLETE
    firewall_change.confirm()
    assert (host.kernel, host.rules.read_text(), firewall_change.state()) == ("a\n", "a\n", "digest")
    assert not Path(firewall_change.PENDING).exists()


@pytest.mark.parametrize("earlier", [True, False])
def test_the_timer_takes_rules_back(host: Host, earlier: bool) -> None:
    if earlier:
        host.confirmed("a\n")
    firewall_change.apply("b\n", "other")
    assert host.kernel == "b\n"
    subprocess.run(["/bin/sh", "-c", firewall_change.undo_script()], check=True)
    assert host.kernel == ("a\n" if earlier else "")
    with pytest.raises(UnconfirmedError, match="the host has restored the previous rules, since no new connection"):
        firewall_change.confirm()
    assert host.kernel == ("a\n" if earlier else "")


def test_a_confirmation_that_comes_first_wins(host: Host) -> None:
    host.confirmed("a\n")
    subprocess.run(["/bin/sh", "-c", firewall_change.undo_script()], check=True)
    firewall_change.restore()
    assert (host.kernel, host.rules.read_text()) == ("a\n", "a\n")


def test_the_run_takes_rules_back(host: Host) -> None:
    host.confirmed("a\n")
    firewall_change.apply("b\n", "other")
    firewall_change.restore()
    assert (host.kernel, host.rules.read_text()) == ("a\n", "a\n")
    assert firewall_change.state() == "aa"


def test_nothing_stays_of_what_nft_refuses_or_no_timer_watches(host: Host, stand_in: StandIn) -> None:
    host.confirmed("a\n")
    (host.root / "refused").write_text("1")
    with pytest.raises(FileError, match=r"firewall\.nft\.new was not written, since nft refuses it: Error: refused"):
        firewall_change.apply("b\n", "other")
    (host.root / "refused").unlink()
    stand_in("systemd-run", "echo no timer >&2; exit 1")
    with pytest.raises(FileError, match="no timer"):
        firewall_change.apply("b\n", "other")
    assert (host.kernel, firewall_change.state()) == ("a\n", "aa")


@pytest.mark.parametrize("path", ["firewall.nft", firewall_change.UNIT, "kernel", "record"])
@pytest.mark.parametrize("change", ["other", "gone"])
def test_drift_is_seen(host: Host, path: str, change: str) -> None:
    host.confirmed("a\n")
    assert firewall_change.state() == "aa"
    if change == "gone":
        (host.root / path).unlink()
    else:
        (host.root / path).write_text("other\n")
    assert firewall_change.state() == firewall_change.INCOMPLETE


def test_a_boot_without_the_rules_is_drift(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.confirmed("a\n")
    monkeypatch.setattr(firewall_change, "enabled", lambda: False)
    assert firewall_change.state() == firewall_change.INCOMPLETE


@pytest.mark.parametrize("confirmed", [True, False])
def test_removal_leaves_nothing(host: Host, confirmed: bool) -> None:
    host.confirmed("a\n")
    if not confirmed:
        firewall_change.apply("b\n", "other")
    firewall_change.remove()
    assert firewall_change.state() == host.kernel == ""
    assert [*host.root.glob("firewall*"), *host.root.glob("record*"), *host.root.glob("*.service")] == []
