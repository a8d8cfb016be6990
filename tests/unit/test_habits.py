# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A commit and a push: the hooks and the workflow."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def tracked() -> list[str]:
    """The paths that git tracks and that are there, without links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]


def lanes(tier: str) -> list[dict[str, Any]]:
    """The stages of a tier and their minutes, as the Makefile has them."""
    command = ["make", "--silent", "--no-print-directory", f"stages-{tier}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    stages: list[dict[str, Any]] = json.loads(output)
    return stages


# -- files -----------------------------------------------------------------------------------------------------------


def test_only_a_newline_ends_a_line() -> None:
    """str.splitlines also ends lines at form feeds, U+0085 and U+2028, which users can put into comments and names."""
    ansibles = "plugins/plugin_utils/answers.py"  # Ansible makes stdout_lines in this way
    found = [path for path in tracked() if re.match(r"(plugins|roles|playbooks)/.*\.(py|j2|yml)$", path)]
    assert [path for path in found if path != ansibles and ".splitlines(" in (ROOT / path).read_text()] == []


def test_ansible_reads_each_yaml_file_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible warns of a key that overrides one of a merge (<<:), which the linters accept."""
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _display, message, *_more, **_options: said.append(str(message)))
    loader = DataLoader()
    for path in tracked():
        if re.match(r"(inventory|meta|playbooks|plugins|roles)/.*\.ya?ml$", path):
            loader.load_from_file(str(ROOT / path))
    assert said == []


def _texts(value: Any) -> Iterator[str]:
    """All texts of data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(item)


def test_a_newline_in_an_expression_is_one() -> None:
    """Ansible keeps backslashes in expressions: \\n is a newline only if YAML reads it, between double quotes."""
    found = []
    for path in filter(re.compile(r"(roles|playbooks)/.*\.yml$").match, tracked()):
        for text in _texts(DataLoader().load_from_file(str(ROOT / path))):
            found += [(path, part) for part in re.findall(r"\{[{%].*?[%}]\}", text, re.DOTALL) if r"\n" in part]
    assert found == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("playbooks/**/*.yml")), ids=lambda path: path.stem)
def test_each_play_names_its_strategy(path: Path) -> None:
    """With `strategy = free` in ansible.cfg a host would be in the next task before the others have ended this one."""
    plays = [play for play in yaml.safe_load(path.read_text()) if "hosts" in play]
    assert [play["name"] for play in plays if play.get("strategy") != "linear"] == []


def test_a_playbook_imports_each_stage() -> None:
    """ansible-lint checks a stage where it is imported, and not as a file of its own (.ansible-lint)."""
    playbooks = [yaml.safe_load(path.read_text()) for path in (ROOT / "playbooks").rglob("*.yml")]
    paths = [play.get("ansible.builtin.import_playbook", "") for plays in playbooks for play in plays]
    imported = {path.rpartition("/")[2] for path in paths}
    assert {path.name for path in (ROOT / "playbooks/stages").glob("*.yml")} <= imported


def test_files_are_as_editorconfig_says() -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[root]\n" + (ROOT / ".editorconfig").read_text())
    wrong = []
    for path in tracked():
        rules: dict[str, str] = {}
        for pattern in parser.sections():
            alternatives = pattern[1:-1].split(",") if pattern.startswith("{") else [pattern]
            if any(fnmatch(path, each) or fnmatch(Path(path).name, each) for each in alternatives):
                rules |= dict(parser[pattern])
        text = (ROOT / path).read_bytes().decode(rules["charset"])
        lines = text.split("\n")
        found = {
            "end_of_line": "\r" in text,
            "insert_final_newline": bool(text) and lines[-1] != "",
            "trim_trailing_whitespace": any(line != line.rstrip() for line in lines),
            "indent_style": rules["indent_style"] == "space" and any(line.startswith("\t") for line in lines),
        }
        wrong += [
            f"{path}: {rule}" for rule, is_wrong in found.items() if is_wrong and rules[rule] not in ("false", "unset")
        ]
    assert wrong == []


# -- a commit --------------------------------------------------------------------------------------------------------


@pytest.fixture(name="hooks", scope="module")
def hooks_by_name() -> dict[str, dict[str, Any]]:
    """The hooks of the pre-commit configuration."""
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = configuration["repos"]
    assert repository["repo"] == "local"
    return {hook["id"]: hook for hook in repository["hooks"]}


def test_hooks_are_the_linters_of_the_makefile(hooks: dict[str, dict[str, Any]]) -> None:
    (linters,) = re.findall(r"^linters := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(hooks) == sorted([*linters.split(), "doc-lint"])
    # Another language would make pre-commit download an environment.
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    assert {name: hook["entry"] for name, hook in hooks.items()} == {name: f"tests/tools/hook {name}" for name in hooks}


def test_hooks_check_the_files_of_a_commit(tmp_path: Path) -> None:
    for name in ("Makefile", ".pre-commit-config.yaml", ".yamllint", "pyproject.toml", "tests/tools/hook"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("yamllint", "ruff"):
        (tmp_path / ".venv/bin" / name).symlink_to(BIN / name)
    # A lock file that is newer than the environment: no hook may install anything.
    (tmp_path / ".venv/.ready").touch()
    os.utime(tmp_path / ".venv/.ready", (0, 0))
    (tmp_path / "requirements.lock").touch()
    (tmp_path / "tests/tools/setup").touch()
    (tmp_path / ".gitignore").write_text(".venv/\n")
    (tmp_path / "bad.yml").write_text("a:   1\n")
    (tmp_path / "bad.py").write_text("import os\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "MAKE"))}
    environment |= {"PRE_COMMIT_HOME": str(tmp_path / ".venv/cache"), "SKIP": "mypy,shellcheck"}
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)

    def commit(*names: str) -> subprocess.CompletedProcess[str]:
        subprocess.run(["git", "add", *names], cwd=tmp_path, check=True)
        command = [str(BIN / "pre-commit"), "run"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    right = commit("Makefile", ".pre-commit-config.yaml", ".yamllint", "pyproject.toml", "tests")
    assert right.returncode == 0, right.stdout
    wrong = commit("bad.yml", "bad.py")
    assert wrong.returncode == 1
    assert "too many spaces after colon" in wrong.stdout
    assert "F401" in wrong.stdout


# -- scenarios -------------------------------------------------------------------------------------------------------


COLLECT = """
import contextlib, io, os, sys
import pytest, testinfra.host, testinfra.utils.ansible_runner
failed = 0
for directory in sys.argv[1:]:
    if child := os.fork():
        failed |= os.waitpid(child, 0)[1]
        continue
    os.environ["MOLECULE_SCENARIO_NAME"] = os.path.basename(directory)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main(["--collect-only", "--quiet", "-p", "no:cacheprovider", directory])
    if status:
        print(said.getvalue()[-2000:], flush=True)
    os._exit(status)
