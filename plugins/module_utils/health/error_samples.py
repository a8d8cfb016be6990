# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of errors over the last hour. They grow since a device was reset, and may be reset meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

WINDOW = 3600
"""Seconds in which errors are counted."""
SAMPLES = 64
"""Most samples of a device: the checks may be started more often than slurmd does."""

Counters = Mapping[str, int]
"""Values by the name of the counter. One that is not there is 0."""


class Sample(NamedTuple):
    """The counters of a device at a time, in seconds since 1970."""

    when: float
    counters: Counters


Samples = Mapping[str, Sequence[Sample]]
"""The samples of this boot by device, the oldest first."""


def with_samples(samples: Samples, counters: Mapping[str, Counters], now: float) -> dict[str, list[Sample]]:
    """The samples of the last hour and those of now. counters: of the devices that were read."""
    kept = {name: [each for each in before if 0 <= now - each.when <= WINDOW] for name, before in samples.items()}
    for name, values in counters.items():
        kept.setdefault(name, []).append(Sample(now, values))
    return {name: own[-SAMPLES:] for name, own in kept.items() if own}


def after(samples: Sequence[Sample], when: float) -> list[Sample]:
    """The samples from this time on."""
    return [each for each in samples if each.when >= when]


def added(samples: Sequence[Sample], counter: str) -> int:
    """What a counter has grown by. One that is smaller than before was reset, or has begun again at 0."""
    return sum(max(0, value(now, counter) - value(before, counter)) for before, now in zip(samples, samples[1:]))


def value(sample: Sample, counter: str) -> int:
    """The value of a counter in a sample."""
    return sample.counters.get(counter, 0)
