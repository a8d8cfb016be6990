# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No file or directory has a mode by accident: what makes one names its mode, and the umask is set once.

ansible-lint finds tasks of ansible.builtin.copy, template and others without a mode (risky-file-permissions).
"""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import MODULES, sources

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROGRAMS = sorted([*(ROOT / "plugins").rglob("*.py"), *ROOT.glob("roles/*/files/*.py")])
OF_USERS = (
    "enroot-data.sh",
    "import-once.sh",
    "notebook.py",
    "notebook_job.py",
    "nvcrlogin.py",
    "proof.sh",
    "sbuild.sh",
)
"""Programs that users run: their umask is theirs."""


# -- code ------------------------------------------------------------------------------------------------------------


def without_mode(source: str) -> list[str]:
    """The calls that make a file or directory without naming its mode.

    tempfile makes files with mode 0600 and directories with 0700; shutil copies modes.
    """
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if _lacks_mode(call)]


def _lacks_mode(call: ast.Call) -> bool:
    """Whether a call makes a file or directory with a mode that follows from the umask alone."""
    whole, options = ast.unparse(call.func), {option.arg for option in call.keywords}
    name = whole.rpartition(".")[2]
    if name in ("write_text", "write_bytes", "touch", "copyfile", "mkfifo", "mknod"):
        return whole not in ("touch",)  # a function of nvidia_mig
    if name in ("mkdir", "makedirs"):
        positional = 2 if whole.startswith("os.") else 1
        return "mode" not in options and len(call.args) < positional
    if whole == "os.open":
        return "O_CREAT" in ast.unparse(call) and "mode" not in options and len(call.args) < 3
    if name == "open" and whole != "tarfile.open":
        return _is_writing(call) and "opener" not in options
    return False


def _is_writing(call: ast.Call) -> bool:
    """Whether a call of open() has a mode such as "w" or "a+"."""
    words = [*call.args, *(option.value for option in call.keywords if option.arg == "mode")]
    texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return any(re.fullmatch(r"[rwaxbt+]*[wax+][rwaxbt+]*", text) for text in texts)


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        ("open(path, 'w')", True),
        ("open(path, mode='ab')", True),
        ("open(path, encoding='utf-8')", False),
        ("open(path, 'w', opener=opener(0o644))", False),
        ("Path(path).open('w')", True),
        ("path.write_text(text)", True),
        ("os.makedirs(path, exist_ok=True)", True),
        ("os.makedirs(path, mode=0o755)", False),
        ("os.mkdir(path, 0o700)", False),
        ("path.mkdir(parents=True)", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)", False),
        ("os.open(path, flags, mode)", False),
    ],
)
def test_calls_without_a_mode_are_found(source: str, lacks: bool) -> None:
    assert bool(without_mode(source)) is lacks


def test_code_names_the_mode_of_what_it_makes() -> None:
    calls = {str(path.relative_to(ROOT)): without_mode(path.read_text()) for path in PROGRAMS}
    assert {path: found for path, found in calls.items() if found} == {}


def test_programs_of_root_set_their_umask() -> None:
    """A mode in a call is only what the umask leaves of it. The modules have theirs by their action."""
    makes = re.compile(r"\bmkdir (?!-m )|makedirs|\.mkdir\(|\bopener=")
    sets = re.compile(r"^ *(os\.umask\(0o022\)|umask 022)", re.MULTILINE)
    paths = [
        *(path for path in ROOT.glob("roles/*/files/**/*") if path.suffix != ".pyc"),
        *ROOT.glob("roles/*/templates/*.sh.j2"),
    ]
    texts = {path.name: path.read_text() for path in paths if path.is_file() and path.name not in OF_USERS}
    for path in (MODULES / "programs").rglob("*.py"):
        if "\ndef main(" in path.read_text() and path.name not in OF_USERS:
            found = sources(path.relative_to(MODULES).with_suffix("").as_posix().replace("/", "."))
            texts[path.name] = "".join(text for name, text in found.items() if name.startswith("programs/"))
    making = {name for name, text in texts.items() if makes.search(text)}
    assert making >= {"backup_command.py", "health_check.py", "job_script.sh.j2", "prolog.sh.j2"}
    assert [name for name in making if not sets.search(texts[name])] == []


# -- tasks -----------------------------------------------------------------------------------------------------------


def tasks_in(value: Any) -> Iterator[dict[str, Any]]:
    """All tasks of a file, also those in blocks."""
    for item in value if isinstance(value, list) else []:
        yield item
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_in(item.get(part))


def task_problem(task: dict[str, Any]) -> str:
    """Why a task makes something with a mode by accident; empty if it does not."""
    copy, shell = task.get("ansible.builtin.copy", {}), task.get("ansible.builtin.shell", {})
    if str(copy.get("dest", "")).endswith("/") and "directory_mode" not in copy:
        return "a directory without directory_mode"
    if copy.get("mode") == "preserve" and "content" in copy:
        return "mode preserve is that of a temporary file"
    makes = re.search(r"mkdir|update-ca-certificates|[^0-9]> ?[\"$/]|\btar\b", shell.get("cmd", ""))
    return "a shell without a umask" if makes and "umask 0" not in shell["cmd"] else ""


@pytest.mark.parametrize(
    "task",
    [
        {"ansible.builtin.copy": {"src": "x", "dest": "/var/cache/x/", "mode": "0644"}},
        {"ansible.builtin.copy": {"content": "x", "dest": "/x", "mode": "preserve"}},
        {"ansible.builtin.shell": {"cmd": 'mkdir -p "$(dirname "$X")"'}},
        {"ansible.builtin.shell": {"cmd": 'echo x > "$X"'}},
    ],
)
def test_tasks_with_a_mode_by_accident_are_found(task: dict[str, Any]) -> None:
    assert task_problem(task)


def test_no_task_makes_something_with_a_mode_by_accident() -> None:
    wrong = []
    for path in [
        *ROOT.glob("roles/*/tasks/*.yml"),
        *ROOT.glob("roles/*/handlers/*.yml"),
        *ROOT.glob("playbooks/**/*.yml"),
    ]:
        tasks = tasks_in(yaml.safe_load(path.read_text()))
        wrong += [f"{path.relative_to(ROOT)}: {task['name']}: {why}" for task in tasks if (why := task_problem(task))]
    assert wrong == []


# -- modules ---------------------------------------------------------------------------------------------------------

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{python}"
    ansible_pipelining: {pipelining}
  tasks:
    - gpucluster.slurm.slurm_files:
        files: [{{path: "{path}", content: text, mode: "0666"}}]
        record: ""
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="files of modules belong to root")
@pytest.mark.parametrize(("umask", "pipelining"), [(0o077, True), (0o000, False)])
def test_the_umask_of_a_login_does_not_reach_a_module(tmp_path: Path, umask: int, pipelining: bool) -> None:
    """The modes of a file and of the directories above it are those that the module names."""
    path = tmp_path / "one/two/file"
    play = PLAY.format(path=path, python=sys.executable, pipelining=str(pipelining).lower())
    (tmp_path / "play.yml").write_text(play)
    command = [str(BIN / "ansible-playbook"), "--inventory=localhost,", str(tmp_path / "play.yml")]
    done = subprocess.run(command, capture_output=True, text=True, umask=umask, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = (path.parent.parent, path.parent, path)
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o755, 0o755, 0o666]
