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

from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.node_files import node_file_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.survey import (
    adopted,
    adoption_controller,
    adoption_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.access import (
    access_parts,
    exempt_networks,
    known_hosts,
    login_limits,
    trusted_hosts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.argument_specs import argument_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.chosen_directories import chosen_directories
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall import firewall_remark
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.job_scripts import job_scripts, script_remarks
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import model_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import named_file_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.package_source import (
    files_version,
    package_entries,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.people import complete
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.programs import (
    program_errors,
    programs,
    script_errors,
    site_scripts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import (
    autodetect_hosts,
    gres_lines,
    host_addresses,
    mig_gres,
    node_lines,
    node_parameters,
    partition_lines,
    slurm_conf,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.storage import storage_plans, storage_remark
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.release_order import release_order
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.spank import plugstack_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.upgrade import upgrade_plan
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.state_directory import state_directory_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.diagnosis import diagnosis
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.hosts_of_others import cluster_objections
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.written import password_errors, written
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs.validation import (
    container_jobs,
    validation_jobs,
    validation_summary,
    validation_table,
    warm_up_jobs,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.new_cluster import choice_errors, new_cluster
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.registration import check_registration
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.directory import (
    directory_differences,
    directory_hosts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.remarks import host_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.settled import unsettled
from ansible_collections.gpucluster.slurm.plugins.module_utils.spelling import nearest
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answer_limit import limit_answers
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.filters import value_errors

FILTERS: dict[str, Callable[..., Any]] = {
    "access_parts": access_parts,
    "adopted": adopted,
    "adoption_controller": adoption_controller,
    "adoption_errors": adoption_errors,
    "argument_errors": argument_errors,
    "cluster_objections": cluster_objections,
    "container_jobs": container_jobs,
    "diagnosis": diagnosis,
    "chosen_directories": chosen_directories,
    "directory_differences": directory_differences,
    "directory_hosts": directory_hosts,
    "discovered_hardware": discover,
    "exempt_networks": exempt_networks,
    "files_version": files_version,
    "firewall_plans": firewall_plans,
    "firewall_remark": firewall_remark,
    "gres_lines": gres_lines,
    "host_addresses": host_addresses,
    "host_lines": host_lines,
    "hostlist": fold,
    "hostnames": expand,
    "job_scripts": job_scripts,
    "known_hosts": known_hosts,
    "limit_answers": limit_answers,
    "login_limits": login_limits,
    "autodetect_hosts": autodetect_hosts,
    "mig_gres": mig_gres,
    "model_errors": model_errors,
    "named_file_errors": named_file_errors,
    "nearest": nearest,
    "new_cluster": new_cluster,
    "new_cluster_errors": choice_errors,
    "node_file_errors": node_file_errors,
    "node_lines": node_lines,
    "node_parameters": node_parameters,
    "package_entries": package_entries,
    "partition_lines": partition_lines,
    "password_errors": password_errors,
    "people": complete,
    "plugstack_lines": plugstack_lines,
    "program_errors": program_errors,
    "programs": programs,
    "registration": check_registration,
    "release_order": release_order,
    "script_errors": script_errors,
    "script_remarks": script_remarks,
    "site_scripts": site_scripts,
    "slurm_conf": slurm_conf,
    "state_directory_errors": state_directory_errors,
    "storage_plans": storage_plans,
    "storage_remark": storage_remark,
    "trusted_hosts": trusted_hosts,
    "unsettled": unsettled,
    "upgrade_plan": upgrade_plan,
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
