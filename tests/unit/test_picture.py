# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/picture.py, which draws a run of site.yml, and the picture in docs."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests/tools"
SVG = "{http://www.w3.org/2000/svg}"
LOG = """
\x1b[0;32mok         0:04  3 of 3      Gather facts\x1b[0m

\x1b[0;33mchanged    0:12  2 of 2      Compute nodes: gpu[01-02]\x1b[0m
    Show the changes (gpu01): <&>
\x1b[0;33mChanged 2 of 3 hosts (0:20):\x1b[0m
\x1b[0;33m    Compute nodes  gpu[01-02]\x1b[0m
"""


@pytest.fixture(name="picture")
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that draws."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("picture")


def text_of(line: ElementTree.Element) -> str:
    """The characters of an element; blanks are such that do not break."""
    return "".join(line.itertext()).replace("\xa0", " ")


def test_a_long_table_is_cut_and_says_so(picture: Any) -> None:
    rows = [f"        slurm.conf Key{number}  1 -> 2" for number in range(picture.ROWS + 4)]
    drawn = picture.drawn(["", "[WARNING]: a warning", "    Show the changes (head):", *rows, "ok"])
    assert drawn == ["    Show the changes (head):", *rows[: picture.ROWS], "        ... 4 more", "ok"]
    assert picture.drawn(rows[: picture.ROWS + 1]) == rows[: picture.ROWS + 1]


def test_each_line_is_drawn_with_its_colours(picture: Any) -> None:
    root = ElementTree.fromstring(picture.drawing("site -i my.cluster.yml", picture.drawn(LOG.splitlines())))
    lines = root.findall(f".//{SVG}text")
    assert [text_of(line) for line in lines] == [
        "$ site -i my.cluster.yml",
        "ok         0:04  3 of 3      Gather facts",
        "changed    0:12  2 of 2      Compute nodes: gpu[01-02]",
        "    Show the changes (gpu01): <&>",
        "Changed 2 of 3 hosts (0:20):",
        "    Compute nodes  gpu[01-02]",
    ]
    assert [line.find(f"{SVG}tspan").get("fill") for line in lines[1:4]] == [  # type: ignore[union-attr]
        picture.COLOURS["0;32"],
        picture.COLOURS["0;33"],
        picture.TEXT,
    ]


def test_the_picture_in_docs_is_one_of_a_good_run() -> None:
    lines = [text_of(line) for line in ElementTree.parse(ROOT / "docs/run.svg").iter(f"{SVG}text")]
    assert lines[0] == "$ ansible-playbook gpucluster.slurm.site -i my.cluster.yml"
    assert len(lines) > 5
    bad = re.compile(r"(failed|unreachable)=[1-9]|failed |unreachable |Failed|Not reached|fatal:")
    assert [line for line in lines if bad.match(line) or "failed=1" in line] == []
