# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""StateSaveLocation as the cluster file gives it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import state_location

KEY = "slurm_conf.StateSaveLocation"
MISSING = "missing: 2 controllers share their state, so name a directory that all of them mount"


@pytest.mark.parametrize(
    ("slurm_conf", "controllers", "error"),
    [
        ({}, 1, ""),
        ({"StateSaveLocation": None}, 1, ""),
        ({"StateSaveLocation": "/var/lib/slurm/slurmctld"}, 1, ""),
        ({"StateSaveLocation": "/shared/slurm"}, 3, ""),
        ({"StateSaveLocation": "state"}, 1, "found 'state', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": "./state"}, 2, "found './state', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": ""}, 1, "found '', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": ["/a"]}, 1, "found ['/a'], allowed: an absolute path such as /shared/slurm"),
        ({}, 2, MISSING),
        ({"StateSaveLocation": None}, 2, MISSING),
    ],
)
def test_the_path_is_checked_without_a_host(slurm_conf: dict[str, Any], controllers: int, error: str) -> None:
    assert state_location.error(slurm_conf, controllers) == (f"{KEY}: {error}" if error else "")
