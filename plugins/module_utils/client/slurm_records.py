# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values in records of Slurm's commands: numbers, times, states of nodes, GPUs, and the jobs of squeue.

They are the same in Slurm 22.05, 24.11 and 26.05, unless something else is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

IN_SECONDS = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""The environment with which Slurm's commands write times as seconds since the epoch, and lists of array tasks as a
whole (`slurm_make_time_str` in `src/common/parse_time.c`, `SLURM_BITSTR_LEN` in squeue(1))."""

MOST = 10**6
"""More than any list of GPUs has."""

# -- values ----------------------------------------------------------------------------------------------------------

UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def integer(text: str) -> int:
    """A number; 0 for N/A."""
    return int(text) if text.isdecimal() else 0


def listed(text: str) -> list[str]:
    """The entries of a list with commas."""
    return [entry for entry in text.split(",") if entry]


def seconds(text: str) -> int | None:
    """Seconds of `1-02:03:04`, `02:03` or since the epoch; None for another text, such as UNLIMITED or N/A.

    This is how Slurm writes them (`secs2time_str` in `src/common/parse_time.c`); a person's bare number is minutes.
    """
    if text.isdecimal():
        return int(text)
    found = _TIME.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def amount(text: str, unit: str = "") -> float:
    """A number such as `1.50G`; 0 without one (`convert_num_unit2` in `src/common/slurm_protocol_api.c`).

    unit: that of a number without one. Memory is in MiB then.
    """
    found = _AMOUNT.fullmatch(text)
    return float(found[1]) * UNITS[found[2] or unit] if found else 0


def tres(text: str) -> dict[str, str]:
    """Amounts such as `cpu=8,mem=16G,gres/gpu=2` by their names."""
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


@cache
def ranges(text: str) -> tuple[int, ...]:
    """The numbers of `0-1,3`. Raises ValueError if they are too many."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        if first.isdecimal():
            end = int(last if last.isdecimal() else first)
            if end - int(first) >= MOST:
                raise ValueError(f"bad list of numbers: {part} has more than {MOST}")
            numbers.extend(range(int(first), end + 1))
    return tuple(numbers)


# -- nodes -----------------------------------------------------------------------------------------------------------


def states(text: str) -> tuple[str, ...]:
    """The state of a node, and its flags, such as IDLE and DRAIN.

    `scontrol show node` has them as words (`node_state_string_complete` in `src/common/slurm_protocol_defs.c`), others
    have a symbol, of which `*` is NOT_RESPONDING.
    """
    words = re.findall(r"[A-Z_]+", text)
    silent = ["NOT_RESPONDING"] if "*" in text and "NOT_RESPONDING" not in words else []
    return (*words, *silent)


# -- GPUs ------------------------------------------------------------------------------------------------------------


class GresCount(NamedTuple):
    """A number of GPUs, or of shares of GPUs.

    kind: gpu, shard or mps. type: empty if it has none, or Slurm does not say. detail: what Slurm has in brackets.
    """

    kind: str
    type: str
    number: int
    detail: str = ""

    @property
    def indices(self) -> tuple[int, ...] | None:
        """Which GPUs: of `IDX:0-1`, or of `0/2,1/2`, which is the shares of each GPU, used and all. None if unknown."""
        if self.detail.startswith("IDX:"):
            return ranges(self.detail[4:])
        if "/" in self.detail:
            used = (share.partition("/")[0] for share in self.detail.split(","))
            return tuple(index for index, number in enumerate(used) if number not in {"0", "-"})
        return None


_GRES = re.compile(
    r"(?:^|,)(?:gres[:/])?(gpu|shard|mps)(?::(?!\d+[KMG]?(?:[,=(]|$))(\(null\)|[^:=,()]+))?(?::no_consume)?"
    r"(?:[:=](\d+)([KMG]?)|\(CNT:(\d+))?(?:\)|\(([^)]*)\))?(?=,|$)"
)


@cache
def gres(text: str) -> tuple[GresCount, ...]:
    """The GPUs, and shares of them, in what Slurm writes for GRES or TRES.

    These are Gres `gpu:a100:2(S:0-1)`, GresUsed `gpu:a100:2(IDX:0-1)`, a job's `gpu:a100(CNT:2)` and `gres:gpu:2`, and
    TRES `cpu=1,gres/gpu=2,gres/gpu:a100=2`, which have the sum besides the types (`src/interfaces/gres.c`).
    GresUsed of shares is `shard:a100:3(1/2,2/2)`, and before Slurm 24.05 `shard:a100:2(IDX:0-1)`: a number of GPUs.
    """
    return tuple(
        GresCount(kind, "" if name == "(null)" else name, int(number or other or 1) * UNITS[unit], detail)
        for kind, name, number, unit, other, detail in _GRES.findall(text)
    )


def gpus(text: str) -> Counter[str]:
    """The numbers of GPUs by type; the type is empty where Slurm does not say it."""
    found: Counter[str] = Counter()
    for each in gres(text):
        if each.kind == "gpu":
            found[each.type] += each.number
    return found


def shared(used: str) -> Counter[str]:
    """The numbers of GPUs of which jobs have shares, by type, in GresUsed."""
    found: Counter[str] = Counter()
    for each in gres(used):
        if each.kind != "gpu" and each.number:
            found[each.type] += len(each.indices or ())
    return found


# -- jobs ------------------------------------------------------------------------------------------------------------

WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "EXPEDITING"}
"""States of jobs that have not started. squeue shows one flag in place of the state (`job_state_string` in
`src/common/slurm_protocol_defs.c`)."""

FIELD = "\x1f"
"""Between the fields of a job. No field but a text of its user has it."""


def squeue(fields: Sequence[str], end: str, *options: str) -> list[str]:
    """The command for all jobs.

    Args:
        fields: names of fields for the option Format. One with a text of users is the last.
        end: what is behind each job. Where a text of users is shown, it must be one that nobody can guess.
        options: further options.
    """
    # A width of 0 shows a field as it is. Others cut it, and without one it can run into the next.
    form = f"{FIELD},".join(f"{name}:0" for name in fields)
    return ["squeue", "--all", "--noheader", *options, f"--Format={form}{end}"]


def jobs(text: str, fields: Sequence[str], end: str) -> list[dict[str, str]]:
    """The jobs, from the output of `squeue` with the same arguments."""
    records = (record.removeprefix("\n").split(FIELD, len(fields) - 1) for record in text.split(end))
    return [dict(zip(fields, record)) for record in records if len(record) == len(fields)]


def tasks(text: str) -> int:
    """The number of tasks in ArrayTaskID such as `1-9:2,20%4`; 1 for a job without tasks."""
    count = 0
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text.partition("%")[0]):
        count += (int(last or first) - int(first)) // int(step or 1) + 1
    return max(1, count)