sys.exit(bool(failed))
"""
"""One process for each scenario, which has Ansible and pytest from its parent."""


@pytest.mark.once
@pytest.mark.rare  # 20 to 40 s; mypy reads all tests, and a scenario fails at once
def test_the_tests_of_each_scenario_can_be_collected() -> None:
    """Most scenarios run in `make test-all` alone, and a test that reads documents can fail before it begins."""
    directories = sorted({str(path.parent) for path in ROOT.glob("tests/integration/*/test_*.py")})
    command = [str(BIN / "python"), "-c", COLLECT, *directories]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


# -- a push ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "least"), [("check", 4), ("test", 7), ("all", 12)])
def test_the_makefile_lists_its_stages(tier: str, least: int) -> None:
    stages = {stage["stage"]: stage["minutes"] for stage in lanes(tier)}
    assert len(stages) >= least
    assert {stage: minutes for stage, minutes in stages.items() if minutes != 45} == (
        {
            "molecule-driver": 360,
            "molecule-default": 90,
            "molecule-hundred": 150,
            "molecule-thousand": 90,
            "molecule-controllers": 90,
            "molecule-metrics": 90,
            "molecule-cases": 150,
            "molecule-cases-26.05": 150,
        }
        if tier == "all"
        else {}
    )


def test_the_workflow_has_its_stages_from_the_makefile() -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert [stage["stage"] for stage in lanes("all") if re.search(rf"\b{stage['stage']}\b", text)] == []
    assert 'make --silent "stages-$TIER"' in jobs["list"]["steps"][-1]["run"]
    assert jobs["list"]["outputs"] == {"stages": "${{ steps.list.outputs.stages }}"}
    assert jobs["stage"]["strategy"]["matrix"] == {"include": "${{ fromJSON(needs.list.outputs.stages) }}"}
    assert jobs["stage"]["steps"][-1]["run"].endswith('make "$STAGE"')
    # A tag of an action can be moved; a commit cannot.
    actions = re.findall(r"uses: (\S+)", text)
    assert [action for action in actions if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)] == []
