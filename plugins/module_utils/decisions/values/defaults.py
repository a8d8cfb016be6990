# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The defaults that the collection gives to parameters of Slurm's files and of MariaDB: one table, in order.

The files have the parameters in this order. A later row with the same key replaces an earlier one. `slurm_conf`,
`slurm_cgroup_conf`, `slurmdbd_conf` and `mariadb_settings` win over all rows but those that the cluster needs
(FIRST and LAST). `make docs` writes docs/admin/defaults.md from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..known.host_paths import ENROOT_EPILOG, ENROOT_PROLOG, HEALTH_PROGRAM, LIB_DIR, LOG_DIR
from ..known.platform_tables import NEWEST, RELEASES, Release
from ..known.run_host import RunHost
from ..known.whole_cluster import SRUN_PORTS
from . import default_values as when
from . import slurmctld_metrics
from .default_records import ALWAYS, FIRST, LAST, OPTION, PARTITION, SET, Condition, Default, Follows, Target

SLURM = "slurm.conf"
CGROUP = "cgroup.conf"
JOB_CONTAINER = "job_container.conf"
SLURMDBD = "slurmdbd.conf"
MARIADB = "zz-gpucluster-slurm.cnf"

FILES: Mapping[str, str] = {
    SLURM: "slurm_conf",
    CGROUP: "slurm_cgroup_conf",
    JOB_CONTAINER: "",
    SLURMDBD: "slurmdbd_conf",
    MARIADB: "mariadb_settings",
}
"""The files, and the variable with which a site replaces the values of each; empty for none."""

PRIVATE = ("accounts", "events", "jobs", "reservations", "usage", "users")

MAN = "slurm.conf(5)"
CGROUP_MAN = "cgroup.conf(5)"
DBD_MAN = "slurmdbd.conf(5)"
CONTAINER_MAN = "job_container.conf(5)"
AGENT = "src/plugins/accounting_storage/slurmdbd/slurmdbd_agent.c"
GUIDE = "https://slurm.schedmd.com/accounting.html"

OWN_PATH = "Role base creates the directory; logs are rotated there."
SAME_VALUE = "Slurm's own value, written for readers of the file."
CONFINED = "A GPU job must not reach devices, cores or memory of another job."
FAIR_SHARE = "Users and accounts that used less than their share in the last weeks come first."
SITE_SERVER = "Others run it."
KEPT_RECORDS = "The database keeps records as long as reports need them; most rows are steps."
ARCHIVED = "`sacctmgr archive load` reads what slurmdbd has removed from the database."

