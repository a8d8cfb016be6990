# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files that Python would read without an end, or refuse without saying where."""

from __future__ import annotations

import time

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import ModelError
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import DEPTH, VALUES, located, read

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 30))
CHAIN = "a0: &a0 []\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))

REFUSED = {
    "a: 2026-13-45": "line 1: a: found '2026-13-45', which YAML takes for a date and cannot read: write it in quotes",
    "a:\n- 0b_": "line 2: a[0]: found '0b_', which YAML takes for a number and cannot read: write it in quotes",
    "{a: {0x_: 1}}": "line 1: a.0x_: found '0x_', which YAML takes for a number and cannot read: write it in quotes",
    **{
        f"a: {text}": f"line 1: a: found '{text}', allowed: a number, or a text in quotes"
        for text in (".inf", "-.inf", ".NaN")
    },
    "a: !!bool x": "line 1: a: found 'x', which YAML takes for a boolean and cannot read: write it in quotes",
    "a: !!timestamp x": "line 1: a: found 'x', which YAML takes for a date and cannot read: write it in quotes",
    "a: =": "line 1: a: found '=' with the tag 'tag:yaml.org,2002:value', allowed: no tag; write a text in quotes",
    "a: !x 1": "line 1: a: found '1' with the tag '!x', allowed: no tag; write a text in quotes",
    "a: !!set {b}": "line 1: a: found the tag 'tag:yaml.org,2002:set', allowed: no tag",
    "\n{[a]: b}": "line 2: found a list or a mapping as key, allowed: a text",
    "a: 1\nb: '\x00'": "line 2: cannot be read as YAML: found the character #x00: control characters are not allowed",
    "&a {b: *a}": "line 1: b: is in itself by an alias",
    "a: &a {<<: *a}": "line 1: a.<<: is in itself by an alias",
    "&a [[*a]]": "line 1: [0][0]: is in itself by an alias",
    "a: 0x" + "f" * 5000: f"line 1: a: found '0x{'f' * 74}..., allowed: numbers of up to 100 digits",
    "a:\n  " + "[" * 5000 + "]" * 5000: "line 2: values are nested too deep, allowed: up to 32 levels",
    LAUGHS: f"line 6: a5: it is 597871 values with those of its aliases, allowed: up to {VALUES}",
    MERGES: f"line 7: a6.<<: it is 1195741 values with those of its aliases, allowed: up to {VALUES}",
    CHAIN: f"line {DEPTH + 2}: a{DEPTH + 1}: values are nested too deep by aliases, allowed: up to 32 levels",
    "[1, 2": "line 2: cannot be read as YAML: did not find expected ',' or ']'",
    "a:\n\tb: 1": "line 2: cannot be read as YAML: found character that cannot start any token"
    "; this line is indented with a tab: write spaces",
    "a: {b: 1}\tc": "line 1: cannot be read as YAML: did not find expected key; this line has a tab: write a space",
    "{a: \u201cb\u201d, c: \u201cd, e\u201d: f: g}": "line 1: cannot be read as YAML: did not find expected ',' or '}'"
    "; this line has typographic quotes: write \" or '",
    "a:1\nb: 2": "line 2: cannot be read as YAML: mapping values are not allowed in this context"
    "; line 1 has no space after the colon",
    "a:\n    b: 1\n   c: 2": "line 3: cannot be read as YAML: did not find expected key"
    "; is line 2 or 3 indented differently from its neighbours?",
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.items(), ids=range(len(REFUSED)))
def test_refused(text: str, problem: str) -> None:
    start = time.process_time()
    with pytest.raises(ModelError) as error:
        read("my.cluster.yml", text.encode())
    assert error.value.problems == [f"my.cluster.yml: {problem}"]
    assert time.process_time() - start < 2


def test_a_problem_has_the_line_of_its_key_or_of_what_would_have_it() -> None:
    text = b"a: 1\nb:\n  - c: 1\n  - d: 2\nlong name: {x: 1}\n"
    problems = [f"f.yml: {key}: missing" for key in ("a", "b[1].d", "b[1].e", "long name.y", "z")]
    assert located([*problems, "g.yml: a: wrong"], {"f.yml": text}) == [
        "f.yml: line 1: a: missing",
        "f.yml: line 4: b[1].d: missing",
        "f.yml: line 4: b[1].e: missing",
        "f.yml: line 5: long name.y: missing",
        "f.yml: z: missing",
        "g.yml: a: wrong",
    ]


