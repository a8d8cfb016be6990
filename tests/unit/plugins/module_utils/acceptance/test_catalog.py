# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of an acceptance run as data, and published figures."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import published
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import LEVELS, TESTS, Scope, of_level
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.published import (
    FIGURES,
    PublishedMachine,
    published_floor,
)

H100 = {"h100": PublishedMachine("h100", 8), "mega": PublishedMachine("h100", 8, "a3-megagpu-8g")}
GIB = 2**30


def test_a_level_has_the_tests_of_those_before_it() -> None:
    quick, medium, long = ({test.name for test in of_level(level)} for level in LEVELS)
    assert quick < medium < long == {*TESTS}


def test_quick_needs_no_other_node() -> None:
    """Doctor asks for it before a single node returns."""
    assert {test.scope for test in of_level("quick")} == {Scope.GPU, Scope.NODE}


def test_a_cluster_without_gpus_has_tests() -> None:
    assert {test.name for test in TESTS.values() if not test.gpus and not test.is_check} >= {
        "stream",
        "dgemm",
        "disk_write_local",
        "disk_write_shared",
        "network_tcp",
    }


def test_checks_are_compared_with_nothing() -> None:
    assert all(test.scope in (Scope.NODE, Scope.GPU) for test in TESTS.values() if test.is_check)


def test_a_test_for_several_gpus_of_a_node_is_not_for_a_node_with_one() -> None:
    assert TESTS["all_reduce_node"].gpus == TESTS["gpu_to_gpu"].gpus == TESTS["fabric_manager"].gpus == 2


def test_a_published_figure_is_for_a_value_of_the_catalog() -> None:
    for figure in FIGURES:
        test = TESTS[figure.test]
        assert not test.is_check
        assert figure.nodes == (2 if test.scope is Scope.PAIR else 1)
        assert figure.source


def test_a_published_figure_holds_for_its_own_conditions_alone() -> None:
    found = published_floor(H100, "h100", "all_reduce_node", 1, 16 * GIB)
    assert found is not None
    assert found.floor == 460.0
    assert published_floor(H100, "h100", "all_reduce_node", 1, 8 * GIB) is None
    assert published_floor(H100, "h100", "all_reduce_pair", 2, 16 * GIB) is None
    assert published_floor(H100, "another", "all_reduce_node", 1, 16 * GIB) is None
    half = {"h100": PublishedMachine("h100", 4)}
    assert published_floor(half, "h100", "all_reduce_node", 1, 16 * GIB) is None


def test_a_figure_of_a_cloud_is_for_its_machine_alone() -> None:
    """188.7 GB/s is all_gather of 8 GiB on two A3 Mega, whose network is another one."""
    assert published_floor(H100, "h100", "all_gather_pair", 2, 8 * GIB) is None
    found = published_floor(H100, "mega", "all_gather_pair", 2, 8 * GIB)
    assert found is not None
    assert "188.7" in found.source
    assert published_floor(H100, "mega", "all_gather_many", 3, 8 * GIB) is None


def test_there_is_one_figure_for_the_same_conditions() -> None:
    keys = [(each.test, each.gpu, each.gpus, each.nodes, each.size, each.platform) for each in published.FIGURES]
    assert len(keys) == len({*keys})


def test_copies_of_a_single_h100_have_a_floor_in_both_directions() -> None:
    """check_cuda_bw of azurehpc-health-checks compares the slower direction."""
    single = {"m": PublishedMachine("h100", 1)}
    floors = [published_floor(single, "m", test, 1, GIB) for test in ("host_to_gpu", "gpu_to_host")]
    assert [figure.floor for figure in floors if figure] == [52.0, 52.0]
