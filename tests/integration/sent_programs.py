# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of hosts as one text, with files and limits of a test: a host need not have the program."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files

METRICS = "programs.metrics.slurm_metrics"


def sent(module: str, constants: dict[str, object]) -> bytes:
    """A program with other values of constants, by their module and name, such as `host.locks.LOCKS`."""
    text, start, rest = program_files.sent(module).rpartition(f"from {program_files.PACKAGE}.")
    lines = ["import importlib\n"]
    for place, value in constants.items():
        where, _dot, name = place.rpartition(".")
        lines.append(f"importlib.import_module('{program_files.PACKAGE}.{where}').{name} = {value!r}\n")
    return "".join([text, *lines, start, rest]).encode()


def sent_metrics(place: str) -> bytes:
    """slurm-metrics whose files and lock are in a directory of a test."""
    files = {f"{METRICS}.SETTINGS": f"{place}/metrics.json", f"{METRICS}.DIRECTORY": place}
    return sent(METRICS, {**files, "host.locks.LOCKS": f"{place}/locks"})
