# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lookup `decision` gives: results of rules, constants, and lines as they are shown."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpucluster.slurm.plugins.lookup.decision import LookupModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.packages import UPDATE_COMMAND

pytestmark = pytest.mark.once


def asked(*terms: str, **arguments: Any) -> list[Any]:
    loader = DataLoader()
    lookup = LookupModule(loader=loader, templar=Templar(loader))
    return lookup.run([*terms], {"inventory_hostname": "n1", "slurm_image": "build"}, **arguments)


def test_a_rule_is_asked_and_a_constant_is_given() -> None:
    assert asked("image.builds", "rolling.WINDOW") == [True, "gpucluster_rolling_window"]


@pytest.mark.parametrize(("output", "shown"), [("json", UPDATE_COMMAND), ("yaml", "\n".join(UPDATE_COMMAND))])
def test_lines_are_one_text_where_the_output_is_yaml(monkeypatch: pytest.MonkeyPatch, output: str, shown: Any) -> None:
    monkeypatch.setenv("ANSIBLE_CALLBACK_RESULT_FORMAT", output)
    assert asked("packages.UPDATE_COMMAND", shown=True) == [shown]
    assert asked("packages.UPDATE_COMMAND") == [UPDATE_COMMAND]
