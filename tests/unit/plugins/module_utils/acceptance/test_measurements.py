# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results that nodes print: bounds, and that a node speaks of its own job alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import measurements
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import (
    Asked,
    Reading,
    branch,
    read_lines,
)

ASKED = Asked(17, {"n1": "h100", "n2": "h100"})
VALUE: dict[str, Any] = {
    "test": "stream",
    "value": 480.5,
    "unit": "GB/s",
    "nodes": ["n1"],
    "gpu": None,
    "size": None,
    "text": "",
    "hardware": "h100",
    "driver": "580.159.04",
    "image": "",
    "job": 17,
    "time": 1795828937.5,
}
CHECK = {**VALUE, "test": "gpu_ecc", "unit": "ok", "gpu": 3, "value": 0, "text": "2 uncorrected errors"}
PAIR = {**VALUE, "test": "all_reduce_pair", "nodes": ["n2", "n1"], "size": 8 * 2**30}


def read(*lines: dict[str, Any] | str) -> Reading:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return read_lines(text, ASKED, "job 17")


def test_values_and_checks_are_read() -> None:
    reading = read("srun: some words of a program", VALUE, CHECK, PAIR, "")
    assert reading.errors == []
    value, check, pair = reading.values
    assert (value.value, value.nodes, value.gpu, value.driver) == (480.5, ("n1",), None, "580.159.04")
    assert (check.value, check.gpu, check.text) == (0.0, 3, "2 uncorrected errors")
    assert (pair.nodes, pair.size) == (("n1", "n2"), 8 * 2**30)


WRONG = [
    ({"test": "strem"}, "test: found 'strem', allowed: a test of the catalog, such as stream"),
    ({"test": ["stream"]}, "test: found ['stream'], allowed: a test of the catalog"),
    ({"value": 0}, "value: found 0, allowed: a number above 0, up to 1e+12"),
    ({"value": -1.0}, "value: found -1.0, allowed: a number above 0, up to 1e+12"),
    ({"value": True}, "value: found True, allowed: a number above 0, up to 1e+12"),
    ({"value": "480"}, "value: found '480', allowed: a number above 0, up to 1e+12"),
    ({"value": 1e300}, "value: found 1e+300, allowed: a number above 0, up to 1e+12"),
    ({"value": 10**400}, "value: found 1000"),
    ({"unit": "GB"}, "unit: found 'GB', allowed here: 'GB/s'"),
    ({"nodes": ["n3"]}, "nodes: found 'n3', allowed: the nodes of this job"),
    ({"nodes": "n1"}, "nodes: found 'n1', allowed: a list of names"),
    ({"nodes": []}, "nodes: found [], allowed: a list of names"),
    ({"nodes": ["n1", "n2"]}, "nodes: found ['n1', 'n2'], allowed for stream: 1, each once"),
    ({"gpu": 0}, "gpu: found 0, allowed for stream: null"),
    ({"size": 1.5}, "size: found 1.5, allowed: a whole number from 1 to 1125899906842624, or null"),
    ({"size": 0}, "size: found 0, allowed: a whole number from 1"),
    ({"text": "x" * 501}, "text: found 'xxx"),
    ({"hardware": "h200"}, "hardware: found 'h200', allowed here: 'h100'"),
    ({"driver": "580; rm"}, "driver: found '580; rm', allowed: a release such as 580.159.04"),
    ({"image": "a b"}, "image: found 'a b', allowed: the name of an image"),
    ({"job": 18}, "job: found 18, allowed: 17, the job that printed it"),
    ({"time": 0}, "time: found 0, allowed: a number above 0"),
    ({"more": 1}, "found the field 'more', allowed: test, value"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[str(each)[:40] for each, _message in WRONG])
def test_a_wrong_line_gives_one_error_and_no_value(change: dict[str, Any], message: str) -> None:
    reading = read({**VALUE, **change}, VALUE)
    assert len(reading.values) == 1
    (error,) = reading.errors
    assert error.startswith(f"job 17: line 1: {message}")
    assert len(error) < 400


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (json.dumps(VALUE).replace("480.5", "NaN"), "found NaN, allowed: a number"),
        (json.dumps(VALUE).replace("480.5", "-Infinity"), "found -Infinity, allowed: a number"),
        (json.dumps(VALUE).replace("480.5", "1e999"), "value: found inf, allowed: a number above 0"),
        (json.dumps(VALUE).replace('"gpu"', '"value": 1, "gpu"'), "a field is given twice"),
        ('{"test": ', "found '{\"test\": ', allowed: an object in JSON"),
        ('{"test": ' + "[" * 60_000, 'found \'{"test": [[['),
        ("{" + "x" * 70_000, "found 70001 characters, allowed: up to 65536"),
        ('{"test": "stream"}', "value: is missing"),
    ],
)
def test_what_is_no_result_gives_an_error(line: str, message: str) -> None:
    reading = read(line)
    assert reading.values == []
    (error,) = reading.errors
    assert error.startswith(f"job 17: line 1: {message}")


def test_a_check_is_right_or_wrong() -> None:
    (error,) = read({**CHECK, "value": 0.5}).errors
    assert error == "job 17: line 1: value: found 0.5, allowed for gpu_ecc: 1 if it is right, or else 0"
    (error,) = read({**CHECK, "gpu": None}).errors
    assert error == "job 17: line 1: gpu: found null, allowed for gpu_ecc: the index of a GPU"


def test_a_pair_is_two_nodes() -> None:
    for nodes in (["n1"], ["n1", "n1"]):
        (error,) = read({**PAIR, "nodes": nodes}).errors
        assert "allowed for all_reduce_pair: 2, each once" in error


def test_a_pair_of_two_machine_types_has_both() -> None:
    asked = Asked(17, {"n1": "h200", "n2": "h100"})
    reading = read_lines(json.dumps({**PAIR, "hardware": "h100+h200"}), asked, "job 17")
    assert [value.hardware for value in reading.values] == ["h100+h200"]


def test_a_text_is_one_line_that_a_terminal_can_show() -> None:
    (value,) = read({**CHECK, "text": "ECC\n\x1b[2Jerrors"}).values
    assert value.text == "ECC \\x1b[2Jerrors"


def test_errors_and_results_of_a_job_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(*[{**VALUE, "value": 0}] * 30)
    assert len(reading.errors) == measurements.MOST_ERRORS + 1
    assert reading.errors[-1] == "job 17: and 10 more lines are wrong"
    monkeypatch.setattr(measurements, "MOST_LINES", 5)
    reading = read(*[VALUE] * 7)
    assert len(reading.values) == 5
    assert reading.errors == ["job 17: line 6: more than 5 results, the others are left out"]


def test_results_are_compared_within_a_branch_of_the_driver() -> None:
    assert [branch(driver) for driver in ("580.159.04", "580", "")] == ["580", "580", ""]
