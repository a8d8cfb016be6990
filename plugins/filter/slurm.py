# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All filters of the collection: pure functions of module_utils, by the names that templates have for them.

They are one file because Ansible imports every file of this directory to find one filter. Each filter has its
documentation in NAME.yml beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.survey import (
    adopted,
    adoption_controller,
    adoption_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.chosen_directories import chosen_directories
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.package_source import (
    files_version,
    package_entries,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.people import complete
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.programs import (
    programs,
    site_scripts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import (
    autodetect_hosts,
    gres_lines,
    host_addresses,
    mig_gres,
    node_lines,
    partition_lines,
    slurm_conf,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.storage import storage_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.release_order import release_order
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.spank import plugstack_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.diagnosis import diagnosis
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.hosts_of_others import cluster_objections
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.written import written
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs.validation import (
    validation_jobs,
    validation_summary,
    validation_table,
    warm_up_jobs,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.new_cluster import choice_errors, new_cluster
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.directory import (
    directory_hosts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.settled import unsettled
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answer_limit import limit_answers
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.filters import value_errors

FILTERS: dict[str, Callable[..., Any]] = {
    "adopted": adopted,
    "adoption_controller": adoption_controller,
    "adoption_errors": adoption_errors,
    "cluster_objections": cluster_objections,
    "diagnosis": diagnosis,
    "chosen_directories": chosen_directories,
    "directory_hosts": directory_hosts,
    "files_version": files_version,
    "gres_lines": gres_lines,
    "host_addresses": host_addresses,
    "hostlist": fold,
    "hostnames": expand,
    "limit_answers": limit_answers,
    "autodetect_hosts": autodetect_hosts,
    "mig_gres": mig_gres,
    "new_cluster": new_cluster,
    "new_cluster_errors": choice_errors,
    "node_lines": node_lines,
    "package_entries": package_entries,
    "partition_lines": partition_lines,
    "people": complete,
    "plugstack_lines": plugstack_lines,
    "programs": programs,
    "release_order": release_order,
    "site_scripts": site_scripts,
    "slurm_conf": slurm_conf,
    "storage_plans": storage_plans,
    "unsettled": unsettled,
    "validation_jobs": validation_jobs,
    "validation_summary": validation_summary,
    "validation_table": validation_table,
    "warm_up_jobs": warm_up_jobs,
    "written": written,
}


class FilterModule:
    """Ansible's way to ask a file for its filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name; errors in a user's data become errors of the filter."""
        return {name: value_errors(function) for name, function in FILTERS.items()}
