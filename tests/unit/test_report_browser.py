# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of role slurm_report in a real Chromium, from the disk and without a network."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import report_data
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_page as page
from browser import Browser, find_program

pytestmark = pytest.mark.once

FILES = ("index.html", "admin.html")
PHONE = {"width": 360, "height": 740, "touch": True}
CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => top.slice(0, 3).map((part, i) => part * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
  const light = (rgb) => rgb.slice(0, 3)
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest("script,style,svg,noscript") || !element.checkVisibility()) continue;
    const [ink, paper] = [parse(getComputedStyle(element).color), ground(element)];
    const [a, b] = [light(over(ink, paper)), light(paper)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[`${element.tagName}.${element.className}: ${text.slice(0, 30)}`] = ratio.toFixed(2);
  }
  return found;
})()
"""
"""Texts with a contrast of less than 4.5 to what is below them (WCAG 2, 1.4.3)."""

TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter((element) => element.checkVisibility() && !element.closest("svg,.skip"))
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
  .slice(0, 5)
  .map((element) => `${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`)
"""
"""Elements that leave the window to the right."""


@pytest.fixture(name="browser", scope="module")
def a_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_program()
    if program is None:
        pytest.skip("there is no Chromium; Debian's package is chromium")
    with Browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


def written(directory: Path, data: dict[str, Any]) -> Path:
    """The directory with the pages of these data."""
    directory.mkdir()
    page.write_pages(data, directory)
    return directory


@pytest.fixture(name="pages", scope="module")
def pages_of_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a cluster whose data are from now."""
    data = report_data.cluster()
    data["made"] = datetime.now(timezone(timedelta(hours=1))).isoformat()
    return written(tmp_path_factory.mktemp("pages") / "small", data)


@pytest.fixture(name="large", scope="module")
def pages_of_a_large_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of 2,000 nodes; the number of jobs changes nothing that is drawn."""
    return written(tmp_path_factory.mktemp("pages") / "large", report_data.cluster(2000, 1200, 600, 400))


@pytest.fixture(autouse=True)
def desktop(browser: Browser) -> None:
    """Each test begins with a desk, in the light."""
    browser.look()
    browser.zone("Asia/Kolkata")


def text_of(browser: Browser, selector: str) -> str:
    """The text of an element, with single blanks."""
    return " ".join(str(browser.ask(f"document.querySelector({selector!r}).innerText")).split())


# -- Content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_a_page_opens_without_complaints_and_requests(browser: Browser, pages: Path, file: str) -> None:
    browser.open(pages / file)
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    assert text_of(browser, "h1") == "aurora"
    assert browser.ask("document.querySelectorAll('.cells li').length") == 24
    assert "jobs with a higher priority come first" in text_of(browser, "#queue")
    assert browser.ask("document.querySelectorAll('.plot svg g').length") == 60
    assert browser.ask("Boolean(document.querySelector('#hosts'))") is (file == "admin.html")


def test_times_are_those_of_the_reader(browser: Browser, pages: Path) -> None:
    browser.open(pages / "admin.html")
    time = "document.querySelector('.alert time')"
    found = {name: browser.ask(f"{time}.{name}") for name in ("textContent", "title", "dateTime")}
    at = datetime.fromisoformat(found["dateTime"])
    assert found["textContent"] == f"{at.astimezone(timezone(timedelta(hours=5.5))):%Y-%m-%d %H:%M}"
    assert found["title"] == f"{at:%Y-%m-%d %H:%M} +01:00"
    assert re.search(r"times of Asia/(Kolkata|Calcutta)", text_of(browser, "header"))


def test_an_old_page_warns(browser: Browser, pages: Path, tmp_path: Path) -> None:
    browser.open(pages / "index.html")
    assert browser.ask("document.getElementById('old').checkVisibility()") is False
    data = report_data.cluster(nodes=3, jobs=2, running=1)
    data["made"] = (datetime.now(timezone.utc) - timedelta(minutes=16)).isoformat()
    browser.open(written(tmp_path / "old", data) / "index.html")
    assert text_of(browser, "#old") == "This page is old: it was made 16 min ago, and may no longer be true."


