# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that modules have where an image is built."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.action.image_options import ActionModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import image


@pytest.mark.parametrize(
    ("module", "variables", "arguments"),
    [
        ("slurm_service", {"slurm_image": "build"}, {"name": "munge", "start": False}),
        ("slurm_service", {"slurm_image": ""}, {"name": "munge"}),
        ("slurm_service", {}, {"name": "munge"}),
        ("slurm_packages", {"slurm_image": "build"}, {"name": "munge", "hold_services": True}),
        ("slurm_firewall", {"slurm_image": "build"}, {"name": "munge"}),
    ],
)
def test_a_module_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, module: str, variables: dict[str, Any], arguments: dict[str, Any]
) -> None:
    action = object.__new__(ActionModule)
    loader = DataLoader()
    action._task = SimpleNamespace(action=f"gpucluster.slurm.{module}", args={"name": "munge"})
    action._loader, action._templar = loader, Templar(loader=loader)
    monkeypatch.setattr(Checked, "run", lambda self, *_arguments: dict(self._task.args))
    assert action.run(None, variables) == arguments


def test_each_module_has_its_option() -> None:
    for module, options in image.MODULE_OPTIONS.items():
        found = import_module(f"ansible_collections.gpucluster.slurm.plugins.modules.{module}")
        assert {*options} <= {*found.ARGUMENTS}
