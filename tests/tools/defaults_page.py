# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/admin/defaults.md from the table of defaults.    usage: python tests/tools/defaults_page.py [--check]

With --check nothing is written, and the exit status is 1 if the page is not current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import value_text
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import defaults
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.default_records import (
    FIRST,
    LAST,
    OPTION,
    PARTITION,
    Default,
    Follows,
)
from generated_files import run

PAGE = Path(__file__).parents[2] / "docs/admin/defaults.md"

HEAD = """# Defaults

<!-- `make docs` writes this page from plugins/module_utils/decisions/values/defaults.py -->

These are the values that the collection writes into the files of Slurm and MariaDB. Of two rows with the same key, the
lower one applies. A site replaces a value by the variable that the section names, and `null` removes the parameter.
Values marked "added" stand together with those of the site. [The design](../design/defaults.md) has more about
generations.
"""


def cells(row: Default) -> Iterator[str]:
    """The cells of a row of the page."""
    yield f"`{row.key}` of partitions" if row.place == PARTITION else f"`{row.key}`"
    if row.value is None:
        value = "removed"
    elif isinstance(row.value, Follows):
        value = row.value.text
    else:
        value = f"`{value_text(row.value)}`"
    yield f"{value}, added" if row.place in (FIRST, LAST, OPTION) else value
    yield row.when.text
    yield row.reason
    yield row.source
    yield str(row.generation)


def page() -> str:
    """The text of the page."""
    lines = [HEAD]
    for file, variable in defaults.FILES.items():
        lines += [f"## {file}\n", *([f"A site's own values: `{variable}`.\n"] if variable else [])]
        lines += ["| key | value | condition | reason | source | generation |", "|---|---|---|---|---|---|"]
        rows = [row for row in defaults.DEFAULTS if row.file == file]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(row))} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    run({PAGE: page()})
