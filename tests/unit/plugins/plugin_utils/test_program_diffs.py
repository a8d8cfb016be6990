# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of a program of the collection a diff has one line; settings keep their diffs, and so does all that a site wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from ansible.plugins.callback import CallbackBase
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import shipped_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import MODULES, library
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.shipped_files import HostFile
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import rotation
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import program_diffs
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import checked
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.program_diffs import own_file, shortened

ROOT = Path(__file__).parents[4]
MARK = "# Ansible managed: gpucluster.slurm"


def libraries() -> dict[str, list[HostFile]]:
    """The files of each program, by its name."""
    modules = [path.relative_to(MODULES).with_suffix("") for path in sorted((MODULES / "programs").rglob("*.py"))]
    return {
        path.name: library(path.name.replace("_", "-"), {f"/usr/local/sbin/{path.name}": ".".join(path.parts)})
        for path in modules
        if "\ndef main(" in (MODULES / path).with_suffix(".py").read_text()
    }


def contents() -> dict[str, str]:
    """The programs of hosts as roles write them, by their paths there, without the modules of their libraries."""
    checks = sorted(path.name for path in (ROOT / "roles/slurm_health/files/checks").iterdir())
    found = [*map(slurm_health.role_check, checks), *(files[-1] for files in libraries().values())]
    found.append(rotation.program_file(cast(RunHost, None)))
    others = [path for role in ("job_tools", "slurm_metrics") for path in (ROOT / f"roles/{role}/files").iterdir()]
    texts = {path.name: f"#!/bin/x\n{MARK}\n{path.read_text()}" for path in sorted(others) if path.is_file()}
    return texts | {file["path"]: file["content"] for file in found}


STARTER = libraries()["health_check"][-1]["content"]


def diff_of(path: str, before: str, after: str) -> dict[str, str]:
    """A diff as `File` makes it."""
    return {"before_header": path, "after_header": path, "before": before, "after": after}


def answer(diff: list[dict[str, str]]) -> list[Any]:
    """The diff of a module's answer, as the control host shows it."""
    result = {"changed": True, "files": [], "diff": diff}
    return list(shortened(checked("slurm_files", result)["diff"]))


def shown(diff: list[Any]) -> list[str]:
    """The lines that Ansible's callbacks print."""
    text: str = CallbackBase()._get_diff(diff)
    return text.split("\n")[:-1]


@pytest.mark.parametrize("path", contents())
def test_each_program_has_one_line(path: str) -> None:
    content = contents()[path]
    (line,) = shown(answer([diff_of(path, "", content)]))
    assert line.startswith(f"{path}: ")
    assert line.endswith(f" of gpucluster.slurm, new, {len(content.rstrip().split(chr(10)))} lines (-v shows them)")


def test_the_modules_of_a_library_have_one_line() -> None:
    for name, (*modules, starter) in libraries().items():
        diff = [diff_of(file["path"], "", file["content"]) for file in [*modules, starter]]
        first, second = shown(answer(diff))
        directory = modules[0]["path"].partition("/gpucluster_slurm/")[0]
        line = rf"{directory}: {len(modules)} modules of gpucluster.slurm, \d+ lines \(-v shows them\)"
        assert re.fullmatch(line, first)
        assert second.startswith(f"/usr/local/sbin/{name}: {name}.py of gpucluster.slurm, new, ")


def test_changed_lines_are_counted() -> None:
    """Of a starter it is the line with the directory."""
    content = libraries()["health_check"][-1]["content"]
    before = re.sub("[0-9a-f]{12}", "0123456789ab", content)
    assert before != content
    number = len(content.rstrip().split("\n"))
    (line,) = shown(answer([diff_of("/x/health", before, content)]))
    assert line == f"/x/health: health_check.py of gpucluster.slurm, 1 of {number} lines changed (-v shows them)"


@pytest.mark.parametrize(
    "content",
    [
        "SlurmctldPort=6817\n",
        "",
        "#!/bin/sh\necho a script of the site\n",
        STARTER + "# a line that a person added\n",
        STARTER.replace("import sys\n", "import sys  # and more\n", 1),
        STARTER.replace("health_check", "no_such_program"),
        slurm_health.role_check("disk")["content"] + "# a line that a person added\n",
    ],
    ids=["settings", "empty", "script", "longer", "other", "unknown", "check"],
)
def test_other_files_keep_their_diff(content: str) -> None:
    diff = diff_of("/etc/slurm/x", "before\n", content)
    assert answer([diff]) == [diff]


def test_a_mode_and_a_secret_are_shown_as_they_were() -> None:
    for diff in (diff_of("/x", "0:0 0644\n", "0:0 0755\n"), diff_of("/x", "(a secret)\n", "(another secret)\n")):
        assert shortened(diff) == diff
    strange: list[Any] = [None, [], {}, [{}], {"prepared": "x"}]
    assert [shortened(diff) for diff in strange] == strange


def test_files_that_are_no_text_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python compiles a program that a test imports, next to it."""
    files = tmp_path / "roles/x/files"
    (files / "__pycache__").mkdir(parents=True)
    (files / "__pycache__/a.cpython-311.pyc").write_bytes(b"\xa7\r\r\n")
    (files / "image").write_bytes(b"\x89PNG")
    (files / "a.py").write_text("#!/usr/bin/python3\nprint()\n")
    monkeypatch.setattr(program_diffs, "ROLES", tmp_path / "roles")
    monkeypatch.setattr(program_diffs, "COLLECTION", tmp_path)
    monkeypatch.setattr(program_diffs, "MODULES", tmp_path)
    program_diffs._own_files.cache_clear()
    try:
        assert own_file("# Managed\nprint()\n") == "roles/x/files/a.py"
    finally:
        program_diffs._own_files.cache_clear()


def test_rules_of_prometheus_are_own_files() -> None:
    (name, *_rest) = sorted(path.name for path in (ROOT / "roles/slurm_metrics/files/rules").iterdir())
    text = f"{MARK}\n{shipped_files.role_file('slurm_metrics', f'rules/{name}')}"
    assert own_file(text) == f"roles/slurm_metrics/files/rules/{name}"


def test_a_run_shows_a_tenth_of_the_lines() -> None:
    """That of a node with all of it, and its first settings."""
    modules = {file["path"]: file["content"] for files in libraries().values() for file in files}
    diff = [diff_of(path, "", content) for path, content in {**modules, **contents()}.items()]
    settings = diff_of("/etc/default/slurmd", "", "SLURMD_OPTIONS=--conf-server head\n")
    lines = len(shown(answer([*diff, settings])))
    assert len(shown([*diff, settings])) > max(2000, 10 * lines)
    assert lines < 2 * len(libraries()) + 40
