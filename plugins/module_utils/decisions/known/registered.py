# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tasks register or set, and rules read: one object for each name, with the type of its value.

A unit test compares the names and types with the tasks. A task that was skipped or has failed registers a result that
lacks fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .run_host import ANSWER, RunHost

if TYPE_CHECKING:
    from ....plugin_utils.results import module_results

Value = TypeVar("Value")


@dataclass(frozen=True)
class Registered(Generic[Value]):
    """A variable that tasks register or set."""

    name: str

    def of(self, host: RunHost) -> Value:
        """The value on a host that has it."""
        return cast("Value", host[self.name])

    def get(self, host: RunHost) -> Value | None:
        """The value; None before a task has given it."""
        return cast("Value | None", host.get(self.name))

    def seen(self, host: RunHost) -> Value:
        """The result of a task; an empty one before a task has given it."""
        return self.get(host) or cast("Value", {})

    def by_host(self, host: RunHost, names: Iterable[str]) -> dict[str, Value]:
        """The values on these hosts, without the hosts that have none."""
        found = {name: self.get(host.of(name)) for name in dict.fromkeys(names)}
        return {name: value for name, value in found.items() if value is not None}


ACCEPT_BEGUN: Registered[module_results.AcceptanceResult] = Registered("__accept_begun")
ACCEPT_LEVEL: Registered[str] = Registered("__accept_level")
ACCEPT_NAMES: Registered[list[str]] = Registered("__accept_names")
ACCEPT_READ: Registered[module_results.AcceptanceResult] = Registered("__accept_read")
ACCEPT_ROUNDS: Registered[int] = Registered("__accept_rounds")
ACCEPT_STEP: Registered[module_results.AcceptanceResult] = Registered("__accept_step")
ACCEPT_STORED: Registered[module_results.AcceptanceResult] = Registered("__accept_stored")
ADOPT_ACCOUNTING: Registered[module_results.PolicyInfo] = Registered("__adopt_accounting")
ADOPT_FILES: Registered[module_results.ConfigurationInfo] = Registered("__adopt_files")
ADOPT_OWN: Registered[module_results.ConfigurationInfo] = Registered("__adopt_own")
ADOPT_RESULT: Registered[dict[str, Any]] = Registered("__adopt_result")
BACKUP_COMPARED: Registered[module_results.Command] = Registered("__backup_compared")
BACKUP_NODES: Registered[module_results.Command] = Registered("__backup_nodes")
BACKUP_PRESENT: Registered[module_results.Content] = Registered("__backup_present")
BACKUP_READ: Registered[module_results.Command] = Registered("__backup_read")
BACKUP_RESTORED_DATABASE: Registered[module_results.Command] = Registered("__backup_restored_database")
BACKUP_RESTORED_STATE: Registered[module_results.Command] = Registered("__backup_restored_state")
BACKUP_RUN: Registered[module_results.Command] = Registered("__backup_run")
BACKUP_RUNAWAY: Registered[module_results.Command] = Registered("__backup_runaway")
BACKUP_SINCE_READ: Registered[module_results.Command] = Registered("__backup_since_read")
BACKUP_STATE_NOW: Registered[module_results.Status] = Registered("__backup_state_now")
BACKUP_STEPS: Registered[module_results.HostFactsResult] = Registered("__backup_steps")
BACKUP_VERIFIED: Registered[module_results.Command] = Registered("__backup_verified")
BASE_ASKED_AGAIN: Registered[bool] = Registered("__base_asked_again")
BASE_CONTROLLER: Registered[module_results.HostFactsResult] = Registered("__base_controller")
BASE_KNOWN_RELEASE: Registered[dict[str, str]] = Registered("__base_known_release")
BASE_NODE_LINES: Registered[module_results.Command] = Registered("__base_node_lines")
DOCTOR_FOUND: Registered[dict[str, Any]] = Registered("__doctor_found")
DOCTOR_NODE_FACTS: Registered[dict[str, Any]] = Registered("__doctor_node_facts")
DOCTOR_REPAIRED: Registered[module_results.Loop] = Registered("__doctor_repaired")
DOCTOR_SERVER_FACTS: Registered[dict[str, Any]] = Registered("__doctor_server_facts")
ENROOT_FACTS: Registered[module_results.HostFactsResult] = Registered("__enroot_facts")
MAINTENANCE_FOUND: Registered[module_results.MaintenanceResult] = Registered("__maintenance_found")
MAINTENANCE_MAILS: Registered[module_results.MaintenanceResult] = Registered("__maintenance_mails")
MAINTENANCE_MESSAGE: Registered[module_results.Result] = Registered("__maintenance_message")
MARIADB_READ: Registered[module_results.DatabaseResult] = Registered("__mariadb_read")
MUNGE_CLUSTER: Registered[module_results.Status] = Registered("__munge_cluster")
MUNGE_CREDENTIAL: Registered[module_results.Command] = Registered("__munge_credential")
MUNGE_ENCODED: Registered[module_results.ServiceResult] = Registered("__munge_encoded")
NEW_CLUSTER_ADDRESSES: Registered[module_results.Command] = Registered("__new_cluster_addresses")
NEW_CLUSTER_FACTS: Registered[module_results.HostFactsResult] = Registered("__new_cluster_facts")
NEW_CLUSTER_PROCESSES: Registered[module_results.Command] = Registered("__new_cluster_processes")
NEW_CLUSTER_USER: Registered[module_results.Command] = Registered("__new_cluster_user")
NVIDIA_DRIVER_ASKED: Registered[module_results.Command] = Registered("__nvidia_driver_asked")
NVIDIA_DRIVER_DONE: Registered[module_results.DriverResult] = Registered("__nvidia_driver_done")
NVIDIA_DRIVER_DRAINED: Registered[module_results.PlanResult] = Registered("__nvidia_driver_drained")
NVIDIA_DRIVER_IMEX_JOBS: Registered[module_results.Command] = Registered("__nvidia_driver_imex_jobs")
NVIDIA_DRIVER_PLAN: Registered[module_results.DriverResult] = Registered("__nvidia_driver_plan")
NVIDIA_MIG_COMPARED: Registered[module_results.MigResult] = Registered("__nvidia_mig_compared")
NVIDIA_MIG_DECLARED: Registered[list[str]] = Registered("__nvidia_mig_declared")
NVIDIA_MIG_SLURM: Registered[module_results.Command] = Registered("__nvidia_mig_slurm")
PEOPLE_APPLIED: Registered[module_results.PeopleResult] = Registered("__people_applied")
PEOPLE_COMPARED: Registered[module_results.PeopleResult] = Registered("__people_compared")
PEOPLE_IDS: Registered[module_results.Command] = Registered("__people_ids")
PEOPLE_JOBS: Registered[module_results.Command] = Registered("__people_jobs")
PYXIS_CONF: Registered[module_results.Content] = Registered("__pyxis_conf")
PYXIS_HELP: Registered[module_results.Command] = Registered("__pyxis_help")
PYXIS_OUTPUT: Registered[module_results.Command] = Registered("__pyxis_output")
PYXIS_PLUGIN: Registered[module_results.PluginResult] = Registered("__pyxis_plugin")
PYXIS_RECORD: Registered[module_results.PluginResult] = Registered("__pyxis_record")
PYXIS_RESTORED: Registered[module_results.PluginResult] = Registered("__pyxis_restored")
PYXIS_RUN: Registered[module_results.JobResult] = Registered("__pyxis_run")
REGISTRY_COMPARED: Registered[module_results.ServiceResult] = Registered("__registry_compared")
REMOVE_NODES_CLEANED: Registered[module_results.PlanResult] = Registered("__remove_nodes_cleaned")
REMOVE_NODES_COMPARED: Registered[module_results.PlanResult] = Registered("__remove_nodes_compared")
REMOVE_NODES_ERROR: Registered[str] = Registered("__remove_nodes_error")
REMOVE_NODES_STORAGE: Registered[module_results.StorageResult] = Registered("__remove_nodes_storage")
RESET_CLEANUP: Registered[module_results.PlanResult] = Registered("__reset_cleanup")
RESET_DATABASES: Registered[module_results.Command] = Registered("__reset_databases")
RESET_FOUND: Registered[module_results.Status] = Registered("__reset_found")
RESET_STORAGE: Registered[module_results.StorageResult] = Registered("__reset_storage")
ROLLING_BATCHES: Registered[int] = Registered("__rolling_batches")
ROLLING_DIGEST: Registered[str] = Registered("__rolling_digest")
ROLLING_ERROR: Registered[str] = Registered("__rolling_error")
ROLLING_JOBS: Registered[module_results.JobResult] = Registered("__rolling_jobs")
ROLLING_NODES: Registered[list[str]] = Registered("__rolling_nodes")
ROLLING_RESUMED: Registered[module_results.RollingResult] = Registered("__rolling_resumed")
ROLLING_STEP: Registered[module_results.RollingResult] = Registered("__rolling_step")
ROLLING_UPDATES: Registered[module_results.UpdatesInfo] = Registered("__rolling_updates")
ROTATION_REMOVED: Registered[module_results.Command] = Registered("__rotation_removed")
ROTATION_STATE: Registered[module_results.Command] = Registered("__rotation_state")
SLURM_ACCOUNTING_RUN: Registered[module_results.PolicyResult] = Registered("__slurm_accounting_run")
SLURM_APPARMOR_FACTS: Registered[module_results.HostFactsResult] = Registered("__slurm_apparmor_facts")
SLURM_CLUSTER_FACTS: Registered[module_results.HostFactsResult] = Registered("__slurm_cluster_facts")
SLURM_FACTS: Registered[module_results.HostFactsResult] = Registered(ANSWER)
SLURM_INSTALLED: Registered[module_results.PackagesResult] = Registered("__slurm_installed")
SLURM_PACKAGES_RUN: Registered[module_results.PackagesResult] = Registered("__slurm_packages_run")
SLURM_RELEASE_ORDER: Registered[dict[str, Any]] = Registered("__slurm_release_order")
SLURM_REPORT_COLLECTED: Registered[module_results.Command] = Registered("__slurm_report_collected")
SLURM_ROTATES: Registered[bool] = Registered("__slurm_rotates")
SLURM_RUN: Registered[dict[str, Any]] = Registered("__slurm_run")
SLURM_RUN_ENDED: Registered[module_results.RunResult] = Registered("__slurm_run_ended")
SLURM_TOKEN_KEY_PRESENT: Registered[module_results.Content] = Registered("__slurm_token_key_present")
SLURM_UPDATES: Registered[module_results.UpdatesInfo] = Registered("__slurm_updates")
SLURM_UPGRADE_PING: Registered[module_results.Command] = Registered("__slurm_upgrade_ping")
SLURM_UPGRADE_PLAN: Registered[dict[str, Any]] = Registered("__slurm_upgrade_plan")
SLURM_UPGRADES: Registered[bool] = Registered("__slurm_upgrades")
SLURMCTLD_ADDITIONS: Registered[module_results.PolicyResult] = Registered("__slurmctld_additions")
SLURMCTLD_CONFIG: Registered[module_results.ConfigResult] = Registered("__slurmctld_config")
SLURMCTLD_FETCHED: Registered[dict[str, str]] = Registered("__slurmctld_fetched")
SLURMCTLD_NAMED: Registered[module_results.Command] = Registered("__slurmctld_named")
SLURMCTLD_OF_CLUSTER: Registered[module_results.Loop] = Registered("__slurmctld_of_cluster")
SLURMCTLD_OWN: Registered[module_results.ConfigurationInfo] = Registered("__slurmctld_own")
SLURMCTLD_OWN_ACCEPTED: Registered[module_results.Result] = Registered("__slurmctld_own_accepted")
SLURMCTLD_PLANNED: Registered[module_results.ConfigResult] = Registered("__slurmctld_planned")
SLURMCTLD_SERVICE: Registered[module_results.ServiceResult] = Registered("__slurmctld_service")
SLURMCTLD_STATE: Registered[module_results.StateDirectoryResult] = Registered("__slurmctld_state")
SLURMCTLD_STATE_SEEN: Registered[module_results.StateDirectoryResult] = Registered("__slurmctld_state_seen")
SLURMD_ASKED: Registered[module_results.Command] = Registered("__slurmd_asked")
SLURMD_OUTCOME: Registered[str] = Registered("__slurmd_outcome")
SLURMD_READ_AT_START: Registered[str] = Registered("__slurmd_read_at_start")
SLURMD_STATES: Registered[module_results.Command] = Registered("__slurmd_states")
SLURMDBD_CONFIG: Registered[module_results.ConfigResult] = Registered("__slurmdbd_config")
SLURMDBD_CONVERSION: Registered[module_results.ConversionResult] = Registered("__slurmdbd_conversion")
SLURMDBD_DATABASE: Registered[module_results.DatabaseResult] = Registered("__slurmdbd_database")
SLURMDBD_PRESENT: Registered[module_results.Content] = Registered("__slurmdbd_present")
SLURMDBD_SERVER: Registered[module_results.DatabaseServerResult] = Registered("__slurmdbd_server")
VALIDATE_RUN: Registered[module_results.JobResult] = Registered("__validate_run")
