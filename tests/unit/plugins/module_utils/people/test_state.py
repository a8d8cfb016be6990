# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the people of a host, and keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.people import state
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.accounts import PeopleRecord, new_texts
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.messages import host_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.plan import PeoplePlan, read_plan

KEY = "ssh-ed25519 AAAA alice@laptop"
PLAN = {"users": [{"name": "alice", "uid": 5001, "keys": [KEY]}, {"name": "bob", "uid": 5002, "state": "suspended"}]}


@pytest.fixture(name="root")
def host_with_a_plan(tmp_path: Path) -> Path:
    """The root of a host on which a plan is in force."""
    (tmp_path / "etc").mkdir()
    plan = read_plan(json.dumps(PLAN))
    for name, text in new_texts(plan, dict.fromkeys(("passwd", "shadow", "group", "gshadow"), "")).items():
        (tmp_path / "etc" / name).write_text(text)
    (tmp_path / state.KEYS[1:]).mkdir(parents=True)
    (tmp_path / state.key_path("alice")[1:]).write_text(state.key_text(plan.users[0]) or "")
    write_record(tmp_path, plan, PeopleRecord(left={"dave": 5009}))
    return tmp_path


def write_record(root: Path, plan: PeoplePlan, before: PeopleRecord) -> None:
    """Write the record of a run."""
    path = root / state.RECORD[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(state.record_text(state.build_record(plan, "abc", before, str(root))))


def test_the_plan_of_a_host_is_known_until_something_changes(root: Path) -> None:
    assert state.read_applied_plan(str(root)) == "abc"
    path = root / state.key_path("alice")[1:]
    path.write_text(path.read_text() + "ssh-ed25519 BBBB mallory\n")
    assert state.read_applied_plan(str(root)) == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"plan": "abc"}', '{"plan": "abc", "what": 1}', '{"plan": 1, "users": 3}']
)
def test_a_broken_record_is_none(root: Path, text: str) -> None:
    (root / state.RECORD[1:]).write_text(text)
    assert state.read_applied_plan(str(root)) == ""


def test_a_host_without_files_has_no_plan(tmp_path: Path) -> None:
    assert state.read_applied_plan(str(tmp_path)) == ""
    with pytest.raises(FileNotFoundError):
        state.read_texts(str(tmp_path))


def test_a_user_who_left_is_kept_in_the_record_as_long_as_there_is_an_account(root: Path) -> None:
    assert state.read_record(str(root)).left == {}
    without = read_plan(json.dumps({"users": PLAN["users"][1:]}))
    write_record(root, without, state.read_record(str(root)))
    record = state.read_record(str(root))
    assert record.left == {"alice": 5001}
    assert record.known == {"alice": 5001, "bob": 5002}


def test_keys_are_for_those_who_may_log_in() -> None:
    alice, bob = read_plan(json.dumps(PLAN)).users
    assert (state.key_text(alice) or "").split("\n")[1:] == [KEY, ""]
    assert state.key_text(bob) is None


def test_lines_name_their_hosts() -> None:
    said = {"n1": ["a", "b"], "n2": ["b", "b"], "n3": []}
    assert host_lines(said) == ["n[1-2]: b", "n1: a"]
    assert len(host_lines({f"n{i}": [str(i)] for i in range(300)})) == 101
