# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import removed_hosts


@pytest.mark.parametrize(
    ("before", "present", "cleaned", "kept", "gone"),
    [
        ("", "head n1", "", "head n1", ""),
        ("head n1 n2", "head n1", "", "head n1 n2", "n2"),
        ("head n1 n2", "head n1 n2", "", "head n1 n2", ""),
        ("head n1 n2 n3", "head n1", "n2", "head n1 n3", "n3"),
        ("head n1", "head n1", "n1", "head n1", ""),
        ("head n1", "head", "n7", "head n1", "n1"),
    ],
    ids=["first run", "left", "came back", "one is cleaned", "is here", "another name"],
)
def test_hosts_that_left(before: str, present: str, cleaned: str, kept: str, gone: str) -> None:
    found = removed_hosts.known_hosts(before.split(), present.split(), cleaned.split())
    assert found == (kept.split(), gone.split())


def test_they_are_kept_between_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "kept/hosts")
    assert removed_hosts.recorded(path) == []
    removed_hosts.record(path, ["head", "n2"])
    assert removed_hosts.recorded(path) == ["head", "n2"]


def test_the_message_names_them_and_the_way_out() -> None:
    (message,) = removed_hosts.describe_removed(["n2", "n3"])
    assert message.startswith("Hosts that have left the cluster but are not cleaned: n[2-3]. They still have")
    assert message.endswith("-e slurmctld_cleaned_hosts='n[2-3]'")
    assert removed_hosts.describe_removed([]) == []


def test_hosts_that_answer_again_are_found_at_their_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_hosts, "ADDRESSES", str(tmp_path / "left"))
    asked = []

    def connection_error(host: str, port: int, _seconds: float) -> str:
        asked.append((host, port))
        return "" if (host, port) == ("10.0.0.2", 6818) else "Connection refused"

    monkeypatch.setattr(removed_hosts, "connection_error", connection_error)
    assert removed_hosts.find_answering(["n2"], set()) == {}
    (tmp_path / "left").write_text('{"n2": "10.0.0.2", "n3": "10.0.0.3", "n4": ""}')
    assert removed_hosts.find_answering(["n2", "n3", "n4", "n5"], {"10.0.0.9"}) == {"n2": "10.0.0.2"}
    assert sorted(asked) == [("10.0.0.2", 22), ("10.0.0.2", 6818), ("10.0.0.3", 22), ("10.0.0.3", 6818)]
    assert removed_hosts.find_answering(["n2"], {"10.0.0.2"}) == {}, "another host has the address now"
    (message,) = removed_hosts.describe_removed(["n2", "n3"], {"n2": "10.0.0.2"})
    assert "are not cleaned: n[2-3] (n2 answers at 10.0.0.2). They still" in message
