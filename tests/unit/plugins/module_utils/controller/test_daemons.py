# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.slurm_commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import Configuration
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import daemons
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import load_times

NOTHING: Any = Configuration


@pytest.mark.parametrize(("status", "recorded"), [(0, True), (1, False)])
def test_a_reconfigure_counts_as_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, recorded: bool
) -> None:
    """Otherwise the next run would restart slurmctld of a standby that has served: its files are newer than it."""
    monkeypatch.setattr(load_times, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(daemons, "run", lambda _command, **_limits: Answer(status, "", ""))
    module: Any = SimpleNamespace(params={"patience": 0, "directory": str(tmp_path)})
    begin = time.time()
    try:
        daemons.Slurmctld(module).act("reconfigure", NOTHING)
    except daemons.ConfigError:
        assert not recorded
    assert (load_times.read_load_time("slurmctld") >= begin - 1) == recorded