DEFAULTS: tuple[Default, ...] = (
    # -- slurm.conf ---------------------------------------------------------------------------------------------------
    Default(SLURM, "AuthType", "auth/munge", "Role munge installs it on all hosts.", MAN),
    Default(SLURM, "SlurmUser", "slurm", "slurmctld needs no rights of root.", MAN),
    Default(SLURM, "StateSaveLocation", when.STATE_DIRECTORY, "Each controller has it.", MAN),
    Default(SLURM, "TmpFS", when.SCRATCH, "Slurm counts the temporary files of jobs where they are.", MAN),
    Default(SLURM, "SlurmdSpoolDir", f"{LIB_DIR}/slurmd", OWN_PATH, MAN, of_collection=True),
    Default(SLURM, "SlurmctldPidFile", when.pid_file("slurmctld"), "The units of the packages have it there.", MAN),
    Default(SLURM, "SlurmdPidFile", when.pid_file("slurmd"), "The units of the packages have it there.", MAN),
    Default(SLURM, "SlurmctldLogFile", f"{LOG_DIR}/slurmctld.log", OWN_PATH, MAN, of_collection=True),
    Default(SLURM, "SlurmdLogFile", f"{LOG_DIR}/slurmd.log", OWN_PATH, MAN, of_collection=True),
    Default(SLURM, "SrunPortRange", SRUN_PORTS, "A firewall needs a range to open.", MAN, of_collection=True),
    Default(
        SLURM,
        "SrunPortRange",
        "61000-63000",
        "The kernel gives ports up to 60999 to any connection, so that srun could find one taken.",
        "net.ipv4.ip_local_port_range",
        of_collection=True,
        generation=2,
    ),
    Default(
        SLURM,
        "MailProg",
        when.MAIL,
        "Slurm's /bin/mail is missing on most hosts, and slurmctld logs an error at each start.",
        MAN,
    ),
    Default(SLURM, "MailDomain", when.MAIL_DOMAIN, "The address of a user who gives none.", MAN),
    Default(SLURM, "RebootProgram", "/usr/sbin/reboot", "`scontrol reboot` and rolling.yml need it.", MAN),
    Default(
        SLURM,
        "ResumeTimeout",
        600,
        "With Slurm's 60 s, a server that takes two minutes to boot stays down after `scontrol reboot`.",
        "src/slurmctld/power_save.c",
        when.REBOOTS,
        generation=2,
    ),
    Default(
        SLURM,
        "PrologFlags",
        "contain",
        "Each job has a step on all its nodes, to which pam_slurm_adopt adds processes that Slurm has not started.",
        MAN,
    ),
    Default(SLURM, "ProctrackType", "proctrack/cgroup", "No process leaves its job.", MAN),
    Default(SLURM, "TaskPlugin", ["task/affinity", "task/cgroup"], "Tasks are bound to cores and confined.", MAN),
    Default(SLURM, "SelectType", "select/cons_tres", "The plugin that allocates GPUs.", MAN),
    Default(
        SLURM,
        "SelectTypeParameters",
        "CR_Core_Memory",
        "Whole cores: with CR_CPU two jobs would share a core where ThreadsPerCore > 1.",
        MAN,
    ),
    Default(SLURM, "SchedulerType", "sched/backfill", SAME_VALUE, MAN),
    Default(
        SLURM,
        "EnforcePartLimits",
        "ALL",
        "Slurm refuses a job that can never run when it is submitted.",
        MAN,
    ),
    Default(
        SLURM,
        "EnforcePartLimits",
        "ANY",
        "With ALL, `sbatch -p gpu,all` is refused although one of both fits. A job that fits none is refused.",
        "src/slurmctld/job_mgr.c",
        generation=2,
    ),
    Default(
        SLURM,
        "PropagateResourceLimitsExcept",
        when.KEPT_LIMITS,
        "A small limit for locked memory (ulimit -l) of a login ends programs that use RDMA, MPI among them.",
        MAN,
    ),
    Default(SLURM, "ReturnToService", 1, "A node that was down because it did not respond returns by itself.", MAN),
    Default(SLURM, "InactiveLimit", 0, SAME_VALUE, MAN),
    Default(SLURM, "KillWait", 30, SAME_VALUE, MAN),
    Default(SLURM, "MinJobAge", 300, SAME_VALUE, MAN),
    Default(SLURM, "SlurmctldTimeout", 120, SAME_VALUE, MAN),
    Default(SLURM, "SlurmdTimeout", 300, SAME_VALUE, MAN),
    Default(
        SLURM,
        "UnkillableStepTimeout",
        240,
        "A process that waits for a file system or a GPU may need minutes to end; with 60 s its node is drained.",
        MAN,
    ),
    Default(SLURM, "HealthCheckProgram", HEALTH_PROGRAM, "Role slurm_health installs it.", MAN, of_collection=True),
    Default(SLURM, "HealthCheckInterval", 300, "A broken node gets no jobs for long.", MAN),
    Default(
        SLURM,
        "HealthCheckNodeState",
        ["ANY", "CYCLE"],
        "CYCLE spreads the checks over the interval; otherwise thousands of nodes would report at once.",
        MAN,
    ),
    Default(SLURM, "JobAcctGatherType", "jobacct_gather/cgroup", "The kernel counts what a job uses.", MAN),
    Default(SLURM, "JobAcctGatherFrequency", 30, SAME_VALUE, MAN),
    Default(SLURM, "JobCompType", "jobcomp/filetxt", "A list of jobs without a database.", MAN),
    Default(SLURM, "JobCompLoc", f"{LOG_DIR}/job_completions", OWN_PATH, MAN, of_collection=True),
    Default(SLURM, "JobCompType", None, "slurmdbd has all jobs.", MAN, when.NO_OTHER_LIST, generation=2),
    Default(SLURM, "JobCompLoc", None, "slurmdbd has all jobs.", MAN, when.NO_OTHER_LIST, generation=2),
    Default(
        SLURM,
        "MaxJobCount",
        when.MAX_JOB_COUNT,
        "With Slurm's 10,000, a large cluster refuses jobs while its nodes are idle.",
        MAN,
        generation=2,
    ),
    Default(
        SLURM,
        "MaxArraySize",
        when.MAX_ARRAY_SIZE,
        "Slurm's 1,001 is a tenth of its MaxJobCount.",
        MAN,
        generation=2,
    ),
    Default(
        SLURM,
        "MaxDBDMsgs",
        when.MAX_DBD_MSGS,
        "slurmctld discards what exceeds it while slurmdbd is away. Slurm's 20,000 are 2,500 jobs; 100,000 are 11,000 "
        "jobs, and 1.6 GiB of memory.",
        AGENT,
        when.DATABASE,
        generation=2,
    ),
    Default(SLURM, "MetricsType", "metrics/openmetrics", "Prometheus reads slurmctld.", MAN, when.METRICS),
    Default(
        SLURM,
        "MetricsAuthUsers",
        slurmctld_metrics.USER,
        "With `PrivateData`, slurmctld shows its metrics to the tokens of this user alone.",
        "src/slurmctld/http.c",
        when.METRICS_TOKENS,
    ),
    Default(
        SLURM,
        "SlurmctldHttpAuthParameters",
        f"jwt_key={slurmctld_metrics.HTTP_KEY}",
        "A key of its own: it opens slurmctld's pages, and nobody can speak to Slurm with it.",
        "src/plugins/auth/jwt/http_auth_jwt.c",
        when.METRICS_TOKENS,
    ),
    Default(
        SLURM,
        "AuthAltParameters",
        f"jwt_key={slurmctld_metrics.HTTP_KEY}",
        "slurmctld ends if the plugin finds no key for commands. Without AuthAltTypes no command can use it.",
        "src/plugins/auth/jwt/auth_jwt.c",
        when.METRICS_PLUGIN,
    ),
    Default(SLURM, "AuthAltTypes", "auth/jwt", "slurmctld takes the tokens that slurmrestd gets.", MAN, when.REST),
    Default(SLURM, "AuthAltParameters", when.TOKENS, "Role slurmctld writes the key.", MAN, when.REST),
    Default(
        SLURM,
        "GresTypes",
        when.of_nodes("the names of all generic resources", "GresTypes"),
        "Slurm knows no other generic resources.",
        MAN,
        when.GRES,
    ),
    Default(
        SLURM,
        "DefMemPerCPU",
        when.of_nodes("the least memory of a node divided by its CPUs", "DefMemPerCPU"),
        "Otherwise a job that asks for no memory takes all memory of a node.",
        MAN,
        when.NODES,
    ),
    Default(
        SLURM,
        "AccountingStorageType",
        "accounting_storage/slurmdbd",
        "Accounts, limits and fair share need it.",
        MAN,
        when.DATABASE,
    ),
    Default(
        SLURM,
        "AccountingStorageHost",
        when.of_variable("`database`", "slurm_database"),
        "slurmdbd runs there.",
        MAN,
        when.DATABASE,
    ),
    Default(SLURM, "AccountingStorageTRES", "gres/gpu", "GPUs are accounted where there are any.", MAN, when.GPUS),
    Default(
        SLURM,
        "AccountingStorageTRES",
        when.TRACKED_GPUS,
        "A limit of a type of GPU, such as `gres/gpu:h100`, needs the type to be tracked; so do shares of GPUs.",
        MAN,
        when.GPUS,
        generation=2,
    ),
    Default(SLURM, "PriorityType", "priority/multifactor", FAIR_SHARE, MAN, when.DATABASE),
    Default(SLURM, "PriorityDecayHalfLife", "7-0", FAIR_SHARE, MAN, when.DATABASE),
    Default(SLURM, "PriorityMaxAge", "7-0", "Age prevents starvation.", MAN, when.DATABASE),
    Default(SLURM, "PriorityWeightAge", 1000, "Age prevents starvation.", MAN, when.DATABASE),
    Default(SLURM, "PriorityWeightFairshare", 10000, FAIR_SHARE, MAN, when.DATABASE),
    Default(SLURM, "PriorityWeightQOS", 100000, "A QOS outweighs age and fair share.", MAN, when.DATABASE),
    Default(
        SLURM,
        "PriorityWeightPartition",
        10000,
        "With Slurm's 0, PriorityJobFactor of a partition does nothing. It counts as much as fair share.",
        "src/plugins/priority/multifactor/priority_multifactor.c",
        when.PARTITION_FACTORS,
        generation=2,
    ),
    Default(
        SLURM,
        "PriorityFlags",
        "MAX_TRES",
        "A job is charged for the largest share of a node that it takes. Slurm's sum would charge a whole node three "
        "times, and MAX_TRES_GRES twice.",
        "src/common/assoc_mgr.c",
        when.BILLED,
        OPTION,
        generation=2,
    ),
    Default(
        SLURM,
        "TRESBillingWeights",
        when.WEIGHTS,
        "Without weights a job is charged for its CPUs alone, often one for each GPU.",
        "https://slurm.schedmd.com/tres.html",
        when.BILLED,
        PARTITION,
        generation=2,
    ),
    Default(
        SLURM,
        "AccountingStorageEnforce",
        ["associations", "limits", "qos", "safe"],
        "A job needs an account, and starts only if the limits allow it to finish.",
        MAN,
        when.POLICY,
    ),
    Default(SLURM, "PreemptType", "preempt/qos", "The policy says who preempts whom.", MAN, when.PREEMPTION),
    Default(SLURM, "PreemptMode", "REQUEUE", "A preempted job goes back into the queue.", MAN, when.PREEMPTION),
    Default(
        SLURM,
        "JobContainerType",
        "job_container/tmpfs",
        "Each job has a `/tmp` of its own.",
        CONTAINER_MAN,
        when.JOB_CONTAINERS,
    ),
    Default(
        SLURM,
        "NamespaceType",
        "namespace/tmpfs",
        "Each job has a `/tmp` of its own; the new name of JobContainerType.",
        MAN,
        when.NAMESPACES,
    ),
    Default(SLURM, "PrivateData", [*PRIVATE], "Users see their own jobs and accounts only.", MAN, when.STRICT),
    Default(SLURM, "DisableRootJobs", True, "Root of one host must not run jobs on others.", MAN, when.STRICT),
    Default(
        SLURM, "PropagateResourceLimits", "NONE", "The limits of a login are no limits of a job.", MAN, when.STRICT
    ),
    Default(
        SLURM,
        "CommunicationParameters",
        ["NoCtldInAddrAny", "NoInAddrAny"],
        "The daemons use the addresses of the cluster only.",
        MAN,
        when.STRICT,
    ),
    # What the cluster needs is added to the site's own values.
    Default(SLURM, "Prolog", ENROOT_PROLOG, "Directories of enroot for the job.", MAN, when.ENROOT, LAST),
    Default(
        SLURM,
        "Prolog",
        "slurm-prolog",
        "The scripts of `prologs`, and which job has which GPUs.",
        MAN,
        when.PROLOG_PROGRAM,
        LAST,
    ),
    Default(
        SLURM,
        "Prolog",
        "slurm-prolog",
        "Sees that no job with GPUs starts on a node with broken ones.",
        MAN,
        when.HEALTH_PROLOG_ALONE,
        LAST,
        generation=2,
    ),
    Default(SLURM, "Epilog", ENROOT_EPILOG, "Removes the directories of enroot.", MAN, when.ENROOT, LAST),
    Default(
        SLURM,
        "Epilog",
        "slurm-epilog",
        "The scripts of `epilogs`, and which job has which GPUs.",
        MAN,
        when.EPILOG_PROGRAM,
        LAST,
    ),
    Default(
        SLURM,
        "Epilog",
        "slurm-epilog",
        "Sees what a job has left on its GPUs.",
        MAN,
        when.HEALTH_EPILOG_ALONE,
        LAST,
        generation=2,
    ),
    Default(
        SLURM,
        "SchedulerParameters",
        "nohold_on_prolog_fail",
        "A job whose prolog has failed on a node starts on others.",
        MAN,
        when.PROLOGS,
        LAST,
    ),
    Default(
        SLURM,
        "SchedulerParameters",
        "nohold_on_prolog_fail",
        "A job that has met broken GPUs starts on another node.",
        MAN,
        when.HEALTH_WITHOUT_PROLOGS,
        LAST,
        generation=2,
    ),
    Default(
        SLURM,
        "SchedulerParameters",
        when.WINDOW,
        "A job that can start only after the window gets no reservation, and shorter jobs overtake it.",
        "src/plugins/sched/backfill/backfill.c",
        place=OPTION,
        generation=2,
    ),
    Default(
        SLURM,
        "SchedulerParameters",
        when.RESOLUTION,
        "A longer window with the same resolution makes the scheduler slow.",
        MAN,
        place=OPTION,
        generation=2,
    ),
    Default(
        SLURM,
        "LaunchParameters",
        "use_interactive_step",
        "`salloc` gives a shell on the allocated node, not on the login host.",
        "src/salloc/opt.c",
        place=OPTION,
        generation=2,
    ),
    Default(
        SLURM,
        "SlurmctldParameters",
        "enable_configless",
        "The other hosts fetch their files from slurmctld.",
        MAN,
        place=FIRST,
    ),
    Default(
        SLURM,
        "SlurmctldParameters",
        "disable_triggers",
        "Root of any host with the munge key could set a trigger as SlurmUser, and slurmctld would run its program.",
        MAN,
        when.STRICT_TRIGGERS,
        FIRST,
    ),
    Default(
        SLURM,
        "SlurmctldParameters",
        "max_dbd_msg_action=discard",
        "Slurm's own value. With `exit` slurmctld ends at MaxDBDMsgs, and does not start before slurmdbd: users would "
        "lose the cluster, not reports.",
        AGENT,
        when.DATABASE,
        OPTION,
        generation=2,
    ),
    # -- cgroup.conf --------------------------------------------------------------------------------------------------
    Default(CGROUP, "ConstrainCores", True, CONFINED, CGROUP_MAN),
    Default(CGROUP, "ConstrainDevices", True, CONFINED, CGROUP_MAN),
    Default(CGROUP, "ConstrainRAMSpace", True, CONFINED, CGROUP_MAN),
    Default(CGROUP, "ConstrainSwapSpace", True, CONFINED, CGROUP_MAN),
    # -- job_container.conf -------------------------------------------------------------------------------------------
    Default(JOB_CONTAINER, "AutoBasePath", "true", "slurmd creates the directory.", CONTAINER_MAN, when.PRIVATE_TMP),
    Default(
        JOB_CONTAINER,
        "BasePath",
        when.of_variable("`private_tmp`", "slurm_private_tmp"),
        "The `/tmp` of each job is there.",
        CONTAINER_MAN,
        when.PRIVATE_TMP,
    ),
    Default(
        JOB_CONTAINER,
        "Shared",
        "true",
        "A job sees what autofs mounts later.",
        CONTAINER_MAN,
        when.AUTOMOUNTS,
    ),
    # -- slurmdbd.conf ------------------------------------------------------------------------------------------------
    Default(SLURMDBD, "AuthType", "auth/munge", "Role munge installs it on all hosts.", DBD_MAN),
    Default(
        SLURMDBD,
        "DbdHost",
        when.of_variable("`database`", "slurm_database"),
        "slurmdbd runs there.",
        DBD_MAN,
    ),
    Default(
        SLURMDBD,
        "CommunicationParameters",
        when.VERSIONS_OF_IP,
        "slurmdbd does not read slurm.conf, and must use the same versions of IP.",
        "src/slurmdbd/read_config.c",
    ),
    Default(SLURMDBD, "SlurmUser", "slurm", "slurmdbd needs no rights of root.", DBD_MAN),
    Default(SLURMDBD, "LogFile", f"{LOG_DIR}/slurmdbd.log", OWN_PATH, DBD_MAN, of_collection=True),
    Default(SLURMDBD, "PidFile", when.pid_file("slurmdbd"), "The units of the packages have it there.", DBD_MAN),
    Default(SLURMDBD, "StorageType", "accounting_storage/mysql", "Role mariadb installs it.", DBD_MAN),
    Default(SLURMDBD, "StorageHost", "localhost", "MariaDB listens on this host only.", DBD_MAN),
    Default(SLURMDBD, "StorageUser", "slurm", "Role slurmdbd creates the user.", DBD_MAN),
    Default(SLURMDBD, "StorageLoc", "slurm_acct_db", SAME_VALUE, DBD_MAN),
    *(
        Default(SLURMDBD, f"Storage{key}", when.of_server(part), SITE_SERVER, DBD_MAN, when.DATABASE_SERVER)
        for key, part in {"Host": "host", "Port": "port", "User": "user", "Loc": "name"}.items()
    ),
    Default(SLURMDBD, "StorageParameters", when.SERVER_PARAMETERS, SITE_SERVER, DBD_MAN, when.DATABASE_SERVER),
    Default(SLURMDBD, "ArchiveDir", f"{LIB_DIR}/archive", OWN_PATH, DBD_MAN, of_collection=True),
    *(
        Default(SLURMDBD, f"Archive{table}", True, ARCHIVED, DBD_MAN)
        for table in ("Events", "Jobs", "Resvs", "Steps", "Suspend", "TXN", "Usage")
    ),
    *(
        Default(SLURMDBD, f"Purge{table}After", age, KEPT_RECORDS, DBD_MAN)
        for table, age in {
            "Event": "24month",
            "Job": "24month",
            "Resv": "24month",
            "Step": "12month",
            "Suspend": "12month",
            "TXN": "24month",
            "Usage": "60month",
        }.items()
    ),
    Default(SLURMDBD, "AuthAltTypes", "auth/jwt", "slurmdbd takes these tokens as well.", DBD_MAN, when.REST),
    Default(SLURMDBD, "AuthAltParameters", when.JWT_KEY, "The key of slurmctld.", DBD_MAN, when.REST),
    Default(SLURMDBD, "PrivateData", [*PRIVATE], "Users see their own records only.", DBD_MAN, when.STRICT),
    # -- MariaDB ------------------------------------------------------------------------------------------------------
    Default(MARIADB, "innodb_buffer_pool_size", when.BUFFER_POOL, "Slurm's guide asks for a large one.", GUIDE),
    Default(MARIADB, "innodb_log_file_size", "64M", "Slurm's guide asks for it.", GUIDE),
    Default(
        MARIADB,
        "innodb_log_file_size",
        when.LOG_FILE,
        "The rule of Slurm's guide; 64M is less than MariaDB's own.",
        GUIDE,
        generation=2,
    ),
    Default(MARIADB, "innodb_lock_wait_timeout", 900, "Slurm's guide asks for it.", GUIDE),
    Default(MARIADB, "max_allowed_packet", "16M", "Slurm's guide asks for it.", GUIDE),
    Default(MARIADB, "bind-address", "127.0.0.1", "slurmdbd is on the same host.", GUIDE),
    Default(
        MARIADB,
        "loose_innodb_snapshot_isolation",
        "OFF",
        "slurmdbd expects the isolation of earlier releases; `loose`: MariaDB before 10.11.8 does not know it.",
        GUIDE,
    ),
)

