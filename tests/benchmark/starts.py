# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the start of programs, at a commit and in this checkout: a round starts each of them once.

A program in Python ends when it has imported what it needs. The prolog runs for a job with two GPUs, the epilog for one
without, both with a stand-in for logger and without scripts of a site.    usage: python starts.py [REV [ROUNDS]]
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jinja2
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import program_library

ROOT = Path(__file__).parents[2]
BEFORE, ROUNDS = "f20f8a27", 200
JOB_SCRIPT = "roles/slurmctld/templates/job_script.sh.j2"
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_USER": "alice",
    "SLURMD_NODENAME": "gpu1",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
}


class Program(NamedTuple):
    """A program, by its file at the earlier commit and by its module now; a script has its own path again."""

    name: str
    file: str
    module: str


PROGRAMS = (
    Program("gpus", "roles/job_tools/files/gpus.py", "programs.gpus"),
    Program("health check", "roles/slurm_health/files/health.py", "programs.health_check"),
    Program("slurm-metrics", "roles/slurm_metrics/files/slurm-metrics", "programs.metrics.slurm_metrics"),
    Program("prolog", JOB_SCRIPT, ""),
    Program("epilog", JOB_SCRIPT, ""),
)


def of_module(program: Program, place: Path) -> str:
    """The starter of a program in a library below a place, which is compiled as on a host."""
    files = program_files.library(program.name.replace(" ", "-"), {str(place / "program"): program.module})
    for file in files:
        Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(file["path"]).write_text(file["content"])
    program_library.compile_modules(file["path"] for file in files)
    return re.sub(r"\nsys\.exit\(.*", "", (place / "program").read_text())


def of_file(text: str) -> str:
    """A program that is one file, as roles wrote it."""
    return "#!/usr/bin/python3 -I\n" + re.sub(r"\nif __name__ == .*", "", text, flags=re.DOTALL)


def of_template(stage: str, text: str, place: Path) -> str:
    """Prolog or epilog with the map of GPUs, below a place."""
    (place / "logger").write_text("#!/bin/sh\n")
    (place / "logger").chmod(0o755)
    (place / "gpus").mkdir(exist_ok=True)
    (place / "gpus/gpu-devices").write_text("0 gpu-a\n1 gpu-b\n")
    environment = jinja2.Environment(trim_blocks=True)
    script = environment.from_string(text).render(stage=stage, scripts=[], gpu_map=True)
    script = script.replace("PATH=", f"PATH={place}:", 1)
    return re.sub(r"/(run|var/lib)/gpucluster-slurm", str(place / "gpus"), script)


def starts(program: Program, revision: str, place: Path) -> dict[str, Path]:
    """What is started of a program: before, and now."""
    shown = subprocess.run(["git", "show", f"{revision}:{program.file}"], cwd=ROOT, capture_output=True, check=True)
    texts = {"before": shown.stdout.decode()}
    if program.module:
        texts = {"before": of_file(texts["before"]), "now": of_module(program, place)}
    else:
        texts["now"] = (ROOT / program.file).read_text()
        texts = {when: of_template(program.name, text, place) for when, text in texts.items()}
    for when, text in texts.items():
        (place / when).write_text(text)
        (place / when).chmod(0o755)
    return {when: place / when for when in texts}


def start(path: Path) -> tuple[float, float]:
    """How long one start takes, and its processor time, in milliseconds."""
    quiet = subprocess.DEVNULL
    begin = time.perf_counter()
    process = subprocess.Popen([path], env={**os.environ, **JOB}, stdout=quiet, stderr=quiet)
    _pid, status, usage = os.wait4(process.pid, 0)
    elapsed, process.returncode = time.perf_counter() - begin, os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{path} ended with {process.returncode}"
    return elapsed * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def figures(before: list[float], now: list[float]) -> str:
    """The medians, and the ratios of medians and of 99th percentiles."""
    medians = statistics.median(before), statistics.median(now)
    last = statistics.quantiles(before, n=100)[98], statistics.quantiles(now, n=100)[98]
    return f"{medians[0]:8.1f} {medians[1]:8.1f} {medians[1] / medians[0]:7.2f} {last[1] / last[0]:7.2f}"


def main() -> None:
    """Measure, and print a table."""
    revision, rounds = (*sys.argv[1:], *(BEFORE, str(ROUNDS))[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as directory:
        program_library.LIBRARY = f"{directory}/library"
        paths: dict[str, dict[str, Path]] = {}
        for program in PROGRAMS:
            place = Path(directory, program.name.replace(" ", "-"))
            place.mkdir()
            paths[program.name] = starts(program, revision, place)
        times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(int(rounds)):
            for name in paths:
                for when in ("before", "now") if number % 2 else ("now", "before"):
                    times.setdefault((name, when), []).append(start(paths[name][when]))
    columns = f"{'before':>8} {'now':>8} {'ratio':>7} {'99th':>7}"
    print(f"{'milliseconds':14}{'elapsed':<33}processor time\n{'':14}{columns}{columns}")
    for name in paths:
        before, now = zip(*times[name, "before"]), zip(*times[name, "now"])
        print(f"{name:14}" + "".join(figures([*one], [*other]) for one, other in zip(before, now)))


if __name__ == "__main__":
    main()
