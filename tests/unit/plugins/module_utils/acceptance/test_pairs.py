# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schedule of pairs, and whose fault a slow pair is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.pairs import (
    Blame,
    Pair,
    PairVerdict,
    blame,
    pair_of,
    schedule,
)

Truth = Callable[[str, str], bool]
"""Whether a pair is slow."""


def names(number: int) -> list[str]:
    return [f"n{each:02d}" for each in range(number)]


def settled(
    nodes: Sequence[str],
    is_slow: Truth,
    switches: Mapping[str, str] | None = None,
    majority: bool = True,
    rounds: int = 3,
) -> Blame:
    """What is known after the first rounds, and all that they ask for."""
    measured = [PairVerdict(pair, is_slow(*pair)) for each in schedule(nodes, rounds, 7) for pair in each]
    for _ in range(12):
        found = blame(measured, switches, majority)
        if not found.following:
            return found
        busy = [name for pair in found.following for name in pair]
        assert len(busy) == len({*busy})
        measured += [PairVerdict(pair, is_slow(*pair)) for pair in found.following]
    raise AssertionError(f"no end: {found}")


def bad(*guilty: str) -> Truth:
    return lambda one, other: bool({one, other} & {*guilty})


def between(*behind: str) -> Truth:
    return lambda one, other: (one in behind) != (other in behind)


# -- the schedule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 4, 7, 8, 33])
def test_all_rounds_together_have_each_pair_once(number: int) -> None:
    rounds = schedule(names(number), 1000, 1)
    assert sorted(pair for each in rounds for pair in each) == sorted(combinations(names(number), 2))
    for pairs in rounds:
        met = [name for pair in pairs for name in pair]
        assert len(met) == len({*met}) >= number - 1


def test_of_an_odd_number_another_one_rests_each_time() -> None:
    rounds = schedule(names(7), 7, 1)
    rest = [({*names(7)} - {name for pair in pairs for name in pair}) for pairs in rounds]
    assert sorted(rest, key=sorted) == [{name} for name in names(7)]


def test_the_same_seed_gives_the_same_rounds_whatever_the_order_of_names() -> None:
    assert schedule(names(9), 3, 5) == schedule(names(9)[::-1], 3, 5)
    assert schedule(names(9), 3, 5) != schedule(names(9), 3, 6)
    assert len(schedule(names(9), 3, 5)) == 3


def test_few_nodes_have_all_their_pairs() -> None:
    """In three rounds, a good one of eight could have met the three bad ones alone."""
    assert [len(schedule(names(number), 3, 5)) for number in (2, 4, 7, 8, 9)] == [1, 3, 7, 7, 3]


def test_one_node_has_no_partner() -> None:
    assert schedule(["n1"], 3, 1) == schedule([], 3, 1) == []


def test_no_rounds_have_no_pairs() -> None:
    """Level quick measures none, also of few nodes."""
    assert schedule(names(4), 0, 1) == schedule(names(9), 0, 1) == []


# -- whose fault it is -----------------------------------------------------------------------------------------------


def test_fast_pairs_are_nobodys_fault() -> None:
    assert settled(names(8), bad()) == Blame()


@pytest.mark.parametrize("number", [3, 4, 5, 8, 31, 64])
def test_a_slow_node_is_named_and_none_of_its_partners(number: int) -> None:
    found = settled(names(number), bad("n01"))
    assert [*found.nodes] == ["n01"]
    assert (found.paths, found.groups, found.suspects) == ([], [], [])
    assert len(found.nodes["n01"]) >= min(3, number - 1)


@pytest.mark.parametrize("guilty", [("n00", "n01"), ("n02", "n05", "n06")])
def test_several_slow_nodes_are_named_although_they_met_each_other(guilty: tuple[str, ...]) -> None:
    found = settled(names(9), bad(*guilty))
    assert sorted(found.nodes) == [*guilty]
    assert found.groups == []


def test_nobody_is_named_after_the_first_slow_pair() -> None:
    found = blame([PairVerdict(("n1", "n2"), True), PairVerdict(("n3", "n4"), False), PairVerdict(("n5", "n6"), False)])
    assert (found.nodes, found.paths, found.groups) == ({}, [], [])


def test_half_of_the_nodes_cannot_be_judged_by_the_other_half() -> None:
    """Two that are faster than all others would else make these guilty."""
    found = settled(names(6), bad("n00", "n01", "n02"))
    assert found.nodes == {}
    assert found.notes == ["3 of 6 nodes are slow in all pairs: too many to say who is right"]


def test_with_a_floor_two_good_nodes_suffice() -> None:
    found = settled(names(6), bad("n00", "n01", "n02", "n03"), majority=False, rounds=5)
    assert sorted(found.nodes) == ["n00", "n01", "n02", "n03"]


