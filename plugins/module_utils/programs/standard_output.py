# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The output of commands of users, which they may close or send anywhere."""

from __future__ import annotations

import os
import sys


def write(text: str) -> str:
    """Print a text. Returns why that was not possible, or an empty text."""
    if sys.stdout is None:
        return "cannot write: the output is closed"
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes when it ends
        return f"cannot write: {error.strerror}"
    return ""
