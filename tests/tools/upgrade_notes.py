# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upgrade notes: what an administrator must know before a newer version runs, from the changelog.

usage: python tests/tools/upgrade_notes.py [--check | FROM TO]

Without an argument it writes docs/admin/upgrade-notes.md, which has the notes of all releases. With --check nothing is
written, and the exit status is 1 if the page is not current. With two versions it prints the notes of the step between
them. An empty FROM is the beginning, and an empty TO what is not released yet.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import deprecated_names
from generated_files import run

ROOT = Path(__file__).parents[2]
PAGE = "docs/admin/upgrade-notes.md"
WIDTH = 150

SECTIONS = {
    "breaking_changes": "To do before the first run",
    "removed_features": "Removed",
    "deprecated_features": "Deprecated",
    "known_issues": "Known faults",
    "first_run": "What the first run changes",
}
"""The sections of the changelog that are notes, in their order, with their headings."""

HEAD = """# Upgrade notes

<!-- `make docs` writes this page from changelogs/changelog.yaml and cluster/deprecated_names.py -->

What to know before [a newer version of the collection](new-version.md) runs on a cluster. Read the
notes of each version after yours.
"""
NONE = "There is no release yet."
NO_OLD_NAMES = "No key of the cluster file and no variable has got another name."
UNRELEASED = "Not released"

Notes = Mapping[str, list[str]]
"""Entries in the changelog's markup, by section."""


class VersionError(ValueError):
    """A version that is not in the changelog."""


def key(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared."""
    return tuple(map(int, version.split(".")))


def released(root: Path) -> dict[str, Notes]:
    """The notes of each release by its version, the newest first."""
    file = root / "changelogs/changelog.yaml"
    releases: dict[str, Any] = yaml.safe_load(file.read_text())["releases"] if file.exists() else {}
    ordered = sorted(releases, key=key, reverse=True)
    return {version: selected(releases[version].get("changes", {})) for version in ordered}


def unreleased(root: Path) -> Notes:
    """The notes of the fragments, in the order of their names."""
    found: dict[str, list[str]] = {}
    for file in sorted((root / "changelogs/fragments").glob("*.yml")):
        for section, entries in selected(yaml.safe_load(file.read_text()) or {}).items():
            found.setdefault(section, []).extend(entries)
    return selected(found)


def selected(changes: Mapping[str, Any]) -> dict[str, list[str]]:
    """The sections of a release or a fragment that are notes."""
    return {section: list(changes[section]) for section in SECTIONS if changes.get(section)}


def step(root: Path, start: str = "", end: str = "") -> dict[str, Notes]:
    """The notes of the step from a version, or the beginning, to another one, or what is not released.

    The newest are first. Raises VersionError.
    """
    releases = released(root)
    for name, version in (("FROM", start), ("TO", end)):
        if version and version not in releases:
            allowed = ", ".join(releases) or "nothing, since there is no release yet"
            raise VersionError(f"{name}: found {version!r}, allowed: {allowed}")
    if start and end and key(end) <= key(start):
        raise VersionError(f"TO: found {end!r}, allowed: a version after {start}")
    between = {
        version: notes
        for version, notes in releases.items()
        if (not start or key(version) > key(start)) and (not end or key(version) <= key(end))
    }
    return between if end else {UNRELEASED: unreleased(root), **between}


def markdown(entry: str) -> str:
    """An entry of the changelog, which has reStructuredText and Ansible's markup, as an item of a list."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", entry.strip()):
        if paragraph.startswith("==="):  # a table
            lines += ["```text", *paragraph.split("\n"), "```", ""]
            continue
        text = " ".join(paragraph.split())
        text = re.sub(r"\b[A-Z]\(([^)]*)\)", r"`\1`", text)
        text = re.sub(r"``(.*?)``", r"`\1`", text)
        text = re.sub(r"`([^`<]*) <([^>]*)>`__?", r"[\1](\2)", text)
        lines += [*textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    return textwrap.indent("\n".join(lines).strip(), "  ").replace("  ", "- ", 1)


def sections(notes: Notes) -> Iterator[str]:
    """The sections of a version."""
    for section, heading in SECTIONS.items():
        if entries := notes.get(section):
            yield f"### {heading}\n"
            yield "\n".join(map(markdown, entries)) + "\n"
    if not notes:
        yield "Nothing to do.\n"


def text(versions: Mapping[str, Notes]) -> str:
    """The notes of versions."""
    parts = (part for version, notes in versions.items() for part in (f"## {version}\n", *sections(notes)))
    return "\n".join(parts)


def page(root: Path) -> str:
    """The page about all releases."""
    old = "\n".join(deprecated_names.table(deprecated_names.OLD_NAMES)) or NO_OLD_NAMES
    return "\n".join([HEAD, text(released(root)) or f"{NONE}\n", f"## Old names\n\n{old}\n"])


def main(words: list[str]) -> None:
    """Write or check the page, or print the notes of a step."""
    if not words or words == ["--check"]:
        run({ROOT / PAGE: page(ROOT)})
    try:
        print(text(step(ROOT, *words)), end="")
    except VersionError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
