# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario of the lab as the tests see it: its hosts over ssh, and the playbooks as a user runs them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jsonschema
import testinfra
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand

ROOT = Path(__file__).parents[2]

RESULT_SCHEMA = json.loads((ROOT / "runner/result.schema.json").read_text())

NAMESPACES = """
import ctypes, os
libc = ctypes.CDLL(None)
for cpu in sorted(os.sched_getaffinity(0)):
    os.sched_setaffinity(0, {cpu})
    for _ in range(5000):
        libc.unshare(0x00020000)  # CLONE_NEWNS
"""
"""Makes mount namespaces on each CPU. Linux 6.18 numbers them by CPU, in blocks of 4096, and refuses to mount one that
has a lower number than that of the process, as those of jobs can have if a container was just made."""

# The directory for results, and sockets of connections that are kept open: a short path, since its length is limited.
SOCKETS = tempfile.TemporaryDirectory(prefix="lab-")


def podman(command: str, *arguments: str) -> str:
    """Give a command to podman, for what the lab's hosts cannot do themselves, such as their power; its output."""
    return subprocess.run(["podman", command, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def container(host: str) -> str:
    """The name of a host's container."""
    return f"gpucluster-{host}"


@dataclass
class Run:
    """The result of a run of ansible-playbook. Its fields follow from `events`, the lines of the jsonl callback.

    rc: the exit status; a negative number is the signal that ended the run. output: stdout and stderr. artifacts: what
    callback `result` has written, if the run had begun.
    """

    rc: int
    output: str
    artifacts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The callback's events, in order."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith('{"_event"')]

    @property
    def result(self) -> dict[str, Any]:
        """The result of the run for programs (docs/admin/runner.md)."""
        return dict(self.artifacts["slurm_result"])

    @property
    def results(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Host, name of the task and the module's result, for each task that a host has ended."""
        for event in self.events:
            for host, result in event.get("hosts", {}).items():
                yield host, event["task"]["name"], result

    @property
    def changed(self) -> dict[str, list[str]]:
        """Names of the tasks that changed something, or would have in check mode, by host; other hosts are left out."""
        tasks: dict[str, list[str]] = {}
        for host, task, result in self.results:
            if result.get("changed"):
                tasks.setdefault(host, []).append(task)
        return tasks

    @property
    def failed(self) -> dict[str, list[str]]:
        """Name and message of the tasks that failed or found their host unreachable, by host."""
        tasks: dict[str, list[str]] = {}
        for host, task, result in self.results:
            if result.get("failed") or result.get("unreachable"):
                tasks.setdefault(host, []).append(f"{task}: {result.get('msg', result)}")
        return tasks

    @property
    def warnings(self) -> list[str]:
        """Warnings and deprecations: of tasks, which the callback does not print, and of Ansible itself."""
        kinds = ("warnings", "deprecations")
        said = [str(text) for *_task, result in self.results for kind in kinds for text in result.get(kind, [])]
        said += [line for line in self.output.splitlines() if line.startswith(("[WARNING]", "[DEPRECATION"))]
        return said

    @property
    def stats(self) -> dict[str, dict[str, int]]:
        """The recap: ok, changed, failures, unreachable, skipped and so on, by host; empty if the run was ended."""
        return next((event["stats"] for event in self.events if "stats" in event), {})


@dataclass
class LiveRun:
    """A run of ansible-playbook in the background of the test."""

    process: subprocess.Popen[str]
    file: Path
    lines: list[str] = field(default_factory=list)

    def tasks(self) -> Iterator[str]:
        """Yield the name of each task as it starts, until the run ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith('{"_event":"v2_playbook_on_task_start"'):
                yield json.loads(line)["task"]["name"]

    def wait_for_task(self, name: str) -> None:
        """Return when a task whose name contains `name` starts; AssertionError if the run ends before."""
        assert any(name in task for task in self.tasks()), f"the run ended before {name!r}:\n{''.join(self.lines[-5:])}"

    def wait_for_line(self, text: str, seconds: int = 180) -> None:
        """Return when the run has shown this text; AssertionError if it ends before."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
            assert time.monotonic() < until, f"no {text!r} within {seconds} s"
        raise AssertionError(f"the run ended before {text!r}: {''.join(self.lines)[-3000:]}")

    def finish(self) -> Run:
        """Let the run end by itself."""
        for _task in self.tasks():
            pass
        run = Run(self.process.wait(), "".join(self.lines))
        if self.file.exists():
            run.artifacts = json.loads(self.file.read_text())
            self.file.unlink()
            jsonschema.validate(run.artifacts, RESULT_SCHEMA)
            _compare(run)
        return run

    def kill(self) -> Run:
        """End the run at once, with all of its processes and without any clean-up, as a lost machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        return self.finish()


def _compare(run: Run) -> None:
    """Each run of each scenario shows that its result says what its events say."""
    result, stats = run.result, run.stats
    if not stats:
        return
    lost = {host for host, counts in stats.items() if counts["failures"] or counts["unreachable"]}
    named = {host for host, state in result["hosts"].items() if state in ("failed", "unreachable")}
    assert result["ended"] is True
    assert named == lost, f"the result names {named}, the recap {lost}"
    assert {failure["host"] for failure in result["failed"]} == lost
    assert {host for change in result["changes"] for host in change["hosts"]} <= {*run.changed}
    assert run.rc or not run.changed or result["state"] == "changed"


@dataclass(frozen=True)
class Lab:
    """One scenario, by the name of its folder in molecule/, on hosts that `molecule create` has made.

    cluster_file: another one than the scenario's own.
    """

    scenario: str
    cluster_file: Path | None = None

    @cached_property
    def inventory(self) -> Path:
        """The cluster file, from the scenario's molecule.yml unless another one was given."""
        if self.cluster_file:
            return self.cluster_file
        config = yaml.safe_load((ROOT / "molecule" / self.scenario / "molecule.yml").read_text())
        (argument,) = config["ansible"]["executor"]["args"]["ansible_playbook"]
        return Path(argument.removeprefix("--inventory=").replace("${MOLECULE_PROJECT_DIRECTORY}", str(ROOT)))

    @cached_property
    def cluster(self) -> dict[str, Any]:
        """The content of the cluster file."""
        return dict(yaml.safe_load(self.inventory.read_text()))

    @property
    def controller(self) -> str:
        """The first controller."""
        return expand(self.cluster["controllers"])[0]

    @property
    def login(self) -> str:
        """A host that users log in to; the controller if the cluster file names no login host."""
        return expand(self.cluster.get("login", self.controller))[0]

    @property
    def nodes(self) -> list[str]:
        """The compute nodes; the last one has stand-ins for GPUs in each scenario that has any."""
        return [name for entry in self.cluster["nodes"] for name in expand(entry["hosts"])]

    @property
    def hosts(self) -> list[str]:
        """All hosts of the cluster, each once."""
        return [*dict.fromkeys([self.controller, self.login, *self.nodes])]

    @property
    def release(self) -> str:
        """Slurm's release, from the scenario's name; the release of Debian 13 if the name has none."""
        return self.scenario.partition("-")[2] or "24.11"

    @property
    def has_sackd(self) -> bool:
        """Whether Slurm has sackd, as it does from 23.11 on (its RELEASE_NOTES)."""
        return self.release > "23.11"

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration for the hosts, by name and by address."""
        return ROOT / ".lab" / self.scenario / "ssh_config"

    def host(self, name: str) -> testinfra.host.Host:
        """Return a host of the scenario, commanded as root through sudo."""
        return testinfra.get_host(
            f"ssh://{name}",
            ssh_config=str(self.ssh_config),
            sudo=True,
            ssh_extra_args=f"-o ControlMaster=auto -o ControlPersist=60s -o ControlPath={SOCKETS.name}/%C",
        )

    def script(self, host: str, script: str, data: bytes) -> bytes:
        """Run a shell script as root with this input; return its output. CalledProcessError if it fails."""
        command = ["ssh", "-F", str(self.ssh_config), host, f"sudo sh -c {shlex.quote(script)}"]
        return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout

    def command(self, host: str, command: str, rc: int = 0) -> str:
        """Run a command as root, which must end with `rc`; return its output."""
        result = self.host(host).run(command)
        assert result.rc == rc, f"{host}: {command}: exit status {result.rc}\n{result.stdout}{result.stderr}"
        return str(result.stdout.strip())

    def wait_for(self, host: str, command: str, text: str, seconds: int = 180) -> str:
        """Repeat a command until its output contains `text`; return that output. AssertionError after `seconds`.

        A host that cannot be reached, because it reboots, has no output.
        """

        def output_now() -> str:
            try:
                return str(self.host(host).run(command).stdout)
            except RuntimeError:
                return ""

        deadline = time.monotonic() + seconds
        while text not in (output := output_now()):
            assert time.monotonic() < deadline, f"{host}: {command}: no {text!r} within {seconds} s, but {output!r}"
            time.sleep(0.5)
        return output.strip()

    def wait_until_idle(self, host: str, node: str, seconds: int = 180) -> None:
        """Return when sinfo on `host` shows a node as idle. A node that has not answered yet is idle*.

        It asks for all nodes: for a single one, slurmctld does not count the allocated CPUs anew, and the node stays
        mixed after its last job (`_slurm_rpc_dump_node_single` in `src/slurmctld/proc_req.c`).
        """
        self.wait_for(host, "timeout 60 sinfo -h -N -o =%N=%T=", f"={node}=idle=", seconds)

    def let_jobs_have_namespaces(self) -> None:
        """Prepare the hosts for `private_tmp`, which this machine's kernel may refuse to containers."""
        for host in self.hosts:
            self.script(host, "python3 -", NAMESPACES.encode())

    @contextmanager
    def configuration_kept(self) -> Iterator[None]:
        """Restore the controller's files when the block ends: Slurm's files, and those that were in force last.

        This takes a second; a run of site.yml takes ten. Parameters that slurmd reads at its start are not restored.
        """
        files = "etc/slurm var/lib/gpucluster-slurm"
        self.command(self.controller, f"tar -C / -cf /root/kept.tar {files}")
        try:
            yield
        finally:
            self.command(self.controller, f"cd / && rm -r {files} && tar -xf /root/kept.tar && rm /root/kept.tar")
            self.command(self.controller, "systemctl restart slurmctld")
            self.wait_for(self.controller, "timeout 60 scontrol ping", "UP", 60)
            self.command(self.controller, "scontrol reconfigure")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which Ansible finds the collection and reaches the hosts."""
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_COMMON_ARGS": f"-F {self.ssh_config}",
        }

    def start(self, playbook: str, *arguments: str, before: Sequence[str] = ()) -> LiveRun:
        """Start a playbook of the collection, by its short name, or one by its path, on the scenario's hosts.

        It prints one event per line. `arguments` are options of ansible-playbook, such as `--diff`. `before` is a
        command that runs it.
        """
        file = Path(SOCKETS.name, f"result-{uuid.uuid4()}.json")
        process = subprocess.Popen(
            [
                *before,
                # Started under nohup, the tests ignore this signal, and so would their child.
                *("env", "--default-signal=HUP"),
                "ansible-playbook",
                playbook if "/" in playbook else f"gpucluster.slurm.{playbook}",
                f"--inventory={self.inventory}",
                *arguments,
            ],
            cwd=ROOT,
            env=self.environment
            | {
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
                "ANSIBLE_NOCOLOR": "1",
                "GPUCLUSTER_SLURM_RESULT": str(file),
                "ANSIBLE_FORCE_COLOR": "0",  # molecule switches colours on
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a process group of its own, for kill()
        )
        return LiveRun(process, file)

    def playbook(self, playbook: str, *arguments: str) -> Run:
        """Run a playbook to its end, as `start` does. Whether it succeeded is in the result."""
        return self.start(playbook, *arguments).finish()


def with_hardware(lab: Lab, directory: Path, node: str, hardware: dict[str, Any] | str) -> Lab:
    """The lab with a copy of its cluster file in a directory, in which one node has other hardware.

    hardware: other keys of its machine type, or `detected`.
    """
    cluster = yaml.safe_load(lab.inventory.read_text())
    nodes = [
        {"hosts": host, "address": address, "hardware": entry["hardware"]}
        for entry in cluster["nodes"]
        for host, address in zip(expand(entry["hosts"]), expand(entry["address"]))
    ]
    (other,) = (entry for entry in nodes if entry["hosts"] == node)
    if isinstance(hardware, dict):
        cluster["hardware"]["other"] = cluster["hardware"][other["hardware"]] | hardware
        hardware = "other"
    other["hardware"] = hardware
    cluster["nodes"] = nodes
    return with_cluster(lab, directory, cluster)


def with_cluster(lab: Lab, directory: Path, cluster: dict[str, Any], **variables: Any) -> Lab:
    """The lab with another cluster file, which is written to a directory. The lab's secrets are used by default.

    variables: further variables of the cluster; they override those that follow from the file.
    """
    path = directory / lab.inventory.name
    path.write_text(yaml.safe_dump(cluster))
    (directory / "group_vars").mkdir(exist_ok=True)
    variables.setdefault("slurm_secrets_dir", str(lab.inventory.parent / "secrets" / cluster["name"]))
    (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
    return Lab(lab.scenario, path)
