# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`notebook`: JupyterLab from PyPI in a job on a GPU, in Chromium on this machine through the printed line.

The tests depend on each other and run in this order. alice has the notebook, bob attacks it, with a job on the same
node and without one. The user's computer, this machine, knows the login host alone: nodes are names of the login host.
GPUs are stand-ins: opening one of the job ends with ENXIO, since it has no driver, and another one with EPERM.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, find_program
from lab import ROOT, Lab, with_cluster

LOGIN, NODES = "nb-login", ("nb-node1", "nb-node2")
REFUSED = "you have no active jobs on this node"
STATE = "/home/alice/.local/state/notebook/notebook"
RUN = '[data-command="notebook:run-cell-and-select-next"]'
CELL = """\
import os

print("job", os.environ["SLURM_JOB_ID"], "on", os.environ["SLURMD_NODENAME"])
print("CUDA_VISIBLE_DEVICES", os.environ["CUDA_VISIBLE_DEVICES"])
for gpu in range(2):
    try:
        open(f"/dev/nvidia{gpu}", "rb")
    except OSError as error:
        print(f"/dev/nvidia{gpu}:", error.strerror)
"""
INSTALL = """\
set -e
cd
python3 -m venv --without-pip jupyter
cd jupyter
site=$(echo $PWD/lib/python3*/site-packages)
tar -x -C $site
cp -a $site/share $site/etc .
for program in jupyter-lab jupyter-labhub jupyter; do
    { echo "#!$PWD/bin/python3"; tail -n +2 $site/bin/$program; } >bin/$program
    chmod +x bin/$program
done
"""
"""Makes an environment of packages for another Python, as pip would there: the lab has no package index."""


