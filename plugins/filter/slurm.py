# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All filters of the collection: pure functions of module_utils, by the names that templates have for them.

They are one file because Ansible imports every file of this directory to find one filter. Each filter has its
documentation in NAME.yml next to this file. Ansible's main process loads this file when a playbook of this collection
begins, and the rules with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible import constants

from ..module_utils.cluster.people_key import complete
from ..module_utils.cluster.render import gres_lines, node_lines, partition_lines, slurm_conf
from ..module_utils.language.hostlist import expand, fold
from ..plugin_utils.answer_limit import LIMIT, limit_answers
from ..plugin_utils.command_output import share_outputs
from ..plugin_utils.filters import value_errors
from ..plugin_utils.rules import import_rules
from ..plugin_utils.run_processes import mark_processes
from ..plugin_utils.templated_host import Run

import_rules()


def begin_run(value: Any = None, limit: int = LIMIT) -> Any:
    """The filter `limit_answers`, with which every playbook of this collection begins."""
    Run.of_collection = True
    mark_processes()
    share_outputs(constants.DEFAULT_LOCAL_TMP)
    return limit_answers(value, limit)


FILTERS: dict[str, Callable[..., Any]] = {
    "gres_lines": gres_lines,
    "hostlist": fold,
    "hostnames": expand,
    "limit_answers": begin_run,
    "node_lines": node_lines,
    "partition_lines": partition_lines,
    "people": complete,
    "slurm_conf": slurm_conf,
}


class FilterModule:
    """Ansible's way to ask a file for its filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name; errors in a user's data become errors of the filter."""
        return {name: value_errors(function) for name, function in FILTERS.items()}
