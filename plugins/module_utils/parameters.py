# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of Slurm's parameters, as data.

Each set is the union of the option tables of Slurm 22.05, 24.11 and 26.05 (`src/common/read_config.c`,
`src/interfaces/cgroup.c`), in Slurm's spelling. Whether a release knows a parameter, and what values it takes, Slurm's
own parser judges.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def _names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


SLURM_CONF = _names("""
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageLoc AccountingStorageParameters AccountingStoragePass AccountingStoragePort
    AccountingStorageTRES AccountingStorageType AccountingStorageUser AccountingStoreFlags
    AccountingStoreJobComment AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType
    AcctGatherInterconnectType AcctGatherNodeFreq AcctGatherProfileType AllowSpecResourcesUsage
    AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr BackupController BatchStartTimeout BcastExclude
    BcastParameters BurstBufferParameters BurstBufferType CertgenParameters CertgenType CertmgrParameters
    CertmgrType CliFilterParameters CliFilterPlugins ClusterName CommunicationParameters CompleteWait
    ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef CpuFreqGovernors CredType CryptoType
    DataParserParameters DebugFlags DefMemPerCPU DefMemPerNode DependencyParameters DisableRootJobs DownNodes
    EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld EpilogTimeout ExtSensorsFreq
    ExtSensorsType FairShareDampeningFactor FastSchedule FederationParameters FirstJobId FrontendName
    GetEnvTimeout GpuFreqDef GresTypes GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckInterval
    HealthCheckNodeState HealthCheckProgram HealthCheckTimeout HttpParserType InactiveLimit
    InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc
    JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompType JobCompUser JobContainerType
    JobCredentialPrivateKey JobCredentialPublicCertificate JobFileAppend JobRequeue JobSubmitPlugins
    KeepAliveTime KillOnBadExit KillWait LaunchParameters LaunchType LicenseParameters Licenses LogTimeFormat
    MailDomain MailProg MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode
    MaxNodeCount MaxStepCount MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout MetricsAuthUsers
    MetricsParameters MetricsType MinJobAge MpiDefault MpiParams NamespaceType NodeFeaturesPlugins NodeName
    NodeSet OverTimeLimit PartitionName PluginDir PlugStackConfig PowerAction PowerParameters PowerPlugin
    PreemptExemptTime PreemptMode PreemptParameters PreemptType PrEpParameters PrEpPlugins PriorityCalcPeriod
    PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters
    PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
    PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
    PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologFlags
    PrologSlurmctld PrologTimeout PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept
    RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate
    ResumeTimeout ResvEpilog ResvOverRun ResvProlog ReturnToService RoutePlugin SallocDefaultCommand
    SbcastParameters SchedulerAuth SchedulerParameters SchedulerTimeSlice SchedulerType ScronParameters
    SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldHttpAuthParameters
    SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack SlurmctldPort
    SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug
    SlurmdHttpAuthParameters SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir
    SlurmdSyslogDebug SlurmdTimeout SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SlurmUser SrunEpilog
    SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram
    SuspendRate SuspendTime SuspendTimeout SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam
    TaskProlog TCPTimeout TLSParameters TLSType TmpFS TopologyParam TopologyPlugin TrackWCKey TreeWidth
    UnkillableStepProgram UnkillableStepTimeout UrlParserType UsePAM VSizeFactor WaitTime X11Parameters
""")
"""Keys of slurm.conf."""

NODE = _names("""
    BcastAddr Boards CoreSpecCount CoresPerSocket CpuBind CPUs CPUSpecList Feature Features Gres GresConf
    MemSpecLimit NodeAddr NodeHostname Parameters Port Procs RealMemory Reason RestrictedCoresPerGPU Sockets
    SocketsPerBoard State SuspendTime ThreadsPerCore TmpDisk Topology TRESWeights Weight
""")
"""Keys of a NodeName line."""

PARTITION = _names("""
    AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefMemPerCPU
    DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveTopo ExclusiveUser GraceTime Hidden LLN
    MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe
    OverTimeLimit PowerDownOnIdle PreemptMode Priority PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout
    RootOnly SelectTypeParameters Shared State SuspendTime SuspendTimeout Topology TRESBillingWeights
""")
"""Keys of a PartitionName line."""

CGROUP_CONF = _names("""
    AllowedDevicesFile AllowedKmemSpace AllowedRAMSpace AllowedSwapSpace CgroupAutomount CgroupJobIdPaths
    CgroupMountpoint CgroupPlugin CgroupReleaseAgentDir CgroupSlice ConstrainCores ConstrainDevices
    ConstrainKmemSpace ConstrainRAMSpace ConstrainSwapSpace EnableControllers EnableExtraControllers
    IgnoreSystemd IgnoreSystemdOnFailure MaxKmemPercent MaxRAMPercent MaxSwapPercent MemoryLimitEnforcement
    MemoryLimitThreshold MemorySwappiness MinKmemSpace MinRAMSpace SignalChildrenProcesses SystemdTimeout
""")
"""Keys of cgroup.conf."""

REPEATED = _names("DownNodes Epilog EpilogSlurmctld NodeSet PowerAction Prolog PrologSlurmctld SlurmctldHost")
"""Keys of slurm.conf of which each value has a line of its own (`S_P_ARRAY` in Slurm's tables).

NodeName and PartitionName are such keys too; the model writes them.
"""

LINES = _names("DownNodes NodeSet PowerAction")
"""Those of them whose lines have parameters of their own, `NodeSet=fast Feature=h100`."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: equal but for case, or else the most similar one; None if none is similar."""
    lower = {candidate.lower(): candidate for candidate in sorted(names)}
    matches = get_close_matches(name.lower(), lower, n=1)
    return lower[matches[0]] if matches else None