@pytest.mark.parametrize(("above", "start"), [("accounting:\n", "accounting: "), ("", "")])
def test_a_problem_of_the_policy_has_the_line_of_its_entry(above: str, start: str) -> None:
    policy = [
        "qos:",
        "  - normal",
        "accounts:",
        "  - {name: a}",
        "  - Priority: 1",
        "    name: B",
        "    accounts: [c]",
        "users:",
        "  - {name: a, accounts: [d]}",
    ]
    text = above + "\n".join(f"  {line}" if above else line for line in policy)
    entries = {"qos normal": 2, "account a": 4, "account b": 5, "account c": 7, "user a in d": 9}
    found = located([f"f.yml: {start}{entry}: wrong" for entry in entries], {"f.yml": text.encode()})
    more = bool(above)
    assert found == [f"f.yml: line {line + more}: {start}{entry}: wrong" for entry, line in entries.items()]
    (other,) = located([f"f.yml: {start}account d: wrong"], {"f.yml": text.encode()})
    assert other == (f"f.yml: line 1: {start}account d: wrong" if above else "f.yml: account d: wrong")


@pytest.mark.parametrize("text", [LAUGHS, CHAIN[:1000], "&a [*a]", "a: [1"])
def test_lines_of_hostile_files_are_found_at_once(text: str) -> None:
    start = time.process_time()
    located(["f.yml: a1[3]: wrong"], {"f.yml": text.encode()})
    assert time.process_time() - start < 1


OTHERS = {
    "010": 8,
    "007": 7,
    "0x10": 16,
    "0b11": 3,
    "1_000": 1000,
    "+5": 5,
    "1.10": 1.1,
    "1.0e+3": 1000.0,
    ".5": 0.5,
}


@pytest.mark.parametrize(("text", "number"), OTHERS.items())
def test_numbers_that_are_not_what_is_written(text: str, number: float) -> None:
    what = f"found {text}, which YAML reads as the number {number}: write {number}, or a text in quotes"
    for key, content in (("a", f"a: {text}"), ("b[1]", f"b: [1, {text}]"), (text, f"{text}: 1")):
        assert read("f", content.encode()).problems == [(key, what)]
    assert read("f", f"a: '{text}'".encode()).problems == []


@pytest.mark.parametrize(
    ("text", "read_as"),
    {
        "OFF": "false: write false, or a text in quotes",
        "on": "true: write true, or a text in quotes",
        "NULL": "null: write null, or a text in quotes",
        "Null": "null: write null, or a text in quotes",
        "2026-1-2 03:04:05": "the date 2026-01-02T03:04:05: write it in quotes",
        "2026-01-02T03:04:05Z": "the date 2026-01-02T03:04:05+00:00: write it in quotes",
        "12:00:00": "a number to the base 60: write it in quotes",
        "1:00.50": "a number to the base 60: write it in quotes",
    }.items(),
)
def test_values_that_are_not_what_is_written(text: str, read_as: str) -> None:
    problems = [("a", f"found {text}, which YAML reads as {read_as}")]
    assert read("f", f"a: {text}".encode()).problems == problems
    assert read("f", f"a: '{text}'".encode()).problems == []


@pytest.mark.parametrize("text", ["0", "8", "-1", "1.5", "0.5", "1.0", "08", "1e3", "yes", "2026-01-02", "24.11.5"])
def test_numbers_that_are_what_is_written(text: str) -> None:
    assert read("f", f"a: {text}".encode()).problems == []


@pytest.mark.parametrize(
    "text", ["true", "False", "NO", "", "~", "null", "2026-01-02T03:04:05", "2026-01-02 03:04:05", "y", "off1"]
)
def test_values_that_are_what_is_written(text: str) -> None:
    assert read("f", f"a: {text}".encode()).problems == []


@pytest.mark.parametrize(("text", "read_as"), {"no": "false", "true": "true", "OFF": "false", "null": "null"}.items())
def test_keys_are_texts(text: str, read_as: str) -> None:
    what = f"found {text}, which YAML reads as {read_as}: write it in quotes"
    assert read("f", f"a: {{{text}: 1}}".encode()).problems == [(f"a.{text}", what)]


def test_all_values_that_yaml_refuses_are_named() -> None:
    with pytest.raises(ModelError) as error:
        read("f", b"a: 2026-13-45\nb: [1, !!int x]\n")
    assert [problem.partition(": found")[0] for problem in error.value.problems] == ["f: line 1: a", "f: line 2: b[1]"]


def test_aliases_and_merge_keys_are_read() -> None:
    document = read("f", b"a: &a {b: 1, c: [1]}\nd: {<<: *a, e: *a}\nf: 2026-01-02\n")
    assert document.data["d"] == {"b": 1, "c": [1], "e": {"b": 1, "c": [1]}}
    assert document.problems == []
