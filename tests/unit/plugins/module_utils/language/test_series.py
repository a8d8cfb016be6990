# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series in Prometheus' text format."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.gpucluster.slurm.plugins.module_utils.language.series import Series
from hypothesis import given
from hypothesis import strategies as st


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_each_text_can_be_a_label(values: Mapping[str, float]) -> None:
    """Read back as Prometheus reads it."""
    series = Series()
    for text, value in values.items():
        series.add("x", value, label=text)
    lines = series.text().removesuffix("\n").split("\n")[1:] if values else []
    found = {}
    for line in lines:
        match = re.fullmatch(r'x\{label="((?:[^"\\\n]|\\[\\"n])*)"\} (\S+)', line)
        assert match
        unescaped = re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else str(each[1]), match[1])
        found[unescaped] = float(match[2])
    assert found == dict(values)


def test_meanings_and_kinds() -> None:
    series = Series({"jobs_total": "All jobs."})
    series.add("jobs_total", 3)
    series.add("share", 0.5, job="7")
    series.add("unknown", None)
    series.add("share", True, job="8")
    assert series.text().splitlines() == [
        "# HELP jobs_total All jobs.",
        "# TYPE jobs_total counter",
        "jobs_total 3",
        "# TYPE share gauge",
        'share{job="7"} 0.5',
        'share{job="8"} 1',
    ]