def test_ages_grow_with_the_page(browser: Browser, tmp_path: Path) -> None:
    """The page was made 14 minutes ago, and the validation ended 4 minutes before."""
    made = datetime.now(timezone.utc) - timedelta(minutes=14, seconds=5)
    data = report_data.cluster(nodes=3, jobs=2, running=1)
    data["made"] = made.isoformat()
    data["validation"]["finished"] = (made - timedelta(minutes=4)).isoformat()
    directory = written(tmp_path / "ages", data)
    browser.open(directory / "admin.html")
    assert "passed 18 min ago" in text_of(browser, ".checks")
    assert "(18 min ago)" in text_of(browser, "#validation")
    browser.look(scripts=False)
    browser.open(directory / "admin.html")
    assert "passed 4 min ago" in (directory / "admin.html").read_text()


def test_a_user_finds_his_jobs(browser: Browser, tmp_path: Path) -> None:
    hostile = "<b>'\"x"
    data = report_data.cluster(nodes=3, jobs=30, running=9, users=4)
    data["jobs"][0]["user"] = hostile
    page_of_users = written(tmp_path / "own", data) / "index.html"
    shown = (
        "[...document.querySelectorAll('.own details')].filter((e) => e.checkVisibility()).map((e) => e.dataset.user)"
    )

    def choose(name: str) -> Any:
        browser.ask(f"document.getElementById('own-user').value = {json.dumps(name)}")
        browser.ask("document.getElementById('own-user').dispatchEvent(new Event('input'))")
        return browser.ask(shown)

    browser.open(page_of_users)
    assert choose("ada") == ["ada"]
    assert choose(hostile) == [hostile]
    assert text_of(browser, ".own details:not([hidden]) summary") == f"{hostile} 1 running, 0 waiting"
    assert choose("nobody") == []
    assert "has no jobs here" in text_of(browser, "#own")
    choose("ben")
    browser.open(page_of_users)
    assert browser.ask(shown) == ["ben"]  # the browser remembers it
    assert browser.complaints == []


def test_all_can_be_read_without_script(browser: Browser, pages: Path) -> None:
    browser.look(scripts=False)
    browser.open(pages / "admin.html")
    found = browser.call("DOM.getDocument", depth=-1)
    html = browser.call("DOM.getOuterHTML", nodeId=found["root"]["nodeId"])["outerHTML"]
    assert re.search(r'<time datetime="[^"]+">\d{4}-\d\d-\d\d \d\d:\d\d \+01:00</time>', html)
    assert 'title="gpu01 · ' in html
    assert 'class="sort"' not in html


