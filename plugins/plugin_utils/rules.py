# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of this collection in the processes of Ansible."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

PLUGINS = "ansible_collections.gpucluster.slurm.plugins"
PACKAGE = f"{PLUGINS}.module_utils.decisions"
DECISIONS = Path(__file__).parents[1] / "module_utils/decisions"


def import_rules() -> None:
    """Import all rules, the lookup that asks them, and the checks of answers.

    In Ansible's main process, this is done once for the processes of all tasks, which inherit it. Otherwise each one
    would read and compile them again, for 0.2 to 0.3 s, since Ansible keeps no compiled code of a collection.
    """
    for path in sorted(DECISIONS.glob("*/*.py")):
        import_module(f"{PACKAGE}.{path.parent.name}.{path.stem}")
    import_module(f"{PLUGINS}.lookup.decision")
    import_module(f"{PLUGINS}.plugin_utils.answers")
