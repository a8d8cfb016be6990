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
from typing import Any, Generic, TypeVar, cast

from ...doctor import results as doctor_results
from ...results import module_results
from .run_host import ANSWER, RunHost

Value = TypeVar("Value")


@dataclass(frozen=True)
class Registered(Generic[Value]):
    """A variable that tasks register or set."""

    name: str
    kind: type[Value]

    def of(self, host: RunHost) -> Value:
        """The value on a host that has it."""
        return cast("Value", host[self.name])

    def get(self, host: RunHost) -> Value | None:
        """The value; None before a task has given it."""
        return cast("Value | None", host.get(self.name))

    def seen(self, host: RunHost) -> Value:
        """The value; an empty one before a task has given it."""
        return self.get(host) or self.kind()

    def by_host(self, host: RunHost, names: Iterable[str]) -> dict[str, Value]:
        """The values on these hosts, without the hosts that have none."""
        found = {name: self.get(host.of(name)) for name in dict.fromkeys(names)}
        return {name: value for name, value in found.items() if value is not None}


class Command(module_results.Result):
    """The result of ansible.builtin.command."""

    rc: int
    stdout: str
    stderr: str
    stdout_lines: list[str]


class Content(module_results.Result):
    """The result of ansible.builtin.slurp: the content in base64."""

    content: str


class Status(module_results.Result):
    """The result of ansible.builtin.stat."""

    stat: dict[str, Any]


class Loop(module_results.Result):
    """The results of a task with a loop."""

    results: list[dict[str, Any]]


