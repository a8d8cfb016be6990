# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Start a notebook or another web program in a job, and print the ssh line for your own computer."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..client.commands import run
from ..host.json_files import Record, read_record
from ..language.errors import CollectionError
from . import notebook_job
from .notebook_job import private, write

USAGE = """\
usage: notebook [OPTIONS]                JupyterLab: jupyter-lab of your PATH, or of an image
       notebook [OPTIONS] -- COMMAND...  any web program; {socket} or {port} in COMMAND is where it listens
       notebook [OPTIONS] --ssh          no program: a job to log in to, such as with VS Code

Starts a job, waits until the program listens, and prints the ssh line for your own computer. The program ends with its
job. If it runs already, its line is printed again. Ctrl-C before the line cancels the job.
"""
AFTER = """\
Defaults are in /etc/gpucluster-slurm/job-tools.conf and ~/.config/job-tools.conf: GPUS, PARTITION, and LOGIN, the name
of this host for your own computer. Variables such as SBATCH_ACCOUNT, see sbatch(1), do as always. Other users of the
node can reach a {port}, so that its program must ask for a password; a {socket} is for you alone.
"""

CONF = Path("/etc/gpucluster-slurm/job-tools.conf")
JUPYTER = ("--no-browser", "--ServerApp.sock={socket}", "--KernelManager.transport=ipc")
"""Options of Jupyter. Kernels have sockets as well: from a port, every user of the node could read what they print."""

LONGEST_SOCKET = 107
"""Bytes in the path of a socket (unix(7))."""

LIVE = "pending,configuring,running,suspended"
FIELDS = {"JobID": 20, "State": 20, "Reason": 100, "NodeList": 100, "EndTime": 30, "StdOut": 1000}
SECONDS = 30
"""How long a command of Slurm may take."""

ENDINGS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Ctrl-C, a closed terminal, and kill."""


class NotebookError(CollectionError):
    """There is no program to reach. The text says why."""


class NotebookJob(NamedTuple):
    """A job of this command. directory: where it has its socket, and what it was asked for."""

    number: str
    state: str
    reason: str
    node: str
    end: str
    directory: Path


# -- What is asked for -----------------------------------------------------------------------------------------------


def settings(*files: Path) -> dict[str, str]:
    """The defaults of the site and of the user, as KEY=value of the shell."""
    found: dict[str, str] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").split("\n") if file.is_file() else ():
            assignment = re.fullmatch(r"\s*([A-Z_]+)=(.*)", line)
            if assignment:
                try:
                    words = shlex.split(assignment[2], comments=True)
                except ValueError as error:
                    raise NotebookError(f"{file}: {assignment[1]}: {error}") from None
                found[assignment[1]] = words[0] if words else ""
    return found


def parser(defaults: Mapping[str, str]) -> argparse.ArgumentParser:
    """The options, which come before `--`."""
    made = argparse.ArgumentParser(
        "notebook",
        usage=argparse.SUPPRESS,
        description=USAGE,
        epilog=AFTER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    partition = defaults.get("PARTITION", "")
    made.add_argument("-g", "--gpus", default=defaults.get("GPUS", ""), help="GPUs of the job, such as 1 or h100:2")
    made.add_argument("-p", "--partition", default=partition, help="partition of the job")
    made.add_argument("-t", "--time", default="", help="time limit, such as 8:00:00")
    made.add_argument("-c", "--cpus", default="", help="CPUs of the job")
    made.add_argument("-m", "--mem", default="", help="memory of the job, such as 16G")
    made.add_argument("-i", "--image", default="", help="image of a container, as srun --container-image has it")
    made.add_argument("--ssh", action="store_true", help="start no program")
    return made


def plan(options: argparse.Namespace, command: Sequence[str]) -> dict[str, Any]:
    """What the job is to run: name, command with {socket} or {port}, image, token. Raises NotebookError."""
    if options.ssh:
        if command or options.image:
            raise NotebookError("--ssh starts no program, so it has neither COMMAND nor --image")
        return {"name": "ssh", "command": [], "image": "", "token": ""}
    if options.image and "--container-image" not in output(["srun", "--help"]):
        raise NotebookError("--image needs pyxis, which this cluster does not have")
    if command:
        places = [place for place in ("{socket}", "{port}") if any(place in word for word in command)]
        if len(places) != 1:
            found = " and ".join(places) or "neither"
            raise NotebookError(f"COMMAND: found {found}, allowed: one of {{socket}} and {{port}}, where it listens")
        words, token = [*command], ""
    else:
        words, token = ["jupyter-lab", *JUPYTER], secrets.token_urlsafe(32)
    if not options.image:
        words[0] = program(words[0], bool(command))
    return {"name": Path(words[0]).name, "command": words, "image": options.image, "token": token}


def program(name: str, named: bool) -> str:
    """The path of a program of PATH, which the job has as well. A path may be one of the nodes alone."""
    found = name if "/" in name else shutil.which(name)
    if found:
        return found
    if named:
        raise NotebookError(f"there is no {name} in PATH")
    raise NotebookError(
        "there is no jupyter-lab in PATH: activate an environment that has it (python3 -m venv ~/jupyter; "
        "~/jupyter/bin/pip install jupyterlab; . ~/jupyter/bin/activate), or name an image that has it (--image)"
    )


def resources(options: argparse.Namespace) -> list[str]:
    """Options of sbatch. Raises NotebookError."""
    gpus = "" if re.fullmatch("0*", options.gpus) else options.gpus
    if gpus and not re.fullmatch(r"([\w.-]+:)?\d+", gpus):
        raise NotebookError(f"--gpus: found {gpus!r}, allowed: a number, or a type and a number such as h100:2")
    wanted = {
        "gres": gpus and f"gpu:{gpus}",
        "partition": options.partition,
        "time": options.time,
        "cpus-per-task": options.cpus,
        "mem": options.mem,
    }
    return [f"--{name}={value}" for name, value in wanted.items() if value]


# -- Slurm -----------------------------------------------------------------------------------------------------------


def output(command: Sequence[str], stdin: str = "") -> str:
    """What a command of Slurm prints, with the user's environment. Raises NotebookError."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SCANCEL_", "SLURM_BITSTR_LEN"))
    }
    # A job gets what sbatch has: LC_ALL, which is ours, would replace the user's LANG there.
    environment = {"LC_ALL": "", **environment, "SLURM_TIME_FORMAT": "%Y-%m-%d %H:%M"}
    answer = run(command, stdin=stdin, seconds=SECONDS, environment=environment)
    if answer.status:
        said = answer.message
        raise NotebookError(said if said.startswith(command[0]) else f"{command[0]}: {said}")
    return answer.output


