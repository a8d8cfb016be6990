# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of a site that hosts run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.own_scripts import site_scripts
from plain_host import PlainHost, cluster

CHECK = "#!/bin/sh\n"


def hosts(**variables: Any) -> dict[str, PlainHost]:
    """The hosts of a small cluster, where compute nodes have a check of the site."""
    found: dict[str, PlainHost] = cluster({"/checks/disk": b"#!/bin/sh\n"}, **variables)
    found["n1"].set(slurm_health_own_checks={"disk": "/checks/disk"})
    return found


def test_scripts_have_the_names_of_their_variables() -> None:
    found = hosts(
        slurm_conf={"Prolog": "prolog.sh"},
        slurm_files={"prolog.sh": "#!/bin/sh\n", "other.conf": "a=b\n"},
        slurm_prologs=[{"name": "a", "script": CHECK}],
        slurm_epilogs=[{"name": "b", "script": CHECK}],
    )
    assert [*site_scripts(found["head"])] == [
        "slurm_files.prolog.sh",
        "prologs: a",
        "epilogs: b",
        "slurm_health_own_checks.disk",
    ]


@pytest.mark.parametrize(
    ("program", "runs"), [("/usr/local/sbin/slurm-health", True), ("/opt/health", False), (None, False)]
)
def test_health_checks_run_with_the_program_of_the_collection_alone(program: str | None, runs: bool) -> None:
    assert site_scripts(hosts()["head"]) == {"slurm_health_own_checks.disk": CHECK}
    found = site_scripts(hosts(slurm_conf={"HealthCheckProgram": program})["head"])
    assert found == ({"slurm_health_own_checks.disk": CHECK} if runs else {})


def test_a_cluster_without_nodes_has_no_health_checks() -> None:
    host = hosts()["head"]
    host["groups"]["slurm_compute"].clear()
    assert site_scripts(host) == {}


def test_a_missing_check_is_named() -> None:
    found = hosts()
    found["n1"].set(slurm_health_own_checks={"gpu": "/checks/gpu"})
    with pytest.raises(ValueError, match="slurm_health_own_checks: /checks/gpu is missing"):
        site_scripts(found["head"])