# -- Sizes and colours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_a_phone_shows_all_without_a_horizontal_bar(browser: Browser, pages: Path, file: str) -> None:
    browser.look(**PHONE)
    browser.open(pages / file)
    assert browser.complaints == []
    assert browser.ask(TOO_WIDE) == []
    assert browser.ask("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    heights = "[...document.querySelectorAll('#queue .numbers tbody tr')].map((row) => row.offsetHeight)"
    assert max(browser.ask(heights)) < 40, "an account or a user takes more than a line"


def test_a_phone_shows_2000_nodes(browser: Browser, large: Path) -> None:
    browser.look(**PHONE)
    browser.open(large / "admin.html")
    assert browser.complaints == []
    assert browser.ask("document.querySelectorAll('.cells li').length") == 2000
    assert browser.ask("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("file", FILES)
def test_contrast(browser: Browser, pages: Path, file: str, dark: bool) -> None:
    browser.look(dark=dark)
    browser.open(pages / file)
    assert browser.ask("document.querySelectorAll('details').forEach((some) => { some.open = true; })") is None
    assert browser.ask(CONTRAST) == {}
    paper = [int(part) for part in re.findall(r"\d+", browser.ask("getComputedStyle(document.body).backgroundColor"))]
    assert (max(paper) < 40) is dark


def test_the_check_of_contrast_finds_a_pale_text(browser: Browser, pages: Path) -> None:
    browser.open(pages / "index.html")
    browser.ask("document.querySelector('h1').style.color = '#999'")
    assert list(browser.ask(CONTRAST)) == ["BDI.: aurora"]


GRAPHICS = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3)
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = light(parse(getComputedStyle(document.querySelector("#acceptance")).backgroundColor));
  return [...document.querySelectorAll(".curve path, .curve circle")].map((part) => {
    const style = getComputedStyle(part);
    const ink = light(parse(style.fill === "none" ? style.stroke : style.fill));
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
})()
"""
"""The contrast of each part of a curve to the page."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_curves_can_be_seen(browser: Browser, pages: Path, dark: bool) -> None:
    """A contrast of 3 for graphics (WCAG 2, 1.4.11), a size, and a place within their cell."""
    browser.look(dark=dark)
    browser.open(pages / "admin.html")
    ratios = browser.ask(GRAPHICS)
    # Two parts of each of 12 curves, and the baseline of eight.
    assert len(ratios) == 32
    assert min(ratios) >= 3
    places = browser.ask("""[...document.querySelectorAll('.curve')].map((curve) => {
      const [own, cell] = [curve.getBoundingClientRect(), curve.closest('td').getBoundingClientRect()];
      return own.width > 60 && own.height > 12 && own.right <= cell.right + 1 && own.bottom <= cell.bottom + 1;
    })""")
    assert places == [True] * 12


def test_values_of_a_curve_are_texts_as_well(browser: Browser, pages: Path) -> None:
    browser.open(pages / "admin.html")
    rows = browser.ask("""[...document.querySelectorAll('#acceptance tbody tr')].slice(0, 12).map((row) => {
      row.querySelector('details').open = true;
      return [row.querySelector('summary').textContent, row.querySelectorAll('li').length, row.innerText];
    })""")
    assert rows[0][0] == "12 runs of memory bandwidth of the GPU"
    assert {row[1] for row in rows} == {12}
    assert "2890.7" in rows[0][2]
    worse = [row[2] for row in rows if "worse" in row[2]]
    assert len(worse) == 1
    assert "writing to the local disk" in worse[0]


# -- Keyboard, mouse and finger --------------------------------------------------------------------------------------


def active(browser: Browser) -> str:
    """The text of the element that has the focus."""
    return str(browser.ask("document.activeElement.dataset.text ?? document.activeElement.innerText"))


def test_the_keyboard_reaches_the_content_and_each_node(browser: Browser, pages: Path) -> None:
    browser.open(pages / "index.html")
    browser.press("Tab")
    assert active(browser) == "Skip to the content"
    assert browser.ask("document.activeElement.getBoundingClientRect().left >= 0")
    for _press in range(12):
        browser.press("Tab")
        if active(browser).startswith("gpu01"):
            break
    assert active(browser).startswith("gpu01 · MIXED")
    browser.press("ArrowRight")
    assert active(browser).startswith("gpu02 · ")
    box = text_of(browser, "#node")
    assert box.startswith("gpu02 · ")
    assert re.search(r"\w+: \d GPUs?, jobs? 42000\d\d", box)
    browser.press("ArrowDown")
    browser.press("ArrowUp")
    assert active(browser).startswith("gpu02 · ")
    browser.press("End")
    last = active(browser)
    browser.press("ArrowRight")
    assert active(browser) == last
    # One stop for each group of nodes.
    stops = "[...document.querySelectorAll('.cells')].map((list) => list.querySelectorAll('[tabindex=\"0\"]').length)"
    assert {*browser.ask(stops)} == {1}
    browser.press("Tab")
    assert browser.ask("document.activeElement.closest('.group').className") == "group g-idle"


def test_a_finger_shows_a_node(browser: Browser, pages: Path) -> None:
    browser.look(**PHONE)
    browser.open(pages / "index.html")
    place = browser.ask("""(() => {
      const cell = document.querySelectorAll('.cells li')[7];
      cell.scrollIntoView({block: 'center'});
      const box = cell.getBoundingClientRect();
      return {x: box.x + 5, y: box.y + 5, text: cell.dataset.text.split('\\n')[0]};
    })()""")
    point = {"x": place["x"], "y": place["y"]}
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[point])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    browser.ask("new Promise((done) => setTimeout(done, 300))")
    assert text_of(browser, "#node b") == place["text"]
    assert browser.ask("document.getElementById('node').getBoundingClientRect().bottom <= innerHeight")