def jobs(home: Path) -> Iterator[NotebookJob]:
    """The jobs of this command that wait or run. The file of its output tells the directory of a job."""
    fields = ",".join(f"{name}:{width}|" for name, width in FIELDS.items())
    for line in output(["squeue", "--noheader", "--me", f"--states={LIVE}", f"--Format={fields}"]).split("\n"):
        values = [value.strip() for value in line.split("|", len(FIELDS) - 1)]
        if len(values) == len(FIELDS):
            number, state, reason, node, end, log = values
            directory = Path(log.rstrip("|").strip()).parent
            if directory.parent == home:
                yield NotebookJob(number, state, reason, node, end, directory)


def prepare(home: Path, wanted: Mapping[str, Any]) -> Path:
    """A new directory for a job. Its files are there before the job, since other hosts see new files of a home late."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="", dir=home))
    length = len(os.fsencode(directory / "socket"))
    if length > LONGEST_SOCKET and any("{socket}" in word for word in wanted["command"]):
        directory.rmdir()
        raise NotebookError(f"{directory}/socket: found a path of {length} bytes, allowed: {LONGEST_SOCKET}")
    write(directory / "plan", wanted)
    write(directory / "state", {})
    private(directory / "log").close()
    return directory


def submit(directory: Path, name: str, options: Sequence[str]) -> None:
    """Start the job of a directory. Raises NotebookError."""
    source = Path(notebook_job.__file__).read_text(encoding="utf-8")
    script = f"#!/usr/bin/python3 -I\n{source}\n\nsys.exit(serve(Path({str(directory)!r})))\n"
    batch = ["sbatch", "--no-requeue", "--nodes=1", "--ntasks=1", "--open-mode=append", f"--output={directory}/log"]
    job_name = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    output([*batch, f"--job-name=notebook-{job_name}", *options], script)


def forget(home: Path, live: Sequence[NotebookJob]) -> None:
    """Remove the directories of jobs that have ended. A new one belongs to a job that is being submitted."""
    kept = {job.directory for job in live}
    for directory in [*home.iterdir()] if home.is_dir() else ():
        with suppress(OSError):
            if directory not in kept and time.time() - directory.stat().st_mtime > 2 * SECONDS:
                shutil.rmtree(directory)


def wait(home: Path, directory: Path) -> tuple[NotebookJob, Record]:
    """The job and where its program listens, as soon as it does. Raises NotebookError if the job ends before."""
    said, start = "", time.monotonic()
    while job := next((job for job in jobs(home) if job.directory == directory), None):
        state = read_record(f"{directory}/state") if job.state == "RUNNING" else {}
        if state:
            return job, state
        news = f"job {job.number} starts on {job.node}" if job.state == "RUNNING" else f"job {job.number} waits"
        if job.state == "PENDING" and job.reason != "None":
            news += f" ({job.reason})"
        if news != said:
            print(f"notebook: {news}", file=sys.stderr)
            said = news
        time.sleep(2 if time.monotonic() - start < 60 else 10)
    log = directory / "log"
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    last = text.split("\n")[-10:] if text else ["no output (your home must be the same on login hosts and nodes)"]
    raise NotebookError("\n".join(["the job has ended before its program listened:", *last]))


def cancel(home: Path, directory: Path) -> None:
    """End the job of a directory. A second Ctrl-C changes nothing."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    for job in jobs(home):
        if job.directory == directory:
            output(["scancel", job.number])
            print(f"notebook: job {job.number} is cancelled", file=sys.stderr)


