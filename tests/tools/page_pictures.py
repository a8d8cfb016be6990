# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw docs/report-*.png: the page of clusters that do not exist, in Chromium.

usage: python tests/tools/page_pictures.py DIRECTORY
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/unit"))

import report_data  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import (  # noqa: E402
    report_page as page,
)
from browser import Browser, find_program  # noqa: E402


class Picture(NamedTuple):
    """A picture: the size of the cluster, the page, the window, and what is done before."""

    nodes: int
    file: str
    look: dict[str, Any]
    height: int
    action: str = "0"


CHOOSE = "document.querySelectorAll('.cells li')[%d].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
PICTURES = {
    "administrators": Picture(24, "admin.html", {}, 1000),
    "dark": Picture(24, "admin.html", {"dark": True}, 760, "document.getElementById('drained').scrollIntoView()"),
    "phone": Picture(24, "index.html", {"width": 360, "height": 740, "touch": True}, 740),
    "2000-nodes": Picture(2000, "index.html", {}, 1000, CHOOSE % 700),
}


def main(directory: Path) -> None:
    """Write the pictures."""
    program = find_program()
    if program is None:
        sys.exit("there is no Chromium; Debian's package is chromium")
    report_data.NOW = datetime.now(timezone.utc)  # the page would warn of its age
    with tempfile.TemporaryDirectory() as place, Browser(program, Path(place) / "profile") as browser:
        browser.zone("Europe/Zurich")
        for name, picture in PICTURES.items():
            page.write_pages(report_data.cluster(picture.nodes, 7 * picture.nodes, 3 * picture.nodes), Path(place))
            browser.look(**{"height": picture.height, **picture.look})
            browser.open(Path(place) / picture.file)
            browser.ask(picture.action)
            browser.picture(directory / f"report-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
