# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents: links lead somewhere, files that are named exist, and drawings show the stages of site.yml."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FOLDERS = r"(?:docs|inventory|molecule|playbooks|plugins|roles|runner|tests)"
FILE = re.compile(rf"`({FOLDERS}/[\w./*-]+)")


def documents() -> list[Path]:
    """The Markdown files that git knows, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(ROOT / name for name in listed.splitlines() if (ROOT / name).exists())


def anchors(text: str) -> list[str]:
    """The anchors of the headings of a Markdown text, as GitHub makes them."""
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_blocks, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


def is_broken(document: Path, link: str) -> bool:
    """Whether a link of a document leads to no file, or to no heading of that file."""
    name, _hash, anchor = link.partition("#")
    target = document.parent / name if name else document
    return not target.exists() or (bool(anchor) and anchor not in anchors(target.read_text()))


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    links = [link for link in LINK.findall(CODE.sub("", document.read_text())) if "://" not in link]
    assert [link for link in links if is_broken(document, link)] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    named = {name.rstrip("./") for name in FILE.findall(document.read_text())}
    assert [name for name in sorted(named) if not list(ROOT.glob(name.replace("NAME", "*")))] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_heading_is_there_once(document: Path) -> None:
    """A link to the second of two leads to the first."""
    found = anchors(document.read_text())
    assert [anchor for anchor in found if found.count(anchor) > 1] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_drawing_of_a_run_has_the_stages_in_their_order() -> None:
    site = (ROOT / "playbooks/site.yml").read_text()
    section = (ROOT / "docs/design/flows.md").read_text().partition("\n## A run of site.yml\n")[2]
    drawing = section.partition("```mermaid\n")[2].partition("```")[0]
    drawn = re.findall(r"^ *(\w+)\[", drawing, re.MULTILINE)
    assert drawn == re.findall(r"import_playbook: stages/(\w+)\.yml", site)


@pytest.mark.parametrize(
    ("kind", "files"), [("modules", "modules/*.py"), ("filters", "filter/*.yml"), ("lookups", "lookup/*.py")]
)
def test_each_plugin_is_stable_or_internal(kind: str, files: str) -> None:
    """docs/admin/stability.md has a row for each kind of plugin that a task can use."""
    page = (ROOT / "docs/admin/stability.md").read_text()
    (row,) = re.findall(rf"^\| {kind} \| (.*) \|$", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", row)) == sorted(path.stem for path in (ROOT / "plugins").glob(files))


def test_each_result_of_a_playbook_is_on_the_page_of_stable_results() -> None:
    page = (ROOT / "docs/admin/stability.md").read_text()
    stats = re.compile(r"ansible\.builtin\.set_stats:\n +data:\n +(\w+):")
    tasks = [path.read_text() for path in sorted((ROOT / "roles").glob("*/tasks/*.yml"))]
    results = {name for text in tasks for name in stats.findall(text)}
    assert len(results) > 10
    assert [name for name in sorted(results) if f"`{name}`" not in page] == []


def test_the_tasks_of_a_converged_node_are_counted_in_one_place() -> None:
    """tests/integration/default/test_bare_hosts.py counts the tasks; a copy of the number would be wrong one day."""
    count = re.compile(r"\b(one|two|three|four|\d+)\s+remote\s+tasks?\b")
    naming = [path.relative_to(ROOT) for path in documents() if count.search(path.read_text())]
    assert naming == [Path("docs/design/decisions.md")]


def test_the_oldest_python_of_hosts_is_tested() -> None:
    """The README promises it, ruff checks the syntax for it, and stage sanity-hosts imports the plugins with it."""
    readme, makefile, project = ((ROOT / name).read_text() for name in ("README.md", "Makefile", "pyproject.toml"))
    (promised,) = re.findall(r"Each host needs\s+sshd,\s+Python (3\.\d+) or later", readme)
    assert f"--python={promised} --test=compile --test=import" in makefile
    assert f'target-version = "py{promised.replace(".", "")}"' in project


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_secrets_are_rotated_by_their_playbook(document: Path) -> None:
    """site.yml refuses another munge key, so no page says that it gives the hosts one."""
    text = re.sub(r"\s+", " ", document.read_text())
    for place in re.finditer(r"\b[Rr]otate the (\w+ )?(key|password)\b", text):
        assert re.search(r"rotate_keys|rotation\.md", text[place.start() - 60 : place.end() + 120]), place[0]


def test_commands_in_a_container_do_not_take_the_user_of_group_vars() -> None:
    """Playbook `new` writes one, such as admin; a new container has neither this user nor sudo."""
    text = (ROOT / "docs/admin/images.md").read_text()
    options = re.findall(r"ansible_connection=containers\.podman\.podman(.*)", text)
    assert len(options) == 2
    assert all("-e ansible_user=root" in each for each in options)
