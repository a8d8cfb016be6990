# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with GPUs in a directory, for tests of slurm-gpu-metrics and of the map that slurm-prolog writes.

nvidia-smi is the lab's stand-in, and slurmd one that prints what `slurmd -G` does. The sockets of slurmstepd are lines
of a file in the form of /proc/net/unix.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.language import hostlist
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import (
    gpu_driver,
    gpu_jobs,
    slurm_gpu_metrics,
)

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = REPOSITORY / "roles/slurmctld/templates/job_script.sh.j2"
STAND_IN = REPOSITORY / "tests/integration/stand_in/nvidia_smi.py"
MODEL = "NVIDIA H100 80GB HBM3"
NODE = "gpu01"

Sample = tuple[str, dict[str, str], float]
"""A value of a series: name, labels, value."""


def samples(text: str) -> list[Sample]:
    """The values of a file in Prometheus' exposition format."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            found.append((name, dict(pairs), float(value)))
    return found


class Node:
    """A node, by default with two whole GPUs whose order for Slurm is that of nvidia-smi."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.run, self.root, self.bin = directory / "run", directory / "root", directory / "bin"
        self.spool = directory / "spool"
        self.textfile, self.configuration = directory / "gpu.prom", directory / "conf/slurm.conf"
        for path in (self.run, self.root / "proc/net", self.bin, self.spool, self.configuration.parent):
            path.mkdir(parents=True)
        self.spool.chmod(0o755)
        self.configuration.write_text("")
        (self.configuration.parent / "gres.conf").write_text("")
        self.put("logger", f'printf "%s\\n" "$*" >>{directory}/log')
        for name, text in (
            ("PATH", f"{self.bin}:{os.environ['PATH']}"),
            ("NVML_STAND_IN", str(directory / "gpus")),
            ("NVIDIA_SMI_STAND_IN_LOADS", str(directory / "loads")),
        ):
            monkeypatch.setitem(environment.ENVIRONMENT, name, text)
        for module, name, value in (
            (gpu_jobs, "RUN", self.run),
            (locks, "LOCKS", str(self.run / "locks")),
            (gpu_driver, "ROOT", self.root),
            (slurm_gpu_metrics, "TEXTFILE", str(self.textfile)),
            (gpu_jobs, "CONFIGURATIONS", (str(directory / "none"), str(self.configuration))),
            # Under the load of other tests, Python starts slowly.
            (gpu_driver, "QUERY_SECONDS", 20.0),
            (gpu_driver, "DETAIL_SECONDS", 20.0),
        ):
            monkeypatch.setattr(module, name, value)
        self.put("nvidia-smi", f'exec {sys.executable} -S {STAND_IN} "$@"')
        self.have([MODEL, MODEL], ["/dev/nvidia[0-1]"])
        self.start_steps()

    def put(self, name: str, script: str) -> None:
        """A stand-in for a program."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def have(self, gpus: Sequence[str], files: Sequence[str], minors: Sequence[int] = ()) -> None:
        """Let nvidia-smi and the driver show these GPUs, and slurmd these entries of `File`, in its order."""
        (self.directory / "gpus").write_text("".join(f"{gpu}\n" for gpu in gpus))
        for index, minor in enumerate(minors or range(len(gpus))):
            path = self.root / f"proc/driver/nvidia/gpus/0000:{index + 1:02x}:00.0/information"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Model: \t\t {MODEL}\nDevice Minor: \t {minor}\n")
        lines = "".join(
            f"slurmd: Gres Name=gpu Type=h100 Count={1 if 'nvidia-caps' in text else len(hostlist.expand(text))} "
            f"Index=0 ID=7696487 File={text} Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML\n"
            for text in files
        )
        self.put("slurmd", f"echo run >>{self.directory}/slurmd-runs\ncat >&2 <<'END'\n{lines}END")

    def loads(self, *loads: str) -> None:
        """The loads of GPUs, as the stand-in for nvidia-smi reads them."""
        (self.directory / "loads").write_text("".join(f"{load}\n" for load in loads))

    def start_steps(self, *jobs: int) -> None:
        """Let these jobs, and no others, have a slurmstepd."""
        head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
        form = "0000000000000000: 00000002 00000000 00010000 0001 01 {0} {1}/{2}_{0}.4294967292\n"
        text = head + "".join(form.format(job, self.spool, NODE) for job in jobs)
        (self.root / "proc/net/unix").write_text(text)
        for job in jobs:
            (self.spool / f"{NODE}_{job}.4294967292").touch()

    def collect(self) -> list[Sample]:
        """Run slurm-gpu-metrics, and return what it has written."""
        assert slurm_gpu_metrics.main([]) == 0
        return samples(self.textfile.read_text())

    def text(self, stage: str) -> str:
        """The program of a stage, without scripts."""
        surroundings = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
        template = surroundings.from_string(TEMPLATE.read_text())
        text = template.render(stage=stage, scripts=[], gpu_map=True)
        for path, own in (("=/run/gpucluster-slurm\n", f"={self.run}\n"), ("PATH=", f"PATH={self.bin}:")):
            assert path in text
            text = text.replace(path, own)
        return text

    def variables(self, job: int, gpus: str | None, **more: str) -> dict[str, str]:
        """What slurmd sets for a prolog or an epilog."""
        found = {
            "PATH": os.environ["PATH"],
            "SLURM_CONF": str(self.configuration),
            "SLURMD_NODENAME": NODE,
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_UID": "1000",
            "SLURM_JOB_USER": f"user{job}",
            "SLURM_JOB_ACCOUNT": "physics",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_START_TIME": "1764280000",
            **more,
        }
        return found if gpus is None else {**found, "SLURM_JOB_GPUS": gpus}

    def prolog(self, job: int, gpus: str | None, **more: str) -> None:
        """Run slurm-prolog, which always succeeds."""
        subprocess.run(["bash", "-c", self.text("prolog")], env=self.variables(job, gpus, **more), check=True)

    def epilog(self, job: int) -> None:
        """Run slurm-epilog without the variables that slurmd lacks after it was started anew."""
        subprocess.run(["bash", "-c", self.text("epilog")], env=self.variables(job, None), check=True)

    def map(self) -> dict[str, str]:
        """What dcgm-exporter reads: the jobs of each GPU, without GPUs that nobody has."""
        files = sorted((self.run / "gpu-jobs").glob("[0-9]*"))
        return {path.name: path.read_text() for path in files if path.read_text()}

    def log(self) -> str:
        """What the programs have logged."""
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def age(self, job: int, seconds: float) -> None:
        """Let a job's prolog have run so long ago."""
        then = time.time() - seconds
        os.utime(self.run / f"gpu-job-data/{job}", (then, then))


def attributions(found: Sequence[Sample]) -> dict[str, set[str]]:
    """The GPUs of each job, by the series of jobs."""
    jobs: dict[str, set[str]] = {}
    for name, labels, _value in found:
        if name == "slurm_job_memory_usage_gpu":
            jobs.setdefault(labels["slurmjobid"], set()).add(labels["gpu"])
    return jobs


def only(found: Sequence[Sample], name: str, labels: Mapping[str, str]) -> float:
    """The one value of a series with these labels, among others."""
    (value,) = [value for series, own, value in found if series == name and labels.items() <= own.items()]
    return value
