# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs of site.yml change compute nodes and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import limited_run
from plain_host import GROUPS, cluster

EXPORT = {"path": "/scratch", "source": "n1:/scratch", "type": "nfs", "server": "n1", "hosts": "all"}


def nodes_of(played: list[str], reached: list[str] | None = None, **variables: Any) -> list[str]:
    """What a run of some hosts changes alone."""
    variables = {"ansible_play_hosts_all": played, "ansible_play_hosts": reached or played, **variables}
    return limited_run.nodes(cluster(**variables)[played[0]])


def test_a_run_of_compute_nodes_changes_these_alone() -> None:
    assert nodes_of(["n1"]) == ["n1"]
    assert nodes_of(["n1", "n2"]) == ["n1", "n2"]
    assert nodes_of(["n1", "n2"], ["n2"]) == ["n2"], "a node that was not reached is not changed"


@pytest.mark.parametrize("other", ["head", "login"])
def test_a_run_with_another_host_does_not_even_if_it_was_not_reached(other: str) -> None:
    assert nodes_of(["n1", other]) == []
    assert nodes_of(["n1", other], ["n1"]) == []
    assert nodes_of([*GROUPS["all"]]) == []


@pytest.mark.parametrize(
    "more",
    [
        {"groups": {**GROUPS, "slurm_login": ["n1"]}},
        {"groups": {**GROUPS, "slurm_needs_stopped_controller": ["n1"]}},
        {"slurm_controllers": ["head", "n1"]},
        {"slurm_database": "n1"},
        {"slurm_registry": "n1"},
        {"slurm_storage": [EXPORT]},
    ],
    ids=["login", "former controller", "controller", "database", "registry", "file server"],
)
def test_a_node_with_another_duty_is_not_alone(more: dict[str, Any]) -> None:
    assert nodes_of(["n1"], **more) == []
    assert nodes_of(["n2"], **more) == ["n2"]
