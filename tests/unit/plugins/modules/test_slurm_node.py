# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The argument of slurm_node; tests/integration shows its effects."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import CommandError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_node


@pytest.mark.parametrize("name", ["", " ", ","])
def test_no_name_is_not_all_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_node, "show", Mock(side_effect=AssertionError))
    with pytest.raises(CommandError, match=r"name: found .*, allowed: a hostlist"):
        slurm_node.set_state(Mock(params={"name": name, "state": "drain", "reason": "x"}))