# -- What is shown ---------------------------------------------------------------------------------------------------


def shown(job: NotebookJob, wanted: Mapping[str, Any], state: Mapping[str, Any], login: str) -> str:
    """What the user does now."""
    user = pwd.getpwuid(os.getuid()).pw_name
    hosts = f"-J {user}@{login} {user}@{job.node}"
    end = f" until {job.end}" if job.end[:1].isdigit() else ""
    cancelled = f"It ends with the job: scancel {job.number}\n"
    if not wanted["command"]:
        return (
            f"Job {job.number} on {job.node} is yours{end}. Log in from your own computer:\n\n    ssh {hosts}\n\n"
            "For VS Code, put this into ~/.ssh/config there, and connect to this host:\n\n"
            f"    Host {job.node}\n        User {user}\n        ProxyJump {user}@{login}\n\n{cancelled}"
        )
    port = 10000 + int(job.number) % 20000
    there = f"127.0.0.1:{state['port']}" if state.get("port") else str(job.directory / "socket")
    page = f"http://localhost:{port}/" + (f"?token={wanted['token']}" if wanted["token"] else "")
    note = f"Other users of {job.node} can reach it, too.\n" if state.get("port") else ""
    return (
        f"{wanted['name']} runs in job {job.number} on {job.node}{end}. "
        "Run this on your own computer, and leave it open:\n\n"
        f"    ssh -N -L {shlex.quote(f'{port}:{there}')} {hosts}\n\nThen open in the browser there:\n\n    {page}\n\n"
        f"{note}{cancelled}"
    )


# -- The command -----------------------------------------------------------------------------------------------------


def start(arguments: Sequence[str]) -> str:
    """Start a job, or find one that runs the same program; what is shown then. Raises NotebookError."""
    words, command = split(arguments)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "job-tools.conf")
    defaults = settings(CONF, config)
    options = parser(defaults).parse_args(words)
    home = Path.home() / ".local/state/notebook" / defaults.get("CLUSTER", "cluster")
    asked, wanted = resources(options), plan(options, command)
    live = [*jobs(home)]
    forget(home, live)
    same = [job for job in live if read_record(f"{job.directory}/plan").get("name") == wanted["name"]]
    if same:
        print(f"notebook: job {same[0].number} is there already, with its own options", file=sys.stderr)
        directory = same[0].directory
    else:
        directory = prepare(home, wanted)
    try:
        if not same:
            submit(directory, wanted["name"], asked)
        job, state = wait(home, directory)
    except KeyboardInterrupt:
        if not same:
            cancel(home, directory)
        raise
    login = defaults.get("LOGIN") or socket.gethostname()
    return shown(job, read_record(f"{directory}/plan"), state, login)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the command after `--`."""
    words = [*arguments]
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def interrupt(*_signal: object) -> None:
    """What the signals do."""
    raise KeyboardInterrupt


def main() -> int:
    """Returns the exit status."""
    for number in ENDINGS:
        signal.signal(number, interrupt)
    try:
        print(start(sys.argv[1:]), end="")
    except NotebookError as error:
        print(f"notebook: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
