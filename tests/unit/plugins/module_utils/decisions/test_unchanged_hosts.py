# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with work are found by the checksums of their records."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.unchanged_hosts import (
    changed_hosts,
    record_digests,
)

HOSTS = ["n1", "n2", "n3"]


def test_hosts_with_equal_options_have_equal_checksums() -> None:
    digests = record_digests(HOSTS, {"files": ["a"]}, {"n3": "MIG"})
    assert list(digests) == HOSTS
    assert digests["n1"] == digests["n2"] != digests["n3"]
    assert all(len(digest) == 64 for digest in digests.values())


@pytest.mark.parametrize(
    ("common", "own"),
    [({"files": ["b"]}, [{}]), ({"files": ["a"]}, [{"n1": 1}]), ({"files": ["a"]}, [{}, {}])],
    ids=["common", "own", "number of own"],
)
def test_each_option_changes_the_checksum(common: Any, own: list[Any]) -> None:
    assert record_digests(HOSTS, common, *own)["n1"] != record_digests(HOSTS, {"files": ["a"]}, {})["n1"]


def test_the_order_of_keys_does_not_matter() -> None:
    assert record_digests(["n1"], {"a": 1, "b": 2}) == record_digests(["n1"], {"b": 2, "a": 1})


def test_hosts_without_the_wanted_records_have_work() -> None:
    found = {"n1": {"slurmd": "a", "munge": "m"}, "n2": {"slurmd": "b"}, "n3": {}}
    assert changed_hosts(found, {"slurmd": dict.fromkeys(HOSTS, "a")}) == ["n2", "n3"]
    assert changed_hosts(found, {"slurmd": {"n1": "a"}, "munge": {"n1": "x"}}) == ["n1"]
    assert changed_hosts(found, {"slurmd": {"n1": "a"}}) == []
