# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules return, with the bounds of the fields, as in `fact_records`.

A module's function has its result as type, and the control host checks answers by it (`plugin_utils/answers.py`).
Fields of a class with total=False are not always returned.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from ...module_utils.language.records import Most, Pattern, Range
from .fact_records import (
    LARGEST,
    MANY,
    MOST_HOSTS,
    PATH,
    Checksum,
    Empty,
    HardwareFact,
    HostFact,
    HostName,
    Line,
    Mib,
    Number32,
    Path,
    Seconds,
    Text,
    Version,
    Word,
)

FewTexts = Annotated[list[Text], Most(64)]
Lines = Annotated[list[Text], Most(MANY)]
FileName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")]
Entities = Annotated[list[dict[Line, Any]], Most(MANY)]


class AnyResult(TypedDict, total=False):
    """What any module may return, or Ansible in its place. `msg` of some modules is not a text."""

    changed: bool
    failed: bool
    skipped: bool
    unreachable: bool
    msg: Any
    rc: Annotated[int, Range(1 << 32, -(1 << 32))]
    stdout: Text
    stderr: Text
    module_stdout: Text
    module_stderr: Text
    warnings: list[Any]
    deprecations: list[Any]
    exception: Any
    invocation: Any
    ansible_job_id: Line
    started: Any
    finished: Any
    results_file: Line
    put_back: bool
    """A module that has failed has restored what it had changed."""


class Result(TypedDict):
    """The result of any module."""

    changed: bool


class ShownResult(Result):
    """The result of a module that shows what it changes."""

    diff: Any


class PlannedChange(TypedDict):
    """A change of a plan."""

    what: Text
    before: Text | None
    after: Text | None


class PlanResult(ShownResult):
    """The result of slurm_node, slurm_reservation and slurm_host_cleanup."""

    plan: Annotated[list[PlannedChange], Most(MANY)]


class AccountingResult(PlanResult):
    """The result of slurm_account, slurm_cluster, slurm_qos and slurm_user."""

    table: Lines


class PolicyResult(AccountingResult):
    """The result of slurm_accounting."""

    kept: Lines
    registered: bool
    refused: Lines


class Policy(TypedDict):
    """The policy in a database."""

    limits: dict[Line, Any]
    qos: Entities
    accounts: Entities
    users: Entities


class PolicyInfo(Result):
    """The result of slurm_accounting_info."""

    policy: Policy
    left_out: Lines


class DriverResult(ShownResult):
    """The result of nvidia_driver."""

    reason: Line
    generations: Annotated[list[Word], Most(64)]
    branch: Line
    modules: Line
    version: Line
    packages: list[Line]
    pending: bool
    disruptive: bool
    reboot: FewTexts
    remarks: FewTexts


class MaintenanceTimes(TypedDict):
    """The time of a maintenance, in Unix seconds, as scontrol has it, and for people."""

    start: Annotated[int, Range(1 << 40)]
    end: Annotated[int, Range(1 << 40)]
    start_time: Annotated[str, Pattern("[0-9T:-]*")]
    end_time: Annotated[str, Pattern("[0-9T:-]*")]
    start_shown: Line
    end_shown: Line


class MaintenanceJob(TypedDict):
    """A job that a maintenance concerns."""

    job: Line
    user: Line
    partition: Text
    limit: Line
    end: Annotated[int, Range(1 << 40)] | None


class MaintenanceJobs(TypedDict):
    """Jobs that a maintenance concerns."""

    count: Number32
    jobs: Annotated[list[MaintenanceJob], Most(64)]


class MaintenanceResult(ShownResult):
    """The result of slurm_maintenance."""

    window: MaintenanceTimes | Empty
    begun: bool
    running: MaintenanceJobs
    waiting: MaintenanceJobs
    table: FewTexts
    sent: Annotated[list[Line], Most(MANY)]
    unsent: Annotated[dict[Line, Text], Most(MANY)]


class MigResult(ShownResult):
    """The result of nvidia_mig."""

    driver: bool
    commands: list[Line]
    gpus: dict[Annotated[str, Pattern("[0-9]{1,4}")], Line]


