# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of docs/admin/doctor.md from doctor's causes.    usage: python tests/tools/doctor_page.py [--check]

Each table stands between two marks; the rest of the page is written by hand. With --check nothing is written, and the
exit status is 1 if a table is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.causes import (
    MEASURED,
    OWNED,
    SAID,
    UNKNOWN,
    Cause,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.server_causes import SERVER_CAUSES, ServerCause
from generated_files import run

PAGE = Path(__file__).parents[2] / "docs/admin/doctor.md"
TABLES: Mapping[str, Sequence[Cause | ServerCause]] = {
    "servers": SERVER_CAUSES,
    "owners": OWNED,
    "hosts": MEASURED,
    "reports": (*SAID, UNKNOWN),
}


def row(cause: Cause | ServerCause) -> str:
    """The row of a cause, with its repair in italics."""
    repair = f" *{cause.repair}*" if isinstance(cause, Cause) and cause.repair else ""
    cells = (f"`{cause.name}`", cause.means, f"{cause.remedy}{repair}")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page(text: str) -> str:
    """The text of the page with current tables."""
    for name, causes in TABLES.items():
        begin = f"<!-- begin causes {name}: `make docs` writes these lines from plugins/module_utils/doctor -->"
        end = f"<!-- end causes {name} -->"
        if begin not in text or end not in text:
            sys.exit(f"{PAGE}: there is no line `{begin}` followed by a line `{end}`")
        table = ["| Cause | Meaning | Remedy |", "|---|---|---|", *map(row, causes)]
        text = "\n".join([text.partition(begin)[0] + begin, *table, end + text.partition(end)[2]])
    return text


if __name__ == "__main__":
    run({PAGE: page(PAGE.read_text())})
