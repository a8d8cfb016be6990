# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints
"""Sends what a job of slurm-repair has measured to the controllers, which cannot read files of the node."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ...repair.report_transport import MEASURED, ReportError, seal, send

LARGEST = 500_000
"""Bytes that are sent. A result of level quick has some thousands."""


def send_result(words: Sequence[str]) -> int:
    """Send standard input. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="slurm-accept send", description="Send a result to the controllers.")
    parser.add_argument("--key", required=True, help="tells measurements of a node apart")
    parser.add_argument("--controllers", required=True, help="names, with commas between")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--reader", required=True, help="user of the controllers who can open it")
    options = parser.parse_args(words)
    text = sys.stdin.buffer.read(LARGEST).decode(errors="replace")
    head = f"{os.environ['SLURMD_NODENAME']} {MEASURED} {options.key} {os.environ['SLURM_JOB_ID']}"
    try:
        errors = send(seal(f"{head}\n{text}", options.reader), options.controllers.split(","), options.port).errors
    except ReportError as error:
        errors = [str(error)]
    print(*errors, sep="\n", file=sys.stderr)
    return 1 if errors else 0
