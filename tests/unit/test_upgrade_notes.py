# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upgrade notes, from a changelog with two releases and a fragment."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
RELEASES = {
    "0.10.0": {"changes": {"minor_changes": ["A feature."], "first_run": ["``/etc/b`` - is written."]}},
    "0.2.0": {"changes": {"breaking_changes": ["C(old) is refused."], "deprecated_features": ["``older`` goes."]}},
}
FRAGMENTS = {
    "one": {"known_issues": ["A fault."], "bugfixes": ["A fault less."]},
    "two": {"breaking_changes": ["A change."], "known_issues": ["Another fault."]},
}


@pytest.fixture(name="notes")
def module_of_the_notes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tests/tools")
    return importlib.import_module("upgrade_notes")


@pytest.fixture(name="root")
def checkout(tmp_path: Path) -> Path:
    """The changelog of a checkout."""
    folder = tmp_path / "changelogs/fragments"
    folder.mkdir(parents=True)
    (folder.parent / "changelog.yaml").write_text(yaml.safe_dump({"releases": RELEASES}))
    for name, fragment in FRAGMENTS.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(fragment))
    return tmp_path


def test_a_step_has_the_notes_after_the_one_version_up_to_the_other(notes: Any, root: Path) -> None:
    assert [*notes.step(root)] == ["Not released", "0.10.0", "0.2.0"]
    assert [*notes.step(root, "0.2.0")] == ["Not released", "0.10.0"]
    assert [*notes.step(root, "0.10.0")] == ["Not released"]
    assert [*notes.step(root, "", "0.2.0")] == ["0.2.0"]
    assert notes.step(root, "0.2.0", "0.10.0") == {"0.10.0": {"first_run": ["``/etc/b`` - is written."]}}


def test_what_is_not_released_is_in_the_order_of_the_sections(notes: Any, root: Path) -> None:
    assert [*notes.step(root)["Not released"].items()] == [
        ("breaking_changes", ["A change."]),
        ("known_issues", ["A fault.", "Another fault."]),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0.3.0", ""], "FROM: found '0.3.0', allowed: 0.10.0, 0.2.0"),
        (["0.2.0", "1.0.0"], "TO: found '1.0.0', allowed: 0.10.0, 0.2.0"),
        (["0.10.0", "0.2.0"], "TO: found '0.2.0', allowed: a version after 0.10.0"),
    ],
)
def test_other_versions_are_refused(notes: Any, root: Path, words: list[str], message: str) -> None:
    with pytest.raises(notes.VersionError, match=f"^{message}$"):
        notes.step(root, *words)


def test_before_the_first_release_no_version_is_allowed(notes: Any, tmp_path: Path) -> None:
    (tmp_path / "changelogs/fragments").mkdir(parents=True)
    assert notes.step(tmp_path) == {"Not released": {}}
    with pytest.raises(notes.VersionError, match="allowed: nothing, since there is no release yet"):
        notes.step(tmp_path, "0.1.0")
    assert "There is no release yet.\n\n## Old names\n" in notes.page(tmp_path)


def test_the_page_has_all_releases_in_markdown(notes: Any, root: Path) -> None:
    text = notes.page(root)
    assert (
        "## 0.10.0\n\n### What the first run changes\n\n- `/etc/b` - is written.\n\n"
        "## 0.2.0\n\n### To do before the first run\n\n- `old` is refused.\n\n### Deprecated\n\n- `older` goes.\n\n"
        "## Old names\n"
    ) in text
    assert "A feature." not in text
    assert "A fault." not in text


def test_tables_and_paragraphs_of_the_changelog_stay(notes: Any) -> None:
    entry = (
        "New names,\nof two:\n\n===  ===\nold  new\n===  ===\na    b\n===  ===\n\nSee `here <https://x.example.org>`_."
    )
    assert notes.markdown(entry) == (
        "- New names, of two:\n\n  ```text\n  ===  ===\n  old  new\n  ===  ===\n  a    b\n  ===  ===\n  ```\n\n"
        "  See [here](https://x.example.org)."
    )


def test_each_part_of_the_changelog_has_its_section_in_the_configuration(notes: Any) -> None:
    configured = yaml.safe_load((ROOT / "changelogs/config.yaml").read_text())["sections"]
    assert {*notes.SECTIONS} <= {section for section, _heading in configured}
