# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's daemons in the root, started by hand, and what Slurm says of the node."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from typing import Any

from root import NODE, Root
from steps import Answer, StepError, wait_for

USER = "alice"
DIRECTORIES = {
    "/run/munge": "munge",
    "/var/lib/munge": "munge",
    "/var/log/munge": "munge",
    "/etc/munge": "munge",
    "/run/mysqld": "mysql",
    "/run/slurm": "slurm",
    "/var/log/slurm": "slurm",
    "/var/lib/slurm": "slurm",
    "/var/lib/slurm/slurmctld": "slurm",
    "/var/lib/slurm/slurmd": "root",
    "/etc/slurm": "root",
}
SLURMDBD_CONF = f"""AuthType=auth/munge
DbdHost={NODE}
DbdAddr=127.0.0.1
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""


def field(shown: str, name: str) -> str:
    """A field of what `scontrol --oneliner show` prints; empty without it."""
    found = re.search(rf"(?:^|\s){re.escape(name)}=(.*?)(?=\s\S+=|\s*$)", shown)
    return found[1] if found else ""


def listens(port: int) -> bool:
    """Whether a daemon listens on a port of this host."""
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        return False
    return True


class Cluster:
    """A cluster of this one node."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.files: dict[str, str] = {}
        """Slurm's files in force, as the collection has written them."""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def _start(self, name: str, *command: str, user: str = "root") -> None:
        """Start a daemon that stays in the foreground."""
        with self.root.inner(f"/var/log/{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                self.root.command_line(command, user),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _stop(self, name: str) -> None:
        """Stop a daemon, if it runs."""
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()

    def _last_line(self, name: str) -> str:
        """The last errors that a daemon has logged."""
        logged = self.root.read(f"/var/log/{name}.out")
        self.root.steps.log(f"---- {name}\n{logged[-20000:]}")
        lines = [line for line in logged.split("\n") if re.search(r"error|fatal", line, re.IGNORECASE)]
        return " | ".join(lines[-3:]) or "it has logged no error"

    def start_servers(self) -> None:
        """Start munged, MariaDB and slurmdbd."""
        for path, owner in DIRECTORIES.items():
            self.root.inner(path).mkdir(parents=True, exist_ok=True)
            self.root.answer("chown", f"{owner}:", path)
        self.root.inner("/etc/munge/munge.key").write_bytes(os.urandom(128))
        self.root.answer("chown", "munge:", "/etc/munge/munge.key")
        self.root.answer("chmod", "0400", "/etc/munge/munge.key")
        self.root.answer("munged", user="munge")
        self._start(
            "mariadbd",
            *("mariadbd", "--no-defaults", "--datadir=/var/lib/mysql", "--socket=/run/mysqld/mysqld.sock"),
            *("--skip-networking", "--skip-grant-tables", "--innodb-log-file-size=8M"),
            "--innodb-lock-wait-timeout=900",
            user="mysql",
        )
        if not wait_for(lambda: self.root.inner("/run/mysqld/mysqld.sock").exists(), 20):
            raise StepError(f"MariaDB does not serve: {self._last_line('mariadbd')}")
        self.root.write("/etc/slurm/slurmdbd.conf", SLURMDBD_CONF, 0o600, "slurm")
        self._start("slurmdbd", "slurmdbd", "-D", user="slurm")

    def database_serves(self, seconds: float = 40) -> None:
        """Wait until slurmdbd listens. It makes its tables first. Raises StepError if it does not."""
        if not wait_for(lambda: listens(6819) or "slurmdbd" in self._ended(), seconds) or self._ended():
            raise StepError(f"slurmdbd does not answer: {self._last_line('slurmdbd')}")

    def configure(self, facts: dict[str, Any], autodetect: str, cgroups: str, database: bool) -> None:
        """Have the collection write Slurm's files (inside.py, configure)."""
        given = {"facts": facts, "node": NODE, "autodetect": autodetect, "cgroups": cgroups, "database": database}
        self.files = self.root.collection("configure", stdin=given)
        for name, text in self.files.items():
            self.root.steps.log(f"---- {name}\n{text}")

    def start(self) -> str:
        """Start slurmctld and slurmd with the files in force.

        Returns what slurmctld says of the node, in one line. Raises StepError if it does not become IDLE.
        """
        self.stop()
        self._start("slurmctld", "slurmctld", "-D", "-i", user="slurm")
        self._start("slurmd", "slurmd", "-D", "-N", NODE)
        wait_for(lambda: self.state() == "IDLE" or {"slurmctld", "slurmd"} & set(self._ended()), 20)
        shown = self.node()
        if field(shown, "State") != "IDLE":
            message = f"State={field(shown, 'State') or 'unknown'} Reason={field(shown, 'Reason')}"
            for name in self._ended() or ["slurmd"]:
                message += f", {name}: {self._last_line(name)}"
            self.stop()
            raise StepError(message)
        return shown

    def _ended(self) -> list[str]:
        """The daemons that have ended by themselves."""
        return [name for name, daemon in self._daemons.items() if daemon.poll() is not None]

    def stop(self) -> None:
        """Stop slurmd and slurmctld."""
        for name in ("slurmd", "slurmctld"):
            self._stop(name)

    def log_all(self) -> None:
        """Log the last lines of all daemons, which end with the namespace of `check`."""
        for name in self._daemons:
            self._last_line(name)

    def node(self) -> str:
        """What slurmctld says of the node, in one line; empty if it does not answer."""
        answer = self.root.run("scontrol", "--oneliner", "show", "node", NODE, seconds=10)
        return answer.output.strip() if answer.status == 0 else ""

    def state(self) -> str:
        """The state of the node."""
        return field(self.node(), "State")

    def start_job(self, *command: str) -> None:
        """Start a job of an ordinary user with one GPU, without waiting for its end."""
        srun = ("srun", "--quiet", "--immediate=20", "--chdir=/tmp", "--mem=0", "--gres=gpu:1", "--job-name=started")
        self._start("srun", *srun, *command, user=USER)

    def end_job(self) -> None:
        """End this job, and wait for its srun."""
        self.root.answer("scancel", "--name=started", f"--user={USER}")
        self._stop("srun")

    def job(self, *command: str, gres: str = "gpu:1", seconds: float = 60) -> Answer:
        """Run a job of an ordinary user, and return its answer."""
        wanted = [f"--gres={gres}"] if gres else []
        srun = ("srun", "--quiet", "--immediate=20", "--chdir=/tmp", "--mem=0", *wanted)
        return self.root.run(*srun, *command, user=USER, seconds=seconds)

    def batch(self, arguments: list[str], script: str, directory: str, seconds: float) -> tuple[int, str]:
        """Run a batch job of root to its end. Returns its number and what it has printed.

        Args:
            directory: where its output `NUMBER.out` is.

        Raises:
            StepError: it is refused, fails or does not end in time.
        """
        number = int(self.root.answer(*arguments, stdin=script).split(";")[0])
        running = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}
        wait_for(lambda: self._job_state(number) not in running, seconds, 0.5)
        state = self._job_state(number)
        if state != "COMPLETED":
            self.root.run("scancel", str(number))
            errors = self.root.read(f"{directory}/{number}.err").strip().split("\n")
            raise StepError(f"job {number} is {state or 'unknown'}, limit {seconds:.0f} s: {errors[-1]}")
        text = self.root.read(f"{directory}/{number}.out")
        self.root.steps.log(text)
        return number, text

    def _job_state(self, number: int) -> str:
        """The state of a job; empty if slurmctld does not know it."""
        query = ("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T")
        state: str = self.root.run(*query).output.strip()
        return state
