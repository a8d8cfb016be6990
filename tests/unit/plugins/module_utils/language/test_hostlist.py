# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostlists: known cases, properties, and Slurm's own scontrol as the reference."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import MAX_HOSTS, count, expand, fold
from hypothesis import given
from hypothesis import strategies as st

FOLDED = [
    ([], ""),
    (["head"], "head"),
    (["n1", "n2", "n3"], "n[1-3]"),
    (["n1", "n001", "n2", "n002"], "n[1,001,2,002]"),
    (["n09", "n10", "n11"], "n[09-11]"),
    (["n99", "n100"], "n[99-100]"),
    (["n099", "n100"], "n[099-100]"),
    (["n0", "n00"], "n[0,00]"),
    (["n1", "n1", "n2"], "n[1,1-2]"),
    (["n3", "n1", "n2"], "n[3,1-2]"),
    (["a", "b", "a"], "a,b,a"),
    (["a", "a1", "a2"], "a,a[1-2]"),
    (["r1c01", "r1c02", "r2c01", "r2c02"], "r1c[01-02],r2c[01-02]"),
    (["001", "002"], "[001-002]"),
    (["10.182.0.2", "10.182.0.3", "10.182.1.1"], "10.182.0.[2-3],10.182.1.1"),
]

EXPANDED = [
    ("", []),
    (" n1, n2\tn3\n", ["n1", "n2", "n3"]),
    ("n[1-2,1]", ["n1", "n2", "n1"]),
    ("n[8-011]", ["n8", "n9", "n10", "n11"]),
    ("r[1-2]c[01-02]", ["r1c01", "r1c02", "r2c01", "r2c02"]),
    ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
    # Slurm's own order for three brackets.
    ("a[1-2]b[1-2]c[1-2]", ["a1b1c1", "a1b1c2", "a2b1c1", "a2b1c2", "a1b2c1", "a1b2c2", "a2b2c1", "a2b2c2"]),
    # From Slurm 23.02 on.
    ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ("10.182.0.[2-3]", ["10.182.0.2", "10.182.0.3"]),
    ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
]

BAD = {
    "n[1-": "bad hostlist 'n[1-': its brackets do not match",
    "n1]": "bad hostlist 'n1]': its brackets do not match",
    "n[[1]]": "bad hostlist 'n[[1]]': its brackets do not match",
    "n[3-1]": "bad hostlist 'n[3-1]': the range '3-1' ends before it starts",
    "n[a-b]": "bad hostlist 'n[a-b]': 'a-b' is neither a number nor a range like 01-16",
    "n[]": "bad hostlist 'n[]': '' is neither a number nor a range like 01-16",
    "n[1,]": "bad hostlist 'n[1,]': '' is neither a number nor a range like 01-16",
    "n[-1]": "bad hostlist 'n[-1]': '-1' is neither a number nor a range like 01-16",
    "n[1-65537]": "bad hostlist 'n[1-65537]': the range '1-65537' has more than 65536 hosts",
}


@pytest.mark.parametrize(("names", "hostlist"), FOLDED)
def test_fold(names: list[str], hostlist: str) -> None:
    assert fold(names) == hostlist
    assert expand(hostlist) == names


@pytest.mark.parametrize(("hostlist", "names"), EXPANDED)
def test_expand(hostlist: str, names: list[str]) -> None:
    assert expand(hostlist) == names
    assert count(hostlist) == len(names)


