# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode of site.yml on a converged cluster whose file has a new key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab import Lab, with_cluster
from new_keys import CASES, VARIABLES


@pytest.mark.parametrize("keys", CASES)
def test_a_check_foretells_a_new_key(lab: Lab, tmp_path: Path, keys: dict[str, Any]) -> None:
    run = with_cluster(lab, tmp_path, {**lab.cluster, **keys}, **VARIABLES).playbook("site", "--check", "--diff")
    assert (run.rc, run.failed) == (0, {})
