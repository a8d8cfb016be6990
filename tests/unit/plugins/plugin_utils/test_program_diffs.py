# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of a program of the collection a diff has one line; settings keep their diffs, and so does all that a site wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.callback import CallbackBase
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions import (
    backup,
    metrics,
    nvidia_mig,
    role_files,
    slurm_health,
)
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import program_diffs
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import checked
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.program_diffs import own_file, shortened

ROOT = Path(__file__).parents[4]
MARK = "# Ansible managed: gpucluster.slurm"


def contents() -> dict[str, str]:
    """The programs of a node as roles write them, by their paths on it."""
    checks = sorted(path.name for path in (ROOT / "roles/slurm_health/files/checks").iterdir())
    found = [slurm_health.program(), *map(slurm_health.role_check, checks)]
    programs = {file["path"]: file["content"] for file in found}
    programs |= {name: metrics.program(name) for name in ("slurm-metrics", "slurm-gpu-metrics", "slurm-gpu-hours")}
    names = ("notebook.py", "nvcrlogin.py")
    programs |= {name: "#!/usr/bin/python3\n" + role_files.role_file("job_tools", name) for name in names}
    scripts = ("job-tools.sh", "sbuild.sh", "srun.sh", "completion.bash")
    programs |= {name: role_files.role_file("job_tools", name) for name in scripts}
    library = (ROOT / "plugins/module_utils/gpu/nvidia/mig.py").read_text()
    return programs | {
        "slurm-backup": backup.program(),
        "mig.py": f"{nvidia_mig.MARK}\n{library}",
        "slurm-mig": f"#!/usr/bin/python3 -I\n{nvidia_mig.MARK}\n{role_files.role_file('nvidia_mig', 'boot.py')}",
    }


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


def test_changed_lines_are_counted() -> None:
    content = slurm_health.program()["content"]
    before = content.replace("\nimport os\n", "\nimport sys\n", 1).replace("def ", "def other_", 1)
    assert before != content
    number = len(content.rstrip().split("\n"))
    (line,) = shown(answer([diff_of("/x/health", before, content)]))
    changed = len([1 for old, new in zip(before.split("\n"), content.split("\n")) if old != new])
    assert line == f"/x/health: health.py of gpucluster.slurm, {changed} of {number} lines changed (-v shows them)"


@pytest.mark.parametrize(
    "content",
    [
        "SlurmctldPort=6817\n",
        "",
        "#!/bin/sh\necho a script of the site\n",
        slurm_health.program()["content"] + "# a line that a person added\n",
        slurm_health.program()["content"].replace("def ", "def other_", 1),
    ],
    ids=["settings", "empty", "script", "longer", "other"],
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
    monkeypatch.setattr(program_diffs, "LIBRARIES", ())
    program_diffs._own_files.cache_clear()
    try:
        assert own_file("# Managed\nprint()\n") == "roles/x/files/a.py"
    finally:
        program_diffs._own_files.cache_clear()


def test_rules_of_prometheus_are_own_files() -> None:
    (name, *_rest) = sorted(path.name for path in (ROOT / "roles/slurm_metrics/files/rules").iterdir())
    text = f"{MARK}\n{role_files.role_file('slurm_metrics', f'rules/{name}')}"
    assert own_file(text) == f"roles/slurm_metrics/files/rules/{name}"


def test_a_run_shows_a_tenth_of_the_lines() -> None:
    """That of a node with all of it, and its first settings."""
    diff = [diff_of(path, "", content) for path, content in contents().items()]
    settings = diff_of("/etc/default/slurmd", "", "SLURMD_OPTIONS=--conf-server head\n")
    assert len(shown([*diff, settings])) > 2000
    assert len(shown(answer([*diff, settings]))) < 40
