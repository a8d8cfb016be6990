# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm.conf and its lines that have parameters of their own.

Names, types and releases: `slurm_conf_options`, `_nodename_options` and the other option tables in
`src/common/read_config.c` of each release; limits and choices: `_validate_and_set_defaults` and `_parse_*` there. What
a change needs: slurm.conf(5), whose sentences "A restart of slurmctld is required" ended with 23.11, `read_slurm_conf`
in `src/slurmctld/read_config.c` (what a reconfigure keeps) and `_reconfigure` in `src/slurmd/slurmd/slurmd.c`; a
listening socket, the pid file of slurmctld and the user of a daemon outlive a reconfigure of any release
(`_try_to_reconfig`). Before 23.11 slurmctld keeps its first MaxArraySize (`max_array_size` in
`src/slurmctld/job_mgr.c`), and slurmd its log file (`_read_config`); steps report to the SlurmctldPort that was when
they began. `tests/tools/check_needs` has shown these.
"""

from __future__ import annotations

SLURM_CONF = """
AccountingStorageBackupHost     host                   slurmctld
AccountingStorageEnforce        flags                  slurmctld
AccountingStorageExternalHost   hosts                  reconfigure
AccountingStorageHost           host                   slurmctld
AccountingStorageLoc            text                   reconfigure  -25.05; refused
AccountingStorageParameters     hints                  slurmctld
AccountingStoragePass           text                   slurmctld
AccountingStoragePort           u16                    slurmctld
AccountingStorageTRES           text                   daemons
AccountingStorageType           plugin storage         slurmctld
AccountingStorageUser           user                   slurmctld    defunct 25.11+
AccountingStoreFlags            hints                  reconfigure
AccountingStoreJobComment       bool                   reconfigure  refused; use AccountingStoreFlags=job_comment
AcctGatherEnergyType            plugins energy         slurmd
AcctGatherFilesystemType        plugin filesystem      slurmd
AcctGatherInfinibandType        plugin interconnect    slurmd       use AcctGatherInterconnectType
AcctGatherInterconnectType      plugin interconnect    slurmd
AcctGatherNodeFreq              u16 s                  slurmd
AcctGatherProfileType           plugin profile         slurmd
AllowSpecResourcesUsage         bool                   reconfigure
AuthAltParameters               text                   daemons
AuthAltTypes                    plugins auth           daemons
AuthInfo                        text                   daemons
AuthType                        plugin auth            cluster
BackupAddr                      host                   slurmctld    use SlurmctldHost
BackupController                host                   slurmctld    use SlurmctldHost
BatchStartTimeout               u16 s                  reconfigure
BcastExclude                    text                   reconfigure
BcastParameters                 hints                  client
BurstBufferParameters           text                   reconfigure
BurstBufferType                 plugins burst_buffer   slurmctld
CertgenParameters               text                   daemons      25.05+
CertgenType                     plugin certgen         daemons      25.05+
CertmgrParameters               text                   daemons      24.11+
CertmgrType                     plugin certmgr         daemons      24.11+
CliFilterParameters             hints                  client       25.11+
CliFilterPlugins                plugins cli_filter     client
ClusterName                     text                   cluster
CommunicationParameters         hints                  daemons!
CompleteWait                    u16 s                  reconfigure
ControlAddr                     host                   slurmctld    use SlurmctldHost
ControlMachine                  host                   slurmctld    use SlurmctldHost
CoreSpecPlugin                  text                   slurmd       defunct 24.05+
CpuFreqDef                      text                   reconfigure
CpuFreqGovernors                text                   slurmd
CredType                        plugin cred            cluster
CryptoType                      plugin crypto          cluster      use CredType
DataParserParameters            text                   daemons      24.11+
DebugFlags                      flags                  reconfigure
DefCPUPerGPU                    u64                    reconfigure
DefMemPerCPU                    u64 MiB                reconfigure
DefMemPerGPU                    u64 MiB                reconfigure
DefMemPerNode                   u64 MiB                reconfigure
DependencyParameters            hints                  reconfigure
DisableRootJobs                 bool                   reconfigure
DownNodes                       hosts                  slurmctld
EioTimeout                      u16 s                  reconfigure
EnforcePartLimits               one                    reconfigure
Epilog                          path                   reconfigure
EpilogMsgTime                   u32 us                 reconfigure
EpilogSlurmctld                 path                   reconfigure
EpilogTimeout                   u16 s                  reconfigure  25.05+
ExtSensorsFreq                  u16 s                  reconfigure  defunct 23.11+
ExtSensorsType                  plugin ext_sensors     daemons      defunct 23.11+
FairShareDampeningFactor        u16                    reconfigure
FastSchedule                    u16 1..1               reconfigure  use SlurmdParameters=config_overrides
FederationParameters            hints                  reconfigure
FirstJobId                      u32 1..                reconfigure
FrontendName                    hosts                  daemons      -24.11
GetEnvTimeout                   u16 s                  reconfigure  defunct 25.05+
GpuFreqDef                      text                   reconfigure
GresTypes                       text                   daemons
GroupUpdateForce                u16                    reconfigure
GroupUpdateTime                 u16 s                  reconfigure
HashPlugin                      plugin hash            daemons!     24.05+
HealthCheckInterval             u16 s                  reconfigure
HealthCheckNodeState            hints                  reconfigure
HealthCheckProgram              path                   reconfigure
HealthCheckTimeout              u16 s                  reconfigure  26.05+
HttpParserType                  plugin http_parser     daemons      25.11+
InactiveLimit                   u16 s                  reconfigure
InteractiveStepOptions          text                   reconfigure
JobAcctGatherFrequency          text                   reconfigure
JobAcctGatherParams             hints                  slurmd
JobAcctGatherType               plugin jobacct_gather  cluster
JobCompHost                     host                   reconfigure
JobCompLoc                      text                   reconfigure
JobCompParams                   text                   reconfigure
JobCompPass                     text                   reconfigure
JobCompPassScript               path                   reconfigure  25.11+
JobCompPort                     u32                    reconfigure
JobCompType                     plugin jobcomp         slurmctld
JobCompUser                     user                   reconfigure
JobContainerType                plugin job_container   nodes        use NamespaceType 25.11+
JobCredentialPrivateKey         path                   reconfigure  defunct 23.11+
JobCredentialPublicCertificate  path                   reconfigure  defunct 23.11+
JobFileAppend                   u16                    reconfigure
JobRequeue                      u16                    reconfigure
JobSubmitPlugins                plugins job_submit     slurmctld
KeepAliveTime                   u32 s                  reconfigure  use CommunicationParameters=keepalivetime=
KillOnBadExit                   u16                    reconfigure
KillWait                        u16 s                  reconfigure
LaunchParameters                hints                  reconfigure
LaunchType                      plugin launch          daemons
LicenseParameters               hints                  reconfigure  26.05+
Licenses                        text                   reconfigure
LogTimeFormat                   hints                  reconfigure
MailDomain                      text                   reconfigure
MailProg                        path                   slurmctld
MaxArraySize                    u32                    slurmctld
MaxBatchRequeue                 u32                    reconfigure  23.02+
MaxDBDMsgs                      u32 10000..            reconfigure
MaxJobCount                     u32 1..                slurmctld
MaxJobId                        u32                    reconfigure
MaxMemPerCPU                    u64 MiB                reconfigure
MaxMemPerNode                   u64 MiB                reconfigure
MaxNodeCount                    u32                    slurmctld
MaxStepCount                    u32 1..                reconfigure
MaxTasksPerNode                 u16                    reconfigure
MCSParameters                   text                   reconfigure
MCSPlugin                       plugin mcs             slurmctld
MessageTimeout                  u16 s                  reconfigure
MetricsAuthUsers                text                   daemons      26.05+
MetricsParameters               hints                  daemons      26.05+
MetricsType                     plugin metrics         daemons      25.11+
MinJobAge                       u32 s                  reconfigure
MpiDefault                      plugin mpi             daemons
MpiParams                       text                   reconfigure
NamespaceType                   plugin namespace       nodes        25.11+
NodeFeaturesPlugins             plugins node_features  daemons
NodeName                        hosts                  daemons
NodeSet                         text                   reconfigure
OverTimeLimit                   u16 min                reconfigure
PartitionName                   text                   reconfigure
PluginDir                       dir                    daemons
PlugStackConfig                 path                   reconfigure
PowerAction                     text                   reconfigure  26.05+
PowerParameters                 text                   reconfigure  defunct 24.05+
PowerPlugin                     plugin power           slurmctld    defunct 24.05+
PreemptExemptTime               seconds                reconfigure
PreemptMode                     flags                  reconfigure
PreemptParameters               hints                  reconfigure  23.02+
PreemptType                     plugin preempt         slurmctld
PrEpParameters                  text                   reconfigure
PrEpPlugins                     plugins prep           daemons
PriorityCalcPeriod              minutes 1..            reconfigure
PriorityDecayHalfLife           minutes                reconfigure
PriorityFavorSmall              bool                   reconfigure
PriorityFlags                   hints                  reconfigure
PriorityMaxAge                  minutes                reconfigure
PriorityParameters              text                   reconfigure
PrioritySiteFactorParameters    text                   reconfigure
PrioritySiteFactorPlugin        plugin site_factor     slurmctld
PriorityType                    plugin priority        slurmctld
PriorityUsageResetPeriod        one ResetPeriod        reconfigure
PriorityWeightAge               u32                    reconfigure
PriorityWeightAssoc             u32                    reconfigure
PriorityWeightFairshare         u32                    reconfigure
PriorityWeightJobSize           u32                    reconfigure
PriorityWeightPartition         u32                    reconfigure
PriorityWeightQOS               u32                    reconfigure
PriorityWeightTRES              text                   reconfigure
PrivateData                     hints                  reconfigure
ProctrackType                   plugin proctrack       nodes
Prolog                          path                   reconfigure
PrologEpilogTimeout             u16 s                  reconfigure
PrologFlags                     flags                  reconfigure
PrologSlurmctld                 path                   reconfigure
PrologTimeout                   u16 s                  reconfigure  25.05+
PropagatePrioProcess            u16 0..2               reconfigure
PropagateResourceLimits         flags ResourceLimits   reconfigure
PropagateResourceLimitsExcept   flags ResourceLimits   reconfigure
RebootProgram                   path                   reconfigure
ReconfigFlags                   hints                  reconfigure
RequeueExit                     text                   reconfigure
RequeueExitHold                 text                   reconfigure
ResumeFailProgram               path                   reconfigure
ResumeProgram                   path                   reconfigure
ResumeRate                      u16 nodes/min          reconfigure
ResumeTimeout                   u16 s                  reconfigure
ResvEpilog                      path                   reconfigure
ResvOverRun                     u16 min                reconfigure
ResvProlog                      path                   reconfigure
ReturnToService                 u16                    reconfigure
RoutePlugin                     plugin route           daemons      use TopologyParam=RouteTree 23.11+
SallocDefaultCommand            text                   client       refused; use LaunchParameters=use_interactive_step
SbcastParameters                hints BcastParameters  client       use BcastParameters
SchedulerAuth                   text                   reconfigure  -23.11; defunct
SchedulerParameters             hints                  reconfigure
SchedulerTimeSlice              u16 s                  reconfigure
SchedulerType                   plugin sched           slurmctld
ScronParameters                 hints                  reconfigure
SelectType                      plugin select          cluster
SelectTypeParameters            flags                  slurmctld
SlurmctldAddr                   host                   slurmctld
SlurmctldDebug                  level                  reconfigure
SlurmctldHost                   host                   slurmctld
SlurmctldHttpAuthParameters     text                   daemons      26.05+
SlurmctldLogFile                path                   reconfigure
SlurmctldParameters             hints                  slurmctld
SlurmctldPidFile                path                   slurmctld!
SlurmctldPlugstack              plugins slurmctld      slurmctld    -22.05
SlurmctldPort                   ports                  cluster
SlurmctldPrimaryOffProg         path                   reconfigure
SlurmctldPrimaryOnProg          path                   reconfigure
SlurmctldSyslogDebug            level                  reconfigure
SlurmctldTimeout                u16 s                  reconfigure
SlurmdDebug                     level                  reconfigure
SlurmdHttpAuthParameters        text                   daemons      26.05+
SlurmdLogFile                   path                   slurmd
SlurmdParameters                hints                  slurmd
SlurmdPidFile                   path                   slurmd
SlurmdPort                      u32                    daemons!
SlurmdSpoolDir                  path                   nodes
SlurmdSyslogDebug               level                  reconfigure
SlurmdTimeout                   u16 s                  reconfigure
SlurmdUser                      user                   slurmd!
SlurmSchedLogFile               path                   reconfigure
SlurmSchedLogLevel              u16                    reconfigure
SlurmUser                       user                   daemons!
SrunEpilog                      path                   client
SrunPortRange                   text                   reconfigure
SrunProlog                      path                   client
StateSaveLocation               path                   cluster
SuspendExcNodes                 hosts                  reconfigure
SuspendExcParts                 text                   reconfigure
SuspendExcStates                text                   reconfigure  23.02+
SuspendProgram                  path                   reconfigure
SuspendRate                     u16 nodes/min          reconfigure
SuspendTime                     idle                   reconfigure
SuspendTimeout                  u16 s                  reconfigure
SwitchParameters                hints                  reconfigure
SwitchType                      plugin switch          cluster
TaskEpilog                      path                   reconfigure
TaskPlugin                      plugins task           slurmd
TaskPluginParam                 flags                  reconfigure
TaskProlog                      path                   reconfigure
TCPTimeout                      u16 s                  reconfigure
TLSParameters                   text                   daemons      24.05+
TLSType                         plugin tls             daemons!     24.05+
TmpFS                           path                   reconfigure
TopologyParam                   hints                  reconfigure
TopologyPlugin                  plugin topology        daemons
TrackWCKey                      bool                   reconfigure
TreeWidth                       u16                    reconfigure
UnkillableStepProgram           path                   reconfigure
UnkillableStepTimeout           u16 s                  reconfigure
UrlParserType                   plugin url_parser      daemons      25.11+
UsePAM                          bool                   reconfigure
VSizeFactor                     u16                    reconfigure
WaitTime                        u16 s                  reconfigure
X11Parameters                   hints                  reconfigure
"""
"""Lines of one parameter."""

NODE = """
BcastAddr              hosts          daemons
Boards                 u16            nodes
CoreSpecCount          u16            nodes
CoresPerSocket         u16            nodes
CpuBind                hints          daemons
CPUs                   u16            nodes
CPUSpecList            text           nodes
Feature                text           reconfigure
Features               text           reconfigure
Gres                   text           nodes
GresConf               text           nodes        25.11+
MemSpecLimit           u64 MiB        daemons
NodeAddr               hosts          daemons
NodeHostname           hosts          daemons
NodeName               hosts          daemons
Parameters             text           daemons      25.11+
Port                   ports nodes    slurmd!
Procs                  u16            nodes        use CPUs
RealMemory             u64 MiB        daemons
Reason                 text           reconfigure
RestrictedCoresPerGPU  u16            daemons      24.05+
Sockets                u16            nodes
SocketsPerBoard        u16            nodes
State                  one NodeState  daemons
SuspendTime            idle           reconfigure  26.05+
ThreadsPerCore         u16            nodes
TmpDisk                u32 MiB        daemons
Topology               text           reconfigure  25.05+
TRESWeights            text           reconfigure
Weight                 u32            reconfigure
"""
"""Lines NodeName=. Jobs whose nodes get other cores or generic resources are aborted (`_sync_jobs_to_conf`)."""

PARTITION = """
AllocNodes            hosts                       reconfigure
AllowAccounts         text                        reconfigure
AllowGroups           text                        reconfigure
AllowQos              text                        reconfigure
Alternate             text                        reconfigure
CpuBind               hints                       reconfigure
Default               bool                        reconfigure
DefaultTime           minutes                     reconfigure
DefCPUPerGPU          u64                         reconfigure
DefMemPerCPU          u64 MiB                     reconfigure
DefMemPerGPU          u64 MiB                     reconfigure
DefMemPerNode         u64 MiB                     reconfigure
DenyAccounts          text                        reconfigure
DenyQos               text                        reconfigure
DisableRootJobs       bool                        reconfigure
Exclusive             one                         reconfigure  26.05+
ExclusiveTopo         bool                        reconfigure  24.05+
ExclusiveUser         bool                        reconfigure
GraceTime             u32 s                       reconfigure
Hidden                bool                        reconfigure
LLN                   bool                        reconfigure
MaxCPUsPerNode        u32                         reconfigure
MaxCPUsPerSocket      u32                         reconfigure  23.02+
MaxMemPerCPU          u64 MiB                     reconfigure
MaxMemPerNode         u64 MiB                     reconfigure
MaxNodes              u32                         reconfigure
MaxTime               minutes                     reconfigure
MinNodes              u32                         reconfigure
Nodes                 hosts                       reconfigure
OverSubscribe         one                         reconfigure
OverTimeLimit         text                        reconfigure
PartitionName         text                        reconfigure
PowerDownOnIdle       bool                        reconfigure  23.02+
PreemptMode           hints PartitionPreemptMode  reconfigure
Priority              u16                         reconfigure  use PriorityTier, PriorityJobFactor
PriorityJobFactor     u16                         reconfigure
PriorityTier          u16                         reconfigure
QOS                   text                        reconfigure
ReqResv               bool                        reconfigure
ResumeTimeout         u16 s                       reconfigure
RootOnly              bool                        reconfigure
SelectTypeParameters  one PartitionSelect         reconfigure
Shared                one OverSubscribe           reconfigure  use OverSubscribe
State                 one PartitionState          reconfigure
SuspendTime           idle                        reconfigure
SuspendTimeout        u16 s                       reconfigure
Topology              text                        reconfigure  25.05+
TRESBillingWeights    text                        reconfigure
"""
"""Lines PartitionName=."""

DOWN_NODES = """
DownNodes  hosts           slurmctld
Reason     text            slurmctld
State      word NodeState  slurmctld
"""
"""Lines DownNodes=."""

NODE_SET = """
Feature  text   reconfigure
Nodes    hosts  reconfigure
NodeSet  text   reconfigure
"""
"""Lines NodeSet=."""

FRONTEND = """
AllowGroups   text   daemons  -24.11
AllowUsers    text   daemons  -24.11
DenyGroups    text   daemons  -24.11
DenyUsers     text   daemons  -24.11
FrontendAddr  text   daemons  -24.11
FrontendName  hosts  daemons  -24.11
Port          u16    daemons  -24.11
Reason        text   daemons  -24.11
State         text   daemons  -24.11
"""
"""Lines FrontendName=."""

POWER_ACTION = """
Location     one PowerLocation  reconfigure  26.05+
PowerAction  text               reconfigure  26.05+
Program      path               reconfigure  26.05+
"""
"""Lines PowerAction=."""
