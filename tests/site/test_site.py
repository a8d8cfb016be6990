# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site as `make site` has built it: its pages, what they refer to, and its search.

Sphinx has checked the links between pages; here each reference of a page is followed, also in what the theme adds.
"""

from __future__ import annotations

import html
import importlib
import re
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from browser import LIMIT, Browser, find_program

ROOT = Path(__file__).parents[2]
SITE = ROOT / ".cache/site/html"
sys.path.insert(0, str(ROOT / "tests/tools"))
site_messages = importlib.import_module("site_messages")

LINK = re.compile(r'<a\s[^>]*?href="([^"]*)"')
LOADED = re.compile(r'<(?:script|img|iframe|source)\s[^>]*?src="([^"]*)"|<link\s[^>]*?href="([^"]*)"')
STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
WITHOUT_A_WAY = {"genindex.html", "search.html"}
"""Sphinx's own pages; the search box leads to the search."""
PROGRAM = find_program()
DOCUMENTS = (*(ROOT / "docs/recipes").glob("*.md"), *(ROOT / "docs/admin").glob("*.md"))
SAMPLE = 40
"""The messages that are searched for, evenly from all of them."""
SEARCHES = {
    "add a node": "add-node",
    "replace node": "replace-node",
    "remove nodes": "remove-node",
    "broken GPU": "broken-gpu",
    "install driver": "install-driver",
    "desktop": "workstation",
    "update packages": "update-packages",
    "security updates": "update-packages",
    "maintenance window": "maintenance",
    "reservation": "reservation",
    "new user": "add-user",
    "user leaves": "remove-user",
    "GPU hours": "gpu-hours",
    "job pending": "job-waits",
    "grafana": "monitoring",
    "uninstall": "uninstall",
}
"""What people type into the search, and the recipe that they want."""


@cache
def pages() -> dict[str, str]:
    """The pages by their path in the site."""
    return {str(path.relative_to(SITE)): path.read_text() for path in sorted(SITE.rglob("*.html"))}


def is_outside(link: str) -> bool:
    """Whether a reference leads out of the site."""
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


@cache
def names(page: str) -> frozenset[str]:
    """The places in a page to which a link can lead."""
    return frozenset(html.unescape(name) for name in re.findall(r'\sid="([^"]+)"', pages()[page]))


def links(page: str) -> Iterator[tuple[str, str, str]]:
    """The links of a page within the site: as written, the path in the site, the place there."""
    for link in map(html.unescape, LINK.findall(pages()[page])):
        parts = urlsplit(link)
        if not is_outside(link):
            target = (SITE / page).parent / unquote(parts.path) if parts.path else SITE / page
            yield link, str(target.resolve().relative_to(SITE.resolve())), unquote(parts.fragment)


def test_there_are_pages_of_each_kind() -> None:
    assert len(pages()) > 200
    roles = sorted(path.name for path in (ROOT / "roles").iterdir())
    modules = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
    wanted = {f"roles/{name}/README.html" for name in roles if (ROOT / "roles" / name / "README.md").exists()}
    wanted |= {f"reference-pages/{name}_module.html" for name in modules}
    wanted |= {f"{path.relative_to(ROOT).with_suffix('')}.html" for path in DOCUMENTS}
    assert wanted - set(pages()) == set()


def test_each_link_leads_to_a_page_and_a_place_in_it() -> None:
    broken = [
        (page, link)
        for page in pages()
        for link, target, place in links(page)
        if not (SITE / target).is_file() or (place and target in pages() and place not in names(target))
    ]
    assert broken == []


def test_each_page_can_be_reached_from_the_first() -> None:
    reached, next_ones = {"index.html"}, ["index.html"]
    while next_ones:
        found = {target for _link, target, _place in links(next_ones.pop()) if target in pages()} - reached
        reached |= found
        next_ones += found
    assert set(pages()) - reached == WITHOUT_A_WAY - reached


def test_no_page_loads_anything_from_outside() -> None:
    loaded = [
        (page, link)
        for page, text in pages().items()
        for pair in LOADED.findall(text)
        for link in pair
        if link and (is_outside(link) and not link.startswith("data:"))
    ]
    styled = [
        (path.name, link)
        for path in SITE.rglob("*.css")
        for pair in STYLE.findall(path.read_text())
        for link in pair
        if link and is_outside(link) and not link.startswith("data:")
    ]
    assert loaded + styled == []


def test_each_message_is_on_its_page() -> None:
    shown = {
        name: " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())
        for name, text in pages().items()
        if name.startswith("messages/")
    }
    assert [
        message
        for message in site_messages.messages()
        if " ".join(message.text.split()) not in shown[f"messages/{site_messages.place(message.file)}.html"]
    ] == []


@pytest.fixture(name="window", scope="module")
def a_window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("no Chromium here")
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as window:
        yield window


def search(window: Browser, words: str) -> list[str]:
    """The pages that the search finds, opened as a file."""
    window.open(f"{SITE.as_uri()}/search.html?q={quote(words)}")
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if "finished" in window.ask("document.querySelector('.search-summary')?.innerText ?? ''"):
            break
        if "did not match" in window.ask("document.querySelector('#search-results').innerText"):
            break
        time.sleep(0.1)
    time.sleep(0.3)
    found: list[str] = window.ask("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    return [unquote(urlsplit(link).path).partition("/html/")[2] for link in found]


def test_the_search_finds_messages_without_a_server(window: Browser) -> None:
    # The search ignores short words such as "not have any more".
    whole = re.compile(r"(?<![\w.'])[a-z]{5,}(?![\w.'])")
    found = [message for message in site_messages.messages() if len(whole.findall(message.text)) > 3]
    missed = []
    for message in found[:: len(found) // SAMPLE]:
        words = " ".join(whole.findall(message.text)[:6])
        page = f"messages/{site_messages.place(message.file)}.html"
        if page not in search(window, words):
            missed.append((words, page))
    assert missed == []


def room(page: str) -> int:
    """The place of a page among the results: recipes, pages of administrators and users, all others."""
    rooms = (("docs/recipes/",), ("docs/admin/", "docs/user/", "README.html"))
    return next((place for place, start in enumerate(rooms) if page.startswith(start)), len(rooms))


def test_the_search_has_recipes_first_and_the_right_one_before_the_others(window: Browser) -> None:
    found = {words: search(window, words) for words in SEARCHES}
    assert {words: pages_found[:1] for words, pages_found in found.items()} == {
        words: [f"docs/recipes/{recipe}.html"] for words, recipe in SEARCHES.items()
    }
    rooms = {words: [*map(room, pages_found)] for words, pages_found in found.items()}
    assert rooms == {words: sorted(places) for words, places in rooms.items()}


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "page",
    [
        *(
            "index",
            "administrators",
            "troubleshooting",
            "README",
            "docs/admin/failures",
            "docs/admin/defaults",
        ),
        *("roles/slurmd/README", "reference-pages/slurm_node_module", "reference-pages/cluster_inventory"),
        *("messages/cluster", "docs/user/guide"),
    ],
)
def test_a_page_is_not_wider_than_the_window_and_its_tables_can_be_read(window: Browser, page: str, width: int) -> None:
    window.look(width=width, touch=width < 500)
    window.open(SITE / f"{page}.html")
    assert window.ask("document.documentElement.scrollWidth") <= width
    assert window.ask("[...document.querySelectorAll('article table')].filter(t => t.offsetHeight < 30).length") == 0
    assert [address for address in window.requests if not address.startswith(("file:", "data:"))] == []
