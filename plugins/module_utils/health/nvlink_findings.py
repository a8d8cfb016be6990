# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of NVLinks, as NVIDIA's driver counts them (`nvidia-smi nvlink --errorcounters`).

NVLink 5 has other counters than the generations before it. Source of the limits: NVIDIA, DCGM, DcgmHealthWatch.cpp and
dcgm_gpu_hardware_limits.h, which calls a single replay or recovery a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from .error_samples import Counters, Sample, added

COMMAND = ("sh", "-c", "nvidia-smi nvlink --errorcounters 2>&1; true")
"""The command whose output parse_links reads. It fails on a GPU without NVLink, which is no error."""

EVENTS: Mapping[str, int] = {
    "Replay Errors": 3,
    "Recovery Errors": 3,
    "Link recovery successful events": 3,
    "Link recovery failed events": 1,
}
"""Errors of a link in an hour that are a fault. A fabric that starts again causes one recovery of each link."""
CRC = "CRC Errors"
CRC_SECOND = 100
"""CRC errors of a link in a second that are a fault. NVLink sends such data again."""
LEAST_SECONDS = 60.0
"""A rate is that of a minute at least, since a burst is no fault."""

_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_COUNTER = re.compile(r"\s*Link (\d+): (.+?): (\d+)\s*")


def parse_links(text: str) -> Mapping[str, Counters]:
    """The errors of each GPU by its UUID. A counter is called `link 3 Replay Errors`, and is left out while it is 0."""
    found: dict[str, dict[str, int]] = {}
    counters: dict[str, int] = {}
    for line in text.split("\n"):
        if gpu := _GPU.match(line):
            counters = found.setdefault(gpu[1], {})
        elif (each := _COUNTER.fullmatch(line)) and each[2] in (*EVENTS, CRC) and int(each[3]):
            counters[f"link {each[1]} {each[2]}"] = int(each[3])
    return found


def link_errors(samples: Sequence[Sample]) -> Iterator[str]:
    """What is wrong with the links of a GPU, by its samples."""
    for counter in sorted({name for sample in samples for name in sample.counters}, key=_place):
        link, name = _place(counter)
        count = added(samples, counter)
        is_fault = _most_in_a_second(samples, counter) >= CRC_SECOND if name == CRC else count >= EVENTS[name]
        if is_fault:
            yield f"link {link}: {count} {name}"


def _place(counter: str) -> tuple[int, str]:
    """Link and name of a counter."""
    _word, link, name = counter.split(" ", 2)
    return int(link), name


def _most_in_a_second(samples: Sequence[Sample], counter: str) -> float:
    """The largest rate between two samples."""
    pairs = zip(samples, samples[1:])
    return max((added(pair, counter) / max(LEAST_SECONDS, pair[1].when - pair[0].when) for pair in pairs), default=0.0)
