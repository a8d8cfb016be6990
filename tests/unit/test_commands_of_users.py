# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpus and jobstats as users run them: with any environment, any output, and any answer of Slurm's commands.

Slurm's commands are stand-ins here. Whatever happens, there is no traceback, no wrong number, and one line says why.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import library
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software import job_tools
from programs import StandIn

pytestmark = pytest.mark.once

RECORDED = Path(__file__).parent / "recorded/gpus/24.11"
JOB = "7|ann|physics|gpu|COMPLETED|0:0|1770714000|1770742800|28800|1440|n1|8|1-09:16:48|billing=8,cpu=8|cpu=00:00:10|\n"
COMMANDS = {
    "gpus": ["gpus"],
    "gpus --json": ["gpus", "--json"],
    "gpus --free": ["gpus", "--free"],
    "gpus --why": ["gpus", "--why", "9"],
    "jobstats": ["jobstats", "7"],
    "jobstats --json": ["jobstats", "--json", "7"],
}
RUBBISH = {
    "bytes": "head -c 3000 /dev/urandom | tr '\\0' x",
    "a page": "echo '<html><body>504 Gateway Time-out</body></html>'",
    "a sentence": "echo 'Your password has expired.'",
    "separators": "yes '||||' | head -50",
    "a long line": "head -c 1000000 /dev/zero | tr '\\0' =",
    "keys of another program": "echo 'Name=n1 Gpus=4'; echo 'Name=n2 Gpus=4'",
    "a large number": "echo \"NodeName=n1 Arch=x86_64 Gres=gpu:$(head -c 5000 /dev/zero | tr '\\0' 9) State=IDLE \"",
    "many hosts": "echo 'JobId=7 JOB_GRES=gpu:1 Nodes=n[0-99999999999] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0-9) '",
}


@pytest.fixture(name="installed", scope="module")
def installed_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs as hosts have them. Python compiles them once here, and on a host in each call."""
    directory = tmp_path_factory.mktemp("installed")
    found = {}
    for file in library("job-tools", job_tools.PROGRAMS):
        path = directory / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"].replace('path.insert(0, "', f'path.insert(0, "{directory}'))
        if file.get("mode"):
            path.chmod(0o755)
            found[path.name] = path
    subprocess.run(["/usr/bin/python3", "-m", "compileall", "-q", directory], check=True)
    return found


@pytest.fixture(name="programs")
def programs_with_answers(installed: dict[str, Path], stand_in: StandIn) -> dict[str, Path]:
    """The programs, and stand-ins for Slurm's commands with answers of 24.11."""
    stand_in("sacct", f"printf '{JOB}'")
    stand_in("squeue", f"cat {RECORDED}/jobs")
    answers = {
        "*node*": "nodes",
        "*show?job*": "details",
        "*partition*": "partitions",
        "*qos*": "qos",
        "*": "associations",
    }
    cases = " ".join(f"{words}) cat {RECORDED}/{file};;" for words, file in answers.items())
    stand_in("scontrol", f'case "$*" in {cases} esac')
    return installed


def run(
    programs: dict[str, Path], name: str, shell: str = '"$@"', **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, which can redirect its output."""
    program, *arguments = COMMANDS[name]
    return subprocess.run(
        ["bash", "-c", shell, "bash", str(programs[program]), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=False,
    )


def is_one_line(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command has failed with one line, and printed nothing else."""
    lines = done.stderr.strip().split("\n")
    return (
        done.returncode == 1 and done.stdout == "" and len(lines) == 1 and lines[0].startswith(("gpus: ", "jobstats: "))
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_answer_with_nothing_special(programs: dict[str, Path], name: str) -> None:
    done = run(programs, name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_is_full(programs: dict[str, Path], name: str) -> None:
    done = run(programs, name, '"$@" >/dev/full')
    assert is_one_line(done), done
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_is_closed(programs: dict[str, Path], name: str) -> None:
    done = run(programs, name, '"$@" >&-')
    assert is_one_line(done), done


@pytest.mark.parametrize("name", COMMANDS)
def test_nobody_reads_the_output(programs: dict[str, Path], name: str) -> None:
    done = run(programs, name, '"$@" | true; exit 0')
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_errors_are_closed_as_well(programs: dict[str, Path], name: str) -> None:
    done = run(programs, name, '"$@" >&- 2>&-')
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONWARNINGS"])
def test_variables_of_python_change_nothing(
    programs: dict[str, Path], name: str, variable: str, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for module in ("json", "subprocess", "re", "sitecustomize"):
        (foreign / f"{module}.py").write_text("print('foreign'); raise SystemExit(9)\n")
    value = {"PYTHONINSPECT": "1", "PYTHONWARNINGS": "error"}.get(variable, str(foreign))
    done = run(programs, name, '"$@" </dev/null', **{variable: value})
    assert (done.returncode, done.stderr) == (0, "")
    assert "foreign" not in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_foreign_configuration_is_named(programs: dict[str, Path], name: str, stand_in: StandIn) -> None:
    for command in ("sacct", "squeue", "scontrol"):
        stand_in(command, f"echo '{command}: fatal: Unable to process configuration file' >&2; exit 1")
    done = run(programs, name, SLURM_CONF="/home/alice/old/slurm.conf")
    assert is_one_line(done), done
    assert "SLURM_CONF=/home/alice/old/slurm.conf" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_is_no_answer(programs: dict[str, Path], name: str, kind: str, stand_in: StandIn) -> None:
    for command in ("sacct", "squeue", "scontrol"):
        stand_in(command, RUBBISH[kind])
    done = run(programs, name)
    assert is_one_line(done), done


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("how", ["kill -9 $$", "exit 3", "echo >&2; exit 1"])
def test_a_command_without_words_is_named(programs: dict[str, Path], name: str, how: str, stand_in: StandIn) -> None:
    for command in ("sacct", "squeue", "scontrol"):
        stand_in(command, how)
    done = run(programs, name)
    assert is_one_line(done), done
    assert any(f"{command} ended with" in done.stderr for command in ("sacct", "squeue", "scontrol"))


@pytest.mark.parametrize("name", ["gpus", "gpus --free", "gpus --json"])
def test_a_cluster_that_shows_no_nodes_is_no_cluster_without_free_gpus(
    programs: dict[str, Path], name: str, stand_in: StandIn
) -> None:
    stand_in("scontrol", "true")
    done = run(programs, name)
    assert is_one_line(done), done