def test_names_of_elements_for_screen_readers(browser: Browser, pages: Path) -> None:
    """Nothing that takes the focus is without a name."""
    browser.open(pages / "admin.html")
    found = browser.call("Accessibility.getFullAXTree")["nodes"]
    nameless = [
        node["role"]["value"]
        for node in found
        if any(entry["name"] == "focusable" and entry["value"]["value"] for entry in node.get("properties", []))
        and not node.get("name", {}).get("value")
    ]
    assert [role for role in nameless if role != "RootWebArea"] == []


def test_a_table_is_sorted_and_filtered(browser: Browser, pages: Path) -> None:
    browser.open(pages / "index.html")
    table = "document.querySelector('[aria-label^=\"Waiting\"] table')"
    cells = f"[...{table}.tBodies[0].rows].map((row) => row.cells[%d].textContent)"
    browser.ask(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    users = browser.ask(cells % 1)
    assert users == sorted(users)
    browser.ask(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    assert browser.ask(cells % 1) == users[::-1]
    assert browser.ask(f"{table}.tHead.rows[0].cells[1].getAttribute('aria-sort')") == "descending"
    browser.ask(f"{table}.tHead.rows[0].cells[5].querySelector('button').click()")
    gpus = [int(text.split()[0]) for text in browser.ask(cells % 5)]
    assert gpus == sorted(gpus)
    assert browser.complaints == []


def test_the_filter_counts(browser: Browser, pages: Path) -> None:
    browser.open(pages / "index.html")
    box = "document.querySelector('#queue input')"
    browser.ask(f"{box}.focus()")
    browser.call("Input.insertText", text="OLGA")
    rows = f"[...{box}.closest('.filter').nextElementSibling.querySelectorAll('tbody tr')]"
    shown = browser.ask(f"{rows}.filter((row) => row.checkVisibility()).map((row) => row.cells[1].textContent)")
    assert {*shown} == {"olga"}
    assert text_of(browser, "#queue output") == f"{len(shown)} of 100 lines here"


# -- Texts of users and hosts ----------------------------------------------------------------------------------------

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus='alert(1)' autofocus tabindex='0' x='",
    "</style></title></script><script>alert(1)</script>",
    "javascript:alert(1)",
    "\u202e\u2066\x1b[31m<svg onload=alert(1)>",
    "W" * 5000,
)


def test_no_text_is_executed_or_leaves_its_place(browser: Browser, tmp_path: Path) -> None:
    for number, attack in enumerate(ATTACKS):
        data = report_data.changed(
            report_data.cluster(nodes=30, jobs=9, running=5, users=4),
            lambda path, was, text=attack: was if path in ("made", "jobs.state", "nodes.state") else text,
        )
        pages = written(tmp_path / str(number), data)
        for look in ({}, PHONE):
            browser.look(**look)
            browser.open(pages / "admin.html")
            browser.ask("document.querySelectorAll('.cells li').forEach((cell) => cell.focus())")
            browser.ask("document.querySelectorAll('.sort').forEach((button) => button.click())")
            assert browser.complaints == [], attack[:40]
            assert browser.ask(TOO_WIDE) == [], attack[:40]
            assert browser.ask("document.images.length + document.scripts.length") == 1


def test_the_policy_would_stop_a_script(browser: Browser, pages: Path) -> None:
    """What the other tests count on: a script, a handler, a style or a request that is not the page's own."""
    browser.open(pages / "index.html")
    browser.ask("""(() => {
      const policy = trustedTypes.createPolicy('test', {createHTML: (text) => text, createScript: (text) => text});
      const script = document.createElement('script');
      script.text = policy.createScript('window.ran = 1');
      document.body.append(script);
      document.querySelector('footer').innerHTML =
        policy.createHTML('<img src="http://example.org/x.png" onerror="window.ran = 2"><i style="color: red">x</i>');
    })()""")
    browser.ask("new Promise((done) => setTimeout(done, 300))")
    assert browser.ask("window.ran === undefined")
    assert len([text for text in browser.complaints if "Content Security Policy" in text]) >= 3
    refused = browser.ask(
        "(() => { try { document.body.innerHTML = 'x'; return 'done'; } catch (error) { return error.name; } })()"
    )
    assert refused == "TypeError"


def test_the_program_is_found_or_missed() -> None:
    """The tests above are skipped only where no Chromium starts."""
    program = find_program()
    if program:
        found = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert found.startswith(("Chromium", "Google Chrome"))
