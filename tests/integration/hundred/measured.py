# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of playbooks as a person sees them, with what they take on the control host.

Each run prints a line "measured", for docs/design/benchmarks.md; no test asserts a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lab import ROOT, Lab, with_cluster

COUNTED = """import json, resource, subprocess, sys
status = subprocess.run(sys.argv[2:], check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump({"processor": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss // 1024}, file)
sys.exit(status)
"""
"""Runs a command, and writes its seconds of processor time and the MiB of its largest process to a file."""


@dataclass(frozen=True)
class Measured:
    """A run: exit status, what it has printed, and its result for programs (docs/admin/runner.md)."""

    rc: int
    output: str
    artifacts: Mapping[str, Any]

    @property
    def result(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.artifacts["slurm_result"]
        return found

    @property
    def hosts(self) -> Mapping[str, str]:
        """How each host has ended."""
        found: Mapping[str, str] = self.result["hosts"]
        return found

    @property
    def lost(self) -> set[str]:
        """The hosts that failed or could not be reached."""
        return {host for host, state in self.hosts.items() if state in ("failed", "unreachable")}

    @property
    def changed(self) -> set[str]:
        return {host for change in self.result["changes"] for host in change["hosts"]}

    def succeeded(self) -> None:
        assert (self.rc, self.result["failed"]) == (0, []), self.output[-4000:]


def measured(
    lab: Lab, what: str, playbook: str, *arguments: str, when: Mapping[str, Callable[[], object]] | None = None
) -> Measured:
    """Run a playbook, and print what it took.

    when: what to do when the run prints a line with this text for the first time.
    """
    waiting = dict(when or {})
    with tempfile.TemporaryDirectory() as directory:
        figures, result = Path(directory, "figures"), Path(directory, "result")
        counted = [sys.executable, "-c", COUNTED, str(figures)]
        start = time.monotonic()
        lines = []
        with subprocess.Popen(
            [*counted, "ansible-playbook", f"gpucluster.slurm.{playbook}", f"--inventory={lab.inventory}", *arguments],
            cwd=ROOT,
            env=lab.environment | {"GPUCLUSTER_SLURM_RESULT": str(result), "ANSIBLE_NOCOLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                for text in [text for text in waiting if text in line]:
                    waiting.pop(text)()
        taken = time.monotonic() - start
        used = json.loads(figures.read_text())
        run = Measured(process.returncode, "".join(lines), json.loads(result.read_text()))
    print(
        f"measured: {what}: {taken:.0f} s, processor {used['processor']:.0f} s, {used['memory']} MiB, "
        f"{len(lines)} lines, {len(run.hosts)} hosts, rc {run.rc}"
    )
    assert not waiting, f"the run has not printed {[*waiting]}:\n{run.output[-4000:]}"
    return run


def changed(lab: Lab, directory: Path, **values: Any) -> Lab:
    """The lab with other values in its cluster file."""
    return with_cluster(lab, directory, {**lab.cluster, **values})


def content(lab: Lab) -> Mapping[str, Any]:
    """The content of the cluster file now, after a playbook has written it."""
    found: Mapping[str, Any] = yaml.safe_load(lab.inventory.read_text())
    return found
