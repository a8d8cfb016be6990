# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of a module's options follows from its arguments."""

from __future__ import annotations

import yaml
from ansible_collections.gpucluster.slurm.plugins.doc_fragments.arguments import ModuleDocFragment, documented
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.options import option, several, switch


def test_an_option_is_documented_as_it_is_accepted() -> None:
    arguments = {
        "name": option("The name.\nIt is short.", required=True),
        "state": option("What is wanted.", choices=["present", "absent"], default="present"),
        "force": switch("Whether it is done."),
        "files": several("Files.", "dict", options={"secret": option("A text.", no_log=True)}),
    }
    assert documented(arguments) == {
        "name": {"description": ["The name.", "It is short."], "type": "str", "required": True},
        "state": {
            "description": ["What is wanted."],
            "type": "str",
            "choices": ["present", "absent"],
            "default": "present",
        },
        "force": {"description": ["Whether it is done."], "type": "bool", "default": False},
        "files": {
            "description": ["Files."],
            "type": "list",
            "elements": "dict",
            "default": [],
            "suboptions": {"secret": {"description": ["A text."], "type": "str"}},
        },
    }


def test_a_module_is_a_part_of_the_fragment() -> None:
    options = yaml.safe_load(ModuleDocFragment().SLURM_IMAGE)["options"]
    assert options["accepted"]["type"] == "list"
    assert not hasattr(ModuleDocFragment(), "DOCUMENTATION")
