# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/picture.py, which draws a run of site.yml, and the picture in docs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests/tools"
SVG = "{http://www.w3.org/2000/svg}"
LOG = """
PLAY [Gather facts] *****

TASK [base : Gather facts] *****
\x1b[0;32mok: [gpu01]\x1b[0m

PLAY [MIG instances] *****
\x1b[0;36mskipping: no hosts matched\x1b[0m

PLAY [Compute nodes] *****

TASK [slurm_health : Install the health check] *****
\x1b[0;33mchanged: [gpu02]\x1b[0m
\x1b[0;33mchanged: [gpu01]\x1b[0m

TASK [slurmctld : Show the changes] *****
\x1b[0;32mok: [gpu01] => \x1b[0m
\x1b[0;32m    msg: |-\x1b[0m
\x1b[0;32m        This changes:\x1b[0m
\x1b[0;32m        slurm.conf KillWait  30 -> 60\x1b[0m

TASK [slurmd : Run slurmd with its settings] *****
\x1b[0;33mchanged: [gpu02]\x1b[0m

PLAY [Login hosts] *****

PLAY [Real jobs] *****

TASK [validate : Show the jobs] *****
\x1b[0;32mok: [ctl] => \x1b[0m
\x1b[0;32m    msg: |-\x1b[0m
\x1b[0;32m        job        partition  nodes\x1b[0m
\x1b[0;32m        gpu/gpu01  gpu        <&>\x1b[0m

PLAY RECAP *****
\x1b[0;33mgpu01\x1b[0m   : \x1b[0;32mok=14  \x1b[0m \x1b[0;33mchanged=4   \x1b[0m failed=0
"""


@pytest.fixture(name="picture")
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that draws."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("picture")


def text_of(line: ElementTree.Element) -> str:
    """The characters of an element; blanks are such that do not break."""
    return "".join(line.itertext()).replace("\xa0", " ")


def test_lines_of_the_log_are_kept_that_tell_of_hosts_and_jobs(picture: Any) -> None:
    kept = [picture.plain(line) for line in picture.condensed(LOG.splitlines())]
    assert kept == [
        "PLAY [Gather facts] *****",
        "PLAY [Compute nodes] *****",
        "changed: [gpu02]",
        "changed: [gpu01]",
        "PLAY [Real jobs] *****",
        "        job        partition  nodes",
        "        gpu/gpu01  gpu        <&>",
        "PLAY RECAP *****",
        "gpu01   : ok=14   changed=4    failed=0",
    ]


def test_each_line_is_drawn_with_its_colours(picture: Any) -> None:
    root = ElementTree.fromstring(picture.drawing("site -i my.cluster.yml", picture.condensed(LOG.splitlines())))
    lines = root.findall(f".//{SVG}text")
    assert [text_of(line) for line in lines[:2]] == ["$ site -i my.cluster.yml", "PLAY [Gather facts] *****"]
    (changed,) = lines[3].findall(f"{SVG}tspan")
    assert (text_of(changed), changed.get("fill")) == ("changed: [gpu02]", picture.COLOURS["0;33"])
    assert text_of(lines[7]) == "        gpu/gpu01  gpu        <&>"


def test_the_picture_in_docs_is_one_of_a_good_run() -> None:
    lines = [text_of(line) for line in ElementTree.parse(ROOT / "docs/run.svg").iter(f"{SVG}text")]
    assert lines[0] == "$ ansible-playbook gpucluster.slurm.site -i my.cluster.yml"
    recap = lines[next(i for i, line in enumerate(lines) if line.startswith("PLAY RECAP")) + 1 :]
    assert len(recap) > 2
    assert all("failed=0" in line and "unreachable=0" in line for line in recap)