@dataclass(frozen=True)
class Computer:
    """The user's computer: its configuration of ssh knows the login host."""

    lab: Lab
    config: Path

    def shell(self, line: str) -> list[str]:
        """The command for a line as a user types it."""
        return ["bash", "-c", f'ssh() {{ exec ssh -F {self.config} "$@"; }}; {line}']

    def line(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line to its end."""
        return subprocess.run(["timeout", "240", *self.shell(line)], capture_output=True, text=True, check=False)

    def login(self, command: str, user: str = "alice") -> str:
        """What a command prints on the login host."""
        done = self.line(f"ssh {user}@{LOGIN} {shlex.quote(command)}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def notebook(self, arguments: str) -> Session:
        """The answer of the command, in an environment with JupyterLab."""
        return Session(self.login(f". jupyter/bin/activate; notebook --mem 400 --time 30 {arguments}"))

    @contextmanager
    def connected(self, session: Session) -> Iterator[subprocess.Popen[str]]:
        """The printed line runs, and its port is open."""
        process = subprocess.Popen(self.shell(session.line), text=True)
        try:
            deadline = time.monotonic() + 60
            while not session.port_is_open():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.5)
            yield process
        finally:
            process.terminate()
            process.wait(60)


@dataclass(frozen=True)
class Session:
    """What the command has printed."""

    said: str

    def find(self, pattern: str) -> str:
        """The part of the answer that a pattern names."""
        found = re.search(pattern, self.said, re.MULTILINE)
        assert found, self.said
        return found[1]

    @property
    def line(self) -> str:
        """The line for the user's computer."""
        return self.find(r"^ +(ssh .*)$")

    @property
    def url(self) -> str:
        """The page."""
        return self.find(r"^ +(http://.*)$")

    @property
    def job(self) -> str:
        """The job's number."""
        return self.find(r"scancel (\d+)$")

    @property
    def node(self) -> str:
        """The job's node."""
        return self.line.rpartition("@")[2]

    @property
    def socket(self) -> str:
        """Where the program listens."""
        return self.find(r"-L \d+:(\S+)")

    @property
    def token(self) -> str:
        """What Jupyter asks for."""
        return self.url.partition("token=")[2]

    def ask(self, method: str, path: str, token: str) -> int:
        """What Jupyter answers to a request with a token."""
        page = self.url.partition("?")[0] + path
        request = urllib.request.Request(page, method=method, headers={"Authorization": f"token {token}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def port_is_open(self) -> bool:
        """Whether ssh forwards the port already."""
        port = self.find(r"-L (\d+):")
        return bool(subprocess.run(["ss", "-Htln", f"sport = :{port}"], capture_output=True, check=True).stdout)


@pytest.fixture(scope="module", name="computer")
def _computer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Computer:
    """The cluster with a private /tmp, users who can log in, and alice's JupyterLab."""
    directory = tmp_path_factory.mktemp("notebook")
    for host in (LOGIN, *NODES):
        lab.command(host, "id bob 2>/dev/null || useradd --uid 2002 --create-home --shell /bin/bash bob")
        lab.command(host, "cd /etc/ssh/authorized_keys.d; cp admin alice; cp admin bob")
    # slurmctld has read bob's association before there was a bob.
    lab.command(LOGIN, "systemctl restart slurmctld")
    lab.wait_for(LOGIN, "timeout 60 scontrol ping", "UP", 60)
    lab.let_jobs_have_namespaces()
    run = with_cluster(lab, directory, {**lab.cluster, "private_tmp": "/local/jobs"}).playbook(
        "site", "--tags=controller,compute"
    )
    assert (run.rc, run.failed) == (0, {})
    (directory / "config").write_text(
        f"Host {LOGIN}\n  HostName {lab.host(LOGIN).interface('eth0').addresses[0]}\n"
        f"Host *\n  IdentityFile {ROOT}/.lab/id_ed25519\n  IdentitiesOnly yes\n  BatchMode yes\n  LogLevel INFO\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    )
    computer = Computer(lab, directory / "config")
    install_jupyter(computer, directory / "site")
    return computer


def install_jupyter(computer: Computer, site: Path) -> None:
    """Give alice JupyterLab and a notebook with one cell."""
    version = computer.login("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", f"--python-version={version}"]
    options = ["--python-platform=x86_64-manylinux_2_28", "--only-binary=:all:", f"--target={site}"]
    subprocess.run([*uv, *options, "jupyterlab"], check=True)
    computer.login("scancel --user=alice; rm -rf jupyter .local/state .jupyter")
    with subprocess.Popen(["tar", "-C", site, "-c", "."], stdout=subprocess.PIPE) as archive:
        command = computer.shell(f"ssh alice@{LOGIN} {shlex.quote(INSTALL)}")
        subprocess.run(command, stdin=archive.stdout, check=True)
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": CELL,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    news = ".jupyter/lab/user-settings/@jupyterlab/apputils-extension"
    computer.login(
        f"echo {shlex.quote(json.dumps(notebook))} >job.ipynb; mkdir -p {news}; "
        f'echo \'{{"fetchNews": "false"}}\' >{news}/notification.jupyterlab-settings'
    )


@pytest.fixture(scope="module", name="session")
def _session(computer: Computer) -> Session:
    """alice's notebook with one GPU."""
    return computer.notebook("--gpus 1")


@contextmanager
def job(lab: Lab, node: str, user: str = "bob") -> Iterator[str]:
    """A job of a user on a node."""
    batch = f"sbatch --parsable --nodelist={node} --mem=100 --time=10 --output=/dev/null --wrap='sleep 600'"
    number = lab.command(LOGIN, f"cd / && runuser -u {user} -- {batch}")
    lab.wait_for(LOGIN, f"squeue -h -j {number} -o %T", "RUNNING", 60)
    try:
        yield number
    finally:
        lab.command(LOGIN, f"scancel {number}")


def test_without_jupyter_no_job_is_queued(computer: Computer) -> None:
    done = computer.line(f"ssh alice@{LOGIN} notebook")
    assert done.returncode == 1
    assert "there is no jupyter-lab in PATH" in done.stderr
    assert computer.login("squeue --noheader --me") == ""


def test_a_second_call_prints_the_same(computer: Computer, session: Session) -> None:
    assert computer.notebook("") == session
    assert len(computer.login("squeue --noheader --me").splitlines()) == 1


def test_a_cell_runs_on_the_gpu_of_the_job(computer: Computer, session: Session, tmp_path: Path) -> None:
    program = find_program()
    if not program:
        pytest.skip("no Chromium")
    page = session.url.replace("/?", "/lab/tree/job.ipynb?")
    with computer.connected(session), Browser(program, tmp_path) as browser:
        browser.look(1100, 560)
        browser.open(page)
        state = "(document.querySelector('.jp-Notebook-ExecutionIndicator') || {dataset: {}}).dataset.status"
        wait_for(browser, f"document.querySelector('{RUN}') && {state}", "idle")
        text = "(document.querySelector('.jp-OutputArea-output') || {}).innerText"
        output = wait_for(browser, text, "nvidia1", press=RUN)
        assert output.split("\n")[:4] == [
            f"job {session.job} on {session.node}",
            "CUDA_VISIBLE_DEVICES 0",
            "/dev/nvidia0: No such device or address",
            "/dev/nvidia1: Operation not permitted",
        ]
        theme = "!!getComputedStyle(document.documentElement).getPropertyValue('--jp-layout-color1')"
        wait_for(browser, theme, "True")
        wait_for(browser, state, "idle")
        (ROOT / ".cache").mkdir(exist_ok=True)
        browser.picture(ROOT / ".cache/notebook.png")


def wait_for(browser: Browser, expression: str, text: str, press: str = "") -> str:
    """The value of an expression, as soon as it contains a text.

    press: an element that is pressed every ten seconds, since a page that is still being drawn may not notice it.
    JupyterLab's buttons want a mouse.
    """
    deadline, again = time.monotonic() + 120, 0.0
    while text not in str(found := browser.ask(expression)):
        assert time.monotonic() < deadline, found
        if press and time.monotonic() > again:
            again = time.monotonic() + 10
            place = f"document.querySelector('{press}').getBoundingClientRect()"
            x, y = browser.ask(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({place})")
            for kind in ("mousePressed", "mouseReleased"):
                browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        time.sleep(0.5)
    return str(found)


def test_another_user_without_a_job_there_does_not_reach_the_node(computer: Computer, session: Session) -> None:
    found = computer.line(session.line.replace("alice@", "bob@"))
    assert found.returncode == 255
    assert REFUSED in found.stderr


def test_another_user_with_a_job_on_the_node_reaches_nothing(lab: Lab, computer: Computer, session: Session) -> None:
    on_node = f"ssh -J bob@{LOGIN} bob@{session.node} "
    with computer.connected(session):
        assert session.ask("POST", "api/kernels", session.token) == 201
        lab.wait_for(session.node, "ss -Hxl", "-ipc-5", 60)
    with job(lab, session.node):
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({session.socket!r})"
        found = computer.line(on_node + shlex.quote(f'python3 -c "{connect}"'))
        assert "PermissionError" in found.stderr
        assert "Permission denied" in computer.line(on_node + f"ls {session.socket}").stderr

        stolen = Session(session.said.replace("alice@", "bob@"))
        with computer.connected(stolen), pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(session.url, timeout=20)

        # /tmp is that of his own job. The kernel of Jupyter has sockets in that of alice's.
        assert "notebook-" not in computer.line(on_node + "ls -a /tmp").stdout
        kernels = lab.command(session.node, "ss -Hxl | grep '/tmp/notebook-.*-ipc-'").splitlines()
        assert len(kernels) % 5 == 0
        listing = computer.line(on_node + shlex.quote("ps -eo args; cat /proc/*/environ")).stdout
        assert "jupyter-lab --no-browser" in listing
        assert session.token not in listing

        ports = lab.command(session.node, "ss -Htln | awk '{print $4}' | grep ^127 || true").split()
        for port in (address.rpartition(":")[2] for address in ports):
            ask = (
                f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.settimeout(3); "
                "s.send(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(4096))"
            )
            assert "HTTP" not in computer.line(on_node + shlex.quote(f'python3 -c "{ask}"')).stdout
    assert session.job not in computer.login("squeue --noheader", "bob"), "profile strict"


def test_jupyter_asks_for_the_token(computer: Computer, session: Session) -> None:
    with computer.connected(session):
        for token, status in (("", 403), ("wrong", 403), (session.token, 200)):
            assert session.ask("GET", "api/contents", token) == status


def test_a_second_job_on_the_node_hides_nothing(lab: Lab, computer: Computer, session: Session) -> None:
    """A connection is a part of one of the user's jobs there, with the /tmp of that one."""
    assert session.socket.startswith(STATE)
    with job(lab, session.node, "alice") as second:
        cgroups = computer.line(f"ssh -J alice@{LOGIN} alice@{session.node} cat /proc/self/cgroup").stdout
        assert re.search(f"job_({session.job}|{second})/", cgroups)
        with computer.connected(session), urllib.request.urlopen(session.url, timeout=20) as answer:
            assert answer.status == 200


def test_remote_development_through_the_same_hosts(computer: Computer, session: Session, tmp_path: Path) -> None:
    """What VS Code needs of ssh: commands, copies, a server that it starts and reaches by a forwarded port."""
    hosts = f"-J alice@{LOGIN} alice@{session.node}"
    assert computer.line(f"ssh {hosts} 'uname -s; test -w ~'").stdout == "Linux\n"
    source = tmp_path / "server.txt"
    source.write_text("a server")
    copy = f"scp -F {computer.config} -J alice@{LOGIN} {source} alice@{session.node}:server.txt"
    assert computer.line(copy).returncode == 0
    start = "setsid python3 -m http.server --bind 127.0.0.1 18123 >/dev/null 2>&1 & echo $!"
    process = computer.line(f"ssh {hosts} {shlex.quote(start)}").stdout.strip()
    cgroups = computer.line(f"ssh {hosts} cat /proc/{process}/cgroup").stdout
    assert f"job_{session.job}/step_extern" in cgroups
    forward = Session(f"  ssh -N -L 18124:localhost:18123 {hosts}\n")
    page = "http://localhost:18124/server.txt"
    with computer.connected(forward), urllib.request.urlopen(page, timeout=20) as answer:
        assert answer.read() == b"a server"


def test_everything_ends_with_the_job(lab: Lab, computer: Computer, session: Session) -> None:
    with computer.connected(session) as line:
        computer.login(f"scancel {session.job}")
        assert line.wait(60) == 255
    lab.wait_for(session.node, "pgrep -u alice -fa . || echo none", "none", 60)
    lab.wait_for(session.node, f"ls /local/jobs/{session.node} | wc -l", "0", 60)
    assert lab.command(LOGIN, "find /home/alice/.local/state -type s") == ""
    assert REFUSED in computer.line(session.line).stderr


def test_a_job_for_vs_code(computer: Computer, tmp_path: Path) -> None:
    """The printed block, in the configuration of ssh."""
    held = computer.notebook("--ssh")
    block = held.said.partition("    Host ")[2].partition("\n\n")[0]
    config = tmp_path / "config"
    config.write_text(f"Host {block}\n{computer.config.read_text()}")
    found = Computer(computer.lab, config).line(f"ssh {held.node} 'hostname; cat /proc/self/cgroup'").stdout
    assert found.startswith(held.node)
    assert f"job_{held.job}/" in found
    assert computer.line(f"{held.line} hostname").stdout == f"{held.node}\n"
    computer.login(f"scancel {held.job}")


def test_any_web_program(computer: Computer) -> None:
    """On a port, where other users of the node can reach it as well, as the command says."""
    command = "python3 -m http.server --bind 127.0.0.1 --directory jupyter {port}"
    web = computer.notebook(f"-- {shlex.join(shlex.split(command))}")
    with computer.connected(web), urllib.request.urlopen(web.url, timeout=20) as answer:
        assert b"pyvenv.cfg" in answer.read()
    assert f"Other users of {web.node} can reach it, too." in web.said
    with job(computer.lab, web.node):
        port = web.socket.rpartition(":")[2]
        ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}').status)"
        found = computer.line(f"ssh -J bob@{LOGIN} bob@{web.node} " + shlex.quote(f'python3 -c "{ask}"'))
        assert found.stdout == "200\n"
    computer.login(f"scancel {web.job}")


def test_ctrl_c_before_the_line_cancels_the_job(computer: Computer) -> None:
    command = "timeout --signal=INT 8 notebook --mem 400 -- sh -c 'sleep 600' {socket}"
    done = computer.line(f"ssh alice@{LOGIN} {shlex.quote(command)}")
    assert re.search(r"job \d+ is cancelled", done.stderr), done
    assert "notebook-sh" not in computer.login("squeue --noheader --me --states=pending,running --Format=Name:30")
