# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs with the modules that they import, as hosts have them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.packages import MANAGED
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import program_library
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, from_options, replace

MODULES = {
    "programs/clock.py": "from ..client.wait import (\n    SECONDS as S,\n    names,\n)\nfrom ..language import words\n"
    "from .hands import hands\nif 0:\n    from ..host import never\n\n\n"
    "def main():\n    print(S, names(), words.TEXT, hands(), __name__)\n    return 3\n",
    "programs/hands.py": "from pathlib import Path\n\n\ndef hands():\n    return 2\n",
    "client/wait.py": "SECONDS = 60\n\n\ndef names():\n    return __package__\n",
    "language/words.py": "from . import letters\n\nTEXT = letters.A\n",
    "language/letters.py": "A = 'a'\n",
    "host/never.py": "",
}
SAID = "60 gpucluster_slurm.client a 2 gpucluster_slurm.programs.clock\n"


@pytest.fixture(name="house")
def small_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collection with one program; a host's library below the same directory."""
    for path, text in MODULES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(program_files, "MODULES", tmp_path)
    monkeypatch.setattr(program_library, "LIBRARY", str(tmp_path / "library"))
    program_files.sources.cache_clear()
    return tmp_path


def written(house: Path) -> tuple[Path, list[File]]:
    """The program after a run that has written what differs."""
    program_files.sources.cache_clear()
    library = program_files.library("clock", {str(house / "clock"): "programs.clock"})
    files = from_options(
        {"path": file["path"], "content": file["content"], "mode": file.get("mode", "0644")} for file in library
    )
    replace(files)
    return house / "clock", files


@pytest.mark.usefixtures("house")
def test_a_program_has_the_modules_that_it_imports_and_no_others() -> None:
    assert [*program_files.sources("programs.clock")] == sorted({*MODULES} - {"host/never.py"})


def test_a_program_starts_with_its_library(house: Path) -> None:
    program, _files = written(house)
    done = subprocess.run([program], capture_output=True, text=True, check=False, env={"PYTHONPATH": "/nowhere"})
    assert (done.returncode, done.stdout, done.stderr) == (3, SAID, "")
    assert program.read_text().startswith(f"#!/usr/bin/python3 -IB\n{MANAGED}\n")


def test_modules_are_compiled_for_the_python_of_programs(house: Path) -> None:
    written(house)
    compiled = [path.name.partition(".")[0] for path in house.glob("library/clock/*/*/*/__pycache__/*.pyc")]
    assert sorted(compiled) == ["clock", "hands", "letters", "wait", "words"]


def test_a_compiled_module_does_not_hide_another_source(house: Path) -> None:
    """That of a restored file, or of an image, whose times are older."""
    program, files = written(house)
    (module,) = [file.path for file in files if file.path.endswith("letters.py")]
    Path(module).write_text("A = 'b'\n")
    assert " b 2 " in subprocess.run([program], capture_output=True, text=True, check=False).stdout


def test_a_program_that_starts_during_the_change_has_its_own_version(house: Path) -> None:
    """The content before stays, and that before it goes."""
    found = []
    for letter in "abc":
        (house / "language/letters.py").write_text(f"A = '{letter}'\n")
        program, _files = written(house)
        found.append(program.read_text())
        for text in found[-2:]:
            done = subprocess.run(["/usr/bin/python3", "-"], input=text, capture_output=True, text=True, check=False)
            assert done.returncode == 3, done.stderr
    assert len([*(house / "library/clock").iterdir()]) == 2
    assert " c 2 " in subprocess.run([program], capture_output=True, text=True, check=False).stdout


def test_another_task_with_the_same_programs_keeps_what_was_before(house: Path) -> None:
    """It changes a file of its own."""
    written(house)
    (house / "language/letters.py").write_text("A = 'b'\n")
    _program, files = written(house)
    wanted = [{"path": file.path, "content": file.content.decode(), "mode": f"{file.mode:o}"} for file in files]
    replace(from_options([*wanted, {"path": str(house / "timer"), "content": "[Timer]\n", "mode": "0644"}]))
    assert len([*(house / "library/clock").iterdir()]) == 2


def test_a_host_that_has_everything_stays_as_it_is(house: Path) -> None:
    _program, files = written(house)
    assert [file.path for file in written(house)[1] if file.changes] == []
    assert all(file.changes for file in files)


def test_a_killed_run_is_repaired(house: Path) -> None:
    """It has written the library, and no program."""
    program, _files = written(house)
    program.unlink()
    for path in house.glob("library/clock/*/*/*/__pycache__/*.pyc"):
        path.unlink()
    written(house)
    assert subprocess.run([program], capture_output=True, text=True, check=False).stdout == SAID
    assert [*house.glob("library/clock/*/*/*/__pycache__/*.pyc")]


@pytest.mark.usefixtures("house")
def test_a_program_is_sent_as_one_text() -> None:
    text = program_files.sent("programs.clock")
    done = subprocess.run(["/usr/bin/python3", "-I", "-"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, SAID, "")