class DiffSometimes(Result, total=False):
    """The diff, which steps without a change do not have."""

    diff: Any


class AccessResult(DiffSometimes):
    """The result of slurm_access."""

    files: Lines
    unproven: bool


class PlannedSetting(PlannedChange):
    """A change of the configuration."""

    needs: Text
    ends: Annotated[list[Line], Most(MANY)]


class ConfigSometimes(Result, total=False):
    """What slurm_config returns of slurmctld alone, and its diff."""

    diff: Any
    read_at_start: Text
    unproven: Annotated[list[Annotated[str, Pattern(r"[A-Za-z0-9._,\[\]-]+", 1 << 20)]], Most(MANY)]


class ConfigResult(ConfigSometimes):
    """The result of slurm_config. The names of files become paths on standby controllers."""

    plan: Annotated[list[PlannedSetting], Most(MANY)]
    table: Lines
    actions: Annotated[list[Annotated[str, Pattern("[a-z]+")]], Most(16)]
    in_force: Annotated[dict[FileName, Text], Most(64)]
    in_force_bytes: Annotated[dict[FileName, Text], Most(64)]
    listed: Text
    serial: Annotated[str, Pattern(r"([0-9]+ [0-9A-Za-z.~+-]+)?")]
    kept_hosts: Annotated[list[HostName], Most(2 * MOST_HOSTS)]
    absent: Annotated[list[FileName], Most(64)]
    remarks: Lines


class ConfigurationSometimes(TypedDict, total=False):
    """What slurm_configuration_info returns of a controller alone."""

    version: Annotated[str, Pattern(r"[0-9A-Za-z.~+-]+")]
    user_id: Annotated[int, Range(LARGEST)] | None
    package: Annotated[str, Pattern(r"[a-z0-9.+-]*")]
    drift: Lines


class FoundConfiguration(ConfigurationSometimes):
    """The files of a daemon."""

    files: dict[Line, Text]
    directory: Line


class ConfigurationInfo(Result, FoundConfiguration):
    """The result of slurm_configuration_info."""


class ConversionResult(Result):
    """The result of slurm_conversion."""

    seconds: Number32
    size: Mib
    dump: Annotated[str, Pattern(r"(/[A-Za-z0-9+._~:/-]+)?")]
    remarks: Lines


class DatabaseResult(ShownResult):
    """The result of slurm_database."""

    rows: Annotated[list[Annotated[list[dict[Word, Text]], Most(MANY)]], Most(64)]


class DatabaseServerResult(Result):
    """The result of slurm_database_server."""

    release: Version


class Clock(TypedDict):
    """The clock of a host."""

    time: Seconds
    clock_offset: Seconds


class FilesResult(ShownResult):
    """The result of slurm_files."""

    files: Lines


class HardwareDifference(TypedDict):
    """A number of the hardware of which slurmd has another one."""

    name: Word
    measured: Mib
    slurmd: Mib


class HardwareFacts(TypedDict):
    """The facts of slurm_hardware_facts."""

    slurm_hardware: HardwareFact


class HardwareResult(Result):
    """The result of slurm_hardware_facts."""

    ansible_facts: HardwareFacts
    differences: Annotated[list[HardwareDifference], Most(64)]


class FirewallResult(DiffSometimes):
    """The result of slurm_firewall."""

    unproven: bool


class MeasuredFacts(TypedDict, total=False):
    """The fact that slurm_host_facts returns if it is asked for the hardware."""

    slurm_hardware: HardwareFact


class HostFacts(MeasuredFacts):
    """The facts of slurm_host_facts."""

    slurm_host: HostFact


class HostFactsSometimes(Result, total=False):
    """What slurm_host_facts returns with the hardware."""

    differences: Annotated[list[HardwareDifference], Most(64)]


class HostFactsResult(HostFactsSometimes, Clock):
    """The result of slurm_host_facts."""

    ansible_facts: HostFacts


