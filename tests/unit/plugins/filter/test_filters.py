# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters as plays use them: found by name, called from a template, documented, with errors that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpucluster.slurm.plugins.filter.slurm import FilterModule

FILTERS = Path(__file__).parents[4] / "plugins" / "filter"
VARIABLES: dict[str, Any] = {
    "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1001,
                       "gres": [{"name": "gpu", "file": "/dev/nvidia[0-1]"}]}},
    "nodes": [{"hosts": "n[1-2]", "hardware": "a", "address": "10.0.0.[1-2]"}],
}  # fmt: skip

CALLS: dict[str, tuple[str, Any]] = {
    "hostlist": ("['n1', 'n2'] | gpucluster.slurm.hostlist", "n[1-2]"),
    "hostnames": ("'n[1-2]' | gpucluster.slurm.hostnames", ["n1", "n2"]),
    "limit_answers": ("'localhost' | gpucluster.slurm.limit_answers", "localhost"),
    "node_lines": (
        "nodes | gpucluster.slurm.node_lines(hardware)",
        "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] "
        "Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1001 Gres=gpu:2\n",
    ),
    "gres_lines": (
        "nodes | gpucluster.slurm.gres_lines(hardware=hardware)",
        "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]\n",
    ),
    "partition_lines": (
        "[{'name': 'p', 'nodes': 'ALL'}] | gpucluster.slurm.partition_lines",
        "PartitionName=p Nodes=ALL\n",
    ),
    "slurm_conf": ("{'A': 1} | gpucluster.slurm.slurm_conf({'B': [1, 2]}, {'a': none})", "B=1,2\n"),
}


@pytest.fixture(scope="module")
def templar() -> Templar:
    """The object that evaluates templates in a play."""
    return Templar(DataLoader(), variables=VARIABLES)


@pytest.mark.parametrize("name", CALLS)
def test_filter(templar: Templar, name: str) -> None:
    expression, expected = CALLS[name]
    assert templar.template(trust_as_template("{{ " + expression + " }}")) == expected


def test_each_filter_has_its_documentation() -> None:
    assert sorted(path.stem for path in FILTERS.glob("*.yml")) == sorted(FilterModule().filters())


@pytest.mark.parametrize("name", FilterModule().filters())
def test_documentation(name: str) -> None:
    documentation = yaml.safe_load((FILTERS / f"{name}.yml").read_text())
    assert documentation["DOCUMENTATION"]["name"] == name
    assert f"gpucluster.slurm.{name}" in documentation["EXAMPLES"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'n[1-' | gpucluster.slurm.hostnames", "bad hostlist 'n[1-': its brackets do not match"),
        ("nodes | gpucluster.slurm.node_lines({})", r"n\[1-2\]: unknown hardware 'a', known: none"),
        ("3 | gpucluster.slurm.node_lines({})", "'int' object is not iterable"),
    ],
)
def test_errors_are_those_of_the_data(templar: Templar, expression: str, message: str) -> None:
    with pytest.raises(AnsibleError, match=message.replace("n[1-'", r"n\[1-'")):
        templar.template(trust_as_template("{{ " + expression + " }}"))
