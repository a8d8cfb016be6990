# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of the documentation site, which tests/tools/site_messages.py finds in the source."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]

SOURCE = '''
"""The text of the file."""
DOCUMENTATION = "what this plugin does"
PATTERN = r"no message but a pattern \\d"
def f(x):
    """What the function does."""
    if x:
        raise ValueError(f"{x}: found {x!r}, allowed: " + "one of these")
    return ["two words", "the host has `no` answer", f"it is {'a text inside of it' if x else ''}"]
'''


@pytest.fixture(name="site_messages")
def module_of_the_messages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("site_messages")


def test_messages_of_a_plugin(site_messages: Any) -> None:
    assert site_messages.of_source(SOURCE) == [
        "…: found …, allowed: one of these",
        "the host has `no` answer",
        "a text inside of it",
    ]


def test_messages_of_tasks(site_messages: Any) -> None:
    tasks = [
        {"ansible.builtin.fail": {"msg": "Stop {{ here }}"}},
        {"block": [{"ansible.builtin.assert": {"that": "a", "fail_msg": "a is needed"}}]},
        {"ansible.builtin.assert": {"that": "a", "fail_msg": "{{ of_a_rule }}"}},
        {"ansible.builtin.debug": {"msg": "nothing failed"}},
    ]
    assert list(site_messages.of_tasks(tasks)) == ["Stop …", "a is needed"]


def test_a_text_with_backticks_stays_whole(site_messages: Any) -> None:
    assert site_messages.quoted("run `make`\n  again") == "`` run `make` again ``"


def test_the_collection_has_messages_of_each_kind(site_messages: Any) -> None:
    pages = site_messages.pages()
    assert {"cluster", "decisions", "doctor", "modules", "roles", "index"} <= set(pages)
    assert "run the playbook gpucluster.slurm.upgrade" in pages["roles"]
    assert len(site_messages.messages()) > 1500