class HostAnswer(HostFactsResult, total=False):
    """The same, with what the control host adds for site.yml and the report (`plugins/action/slurm_host_facts.py`)."""

    objections: list[str]
    stages: list[str]
    drift: list[tuple[str, str]]


class EndedJob(TypedDict):
    """A job of slurm_job."""

    name: Line
    job_id: Number32
    partition: Line
    status: Annotated[str, Pattern("passed|failed|waiting")]
    ok: bool
    state: Annotated[str, Pattern("[A-Z_]*")]
    expected: Annotated[str, Pattern("[A-Z_]*")]
    exit_code: Annotated[str, Pattern("[0-9:]*")]
    nodes: Annotated[str, Pattern("[!-~]*", 1 << 20)]
    elapsed: Annotated[int, Range(1 << 40)]
    reason: Text
    node_states: Annotated[dict[Line, Text], Most(MANY)]
    message: Text


class JobSometimes(Result, total=False):
    """What slurm_job returns after jobs have run."""

    accounting: bool
    failed: bool


class JobResult(JobSometimes):
    """The result of slurm_job."""

    msg: Text
    jobs: Annotated[list[EndedJob], Most(MANY)]


class Plugin(TypedDict):
    """A plugin of Slurm in a package."""

    path: Path
    sha256: Checksum


class PackagesResult(ShownResult):
    """The result of slurm_packages."""

    installed: Lines
    held: dict[Word, Word]
    files: Lines
    plugins: list[Plugin]


class PeopleSometimes(DiffSometimes, total=False):
    """What Ansible would add otherwise."""

    invocation: Any


class PeopleResult(PeopleSometimes):
    """The result of slurm_people."""

    conflicts: Lines
    remarks: Lines


class StepResult(Result):
    """What a step of slurm_removal or slurm_rolling returns. Names become hosts of the play."""

    ready: Annotated[list[HostName], Most(MOST_HOSTS)]
    over: bool
    ok: bool
    table: Lines


class RemovalResult(StepResult):
    """The result of slurm_removal."""

    deadline: Annotated[str, Pattern("[0-9T:-]*")]


class Run(TypedDict):
    """A run that a controller knows of."""

    host: Line
    user: Line
    process: Annotated[str, Pattern("[0-9]{1,9}( [0-9]{1,20})?")]
    since: Line
    nodes: Line
    common: Line


class RollingResult(StepResult):
    """The result of slurm_rolling."""

    changed_earlier: Annotated[list[HostName], Most(MOST_HOSTS)]
    done: Annotated[list[Line], Most(MOST_HOSTS)]
    broken: Annotated[dict[Line, Text], Most(MOST_HOSTS)]
    left: Annotated[dict[Line, Text], Most(MOST_HOSTS)]
    others: Annotated[list[Run], Most(64)]


class AcceptanceOutput(TypedDict):
    """What a job of slurm_acceptance has printed; `acceptance/measurements.py` reads the text."""

    task: Line
    job: Number32
    nodes: Text
    text: Text
    why: Text


class AcceptanceResult(StepResult):
    """The result of slurm_acceptance."""

    taken: Text
    left: Annotated[dict[Line, Text], Most(MOST_HOSTS)]
    switches: Annotated[dict[Line, Line], Most(MOST_HOSTS)]
    reads: Annotated[dict[HostName, list[Number32]], Most(MOST_HOSTS)]
    outputs: Annotated[list[AcceptanceOutput], Most(MANY)]
    others: Annotated[list[Run], Most(64)]


class RunResult(Result):
    """The result of slurm_run."""

    others: Annotated[list[Run], Most(64)]
    shared: bool
    controllers: Annotated[dict[HostName, Annotated[str, Pattern("[a-z ]+")]], Most(64)]


class ServiceResult(ShownResult):
    """The result of slurm_service."""

    files: Lines
    actions: Annotated[list[Annotated[str, Pattern("[a-z-]+")]], Most(16)]
    reason: Text
    proof: Text


class PluginSometimes(Result, total=False):
    """What slurm_spank_plugin returns if it was given a line."""

    former_line: Line


