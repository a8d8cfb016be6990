# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the last backup of a host."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.last_backup import problem

NOW = 1_800_000_000
HOUR = 3600


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"succeeded": NOW - 47 * HOUR, "tried": NOW - 47 * HOUR, "error": ""}, ""),
        ({"succeeded": NOW - 49 * HOUR, "error": ""}, "the last good backup is 49 hours old, and 48 are allowed"),
        ({}, "it has no backup"),
        (
            {"succeeded": NOW - 2 * HOUR, "tried": NOW - HOUR, "error": "disk\x1b full"},
            "the backup of 2027-01-15 07:00 UTC has failed, and the last good backup is 2 hours old: disk? full",
        ),
        ({"tried": NOW, "error": "x"}, "the backup of 2027-01-15 08:00 UTC has failed, and it has no backup: x"),
    ],
)
def test_a_backup_is_old_or_has_failed(status: dict[str, object], expected: str) -> None:
    assert problem(json.dumps(status), 48, NOW) == expected


@pytest.mark.parametrize("status", ["[]", "no JSON", '{"succeeded": []}'])
def test_a_note_of_another_form_is_named(status: str) -> None:
    assert "cannot be read" in problem(status, 48, NOW)


def test_a_host_without_a_record_has_no_backup() -> None:
    assert problem(None, 48, NOW) == "it has no backup"
