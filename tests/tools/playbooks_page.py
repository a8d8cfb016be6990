# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of playbooks, stages and plays in two pages.    usage: tests/tools/playbooks_page.py [--check]

A row of docs/admin/operations.md has the first paragraph of the comment at the beginning of a file; what follows an
empty line of this comment is for developers. `(docs/admin/PAGE.md)` or `(docs/recipes/PAGE.md)` becomes the link of the
row. Stages have the order and the tags of site.yml. A row of docs/design/decisions.md has the plays that stop a run
for the same reason, which the comment after `any_errors_fatal: true` says. With --check nothing is written, and the
exit status is 1 if a table is not current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from generated_files import run

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
PAGE = ROOT / "docs/admin/operations.md"
DECISIONS = ROOT / "docs/design/decisions.md"
ORDER = (
    *("new", "adopt", "give_back", "site", "validate", "doctor", "report", "discover", "rolling", "maintenance"),
    *("upgrade", "rotate_keys", "remove_nodes", "reset", "image", "accept", "warm_up", "backup", "restore"),
)
"""The playbooks, from the first ones that an administrator needs."""
LINK = re.compile(r" \(docs/(?:admin/)?([^)]+)\)")
FATAL = re.compile(r"^- name: (.+)\n(?:  .*\n|\n)*?  any_errors_fatal: true(?: # (.+))?$", re.MULTILINE)
"""A play that stops the run for all hosts, and why."""


def cells(path: Path) -> tuple[str, str]:
    """The name of a playbook with its link, and what it does."""
    comment = re.match(r"---\n((?:# .*\n)+)", path.read_text())
    if comment is None:
        sys.exit(f"{path}: the first lines have no comment that says what it does")
    text = " ".join(comment[1].replace("# ", "").split())
    page = LINK.search(text)
    name = f"`{path.stem}`"
    link = f"../{page[1]}" if page and "/" in page[1] else page[1] if page else ""
    return f"[{name}]({link})" if link else name, LINK.sub("", text)


def table(head: str, rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join([head, re.sub("[^|]+", "---", head), *(f"| {' | '.join(row)} |" for row in rows)])


def tags(play: dict[str, Any], path: Path) -> str:
    """The tags that run a stage: its own in site.yml, or those of the plays in its file."""
    plays = [play] if "tags" in play else yaml.safe_load(path.read_text())
    found = list(dict.fromkeys(tag for each in plays for tag in each.get("tags", [])))
    return "every tag" if "always" in found else ", ".join(f"`{tag}`" for tag in found)


def stages() -> list[tuple[str, ...]]:
    """A row for each stage of site.yml."""
    plays = yaml.safe_load((PLAYBOOKS / "site.yml").read_text())
    files = [PLAYBOOKS / play["ansible.builtin.import_playbook"] for play in plays]
    rows = [(*cells(path), tags(play, path)) for play, path in zip(plays, files, strict=True)]
    return [(name, tag, what) for name, what, tag in rows]


def playbooks() -> list[tuple[str, ...]]:
    """A row for each playbook."""
    if missing := {path.stem for path in PLAYBOOKS.glob("*.yml")} ^ {*ORDER}:
        sys.exit(f"{__file__}: ORDER and the folder of playbooks differ: {', '.join(sorted(missing))}")
    return [cells(PLAYBOOKS / f"{name}.yml") for name in ORDER]


def stopping() -> list[tuple[str, ...]]:
    """A row for each reason for which plays stop the run for all hosts."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for path in sorted([*PLAYBOOKS.glob("*.yml"), *PLAYBOOKS.glob("stages/*.yml")], key=lambda path: path.stem):
        for play, reason in FATAL.findall(path.read_text()):
            if not reason:
                sys.exit(f"{path}: {play}: a comment after `any_errors_fatal: true` must say why")
            files, plays = found.setdefault(reason, ([], []))
            files += [] if f"`{path.stem}`" in files else [f"`{path.stem}`"]
            plays.append(play)
    return [(", ".join(files), "; ".join(plays), reason) for reason, (files, plays) in found.items()]


def with_tables(page: Path, tables: Mapping[str, tuple[str, str]]) -> str:
    """The text of a page with current tables, each of which has a source."""
    text = page.read_text()
    for name, (source, rows) in tables.items():
        begin, end = f"<!-- begin {name}: `make docs` writes this table from {source} -->", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            sys.exit(f"{page}: there is no line `{begin}` followed by a line `{end}`")
        text = text.partition(begin)[0] + f"{begin}\n{rows}\n{end}" + text.partition(end)[2]
    return text


def pages() -> dict[Path, str]:
    """The pages with current tables."""
    stops = table("| Playbook or stage | Plays | Why |", stopping())
    return {
        PAGE: with_tables(
            PAGE,
            {
                "playbooks": ("playbooks/*.yml", table("| Playbook | What it does |", playbooks())),
                "stages": ("playbooks/site.yml and its stages", table("| Stage | Tags | What it does |", stages())),
            },
        ),
        DECISIONS: with_tables(DECISIONS, {"plays": ("the playbooks and stages", stops)}),
    }


if __name__ == "__main__":
    run(pages())
