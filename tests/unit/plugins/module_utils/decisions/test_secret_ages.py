# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host has which secret, whose age doctor and the alert know."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import secret_ages
from plain_host import GROUPS, cluster

pytestmark = pytest.mark.once


def secrets(name: str, **variables: Any) -> list[str]:
    groups = {**GROUPS, "slurm_registry": ["login"], "slurm_rest": ["login"]}
    return list(secret_ages.files(cluster(groups=groups, **variables)[name]))


def test_a_host_has_the_secrets_of_its_services() -> None:
    assert secrets("n1") == ["munge"]
    assert secrets("head") == ["munge", "database"]
    given: dict[str, Any] = {"slurm_rest": {"host": "login"}, "slurm_backup": {"target": "/b"}}
    assert secrets("head", **given) == ["munge", "jwt", "database", "backup"]
    assert secrets("login", **given) == ["munge", "jwt"]
    # A registry without an upstream has no password.
    assert secrets("login", slurm_registry="login") == ["munge"]
    assert secrets("login", slurm_registry="login", registry_upstream_username="u") == ["munge", "registry"]


def test_a_site_without_a_limit_asks_no_host() -> None:
    assert secrets("head", slurm_secret_max_age="0") == []
    assert secrets("head", slurm_secret_max_age="90") == ["munge", "database"]