class PluginResult(PluginSometimes):
    """The result of slurm_spank_plugin."""

    diff: Any
    unproven: bool


class MountPoint(TypedDict):
    """Where a directory is mounted."""

    point: Line
    type: Line
    source: Line
    root: bool
    guard: Line
    automount: bool


class StateDirectoryResult(Result):
    """The result of slurm_state_directory. The name of the file becomes an argument of the other controllers."""

    mount: MountPoint | Empty
    inode: Annotated[int, Range(1 << 64)] | None
    file: Annotated[str, Pattern(r"([.A-Za-z0-9][A-Za-z0-9._-]*)?")]
    missing: list[Line]
    error: Text


class ImageResult(PlanResult):
    """The result of slurm_image."""

    remarks: Lines


class StorageResult(PlanResult):
    """The result of slurm_storage."""

    unexported: list[Annotated[str, Pattern(PATH)]]
    remarks: Lines


class UpdateRecord(TypedDict):
    """What apt knows of the packages of one kind (`host/packages/apt_updates.py`)."""

    kind: Annotated[str, Pattern("[a-z]+", 32)]
    state: Annotated[str, Pattern("pending|held|pinned|not booted|none")]
    security: Annotated[str, Pattern("yes|no|unknown")]
    package: Word
    installed: Version
    available: Version
    packages: Number32


class Updates(TypedDict):
    """What apt knows of newer packages."""

    updates: Annotated[list[UpdateRecord], Most(16)]
    security: list[Annotated[str, Pattern(r"[a-z0-9][a-z0-9+.-]*=[A-Za-z0-9+._~:-]+")]]
    lists_days: Annotated[int, Range(100_000)] | None


class UpdatesInfo(Result, Updates):
    """The result of slurm_updates_info."""


# -- what rules read of the results of other modules (decisions/known/registered.py) ----------------------------


class Command(Result):
    """The result of ansible.builtin.command."""

    rc: int
    stdout: str
    stderr: str
    stdout_lines: list[str]


class Content(Result):
    """The result of ansible.builtin.slurp: the content in base64."""

    content: str


class Status(Result):
    """The result of ansible.builtin.stat."""

    stat: dict[str, Any]


class Loop(Result):
    """The results of a task with a loop."""

    results: list[dict[str, Any]]


RESULTS: dict[str, type[Any]] = {
    "nvidia_driver": DriverResult,
    "nvidia_mig": MigResult,
    "slurm_acceptance": AcceptanceResult,
    "slurm_access": AccessResult,
    "slurm_account": AccountingResult,
    "slurm_accounting": PolicyResult,
    "slurm_accounting_info": PolicyInfo,
    "slurm_cluster": AccountingResult,
    "slurm_config": ConfigResult,
    "slurm_configuration_info": ConfigurationInfo,
    "slurm_conversion": ConversionResult,
    "slurm_database": DatabaseResult,
    "slurm_database_server": DatabaseServerResult,
    "slurm_files": FilesResult,
    "slurm_firewall": FirewallResult,
    "slurm_hardware_facts": HardwareResult,
    "slurm_host_cleanup": PlanResult,
    "slurm_host_facts": HostFactsResult,
    "slurm_image": ImageResult,
    "slurm_job": JobResult,
    "slurm_maintenance": MaintenanceResult,
    "slurm_node": PlanResult,
    "slurm_packages": PackagesResult,
    "slurm_people": PeopleResult,
    "slurm_qos": AccountingResult,
    "slurm_removal": RemovalResult,
    "slurm_reservation": PlanResult,
    "slurm_rolling": RollingResult,
    "slurm_run": RunResult,
    "slurm_service": ServiceResult,
    "slurm_spank_plugin": PluginResult,
    "slurm_state_directory": StateDirectoryResult,
    "slurm_storage": StorageResult,
    "slurm_updates_info": UpdatesInfo,
    "slurm_user": AccountingResult,
}
"""The result of each module; those of the doctor's modules follow from `doctor/evidence.py`."""
