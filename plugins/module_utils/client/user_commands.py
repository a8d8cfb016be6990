# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands for programs of users, with the users' environment: SLURM_CONF, say, chooses the cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..language.errors import CollectionError
from .commands import NO_ANSWER, NOT_STARTED, run

HIDDEN = "Access/permission denied"
"""Where Slurm shows nothing to the user: PrivateData has `nodes`, say."""


class SlurmError(CollectionError):
    """Slurm does not answer. The text says why, in one line."""


class HiddenError(SlurmError):
    """Slurm does not show it to the user."""


def ask(command: Sequence[str], seconds: float, changing: tuple[str, ...]) -> str:
    """The output of one of Slurm's commands, with times in seconds since the epoch. Raises SlurmError.

    Args:
        command: the command and its arguments. It is of the group of this process, so that Ctrl-C ends it as well.
        seconds: how long it may take.
        changing: beginnings of the names of variables that would change its answer.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    environment["SLURM_TIME_FORMAT"] = "%s"
    answer = run(command, seconds=seconds, environment=environment, own_group=False)
    if answer.status == NO_ANSWER:
        raise SlurmError(f"Slurm has not answered within {seconds:g} s ({command[0]})")
    if answer.status == NOT_STARTED:
        raise SlurmError(f"{command[0]}: {answer.message}")
    if answer.status:
        message = answer.errors.strip().rpartition("\n")[2]
        own = f" (SLURM_CONF={os.environ['SLURM_CONF']})" if "SLURM_CONF" in os.environ else ""
        error = HiddenError if message.endswith(HIDDEN) else SlurmError
        raise error(f"{message or f'{command[0]} ended with {answer.status}'}{own}")
    return answer.output


def not_understood(command: Sequence[str], text: str = "") -> SlurmError:
    """The error for an answer that is none of the command."""
    said = f": {text.strip()[:60] or 'nothing'}" if text else ""
    return SlurmError(f"{command[0]}: an answer that is not understood{said}")
