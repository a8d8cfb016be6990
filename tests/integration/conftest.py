# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the integration tests. A test's folder is the scenario it belongs to: tests/integration/SCENARIO.

Scenarios slurm-* run the tests in `release`, and scenarios wide-* run some tests of scenario default (molecule.yml).
"""

from __future__ import annotations

import os

import pytest
from lab import Lab


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    """The scenario that molecule verifies, or else the one that the test's folder is named after."""
    return Lab(os.environ.get("MOLECULE_SCENARIO_NAME", request.path.parent.name))
