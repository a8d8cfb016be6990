# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what Sphinx makes the documentation site from.    usage: python tests/tools/site_source.py DIRECTORY

The directory gets the Markdown pages of the repository at their paths, and those of docs/site at its top. A link to a
folder leads to a page that lists its files. Added are the messages, and the pages of roles and plugins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import site_messages
from site_pictures import DRAWING

ROOT = Path(__file__).parents[2]
SITE = "docs/site/"
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)((?:#[^)\s]*)?)(?=\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def tracked() -> list[str]:
    """The files that git knows, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


class Source:
    """The directory that is written. folders: those that pages link to, each of which becomes a page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = tracked()
        self.folders: set[str] = set()
        self.linked: set[str] = set()

    def page(self, name: str) -> str:
        """A page of the repository, with links that hold in the site."""
        text = (ROOT / name).read_text()
        if name == "docs/design/flows.md":
            text = DRAWING.sub("![The stages of site.yml](../site/pictures/stages.svg)", text)
        parts = CODE.split(text)
        parts[::2] = [LINK.sub(lambda match: self.link(name, match[1]) + match[2], part) for part in parts[::2]]
        return "".join(parts)

    def link(self, page: str, link: str) -> str:
        """The link of a page in the site."""
        target = os.path.normpath(os.path.join(os.path.dirname(page), link))
        if (ROOT / target).is_dir():
            self.folders.add(target)
            target = f"{SITE}files/{target.replace('/', '-')}.md"
        elif not target.endswith(".md"):
            self.linked.add(target)
        return os.path.relpath(target.removeprefix(SITE), os.path.dirname(page.removeprefix(SITE)) or ".")

    def list_folders(self) -> None:
        """A page for each folder that others link to, and one for all of them."""
        for folder in sorted(self.folders):
            names = [name for name in self.files if name.startswith(f"{folder}/")]
            self.linked |= set(names)
            lines = [f"- [{name.removeprefix(folder + '/')}](../{name})" for name in names]
            self.write(f"files/{folder.replace('/', '-')}.md", "\n".join([f"# Files of {folder}", "", *lines, ""]))
        entries = "\n".join(sorted(folder.replace("/", "-") for folder in self.folders))
        self.write("files/index.md", f"# Files\n\n```{{toctree}}\n\n{entries}\n```\n")

    def write(self, name: str, text: str) -> None:
        """Write a page."""
        (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (self.directory / name).write_text(text)

    def copy(self, name: str) -> None:
        """Copy a file to its path."""
        target = self.directory / name.removeprefix(SITE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)


def main(directory: Path) -> None:
    """Write the directory anew."""
    shutil.rmtree(directory, ignore_errors=True)
    source = Source(directory)
    for name in source.files:
        if name.endswith(".md"):
            source.write(name.removeprefix(SITE), source.page(name))
        elif name.startswith((SITE, "inventory/")):
            source.copy(name)
    source.list_folders()
    for name in sorted(source.linked):
        source.copy(name)
    for name, text in site_messages.pages().items():
        source.write(f"messages/{name}.md", text)
    pages = directory / "reference-pages"
    pages.mkdir()
    options = ["--use-current", "--squash-hierarchy", "--no-breadcrumbs", "--fail-on-error", "--dest-dir", str(pages)]
    subprocess.run(
        ["antsibull-docs", "collection", *options, "gpucluster.slurm"], check=True, stdout=subprocess.DEVNULL
    )
    for page in pages.iterdir():
        # The theme has a list of contents on each page, and refuses another. Titles are short enough for the side bar.
        text = re.sub(r"^\.\. contents::\n(?: .*\n)*", "", page.read_text(), flags=re.MULTILINE)
        page.write_text(re.sub(r"^gpucluster\.slurm\.(?=\w+ \w+ -- )", "", text, flags=re.MULTILINE))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
