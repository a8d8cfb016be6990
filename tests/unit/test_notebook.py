# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""notebook of role job_tools, with stand-ins for Slurm's commands: sbatch runs the job here, with the program itself.

The lines of squeue have the form of 24.11. Scenario `notebook` has JupyterLab in a real job.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
from programs import StandIn, load

pytestmark = pytest.mark.once

WEB = """\
import os, socket, sys, time
place = sys.argv[1]
server = socket.create_server(("127.0.0.1", int(place))) if place.isdigit() else socket.socket(socket.AF_UNIX)
if not place.isdigit():
    server.bind(place)
    server.listen()
print("token", os.environ.get("JUPYTER_TOKEN", "none"), "kernels", os.environ["JUPYTER_RUNTIME_DIR"], flush=True)
time.sleep(60)
"""
SLURM = {
    # Keeps options, script and output of the job, and runs its script, away from the collection.
    "sbatch": """\
echo "$@" >{here}/arguments
cat >{here}/script
for word; do case $word in
    --output=*) log=${{word#*=}} ;;
esac; done
cd /
SLURM_JOB_ID=7 {python} -I {here}/script >>"$log" 2>&1 &
echo $! >{here}/pid
printf '7 |RUNNING |None |n1 |2026-11-28 18:00 |%s |\\n' "$log" >{here}/jobs
""",
    "squeue": """\
kill -0 $(cat {here}/pid 2>/dev/null) 2>/dev/null || exit 0
cat {here}/jobs
""",
    "scancel": 'echo "$@" >{here}/cancelled; kill $(cat {here}/pid)',
}


