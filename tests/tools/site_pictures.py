# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw docs/site/pictures/*.svg.    usage: python tests/tools/site_pictures.py [--check]

Each picture is a column of boxes from top to bottom, so that it can be read on a phone. The stages are those of the
drawing in docs/design/flows.md. With --check nothing is written, and the exit status is 1 if a picture is not current.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from generated_files import run

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/site/pictures"
DRAWING = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# In pixels, with the letters of a line of text.
WIDTH, MARGIN, LINE, GAP, LETTERS = 560, 12, 20, 22, 66
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Box(NamedTuple):
    """A box with a title and a text. A dashed one may be skipped."""

    title: str
    text: str
    dashed: bool = False


ARCHITECTURE = (
    Box("my.cluster.yml", "one file describes the cluster: hosts, hardware, partitions, people, Slurm's parameters"),
    Box(
        "control host",
        "the inventory plugin checks the file, and gives Ansible groups and variables; a mistake stops the run",
    ),
    Box(
        "ansible-playbook gpucluster.slurm.site",
        "roles compare each host with the file over ssh, and change only what differs",
    ),
    Box("database host", "MariaDB, slurmdbd"),
    Box("controllers", "slurmctld, the configuration of Slurm; standbys take over"),
    Box("compute nodes", "slurmd, NVIDIA driver, health check; they get their configuration from the controller"),
    Box("login hosts", "client commands, sackd"),
    Box("validation", "a job on every node of every partition"),
)

CHANGE = (
    Box("edit", "change a line of my.cluster.yml"),
    Box("site --check --diff", "shows what a run would change"),
    Box("preflight", "a wrong value is named with its key and what is allowed; nothing is changed"),
    Box("run lock", "while another run goes on, this one stops"),
    Box("plan", "a change that would end jobs is refused, and these jobs are named"),
    Box("controller", "the files are changed; if slurmctld does not accept them, the previous ones are restored"),
    Box("first nodes", "a change that restarts slurmd is tried on one node of each kind first"),
    Box("all nodes", "slurmd takes the change over; running jobs go on"),
    Box("validate", "a job on every node of every partition shows that the cluster works"),
)


def stages(flows: str) -> tuple[Box, ...]:
    """The boxes of the first drawing of docs/design/flows.md."""
    found = DRAWING.search(flows)
    assert found is not None, "docs/design/flows.md has no drawing"
    drawing = found.group(1)
    dashed = re.findall(r"^ *class (\S+) optional$", drawing, re.MULTILINE)[0].split(",")
    boxes = re.findall(r'^ *(\w+)\["<b>\w+</b>(.*)"\]$', drawing, re.MULTILINE)
    return tuple(
        Box(name, html.unescape(text.replace("<br>", "\n")).lstrip(": "), name in dashed) for name, text in boxes
    )


def svg(label: str, boxes: Sequence[Box]) -> str:
    """A picture of boxes with arrows between them."""
    parts: list[str] = []
    top = MARGIN
    for number, box in enumerate(boxes):
        lines = [line for part in box.text.splitlines() for line in textwrap.wrap(part, LETTERS)]
        height = LINE * (len(lines) + 1) + 14
        if number:
            middle = WIDTH // 2
            parts.append(f'<path class="arrow" d="M{middle} {top - GAP}V{top - 7}"/>')
            parts.append(f'<path class="head" d="M{middle - 5} {top - 8}h10l-5 8z"/>')
        kind = "box dashed" if box.dashed else "box"
        parts.append(
            f'<rect class="{kind}" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="6"/>'
        )
        parts.append(f'<text class="title" x="{2 * MARGIN}" y="{top + LINE}">{escape(box.title)}</text>')
        parts += [
            f'<text x="{2 * MARGIN}" y="{top + LINE * (place + 2)}">{escape(line)}</text>'
            for place, line in enumerate(lines)
        ]
        top += height + GAP
    whole = top - GAP + MARGIN
    style = (
        f"text{{font:15px {FONT};fill:#1f2328}}.title{{font-weight:600}}.box{{fill:#f3f6fa;stroke:#57606a}}"
        ".dashed{stroke-dasharray:6 4}.arrow{stroke:#57606a;stroke-width:1.5}.head{fill:#57606a}"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{whole}" viewBox="0 0 {WIDTH} {whole}"'
            f' role="img" aria-label="{escape(label)}">',
            "<!-- `make docs` draws this picture from tests/tools/site_pictures.py -->",
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{whole}" fill="#fff"/>',
            *parts,
            "</svg>\n",
        )
    )


def pictures() -> dict[Path, str]:
    """The pictures with their files."""
    flows = (ROOT / "docs/design/flows.md").read_text()
    return {
        PICTURES / "architecture.svg": svg("From the cluster file to a cluster", ARCHITECTURE),
        PICTURES / "change.svg": svg("The life of a change", CHANGE),
        PICTURES / "stages.svg": svg("The stages of site.yml", stages(flows)),
    }


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    run(pictures())