def test_if_every_pair_is_slow_none_shows_whose_fault_it_is() -> None:
    found = settled(names(4), bad("n00", "n01", "n02"))
    assert found.nodes == {}
    assert found.notes == ["every pair is slow, so none of them shows whose fault it is"]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("number", [33, 64])
def test_nodes_behind_a_slow_switch_are_a_group_and_none_is_named(size: int, number: int) -> None:
    behind = names(number)[5 : 5 + size]
    found = settled(names(number), between(*behind))
    assert found.nodes == {}
    assert [group.nodes for group in found.groups] == [tuple(behind)]
    assert [group.switches for group in found.groups] == [()]


def test_the_slow_switch_is_named_if_the_topology_is_known() -> None:
    switches = {name: f"leaf{number // 4}" for number, name in enumerate(names(16))}
    found = settled(names(16), between(*names(16)[4:8]), switches)
    assert [group.switches for group in found.groups] == [("leaf1",)]
    assert found.nodes == {}


def test_two_halves_with_a_slow_link_between_them_are_a_group_each() -> None:
    found = settled(names(8), between(*names(8)[:4]))
    assert found.nodes == {}
    assert [{group.nodes, group.others} for group in found.groups] == [{tuple(names(8)[:4]), tuple(names(8)[4:])}]


def test_a_slow_node_beside_a_slow_switch() -> None:
    behind = names(32)[8:12]

    def is_slow(one: str, other: str) -> bool:
        return bad("n20")(one, other) or between(*behind)(one, other)

    found = settled(names(32), is_slow)
    assert [*found.nodes] == ["n20"]
    assert [group.nodes for group in found.groups] == [tuple(behind)]


def test_a_slow_link_between_two_switches_that_others_join() -> None:
    """Leaf 0 and leaf 1 are slow with each other, and both are fast with leaf 2."""
    nodes = names(12)
    switches = {name: f"leaf{number // 4}" for number, name in enumerate(nodes)}

    def is_slow(one: str, other: str) -> bool:
        return {switches[one], switches[other]} == {"leaf0", "leaf1"}

    found = settled(nodes, is_slow, switches, rounds=11)
    assert found.nodes == {}
    assert [group.switches for group in found.groups] == [("leaf0", "leaf1")]
    assert (found.groups[0].nodes, found.groups[0].others) == (tuple(nodes[:4]), tuple(nodes[4:8]))


def test_a_slow_path_is_measured_again_before_it_is_named() -> None:
    pair: Pair = schedule(names(8), 1, 7)[0][0]
    measured = [PairVerdict(each, each == pair) for pairs in schedule(names(8), 3, 7) for each in pairs]
    found = blame(measured)
    assert (found.paths, found.following) == ([], [pair])
    found = settled(names(8), lambda one, other: pair_of(one, other) == pair)
    assert (found.paths, found.nodes) == ([pair], {})


def test_a_pair_that_was_slow_once_is_noise() -> None:
    measured = [PairVerdict(each, False) for pairs in schedule(names(8), 3, 7) for each in pairs]
    measured.append(PairVerdict(measured[0].nodes, True))
    assert blame(measured).paths == blame(measured).following == []


def test_noise_needs_more_evidence_and_much_noise_names_nobody() -> None:
    nodes = names(32)
    first = [each for pairs in schedule(nodes, 3, 7) for each in pairs]

    def found(every: int) -> Blame:
        slow = {pair for number, pair in enumerate(first) if not number % every} | {
            pair for pair in first if "n05" in pair
        }
        return blame([PairVerdict(pair, pair in slow) for pair in first])

    # One good pair of 48 was slow, so that three slow ones of n05 could be by chance as well.
    assert (found(1000).nodes, found(1000).suspects) == ({}, ["n05"])
    assert (found(15).nodes, "n05" in found(15).suspects) == ({}, True)
    assert found(3).nodes == {}
    pairs = [pair for each in schedule(names(8), 7, 7) for pair in each]
    without_pattern = blame([PairVerdict(pair, not (int(pair[0][1:]) + int(pair[1][1:])) % 3) for pair in pairs])
    assert without_pattern == Blame(notes=["9 of 28 pairs were slow without a pattern: too noisy"])


def test_no_good_node_is_ever_named() -> None:
    """Whatever is slow: faults of nodes, paths and switches at the same time."""
    for seed in range(40):
        nodes = names(6 + seed)
        guilty, behind = {nodes[seed % 5]}, {*nodes[5 : 5 + seed % 4]}
        path = pair_of(nodes[-1], nodes[-2])

        def is_slow(
            one: str, other: str, guilty: set[str] = guilty, behind: set[str] = behind, path: Pair = path
        ) -> bool:
            apart = len(behind) > 1 and (one in behind) != (other in behind)
            return bool({one, other} & guilty) or apart or pair_of(one, other) == path

        assert {*settled(nodes, is_slow).nodes} <= guilty
