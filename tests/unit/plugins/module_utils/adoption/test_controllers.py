# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name and the controllers of a cluster, by the parameters of old and new releases."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.cluster_files import ClusterFiles
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.controllers import find_controllers
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import SourceError


def source_of(conf: str) -> ClusterFiles:
    return ClusterFiles({"slurm.conf": conf}, "24.11.5")


@pytest.mark.parametrize(
    ("conf", "addresses"),
    [
        ("SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\n", {"a": "10.0.0.1"}),
        ("SlurmctldHost=a(a)\nSlurmctldHost=b(10.0.0.2)\n", {"b": "10.0.0.2"}),
        ("ControlMachine=x\nBackupController=b\nBackupAddr=10.0.0.2\nControlMachine=a\n", {"b": "10.0.0.2"}),
        ("ControlAddr=a\nControlMachine=a\nBackupController=b\n", {}),
    ],
)
def test_controllers_and_their_addresses(conf: str, addresses: dict[str, str]) -> None:
    source = source_of(f"ClusterName=Lab\n{conf}")
    found = find_controllers(source)
    assert (found.cluster, found.hosts, found.addresses, source.comments) == ("lab", ["a", "b"], addresses, [])


def test_old_parameters_do_not_count_with_the_new_one() -> None:
    source = source_of("ClusterName=c\nBackupAddr=1\nSlurmctldHost=a\nControlMachine=x\nBackupController=y\n")
    assert find_controllers(source).hosts == ["a"]
    assert [str(comment) for comment in source.comments] == [
        f"slurm.conf:{line}: {key}: left out: Slurm uses SlurmctldHost"
        for line, key in ((4, "ControlMachine"), (5, "BackupController"), (2, "BackupAddr"))
    ]


@pytest.mark.parametrize(
    ("conf", "problems"),
    [
        ("KillWait=30\n", ["slurm.conf: ClusterName: missing, ", "slurm.conf: SlurmctldHost: missing"]),
        ("SlurmctldHost=a\nClusterName=a/b\n", ["slurm.conf:2: ClusterName: found 'a/b', allowed: "]),
        ("ClusterName=c\nControlAddr=1\n", ["slurm.conf: SlurmctldHost: missing"]),
    ],
)
def test_a_cluster_needs_a_name_and_a_controller(conf: str, problems: list[str]) -> None:
    with pytest.raises(SourceError) as raised:
        find_controllers(source_of(conf))
    assert [found.startswith(message) for found, message in zip(raised.value.problems, problems, strict=True)] == [
        True
    ] * len(problems)