ACCEPT_BEGUN = Registered("__accept_begun", module_results.AcceptanceResult)
ACCEPT_LEVEL = Registered("__accept_level", str)
ACCEPT_NAMES = Registered("__accept_names", list[str])
ACCEPT_READ = Registered("__accept_read", module_results.AcceptanceResult)
ACCEPT_ROUNDS = Registered("__accept_rounds", int)
ACCEPT_STEP = Registered("__accept_step", module_results.AcceptanceResult)
ACCEPT_STORED = Registered("__accept_stored", module_results.AcceptanceResult)
ADOPT_ACCOUNTING = Registered("__adopt_accounting", module_results.PolicyInfo)
ADOPT_FILES = Registered("__adopt_files", module_results.ConfigurationInfo)
ADOPT_OWN = Registered("__adopt_own", module_results.ConfigurationInfo)
ADOPT_RESULT = Registered("__adopt_result", dict[str, Any])
BACKUP_COMPARED = Registered("__backup_compared", Command)
BACKUP_NODES = Registered("__backup_nodes", Command)
BACKUP_PRESENT = Registered("__backup_present", Content)
BACKUP_READ = Registered("__backup_read", Command)
BACKUP_RESTORED_DATABASE = Registered("__backup_restored_database", Command)
BACKUP_RESTORED_STATE = Registered("__backup_restored_state", Command)
BACKUP_RUN = Registered("__backup_run", Command)
BACKUP_RUNAWAY = Registered("__backup_runaway", Command)
BACKUP_SINCE_READ = Registered("__backup_since_read", Command)
BACKUP_STATE_NOW = Registered("__backup_state_now", Status)
BACKUP_STEPS = Registered("__backup_steps", module_results.HostFactsResult)
BACKUP_VERIFIED = Registered("__backup_verified", Command)
BASE_ASKED_AGAIN = Registered("__base_asked_again", bool)
BASE_CONTROLLER = Registered("__base_controller", module_results.HostFactsResult)
BASE_KNOWN_RELEASE = Registered("__base_known_release", dict[str, str])
BASE_NODE_LINES = Registered("__base_node_lines", Command)
DOCTOR_FOUND = Registered("__doctor_found", dict[str, Any])
DOCTOR_NODE_FACTS = Registered("__doctor_node_facts", doctor_results.DoctorNodeInfo)
DOCTOR_REPAIRED = Registered("__doctor_repaired", Loop)
DOCTOR_SERVER_FACTS = Registered("__doctor_server_facts", doctor_results.DoctorInfo)
ENROOT_FACTS = Registered("__enroot_facts", module_results.HostFactsResult)
MAINTENANCE_FOUND = Registered("__maintenance_found", module_results.MaintenanceResult)
MAINTENANCE_MAILS = Registered("__maintenance_mails", module_results.MaintenanceResult)
MAINTENANCE_MESSAGE = Registered("__maintenance_message", module_results.Result)
MARIADB_READ = Registered("__mariadb_read", module_results.DatabaseResult)
MUNGE_CLUSTER = Registered("__munge_cluster", Status)
MUNGE_CREDENTIAL = Registered("__munge_credential", Command)
MUNGE_ENCODED = Registered("__munge_encoded", module_results.ServiceResult)
NEW_CLUSTER_ADDRESSES = Registered("__new_cluster_addresses", Command)
NEW_CLUSTER_FACTS = Registered("__new_cluster_facts", module_results.HostFactsResult)
NEW_CLUSTER_PING = Registered("__new_cluster_ping", module_results.Result)
NEW_CLUSTER_PROCESSES = Registered("__new_cluster_processes", Command)
NEW_CLUSTER_USER = Registered("__new_cluster_user", Command)
NVIDIA_DRIVER_ASKED = Registered("__nvidia_driver_asked", Command)
NVIDIA_DRIVER_DONE = Registered("__nvidia_driver_done", module_results.DriverResult)
NVIDIA_DRIVER_DRAINED = Registered("__nvidia_driver_drained", module_results.PlanResult)
NVIDIA_DRIVER_IMEX_JOBS = Registered("__nvidia_driver_imex_jobs", Command)
NVIDIA_DRIVER_PLAN = Registered("__nvidia_driver_plan", module_results.DriverResult)
NVIDIA_MIG_COMPARED = Registered("__nvidia_mig_compared", module_results.MigResult)
NVIDIA_MIG_DECLARED = Registered("__nvidia_mig_declared", list[str])
NVIDIA_MIG_SLURM = Registered("__nvidia_mig_slurm", Command)
PEOPLE_APPLIED = Registered("__people_applied", module_results.PeopleResult)
PEOPLE_COMPARED = Registered("__people_compared", module_results.PeopleResult)
PEOPLE_IDS = Registered("__people_ids", Command)
PEOPLE_JOBS = Registered("__people_jobs", Command)
PYXIS_CONF = Registered("__pyxis_conf", Content)
PYXIS_HELP = Registered("__pyxis_help", Command)
PYXIS_OUTPUT = Registered("__pyxis_output", Command)
PYXIS_PLUGIN = Registered("__pyxis_plugin", module_results.PluginResult)
PYXIS_RECORD = Registered("__pyxis_record", module_results.PluginResult)
PYXIS_RESTORED = Registered("__pyxis_restored", module_results.PluginResult)
PYXIS_RUN = Registered("__pyxis_run", module_results.JobResult)
REGISTRY_COMPARED = Registered("__registry_compared", module_results.ServiceResult)
REMOVE_NODES_CLEANED = Registered("__remove_nodes_cleaned", module_results.PlanResult)
REMOVE_NODES_COMPARED = Registered("__remove_nodes_compared", module_results.PlanResult)
REMOVE_NODES_ERROR = Registered("__remove_nodes_error", str)
REMOVE_NODES_STORAGE = Registered("__remove_nodes_storage", module_results.StorageResult)
ROLLING_BATCHES = Registered("__rolling_batches", int)
ROLLING_DIGEST = Registered("__rolling_digest", str)
ROLLING_ERROR = Registered("__rolling_error", str)
ROLLING_JOBS = Registered("__rolling_jobs", module_results.JobResult)
ROLLING_NODES = Registered("__rolling_nodes", list[str])
ROLLING_RESUMED = Registered("__rolling_resumed", module_results.RollingResult)
ROLLING_STEP = Registered("__rolling_step", module_results.RollingResult)
ROLLING_UPDATES = Registered("__rolling_updates", module_results.UpdatesInfo)
ROTATION_REMOVED = Registered("__rotation_removed", Command)
ROTATION_STATE = Registered("__rotation_state", Command)
SLURM_ACCOUNTING_RUN = Registered("__slurm_accounting_run", module_results.PolicyResult)
SLURM_APPARMOR_FACTS = Registered("__slurm_apparmor_facts", module_results.HostFactsResult)
SLURM_CLUSTER_FACTS = Registered("__slurm_cluster_facts", module_results.HostFactsResult)
SLURM_FACTS = Registered(ANSWER, module_results.HostFactsResult)
SLURM_INSTALLED = Registered("__slurm_installed", module_results.PackagesResult)
SLURM_PACKAGES_RUN = Registered("__slurm_packages_run", module_results.PackagesResult)
SLURM_RELEASE_ORDER = Registered("__slurm_release_order", dict[str, Any])
SLURM_REPORT_COLLECTED = Registered("__slurm_report_collected", Command)
SLURM_ROTATES = Registered("__slurm_rotates", bool)
SLURM_RUN = Registered("__slurm_run", dict[str, Any])
SLURM_RUN_ENDED = Registered("__slurm_run_ended", module_results.RunResult)
SLURM_TOKEN_KEY_PRESENT = Registered("__slurm_token_key_present", Content)
SLURM_UPDATES = Registered("__slurm_updates", module_results.UpdatesInfo)
SLURM_UPGRADE_PING = Registered("__slurm_upgrade_ping", Command)
SLURM_UPGRADE_PLAN = Registered("__slurm_upgrade_plan", dict[str, Any])
SLURM_UPGRADES = Registered("__slurm_upgrades", bool)
SLURMCTLD_ADDITIONS = Registered("__slurmctld_additions", module_results.PolicyResult)
SLURMCTLD_CONFIG = Registered("__slurmctld_config", module_results.ConfigResult)
SLURMCTLD_FETCHED = Registered("__slurmctld_fetched", dict[str, str])
SLURMCTLD_NAMED = Registered("__slurmctld_named", Command)
SLURMCTLD_OF_CLUSTER = Registered("__slurmctld_of_cluster", Loop)
SLURMCTLD_OWN = Registered("__slurmctld_own", module_results.ConfigurationInfo)
SLURMCTLD_OWN_ACCEPTED = Registered("__slurmctld_own_accepted", module_results.Result)
SLURMCTLD_PLANNED = Registered("__slurmctld_planned", module_results.ConfigResult)
SLURMCTLD_SERVICE = Registered("__slurmctld_service", module_results.ServiceResult)
SLURMCTLD_STATE = Registered("__slurmctld_state", module_results.StateDirectoryResult)
SLURMCTLD_STATE_SEEN = Registered("__slurmctld_state_seen", module_results.StateDirectoryResult)
SLURMD_ASKED = Registered("__slurmd_asked", Command)
SLURMD_OUTCOME = Registered("__slurmd_outcome", str)
SLURMD_READ_AT_START = Registered("__slurmd_read_at_start", str)
SLURMD_STATES = Registered("__slurmd_states", Command)
SLURMDBD_CONFIG = Registered("__slurmdbd_config", module_results.ConfigResult)
SLURMDBD_CONVERSION = Registered("__slurmdbd_conversion", module_results.ConversionResult)
SLURMDBD_DATABASE = Registered("__slurmdbd_database", module_results.DatabaseResult)
SLURMDBD_PRESENT = Registered("__slurmdbd_present", Content)
VALIDATE_RUN = Registered("__validate_run", module_results.JobResult)