@pytest.fixture(name="notebook")
def program(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, for a user with a home, and a cluster that runs the job here."""
    home = Path(tempfile.mkdtemp())  # tmp_path is too long for a socket
    (tmp_path / "home").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    (tmp_path / "web.py").write_text(WEB)
    (tmp_path / "site.conf").write_text(
        "# a comment\nGPUS=2\nPARTITION='gpu'\nCLUSTER=lab\nLOGIN='login.example.org'\n"
    )
    for name, script in SLURM.items():
        stand_in(name, script.format(here=tmp_path, python=sys.executable))
    stand_in("jupyter-lab", f'exec {sys.executable} {tmp_path}/web.py "${{2#*=}}"')
    module = load("notebook")
    module.CONF = tmp_path / "site.conf"
    handlers = {number: signal.getsignal(number) for number in module.ENDINGS}
    yield module
    for number, handler in handlers.items():
        signal.signal(number, handler)
    end(tmp_path)
    shutil.rmtree(home)


def called(notebook: ModuleType, *arguments: str) -> int:
    """The exit status of a call."""
    with patch.object(sys, "argv", ["notebook", *arguments]):
        status: int = notebook.main()
    return status


def end(here: Path) -> None:
    """End the job, and wait until it has."""
    pid = int((here / "pid").read_text()) if (here / "pid").exists() else 0
    if pid:
        subprocess.run(["kill", str(pid)], check=False, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < until
            time.sleep(0.1)


def web(here: Path, place: str) -> list[str]:
    """A command that listens on a socket or a port."""
    return ["--", sys.executable, str(here / "web.py"), place]


def directory(here: Path) -> Path:
    """The directory of the job."""
    (found,) = (here.joinpath("home").resolve() / ".local/state/notebook/lab").iterdir()
    return found


def test_jupyter_runs_in_a_job_and_its_line_is_printed(
    notebook: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(notebook, "--time", "8:00:00") == 0
    said = capsys.readouterr().out
    path = directory(tmp_path) / "socket"
    user = notebook.pwd.getpwuid(os.getuid()).pw_name
    assert f"    ssh -N -L 10007:{path} -J {user}@login.example.org {user}@n1\n" in said
    assert "jupyter-lab runs in job 7 on n1 until 2026-11-28 18:00." in said
    assert said.endswith("It ends with the job: scancel 7\n")
    token = json.loads((path.parent / "plan").read_text())["token"]
    assert len(token) >= 32
    assert f"    http://localhost:10007/?token={token}\n" in said
    arguments = (tmp_path / "arguments").read_text()
    assert "--gres=gpu:2 --partition=gpu --time=8:00:00\n" in arguments
    assert (tmp_path / "script").read_text().startswith("#!/usr/bin/python3 -I\n# Copyright")
    assert "--job-name=notebook-jupyter-lab " in arguments
    assert token not in arguments
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert f"token {token} kernels /" in (path.parent / "log").read_text()


def test_files_are_for_the_user_alone(notebook: ModuleType, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert called(notebook) == 0
    finally:
        os.umask(before)
    for path in (directory(tmp_path).parent, directory(tmp_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for name in ("plan", "state", "log"):
        assert stat.S_IMODE((directory(tmp_path) / name).stat().st_mode) == 0o600


def test_a_second_call_prints_the_line_of_the_first(
    notebook: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(notebook) == 0
    first = capsys.readouterr().out
    (tmp_path / "arguments").unlink()
    assert called(notebook, "--gpus", "4") == 0
    again = capsys.readouterr()
    assert again.out == first
    assert "job 7 is there already, with its own options" in again.err
    assert not (tmp_path / "arguments").exists()


def test_nothing_of_a_job_that_was_cancelled_stays(notebook: ModuleType, tmp_path: Path) -> None:
    assert called(notebook) == 0
    log = (directory(tmp_path) / "log").read_text()
    kernels = Path(log.split()[-1])
    assert stat.S_IMODE(kernels.stat().st_mode) == 0o700
    end(tmp_path)
    assert not (directory(tmp_path) / "socket").exists()
    assert not kernels.exists()
    # The next call removes the rest, as soon as it cannot belong to a job that is being submitted.
    old = directory(tmp_path)
    notebook.forget(old.parent, [])
    assert old.exists()
    os.utime(old, (0, 0))
    notebook.forget(old.parent, [])
    assert not old.exists()


def test_another_program_with_a_port(notebook: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(notebook, "--gpus", "0", *web(tmp_path, "{port}")) == 0
    said = capsys.readouterr().out
    port = json.loads((directory(tmp_path) / "state").read_text())["port"]
    assert f"-L 10007:127.0.0.1:{port} -J" in said
    assert "    http://localhost:10007/\n" in said
    assert "Other users of n1 can reach it, too." in said
    assert "--gres" not in (tmp_path / "arguments").read_text()
    assert "token none" in (directory(tmp_path) / "log").read_text()


def test_a_job_without_a_program_to_log_in_to(notebook: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(notebook, "--ssh") == 0
    said = capsys.readouterr().out
    user = notebook.pwd.getpwuid(os.getuid()).pw_name
    assert f"    ssh -J {user}@login.example.org {user}@n1\n" in said
    assert f"    Host n1\n        User {user}\n        ProxyJump {user}@login.example.org\n" in said
    assert "localhost" not in said


def test_a_program_that_fails_is_shown(
    notebook: ModuleType, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("jupyter-lab", "echo a module is missing >&2; exit 3")
    assert called(notebook) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "the job has ended before its program listened:\na module is missing\n" in said.err


def test_ctrl_c_cancels_the_job_and_a_closed_terminal_does(
    notebook: ModuleType, tmp_path: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("jupyter-lab", f"touch {tmp_path}/began; kill -HUP {os.getpid()}; exec sleep 60")
    assert called(notebook) == 130
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert "job 7 is cancelled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "missing", "{socket}"], "there is no missing in PATH"),
        (["--", "sh", "x"], "COMMAND: found neither, allowed: one of {socket} and {port}"),
        (["--", "sh", "{socket}", "{port}"], "COMMAND: found {socket} and {port}, allowed: one of"),
        (["--gpus", "many"], "--gpus: found 'many', allowed: a number, or a type and a number such as h100:2"),
        (["--ssh", "--", "sh", "{socket}"], "--ssh starts no program"),
        (["--image", "x"], "--image needs pyxis"),
    ],
)
def test_a_mistake_is_refused_before_a_job_is_queued(
    notebook: ModuleType,
    tmp_path: Path,
    stand_in: StandIn,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    stand_in("srun", "echo --help")
    assert called(notebook, *arguments) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "arguments").exists()
    assert not (tmp_path / "home/.local").exists()


def test_no_jupyter(
    notebook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stand-ins/jupyter-lab").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "stand-ins"))
    assert called(notebook) == 1
    assert "there is no jupyter-lab in PATH: activate an environment that has it" in capsys.readouterr().err


def test_a_home_whose_path_is_too_long(
    notebook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a job is queued: the program could not make its socket."""
    home = tmp_path / ("h" * 80)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert called(notebook) == 1
    assert "bytes, allowed: 107" in capsys.readouterr().err
    assert not (tmp_path / "arguments").exists()
    assert list(home.glob(".local/state/notebook/lab/*")) == []
    assert called(notebook, "--ssh") == 0, "it needs none"


def test_what_slurm_refuses(notebook: ModuleType, stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in("sbatch", "echo sbatch: error: invalid partition specified: gpu >&2; exit 1")
    assert called(notebook) == 1
    assert capsys.readouterr().err == "notebook: sbatch: error: invalid partition specified: gpu\n"


def test_a_container_has_home_and_directory_at_their_places(
    notebook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    monkeypatch.chdir(tmp_path)
    home = tmp_path.joinpath("home").resolve()
    assert notebook.notebook_job.container("nvcr.io#nvidia/pytorch:24.12-py3") == [
        *("srun", "--ntasks=1", "--cpus-per-task=4", "--no-container-remap-root"),
        "--container-image=nvcr.io#nvidia/pytorch:24.12-py3",
        f"--container-mounts={home}:{home},{tmp_path}:{tmp_path}",
        f"--container-workdir={tmp_path}",
    ]
    assert notebook.notebook_job.container("") == []


def test_defaults_of_the_user(notebook: ModuleType, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("GPUS=h100:1 # one\nLOGIN=\n")
    assert notebook.settings(notebook.CONF, own, tmp_path / "missing") == {
        "GPUS": "h100:1",
        "PARTITION": "gpu",
        "CLUSTER": "lab",
        "LOGIN": "",
    }
    own.write_text("GPUS='1\n")
    with pytest.raises(notebook.NotebookError, match=r"own\.conf: GPUS: No closing quotation"):
        notebook.settings(own)


def test_help(notebook: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        called(notebook, "--help")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: notebook [OPTIONS] ")
