# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the output of a real run of site.yml as docs/run.svg.    usage: python tests/tools/picture.py LOG

LOG is the output of ansible-playbook with ANSIBLE_FORCE_COLOR=1 and the callback `progress` of ansible.cfg. The picture
has its lines as they are.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

COMMAND = "ansible-playbook gpucluster.slurm.site -i my.cluster.yml"
PICTURE = Path(__file__).parents[2] / "docs/run.svg"

# The escape sequences that Ansible writes before and after a coloured text.
COLOUR = re.compile(r"\x1b\[([\d;]*)m")
COLOURS = {"0;31": "#f47067", "0;32": "#8ddb8c", "0;33": "#e3b341", "1;35": "#d2a8ff"}
"""The colours of Ansible for failed, ok, changed, and what waits."""
TEXT, BACKGROUND = "#d0d7de", "#161b22"
# In pixels. Monospaced fonts are about 0.6 times as wide as high.
SIZE, WIDTH, HEIGHT, MARGIN = 13, 7.85, 18, 16
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def plain(line: str) -> str:
    """A line of the log without colours."""
    return COLOUR.sub("", line).rstrip()


ROWS = 6
"""Rows of a table that are drawn."""


def drawn(log: Iterable[str]) -> list[str]:
    """The lines of a log that are drawn: neither empty ones nor warnings, and of a long table the first ROWS."""
    lines = [line for line in log if plain(line) and not plain(line).startswith("[WARNING]")]
    found: list[str] = []
    for is_row, group in itertools.groupby(lines, lambda line: plain(line).startswith(8 * " ")):
        rows = list(group)
        left = len(rows) - ROWS if is_row else 0
        found += [*rows[:ROWS], f"        ... {left} more"] if left > 1 else rows
    return found


def spans(line: str) -> Iterator[str]:
    """A line of the log as SVG, a span for each colour."""
    colour = ""
    for number, part in enumerate(COLOUR.split(line.rstrip())):
        if number % 2:
            colour = part
        elif part:
            shown = escape(part).replace(" ", "&#160;")  # not every viewer keeps blanks
            yield f'<tspan fill="{COLOURS.get(colour, TEXT)}">{shown}</tspan>'


def drawing(command: str, lines: Sequence[str]) -> str:
    """A terminal with a command and the lines that it has printed, as SVG."""
    shown = [f"$ {command}", *lines]
    width = round(max(len(plain(line)) for line in shown) * WIDTH) + 2 * MARGIN
    height = len(shown) * HEIGHT + 2 * MARGIN
    text = [
        f'<text x="{MARGIN}" y="{MARGIN + number * HEIGHT + SIZE}">{"".join(spans(line))}</text>'
        for number, line in enumerate(shown)
    ]
    box = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width} {height}">',
            "<!-- drawn by tests/tools/picture.py -->",
            f'<rect {box} rx="8" fill="{BACKGROUND}"/>',
            f'<g font-family="{FONT}" font-size="{SIZE}">',
            *text,
            "</g>",
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    LOG = Path(sys.argv[1]).resolve()
    TEXT_OF_RUN = LOG.read_text().replace(f"{LOG.parent}/", "")
    PICTURE.write_text(drawing(COMMAND, drawn(TEXT_OF_RUN.splitlines())))
