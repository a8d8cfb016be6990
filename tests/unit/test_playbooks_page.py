# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables from the playbooks: every playbook, every stage and its tags, the plays that stop a run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import command_line

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="page")
def module_of_the_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("playbooks_page")


def test_the_pages_are_current(page: Any) -> None:
    """`make docs` writes them."""
    assert page.pages() == {path: path.read_text() for path in (page.PAGE, page.DECISIONS)}


def test_a_play_that_stops_a_run_without_a_reason_is_named(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PLAYBOOKS", tmp_path)
    text = "---\n- name: Play\n  hosts: all\n  any_errors_fatal: true"
    (tmp_path / "play.yml").write_text(f"{text} # it is first\n")
    assert page.stopping() == [("`play`", "Play", "it is first")]
    (tmp_path / "play.yml").write_text(f"{text}\n")
    with pytest.raises(SystemExit, match="must say why"):
        page.stopping()


def test_every_tag_is_in_the_table(page: Any) -> None:
    """Each tag that a run accepts, and no other one."""
    shown = {tag for _name, tags, _what in page.stages() for tag in re.findall("`(\\w+)`", tags)}
    assert {*command_line.TAGS} == shown


def test_each_row_leads_to_a_page(page: Any) -> None:
    """The commands of `site` and `validate` are on this one."""
    assert [name for name, _what in page.playbooks() if not name.startswith("[")] == ["`site`", "`validate`"]
    names = [row[0] for row in (*page.playbooks(), *page.stages())]
    links = {match[1] for name in names if (match := re.search(r"\((.*)\)", name))}
    assert [link for link in links if not (page.PAGE.parent / link).exists()] == []


def test_a_playbook_without_a_comment_is_named(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "nameless.yml"
    file.write_text("---\n- name: Play\n")
    with pytest.raises(SystemExit, match="the first lines have no comment"):
        page.cells(file)