PROGRAMS = ("Prolog", "Epilog")
"""Parameters whose values are programs, not options; each program has a line of its own."""


def target(host: RunHost, release: str, unknown: Release = RELEASES[NEWEST]) -> Target:
    """The cluster of a host with a release of Slurm, and the release to assume where this one is not known."""
    return Target(host, release, RELEASES.get(release, unknown), int(host["slurm_defaults"]))


def rows_for(file: str, target: Target) -> Iterator[Default]:
    """The rows of a file that apply to a cluster."""
    return (
        row for row in DEFAULTS if row.file == file and row.generation <= target.generation and target.holds(row.when)
    )


def values(file: str, target: Target) -> dict[str, Any]:
    """The defaults of a file, which the site's own values replace, in their order."""
    found: dict[str, Any] = {}
    for row in rows_for(file, target):
        if row.place == SET:
            value = row.value_for(target)
            if value is None:
                found.pop(row.key, None)
            else:
                found[row.key] = value
    return found


def joined_values(file: str, target: Target, site: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parameters whose values the collection adds to those of the site, with both."""
    added: dict[str, list[Default]] = {}
    for row in rows_for(file, target):
        if row.place not in (SET, PARTITION):
            added.setdefault(row.key, []).append(row)
    joined = {key: _join(key, rows, target, site) for key, rows in added.items()}
    return {key: value for key, value in joined.items() if value}


def with_defaults(partitions: Iterable[Mapping[str, Any]], target: Target) -> list[dict[str, Any]]:
    """The partitions with the defaults of their parameters."""
    found = [dict(partition) for partition in partitions]
    for row in rows_for(SLURM, target):
        if row.place == PARTITION:
            values_by_name = row.value_for(target)
            for partition in found:
                if row.key.lower() not in map(str.lower, partition) and partition["name"] in values_by_name:
                    partition[row.key] = values_by_name[partition["name"]]
    return found


def _join(key: str, rows: list[Default], target: Target, site: Mapping[str, Any]) -> list[Any]:
    """The values of one parameter: those that come first, those of the site, and those that come last."""
    own = elements(site.get(key))
    if key not in PROGRAMS:
        own = ",".join(map(str, own)).split(",") if own else []
    removed = key in site and site[key] is None
    names = {str(option).partition("=")[0].lower() for option in own}
    wanted: dict[str, list[str]] = {FIRST: [], OPTION: [], LAST: []}
    for row in rows:
        wanted[row.place].append(row.value_for(target))
    found = [option for option in wanted[OPTION] if option is not None and not removed]
    options = [option for option in found if option.partition("=")[0].lower() not in names]
    joined = [*wanted[FIRST], *own, *options, *wanted[LAST]]
    return joined if key in PROGRAMS else distinct(joined)


def elements(value: Any) -> list[Any]:
    """The elements of a value that may be a list, of lists as well, without nulls."""
    if isinstance(value, list):
        return [element for part in value for element in elements(part)]
    return [] if value in (None, "None", "null") else [value]


def distinct(found: Iterable[str]) -> list[str]:
    """Options without empty ones, each once; Slurm compares them without case."""
    known: dict[str, str] = {}
    for option in filter(None, found):
        known.setdefault(option.lower(), option)
    return [*known.values()]


def fixed(file: str, condition: Condition = ALWAYS) -> dict[str, Any]:
    """The parameters of a condition in generation 1, and None for values that follow from a cluster."""
    return {
        row.key: None if row.of_collection or isinstance(row.value, Follows) else row.value
        for row in DEFAULTS
        if row.file == file and row.when == condition and row.place == SET and row.generation == 1
    }


def recommended(_host: RunHost) -> dict[str, dict[str, Any]]:
    """The parameters that the collection sets, by file, as `fixed`: for clusters that are adopted."""
    return {file: fixed(file) for file in (SLURM, CGROUP)}
