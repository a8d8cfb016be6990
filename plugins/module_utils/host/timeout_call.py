# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a file system that may not answer, in a process of its own with a time limit."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from ..language.errors import CollectionError


class TimeoutCallError(CollectionError):
    """Work that has failed, or has not ended in time."""


Answer = dict[str, Any]
"""What a call returns as JSON."""


def call_with_timeout(
    work: Callable[[], Any], seconds: float, expected: tuple[type[Exception], ...] = (OSError,)
) -> Any:
    """The result of `work`, which JSON can write, from a process of its own.

    A process that waits for a lost server of NFS cannot be ended, and one that waits for it waits as long.

    Args:
        work: it imports nothing if it gives up the right to read Python's library, encodings other than UTF-8 included.
        seconds: the time limit.
        expected: exceptions whose message is the whole reason.

    Raises:
        TimeoutCallError: it has failed, or has not ended after `seconds`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _report(writing, work, expected)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        if not select.select([pipe], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)  # and it is not waited for
            raise TimeoutCallError(f"no answer within {seconds:g} s")
        answer = json.load(pipe)
    os.waitpid(child, 0)
    if "failed" in answer:
        raise TimeoutCallError(answer["failed"])
    return answer["result"]


def _report(writing: int, work: Callable[[], Any], expected: tuple[type[Exception], ...]) -> NoReturn:
    """Write what `work` returns as JSON, and end the process."""
    answer: Answer
    try:
        # Ansible waits until nobody has its own output open any more, a process that cannot be ended included.
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        _close_others(writing)
        answer = {"result": work()}
    except expected as error:
        answer = {"failed": str(error)}
    except Exception as error:  # its traceback would be written nowhere
        answer = {"failed": f"{type(error).__name__}: {error}"}
    try:
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _close_others(kept: int) -> None:
    """Close what was open before the fork. A process that cannot be ended would hold the locks of its parent."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != kept:
            with suppress(OSError):  # that of the list itself
                os.close(number)
