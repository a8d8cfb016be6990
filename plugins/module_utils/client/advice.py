# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice in Slurm's messages that loses jobs or data, which no message of this collection repeats."""

from __future__ import annotations

import re

LEFT_OUT = "[Slurm's advice is left out: it loses jobs]"

_ADVICE = re.compile(
    r"start with '-i' to ignore this(?: error and kill the afflicted jobs)?"
    r"(?:\.? *Warning: using -i will lose the data that can't be recovered\.?)?"
    r"|Remove \S+ to override this safety check[^.\n]*(?:\([^)\n]*\)\.?)?",
    re.IGNORECASE,
)
"""Messages of src/slurmctld (`ignore_state_errors`) and `_set_cluster_name` in src/slurmctld/controller.c, in releases
22.05 to 26.05."""


def without_harmful_advice(text: str) -> str:
    """A text without such advice. With -i, slurmctld ends all jobs of a state that it cannot read."""
    return _ADVICE.sub(LEFT_OUT, text) if "-i'" in text or "safety check" in text else text