@pytest.mark.parametrize(("hostlist", "message"), BAD.items())
def test_bad_hostlist(hostlist: str, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        expand(hostlist)
    assert str(error.value) == message


HUGE = {
    "n[1-60000]x[1-60000]": f"allowed: up to {MAX_HOSTS} hosts",
    f"n[{','.join(['1-65000'] * 2000)}]": f"allowed: up to {MAX_HOSTS} hosts",
    "n[1-65000],m[1-65000]": f"allowed: up to {MAX_HOSTS} hosts",
    "n" + "[1-2]" * 200: f"allowed: up to {MAX_HOSTS} hosts",
    f"n[{'0' * 5000}1-65000]": "allowed: names of up to 1024 characters",
    "n" * 100_000: "allowed: names of up to 1024 characters",
    f"n[1-{'9' * 100_000}]": f"has more than {MAX_HOSTS} hosts",
    "n[" * 100_000: "its brackets do not match",
    f"n[{'a' * 100_000}]": "is neither a number nor a range like 01-16",
}


@pytest.mark.parametrize(("hostlist", "message"), HUGE.items(), ids=range(len(HUGE)))
def test_huge_hostlist(hostlist: str, message: str) -> None:
    """Names are counted before they are expanded, and the message is short."""
    start = time.process_time()
    for function in (count, expand):
        with pytest.raises(ValueError, match=message) as error:
            function(hostlist)
        assert len(str(error.value)) < 300
    assert time.process_time() - start < 2


def test_the_longest_list_has_as_many_hosts_as_a_cluster() -> None:
    assert count("n[1-65536]") == len(expand("n[1-65536]")) == MAX_HOSTS


@pytest.mark.parametrize("name", ["", "n 1", "n,1", "n[1]"])
def test_bad_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        fold(["n1", name])


def test_ten_thousand_names_take_milliseconds() -> None:
    names = [f"rack{i // 100}-gpu{i % 100:02d}" for i in range(10_000)]
    start = time.process_time()
    assert expand(fold(names)) == names
    assert time.process_time() - start < 0.1


# Few letters and digits, so that prefixes are often the same and numbers often follow each other.
NAMES = st.lists(
    st.one_of(
        st.builds("n{:0{}d}".format, st.integers(0, 12), st.integers(1, 3)),
        st.builds("r{}c{:02d}".format, st.integers(1, 2), st.integers(8, 11)),
        st.from_regex(r"[ab0-9.-]{1,5}", fullmatch=True),
    ),
    max_size=30,
)


@given(NAMES)
def test_expand_is_the_inverse_of_fold(names: list[str]) -> None:
    assert expand(fold(names)) == names


@given(NAMES)
def test_fold_is_canonical(names: list[str]) -> None:
    assert fold(expand(fold(names))) == fold(names)


CASES = 2500


def _some_names(rng: random.Random) -> list[str]:
    """Names that often fold: runs of numbers with a padding, with steps back, repetitions and changes of prefix."""
    names = []
    for _run in range(rng.randint(1, 6)):
        prefix = rng.choice(["n", "n", "gpu-", "r1c", "r01c", "10.1.0.", "A", "x_"])
        width, start = rng.randint(1, 4), rng.choice([0, 1, 8, 9, 98, 99, 998, rng.randint(0, 10**6)])
        names += [f"{prefix}{start + i:0{width}d}" for i in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            names += rng.choice([["head"], names[-1:], names[:2], ["n-ib"], ["n1a"]])
    return names


def _some_hostlist(rng: random.Random) -> str:
    """A hostlist of up to four terms with up to three brackets."""
    terms = []
    for _term in range(rng.randint(1, 4)):
        term = rng.choice(["n", "r", "gpu-", "10.1.", ""])
        for _bracket in range(rng.randint(0, 3)):
            ranges = []
            for _range in range(rng.randint(1, 3)):
                width, start = rng.randint(1, 3), rng.choice([0, 1, 9, 98, rng.randint(0, 2000)])
                end = f"{start + rng.randint(0, 4):0{rng.randint(1, 3)}d}"
                ranges.append(f"{start:0{width}d}" + rng.choice(["", f"-{end}"]))
            term += f"[{','.join(ranges)}]" + rng.choice(["c", "-", ""])
        # A number or letter behind the last bracket is refused by Slurm before 23.02.
        terms.append(term.rstrip("c-") or "head")
    return ",".join(terms)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A function that lets one scontrol answer many `show ...` commands, each with its list of lines."""
    program = shutil.which("scontrol")
    if not program:
        pytest.fail("scontrol is not installed: apt-get install slurm-client (make setup does it)")
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=test\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")

    def answers(commands: list[str]) -> list[list[str]]:
        result = subprocess.run(
            [program],
            input="".join(f"{command}\n" for command in commands),
            # Without these, readline wraps the commands that it repeats.
            env={**os.environ, "SLURM_CONF": str(conf), "TERM": "dumb", "COLUMNS": "9999"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        # scontrol repeats each command behind its prompt.
        parts = result.stdout.split("scontrol: ")[1:]
        assert len(parts) >= len(commands), result.stderr
        return [part.splitlines()[1:] for part in parts[: len(commands)]]

    return answers


def test_fold_agrees_with_scontrol(scontrol) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(2203)
    cases = [_some_names(rng) for _case in range(CASES)]
    answers = scontrol([f"show hostlist {','.join(names)}" for names in cases])
    assert [fold(names) for names in cases] == [answer[0] for answer in answers]


def test_expand_agrees_with_scontrol(scontrol) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(2411)
    cases = [_some_hostlist(rng) for _case in range(CASES)]
    answers = scontrol([f"show hostnames {hostlist}" for hostlist in cases])
    assert [expand(hostlist) for hostlist in cases] == answers


def test_scontrol_refuses_the_same(scontrol) -> None:  # type: ignore[no-untyped-def]
    # Slurm lets brackets that do not match pass, and makes wrong names of them.
    cases = [hostlist for hostlist, message in BAD.items() if "brackets" not in message]
    assert scontrol([f"show hostnames {hostlist}" for hostlist in cases]) == [[]] * len(cases)
